"""The shipped examples are flawless, and each shows what it says it shows."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from uwf_git.config.read import check_config, load_config
from uwf_git.format.kinds import Workflow
from uwf_git.format.schema import Schema
from uwf_git.format.types import END, FAIL, START
from uwf_git.workflow.check import can_end, check_path, reachable
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.source import read_source

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("templates/*.yaml")])


def example(name: str) -> Workflow:
    return compile_source(read_source(EXAMPLES / f"{name}.yaml")).workflow


def test_the_readme_lists_every_example() -> None:
    listed = re.findall(r"\]\(([\w/-]+\.yaml)\)", (EXAMPLES / "README.md").read_text())
    assert sorted(listed) == [path.relative_to(EXAMPLES).as_posix() for path in FILES]
    assert len(FILES) == 12


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(EXAMPLES).as_posix())
def test_an_example_has_no_finding_and_its_name_is_its_file(path: Path) -> None:
    assert check_path(path) == []
    made = compile_source(read_source(path))
    assert made.workflow.name == path.stem
    assert all(role.description for role in made.workflow.roles.values())
    graph = {role: [END] for role in made.workflow.roles}  # without edges it ends a branch
    for source, edges in made.workflow.graph.items():
        graph[source] = [target for edge in edges for target in edge.targets]
    assert reachable(graph) - {FAIL} == {START, END, *made.workflow.roles}
    assert can_end(graph) == {START, *made.workflow.roles}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(EXAMPLES).as_posix())
def test_no_schema_of_an_example_takes_an_empty_answer(path: Path) -> None:
    for schema in compile_source(read_source(path)).schemas.values():
        assert Schema(schema).problems({}) != []


def test_the_same_work_is_written_in_both_styles() -> None:
    by_condition, by_status = example("solve-issue"), example("solve-issue-status")
    assert list(by_condition.roles) == list(by_status.roles) == ["planner", "developer", "reviewer"]
    assert all(role.system_prompt and not role.goal for role in by_condition.roles.values())
    assert all(role.goal and role.procedure and not role.system_prompt for role in by_status.roles.values())
    assert by_condition.conditions["notApproved"].expression == "steps[-1].output.approved = false"
    assert not by_status.conditions
    assert {edge.status for edge in by_status.graph["reviewer"]} == {"approved", "rejected"}


def test_the_debate_shares_what_stands_under_anchors() -> None:
    roles = example("debate").roles
    assert roles["proponent"].schema == roles["opponent"].schema
    assert roles["proponent"].procedure == roles["opponent"].procedure != ""
    assert roles["proponent"].goal != roles["opponent"].goal
    assert [edge.status for edge in example("debate").graph["opponent"]] == ["argue", "concede", "rest"]


def test_the_release_checklist_ends_at_the_first_failure() -> None:
    graph = example("release-checklist").graph
    order = [START, "version", "tests", "changelog", "tag", END]
    for source, target in pairwise(order[1:]):
        assert {edge.status: edge.role for edge in graph[source]} == {"passed": target, "failed": FAIL}


def test_the_analysis_takes_its_prompt_from_a_file_beside_it() -> None:
    source = read_source(EXAMPLES / "analyse.yaml")
    assert source.includes["prompts/analyst.md"].decode() == example("analyse").roles["analyst"].system_prompt


def test_the_configurations_in_the_readme_are_valid_and_name_roles_that_exist(root: Path) -> None:
    root.mkdir()
    for block in re.findall(r"```yaml\n(.*?)```", (EXAMPLES / "README.md").read_text(), re.DOTALL):
        (root / "config.yaml").write_text(block)
        assert check_config(root) == []
        for workflow, roles in load_config(root).agent_overrides.items():
            assert roles.keys() <= example(workflow).roles.keys() and roles
