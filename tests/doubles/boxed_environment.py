"""An environment of Harbor without containers: each command runs in bubblewrap, with the task's files, its tests and
its logs at their places and this machine's programs. `harbor run --env boxed_environment:BoxedEnvironment`."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc")
_PLACES = ("app", "tests", "logs", "tmp", "root", "solution", "opt")


class BoxedEnvironment(BaseEnvironment):
    """Files are below a folder of its own, which is `/` for commands."""

    @staticmethod
    def type() -> str:
        return "boxed"

    def _validate_definition(self) -> None:
        pass

    @property
    def _root(self) -> Path:
        return self.trial_paths.trial_dir / "root"

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    async def start(self, force_build: bool) -> None:
        for place in _PLACES:
            self._at(place).mkdir(parents=True, exist_ok=True)
        for place in ("agent", "verifier", "artifacts"):
            self._at(f"logs/{place}").mkdir(exist_ok=True)
        for file in self.environment_dir.iterdir():
            if file.name != "Dockerfile":
                shutil.copy(file, self._at("app"))

    async def stop(self, delete: bool) -> None:
        if delete:
            shutil.rmtree(self._root)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self._at(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self._at(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._at(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy(self._at(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._at(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        # The interpreter with uwf, at its own place.
        programs = [sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])]
        binds = [
            word
            for path in (*_SYSTEM, *programs)
            if Path(path).exists()
            for word in ("--ro-bind", path, path)
        ]
        places = [word for place in _PLACES for word in ("--bind", str(self._at(place)), f"/{place}")]
        box = ["bwrap", *places, *binds, "--proc", "/proc", "--dev", "/dev", "--die-with-parent"]
        box += ["--chdir", cwd or self.task_env_config.workdir or "/app"]
        variables = {
            "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            **(env or {}),
        }
        process = await asyncio.create_subprocess_exec(
            *box,
            *("bash", "-c", command),
            env=variables,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0)
