"""`uwf workflow`, and what an argument that names a workflow means."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli_samples import PAIR, write
from conftest import EXAMPLES, Uwf

from uwf_git.values.ids import is_hash

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
        Path("project/.workflows/pair.yaml"): "registered wins",
        Path("project/.workflows/local.yaml"): "in the project",
        Path("project/.workflows/far.yml"): "far",
        Path("project/deep/.workflows/local.yaml"): "nearest wins",
        Path(".workflows/outside.yaml"): "beyond the edge",
        inner / pair["hash"]: "a file named like a hash",
        inner / "plain": "a file without a suffix",
        inner / ".workflows/plain.yaml": "the file wins",
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

    put = uwf("workflow", "put", file, check=1)
    assert put.error["code"] == "invalid"
    assert len(put.error["findings"]) == len(report["findings"])
    put = uwf("workflow", "put", file, "--format", "text", check=1)
    assert put.err.startswith("uwf: broken.yaml:")
    assert "critik" in put.err
    assert len(put.err.splitlines()) == 1 + len(report["findings"])
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
    assert all(problem["message"] in text for problem in report["problems"])
    assert not root.exists()


def test_a_workflow_that_holds_a_secret_is_refused_with_its_line(
    uwf: Uwf, hermetic: Path, root: Path
) -> None:
    root.mkdir(exist_ok=True)
    (root / ".env").write_text("SERVICE_KEY=s3cr3t-and-long-enough\n")
    text = (EXAMPLES / "review-loop.yaml").read_text()
    file = hermetic / "leaky.yaml"
    file.write_text(f"{text}\n# the key is s3cr3t-and-long-enough\n")
    for command in (("workflow", "put", file), ("thread", "start", file, "-p", "x")):
        refused = uwf(*command, check=1)
        assert f"leaky.yaml:{len(text.splitlines()) + 2}: holds a secret" in refused.error["message"]
        assert "s3cr3t" not in refused.err
