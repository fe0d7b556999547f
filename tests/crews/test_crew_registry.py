"""Crews in a store: what is kept of a package, which versions there are, and how they get in and out."""

from __future__ import annotations

import json
from pathlib import Path

import commands
import pytest
from commands import loose
from conftest import Uwf
from crew_packages import CREW, bmad, folder, own, zipped


def git(store: Path, *args: str) -> str:
    return commands.git(f"--git-dir={store}", *args).strip()


@pytest.fixture
def store(root: Path) -> Path:
    return root / "store.git"


def test_a_crew_is_a_commit_with_its_package_byte_for_byte_and_a_page(
    uwf: Uwf, store: Path, tmp_path: Path
) -> None:
    files = {**own(), "texts/odd.bin": bytes(range(256)), "nodes/0000000000000.json": b"{}"}
    made = uwf("crew", "import", folder(tmp_path / "trip", files)).json
    assert (made["name"], made["version"], made["changed"]) == ("trip", "1.0.0", True)
    assert [each["address"] for each in made["workflows"]] == ["trip/plan-trip"]
    ref = "refs/uwf/crews/trip"
    assert git(store, "rev-parse", ref) == made["commit"]
    assert git(store, "log", "-1", "--format=%s%n%n%(trailers)", ref) == (
        f"crew trip 1.0.0\n\nUwf-Crew: {made['hash']}"
    )
    names = git(store, "ls-tree", "-r", "--name-only", ref).splitlines()
    kept = {name for name in names if not name.startswith("crew/nodes/")}
    assert kept == {".gitattributes", "README.md", *(f"package/{name}" for name in files)}
    page = git(store, "show", f"{ref}:README.md")
    assert "| 📊 Mary | `mary` | Analyst |" in page
    assert "| 1 | `plan` | Plan the trip | starts `plan-trip`; with `@project/wishes.csv` |" in page
    assert "### `trip/plan-trip` · Plan a trip" in page and "```mermaid\nflowchart TD" in page
    exported = tmp_path / "exported"
    uwf("crew", "export", "trip", "--folder", exported)
    found = {
        str(each.relative_to(exported)): each.read_bytes() for each in exported.rglob("*") if each.is_file()
    }
    assert found == files
    assert uwf("verify").json["findings"] == []


def test_a_zip_comes_out_as_it_came_in_and_a_folder_as_the_same_zip_anywhere(
    uwf: Uwf, store: Path, tmp_path: Path
) -> None:
    package = zipped(tmp_path / "trip.bmad", bmad())
    uwf("crew", "import", package)
    out = uwf("crew", "export", "trip").json
    assert (out["file"], out["original"]) == ("trip.bmad", True)
    assert Path("trip.bmad").read_bytes() == package.read_bytes()
    assert "already exists" in uwf("crew", "export", "trip", check=1).error["message"]
    uwf("crew", "import", folder(tmp_path / "trip", bmad()))
    first, second = (tmp_path / name for name in ("a.bmad", "b.bmad"))
    for path in (first, second):
        assert not uwf("crew", "export", "trip", "-o", path).json["original"]
    assert first.read_bytes() == second.read_bytes() != package.read_bytes()
    again = uwf("crew", "import", first).json
    assert again["changed"] and again["hash"] == out["hash"]
    assert "already exists" in uwf("crew", "export", "trip", "--folder", tmp_path, check=1).error["message"]


def test_unchanged_content_makes_no_version_and_a_dry_run_stores_nothing(
    uwf: Uwf, store: Path, tmp_path: Path
) -> None:
    package = folder(tmp_path / "trip", own())
    tried = uwf("crew", "import", package, "--dry-run").json
    assert (tried["commit"], tried["changed"], tried["dryRun"]) == (None, True, True)
    assert not store.exists()
    made = uwf("crew", "import", package / "crew.yaml").json
    assert made["hash"] == tried["hash"]
    before = git(store, "count-objects", "-v")
    for more in ((), ("--dry-run",)):
        again = uwf("crew", "import", package, *more).json
        assert (again["commit"], again["changed"]) == (made["commit"], False)
    (package / "texts" / "story.md").write_text("# Another\n")
    assert uwf("crew", "import", package, "--dry-run").json["changed"]
    assert git(store, "count-objects", "-v") == before
    assert len(uwf("crew", "history", "trip").json) == 1


def test_everything_wrong_is_told_at_once_and_nothing_is_taken_in(
    uwf: Uwf, store: Path, tmp_path: Path
) -> None:
    uwf("crew", "import", folder(tmp_path / "trip", own()))
    refs, objects = git(store, "for-each-ref"), git(store, "count-objects", "-v")
    broken = {name: data for name, data in bmad().items() if name != "steps/price.md"}
    broken["agents.json"] = broken["agents.json"].replace(b'"title"', b'"tittle"')
    package = folder(tmp_path / "broken", broken)
    failed = uwf("crew", "import", package, check=1)
    found = failed.error["findings"]
    assert {each["path"] for each in found} >= {"agents.json", "workflow.graph.json"}
    assert all(each["code"] and each["severity"] == "error" for each in found)
    told = uwf("crew", "import", package, "--format", "text", check=1).err
    assert len(told.splitlines()) == len(found) and "agents.json:" in told
    bomb = zipped(tmp_path / "bomb.bmad", {**bmad(), "assets/zeros": bytes(8 << 20)})
    assert [each["code"] for each in uwf("crew", "import", bomb, check=1).error["findings"]] == ["zip-bomb"]
    assert uwf("crew", "import", tmp_path / "none.bmad", check=3).error["code"] == "not_found"
    assert (git(store, "for-each-ref"), git(store, "count-objects", "-v")) == (refs, objects)


def test_a_secret_in_a_package_is_named_by_its_line(uwf: Uwf, store: Path, tmp_path: Path) -> None:
    files = {**own(), "texts/story.md": b"# A story\n\nsk-0123456789abcdef\n"}
    package = folder(tmp_path / "trip", files)
    store.parent.mkdir(exist_ok=True)
    (store.parent / ".env").write_text("STORY_API_KEY=sk-0123456789abcdef\n")
    error = uwf("crew", "import", package, check=1).error
    assert (
        error["message"]
        == "texts/story.md:3: holds a secret (STORY_API_KEY), and a package is stored as it is"
    )
    assert uwf("crew", "list").json == []


def test_a_rollback_goes_back_where_only_a_document_was_changed(
    uwf: Uwf, store: Path, tmp_path: Path
) -> None:
    package = folder(tmp_path / "trip", own())
    first = uwf("crew", "import", package).json
    (package / "texts" / "story.md").write_text("# Another\n")
    second = uwf("crew", "import", package).json
    assert (second["changed"], second["hash"]) == (True, first["hash"])
    (package / "crew.yaml").write_text(CREW.replace("1.0.0", "2.0.0"))
    third = uwf("crew", "import", package).json
    assert uwf("crew", "show", "trip").json["version"] == "2.0.0"
    assert uwf("crew", "show", "trip~1").json["commit"] == second["commit"]
    assert uwf("crew", "rollback", "trip").json["from"] == third["hash"]
    uwf("crew", "rollback", "trip")
    assert git(store, "rev-parse", "refs/uwf/crews/trip:package") == git(
        store, "rev-parse", f"{first['commit']}:package"
    )
    past = uwf("crew", "history", "trip").json
    assert [each["backTo"] for each in past] == [first["hash"], second["hash"], None, None, None]
    assert "no older version" in uwf("crew", "rollback", "trip", check=3).error["message"]
    assert uwf("crew", "rollback", "trip", third["hash"][:6]).json["version"] == "2.0.0"
    assert "no version" in uwf("crew", "rollback", "trip", "0000", check=3).error["message"]
    assert "did you mean" in uwf("crew", "show", "tripp", check=3).error["hint"]
    assert uwf("verify").json["findings"] == []


def test_a_rollback_over_versions_of_the_same_files_says_that_they_are(uwf: Uwf, tmp_path: Path) -> None:
    uwf("crew", "import", folder(tmp_path / "trip", bmad()))
    uwf("crew", "import", zipped(tmp_path / "trip.bmad", bmad()))
    assert len(uwf("crew", "history", "trip").json) == 2
    assert "are the same" in uwf("crew", "rollback", "trip", check=3).error["message"]


def test_a_crew_in_use_is_forgotten_only_on_demand_and_its_threads_go_on(
    uwf: Uwf, store: Path, tmp_path: Path
) -> None:
    uwf("crew", "import", folder(tmp_path / "trip", own()))
    thread = uwf("thread", "start", "trip/plan-trip", "-p", "Rome").json["thread"]
    refused = uwf("crew", "rm", "trip", check=2).error
    assert thread in refused["message"] and refused["hint"] == "uwf crew rm trip --yes"
    gone = uwf("crew", "rm", "trip", "--yes").json
    assert (gone["removed"], gone["threads"]) == (True, [thread])
    assert uwf("crew", "list").json == []
    git(store, "gc", "--quiet", "--prune=now")
    assert uwf("thread", "step", thread).json["role"] == "writer"
    assert uwf("verify").json["findings"] == []
    uwf("crew", "import", tmp_path / "trip")


def test_a_threads_version_holds_the_folder_of_the_crews(uwf: Uwf, store: Path, tmp_path: Path) -> None:
    made = uwf("crew", "import", folder(tmp_path / "trip", own())).json
    heads = []
    for _ in range(2):
        thread = uwf("thread", "start", "trip/plan-trip", "-p", "Rome").json["thread"]
        heads.append(git(store, "rev-parse", f"refs/uwf/threads/{thread}^"))
    assert len(set(heads)) == 1
    assert git(store, "rev-parse", f"{heads[0]}:workflow/include") == git(
        store, "rev-parse", f"{made['commit']}:package"
    )
    assert uwf("workflow", "show", "trip/plan-trip").json["commit"] == heads[0]
    assert git(store, "show", f"{heads[0]}:crew.json") == '{"crew":"trip","workflow":"plan-trip"}'


def test_text_of_a_package_reaches_no_terminal_with_control_characters(
    uwf: Uwf, store: Path, tmp_path: Path
) -> None:
    nasty = "\x1b[2J\x1b]0;gone\x07\u202e | ` <b> @everyone"
    files = bmad(menu=[{"trigger": "x", "description": nasty, "action": nasty[:16]}])
    for name in ("bmad.json", "agents.json"):
        value = json.loads(files[name])
        if "description" in value:
            value["description"] = nasty
        files[name] = json.dumps(value).encode()
    package = folder(tmp_path / "trip", files)
    shown = uwf("crew", "import", package, "--format", "text")
    shown = shown.out + shown.err + uwf("crew", "show", "trip", "--format", "text").out
    shown += uwf("crew", "list", "--format", "text").out + git(store, "show", "refs/uwf/crews/trip:README.md")
    assert "gone" in shown
    assert not {each for each in shown if not each.isprintable()} - {"\n"}
    page = git(store, "show", "refs/uwf/crews/trip:README.md")
    assert "<b>" not in page and "@everyone" not in page


def test_the_tab_key_offers_crews_personas_and_their_workflows(uwf: Uwf, store: Path, tmp_path: Path) -> None:
    uwf("crew", "import", folder(tmp_path / "trip", own()))

    def offered(*words: str) -> list[str]:
        line = " ".join(("uwf", *words))
        done = uwf(
            env={"_UWF_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words))},
            check=None,
        )
        return [each.partition(",")[2] for each in done.out.splitlines()]

    assert offered("crew", "show", "tr") == ["trip"]
    assert "trip/plan-trip" in offered("thread", "start", "trip/")


def test_a_page_and_nodes_that_are_lost_are_made_again(uwf: Uwf, store: Path, tmp_path: Path) -> None:
    uwf("crew", "import", folder(tmp_path / "trip", own()))
    lost = [git(store, "rev-parse", f"refs/uwf/crews/trip{each}") for each in (":crew", ":README.md")]
    for oid in lost:
        loose(store, oid).unlink()
    assert uwf("doctor", check=7).code == 7
    uwf("doctor", "--fix")
    assert uwf("verify").json["findings"] == []
    assert git(store, "cat-file", "-t", lost[0]) == "tree"


def test_names_that_a_package_may_have_are_those_that_a_verification_takes(
    uwf: Uwf, store: Path, tmp_path: Path
) -> None:
    odd = ["x/" * 15 + "y.md", "é" * 120 + "/a b.txt", "con.txt", "a.", "nodes/0000000000000.json"]
    uwf("crew", "import", folder(tmp_path / "trip", {**own(), **dict.fromkeys(odd, b"x")}))
    uwf("thread", "start", "trip/plan-trip", "-p", "Rome")
    uwf("cas", "reindex")
    assert uwf("verify").json["findings"] == []


def test_a_crew_that_is_not_here_is_no_file_and_makes_no_store(uwf: Uwf, root: Path) -> None:
    error = uwf("thread", "start", "trip/weekend", "-p", "x", check=3).error
    assert (error["message"], error["hint"]) == (
        "no workflow 'trip/weekend'",
        "see: uwf crew list, or give a file",
    )
    elsewhere = root.parent / "elsewhere"
    assert "no store" in uwf("--root", elsewhere, "chat", "trip", check=3).error["message"]
    assert not elsewhere.exists()
