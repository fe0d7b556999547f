"""The command tree."""

from __future__ import annotations

from typing import Any

import click

from uwf_cli.command import CommandEntry, Group
from uwf_git.base.version import VERSION


def _version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        click.echo(f"uwf {VERSION}")
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
        "put": CommandEntry("uwf_cli.commands.workflow:put", "Register a workflow under its name."),
        "show": CommandEntry(
            "uwf_cli.commands.workflow:show", "Show a workflow's roles, conditions and graph."
        ),
        "list": CommandEntry("uwf_cli.commands.workflow:list_", "List registered workflows."),
        "history": CommandEntry(
            "uwf_cli.commands.workflow:history", "List a workflow's versions, newest first."
        ),
        "diff": CommandEntry("uwf_cli.commands.workflow:diff", "Show the differences between two versions."),
        "rollback": CommandEntry("uwf_cli.commands.workflow:rollback", "Restore an older version."),
        "propose": CommandEntry(
            "uwf_cli.commands.review:propose", "Propose a version without registering it."
        ),
        "accept": CommandEntry("uwf_cli.commands.review:accept", "Register a proposed version."),
        "graph": CommandEntry(
            "uwf_cli.commands.workflow:graph", "Draw a workflow's graph (Mermaid, Graphviz)."
        ),
        "validate": CommandEntry("uwf_cli.commands.workflow:validate", "Report all problems of a workflow."),
        "rehearse": CommandEntry(
            "uwf_cli.commands.workflow:rehearse", "Walk a workflow's graph with generated outputs."
        ),
        "rm": CommandEntry("uwf_cli.commands.workflow:rm", "Unregister a workflow (history is kept)."),
    },
    examples=(
        "uwf workflow validate solve-issue.yaml",
        "uwf workflow put solve-issue.yaml",
        "uwf workflow graph solve-issue",
    ),
    help="Register, inspect and check workflows.",
)

thread = Group(
    "thread",
    {
        "start": CommandEntry("uwf_cli.commands.thread:start", "Start a thread; no step is run yet."),
        "step": CommandEntry("uwf_cli.commands.running:step", "Run one step."),
        "run": CommandEntry("uwf_cli.commands.running:run", "Run until the thread ends, waits or fails."),
        "wait": CommandEntry("uwf_cli.commands.waiting:wait", "Wait until threads are at rest."),
        "stop": CommandEntry("uwf_cli.commands.waiting:stop", "Stop the processes that run threads."),
        "show": CommandEntry("uwf_cli.commands.reading:show", "Show a thread's status and next role."),
        "list": CommandEntry("uwf_cli.commands.listing:list_", "List threads, newest first."),
        "steps": CommandEntry("uwf_cli.commands.reading:steps", "List a thread's steps and outputs."),
        "read": CommandEntry("uwf_cli.commands.reading:read", "Print a thread as Markdown."),
        "step-details": CommandEntry(
            "uwf_cli.commands.reading:step_details", "Show a step or attempt with all turns."
        ),
        "turns": CommandEntry(
            "uwf_cli.commands.conversation:turns", "Show an agent's messages and tool calls."
        ),
        "prompt": CommandEntry("uwf_cli.commands.conversation:prompt", "Print the prompt of a step."),
        "attempts": CommandEntry("uwf_cli.commands.reading:attempts", "List a thread's failed attempts."),
        "budget": CommandEntry("uwf_cli.commands.spending:budget", "Show or raise a thread's budget."),
        "fork": CommandEntry("uwf_cli.commands.thread:fork", "Fork a thread at any step."),
        "answer": CommandEntry("uwf_cli.commands.asking:answer", "Answer a waiting thread."),
        "say": CommandEntry("uwf_cli.commands.asking:say", "Add a remark to a thread."),
        "pause": CommandEntry("uwf_cli.commands.asking:pause", "Pause threads."),
        "resume": CommandEntry(
            "uwf_cli.commands.asking:resume", "Resume paused threads; continue finished ones."
        ),
        "kill": CommandEntry("uwf_cli.commands.thread:kill", "Kill threads and their running agents."),
        "rm": CommandEntry("uwf_cli.commands.thread:rm", "Remove threads and their attempts."),
        "restore": CommandEntry("uwf_cli.commands.thread:restore", "Restore removed threads."),
        "diff": CommandEntry("uwf_cli.commands.reading:diff", "Show where two threads diverge."),
        "log": CommandEntry("uwf_cli.commands.reading:log", "List a thread's commits, newest first."),
    },
    examples=(
        'uwf thread start solve-issue -p "Fix the login bug"',
        "uwf thread run 01JK7M",
        "uwf thread read 01JK7M",
    ),
    help="Start, run and read threads.",
)

workspace = Group(
    "workspace",
    {
        "list": CommandEntry("uwf_cli.commands.workspace:list_", "List worktrees and folders of threads."),
        "path": CommandEntry("uwf_cli.commands.workspace:path", "Print a thread's folder."),
        "remove": CommandEntry(
            "uwf_cli.commands.workspace:remove", "Remove worktrees; commits and branches are kept."
        ),
    },
    examples=("uwf workspace list", "cd $(uwf workspace path @)", "uwf workspace remove 01JK7M"),
    help="Find and remove the folders that threads work in.",
)

cas_schema = Group(
    "schema",
    {
        "list": CommandEntry("uwf_cli.commands.cas:schema_list", "List the node types."),
        "get": CommandEntry("uwf_cli.commands.cas:schema_get", "Print the JSON Schema of a type."),
    },
    examples=("uwf cas schema list", "uwf cas schema get StepNode"),
    help="Show node types.",
)

cas = Group(
    "cas",
    {
        "put": CommandEntry("uwf_cli.commands.cas:put", "Store a node and print its hash."),
        "get": CommandEntry("uwf_cli.commands.cas:get", "Print a node."),
        "has": CommandEntry("uwf_cli.commands.cas:has", "Check whether a node exists."),
        "refs": CommandEntry("uwf_cli.commands.cas:refs", "List the nodes that a node references."),
        "walk": CommandEntry("uwf_cli.commands.cas:walk", "List every node reachable from a node."),
        "hash": CommandEntry("uwf_cli.commands.cas:hash_", "Compute the hash of a node."),
        "reindex": CommandEntry("uwf_cli.commands.cas:reindex", "Rebuild the local index."),
        "schema": cas_schema,
    },
    examples=(
        "uwf cas get 4KNM2PXR3B1QW",
        "uwf cas put Text '\"hello\"'",
    ),
    help="Read and write nodes by hash.",
)

agent = Group(
    "agent",
    {
        "put-step": CommandEntry(
            "uwf_cli.commands.agent:put_step", "Record an agent's answer without the kit."
        ),
    },
    examples=("uwf agent list", "uwf agent check claude-code"),
    help="List and check agents.",
)

config = Group(
    "config",
    {
        "get": CommandEntry("uwf_cli.commands.config:get", "Print a setting, a section or all settings."),
        "set": CommandEntry("uwf_cli.commands.config:set_", "Set a value."),
        "unset": CommandEntry("uwf_cli.commands.config:unset", "Remove a setting or a whole section."),
        "list": CommandEntry("uwf_cli.commands.config:list_", "List all settings."),
        "edit": CommandEntry("uwf_cli.commands.config:edit", "Open config.yaml in your editor and check it."),
    },
    examples=(
        "uwf config list",
        "uwf config get defaultAgent",
        "uwf config set agents.claude.command my-agent",
    ),
    help="Read and change config.yaml.",
)

publish = Group(
    "publish",
    {
        "thread": CommandEntry("uwf_cli.commands.review:thread", "Push a thread to a branch for review."),
        "workflow": CommandEntry(
            "uwf_cli.commands.review:workflow", "Push a workflow to a branch for review."
        ),
    },
    examples=("uwf publish thread 01JK7M", "uwf publish workflow solve-issue", "uwf publish crew trip"),
    help="Push threads and definitions to branches for review.",
)

remote = Group(
    "remote",
    {
        "add": CommandEntry("uwf_cli.commands.sharing:add", "Add a remote."),
        "list": CommandEntry("uwf_cli.commands.sharing:list_", "List the remotes."),
        "rm": CommandEntry("uwf_cli.commands.sharing:rm", "Remove a remote."),
        "accept-rewrite": CommandEntry(
            "uwf_cli.commands.sharing:accept_rewrite", "Adopt history that a remote has rewritten."
        ),
        "reject-rewrite": CommandEntry(
            "uwf_cli.commands.sharing:reject_rewrite", "Push yours back to a remote that has rewritten it."
        ),
        "hook": CommandEntry(
            "uwf_cli.commands.trust:hook", "Print an update hook that enforces the trust policy on a server."
        ),
    },
    examples=("uwf remote add origin git@example.com:team/threads.git", "uwf remote list"),
    help="Manage remotes.",
)

trust = Group(
    "trust",
    {
        "init": CommandEntry(
            "uwf_cli.commands.trust:init", "Make a first policy, with you as its maintainer."
        ),
        "show": CommandEntry("uwf_cli.commands.trust:show", "Show who signs what."),
        "set": CommandEntry("uwf_cli.commands.trust:set_", "Change the policy to a trust file."),
        "log": CommandEntry("uwf_cli.commands.trust:log", "List the policy's versions, newest first."),
    },
    examples=("uwf trust init", "uwf trust show --file > trust.yaml", "uwf trust set trust.yaml"),
    help="Say who may sign what, and with which keys.",
)

uwf = Group(
    "uwf",
    {
        "init": CommandEntry("uwf_cli.commands.store:init", "Create a store."),
        "workflow": workflow,
        "run": CommandEntry("uwf_cli.commands.thread:start_and_run", "Start a thread and run it."),
        "continue": CommandEntry(
            "uwf_cli.commands.running:continue_", "Continue a thread from another machine."
        ),
        "thread": thread,
        "workspace": workspace,
        "ps": CommandEntry("uwf_cli.commands.running:ps", "List running steps on this machine."),
        "watch": CommandEntry("uwf_cli.watching.watch:watch", "Print events of threads, one per line."),
        "grep": CommandEntry("uwf_cli.commands.listing:grep", "Search prompts, answers and outputs."),
        "inbox": CommandEntry("uwf_cli.commands.asking:inbox", "List threads waiting for you."),
        "cas": cas,
        "extract": CommandEntry("uwf_cli.commands.cas:extract", "Extract data by a JSON Schema from a text."),
        "remote": remote,
        "push": CommandEntry("uwf_cli.commands.sharing:push", "Push threads and definitions to a remote."),
        "pull": CommandEntry("uwf_cli.commands.sharing:pull", "Pull and verify threads and definitions."),
        "clone": CommandEntry("uwf_cli.commands.sharing:clone", "Create a store from a remote."),
        "bundle": CommandEntry(
            "uwf_cli.commands.sharing:bundle", "Export threads and their dependencies to one file."
        ),
        "unbundle": CommandEntry("uwf_cli.commands.sharing:unbundle", "Import the threads of a bundle."),
        "publish": publish,
        "trust": trust,
        "unpublish": CommandEntry(
            "uwf_cli.commands.review:unpublish", "Delete a published branch from a remote."
        ),
        "export": CommandEntry("uwf_cli.commands.export:export", "Export a thread as one HTML file."),
        "agent": agent,
        "setup": CommandEntry("uwf_cli.commands.config:setup", "Set up a model and an agent."),
        "config": config,
        "stats": CommandEntry("uwf_cli.commands.spending:stats", "Sum up tokens, cost and time."),
        "doctor": CommandEntry(
            "uwf_cli.commands.store:doctor", "Check and repair the store and its settings."
        ),
        "debug": CommandEntry("uwf_cli.commands.store:debug", "Show log records."),
        "templates": CommandEntry("uwf_cli.commands.templates:templates", "List workflows to start from."),
        "gc": CommandEntry("uwf_cli.commands.store:gc", "Pack the store."),
        "verify": CommandEntry(
            "uwf_cli.commands.verify:verify", "Verify every node, commit, page and decision."
        ),
        "help": CommandEntry("uwf_cli.commands.help:help_", "Print the help of a command or a topic."),
        "guide": CommandEntry(
            "uwf_cli.commands.guide:guide", "Print a reference text or an example workflow."
        ),
        "completion": CommandEntry(
            "uwf_cli.commands.config:completion", "Print the shell completion script."
        ),
    },
    examples=(
        "uwf setup                                    connect a model and an agent",
        "uwf workflow put solve-issue.yaml            register a workflow",
        'uwf run solve-issue -p "Fix it"              start a thread and run it',
        "uwf thread list                              list threads",
        "uwf thread read 01JK7M                       read a thread",
        "uwf inbox                                    list threads waiting for you",
        "uwf thread answer 01JK7M -m yes              answer one",
        "uwf push                                     share threads through a git remote",
        "",
        "Try it without setup: the default agent, uwf-rehearse, generates outputs.",
    ),
    sections={
        "Run": ("run", "continue", "thread", "workspace", "inbox", "agent", "setup"),
        "Read": ("ps", "watch", "grep", "stats", "export"),
        "Workflows and crews": ("workflow", "templates", "guide"),
        "Many at once": (),
        "Share": ("remote", "push", "pull", "clone", "bundle", "unbundle", "publish", "unpublish", "trust"),
        "Store and settings": (
            "config",
            "doctor",
            "verify",
            "init",
            "gc",
            "debug",
            "cas",
            "extract",
            "completion",
            "help",
        ),
    },
    help="A workflow engine for LLM agents that stores everything in git. Ids and hashes may be shortened "
    "to a unique prefix.",
    epilog="Topics of uwf help: environment, exit-statuses, output, storage, threads.",
)
uwf.params.insert(0, _VERSION)
