"""`uwf-exec`: commands as agents, such as tests.

The command comes from the user's configuration; nothing from the store is run. It gets the context as JSON on
standard input. An answer that it prints is read like any agent's, with its problems reported; beside a failure it
may not say yes. Otherwise the exit status becomes the status, in the schema's words, and its output the report. A
command that was killed has not answered.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.kit import Agent, Context, Reply, TurnRecord
from uwf_git.plugin import (
    BUNDLE,
    QUESTION,
    RESULT,
    STATUS_KEY,
    AgentFailed,
    Conversation,
    ExpectedOutput,
    Invalid,
    SchemaField,
    SchemaVariant,
    Throttled,
    Usage,
    conversations,
    failed_with,
    fenced,
    judge_printed,
    last_line,
    nearest,
    read_options,
    render_frontmatter,
    require_program,
    schema_choices,
    schema_types,
    schema_variants,
    schemas,
    settled_text,
    shortened,
    system,
    type_name,
)
from uwf_git.plugin import schema_name as named

if TYPE_CHECKING:
    from uwf_git.plugin import AnswerVerdict, Config, StepChanges, processes

_LIMIT_TOLD = 4000  # characters of a command's output in which a used-up quota is looked for
USAGE = (
    "uwf-exec [--role ROLE=COMMAND]… [--ok STATUS] [--fail STATUS] [--tail CHARACTERS] "
    "[--stdin context|prompt|none] [--] [COMMAND [ARG…]]"
)
TAIL = 20_000  # characters of a report
_MOST_READ = 32 << 20  # bytes of an output in which an answer is looked for
_NAMED = 3  # reported problems of a command's output
_UNCLEAR = "let it print one answer, as JSON or between two lines of ---, and its other output to a file"
_KILLED = 128 + system.KILL  # a shell's exit status if its program was killed, as when memory runs out
_AGAIN = "somebody ended it, or the machine ran out of memory: step again"
_DISPUTED = "let it print its answer when it has ended its work, and exit with 0 if that says yes"
_LONGER = "raise the agent's timeout in config.yaml"
_PATIENCE = "raise agents.<name>.silence in config.yaml"
_STDIN = ("context", "prompt", "none")

# Words that a schema may have for it, best first.
_GOOD = (
    *("passed", "pass", "ok", "success", "succeeded", "done", "completed", "complete"),
    *("approved", "accepted", "ready", "released", "green", "yes"),
)
_BAD = (
    *("failed", "fail", "failure", "error", "rejected", "not_approved", "changes_requested"),
    *("denied", "broken", "blocked", "red", "no"),
)
_COMPLAINS = (  # the name of a truth value by which something is refused
    r"(?:\w*_)?(?:fail(?:ed|ures?|s|ing)?|errors?|errored|reject(?:ed)?|denied|refused|broken|blocked|blockers?|issues?"
    r"|findings?|problems?|bugs?|conflicts?|flaky|dirty|vulnerab\w+|unsafe|invalid|regress\w*|missing|changes|rework"
    r"|fix(?:es)?|retry|warnings?)(?:_(?:present|requested|needed|required))?"
)
_VERDICTS = (
    *("passed", "success", "succeeded", "successful", "ok"),
    *("approved", "accepted", "done", "completed"),
)
_YES = frozenset((*_GOOD, *_VERDICTS, "approve", "accept", "valid", "correct", "lgtm", "merge", "ship"))
_NO = frozenset((*_BAD, "reject", "deny", "refused", "declined", "errored", "invalid"))
_REPORTS = (
    *("report", "summary", "comments", "comment", "output"),
    *("message", "details", "log", "result", "text"),
)
_CODES = ("exitCode", "exit_code", "exitStatus", "exit_status", "returnCode", "returncode", "code")


class Options(NamedTuple):
    """`roles` are commands for certain roles, `command` is for others."""

    command: tuple[str, ...] = ()
    roles: Mapping[str, tuple[str, ...]] = {}
    ok: str | None = None
    fail: str | None = None
    tail: int = TAIL
    stdin: str = "context"

    def of(self, role: str) -> tuple[str, ...]:
        """Return the command of a role, () if it has none."""
        return self.roles.get(role) or self.command


class CommandEnd(NamedTuple):
    """The command's end. `report` is the end of its output, `cause` the last line on standard error, if known."""

    ok: bool
    code: int
    words: str
    report: str
    cause: str = ""

    @property
    def is_killed(self) -> bool:
        return self.code < 0 or self.code == _KILLED


def parse_args(args: Sequence[str]) -> Options:
    """Raises Usage."""
    values, command = read_options("uwf-exec", USAGE, args, ("--role", "--ok", "--fail", "--tail", "--stdin"))
    options = Options(command)
    for name, value in values:
        options = _with_option(options, name, value)
    return options


def _with_option(options: Options, name: str, value: str) -> Options:
    if name == "--role":
        role, equals, text = value.partition("=")
        command = _split(text)
        if not equals or not role or not command:
            raise Usage(f"uwf-exec: --role {value!r} is not ROLE=COMMAND", USAGE)
        return options._replace(roles={**options.roles, role: command})
    if name == "--tail":
        if not value.isdecimal() or not 0 < int(value) <= 10_000_000:
            raise Usage(f"uwf-exec: --tail {value!r} is not a number of characters", USAGE)
        return options._replace(tail=int(value))
    if name == "--stdin" and value not in _STDIN:
        raise Usage(f"uwf-exec: --stdin is one of {', '.join(_STDIN)}", USAGE)
    if name == "--stdin":
        return options._replace(stdin=value)
    return options._replace(ok=value) if name == "--ok" else options._replace(fail=value)


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise Usage(f"uwf-exec: {text!r} cannot be split into words: {error}", "check the quotes") from None


class _Conversation(Conversation):
    """One run of the command, without corrections."""

    correctable = False

    def begin(self) -> Reply:
        """Run the role's command. Raises Usage if there is none, AgentFailed if it cannot start, times out,
        or ends in a way the schema cannot express."""
        from uwf_git.plugin import processes

        ctx, options = self.ctx, self._options
        argv = self._argv()
        folders = ctx.mounts.prepare().variables if ctx.mounts is not None else {}
        began = time.monotonic()

        @lru_cache(maxsize=1)  # an answer is looked for in up to 64 MB
        def heard_once(finished: processes.CommandResult) -> Reply:
            return _heard(ctx, argv, finished, time.monotonic() - began)

        def heard(finished: processes.CommandResult) -> Reply:
            return heard_once(finished._replace(took=0.0, silent=0.0))

        finished = processes.run_command(
            argv,
            stdin=_stdin(ctx, options),
            cwd=ctx.cwd,
            env={**ctx.environment(), **folders},
            timeout=None if ctx.deadline is None else max(0.0, ctx.deadline - began),
            silence=ctx.silence(None),
            pass_fds=ctx.instance.locks.descriptors(ctx.thread),
            keep=max(4 * options.tail, _MOST_READ),
            on_stdout=partial(ctx.show, whole=True),
            on_stderr=partial(ctx.show, stream="stderr", whole=True),
            quota=ctx.quota,
            guarded=True,
            # A command ended by a signal may have been ended together with this process.
            on_exit=lambda ended: (
                ctx.keep(heard(ended)) if ended.returncode >= 0 and not _is_cut(ctx, ended) else None
            ),
        )
        reply = heard(finished)
        name, turn = shortened(shlex.join(argv), 60), reply.turns[0]
        if finished.exceeded is None and not finished.timed_out:
            if _is_cut(ctx, finished):
                message = f"{name} printed over {_MOST_READ >> 20} MB, of which the first may be its answer"
                raise failed_with(Reply(turn.text, turns=(turn,)), message, _UNCLEAR)
            return _judged(ctx, argv, reply, last_line(_decoded(finished.stderr_tail)))
        how = finished.overran
        message = last_line((finished.stderr_tail or finished.stdout_tail).decode("utf-8", "replace"))
        last = f"; it said last: {message}" if message else ""
        error = AgentFailed(
            f"{name} {how} {finished.told}{last}", _PATIENCE if finished.fell_silent else _LONGER
        )
        if finished.exceeded is not None:
            how = f"was ended at its limit of {finished.exceeded.limit}"
            error = finished.exceeded.failure(name, ctx.alias)
        failed = Reply(f"`{shlex.join(argv)}` {how}.\n\n{fenced(turn.text, 'text')}\n", turns=(turn,))
        late = failed_with(failed, error.message, error.hint)
        late.timed_out = finished.exceeded is None
        raise late

    def adopt_answer(self, reply: Reply) -> Reply:
        return _judged(self.ctx, self._argv(), reply)

    @property
    def _options(self) -> Options:
        options: Options = self.ctx.options
        return options

    def _argv(self) -> tuple[str, ...]:
        role = self.ctx.role.name
        if argv := self._options.of(role):
            return argv
        raise Usage(
            f"uwf-exec has no command for {type_name(role)}",
            'in config.yaml, agents.<name>.args: ["--", "make", "test"], or ["--role", "tests=make test"]',
        )


def _heard(ctx: Context, argv: Sequence[str], finished: processes.CommandResult, seconds: float) -> Reply:
    """Return a command's answer before judging: its output, with what may be an answer on standard error; the turn
    has its end."""
    ended = _ended(finished, ctx.options.tail)
    turn = TurnRecord(
        "tool",
        ended.report,
        tool="command",
        arguments=list(argv),
        result={"exitStatus": ended.code},
        duration_ms=round(seconds * 1000),
    )
    text, errors = _decoded(finished.stdout_tail), _decoded(finished.stderr_tail)
    if errors.strip() and not _takes_text(ctx) and _adds(ctx, text, errors, not ended.ok):
        text = f"{text.rstrip()}\n{errors}" if text.strip() else errors
    return Reply(text, turns=(turn,))


def _adds(ctx: Context, text: str, errors: str, failed: bool) -> bool:
    """Return whether standard error may have an answer too. Beside a whole one on standard output, an object with no
    field of the schema, such as the result of another command, is none."""
    verdict = _printed(ctx, errors, None, failed)
    if verdict is None or not isinstance(verdict.output, dict) or not verdict.problems:
        return verdict is not None
    if {name.casefold() for name in named(ctx.schema.payload).names} & {
        key.casefold() for key in verdict.output
    }:
        return True
    answer = _printed(ctx, text, None, failed)
    return answer is None or bool(answer.problems)


def _is_cut(ctx: Context, finished: processes.CommandResult) -> bool:
    """Return whether an answer may be in the lost beginning of the output of a command that succeeded."""
    lost = finished.stdout_size > len(finished.stdout_tail) or finished.stderr_size > len(
        finished.stderr_tail
    )
    return lost and finished.returncode == 0 and not _takes_text(ctx)


def _takes_text(ctx: Context) -> bool:
    """Return whether the output is taken as it is, by a conversation or by code: no field could say that the command
    failed."""
    return conversations.talks(ctx.role) or ctx.schema.payload == schemas.BUILTIN[RESULT]


def _decoded(data: bytes) -> str:
    is_wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # of a shell of Windows
    return data.decode("utf-16" if is_wide else "utf-8", "replace")


def _judged(ctx: Context, argv: Sequence[str], heard: Reply, cause: str = "") -> Reply:
    options: Options = ctx.options
    shown = shlex.join(argv)
    name = shortened(shown, 60)
    turn = heard.turns[0]
    code = int(turn.result["exitStatus"])
    ended = CommandEnd(code == 0, code, _words(code), turn.text, cause)
    body = f"`{shown}` {ended.words}.\n\n{fenced(ended.report, 'text')}"
    if _takes_text(ctx):
        if code:
            raise failed_with(Reply(body + "\n", turns=(turn,)), f"{name} {ended.words}")
        return heard
    try:
        changes = ctx.written()
    except Invalid as error:
        message = error.message if ended.ok else f"{name} {ended.words}, and {error.message}"
        raise failed_with(Reply(body + "\n", turns=(turn,)), message, error.hint) from None
    if (verdict := _printed(ctx, heard.text, changes, not ended.ok)) is not None:
        problems = verdict.problems
        if not problems and not code:
            return heard._replace(output=verdict.output, notes=verdict.notes)
        if not problems:
            if message := _disputed(ctx, ended, name, verdict):
                raise failed_with(Reply(body + "\n", turns=(turn,)), message, _DISPUTED)
            # The body names the exit status to whoever judges the answer.
            text = render_frontmatter(verdict.output, body)
            return Reply(text, turns=(turn,), output=verdict.output, notes=verdict.notes)
        wrong = "; ".join(problem.removeprefix("/") for problem in problems[:_NAMED])
        more = f" (and {len(problems) - _NAMED} more)" if len(problems) > _NAMED else ""
        message = f"what {name} printed is not an output of {type_name(ctx.role.name)}: {wrong}{more}"
        hint = _UNCLEAR if verdict.output is None else ""
        raise failed_with(Reply(body + "\n", turns=(turn,)), message, hint)
    if ended.is_killed:
        raise failed_with(Reply(body + "\n", turns=(turn,)), f"{name} {ended.words}", _AGAIN)
    # To code, a command that failed has not answered: a script that wants to know runs it itself.
    output = None if code and ctx.role.name == BUNDLE else _fill(ctx, options, ended, changes)
    if output is None:
        message, hint = _explain_failure(ctx, options, ended, name, changes)
        failed = failed_with(Reply(body + "\n", turns=(turn,)), message, hint)
        failed.throttled = Throttled.told(name, body[-_LIMIT_TOLD:])
        raise failed
    return Reply(render_frontmatter(output, body), turns=(turn,), output=output)


def _disputed(ctx: Context, ended: CommandEnd, name: str, verdict: AnswerVerdict) -> str:
    """Return why the printed answer of a command that failed isn't taken, or "": it was ended by a signal, or says
    yes."""
    if ended.is_killed:
        return f"{name} {ended.words}, so what it printed is no finished answer"
    if verdict.type == QUESTION or not (field := _agreed(ctx, verdict.output)):
        return ""
    printed = json.dumps(verdict.output[field], ensure_ascii=False)
    return f"{name} printed {field}: {printed} and {ended.words}: these are two answers that disagree"


def _agreed(ctx: Context, output: Any) -> str:
    """Return a field by which an output says yes, "" if it says no or neither. Bare verdicts and statuses count before
    fields whose names have a verdict in them, and these before others."""
    payload, options = ctx.schema.payload, ctx.options
    ranks: dict[int, dict[str, bool]] = {0: {}, 1: {}, 2: {}}
    fields = {field.name: field for variant in schema_variants(payload) for field in variant.fields}
    for name in dict.fromkeys((*STATUS_KEY, *fields)):
        field, value, words = fields.get(name), output.get(name), _word(name).removeprefix("is_")
        listed = [
            choice
            for variant in schema_variants(payload)
            if (one := variant.field(name))
            for choice in schema_choices(payload, one.schema) or ()
        ]
        says = _means(value, listed, options)
        if says is None or not (
            isinstance(value, bool) or name in STATUS_KEY or (listed and field and field.required)
        ):
            continue
        negated = words.startswith(("no_", "not_", "without_"))
        complains = re.fullmatch(_COMPLAINS, words.partition("_")[2] if negated else words) is not None
        if isinstance(value, bool):
            says = says is (complains == negated)
        rank = (
            0
            if name in STATUS_KEY or words in _YES
            else 1
            if not complains and _YES & {*words.split("_")}
            else 2
        )
        ranks[rank][name] = says
    decided = next(filter(None, ranks.values()), {})
    return next(iter(decided)) if decided and all(decided.values()) else ""


def _means(value: Any, listed: Sequence[Any], options: Options) -> bool | None:
    """Return whether a field's value says yes, or no; None if it says neither."""
    if not isinstance(value, str):
        return value if isinstance(value, bool) else None
    others = {_word(choice) for choice in listed if isinstance(choice, str) and choice != value}
    if value == options.fail or _word(value) in _NO:
        return False
    if value == options.ok or _word(value) in _YES or (others and others <= _NO):
        return True
    return False if others and others <= _YES else None


def _word(text: str) -> str:
    """Return a name or a value in lower case, with _ between its words."""
    return re.sub(r"[\s-]+|(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()


def _stdin(ctx: Context, options: Options) -> bytes | None:
    if options.stdin == "none":
        return None
    if options.stdin == "prompt":
        return ctx.prompt.encode("utf-8", "replace")
    history = ctx.history
    context = {
        "thread": ctx.thread,
        "workflow": history.workflow.name,
        "role": ctx.role.name,
        "step": len(history.steps) + 1,
        "instruction": ctx.instruction,
        "start": history.start._asdict(),
        "steps": [step._asdict() for step in history.steps],
        "schema": ctx.schema.payload,
        "prompt": ctx.prompt,
    }
    return json.dumps(context).encode("ascii")


def _ended(finished: processes.CommandResult, tail: int) -> CommandEnd:
    code = finished.returncode
    parts = (
        _text(finished.stdout_tail, finished.stdout_size),
        _text(finished.stderr_tail, finished.stderr_size),
    )
    report = "\n".join(filter(None, parts))
    return CommandEnd(code == 0, code, _words(code), _end_of(report, tail) or "(it printed nothing)")


def _words(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"exited with {code}"


def _text(data: bytes, size: int) -> str:
    text = settled_text(data.decode("utf-8", "replace")).strip("\n")
    return f"[… the first {size - len(data)} bytes are left out …]\n{text}" if size > len(data) else text


def _end_of(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"[… the first {len(text) - most} characters are left out …]\n{text[len(text) - most :]}"


def _printed(ctx: Context, text: str, changes: StepChanges | None, failed: bool) -> AnswerVerdict | None:
    if echo := (_stdin(ctx, ctx.options) or b"").decode("utf-8").strip():
        text = text.replace(echo, "")  # the examples of a repeated prompt are no answer
    return judge_printed(text, ExpectedOutput(ctx.role, ctx.schema, ctx.reads), changes, failed)


def _fill(
    ctx: Context, options: Options, ended: CommandEnd, changes: StepChanges | None
) -> dict[str, Any] | None:
    for variant in schema_variants(ctx.schema.payload):
        for verdicts in _sayings(ctx.schema.payload, variant, options, ended.ok):
            output = {**verdicts, **_details(variant, ended)}
            wholes = [output] if changes is None else [changes.added_to(output), output]
            if whole := next(filter(ctx.schema.is_valid, wholes), None):
                return whole
    return None


def _sayings(root: Any, variant: SchemaVariant, options: Options, ok: bool) -> Iterator[dict[str, Any]]:
    wanted = options.ok if ok else options.fail
    verdicts: dict[str, Any] = {
        field.name: ok
        for field in variant.fields
        if field.name in _VERDICTS and "boolean" in schema_types(field.schema)
    }
    for name in STATUS_KEY:
        if field := variant.field(name):
            for status in _statuses(root, field, wanted, ok):
                yield {name: status, **verdicts}
            return
    if verdicts:
        yield verdicts
    elif not variant.closed:
        yield {"status": wanted or (_GOOD if ok else _BAD)[0]}
    elif ok:
        yield {}  # nothing to say it with, and nothing to complain about


def _statuses(root: Any, field: SchemaField, wanted: str | None, ok: bool) -> list[Any]:
    listed = schema_choices(root, field.schema)
    if wanted is not None:
        return [wanted]
    words = _GOOD if ok else _BAD
    if listed is None:
        return [words[0]]
    known = {_word(choice): choice for choice in listed if isinstance(choice, str)}
    return [known[word] for word in words if word in known]


def _details(variant: SchemaVariant, ended: CommandEnd) -> dict[str, Any]:
    named = [
        field
        for name in _REPORTS
        if (field := variant.field(name)) and "string" in schema_types(field.schema)
    ]
    chosen = [field for field in named if field.required] or named[:1]
    details: dict[str, Any] = {field.name: _fitting(ended.report, field) for field in chosen}
    if not named and not variant.closed:
        details["report"] = ended.report
    for name in _CODES:
        if (field := variant.field(name)) and {"integer", "number"} & set(schema_types(field.schema)):
            details[name] = ended.code
    return details


def _fitting(report: str, field: SchemaField) -> str:
    most = field.schema.get("maxLength")
    if isinstance(most, int) and len(report) > most:
        return report[len(report) - most :] if most else ""
    return report


def _explain_failure(
    ctx: Context, options: Options, ended: CommandEnd, name: str, changes: StepChanges | None
) -> tuple[str, str]:
    role, payload = ctx.role.name, ctx.schema.payload
    option, wanted = ("--ok", options.ok) if ended.ok else ("--fail", options.fail)
    fields = [field for one in schema_variants(payload) for key in STATUS_KEY if (field := one.field(key))]
    listed = [schema_choices(payload, field.schema) for field in fields]
    known = list(dict.fromkeys(str(status) for statuses in listed for status in statuses or ()))
    if wanted is not None and None not in listed and known and wanted not in known:
        return f"{option} {wanted!r} is not a {fields[0].name} of role {role}", nearest(wanted, known)
    last = f" ({ended.cause})" if ended.cause and not ended.ok else ""
    message = f"{name} {ended.words}{last}, and the output of {type_name(role)} cannot be told from that"
    helpful = [
        status
        for status in known
        if _fill(ctx, options._replace(ok=status, fail=status), ended, changes) is not None
    ]
    if helpful:
        return message, f"say which {fields[0].name} it means with {option}, of: {', '.join(helpful)}"
    return message, "let the command print the fields itself, as JSON or between two lines of ---"


def _ready(_config: Config, args: Sequence[str], environ: Mapping[str, str]) -> str:
    options = parse_args(args)
    for command in filter(None, (options.command, *options.roles.values())):
        require_program(command[0], environ)
    return ""


def _command(args: Sequence[str], role: str) -> tuple[str, ...]:
    return parse_args(args).of(role)


agent = Agent("uwf-exec", _Conversation, parse_args, USAGE, about=__doc__, ready=_ready, runs=_command)
main = agent.main

if __name__ == "__main__":
    main()
