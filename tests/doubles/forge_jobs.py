"""A forge's runner: it runs the steps of a printed file as GitHub, Forgejo or Gitea do, on a bare repository by path.

Steps are scripts of bash with `-eo pipefail`; they hand on variables, paths and outputs by files; the runner reads
commands from what they print. An expression that this runner does not know fails the test.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from commands import git
from conftest import EXAMPLES
from git_servers import bare
from warm import shared as warm_uwf

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
# The runner takes a command at the beginning of a line, and an older form anywhere in it.
_COMMAND = re.compile(r"\s*::([a-z0-9-]+)(?: ([^:]*))?::(.*)")
_OLD = re.compile(r"##\[([a-z-]+)[^\]]*\](.*)")
TOKEN = "ghs_0123456789abcdef"


class Command(NamedTuple):
    """A workflow command that the runner carries out."""

    name: str
    properties: dict[str, str]
    data: str


class Ran(NamedTuple):
    """What became of a job: the exit status of the step that failed, 0 if none did."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str
    folder: Path

    @property
    def commands(self) -> list[Command]:
        return list(read_commands(self.log))

    def report(self, name: str) -> str:
        return (self.folder / "uwf-ci" / name).read_text(encoding="utf-8")

    @property
    def result(self) -> Any:
        return json.loads(self.report("result.json"))

    @property
    def comments(self) -> list[dict[str, str]]:
        return list(json.loads(self.outputs["comments"]))


class Forge:
    """A repository `ann/work` on a forge that is a folder, and pull requests to it."""

    def __init__(self, folder: Path, kind: str = "github", is_cold: bool = False) -> None:
        """`is_cold`: its jobs start interpreters of their own, for claims about what these load."""
        self.folder, self.kind = folder, kind
        self._programs = folder / "bin"
        self._programs.mkdir(parents=True)
        if not is_cold and (warm := warm_uwf()) is not None:
            warm.program(self._programs / "uwf")
        self.remote = bare(folder / "srv" / "ann" / "work", uploadpack_allowAnySHA1InWant="true")
        self._jobs = 0

    def git(self, *args: object, data: str | None = None) -> str:
        return git("--git-dir", self.remote, *args, data=data).strip()

    def merged(self, number: int, head: str, base: str) -> str:
        """Make the forge's refs of a pull request; return its merge commit."""
        tree = self.git("merge-tree", "--write-tree", "--allow-unrelated-histories", base, head)
        merge = self.git("commit-tree", tree, "-p", base, "-p", head, "-m", f"Merge {head} into {base}")
        self.git("update-ref", f"refs/pull/{number}/head", head)
        self.git("update-ref", f"refs/pull/{number}/merge", merge)
        return merge

    def pull_request(
        self,
        text: str,
        branch: str,
        base: str,
        number: int = 7,
        env: Mapping[str, str] | None = None,
        body: str | None = None,
    ) -> Ran:
        """Run the file's check for a pull request of `branch` into `base`, with a text."""
        head, onto = (self.git("rev-parse", f"refs/heads/{each}") for each in (branch, base))
        merge = self.merged(number, head, onto)
        is_merged = self.kind == "github"
        payload = {
            "pull_request": {
                "number": number,
                "body": body,
                "head": {"ref": branch, "sha": head, "repo": {"full_name": "ann/work"}},
                "base": {"ref": base, "sha": onto},
            }
        }
        variables = {
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_REF": f"refs/pull/{number}/{'merge' if is_merged else 'head'}",
            "GITHUB_SHA": merge if is_merged else head,
            "GITHUB_HEAD_REF": branch,
            "GITHUB_BASE_REF": base,
        }
        return self.run(text, payload, {**variables, **(env or {})})

    def dispatched(self, text: str, branch: str = "", env: Mapping[str, str] | None = None) -> Ran:
        """Run the file's check by hand for a branch, or for all."""
        variables = {"GITHUB_EVENT_NAME": "workflow_dispatch", "GITHUB_REF": "refs/heads/main"}
        return self.run(text, {"inputs": {"branch": branch}}, {**variables, **(env or {})}, branch)

    def run(
        self,
        text: str,
        payload: Mapping[str, Any],
        variables: Mapping[str, str],
        branch: str = "",
        job: str = "check",
        needs: Mapping[str, str] | None = None,
    ) -> Ran:
        """Run a job of the file in a folder of its own, as the runner does."""
        self._jobs += 1
        folder = self.folder / f"job{self._jobs}"
        workspace = folder / "workspace"
        workspace.mkdir(parents=True)
        (folder / "event.json").write_text(json.dumps(payload), encoding="utf-8")
        described = yaml.safe_load(text)["jobs"][job]
        known = {"github.token": TOKEN, "inputs.branch": branch}
        known |= {f"needs.check.outputs.{name}": value for name, value in (needs or {}).items()}
        environment = {
            **os.environ,
            "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            **({"GITEA_ACTIONS": "true"} if self.kind != "github" else {}),
            **({"FORGEJO_ACTIONS": "true"} if self.kind == "forgejo" else {}),
            "GITHUB_SERVER_URL": f"file://{self.folder / 'srv'}",
            "GITHUB_API_URL": "https://api.forge.invalid",
            "GITHUB_REPOSITORY": "ann/work",
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "GITHUB_WORKSPACE": str(workspace),
            "RUNNER_TEMP": str(folder),
            **_filled(described.get("env", {}), known),
            **variables,
        }
        log, outputs, summary = "", {}, ""
        for number, step in enumerate(described["steps"]):
            files = {
                name: folder / f"{name.lower()}{number}"
                for name in ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")
            }
            for file in files.values():
                file.touch()
            script = folder / f"step{number}.sh"
            assert "uses" not in step, "no action of anybody is used"
            assert not _EXPRESSION.search(step["run"]), "an expression in a script is put into it unquoted"
            script.write_text(step["run"], encoding="utf-8")
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
                cwd=workspace,
                env={
                    **environment,
                    **_filled(step.get("env", {}), known),
                    **{k: str(v) for k, v in files.items()},
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=110,
                check=False,
            )
            log += done.stdout.decode("utf-8", "replace")
            outputs |= _outputs(files["GITHUB_OUTPUT"].read_text(encoding="utf-8"))
            summary += files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8")
            assert not files["GITHUB_ENV"].read_text()
            for path in files["GITHUB_PATH"].read_text().split():
                environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
            if done.returncode:
                return Ran(done.returncode, log, outputs, summary, folder)
        return Ran(0, log, outputs, summary, folder)


class GitLab:
    """A merge request's checkout by a runner of GitLab: all of its files, detached, with `origin`."""

    def __init__(self, forge: Forge, folder: Path, branch: str, base: str) -> None:
        self.checkout, self.folder, self.branch = folder / "builds", folder, branch
        git("clone", "-q", "--branch", branch, forge.remote, self.checkout)
        git("-C", self.checkout, "checkout", "-q", "--detach")
        self.head = git("-C", self.checkout, "rev-parse", "HEAD")
        self.base = git("-C", self.checkout, "merge-base", "HEAD", f"origin/{base}")

    def run(self, **variables: str) -> subprocess.CompletedProcess[bytes]:
        """Run the job's script as one script of bash, in the checkout."""
        script = yaml.safe_load((EXAMPLES / "ci" / "gitlab.yml").read_text(encoding="utf-8"))["uwf"]["script"]
        environment = {
            **os.environ,
            "GITLAB_CI": "true",
            "CI_PIPELINE_SOURCE": "merge_request_event",
            "CI_MERGE_REQUEST_IID": "7",
            "CI_PROJECT_ID": "42",
            "CI_COMMIT_SHA": self.head,
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": self.base,
            "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": self.branch,
            "UWF_VERSION": yaml.safe_load((EXAMPLES / "ci" / "gitlab.yml").read_text())["uwf"]["variables"][
                "UWF_VERSION"
            ],
            **variables,
        }
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", "\n".join(script)],
            cwd=self.checkout,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=110,
            check=False,
        )


def _filled(values: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, str]:
    return {
        name: _EXPRESSION.sub(lambda found: known[found[1]], str(value)) for name, value in values.items()
    }


def _outputs(text: str) -> dict[str, str]:
    """Read a file of outputs as the runner does: NAME<<WORD, lines, WORD."""
    found = {}
    lines = iter(text.split("\n"))
    for line in lines:
        name, _, word = line.partition("<<")
        if word:
            value = []
            for each in lines:
                if each == word:
                    break
                value.append(each)
            else:
                raise AssertionError(f"the output {name} has no end")
            found[name] = "\n".join(value)
    return found


def read_commands(log: str) -> Any:
    stopped = ""
    for line in log.split("\n"):
        match = _COMMAND.match(line)
        if stopped:
            if match and match[1] == stopped:
                stopped = ""
            continue
        if match and match[1] == "stop-commands":
            stopped = match[3]
        elif match:
            pairs = (pair.partition("=") for pair in (match[2] or "").split(",") if pair)
            yield Command(match[1], {name: _read(value) for name, _, value in pairs}, _read(match[3]))
        if old := _OLD.search(line):
            yield Command(old[1], {}, old[2])
    assert not stopped, "commands stay switched off"


def _read(text: str) -> str:
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text
