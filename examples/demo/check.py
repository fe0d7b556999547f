"""The commands behind the release checklist of `make demo`, run from the root of the checkout:

    python examples/demo/check.py version | tests | changelog | tag

Each prints what it found and exits with 0, or with 1 and the reason.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "cli")]  # this checkout, whatever else is installed

from uwf_git import __version__  # noqa: E402


def version() -> None:
    """One version everywhere, and newer than the last tag."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", __version__):
        sys.exit(f"{__version__!r} is not a version of the form 1.2.3")
    said = {
        "uwf_git.__version__": __version__,
        "the installed package": installed_version("uwf-git"),
        "uwf --version": _output("uwf", "--version").split()[-1],
    }
    for where, found in said.items():
        print(f"{found}  {where}")
    if set(said.values()) != {__version__}:
        sys.exit("they differ; install the checkout again: make demo")
    # Of the releases that this commit stands on: a checkout of a release passes, whatever came later.
    before = [tag for tag in _tags("--merged", "HEAD") if tag != f"v{__version__}"]
    last = max((_numbers(tag[1:]) for tag in before), default=())
    print("last release: " + (".".join(map(str, last)) or "none yet"))
    if _numbers(__version__) <= last:
        sys.exit("the version is not newer than the last release")


def tests() -> None:
    """A quick part of what `make test` does: the golden vectors, and every example workflow rehearsed."""
    from uwf_git.format.cbor import encode
    from uwf_git.format.node import hash_of, parse_json

    vectors = json.loads((ROOT / "tests" / "values" / "vectors.json").read_text(encoding="utf-8"))["vectors"]
    for vector in vectors:
        payload = parse_json(vector["payload_json"])
        if encode(payload).hex() != vector["cbor_hex"] or hash_of(vector["type"], payload) != vector["hash"]:
            sys.exit(f"the golden vector {vector['name']!r} is not met")
    print(f"{len(vectors)} golden vectors are met")
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        _output("uwf", "workflow", "rehearse", str(path))
        print(f"rehearsed {path.name}")


def changelog() -> None:
    """An entry for the version, with something in it."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    entry = next((each for each in entries if each.startswith(f"[{__version__}]")), None)
    if entry is None:
        sys.exit(f"CHANGELOG.md has no entry for {__version__}")
    title, _, body = entry.partition("\n")
    points = sum(line.startswith("- ") for line in body.splitlines())
    print(f"{title}: {points} points")
    if not points:
        sys.exit("the entry is empty")


def tag() -> None:
    """A clean work tree on a commit, and no tag of this version yet."""
    if f"v{__version__}" in _tags():
        sys.exit(f"the tag v{__version__} exists already")
    changed = _output("git", "status", "--porcelain")
    if changed:
        sys.exit(f"the work tree is not clean:\n{changed}")
    print(f"{_output('git', 'rev-parse', '--verify', 'HEAD')} can be tagged v{__version__}")


def _tags(*options: str) -> list[str]:
    """The tags of releases. A source archive has none."""
    command = ["git", "tag", "--list", *options, "v*"]
    tags = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    return [tag for tag in tags if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


if __name__ == "__main__":
    checks = {"version": version, "tests": tests, "changelog": changelog, "tag": tag}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(f"usage: check.py {' | '.join(checks)}")
    checks[sys.argv[1]]()
