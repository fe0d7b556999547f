"""Every command that writes is called with known secrets wherever words or files can stand; then all objects, files,
logs and messages are searched for them, here and on the remote."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cli_samples import PAIR, write
from commands import git
from conftest import Result, Uwf
from crew_packages import folder, own, zipped
from uwf_cli.tree import uwf as command_tree

pytestmark = pytest.mark.extended

WORD = "s3cr3t" + "-of-the-file-Zx81"
SHELL = "letmein" + "please-Kq93"
TOKEN = "gh" + "p_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA2bC4"
BODY = ["Zx81kQ93mfLw72hYtB50Q1aBnM8vR4cX6pL0sD2fG", "Kq7mfLw72hYtB50Q1aBnM8vR4cX6pL0sD2fGZx81"]
KEY = "\n".join(("-----BEGIN TEST KEY-----", *BODY, "-----END TEST KEY-----"))
SECRETS = {"MODEL_KEY": WORD, "DEPLOY_TOKEN": SHELL, "github-token": TOKEN, "SIGNING_PEM": KEY}
SAID = f"Use {WORD}, {SHELL} and {TOKEN}.\nOr wrapped: {WORD[:9]}\n  {WORD[9:]}\n\n{KEY}\n"
INDENTED = KEY.replace("\n", "\n      ")
ENCODED = base64.encodebytes(KEY.encode()).decode().replace("\n", "\n      ")

# What only looks at a store, or writes the user's own files and configuration.
READS = """
workflow show, workflow list, workflow history, workflow stats, workflow diff, workflow graph, workflow validate
workflow rehearse
crew show, crew menu, crew route, crew list, crew history, crew export
thread show, thread list, thread steps, thread timeline, thread branches, thread read, thread step-details, thread turns
thread prompt, thread attempts, thread diff, thread log, thread stop, ps, grep, inbox, cas get, cas has, cas refs
cas walk, cas hash, cas schema list
cas schema get, remote list, export, agent list, agent check, config get, config list, config set, config unset
config edit, setup, templates, stats, metrics, trace export, debug, verify, completion, guide, help, watch, eval list
eval show, eval compare, eval baseline show, eval report, eval baseline list, eval baseline history, workspace list
workspace path, remote accept-rewrite, remote reject-rewrite, trust show, trust log, remote hook, attest
ci print, ci check, ci comment, eval verify, land, effect list, claims, blame, web invite, allow
"""
# What serves the other commands, and shows what is there; a fleet makes its steps as `thread step` does.
FLEET = "run worker start status pause resume cancel sync health files"
SERVES = {"mcp", "top", "web", *(f"fleet {each}" for each in FLEET.split())}


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield " ".join((*path, name))


class Caller:
    """Calls `uwf`, and keeps what it was called by and all that it said."""

    def __init__(self, uwf: Uwf, environment: dict[str, str]) -> None:
        self._uwf = uwf
        self._environment = environment
        self.called: set[str] = set()
        self.said: list[str] = []

    def __call__(self, command: str, *args: str | Path, check: int | None = 0, stdin: str = "") -> Result:
        self.called.add(command)
        done = self._uwf(*command.split(), *args, env=self._environment, check=check, input=stdin)
        self.said += [done.out, done.err]
        return done

    def refused(self, command: str, *args: str | Path, name: str) -> None:
        """Calls what must not be written; the error names the secret."""
        error = self(command, *args, check=1).error
        assert f"holds a secret ({name})" in error["message"], error


# An agent that says the secrets in an answer, and in the arguments and the result of a tool.
AGENT = """\
import json, sys
from uwf_git.kit import Context, Reply, create_agent
from uwf_git.format.kinds import TurnRecord

SAID = json.loads({said!r})

def run(ctx: Context) -> Reply:
    ctx.record(TurnRecord("tool", SAID, tool="run_command", call="1", arguments={{"command": SAID}}, result=SAID))
    print(SAID, file=sys.stderr)
    return Reply("---\\ntext: " + json.dumps(SAID) + "\\napproved: true\\n---\\n" + SAID, "session-" + {word!r})

create_agent({name!r}, run).main()
"""


def test_no_command_lets_a_known_secret_into_a_store_a_log_a_message_or_a_remote(
    uwf: Uwf, root: Path, hermetic: Path, tmp_path: Path
) -> None:
    root.mkdir()
    (root / ".env").write_text(f'MODEL_KEY={WORD}\nSIGNING_PEM="{KEY}"\n')
    call = Caller(uwf, {"DEPLOY_TOKEN": SHELL, "UWF_LOG": "debug"})
    remote = tmp_path / "remote.git"
    git("init", "-q", "--bare", remote)
    call("init")
    call("remote add", "origin", str(remote))
    _definitions(call, tmp_path)
    threads = _threads(call, tmp_path)
    _crews(call, tmp_path)
    _suites(call, tmp_path, threads)
    _sharing(call, tmp_path, threads)
    written = {name.strip() for name in ",".join(READS.split("\n")).split(",")} - {""}
    expected = set(_commands(command_tree)) - written - SERVES
    assert call.called >= expected, f"not called: {expected - call.called}"
    for store in (root / "store.git", remote, tmp_path / "other" / "store.git"):
        found = dict(_holders(store))
        assert not found, found
    for text in call.said:
        assert not _held(text.encode()), text


def _definitions(call: Caller, tmp_path: Path) -> None:
    clean = write(str(tmp_path / "pair.yaml"), PAIR)
    call("workflow put", clean)
    for name, text in (
        ("MODEL_KEY", f"systemPrompt: Use {WORD}."),
        ("MODEL_KEY", f'systemPrompt: "Use {WORD[:9]}\\\n        {WORD[9:]}"'),
        ("DEPLOY_TOKEN", f"systemPrompt: Use {SHELL}."),
        ("github-token", f"systemPrompt: Use {TOKEN}."),
        ("SIGNING_PEM", f"systemPrompt: |\n      {INDENTED}"),
        ("SIGNING_PEM", f"systemPrompt: |\n      {ENCODED}"),
    ):
        leaky = write(str(tmp_path / "leaky.yaml"), PAIR.replace("systemPrompt: Write.", text))
        call.refused("workflow put", leaky, name=name)
        call.refused("workflow propose", leaky, "--branch", "other", name=name)
        call.refused("workflow propose", leaky, "--branch", "other", "--remote", "origin", name=name)
        call.refused("thread start", leaky, "-p", "x", name=name)
        call.refused("run", leaky, "-p", "x", name=name)
    write(str(tmp_path / f"{WORD}.md"), "Write.")
    included = PAIR.replace("systemPrompt: Write.", f"systemPrompt: !include {WORD}.md")
    call.refused("workflow put", write(str(tmp_path / "named.yaml"), included), name="MODEL_KEY")
    changed = write(str(tmp_path / "changed.yaml"), PAIR.replace("Writes a text", "Writes a long text"))
    call.refused("workflow propose", changed, "--branch", WORD, name="MODEL_KEY")
    call("workflow propose", changed, "--branch", "longer", "--remote", "origin")
    call("workflow accept", "longer")
    call("workflow rollback", "pair")
    call("workflow put", write(str(tmp_path / "gone.yaml"), PAIR.replace("name: pair", "name: gone")))
    call("workflow rm", "gone")
    for command in ("workflow trust", "workflow untrust"):
        call(command, "pair", check=None)
    key = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(32)).decode()
    policy = f"people: {{ann: {{keys: [ssh-ed25519 {key}]}}}}\nmaintainers: [ann]\n"
    call.refused("trust set", write(str(tmp_path / "trust.yaml"), f"{policy}# {WORD}\n"), name="MODEL_KEY")
    call("trust init", check=None)
    call.refused("cas put", "Text", json.dumps(SAID), name="MODEL_KEY")
    call.refused("cas put", "Text", json.dumps(f"it is {WORD}"), name="MODEL_KEY")
    call("cas put", "Text", '"clean"')
    schema = '{"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}'
    call("extract", "--schema", schema, "--into", "schema", stdin=json.dumps({"word": SAID}))


def _threads(call: Caller, tmp_path: Path) -> dict[str, str]:
    agent = tmp_path / f"{WORD}-agent.py"
    agent.write_text(AGENT.format(said=json.dumps(SAID), word=WORD, name=f"agent-{WORD}"))
    runs = f"python3 {agent}"
    failing = tmp_path / f"{WORD}.sh"
    failing.write_text(f"#!/bin/sh\ncat <<'EOF'\n{SAID}\nEOF\ncat >&2 <<'EOF'\n{SAID}\nEOF\nexit 3\n")
    failing.chmod(0o755)
    started: dict[str, str] = {}
    for name in ("stepped", "killed", "failed", "removed"):
        started[name] = call("thread start", "pair", "-p", SAID).json["thread"]
    call("thread say", started["stepped"], "-m", SAID)
    call("thread permit", started["stepped"], "0123ABCD", check=3)
    call("thread step", started["stepped"], "--agent", runs)
    call("thread budget", started["stepped"], "--max-tokens", "100000", check=None)
    call("thread run", started["stepped"], "--agent", f"uwf-exec {failing}", check=None)
    call("thread step", started["failed"], "--agent", str(failing), check=6)
    call("thread step", started["failed"], "--agent", f"uwf-exec {failing}", check=None)
    call("thread retry", started["failed"], "--agent", f"uwf-exec {failing}", check=None)
    putting = tmp_path / "putting.sh"
    answer = json.dumps({"text": SAID, "approved": True})
    putting.write_text(f"cat <<'EOF' | uwf agent put-step - --name put-{WORD}\n{answer}\nEOF\n")
    tasks = write(str(tmp_path / "tasks.jsonl"), json.dumps(SAID) + "\n")
    [put] = call("thread start", "pair", "--each", tasks).json
    call("thread step", put["thread"], "--agent", f"sh {putting}")
    call.called.add("agent put-step")
    asks = f"- role: writer\n  output: {{status: needs_input, question: {json.dumps(SAID)}}}\n"
    script = write(str(tmp_path / "asks.yaml"), asks)
    call("thread step", started["killed"], "--agent", f"uwf-rehearse --script {script}")
    call("thread answer", started["killed"], "-m", SAID)
    call("thread pause", started["killed"], "-m", SAID)
    call("thread resume", started["killed"])
    call("thread kill", started["killed"], "--reason", SAID)
    call("thread fork", started["stepped"])
    call("effect run", "--thread", started["stepped"], "--", "sh", "-c", f": {WORD}")
    call("thread rm", started["removed"], "--yes")
    call("thread restore", started["removed"])
    call("run", "pair", "-p", SAID, "--agent", runs, "--max-steps", "2", check=None)
    detached = call("run", "pair", "-p", SAID, "--agent", runs, "--max-steps", "2", "--detach").json
    call("thread wait", detached["thread"], check=None)
    assert Path(detached["log"]).stat().st_size
    project = tmp_path / "project"
    git("init", "-q", project)
    git("-C", project, "commit", "-q", "--allow-empty", "-m", "first")
    place = ("--workspace", f"worktree:{project}")
    started["working"] = call("thread start", "pair", "-p", SAID, *place).json["thread"]
    call("thread step", started["working"], "--agent", runs)
    call("workspace remove", started["working"])
    call("clean", "--discard", "--yes")
    call("continue", started["working"], "--agent", runs, "--max-steps", "1", check=None)
    call("thread show", WORD, check=None)
    call("workflow show", f"{SHELL} {TOKEN}", check=None)
    return started


def _crews(call: Caller, tmp_path: Path) -> None:
    for name, said in SECRETS.items():
        leaky = folder(tmp_path / "leaky", {**own(), "texts/story.md": f"A\n\n{said}\n".encode()})
        call.refused("crew import", leaky, name=name)
        call.refused("crew propose", leaky, "--branch", "leaky", name=name)
    hidden = zipped(tmp_path / "hidden.bmad", {**own(), ".env": f"X={WORD}\n".encode()})
    call.refused("crew import", hidden, name="MODEL_KEY")
    call.refused(
        "crew import", folder(tmp_path / "named", {**own(), f"texts/{WORD}.md": b"x"}), name="MODEL_KEY"
    )
    crew = folder(tmp_path / "crew", own())
    name = call("crew import", crew).json["name"]
    call(
        "crew propose",
        folder(tmp_path / "longer", {**own(), "texts/more.md": b"x"}),
        "--branch",
        "longer-crew",
    )
    call("crew accept", "longer-crew")
    call("crew rollback", name)
    call("crew do", name, SAID, check=None)
    call("chat", name, check=None, stdin=f"{SAID}\n/quit\n")
    call("chat", check=None, stdin=f"{json.dumps(SAID)}\n/quit\n")
    call("crew rm", name, check=None)


def _suites(call: Caller, tmp_path: Path, threads: dict[str, str]) -> None:
    telling, plain = tmp_path / "telling.jsonl", tmp_path / "plain.jsonl"
    telling.write_text(json.dumps({"name": "told", "prompt": SAID, "files": {"key.txt": SAID}}) + "\n")
    plain.write_text(json.dumps({"name": "plain", "prompt": "Do it.", "workflow": "pair"}) + "\n")
    call("eval import", telling, "--to", "telling", check=None)
    call("eval import", plain, "--to", "plain", check=None)
    call("eval add", threads["stepped"], "--to", "plain", "--judge", f"jsonata:'{SHELL}' = 'x'", check=None)
    call("eval run", "plain", "--judge", f"command:sh -c 'echo {WORD}; echo {TOKEN} >&2'", check=None)
    call("eval check", "plain", "--judge", f"command:echo {WORD}", check=None)
    call("eval baseline set", "plain", "--partial", check=None)
    call("eval baseline propose", "plain", "-m", WORD, check=None)
    call("eval baseline accept", "plain", check=None)
    call("eval baseline rm", "plain", check=None)
    call("eval remove", "plain", "plain", check=None)


def _sharing(call: Caller, tmp_path: Path, threads: dict[str, str]) -> None:
    call("push", "origin")
    call("pull", "origin")
    call.refused("publish thread", threads["stepped"], "--as", WORD, "--remote", "origin", name="MODEL_KEY")
    call("publish thread", threads["stepped"], "--remote", "origin")
    call("publish workflow", "pair", "--remote", "origin")
    call("publish crew", "nobody", "--remote", "origin", check=None)
    call("unpublish", threads["stepped"], "--remote", "origin", check=None)
    bundle = tmp_path / "all.bundle"
    call("bundle", bundle, check=None)
    call("unbundle", bundle, check=None)
    examples = Path(__file__).parents[2] / "examples"
    call("import", examples / "old-store", check=None)
    log = (examples / "sessions" / "claude-code.jsonl").read_text()
    trajectory = (examples / "sessions" / "trajectory.json").read_text().replace("Shortened.", WORD)
    call("import atif", write(str(tmp_path / "trajectory.json"), trajectory.replace("It quotes.", TOKEN)))
    call("import session", write(str(tmp_path / "session.jsonl"), log.replace("note.txt", WORD)))
    call("gc")
    call("expire", "--yes")
    call("cas reindex")
    call("doctor", check=None)
    call("verify")
    call("remote rm", "origin")
    call("clone", str(tmp_path / "remote.git"), check=None)


def _needles() -> dict[str, list[bytes]]:
    """What gives a secret away, whichever way its lines were broken."""
    found = {name: [value.encode(), json.dumps(value)[1:-1].encode()] for name, value in SECRETS.items()}
    found["SIGNING_PEM"] = [line.encode() for line in BODY]
    found["MODEL_KEY"] += [WORD[9:].encode()]
    for name, each in found.items():
        for value in [SECRETS[name].encode()]:
            each += [base64.b64encode(bytes(skipped) + value)[8:-4] for skipped in range(3)]
    return found


NEEDLES = _needles()


def _held(data: bytes) -> list[str]:
    return [name for name, each in NEEDLES.items() if any(needle in data for needle in each)]


def _holders(store: Path) -> Iterator[tuple[str, list[str]]]:
    """What in a store holds secrets: objects, refs, and all files beside them."""
    if not store.exists():
        return
    for line in git("--git-dir", store, "cat-file", "--batch-all-objects", "--batch-check").splitlines():
        oid, kind, _ = line.split()
        if held := _held(git("--git-dir", store, "cat-file", kind, oid).encode()):
            yield f"{kind} {oid}", held
    for path in store.rglob("*"):
        if not path.is_file() or "objects" in path.parts:
            continue
        if held := _held(path.read_bytes() + str(path.relative_to(store)).encode()):
            yield str(path), held


@pytest.mark.parametrize(
    ("setting", "variable"), [("user.name", "GIT_COMMITTER_NAME"), ("user.email", "GIT_COMMITTER_EMAIL")]
)
def test_a_user_who_is_named_like_a_secret_writes_nothing(
    uwf: Uwf, root: Path, tmp_path: Path, setting: str, variable: str
) -> None:
    pair = write(str(tmp_path / "pair.yaml"), PAIR)
    uwf("workflow", "put", pair)
    thread = uwf("thread", "start", "pair", "-p", "x").json["thread"]
    (root / ".env").write_text(f"MODEL_KEY={WORD}\n")
    store = root / "store.git"
    before = git("--git-dir", store, "cat-file", "--batch-all-objects", "--batch-check")
    inherited = {"GIT_COMMITTER_NAME": "", "GIT_COMMITTER_EMAIL": ""}
    said = f"ada.{WORD}@example.com"
    git("--git-dir", store, "config", setting, said)
    changed = write(str(tmp_path / "changed.yaml"), PAIR.replace("name: pair", "name: other"))
    for env, named in ((inherited, f"git config {setting}"), ({**inherited, variable: said}, variable)):
        for command in (
            ("workflow", "put", changed),
            ("thread", "start", "pair", "-p", "y"),
            ("thread", "pause", thread, "-m", "why"),
            ("thread", "kill", thread),
            ("cas", "put", "Text", '"clean"'),
        ):
            error = uwf(*command, env=env, check=1).error
            assert error["message"].startswith(f"{named} holds a secret (MODEL_KEY), "), error
            assert WORD not in str(error) and setting in error["hint"]
    assert git("--git-dir", store, "cat-file", "--batch-all-objects", "--batch-check") == before
    assert WORD.encode() not in (store / "uwf" / "index.db").read_bytes()
    git("--git-dir", store, "config", "--unset", setting)
    uwf("thread", "kill", thread, env=inherited)


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    git("init", "-q", "--bare", tmp_path / "s.git")
    for text in (SAID, json.dumps(SAID), base64.b64encode(f"x{WORD}yz".encode()).decode()):
        git("--git-dir", tmp_path / "s.git", "hash-object", "-w", "--stdin", data=text)
    (tmp_path / "s.git" / "log").write_text(SHELL)
    assert len(dict(_holders(tmp_path / "s.git"))) == 4
