"""Steps by `uwf-builtin` against a model that answers at once: what is left is the engine's own time."""

from __future__ import annotations

import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from measure import Turn, fastest, process, run
from rows import Row, Size, compared, cost
from stores import UWF, Lab

from uwf_git.format.ids import ThreadId

AT_ONCE = 10


class _Model(socketserver.StreamRequestHandler):
    """Calls a tool until it has been told as many results as the request's max_tokens say, then answers."""

    disable_nagle_algorithm = True

    def handle(self) -> None:
        while line := self.rfile.readline():
            size = 0
            while line.strip():
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
                line = self.rfile.readline()
            body = self.rfile.read(size)
            wanted = int(body.split(b'"max_tokens": ')[1].split(b",")[0])
            self.wfile.write(_ANSWER if body.count(b'"role": "tool"') >= wanted else _CALL)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


def _streamed(*deltas: str, finish: str) -> bytes:
    chunks = [f'{{"model":"m","choices":[{{"index":0,"delta":{delta}}}]}}' for delta in deltas]
    chunks.append(f'{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{finish}"}}]}}')
    chunks.append('{"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":50}}')
    body = "".join(f"data: {chunk}\n\n" for chunk in [*chunks, "[DONE]"]).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


_CALL = _streamed(
    '{"tool_calls":[{"index":0,"id":"c","function":{"name":"read_file","arguments":"{\\"path\\":"}}]}',
    '{"tool_calls":[{"index":0,"function":{"arguments":" \\"note.txt\\"}"}}]}',
    finish="tool_calls",
)
_ANSWER = _streamed(
    '{"content":"---\\nstatus: done\\nnote: it is done\\n"}',
    '{"content":"---\\n\\nAll of it.\\n"}',
    finish="stop",
)


@contextmanager
def _working(folder: Path) -> Iterator[Lab]:
    """A store whose default agent is uwf-builtin, and the model it asks."""
    lab = Lab(folder)
    (folder / "note.txt").write_text("A line to read.\n" * 100)
    with _Server(("127.0.0.1", 0), _Model) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        (folder / "config.yaml").write_text(
            f"providers: {{here: {{baseUrl: 'http://127.0.0.1:{server.server_address[1]}/v1'}}}}\n"
            "models: {quick: {provider: here, name: m}}\ndefaultModel: quick\n"
        )
        yield lab
        server.shutdown()


def _step(lab: Lab, thread: ThreadId, calls: int) -> list[str]:
    """The command of a step in which the model calls so many tools."""
    agent = f"uwf-builtin --turns {calls + 2} --max-tokens {calls}"
    return [UWF, "thread", "step", thread, "--cwd", str(lab.root), "--agent", agent]


def stepping(folder: Path, size: Size) -> Iterator[Row]:
    """A step with one call of a tool; what each further turn costs."""
    with _working(folder) as lab:
        start = process([sys.executable, "-c", "import pygit2, httpx"], lab.environ)

        def anew(calls: int) -> Turn:
            return lambda: run(_step(lab, lab.start(), calls), lab.environ)

        one, sixty, bare = fastest(size.turns, anew(1), anew(30), start)
        yield compared("uwf thread step, uwf-builtin, one tool / import pygit2, httpx", one, bare, 2.5)
        yield cost("a turn more, of 61 (asked, called, told, written down)", (sixty - one) / 58, 0.005)


def side_by_side(folder: Path, size: Size) -> Iterator[Row]:
    """Steps of ten threads, one after another and all at once. How much faster at once can be is what bare
    interpreters show, which share nothing but the machine."""
    with _working(folder) as lab:
        bare = [[sys.executable, "-c", "import pygit2, httpx"]] * AT_ONCE

        def steps() -> list[list[str]]:
            return [_step(lab, lab.start(), 3) for _ in range(AT_ONCE)]

        one_by_one, together, bare_one_by_one, bare_together = fastest(
            size.few_turns,
            lambda: sum(run(command, lab.environ) for command in steps()),
            lambda: _all(steps(), lab),
            lambda: sum(run(command, lab.environ) for command in bare),
            lambda: _all(bare, lab),
        )
        what = f"{AT_ONCE} steps at once / one by one, sped up as bare imports are"
        yield compared(what, together, one_by_one * bare_together / bare_one_by_one, 1.5)


def _all(commands: Sequence[Sequence[str]], lab: Lab) -> float:
    began = time.perf_counter()
    started = [
        subprocess.Popen(command, env=lab.environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for command in commands
    ]
    codes = [each.wait() for each in started]
    seconds = time.perf_counter() - began
    for command, code in zip(commands, codes, strict=True):
        if code:
            raise subprocess.CalledProcessError(code, list(command))
    return seconds
