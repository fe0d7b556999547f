"""`uwf eval verify`, the judge of tasks of Harbor."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from uwf_git.plugin import Invocation, Usage, command, parse_json


@command(
    'uwf config set judges.harbor.command "uwf eval verify ~/tasks"',
    "uwf eval verify ~/tasks --container docker < trial.json",
)
@click.argument("folder", metavar="TASKS", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--container",
    metavar="PROGRAM",
    help="docker or podman. Default: bubblewrap, with this machine's programs.",
)
def verify(invocation: Invocation, folder: Path, container: str | None) -> None:
    """Judge a trial by the tests of its Harbor task. A command of judges in config.yaml calls it.

    TASKS is the folder that was imported. The current folder is the working folder of the task, standard input the
    trial; tests/test.sh is run, and its reward is the score. With --container it runs in the task's image, which is
    built if need be.
    """
    from uwf_git.ext.evaluation.harbor import verify as run_tests

    try:
        value = parse_json(sys.stdin.buffer.read().decode("utf-8"))
        prompt = value["start"]["prompt"]
    except (KeyError, TypeError, UnicodeDecodeError):
        raise Usage("standard input has no trial", "it is for judges.NAME.command in config.yaml") from None
    verified = run_tests(folder, prompt, Path.cwd(), container)
    invocation.write(json.dumps(verified._asdict()) + "\n")  # in every format: the run reads it
