"""A crew of one's own: what crew.yaml may say, and every slip of it at once, with its file and line."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from crew_packages import CREW, PLAN, own

from uwf_git.ext.crews.compile import CompiledCrew, compile_crew
from uwf_git.ext.crews.draft import InvalidPackage, PackageFinding
from uwf_git.ext.crews.package import from_files
from uwf_git.format.types import START


def compiled(files: Mapping[str, bytes]) -> CompiledCrew:
    return compile_crew(from_files("trip", files))


def findings(files: Mapping[str, bytes]) -> list[PackageFinding]:
    with pytest.raises(InvalidPackage) as caught:
        compiled(files)
    return list(caught.value.findings)


def test_a_crew_compiles_as_its_yaml_does_and_says_who_speaks() -> None:
    crew = compiled(own())
    workflow = crew.workflows["plan-trip"].workflow
    assert {name: role.persona for name, role in workflow.roles.items()} == {
        "writer": "mary",
        "checker": "tom",
    }
    assert workflow.roles["writer"].system_prompt == "Write the plan.\n", (
        "includes count from the YAML's folder"
    )
    assert workflow.graph[START][0].role == "writer"
    assert (crew.crew.name, crew.crew.version, crew.crew.format) == ("trip", "1.0.0", "crew")
    assert [member.persona.id for member in crew.crew.members] == ["mary", "tom"]
    items = [item.does for item in crew.crew.members[0].menu]
    assert [(each.workflow, each.action, each.exec, each.data) for each in items] == [
        ("plan-trip", "", "", "@project/wishes.csv"),
        ("", "#brief", "", ""),
        ("", "", "@pkg/texts/story.md", ""),
    ]


def test_all_that_is_wrong_is_told_at_once_with_file_and_line() -> None:
    broken = CREW
    for right, wrong in (
        ("icon:", "icno:"),
        ("workflow: plan-trip", "workflow: plan-trp"),
        ('"#brief"', '"#brif"'),
        ("exec: texts/story.md", "exec: texts/storey.md"),
        ("writer: mary", "writter: marry"),
    ):
        broken = broken.replace(right, wrong)
    plan = PLAN.replace("status: {enum: [approved, rejected]}", "status: {enum: [approved, refused]}")
    found = findings(own(broken, plan=plan))
    told = [(each.path, each.line, each.code, each.hint) for each in found if each.severity == "error"]
    assert told == [
        ("crew.yaml", 8, "unknown-key", 'did you mean "icon"?'),
        ("crew.yaml", 12, "UnknownWorkflow", 'did you mean "plan-trip"?'),
        ("crew.yaml", 13, "UnknownPromptId", 'did you mean "brief"?'),
        ("crew.yaml", 14, "missing-file", 'did you mean "texts/story.md"?'),
        ("crew.yaml", 19, "unknown-role", 'did you mean "writer"?'),
        ("crew.yaml", 19, "UnknownPersona", 'did you mean "mary"?'),
        ("plans/plan.yaml", 18, "status-without-edge", "add refused: …, or _: … for all others"),
        ("plans/plan.yaml", 20, "edge-without-status", "known: approved, refused"),
    ]


def test_what_cant_be_read_at_all_is_one_finding_in_its_file() -> None:
    assert [(each.path, each.code) for each in findings(own("crew: [trip\n"))] == [("crew.yaml", "not-yaml")]
    assert [(each.path, each.code) for each in findings(own(plan="name: [\n"))] == [
        ("plans/plan.yaml", "not-yaml")
    ]
    (lost,) = findings(own(plan=PLAN.replace("texts/writer.md", "../texts/story.md")))
    assert (lost.path, lost.severity) == ("plans/plan.yaml", "error")
    (missing,) = findings(own(CREW.replace("plans/plan.yaml", "plan.yaml")))
    assert (missing.code, missing.line, missing.hint) == (
        "missing-file",
        19,
        'did you mean "plans/plan.yaml"?',
    )


@pytest.mark.parametrize(
    "right, wrong, code",
    [
        ("crew: trip", "crew: a trip", "bad-name"),
        ("crew: trip", "name: trip", "unknown-key"),
        ("name: Tom", "title: Doubter", "missing-key"),
        ('action: "#brief"', "surface: ide", "does-nothing"),
        ('action: "#brief"', 'action: "#brief", workflow: plan-trip', "two-actions"),
        ("workflow: plan-trip", "workflow: plans/plan.yaml", "UnknownWorkflow"),
        ("texts/story.md", "plans/plan.yaml", "NotSupportedClassicWorkflow"),
        ("texts/story.md", "../story.md", "bad-path"),
        ("@project/wishes.csv", "@home/wishes.csv", "bad-path"),
        ("@project/wishes.csv", "wishes.csv", "missing-file"),
        ("role: Finds", "tools: {maxReadBytes: -1}\n    role: Finds", "wrong-type"),
        ("trigger: brief", "surface: moon, trigger: brief", "bad-surface"),
        ("  tom:", "  to m:", "bad-name"),
    ],
)
def test_a_slip_is_named(right: str, wrong: str, code: str) -> None:
    assert right in CREW
    found = findings(own(CREW.replace(right, wrong, 1)))
    assert code in [each.code for each in found if each.severity == "error"]
    assert all(each.path == "crew.yaml" and each.line > 0 for each in found)


def test_two_items_with_one_trigger_are_a_warning() -> None:
    (found,) = compiled(own(CREW.replace("trigger: brief", "trigger: plan"))).warnings
    assert (found.code, found.severity, found.line) == ("same-trigger", "warning", 13)
