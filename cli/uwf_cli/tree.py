"""The command tree."""

from __future__ import annotations

from uwf_cli.command import group, printing
from uwf_git.base.version import VERSION

workflow = group(
    "uwf_cli.commands",
    "workflow",
    {
        "put": ("workflow", "Register a workflow under its name."),
        "show": ("workflow", "Show a workflow's roles, conditions and graph."),
        "list": ("workflow", "List registered workflows."),
        "history": ("workflow", "List a workflow's versions, newest first."),
        "stats": ("workflow_stats", "Show cost, failures and edges taken."),
        "diff": ("workflow", "Show the differences between two versions."),
        "rollback": ("workflow", "Restore an older version."),
        "propose": ("review", "Propose a version without registering it."),
        "accept": ("review", "Register a proposed version."),
        "graph": ("workflow", "Draw a workflow's graph (Mermaid, Graphviz)."),
        "validate": ("workflow", "Report all problems of a workflow."),
        "rehearse": ("workflow", "Walk a workflow's graph with generated outputs."),
        "rm": ("workflow", "Unregister a workflow (history is kept)."),
    },
    examples=(
        "uwf workflow validate solve-issue.yaml",
        "uwf workflow put solve-issue.yaml",
        "uwf workflow graph solve-issue",
    ),
    help="Register, inspect and check workflows.",
)

thread = group(
    "uwf_cli.commands",
    "thread",
    {
        "start": ("thread", "Start a thread; no step is run yet."),
        "step": ("step", "Run one step."),
        "run": ("running", "Run until the thread ends, waits or fails."),
        "retry": ("running", "Try failed threads again."),
        "wait": ("waiting", "Wait until threads are at rest."),
        "stop": ("waiting", "Stop the processes that run threads."),
        "show": ("reading", "Show a thread's status and next role."),
        "list": ("listing", "List threads, newest first."),
        "steps": ("reading", "List a thread's steps and outputs."),
        "timeline": ("timeline", "Show a thread's steps as bars on one clock."),
        "branches": ("branches", "Show a fan-out by branches and roles."),
        "read": ("reading", "Print a thread as Markdown."),
        "step-details": ("reading", "Show a step or attempt with all turns."),
        "turns": ("conversation", "Show an agent's messages and tool calls."),
        "prompt": ("conversation", "Print the prompt of a step."),
        "attempts": ("reading", "List a thread's failed attempts."),
        "budget": ("spending", "Show or raise a thread's budget."),
        "fork": ("thread", "Fork a thread at any step."),
        "answer": ("asking", "Answer a waiting thread."),
        "say": ("asking", "Add a remark to a thread."),
        "permit": ("permitting", "Allow or deny what a running agent asks for."),
        "pause": ("asking", "Pause threads."),
        "resume": ("asking", "Resume paused threads; continue finished ones."),
        "kill": ("thread", "Kill threads and their running agents."),
        "rm": ("thread", "Remove threads and their attempts."),
        "restore": ("thread", "Restore removed threads."),
        "diff": ("reading", "Show where two threads diverge."),
        "log": ("reading", "List a thread's commits, newest first."),
    },
    examples=(
        'uwf thread start solve-issue -p "Fix the login bug"',
        "uwf thread run 01JK7M",
        "uwf thread read 01JK7M",
    ),
    help="Start, run and read threads.",
)

workspace = group(
    "uwf_cli.commands",
    "workspace",
    {
        "list": ("workspace", "List worktrees and folders of threads."),
        "path": ("workspace", "Print a thread's folder."),
        "remove": ("workspace", "Remove worktrees; commits are kept."),
    },
    examples=("uwf workspace list", "cd $(uwf workspace path @)", "uwf workspace remove 01JK7M"),
    help="Find and remove the folders that threads work in.",
)

cas_schema = group(
    "uwf_cli.commands",
    "schema",
    {
        "list": ("cas:schema_list", "List the node types."),
        "get": ("cas:schema_get", "Print the JSON Schema of a type."),
    },
    examples=("uwf cas schema list", "uwf cas schema get StepNode"),
    help="Show node types.",
)

cas = group(
    "uwf_cli.commands",
    "cas",
    {
        "put": ("cas", "Store a node and print its hash."),
        "get": ("cas", "Print a node."),
        "has": ("cas", "Check whether a node exists."),
        "refs": ("cas", "List the nodes that a node references."),
        "walk": ("cas", "List every node reachable from a node."),
        "hash": ("cas", "Compute the hash of a node."),
        "reindex": ("cas", "Rebuild the local index."),
        "schema": cas_schema,
    },
    examples=(
        "uwf cas get 4KNM2PXR3B1QW",
        "uwf cas put Text '\"hello\"'",
    ),
    help="Read and write nodes by hash.",
)

agent = group(
    "uwf_cli.commands",
    "agent",
    {
        "put-step": ("conversation", "Record an agent's answer without the kit."),
    },
    examples=("uwf agent list", "uwf agent check claude-code"),
    help="List and check agents.",
)

config = group(
    "uwf_cli.commands",
    "config",
    {
        "get": ("config", "Print a setting, a section or all settings."),
        "set": ("config", "Set a value."),
        "unset": ("config", "Remove a setting or a whole section."),
        "list": ("config", "List all settings."),
        "edit": ("config", "Open config.yaml in your editor and check it."),
    },
    examples=(
        "uwf config list",
        "uwf config get defaultAgent",
        "uwf config set agents.claude.command my-agent",
    ),
    help="Read and change config.yaml.",
)

publish = group(
    "uwf_cli.commands",
    "publish",
    {
        "thread": ("review", "Push a thread to a branch for review."),
        "workflow": ("review", "Push a workflow to a branch for review."),
    },
    examples=("uwf publish thread 01JK7M", "uwf publish workflow solve-issue", "uwf publish crew trip"),
    help="Push threads and definitions to branches for review.",
)

remote = group(
    "uwf_cli.commands",
    "remote",
    {
        "add": ("sharing", "Add a remote."),
        "list": ("sharing", "List the remotes."),
        "rm": ("sharing", "Remove a remote."),
        "accept-rewrite": ("sharing", "Adopt history that a remote has rewritten."),
        "reject-rewrite": ("sharing", "Push yours back to a remote that has rewritten it."),
    },
    examples=("uwf remote add origin git@example.com:team/threads.git", "uwf remote list"),
    help="Manage remotes.",
)

uwf = group(
    "uwf_cli.commands",
    "uwf",
    {
        "init": ("store", "Create a store."),
        "workflow": workflow,
        "run": ("thread:start_and_run", "Start a thread and run it."),
        "continue": ("running", "Continue a thread from another machine."),
        "thread": thread,
        "workspace": workspace,
        "clean": ("workspace", "Remove what ended threads have left."),
        "ps": ("running", "List running steps on this machine."),
        "watch": ("watch", "Print events of threads, one per line."),
        "grep": ("listing", "Search prompts, answers and outputs."),
        "inbox": ("inbox", "List what waits for you."),
        "cas": cas,
        "extract": ("cas", "Extract data by a JSON Schema from a text."),
        "remote": remote,
        "push": ("sharing", "Push threads and definitions to a remote."),
        "pull": ("sharing", "Pull and verify threads and definitions."),
        "clone": ("sharing", "Create a store from a remote."),
        "bundle": ("sharing", "Export threads and their dependencies to one file."),
        "unbundle": ("sharing", "Import the threads of a bundle."),
        "publish": publish,
        "unpublish": ("review", "Delete a published branch from a remote."),
        "export": ("export", "Export a thread as one file: HTML, audit report, trajectory."),
        "agent": agent,
        "setup": ("config", "Set up a model and an agent."),
        "config": config,
        "stats": ("spending", "Sum up tokens, cost and time."),
        "doctor": ("store", "Check and repair the store and its settings."),
        "debug": ("store", "Show log records."),
        "templates": ("texts", "List workflows to start from."),
        "gc": ("store", "Pack the store."),
        "verify": ("verify", "Verify every node, commit, page and decision."),
        "blame": ("blame", "Show who wrote each line of a file: thread, step, model."),
        "help": ("texts", "Print the help of a command or a topic."),
        "guide": ("texts", "Print a reference text or an example workflow."),
        "completion": ("config", "Print the shell completion script."),
    },
    examples=(
        "uwf setup                                    connect a model and an agent",
        "uwf workflow put solve-issue.yaml            register a workflow",
        'uwf run solve-issue -p "Fix it"              start a thread and run it',
        "uwf thread list                              list threads",
        "uwf thread read 01JK7M                       read a thread",
        "uwf inbox                                    list what waits for you",
        "uwf thread answer 01JK7M -m yes              answer one",
        "uwf push                                     share threads through a git remote",
        "",
        "Try it without setup: the default agent, uwf-rehearse, generates outputs.",
    ),
    sections={
        "Run": ("run", "continue", "thread", "workspace", "clean", "inbox", "agent", "setup"),
        "Read": ("ps", "watch", "grep", "stats", "export", "blame"),
        "Workflows and crews": ("workflow", "templates", "guide"),
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
    help="A workflow engine for LLM agents that stores everything in git. Ids and hashes may be shortened "
    "to a unique prefix.",
    epilog="Topics of uwf help: environment, exit-statuses, output, storage, threads.",
)
uwf.params.insert(0, printing("--version", "-V", text=lambda _: f"uwf {VERSION}", told="Print the version."))
