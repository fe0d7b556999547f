"""Crews: a large package taken in, an input on a large menu, a step of a crew's workflow."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pygit2
from measure import fastest, run, timed
from rows import Row, Size, compared, cost
from stores import BY_CONDITION, UWF, Lab

from uwf_git.ext.crews.compile import compile_crew
from uwf_git.ext.crews.crew_node import Effect, Handler, Member, MenuItem
from uwf_git.ext.crews.menu import route
from uwf_git.ext.crews.package import read_archive
from uwf_git.ext.crews.registry import Crews, Definition
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Start
from uwf_git.format.personas import Persona


def importing(folder: Path, size: Size) -> Iterator[Row]:
    """A package taken in by a store that doesn't know it."""
    folder.mkdir(parents=True)
    package = folder / "tale.bmad"
    package.write_bytes(_tale(size.package))
    stores = count()

    def anew() -> float:
        lab = Lab(folder / str(next(stores)))
        return run([UWF, "crew", "import", str(package)], lab.environ)

    (seconds,) = fastest(size.few_turns, anew)
    yield cost(f"uwf crew import, a package of {size.package} step files", seconds, 2)


def routing(folder: Path, size: Size) -> Iterator[Row]:
    """What an input means to a persona: the one that takes longest, of one for each rule."""
    menu = tuple(
        MenuItem(
            f"[C{n}] Write chapter {n} of the tale, and what its people say",
            trigger=f"chapter-{n}",
            aliases=(f"write chapter {n}", f"tell part {n}"),
            handlers=(Handler(f"revise chapter {n}", Effect(action=f"Revise {n}.")),),
            does=Effect(action=f"Write {n}."),
        )
        for n in range(1, size.menu + 1)
    )
    member = Member(Persona("ada", "Ada"), menu=menu)
    inputs = (
        "",
        str(size.menu),
        f"tell part {size.menu}",
        f"c{size.menu}",
        "what its people",
        "apter",
        "How are you?",
    )
    slowest = max(fastest(size.turns, *(timed(lambda text=text: route(member, (), text)) for text in inputs)))
    yield cost(f"routing an input on a menu of {size.menu} items, in the library", slowest, 0.01)


def stepping(folder: Path, size: Size) -> Iterator[Row]:
    """A step of a crew's workflow beside one of a workflow of the same shape in YAML. What is answered is given, since
    making it up takes as long as the schema is wide."""
    lab = Lab(folder, BY_CONDITION)
    answers = {"crew": {"summary": "It is done."}, "yaml": {"status": "done", "note": "It is done."}}
    for name, output in answers.items():
        (folder / name).write_text(json.dumps([{"role": "worker", "output": output}]))
    version, workflow = small_crew(lab)
    commit = Crews(lab.instance.store).workflow_version(version, workflow)

    def step(thread: ThreadId, script: str) -> float:
        agent = f"uwf-rehearse --script {folder / script}"
        return run([UWF, "thread", "step", thread, "--agent", agent], lab.environ)

    def of_the_crew() -> float:
        return step(
            lab.instance.threads.start(commit, Start(workflow, "Measure this.", persona="ada")), "crew"
        )

    crew, yaml = fastest(size.turns, of_the_crew, lambda: step(lab.start(), "yaml"))
    yield compared("uwf thread step, a crew's workflow / the same in YAML", crew, yaml, 1.3)


def small_crew(lab: Lab) -> tuple[pygit2.Oid, Hash]:
    """The version of a crew called `turns` that a store then has, and its workflow, which is that of
    stores.BY_CONDITION."""
    package = read_archive(_turns(), "turns.bmad")
    compiled = compile_crew(package)
    version = Crews(lab.instance.store).put(Definition(package, compiled))
    return pygit2.Oid(hex=version.commit), compiled.workflows["main"].hash


def _tale(steps: int) -> bytes:
    """A long workflow, with a decision at every fifth step."""
    ids = [f"step-{n}" for n in range(steps)]
    nodes = [(id_, "step" if n % 5 else "decision") for n, id_ in enumerate(ids)]
    following = [*ids[1:], "end", "end"]
    edges: list[dict[str, Any]] = []
    for n, (id_, kind) in enumerate(nodes):
        if kind == "decision" and following[n] != following[n + 1]:
            told = {"and": [{">": [{"var": "pages"}, n]}, {"==": [{"var": "mood"}, "glad"]}]}
            edges.append(_edge(id_, following[n], "longer", conditionExpr=told))
            edges.append(_edge(id_, following[n + 1], "shorter", isDefault=True))
        else:
            edges.append(_edge(id_, following[n], "next"))
    return _package("tale", nodes, edges, "Tell on from where the last chapter ended, in plain words.\n" * 30)


def _turns() -> bytes:
    """The workflow of stores.BY_CONDITION as a package."""
    enough = {">=": [{"var": "done"}, 100_000]}
    edges = [
        _edge("worker", "end", "enough", conditionExpr=enough),
        _edge("worker", "checker", "more", isDefault=True),
        _edge("checker", "worker", "next"),
    ]
    return _package("turns", [("worker", "decision"), ("checker", "step")], edges, "Work.\n")


def _edge(source: str, target: str, label: str, **more: Any) -> dict[str, Any]:
    return {"from": source, "to": target, "label": label, **more}


def _package(
    name: str, nodes: Iterable[tuple[str, str]], edges: Sequence[Mapping[str, Any]], text: str
) -> bytes:
    """A package with one persona, whose nodes all say the same; the first is where it begins."""
    known = [*nodes, ("end", "end")]
    agent = {
        "id": "ada",
        "metadata": {"name": "Ada", "title": "Teller", "icon": "*"},
        "persona": {
            "role": "Teller",
            "identity": "Has told many.",
            "communication_style": "Short",
            "principles": ["Ask before you guess."],
        },
        "menu": [{"trigger": "tell", "description": "Tell it", "workflow": "main"}],
    }
    graph = {
        "entryNodeId": known[0][0],
        "nodes": [
            {"id": id_, "type": kind, "file": f"steps/{id_}.md", "title": id_, "agentId": "ada"}
            for id_, kind in known
        ],
        "edges": edges,
    }
    entry = {"workflow": "workflow.md", "graph": "workflow.graph.json", "agents": "agents.json"}
    manifest = {"name": name, "version": "1.0.0", "description": "Told to be measured.", "entry": entry}
    files = {
        path: json.dumps({"schemaVersion": "1.1", **value})
        for path, value in (
            ("bmad.json", manifest),
            ("workflow.graph.json", graph),
            ("agents.json", {"agents": [agent]}),
        )
    }
    files["workflow.md"] = (
        f"---\nschemaVersion: '1.1'\nworkflowType: {name}\nstepsCompleted: []\ncurrentNodeId: ''\n---\n\n# It\n"
    )
    for id_, kind in known:
        files[f"steps/{id_}.md"] = (
            f"---\nschemaVersion: '1.1'\nnodeId: {id_}\ntype: {kind}\n---\n\n# {id_}\n\n{text}"
        )
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return made.getvalue()
