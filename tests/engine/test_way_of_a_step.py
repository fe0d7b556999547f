"""docs/inside/architecture.md names ten functions that a step calls, in their order."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

STEP = '''
import json, os, pathlib, pydoc, sys
from uwf_git.engine.step import step
from uwf_git.format.ids import ThreadId
from uwf_git.store.location import locate
from uwf_git.store.instance import Instance

thread, *names = sys.argv[1:]
codes = {pydoc.locate(f"uwf_git.{name}").__code__: name for name in names}
calls = {}

def watch(frame, event, _):
    if event == "call" and frame.f_code in codes:
        calls.setdefault(codes[frame.f_code])

instance = Instance(locate(None, os.environ, pathlib.Path.cwd()))
sys.setprofile(watch)
step(instance, ThreadId(thread), """uwf-exec echo '{"text":"Done."}'""")
sys.setprofile(None)
print(json.dumps(list(calls)))
'''


def test_a_step_calls_the_ten_functions_in_the_order_of_the_page(thread: str) -> None:
    text = (REPOSITORY / "docs" / "inside" / "architecture.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| \d+ \| `([\w.]+)` \|", text, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", STEP, thread, *names], capture_output=True, text=True, check=True, timeout=60
    )
    assert len(names) == 10
    assert json.loads(done.stdout.splitlines()[-1]) == names


WAY = """
import json, pathlib, sys, typing

command = sys.argv[1:]
files, compiled = set(), 0

def watch(frame, event, _):
    global compiled
    code = frame.f_code
    is_body = code.co_name == "<module>" or "__qualname__" in code.co_names
    if event == "call" and not is_body and any(part in code.co_filename for part in ("/uwf_git/", "/uwf_cli/")):
        files.add(code.co_filename)
    compiled += event == "call" and code is typing.ForwardRef.__init__.__code__

sys.setprofile(watch)
sys.argv = ["uwf", *command]
from uwf_cli.main import main

try:
    main()
finally:
    sys.setprofile(None)
    print(json.dumps([sorted(files), sorted(sys.modules), compiled]), file=sys.stderr)
"""
AS_PROCESS = f"env {sys.executable} -m uwf_git.ext.agents.rehearse"


@pytest.mark.parametrize(
    ("command", "most_files", "most_modules", "most_compiled"),
    [
        (["step", "--agent", AS_PROCESS], 95, 161, 250),
        (["step", "--agent", "uwf-rehearse"], 109, 175, 270),
        (["list"], 63, 125, 265),
    ],
    ids=["step-as-process", "step", "list"],
)
def test_a_command_enters_few_files_loads_few_modules_and_compiles_few_annotations(
    command: list[str], most_files: int, most_modules: int, most_compiled: int, thread: str
) -> None:
    """typing compiles the annotations of named tuples that are text."""
    name, *options = command
    words = [name, *([thread] if name == "step" else ()), *options]
    files, modules, compiled = _way(words, thread)
    ours = [module for module in modules if module.startswith(("uwf_git", "uwf_cli"))]
    assert len(files) <= most_files, files
    assert len(ours) <= most_modules, ours
    assert compiled <= most_compiled


def test_an_answer_needs_no_validator_if_it_is_valid_and_no_git_if_nothing_is_stashed(
    thread: str, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "init", "-q", checkout], check=True)
    words = ["step", thread, "--cwd", str(checkout), "--agent", """uwf-exec echo '{"text":"Done."}'"""]
    _, modules, _ = _way(words, thread)
    assert {"uwf_git.sandbox.child", "uwf_git.engine.kit.coerce"} <= {*modules}
    assert not {"jsonschema", "referencing", "uwf_git.git.program"} & {*modules}


def _way(words: list[str], thread: str) -> tuple[list[str], list[str], int]:
    """Return the files of ours that `uwf thread` entered, the modules that it loaded, and how many annotations were
    compiled. Its output names the thread."""
    done = subprocess.run(
        [sys.executable, "-c", WAY, "thread", *words], capture_output=True, text=True, check=True, timeout=60
    )
    assert thread in done.stdout
    files, modules, compiled = json.loads(done.stderr.splitlines()[-1])
    return files, modules, compiled
