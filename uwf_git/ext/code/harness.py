"""The harness that runs a code workflow in Python, started as

    python -I -S -B harness.py

beside a copy of `define.py`, all that the code sees of uwf_git. With `UWF_CHANNEL` it follows `live.py`;
otherwise it reads {mode: descriptor, source} as JSON and prints {descriptor, run} or {error: {message, line,
column}}. The sandbox around it protects the machine; this file only reports violations of the contract.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import os
import socket
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

LONGEST = 8 << 20  # characters of a yielded or returned value, as JSON
_DEEPEST = 256  # levels of a value
_TURNS = 100  # of the event loop, after which a script is waiting
CHANNEL = "UWF_CHANNEL"
_LIBRARY = "uwf_git.workflow"
_CODE = {"exec": "runs code made of text", "compile": "makes code of text"}
_MAKERS = """
    annotationlib ast collections/__init__ dataclasses gettext importlib/_bootstrap importlib/_bootstrap_external
    inspect logging/config multiprocessing/managers multiprocessing/sharedctypes typing unittest/mock
"""
_STANDARD = Path(os.__file__).parent
_MAY = frozenset(
    (
        "<frozen importlib._bootstrap>",
        "<frozen importlib._bootstrap_external>",
        *(str(_STANDARD / f"{part}.py") for part in _MAKERS.split()),
    )
)
"""Files of the standard library that make code for what they offer, such as data classes; nobody else makes any."""


class ForbiddenImport(ImportError):
    """A forbidden import. Standard modules probe for others and accept no other error."""


class _Standard:
    """Refuses modules outside the standard library."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        raise ForbiddenImport(
            f"it imports {name}: a bundle is one file, and imports the standard library and {_LIBRARY} only"
        )


def _define() -> None:
    """Make `from uwf_git.workflow import define` import the file beside this one."""
    here = Path(__file__).parent
    paths = [
        path for path in (here / "define.py", here.parents[1] / "workflow" / "define.py") if path.is_file()
    ]
    spec = importlib.util.spec_from_file_location("uwf_git.workflow", paths[0])
    assert spec is not None and spec.loader is not None
    library = importlib.util.module_from_spec(spec)
    package = ModuleType("uwf_git")
    package.__path__ = []
    package.workflow = library  # type: ignore[attr-defined]
    sys.modules |= {"uwf_git": package, "uwf_git.workflow": library}
    spec.loader.exec_module(library)


def _globals() -> type:
    """Return the class of a script's globals, from the file beside this one."""
    spec = importlib.util.spec_from_file_location("uwf_script", Path(__file__).with_name("script_globals.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kind: type = module.Globals
    return kind


_own: list[object] = []  # code of ours that is about to be run, and text that is about to be compiled


def load(name: str, source: str) -> ModuleType:
    """Evaluate a module. Afterwards only standard imports work, and the code cannot compile text."""
    is_first = "bundle" not in sys.modules
    if is_first:
        _define()
        sys.meta_path.insert(0, _Standard())
    module = ModuleType("bundle")
    module.__file__ = name
    sys.modules["bundle"] = module  # so that class lookups by module find it
    _own.append(source)
    code = compile(source, name, "exec", dont_inherit=True)
    _own[:] = [code]

    def watch(event: str, given: tuple[object, ...]) -> None:
        if event not in _CODE or sys._getframe(1).f_code.co_filename in _MAY:
            return
        if _own and given[0] is _own[0]:
            _own.clear()
            return
        raise ForbiddenImport(f"it {_CODE[event]}, which a bundle may not")

    if is_first:
        sys.addaudithook(watch)
    exec(code, module.__dict__)
    return module


async def _whole(work: Awaitable[Any], finish: Callable[[Any], None]) -> AsyncIterator[Any]:
    """The generator of a script, which yields nothing."""
    finish(await work)
    return
    yield


def exported(module: ModuleType) -> tuple[Any, Any]:
    """Return `descriptor` and `run`, or those of `workflow`."""
    workflow = getattr(module, "workflow", None)
    if workflow is None:
        return getattr(module, "descriptor", None), getattr(module, "run", None)
    return getattr(workflow, "descriptor", None), getattr(workflow, "run", None)


def plain(value: Any, path: str, around: tuple[int, ...] = ()) -> Any:
    """Convert a value to strict JSON. Raises TypeError with the place."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{path} is {value}, which JSON cannot say")
        return value
    if id(value) in around:
        raise TypeError(f"{path} holds itself, which JSON cannot say")
    within = (*around, id(value))
    if len(within) > _DEEPEST:
        raise TypeError(f"{path} is nested deeper than {_DEEPEST} levels")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{path} has the key {key!r}, and JSON's are texts")
        return {key: plain(item, f"{path}.{key}", within) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{path}[{at}]", within) for at, item in enumerate(value)]
    raise TypeError(f"{path} is of type {type(value).__name__}, which JSON cannot say")


def describe_exception(error: BaseException, name: str) -> dict[str, Any]:
    """Return an exception with its line."""
    line = None
    column = 0
    if isinstance(error, SyntaxError) and error.filename == name:
        line, column = error.lineno, error.offset or 0
        message = f"SyntaxError: {error.msg}"
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == name:
                line = frame.lineno
        message = str(error) if isinstance(error, ForbiddenImport) else f"{type(error).__name__}: {error}"
    return {"message": message, "line": line, "column": column}


class _Agents:
    """This machine's agents: `agents.codex(role)`, `agents["claude-code"](role)`, and `agents.default(role)`
    for the configured one."""

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self._call = call

    def __getitem__(self, name: str | None) -> Callable[..., Awaitable[str]]:
        async def agent(
            role: str | None = None,
            *,
            prompt: str | None = None,
            system_prompt: str | None = None,
            schema: Mapping[str, Any] | None = None,
        ) -> str:
            fields = {"role": role, "prompt": prompt, "systemPrompt": system_prompt, "schema": schema}
            answer: str = await self._call("agent", agent=name, **fields)
            return answer

        return agent

    def __getattr__(self, name: str) -> Callable[..., Awaitable[str]]:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[None if name == "default" else name]


class Options:
    """The code's second argument: `thread_id`, `max_rounds` (None for no limit), `agents`, and two functions."""

    def __init__(self, given: Mapping[str, Any], call: Callable[..., Awaitable[Any]]) -> None:
        self.thread_id: str = given["threadId"]
        self.max_rounds: int | None = given["maxRounds"]
        self.agents = _Agents(call)
        self._call = call
        self._result: Any = None

    async def extract(
        self,
        schema: Mapping[str, Any],
        prompt: str | None = None,
        text: str | None = None,
        *,
        role: str | None = None,
    ) -> Any:
        """Return data valid by the schema, from an agent's answer or any text; without one, read from the
        thread. `prompt` instructs the model."""
        return await self._call("extract", schema=schema, prompt=prompt, text=text, role=role)

    def finish(self, result: Any) -> None:
        """Set the result, which a Python generator cannot return."""
        self._result = result


class _Run:
    """One run, and what is said about it."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._name = "bundle"
        self._steps: AsyncIterator[Any]
        self._options: Options
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls = 0
        self._is_script = False
        self._spent = 0

    async def serve(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._channel, limit=1 << 30)
        while line := await reader.readline():
            message = json.loads(line)
            if message["type"] == "answer":
                self._answered(message)
                continue
            task = asyncio.create_task(
                self._begin(message) if message["type"] == "start" else self._advance()
            )
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _send(self, message: Mapping[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode("ascii") + b"\n")

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._send({"type": "error", **describe_exception(error, self._name)})
            self._writer.close()

    async def _begin(self, message: Mapping[str, Any]) -> None:
        self._name = message["name"]
        if message.get("script"):
            await self._begin_script(message["source"], message["options"])
            return
        _, run = exported(load(self._name, message["source"]))
        if not callable(run):
            raise TypeError("it has no function run")
        self._options = Options(message["options"], self._call)
        steps = run(message["input"], self._options)
        if not hasattr(steps, "__anext__"):
            if hasattr(steps, "close"):
                steps.close()
            raise TypeError("its run is not an async generator: it must yield")
        self._steps = steps
        await self._advance()

    async def _begin_script(self, source: str, given: Mapping[str, Any]) -> None:
        self._is_script = True
        self._spent = given["spent"]
        globals_here = _globals()(self._call, load, given["total"], lambda: self._spent)
        self._options = Options({"threadId": "", "maxRounds": None}, self._call)
        script = load(self._name, source)
        self._steps = _whole(globals_here.run(script, given["args"]), self._options.finish)
        self._pause()
        await self._advance()

    def _pause(self) -> None:
        """Tell how many answers a script waits for, once it can do nothing without one."""
        task = asyncio.create_task(self._paused())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _paused(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        self._send({"type": "idle", "open": len(self._waiting)})

    async def _advance(self) -> None:
        try:
            value, kind = plain(await anext(self._steps), "the yield"), "yield"
        except StopAsyncIteration:
            value, kind = plain(self._options._result, "the result"), "return"
        size = len(json.dumps(value))
        if size > LONGEST:
            what = "the result" if kind == "return" else "the yield"
            raise ValueError(f"{what} has {size} characters, the limit is {LONGEST}")
        self._send({"type": kind, "value": value})

    async def _call(self, what: str, **given: Any) -> Any:
        self._calls += 1
        answer = self._waiting[self._calls] = asyncio.get_running_loop().create_future()
        self._send({"type": "call", "id": self._calls, "what": what, **plain(given, what)})
        return await answer

    def _answered(self, message: Mapping[str, Any]) -> None:
        waiting = self._waiting.pop(message["id"], None)
        self._spent = message.get("spent", self._spent)
        if self._is_script:
            self._pause()
        if waiting is None or waiting.done():
            return
        if message.get("error"):
            waiting.set_exception(RuntimeError(message["error"]))
        else:
            waiting.set_result(message.get("value"))


def describe() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    order = json.load(sys.stdin)
    sys.stdout = sys.stderr
    os.dup2(2, 1)
    try:
        descriptor, run = exported(load("bundle", order["source"]))
        description = {
            "descriptor": plain(descriptor, "descriptor"),
            "run": "function" if callable(run) else type(run).__name__,
        }
    except BaseException as error:
        description = {"error": describe_exception(error, "bundle")}
    json.dump(description, answers)
    answers.flush()
    os._exit(0)  # whatever the bundle has left behind


def main(_: Sequence[str] = ()) -> None:
    channel = os.environ.pop(CHANNEL, None)
    if channel is None:
        describe()
    else:
        asyncio.run(_Run(socket.socket(fileno=int(channel))).serve())


if __name__ == "__main__":
    main()
