"""A step of a crew's workflow sees its project, its package and its run by their names, and nothing else of the
machine; what an agent writes of the run is checked, and counts."""

from __future__ import annotations

import json
import os
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crew_threads import FILES, start_crew
from model_server import Call, Fail, ModelServer, Say, serving

from uwf_git.base.errors import AgentFailed, StoreDamaged
from uwf_git.config.policy import (
    CONFIGURATION,
    ROLE,
    SPEAKER,
    Source,
    ToolPolicy,
    parse_policy,
    reading_only,
    tighten,
)
from uwf_git.engine.step import step
from uwf_git.ext.builtin.environment import standard_tools
from uwf_git.ext.builtin.tools.tool import Toolbox
from uwf_git.ext.crews.mounts import Mounts, collect, materialise
from uwf_git.ext.crews.state import reached
from uwf_git.format.ids import ThreadId
from uwf_git.git.objects import BLOB_MODE, TREE, Entry
from uwf_git.store.instance import Instance

SKETCHED = "---\nsummary: A week.\n---\n\nThat is it.\n"
CHOSEN = "---\nsummary: It will do.\n---\n\nFine.\n"


@pytest.fixture
def model(config: Callable[[str], Path], instance: Instance) -> Iterator[ModelServer]:
    """A scripted model, configured."""
    with serving() as server:
        config(
            f"providers:\n  local: {{baseUrl: '{server.openai_url}'}}\n"
            f"models:\n  small: {{provider: local, name: tiny}}\ndefaultModel: small\n"
        )
        yield server


@pytest.fixture
def mounts(instance: Instance) -> Iterator[Mounts]:
    """The folders of a first step; the project is the working directory."""
    made = mounts_of(instance, start_crew(instance))
    yield made
    made.close()


def mounts_of(instance: Instance, thread: ThreadId) -> Mounts:
    at = instance.threads.position(instance.threads.active_head(thread))
    role = at.history.workflow.roles["sketch" if not at.history.steps else "check"]
    return Mounts(instance.store.repository, at.head, at.history, role, Path.cwd())


@pytest.fixture
def box(mounts: Mounts) -> Iterator[Toolbox]:
    with boxed(mounts, ToolPolicy()) as tools:
        yield tools


def boxed(mounts: Mounts, policy: ToolPolicy) -> Toolbox:
    return standard_tools(Path.cwd(), policy, others=mounts.for_tools(policy), crew=True)


def codes(box: Toolbox, tool: str, paths: Any, **more: Any) -> dict[str, str]:
    results = {path: box.call(tool, {"path": path, **more}) for path in paths}
    return {path: "ok" if result.ok else result.value["error"]["code"] for path, result in results.items()}


def results(model: ModelServer) -> list[str]:
    """What all calls of tools gave, in order."""
    return [each.text for asked in model.asked for each in asked.results]


def outputs(instance: Instance, thread: ThreadId) -> list[Any]:
    return [each.output for each in instance.threads.history(instance.threads.head(thread)).steps]


def test_the_tools_take_the_names_of_the_mounts_and_what_stands_for_them(box: Toolbox) -> None:
    Path("artifacts").mkdir()
    Path("artifacts/goal.md").write_text("A goal.\n")
    expected = {
        "@pkg/steps/sketch.md": "ok",
        "{package-root}/assets/tips.txt": "ok",
        "@project/artifacts/goal.md": "ok",
        "{artifacts-root}/goal.md": "ok",
        "{project-root}/artifacts/goal.md": "ok",
        "artifacts/goal.md": "ok",
        "@state/workflow.md": "ok",
        "{state-root}/workflow.md": "ok",
        "@pkg/../states": "outside_workspace",
        "@state/../workflow.md": "outside_workspace",
        "@pkg/steps/../../../config": "outside_workspace",
        "@workflow/crew.json": "not_found",
        "@output/1.txt": "not_found",
        str(Path.cwd() / "artifacts/goal.md"): "outside_workspace",
        "/etc/passwd": "outside_workspace",
        "//@project/artifacts/goal.md": "outside_workspace",
        "~/x": "outside_workspace",
        "@PKG/steps/sketch.md": "invalid_arguments",
        "＠pkg/steps/sketch.md": "invalid_arguments",
        "@p\u200bkg/steps/sketch.md": "invalid_arguments",
        "@state\u202e/workflow.md": "invalid_arguments",
        "@pkg／steps／sketch.md": "not_found",
        "@pkg/．．/x": "not_found",
        "{package-root}/../x": "outside_workspace",
        "{package_root}/steps/sketch.md": "not_found",
    }
    assert codes(box, "read_file", expected) == expected
    assert box.call("glob", {"pattern": "@pkg/**/*.txt"}).value["paths"] == [
        "@pkg/assets/big.txt", "@pkg/assets/tips.txt",
    ]  # fmt: skip
    assert box.call("glob", {"pattern": "{artifacts-root}/*"}).value["paths"] == [
        "@project/artifacts/goal.md"
    ]
    assert [each["name"] for each in box.call("list_dir", {"path": "@pkg"}).value["entries"]] == [
        "assets", "bmad.json", "steps", "workflow.md",
    ]  # fmt: skip
    assert "@pkg/… (the package, read only)" in box.describe() and "@workflow" not in box.describe()


def test_nothing_is_written_but_the_project_and_the_document_of_the_run(
    box: Toolbox, mounts: Mounts, instance: Instance
) -> None:
    places = mounts.prepare()
    Path("into").symlink_to(places.package)
    Path("run").symlink_to(places.state / "workflow.md")
    other = instance.store.repository.private / "states" / "01M7YG2438K76ZWHSVX4QBSC2S"
    other.mkdir()
    (other / "workflow.md").write_text("Another's.\n")
    expected = {
        "@pkg/steps/sketch.md": "read_only",
        "@pkg/new.md": "read_only",
        "{package-root}/new.md": "read_only",
        "into/new.md": "outside_workspace",
        "run": "outside_workspace",
        "@state/notes.md": "read_only",
        "@state/output/1.txt": "read_only",
        "@state/deep/workflow.md": "read_only",
        f"@state/../{other.name}/workflow.md": "outside_workspace",
        "@state/WORKFLOW.md": "read_only",
        "notes.md": "ok",
    }
    assert codes(box, "write_file", expected, content="x") == expected
    gone = box.call(
        "apply_patch", {"patch": "*** Begin Patch\n*** Delete File: @state/workflow.md\n*** End Patch\n"}
    )
    assert gone.value["error"]["code"] == "read_only"
    assert (other / "workflow.md").read_text() == "Another's.\n"
    assert {path.name for path in places.state.iterdir()} == {"workflow.md", "output"}


@pytest.mark.needs("bwrap")
def test_where_the_machine_keeps_things_is_told_in_no_result(mounts: Mounts, instance: Instance) -> None:
    Path("d").mkdir()
    Path("d/to-pkg").symlink_to(mounts.prepare().package)
    Path("d/within").symlink_to(Path.cwd() / "d")
    Path("d/up").symlink_to("../../../../../../../../etc/passwd")
    Path("d/circle").symlink_to("circle")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("list_dir", {"path": "d"}),
        ("read_file", {"path": "d/to-pkg/bmad.json"}),
        ("read_file", {"path": "d/up"}),
        ("read_file", {"path": "d/circle"}),
        ("read_file", {"path": "@state/none"}),
        ("write_file", {"path": "@pkg/x", "content": ""}),
        ("glob", {"pattern": "**", "path": "@pkg"}),
        ("grep", {"pattern": "light", "path": "@pkg"}),
        ("run_command", {"command": "pwd; echo $UWF_STATE; cat $UWF_PKG/assets/tips.txt; cat $PWD/nothing"}),
        ("run_command", {"command": "for i in $(seq 3000); do pwd; done"}),
        ("run_command", {"command": "echo x > $UWF_PKG/x; echo x > $UWF_STATE/workflow.md"}),
        ("read_file", {"path": "@state/output/2.txt"}),
        ("run_command", {"command": "true", "cwd": "@pkg"}),
    ]
    with boxed(mounts, ToolPolicy(run_command=True)) as box:
        results = [box.call(*each).value for each in calls]
        said = json.dumps([*results, box.describe(), box.offered()])
    assert results[0]["entries"][-1]["target"] == "@project/d"
    assert results[8]["output"].startswith("@project\n@state\nPack light.\n")
    assert results[11]["content"].startswith("@project\n")
    assert "Read-only file system" in results[10]["output"]
    roots = [Path.cwd(), Path.cwd().parent, instance.store.repository.path, *mounts.places]
    assert not [root for root in roots if str(root) in said]


def test_a_package_is_written_once_and_heals(instance: Instance) -> None:
    mounts = mounts_of(instance, start_crew(instance))
    package = mounts.prepare().package
    first = package.stat().st_ino
    assert {
        str(path.relative_to(package)): path.read_bytes() for path in package.rglob("*") if path.is_file()
    } == FILES
    assert mounts_of(instance, start_crew(instance)).prepare().package == package
    assert package.stat().st_ino == first, "what is whole stays"
    outside = Path("outside.txt")
    outside.write_bytes(FILES["assets/tips.txt"])
    tips = package / "assets" / "tips.txt"

    def swap(act: Callable[[], object]) -> None:
        for path in (package, package / "assets", tips):
            path.chmod(0o755)
        act()
        assert mounts.prepare().package == package
        assert tips.read_bytes() == FILES["assets/tips.txt"] and tips.stat().st_nlink == 1
        assert {path.name for path in package.iterdir()} == {"assets", "bmad.json", "steps", "workflow.md"}
        assert not package.is_symlink() and not tips.is_symlink()

    swap(lambda: tips.write_text("Garbage.\n"))
    swap(lambda: tips.unlink())
    swap(lambda: (package / "more").mkdir())
    swap(lambda: (package / "more.txt").write_text(""))
    swap(lambda: (tips.unlink(), tips.symlink_to(outside.absolute())))
    swap(lambda: (tips.unlink(), tips.hardlink_to(outside)))
    swap(lambda: (tips.unlink(), os.mkfifo(tips)))
    swap(lambda: (package.rename("moved"), package.symlink_to(Path("moved").absolute())))
    swap(lambda: (package.rename("again"), package.write_text("")))
    assert outside.read_bytes() == FILES["assets/tips.txt"]
    assert [path.name for path in package.parent.iterdir()] == [package.name], "nothing is left beside it"
    collect(instance)
    assert not package.exists()


def test_many_steps_at_once_have_one_package(instance: Instance) -> None:
    tree = instance.store.repository.file(
        instance.store.repository.root(instance.threads.active_head(start_crew(instance)).commit),
        "workflow/include",
    )
    assert tree is not None
    made: list[Path] = []
    threads = [
        threading.Thread(target=lambda: made.append(materialise(Instance.open().store.repository, tree)))
        for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(made) == 8 and len(set(made)) == 1
    assert {path.name for path in made[0].parent.iterdir()} == {made[0].name}


@pytest.mark.parametrize("name", ["..", ".git", ".GIT", "/tmp", "a/../../b"])
def test_a_tree_made_by_hand_writes_nothing_elsewhere(instance: Instance, name: str) -> None:
    repository = instance.store.repository
    blob = repository.write_blob(b"x")
    inner = repository.write_tree([Entry(BLOB_MODE, "config", blob)])
    data = b"40000 %s\0%s" % (name.encode(), inner.raw)
    tree = repository._write(TREE, data)
    with pytest.raises(StoreDamaged, match="holds what no package may"):
        materialise(repository, tree)
    link = repository.write_tree([Entry("120000", "link", blob)])
    with pytest.raises(StoreDamaged, match="holds what no package may"):
        materialise(repository, link)
    assert not (repository.private / "packages").exists()


def test_what_is_written_of_the_run_counts_as_a_part_of_the_answer(
    instance: Instance, model: ModelServer
) -> None:
    state = {"path": "@state/workflow.md"}
    begun = "currentNodeId: sketch\n"
    model.play(
        [
            Call("read_file", state),
            Call("edit_file", {**state, "old": "variables: {}", "new": "variables: {cost: 20, days: 7}"}),
            Call("edit_file", {**state, "old": "artifacts: []", "new": "artifacts: [artifacts/goal.md]"}),
            Call("edit_file", {**state, "old": begun, "new": "currentNodeId: end\n"}),
            Call("edit_file", {**state, "old": begun, "new": "currentNodeId: check\n"}),
            Say("---\nsummary: A week.\nvariables: {days: 8}\n---\n\nDone.\n"),
            Call("read_file", state),
            Call("edit_file", {**state, "old": "currentNodeId: check\n", "new": "currentNodeId: write\n"}),
            Say(CHOSEN),
        ]
    )
    thread = start_crew(instance)
    assert step(instance, thread, "uwf-builtin").outlook.next == "check"
    assert step(instance, thread, "uwf-builtin").outlook.next == "write"
    first, second = outputs(instance, thread)
    assert first == {
        "summary": "A week.",
        "artifacts": ["artifacts/goal.md"],
        "variables": {"cost": 20, "days": 8},
    }
    assert second == {"summary": "It will do.", "next": "good"}
    told = results(model)
    assert "# Plan a trip" in told[0] and "currentNodeId: sketch" in told[0]
    assert "no transition leads from 'sketch' to 'end'" in told[3] and "'check'" in told[3]
    assert "cost: 20" in told[5] and "stepsCompleted:" in told[5], "the next reading is folded from the chain"
    assert not list((instance.store.repository.private / "states").iterdir())
    assert reached(instance.threads.history(instance.threads.head(thread))).variables == {
        "cost": 20,
        "days": 8,
    }


def test_any_agent_that_writes_nonsense_of_the_run_is_asked_to_correct_it(
    instance: Instance, tmp_path: Path
) -> None:
    agent = tmp_path / "writer.py"
    agent.write_text(WRITER)
    thread = start_crew(instance)
    done = step(instance, thread, f"python {agent}")
    assert done.outlook.next == "check"
    assert outputs(instance, thread) == [{"summary": "Second.", "variables": {"cost": 3}}]
    assert "no transition leads from 'sketch' to 'write'" in Path("corrected").read_text()


WRITER = """\
from pathlib import Path
from uwf_git.kit import Reply, create_agent

def write(ctx, old, new):
    document = ctx.mounts.prepare().state / "workflow.md"
    document.write_text(document.read_text().replace(old, new))

def run(ctx):
    write(ctx, "currentNodeId: sketch", "currentNodeId: write")
    return Reply("---\\nsummary: First.\\n---\\n", session="s")

def continue_(ctx, session, message):
    Path("corrected").write_text(message)
    write(ctx, "currentNodeId: write", "currentNodeId: check")
    write(ctx, "variables: {}", "variables: {cost: 3}")
    return Reply("---\\nsummary: Second.\\n---\\n", session="s")

agent = create_agent("writer", run, continue_)
if __name__ == "__main__":
    agent.main()
"""


def test_what_a_failed_step_has_written_is_there_for_the_one_that_carries_on(
    instance: Instance, model: ModelServer
) -> None:
    state = {"path": "@state/workflow.md"}
    change = Call("edit_file", {**state, "old": "variables: {}", "new": "variables: {cost: 20}"})
    states = instance.store.repository.private / "states"
    model.play([change, Fail(400, "no more"), Say(SKETCHED), Say(CHOSEN)])
    thread = start_crew(instance)
    with pytest.raises(AgentFailed):
        step(instance, thread, "uwf-builtin")
    assert {each.name for each in states.iterdir()} == {thread, f"{thread}.begun"}
    step(instance, thread, "uwf-builtin")
    assert outputs(instance, thread) == [{"summary": "A week.", "variables": {"cost": 20}}]
    assert not list(states.iterdir())
    model.play([change, Fail(400, "no more"), Say(SKETCHED)])
    other = start_crew(instance)
    with pytest.raises(AgentFailed):
        step(instance, other, "uwf-builtin")
    says = 'printf \'{"summary": "%s"}\' $(grep -c cost $UWF_STATE/workflow.md)'
    step(instance, other, shlex.join(["uwf-exec", "--", "sh", "-c", says]))
    assert outputs(instance, other) == [{"summary": "0"}], "another agent begins anew"
    kept, left = states / other, states / "01JZZZZZZZZZZZZZZZZZZZZZZZ"
    for each in (kept, left):
        each.mkdir(exist_ok=True)
    collect(instance)
    assert kept.exists() and not left.exists()


def test_a_conversation_has_the_package_and_no_run_to_write_of(instance: Instance) -> None:
    thread = start_crew(instance)
    at = instance.threads.position(instance.threads.active_head(thread))
    role = at.history.workflow.roles["sketch"]
    talk = Mounts(instance.store.repository, at.head, at.history, role, Path.cwd(), has_document=False)
    with talk, boxed(talk, ToolPolicy()) as box:
        read = codes(box, "read_file", ["@pkg/assets/tips.txt", "@state/workflow.md"])
        assert read == {"@pkg/assets/tips.txt": "ok", "@state/workflow.md": "not_found"}
        assert codes(box, "write_file", ["@state/workflow.md"], content="x") == {
            "@state/workflow.md": "read_only"
        }
        assert talk.written() is None and "@state" not in box.describe()
    assert not talk.places.state.exists()


def test_a_persona_narrows_the_tools_and_what_they_move(instance: Instance, model: ModelServer) -> None:
    limits = {"deny": ["fetch_url"], "maxReadBytes": 20, "maxWriteBytes": 5, "mcp": False}
    Path("note.txt").write_text("ö" * 30 + "\nsecond\n")
    model.play(
        [
            Call("read_file", {"path": "note.txt"}),
            Call("read_file", {"path": "note.txt", "column": 11}),
            Call("grep", {"pattern": "0123", "path": "@pkg"}),
            Call("write_file", {"path": "new.txt", "content": "123456"}),
            Call("edit_file", {"path": "note.txt", "old": "second", "new": "x"}),
            Call("write_file", {"path": "new.txt", "content": "12345"}),
            Say(SKETCHED),
        ]
    )
    thread = start_crew(instance, tools=limits, role_tools={"deny": ["apply_patch"]})
    step(instance, thread, "uwf-builtin")
    read, more, found, *written = map(json.loads, results(model))
    assert (read["content"], read["rest"]) == ("ö" * 10, "use offset=1 column=11")
    assert more["content"] == "ö" * 10
    assert found["matches"] == [f"@pkg/assets/big.txt:{line}: 0123456789" for line in (1, 2)]
    assert found["rest"] == "use offset=3"
    assert [each.get("error", {}).get("code") for each in written] == ["too_large", "too_large", None]
    offered = [each["function"]["name"] for each in model.asked[0].body["tools"]]
    assert not {"fetch_url", "apply_patch", "run_command"} & {*offered} and "write_file" in offered
    system = model.asked[0].body["messages"][0]["content"]
    assert (
        "A call gives at most 20 bytes of a file, and a file that you write may hold at most 5 bytes."
        in system
    )


def test_the_strictest_of_each_counts() -> None:
    def of(value: Any, source: Source = CONFIGURATION) -> ToolPolicy:
        parsed, problems = parse_policy(value, source)
        assert problems == []
        return parsed

    system = of({"maxReadBytes": 100, "runCommand": True, "permissions": ["read", "edit"]})
    role = of({"deny": ["grep"]}, ROLE)
    persona = of(
        {"maxReadBytes": 500, "maxWriteBytes": 7, "servers": ["docs"], "allow": ["*_file", "mcp/*"]},
        SPEAKER,
    )
    both = tighten(system, None, role, persona)
    assert (both.max_read, both.max_write) == (100, 7)
    named = ("read_file", "grep", "run_command", "mcp/docs/look", "mcp/mail/send")
    assert [name for name in named if both.permits(name)] == ["read_file", "mcp/docs/look"]
    assert both.forbids_commands and both.grants("read")
    blind = tighten(system, None, None, of({"files": False, "mcp": False}, SPEAKER))
    assert [
        name
        for name in ("read_file", "write_file", "run_command", "mcp/a/b", "fetch_url")
        if blind.permits(name)
    ] == ["fetch_url"]
    looks = tighten(system, None, of(reading_only(), ROLE))
    assert [name for name in (*named, "write_file", "fetch_url") if looks.permits(name)] == [
        "read_file",
        "grep",
    ]
    wrong, problems = parse_policy(
        {"files": "no", "maxReadBytes": -1, "servers": 3, "runCommand": True}, SPEAKER
    )
    assert len(problems) == 4 and not wrong.permits("read_file") and wrong.max_read == 0
    assert not wrong.permits("mcp/a/b")
