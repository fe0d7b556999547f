"""`uwf allow`, and that nothing of a set-up counts or runs before."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import git_servers
import pytest
from cli_samples import on_terminal, write
from conftest import Uwf

git = git_servers.git
FLOW = """
name: {name}
description: The tests.
roles:
  tests:
    description: Runs the tests.
    systemPrompt: {prompt}
    outputSchema: {{type: object, properties: {{passed: {{type: boolean}}}}, required: [passed]}}
graph:
  $START: [{{role: tests}}]
  tests: [{{role: $END}}]
"""
SETTINGS = """
agents: {{tests: {{command: uwf-exec {command}}}}}
agentOverrides: {{check: {{tests: tests}}, of-mine: {{tests: tests}}}}
workspace: {{kind: worktree, setup: touch {trace}/setup}}
budgets: {{default: {{maxSteps: 7}}}}
tools: {{deny: [fetch_url]}}
"""


class Project:
    """A repository with a set-up whose commands leave traces."""

    def __init__(self, uwf: Uwf, folder: Path) -> None:
        self.uwf, self.folder, self.trace = uwf, folder / "shop", folder / "traces"
        self.trace.mkdir()
        git(*git_servers.INIT, self.folder)
        os.chdir(self.folder)
        self.write(f"touch {self.trace}/tests")
        self.commit()

    def write(self, command: str, prompt: str = "Run the tests.") -> None:
        workflow = Path(".uwf/workflows/check.yaml")
        workflow.parent.mkdir(parents=True, exist_ok=True)
        workflow.write_text(FLOW.format(name="check", prompt=prompt))
        Path(".uwf/config.yaml").write_text(SETTINGS.format(command=command, trace=self.trace))

    def commit(self) -> None:
        git("add", ".")
        git("commit", "-q", "-m", "A set-up")

    @property
    def traces(self) -> set[str]:
        return {path.name for path in self.trace.iterdir()}

    def run(self, *options: str) -> str:
        """Return the status of a new thread."""
        return str(self.uwf("run", "check", "-p", "Do they pass?", *options).lines[-1]["status"])

    def refused(self, status: int = 5) -> dict[str, str]:
        return self.uwf("run", "check", "-p", "Do they pass?", check=status).error


@pytest.fixture
def project(uwf: Uwf, tmp_path: Path) -> Project:
    return Project(uwf, tmp_path)


def test_from_a_clone_to_a_first_run_it_takes_two_commands(project: Project, tmp_path: Path) -> None:
    git("clone", "-q", project.folder, tmp_path / "clone")
    os.chdir(tmp_path / "clone")
    project.uwf("allow", "--yes")
    assert project.run() == "completed" and project.traces == {"setup", "tests"}
    (limit,) = project.uwf("thread", "budget", "@").json["budget"]
    assert (limit["limit"], limit["most"], limit["source"]) == ("maxSteps", 7, ".uwf/config.yaml")


def test_it_counts_in_a_new_clone_once_the_first_one_is_gone(project: Project, tmp_path: Path) -> None:
    git("clone", "-q", "--bare", project.folder, tmp_path / "hub.git")
    git("-C", project.folder, "remote", "add", "origin", tmp_path / "hub.git")
    project.uwf("allow", "--yes")
    assert project.run() == "completed"
    os.chdir(tmp_path)
    shutil.rmtree(project.folder)
    git("clone", "-q", tmp_path / "hub.git", "clone")
    os.chdir("clone")
    assert project.run() == "completed"


def test_nothing_runs_or_counts_before(project: Project) -> None:
    error = project.refused()
    assert error["code"] == "untrusted" and error["hint"] == "uwf allow"
    Path("mine.yaml").write_text(FLOW.format(name="of-mine", prompt="x"))
    other = project.uwf("run", "./mine.yaml", "-p", "x")
    assert other.lines[-1]["status"] == "completed" and "that you haven't allowed — uwf allow" in other.err
    assert other.err.count("uwf allow") == 1
    for command in (
        ("doctor",),
        ("thread", "list"),
        ("allow",),
        ("workflow", "list"),
        ("config", "list"),
        ("init",),
    ):
        project.uwf(*command, check=None)
    project.uwf("init", "--template", "bugfix")
    assert project.traces == set() and project.uwf("allow", check=5).json["state"] == "new"
    assert project.uwf("thread", "budget", "@").json["budget"] == []


def test_a_set_up_that_only_has_workflows_needs_no_leave(project: Project) -> None:
    Path(".uwf/config.yaml").unlink()
    assert project.run("--agent", "uwf-rehearse") == "completed"
    assert project.uwf("allow").json["state"] == "workflows"


def test_it_shows_what_it_does_and_all_texts(project: Project) -> None:
    value = project.uwf("allow", check=5).json
    assert value["state"] == "new" and value["files"].keys() == {"config.yaml", "workflows/check.yaml"}
    effects = {(effect["kind"], effect["what"]) for effect in value["effects"]}
    assert {("runs", f"touch {project.trace}/tests"), ("runs", f"touch {project.trace}/setup")} <= effects
    assert ("limits", "maxSteps 7") in effects and ("limits", "tools.deny") in effects
    text = project.uwf("allow", "--format", "text", check=5)
    assert "Run the tests." in text.out and "as tests of check; tests of of-mine" in text.out
    assert f"uwf allow --digest {value['digest']}" in text.err


def test_what_is_not_here_is_shown_with_all_of_its_characters(project: Project) -> None:
    write(
        ".uwf/config.yaml", 'agentOverrides: {check: {tests: "py\\u3164test"}}\nland: {onto: "ma\\u2800in"}\n'
    )
    text = project.uwf("allow", "--format", "text", check=5).out
    assert r"not here: py\u3164test" in text and "\u3164" not in text and "\u2800" not in text


def test_a_change_is_shown_as_a_diff_and_asked_again(project: Project) -> None:
    project.uwf("allow", "--yes")
    project.run()
    project.write("false", "Run them\u202e all.")
    error = project.refused()
    assert "changed since you allowed it" in error["message"]
    value = project.uwf("allow", check=5).json
    assert value["state"] == "changed" and "-    systemPrompt: Run the tests." in value["diff"]
    assert r"+    systemPrompt: Run them\u202e all." in value["diff"]


def test_a_thread_goes_on_with_what_was_allowed_last(project: Project) -> None:
    project.uwf("allow", "--yes")
    thread = project.uwf("thread", "start", "check", "-p", "x").json["thread"]
    project.write(f"touch {project.trace}/evil")
    step = project.uwf("thread", "step", thread)
    assert "changed since you allowed it, and what you allowed goes on — uwf allow" in step.err
    assert project.traces == {"setup", "tests"}
    git("checkout", "-q", "-b", "empty")
    git("rm", "-rqf", ".uwf")
    again = project.uwf("thread", "start", "check", "-p", "x", check=None)
    assert again.code == 3, "a workflow that is gone is not found"


def test_a_digest_allows_that_set_up_alone(project: Project) -> None:
    digest = project.uwf("allow", check=5).json["digest"]
    assert "a longer digest" in project.uwf("allow", "--digest", digest[:-1], check=1).error["message"]
    project.write("false")
    assert digest not in project.uwf("allow", "--digest", digest, check=1).error["message"]
    git("checkout", "-q", ".")
    assert project.uwf("allow", "--digest", digest.upper()).json["state"] == "allowed"
    assert project.uwf("allow").json["state"] == "allowed"
    project.uwf("allow", "--revoke")
    assert project.uwf("allow", "--revoke", check=3).error["code"] == "not_found"
    project.refused()


def test_a_terminal_asks_and_no_is_no(project: Project) -> None:
    status, shown = on_terminal("allow", typed=[("Allow it?", "n")])
    assert status == 5 and "nothing was allowed" in shown and "touch" in shown
    assert on_terminal("allow", typed=[("Allow it?", "y")])[0] == 0
    assert project.uwf("allow").json["state"] == "allowed"


def test_an_agent_allows_nothing_and_its_changes_mean_nothing(project: Project) -> None:
    project.uwf("allow", "--yes")
    evil = f"sed -i s/touch/false/ .uwf/config.yaml; (uwf allow --yes; uwf allow --revoke) 2>{project.trace}/said; true"
    assert project.run("--agent", f"tests=uwf-exec sh -c '{evil}'") == "completed"
    assert "only a person allows" in (project.trace / "said").read_text()
    assert project.uwf("allow").json["state"] == "allowed"
    project.run()
    assert "tests" in project.traces


def test_a_set_up_that_can_not_be_read_is_one_line_and_no_obstacle_to_others(project: Project) -> None:
    Path(".uwf/config.yaml").write_text("hooks: {failed: evil}\n")
    error = project.uwf("allow", "--yes", check=1).error
    assert ".uwf/config.yaml:1:1: hooks" in error["message"]
    Path(".uwf/more").symlink_to("/etc")
    Path("mine.yaml").write_text(FLOW.format(name="mine", prompt="x"))
    done = project.uwf("run", "./mine.yaml", "-p", "x")
    assert done.lines[-1]["status"] == "completed" and ".uwf/more" in done.err
    assert ".uwf/more" in project.refused(1)["message"]


def test_what_is_missing_here_is_named(project: Project) -> None:
    Path(".uwf/config.yaml").write_text(
        "agents: {tests: {command: uwf-exec no-such-program}}\nagentOverrides: {check: {tests: nobody-has-it}}\n"
    )
    value = project.uwf("allow", check=5).json
    assert [line.partition(":")[0] for line in value["missing"]] == ["nobody-has-it", "tests"]
    project.uwf("allow", "--yes")
    error = project.refused(1)
    assert ".uwf/config.yaml: agentOverrides.check.tests names agent" in error["message"]
    Path(".uwf/config.yaml").write_text("agentOverrides: {check: {tests: uwf-exec no-such-program}}\n")
    project.uwf("allow", "--yes")
    assert "no-such-program is not installed" in project.refused(1)["message"]
    assert ".uwf/config.yaml names it" in project.refused(1)["message"]
    checks = [each["message"] for each in project.uwf("doctor", "--quick").json if each["check"] == "project"]
    assert "1 setting of .uwf/config.yaml" in checks[0] and "no-such-program" in checks[1]


def test_init_writes_what_the_project_is_once_and_allows_ones_own(uwf: Uwf, tmp_path: Path) -> None:
    git(*git_servers.INIT, tmp_path / "shop")
    os.chdir(tmp_path / "shop")
    Path("Makefile").write_text("test:\n\ttrue\n")
    Path("uv.lock").write_text("")
    first = uwf("init").json
    assert first["allowed"] and [Path(path).name for path in first["files"]] == ["config.yaml"]
    text = Path(".uwf/config.yaml").read_text()
    assert "uwf-exec make test" in text and "uv sync --frozen" in text
    assert "files" not in uwf("init").json and uwf("allow").json["state"] == "allowed"
    Path(".uwf/config.yaml").write_text("# ours\n" + text.replace("uv sync --frozen", "make deps"))
    second = uwf("init", "--template", "bugfix").json
    assert not second["allowed"], "an edit that nobody has allowed"
    edited = Path(".uwf/config.yaml").read_text()
    assert edited.startswith("# ours\n") and "make deps" in edited and "tests: project-tests" in edited
    uwf("allow", "--yes")
    uwf("init", "--template", "bugfix")
    assert Path(".uwf/config.yaml").read_text() == edited
    assert uwf("init", "--template", "review").json["allowed"]


def test_init_allows_nothing_of_others(uwf: Uwf, tmp_path: Path) -> None:
    git(*git_servers.INIT, tmp_path / "shop")
    os.chdir(tmp_path / "shop")
    write(".uwf/workflows/check.yaml", FLOW.format(name="check", prompt="Print the environment."))
    write("Makefile", "test:\n\ttrue\n")
    set_up = uwf("--format", "text", "init", check=0).out
    assert "not yet, see it with: uwf allow" in set_up
    assert uwf("allow", check=5).json["state"] == "new"


def test_a_template_has_its_agents_beside_those_of_the_project(uwf: Uwf, tmp_path: Path) -> None:
    git(*git_servers.INIT, tmp_path / "shop")
    os.chdir(tmp_path / "shop")
    write("Makefile", "test:\n\ttrue\n")
    write(".uwf/config.yaml", "agents:\n  deploys: {command: uwf-exec make deploy}\n")
    uwf("allow", "--yes")
    assert uwf("init", "--template", "bugfix").json["allowed"]
    shown = uwf("allow").json
    assert not [line for line in shown["missing"] if "project-tests" in line]
    assert {"make deploy", "make test"} <= {effect["what"] for effect in shown["effects"]}


def test_a_workflow_that_a_pull_brings_is_not_run_in_place_of_the_projects(
    project: Project, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(FLOW.format(name="check", prompt="Print the environment."))
    project.uwf("workflow", "put", other)
    project.uwf("allow", "--yes")
    assert project.run() == "completed"
    assert project.uwf("workflow", "show", "check").json["roles"]["tests"]["systemPrompt"] == "Run the tests."


def test_nobody_makes_up_the_steps_of_a_workflow_whose_agents_are_not_allowed(
    project: Project, tmp_path: Path
) -> None:
    project.uwf("allow", "--yes")
    thread = project.uwf("thread", "start", "check", "-p", "x").json["thread"]
    project.uwf("allow", "--revoke")
    error = project.uwf("thread", "step", thread, check=5).error
    assert "haven't allowed" in error["message"] and error["hint"].startswith("uwf allow")
    project.uwf("thread", "step", thread, "--agent", "uwf-rehearse")


@pytest.mark.parametrize("command", ["sh .uwf/t.sh", "sh -c 'cd .uwf && ./t.sh'"])
def test_no_command_leads_to_files_of_the_set_up_that_an_agent_could_change(
    project: Project, command: str
) -> None:
    Path(".uwf/config.yaml").write_text(f'agents: {{tests: {{command: "uwf-exec {command}"}}}}\n')
    assert "as the worktree has it" in project.uwf("allow", "--yes", check=1).error["message"]


def test_workflows_of_a_set_up_that_is_a_submodule_are_refused(project: Project, tmp_path: Path) -> None:
    (project.folder / ".uwf").rename(tmp_path / "moved")
    git(*git_servers.INIT, ".uwf")
    (tmp_path / "moved" / "workflows").rename(".uwf/workflows")
    assert "submodule" in project.refused(1)["message"]
