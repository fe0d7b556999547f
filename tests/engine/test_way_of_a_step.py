"""docs/inside/architecture.md names ten functions that a step calls, in their order."""

from __future__ import annotations

import json
import re
import subprocess
import sys

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


FILES = """
import pathlib, sys
import uwf_git

root, command = pathlib.Path(uwf_git.__file__).parent.parent, sys.argv[1:]
files = set()

def watch(frame, event, _):
    code = frame.f_code
    is_body = code.co_name == "<module>" or "__qualname__" in code.co_names
    if event == "call" and not is_body and any(part in code.co_filename for part in ("/uwf_git/", "/uwf_cli/")):
        files.add(code.co_filename)

sys.setprofile(watch)
sys.argv = ["uwf", *command]
from uwf_cli.main import main

try:
    main()
finally:
    sys.setprofile(None)
    modules = sorted(name for name in sys.modules if name.startswith(("uwf_git", "uwf_cli")))
    print(" ".join(sorted(files)), " ".join(modules), sep="\\n", file=sys.stderr)
"""
MOST_FILES, MOST_MODULES = 89, 153


def test_a_step_enters_few_files_and_loads_few_modules(thread: str) -> None:
    agent = f"env {sys.executable} -m uwf_git.ext.agents.rehearse"
    words = ["thread", "step", thread, "--agent", agent]
    done = subprocess.run(
        [sys.executable, "-c", FILES, *words], capture_output=True, text=True, check=True, timeout=60
    )
    files, modules = (line.split() for line in done.stderr.splitlines())
    assert json.loads(done.stdout)["role"] == "writer"
    assert len(files) <= MOST_FILES, files
    assert len(modules) <= MOST_MODULES, modules
