"""config.yaml: reading, finding what is wrong, resolving, and changing one setting."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.base.errors import Invalid, NotFound, Usage, UwfError
from uwf_git.config.edit import dotted, get_value, list_values, set_value, split_key, write_secret
from uwf_git.config.read import check_config, load_config
from uwf_git.config.resolve import resolve_agent, resolve_model
from uwf_git.config.secrets import load_secrets
from uwf_git.config.settings import AgentConfig, Model, Provider, parse_command
from uwf_git.ext.agents.cli.row import rows_of
from uwf_git.format.amounts import parse_duration
from uwf_git.format.casting import CastRole
from uwf_git.format.yaml12 import load

FULL = """\
# who does what on this machine
providers:
  openrouter:
    baseUrl: "https://openrouter.example/api/v1"  # no slash at the end
    apiKeyEnv: OPENROUTER_API_KEY
  local: { baseUrl: "http://localhost:11434/v1" }

models:
  sonnet:
    provider: openrouter
    name: vendor/sonnet-4
  small: { provider: local, name: small:3b }

agents:
  hermes:
    command: uwf-hermes
    args: []
    timeout: 10m
  cursor:
    command: bunx 'uwf cursor'
    args: ["--fast"]

defaultAgent: hermes
agentOverrides:
  solve-issue:
    developer: cursor
    reviewer: uwf-human
defaultModel: sonnet
modelOverrides:
  extract: small
"""


@pytest.fixture
def full(root: Path) -> Path:
    root.mkdir()
    (root / "config.yaml").write_text(FULL)
    return root


def test_a_missing_or_empty_file_is_an_empty_configuration(root: Path) -> None:
    for text in (None, "", "# nothing yet\n", "agents:\nproviders: {}\n"):
        if text is not None:
            root.mkdir(exist_ok=True)
            (root / "config.yaml").write_text(text)
        config = load_config(root)
        assert (config.agents, config.providers, config.default_agent) == ({}, {}, None)
        assert config.path == root / "config.yaml"
        stand_in = AgentConfig("uwf-rehearse", "uwf-rehearse", (), None, stands_in=True)
        assert resolve_agent(config, CastRole("any", "role")) == stand_in
        assert resolve_model(config, "extract") is None
        assert check_config(root) == []


def test_the_whole_file_is_read(full: Path) -> None:
    config = load_config(full)
    assert config.providers["openrouter"] == Provider(
        "openrouter", "https://openrouter.example/api/v1", "OPENROUTER_API_KEY"
    )
    assert config.providers["local"].api_key_env == ""
    assert config.models["small"] == Model("small", "local", "small:3b")
    assert config.agents["hermes"] == AgentConfig("hermes", "uwf-hermes", (), 600.0)
    assert config.agents["cursor"] == AgentConfig("cursor", "bunx", ("uwf cursor", "--fast"), None)
    assert check_config(full) == []


def test_an_override_wins_over_the_default_and_the_command_line_over_both(
    full: Path, script: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, program = load_config(full), script("my-agent", "pass")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert resolve_agent(config, CastRole("solve-issue", "developer")).alias == "cursor"
    assert resolve_agent(config, CastRole("solve-issue", "planner")).alias == "hermes"
    assert resolve_agent(config, CastRole("other", "developer")).alias == "hermes"
    assert resolve_agent(config, CastRole("solve-issue", "reviewer")).command == "uwf-human"
    assert resolve_agent(config, CastRole("solve-issue", "developer"), "hermes").timeout == 600.0
    assert resolve_agent(
        config, CastRole("solve-issue", "developer"), "my-agent --role 'a b'"
    ) == AgentConfig("my-agent", "my-agent", ("--role", "a b"), None)
    assert resolve_agent(config, CastRole("x", "y"), f"{program} -v").alias == "my-agent"
    assert resolve_agent(config, CastRole("x", "y"), "rehearse").command == "uwf-rehearse"


def test_a_model_is_found_by_override_then_by_scenario_then_by_default(full: Path) -> None:
    config = load_config(full)
    assert resolve_model(config, "extract") == Model("small", "local", "small:3b")
    assert resolve_model(config, "small") == config.models["small"]
    assert resolve_model(config, "anything") == config.models["sonnet"]
    none = config._replace(model_overrides={"extract": "none"})
    assert resolve_model(none, "extract") is None
    models = {"default": config.models["small"], "sonnet": config.models["sonnet"]}
    default = config._replace(model_overrides={}, models=models)
    assert resolve_model(default, "extract") == config.models["small"]
    assert resolve_model(default, "anything") == config.models["sonnet"]
    assert resolve_model(none, "anything") == config.models["sonnet"]


WRONG: dict[str, tuple[str, str, str, str]] = {
    # what: (file, place, message has, hint has)
    "a misspelt key": ("defaultAgnt: x", "1:1", 'unknown key "defaultAgnt"', '"defaultAgent"?'),
    "a misspelt field": ("agents:\n  a:\n    comand: x", "3:5", '"comand" in agents "a"', '"command"?'),
    "a secret": ("providers:\n  p: {api_key: sk-123}", "2:7", 'unknown key "api_key"', ".env"),
    "a secret for a name": ("providers:\n  p: {apiKeyEnv: sk-123}", "2:18", "not the name of", ".env"),
    "a limit of a provider that there is not": (
        "providers: {p: {limits: {perSecond: 2}}}",
        "1:25",
        'limits has no "perSecond"',
        "stepsPerSecond",
    ),
    "no number of steps": (
        "providers: {p: {limits: {concurrentSteps: 1.5}}}",
        "1:43",
        "concurrentSteps is not a whole number",
        "concurrentSteps: 4",
    ),
    "unknown marks": (
        "providers: {p: {cacheMarks: all}}",
        "1:29",
        "cacheMarks must be one of: anthropic, openai, none",
        "",
    ),
    "no address": ("providers: {p: {baseUrl: localhost}}", "1:26", "http://", "https://"),
    "a password in an address": (
        "providers: {p: {baseUrl: 'http://me:pw@x/v1'}}",
        "1:26",
        "password",
        "https://",
    ),
    "a section that is a list": ("agents: [a]", "1:9", "agents must be a mapping", ""),
    "an agent that is a text": ("agents: {a: uwf-a}", "1:13", 'agents "a" must be a mapping', ""),
    "an override without a workflow": ("agentOverrides: {developer: a}", "1:29", "must be a mapping", ""),
    "a number for a name": ("models: {m: {name: 4.1}}", "1:20", "name must be text", '"4.1"'),
    "an empty name": ("defaultModel: ''", "1:15", "empty", ""),
    "arguments as text": ("agents: {a: {command: c, args: -v}}", "1:32", "list of texts", ""),
    "a number among arguments": ("agents: {a: {command: c, args: [80]}}", "1:32", "list of texts", '"80"'),
    "a timeout of no time": ("agents: {a: {timeout: 0}}", "1:23", "timeout 0", "10m"),
    "a timeout in words": ("agents: {a: {timeout: soon}}", "1:23", "timeout soon", "10m"),
    "a pipe": ("agents: {a: {command: 'x | y'}}", "1:23", "needs a shell", "sh -c"),
    "an open quote": ('agents: {a: {command: "x \'y"}}', "1:23", "quotation", "quote"),
    "a key twice": ("agents: {}\nagents: {}", "2:1", "already in line 1", ""),
    "no YAML": ("agents: [", "2:1", "expected", ""),
    "a key that is a number": ("models: {4: {name: x}}", "1:10", "not text", '"4"'),
    "no mapping at all": ("- a", "1:1", "must be a mapping", ""),
    "an unprintable command": ('agents: {a: {command: "x\\u001b[0m"}}', "1:23", "unprintable", ""),
    "sessions": ("sessions: all\n", "1:11", "sessions must be: keep", "unset it"),
    "sessions as a switch": ("sessions: true\n", "1:11", "sessions must be text", "true"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refuses_with_file_line_and_hint(root: Path, case: str) -> None:
    text, place, says, hint = WRONG[case]
    root.mkdir()
    (root / "config.yaml").write_text(text)
    with pytest.raises(Invalid) as caught:
        load_config(root)
    message = caught.value.message
    assert message.startswith(f"{root / 'config.yaml'}:{place}: ") and message.isprintable()
    assert says in message and hint in caught.value.hint
    assert "sk-123" not in message + caught.value.hint and "me:pw" not in message + caught.value.hint


@pytest.mark.parametrize("hostile", ["folder", "big", "binary", "bomb"])
def test_a_file_that_is_no_configuration_gets_one_line(root: Path, hostile: str) -> None:
    root.mkdir()
    path = root / "config.yaml"
    if hostile == "folder":
        path.mkdir()
    elif hostile == "big":
        path.write_bytes(b"#" * (2 << 20))
    elif hostile == "binary":
        path.write_bytes(b"\x7fELF\0")
    else:
        lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20)]
        path.write_text("\n".join(lines))
    with pytest.raises(Invalid) as caught:
        load_config(root)
    assert "config.yaml" in caught.value.message and caught.value.message.isprintable()


def test_all_problems_are_listed_by_line(root: Path) -> None:
    root.mkdir()
    (root / "config.yaml").write_text(
        "models:\n  m: {provider: nobody}\nagents:\n  a: {timeout: 1s}\n"
        "defaultAgent: b\ndefaultModel: n\nmodelOverrides: {extract: m}\nfoo: 1\n"
    )
    problems = check_config(root)
    assert [problem.line for problem in problems] == [2, 2, 4, 5, 6, 8]
    with pytest.raises(Invalid, match=r"config.yaml:8:1: unknown key \"foo\"$"):
        load_config(root)


def test_a_name_that_leads_nowhere_is_an_error_when_it_is_needed(root: Path) -> None:
    root.mkdir()
    (root / "config.yaml").write_text(
        "agents: {hermes: {command: h}, empty: {}}\nmodels: {sonnet: {name: s}}\n"
        "defaultAgent: hermez\nagentOverrides: {w: {r: empty}}\ndefaultModel: sonet\nmodelOverrides: {x: sonnet}\n"
    )
    config = load_config(root)
    with pytest.raises(Invalid) as caught:
        resolve_agent(config, CastRole("any", "role"))
    assert "defaultAgent" in caught.value.message and '"hermes"?' in caught.value.hint
    with pytest.raises(Invalid, match="has no command"):
        resolve_agent(config, CastRole("w", "r"))
    with pytest.raises(Invalid) as caught:
        resolve_model(config, "y")
    assert '"sonnet"?' in caught.value.hint
    with pytest.raises(Invalid, match="has no provider"):
        resolve_model(config, "x")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(5, 5.0), (0.5, 0.5), ("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("1h 30m", 5400.0), ("250ms", 0.25),
     ("1.5h", 5400.0), ("2d", 172800.0), (0, None), (-1, None), (True, None), ("10", None), ("", None), ("m", None),
     ("10 minutes", None), ("-5s", None), (None, None), ([], None), (1e12, None), (float("nan"), None)],
)  # fmt: skip
def test_a_timeout_is_seconds_or_a_duration(text: Any, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "  ", "a 'b", "a | b", "a && b", "a > f", "a; b", "''"])
def test_a_command_that_only_a_shell_understands_is_a_usage_error(text: str) -> None:
    with pytest.raises(Usage) as caught:
        parse_command(text)
    assert caught.value.hint


def test_a_command_is_split_and_nothing_in_it_is_interpreted(hermetic: Path) -> None:
    assert parse_command("sh -c 'a | b; c > d' # x $HOME `id`") == (
        "sh", ("-c", "a | b; c > d", "#", "x", "$HOME", "`id`"),
    )  # fmt: skip


def test_setting_a_value_keeps_comments_and_everything_else(full: Path) -> None:
    set_value(full, "providers.openrouter.baseUrl", "https://elsewhere.example/v1")
    set_value(full, "agents.hermes.args", "--yolo 'two words'")
    set_value(full, "agents.hermes.timeout", "30")
    set_value(full, "agents.local.command", "uwf-llm")
    set_value(full, "models.gpt-4.1.name", "vendor/gpt-4.1")
    set_value(full, "agentOverrides.debate.judge", "local")
    set_value(full, "defaultModel", "small")
    text = (full / "config.yaml").read_text()
    assert text == FULL.replace("https://openrouter.example/api/v1", "https://elsewhere.example/v1").replace(
        "args: []", 'args: ["--yolo", "two words"]'
    ).replace("timeout: 10m", "timeout: 30").replace("defaultModel: sonnet", "defaultModel: small").replace(
        '    args: ["--fast"]\n', '    args: ["--fast"]\n  local:\n    command: uwf-llm\n'
    ).replace("name: small:3b }\n", "name: small:3b }\n  gpt-4.1:\n    name: vendor/gpt-4.1\n").replace(
        "reviewer: uwf-human\n", "reviewer: uwf-human\n  debate:\n    judge: local\n"
    )
    assert load_config(full).agents["hermes"].args == ("--yolo", "two words")


def test_settings_are_made_one_by_one_in_an_empty_root(root: Path) -> None:
    for key, value in (
        ("providers.p.baseUrl", "http://localhost:1/v1"), ("providers.p.apiKeyEnv", "P_KEY"),
        ("providers.p.limits.stepsPerSecond", "0.5"), ("providers.p.limits.wait", "20s"),
        ("providers.p.cacheMarks", "none"), ("models.m.provider", "p"), ("models.m.name", "1.0"), ("defaultModel", "m"),
        ("agents.a.command", "yes"), ("agents.a.args", "['1', no]"), ("agents.a.timeout", "2m"),
        ("defaultAgent", "a"), ("agentOverrides.w.r", "a"), ("modelOverrides.extract", "m"),
    ):  # fmt: skip
        set_value(root, key, value)
        load_config(root)
    assert check_config(root) == []
    assert load_config(root).providers["p"].cache_marks == "none"
    assert list_values(root) == {
        "providers.p.baseUrl": "http://localhost:1/v1", "providers.p.apiKeyEnv": "P_KEY",
        "providers.p.limits.stepsPerSecond": 0.5, "providers.p.limits.wait": "20s",
        "providers.p.cacheMarks": "none", "models.m.provider": "p",
        "models.m.name": "1.0", "defaultModel": "m", "agents.a.command": "yes", "agents.a.args": ["1", "no"],
        "agents.a.timeout": "2m", "defaultAgent": "a", "agentOverrides.w.r": "a", "modelOverrides.extract": "m",
    }  # fmt: skip
    assert [get_value(root, key) for key in list_values(root)] == list(list_values(root).values())


@pytest.mark.parametrize(
    ("key", "value", "error", "hint"),
    [
        ("agent.x.command", "c", Usage, '"agents"?'),
        ("agents.x.comand", "c", Usage, '"command"?'),
        ("providers.p.apiKey", "sk-123", Usage, ".env"),
        ("providers.p", "{apiKey: sk-123}", Usage, ".env"),
        ("providers", "{p: {apiKey: sk-123}}", Usage, ".env"),
        ("defaultAgent.x", "c", Usage, "defaultAgent"),
        ("", "c", Usage, "known"),
        ("agents.x.timeout", "soon", Invalid, "10m"),
        ("agents.x.command", "a | b", Invalid, "sh -c"),
        ("agents.x.args", "'open", Invalid, "quote"),
        ("agents.x.args", "[1]", Invalid, "quote"),
        ("providers.p.baseUrl", "localhost", Invalid, "https://"),
        ("providers.p.apiKeyEnv", "sk-123", Invalid, ".env"),
        ("models", "", Invalid, "{"),
        ("agents.x", "[a]", Invalid, "{"),
        ("defaultAgent", "", Invalid, ""),
        ("defaultAgent", "a\nb", Invalid, ""),
    ],
)
def test_what_cant_be_set_leaves_the_file_as_it_was(
    full: Path, key: str, value: str, error: type[UwfError], hint: str
) -> None:
    with pytest.raises(error) as caught:
        if key == "defaultAgent" and value == "":
            set_value(full, key, "  ")
        else:
            set_value(full, key, value)
    assert hint in caught.value.hint and "sk-123" not in caught.value.message
    assert (full / "config.yaml").read_text() == FULL


def test_an_unset_key_is_not_found_with_the_nearest_one(full: Path) -> None:
    with pytest.raises(NotFound) as caught:
        get_value(full, "agents.herms.command")
    assert caught.value.hint == 'did you mean "agents.hermes.command"?'
    with pytest.raises(Usage):
        get_value(full, "agnts")


keys = st.sampled_from(
    ["providers.p.baseUrl", "models.m.name", "models.a.b.name", "agents.x.command", "agents.x.timeout", "agents.x.args",
     "defaultAgent", "agentOverrides.w.r", "agentOverrides.w.s", "modelOverrides.extract", "modelOverrides.a.b"]
)  # fmt: skip
plain = st.text(
    st.characters(categories=("L", "N"), include_characters=" -_:#'\"{}[],&*!%@./~"), min_size=1, max_size=12
)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(keys, plain), max_size=5),
    st.sampled_from([FULL, "", "agents: {x: {command: c}} # flow\n"]),
)
def test_what_was_set_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], text: str
) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "config.yaml").write_text(text)
    expected = list_values(root)
    for key, value in pairs:
        try:
            made = set_value(root, key, value)
        except UwfError:
            continue
        assert get_value(root, key) == made
        expected = {
            **expected,
            **{name: item for name, item in list_values(root).items() if name not in expected},
        }
    assert list_values(root).keys() == expected.keys()
    load_config(root)


def test_two_processes_that_set_at_once_lose_nothing(root: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from uwf_git.config.edit import set_value, write_secret\n"
        "for n in range(10):\n"
        "    set_value(Path(sys.argv[1]), f'models.m{sys.argv[2]}{n}.name', 'x')\n"
        "    write_secret(Path(sys.argv[1]), f'K{sys.argv[2]}{n}', 'value')\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(root), name]) for name in "ab"]
    assert [process.wait() for process in running] == [0, 0]
    assert len(load_config(root).models) == 20
    assert len(load_secrets(root, None, {})) == 20
    assert {path.name for path in root.iterdir()} == {"config.yaml", ".env"}, (
        "no lock and no temporary file stays"
    )


def test_a_secret_goes_to_env_readable_by_its_owner_only(root: Path) -> None:
    root.mkdir()
    (root / ".env").write_text("# keys\nexport A=1\nB='old' # note\nC=\"multi\nline\"\n")
    (root / ".env").chmod(0o644)
    awkward = "a'b\"c\\d $HOME ${X} #e"
    assert write_secret(root, "B", awkward) == root / ".env"
    write_secret(root, "D", "new")
    assert (root / ".env").stat().st_mode & 0o777 == 0o600
    assert load_secrets(root, None, {}) == {"A": "1", "B": awkward, "C": "multi\nline", "D": "new"}
    assert (root / ".env").read_text().startswith("# keys\nexport A=1\n")
    assert not (root / "config.yaml").exists()


@pytest.mark.parametrize(
    ("name", "value"), [("a-b", "x"), ("", "x"), ("1A", "x"), ("A", ""), ("A", "x\ny"), ("A", "\x1b")]
)
def test_a_secret_that_no_env_file_can_hold_is_refused(root: Path, name: str, value: str) -> None:
    with pytest.raises(Invalid):
        write_secret(root, name, value)
    assert not (root / ".env").exists()


def test_a_folder_that_cant_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file, not a folder")
    with pytest.raises(Invalid, match="cannot be written"):
        set_value(tmp_path / "root", "defaultAgent", "a")


def test_a_file_that_is_a_link_stays_one(full: Path, tmp_path: Path) -> None:
    (full / "config.yaml").rename(tmp_path / "dotfiles.yaml")
    (full / "config.yaml").symlink_to(tmp_path / "dotfiles.yaml")
    set_value(full, "defaultAgent", "cursor")
    assert (full / "config.yaml").is_symlink()
    assert load((tmp_path / "dotfiles.yaml").read_text(), "x").data["defaultAgent"] == "cursor"


def test_a_row_of_an_agent_cli_is_filled_in_key_by_key_and_what_is_wrong_in_one_is_told(root: Path) -> None:
    set_value(root, "agentClis.new.program", "new")
    assert [problem.message for problem in check_config(root)] == [
        'agentClis "new": first is missing: the arguments of a first run, [] for none'
    ]
    assert rows_of(load_config(root)).broken.keys() == {"new"}
    with pytest.raises(Invalid, match="unknown key 'frist'"):
        set_value(root, "agentClis.new.frist", "[]")
    set_value(root, "agentClis.new.first", '[run, "{args}"]')
    assert not check_config(root) and not rows_of(load_config(root)).broken


def test_the_name_of_a_row_and_the_program_of_an_agent_that_ships_stand_for_their_agent(root: Path) -> None:
    for key, value in (("program", "parrot.py"), ("first", "[]")):
        set_value(root, f"agentClis.parrot.{key}", value)
    for alias, command in (("a", "parrot"), ("b", "claude"), ("c", "cursor-agent --force"), ("d", "codex")):
        set_value(root, f"agents.{alias}.command", command)
    set_value(root, "agents.a.args", "[--model, large]")
    config = load_config(root)
    assert [config.agents[alias][1:3] for alias in "abcd"] == [
        ("uwf-cli", ("parrot", "--model", "large")),
        ("uwf-claude-code", ()),
        ("uwf-cursor", ("--force",)),
        ("uwf-codex", ()),
    ]
    assert resolve_agent(config, CastRole("x", "y"), "parrot --loud")[1:3] == (
        "uwf-cli",
        ("parrot", "--loud"),
    )
    assert resolve_agent(config, CastRole("x", "y"), "claude")[1:3] == ("uwf-claude-code", ())


def test_a_misspelt_agent_is_no_program_and_the_name_that_is_meant_is_said(root: Path) -> None:
    config = load_config(root)
    with pytest.raises(Usage) as caught:
        resolve_agent(config, CastRole("x", "y"), "cluade-code --model opus")
    assert caught.value.hint == 'did you mean "claude-code"?'
    assert resolve_agent(config, CastRole("x", "y"), "codex --model o3").command == "uwf-codex"
    with pytest.raises(Usage) as caught:
        resolve_agent(config, CastRole("x", "y"), "/opt/nothing/there")
    assert caught.value.hint == "correct its path"


@given(st.text(min_size=1))
def test_a_key_is_written_as_it_is_read_whatever_a_folder_is_called(name: str) -> None:
    path = ("workspace", "projects", name, "copy")
    assert split_key(dotted(path), None) == path
