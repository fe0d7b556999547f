"""A command reaches its project and the system's programs, and nothing else: not the user's files, not the
engine's environment, not the network, not the time after its step."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import need

from uwf_git.config.policy import ToolPolicy
from uwf_git.ext.builtin.environment import standard_tools
from uwf_git.ext.builtin.tools.tool import Toolbox
from uwf_git.sandbox import bubblewrap as sandbox
from uwf_git.sandbox import limits
from uwf_git.sandbox.quota import Quota

Json = dict[str, Any]
KEY = "sk-test-0123456789abcdef"
ALLOWED = ToolPolicy(run_command=True)


@pytest.fixture
def project(tmp_path: Path, hermetic: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, a home with a key beside it, and a provider's key in the environment."""
    folder = tmp_path / "project"
    (folder / ".git" / "hooks").mkdir(parents=True)
    (folder / ".git" / "config").write_text("[core]\n")
    (folder / "a.txt").write_text("mine\n")
    (folder / "root").mkdir()
    (folder / "root" / ".env").write_text(KEY)
    (hermetic / ".ssh").mkdir()
    (hermetic / ".ssh" / "id_test").write_text(KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:{KEY}@proxy.invalid")
    return folder


@pytest.fixture
def box(project: Path) -> Iterator[Toolbox]:
    need("bwrap")
    with standard_tools(project, ALLOWED, hidden=[project / "root"]) as tools:
        yield tools


def run(box: Toolbox, command: str, **more: Any) -> Json:
    result = box.call("run_command", {"command": command, **more})
    assert result.ok, result.value
    return result.value


def test_a_command_works_in_the_project(box: Toolbox, project: Path) -> None:
    done = run(box, "cat a.txt; echo more >> a.txt; echo oops >&2; mkdir d && touch d/new; pwd; exit 3")
    assert (done["exitCode"], done["confined"]) == (3, True)
    assert done["output"] == f"mine\noops\n{project}\n"
    assert (project / "a.txt").read_text() == "mine\nmore\n"
    assert run(box, "ls; echo $HOME; echo x > /tmp/kept", cwd="@project/d")["output"] == "new\n/tmp/home\n"
    assert run(box, "cat /tmp/kept; python3 -c 'print(6 * 7)'; git --version | cut -c1-11")["output"] == (
        "x\n42\ngit version\n"
    )
    assert "sandbox, without network" in box.describe() and "@workflow" not in box.describe()
    assert box.call("run_command", {"command": "ü" * 60_000}).value["error"]["code"] == "too_large"


def test_a_command_finds_neither_the_user_s_files_nor_the_engine_s_keys(
    box: Toolbox, project: Path, hermetic: Path
) -> None:
    script = f"""
        cat ~/.ssh/id_test {hermetic}/.ssh/id_test root/.env {project}/root/.env
        ls -a {hermetic} {hermetic.parent} /home /root /etc/shadow /var/log /etc/ssl/private
        cat /proc/*/environ | tr '\\0' '\\n'; env; cat /proc/1/cmdline
        ls /proc | grep -c '^[0-9]'
        echo x > /usr/x; echo x > {hermetic}/x; echo x > /x; touch .git/hooks/pre-commit; echo x > .git/config
        mv .git elsewhere; rm -rf .git
        cp /proc/sys/kernel/core_pattern /tmp/setting; cp /tmp/setting /proc/sys/kernel/core_pattern && echo SETT''ING
        kill -9 {os.getpid()} {os.getppid()}
    """
    output = run(box, script)["output"]
    assert KEY not in output and "SETTING" not in output
    places = f"/tmp /home /var /srv /mnt {hermetic.parent}"
    assert run(box, f"find {places} -name id_test 2>/dev/null; true")["output"] == ""
    assert not (hermetic / "x").exists()
    assert os.listdir(project / ".git" / "hooks") == []  # noqa: PTH208
    assert (project / ".git" / "config").read_text() == "[core]\n"
    assert not (project / "elsewhere").exists()


def test_a_command_believes_to_be_where_it_is(
    box: Toolbox, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWD", "/nowhere")
    (project / "deep").mkdir()
    for where in ({}, {"cwd": "@project/deep"}):
        said = run(box, """bash -c 'env | sed -n s/^PWD=//p; pwd -P'""", **where)["output"].split()
        assert said[0] == said[1], said


@pytest.mark.needs("bwrap")
def test_network_is_there_only_where_the_policy_says_so(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"
        for network in (False, True):
            with standard_tools(project, ALLOWED._replace(network=network)) as box:
                done = run(box, f"bash -c '{connect}'")
                assert ("connected" in done["output"]) == network, done
                assert KEY not in run(box, "env")["output"]


def test_what_a_command_leaves_running_ends_with_it(box: Toolbox, project: Path) -> None:
    begun, long = time.monotonic(), _unlike_any_other()
    done = run(box, f"(setsid sh -c 'sleep 1; touch survived' &) ; (sleep {long} &) ; echo done")
    assert done["output"] == "done\n"
    hung = run(box, f"setsid sleep {long} & echo begun; trap '' TERM; sleep {long}", timeout=0.5)
    assert hung["timedOut"] and hung["exitCode"] is None and hung["output"] == "begun\n"
    assert time.monotonic() - begun < 60
    assert _ended(long)
    assert not (project / "survived").exists()


@pytest.mark.needs("bwrap")
def test_a_command_does_not_outlive_the_engine(project: Path) -> None:
    long = _unlike_any_other()
    code = (
        "import sys; from pathlib import Path; from uwf_git.config.policy import ToolPolicy\n"
        "from uwf_git.ext.builtin.environment import standard_tools\n"
        "box = standard_tools(Path(sys.argv[1]), ToolPolicy(run_command=True))\n"
        "box.call('run_command', {'command': 'touch begun; sleep ' + sys.argv[2]})"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(project), long]) as engine:
        while not (project / "begun").exists():
            assert engine.poll() is None
            time.sleep(0.01)
        engine.kill()
    assert _ended(long)


def _unlike_any_other() -> str:
    """Seconds to sleep, by which a process can be told from those of other tests."""
    return f"600.{secrets.randbelow(10**9):09}"


def _ended(argument: str) -> bool:
    """Whether no `sleep` with that argument is left on this machine, or is soon gone."""
    for _ in range(500):
        if not any(words[:2] == [b"sleep", argument.encode()] for words in _command_lines()):
            return True
        time.sleep(0.01)
    return False


def _command_lines() -> Iterator[list[bytes]]:
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                yield (each / "cmdline").read_bytes().split(b"\0")


def test_long_output_is_shown_at_both_ends_and_kept_whole(box: Toolbox) -> None:
    done = run(box, "seq 1 20000")
    assert done["truncated"] and len(done["output"]) < 25_000
    assert done["output"].startswith("1\n2\n") and done["output"].endswith("\n20000\n")
    name = done["rest"].split(" is in ")[1].split(":")[0]
    assert box.call("read_file", {"path": name, "offset": 12_345, "limit": 1}).value["content"] == "12345\n"
    assert box.call("grep", {"path": name, "pattern": "^777$"}).value["matches"] == [f"{name}:777: 777"]
    assert box.call("write_file", {"path": name, "content": ""}).value["error"]["code"] == "read_only"
    endless = run(box, "yes", timeout=0.5)
    assert endless["timedOut"] and "its first 10000000 bytes" in endless["rest"]


def test_without_a_sandbox_a_command_needs_leave_and_says_that_it_is_unconfined(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "bash", "env", "cat", "sleep"):
        (programs / name).symlink_to(str(shutil.which(name)))
    for broken in (False, True):
        if broken:
            (programs / "bwrap").write_text(
                "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n"
            )
            (programs / "bwrap").chmod(0o755)
            sandbox._tried.cache_clear()
        monkeypatch.setenv("PATH", str(programs))
        with standard_tools(project, ALLOWED) as box:
            refused = box.call("run_command", {"command": "true"}).value["error"]
            assert refused["code"] == "unconfined" and "allowUnconfined" in refused["message"]
            assert ("No permissions" if broken else "apt-get install bubblewrap") in refused["message"]
            assert "refused" in box.describe()
    with standard_tools(project, ALLOWED._replace(allow_unconfined=True)) as box:
        done = run(box, "env; cat a.txt")
        assert done["confined"] is False and "without a sandbox" in done["note"]
        assert KEY not in done["output"] and done["output"].endswith("mine\n")
        assert "HOME=" + str(Path.home()) not in done["output"]
        assert "unconfined" in box.describe()
        long = _unlike_any_other()
        run(box, f"sleep {long} & true")
        assert _ended(long)
    sandbox._tried.cache_clear()


@pytest.mark.needs("bwrap")
def test_a_project_that_holds_the_home_folder_is_not_given_to_commands(hermetic: Path) -> None:
    for folder in (hermetic, hermetic.parent, Path("/")):
        with standard_tools(folder, ALLOWED) as box:
            assert box.call("run_command", {"command": "true"}).value["error"]["code"] == "denied"


def test_a_worktree_s_repository_can_be_read_and_no_folder_that_merely_says_so(
    box: Toolbox, project: Path, tmp_path: Path, hermetic: Path
) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    for words in (
        ["init", "-q", str(main)],
        ["-C", str(main), "commit", "-q", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", *words], check=True)
    subprocess.run(["git", "-C", str(main), "worktree", "add", "-q", str(tree)], check=True)
    with standard_tools(tree, ALLOWED) as other:
        assert run(
            other, "git log --format=%s; git status --short; touch $(git rev-parse --git-common-dir)/x"
        )["output"].startswith("first\n")
        assert not (main / ".git" / "x").exists()
    (tree / ".git").write_text(f"gitdir: {hermetic}/.ssh\n")
    with standard_tools(tree, ALLOWED) as other:
        assert KEY not in run(other, f"cat {hermetic}/.ssh/id_test")["output"]


def test_commands_of_two_threads_do_not_disturb_each_other(box: Toolbox) -> None:
    results: dict[int, Json] = {}

    def work(number: int) -> None:
        results[number] = run(box, f"sleep 0.1; echo {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: each["output"] for number, each in results.items()} == {n: f"{n}\n" for n in range(3)}


CATCHES = (
    "python3 -c \"\ntry: open('big', 'wb').write(bytes(3_000_000))\nexcept OSError as error: print(error)\""
)


@pytest.mark.parametrize(
    ("limit", "command"),
    [
        ("disk", "dd if=/dev/zero of=big bs=1M count=3"),
        ("disk", CATCHES),
        ("cpu", "python3 -c 'while True: pass'"),
    ],
)
@pytest.mark.needs("bwrap")
def test_a_limit_is_named_also_if_the_command_went_on_after_it(
    limit: str, command: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_SOONEST", "_LATEST"):  # nobody looks meanwhile
        monkeypatch.setattr(limits, name, 60.0)
    policy = ALLOWED._replace(limits=Quota(cpu=1, disk=500_000))
    with standard_tools(project, policy, hidden=[project / "root"]) as tools:
        result = tools.call("run_command", {"command": f"{command}; echo over"}).value
    assert result["ok"] and result["output"].endswith("over\n")
    assert (result["exitCode"], result["exceeded"]) == (0, limit)
    assert f"(tools.limits.{limit})" in result["note"]
