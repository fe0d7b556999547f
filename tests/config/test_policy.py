"""The one merge of what tools an agent has: nobody below the configuration can widen it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.config.policy import CONFIGURATION, ROLE, STANDARD, Source, ToolPolicy, parse_policy, tighten

NAMES = [*STANDARD, "mcp/files/read", "mcp/files/write"]


def policy(value: Any = None, source: Source = CONFIGURATION) -> ToolPolicy:
    parsed, problems = parse_policy(value, source)
    assert problems == []
    return parsed


def test_without_a_policy_every_tool_but_commands_is_there() -> None:
    assert [name for name in NAMES if not policy().permits(name)] == ["run_command"]
    assert policy({"runCommand": True}).permits("run_command")
    assert not policy({"allow": ["run_command"]}).permits("run_command")


def test_deny_wins_and_an_empty_list_allows_nothing() -> None:
    chosen = policy({"allow": ["read_file", "mcp/*"], "deny": ["mcp/*/write"]})
    assert [name for name in NAMES if chosen.permits(name)] == ["read_file", "mcp/files/read"]
    assert not any(policy({"allow": []}).permits(name) for name in NAMES)


def test_a_role_narrows_what_the_configuration_allows() -> None:
    local = policy({"allow": ["*_file", "grep"], "runCommand": True, "network": True})
    agent = policy({"deny": ["edit_file"]})
    role = policy({"allow": ["read_file", "edit_file", "glob"], "runCommand": False, "network": False}, ROLE)
    merged = tighten(local, agent, role)
    assert [name for name in NAMES if merged.permits(name)] == ["read_file"]
    assert (merged.run_command, merged.network) == (False, False)
    assert not tighten(local, agent, policy({"deny": ["*"]}, ROLE)).permits("read_file")


@pytest.mark.parametrize(
    ("local", "agent", "on"),
    [(None, None, None), (True, None, True), (None, True, True), (False, True, False), (True, False, False)],
)
def test_a_switch_is_on_where_the_configuration_says_so_and_nowhere_no(
    local: bool | None, agent: bool | None, on: bool | None
) -> None:
    merged = tighten(ToolPolicy(run_command=local), ToolPolicy(run_command=agent))
    assert merged.run_command is on
    assert (
        tighten(ToolPolicy(run_command=local), ToolPolicy(run_command=agent), ToolPolicy(run_command=True))
        == merged
    )


switches = st.none() | st.booleans()
globs = st.lists(st.sampled_from([*NAMES, "*", "mcp/*", "*_file", "read", "execute"]), max_size=3).map(tuple)
layers = st.lists(globs, max_size=2).map(tuple)
hosts = st.lists(
    st.lists(st.sampled_from(["*", "127.0.0.1", "docs.example.org", "*.example.org"]), max_size=2).map(tuple),
    max_size=2,
).map(tuple)
policies = st.builds(ToolPolicy, layers, globs, switches, switches, switches, hosts, layers)


@given(policies, policies, policies)
@settings(max_examples=60)
def test_no_role_widens_what_the_configuration_allows(
    local: ToolPolicy, agent: ToolPolicy, role: ToolPolicy
) -> None:
    before, after = tighten(local, agent), tighten(local, agent, role)
    assert all(before.permits(name) for name in NAMES if after.permits(name))
    assert not (after.network and not before.network)
    assert not (after.allow_unconfined and not before.allow_unconfined)
    assert all(before.grants(kind) for kind in ("read", "execute") if after.grants(kind))
    for host in ("127.0.0.1", "docs.example.org", "example.net"):
        for public in (True, False):
            # A role can't hold allowHosts (see below), so a list of it can't name a private address.
            bare = after._replace(
                allow_hosts=tighten(local, agent, role._replace(allow_hosts=())).allow_hosts
            )
            assert before.reaches(host, 80, public) or not bare.reaches(host, 80, public)
    # What the model is told is what is enforced.
    told = after.describe(NAMES).split("\n")[0].removeprefix("Your tools: ").rstrip(".")
    assert [name for name in told.split(", ") if name] == [name for name in NAMES if after.permits(name)]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"runCommand": True}, "runCommand: a workflow can only switch it off"),
        ({"allowHosts": ["example.org"]}, "allowHosts belongs into config.yaml"),
        ({"allowUnconfined": True}, "allowUnconfined belongs into config.yaml"),
        ({"alow": []}, 'unknown key "alow" in tools (did you mean "allow"?)'),
        ({"deny": ["fetch_ulr"]}, 'deny: unknown tool "fetch_ulr" (did you mean "fetch_url"?)'),
        ({"deny": {"a": 1}}, "deny must be a list of names"),
        ({"network": "no"}, "network must be true or false"),
        (["read_file"], "tools must be a mapping"),
    ],
)
def test_what_a_role_may_not_say_is_named(value: Any, problem: str) -> None:
    parsed, problems = parse_policy(value, ROLE)
    assert [problem in said for said in problems] == [True]
    assert not tighten(policy({"runCommand": False}), None, parsed).run_command


def test_a_list_that_can_not_be_read_counts_as_the_strictest() -> None:
    for value in ({"allow": 7}, {"deny": 7}, 7):
        assert not parse_policy(value)[0].permits("read_file")


def test_hosts_that_are_not_public_have_to_be_named_without_a_wildcard() -> None:
    chosen = policy({"allowHosts": ["*", "localhost:8000", "[::1]"]})
    assert chosen.reaches("docs.example.org", 443, True)
    assert chosen.reaches("LOCALHOST", 8000, False)
    assert chosen.reaches("[::1]", 80, False)
    assert not chosen.reaches("localhost", 8001, False)
    assert not policy({"allowHosts": ["*.example.org"]}).reaches("example.net", 443, True)
    assert not policy().reaches("127.0.0.1", 80, False)
    assert "is not a host" in parse_policy({"allowHosts": ["http://example.org/"]})[1][0]


def test_nothing_is_granted_unasked_unless_the_configuration_lists_it() -> None:
    assert not policy().grants("read")
    assert tighten(policy(), policy({"permissions": ["read", "edit"]})).grants("edit")
    assert not tighten(policy({"permissions": ["read"]}), policy({"permissions": ["*"]})).grants("edit")


def test_the_description_says_whether_commands_are_confined() -> None:
    chosen = policy({"runCommand": True})
    assert "sandbox, without network" in chosen.describe(confined=True)
    assert "refused: this machine has no sandbox" in chosen.describe(confined=False)
    assert "unconfined" in policy({"runCommand": True, "allowUnconfined": True}).describe(confined=False)
    assert policy({"allow": []}).describe() == ""
    assert "public hosts" not in policy({"allowHosts": ["docs.python.org"]}).describe()
