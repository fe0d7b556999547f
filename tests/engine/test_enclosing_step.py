"""A command that runs within a step does nothing in the user's name."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cli_samples import write
from conftest import Uwf
from warm import command as quick_uwf

GATED = """\
name: gated
description: A person decides.
roles:
  maker: {description: Makes., systemPrompt: Make., outputSchema: {type: object}}
  gate:
    description: Decides.
    human: true
    outputSchema: {type: object, properties: {decision: {enum: [ship, stop]}}, required: [decision]}
graph:
  $START: [{role: maker}]
  maker: [{role: gate, prompt: Ship?}]
  gate: [{role: $END}]
"""
MAKES = "uwf-exec echo '{}'"


@pytest.fixture
def waiting(uwf: Uwf) -> str:
    """A thread at a person's role."""
    write("gated.yaml", GATED)
    uwf("workflow", "put", "gated.yaml")
    thread = str(uwf("thread", "start", "gated", "-p", "Do").json["thread"])
    uwf("thread", "step", thread, "--agent", MAKES)
    return thread


def within(uwf: Uwf, commands: str, shell: str = "sh", as_fork: bool = False) -> str:
    """Run commands as the agent of a step of another thread, and return what they print. With `as_fork` their `uwf` is
    no interpreter that descends from the step: it knows the step by its environment alone."""
    called = f'uwf() {{ {shlex.join(quick_uwf())} "$@"; }}\n' if as_fork else ""
    Path("commands").write_text(called + commands)
    other = uwf("thread", "start", "gated", "-p", "Other").json["thread"]
    uwf(
        "thread",
        "step",
        other,
        "--agent",
        f"uwf-exec sh -c '{shell} commands >printed 2>&1; echo {{}}'",
        check=None,
    )
    return Path("printed").read_text()


def kept(*names: str) -> str:
    return " ".join(f'{name}="${name}"' for name in ("PATH", "HOME", "UWF_STORAGE_ROOT", *names))


PYTHON = """\
import os, subprocess
names = ("PATH", "HOME", "UWF_STORAGE_ROOT")
env = {{name: os.environ[name] for name in names}}
subprocess.run({words!r}, env=env, start_new_session=True)
"""


@pytest.mark.parametrize(
    "way",
    [
        "{answer}",
        "env -u UWF_NONCE -u UWF_NO_APPROVALS -u UWF_THREAD {answer}",
        f"env -i {kept()} {{answer}}",
        f"exec env -i {kept()} {{answer}}",
        f"exec 0</dev/null 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; env -i {kept()} {{answer}}",
        f"(setsid env -i {kept()} {{answer}} >later 2>&1 &); sleep 2; cat later",
    ],
)
def test_no_answer_comes_from_within_a_step_however_it_is_started(uwf: Uwf, waiting: str, way: str) -> None:
    printed = within(uwf, way.format(answer=f"uwf thread answer {waiting} -m ship"))
    assert f"only a person answers thread {waiting}" in printed
    assert uwf("thread", "show", waiting).json["status"] == "waiting"
    assert uwf("thread", "answer", waiting, "-m", "ship").json["status"] == "completed"


def test_nor_from_a_program_that_starts_it_with_an_environment_of_its_own(uwf: Uwf, waiting: str) -> None:
    words = ["uwf", "thread", "answer", waiting, "-m", "ship"]
    printed = within(uwf, PYTHON.format(words=words), shell=sys.executable)
    assert f"only a person answers thread {waiting}" in printed


ORPHANED = """\
import os, subprocess, time
env = {{name: os.environ[name] for name in ("PATH", "HOME", "UWF_STORAGE_ROOT")}}
if os.fork() == 0:
    words = ["sh", "-c", {words!r}]
    subprocess.Popen(words, env=env, start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
    os._exit(0)
os.wait()
{after}
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="adopts orphans on Linux")
@pytest.mark.parametrize("is_awaited", [True, False], ids=["while it runs", "later"])
def test_nor_from_an_orphan_with_an_environment_of_its_own(
    uwf: Uwf, waiting: str, tmp_path: Path, is_awaited: bool
) -> None:
    heard, begun = tmp_path / "heard", tmp_path / "begun"
    act = f"uwf thread answer {waiting} -m ship >{heard}.part 2>&1; mv {heard}.part {heard}"
    words = act if is_awaited else f"echo $$ >{begun}; sleep 600; {act}"
    file = heard if is_awaited else begun
    after = f"while not os.path.exists({str(file)!r}): time.sleep(0.01)"
    within(uwf, ORPHANED.format(words=words, after=after), shell=sys.executable)
    if is_awaited:
        assert f"only a person answers thread {waiting}" in heard.read_text()
    else:
        with pytest.raises(ProcessLookupError):
            os.kill(int(begun.read_text()), 0)
    assert uwf("thread", "show", waiting).json["status"] == "waiting"


def test_nor_from_a_terminal_that_a_step_opens(uwf: Uwf, waiting: str) -> None:
    words = ["uwf", "thread", "step", waiting]
    printed = within(uwf, f"import pty\npty.spawn({words!r})\n", shell=sys.executable)
    assert f"only a person plays role 'gate' of thread {waiting}" in printed
    assert uwf("thread", "show", waiting).json["status"] == "waiting"
    assert not uwf("thread", "attempts", waiting).json


def test_nor_by_the_python_api(uwf: Uwf, waiting: str) -> None:
    code = f"import uwf_git as uwf\nuwf.open().thread({waiting!r}).answer('ship')\n"
    assert f"only a person answers thread {waiting}" in within(uwf, code, shell=sys.executable)


def test_nor_to_a_question_of_an_agent(uwf: Uwf) -> None:
    write("gated.yaml", GATED)
    uwf("workflow", "put", "gated.yaml")
    asking = uwf("thread", "start", "gated", "-p", "Do").json["thread"]
    question = """uwf-exec echo '{"$status": "suspended", "question": "Which?"}'"""
    uwf("thread", "step", asking, "--agent", question)
    if uwf("thread", "show", asking).json["status"] != "waiting":
        pytest.fail("nothing was asked")
    assert f"only a person answers thread {asking}" in within(uwf, f"uwf thread answer {asking} -m This")


ACTS = (
    "uwf thread kill {thread} --yes",
    "uwf thread pause {thread}",
    "uwf thread resume {thread}",
    "uwf thread stop {thread}",
    "uwf thread rm {thread} --yes",
    "uwf config set defaultAgent uwf-codex",
    "uwf config unset defaultAgent",
    "uwf setup --agent uwf-codex",
    "EDITOR=true uwf config edit",
    "uwf doctor --accept-store",
    "uwf --root {here}/gone doctor --accept-store",
    "uwf remote accept-rewrite {thread}",
    "uwf remote reject-rewrite {thread}",
    "uwf push origin {thread} --delete",
    "uwf workflow accept shorter",
    "uwf clean --yes",
)


def test_nothing_else_is_done_in_the_users_name(uwf: Uwf, waiting: str) -> None:
    uwf("config", "set", "defaultAgent", "uwf-rehearse")
    uwf("remote", "add", "origin", Path("elsewhere.git").absolute())
    Path("gone").mkdir()
    Path("gone/config.yaml").write_text("{}\n")  # of a store that is gone
    commands = [act.format(thread=waiting, here=Path.cwd()) for act in ACTS]
    shell = "".join(f"{command} 2>&1 | cat; echo =====\n" for command in commands)
    printed = within(uwf, shell, as_fork=True)
    for act, words in zip(ACTS, printed.split("=====\n")[:-1], strict=True):
        assert "this command runs within a step of thread" in words and "only a person" in words, act
    assert uwf("thread", "show", waiting).json["status"] == "waiting"
    assert uwf("config", "get", "defaultAgent").json == "uwf-rehearse"


def test_a_step_does_all_of_that_in_a_store_of_its_own(uwf: Uwf, waiting: str) -> None:
    commands = f"""\
export UWF_STORAGE_ROOT="$PWD/own"
unset UWF_STORE UWF_NO_APPROVALS
uwf config set defaultAgent {shlex.quote(MAKES)} && uwf config set agents.x.command true
uwf workflow put gated.yaml && uwf run gated -p Do
uwf thread answer @ -m ship && echo answered
uwf remote add origin "$PWD/elsewhere.git"
uwf run gated -p Again
uwf thread answer @ -m ship || echo refused
"""
    printed = within(uwf, commands)
    assert "answered" in printed and "refused" in printed


ELSEWHERE = """\
uwf bundle -o taken {thread}
user="$UWF_STORAGE_ROOT"
export UWF_STORAGE_ROOT="$PWD/own"
unset UWF_STORE UWF_NO_APPROVALS
uwf unbundle taken
{act}
"""
BACK = 'uwf bundle -o back {thread}\nUWF_STORAGE_ROOT="$user" uwf unbundle back\n'
PULLED = 'UWF_STORAGE_ROOT="$user" uwf remote add mine "$PWD/own/store.git"\nUWF_STORAGE_ROOT="$user" uwf pull mine\n'


@pytest.mark.sample(2)
@pytest.mark.parametrize("way", [BACK, PULLED])
@pytest.mark.parametrize("act", ["uwf thread answer {thread} -m ship", "uwf thread kill {thread} --yes"])
def test_nor_does_it_come_back_from_a_store_of_its_own(uwf: Uwf, waiting: str, act: str, way: str) -> None:
    printed = within(uwf, (ELSEWHERE.format(thread=waiting, act=act) + way).format(thread=waiting))
    taken = f"takes answers of thread {waiting} over" if "answer" in act else f"kills thread {waiting}"
    assert f"this command runs within a step, and only a person {taken}" in printed
    assert uwf("thread", "show", waiting).json["status"] == "waiting"
    assert uwf("thread", "answer", waiting, "-m", "ship").json["status"] == "completed"


def test_nor_is_it_sent_elsewhere_from_there(uwf: Uwf, waiting: str, tmp_path: Path) -> None:
    forge = tmp_path / "forge.git"
    subprocess.run(["git", "init", "-q", "--bare", forge], check=True)
    act = f"uwf thread answer {waiting} -m ship && echo answered\nuwf remote add origin {forge}\nuwf push origin"
    printed = within(uwf, ELSEWHERE.format(thread=waiting, act=act))
    assert "answered" in printed and "a step sends no answers that it has given itself" in printed
    refs = subprocess.run(["git", "-C", forge, "for-each-ref"], capture_output=True, check=True).stdout
    assert not refs


@pytest.mark.parametrize(
    "claim",
    [
        'touch "$UWF_STORAGE_ROOT/made-within-a-step" "$UWF_STORAGE_ROOT" "$UWF_STORAGE_ROOT/store.git"',
        'mv "$UWF_STORAGE_ROOT" aside; mkdir "$UWF_STORAGE_ROOT"; mv aside/* "$UWF_STORAGE_ROOT/"',
        'mkdir own; ln -s "$UWF_STORAGE_ROOT/store.git" own/store.git; export UWF_STORAGE_ROOT="$PWD/own"',
    ],
)
def test_no_file_makes_the_users_store_the_steps_own(uwf: Uwf, waiting: str, claim: str) -> None:
    printed = within(uwf, f"{claim}\nunset UWF_STORE\nuwf thread answer {waiting} -m ship")
    assert f"only a person answers thread {waiting}" in printed
    assert uwf("thread", "show", waiting).json["status"] == "waiting"


HOOK = """\
#!/bin/sh
uwf thread answer $UWF_THREAD -m ship >>heard 2>&1
env -u UWF_EVENT uwf thread answer $UWF_THREAD -m ship >>heard 2>&1
uwf thread pause $UWF_THREAD
"""


def test_a_hook_is_no_person(uwf: Uwf, waiting: str, root: Path) -> None:
    Path("hook").write_text(HOOK)
    Path("hook").chmod(0o755)
    (root / "config.yaml").write_text(f"hooks:\n  waiting: {Path('hook').absolute()}\n")
    thread = uwf("thread", "start", "gated", "-p", "Do").json["thread"]
    uwf("thread", "run", thread, "--agent", MAKES, check=None)
    heard = (root / "heard").read_text()
    assert heard.count(f"runs within a hook, and only a person answers thread {thread}") == 2
    assert uwf("thread", "show", thread).json["status"] == "paused"  # which needs no person
