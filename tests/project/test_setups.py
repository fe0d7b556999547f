"""What is read of a checkout's `.uwf`, and what it means that a user has allowed it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import git_servers
import pytest
from hypothesis import given
from hypothesis.strategies import text
from uwf_cli.terminal import escape_code

from uwf_git.base.errors import Invalid
from uwf_git.base.text import escaped
from uwf_git.config.project import parse_settings
from uwf_git.engine.permission_requests import line_of
from uwf_git.ext.project.review import difference, readable
from uwf_git.store.location import checkout_around
from uwf_git.store.permission_files import Wish
from uwf_git.store.setups import Setup, Setups, read_setup

git = git_servers.git

UNSEEN = (
    # DerivedCoreProperties.txt: Default_Ignorable_Code_Point, also those that are not assigned yet.
    (0xAD, 0x34F, 0x61C, 0x3164, 0xFEFF, 0xFFA0),
    range(0x115F, 0x1161),
    range(0x17B4, 0x17B6),
    range(0x180B, 0x1810),
    range(0x200B, 0x2010),
    range(0x202A, 0x202F),
    range(0x2060, 0x2070),
    range(0xFE00, 0xFE10),
    range(0xFFF0, 0xFFF9),
    range(0x1BCA0, 0x1BCA4),
    range(0x1D173, 0x1D17B),
    range(0xE0000, 0xE1000),
    # PropList.txt: White_Space but the space; then a symbol, a filler and a note head that are blank.
    (0xB, 0xC, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
    (0x2800, 0x16FE4, 0x1D159),
)


def _asked(text: str) -> str:
    return line_of(Wish("execute", "", text, ()))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return repository(tmp_path / "shop")


@pytest.fixture
def setups(tmp_path: Path) -> Setups:
    return Setups(tmp_path / "root", tmp_path / "root" / "store.git" / "uwf")


def repository(place: Path) -> Path:
    git(*git_servers.INIT, place)
    (place / ".uwf" / "workflows").mkdir(parents=True)
    (place / ".uwf" / "config.yaml").write_text("agents: {tests: {command: uwf-exec make test}}\n")
    git("-C", place, "add", ".")
    git("-C", place, "commit", "-q", "-m", "Begin")
    return place


def here(place: Path) -> Setup:
    setup = read_setup(checkout_around(place))
    assert setup is not None
    return setup


def _link(folder: Path) -> None:
    (folder / "workflows" / "x.yaml").symlink_to("/etc/hostname")


def _link_inside(folder: Path) -> None:
    (folder / "x.yaml").symlink_to("config.yaml")


def _link_of_a_folder(folder: Path) -> None:
    (folder / "more").symlink_to("/etc")


def _itself(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def _huge(folder: Path) -> None:
    with (folder / "huge.md").open("wb") as file:
        file.truncate(1 << 34)


def _many(folder: Path) -> None:
    for number in range(101):
        (folder / f"{number}.md").touch()


def _deep(folder: Path) -> None:
    (folder / "1/2/3/4/5/6/7").mkdir(parents=True)


def _bytes(folder: Path) -> None:
    (folder / "x.yaml").write_bytes(b"a: \xff\n")


def _capitals(folder: Path) -> None:
    (folder / "Config.yaml").write_text("")


def _submodule(folder: Path) -> None:
    (folder / ".git").write_text("gitdir: ../../evil\n")


def _disguised(folder: Path) -> None:
    (folder / "workflows" / "GIT~1").write_text("gitdir: ../../evil\n")


def _unseen(folder: Path) -> None:
    (folder / "con\u202efig.yaml").write_text("")


def _line_end(folder: Path) -> None:
    (folder / "a\nb.yaml").write_text("")


@pytest.mark.parametrize(
    "spoil",
    [
        *(_link, _link_inside, _link_of_a_folder, _itself, _pipe, _huge, _many, _deep, _bytes, _capitals),
        *(_submodule, _disguised, _unseen, _line_end),
    ],
)
def test_anything_but_plain_texts_is_refused(shop: Path, spoil: Callable[[Path], None]) -> None:
    spoil(shop / ".uwf")
    with pytest.raises(Invalid) as error:
        here(shop)
    assert ".uwf" in error.value.message and error.value.message.isprintable()


def test_a_submodule_or_another_folder_with_a_set_up_is_not_the_projects(shop: Path, setups: Setups) -> None:
    inner = repository(shop / "vendor")
    (shop / "below" / ".uwf").mkdir(parents=True)
    (shop / "below" / ".uwf" / "config.yaml").write_text("agents: {evil: {command: uwf-exec evil}}\n")
    assert here(shop / "below") == here(shop)
    setups.allow(shop, here(shop))
    assert setups.state_at(inner).problem


def test_what_counts_is_what_was_read_whatever_is_there_by_now(shop: Path, setups: Setups) -> None:
    shown = here(shop)
    (shop / ".uwf" / "config.yaml").write_text("agents: {tests: {command: uwf-exec evil}}\n")
    allowed = setups.allow(shop, shown)  # as if the file were changed between the question and the answer
    state = setups.state_at(shop)
    assert allowed.digest == shown.digest and not state.is_allowed and state.allowed == allowed
    assert setups.at(shop) == allowed and "evil" not in str(allowed.files)


def test_a_record_that_was_changed_allows_nothing(shop: Path, setups: Setups, tmp_path: Path) -> None:
    setups.allow(shop, here(shop))
    (record,) = (tmp_path / "root" / "allowed").iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    note = json.loads(record.read_text())
    note["files"]["config.yaml"] = "agents: {tests: {command: uwf-exec evil}}\n"
    record.write_text(json.dumps(note))
    assert setups.at(shop) is None and not setups.state_at(shop).is_allowed
    record.write_text("[" * 100_000)
    assert setups.at(shop) is None


def test_it_holds_in_clones_and_worktrees_and_not_in_other_projects(
    shop: Path, setups: Setups, tmp_path: Path
) -> None:
    setups.allow(shop, here(shop))
    git("clone", "-q", shop, tmp_path / "clone")
    git("-C", shop, "worktree", "add", "-q", tmp_path / "tree")
    assert setups.state_at(tmp_path / "clone").is_allowed and setups.state_at(tmp_path / "tree").is_allowed
    (tmp_path / "clone" / ".uwf" / "config.yaml").write_text("budgets: {default: {maxCost: 1}}\n")
    newer = setups.allow(tmp_path / "clone", here(tmp_path / "clone"))
    assert setups.at(shop) == setups.at(tmp_path / "tree") == newer
    assert setups.state_at(shop).is_allowed and setups.at(tmp_path / "clone") != newer
    stranger = repository(tmp_path / "stranger")
    (stranger / "Makefile").write_text("test:\n\tevil\n")
    git("-C", stranger, "add", ".")
    git("-C", stranger, "commit", "-q", "-m", "The same set-up, other code")
    assert here(stranger).digest == here(shop).digest and setups.state_at(stranger).problem


def test_a_branch_with_an_earlier_set_up_makes_that_count_again(shop: Path, setups: Setups) -> None:
    first = setups.allow(shop, here(shop))
    (shop / ".uwf" / "config.yaml").write_text("budgets: {default: {maxCost: 1}}\n")
    assert setups.state_at(shop).problem
    setups.allow(shop, here(shop))
    git("-C", shop, "checkout", "-q", ".")
    state = setups.state_at(shop)
    assert state.is_allowed and state.allowed is not None and state.allowed.digest == first.digest
    shutil.rmtree(shop / ".uwf")  # a branch without any
    assert setups.state_at(shop).problem == "" and setups.at(shop) == state.allowed


def test_what_is_revoked_no_longer_counts_anywhere(shop: Path, setups: Setups, tmp_path: Path) -> None:
    setups.allow(shop, here(shop))
    git("clone", "-q", shop, tmp_path / "clone")
    setups.allow(tmp_path / "clone", here(shop))
    setups.revoke(tmp_path / "clone")
    assert setups.at(shop) is None and setups.at(tmp_path / "clone") is None
    assert setups.state_at(shop).problem


def test_a_store_in_the_projects_repository_has_no_say(shop: Path, setups: Setups, tmp_path: Path) -> None:
    setups.allow(shop, here(shop))
    shutil.copytree(tmp_path / "root" / "allowed", shop / ".git" / "uwf" / "allowed")
    assert Setups(tmp_path / "other", shop / ".git" / "uwf").at(shop) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("run: ok\rrun: evil", r"run: ok\x0drun: evil"),
        ("a\u202eb\u2066c\u200bd\ufeffe\u00a0f", r"a\u202eb\u2066c\u200bd\ufeffe\xa0f"),
        ("a\u3164b\u115f\u2800c\ufe0fd\u034f", r"a\u3164b\u115f\u2800c\ufe0fd\u034f"),
        ("a\u2028b\x0bc\x0cd\x85e", r"a\u2028b\x0bc\x0cd\x85e"),
        (f"# harmless{' ' * 5000}; evil", "# harmless ⟨5000 blanks⟩ ; evil"),
        (f"a\n{chr(10) * 500}evil", "a\n⟨500 empty lines⟩\nevil"),
        ("  two: lines\n\n  with: indents\n", "  two: lines\n\n  with: indents\n"),
    ],
)
def test_nothing_of_a_text_is_hidden_from_who_reads_it(text: str, shown: str) -> None:
    assert readable(text) == shown


@pytest.mark.parametrize("show", [readable, escape_code, _asked], ids=["allow", "code", "permission"])
def test_all_that_unicode_calls_ignorable_or_white_space_is_written_out(show: Callable[[str], str]) -> None:
    unseen = {chr(number) for part in UNSEEN for number in part}
    assert [hex(ord(item)) for item in unseen if not show(f"[{item}]").endswith(f"[{escaped(item)}]")] == []


@given(text())
def test_what_a_person_allows_has_only_characters_that_are_printed(text: str) -> None:
    for show in (readable, escape_code, _asked):
        assert show(text).replace("\n", "").replace("\t", "").isprintable()


def test_a_diff_shows_lines_that_other_programs_would_not_see() -> None:
    old = Setup.of({"config.yaml": "a: 1\n"})
    new = Setup.of({"config.yaml": "a: 1\r# evil: 2\x1b[8m\u2028b: 3\n", "workflows/x.yaml": ""})
    lines = difference(old, new).split("\n")
    assert r"+a: 1\x0d# evil: 2\x1b[8m\u2028b: 3" in lines
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("agent", ["{}", "{command: 3}", '{command: ""}', '{command: " "}'])
def test_an_agent_without_a_command_is_refused_by_its_key(agent: str) -> None:
    with pytest.raises(Invalid, match=r"agents\.tests\.command (is not a command|must)"):
        parse_settings(f"agents: {{tests: {agent}}}".encode())


def test_line_ends_of_a_checkout_of_windows_are_no_change(shop: Path) -> None:
    digest = here(shop).digest
    git("-C", shop, "config", "core.autocrlf", "true")
    (shop / ".uwf/config.yaml").unlink()
    git("-C", shop, "checkout", "-q", "--", ".uwf")
    assert b"\r\n" in (shop / ".uwf/config.yaml").read_bytes()
    assert here(shop).digest == digest
    (shop / ".uwf/notes.txt").write_bytes(b"one\r\n")
    assert here(shop).files["notes.txt"] == "one\r\n"
