"""A .bmad package is read whole: what it says becomes a draft, and every slip of every file is told with its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.ext.crews.bmad import read_bmad
from uwf_git.ext.crews.crew_node import Effect, Handler, MenuItem
from uwf_git.ext.crews.draft import CrewDraft, EdgeDraft, GraphDraft, InvalidPackage, PackageFinding
from uwf_git.ext.crews.package import from_files

PERSONA = {
    "role": "Analyst",
    "identity": "Asks.",
    "communication_style": "Short",
    "principles": "One.\n\nTwo.\n",
}
MENU: list[dict[str, Any]] = [
    {"trigger": "plan", "cmd": "*plan", "description": "Plan it", "workflow": "main", "data": "wishes.csv"},
    {
        "trigger": "same",
        "description": "By its path",
        "workflow": "{package-root}/workflow.md",
        "data": "assets/a.txt",
    },
    {"trigger": "also", "description": "By exec", "exec": "workflow.md", "validate-workflow": "other"},
    {"trigger": "more", "description": "Not in the manifest", "exec": "extra/begin.md", "web-only": True},
    {"trigger": "tell", "description": "Tell", "exec": "assets/tell.md", "ide-only": True},
    {"trigger": "here", "description": "The project's", "exec": "{project-root}/do.md"},
    {"trigger": "brief", "description": "Brief", "action": "#brief"},
    {
        "description": "Several",
        "triggers": [
            {"type": "alias", "match": "all"},
            {"type": "handler", "match": "go on", "action": "run.resume", "note": "open"},
        ],
        "icon": "kept open",
    },
]


def step(name: str, kind: str = "step", more: str = "", text: str = "Do it.") -> bytes:
    return (
        f'---\nschemaVersion: "1.1"\nnodeId: {name}\ntype: {kind}\n{more}---\n\n# {name}\n\n{text}\n'.encode()
    )


def document(more: str = "") -> bytes:
    state = "schemaVersion: 1.1.2\nworkflowType: trip\nstepsCompleted: []\ncurrentNodeId: ''\n"
    return f"---\n{state}{more}---\n# Trip\n".encode()


def graph(steps: str = "steps") -> dict[str, Any]:
    return {
        "schemaVersion": "1.1",
        "entryNodeId": "ask",
        "nodes": [
            {
                "id": "ask",
                "type": "step",
                "file": f"{steps}/ask.md",
                "title": "Ask",
                "agentId": "",
                "outputs": ["a.md"],
            },
            {"id": "choose", "type": "decision", "file": f"{steps}/choose.md", "agentId": "mary"},
            {"id": "end", "type": "end", "file": f"{steps}/end.md"},
        ],
        "edges": [
            {"from": "ask", "to": "choose", "label": "next"},
            {
                "from": "choose",
                "to": "ask",
                "label": "again",
                "conditionExpr": {"==": [{"var": "mode"}, "slow"]},
            },
            {
                "from": "choose",
                "to": "end",
                "label": "done",
                "isDefault": True,
                "conditionText": "All is said",
            },
        ],
        "metadata": {"layout": [1, 2]},
    }


def steps(folder: str = "steps") -> dict[str, bytes]:
    return {
        f"{folder}/ask.md": step("ask", more="title: Never shown\nagentId: tom\ninputs: [goal.md]\n"),
        f"{folder}/choose.md": step("choose", "decision"),
        f"{folder}/end.md": step("end", "end", text=""),
    }


def agent(name: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name.title(), "title": "Planner", "icon": "📊"}
    return {"id": name, "metadata": metadata, "persona": PERSONA, **more}


def whole() -> dict[str, Any]:
    """A package that has one of everything; JSON files as values."""
    files: dict[str, Any] = {
        "bmad.json": {
            "schemaVersion": "1.1",
            "name": "Trip & Co",
            "version": "1.2.3-rc.1",
            "createdAt": "",
            "entry": {"workflow": "workflow.md", "graph": "workflow.graph.json", "agents": "agents.json"},
            "workflows": [
                {
                    "id": "other",
                    "workflow": "workflows/7/workflow.md",
                    "graph": "workflows/7/workflow.graph.json",
                },
                {
                    "id": "main",
                    "workflow": "workflow.md",
                    "graph": "workflow.graph.json",
                    "displayName": "Trip",
                    "tags": ["x"],
                },
            ],
        },
        "agents.json": {
            "schemaVersion": "1.1",
            "agents": [
                agent(
                    "mary",
                    menu=MENU,
                    prompts=[{"id": "brief", "content": "In three lines."}],
                    tools={"fs": {"maxReadBytes": 9}, "mcp": {"enabled": True, "allowedServers": ["docs"]}},
                ),
                agent("tom", systemPrompt="You are Tom.", tools={"fs": {"enabled": False}}),
            ],
        },
        "workflow.md": document("variables: {mode: fast}\n"),
        "workflow.graph.json": graph(),
        **steps(),
        "workflows/7/workflow.md": document(),
        "workflows/7/workflow.graph.json": graph("workflows/7/steps"),
        **steps("workflows/7/steps"),
        "extra/begin.md": document(),
        "extra/workflow.graph.json": graph(),
        **steps("extra/steps"),
        "assets/a.txt": b"data",
        "assets/tell.md": b"# Tell\n",
    }

    return deepcopy(files)


def read(files: Mapping[str, Any]) -> CrewDraft:
    return read_bmad(
        from_files(
            "trip",
            {
                path: value
                if isinstance(value, bytes)
                else json.dumps(value, indent=1, ensure_ascii=False).encode()
                for path, value in files.items()
            },
        )
    )


def findings(files: Mapping[str, Any]) -> list[PackageFinding]:
    with pytest.raises(InvalidPackage) as caught:
        read(files)
    return list(caught.value.findings)


def codes(files: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(each.path, each.code) for each in findings(files)]


def test_a_whole_package_becomes_a_draft_without_a_warning() -> None:
    crew = read(whole())
    assert (crew.name, crew.version, crew.format, crew.warnings) == ("trip-co", "1.2.3-rc.1", "bmad", ())
    main, other, extra = crew.workflows
    assert (main.id, main.title, main.tags, main.entry) == ("main", "Trip", ("x",), "workflow.md")
    assert (other.id, extra.id, extra.entry) == ("other", "extra", "extra/begin.md")
    assert isinstance(main, GraphDraft) and isinstance(other, GraphDraft) and isinstance(extra, GraphDraft)
    assert (main.first, main.variables) == ("ask", {"mode": "fast"})
    ask = main.nodes["ask"]
    assert (ask.title, ask.agent, ask.inputs, ask.outputs) == ("Ask", "tom", ("goal.md",), ("a.md",))
    assert ask.text == "# ask\n\nDo it."
    assert other.nodes["ask"].file == "workflows/7/steps/ask.md"
    assert main.edges[1:] == (
        EdgeDraft("choose", "ask", "again", False, "", {"==": [{"var": "mode"}, "slow"]}),
        EdgeDraft("choose", "end", "done", True, "All is said"),
    )


def test_a_menu_names_workflows_by_their_ids_and_files_by_their_mounts() -> None:
    mary, tom = read(whole()).members
    assert mary.menu == (
        MenuItem("Plan it", "plan", "*plan", does=Effect("main", data="@project/wishes.csv")),
        MenuItem("By its path", "same", does=Effect("main", data="@pkg/assets/a.txt")),
        MenuItem("By exec", "also", does=Effect("main"), validate="other"),
        MenuItem("Not in the manifest", "more", does=Effect("extra"), surface="web"),
        MenuItem("Tell", "tell", does=Effect(exec="@pkg/assets/tell.md"), surface="ide"),
        MenuItem("The project's", "here", does=Effect(exec="@project/do.md")),
        MenuItem("Brief", "brief", does=Effect(action="#brief")),
        MenuItem("Several", aliases=("all",), handlers=(Handler("go on", Effect(action="run.resume")),)),
    )
    assert mary.prompts == {"brief": "In three lines."}
    assert mary.persona.principles == ("One.", "Two.")
    assert mary.persona.tools == {"maxReadBytes": 9, "servers": ["docs"]}
    assert (tom.persona.system_prompt, tom.persona.tools) == ("You are Tom.", {"files": False, "mcp": False})


def test_every_slip_of_every_file_is_told_at_once_with_its_line() -> None:
    files = whole()
    files["bmad.json"]["version"] = "1"
    files["bmad.json"]["color"] = "red"
    mary = files["agents.json"]["agents"][0]
    mary["menu"] = [
        {"description": "a", "workflow": "flows/old.yaml"},
        {"description": "b", "workflow": "mian"},
        {"description": "c", "action": "#bref"},
        {"description": "d", "exec": "../up.md"},
        {"description": "e", "data": "{package-root}/no.csv", "action": "x"},
        {"description": "f", "validate-workflow": "gone.md", "action": "x"},
        {"description": "g", "exec": "run.xml"},
    ]
    mary["metadata"]["name"] = " "
    files["agents.json"]["agents"].append(agent("mary"))
    main = files["workflow.graph.json"]
    main["nodes"][1]["agentId"] = "mray"
    main["nodes"][2]["type"] = "subworkflow"
    main["edges"][0]["to"] = "chose"
    main["edges"][1]["conditionExpr"] = {"==": [{"%": [{"var": "n"}, 2]}, 0]}
    files["steps/ask.md"] = step("aks")
    files["steps/choose.md"] = b"# Choose\n"
    del files["steps/end.md"]
    files["workflow.md"] = b"---\nschemaVersion: '1.1'\nworkflowType: [\n---\n"
    files["workflows/7/workflow.graph.json"] = b'{"schemaVersion": "1.1",\n "nodes": [],}'

    found = findings(files)
    assert [(each.path, each.code) for each in found] == [
        ("bmad.json", "bad-value"),
        ("bmad.json", "unknown-key"),
        ("agents.json", "missing-key"),
        *(
            ("agents.json", code)
            for code in (
                "NotSupportedClassicWorkflow",
                "UnknownWorkflow",
                "UnknownPromptId",
                "bad-path",
                "DataLoadFailed",
                "ValidationFailed",
                "NotSupportedClassicWorkflow",
                "duplicate-id",
            )
        ),
        ("workflow.md", "bad-frontmatter"),
        ("workflow.graph.json", "UnknownPersona"),
        ("workflow.graph.json", "unsupported-node"),
        ("workflow.graph.json", "missing-file"),
        ("workflow.graph.json", "unknown-node"),
        ("workflow.graph.json", "untranslatable"),
        ("steps/ask.md", "other-node"),
        ("steps/choose.md", "bad-frontmatter"),
        ("workflows/7/workflow.graph.json", "bad-json"),
    ]
    texts = {
        path: (
            value.decode() if isinstance(value, bytes) else json.dumps(value, indent=1, ensure_ascii=False)
        ).split("\n")
        for path, value in files.items()
    }
    at = {(each.path, each.code): texts[each.path][each.line - 1][each.column - 1 :] for each in found}
    assert at["bmad.json", "unknown-key"].startswith('"color"')
    assert at["agents.json", "UnknownPromptId"].startswith('"#bref"')
    assert at["workflow.graph.json", "unknown-node"].startswith('"chose"')
    assert at["workflow.graph.json", "untranslatable"].startswith("[")
    assert at["steps/ask.md", "other-node"] == "aks"
    assert at["workflows/7/workflow.graph.json", "bad-json"] == "}"
    told = next(each for each in found if each.code == "untranslatable")
    assert 'choose → ask ("again")' in told.message and '"%"' in told.message
    assert 'did you mean "main"' in next(each.hint for each in found if each.code == "UnknownWorkflow")


@pytest.mark.parametrize("version", ["1.0", "2.0", "1.10", "1.1.x", 1.1, None])
def test_a_package_of_another_version_says_that_alone(version: Any) -> None:
    files = whole()
    files["bmad.json"] |= {"schemaVersion": version, "entry": 7, "new": True}
    [first, *rest] = findings(files)
    assert first.line == 2 and "schemaVersion" in first.message
    assert not rest or first.code != "unsupported-version"


def test_a_key_that_stands_twice_is_told_also_where_it_says_the_same() -> None:
    files = whole()
    text = json.dumps(files["workflow.graph.json"], indent=1)
    files["workflow.graph.json"] = text.replace(
        '"entryNodeId": "ask",', '"entryNodeId": "ask",\n"entryNodeId": "ask",'
    ).encode()
    [found] = findings(files)
    assert (found.code, found.line, found.column) == ("duplicate-key", 4, 1)
    assert "line 3" in found.message


GRAPH = "workflow.graph.json"


def _edges(files: dict[str, Any]) -> Any:
    return files[GRAPH]["edges"]


def _menu(files: dict[str, Any], *items: dict[str, Any]) -> None:
    files["agents.json"]["agents"][1]["menu"] = list(items)


def _agent(files: dict[str, Any], **more: Any) -> Any:
    agent = files["agents.json"]["agents"][1]
    agent.update(more)
    return agent


def _edge(target: str, label: str, **more: Any) -> dict[str, Any]:
    return {"from": "ask", "to": target, "label": label, **more}


def _edit(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    files = whole()
    change(files)
    return files


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda files: _edges(files).pop(), {"no-default", "unreachable"}),
        (lambda files: _edges(files).clear(), {"dead-end", "unreachable"}),
        (lambda files: _edges(files)[2].pop("isDefault"), set()),
        (lambda files: files[GRAPH]["nodes"][0].update(agentId="mary"), {"differs"}),
        (
            lambda files: files.update(
                {"workflow.md": document("decisionLog: [{from: a, to: b, label: c}]\n")}
            ),
            {"state-ignored"},
        ),
        (lambda files: files.update({"workflow.md": document().replace(b"''", b"end")}), {"state-ignored"}),
        (lambda files: files.update({"workflow.md": document().replace(b"''", b"ask")}), set()),
        (lambda files: _edges(files)[2].update(conditionExpr={"==": [1, 2]}), {"default-condition"}),
        (lambda files: files["bmad.json"].update(integrity={"sha256": "0" * 64}), {"not-used"}),
        (lambda files: _agent(files, discussion=True, webskip=False), {"not-used"}),
        (lambda files: _agent(files, userPromptTemplate="{{x}}", conversational_knowledge=[]), {"not-used"}),
        (lambda files: _agent(files)["metadata"].update(icon="", title=" "), {"blank"}),
        (lambda files: _menu(files, {"description": "x"}), {"does-nothing"}),
        (
            lambda files: _menu(
                files, {"description": "x", "action": "a", "triggers": [{"type": "other", "match": "x"}]}
            ),
            {"unknown-trigger"},
        ),
        (
            lambda files: _menu(files, {"description": "x", "action": "a", "exec": "assets/tell.md"}),
            {"two-actions"},
        ),
        (
            lambda files: _menu(
                files, {"description": "x", "action": "a", "ide-only": True, "web-only": True}
            ),
            {"bad-surface"},
        ),
    ],
)
def test_what_may_be_a_slip_is_a_warning_and_the_package_is_read(change: Any, wanted: set[str]) -> None:
    assert {each.code for each in read(_edit(change)).warnings} == wanted


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda files: _edges(files)[2].update({"from": "end"}), "edge-from-end"),
        (
            lambda files: _edges(files).extend(
                [_edge("end", "x", isDefault=True), _edge("end", "y", isDefault=True)]
            ),
            "several-defaults",
        ),
        (lambda files: _edges(files).append(_edge("end", "next")), "duplicate-label"),
        (lambda files: files[GRAPH].update(entryNodeId="aks"), "unknown-node"),
        (lambda files: files[GRAPH]["nodes"].append(files[GRAPH]["nodes"][0]), "duplicate-id"),
        (lambda files: files["bmad.json"]["workflows"][0].update(id="main"), "duplicate-id"),
        (lambda files: files["bmad.json"]["entry"].update(agents="agnets.json"), "missing-file"),
        (lambda files: files["bmad.json"]["entry"].update(graph="extra/workflow.graph.json"), "differs"),
        (lambda files: files["agents.json"].update(agents=[]), "bad-value"),
        (
            lambda files: files.update({"workflow.md": document().replace(b"currentNodeId: ''\n", b"")}),
            "missing-key",
        ),
        (lambda files: files.update({"steps/ask.md": b"\n" + step("ask")}), "bad-frontmatter"),
        (lambda files: files.update({"steps/ask.md": b"---\na: 1\n"}), "bad-frontmatter"),
        (
            lambda files: files.update({"steps/ask.md": step("ask").replace(b"Do it", b"\xff")}),
            "bad-frontmatter",
        ),
        (lambda files: files.update({"steps/ask.md": step("ask", text="x" * (1 << 20))}), "too-large"),
        (lambda files: files.update({"agents.json": b"[" * 200}), "bad-json"),
    ],
)
def test_a_contradiction_keeps_the_package_out(change: Any, wanted: str) -> None:
    assert wanted in [code for _, code in codes(_edit(change))]


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("trip", "trip"),
        ("Ärger & Söhne", "ärger-söhne"),
        ("My Crew 2.0!", "my-crew-2.0"),
        ("..", "crew"),
        ("x" * 200, "x" * 80),
        ("旅行", "旅行"),
        ("a.lock", "a"),
    ],
)
def test_a_crew_is_called_as_its_package_says_as_far_as_a_name_can(said: str, name: str) -> None:
    assert read(_edit(lambda files: files["bmad.json"].update(name=said))).name == name


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(max_size=3)
    | st.sampled_from(["main", "ask", "#x", "../x", "a.yaml", "workflow.md"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "var", "x"]), inner, max_size=2)
    ),
    max_leaves=3,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inside for place in _places(each, (*path, key)))]


@settings(max_examples=150)
@given(st.data())
def test_whatever_stands_in_a_package_it_is_read_or_refused_with_findings(data: st.DataObject) -> None:
    files = whole()
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from([place for place in _places(files) if place]))
        within: Any = files
        for key in path:
            within = within[key]
        within[last] = data.draw(JSON)
    try:
        crew = read({key: value for key, value in files.items() if value is not None})
    except InvalidPackage as error:
        assert any(each.severity == "error" for each in error.findings)
        assert all(each.message and each.code for each in error.findings)
    else:
        assert all(each.severity == "warning" for each in crew.warnings)
