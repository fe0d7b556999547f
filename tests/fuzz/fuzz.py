"""Fuzzes one target, guided by what its bytes reach: `python tests/fuzz/fuzz.py TARGET [SECONDS [SEED]]`.

It begins with the committed corpus and what earlier runs here have found in .fuzz/. An input that raises, takes over
ten seconds or more than two gigabytes ends it with exit status 1, and is kept in .fuzz/TARGET-*: mend what is wrong,
and put the input into tests/fuzz/corpora/TARGET/ under a name that says what it is. test_corpora.py replays all of
them. What raises under the fuzzer's instruments and not without them is told, and is no failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
FOUND = HERE.parent.parent / ".fuzz"
TIMEOUT, MEMORY = 10, 2048  # seconds of an input, megabytes
CHILD = "UWF_FUZZ_CHILD"


def main() -> None:
    target, *numbers = sys.argv[1:]
    seconds = int(numbers[0]) if numbers else 20
    seed = int(numbers[1]) if len(numbers) > 1 else 0  # 0 is another each time
    try:
        import atheris
    except ImportError:
        print(f"{target}: not fuzzed: there is no atheris for this Python")
        return
    if CHILD not in os.environ:
        sys.exit(_run(target, seconds, seed))
    with atheris.instrument_imports(include=["uwf_git"]):
        from targets import LARGEST, TARGETS
    own, committed = FOUND / target, HERE / "corpora" / target
    own.mkdir(parents=True, exist_ok=True)
    limits = [
        f"-max_total_time={seconds}",
        f"-timeout={TIMEOUT}",
        f"-rss_limit_mb={MEMORY}",
        f"-max_len={LARGEST}",
        f"-seed={seed}",
    ]
    told = [f"-artifact_prefix={FOUND / target}-", "-print_final_stats=1", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *limits, *told, str(own), str(committed)], TARGETS[target])
    atheris.Fuzz()


def _run(target: str, seconds: int, seed: int) -> int:
    """Fuzzes in a process of its own, whose output is told where it failed, and in a line where it didn't."""
    before = set(FOUND.glob(f"{target}-*"))
    command = [sys.executable, __file__, target, str(seconds), str(seed)]
    environ = {**os.environ, CHILD: "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    lines = (
        line.rpartition(":")[2].strip() for line in done.stderr.splitlines() if "number_of_executed" in line
    )
    tried = f"{target}: {next(lines, '?')} inputs in at most {seconds} s"
    if done.returncode == 0:
        print(f"{tried}, nothing found")
        return 0
    print(f"{target}: failed\n{done.stdout}{done.stderr}")
    found = set(FOUND.glob(f"{target}-*")) - before
    if found and all(map(partial(_passes, target), found)):
        print(f"{tried}, and what was found doesn't happen without the fuzzer's instruments")
        return 0
    return 1


def _passes(target: str, path: Path) -> bool:
    """Whether an input is fine where nothing is instrumented."""
    again = "import sys, targets; targets.TARGETS[sys.argv[1]](open(sys.argv[2], 'rb').read())"
    bounded = ["prlimit", f"--as={2 * MEMORY << 20}", f"--cpu={TIMEOUT}"]
    command = [*bounded, sys.executable, "-c", again, target, str(path)]
    return subprocess.run(command, cwd=HERE, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    main()
