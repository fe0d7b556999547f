"""docs/reference/python-api.md documents every public name, each with an example, and its examples are true."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import REPOSITORY

import uwf_git

PAGE = (REPOSITORY / "docs" / "reference" / "python-api.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A block of the page: its language, the file it is written to, "" for none, its text and its line."""

    language: str
    file: str
    text: str
    line: int


BLOCKS = [
    Block(each[1], each[2] or "", each[3], PAGE.count("\n", 0, each.start(3)) + 1)
    for each in BLOCK.finditer(PAGE)
]
EXAMPLES = "".join(block.text for block in BLOCKS if block.language == "python")


@pytest.fixture
def shown(root: Path) -> None:
    """The world of the page: an agent `claude-code` that needs no model, and the files."""
    root.mkdir()
    (root / "config.yaml").write_text("agents:\n  claude-code: {command: uwf-rehearse}\n")
    for block in BLOCKS:
        if block.file:
            Path(block.file).write_text(block.text)


def test_there_are_at_most_25_public_names() -> None:
    assert len(uwf_git.__all__) == len(set(uwf_git.__all__)) <= 25
    assert all(hasattr(uwf_git, name) for name in uwf_git.__all__)
    assert dir(uwf_git) == sorted(uwf_git.__all__)


def test_each_public_name_has_an_example_and_no_other_name_has_one() -> None:
    assert {*re.findall(r"\buwf\.(\w+)", EXAMPLES)} == {*uwf_git.__all__}


@pytest.mark.parametrize("name", ["Store", "Thread", "Turn"])
def test_each_public_attribute_of_a_noun_is_on_the_page(name: str) -> None:
    noun = getattr(uwf_git, name)
    for attribute in {each for each in dir(noun) if not each.startswith("_")}:
        assert re.search(rf"`[^`\n]*\b{attribute}\b", PAGE), attribute


def test_the_examples_are_true(shown: None, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    parser = doctest.DocTestParser()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for block in BLOCKS:
        if block.language != "python":
            continue
        if block.text.startswith(">>>"):
            test = parser.get_doctest(block.text, names, "python-api.md", "python-api.md", block.line - 1)
            test.globs = names  # a copy otherwise, and later blocks go on with these
            runner.run(test, clear_globs=False)
        else:
            source = "\n" * (block.line - 1) + block.text
            exec(compile(source, "python-api.md", "exec", dont_inherit=True), names)
    told = capsys.readouterr().out
    assert runner.summarize(verbose=False).failed == 0, told
    assert "done after" in told and uwf_git.__version__ in told


def test_importing_the_package_loads_no_room() -> None:
    code = "import sys, uwf_git; print(*[name for name in sys.modules if name.startswith('uwf_git.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["uwf_git.base", "uwf_git.base.version"]


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Thread_'"):
        _ = uwf_git.Thread_
