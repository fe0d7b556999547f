"""Stands in for a model in the suite beside it, for `uwf-exec`: no key, no network, and the same every time.

It plays the three roles of `solve-issue` in the folder of a repository. As a developer it fixes of an issue what is
plain to see, and the rest once a review has asked for it; with `--careful` all at once. As a reviewer it does what
it is told: it runs the tests if the workflow says so, and else it believes what the developer says.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FIXES = {
    "slug.py": (
        (
            'title.lower().replace(" ", "-")',
            're.sub(r"[^a-z0-9]+", "-", title.lower())',
            '"""Addresses of pages."""\n',
            '"""Addresses of pages."""\n\nimport re\n',
        ),
        ("title.lower())", 'title.lower()).strip("-")'),
    ),
    "export.py": (
        ('",".join(row)', '",".join(f\'"{field}"\' for field in row)'),
        ("f'\"{field}\"'", "'\"' + field.replace('\"', '\"\"') + '\"'"),
    ),
    "median.py": (
        (
            "return sorted(values)[len(values) // 2]",
            "low, high = (len(values) - 1) // 2, len(values) // 2\n"
            "    return (sorted(values)[low] + sorted(values)[high]) / 2",
        ),
    ),
}
"""Of each file what is done about its issue in one turn after the other: texts and what takes their place."""


def plan() -> dict[str, Any]:
    return {"plan": f"{broken().name} does not do what its tests say.", "steps": [f"mend {broken().name}"]}


def develop(turn: int, careful: bool) -> dict[str, Any]:
    file = broken()
    fixes = FIXES[file.name]
    for number in range(len(fixes)) if careful else [turn]:
        texts = fixes[number] if number < len(fixes) else ()
        for old, new in zip(texts[::2], texts[1::2], strict=True):
            file.write_text(file.read_text().replace(old, new))
    return {"filesChanged": [file.name], "summary": f"{file.name} is mended."}


def review(prompt: str) -> dict[str, Any]:
    if "run the tests" not in " ".join(prompt.split()):
        return {"approved": True, "comments": "It looks good."}
    done = subprocess.run(
        [sys.executable, "-B", "-m", "unittest"], capture_output=True, text=True, check=False
    )
    failing = [line for line in done.stderr.splitlines() if line.startswith(("FAIL:", "ERROR:"))]
    return {"approved": not failing, "comments": "\n".join(failing) or "All tests pass."}


def broken() -> Path:
    return next(Path(name) for name in FIXES if Path(name).exists())


def main() -> None:
    asked = json.load(sys.stdin)
    role = asked["role"]
    if role == "planner":
        answer = plan()
    elif role == "developer":
        answer = develop(sum(step["role"] == role for step in asked["steps"]), "--careful" in sys.argv)
    else:
        answer = review(asked["prompt"])
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
