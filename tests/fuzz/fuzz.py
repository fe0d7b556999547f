"""Fuzzes one target, guided by what its bytes reach: `python tests/fuzz/fuzz.py TARGET [SECONDS]`.

It begins with the committed corpus and what earlier runs here have found in .fuzz/. An input that raises, takes over
ten seconds or more than two gigabytes ends it with exit status 1, and is kept in .fuzz/TARGET-*: mend what is wrong,
and put the input into tests/fuzz/corpora/TARGET/ under a name that says what it is. test_corpora.py replays all of
them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOUND = HERE.parent.parent / ".fuzz"
TIMEOUT, MEMORY = 10, 2048  # seconds of an input, megabytes


def main() -> None:
    target, seconds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    try:
        import atheris
    except ImportError:
        print(f"{target}: not fuzzed: there is no atheris for this Python")
        return
    if "--child" not in sys.argv:
        sys.exit(_run(target, seconds))
    with atheris.instrument_imports(include=["uwf_git"]):
        from targets import LARGEST, TARGETS
    own, committed = FOUND / target, HERE / "corpora" / target
    own.mkdir(parents=True, exist_ok=True)
    limits = [
        f"-max_total_time={seconds}",
        f"-timeout={TIMEOUT}",
        f"-rss_limit_mb={MEMORY}",
        f"-max_len={LARGEST}",
    ]
    told = [f"-artifact_prefix={FOUND / target}-", "-print_final_stats=1", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *limits, *told, str(own), str(committed)], TARGETS[target])
    atheris.Fuzz()


def _run(target: str, seconds: int) -> int:
    """Fuzzes in a process of its own, whose output is told where it failed, and in a line where it didn't."""
    command = [sys.executable, __file__, target, str(seconds), "--child"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{target}: failed\n{done.stdout}{done.stderr}")
        return 1
    lines = (
        line.rpartition(":")[2].strip() for line in done.stderr.splitlines() if "number_of_executed" in line
    )
    print(f"{target}: {next(lines, '?')} inputs in {seconds} s, nothing found")
    return 0


if __name__ == "__main__":
    main()
