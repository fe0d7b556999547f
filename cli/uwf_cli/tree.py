"""The commands and where each is."""

from __future__ import annotations

from typing import Any

import click

from uwf_cli.command import Group, Place
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
        "put": Place("uwf_cli.commands.workflow:put", "Register a workflow under its name."),
        "show": Place("uwf_cli.commands.workflow:show", "Show a workflow."),
        "list": Place("uwf_cli.commands.workflow:list_", "List the registered workflows."),
        "history": Place("uwf_cli.commands.workflow:history", "List a workflow's versions, newest first."),
        "diff": Place(
            "uwf_cli.commands.workflow:diff", "Show what is different between two versions of a workflow."
        ),
        "rollback": Place("uwf_cli.commands.workflow:rollback", "Make an older version the newest again."),
        "propose": Place(
            "uwf_cli.commands.review:propose", "Propose a version of a workflow without registering it."
        ),
        "accept": Place("uwf_cli.commands.review:accept", "Register a version that was proposed."),
        "graph": Place(
            "uwf_cli.commands.workflow:graph", "Draw a workflow's graph, for Mermaid or Graphviz."
        ),
        "validate": Place(
            "uwf_cli.commands.workflow:validate", "Report every problem of a workflow at once."
        ),
        "rehearse": Place(
            "uwf_cli.commands.workflow:rehearse", "Walk a workflow's graph with made-up answers."
        ),
        "rm": Place("uwf_cli.commands.workflow:rm", "Forget a workflow's name."),
    },
    examples=(
        "uwf workflow validate solve-issue.yaml",
        "uwf workflow put solve-issue.yaml",
        "uwf workflow graph solve-issue",
    ),
    help="Register workflows, look at them, try them out.",
)

thread = Group(
    "thread",
    {
        "start": Place(
            "uwf_cli.commands.thread:start", "Start a run of a workflow; nothing is executed yet."
        ),
        "step": Place("uwf_cli.commands.running:step", "Do one step."),
        "run": Place("uwf_cli.commands.running:run", "Step until the end, a question or a failure."),
        "show": Place("uwf_cli.commands.reading:show", "Show where a thread is and what comes next."),
        "list": Place("uwf_cli.commands.listing:list_", "List threads, newest first."),
        "steps": Place(
            "uwf_cli.commands.reading:steps", "List a thread's steps with their outputs, oldest first."
        ),
        "read": Place("uwf_cli.commands.reading:read", "Read a thread as Markdown."),
        "step-details": Place(
            "uwf_cli.commands.reading:step_details", "Show a step or a failed attempt, with every turn."
        ),
        "turns": Place(
            "uwf_cli.commands.conversation:turns", "Show what an agent said and which tools it called."
        ),
        "prompt": Place("uwf_cli.commands.conversation:prompt", "Print what the next agent would be told."),
        "attempts": Place(
            "uwf_cli.commands.reading:attempts", "List a thread's failed attempts, oldest first."
        ),
        "budget": Place("uwf_cli.commands.spending:budget", "Show a thread's budget, or raise it."),
        "fork": Place("uwf_cli.commands.thread:fork", "Make a second thread that shares the first's past."),
        "answer": Place("uwf_cli.commands.asking:answer", "Answer a thread that waits for a human."),
        "say": Place("uwf_cli.commands.asking:say", "Say something to a thread that asks nothing."),
        "pause": Place(
            "uwf_cli.commands.asking:pause", "Keep threads from being stepped until they are resumed."
        ),
        "resume": Place(
            "uwf_cli.commands.asking:resume", "Let paused threads be stepped; go on from ended ones."
        ),
        "kill": Place("uwf_cli.commands.thread:kill", "End threads for good, their running agents first."),
        "rm": Place("uwf_cli.commands.thread:rm", "Remove threads and their failed attempts."),
        "restore": Place("uwf_cli.commands.thread:restore", "Bring back threads that were removed here."),
        "diff": Place("uwf_cli.commands.reading:diff", "Show what two threads share and where they part."),
        "log": Place("uwf_cli.commands.reading:log", "List a thread's commits, newest first."),
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
    {
        "list": Place("uwf_cli.commands.cas:schema_list", "List the types of nodes."),
        "get": Place("uwf_cli.commands.cas:schema_get", "Print the JSON Schema of a type."),
    },
    examples=("uwf cas schema list", "uwf cas schema get StepNode"),
    help="The types of nodes.",
)

cas = Group(
    "cas",
    {
        "put": Place("uwf_cli.commands.cas:put", "Store a node and print its hash."),
        "get": Place("uwf_cli.commands.cas:get", "Print a node."),
        "has": Place("uwf_cli.commands.cas:has", "Tell whether a node is in the store."),
        "refs": Place("uwf_cli.commands.cas:refs", "List what a node refers to, its type left out."),
        "walk": Place("uwf_cli.commands.cas:walk", "List a node and all that it leads to."),
        "hash": Place("uwf_cli.commands.cas:hash_", "Compute the hash a node would have."),
        "reindex": Place("uwf_cli.commands.cas:reindex", "Build the local index anew from the refs."),
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
    {
        "put-step": Place("uwf_cli.commands.agent:put_step", "Store the answer of an agent without the kit."),
    },
    examples=("uwf agent list", "uwf agent check claude-code"),
    help="Which agents there are, and whether they answer.",
)

config = Group(
    "config",
    {
        "get": Place("uwf_cli.commands.config:get", "Print a setting, a section, or all settings."),
        "set": Place("uwf_cli.commands.config:set_", "Change a setting."),
        "unset": Place("uwf_cli.commands.config:unset", "Take a setting back; of a section, all of it."),
        "list": Place("uwf_cli.commands.config:list_", "List all settings by their keys."),
        "edit": Place("uwf_cli.commands.config:edit", "Open config.yaml in your editor and check it."),
    },
    examples=(
        "uwf config list",
        "uwf config get defaultAgent",
        "uwf config set agents.claude.command my-agent",
    ),
    help="Read and change config.yaml in the storage root.",
)

publish = Group(
    "publish",
    {
        "thread": Place("uwf_cli.commands.review:thread", "Push a thread to a branch, for review."),
        "workflow": Place(
            "uwf_cli.commands.review:workflow", "Push a workflow's newest version to a branch, for review."
        ),
    },
    examples=("uwf publish thread 01JK7M", "uwf publish workflow solve-issue", "uwf publish crew trip"),
    help="Put threads, workflows and crews on branches, for review.",
)

remote = Group(
    "remote",
    {
        "add": Place("uwf_cli.commands.sharing:add", "Add a remote."),
        "list": Place("uwf_cli.commands.sharing:list_", "List the remotes."),
        "rm": Place("uwf_cli.commands.sharing:rm", "Forget a remote, and where its refs were."),
    },
    examples=("uwf remote add origin git@example.com:team/threads.git", "uwf remote list"),
    help="Where threads are shared with others.",
)

uwf = Group(
    "uwf",
    {
        "init": Place("uwf_cli.commands.store:init", "Make a store."),
        "workflow": workflow,
        "run": Place("uwf_cli.commands.thread:start_and_run", "Start a thread of a workflow and run it."),
        "thread": thread,
        "ps": Place("uwf_cli.commands.running:ps", "List what runs on this machine."),
        "watch": Place("uwf_cli.watching.watch:watch", "Print what happens, a line an event."),
        "grep": Place("uwf_cli.commands.listing:grep", "Search prompts, answers and outputs of all threads."),
        "inbox": Place("uwf_cli.commands.asking:inbox", "List what waits for a person here."),
        "cas": cas,
        "extract": Place("uwf_cli.commands.cas:extract", "Print the data in a text that obeys a schema."),
        "remote": remote,
        "push": Place("uwf_cli.commands.sharing:push", "Push threads, workflows and crews to a remote."),
        "pull": Place("uwf_cli.commands.sharing:pull", "Bring here what a remote has, verified."),
        "clone": Place("uwf_cli.commands.sharing:clone", "Begin on a new machine with what a remote has."),
        "bundle": Place(
            "uwf_cli.commands.sharing:bundle", "Write threads to one file, with all they stand on."
        ),
        "unbundle": Place("uwf_cli.commands.sharing:unbundle", "Take over the threads in a file, verified."),
        "publish": publish,
        "unpublish": Place(
            "uwf_cli.commands.review:unpublish", "Delete a published branch and its base from a remote."
        ),
        "export": Place("uwf_cli.commands.export:export", "Write a thread as one HTML file."),
        "agent": agent,
        "setup": Place("uwf_cli.commands.config:setup", "Set up a model and an agent."),
        "config": config,
        "stats": Place("uwf_cli.commands.spending:stats", "Sum up tokens, money and time."),
        "doctor": Place(
            "uwf_cli.commands.store:doctor", "Check programs, configuration and store; repair the store."
        ),
        "debug": Place(
            "uwf_cli.commands.store:debug", "Show what was logged, or where a line of the log comes from."
        ),
        "gc": Place("uwf_cli.commands.store:gc", "Pack the store with git's own gc."),
        "verify": Place("uwf_cli.commands.verify:verify", "Check every node, commit, page and decision."),
        "help": Place("uwf_cli.commands.help:help_", "Print the help of a command."),
        "guide": Place("uwf_cli.commands.guide:guide", "Print a reference text to hand to an agent."),
        "completion": Place(
            "uwf_cli.commands.config:completion", "Print the script that completes ids and names in a shell."
        ),
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
    sections={
        "Run": ("run", "thread", "inbox", "agent", "setup"),
        "Read": ("ps", "watch", "grep", "stats", "export"),
        "Workflows and crews": ("workflow", "guide"),
        "Many at once": (),
        "Share": ("remote", "push", "pull", "clone", "bundle", "unbundle", "publish", "unpublish"),
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
    help="Workflows for agents, kept in git. Ids and hashes may be shortened while they are unique.",
)
uwf.params.insert(0, _VERSION)
