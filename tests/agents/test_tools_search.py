"""glob and grep find what a person would look for, and end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pygit2
import pytest

from uwf_git.config.policy import ToolPolicy
from uwf_git.ext.builtin.environment import standard_tools
from uwf_git.ext.builtin.tools import search
from uwf_git.ext.builtin.tools.tool import Toolbox


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with what is found and what is not."""
    folder = tmp_path / "project"
    for name, text in {
        ".gitignore": "build/\n*.log\n",
        "main.py": "import os\nTODO = 1\n",
        "src/a.py": "# todo: later\n",
        "src/deep/b.ts": "const todo = 'ü';\n",
        "src/deep/c.tsx": "x\n",
        "build/out.py": "TODO\n",
        "run.log": "TODO\n",
        "keys/.env": "TODO\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    pygit2.init_repository(str(folder))
    (folder / ".git" / "TODO.py").write_text("TODO\n")
    (folder / "image.py").write_bytes(b"TODO\0")
    (tmp_path / "outside.py").write_text("TODO\n")
    (folder / "link.py").symlink_to(tmp_path / "outside.py")
    (folder / "loop").symlink_to(".")
    os.mkfifo(folder / "pipe.py")
    return folder


@pytest.fixture
def box(project: Path) -> Iterator[Toolbox]:
    with standard_tools(project, ToolPolicy(), hidden=[project / "keys"]) as tools:
        yield tools


def found(box: Toolbox, name: str, key: str, **arguments: Any) -> list[str]:
    result = box.call(name, arguments)
    assert result.ok, result.value
    return [each.removeprefix("@project/") for each in result.value[key]]


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.py", ["image.py", "main.py", "src/a.py"]),
        ("src/*.py", ["src/a.py"]),
        ("src/**/*.{ts,tsx}", ["src/deep/b.ts", "src/deep/c.tsx"]),
        ("**/deep/?.ts", ["src/deep/b.ts"]),
        ("@project/[!s]*.py", []),
        ("./main.py", []),
        ("[a-m]*.py", ["image.py", "main.py", "src/a.py"]),
        ("{main", []),
        ("*", [".gitignore", "image.py", "main.py", "src/a.py", "src/deep/b.ts", "src/deep/c.tsx"]),
    ],
)
def test_a_glob_finds_files_but_not_git_s_ignored_hidden_or_linked_ones(
    box: Toolbox, pattern: str, paths: list[str]
) -> None:
    if pattern.startswith(("@", ".")):
        paths = [
            path for path in ("image.py", "main.py", "src/a.py") if pattern[0] == "@" or path == "main.py"
        ]
    assert found(box, "glob", "paths", pattern=pattern) == paths


def test_ignored_files_are_found_when_asked_for(box: Toolbox) -> None:
    assert "build/out.py" in found(box, "glob", "paths", pattern="*.py", ignored=True)
    assert found(box, "grep", "matches", pattern="TODO", path="build/out.py") == ["build/out.py:1: TODO"]


def test_grep_answers_path_line_and_text(box: Toolbox) -> None:
    assert found(box, "grep", "matches", pattern="todo") == [
        "src/a.py:1: # todo: later",
        "src/deep/b.ts:1: const todo = 'ü';",
    ]
    everywhere = found(box, "grep", "matches", pattern="^todo", ignoreCase=True)
    assert everywhere == ["main.py:2: TODO = 1"]
    assert found(box, "grep", "matches", pattern="todo", path="src", glob="*.ts") == [
        "src/deep/b.ts:1: const todo = 'ü';"
    ]
    assert found(box, "grep", "matches", pattern="= 1", path="main.py", literal=True) == [
        "main.py:2: TODO = 1"
    ]


def test_many_results_come_in_parts_that_lead_on(box: Toolbox, project: Path) -> None:
    (project / "many").write_text("".join(f"hit {number}\n" for number in range(450)))
    (project / "wide").write_text("x" * 100_000 + "needle" + "y" * 100_000)
    numbers: list[str] = []
    offset = 1
    for _ in range(5):
        answer = box.call("grep", {"pattern": "^hit", "offset": offset}).value
        numbers += [line.split()[-1] for line in answer["matches"]]
        if "rest" not in answer:
            break
        offset = int(answer["rest"].removeprefix("use offset="))
    assert numbers == [str(number) for number in range(450)]
    (wide,) = found(box, "grep", "matches", pattern="needle")
    assert "needle" in wide and len(wide) < 400
    for number in range(205):
        (project / "src" / f"{number:03}.rs").touch()
    first = box.call("glob", {"pattern": "*.rs"}).value
    assert (len(first["paths"]), first["rest"]) == (200, "use offset=201")
    assert len(found(box, "glob", "paths", pattern="*.rs", offset=201)) == 5


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("grep", {"pattern": "("}, "invalid_arguments"),
        ("grep", {"pattern": "(" * 900}, "invalid_arguments"),
        ("glob", {"pattern": "[z-a]"}, "invalid_arguments"),
        ("grep", {"pattern": "x", "path": "nowhere"}, "not_found"),
        ("grep", {"pattern": "x", "path": "link.py"}, "outside_workspace"),
        ("grep", {"pattern": "x", "path": "pipe.py"}, "special_file"),
        ("grep", {"pattern": "x", "path": "keys"}, "denied"),
        ("glob", {"pattern": "*", "path": "main.py"}, "not_directory"),
        ("glob", {"pattern": "*", "path": ".."}, "outside_workspace"),
    ],
)
def test_what_can_not_be_searched_has_a_code(
    box: Toolbox, name: str, arguments: dict[str, Any], code: str
) -> None:
    result = box.call(name, arguments)
    assert not result.ok and result.value["error"]["code"] == code, result.value


@pytest.mark.filterwarnings("error")
def test_a_pattern_that_python_wonders_about_is_used_without_a_word(box: Toolbox) -> None:
    assert found(box, "grep", "matches", pattern="[[=]") == [
        "main.py:2: TODO = 1",
        "src/deep/b.ts:1: const todo = 'ü';",
    ]


def test_a_pattern_that_backtracks_for_ever_is_ended(
    box: Toolbox, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.2)
    (project / "main.py").write_text("a" * 60 + "!")
    (project / ("a" * 200)).touch()
    for name, pattern in (("grep", "(a|aa)+$"), ("glob", "*a" * 60 + "b")):
        result = box.call(name, {"pattern": pattern})
        assert result.value["error"]["code"] == "timeout", result.value
