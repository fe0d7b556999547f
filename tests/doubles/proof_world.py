"""A shared repository with signed history, the people around it, and the ways in which somebody with its files or a
right to push would forge it: each forgery changes one thing and makes all else fit as well as it can."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from conftest import Uwf
from signers import Signer, SigningMachine, trust_file

GATE = """\
name: gate
description: One works, a person decides.
roles:
  worker:
    description: Works.
    systemPrompt: Work.
    outputSchema: {type: object, properties: {text: {type: string}}, required: [text]}
  reviewer:
    description: Decides.
    human: true
    outputSchema:
      type: object
      properties: {status: {enum: [more, done]}, reason: {type: string}}
      required: [status]
graph:
  $START: [{role: worker}]
  worker: [{role: reviewer}]
  reviewer: {more: {role: worker}, done: {role: $END}}
"""
RULES = '[{threads: "*", require: signed}, {workflows: "*", signed-by: [ann]}]'
Change = Callable[[str], str]


class ProofWorld:
    """Ann runs the workflow, Bob reviews and has seen all of it, Mallory may push and has a key that nobody knows.
    `thread` has ended after four steps, `other` goes on after two."""

    def __init__(self, uwf: Uwf, folder: Path, kept: Path) -> None:
        self._uwf = uwf
        self.folder = folder
        self.shared = folder / "shared.git"
        if not (kept / "ids").exists():
            self._begin(kept)
        for part in ("keys", "ann", "bob", "shared.git"):
            shutil.copytree(kept / part, folder / part)
        self.thread, self.other = (kept / "ids").read_text().split()
        for name in ("ann", "bob"):
            config = folder / "keys" / f"{name}.gitconfig"
            config.write_text(config.read_text().replace(str(kept), str(folder)))
            store = folder / name / "store.git"
            self.git("config", "remote.origin.url", str(self.shared), at=store)
        self.ann, self.bob = self.machine("ann"), self.machine("bob")

    def _begin(self, kept: Path) -> None:
        kept.mkdir(parents=True, exist_ok=True)
        shared = kept / "shared.git"
        subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha1", shared], check=True)
        ann, bob = (SigningMachine(self._uwf, kept / name, Signer(kept, name)) for name in ("ann", "bob"))
        ann("init")
        trust = kept / "trust.yaml"
        trust.write_text(trust_file({"ann": ann.signer, "bob": bob.signer}, rules=RULES))
        ann("trust", "set", trust)
        ann.registers(GATE)
        ann("remote", "add", "origin", shared)
        thread, other = (ann.starts(prompt, workflow="gate") for prompt in ("One", "Another"))
        works(ann, thread, "first")
        works(ann, other, "first")
        ann("push")
        bob("clone", shared)
        for each, status in ((thread, "more"), (other, "more")):
            bob("thread", "answer", each, "-f", f"status={status}", "-f", "reason=look")
        bob("push")
        ann("pull")
        works(ann, thread, "second")
        ann("push")
        bob("pull")
        bob("thread", "answer", thread, "-f", "status=done", "-f", "reason=good")
        bob("publish", "thread", thread)
        bob("publish", "workflow", "gate")
        bob("push")
        ann("pull")
        (kept / "ids").write_text(f"{thread} {other}")

    def machine(self, name: str) -> SigningMachine:
        """A machine with the key of a person, which is made if they have none yet."""
        root = self.folder / name
        config = self.folder / "keys" / f"{name}.gitconfig"
        signer = Signer.__new__(Signer)
        if config.exists():
            signer.name, signer.key, signer.config = name, self.folder / "keys" / name, config
        else:
            signer = Signer(self.folder, name)
        return SigningMachine(self._uwf, root, signer)

    def mallory(self) -> SigningMachine:
        """A clone of what is shared, by somebody whose key is not in the policy."""
        machine = self.machine("mallory")
        machine("clone", self.shared)
        return machine

    def without_policy(self, signs: bool = False) -> SigningMachine:
        """Mallory's clone, in which no policy is in the way, and with `signs` her own key signs."""
        machine = self.mallory()
        self.git("update-ref", "-d", "refs/uwf/trust/policy", at=machine.store)
        (machine.store / "uwf" / "policy").unlink(missing_ok=True)
        machine.signer.signs(commits=signs)
        return machine

    # git

    def git(self, *args: str, at: Path | None = None, data: str | None = None) -> str:
        command = ["git", "--git-dir", str(at or self.shared), *args]
        done = subprocess.run(command, input=data, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def raw(self, oid: str) -> str:
        kind = self.git("cat-file", "-t", oid)
        command = ["git", "--git-dir", str(self.shared), "cat-file", kind, oid]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def written(self, text: str, kind: str = "commit") -> str:
        return self.git("hash-object", "-t", kind, "-w", "--literally", "--stdin", data=text)

    def ref(self, name: str) -> str:
        return self.git("rev-parse", name)

    def put(self, name: str, oid: str | None) -> None:
        self.git("update-ref", *(("-d", name) if oid is None else (name, oid)))

    @property
    def archive(self) -> str:
        return f"refs/uwf/archive/{self.thread}"

    @property
    def active(self) -> str:
        return f"refs/uwf/threads/{self.other}"

    # Forging

    def recommit(self, change: Change, steps: int = 1) -> None:
        """Make the last `steps` commits of both threads again, with a change of their raw text; the tag follows."""
        self.put(self.active, self.again(self.ref(self.active), change, steps))
        self.retarget(self.again(self.ref(f"{self.archive}^{{commit}}"), change, steps))

    def again(self, head: str, change: Change, steps: int) -> str:
        """Make the last `steps` commits of a head again, with a change of their raw text; the new head."""
        parent = ""
        for oid in reversed(self.git("rev-list", "--first-parent", f"-{steps}", head).split()):
            text = self.raw(oid)
            if parent:
                text = re.sub(r"^parent .*$", f"parent {parent}", text, count=1, flags=re.MULTILINE)
            parent = self.written(change(text))
        assert parent != head
        return parent

    def retarget(self, head: str) -> None:
        """Let the archive tag lead to another commit."""
        self.retag(replaced(r"^object .*$", f"object {head}"))

    def retag(self, change: Change) -> None:
        self.put(self.archive, self.written(change(self.raw(self.ref(self.archive))), "tag"))

    def retree(self, path: str, data: bytes | None, mode: str = "100644") -> None:
        """Change a file of the last commit of the ended thread, whose tag follows; None removes it."""
        commit = self.ref(f"{self.archive}^{{commit}}")
        self.retarget(
            self.with_tree(commit, self.tree_with(f"{commit}^{{tree}}", path.split("/"), data, mode))
        )

    def with_tree(self, commit: str, tree: str) -> str:
        return self.written(replaced(r"^tree .*$", f"tree {tree}")(self.raw(commit)))

    def tree_with(self, tree: str, path: list[str], data: bytes | None, mode: str) -> str:
        rows = {line.split("\t")[1]: line.split("\t")[0] for line in self.git("ls-tree", tree).splitlines()}
        name, *rest = path
        if rest:
            below = rows[name].split(" ")[2]
            rows[name] = f"040000 tree {self.tree_with(below, rest, data, mode)}"
        elif data is None:
            del rows[name]
        else:
            command = ["git", "--git-dir", str(self.shared), "hash-object", "-w", "--stdin"]
            blob = (
                subprocess.run(command, input=data, capture_output=True, check=True).stdout.decode().strip()
            )
            rows[name] = f"{mode} blob {blob}"
        return self.git("mktree", data="".join(f"{row}\t{name}\n" for name, row in rows.items()))

    def files(self, treeish: str) -> list[str]:
        return self.git("ls-tree", "-r", "--name-only", treeish).splitlines()

    def read(self, treeish: str, path: str) -> str:
        return subprocess.run(
            ["git", "--git-dir", str(self.shared), "show", f"{treeish}:{path}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def works(who: SigningMachine, thread: str, text: str, **more: str) -> None:
    agent = f"""uwf-exec echo '{{"text": "{text}"}}'"""
    who("thread", "step", thread, "--agent", agent, env=more)


def named(name: str) -> dict[str, str]:
    """The environment in which git commits in a person's name."""
    return {"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": f"{name}@example.invalid"}


# Changes of a commit's or tag's raw text


def unsigned(text: str) -> str:
    head, _, body = text.partition("\n\n")
    lines, inside = [], False
    for line in head.split("\n"):
        inside = line.startswith("gpgsig ") or (inside and line.startswith(" "))
        if not inside:
            lines.append(line)
    body = body.partition("-----BEGIN ")[0] if text.startswith("object ") else body
    return "\n".join(lines) + "\n\n" + body


def replaced(pattern: str, by: str) -> Change:
    """A change that must change something."""

    def change(text: str) -> str:
        new = re.sub(pattern, by, text, count=1, flags=re.MULTILINE)
        assert new != text, pattern
        return new

    return change


def signed_by(world: ProofWorld, signer: Signer) -> Change:
    """The same object signed anew by another key."""

    def change(text: str) -> str:
        bare = unsigned(text)
        is_tag = bare.startswith("object ")
        data = world.folder / "to-sign"
        data.write_text(bare)
        command = ["ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", str(signer.key), str(data)]
        subprocess.run(command, check=True, capture_output=True)
        signature = data.with_name("to-sign.sig").read_text().strip()
        data.with_name("to-sign.sig").unlink()
        if is_tag:
            return f"{bare}{signature}\n"
        head, _, body = bare.partition("\n\n")
        return head + "\ngpgsig " + signature.replace("\n", "\n ") + "\n\n" + body

    return change
