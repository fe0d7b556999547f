"""The commands and where each is."""

from __future__ import annotations

from typing import Any

import click

from uwf_cli.command import Group, Place
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
        "put": Place("workflow:put", "Register a workflow under its name."),
        "show": Place("workflow:show", "Show a workflow."),
        "list": Place("workflow:list_", "List the registered workflows."),
        "history": Place("workflow:history", "List a workflow's versions, newest first."),
        "diff": Place("workflow:diff", "Show what is different between two versions of a workflow."),
        "rollback": Place("workflow:rollback", "Make an older version the newest again."),
        "propose": Place("review:propose", "Propose a version of a workflow without registering it."),
        "accept": Place("review:accept", "Register a version that was proposed."),
        "trust": Place("review:trust", "Let a workflow that is code run on this machine."),
        "untrust": Place("review:untrust", "Let a workflow that is code run here no longer."),
        "graph": Place("workflow:graph", "Draw a workflow's graph, for Mermaid or Graphviz."),
        "validate": Place("workflow:validate", "Report every problem of a workflow at once."),
        "rehearse": Place("workflow:rehearse", "Walk a workflow's graph with made-up answers."),
        "rm": Place("workflow:rm", "Forget a workflow's name."),
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
        "import": Place("crews.commands:import_", "Take in a crew."),
        "show": Place("crews.commands:show", "Show a crew: personas, what they offer, workflows."),
        "menu": Place("crews.entry:menu", "Show what a persona offers."),
        "route": Place("crews.entry:route", "Say what an input would mean to a persona."),
        "do": Place("crews.entry:do", "Put an input to a persona, and carry out what it means."),
        "list": Place("crews.commands:list_", "List the crews."),
        "history": Place("crews.commands:history", "List a crew's versions, newest first."),
        "rollback": Place("crews.commands:rollback", "Make an older version of a crew the newest again."),
        "export": Place("crews.commands:export", "Write a crew's package out again."),
        "propose": Place("crews.commands:propose", "Propose a version of a crew without taking it in."),
        "accept": Place("crews.commands:accept", "Take in a version of a crew that was proposed."),
        "rm": Place("crews.commands:rm", "Forget a crew's name."),
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
        "start": Place("thread:start", "Start a run of a workflow; nothing is executed yet."),
        "step": Place("running:step", "Do one step."),
        "run": Place("running:run", "Step until the end, a question or a failure."),
        "show": Place("reading:show", "Show where a thread is and what comes next."),
        "list": Place("listing:list_", "List threads, newest first."),
        "steps": Place("reading:steps", "List a thread's steps with their outputs, oldest first."),
        "read": Place("reading:read", "Read a thread as Markdown."),
        "step-details": Place("reading:step_details", "Show a step or a failed attempt, with every turn."),
        "turns": Place("conversation:turns", "Show what an agent said and which tools it called."),
        "prompt": Place("conversation:prompt", "Print what the next agent would be told."),
        "attempts": Place("reading:attempts", "List a thread's failed attempts, oldest first."),
        "budget": Place("spending:budget", "Show a thread's budget, or raise it."),
        "fork": Place("thread:fork", "Make a second thread that shares the first's past."),
        "answer": Place("asking:answer", "Answer a thread that waits for a human."),
        "say": Place("asking:say", "Say something to a thread that asks nothing."),
        "pause": Place("asking:pause", "Keep threads from being stepped until they are resumed."),
        "resume": Place("asking:resume", "Let paused threads be stepped; go on from ended ones."),
        "kill": Place("thread:kill", "End threads for good, their running agents first."),
        "rm": Place("thread:rm", "Remove threads and their failed attempts."),
        "restore": Place("thread:restore", "Bring back threads that were removed here."),
        "diff": Place("reading:diff", "Show what two threads share and where they part."),
        "log": Place("reading:log", "List a thread's commits, newest first."),
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
        "list": Place("cas:schema_list", "List the types of nodes."),
        "get": Place("cas:schema_get", "Print the JSON Schema of a type."),
    },
    examples=("uwf cas schema list", "uwf cas schema get StepNode"),
    help="The types of nodes.",
)

cas = Group(
    "cas",
    {
        "put": Place("cas:put", "Store a node and print its hash."),
        "get": Place("cas:get", "Print a node."),
        "has": Place("cas:has", "Tell whether a node is in the store."),
        "refs": Place("cas:refs", "List what a node refers to, its type left out."),
        "walk": Place("cas:walk", "List a node and all that it leads to."),
        "hash": Place("cas:hash_", "Compute the hash a node would have."),
        "reindex": Place("cas:reindex", "Build the local index anew from the refs."),
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
        "list": Place("agent:list_", "List every known agent."),
        "check": Place("agent:check", "Have an agent answer, and say what is wrong."),
        "put-step": Place("agent:put_step", "Store the answer of an agent without the kit."),
    },
    examples=("uwf agent list", "uwf agent check claude-code"),
    help="Which agents there are, and whether they answer.",
)

config = Group(
    "config",
    {
        "get": Place("config:get", "Print a setting, a section, or all settings."),
        "set": Place("config:set_", "Change a setting."),
        "unset": Place("config:unset", "Take a setting back; of a section, all of it."),
        "list": Place("config:list_", "List all settings by their keys."),
        "edit": Place("config:edit", "Open config.yaml in your editor and check it."),
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
        "thread": Place("review:thread", "Push a thread to a branch, for review."),
        "workflow": Place("review:workflow", "Push a workflow's newest version to a branch, for review."),
        "crew": Place("review:crew", "Push a crew's newest version to a branch, for review."),
    },
    examples=("uwf publish thread 01JK7M", "uwf publish workflow solve-issue", "uwf publish crew trip"),
    help="Put threads, workflows and crews on branches, for review.",
)

remote = Group(
    "remote",
    {
        "add": Place("sharing:add", "Add a remote."),
        "list": Place("sharing:list_", "List the remotes."),
        "rm": Place("sharing:rm", "Forget a remote, and where its refs were."),
    },
    examples=("uwf remote add origin git@example.com:team/threads.git", "uwf remote list"),
    help="Where threads are shared with others.",
)

eval_baseline = Group(
    "baseline",
    {
        "set": Place(
            "evaluation.baselines:set_", "Accept the scores of a run as what others are held against."
        ),
        "show": Place("evaluation.baselines:show", "Show a suite's baseline."),
        "list": Place("evaluation.baselines:list_", "List the baselines."),
        "history": Place("evaluation.baselines:history", "List a suite's baselines, newest first."),
        "propose": Place("evaluation.baselines:propose", "Propose a baseline without setting it."),
        "accept": Place("evaluation.baselines:accept", "Set a baseline that was proposed."),
        "rm": Place("evaluation.baselines:rm", "Forget a suite's baseline."),
    },
    examples=("uwf eval baseline set issues", "uwf eval baseline show issues"),
    help="What is accepted as good of a suite.",
)

eval_ = Group(
    "eval",
    {
        "add": Place("evaluation.suites:add", "Make cases of threads and of their steps."),
        "import": Place("evaluation.suites:import_", "Take in cases from a file."),
        "remove": Place("evaluation.suites:remove", "Take cases out of a suite, or forget a suite."),
        "list": Place("evaluation.suites:list_", "List the suites."),
        "show": Place("evaluation.suites:show", "Show a suite's cases, and what its runs came to."),
        "run": Place("evaluation.running:run", "Try cases and have them judged."),
        "compare": Place("evaluation.comparing:compare", "Compare two runs of a suite case by case."),
        "check": Place("evaluation.checking:check", "Fail where a suite is worse than its baseline."),
        "report": Place("evaluation.reporting:report", "Write a run of a suite as one HTML file."),
        "baseline": eval_baseline,
    },
    examples=(
        "uwf eval add 01JK7M --to bugs",
        "uwf eval run bugs --workflow solve-issue",
        "uwf eval compare solve-issue~1 solve-issue",
    ),
    help="Suites of cases that workflows and agents are judged by.",
)

trace = Group(
    "trace",
    {"export": Place("spending:export", "Write a thread as an OpenTelemetry trace.")},
    examples=("uwf trace export 01JK7M --out trace.json",),
    help="Threads as traces, for the tools that show those.",
)

fleet = Group(
    "fleet",
    {
        "run": Place("fleet.running:run", "Step threads by workers of this machine."),
        "worker": Place("fleet.running:worker", "Make steps for a fleet."),
        "start": Place("fleet.queue:start", "Put threads into the queue of a fleet."),
        "status": Place("fleet.queue:status", "List the threads in the queue of a fleet."),
        "pause": Place("fleet.queue:pause", "Begin no more steps of threads in the queue."),
        "resume": Place("fleet.queue:resume", "Make steps again of threads in the queue."),
        "cancel": Place("fleet.queue:cancel", "Take threads out of the queue."),
        "sync": Place("fleet.queue:sync", "Bring the queue up to date with the refs."),
    },
    examples=(
        "uwf fleet run --all --workers 4",
        "uwf fleet worker --address temporal.example:7233",
    ),
    help="Many threads at once, on one machine or many.",
)

uwf = Group(
    "uwf",
    {
        "init": Place("store:init", "Make a store."),
        "workflow": workflow,
        "crew": crew,
        "run": Place("thread:start_and_run", "Start a thread of a workflow and run it."),
        "thread": thread,
        "fleet": fleet,
        "chat": Place("crews.session:chat", "Talk with a model, or with a persona of a crew."),
        "ps": Place("running:ps", "List what runs on this machine."),
        "watch": Place("watching.watch:watch", "Print what happens, a line an event."),
        "grep": Place("listing:grep", "Search prompts, answers and outputs of all threads."),
        "inbox": Place("asking:inbox", "List what waits for a person here."),
        "cas": cas,
        "extract": Place("cas:extract", "Print the data in a text that obeys a schema."),
        "remote": remote,
        "push": Place("sharing:push", "Push threads, workflows and crews to a remote."),
        "pull": Place("sharing:pull", "Bring here what a remote has, verified."),
        "clone": Place("sharing:clone", "Begin on a new machine with what a remote has."),
        "bundle": Place("sharing:bundle", "Write threads to one file, with all they stand on."),
        "unbundle": Place("sharing:unbundle", "Take over the threads in a file, verified."),
        "publish": publish,
        "unpublish": Place("review:unpublish", "Delete a published branch and its base from a remote."),
        "export": Place("review:export", "Write a thread as one HTML file."),
        "import": Place("store:import_", "Take over the workflows and threads of an earlier program."),
        "agent": agent,
        "setup": Place("config:setup", "Set up a model and an agent."),
        "config": config,
        "web": Place("web.command:web", "Show threads on pages of this machine."),
        "mcp": Place("mcp:mcp", "Serve workflows and threads to an MCP client."),
        "stats": Place("spending:stats", "Sum up tokens, money and time."),
        "eval": eval_,
        "trace": trace,
        "doctor": Place("store:doctor", "Check programs, configuration and store; repair the store."),
        "debug": Place("store:debug", "Show what was logged, or where a line of the log comes from."),
        "gc": Place("store:gc", "Pack the store with git's own gc."),
        "verify": Place("verify:verify", "Check every node, commit, page and decision."),
        "help": Place("help:help_", "Print the help of a command."),
        "guide": Place("guide:guide", "Print a reference text to hand to an agent."),
        "completion": Place("config:completion", "Print the script that completes ids and names in a shell."),
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
        "Run": ("run", "thread", "inbox", "chat", "agent", "setup"),
        "Read": ("web", "ps", "watch", "grep", "stats", "export", "trace"),
        "Workflows and crews": ("workflow", "crew", "guide"),
        "Many at once": ("fleet", "eval"),
        "Share": ("remote", "push", "pull", "clone", "bundle", "unbundle", "publish", "unpublish"),
        "Store and settings": (
            "config",
            "doctor",
            "verify",
            "init",
            "import",
            "gc",
            "debug",
            "cas",
            "extract",
            "mcp",
            "completion",
            "help",
        ),
    },
    help="Workflows for agents, kept in git. Ids and hashes may be shortened while they are unique.",
)
uwf.params.insert(0, _VERSION)
