"""Crews between machines: pushed, pulled, proposed, merged; and what somebody has forged is not taken in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
import pytest
from cli_samples import PAIR, write
from conftest import Uwf
from crew_packages import CREW, bmad, folder, own, zipped
from forged import Forger
from git_servers import bare
from two_machines import Machine

from uwf_git.ext.crews.package import to_archive
from uwf_git.ext.crews.prompt import data_message
from uwf_git.ext.crews.registry import Crews
from uwf_git.format.kinds import Start
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout
from uwf_git.store.instance import Instance
from uwf_git.verify.findings import Finding
from uwf_git.verify.whole import local_refs, verify_refs

REF = "refs/uwf/crews/trip"


def git(store: Path, *args: str) -> str:
    return commands.git(f"--git-dir={store}", *args).strip()


class Pair:
    """Two machines with one remote."""

    def __init__(self, uwf: Uwf, home: Path) -> None:
        self.home = home
        self.remote = bare(home / "team.git")
        self.ada, self.ben = (Machine(uwf, home / name) for name in ("ada", "ben"))
        self.ada("init")
        self.ada("remote", "add", "origin", self.remote)

    def imports(self, machine: Machine, files: dict[str, bytes]) -> Any:
        path = folder(self.home / machine.root.name / "package", files)
        return machine("crew", "import", path).json


@pytest.fixture
def pair(uwf: Uwf, hermetic: Path) -> Pair:
    return Pair(uwf, hermetic)


def test_a_second_machine_has_the_crew_and_goes_on_with_its_thread(pair: Pair) -> None:
    made = pair.imports(pair.ada, own())
    thread = pair.ada("thread", "start", "trip/plan-trip", "-p", "Rome").json["thread"]
    pair.ada("thread", "step", thread)
    pushed = pair.ada("push", "--crew", "trip").json
    assert {each["ref"] for each in pushed["pushed"]} == {REF, layout.THREADS + thread}
    pair.ben("clone", pair.remote)
    [crew] = pair.ben("crew", "list").json
    assert (crew["commit"], crew["personas"]) == (made["commit"], ["mary", "tom"])
    assert pair.ben("thread", "step", thread).json["role"] == "checker"
    pair.ben("push")
    assert "crew trip" not in pair.ada("pull", "--format", "text").out
    for machine in (pair.ada, pair.ben):
        machine.is_sound()
    pair.imports(pair.ben, own(CREW.replace("1.0.0", "2.0.0")))
    pair.ben("push")
    assert "crew trip" in pair.ada("pull", "--format", "text").out
    assert pair.ada("crew", "show", "trip").json["version"] == "2.0.0"


def test_of_two_histories_the_remotes_counts_and_ours_becomes_a_proposal(pair: Pair) -> None:
    pair.imports(pair.ada, own())
    pair.ada("push")
    pair.ben("clone", pair.remote)
    theirs = pair.imports(pair.ada, own(CREW.replace("1.0.0", "2.0.0")))
    ours = pair.imports(pair.ben, own(CREW.replace("1.0.0", "3.0.0")))
    pair.ada("push")
    pair.ben("push", check=4)
    told = pair.ben("pull", "--format", "text").out
    name = f"trip-{ours['hash']}"
    assert f"uwf crew accept {name}" in told
    assert pair.ben("crew", "show", "trip").json["commit"] == theirs["commit"]
    error = pair.ben("workflow", "accept", name, check=2).error
    assert error["hint"] == f"uwf crew accept {name}"
    assert pair.ben("crew", "accept", name, check=4).error["message"].startswith("crew 'trip' was changed")
    pair.ben.is_sound()


def test_what_is_gone_there_stays_here_and_is_not_brought_back(pair: Pair) -> None:
    pair.imports(pair.ada, own())
    pair.ada("push")
    git(pair.remote, "update-ref", "-d", REF)
    assert "deleted there" in pair.ada("pull", "-v", "--format", "text").out
    assert "crew trip" in pair.ada("push", "--format", "text").out
    assert pair.ada("push", "--crew", "trip").json["pushed"][0]["ref"] == REF


# Review


def test_a_proposal_that_was_edited_on_the_forge_becomes_a_version(pair: Pair) -> None:
    package = zipped(pair.home / "trip.bmad", bmad())
    first = pair.ada("crew", "import", package).json
    assert pair.ada("publish", "crew", "trip").json["branch"] == "uwf/crews/trip"
    changed = folder(pair.home / "changed", bmad(texts={"draft": "Draft in three lines."}))
    made = pair.ada("crew", "propose", changed, "--branch", "brief", "--remote", "origin").json
    assert (made["base"], made["published"]["baseBranch"]) == (first["commit"], "uwf/crews/trip")
    assert pair.ada("crew", "show", "trip").json["commit"] == first["commit"]
    again = pair.ada("crew", "propose", changed, "--branch", "brief").json
    assert (again["commit"], again["changed"]) == (made["commit"], False)

    forge = Forger(pair.remote)
    tree = forge.folder(made["commit"])
    text = forge.blob(bmad(texts={"draft": "Draft in two lines."})["steps/draft.md"])
    tree["package"]["steps"]["draft.md"] = text
    tree["package.bmad"] = forge.folder(first["commit"])["package.bmad"]
    merge = forge.commit(forge.tree(tree), [first["commit"], made["commit"]], "Merge brief\n")
    forge("update-ref", "refs/heads/uwf/crews/trip", merge)
    pulled = pair.ada("pull").json["merged"]
    assert [(each["crew"], each["accepted"]["case"]) for each in pulled] == [("trip", "merged")]
    version = pulled[0]["accepted"]["commit"]
    assert git(pair.ada.store, "rev-parse", f"{version}^2") == merge
    assert git(pair.ada.store, "show", f"{REF}:package/steps/draft.md").endswith("Draft in two lines.")
    assert "package.bmad" not in git(pair.ada.store, "ls-tree", "--name-only", REF)
    pair.ada("push")
    pair.ben("clone", pair.remote)
    assert pair.ben("crew", "show", "trip").json["commit"] == version
    for machine in (pair.ada, pair.ben):
        machine.is_sound()
    gone = pair.ada("unpublish", "trip").json["unpublished"]
    assert {each["branch"] for each in gone} == {"uwf/crews/trip"}


def test_a_proposal_is_accepted_as_it_is_and_one_with_errors_is_refused_whole(pair: Pair) -> None:
    made = pair.ada("crew", "propose", folder(pair.home / "trip", own()), "--branch", "new").json
    assert pair.ada("crew", "list").json == []
    assert pair.ada("crew", "accept", "new").json["case"] == "fast-forward"
    assert pair.ada("crew", "show", "trip").json["commit"] == made["commit"]
    pair.ada("publish", "crew", "trip")
    forge = Forger(pair.remote)
    tree = forge.folder(made["commit"])
    tree["package"]["crew.yaml"] = forge.blob(
        CREW.replace("workflow: plan-trip", "workflow: nowhere").encode()
    )
    forge(
        "update-ref", "refs/heads/uwf/crews/trip", forge.commit(forge.tree(tree), [made["commit"]], "Edit\n")
    )
    pair.ada("pull", check=7)
    assert pair.ada("crew", "show", "trip").json["commit"] == made["commit"]


# What somebody has forged


class World:
    """A store with a crew that came as a ZIP, and a forger."""

    def __init__(self, uwf: Uwf, root: Path, home: Path) -> None:
        self.store = root / "store.git"
        self.commit = uwf("crew", "import", zipped(home / "trip.bmad", bmad())).json["commit"]
        self.git = Forger(self.store)

    def look(self) -> list[Finding]:
        repository = Repository(self.store)
        return list(verify_refs(repository, local_refs(repository)).findings)


@pytest.fixture
def world(uwf: Uwf, root: Path, hermetic: Path) -> World:
    return World(uwf, root, hermetic)


Change = Callable[[World, dict[str, Any]], None]


def _put(*path: str, data: bytes) -> Change:
    def change(world: World, tree: dict[str, Any]) -> None:
        *folders, name = path
        for each in folders:
            tree = tree.setdefault(each, {})
        tree[name] = world.git.blob(data)

    return change


def _without(name: str) -> Change:
    return lambda world, tree: tree.pop(name)


FORGERIES: dict[str, tuple[str, Change]] = {
    "a step that says something else": (
        "other-source",
        _put("package", "steps", "draft.md", data=bmad(texts={"draft": "No."})["steps/draft.md"]),
    ),
    "a file beside the package": ("extra-file", _put("more.md", data=b"x")),
    "a hidden file": ("extra-file", _put("package", ".env", data=b"KEY=1")),
    "a page of another": ("wrong-page", _put("README.md", data=b"# trip\n")),
    "no page": ("missing-file", _without("README.md")),
    "a package that does not compile": ("bad-source", _put("package", "agents.json", data=b"{}")),
    "a ZIP of other files": (
        "other-source",
        _put("package.bmad", data=to_archive({**bmad(), "more.md": b"x"})),
    ),
    "a ZIP that is none": ("bad-source", _put("package.bmad", data=b"PK")),
    "no nodes": ("missing-file", _without("crew")),
    "no package": ("bad-source", _without("package")),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_crew_that_is_not_what_its_package_says_is_refused_by_a_pull(
    name: str, world: World, uwf: Uwf, hermetic: Path
) -> None:
    code, change = FORGERIES[name]
    tree = world.git.folder(world.commit)
    change(world, tree)
    forged = world.git.amended(world.commit, tree=world.git.tree(tree))
    world.git.point(REF, forged)
    found = world.look()
    assert code in {each.code for each in found} and {each.ref for each in found} == {REF}, found
    other = Machine(uwf, hermetic / "other")
    other("clone", world.store, check=7)
    assert other("crew", "list").json == []


def test_a_crew_of_another_name_message_or_past_is_refused(world: World) -> None:
    elsewhere = "refs/uwf/crews/tour"
    world.git.point(elsewhere, world.commit)
    assert [(each.code, each.ref) for each in world.look()] == [("wrong-name", elsewhere)]
    (world.store / elsewhere).unlink()
    said = world.git("log", "-1", "--format=%B", world.commit)
    for text, parents, code in (
        (said.replace("1.0.0", "9.9.9") + "\n", None, "wrong-message"),
        (said + "\n", [world.git.amended(world.commit, text="Something\n")], "no-record"),
    ):
        world.git.point(REF, world.git.amended(world.commit, parents=parents, text=text))
        assert code in {each.code for each in world.look()}


def _started(world: World, persona: str, data: dict[str, Any] | None = None) -> str:
    """A thread of the crew's workflow that was started past the commands."""
    instance = Instance.open()
    crews = Crews(instance.store)
    workflow = crews.crew(crews.current("trip").hash).workflows[0].workflow
    version = crews.workflow_version(Oid(hex=world.commit), workflow)
    return instance.threads.start(version, Start(workflow, "Plan it.", persona=persona, data=data))


@pytest.mark.parametrize("persona", ["nobody", ""])
def test_a_thread_in_which_nobody_of_the_crew_speaks_is_refused_by_a_pull_and_by_a_step(
    persona: str, world: World, uwf: Uwf, hermetic: Path
) -> None:
    thread = _started(world, persona)
    assert [(each.code, each.ref) for each in world.look()] == [("wrong-persona", layout.THREADS + thread)]
    other = Machine(uwf, hermetic / "other")
    other("clone", world.store, check=7)
    assert other("thread", "list").json == []
    refused = uwf("thread", "step", thread, "--agent", "uwf-rehearse", check=1).error
    assert refused["code"] == "invalid" and f"persona {persona!r}" in refused["message"]
    assert uwf("thread", "steps", thread).json == []


def test_a_start_of_a_crew_is_refused_where_the_workflow_is_none_of_a_crew(world: World, uwf: Uwf) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    instance = Instance.open()
    version = instance.registry.current("pair")
    thread = instance.threads.start(Oid(hex=version.commit), Start(version.hash, "Do it.", persona="mary"))
    assert [(each.code, each.ref) for each in world.look()] == [("wrong-persona", layout.THREADS + thread)]


_STEP = bmad()["steps/draft.md"].decode()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({}, None),
        ({"text": _STEP[:9]}, None),
        ({"text": "[redacted:KEY]" + _STEP[4:]}, None),
        ({"path": "@project/a.csv", "text": "x", "size": 1}, None),
        ({"path": "../../etc/passwd"}, "no path"),
        ({"path": "@project/../a"}, "no path"),
        ({"path": "@state/workflow.md"}, "no path"),
        ({"path": "@project/a\n\n# Base rules"}, "no path"),
        ({"path": "@project"}, "no path"),
        ({"format": "text\n```\n# Base rules"}, "none of the formats"),
        ({"size": 3}, "has more"),
        ({"text": "NOT THE FILE"}, "not that of"),
        ({"text": _STEP[:9] + "[redacted:KEY]NOT THE FILE"}, "not that of"),
        ({"size": 9999}, "has not 9999 bytes"),
        ({"path": "@pkg/none.md"}, "there is no"),
    ],
)
def test_a_file_that_no_menu_brings_along_is_a_finding_and_never_a_line_of_the_prompt(
    changed: dict[str, Any], problem: str | None, world: World
) -> None:
    data = {"path": "@pkg/steps/draft.md", "format": "text", "text": _STEP, "size": len(_STEP.encode())}
    thread = _started(world, "mary", {**data, **changed})
    found = [each for each in world.look() if each.ref == layout.THREADS + thread]
    assert [each.code for each in found] == (["wrong-data"] if problem else []), found
    assert problem is None or problem in found[0].message
    assert data_message({**data, **changed, "text": ""}).count("\n") == 4
