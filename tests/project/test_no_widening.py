"""No text of a project's set-up permits what the user's own configuration doesn't."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.base.errors import Invalid
from uwf_git.config.policy import REQUESTS, STANDARD
from uwf_git.config.project import layered, parse_settings
from uwf_git.config.read import load_config
from uwf_git.config.settings import Config
from uwf_git.format.yaml12 import dump

_NAMES = st.sampled_from(
    (
        "tests",
        "fixer",
        "mine",
        "claude-code",
        "claude",
        "uwf-codex",
        "uwf-exec",
        "uwf-acp",
        "a b",
        "bugfix",
        "x/y",
    )
)
_COMMANDS = st.sampled_from(
    (
        "uwf-exec",
        "uwf-exec make test",
        "exec make test",
        "uwf-workflow bugfix",
        "claude-code --dangerously",
        "uwf-acp evil",
        "sh -c evil",
        "/bin/evil",
        "uwf-claude-code",
        "mine",
    )
)
_AMOUNTS = st.sampled_from((1, 5, 100, "2h", "1TB", "none", True, False, None, -1, "shared", "worktree"))
_LEAVES = st.one_of(_NAMES, _COMMANDS, _AMOUNTS, st.lists(st.one_of(_NAMES, _COMMANDS), max_size=2))
_TOOLS = st.dictionaries(
    st.sampled_from(
        (
            "allow",
            "deny",
            "runCommand",
            "network",
            "allowUnconfined",
            "allowHosts",
            "permissions",
            "limits",
            "strict",
            "maxReadBytes",
            "maxWriteBytes",
        )
    ),
    st.one_of(
        st.booleans(),
        st.integers(0, 10**9),
        st.lists(
            st.sampled_from(("*", "run_command", "edit", "execute", "localhost", "10.0.0.1", "fetch_url"))
        ),
        st.just({"memory": "none"}),
    ),
    max_size=4,
)
_SECTION = st.dictionaries(
    st.one_of(
        _NAMES,
        st.sampled_from(
            (
                "command",
                "args",
                "timeout",
                "limits",
                "tools",
                "kind",
                "setup",
                "copy",
                "remote",
                "author",
                "signOff",
                "projects",
                "default",
                "workflows",
                "unpriced",
                "onto",
                "checks",
                "comment",
                "baseUrl",
                "apiKey",
            )
        ),
    ),
    st.one_of(_LEAVES, st.dictionaries(_NAMES, _LEAVES, max_size=2), _TOOLS),
    max_size=3,
)
_USUAL = {
    "agents": st.dictionaries(_NAMES, st.fixed_dictionaries({"command": _COMMANDS}), max_size=2),
    "agentOverrides": st.dictionaries(
        _NAMES, st.dictionaries(_NAMES, _NAMES | _COMMANDS, max_size=2), max_size=2
    ),
    "defaultAgent": _NAMES,
    "tools": _TOOLS,
    "budgets": st.fixed_dictionaries(
        {"default": st.dictionaries(st.sampled_from(("maxSteps", "maxTokens")), st.integers(1, 10**9))}
    ),
    "workspace": st.fixed_dictionaries(
        {}, optional={"kind": st.sampled_from(("worktree", "folder", "shared")), "setup": _COMMANDS}
    ),
    "land": st.fixed_dictionaries({}, optional={"onto": _NAMES, "comment": st.booleans()}),
    "budget": st.just({"unpriced": "stop"}),
}
_SECTIONS = (
    "providers",
    "models",
    "hooks",
    "mcpServers",
    "bundles",
    "judges",
    "forges",
    "agentClis",
    *_USUAL,
)
_TEXTS = ("secrets", "notSecrets", "node", "sessions", "permissionWait", "maxAgents")
_SETUPS = st.one_of(
    *(st.fixed_dictionaries({key: usual}) for key, usual in _USUAL.items()),
    st.fixed_dictionaries({}, optional=_USUAL),
    st.dictionaries(st.sampled_from(_SECTIONS), _SECTION, max_size=2),
    st.dictionaries(st.sampled_from(_TEXTS), _LEAVES, max_size=1),
)
_YOURS = (
    "",
    "tools: {runCommand: true, network: true, permissions: [read, 'edit:src/*'], allowHosts: [docs.python.org]}\n"
    "budgets: {default: {maxSteps: 50}}\nworkspace: {kind: worktree, setup: make mine}\n"
    "agents: {mine: {command: claude-code, args: [--model, opus], tools: {permissions: [edit], deny: [fetch_url]}}}\n"
    "agentOverrides: {bugfix: {fixer: mine}}\ndefaultAgent: mine\nland: {onto: release}\nbudget: {unpriced: stop}\n",
)
_SAME = (
    *(
        "providers",
        "models",
        "model_overrides",
        "default_model",
        "forges",
        "forge_apis",
        "trackers",
        "tracker_apis",
    ),
    *(
        "tools",
        "budgets",
        "named_agents",
        "secrets",
        "not_secrets",
        "hooks",
        "node",
        "workflow_paths",
        "max_agents",
    ),
    *("keeps_sessions", "views", "permission_wait", "path"),
)


@pytest.fixture(scope="module", params=_YOURS, ids=("no configuration", "a configuration"))
def yours(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config]:
    root = tmp_path_factory.mktemp("root")
    (root / "config.yaml").write_text(request.param)
    return root, load_config(root)


@settings(max_examples=150, deadline=None)
@given(data=_SETUPS)
def test_no_set_up_permits_more_than_the_user_does(yours: tuple[Path, Config], data: dict[str, Any]) -> None:
    root, own = yours
    try:
        project = parse_settings(dump(data).encode())
    except Invalid:
        return  # so nothing of it counts
    config = layered(root, own, project)
    for field in _SAME:
        assert getattr(config, field) == getattr(own, field), field
    assert config.stops_unpriced >= own.stops_unpriced
    assert all(config.agents[name] == agent for name, agent in own.agents.items())
    assert all(
        agent.command in ("uwf-exec", "uwf-workflow")
        for name, agent in config.agents.items()
        if name not in own.agents
    )
    assert all(agent.tools is None for name, agent in config.agents.items() if name not in own.agents)
    for workflow, roles in own.agent_overrides.items():
        assert roles.items() <= config.agent_overrides[workflow].items()
    assert own.default_agent in (None, config.default_agent)
    assert config.workspace.kind != "shared" and own.workspace.setup in ((), config.workspace.setup)
    assert (
        config.workspace.remote == own.workspace.remote
        and config.workspace.projects == own.workspace.projects
    )
    assert (config.workspace.author, config.workspace.sign_off) == (
        own.workspace.author,
        own.workspace.sign_off,
    )
    land, mine = config.sections.get("land"), own.sections.get("land")
    assert mine is None or (land is not None and land.onto == mine.onto)
    assert land is None or land.comment is False
    assert {key: value for key, value in config.sections.items() if key != "land"} == {
        key: value for key, value in own.sections.items() if key != "land"
    }
    for source, limits in own.budgets_by_source("bugfix"):
        assert (source, limits) in config.budgets_by_source("bugfix")
    for agent in (None, *own.agents.values()):
        of_agent = agent.tools if agent is not None else None
        before, after = own.policy(of_agent), config.policy(of_agent)
        assert {tool for tool in STANDARD if after.permits(tool)} <= {
            tool for tool in STANDARD if before.permits(tool)
        }
        kinds = (*REQUESTS, "edit:src/a", "execute:make")
        assert {kind for kind in kinds if after.grants(kind)} <= {
            kind for kind in kinds if before.grants(kind)
        }
        assert not (after.network and not before.network)
        assert not (after.allow_unconfined and not before.allow_unconfined)
        assert before.limits == after.limits
        for host in ("localhost", "10.0.0.1", "docs.python.org", "example.org"):
            for is_public in (True, False):
                assert before.reaches(host, 80, is_public) or not after.reaches(host, 80, is_public)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("hooks: {failed: evil}", "hooks"),
        ("providers: {openai: {baseUrl: https://evil.example}}", "providers"),
        ("mcpServers: {a: {command: [evil]}}", "mcpServers"),
        ("agents: {claude-code: {command: uwf-exec evil}}", "claude-code"),
        ("agents: {claude: {command: uwf-exec evil}}", "claude"),
        ("agents: {a: {command: sh -c evil}}", "sh -c evil"),
        (
            "agents: {a: {command: uwf-claude-code, args: [--dangerously-skip-permissions]}}",
            "uwf-claude-code",
        ),
        ("agents: {a: {command: uwf-exec x, tools: {runCommand: true}}}", "agents.a.tools"),
        ("agentOverrides: {w: {r: claude-code --dangerously-skip-permissions}}", "claude-code --dangerously"),
        ("agentOverrides: {w: {r: ./evil}}", "./evil"),
        ("defaultAgent: /bin/sh", "/bin/sh"),
        ("workspace: {kind: shared}", "shared"),
        ("workspace: {remote: evil}", "workspace.remote"),
        ("workspace: {copy: [../../.ssh]}", "../../.ssh"),
        ("workspace: {projects: {~/src: {setup: evil}}}", "workspace.projects"),
        ("tools: {allowHosts: [localhost]}", "allowHosts"),
        ("tools: {limits: {memory: none}}", "limits"),
        ("tools: {network: true}", "network"),
        ("land: {comment: true}", "land.comment"),
        ("budget: {unpriced: warn}", "unpriced"),
        ("notSecrets: [DEPLOY_TOKEN]", "notSecrets"),
        ("[1, 2]", "must be a mapping"),
        ("a: &a [1]\nb: &b [*a, *a]\nc: [*b, *missing]", "missing"),
        (
            "\n".join(
                [f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 20)}]" if n else "k0: &k0 x" for n in range(9)]
            ),
            "expand",
        ),
    ],
)
def test_what_is_the_users_alone_is_refused_with_its_line(text: str, named: str) -> None:
    with pytest.raises(Invalid) as error:
        parse_settings(text.encode())
    assert named in f"{error.value.message} {error.value.hint}" and ".uwf/config.yaml:" in error.value.message


def test_a_projects_commands_get_no_secrets_that_were_meant_for_the_users(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    project = parse_settings(b"workspace: {setup: evil}\nland: {checks: [evil]}\n")
    for mine, gets in (("", ()), ("setup: make deps, ", ("NPM_TOKEN",))):
        text = f"secrets: [NPM_TOKEN]\nworkspace: {{{mine}env: [NPM_TOKEN]}}\nland: {{env: [NPM_TOKEN]}}\n"
        (root / "config.yaml").write_text(text)
        config = layered(root, load_config(root), project)
        assert config.workspace.env == gets and config.sections["land"].env == ()


def test_users_settings_win_key_by_key(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    (root / "config.yaml").write_text("agentOverrides: {bugfix: {fixer: codex}}\nworkspace: {copy: [.env]}\n")
    project = parse_settings(
        json.dumps(
            {
                "agents": {"tests": {"command": "uwf-exec make test"}},
                "agentOverrides": {"bugfix": {"fixer": "claude-code", "tests": "tests"}},
                "workspace": {"copy": ["a"], "setup": "make deps"},
                "budgets": {"default": {"maxCost": 3}},
            }
        ).encode()
    )
    config = layered(root, load_config(root), project)
    assert config.agent_overrides == {"bugfix": {"fixer": "codex", "tests": "tests"}}
    assert (config.workspace.copy, config.workspace.setup) == ((".env",), ("make", "deps"))
    assert config.file_of("agentOverrides", "bugfix", "fixer") == "config.yaml"
    assert config.file_of("agentOverrides", "bugfix", "tests") == ".uwf/config.yaml"
    assert config.budgets_by_source("x") == [(".uwf/config.yaml", {"maxCost": 3})]


@pytest.mark.parametrize("name", ["bugfix", "develop", "release"])
def test_the_settings_that_a_template_advises_may_be_a_projects(name: str) -> None:
    readme = (REPOSITORY / "cli/uwf_cli/templates" / name / "README.md").read_text(encoding="utf-8")
    project = parse_settings(readme.partition("```yaml\n")[2].partition("```")[0].encode())
    assert name in project.data["agentOverrides"]
