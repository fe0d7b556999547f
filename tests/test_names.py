"""Names of files on systems that this machine is not."""

from __future__ import annotations

import os
import unicodedata
from pathlib import PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uwf_git.base.names import folded, same_file, windows_problem
from uwf_git.base.system.windows import long_path

DEVICES = st.sampled_from(["con", "PRN", "aux", "Nul", "com1", "LPT9", "COM¹", "conin$"])
NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)


@given(DEVICES, st.sampled_from(["", ".txt", ".tar.gz", " .yaml"]))
def test_a_device_is_one_with_any_ending(device: str, ending: str) -> None:
    assert "device" in (windows_problem(device + ending) or "")
    assert windows_problem(f"my-{device}{ending}") is None


@given(NAMES)
def test_a_name_without_a_problem_is_one_part_of_a_path_of_windows(name: str) -> None:
    if windows_problem(name) is None:
        path = PureWindowsPath("C:/folder", name)
        assert path.parts == ("C:\\", "folder", name)
        assert not path.is_reserved()
        assert name == name.rstrip(". ")


@given(NAMES)
def test_names_that_differ_in_case_or_accents_are_one_file(name: str) -> None:
    for other in (
        name.swapcase().casefold(),
        *(unicodedata.normalize(form, name) for form in ("NFC", "NFD")),
    ):
        if folded(other) == folded(name):
            assert same_file(name, [other]) == (other if other != name else None)
    assert folded(folded(name)) == folded(name)
    assert folded(unicodedata.normalize("NFD", name)) == folded(unicodedata.normalize("NFC", name))


@pytest.mark.parametrize(
    ("name", "other"),
    [("Review", "review"), ("caf\u00e9", "cafe\u0301"), ("\u212bngstr\u00f6m", "a\u030angstro\u0308m")],
)
def test_the_other_name_of_a_file_is_named(name: str, other: str) -> None:
    assert same_file(name, ["else", other]) == other
    assert same_file(name, ["else", name]) is None


@given(st.lists(st.sampled_from(["folder", "a b", "x" * 60, "\u00fc"]), min_size=1, max_size=12))
def test_a_long_path_is_prefixed_and_a_short_one_left(parts: list[str]) -> None:
    for root, prefix in (("C:\\", "\\\\?\\"), ("\\\\server\\share\\", "\\\\?\\UNC\\")):
        path = root + "\\".join(parts)
        longer = long_path(path)
        assert longer == path if len(path) < 248 else longer.startswith(prefix)
        assert longer.endswith("\\".join(parts))
        assert long_path(longer) == longer


def test_a_relative_path_is_long_by_where_it_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getcwd", lambda: "C:\\" + "x" * 240)
    assert long_path("folder/file").startswith("\\\\?\\C:\\x")
