"""The folders of trials, where agents can write what they like: what no store may hold is left out or refused, nothing
outside of them is read, and what one case's agents do there is that case's alone."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from forged import Forger
from suite_bench import AGENT, Bench
from two_machines import Machine

from uwf_git.ext.evaluation.records import UNKNOWN, Case, identified
from uwf_git.ext.evaluation.run import RunPlan, run_suite
from uwf_git.ext.evaluation.suite import Additions, Suites
from uwf_git.ext.evaluation.trials import TrialOptions, Version
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import parse_workflow
from uwf_git.store.instance import Instance

Script = Callable[[str, str], Path]
CONTEXT = "if context['role'] == 'solver':\n"
WITH_FILE = {"prompt": "say a", "files": {"x": "1", ".gitignore": "*.log\nout/\n"}}


def leaves(bench: Bench, script: Script, code: str, name: str = "leaves") -> None:
    """Has the one who solves do so much more in the folder."""
    lines = "".join(f"    {line}\n" for line in code.splitlines())
    bench.agent = f"uwf-exec {script(name, AGENT + CONTEXT + lines)}"


def listed(root: Path, tree: str) -> list[str]:
    return git("--git-dir", root / "store.git", "ls-tree", "-r", "--name-only", tree).splitlines()


def test_a_suite_can_be_pulled_whatever_agents_left_and_notes_say_what_was_not_kept(
    uwf: Uwf, bench: Bench, script: Script, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAKED_API_KEY", "sk-live-4f9Qz81LmW07bTgX2cVd")
    code = """\
import subprocess
for name in (b"caf\\xe9.txt", b"two\\nlines", b"a\\\\b", b".GIT", b"sk-live-4f9Qz81LmW07bTgX2cVd", b"kept"):
    open(name, "w").write("x")
here = os.getcwd()
for _ in range(300):
    os.mkdir("d" * 40); os.chdir("d" * 40)
open("below", "w").write("x")
os.chdir(here)
open("core", "wb").truncate(120 << 20)
os.mkfifo("pipe")
os.symlink("x", ".gitmodules")
os.makedirs("lib/out"); os.makedirs("out/more")
subprocess.run(["git", "init", "-q", "lib"], check=True)
for name in ("lib/code.py", "lib/a.log", "lib/out/b", "out/more/c", "lib/.gitignore"):
    open(name, "w").write("!a.log\\n")
"""
    leaves(bench, script, code)
    bench.imports([{"name": "one", **WITH_FILE}])
    (result,) = bench.run("--judge", "command:test -e lib/code.py").json["results"]
    assert result["state"] == "passed"
    kept = [".gitignore", "kept", "lib/.gitignore", "lib/a.log", "lib/code.py", "x"]
    assert listed(root, result["work"]) == kept
    notes = result["notes"]
    for what in (
        "caf\\xe9.txt",
        "two?lines",
        "a\\b",
        ".GIT",
        "dddd/dddd",
        "core is",
        "pipe is",
        ".gitmodules is",
    ):
        assert any(what in note for note in notes), (what, notes)
    assert len(notes) == 9 and "sk-live" not in str(notes)
    assert not list((root / "evaluation").iterdir())

    bench.uwf("verify", "--all")
    git("init", "-q", "--bare", tmp_path / "hub")
    bob = Machine(uwf, tmp_path / "bob")
    bob("init")
    for machine in (Machine(uwf, root), bob):
        machine("remote", "add", "origin", tmp_path / "hub")
    uwf("push")
    bob("pull")
    assert [each["suite"] for each in bob("eval", "list").json] == ["bugs"]


def test_nobody_waits_for_a_pipe_that_is_called_as_git_calls_its_files(bench: Bench, script: Script) -> None:
    code = """\
os.mkdir("sub")
for name in (".gitignore", ".gitattributes", ".git/info/exclude", ".git/index", "sub/.gitignore"):
    os.path.lexists(name) and os.unlink(name)
    os.mkfifo(name)
"""
    leaves(bench, script, code)
    bench.imports([{"name": "one", **WITH_FILE}])
    (result,) = bench.run("--judge", "command:test -e x").json["results"]
    assert (result["state"], len(result["notes"])) == ("passed", 3)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_folder_that_an_agent_removes_or_replaces_is_that_cases_error_alone(
    bench: Bench, script: Script, root: Path, tmp_path: Path, jobs: str
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/hidden").write_text("no one's business")
    code = f"""\
import shutil
here = os.getcwd(); os.chdir("/")
if (said := context["start"]["prompt"]) != "say a":
    shutil.rmtree(here)
    said == "say c" and os.symlink({str(tmp_path / "outside")!r}, here)
"""
    leaves(bench, script, code)
    cases = [{**WITH_FILE, "name": name, "prompt": f"say {name}"} for name in "abc"]
    bench.imports([*cases, {"name": "d", "prompt": "say d"}])
    for calls, last in ((5, "error"), (8, "failed")):  # what needs no files goes on without
        done = bench.run("--judge", "command:test -e x", "-j", jobs, check=None)
        found = {each["case"]: each for each in done.json["results"]}
        assert {name: each["state"] for name, each in found.items()} == dict(
            zip("abcd", ("passed", "error", "error", last), strict=True)
        )
        assert all("an agent removed it" in found[name]["error"] for name in "bc")
        assert found["c"]["work"] is None
        assert bench.calls <= calls
    names = git("--git-dir", root / "store.git", "log", "--all", "--format=", "--name-only")
    assert "hidden" not in names
    bench.uwf("verify", "--all")


def test_a_file_of_cases_is_refused_with_the_name_that_no_store_may_hold(bench: Bench) -> None:
    def refused(case: dict[str, object]) -> str:
        Path("cases.jsonl").write_text(json.dumps({"prompt": "say a", **case}))
        done = bench.uwf("eval", "import", "cases.jsonl", "--to", "bugs", "--workflow", "solve", check=1)
        assert "cases.jsonl:1: " in done.err
        return str(done.err)

    assert "b' holds a slash" in refused({"files": {"a\\b": "t"}})
    assert "control characters" in refused({"files": {"sub/a\nb": "t"}})
    assert "too deep" in refused({"files": {"/".join("d" * 70): "t"}})
    assert "is too long" in refused({"files": {"sub/" + "é" * 128: "t"}})
    Path("folder").mkdir()
    for name, why in ((os.fsdecode(b"caf\xe9"), "not UTF-8"), ("a\\b", "a slash")):
        (Path("folder") / name).touch()
        assert why in refused({"fixture": "folder"})
        (Path("folder") / name).unlink()
    os.mkfifo("folder/pipe")
    assert "folder/pipe is not a file" in refused({"fixture": "folder"})
    Path("folder/.gitignore").write_text("pipe\n")
    subprocess.run(["git", "init", "-q", "folder/sub"], check=True)
    Path("folder/sub/code.py").write_text("x")
    bench.imports([{"name": "one", "prompt": "say a", "fixture": "folder"}])
    assert bench.results("--judge", "command:test -e sub/code.py") == [("one", "passed", 1.0)]
    bench.uwf("verify", "--all")


def test_files_that_a_suite_got_past_pull_are_not_laid_out_and_stop_no_other_case(
    bench: Bench, instance: Instance
) -> None:
    bench.imports([{"name": "good", **WITH_FILE}])
    forge = Forger(instance.location.git_dir)
    blob, link = forge.blob(b"x"), forge.blob(b"/etc/passwd")
    folder = forge.tree({"b": blob})

    def tree(*rows: tuple[str, str, str]) -> str:
        return forge.write("tree", b"".join(f"{m} {n}\0".encode() + bytes.fromhex(oid) for m, n, oid in rows))

    trees = {
        "twice": tree(("120000", "a", blob), ("40000", "a", folder)),
        "modules": tree(("120000", ".gitmodules", blob)),
        "out": tree(("120000", "l", link)),
        "encoded": tree(("100644", ".gitattributes", forge.blob(b"* working-tree-encoding=UTF-16\n"))),
    }
    suites = Suites(instance.store)
    workflow = next(case.workflow for case in suites.read("bugs").cases)
    assert workflow is not None
    cases = [
        identified(Case(UNKNOWN, name, "say", workflow=workflow, fixture=oid)) for name, oid in trees.items()
    ]
    suites.add("bugs", Additions(cases=cases, files=list(trees.values())))
    done = bench.run("--judge", "command:true", check=1)
    assert [(each["case"], each["state"]) for each in done.json["results"]] == [("good", "passed")]
    problems = {each["case"]: each["message"] for each in done.json["problems"]}
    assert problems.keys() == trees.keys() and bench.calls == 2
    assert "has a name twice" in problems["twice"] and "which git refuses" in problems["modules"]
    assert "leads out of its folder" in problems["out"] and "git add failed" in problems["encoded"]
    parsed = parse_workflow(instance.store.get(workflow).payload)
    version = Version(workflow, instance.registry.commit_for(workflow), parsed)
    begun: list[ThreadId] = []
    asked = TrialOptions(bench.agent, "by others")
    every = suites.read("bugs").cases
    by_others = run_suite(instance, "bugs", RunPlan(every, lambda case: version, asked, step=begun.extend))
    assert (len(begun), {name for name, _ in by_others.problems}) == (1, set(trees))
    found = bench.uwf("verify", "--all", check=7).json
    assert {each["code"] for each in found["findings"]} == {"malformed", "unsafe-mode"}


def test_what_a_killed_run_left_of_judging_is_removed_by_the_next_unless_it_is_used(
    bench: Bench, instance: Instance, root: Path
) -> None:
    bench.imports([{"name": "one", **WITH_FILE}])
    bench.results()
    used, left = Hash("0" * 13), Hash("1" * 13)
    for name in (f"judge-{used}", f"judge-{left}", f"judge-{left}.123"):
        (root / "evaluation" / name).mkdir(parents=True)
    with instance.locks.turn(f"trial-{used}"):
        bench.results()
        assert [each.name for each in (root / "evaluation").iterdir()] == [f"judge-{used}"]
    bench.results()
    assert not list((root / "evaluation").iterdir())
