"""What a package is read from, and what is refused before a byte of it is unpacked. No archive here is made by hand
that the library's own writer can make."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.base.errors import Invalid, NotFound, UwfError
from uwf_git.ext.crews import package
from uwf_git.ext.crews.draft import InvalidPackage
from uwf_git.ext.crews.package import from_files, mounted, read_archive, read_package, to_archive

FILES = {"bmad.json": b"{}", "steps/one.md": b"# One\n", "steps/z\u00fc.md": b"x" * 5000}


def packed(
    entries: Iterable[tuple[str | zipfile.ZipInfo, bytes]], compression: int = zipfile.ZIP_DEFLATED
) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as archive:
        for name, data in entries:
            made_then = (
                name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name)
            )  # at no time of today's
            archive.writestr(made_then, data, compression)
    return made.getvalue()


def entry(name: str, mode: int) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.external_attr = mode << 16
    return made


def codes(read: Callable[[], object]) -> set[tuple[str, str]]:
    """The codes of what is wrong with a package, with the paths."""
    with pytest.raises(InvalidPackage) as caught:
        read()
    assert all(each.hint and each.message for each in caught.value.findings)
    return {(each.code, each.path) for each in caught.value.findings}


def in_directory(data: bytes, offset: int, value: bytes) -> bytes:
    """The archive with other bytes at a place of its first entry's line in the directory."""
    at = data.index(b"PK\x01\x02") + offset
    return data[:at] + value + data[at + len(value) :]


def test_a_folder_and_the_zip_of_it_are_the_same_package_without_what_is_hidden(tmp_path: Path) -> None:
    hidden = {".git/config": b"[core]", "steps/.env": b"KEY=1", "__MACOSX/x": b"", ".DS_Store": b""}
    for path, data in {**FILES, **hidden}.items():
        (tmp_path / "trip" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "trip" / path).write_bytes(data)
    archive = packed([("steps/", b""), *{**FILES, **hidden}.items()])
    (tmp_path / "trip.bmad").write_bytes(archive)

    for place in (tmp_path / "trip", tmp_path / "trip" / "bmad.json"):
        assert read_package(place) == ("trip", dict(sorted(FILES.items())), None)
    assert read_package(tmp_path / "trip.bmad") == ("trip", dict(sorted(FILES.items())), archive)


def test_an_archive_is_the_same_bytes_for_the_same_files_in_any_order() -> None:
    made = to_archive(FILES)
    assert made == to_archive(dict(reversed(FILES.items())))
    assert read_archive(made, "x.bmad").files == FILES


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../up", "bad-path"),
        ("steps/../../up", "bad-path"),
        ("/etc/passwd", "bad-path"),
        ("C:/windows", "bad-path"),
        ("steps\\one.md", "bad-path"),
        ("a//b", "bad-path"),
        ("./a", "bad-path"),
        ("a\x1b[31mred", "bad-path"),
        ("x" * 256, "bad-path"),
        ("steps/GIT~1/y", "bad-path"),
        ("STEPS/two.md", "case-twins"),
        ("steps/ONE.md", "case-twins"),
        ("steps/zU\u0308.md", "case-twins"),
        ("bmad.json/x", "bad-path"),
    ],
)
def test_a_name_that_is_not_safe_everywhere_is_refused(name: str, code: str) -> None:
    found = codes(lambda: read_archive(packed([*FILES.items(), (name, b"")]), "x"))
    assert {each for each, _ in found} == {code}
    assert codes(lambda: from_files("x", {**FILES, name: b""})) == found


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_every_entry_that_is_no_plain_file_is_told_at_once() -> None:
    archive = packed(
        [
            *FILES.items(),
            ("bmad.json", b"other"),
            (entry("link", 0o120777), b"/etc/passwd"),
            (entry("disk", 0o060666), b""),
            (entry("pipe", 0o010666), b""),
            ("../up", b""),
            ("bomb", bytes(2 << 20)),
        ]
    )
    assert codes(lambda: read_archive(archive, "x")) == {
        ("duplicate-path", "bmad.json"),
        ("link", "link"),
        ("special-file", "disk"),
        ("special-file", "pipe"),
        ("bad-path", "../up"),
        ("zip-bomb", "bomb"),
    }


@pytest.mark.parametrize(
    ("offset", "value", "code"),
    [
        (8, struct.pack("<H", 0x801), "encrypted"),
        (10, struct.pack("<H", 12), "compression"),
        (16, b"abcd", "damaged-entry"),  # its checksum
        (24, struct.pack("<I", 4), "damaged-entry"),  # says that it is shorter
        (24, struct.pack("<I", 4000), "damaged-entry"),
        (24, struct.pack("<I", 17 << 20), "zip-bomb"),
        (42, struct.pack("<I", 9), "damaged-entry"),  # where it begins
        (46, b"\xff\xfe", "bad-encoding"),
        (46, b"a\0", "bad-path"),
        (46, b"no", "damaged-entry"),
    ],
)
def test_a_directory_that_lies_unpacks_nothing(offset: int, value: bytes, code: str) -> None:
    archive = in_directory(packed([("name.md", b"text" * 20)]), offset, value)
    assert code in {each for each, _ in codes(lambda: read_archive(archive, "x"))}


def test_entries_that_share_their_bytes_are_a_bomb() -> None:
    archive = packed([("one", b"x" * 90), ("two", b"x" * 90)])
    second = archive.index(b"PK\x01\x02", archive.index(b"PK\x01\x02") + 1)
    archive = archive[: second + 42] + struct.pack("<I", 0) + archive[second + 46 :]
    assert ("zip-bomb", "two") in codes(lambda: read_archive(archive, "x"))


def test_an_entry_that_unpacks_to_more_than_it_says_costs_no_memory() -> None:
    from tracemalloc import get_traced_memory, start, stop

    archive = packed([("bomb", bytes(80 << 20))])
    archive = in_directory(archive, 24, struct.pack("<I", 100))
    start()
    try:
        assert codes(lambda: read_archive(archive, "x")) == {("damaged-entry", "bomb")}
        assert get_traced_memory()[1] < 20 << 20
    finally:
        stop()


@pytest.mark.parametrize(
    "data",
    [b"", b"PK", b"{}", b"#!/bin/sh\n" + packed([("a", b"")]), packed([("a", b"")])[:-10]],
    ids=["empty", "short", "json", "a script before it", "cut off"],
)
def test_what_is_no_zip_says_so(data: bytes) -> None:
    assert codes(lambda: read_archive(data, "x")) == {("bad-archive", "")}


@settings(max_examples=200)
@given(st.data())
def test_bytes_flipped_in_an_archive_never_do_anything_but_be_refused_or_read(data: st.DataObject) -> None:
    archive = bytearray(packed(FILES.items()))
    for at in data.draw(st.lists(st.integers(0, len(archive) - 1), max_size=4)):
        archive[at] = data.draw(st.integers(0, 255))
    try:
        found = read_archive(bytes(archive), "x").files
    except UwfError:
        return
    assert all(package.path_problem(path) is None for path in found)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_sizes_and_counts_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "MAX_FILES", 3)
    monkeypatch.setattr(package, "MAX_FILE", 1000)
    monkeypatch.setattr(package, "MAX_TOTAL", 1500)
    many = [(f"{number}", b"") for number in range(4)]
    assert codes(lambda: read_archive(packed(many), "x")) == {("too-many-files", "")}
    assert codes(lambda: read_archive(packed(many * 2), "x")) >= {("too-many-files", "")}
    assert codes(lambda: from_files("x", dict(many))) == {("too-many-files", "")}
    large = {"a": b"x" * 1001, "b": b"y" * 500}
    for read in (lambda: read_archive(packed(large.items()), "x"), lambda: from_files("x", large)):
        assert codes(read) == {("too-large", "a"), ("too-large", "")}


def test_a_folder_with_links_and_pipes_is_refused_with_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "bmad.json").write_text("{}")
    (tmp_path / "inside").symlink_to(tmp_path / "bmad.json")
    (tmp_path / "folder").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / os.fsdecode(b"\xff")).write_text("")
    found = codes(lambda: read_package(tmp_path))
    assert {code for code, _ in found} == {"link", "special-file", "bad-path"}
    assert {path for code, path in found if code == "link"} == {"inside", "folder"}


def test_what_is_not_there_or_no_package_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_package(tmp_path / "nothing.bmad")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Invalid, match="not a regular file"):
        read_package(tmp_path / "pipe")
    assert codes(from_files("x", {"a": b""}).form) == {("no-manifest", "")}
    assert codes(from_files("x", {"bmad.json": b"", "crew.yaml": b""}).form) == {("two-manifests", "")}
    with pytest.raises(InvalidPackage) as caught:
        from_files("x", {"trip/bmad.json": b""}).form()
    assert "trip/bmad.json" in caught.value.hint


def test_paths_of_packages_get_their_mount_and_stay_in_it() -> None:
    assert mounted("{project-root}/a/b.md") == mounted("@project/a/./b.md") == "@project/a/b.md"
    assert (
        mounted("{artifacts-root}/goal.md")
        == mounted("artifacts/goal.md", "@project")
        == "@project/artifacts/goal.md"
    )
    assert mounted("{state-root}") == "@state"
    assert mounted(" steps/one.md ") == mounted("@pkg/steps/one.md") == "@pkg/steps/one.md"
    for path in (
        "../x",
        "@pkg/../x",
        "@project/a/../../x",
        "/etc/passwd",
        "@pkg//etc",
        "C:\\x",
        "@home/x",
        "{root}/x",
        "a\0b",
    ):
        with pytest.raises(Invalid):
            mounted(path)
