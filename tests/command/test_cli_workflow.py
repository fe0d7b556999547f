"""`uwf workflow`, and what an argument that names a workflow means."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import PAIR, on_terminal, write
from conftest import EXAMPLES, Uwf
from forged import Forger

from uwf_git.format.ids import is_hash
from uwf_git.format.types import RESULT

OTHER = PAIR.replace("One writes, one reviews.", "Another version.")


@pytest.fixture
def pair(uwf: Uwf) -> dict[str, str]:
    """A registered workflow."""
    put: dict[str, str] = uwf("workflow", "put", write("pair.yaml", PAIR)).json
    return put


def test_putting_unchanged_content_makes_no_new_version(uwf: Uwf, pair: dict[str, str]) -> None:
    assert pair.keys() == {"name", "hash", "commit"}
    assert pair["name"] == "pair"
    assert is_hash(pair["hash"])
    assert uwf("workflow", "put", "pair.yaml").json == pair
    changed = uwf("workflow", "put", write("other.yaml", OTHER)).json
    assert changed["hash"] != pair["hash"]
    assert [each["hash"] for each in uwf("workflow", "history", "pair").json] == [
        changed["hash"],
        pair["hash"],
    ]

    back = uwf("workflow", "rollback", "pair").json
    assert back["hash"] == pair["hash"]
    assert back["commit"] not in (pair["commit"], changed["commit"])
    assert uwf("workflow", "rollback", "pair", changed["hash"][:7]).json["hash"] == changed["hash"]
    assert [each["current"] for each in uwf("workflow", "history", "pair").json] == [
        True,
        False,
        False,
        False,
    ]
    assert uwf("workflow", "rollback", "pair", "0000000000000", check=3).error["code"] == "not_found"


def test_each_rollback_goes_one_version_further_back_and_history_tells_it(
    uwf: Uwf, pair: dict[str, str]
) -> None:
    def put(description: str) -> str:
        file = write("next.yaml", PAIR.replace("One writes, one reviews.", description))
        return str(uwf("workflow", "put", file).json["hash"])

    def back(*to: str, check: int = 0) -> str:
        done = uwf("workflow", "rollback", "pair", *to, check=check)
        return str(done.json["hash"] if check == 0 else done.error["message"])

    one, two, three = pair["hash"], put("Two."), put("Three.")
    assert [back(), back()] == [two, one]
    assert "no older version" in back(check=3)
    assert back(three) == three, "what was gone back from can be gone to by its hash"
    assert back() == two
    four = put("Four.")
    assert back() == two, "what was rolled back before a new version stays so"
    assert back() == one

    entries = uwf("workflow", "history", "pair").json
    marks = [(each["hash"], each["backTo"]) for each in reversed(entries)]
    went = [(two, two), (one, one), (three, three), (two, two), (four, None), (two, two), (one, one)]
    assert marks == [(one, None), (two, None), (three, None), *went]
    assert {each["author"] for each in entries} == {"Ada Example"}
    assert {each["takenFrom"] for each in entries} == {None}
    shown = uwf("workflow", "history", "pair", "--format", "text").out.splitlines()
    assert shown[1].split()[0] == one and shown[1].endswith(f"Ada Example  current, back to {one}")
    # Putting an old text again is no rollback: what was there before it is the version before.
    assert put("Three.") == three
    assert back() == one
    uwf("verify")
    # Where it went from and to is told, and how to see what that means.
    told = uwf("workflow", "rollback", "pair", three[:6], "--format", "text")
    assert ["back", "from", one] in [line.split() for line in told.out.splitlines()] and three in told.out
    assert "uwf workflow diff pair~1 pair" in told.err
    assert uwf("workflow", "rollback", "pair", three).json["from"] == three
    strange = uwf("workflow", "rollback", "pair", "999999", check=3).error
    assert strange["message"] == "workflow 'pair' has no version '999999'"
    assert strange["hint"] == "see: uwf workflow history pair"


def test_two_versions_are_compared_in_what_they_mean_and_how_they_are_written(
    uwf: Uwf, pair: dict[str, str]
) -> None:
    new = OTHER.replace("approved = false", "approved != true").replace(
        "  critic: [", "  critic: [{ role: $END, condition: long }, "
    )
    new = new.replace("conditions:\n", "conditions:\n  long: { expression: $count(steps) > 9 }\n")
    file = write("new.yaml", new)
    found = uwf("workflow", "diff", file).json
    assert found["from"] == {"name": "pair", "hash": pair["hash"], "commit": pair["commit"], "file": None}
    assert (found["to"]["commit"], found["to"]["file"], found["same"]) == (None, "new.yaml", False)
    changes = [(each["what"], each["name"], each["change"], each["fields"]) for each in found["changes"]]
    assert changes == [
        ("setting", "description", "changed", []),
        ("condition", "rejected", "changed", ["expression"]),
        ("condition", "long", "added", []),
        ("edge", "critic → $END on long", "added", []),
    ]
    assert "\n-description: One writes, one reviews.\n+description: Another version.\n" in found["diff"]

    # Registered, it is what the newest version changed; the other way round it is turned round.
    second = uwf("workflow", "put", file).json
    assert uwf("workflow", "diff", "pair").json["changes"] == found["changes"]
    assert (
        uwf("workflow", "diff", second["hash"]).json["diff"] == uwf("workflow", "diff", "pair").json["diff"]
    )
    back = uwf("workflow", "diff", "pair", "pair~1").json
    assert {(each["name"], each["change"]) for each in back["changes"]} == {
        ("description", "changed"),
        ("rejected", "changed"),
        ("long", "removed"),
        ("critic → $END on long", "removed"),
    }
    assert back["to"]["commit"] == pair["commit"]
    assert uwf("workflow", "show", "pair~1").json["hash"] == pair["hash"]

    same = uwf("workflow", "diff", write("same.yaml", "# a note\n" + new)).json
    assert (same["same"], same["changes"]) == (True, []) and "+# a note" in same["diff"]
    text = uwf("workflow", "diff", "same.yaml", "--format", "text").out
    assert text.startswith("the same definition, written otherwise\n\n--- workflow.yaml (pair ")
    assert uwf("workflow", "diff", "new.yaml", "pair", "--format", "text").out == "no difference\n"
    assert "first version" in uwf("workflow", "diff", pair["hash"], check=3).error["message"]
    assert "2 versions" in uwf("workflow", "diff", "pair~2", check=3).error["message"]
    assert (
        "no workflow 'x'"
        in uwf("workflow", "diff", write("x.yaml", PAIR.replace("name: pair", "name: x")), check=3).error[
            "message"
        ]
    )
    status, screen = on_terminal("workflow", "diff", "pair")
    assert status == 0 and "\x1b[32m+description: Another version.\x1b[0m" in screen


def test_a_change_of_order_and_of_an_included_file_is_told(uwf: Uwf) -> None:
    text = (
        PAIR.replace("name: pair", "name: inc")
        .replace("description: One writes, one reviews.", "description: !include about.md")
        .replace("conditions:\n", "conditions:\n  late: { expression: $count(steps) > 9 }\n")
        .replace("  critic: [", "  critic: [{ role: $END, condition: late }, ")
    )
    write("about.md", "Before.\n")
    uwf("workflow", "put", write("inc.yaml", text))
    write("about.md", "After.\n")
    found = uwf("workflow", "diff", "inc.yaml").json
    assert [each["name"] for each in found["changes"]] == ["description"]
    late, rejected = "{ role: $END, condition: late }", "{ role: writer, condition: rejected }"
    turned = text.replace(late, "LATE").replace(rejected, late).replace("LATE", rejected)
    order = uwf("workflow", "diff", write("turned.yaml", turned)).json["changes"]
    assert [(each["name"], each["fields"]) for each in order[1:]] == [("critic → …", ["order"])]
    assert "--- about.md (inc " in found["diff"] and "-Before.\n+After.\n" in found["diff"]


def test_a_workflow_is_shown_by_name_by_hash_and_from_a_file(uwf: Uwf, pair: dict[str, str]) -> None:
    shown = uwf("workflow", "show", "pair").json
    assert (shown["name"], shown["hash"], shown["commit"]) == ("pair", pair["hash"], pair["commit"])
    assert shown["roles"]["critic"]["outputSchema"]["required"] == ["approved"]
    assert shown["graph"]["critic"][0] == {"role": "writer", "condition": "rejected"}
    assert uwf("workflow", "show", pair["hash"].lower()).json == shown
    assert uwf("workflow", "show", pair["hash"][:5]).json == shown
    assert uwf("workflow", "show", "./pair.yaml").json == {**shown, "commit": None}
    assert [each["name"] for each in uwf("workflow", "list").json] == ["pair"]

    removed = uwf("workflow", "rm", "pair").json
    assert (removed["name"], removed["removed"]) == ("pair", True)
    assert uwf("workflow", "list").json == []
    assert uwf("workflow", "rm", "pair", check=3).error["code"] == "not_found"


def test_a_workflow_in_use_is_forgotten_only_with_yes_and_its_users_are_named(
    uwf: Uwf, pair: dict[str, str], config: Callable[[str], Path]
) -> None:
    config("agents: {sub: {command: workflow pair}}\nagentOverrides: {pair: {critic: uwf-human}}\n")
    started = uwf("thread", "start", "pair", "-p", "x").json["thread"]
    refused = uwf("workflow", "rm", "pair", check=2).error
    assert "agents.sub in config.yaml starts it" in refused["message"]
    assert f"1 active thread of it: {started}" in refused["message"]
    assert refused["hint"] == "uwf workflow rm pair --yes"
    assert uwf("workflow", "list").json[0]["name"] == "pair"

    done = uwf("workflow", "rm", "pair", "--yes")
    assert done.json["settings"] == ["agents.sub", "agentOverrides.pair"]
    assert done.json["threads"] == [started]
    assert all(
        text in done.err for text in ("agents.sub", started, "config.yaml still has agentOverrides.pair")
    )
    assert uwf("thread", "show", started).json["next"] == "writer"

    # Settings alone need no consent, and an ended thread is none that uses it.
    uwf("thread", "kill", started)
    config("agentOverrides: {pair: {critic: uwf-human}}\n")
    uwf("workflow", "put", "pair.yaml")
    gone = uwf("workflow", "rm", "pair", "--format", "text")
    assert "agentOverrides.pair" in gone.err and "uwf workflow put FILE" in gone.err
    assert gone.out == f"forgot pair, which was {pair['hash']}\n"
    assert uwf("workflow", "show", pair["hash"]).json["name"] == "pair"


def test_a_workflow_without_roles_is_told_how_one_is_written(uwf: Uwf) -> None:
    file = write("none.yaml", "version: 1\nname: none\nroles: {}\ngraph: {$START: [{role: $END}]}\n")
    findings = uwf("workflow", "validate", file, check=1).json["findings"]
    hints = {each["message"]: each["hint"] for each in findings}
    assert "description:" in hints["roles is empty"]


def test_an_editor_that_saves_an_unknown_name_is_warned_of_it(
    uwf: Uwf, root: Path, config: Callable[[str], Path]
) -> None:
    config("agentOverrides:\n  pair: {writer: uwf-human}\n  piar: {critic: uwf-human}\n")
    assert uwf("config", "edit", env={"EDITOR": "true"}).err == "", "before there is any"
    uwf("workflow", "put", write("pair.yaml", PAIR))
    edited = uwf("config", "edit", env={"EDITOR": "true"})
    assert 'config.yaml:3:3: agentOverrides.piar is about workflow "piar"' in edited.err
    assert 'did you mean "pair"?' in edited.err and len(edited.err.splitlines()) == 1


def test_a_name_in_the_configuration_that_no_workflow_has_is_told_and_set(uwf: Uwf, root: Path) -> None:
    assert uwf("config", "set", "agentOverrides.pair.writer", "uwf-human").err == "", "before there is any"
    pair = uwf("workflow", "put", write("pair.yaml", PAIR)).json

    def told(key: str, value: str = "uwf-human") -> str:
        return uwf("config", "set", key, value).err

    assert told("agentOverrides.pair.critic") == ""
    unknown = told("agentOverrides.piar.critic")
    assert "config.yaml:5:3: agentOverrides.piar is about workflow" in unknown
    assert 'did you mean "pair"?' in unknown and len(unknown.splitlines()) == 1
    assert 'workflow "pair" has no role "critik" — did you mean "critic"?' in told(
        "agentOverrides.pair.critik"
    )
    assert told("defaultAgent") == "", "only what is set is told of"
    assert '"pear", which is not known here' in told("agents.sub.command", "uwf-workflow pear")
    assert told("agents.sub.command", "uwf-workflow pair") == ""
    assert uwf("config", "get", "agentOverrides.piar.critic").json == "uwf-human"

    # A file of the project counts, and so does a version that an active thread runs.
    write(".uwf/workflows/local.yaml", PAIR.replace("name: pair", "name: loc").replace("critic", "judge"))
    assert told("agentOverrides.loc.judge") == ""
    write("renamed.yaml", PAIR.replace("critic", "judge"))
    uwf("workflow", "put", "renamed.yaml")
    assert 'no role "critic"' in told("agentOverrides.pair.critic")
    uwf("thread", "start", pair["hash"], "-p", "x")
    assert told("agentOverrides.pair.critic") == ""

    found = [each["message"] for each in uwf("doctor", "--quick").json if each["status"] == "warning"]
    assert [message.split(": ", 1)[1] for message in found if "config.yaml" in message] == [
        'workflow "pair" has no role "critik"',
        'agentOverrides.piar is about workflow "piar", which is not known here',
    ]


def test_what_only_reads_a_file_needs_no_store(uwf: Uwf, root: Path) -> None:
    file = write("pair.yaml", PAIR)
    assert uwf("workflow", "show", file).json["name"] == "pair"
    assert uwf("workflow", "graph", file).out.startswith("flowchart TD")
    assert uwf("workflow", "graph", file, "--as", "dot").out.startswith("digraph")
    assert uwf("workflow", "graph", file, "--format", "json").json["as"] == "mermaid"
    assert uwf("workflow", "validate", file).json["valid"] is True
    assert uwf("workflow", "show", "pear", check=3).error["code"] == "not_found"
    assert not root.exists()
    refused = uwf("workflow", "list", check=3)
    assert "uwf init" in refused.error["hint"]


def test_a_name_goes_before_a_hash_a_hash_before_a_file_a_file_before_the_project(
    uwf: Uwf, pair: dict[str, str]
) -> None:
    subprocess.run(["git", "init", "-q", "project"], check=True)
    inner = Path("project/deep/er")
    inner.mkdir(parents=True)
    files = {
        Path("project/.uwf/workflows/pair.yaml"): "registered wins",
        Path("project/.uwf/workflows/local.yaml"): "in the project",
        Path("project/.uwf/workflows/far.yml"): "far",
        Path("project/deep/.uwf/workflows/local.yaml"): "nearest wins",
        Path(".uwf/workflows/outside.yaml"): "beyond the edge",
        inner / pair["hash"]: "a file named like a hash",
        inner / "plain": "a file without a suffix",
        inner / ".uwf/workflows/plain.yaml": "the file wins",
    }
    for path, description in files.items():
        write(str(path), PAIR.replace("One writes, one reviews.", description))

    def described(name: str, folder: Path = inner) -> str:
        return str(uwf("workflow", "show", name, cwd=folder).json["description"])

    assert described("pair") == "One writes, one reviews."
    assert described(pair["hash"]) == "One writes, one reviews."
    assert described(f"./{pair['hash']}") == "a file named like a hash"
    assert described("plain") == "a file without a suffix"
    assert described("local") == "nearest wins"
    assert described("far") == "far"
    assert uwf("workflow", "show", "outside", cwd=inner, check=3).error["code"] == "not_found"
    assert "far" in uwf("workflow", "show", "farr", cwd=inner, check=3).error["hint"]
    # Outside a repository only the current folder counts.
    assert described("outside", Path.cwd()) == "beyond the edge"
    Path("sub").mkdir()
    uwf("workflow", "show", "outside", cwd=Path("sub"), check=3)

    started = uwf("thread", "start", "local", "-p", "x", cwd=inner).json
    assert uwf("workflow", "show", started["workflow"]).json["description"] == "nearest wins"
    assert uwf("workflow", "list").json[0]["hash"] == pair["hash"]


def test_workflowpaths_name_folders_of_workflows_that_come_after_the_projects(
    uwf: Uwf, root: Path, config: Callable[[str], Path], hermetic: Path
) -> None:
    config("workflowPaths: [~/mine, shared, /nowhere]\n")
    for path, description in {
        hermetic / "mine/one.yaml": "mine",
        hermetic / "mine/two.yaml": "mine",
        root / "shared/two.yaml": "shared",
        root / "shared/three.yaml": "shared",
        Path(".uwf/workflows/one.yaml"): "the project's",
    }.items():
        write(str(path), PAIR.replace("One writes, one reviews.", description))

    def described(name: str) -> str:
        return str(uwf("workflow", "show", name).json["description"])

    assert [described(name) for name in ("one", "two", "three")] == ["the project's", "mine", "shared"]
    assert '"three"' in uwf("workflow", "show", "thre", check=3).error["hint"]
    assert any("/nowhere is not a folder" in each["message"] for each in uwf("doctor").json)
    assert uwf("config", "set", "workflowPaths", "[~/mine]").json["value"] == ["~/mine"]
    uwf("workflow", "show", "three", check=3)


def test_an_unknown_workflow_comes_with_the_nearest_name(uwf: Uwf, pair: dict[str, str]) -> None:
    for arguments in (["workflow", "show"], ["workflow", "history"], ["workflow", "rm"]):
        refused = uwf(*arguments, "piar", check=3)
        assert "pair" in refused.error["hint"]
    refused = uwf("thread", "start", "piar", "-p", "x", check=3)
    assert "pair" in refused.error["hint"]
    assert "pair.yaml" in uwf("workflow", "put", "par.yaml", check=3).error["hint"]
    for name in ("../../escaped", "a b", "-x", ".lock", "refs/heads/x", "\x1b[31m"):
        assert uwf("workflow", "history", "--", name, check=3).error["code"] == "not_found"


def test_validate_reports_every_problem_with_its_line(uwf: Uwf, root: Path) -> None:
    broken = PAIR.replace("{ role: critic }", "{ role: critik }").replace("approved = false", "approved = (")
    file = write("broken.yaml", broken)
    report = uwf("workflow", "validate", file, check=1).json
    assert (report["file"], report["valid"]) == ("broken.yaml", False)
    errors = [each for each in report["findings"] if each["severity"] == "error"]
    lines = broken.splitlines()
    (unknown,) = (each for each in errors if each["code"] == "unknown-role")
    assert "critik" in lines[unknown["line"] - 1][unknown["column"] - 1 :]
    assert {"line", "column", "severity", "code", "message", "hint"} == errors[0].keys()
    assert len(errors) >= 2

    text = uwf("workflow", "validate", file, "--format", "text", check=1).out
    for each in errors:
        assert f"broken.yaml:{each['line']}:{each['column']}: error: " in text

    first, *rest = uwf("workflow", "put", file, "--format", "text", check=1).err.splitlines()
    assert f"(and {len(errors) - 1} more)" in first and len(rest) == len(report["findings"]) - 1
    for each in report["findings"]:
        place = f"broken.yaml:{each['line']}:{each['column']}: "
        assert sum(place in line and each["message"] in line for line in (first, *rest)) == 1

    put = uwf("workflow", "put", file, check=1)
    assert put.error["code"] == "invalid"
    assert len(put.error["findings"]) == len(report["findings"])
    put = uwf("workflow", "put", file, "--format", "text", check=1)
    assert put.err.startswith("uwf: broken.yaml:")
    assert "critik" in put.err
    assert len(put.err.splitlines()) == len(report["findings"])
    assert not root.exists()


def test_rehearse_tells_what_no_run_ever_does(uwf: Uwf, root: Path) -> None:
    sound = uwf("workflow", "rehearse", write("pair.yaml", PAIR)).json
    assert (sound["ok"], sound["coverage"]["percent"]) == (True, 100)
    assert {condition["condition"] for condition in sound["conditions"]} == {"rejected"}

    never = PAIR.replace("approved = false", "approved = 7")
    report = uwf("workflow", "rehearse", write("never.yaml", never), check=1).json
    assert {problem["code"] for problem in report["problems"]} >= {"condition-never-true", "edge-never-taken"}
    text = uwf("workflow", "rehearse", "never.yaml", "--format", "text", check=1).out
    assert "critic → writer" in text and "never" in text
    roots = [problem for problem in report["problems"] if not problem["follows"]]
    assert 0 < len(roots) < len(report["problems"])
    assert all(problem["message"] in text for problem in roots)
    assert "only follow" in text
    assert not root.exists()


def test_what_rehearse_finds_validate_finds_with_its_line_and_put_warns(uwf: Uwf) -> None:
    never = PAIR.replace("approved = false", "approved = 7")
    line = never[: never.index("expression:")].count("\n") + 1
    file = write("never.yaml", never)
    report = uwf("workflow", "validate", file).json
    assert report["valid"] is True
    (finding,) = report["findings"]
    assert (finding["line"], finding["severity"], finding["code"]) == (line, "warning", "never-equal")
    assert 'output.approved of "critic" is never 7' in finding["message"]
    uwf("workflow", "validate", file, "--strict", check=1)
    assert uwf("workflow", "put", file).json["warnings"] == [finding]
    told = uwf("workflow", "put", file, "--format", "text").err
    assert f"never.yaml:{line}:" in told and finding["message"] in told and finding["hint"] in told
    assert uwf("workflow", "propose", file, "--branch", "b").json["warnings"] == [finding]

    # What only the made-up answers show.
    late = PAIR.replace("approved = false", "approved = false and $count(steps) > 1000")
    found = uwf("workflow", "validate", write("late.yaml", late)).json["findings"]
    assert [(each["line"], each["code"]) for each in found] == [(line, "condition-never-true")]
    assert found[0]["message"].startswith("rehearsed: ")
    uwf("workflow", "validate", write("pair.yaml", PAIR), "--strict")


def test_a_workflow_that_holds_a_secret_is_refused_with_its_line(
    uwf: Uwf, hermetic: Path, root: Path
) -> None:
    root.mkdir(exist_ok=True)
    (root / ".env").write_text("SERVICE_KEY=s3cr3t-and-long-enough\n")
    text = (EXAMPLES / "review-loop.yaml").read_text()
    file = hermetic / "leaky.yaml"
    file.write_text(f"{text}\n# the key is s3cr3t-and-long-enough\n")
    for command in (
        ("workflow", "put", file),
        ("workflow", "propose", file, "--branch", "b"),
        ("thread", "start", file, "-p", "x"),
    ):
        refused = uwf(*command, check=1)
        assert f"leaky.yaml:{len(text.splitlines()) + 2}: holds a secret" in refused.error["message"]
        assert "s3cr3t" not in refused.err


def test_a_definition_that_an_older_uwf_registered_makes_no_new_version(
    uwf: Uwf, pair: dict[str, str], root: Path
) -> None:
    """Its tree lacks the built-in types that came since."""
    forger = Forger(root / "store.git")
    tree = forger.folder(pair["commit"])
    del tree["workflow"]["nodes"][f"{RESULT}.json"]
    older = forger.amended(pair["commit"], forger.tree(tree))
    forger.point("refs/uwf/workflows/pair", older)
    uwf("doctor", "--accept-store", check=None)
    assert uwf("workflow", "put", "pair.yaml").json["commit"] == older
    thread = uwf("thread", "start", "./pair.yaml", "-p", "x").json["thread"]
    assert forger("rev-parse", f"refs/uwf/threads/{thread}^") == older
    assert uwf("workflow", "propose", "pair.yaml", "--branch", "b").json["changed"] is False
    uwf("verify", "--strict")
