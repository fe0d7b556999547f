"""A session with an agent over the Agent Client Protocol. Only this module imports the SDK. Synchronous: its
event loop runs during calls."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from uwf_git.ext.agents.acp import enforcement
from uwf_git.ext.agents.acp.conversation import Conversation, usage_of
from uwf_git.ext.agents.acp.enforcement import ConfigChoice, choice_of
from uwf_git.ext.agents.acp.frames import Frames, complaint, ending, reason, way
from uwf_git.ext.agents.acp.requests import Files, Refusal, Requests
from uwf_git.ext.agents.permissions import forbidden
from uwf_git.plugin import (
    AgentFailed,
    Descendants,
    Mount,
    PermissionDesk,
    Quota,
    QuotaExceeded,
    StepFolders,
    TokenUsage,
    ToolPolicy,
    TurnRecord,
    Unavailable,
    duration_text,
    install_hint,
    last_seen,
    log,
    processes,
    sum_tokens,
    system,
)

if TYPE_CHECKING:
    from acp.connection import Connection

T = TypeVar("T")

START = 120.0  # seconds for an agent to start and to open a session: npx may have to fetch it first
CANCEL = 3.0  # seconds to end a turn that was cancelled
LEAVE = 0.5  # seconds to exit after its input was closed
GRACE = 1.0  # seconds between SIGTERM and SIGKILL
_DRAIN = 0.5
_QUIET = 0.3  # seconds without an update after which a loaded session has said all that was said in it before
_REPLAY = 10.0  # seconds that this may take
_LOOK = 0.3  # seconds between two looks for a remark
_GO_ON = (
    "A person said this while you worked, and your turn was interrupted for it. Heed it, go on with your task from "
    "where you are, and end with your deliverable."
)
_ADDS_UP = ("hermes-agent",)  # agents whose usage is that of all prompts to the session since they started
_FAILS_IN_WORDS = ("@agentclientprotocol/codex-acp",)  # agents whose failures are messages without an id
_AUTH_REQUIRED = -32000
_METHOD_NOT_FOUND = -32601


class Settings(NamedTuple):
    """How to start an agent. `mode`, `model` and `auth` are ids or names of its offers; `record` gets each
    turn; `hidden` may not be touched; `others` are further folders; `places` are a crew's; `quota` limits it;
    `silence` is the permitted time without output, in seconds, None for no limit. At the `desk` its requests wait for a
    person; `show` takes a line for watchers. `take_remarks` returns what people say meanwhile, as turns."""

    argv: tuple[str, ...]
    folder: Path
    env: Mapping[str, str]
    policy: ToolPolicy
    record: Callable[[TurnRecord], None]
    hidden: tuple[Path, ...] = ()
    others: tuple[Mount, ...] = ()
    places: StepFolders | None = None
    mode: str | None = None
    model: str | None = None
    auth: str | None = None
    files: bool = True
    pass_fds: tuple[int, ...] = ()
    quota: Quota = Quota()
    alias: str = ""
    silence: float | None = None
    desk: PermissionDesk | None = None
    show: Callable[[bytes], None] = lambda line: None
    has_remarks: Callable[[], bool] = lambda: False
    take_remarks: Callable[[], tuple[TurnRecord, ...]] = lambda: ()


class PromptResult(NamedTuple):
    """An answer. `stop` is the protocol's stop reason; `cost` is in US dollars; `failure` is reported instead
    of an answer."""

    turns: tuple[TurnRecord, ...]
    stop: str
    usage: TokenUsage | None
    cost: float | None
    model: str | None
    notes: tuple[str, ...]
    failure: str = ""


class LoadFailed(Exception):
    """A session cannot be loaded."""


class Session:
    """A started agent with at most one session. `id` is "" before."""

    def __init__(self, settings: Settings, deadline: float | None) -> None:
        """Start the agent and negotiate. `deadline` is on time.monotonic(). Raises AgentFailed."""
        from importlib.util import find_spec

        if find_spec("acp") is None:
            raise Unavailable("uwf-acp needs the Python package agent-client-protocol", install_hint("acp"))
        self.id = ""
        self._settings = settings
        self._name = Path(settings.argv[0]).name
        self._files = Files(settings.folder, settings.policy, settings.hidden, settings.others)
        self._heard = 0.0  # when the agent said something last
        self._conversation = Conversation(_unrecorded)
        self._requests = Requests(
            self._name,
            settings.folder,
            settings.policy,
            self._files,
            settings.places,
            settings.desk,
            settings.show,
        )
        self._auth_methods: list[Mapping[str, Any]] = []
        self._capabilities: Mapping[str, Any] = {}
        self._model: str | None = None
        self._paid: float | None = 0.0
        self._counted = TokenUsage(0, 0, 0)
        self._agent = ""  # its own name
        self._forbidden = enforcement.WATCHED & forbidden(settings.policy)
        self._remarks: list[str] = []
        self._closed = False
        self._is_interrupted = False  # the turn, for a remark
        self._connection: Connection | None = None
        self._exceeded: QuotaExceeded | None = None
        system.require("agents of the Agent Client Protocol")
        self._descendants = Descendants(
            enforcement.environment(settings.env, self._forbidden), settings.quota
        )
        self._descendants.guard()
        self._process = processes.start(
            settings.argv, self._descendants, cwd=settings.folder, pass_fds=settings.pass_fds
        )
        self._pipes = processes.Pipes(self._process)
        self._loop = asyncio.new_event_loop()
        try:
            self._run(self._initialize(_sooner(deadline)))
        except BaseException:
            self.close()
            raise

    async def _look(self) -> None:
        while (
            not self._descendants.has_exited(self._process) and (pause := self._descendants.pause) is not None
        ):
            await asyncio.sleep(pause)
            self._exceeded = self._descendants.exceeded(self._process)
            if self._exceeded is not None:
                self._descendants.kill(self._process)
                return

    @property
    def alive(self) -> bool:
        return not self._closed and self._process.poll() is None and not self._frames.fault

    @property
    def agent(self) -> str:
        return self._agent

    def complaint(self) -> str:
        return complaint(self._pipes.stderr, self._process.poll() is not None)

    def create(self, deadline: float | None) -> None:
        """Open a new session. Raises AgentFailed."""
        self._run(self._create(_sooner(deadline)))

    def load(self, session: str, deadline: float | None) -> None:
        """Load a session. Raises LoadFailed if impossible or empty, AgentFailed if the agent is unusable."""
        self._run(self._load(session, _sooner(deadline)))

    def prompt(self, text: str, deadline: float | None) -> PromptResult:
        """Send a message and wait for the end of the turn, cancelled at the deadline. Raises AgentFailed;
        `heard` has the partial answer."""
        self._conversation = Conversation(self._settings.record, self._forbidden)
        self._requests.notes = []
        return self._run(self._prompt(text, deadline))

    def heard(self) -> PromptResult:
        self._conversation.finish(None, self._model)
        return self._said("", None)

    def close(self) -> None:
        """End the session and the process with its descendants."""
        if self._closed:
            return
        self._closed = True
        try:
            with contextlib.suppress(Exception):
                self._loop.run_until_complete(self._leave())
            self._pipes.close_input()
        finally:
            with contextlib.suppress(Exception):  # the loop turns, for the agent to see the end of its input
                self._loop.run_until_complete(self._pipes.exit_status(LEAVE, 0))
            self._descendants.end(self._process, GRACE)
            with contextlib.suppress(Exception):
                self._loop.run_until_complete(self._tidy())
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        task = self._loop.create_task(work)
        try:
            return self._loop.run_until_complete(task)
        except KeyboardInterrupt:
            with contextlib.suppress(Exception, asyncio.CancelledError):
                self._loop.run_until_complete(self._interrupted(task))
            raise

    async def _interrupted(self, task: asyncio.Task[Any]) -> None:
        if self.id and self._connection is not None:
            await self._connection.send_notification("session/cancel", {"sessionId": self.id})
        await asyncio.wait({task}, timeout=0.2)
        task.cancel()
        await asyncio.wait({task}, timeout=0.1)

    async def _leave(self) -> None:
        if self._connection is None:
            return
        capabilities = self._capabilities.get("sessionCapabilities")
        if self.id and self._process.poll() is None and "close" in _mapping(capabilities):
            closing = self._loop.create_task(self._call("session/close", {"sessionId": self.id}))
            await asyncio.wait({closing}, timeout=LEAVE)
            closing.cancel()
        await self._connection.close()

    async def _tidy(self) -> None:
        await self._pipes.close()
        for task in (tasks := asyncio.all_tasks() - {asyncio.current_task()}):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _call(self, method: str, params: Mapping[str, Any]) -> Any:
        assert self._connection is not None
        return await self._connection.send_request(method, params)

    async def _ask(self, method: str, params: Mapping[str, Any], until: float) -> Mapping[str, Any]:
        from acp import RequestError

        try:
            return await self._request(method, params, until)
        except RequestError as error:
            raise self._refused(method, error) from None

    async def _request(self, method: str, params: Mapping[str, Any], until: float) -> Mapping[str, Any]:
        request = self._loop.create_task(self._call(method, params))
        if await self._is_answered(request, until):
            return await self._answer(request)
        request.cancel()
        printed = self._frames.noise[0] if self._frames.noise else self.complaint()
        raise AgentFailed(
            f"{self._name} did not answer {method} in time"
            + (f", and printed {printed!r}" if printed else ""),
            "does it speak the Agent Client Protocol? Some agents need an argument, such as acp",
        )

    async def _is_answered(self, request: asyncio.Task[Any], until: float | None) -> bool:
        remaining = None if until is None else max(0.0, until - time.monotonic())
        over = self._pipes.over
        await asyncio.wait({request, over}, timeout=remaining, return_when=asyncio.FIRST_COMPLETED)
        if not request.done() and over.done():
            await asyncio.wait({request}, timeout=_DRAIN)
            if not request.done():
                request.cancel()
                raise await self._gone()
        return request.done()

    async def _patience_lost(self, request: asyncio.Task[Any], deadline: float | None) -> str | None:
        """Return None once a prompt is answered, else why it isn't waited for any more. A turn is cancelled for a
        remark when the agent's calls have ended, so that nothing that it does is broken off."""
        silence = self._settings.silence
        while True:
            quiet = None if silence is None else self._heard + silence
            look = None if self._is_interrupted else time.monotonic() + _LOOK
            until = min((item for item in (deadline, quiet, look) if item is not None), default=None)
            if await self._is_answered(request, until):
                return None
            now = time.monotonic()
            if not self._is_interrupted and self._settings.has_remarks() and self._conversation.is_between:
                self._is_interrupted = True
                await self._notify_cancel()
                self._requests.drop_questions()
            if deadline is not None and now >= deadline:
                return "timeout"
            if self._requests.is_asking:  # it waits for a person
                self._heard = now
            elif silence is not None and now >= self._heard + silence:
                return "silence"

    async def _answer(self, request: asyncio.Task[Any]) -> Mapping[str, Any]:
        try:
            return _mapping(request.result())
        except ConnectionError:
            raise await self._gone() from None

    async def _gone(self) -> AgentFailed:
        name, frames = self._name, self._frames
        if frames.fault:
            return AgentFailed(f"{name} {frames.fault}", "its output is kept")
        code = await self._pipes.exit_status(1.0, 1.0)
        if exceeded := self._exceeded or (
            self._descendants.exceeded(self._process) if code is not None else None
        ):
            return exceeded.failure(name, self._settings.alias)
        how = "closed the connection" if code is None else ending(code)
        if not frames.heard:
            how += " before it said anything of the protocol"
        elif self.id:
            how += " in the middle of its turn"
        complaint = self.complaint() or (frames.noise[-1] if frames.noise else "")
        return AgentFailed(
            f"{name} {how}" + (f": {complaint}" if complaint else ""),
            "its output is kept"
            if self.id
            else "does it speak the Agent Client Protocol? Some agents need an argument, such as acp",
        )

    def _refused(self, method: str, error: Any) -> AgentFailed:
        if error.code == _AUTH_REQUIRED:
            ways = "; ".join(way(auth_method) for auth_method in self._auth_methods)
            hint = "log in with the agent's own program first"
            return AgentFailed(
                f"{self._name} is not logged in: {reason(error)}",
                f"{hint}, or give --auth one of: {ways}" if ways else hint,
            )
        if error.code == _METHOD_NOT_FOUND and not self.id:
            hint = "does it speak the Agent Client Protocol?"
            return AgentFailed(f"{self._name} doesn't know {method}", hint)
        complaint = self.complaint()
        return AgentFailed(
            f"{self._name} refused {method}: {reason(error)}",
            f"it printed: {complaint}" if complaint else "try it by hand",
        )

    async def _initialize(self, until: float) -> None:
        await self._pipes.connect()
        if self._descendants.pause is not None:
            self._looking = self._loop.create_task(self._look())
        # The agent starts while this is loaded, which takes a second.
        from acp import PROTOCOL_VERSION
        from acp.connection import Connection
        from acp.schema import ClientCapabilities, FileSystemCapabilities, Implementation, InitializeRequest

        from uwf_git import __version__

        self._frames = Frames(self._pipes.read, self._pipes.write, self._notified)
        self._connection = Connection(self._handle, self._frames)
        settings = self._settings
        files = FileSystemCapabilities(
            read_text_file=settings.files and self._files.readable,
            write_text_file=settings.files and self._files.writable,
        )
        request = InitializeRequest(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(fs=files, terminal=False),
            client_info=Implementation(name="uwf", title="uwf", version=__version__),
        )
        agreed = await self._ask("initialize", _plain(request), until)
        if agreed.get("protocolVersion") != PROTOCOL_VERSION:
            raise AgentFailed(
                f"{self._name} speaks version {agreed.get('protocolVersion')!r} of the Agent Client "
                f"Protocol, not {PROTOCOL_VERSION}",
                "install a version of it that does",
            )
        self._capabilities = _mapping(agreed.get("agentCapabilities"))
        self._agent = str(_mapping(agreed.get("agentInfo")).get("name"))
        log.debug(
            "NC5XTV9D",
            "{name} agrees on the protocol",
            name=self._name,
            agent=agreed.get("agentInfo"),
            capabilities=agreed.get("agentCapabilities"),
        )
        methods = agreed.get("authMethods")
        self._auth_methods = [method for method in methods if isinstance(method, Mapping)] if methods else []
        if self._settings.auth is not None:
            await self._authenticate(self._settings.auth, until)

    async def _authenticate(self, wanted: str, until: float) -> None:
        known = [str(method.get("id")) for method in self._auth_methods]
        if wanted not in known:
            raise AgentFailed(
                f"{self._name} has no way to log in that is called {wanted!r}",
                f"it has: {', '.join(known) or 'none'}",
            )
        await self._ask("authenticate", {"methodId": wanted}, until)

    async def _create(self, until: float) -> None:
        from acp.schema import NewSessionRequest

        request = NewSessionRequest(cwd=str(self._settings.folder), mcp_servers=[])
        params = (
            _plain(request) | self._besides() | enforcement.parameters(self._forbidden, self._settings.env)
        )
        opened = await self._ask("session/new", params, until)
        session = opened.get("sessionId")
        if not isinstance(session, str) or not session:
            raise AgentFailed(f"{self._name} opened a session without an id", "it breaks the protocol")
        self.id, self._paid = session, 0.0
        await self._choose(opened, until)

    async def _load(self, session: str, until: float) -> None:
        from acp import RequestError
        from acp.schema import LoadSessionRequest, ResumeSessionRequest

        folder = str(self._settings.folder)
        loads = self._capabilities.get("loadSession") is True
        resumes = _mapping(self._capabilities.get("sessionCapabilities")).get("resume") is not None
        if not loads and not resumes:
            raise LoadFailed(f"{self._name} cannot take a session up again")
        method = "session/load" if loads else "session/resume"
        request = LoadSessionRequest if loads else ResumeSessionRequest
        params = _plain(request(cwd=folder, session_id=session, mcp_servers=[]))
        params |= self._besides() | enforcement.parameters(self._forbidden, self._settings.env)
        self._conversation = Conversation(_unrecorded)
        try:
            opened = await self._request(method, params, until)
        except RequestError as error:
            if error.code == _AUTH_REQUIRED:
                raise self._refused(method, error) from None
            raise LoadFailed(reason(error)) from None
        if loads:
            await self._replay_ended()
        # Only loading replays what was said: of a resumed session the agent alone knows what is in it.
        if loads and not self._conversation.replayed:
            raise LoadFailed("it is empty")
        if self._forbidden and choice_of(opened, "mode") is None:
            raise LoadFailed("what it may do in it cannot be told")
        cost = self._conversation.cost
        self.id, self._paid = session, cost.amount if cost else None
        await self._choose(opened, until)

    async def _replay_ended(self) -> None:
        began = self._heard = time.monotonic()
        while (now := time.monotonic()) < min(self._heard + _QUIET, began + _REPLAY):
            over = {self._pipes.over}
            done, _ = await asyncio.wait(over, timeout=min(self._heard + _QUIET, began + _REPLAY) - now)
            if done:
                return

    def _besides(self) -> dict[str, Any]:
        able = (
            _mapping(self._capabilities.get("sessionCapabilities")).get("additionalDirectories") is not None
        )
        folders = [str(other.path) for other in self._settings.others]
        return {"additionalDirectories": folders} if able and folders else {}

    async def _choose(self, opened: Mapping[str, Any], until: float) -> None:
        modes, settings = choice_of(opened, "mode"), self._settings
        mode = enforcement.mode_for(self._name, self._agent, modes, settings.mode, self._forbidden)
        if mode != settings.mode:
            self._remarks.append(f"its mode is {mode}: it may not {enforcement.said(self._forbidden)}")
        asking = self._forbidden | enforcement.asks(self._agent, modes, mode)
        policy = settings.policy
        if note := policy.check_held(self._name, policy.unheld(asking, ("edit", "execute", "fetch"))):
            self._remarks.append(note)
        for what, wanted in (("mode", mode), ("model", settings.model)):
            choice = modes if what == "mode" else choice_of(opened, what)
            if wanted is not None and choice is None:
                raise AgentFailed(f"{self._name} offers no choice of a {what}", f"leave --{what} out")
            current = choice.current if choice else None
            if wanted is not None and choice is not None:
                current = await self._set(what, wanted, choice, until)
            if what == "model":
                self._model = current

    async def _set(self, what: str, wanted: str, choice: ConfigChoice, until: float) -> str:
        value = choice.find(wanted)
        if value is None:
            offered = ", ".join([*choice.values][:20]) or "none"
            raise AgentFailed(f"{self._name} has no {what} {wanted!r}", f"it has: {offered}")
        if value != choice.current:
            params = {"sessionId": self.id, **choice.parameters, choice.parameter: value}
            await self._ask(choice.method, params, until)
        return value

    async def _prompt(self, text: str, deadline: float | None) -> PromptResult:
        from acp import RequestError
        from acp.schema import PromptRequest, TextContentBlock

        params = PromptRequest(session_id=self.id, prompt=[TextContentBlock(type="text", text=text)])
        request = self._loop.create_task(self._call("session/prompt", _plain(params)))
        self._is_interrupted = False
        self._settings.has_remarks()  # says that it takes them
        try:
            self._heard = began = time.monotonic()
            if (why := await self._patience_lost(request, deadline)) is not None:
                took, silent = (
                    duration_text(round(time.monotonic() - since)) for since in (began, self._heard)
                )
                await self._cancel(request)
                self._conversation.finish()
                how = "ran out of time" if why == "timeout" else "was ended, for it said nothing"
                message = f"{self._name} {how} after {took}, silent for the last {silent}"
                late = AgentFailed(
                    f"{message}; {last_seen(self._conversation.turns)}", f"raise agents.<name>.{why}"
                )
                late.timed_out = True
                raise late
            answer = await self._answer(request)
        except RequestError as error:
            if not self._is_interrupted:
                raise self._refused("session/prompt", error) from None
            answer = {"stopReason": "cancelled"}  # as some say it
        finally:
            self._requests.drop_questions()
        usage = self._used(usage_of(answer))
        self._conversation.finish(usage, self._model)
        if self._is_interrupted and answer.get("stopReason") == "cancelled":
            return await self._prompt_remarks(usage, deadline)
        in_words = usage is None and not self._conversation.answered and self._agent in _FAILS_IN_WORDS
        result = self._said(str(answer.get("stopReason")), usage)
        return result._replace(failure=self._conversation.aside) if in_words else result

    def _said(self, stop: str, usage: TokenUsage | None) -> PromptResult:
        turns, notes = tuple(self._conversation.turns), (*self._remarks, *self._requests.notes)
        self._remarks = []
        return PromptResult(turns, stop, usage, self._spent(), self._model, notes)

    def _used(self, usage: TokenUsage | None) -> TokenUsage | None:
        if usage is None or self._agent not in _ADDS_UP:
            return usage
        before, self._counted = self._counted, usage
        return TokenUsage(*(max(0, now - then) for now, then in zip(usage, before, strict=True)))

    def _spent(self) -> float | None:
        cost = self._conversation.cost
        if cost is None or cost.currency.upper() != "USD":
            return None
        before, self._paid = self._paid, cost.amount
        return None if before is None else max(0.0, cost.amount - before)

    async def _prompt_remarks(self, spent: TokenUsage | None, deadline: float | None) -> PromptResult:
        """Go on, after a turn that was interrupted, with what people said."""
        remarks = self._settings.take_remarks()
        for remark in remarks:
            self._conversation.add(remark)
        result = await self._prompt("\n\n".join([*(remark.text for remark in remarks), _GO_ON]), deadline)
        notes = (
            () if spent is not None else (f"{self._name} counted no tokens of a turn that a remark ended",)
        )
        return result._replace(usage=sum_tokens((spent, result.usage)), notes=(*notes, *result.notes))

    async def _notify_cancel(self) -> None:
        assert self._connection is not None
        with contextlib.suppress(ConnectionError):
            await self._connection.send_notification("session/cancel", {"sessionId": self.id})

    async def _cancel(self, request: asyncio.Task[Any]) -> None:
        await self._notify_cancel()
        self._requests.drop_questions()
        waited = {request, self._pipes.over}
        await asyncio.wait(waited, timeout=CANCEL, return_when=asyncio.FIRST_COMPLETED)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)

    def _notified(self, method: str, params: Mapping[str, Any]) -> None:
        self._heard = time.monotonic()
        if method == "session/update" and (not self.id or params.get("sessionId") == self.id):
            self._conversation.update(_mapping(params.get("update")))

    async def _handle(self, method: str, params: Any, _is_notification: bool) -> Any:
        from acp import RequestError

        self._heard = time.monotonic()
        try:
            return await self._requests.answer(method, _mapping(params), self._conversation)
        except Refusal as refusal:
            raise RequestError(refusal.code, str(refusal), refusal.data) from None


def _unrecorded(_turn: TurnRecord) -> None: ...


def _sooner(deadline: float | None) -> float:
    limit = time.monotonic() + START
    return limit if deadline is None else min(limit, deadline)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _plain(request: Any) -> dict[str, Any]:
    plain: dict[str, Any] = request.model_dump(mode="json", by_alias=True, exclude_none=True)
    return plain
