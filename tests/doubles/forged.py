"""Commits, trees and nodes made by hand with plain git: what uwf never would write, and what it would."""

from __future__ import annotations

import hashlib
import re
import subprocess
import zlib
from pathlib import Path
from typing import Any

from uwf_git.format.ids import Hash
from uwf_git.format.kinds import REHEARSE, Step, StepContext
from uwf_git.format.node import Node, hash_of, to_blob
from uwf_git.format.types import DETAIL, STEPNODE
from uwf_git.store import pages
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance
from uwf_git.store.layout import message, step_folder
from uwf_git.store.pages import PageState, PageStep

WORKFLOW = """\
name: pair
description: A writer and a critic.
roles:
  writer:
    description: Writes
    systemPrompt: Write.
    outputSchema: {type: object, properties: {title: {type: string}}, required: [title]}
  critic:
    description: Judges
    systemPrompt: Judge.
    outputSchema: {type: object, properties: {approved: {type: boolean}}, required: [approved]}
conditions:
  approved: {description: It is good, expression: "steps[-1].output.approved"}
graph:
  $START: [{role: writer, prompt: "Write about {{ prompt }}."}]
  writer: [{role: critic, prompt: "Judge {{ title }}."}]
  critic: [{role: $END, condition: approved}, {role: writer}]
"""

Folder = dict[str, Any]  # names to folders, or to blob ids


class Forger:
    """A store written to by plain git."""

    def __init__(self, git_dir: Path) -> None:
        self.git_dir = git_dir
        self.nodes: dict[str, bytes] = {}

    def __call__(self, *args: str, data: bytes | None = None) -> str:
        command = ["git", "--git-dir", str(self.git_dir), *args]
        done = subprocess.run(command, input=data, capture_output=True, check=True)
        return done.stdout.decode("utf-8", "replace").strip()

    def write(self, kind: str, data: bytes) -> str:
        """Stores an object whatever it holds, as `git hash-object --literally` would."""
        content = b"%s %d\0%s" % (kind.encode(), len(data), data)
        name = hashlib.sha1(content).hexdigest()
        path = self.git_dir / "objects" / name[:2] / name[2:]
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(zlib.compress(content))
        return name

    def blob(self, data: bytes) -> str:
        return self.write("blob", data)

    def read(self, oid: str) -> bytes:
        command = ["git", "--git-dir", str(self.git_dir), "cat-file", "blob", oid]
        return subprocess.run(command, capture_output=True, check=True).stdout

    def rows(self, *rows: tuple[str, bytes, str]) -> str:
        """A tree of rows (mode, name, id), just as they are given."""
        data = b"".join(b"%s %s\0%s" % (m.encode(), n, bytes.fromhex(i)) for m, n, i in rows)
        return self.write("tree", data)

    def folder(self, treeish: str) -> Folder:
        """A tree as a mapping that can be changed and written again."""
        found: Folder = {}
        for line in self("ls-tree", "-z", treeish).split("\0"):
            if line:
                head, name = line.split("\t", 1)
                _mode, kind, oid = head.split(" ")
                found[name] = self.folder(oid) if kind == "tree" else oid
        return found

    def tree(self, folder: Folder, odd: tuple[tuple[str, bytes, str], ...] = ()) -> str:
        """Writes a folder; `odd` rows come in their place among the others."""
        rows = [
            ("40000", name.encode(), self.tree(inner))
            if isinstance(inner, dict)
            else ("100644", name.encode(), inner)
            for name, inner in folder.items()
        ]
        return self.rows(*sorted([*rows, *odd], key=lambda row: row[1] + b"/" * (row[0] == "40000")))

    def commit(self, tree: str, parents: list[str], text: str, author: str = "") -> str:
        """A commit; of a step, by the agent that its trailer names, but for another author."""
        person = "Mallory Example <mallory@example.invalid>"
        agent = re.search(r"^Uwf-Agent: (.*)$", text, re.MULTILINE)
        author = author or (f"{agent[1]} <{agent[1]}@agents.invalid>" if agent else person)
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
        lines += [f"author {author} 1700000000 +0000", f"committer {person} 1700000000 +0000"]
        return self.write("commit", ("\n".join(lines) + "\n\n" + text).encode())

    def amended(
        self, commit: str, tree: str | None = None, parents: list[str] | None = None, text: str = ""
    ) -> str:
        """A commit like another, but for what is given."""
        old = self("rev-parse", f"{commit}^@").split()
        was = self("log", "-1", "--format=%B", commit) + "\n"
        return self.commit(
            tree or self("rev-parse", f"{commit}^{{tree}}"), old if parents is None else parents, text or was
        )

    def point(self, ref: str, oid: str) -> None:
        """Makes a ref point at anything."""
        path = self.git_dir / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{oid}\n")

    def node(self, type_hash: str, payload: Any) -> str:
        """A node's hash; its file's content is kept in `nodes`."""
        node = hash_of(type_hash, payload)  # type: ignore[arg-type]
        self.nodes[node] = to_blob(Node(type_hash, payload, 1))  # type: ignore[arg-type]
        return node


class Line:
    """A thread of WORKFLOW that is lengthened by hand."""

    def __init__(self, forger: Forger, thread: str, start: str, schemas: dict[str, str]) -> None:
        self.forger = forger
        self.thread = thread
        self.start = start
        self.schemas = schemas
        self.ref = f"refs/uwf/threads/{thread}"
        self.first = forger("rev-parse", self.ref)

    def step(
        self,
        parent: str,
        number: int,
        prev: str | None,
        role: str,
        output: Any,
        *,
        instruction: str | None = None,
        **changes: Any,
    ) -> tuple[str, str]:
        """A step's commit and StepNode, as the format has them but for the changes: `start`, `type` (of the
        output), `agent`, `context`, `detail` (more fields), `page`, `text` (the commit's message), `parents`,
        `folder` (a function that alters the step's folder), `root` (one that alters the whole tree)."""
        forger = self.forger
        made = forger.node(changes.get("type", self.schemas.get(role, "")), output)
        detail = {
            "answer": "As it is.",
            "turns": [],
            "session": None,
            "model": None,
            "usage": None,
            "durationMs": 1,
            "instruction": instruction,
            "context": changes.get("context", prev or self.start),
            "extraction": "native",
            **changes.get("detail", {}),
        }
        said = forger.node(DETAIL, detail)
        payload = {
            "start": changes.get("start", self.start),
            "prev": prev,
            "role": role,
            "output": made,
            "detail": said,
            "agent": (agent := changes.get("agent", "by-hand")),
        }
        node = forger.node(STEPNODE, payload)
        files = {f"{each}.json": forger.blob(forger.nodes[each]) for each in (made, said, node)}
        context = StepContext(Hash(node), role, output, Hash(said), agent)
        shown = PageStep(number, context, Node(DETAIL, detail, 1))
        page = changes["page"].encode() if "page" in changes else pages.step_page(shown)
        folder: Folder = {"README.md": forger.blob(page), "nodes": files}
        if "folder" in changes:
            changes["folder"](folder)
        root = forger.folder(parent)
        lines = [*pages.lines_in(forger.read(root["README.md"])), pages.line_of(number, context)]
        standing = PageState("tides", "pair", number, int(agent == REHEARSE), context, None)
        root["README.md"] = forger.blob(pages.thread_page(standing, lines))
        at = root
        for name in (path := step_folder(number, role))[:-1]:
            at = at.setdefault(name, {})
        at[path[-1]] = folder
        odd = changes["root"](root) if "root" in changes else None
        verdict = pages.verdict(output)
        subject = f"{number:04d} {role}: {verdict}" if verdict else f"{number:04d} {role}"
        text = message(
            subject,
            {"Uwf-Step": node, "Uwf-Role": role, "Uwf-Agent": agent, "Uwf-Extraction": "native"},  # type: ignore[dict-item]
        )
        tree = forger.tree(root, tuple(odd or ()))
        return forger.commit(tree, changes.get("parents", [parent]), changes.get("text", text)), node


def stepped(instance: Instance, head: Head, role: str, output: object, detail: Hash | None = None) -> Head:
    """A thread with one more step, written through the library; `detail` is a sub-workflow's last step."""
    store, history = instance.store, instance.threads.history(head)
    merge = (instance.threads.commit_of(detail),) if detail else ()
    if detail is None:
        payload = {"answer": "A", "turns": [], "session": None, "model": None, "usage": None, "durationMs": 0}
        detail = store.put(
            DETAIL, {**payload, "instruction": None, "context": head.node, "extraction": "native"}
        )
    made = store.put(history.workflow.roles[role].schema, output)
    step = Step(history.start_hash, history.prev, role, made, detail, "by-hand")
    extraction = "" if merge else "native"
    known = {each.hash for each in history.steps}
    node = store.put(STEPNODE, step.payload())
    return instance.threads.append(head, node, known, merge, extraction)
