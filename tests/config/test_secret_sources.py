"""Secrets that a command prints: read when they are needed, known from then on, and given to nobody who isn't named."""

from __future__ import annotations

import json
import os
import subprocess
from collections import ChainMap
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import ONE, write
from conftest import Uwf
from model_server import ModelServer, says

from uwf_git.base.errors import Unavailable
from uwf_git.ext.evaluation.judges import USE, Judge, called
from uwf_git.ext.landing.settings import settings_of
from uwf_git.forge.address import Forge
from uwf_git.forge.login import find_login
from uwf_git.format import yaml12
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance
from uwf_git.workspaces.setup import set_up

KEY = "Tr0ub4dor-and-3-horses"
Config = Callable[[str], Path]
Script = Callable[[str, str], Path]


@pytest.fixture
def vault(script: Script, tmp_path: Path) -> Path:
    """A password manager's command, which notes how it was called, and in which folder."""
    return script(
        "vault",
        "import os, sys\n"
        f"open({str(tmp_path / 'calls')!r}, 'a').write(f'{{sys.argv[1:]}} {{os.getcwd()}}\\n')\n"
        f"print({KEY!r} if 'good' in sys.argv else '')\n"
        f"print('note: the key is {KEY[:4]}…', file=sys.stderr)\n"
        "'locked' in sys.argv and sys.exit('the vault of [redacted] is sealed')\n",
    )


def calls(tmp_path: Path) -> list[str]:
    path = tmp_path / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_a_key_is_read_once_when_it_is_needed_and_redacted_from_then_on(
    uwf: Uwf, config: Config, vault: Path, server: ModelServer, root: Path, tmp_path: Path
) -> None:
    config(
        f"providers: {{local: {{baseUrl: '{server.openai_url}', apiKeyEnv: LOCAL_KEY}}}}\n"
        "models: {small: {provider: local, name: tiny}}\ndefaultModel: small\n"
        f"secrets: {{LOCAL_KEY: {{command: {vault} good}}}}\n"
    )
    server.key = KEY
    server.play([says("no JSON"), says(f"---\nn: 1\n---\n\nThe key is {KEY}.\n")])
    uwf("workflow", "put", write("one.yaml", ONE))
    uwf("thread", "start", "one", "-p", "Do it")
    assert calls(tmp_path) == []
    shown = uwf("thread", "step", "@", "--agent", "uwf-llm", env={"UWF_LOG": "debug"})
    assert calls(tmp_path) == ["['good'] /"]
    assert "[redacted:LOCAL_KEY]" in uwf("thread", "read", "@").out
    assert KEY not in shown.out + shown.err
    stored = subprocess.run(
        ["git", "--git-dir", root / "store.git", "grep", KEY, "--all-match"], capture_output=True, check=False
    )
    assert not stored.stdout
    for path in (root / "store.git").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_what_goes_wrong_is_one_line_that_names_the_setting(
    instance: Instance, config: Config, vault: Path, script: Script
) -> None:
    slow = script("slow", "import time\ntime.sleep(60)\n")
    config(
        "secrets:\n"
        f"  A_KEY: {{command: [{vault}, locked]}}\n"
        f"  B_KEY: {{command: '{vault} bad'}}\n"
        f"  C_KEY: {{command: {slow}, timeout: 0.2}}\n"
        "  D_KEY: {command: no-such-program x}\n"
        "  E_KEY: {keyring: openai/ada}\n"
    )
    for name, message, hint in (
        (
            "A_KEY",
            f"secrets.A_KEY: {vault} exited with 1: the vault of [redacted] is sealed",
            f"try it: {vault} locked",
        ),
        (
            "B_KEY",
            f"secrets.B_KEY: {vault} printed no secret in its first line: note: the key is {KEY[:4]}…",
            "try it",
        ),
        (
            "C_KEY",
            f"secrets.C_KEY: {slow} has printed nothing for 0.2 s",
            "secrets.C_KEY.timeout gives it longer",
        ),
        ("D_KEY", "secrets.D_KEY: no-such-program is not on PATH, or only in the project", "install it"),
        ("E_KEY", "secrets.E_KEY: keyring is not on PATH, or only in the project", "install it"),
    ):
        with pytest.raises(Unavailable) as raised:
            instance.secrets[name]
        assert raised.value.message == message
        assert hint in raised.value.hint


def test_a_secret_in_a_complaint_is_not_told(
    instance: Instance, config: Config, script: Script, root: Path
) -> None:
    told = script("told", f"import sys\nsys.exit('no such item: {KEY}')\n")
    config(f"secrets: {{A_KEY: {{command: {told}}}}}\n")
    (root / ".env").write_text(f"B_KEY={KEY}\n")
    with pytest.raises(Unavailable, match=r"no such item: \[redacted:B_KEY\]"):
        instance.secrets["A_KEY"]


def test_the_environment_counts_before_a_source_and_a_source_before_the_file(
    instance: Instance,
    config: Config,
    vault: Path,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    config(
        f"secrets: {{A_KEY: {{command: {vault} good}}, B_KEY: {{command: {vault} good}}, C_KEY: environment}}\n"
    )
    (root / ".env").write_text("A_KEY=value-of-the-file\n")
    monkeypatch.setenv("B_KEY", "value-of-the-shell")
    monkeypatch.setenv("C_KEY", "value-of-the-shell-too")
    secrets = instance.secrets
    assert [secrets.value(name) for name in ("A_KEY", "B_KEY", "C_KEY", "D_KEY")] == [
        *(KEY, "value-of-the-shell", "value-of-the-shell-too", "")
    ]
    assert secrets.value("A_KEY") == KEY and len(calls(tmp_path)) == 1
    text = instance.redactor.text(f"{KEY} value-of-the-file value-of-the-shell")[0]
    assert text == "[redacted:A_KEY] [redacted:A_KEY] [redacted:B_KEY]"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (KEY, "secrets.A_KEY must be where the secret is"),
        ("{keyring: nothing}", "keyring must be SERVICE/USER"),
        ("{command: pass | head}", "needs a shell, and none is used"),
        ("{comand: pass}", "in secrets.A_KEY"),
    ],
)
def test_a_wrong_source_is_named_without_its_text(
    uwf: Uwf, config: Config, setting: str, message: str
) -> None:
    config(f"secrets:\n  A_KEY: {setting}\n")
    done = uwf("agent", "check", "uwf-rehearse", check=None)
    assert message in done.err and KEY not in done.err


ENVIRON = (
    "import json, os\n"
    "names = ('ALPHA_KEY', 'BETA_KEY', 'GAMMA_KEY', 'SHELL_KEY', 'THE_MODEL')\n"
    "print(json.dumps({'n': 1, **{name: os.environ.get(name, '-') for name in names}}))\n"
)


def test_an_agent_gets_the_secrets_that_its_settings_name_and_no_others(
    uwf: Uwf, config: Config, vault: Path, script: Script, root: Path, tmp_path: Path
) -> None:
    shows = script("shows", ENVIRON)
    config(
        f"secrets: {{ALPHA_KEY: {{command: {vault} good}}, GAMMA_KEY: environment}}\n"
        "agents:\n"
        f"  plain: {{command: uwf-exec, args: [{shows}]}}\n"
        f"  named: {{command: uwf-exec, args: [{shows}], env: [ALPHA_KEY, GAMMA_KEY]}}\n"
    )
    (root / ".env").write_text("BETA_KEY=another-secret\nTHE_MODEL=large-1\n")
    uwf(
        "workflow",
        "put",
        write("one.yaml", ONE.replace("type: integer}}", "type: integer}}, additionalProperties: true")),
    )
    shell = {"SHELL_KEY": "a-key-of-the-shell", "GAMMA_KEY": "a-key-that-is-named"}
    seen = {}
    for name in ("plain", "named"):
        uwf("thread", "start", "one", "-p", "Do it")
        uwf("thread", "step", "@", "--agent", name, env=shell)
        seen[name] = uwf("thread", "read", "@").out
        assert len(calls(tmp_path)) == (name == "named")
    none = [f"| {name} | \\- |" for name in ("ALPHA_KEY", "BETA_KEY", "GAMMA_KEY")]
    assert [line in seen["plain"] for line in none] == [True, True, True]
    assert [line in seen["named"] for line in none] == [False, True, False]
    assert "redacted:ALPHA_KEY" in seen["named"] and "redacted:GAMMA_KEY" in seen["named"]
    for (
        text
    ) in seen.values():  # what is no secret, and what the shell has that the configuration doesn't name
        assert "large-1" in text and "a-key-of-the-shell" in text


def test_who_lacks_a_secret_is_told_the_setting(uwf: Uwf, config: Config, script: Script, root: Path) -> None:
    needs = script(
        "needs",
        "import os, sys\n'BETA_KEY' in os.environ or sys.exit('BETA_KEY is not set')\nprint('{\"n\": 1}')\n",
    )
    config(f"agents: {{mine: {{command: uwf-exec, args: [{needs}]}}}}\n")
    (root / ".env").write_text("BETA_KEY=another-secret\n")
    uwf("workflow", "put", write("one.yaml", ONE))
    uwf("thread", "start", "one", "-p", "Do it")
    done = uwf("thread", "step", "@", "--agent", "mine", check=6)
    hint = "uwf config set agents.mine.env BETA_KEY"
    assert hint in done.err
    uwf(*hint.split()[1:])
    uwf("thread", "step", "@", "--agent", "mine")


def test_shipped_agents_get_their_own_keys(
    script: Script, uwf: Uwf, config: Config, root: Path, tmp_path: Path
) -> None:
    from uwf_git.ext.agents.cli.rows import shipped_names, shipped_row

    keys = {name: row.variables for name in shipped_names() if (row := shipped_row(name)) is not None}
    assert all(keys.values())
    assert {"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"} <= {*keys["claude-code"]}
    assert "OPENAI_API_KEY" in keys["codex"] and "GEMINI_API_KEY" in keys["gemini"]
    script(
        "codex",
        f"import json, os\nopen({str(tmp_path / 'env')!r}, 'w').write(json.dumps(dict(os.environ)))\n",
    )
    root.mkdir()
    (root / ".env").write_text("OPENAI_API_KEY=sk-of-the-file\nANTHROPIC_API_KEY=sk-of-another\n")
    uwf("workflow", "put", write("one.yaml", ONE))
    uwf("thread", "start", "one", "-p", "Do it")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    uwf("thread", "step", "@", "--agent", "codex", env={"PATH": path}, check=6)
    env = json.loads((tmp_path / "env").read_text())
    assert env["OPENAI_API_KEY"] == "sk-of-the-file" and "ANTHROPIC_API_KEY" not in env


def test_setup_names_the_command_and_keeps_no_key(uwf: Uwf, root: Path, vault: Path, config: Config) -> None:
    config("secrets: [DEPLOY_TOKEN]\n")
    uwf("setup", "--provider", "openai", "--model", "m", "--api-key-command", f"{vault} good 'a b'")
    uwf("setup", "--provider", "openrouter", "--api-key-command", f"{vault} good")
    data = yaml12.load((root / "config.yaml").read_bytes(), "config.yaml").data
    assert data["secrets"] == {
        "DEPLOY_TOKEN": "environment",
        "OPENAI_API_KEY": {"command": f"{vault} good 'a b'"},
        "OPENROUTER_API_KEY": {"command": f"{vault} good"},
    }
    assert data["providers"]["openai"]["apiKeyEnv"] == "OPENAI_API_KEY"
    assert not (root / ".env").exists()
    assert "keys" not in {
        check["check"] for check in uwf("doctor", check=None).json if check["status"] != "ok"
    }
    done = uwf("setup", "--provider", "openai", "--api-key", "x", "--api-key-command", "y", check=2)
    assert "exclude each other" in done.err


@pytest.mark.needs("pass", "gpg")
def test_pass_and_gnupg_hold_a_key(
    instance: Instance, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    monkeypatch.setenv("PASSWORD_STORE_DIR", str(tmp_path / "store"))

    def run(*words: str, typed: str = "") -> None:
        subprocess.run(words, input=typed, text=True, check=True, capture_output=True)

    try:
        run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "ada@example.org")
        run("pass", "init", "ada@example.org")
        run("pass", "insert", "--multiline", "openai", typed=f"{KEY}\nuser: ada\n")
        config(
            "secrets: {OPENAI_API_KEY: {command: pass show openai}, OTHER_KEY: {command: [pass, show, other]}}\n"
        )
        assert instance.secrets["OPENAI_API_KEY"] == KEY
        with pytest.raises(
            Unavailable, match="pass exited with 1: Error: other is not in the password store"
        ):
            instance.secrets["OTHER_KEY"]
    finally:
        run("gpgconf", "--kill", "gpg-agent")


def test_a_hook_gets_the_secrets_that_hooks_name(
    uwf: Uwf, config: Config, vault: Path, script: Script, root: Path, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    hook = script("hook", ENVIRON.replace("print(", f"open({str(seen)!r}, 'w').write("))
    config(
        f"secrets: {{ALPHA_KEY: {{command: {vault} good}}}}\nhooks: {{completed: {hook}, env: [ALPHA_KEY]}}\n"
    )
    (root / ".env").write_text("BETA_KEY=another-secret\n")
    uwf("workflow", "put", write("one.yaml", ONE))
    uwf("thread", "start", "one", "-p", "Do it")
    uwf("thread", "step", "@", "--agent", "uwf-rehearse")
    env = json.loads(seen.read_text())
    assert (env["ALPHA_KEY"], env["BETA_KEY"]) == (KEY, "-")


def test_the_set_up_of_a_worktree_gets_the_secrets_that_it_names(
    instance: Instance, config: Config, vault: Path, script: Script, root: Path, tmp_path: Path
) -> None:
    shows = script("shows", ENVIRON.replace("print(", "open('seen', 'w').write("))
    config(
        f"secrets: {{ALPHA_KEY: {{command: {vault} good}}}}\n"
        f"workspace: {{setup: {shows}, env: [ALPHA_KEY]}}\nland: {{env: [BETA_KEY]}}\n"
    )
    (root / ".env").write_text("BETA_KEY=another-secret\n")
    set_up(tmp_path, None, instance.config.workspace, ThreadId("0" * 26), instance.secrets)
    env = json.loads((tmp_path / "seen").read_text())
    assert (env["ALPHA_KEY"], env["BETA_KEY"]) == (KEY, "-")
    assert settings_of(instance.config).env == ("BETA_KEY",)


def test_a_forge_s_token_and_an_mcp_server_s_variable_may_come_from_a_command(
    instance: Instance, config: Config, vault: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITLAB_TOKEN", raising=False)
    config(
        f"secrets: {{GITLAB_TOKEN: {{command: {vault} good}}, GH_TOKEN: {{command: {vault} locked}}}}\n"
        "mcpServers: {tracker: {command: [tracker], env: {TOKEN: $GITLAB_TOKEN}}}\n"
    )
    secrets, forge = instance.secrets, Forge("gitlab", "gitlab.com", "https://gitlab.com/api/v4")
    login = find_login(forge, instance.config, secrets.environment(), instance.redactor, secrets.value)
    assert (login.token, login.source) == (KEY, "GITLAB_TOKEN")
    assert calls(tmp_path) == ["['good'] /"]  # the other forge's is not read
    assert ChainMap(secrets.environment(), secrets)["GITLAB_TOKEN"] == KEY


def test_a_judge_gets_the_secrets_that_it_names_and_none_that_looks_like_one(
    instance: Instance, config: Config, vault: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(
        f"secrets: {{ALPHA_KEY: {{command: {vault} good}}, BETA_KEY: {{command: {vault} locked}}}}\n"
        "judges: {tests: {command: make test, env: [ALPHA_KEY]}}\n"
    )
    monkeypatch.setenv("SHELL_PASSWORD", "not-for-judges")
    judge = called(instance, Judge("tests", USE, "tests"), Path.cwd())
    env = instance.secrets.kept_from(judge.env)
    assert env["ALPHA_KEY"] == KEY and not {"BETA_KEY", "SHELL_PASSWORD"} & env.keys()
