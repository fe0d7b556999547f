"""Tasks of Harbor as cases: a folder with instruction.md, task.toml, environment/ and tests/.

The instruction is the prompt, and the files that the Dockerfile copies into its working folder are the fixture. What
else the Dockerfile does can't be done without a container, and is named. The tests stay where they are, so no agent
sees them: `uwf eval verify FOLDER`, as a judge of config.yaml, runs them in a trial's final folder.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from uwf_git.ext.evaluation.cases import File
from uwf_git.ext.evaluation.fixtures import store_folder
from uwf_git.ext.evaluation.records import UNKNOWN, USE, Case, Judge
from uwf_git.plugin import Instance, Invalid, NotFound, Usage, name_problem, one_line

JUDGE = "harbor"
"""The judge of such cases, which the user's config.yaml has."""

_CONFIG = "task.toml"
_WORKDIR = "/app"
_TIMEOUT = 600.0  # seconds of a verifier, unless its task says otherwise


class HarborTask(NamedTuple):
    """A task. `workdir` is the folder in its environment that the agent works in; `undone` are the instructions of
    its Dockerfile that need a container; `files` maps files of `environment/` to their places below `workdir`."""

    folder: Path
    instruction: str
    workdir: PurePosixPath
    files: Mapping[Path, PurePosixPath]
    undone: tuple[str, ...]
    tags: tuple[str, ...]
    agent_seconds: float | None
    verifier_seconds: float
    verifier_env: Mapping[str, str]
    image: str

    @property
    def prompt(self) -> str:
        """The instruction, with a line that says where its working folder is, if it names that."""
        if str(self.workdir) not in self.instruction:
            return self.instruction
        return f"{self.instruction.rstrip()}\n\n{self.workdir} is the folder that you work in.\n"


def tasks_in(folder: Path) -> list[HarborTask]:
    """Return the task in a folder, or those in its folders. Raises NotFound, Invalid."""
    folders = [folder]
    if not (folder / _CONFIG).is_file():
        folders = sorted(file.parent for file in folder.glob(f"*/{_CONFIG}"))
    if not folders:
        raise NotFound(
            f"{one_line(str(folder))} has no task of Harbor", "a task has task.toml and instruction.md"
        )
    return [_task(path) for path in folders]


def read_tasks(instance: Instance, folder: Path) -> File:
    """Return the tasks of a folder as cases, and store their fixtures. Warns of what a case has not. Raises NotFound,
    Invalid."""
    return File(folder.resolve().name, tuple((_case(instance, task), "") for task in tasks_in(folder)))


def _case(instance: Instance, task: HarborTask) -> Case:
    name = task.folder.resolve().name
    if problem := name_problem(name):
        raise Invalid(f"{task.folder}: its name {problem}", "rename the folder")
    if task.undone:
        instance.warn(f"{name}: not done, as it needs a container: {'; '.join(task.undone)}")
    with tempfile.TemporaryDirectory() as temporary:
        for source, place in task.files.items():
            target = Path(temporary, place)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            shutil.copymode(source, target)
        fixture = store_folder(instance, Path(temporary))
    limits = {"maxWallTime": task.agent_seconds} if task.agent_seconds else {}
    judge = Judge(JUDGE, USE, JUDGE)
    return Case(UNKNOWN, name, task.prompt, fixture=fixture, judges=(judge,), limits=limits, tags=task.tags)


def _task(folder: Path) -> HarborTask:
    try:
        config = tomllib.loads((folder / _CONFIG).read_text("utf-8"))
        instruction = (folder / "instruction.md").read_text("utf-8")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Invalid(
            f"{folder}: {one_line(str(error), 200)}", "it needs task.toml and instruction.md"
        ) from None
    if config.get("steps"):
        raise Invalid(f"{folder} has several steps, which a case has not", "import tasks of one step")
    if not instruction.strip():
        raise Invalid(f"{folder}/instruction.md is empty")
    environment, metadata = _section(config, "environment"), _section(config, "metadata")
    workdir, files, undone = _dockerfile(folder / "environment", str(environment.get("workdir") or ""))
    tags = [metadata.get("difficulty"), metadata.get("category"), *(metadata.get("tags") or [])]
    verifier = _section(config, "verifier")
    return HarborTask(
        folder,
        instruction,
        workdir,
        files,
        undone,
        tuple(dict.fromkeys(tag for tag in tags if isinstance(tag, str) and tag)),
        _seconds(_section(config, "agent")),
        _seconds(verifier) or _TIMEOUT,
        {str(key): str(value) for key, value in _section(verifier, "env").items()},
        str(environment.get("docker_image") or ""),
    )


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, dict) else {}


def _seconds(section: Mapping[str, Any]) -> float | None:
    seconds = section.get("timeout_sec")
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None


def _dockerfile(
    folder: Path, workdir: str
) -> tuple[PurePosixPath, dict[Path, PurePosixPath], tuple[str, ...]]:
    """Return what can be had of an environment without its container: the working folder, files of it by their places
    there, and the instructions that are left."""
    at, copied, undone = PurePosixPath("/"), list[tuple[Path, PurePosixPath]](), list[str]()
    text = (folder / "Dockerfile").read_text("utf-8") if (folder / "Dockerfile").is_file() else ""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        word, _, rest = line.strip().partition(" ")
        match word.upper():
            case "FROM":  # another stage: what the one before has copied is not in the image
                at, copied = PurePosixPath("/"), []
            case "WORKDIR":
                at = at / rest.strip().strip('"')
            case "COPY" | "ADD" if matches := list(_copied(folder, rest, at)):
                copied += matches
            case "" | "CMD" | "ENTRYPOINT" | "LABEL" | "MAINTAINER" | "SHELL" | "EXPOSE":
                pass
            case _ if not word.startswith("#"):
                undone.append(one_line(f"{word} {rest.strip()}", 80))
    if (folder / "docker-compose.yaml").is_file():
        undone.append("docker-compose.yaml")
    work = PurePosixPath(workdir) if workdir else at if at != PurePosixPath("/") else PurePosixPath(_WORKDIR)
    files = {source: place.relative_to(work) for source, place in copied if place.is_relative_to(work)}
    undone += [f"{source.name} in {place}" for source, place in copied if not place.is_relative_to(work)]
    return work, files, tuple(undone)


def _copied(folder: Path, words: str, at: PurePosixPath) -> Iterator[tuple[Path, PurePosixPath]]:
    """Yield the files of a COPY and their places; nothing of another stage or of a pattern without a file."""
    with suppress(ValueError):
        parts = json.loads(words) if words.strip().startswith("[") else shlex.split(words)
        *sources, target = [part for part in parts if not part.startswith("--")]
        if any(part.startswith("--from") for part in parts):
            return
        place, top = at / target, folder.resolve()
        for pattern in sources:
            matches = [folder] if pattern in (".", "./") else sorted(folder.glob(pattern.lstrip("/")))
            for source in matches:
                if not source.resolve().is_relative_to(top):
                    continue
                if source.is_dir():
                    for file in sorted(source.rglob("*")):
                        if file.is_file() and file.name != "Dockerfile":
                            yield file, place / file.relative_to(source).as_posix()
                else:
                    is_folder = target.endswith("/") or target == "." or len(sources) > 1 or "*" in pattern
                    yield source, place / source.name if is_folder else place


# Verifying


class Verified(NamedTuple):
    """A reward from 0 to 1, and the last line that the tests printed."""

    score: float
    reason: str


def verify(folder: Path, prompt: str, work: Path, container: str | None) -> Verified:
    """Run the tests of the task with a prompt in a copy of its final folder, with `container`, the program docker or
    podman, or without one in bubblewrap. Raises NotFound, Usage, Invalid."""
    from uwf_git.plugin import processes

    task = next((task for task in tasks_in(folder) if task.prompt.strip() == prompt.strip()), None)
    if task is None:
        raise NotFound(
            f"no task in {one_line(str(folder))} has this prompt", "name the folder that was imported"
        )
    if not (task.folder / "tests" / "test.sh").is_file():
        raise Invalid(f"{task.folder} has no tests/test.sh")
    with tempfile.TemporaryDirectory(prefix="uwf-verify-") as temporary:
        logs = Path(temporary, "logs")
        (logs / "verifier").mkdir(parents=True)
        argv = _in_container(task, container, work, logs) if container else _in_bubblewrap(task, work, logs)
        done = processes.run_command(argv, cwd=work, timeout=task.verifier_seconds, guarded=True)
        output = (done.stdout_tail.strip() or done.stderr_tail.strip()).decode("utf-8", "replace")
        reason = one_line(output.rpartition("\n")[2], 400)
        if done.timed_out:  # what they have written by then is of a part of them
            why = f"the tests of {task.folder} ran out of time after {task.verifier_seconds:g} s"
            raise Invalid(why, "raise timeout_sec of [verifier] in task.toml")
        return Verified(_reward(logs / "verifier", reason), reason)


def _in_container(task: HarborTask, program: str, work: Path, logs: Path) -> list[str]:
    from uwf_git.plugin import processes

    image = task.image
    if not image:
        built = processes.run_command(
            [program, "build", "-q", str(task.folder.resolve() / "environment")], cwd=work
        )
        image = built.stdout_tail.decode("utf-8", "replace").strip()
        if built.returncode or not image:
            why = built.stderr_tail.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise Invalid(f"{program} could not build {task.folder}: {one_line(why, 300)}")
    places = {work: task.workdir, task.folder.resolve() / "tests": "/tests", logs: "/logs"}
    mounts = [word for path, place in places.items() for word in ("-v", f"{path}:{place}")]
    env = [word for name, value in task.verifier_env.items() for word in ("-e", f"{name}={value}")]
    return [program, "run", "--rm", *mounts, *env, "-w", str(task.workdir), image, "bash", "/tests/test.sh"]


def _in_bubblewrap(task: HarborTask, work: Path, logs: Path) -> list[str]:
    from uwf_git.plugin import bubblewrap, find_program

    program = find_program("bwrap", work)
    if program is None:
        raise Usage(
            "bubblewrap is not installed", "install bubblewrap, or verify in a container: --container docker"
        )
    places = {work: task.workdir, logs: "/logs"}
    own = [word for path, place in places.items() for word in ("--bind", str(path), str(place))]
    env = [word for name, value in task.verifier_env.items() for word in ("--setenv", name, value)]
    return [
        *(program, *bubblewrap.enclosure(True)),
        *("--tmpfs", "/tmp", "--tmpfs", "/root", "--setenv", "HOME", "/root"),
        *(*own, "--ro-bind", str(task.folder.resolve() / "tests"), "/tests", *env),
        *("--chdir", str(task.workdir), "bash", "/tests/test.sh"),
    ]


def _reward(folder: Path, reason: str) -> float:
    """Return the reward that a verifier wrote: that called `reward`, or the mean of all. Raises Invalid."""
    try:
        if (file := folder / "reward.json").is_file():
            value = json.loads(file.read_text("utf-8"))
            if isinstance(value, dict):
                value = value["reward"] if "reward" in value else sum(value.values()) / len(value)
        else:
            value = float((folder / "reward.txt").read_text("utf-8"))
        if not (0 <= value <= 1 and math.isfinite(value)):
            raise ValueError(f"{value} is not a number from 0 to 1")
    except OSError:
        raise Invalid("the tests gave no score: they left no reward", reason) from None
    except (ValueError, TypeError, ZeroDivisionError) as error:
        why = one_line(str(error), 100)
        raise Invalid(f"the tests gave no score: their reward: {why}", reason) from None
    return float(value)
