"""`uwf thread`, the commands that write: start, step, run, answer, fork, kill, rm."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import exchange, resolve, terminal
from uwf_cli.command import command
from uwf_cli.completers import (
    complete_agent,
    complete_remote,
    complete_step,
    complete_thread,
    complete_workflow,
)
from uwf_cli.exchange import find_thread
from uwf_cli.invocation import Invocation
from uwf_git.errors import Invalid, NotFound, Usage, Waiting
from uwf_git.text import nearest
from uwf_git.values.ids import Hash, ThreadId, is_thread_id, parse_thread_id

if TYPE_CHECKING:
    from uwf_git.engine.step import Outcome
    from uwf_git.store.index import CommitRow
    from uwf_git.store.opened import Instance
    from uwf_git.store.threads import Head
    from uwf_git.values.ids import ThreadId

AGENT = click.option(
    "--agent", metavar="CMD", help="An agent of config.yaml or a command.", shell_complete=complete_agent
)
CWD = click.option(
    "--cwd",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where agents work; remembered on this machine.",
)
REMOTE = click.option(
    "--remote",
    metavar="R",
    help="Pull the thread from there before each step, and push it after.",
    shell_complete=complete_remote,
)


@command(
    'uwf thread start solve-issue -p "Fix the login bug"',
    "uwf thread start ./review.yaml --prompt-file task.md",
    "gh issue view 42 | uwf thread start solve-issue -p -",
    'uwf thread start solve-issue -p "Fix it" --max-cost 2.50 --max-time 1h',
)
@click.argument("workflow", shell_complete=complete_workflow)
@click.option("-p", "--prompt", metavar="TEXT", help="The task; - reads standard input.")
@click.option("--prompt-file", metavar="FILE", help="A file with the task; - reads standard input.")
@CWD
@click.option("--max-steps", metavar="N", help="Then it waits for a human.")
@click.option("--max-tokens", metavar="N", help="Likewise, after so many tokens.")
@click.option("--max-cost", metavar="USD", help="Likewise, after so many US dollars.")
@click.option("--max-time", metavar="TIME", help="Likewise, after so much agents' time: 90s, 30m, 2h.")
def start(
    invocation: Invocation,
    /,
    workflow: str,
    prompt: str | None,
    prompt_file: str | None,
    cwd: Path | None,
    **limits: str | None,
) -> None:
    """Start a run of a workflow; nothing is executed yet.

    WORKFLOW is looked for as a registered name, as a hash, as a file, and as .workflows/WORKFLOW.yaml in
    this folder and those above it, up to the edge of the repository.
    """
    task = _prompt(prompt, prompt_file)
    folder = _folder(cwd)
    budget = resolve.limits(limits)
    instance = invocation.instance_for_writing()
    found = resolve.find_workflow(invocation, workflow)
    task, secrets = instance.redactor.text(task)
    if secrets:
        invocation.warn(f"took {secrets} secret{'s' * (secrets > 1)} out of the prompt")
    if len(task.encode("utf-8", "replace")) > resolve.ADVISED:
        invocation.warn("the prompt is larger than 1 MiB, which is more than forges like in one file")
    made = instance.threads.start(resolve.version_of(instance, found), found.hash, task, budget)
    if folder is not None:
        instance.folders.remember(made, folder)
    invocation.emit(
        {"workflow": found.hash, "thread": made},
        lambda value: terminal.fields(
            [
                ("thread", terminal.style(value["thread"], "bold")),
                ("workflow", f"{value['name']}  {value['workflow']}"),
                ("next", f"uwf thread run {value['thread']}"),
            ]
        ),
        shown={"workflow": found.hash, "thread": made, "name": found.workflow.name},
    )


@command(
    "uwf thread step 01JK7M",
    "uwf thread step 01JK7M --agent uwf-human",
    'uwf thread step 01JK7M --agent "my-agent --fast" --cwd ~/project',
)
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@AGENT
@CWD
@REMOTE
def step(
    invocation: Invocation, thread: str, agent: str | None, cwd: Path | None, remote: str | None
) -> None:
    """Do one step. Who is next works, and what comes of it becomes the new head."""
    do, found = _stepper(invocation, thread, remote)
    emit_outcome(invocation, do(found, agent, _folder(cwd), _live_stderr(invocation)))


@command(
    "uwf thread run 01JK7M",
    "uwf thread run 01JK7M --max-steps 5",
)
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@click.option(
    "--max-steps", type=click.IntRange(min=1), default=50, show_default=True, metavar="N", help="Stop then."
)
@AGENT
@CWD
@REMOTE
def run(
    invocation: Invocation,
    thread: str,
    max_steps: int,
    agent: str | None,
    cwd: Path | None,
    remote: str | None,
) -> None:
    """Step until the end, a question or a failure. Prints one line a step."""
    from uwf_git.engine.budget import waiting
    from uwf_git.engine.status import WAITING

    do, found = _stepper(invocation, thread, remote)
    folder = _folder(cwd)
    stderr = _live_stderr(invocation)
    for _ in range(max_steps):
        outcome = do(found, agent, folder, stderr)
        emit_outcome(invocation, outcome, compact=True)
        if outcome.done:
            return
        if outcome.status == WAITING:
            if outcome.outlook.question is None and outcome.standing is not None:
                raise waiting(found, outcome.standing)
            raise Waiting(
                f"thread {found} asks: {outcome.outlook.question}", f"uwf thread answer {found} -m TEXT"
            )
    invocation.note(f"stopped after {max_steps} step{'s' * (max_steps > 1)}; uwf thread run {found} goes on")


@command(
    'uwf thread answer 01JK7M -m "Use PostgreSQL"',
    "uwf thread answer 01JK7M                          asks on a terminal",
    'uwf thread answer 01JK7M --for 8FWKR3 -m "yes"    only if that step still asks',
)
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@click.option("-m", "--message", metavar="TEXT", help="The answer; - reads standard input.")
@click.option(
    "--for", "asked_by", metavar="STEP", help="The step that is answered.", shell_complete=complete_step
)
def answer(invocation: Invocation, thread: str, message: str | None, asked_by: str | None) -> None:
    """Answer a thread that waits for a human. The role that asked goes next."""
    from uwf_git.engine.step import answer as give

    instance = invocation.instance
    found = find_thread(invocation, thread)
    step_asking = resolve.find_step(instance, asked_by) if asked_by else None
    if message is None:
        head = instance.threads.active_head(found)
        message = _ask(instance, head) if head.row.asks else ""
        # What is answered is the question that was read, whatever happened while somebody typed.
        step_asking = step_asking or (head.node if head.row.asks else None)
    elif message == resolve.STDIN:
        message = resolve.read_stdin("answer")
    emit_outcome(invocation, give(instance, found, message, step_asking))


@command(
    "uwf thread fork 8FWKR3TN5V1QA                  from a step",
    "uwf thread fork 01JK7M                         from a thread's head",
    "uwf thread fork 01JK7M --at 2                  after its second step",
    "uwf thread fork 01JK7M --from-role reviewer    so that the reviewer goes again",
)
@click.argument("origin", metavar="STEP|ID", shell_complete=complete_thread)
@click.option("--at", type=click.IntRange(min=0), metavar="N", help="After step N; 0 is the start.")
@click.option("--from-role", metavar="ROLE", help="Before the last step of that role.")
def fork(invocation: Invocation, origin: str, at: int | None, from_role: str | None) -> None:
    """Make a second thread that shares the first's past. It costs one ref; nothing is copied."""
    from uwf_git.git.repository import Oid

    if at is not None and from_role is not None:
        raise Usage("--at and --from-role exclude each other", "give one of them")
    instance = invocation.instance
    found = resolve.find_thread_or_step(instance, origin)
    thread = ThreadId(found) if is_thread_id(found) else None
    if thread is not None:
        row = _fork_point(instance, instance.threads.head(thread), at, from_role)
        node, commit = row.node, Oid(raw=row.oid)
    elif at is not None or from_role is not None:
        raise Usage(f"{found} is a step, so --at and --from-role mean nothing", "give a thread's id")
    else:
        node = Hash(found)
        commit = instance.threads.commit_of(node)
    made = instance.threads.fork(commit)
    folder = instance.folders.recall(thread) if thread else None
    if folder is not None:
        instance.folders.remember(made, folder)
    invocation.emit(
        {"thread": made, "forkedFrom": {"step": node}},
        lambda value: terminal.fields(
            [
                ("thread", terminal.style(value["thread"], "bold")),
                ("forked from", value["forkedFrom"]["step"]),
            ]
        ),
    )


@command(
    "uwf thread kill 01JK7M",
    'uwf thread kill 01JK7M --reason "superseded by 01JK9Q"',
)
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@click.option("--reason", default="", metavar="TEXT", help="Why, for those who read it later.")
def kill(invocation: Invocation, thread: str, reason: str) -> None:
    """End a thread for good, its running agent first. It stays readable."""
    from uwf_git.engine.step import kill as end

    instance = invocation.instance
    head = end(instance, find_thread(invocation, thread), instance.redactor.text(reason)[0])
    invocation.emit(
        {"thread": head.thread, "archived": True},
        lambda value: f"killed {value['thread']}; it can still be read and forked",
    )


@command("uwf thread rm 01JK7M --yes")
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@click.option("--yes", is_flag=True, help="Really do it.")
def rm(invocation: Invocation, thread: str, yes: bool) -> None:
    """Delete a thread and its failed attempts. Forks of it keep what they share."""
    from uwf_git.engine.budget import forget

    instance = invocation.instance
    found = find_thread(invocation, thread)
    if not yes:
        raise Usage(f"thread {found} would be deleted for good", f"uwf thread rm {found} --yes")
    with instance.locks.hold(found):
        instance.threads.remove(found)
        instance.runs.clear(found)
        instance.sessions.forget(lambda owner: owner != found)
        forget(instance, found)
    invocation.emit(
        {"thread": found, "archived": False, "removed": True}, lambda value: f"deleted {value['thread']}"
    )


def _stepper(
    invocation: Invocation, thread: str, remote: str | None
) -> tuple[Callable[..., Outcome], ThreadId]:
    """The function that does a step of a thread, with a remote between a pull and a push, and the thread's id. A whole
    id may be one that only the remote knows: the thread is pulled then."""
    instance = invocation.instance
    if remote is None:
        from uwf_git.engine.step import step

        return partial(step, instance), find_thread(invocation, thread)
    from uwf_git.sharing.pull import pull, raise_if_refused
    from uwf_git.sharing.step import shared_step

    git, there = exchange.git_for(instance), instance.remotes.get(remote)
    if len(thread.strip()) == 26 and not instance.threads.exists(parse_thread_id(thread)):
        raise_if_refused(pull(instance, git, there, parse_thread_id(thread)))
    return partial(shared_step, instance, git, there), find_thread(invocation, thread)


def emit_outcome(invocation: Invocation, outcome: Outcome, compact: bool = False) -> None:
    """Prints where a thread stands after a step; for people as one line."""
    from uwf_git.config.secrets import told
    from uwf_git.store.layout import summary

    following = outcome.outlook
    value: dict[str, Any] = {
        "workflow": outcome.workflow,
        "thread": outcome.thread,
        "head": outcome.head,
        "done": outcome.done,
        "status": outcome.status,
        "role": outcome.role,
    }
    if following.problem is not None:
        value["problem"] = following.problem
    if redactions := told(outcome.redactions):
        invocation.warn(redactions)
    steps = outcome.position.history.steps
    shown = {
        **value,
        "number": len(steps),
        "verdict": summary(steps[-1].output) if steps else "",
        "next": following.next,
        "question": following.question or (outcome.standing.reason if outcome.standing else ""),
    }
    invocation.emit(value, _line, shown, compact)


def _line(value: dict[str, Any]) -> str:
    if value["role"] is None:
        begin = "nothing left to do"
    else:
        begin = f"{value['number']:4d}  {terminal.style(value['role'], 'bold')}"
        begin += f": {value['verdict']}" if value["verdict"] else ""
    if value["done"]:
        return f"{begin}  → {terminal.status(value['status'])}"
    if value.get("problem"):
        return f"{begin}  → {terminal.style('stuck', 'red')}: {value['problem']}"
    if value["status"] == "waiting":
        return f"{begin}  → {terminal.status('waiting')}: {value['question']}"
    return f"{begin}  → {value['next']}"


def _prompt(text: str | None, file: str | None) -> str:
    if text is not None and file is not None:
        raise Usage("-p and --prompt-file exclude each other", "give one of them")
    if text == resolve.STDIN:
        text = resolve.read_stdin("prompt")
    elif file is not None:
        text = resolve.read_file(file, "prompt")
    if text is None:
        raise Usage("there is no prompt", "give one with -p TEXT, --prompt-file FILE, or -p - to pipe it in")
    if not text.strip():
        raise Usage("the prompt is empty", "say what is to be done")
    return text


def _folder(cwd: Path | None) -> Path | None:
    if cwd is None:
        return None
    folder = cwd.expanduser()
    if not folder.is_dir():
        if folder.exists():
            raise Invalid(f"--cwd {cwd} is no folder")
        raise NotFound(f"no folder {cwd}", "create it first")
    return folder.absolute()


def _ask(instance: Instance, head: Head) -> str:
    """The answer to a thread's question: asked for on a terminal, else read from standard input."""
    if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
        text = "" if terminal.is_terminal(sys.stdin) else resolve.read_stdin("answer")
        if not text.strip():
            raise Usage(f"there is no answer for thread {head.thread}", "give one with -m TEXT")
        return text
    from uwf_git.engine.status import outlook

    asked = outlook(instance, head)
    lines = [f"{asked.asks} asks: {asked.question}"]
    lines += [f"  {number}  {option}" for number, option in enumerate(asked.options, 1)]
    lines += [f"({asked.reason})"] if asked.reason else []
    sys.stderr.write(terminal.escape("\n".join(lines)) + "\n> ")
    sys.stderr.flush()
    text = sys.stdin.readline().strip()
    if text.isdigit() and 0 < int(text) <= len(asked.options):
        return asked.options[int(text) - 1]
    return text


def _fork_point(instance: Instance, head: Head, at: int | None, from_role: str | None) -> CommitRow:
    """What is recorded at a thread's head, at its step number `at`, or before the last step of a role."""
    from uwf_git.store.ancestry import ancestry

    if from_role is not None:
        rows = ancestry(instance.store, head.commit)
        roles = []
        for row in rows:
            if row.kind == "step" and row.role == from_role:
                return next(rows)
            if row.kind == "step":
                roles.append(row.role or "")
        hint = nearest(from_role, sorted(set(roles)))
        raise NotFound(f"thread {head.thread} has no step of role {from_role!r}", hint)
    number = head.row.number if at is None else at
    if number > head.row.number:
        raise NotFound(
            f"thread {head.thread} has {head.row.number} steps, not {number}",
            f"see: uwf thread steps {head.thread}",
        )
    return next(row for row in ancestry(instance.store, head.commit) if row.number == number)


def _live_stderr(invocation: Invocation) -> Callable[[bytes], None] | None:
    """What passes on an agent's stderr as it comes; None where ours is no terminal, or the format isn't text."""
    if not terminal.is_terminal(sys.stderr) or invocation.format != "text":
        return None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(data: bytes) -> None:
        text = decoder.decode(data).replace("\r\n", "\n").replace("\r", "\n")
        sys.stderr.write(terminal.escape(text))
        sys.stderr.flush()

    return show
