"""From a `run` function to an agent: context, prompt, extraction, corrections, nodes, the hash.

    agent = create_agent("shout", run, continue_)
    if __name__ == "__main__":
        agent.main()

As a command it is called `<command> [args…] <thread-id> <role>` and prints the hash of the StepNode that
it wrote; the engine may call `perform` in its own process instead. Neither moves a head.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.errors import AgentFailed, Invalid, Usage, UwfError
from uwf_git.ids import Hash, parse_thread_id
from uwf_git.kit.context import Context, Reply, Resume, TurnRecord
from uwf_git.kit.context import Usage as Tokens
from uwf_git.nearest import nearest
from uwf_git.protocol import DETAIL, STEPNODE, TURN, Role, Step, is_kind
from uwf_git.run import Order, Report

if TYPE_CHECKING:
    from uwf_git.instance import Instance
    from uwf_git.kit.extract import Ask, Continue
    from uwf_git.thread import Head, History

RunFunction = Callable[[Context], "Reply | str"]
ContinueFunction = Callable[[Context, str, str], "Reply | str"]
ParseFunction = Callable[[Sequence[str]], Any]

FRESH_AFTER = 3
"""After so many failed attempts that each carried on from the one before, a step begins anew."""


class AttemptFailed(AgentFailed):
    """A failed run whose answers were kept: `detail` is the node that holds them."""

    def __init__(self, message: str, hint: str, detail: Hash | None) -> None:
        super().__init__(message, hint)
        self.detail = detail


class Agent:
    """An agent made of functions. See create_agent."""

    def __init__(
        self,
        name: str,
        run: RunFunction,
        continue_: ContinueFunction | None,
        parse_args: ParseFunction | None,
        usage: str,
    ) -> None:
        self.name = name if name.startswith("uwf-") else f"uwf-{name}"
        self.usage = usage or self.name
        self._about = getattr(sys.modules.get(run.__module__), "__doc__", None) or ""
        self._run = run
        self._continue = continue_
        self._parse = parse_args

    def main(self, argv: Sequence[str] | None = None) -> None:
        """The command: prints the StepNode's hash, or one line on stderr. Exits."""
        sys.exit(self._command(sys.argv[1:] if argv is None else argv))

    def _command(self, argv: Sequence[str]) -> int:
        from uwf_git.instance import Instance

        if argv and argv[0] in ("-h", "--help"):
            print(self._help())
            return 0
        try:
            if len(argv) < 2:
                raise Usage(f"usage: {self.name} [args…] <thread-id> <role>", f"see: {self.name} --help")
            *args, thread_text, role = argv
            instance = Instance.open()
            thread = parse_thread_id(thread_text)
            head = instance.threads.active_head(thread)
            order = instance.runs.read_order(thread)
            if order is None or order.head != head.node or order.role != role:
                order = Order(head.node, role, self.name, None, None)
            print(self.report(instance, head, order, args))
        except UwfError as error:
            hint = f" — {error.hint}" if error.hint else ""
            print(f"{self.name}: {error.message}{hint}", file=sys.stderr)
            return error.exit_status
        except KeyboardInterrupt:
            return 130
        return 0

    def _help(self) -> str:
        from inspect import cleandoc

        return (
            f"Examples:\n  uwf thread step ID --agent {self.name}\n  uwf config set defaultAgent {self.name}\n\n"
            f"Usage: {self.usage} <thread-id> <role>\n\n{cleandoc(self._about)}"
        )

    def report(self, instance: Instance, head: Head, order: Order, args: Sequence[str]) -> Hash:
        """Performs a step and leaves the report for an engine that may be gone by then."""
        recorder = _Recorder(instance)
        step: Hash | None = None
        failure: UwfError | None = None
        try:
            step = self.perform(instance, head, order, args, recorder)
        except UwfError as error:
            failure = error
        report = Report(
            head=order.head,
            role=order.role,
            agent=self.name,
            step=step,
            detail=getattr(failure, "detail", None),
            error=failure.message if failure else "",
            hint=failure.hint if failure else "",
            nodes=recorder.nodes,
        )
        instance.runs.report(head.thread, report)
        if failure is not None:
            raise failure
        assert step is not None
        return step

    def perform(
        self,
        instance: Instance,
        head: Head,
        order: Order,
        args: Sequence[str],
        recorder: _Recorder | None = None,
        cwd: Path | None = None,
    ) -> Hash:
        """Runs the agent for one step and writes the nodes. Returns the StepNode's hash. Raises
        AttemptFailed, with what was said, when no valid output came of it."""
        from uwf_git.kit.extract import ExtractionFailed, extract

        began = time.monotonic()
        recorder = recorder or _Recorder(instance)
        context = self._context(instance, head, order, args, began, cwd or Path.cwd())
        try:
            reply = self._first(context)
            extraction = extract(
                reply,
                context.role,
                context.schema,
                continue_=self._continue_with(context),
                model=_extraction_model(instance, context),
            )
        except ExtractionFailed as failure:
            last = failure.replies[-1]
            said = _Said(last.text, failure.turns, last.session, last.model, failure.usage, "failed")
            detail = recorder.detail(said, order, head, began)
            raise AttemptFailed(failure.message, failure.hint, detail) from None
        last = extraction.replies[-1]
        session = next((r.session for r in reversed(extraction.replies) if r.session), None)
        model = next((r.model for r in extraction.replies if r.model), last.model)
        said = _Said(extraction.answer, extraction.turns, session, model, extraction.usage, extraction.how)
        history = context.history
        with instance.store.index.transaction():
            output = recorder.put(extraction.type, recorder.redact(extraction.output))
            detail = recorder.detail(said, order, head, began)
            step = Step(history.start_hash, history.prev, order.role, output, detail, self.name)
            return recorder.put(STEPNODE, step.payload())

    def _context(
        self, instance: Instance, head: Head, order: Order, args: Sequence[str], began: float, cwd: Path
    ) -> Context:
        history = instance.threads.history(head)
        role = _role(history, order.role)
        schema = instance.store.schema(role.schema)
        every = instance.attempts.all(head.thread)
        prev = history.prev
        attempts = [a for a in every if a.prev == prev and a.role == role.name]

        def build(remembers: bool) -> str:
            from uwf_git.kit.prompt import build_prompt

            answers = _Answers(instance, history)
            return build_prompt(
                history, role, schema.payload, order.instruction, answers, remembers=remembers
            )

        return Context(
            thread=head.thread,
            role=role,
            history=history,
            store=instance.store,
            schema=schema,
            instruction=order.instruction,
            previous_session=self._previous_session(instance, history, role.name),
            resume=self._resume(instance, attempts),
            attempt=len(attempts),
            attempts=len(every),
            config=instance.config,
            cwd=cwd,
            deadline=None if order.timeout is None else began + order.timeout,
            options=self._parse(args) if self._parse else None,
            build_prompt=build,
        )

    def _previous_session(self, instance: Instance, history: History, role: str) -> str | None:
        for step in reversed(history.steps):
            if step.role == role and step.agent == self.name:
                detail = instance.store.get(step.detail)
                return detail.payload["session"] if is_kind(detail.type, "detail") else None
        return None

    def _resume(self, instance: Instance, attempts: Sequence[Any]) -> Resume | None:
        """What the last failed attempt left, if it was this agent's and there is any point in it."""
        if not attempts or attempts[-1].agent != self.name or attempts[-1].detail is None:
            return None
        if len(attempts) % FRESH_AFTER == 0:
            return None
        detail = instance.store.get(attempts[-1].detail)
        if not is_kind(detail.type, "detail"):
            return None
        turns = tuple(_read_turn(instance.store.get(turn).payload) for turn in detail.payload["turns"])
        return Resume(detail.payload["session"], attempts[-1].error, turns)

    def _first(self, context: Context) -> Reply:
        """The first reply: of the session that a failed attempt left, or of a fresh run."""
        resume = context.resume
        if resume and resume.session and self._continue:
            message = (
                f"Your last attempt at this step did not count: {resume.error}.\n\n"
                "Go on from where you are; don't do again what is done. End with your deliverable:\n\n"
                f"{context.prompt_for_resumed_session}"
            )
            return _reply(self.name, self._continue(context, resume.session, message))
        return _reply(self.name, self._run(context))

    def _continue_with(self, context: Context) -> Continue | None:
        function = self._continue
        if function is None:
            return None
        return lambda session, message: _reply(self.name, function(context, session, message))


def create_agent(
    name: str,
    run: RunFunction,
    continue_: ContinueFunction | None = None,
    parse_args: ParseFunction | None = None,
    usage: str = "",
) -> Agent:
    """An agent of that name. `run(ctx)` does a step and returns a Reply or just its text. `continue_(ctx,
    session, message)` says one more thing in the same session; without it a garbled answer can't be
    corrected. `parse_args(args)` makes `ctx.options` of what stands before the thread id; `usage` and the module's
    docstring are what `--help` shows."""
    return Agent(name, run, continue_, parse_args, usage)


class _Said(NamedTuple):
    answer: str
    turns: Sequence[TurnRecord]
    session: str | None
    model: str | None
    usage: Tokens | None
    extraction: str


class _Recorder:
    """Puts nodes with the secrets taken out, and remembers which."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self.nodes: dict[Hash, str] = {}
        self._redactions = 0

    def redact(self, value: Any) -> Any:
        clean, count = self._instance.redactor.value(_sound(value))
        self._redactions += count
        return clean

    def put(self, type_hash: Hash, payload: Any) -> Hash:
        store = self._instance.store
        node = store.put(type_hash, payload)
        self.nodes[node] = str(store.blob_of(node))
        return node

    def detail(self, said: _Said, order: Order, head: Head, began: float) -> Hash:
        """The Detail node of a run, with a node for each turn."""
        turns = [self.put(TURN, self.redact(_turn_payload(turn))) for turn in said.turns]
        payload = {
            "answer": said.answer,
            "turns": turns,
            "session": said.session,
            "model": said.model,
            "usage": said.usage._asdict() if said.usage else None,
            "durationMs": int((time.monotonic() - began) * 1000),
            "instruction": order.instruction,
            "context": head.node,
            "extraction": said.extraction,
        }
        payload = self.redact(payload)
        payload["turns"] = turns
        payload["context"] = head.node
        if self._redactions:
            payload["redactions"] = self._redactions
        return self.put(DETAIL, payload)


class _Answers(Mapping[Hash, str]):
    """The verbatim answers of a history, read when asked for."""

    def __init__(self, instance: Instance, history: History) -> None:
        self._threads = instance.threads
        self._steps = {step.hash: step for step in history.steps}

    def __getitem__(self, step: Hash) -> str:
        return self._threads.answer(self._steps[step])

    def __iter__(self) -> Iterator[Hash]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)


def _role(history: History, name: str) -> Role:
    role = history.workflow.roles.get(name)
    if role is None:
        hint = nearest(name, history.workflow.roles) or "see: uwf workflow show"
        raise Invalid(f"workflow {history.workflow.name} has no role {name!r}", hint)
    return role


def _reply(name: str, value: Reply | str) -> Reply:
    if isinstance(value, str):
        return Reply(value)
    if not isinstance(value, Reply):
        raise AgentFailed(
            f"{name} returned {type(value).__name__}", "run and continue_ return a Reply or text"
        )
    return value


def _extraction_model(instance: Instance, context: Context) -> Ask | None:
    """The model that reads an output out of an answer, where one is configured."""
    from uwf_git.config import resolve_model

    model = resolve_model(context.config, "extract")
    if model is None:
        return None

    def ask(messages: Sequence[Mapping[str, Any]]) -> Reply:
        from uwf_git.chat import Chat, resolve_endpoint

        with Chat(resolve_endpoint(context.config, model.alias, instance.secrets)) as chat:
            return chat.complete(messages, deadline=context.deadline).reply()

    return ask


def _turn_payload(turn: TurnRecord) -> dict[str, Any]:
    payload: dict[str, Any] = {"role": turn.role, "text": turn.text}
    if turn.tool is not None:
        payload |= {"tool": turn.tool, "arguments": turn.arguments, "result": turn.result}
    if turn.usage is not None:
        payload["usage"] = turn.usage._asdict()
    if turn.duration_ms is not None:
        payload["durationMs"] = turn.duration_ms
    return payload


def _read_turn(payload: Any) -> TurnRecord:
    usage = payload.get("usage")
    return TurnRecord(
        payload["role"],
        payload["text"],
        payload.get("tool"),
        payload.get("arguments"),
        payload.get("result"),
        Tokens(**usage) if usage else None,
        payload.get("durationMs"),
    )


def _sound(value: Any) -> Any:
    """A JSON value with lone surrogates, which no encoding of Unicode has, replaced."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list | tuple):
        return [_sound(item) for item in value]
    if isinstance(value, dict):
        return {_sound(key): _sound(item) for key, item in value.items()}
    return value
