"""`uwf setup`, `config` and `doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cli_samples import ASKS, PAIR, on_terminal, scripted, write
from conftest import Uwf
from faults import obeying_modes
from model_server import ModelServer, Say

from uwf_git.format import yaml12
from uwf_git.store.instance import Instance

KEY = "sk-0123456789abcdef"


def _config(root: Path) -> object:
    return yaml12.load((root / "config.yaml").read_bytes(), "config.yaml").data


def test_setup_writes_the_key_to_env_alone(uwf: Uwf, root: Path) -> None:
    done = uwf(
        *("setup", "--provider", "openai", "--model", "gpt-4o-mini", "--agent", "uwf-llm", "--api-key", KEY)
    )
    assert KEY not in done.out + done.err
    assert done.json == {
        "provider": "openai",
        "model": "gpt-4o-mini",
        "agent": "uwf-llm",
        "config": str(root / "config.yaml"),
        "env": str(root / ".env"),
        "next": "uwf agent check uwf-llm",
    }
    assert _config(root) == {
        "providers": {"openai": {"baseUrl": "https://api.openai.com/v1", "apiKeyEnv": "OPENAI_API_KEY"}},
        "models": {"default": {"provider": "openai", "name": "gpt-4o-mini"}},
        "defaultModel": "default",
        "defaultAgent": "uwf-llm",
    }
    assert (root / ".env").stat().st_mode & 0o777 == 0o600
    assert (root / ".env").read_text() == f"OPENAI_API_KEY='{KEY}'\n"

    # One thing at a time afterwards, the key from standard input; the rest stays.
    assert uwf("setup", "--model", "gpt-4o").json["next"] == "uwf agent check uwf-llm"
    uwf("setup", "--provider", "mine", "--base-url", "http://localhost:9/v1", "--api-key", "-", input="abc\n")
    uwf("setup", "--agent", "my-agent --fast")
    config = _config(root)
    assert isinstance(config, dict)
    assert config["models"]["default"] == {"provider": "openai", "name": "gpt-4o"}
    assert config["providers"]["mine"] == {"baseUrl": "http://localhost:9/v1", "apiKeyEnv": "MINE_API_KEY"}
    assert (config["defaultAgent"], config["agents"]) == (
        "my-agent",
        {"my-agent": {"command": "my-agent --fast"}},
    )
    assert (root / ".env").read_text().splitlines()[1] == "MINE_API_KEY='abc'"


def test_setup_asks_on_a_terminal_and_refuses_elsewhere(uwf: Uwf, root: Path) -> None:
    for arguments in ([], ["--model", "x"], ["--provider", "unheard-of"]):
        assert uwf("setup", *arguments, check=2).error["code"] == "usage"
    assert not (root / "config.yaml").exists()
    answers = [
        ("Provider", "openrouter"),
        ("Address", ""),
        ("API key", KEY),
        ("Model", "anthropic/claude-sonnet-4"),
        ("Default agent", ""),
    ]
    status, shown = on_terminal("setup", typed=answers)
    assert status == 0, shown
    assert KEY not in shown
    config = _config(root)
    assert isinstance(config, dict)
    assert config["providers"]["openrouter"]["baseUrl"] == "https://openrouter.ai/api/v1"
    assert config["models"]["default"]["name"] == "anthropic/claude-sonnet-4"
    assert config["defaultAgent"] == "uwf-builtin"
    assert KEY in (root / ".env").read_text()
    assert KEY not in (root / "config.yaml").read_text()


def test_a_setting_survives_the_round_trip_and_comments_stay(uwf: Uwf, config: Callable[[str], Path]) -> None:
    path = config("# mine\ndefaultAgent: uwf-human # for now\n")
    assert uwf("config", "get", "defaultAgent").json == "uwf-human"
    for key, given, value in (
        ("agents.mine.command", "my-agent --fast", "my-agent --fast"),
        ("agents.mine.args", "[--port, '80']", ["--port", "80"]),
        ("agents.mine.timeout", "10m", "10m"),
        ("providers.p.baseUrl", "https://example.invalid/v1", "https://example.invalid/v1"),
        ("models.gpt-4.1.name", "gpt-4.1", "gpt-4.1"),
        ("agentOverrides.solve-issue.reviewer", "mine", "mine"),
        ("modelOverrides.extract", "gpt-4.1", "gpt-4.1"),
        ("defaultAgent", "mine", "mine"),
    ):
        shown = uwf("config", "set", key, given).json
        assert (shown["key"], shown["value"]) == (key, value)
    listed = uwf("config", "list").json
    assert listed["defaultAgent"] == "mine"
    assert listed["agents.mine.args"] == ["--port", "80"]
    assert uwf("config", "get", "agents.mine").json["timeout"] == "10m"
    assert uwf("config", "get", "agents.mine.args", "--format", "text").out == "--port 80\n"
    assert path.read_text().startswith("# mine\ndefaultAgent: mine # for now\n")


def test_an_unknown_key_is_refused_with_the_nearest(
    uwf: Uwf, config: Callable[[str], Path], root: Path
) -> None:
    for arguments in (["get", "defaultAgnt"], ["set", "defaultAgnt", "x"]):
        refused = uwf("config", *arguments, check=2)
        assert "defaultAgent" in refused.error["hint"]
    assert "baseUrl" in uwf("config", "set", "providers.p.baseURL", "x", check=2).error["hint"]
    assert ".env" in uwf("config", "set", "providers.p.apiKey", KEY, check=2).error["hint"]
    for key in ("permissionWait", "agents.a.timeout"):
        error = uwf("config", "set", key, "soon", check=1).error
        assert (error["code"], error["message"]) == ("invalid", f"{key} soon is not a duration")
    mode = uwf("config", "set", "workspace.kind", "x", check=1).error["message"]
    assert mode.startswith("workspace.kind must be one of")
    empty = uwf("config", "set", "agents.a.command", "", check=1).error["message"]
    assert empty == "agents.a.command is empty or unprintable"
    assert uwf("config", "get", "defaultModel", check=3).error["code"] == "not_found"
    assert uwf("config", "list").json == {}
    assert not (root / "config.yaml").exists()

    config("defaultAgent: uwf-human\nmodls: {}\n")
    thread = uwf("thread", "start", write("pair.yaml", PAIR), "-p", "x", check=None)
    assert thread.code == 1
    assert "config.yaml:2:1" in thread.error["message"]
    assert "models" in thread.error["hint"]


def test_doctor_finds_nothing_in_a_sound_store(uwf: Uwf, root: Path) -> None:
    fresh = {each["check"]: each["status"] for each in uwf("doctor").json}
    assert fresh["store"] == "warning"
    uwf("thread", "start", write("pair.yaml", PAIR), "-p", "x")
    checks = uwf("doctor").json
    assert all(each.keys() == {"check", "status", "message", "hint"} for each in checks)
    assert {each["status"] for each in checks} == {"ok"}
    names = {each["check"] for each in checks}
    assert names >= {"uwf", "git", "libgit2", "root", "config", "agents", "store", "refs", "threads", "index"}
    assert "ok" in uwf("doctor", "--quick", "--format", "text").out


def test_doctor_names_what_is_wrong(uwf: Uwf, instance: Instance, config: Callable[[str], Path]) -> None:
    config("agents:\n  mine: { command: no-such-agent }\ndefaultAgent: main\n")
    checks = {(each["check"], each["status"]): each for each in uwf("doctor", check=1).json}
    assert "no-such-agent" in checks["agents", "error"]["message"]
    assert ":3:" in checks["config", "error"]["message"]

    config("providers:\n  openai: { baseUrl: 'https://example.invalid', apiKeyEnv: SOME_KEY }\n")
    (instance.location.root / ".env").write_text("OTHER=x\n")
    (instance.location.root / ".env").chmod(0o644)
    checks = {(each["check"], each["status"]): each for each in uwf("doctor").json}
    assert "SOME_KEY" in checks["keys", "warning"]["message"]
    assert ".env" in checks[".env", "warning"]["message"]
    assert (".env", "ok") in {(each["check"], each["status"]) for each in uwf("doctor", "--fix").json}
    assert (instance.location.root / ".env").stat().st_mode & 0o077 == 0


def test_without_a_git_identity_the_first_write_and_doctor_say_so(uwf: Uwf, hermetic: Path) -> None:
    (hermetic / ".gitconfig").write_text("")
    text = {"UWF_FORMAT": "text"}
    start = ("thread", "start", write("pair.yaml", PAIR), "-p", "x")
    assert "git config --global user.name" in uwf(*start, env=text).err
    assert "git config --global user.name" not in uwf(*start, env=text).err, "it says so once"
    [found] = [each for each in uwf("doctor").json if each["check"] == "identity"]
    assert found["status"] == "warning" and "@localhost>" in found["message"]
    uwf("doctor", env={"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.invalid"})


def test_a_project_that_becomes_a_store_says_what_stays_elsewhere_and_can_be_undone(
    uwf: Uwf, hermetic: Path
) -> None:
    text = {"UWF_STORAGE_ROOT": "", "UWF_FORMAT": "text"}
    subprocess.run(["git", "init", "-q", "project"], check=True)
    project = Path("project")
    quiet = uwf("init", "--here", cwd=project, env=text)
    assert "stay in" not in quiet.err, "there is nothing elsewhere"
    (project / ".git/uwf/format").unlink()
    uwf("thread", "start", write("pair.yaml", PAIR), "-p", "x", env=text)
    thread = uwf("thread", "list", "--json", env=text).json[0]["thread"]
    uwf("thread", "step", thread, "--agent", scripted(ASKS), env=text)
    said = uwf("init", "--here", cwd=project, env=text).err
    assert "1 open thread (1 waiting) stay in" in said
    command, _, undo = said.partition(" — ")[2].partition("; undo with: ")
    assert thread in uwf(*command.split()[1:], cwd=project, env=text).out
    assert thread not in uwf("inbox", "--all-projects", cwd=project, env=text).out
    subprocess.run(undo, shell=True, check=True)
    assert thread in uwf("inbox", "--all-projects", cwd=project, env=text).out


def test_doctor_removes_what_is_left_over(uwf: Uwf, instance: Instance) -> None:
    thread = uwf("thread", "start", write("pair.yaml", PAIR), "-p", "x").json["thread"]
    ref = instance.location.git_dir / "refs/uwf/threads" / thread
    commit = ref.read_text()
    uwf("thread", "kill", thread)
    ref.write_text(commit)  # as a crash between the two writes leaves it
    assert uwf("thread", "show", thread).json["status"] == "killed"
    assert uwf("thread", "list").json == []
    assert any(thread in each["message"] for each in uwf("doctor").json if each["status"] == "warning")
    assert ref.exists()
    uwf("doctor", "--fix")
    assert not ref.exists()


def test_doctor_sees_a_store_that_can_not_be_written(instance: Instance) -> None:
    objects = instance.location.git_dir / "objects"
    command = [*obeying_modes(), sys.executable, "-m", "uwf_cli.main", "doctor"]
    objects.chmod(0o555)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        objects.chmod(0o755)
    assert done.returncode == 1
    assert any(f"written in {objects}:" in each["message"] for each in json.loads(done.stdout))


def test_an_agent_that_is_neither_known_nor_a_program_is_not_set_up(uwf: Uwf, root: Path) -> None:
    refused = uwf("setup", "--agent", "uwf-bultin", check=2)
    assert refused.error["hint"] == 'did you mean "uwf-builtin"?'
    assert not (root / "config.yaml").exists()


def test_a_command_can_stand_where_an_agent_is_named(uwf: Uwf, root: Path) -> None:
    thread = uwf("thread", "start", write("pair.yaml", PAIR), "-p", "x").json["thread"]
    role = uwf("thread", "show", thread).json["next"]
    told = uwf("config", "set", "defaultAgent", "uwf-exec true --")
    assert told.err == ""
    assert uwf("config", "set", f"agentOverrides.pair.{role}", "uwf-exec sh -c 'exit 7'").err == ""
    assert uwf("thread", "step", thread).json["agent"] == "uwf-exec"
    # One word is a name, and the hint says how to make it one; a slip in a command is told too.
    hint = "add it: uwf config set agents.nosuchthing.command …"
    assert hint in uwf("config", "set", "defaultAgent", "nosuchthing").err
    assert '"uwf-exec"?' in uwf("config", "set", "defaultAgent", "uwf-exce /x/slow.sh 8").err
    assert "quot" in uwf("config", "set", "defaultAgent", "uwf-exec 'x").err


def test_all_settings_are_listed_without_a_key_and_people_are_told_where(uwf: Uwf, root: Path) -> None:
    uwf("config", "set", "defaultAgent", "uwf-llm")
    assert uwf("config", "get").json == uwf("config", "list").json == {"defaultAgent": "uwf-llm"}
    listed = uwf("config", "list", "--format", "text")
    assert listed.out == "defaultAgent  uwf-llm\n" and str(root / "config.yaml") in listed.err


def test_an_edited_configuration_is_checked_and_kept(
    uwf: Uwf, root: Path, script: Callable[[str, str], Path]
) -> None:
    for text, status in (("defaultAgent: uwf-llm\n", 0), ("defaultAgnt: uwf-llm\n", 1), ("a: [\n", 1)):
        editor = script("editor", f"import sys; open(sys.argv[1], 'w').write({text!r})\n")
        done = uwf("config", "edit", env={"EDITOR": str(editor)}, check=status)
        assert (root / "config.yaml").read_text() == text
        if status:
            assert done.error["code"] == "invalid" and "config.yaml" in done.error["message"]
        else:
            assert done.json == {"config": str(root / "config.yaml")}
    assert "false" in uwf("config", "edit", env={"EDITOR": "false"}, check=1).error["message"]
    missing = uwf("config", "edit", env={"EDITOR": "no-such-editor"}, check=1).error
    assert "no-such-editor" in missing["message"] and "EDITOR" in missing["hint"]


def test_a_setting_is_taken_back_and_comments_stay(uwf: Uwf, config: Callable[[str], Path]) -> None:
    path = config(
        "# mine\nagents:\n  # the first\n  mine:\n    command: my-agent  # fast\n    timeout: 10m\n"
        "    # a list\n    args:\n      - a\n      - b\n  other: {command: o, timeout: 5}\n"
        "# what is used\ndefaultAgent: mine # for now\nhooks:\n  waiting: |\n    a\n    b\n"
    )
    unset = uwf("config", "unset", "agents.mine.args").json
    assert (unset["key"], unset["value"]) == ("agents.mine.args", ["a", "b"])
    assert "# a list\n  other:" in path.read_text()
    assert uwf("config", "unset", "hooks").json["value"] == {"waiting": "a\nb\n"}
    uwf("config", "unset", "agents.mine.timeout")
    assert uwf("config", "unset", "defaultAgent").json["value"] == "mine"
    assert path.read_text() == (
        "# mine\nagents:\n  # the first\n  mine:\n    command: my-agent  # fast\n"
        "    # a list\n  other: {command: o, timeout: 5}\n# what is used\n"
    )
    # What is in braces is written anew; what is then empty goes too.
    uwf("config", "unset", "agents.other.timeout")
    assert uwf("config", "list").json == {"agents.mine.command": "my-agent", "agents.other.command": "o"}
    uwf("config", "unset", "agents.mine.command")
    uwf("config", "unset", "agents.other")
    assert path.read_text().startswith("# mine\n") and uwf("config", "list").json == {}
    assert uwf("config", "unset", "defaultAgent", check=3).error["message"] == "defaultAgent is not set"
    assert "defaultAgent" in uwf("config", "unset", "defaultAgnt", check=2).error["hint"]


def test_null_is_no_value_and_a_wrong_key_of_the_file_can_be_taken_out(
    uwf: Uwf, config: Callable[[str], Path]
) -> None:
    path = config("modls: {}\ndefaultAgent: uwf-human\n")
    uwf("config", "unset", "modls")
    assert path.read_text() == "defaultAgent: uwf-human\n"
    for key in ("defaultAgent", "agents.a.command", "agents"):
        refused = uwf("config", "set", key, "null", check=2)
        assert refused.error["hint"] == f"to unset it: uwf config unset {key}"
    path.write_text("agents: {a: {command: x}}\ndefaultAgent: a\n")
    assert '"a" is not configured' in uwf("config", "unset", "agents.a").err


def test_a_key_in_config_yaml_is_used_and_hidden_and_its_owner_is_told_to_move_it(
    uwf: Uwf, config: Callable[[str], Path], server: ModelServer, thread: str
) -> None:
    path = config(
        f"providers:\n  local: {{baseUrl: '{server.openai_url}', apiKey: {KEY}}}\n"
        "models:\n  small: {provider: local, name: tiny-1}\ndefaultModel: small\n"
    )
    server.play([Say(f"---\ntext: I know {KEY}\n---\n")])
    done = uwf("thread", "step", thread, "--agent", "uwf-llm")
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert "uwf config unset providers.local.apiKey" in done.err
    step = uwf("thread", "steps", thread).json[-1]
    assert step["output"] == {"text": "I know [redacted:providers.local.apiKey]"}
    for arguments in (
        ["list"],
        ["get", "providers"],
        ["get", "providers.local"],
        ["get", "providers.local.apiKey"],
    ):
        shown = uwf("config", *arguments)
        assert "[redacted]" in shown.out and KEY not in shown.out + shown.err
    (warned,) = [each for each in uwf("doctor").json if each["check"] == "keys"]
    assert warned["status"] == "warning" and "providers.local.apiKey" in warned["hint"]
    assert KEY not in uwf("config", "unset", "providers.local.apiKey").out
    assert KEY not in path.read_text()
