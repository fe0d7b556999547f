"""What was found by fuzzing stays mended: each input of the corpora is tried again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from targets import CORPORA, LARGEST, TARGETS

HERE = Path(__file__).parent


REPLAY = """\
import sys
from pathlib import Path
from targets import TARGETS
for path in sys.argv[2:]:
    print(path, file=sys.stderr)
    TARGETS[sys.argv[1]](Path(path).read_bytes())
"""


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_of_the_corpus_raises_or_takes_long(target: str) -> None:
    inputs = sorted((CORPORA / target).iterdir())
    assert len(inputs) >= 3
    bounded = ["prlimit", f"--as={4 << 30}", "--cpu=60"]
    command = [*bounded, sys.executable, "-c", REPLAY, target, *map(str, inputs)]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_target_has_a_corpus_of_small_inputs_and_every_corpus_a_target() -> None:
    assert {path.name for path in CORPORA.iterdir()} == set(TARGETS)
    for path in CORPORA.rglob("*"):
        assert path.is_dir() or path.stat().st_size <= LARGEST, path
