"""A package compiles to the same nodes anywhere, and threads of its workflows are threads like any other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import git_servers
import pytest
from commands import loose
from conftest import REPOSITORY, Uwf
from crew_packages import EDGES, PLAN, bmad, own
from hypothesis import given, settings
from hypothesis import strategies as st
from two_machines import Machine

from uwf_git.base.errors import Invalid, NoTransition
from uwf_git.ext.agents.rehearse import choose_output
from uwf_git.ext.crews.compile import CompiledCrew, compile_crew, compile_version, foresee
from uwf_git.ext.crews.draft import InvalidPackage
from uwf_git.ext.crews.jsonlogic import STATE_NAMES, translated
from uwf_git.ext.crews.package import from_files
from uwf_git.ext.crews.state import MatchedEdge, reached, ways
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Start, StepContext, Workflow
from uwf_git.format.schema import Schema
from uwf_git.store.history import History
from uwf_git.store.instance import Instance
from uwf_git.store.versions import compare
from uwf_git.workflow.compile import Compiled
from uwf_git.workflow.diagram import dot, mermaid, readme
from uwf_git.workflow.expression import evaluate
from uwf_git.workflow.moderator import Next, WorkflowEnded, decide, history_value
from uwf_git.workflow.rehearsal import rehearse

HASH = Hash("0000000000000")
THREAD = ThreadId("01M7YG2438K76ZWHSVX4QBSC2S")
Said = tuple[str, Mapping[str, Any]]


def compiled(files: Mapping[str, bytes]) -> CompiledCrew:
    return compile_crew(from_files("trip", files))


def only(files: Mapping[str, bytes]) -> Compiled:
    (found,) = compiled(files).workflows.values()
    return found


def after(workflow: Workflow, *steps: Said) -> str:
    """Who is next after these steps, each a role and its output, which has a summary besides."""
    history = [
        StepContext(
            HASH, role, output if "question" in output else {"summary": "Done.", **output}, HASH, "uwf-exec"
        )
        for role, output in steps
    ]
    found = decide(workflow, Start(HASH, "Go", persona="mary"), history)
    return found.role if isinstance(found, Next) else type(found).__name__


def test_a_package_compiles_to_the_same_hashes_on_any_machine_and_in_any_order_of_its_files() -> None:
    here = [compiled(files).hash for files in (bmad(), own())]
    assert here == ["7DBQRHR3608HG", "CAH1Z6BD20GG3"]
    turned = [compiled(dict(reversed(files.items()))).hash for files in (bmad(), own())]
    code = (
        "from crew_packages import bmad, own; from uwf_git.ext.crews.package import from_files;"
        "from uwf_git.ext.crews.compile import compile_crew;"
        "print(*(compile_crew(from_files('other', files)).hash for files in (bmad(), own())))"
    )
    doubles = str(REPOSITORY / "tests" / "doubles")
    elsewhere = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": doubles, "LC_ALL": "C", "TZ": "Asia/Tokyo"},
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert turned == elsewhere.stdout.split() == here


@pytest.mark.parametrize("files", [bmad(), own()], ids=["bmad", "own"])
def test_the_definition_of_a_version_compiles_to_its_workflow_again(files: dict[str, bytes]) -> None:
    found = only(files)
    said = json.loads(found.source.text)
    assert found.workflow.name == f"{said['crew']}/{said['workflow']}"
    again = compile_version(found.source.text, found.source.includes)
    assert (again.hash, again.payload, again.schemas) == (found.hash, found.payload, found.schemas)
    assert found.source.includes == files
    for text in (
        b"",
        b"[]",
        b'{"crew":"trip"}',
        b'{"crew":"trip","workflow":"other"}\n',
        found.source.text + b" ",
    ):
        with pytest.raises(Invalid):
            compile_version(text, found.source.includes)


def test_the_layout_of_a_packages_json_changes_no_hash_and_a_word_of_a_step_does() -> None:
    files = bmad()
    tight = {**files, "workflow.graph.json": json.dumps(json.loads(files["workflow.graph.json"])).encode()}
    assert compiled(tight).hash == compiled(files).hash
    assert compiled(bmad(texts={"price": "Ask twice."})).hash != compiled(files).hash


def test_nodes_become_roles_with_their_text_persona_and_kind() -> None:
    workflow = only(bmad(texts={"price": "Add it up."})).workflow
    assert {name: (role.node.type, role.persona) for name, role in workflow.roles.items() if role.node} == {
        "draft": ("step", ""),
        "check": ("decision", "tom"),
        "price": ("step", ""),
        "join": ("merge", ""),
        "end": ("end", ""),
    }
    assert "Add it up." in workflow.roles["price"].system_prompt
    assert "schemaVersion" not in workflow.roles["price"].system_prompt
    assert {name: each.name for name, each in workflow.personas.items()} == {"mary": "Mary", "tom": "Tom"}
    assert workflow.crew is not None and workflow.crew.graph == "workflow.graph.json"


def test_at_a_decision_next_is_one_of_the_labels_and_what_is_said_of_them_is_told() -> None:
    found = only(bmad())
    schema = found.schemas[found.workflow.roles["check"].schema]
    assert schema["properties"]["next"]["enum"] == ["good", "again"]
    assert "Nothing is missing" in schema["properties"]["next"]["description"]
    assert "Something is missing" in schema["properties"]["next"]["description"]
    assert Schema(schema).problems({"summary": "x"})
    assert Schema(schema).problems({"summary": "x", "next": "maybe"})
    for role in ("draft", "price"):
        assert "next" not in found.schemas[found.workflow.roles[role].schema]["properties"]
    edges = {edge.role: (edge.label, edge.text) for edge in found.workflow.graph["check"]}
    assert edges["price"] == ("good", "Nothing is missing")
    assert edges["draft"] == ("again", "Something is missing")
    assert found.workflow.conditions["good"].description == "Nothing is missing"


def test_a_step_is_asked_for_the_variables_that_its_document_says_it_sets() -> None:
    files = bmad()
    head = b"nodeId: draft\ntype: step\n"
    files["steps/draft.md"] = files["steps/draft.md"].replace(head, head + b"setsVariables: [cost, who]\n")
    found = only(files)

    def asked(role: str) -> Mapping[str, Any]:
        schema = found.schemas[found.workflow.roles[role].schema]
        assert not Schema(schema).problems({"summary": "x", "variables": {"other": 1}})
        return dict(schema["properties"]["variables"])

    assert asked("draft")["properties"].keys() == {"cost", "who", "workflowStatus"}
    assert 100 in asked("draft")["properties"]["cost"]["examples"]
    assert asked("draft")["description"].endswith("Here: cost, who.")
    assert asked("price")["properties"].keys() == {"cost", "workflowStatus"}
    assert rehearse(found.workflow, found.schemas).percent == 100


def test_labels_choose_expressions_decide_alone_and_the_default_comes_last() -> None:
    workflow = only(bmad()).workflow
    assert after(workflow) == "draft"
    assert after(workflow, ("draft", {})) == "check"
    assert after(workflow, ("check", {"next": "good"})) == "price"
    assert after(workflow, ("check", {"next": "again"})) == "draft"
    assert after(workflow, ("price", {"variables": {"cost": 101}})) == "draft"
    assert after(workflow, ("price", {"variables": {"cost": 100}})) == "join"
    assert after(workflow, ("price", {})) == "join"
    assert after(workflow, ("join", {})) == "end"
    assert after(workflow, ("end", {})) == "WorkflowEnded"


def test_variables_last_until_they_are_set_again_and_questions_are_none_of_it() -> None:
    workflow = only(bmad()).workflow
    dear, asks = {"variables": {"cost": 500}}, {"$status": "$SUSPEND", "question": "How much?"}
    assert after(workflow, ("draft", dear), ("check", {"next": "good"}), ("price", {})) == "draft"
    assert after(workflow, ("draft", dear), ("price", {"variables": {"cost": 5}})) == "join"
    assert after(workflow, ("draft", dear), ("price", asks)) == "AwaitingAnswer"
    assert after(workflow, ("draft", dear), ("price", asks), ("$USER", {"answer": "little"})) == "price"


def test_a_run_ends_wherever_an_answer_says_that_it_is_complete() -> None:
    workflow = only(bmad()).workflow
    for role in ("draft", "check", "price", "join"):
        assert (
            after(workflow, (role, {"next": "good", "variables": {"workflowStatus": "complete"}}))
            == "WorkflowEnded"
        )
        assert after(workflow, (role, {"next": "good", "variables": {"workflowStatus": "active"}})) != "Ended"


def test_variables_of_the_workflows_document_are_what_a_run_begins_with() -> None:
    files = bmad()
    files["workflow.md"] = files["workflow.md"].replace(b"---\n\n#", b"variables: {cost: 900}\n---\n\n#")
    workflow = only(files).workflow
    assert workflow.crew is not None and workflow.crew.variables == {"cost": 900}
    assert after(workflow, ("price", {})) == "draft"
    assert after(workflow, ("price", {"variables": {"cost": 9}})) == "join"


def decides(rule: Any, *steps: Said) -> bool:
    """Whether an expression holds at `price` after these steps."""
    edges = [each for each in EDGES if each["from"] != "price"]
    edges += [
        {"from": "price", "to": "draft", "label": "dear", "conditionExpr": rule},
        {"from": "price", "to": "join", "label": "fine", "isDefault": True},
    ]
    return after(only(bmad(edges=edges)).workflow, *steps, ("price", {})) == "draft"


@pytest.mark.parametrize(
    "rule, holds",
    [
        ({"==": [{"var": "currentNodeId"}, "price"]}, True),
        ({"in": ["check", {"var": "stepsCompleted"}]}, True),
        ({"in": ["join", {"var": "stepsCompleted"}]}, False),
        ({"==": [{"var": "stepsCompleted.length"}, 3]}, True),
        ({"in": ["artifacts/b.md", {"var": "artifacts"}]}, True),
        ({"==": [{"var": "artifacts.length"}, 2]}, True),
        ({"==": [{"var": "variables.who.name"}, "Ada"]}, True),
        ({"==": [{"var": "who.name"}, "Ada"]}, True),
        ({"in": [1, {"var": "days"}]}, True),
        ({"missing": ["nothing"]}, True),
        ({"missing": ["days"]}, False),
    ],
    ids=json.dumps,
)
def test_expressions_see_what_the_run_has_reached(rule: Any, holds: bool) -> None:
    assert holds is decides(
        rule,
        ("draft", {"artifacts": ["artifacts/a.md"], "variables": {"who": {"name": "Ada"}, "days": [1]}}),
        ("check", {"$status": "$SUSPEND", "question": "When?"}),
        ("$USER", {"question": "", "answer": "now"}),
        ("check", {"next": "again"}),
        ("draft", {"artifacts": ["artifacts/a.md", "artifacts/b.md"]}),
        ("check", {"next": "good"}),
    )


LABELS = ("good", "bad", "so so")
NODES_OF_ANY = ("a", "b:decision", "c:merge", "d")
RULES: tuple[Any, ...] = (
    {">": [{"var": "x"}, 1]},
    {"==": [{"var": "y"}, "b"]},
    {"in": ["b", {"var": "stepsCompleted"}]},
)
PROBE = {"and": [{"var": name} for name in STATE_NAMES]}


@st.composite
def runs_of_any_graph(draw: st.DrawFn) -> tuple[Workflow, list[StepContext]]:
    """A workflow of four nodes with up to three edges each, some of which expressions decide, whose first node asks
    for all that the run has reached; and the steps of a run in it."""
    ids = [node.partition(":")[0] for node in NODES_OF_ANY]
    edges: list[dict[str, Any]] = [{"from": "a", "to": "a", "label": "probe", "conditionExpr": PROBE}]
    for source in ids:
        labels = draw(st.lists(st.sampled_from(LABELS), min_size=1, max_size=3, unique=True))
        for at, label in enumerate(labels):
            edge = {"from": source, "to": draw(st.sampled_from([*ids, "end"])), "label": label}
            if at == 0:
                edge["isDefault"] = True
            elif draw(st.booleans()):
                edge["conditionExpr"] = draw(st.sampled_from(RULES))
            edges.append(edge)
    files = bmad((*NODES_OF_ANY, "end:end"), edges)
    files["workflow.md"] = files["workflow.md"].replace(
        b"stepsC", b"variables: {x: 1, z: {deep: [1]}}\nstepsC"
    )
    workflow = only(files).workflow
    values = st.fixed_dictionaries(
        {}, optional={"x": st.integers(0, 3), "y": st.sampled_from(["a", "b", None])}
    )
    answers = st.fixed_dictionaries(
        {"summary": st.just("Done."), "next": st.sampled_from(LABELS)},
        optional={"variables": values, "artifacts": st.lists(st.sampled_from(["p", "q", "r"]), max_size=2)},
    )
    said = [(kind, draw(answers)) for kind in draw(st.lists(st.integers(0, 3), min_size=2, max_size=9))]
    steps: list[StepContext] = []
    for kind, answer in said:
        found = decide(workflow, Start(HASH, "Go", persona="mary"), steps)
        if not isinstance(found, Next):
            break
        if kind == 0:
            asked = {"$status": "$SUSPEND", "question": "When?"}
            steps.append(StepContext(HASH, found.role, asked, HASH, "uwf-exec"))
            steps.append(
                StepContext(HASH, "$USER", {"question": "When?", "answer": "Now"}, HASH, "uwf-human")
            )
        steps.append(StepContext(HASH, found.role, answer, HASH, "uwf-exec"))
    return workflow, steps


@given(runs_of_any_graph())
@settings(max_examples=40)
def test_expressions_see_the_same_run_as_who_is_told_of_it(made: tuple[Workflow, list[StepContext]]) -> None:
    workflow, steps = made
    begun, tail = workflow.conditions["probe"].expression, f"{translated(PROBE)})"
    assert begun.endswith(tail)
    seen = ", ".join(f'"{name}": ${name}' for name in STATE_NAMES)
    for number in range(1, len(steps) + 1):
        if "summary" not in steps[number - 1].output:
            continue
        start, past = Start(HASH, "Go", persona="mary"), tuple(steps[:number])
        value = evaluate(f"{begun.removesuffix(tail)}{{{seen}}})", history_value(start, past))
        told = reached(History(THREAD, HASH, HASH, start, HASH, workflow, past), "").as_json()
        assert value == {name: told[name] for name in STATE_NAMES}


def test_what_the_run_has_reached_is_told_with_the_labels_of_the_package() -> None:
    workflow = only(bmad()).workflow
    assert ways(workflow, "check") == (
        MatchedEdge("good", "price", True, "Nothing is missing"),
        MatchedEdge("again", "draft", True, "Something is missing"),
    )
    assert ways(workflow, "price") == (
        MatchedEdge("dear", "draft", False, '{">": [{"var": "cost"}, 100]}', True),
        MatchedEdge("fine", "join"),
    )
    assert ways(workflow, "join") == (MatchedEdge("done", "end"),) and ways(workflow, "end") == ()


def test_without_a_default_expressions_that_fail_leave_no_way_on() -> None:
    edges = [each for each in EDGES if each["label"] != "fine"]
    edges += [{"from": "price", "to": "join", "label": "cheap", "conditionExpr": {"<": [{"var": "cost"}, 9]}}]
    workflow = only(bmad(edges=edges)).workflow
    assert after(workflow, ("price", {"variables": {"cost": 5}})) == "join"
    with pytest.raises(NoTransition):
        after(workflow, ("price", {"variables": {"cost": 50}}))


def test_the_default_comes_last_and_can_be_named_whatever_expression_it_has_besides() -> None:
    rule = {"==": [{"var": "cost"}, 7]}
    edges = [each for each in EDGES if each["from"] != "check"]
    edges += [
        {"from": "check", "to": "price", "label": "good"},
        {"from": "check", "to": "draft", "label": "again", "isDefault": True, "conditionExpr": rule},
        {"from": "check", "to": "join", "label": "free", "conditionExpr": {"==": [{"var": "cost"}, 0]}},
    ]
    package = compiled(bmad(edges=edges))
    found = package.workflows["main"]
    assert [each.code for each in package.warnings] == ["default-condition"]
    schema = found.schemas[found.workflow.roles["check"].schema]
    assert schema["properties"]["next"]["enum"] == ["good", "again"]
    assert [(way.label, way.asked) for way in ways(found.workflow, "check")] == [
        ("free", False),
        ("good", True),
        ("again", True),
    ]
    for cost in (7, 8):
        said = {"variables": {"cost": cost}}
        assert after(found.workflow, ("check", {**said, "next": "good"})) == "price"
        assert after(found.workflow, ("check", {**said, "next": "again"})) == "draft"
    assert after(found.workflow, ("check", {"next": "good", "variables": {"cost": 0}})) == "join"


def test_conditions_of_one_label_are_told_apart_where_they_mean_something_else() -> None:
    nodes = ("one:decision", "two:decision", "three:decision", "end:end")
    follow = (("one", "two", {}), ("two", "three", {"conditionText": "All is there"}), ("three", "end", {}))
    edges = [
        {"from": at, "to": to, "label": label, **text}
        for at, on, text in follow
        for to, label in ((on, "yes"), (at, "no"))
    ]
    workflow = only(bmad(nodes, edges)).workflow
    assert list(workflow.conditions)[1:] == ["yes", "two: yes"]
    assert [after(workflow, (at, {"next": "yes"})) for at in ("one", "two", "three")] == [
        "two",
        "three",
        "end",
    ]
    assert [after(workflow, (at, {"next": "no"})) for at in ("one", "two", "three")] == [
        "one",
        "two",
        "three",
    ]


@pytest.mark.parametrize("files", [bmad(), own()], ids=["bmad", "own"])
def test_a_rehearsal_takes_every_edge_of_a_crews_workflow(files: dict[str, bytes]) -> None:
    found = only(files)
    report = rehearse(found.workflow, found.schemas)
    assert (report.percent, report.problems) == (100, ())


def test_what_a_rehearsal_of_an_own_workflow_finds_is_told_at_its_line() -> None:
    plan = PLAN.replace(
        "  checker:\n    approved: {role: $END}\n    rejected: {role: writer}\n",
        "  checker: [{role: $END, condition: done}, {role: writer}]\n"
        "conditions:\n  done: {expression: $count(steps) = 0}\n",
    )
    package = from_files("trip", own(plan=plan))
    warnings = foresee(package, compile_crew(package), 30)
    assert [(warning.path, warning.line, warning.code) for warning in warnings] == [
        ("plans/plan.yaml", 20, "condition-never-true")
    ]


def test_a_rehearsed_run_goes_the_ways_of_the_graph_to_its_end() -> None:
    found = only(bmad())
    start, steps, roles = Start(HASH, "Go"), (), []
    while isinstance(then := decide(found.workflow, start, steps), Next):
        role = found.workflow.roles[then.role]
        history = History(ThreadId("0" * 26), HASH, HASH, start, HASH, found.workflow, steps)
        output = choose_output(history, role, Schema(found.schemas[role.schema]))
        steps = (*steps, StepContext(HASH, role.name, output, HASH, "uwf-rehearse"))
        roles.append(role.name)
    assert isinstance(then, WorkflowEnded)
    assert set(roles) == set(found.workflow.roles) and roles[-1] == "end"


def test_the_page_shows_who_speaks_and_what_kind_of_node_it_is() -> None:
    found = only(bmad())
    page = readme(found.workflow, found.schemas)
    assert "| `check` | decision | \\* Tom |" in page
    assert "| `join` | merge | whom its thread names |" in page
    drawn = mermaid(found.workflow)
    assert '{"check"}' in drawn and '{{"join"}}' in drawn and '(["end"])' in drawn
    assert '-->|"again"|' in drawn
    assert drawn.count("--> finish") == drawn.count("finish") - 1 == 1, "only the end leads to $END"
    assert "shape=diamond" in dot(found.workflow)


def begin(instance: Instance, found: Compiled, persona: str = "mary") -> ThreadId:
    """A thread of a crew's workflow."""
    version = instance.registry.commit_unregistered(found)
    node = instance.store.put(*Start(found.hash, "A week by the sea", persona=persona).typed_payload())
    return instance.threads.fork(instance.threads.begin(version, node, None))


@pytest.mark.parametrize("files", [bmad(), own()], ids=["bmad", "own"])
def test_threads_of_a_crew_are_run_verified_forked_pushed_and_pulled(
    files: dict[str, bytes], uwf: Uwf, instance: Instance, hermetic: Path
) -> None:
    found = only(files)
    thread = begin(instance, found)
    here, there = Machine(uwf, instance.location.root), Machine(uwf, hermetic / "there")
    here("thread", "step", thread, "--agent", "uwf-rehearse")
    fork = here("thread", "fork", thread).json["thread"]
    here("thread", "run", thread, "--agent", "uwf-rehearse")
    assert here.status(thread) == "completed"
    here.verifies()
    remote = hermetic / "shared.git"
    git_servers.git("init", "-q", "--bare", remote)
    here("remote", "add", "origin", remote)
    here("push")
    there("clone", remote)
    assert there.heads() == here.heads()
    there("thread", "run", fork, "--agent", "uwf-rehearse")
    there.verifies()
    there("push")
    here("pull")
    assert here.heads() == there.heads()
    version = instance.registry.commit_for(found.hash)
    assert instance.registry.files(version) == {"crew.json": found.source.text, **files}


def test_any_node_may_ask_a_human_and_goes_again_with_the_answer(uwf: Uwf, instance: Instance) -> None:
    thread = begin(instance, only(bmad()))
    asks = "uwf-exec --stdin none printf -- '---\\nstatus: needs_input\\nquestion: When?\\n---\\n'"
    uwf("thread", "step", thread, "--agent", asks)
    assert uwf("thread", "show", thread).json["status"] == "waiting"
    uwf("thread", "answer", thread, "-m", "In May.")
    uwf("thread", "step", thread, "--agent", """uwf-exec --stdin none printf '%s' '{"summary": "In May"}'""")
    told = [(each["role"], each["output"]) for each in uwf("thread", "steps", thread).json]
    assert [role for role, _ in told] == ["draft", "$USER", "draft"]
    assert told[0][1]["question"] == "When?"
    assert uwf("verify", "--all").json["findings"] == []


def test_a_file_as_deep_in_a_package_as_it_may_be_is_verified(uwf: Uwf, instance: Instance) -> None:
    deep = "/".join(["assets", *("d" * 14), "picture.svg"])
    begin(instance, only({**bmad(), deep: b"<svg/>"}))
    assert uwf("verify", "--all").json["findings"] == []
    with pytest.raises(InvalidPackage, match="nested over 15 folders"):
        compiled({**bmad(), f"assets/{deep}": b"<svg/>"})


@pytest.mark.parametrize(
    "change", [{"steps/price.md": b"Obey me."}, {"bmad.json": b"{}"}, {"crew.yaml": b"crew: trip\n"}], ids=str
)
def test_a_version_whose_package_was_changed_is_found_out(
    change: dict[str, bytes], uwf: Uwf, instance: Instance
) -> None:
    found = only(bmad())
    begin(instance, found._replace(source=found.source._replace(includes={**bmad(), **change})))
    report = uwf("verify", "--all", check=None)
    told = [each for each in report.json["findings"] if each["code"] in ("bad-source", "other-source")]
    assert report.code == 7 and "crew.json" in told[0]["message"]


def test_a_lost_page_of_a_crews_workflow_is_made_again_from_its_package(uwf: Uwf, instance: Instance) -> None:
    found = only(bmad())
    thread = begin(instance, found)
    store = instance.location.git_dir
    loose(store, f"refs/uwf/threads/{thread}:workflow/README.md").unlink()
    assert uwf("verify", "--all", check=None).code == 7
    uwf("doctor", "--fix", check=None)
    assert uwf("verify", "--all").json["findings"] == []


def test_a_change_of_who_speaks_is_told_as_a_change_of_the_persona() -> None:
    old = only(bmad()).workflow
    files = bmad()
    files["agents.json"] = files["agents.json"].replace(b"Has seen many plans.", b"New here.")
    files["workflow.graph.json"] = files["workflow.graph.json"].replace(b'"tom"', b'"mary"')
    changes = [(each.what, each.name, each.fields) for each in compare(old, only(files).workflow)]
    assert changes == [
        ("persona", "mary", ("identity",)),
        ("persona", "tom", ("identity",)),
        ("role", "check", ("persona",)),
    ]


def test_one_package_makes_one_version_and_another_file_in_it_another(instance: Instance) -> None:
    one = instance.registry.commit_unregistered(only(bmad()))
    assert instance.registry.commit_unregistered(only(bmad())) == one
    assert instance.registry.commit_unregistered(only({**bmad(), "assets/picture.svg": b"<svg/>"})) != one
