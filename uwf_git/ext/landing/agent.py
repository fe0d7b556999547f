"""`uwf-land`: landing as a step.

It lands the thread's work as it stands, as `uwf land` does, and says what became of it: landed; a conflict with the
target; or failed, if a check fails on both together. The workflow's edges lead on from there, and the next role reads
what conflicts or the end of the check's log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from uwf_git.ext.landing.landing_steps import AGENT, CONFLICT, FAILED, LANDED
from uwf_git.ext.landing.landing_words import on_target
from uwf_git.kit import Context, Reply, create_agent
from uwf_git.plugin import (
    NO_TIME,
    STATUS_KEY,
    Absent,
    AgentFailed,
    ExpectedOutput,
    RequirementUnmet,
    Usage,
    UwfError,
    counted,
    judge_answer,
    milliseconds_of,
    parent_threads,
    read_options,
    render_frontmatter,
    schema_name,
)

if TYPE_CHECKING:
    from uwf_git.ext.landing.landing import Landed, Options

USAGE = f"{AGENT} [--onto BRANCH] [--branch NAME] [--remote NAME] [--commits squash|steps|keep] [--no-forge]"

_OTHER_BRANCH = "--branch NAME"
"""In the hint of an error: what `uwf land` lacks to land."""


def parse_args(args: Sequence[str]) -> Options:
    """Raises Usage."""
    from uwf_git.ext.landing.landing import Options
    from uwf_git.ext.landing.settings import COMMITS

    valued = ("--onto", "--branch", "--remote", "--commits")
    options, rest = read_options(AGENT, USAGE, args, valued, ("--no-forge",))
    if rest:
        raise Usage(f"{AGENT} has no argument {rest[0]}", USAGE)
    values = dict(options)
    onto, branch, remote, commits = (values.get(name, "") for name in valued)
    if commits not in ("", *COMMITS):
        raise Usage(f"{AGENT}: --commits is {', '.join(COMMITS[:-1])} or {COMMITS[-1]}", USAGE)
    return Options(onto, branch, remote, commits, "--no-forge" in values, in_step=True)


def run(ctx: Context) -> Reply:
    """Land the work. Raises AgentFailed if the role's schema has no words for what became of it, if no person has this
    step made, and as landing does."""
    from uwf_git.ext.landing.landing import CheckFailed, Conflict, InTarget, Landing

    _require_chosen(ctx)
    _landed(ctx, "", "", "", "", "", ())  # else the work would land, and nothing could say so
    if ctx.remarks:  # as of a reviewer; nobody but the next role could see to it
        fields: dict[str, Any] = {"reason": "something was said before it landed", "files": []}
        return _reply(ctx, (FAILED,), fields, "The work does not land: see to what was said first.", ())
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        ctx.show(f"{line}\n".encode(), whole=True)

    instance, options = ctx.instance, ctx.options._replace(deadline=ctx.deadline)
    try:
        landed = Landing(instance, instance.threads.head(ctx.thread), options, tell).land()
    except InTarget as error:  # as if the step was killed after it pushed
        return _landed(ctx, error.onto, error.onto, error.base, "", f"{error.message}.", lines)
    except Conflict as error:
        fields = {"reason": error.why, "files": list(error.files)}
        return _reply(ctx, (CONFLICT, FAILED), fields, error.text, lines)
    except CheckFailed as error:
        return _reply(ctx, (FAILED,), {"reason": error.why, "files": []}, error.text, lines)
    except UwfError as error:
        if _OTHER_BRANCH in error.hint:
            error.hint = f"uwf thread run {ctx.thread} --agent '{ctx.role.name}={AGENT} {_OTHER_BRANCH}'"
        raise
    url = landed.pull.url if landed.pull is not None else ""
    return _landed(ctx, landed.onto, landed.branch, landed.commit, url, _text(landed), lines)


def _require_chosen(ctx: Context) -> None:
    """Raise AgentFailed or Absent unless the user's configuration, or the user, gave the role to this agent: code can
    name any agent, and a step can run any command."""
    if ctx.history.workflow.code is not None:
        raise AgentFailed(
            f"{AGENT} plays roles that config.yaml gives to it, and code asks for it",
            "land when the thread has ended: uwf land",
        )
    if _is_tried(ctx):
        raise AgentFailed(
            f"thread {ctx.thread} is a trial of an evaluation, and lands nothing",
            f"let a command play the role there: --agent '{ctx.role.name}=uwf-exec …'",
        )
    try:
        ctx.instance.require_person(f"lands thread {ctx.thread}")
    except RequirementUnmet as error:
        if ctx.instance.runs.is_engine(ctx.thread):
            raise Absent(error.message, error.hint) from None
        raise AgentFailed(
            f"{AGENT} lands in the engine's process alone", f"in config.yaml, name {AGENT} without a path"
        ) from None


def _is_tried(ctx: Context) -> bool:
    """Return whether the thread, or one that it works for, belongs to an evaluation: no other ids have that time."""
    instance, seen = ctx.instance, {ctx.thread}
    head = instance.threads.head(ctx.thread)
    while milliseconds_of(head.thread) != NO_TIME:
        parent = parent_threads(instance, [head]).get(head.thread)
        if parent is None or parent in seen:
            return False
        seen.add(parent)
        head = instance.threads.head(parent)
    return True


def _landed(
    ctx: Context, onto: str, branch: str, commit: str, url: str, text: str, lines: Sequence[str]
) -> Reply:
    fields = {"onto": onto, "branch": branch, "commit": commit, "url": url}
    return _reply(ctx, (LANDED,), fields, text, lines)


def _reply(
    ctx: Context, statuses: Sequence[str], fields: dict[str, Any], text: str, lines: Sequence[str]
) -> Reply:
    """Return the answer with the first status that the role's schema takes."""
    body = "\n\n".join((text, *(f"- {line}" for line in lines))) + "\n"
    names = schema_name(ctx.schema.payload).names
    key = next((name for name in STATUS_KEY if name in names), STATUS_KEY[0])
    problems: list[str] = []
    for status in statuses:
        output = {key: status, **fields}
        reply = Reply(render_frontmatter(output, body), output=output)
        verdict = judge_answer(reply, ExpectedOutput(ctx.role, ctx.schema, ctx.reads))
        if not verdict.problems:
            return reply
        problems += verdict.problems
    raise AgentFailed(
        f"role {ctx.role.name} has no output for {statuses[0]}: {problems[0]}",
        f"let its schema have status: {{enum: [{LANDED}, {CONFLICT}, {FAILED}]}}, then step again",
    )


def _text(landed: Landed) -> str:
    what = on_target(landed.as_json())
    if landed.pull is None:
        return f"Landed: {what}, which is {landed.commit[:12]} now."
    answers = f", {counted(landed.answered, 'comment')} answered" if landed.answered else ""
    return f"Landed as {landed.pull.url}: branch {landed.branch}, {what}{answers}."


agent = create_agent(AGENT, run, parse_args=parse_args, usage=USAGE)
main = agent.main

if __name__ == "__main__":
    main()
