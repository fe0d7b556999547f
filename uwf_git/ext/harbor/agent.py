"""A Harbor agent that runs a workflow in the environment of a task, and leaves its trajectory.

    harbor run -p TASK --agent uwf_git.ext.harbor.agent:UwfAgent --ak agent=claude-code

The store is below the logs of the trial, so Harbor brings its threads back: they can be read, pushed and forked there.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed.base import NonZeroAgentExitCodeError
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.agent.context import AgentContext

from uwf_git.plugin import VERSION

TRAJECTORY = "trajectory.json"
WORKFLOW = """\
name: solve
description: An agent solves a task.
roles:
  solver:
    description: Solves the task.
    systemPrompt: Solve the task in the folder that you work in, and check that it is solved.
    outputSchema:
      type: object
      properties: { summary: { type: string, description: "What was done, in a line." } }
      required: [summary]
graph:
  $START: [{ role: solver }]
  solver: [{ role: $END }]
"""
_SETUP = """\
set -e
if ! command -v uwf >/dev/null; then
  if ! command -v git >/dev/null || ! python3 -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))'; then
    if command -v apt-get >/dev/null; then apt-get update -qq; apt-get install -y -qq git python3 python3-venv
    elif command -v apk >/dev/null; then apk add -q git python3
    elif command -v dnf >/dev/null; then dnf install -y -q git python3
    fi
  fi
  python3 -m venv /opt/uwf
  /opt/uwf/bin/python -m pip install -q {package}
  ln -sf /opt/uwf/bin/uwf* /usr/local/bin/
fi
uwf --version
"""
_END = 2_000  # characters of a failed command's output


class UwfAgent(BaseAgent):
    """Runs a workflow. The options, which Harbor takes by `--ak`:

    agent     who plays the roles, as `uwf run --agent` takes it; a JSON list for several
    workflow  a file on this machine; without one, a single role solves the task
    config    a config.yaml on this machine, for models, prices and tools
    package   what pip installs: a requirement, or a wheel on this machine. An installed uwf is used as it is
    prepare   a command that installs the agents' programs
    """

    capabilities = AgentCapabilities(atif=True)

    def __init__(
        self,
        logs_dir: Path,
        *args: Any,
        agent: str | list[str] = "",
        workflow: str | None = None,
        config: str | None = None,
        package: str = f"uwf-git=={VERSION}",
        prepare: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(logs_dir, *args, **kwargs)
        if not agent and config is None:
            raise ValueError("uwf needs an agent: --ak agent=claude-code, or --ak config=FILE")
        self._agents = [agent] if isinstance(agent, str) else agent
        self._workflow = WORKFLOW if workflow is None else Path(workflow).read_text("utf-8")
        self._config = None if config is None else Path(config).read_text("utf-8")
        self._package = package
        self._prepare = prepare

    @staticmethod
    def name() -> str:
        return "uwf"

    def version(self) -> str:
        return VERSION

    async def setup(self, environment: BaseEnvironment) -> None:
        package = self._package
        if Path(package).is_file():
            package = f"/tmp/{Path(self._package).name}"
            await environment.upload_file(self._package, package)
        script = _SETUP.format(package=shlex.quote(package))
        for command in filter(None, (script, self._prepare)):
            _require(await environment.exec(command, user="root", env=self._extra_env), "the setup")
        _require(await environment.exec(f"mkdir -p {self._quoted('uwf')}"), "the setup")
        await self._upload(environment, "workflow.yaml", self._workflow)
        if self._config is not None:
            await self._upload(environment, "uwf/config.yaml", self._config)

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await self._upload(environment, "instruction.md", instruction)
        uwf = f"uwf --root {self._quoted('uwf')}"
        agents = " ".join(f"--agent {shlex.quote(agent)}" for agent in self._agents if agent)
        prompt = self._quoted("instruction.md")
        ran = await environment.exec(
            f"{uwf} run {self._quoted('workflow.yaml')} -p - {agents} < {prompt}", env=self._extra_env
        )
        # What there is of it, also after a failure: failed attempts are in the store.
        wrote = await environment.exec(
            f"{uwf} export @ --atif {self._quoted(TRAJECTORY)} --force --all-projects"
        )
        _require(ran, "uwf run")
        _require(wrote, "uwf export")

    def populate_context_post_run(self, context: AgentContext) -> None:
        path = self.logs_dir / TRAJECTORY
        if not path.is_file():
            return
        trajectory = json.loads(path.read_text("utf-8"))
        total = trajectory.get("final_metrics") or {}
        context.n_input_tokens = total.get("total_prompt_tokens")
        context.n_output_tokens = total.get("total_completion_tokens")
        context.n_cache_tokens = total.get("total_cached_tokens")
        context.cost_usd = total.get("total_cost_usd")
        context.metadata = {**(context.metadata or {}), "uwf_thread": trajectory.get("trajectory_id")}

    def _quoted(self, name: str) -> str:
        return shlex.quote(str(self.environment_logs_dir / name))

    async def _upload(self, environment: BaseEnvironment, name: str, text: str) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder, "file")
            path.write_text(text, "utf-8")
            await environment.upload_file(path, str(self.environment_logs_dir / name))


def _require(done: ExecResult, what: str) -> None:
    if done.return_code != 0:
        output = f"{done.stdout or ''}\n{done.stderr or ''}".strip()[-_END:]
        raise NonZeroAgentExitCodeError(f"{what} ended with {done.return_code}: {output}")
