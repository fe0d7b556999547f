"""The commands and where each is."""

from __future__ import annotations

from typing import Any

import click

from uwf_cli.command import Group
from uwf_git import __version__


def _version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        click.echo(f"uwf {__version__}")
        context.exit()


_VERSION: Any = click.Option(
    ["--version", "-V"],
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Print the version.",
)

workflow = Group(
    "workflow",
    {
        "put": "workflow:put",
        "show": "workflow:show",
        "list": "workflow:list_",
        "history": "workflow:history",
        "diff": "workflow:diff",
        "rollback": "workflow:rollback",
        "propose": "review:propose",
        "accept": "review:accept",
        "trust": "review:trust",
        "untrust": "review:untrust",
        "graph": "workflow:graph",
        "validate": "workflow:validate",
        "rehearse": "workflow:rehearse",
        "rm": "workflow:rm",
    },
    examples=(
        "uwf workflow validate solve-issue.yaml",
        "uwf workflow put solve-issue.yaml",
        "uwf workflow graph solve-issue",
    ),
    help="Register workflows, look at them, try them out.",
)

crew = Group(
    "crew",
    {
        "import": "crews.commands:import_",
        "show": "crews.commands:show",
        "menu": "crews.entry:menu",
        "route": "crews.entry:route",
        "do": "crews.entry:do",
        "list": "crews.commands:list_",
        "history": "crews.commands:history",
        "rollback": "crews.commands:rollback",
        "export": "crews.commands:export",
        "propose": "crews.commands:propose",
        "accept": "crews.commands:accept",
        "rm": "crews.commands:rm",
    },
    examples=(
        "uwf crew import trip.bmad",
        "uwf crew show trip",
    ),
    help="Personas with menus, and the workflows they start.",
)

thread = Group(
    "thread",
    {
        "start": "thread:start",
        "step": "running:step",
        "run": "running:run",
        "show": "reading:show",
        "list": "listing:list_",
        "steps": "reading:steps",
        "read": "reading:read",
        "step-details": "reading:step_details",
        "turns": "conversation:turns",
        "prompt": "conversation:prompt",
        "attempts": "reading:attempts",
        "budget": "spending:budget",
        "fork": "thread:fork",
        "answer": "asking:answer",
        "pause": "asking:pause",
        "resume": "asking:resume",
        "kill": "thread:kill",
        "rm": "thread:rm",
        "restore": "thread:restore",
        "diff": "reading:diff",
        "log": "reading:log",
    },
    examples=(
        'uwf thread start solve-issue -p "Fix the login bug"',
        "uwf thread run 01JK7M",
        "uwf thread read 01JK7M",
    ),
    help="Start runs of a workflow, step them, read them.",
)

cas_schema = Group(
    "schema",
    {"list": "cas:schema_list", "get": "cas:schema_get"},
    examples=("uwf cas schema list", "uwf cas schema get StepNode"),
    help="The types of nodes.",
)

cas = Group(
    "cas",
    {
        "put": "cas:put",
        "get": "cas:get",
        "has": "cas:has",
        "refs": "cas:refs",
        "walk": "cas:walk",
        "hash": "cas:hash_",
        "reindex": "cas:reindex",
        "schema": cas_schema,
    },
    examples=(
        "uwf cas get 4KNM2PXR3B1QW",
        "uwf cas put Text '\"hello\"'",
    ),
    help="The nodes underneath, by hash.",
)

agent = Group(
    "agent",
    {"list": "agent:list_", "check": "agent:check"},
    examples=("uwf agent list", "uwf agent check claude-code"),
    help="Which agents there are, and whether they answer.",
)

config = Group(
    "config",
    {"get": "config:get", "set": "config:set_", "unset": "config:unset", "list": "config:list_"},
    examples=(
        "uwf config list",
        "uwf config get defaultAgent",
        "uwf config set agents.claude.command my-agent",
    ),
    help="Read and change config.yaml in the storage root.",
)

publish = Group(
    "publish",
    {"thread": "review:thread", "workflow": "review:workflow", "crew": "review:crew"},
    examples=("uwf publish thread 01JK7M", "uwf publish workflow solve-issue", "uwf publish crew trip"),
    help="Put threads, workflows and crews on branches of a remote, for review.",
)

remote = Group(
    "remote",
    {"add": "sharing:add", "list": "sharing:list_", "rm": "sharing:rm"},
    examples=("uwf remote add origin git@example.com:team/threads.git", "uwf remote list"),
    help="Where threads are shared with others.",
)

trace = Group(
    "trace",
    {"export": "spending:export"},
    examples=("uwf trace export 01JK7M --out trace.json",),
    help="Threads as traces, for the tools that show those.",
)

uwf = Group(
    "uwf",
    {
        "init": "store:init",
        "workflow": workflow,
        "crew": crew,
        "run": "thread:start_and_run",
        "thread": thread,
        "chat": "crews.session:chat",
        "ps": "running:ps",
        "grep": "listing:grep",
        "inbox": "asking:inbox",
        "cas": cas,
        "extract": "cas:extract",
        "remote": remote,
        "push": "sharing:push",
        "pull": "sharing:pull",
        "clone": "sharing:clone",
        "bundle": "sharing:bundle",
        "unbundle": "sharing:unbundle",
        "publish": publish,
        "unpublish": "review:unpublish",
        "export": "review:export",
        "import": "store:import_",
        "agent": agent,
        "setup": "config:setup",
        "config": config,
        "mcp": "mcp:mcp",
        "stats": "spending:stats",
        "trace": trace,
        "doctor": "store:doctor",
        "debug": "store:debug",
        "gc": "store:gc",
        "verify": "verify:verify",
        "completion": "config:completion",
    },
    examples=(
        "uwf workflow put solve-issue.yaml            register a workflow",
        'uwf thread start solve-issue -p "Fix it"     start a run; prints its id',
        "uwf thread run 01JK7M                        step it until it ends or asks",
        "uwf thread read 01JK7M                       read what happened",
        "",
        "Nothing has to be configured: without an agent of your own, uwf-rehearse makes",
        "up the answers. Bring a model with: uwf setup",
    ),
    help="Workflows for agents, kept in git. Ids and hashes may be shortened while they are unique.",
)
uwf.params.insert(0, _VERSION)
