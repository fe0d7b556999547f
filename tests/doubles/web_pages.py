"""Web front ends of git on loopback, and a real browser that looks at them.

cgit runs as the CGI program that it is, behind nginx; klaus as the WSGI application that it is. Chromium
is driven by its DevTools protocol over a pair of pipes. What is not installed skips the test with the name
of its package; where CI is set it fails it.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from git_servers import listening, nginx, running
from programs import IN_CI, program

CGIT_FILES = Path("/usr/share/cgit")

_KLAUS = """\
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server
from klaus import make_app

class Quiet(WSGIRequestHandler):
    def log_message(self, *args): pass

make_server("127.0.0.1", int(sys.argv[1]), make_app([sys.argv[2]], "klaus"), handler_class=Quiet).serve_forever()
"""
_CGIT = """\
  types {{ text/css css; image/png png; }}
  server {{
    listen 127.0.0.1:{port};
    location /static/ {{ alias {static}/; }}
    location / {{
      fastcgi_pass unix:{home}/cgi.sock;
      fastcgi_read_timeout 60s;
      fastcgi_param SCRIPT_FILENAME {cgit};
      fastcgi_param CGIT_CONFIG {home}/cgitrc;
      fastcgi_param PATH_INFO $uri;
      fastcgi_param QUERY_STRING $query_string;
      fastcgi_param REQUEST_METHOD $request_method;
      fastcgi_param HTTP_HOST $http_host;
    }}
  }}
"""
_CGITRC = """\
root-title=cgit
virtual-root=/
css=/static/cgit.css
logo=
enable-log-filecount=1
enable-subject-links=1
max-commit-count=200
cache-size=0
repo.url=work
repo.path={repository}
repo.desc=Threads
"""


class Browser:
    """Headless Chromium with one page."""

    def __init__(self, profile: Path) -> None:
        browser = program("chromium")
        to_browser, ours = os.pipe()
        theirs, from_browser = os.pipe()
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--no-proxy-server",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-extensions",
            "--disable-sync",
            "--hide-scrollbars",
            "--window-size=1200,1000",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
        ]

        def handles() -> None:
            # The protocol is read from descriptor 3 and written to 4; whatever stands there now moves first.
            read, write = (fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (to_browser, from_browser))
            os.dup2(read, 3)
            os.dup2(write, 4)

        self._process = subprocess.Popen(
            [browser, *flags, "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=handles,
            close_fds=False,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._write = os.fdopen(ours, "wb", buffering=0)
        self._read = os.fdopen(theirs, "rb")
        self._numbers = itertools.count(1)
        self._events: list[dict[str, Any]] = []
        target = next(
            each for each in self._ask("Target.getTargets")["targetInfos"] if each["type"] == "page"
        )
        attached = self._ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self._ask("Page.enable")

    _session: str | None = None

    def open(self, url: str) -> str:
        """Goes to a page and returns its text as a reader sees it, once it has loaded."""
        self._events.clear()
        gone = self._ask("Page.navigate", url=url)
        assert "errorText" not in gone, f"{url}: {gone['errorText']}"
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(self._next())
        return str(self.evaluate("document.body.innerText"))

    def watch(self) -> None:
        """From now on `requests` and `complaints` are kept, of one page at a time."""
        for domain in ("Network", "Log", "Runtime"):
            self._ask(f"{domain}.enable")

    def requests(self) -> list[str]:
        """The addresses that the page asked for, its own included."""
        self._ask("Page.getFrameTree")  # what was underway has been told by then
        sent = [event for event in self._events if event["method"] == "Network.requestWillBeSent"]
        return [str(event["params"]["request"]["url"]) for event in sent]

    def complaints(self) -> list[Any]:
        """What the browser wrote to its console: errors, and whatever the page's policy forbade."""
        kinds = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        kinds += ("Page.javascriptDialogOpening",)
        return [event for event in self._events if event["method"] in kinds]

    def looks(self, width: int, height: int, dark: bool = False) -> None:
        """How large the window is, and whether its user prefers dark pages."""
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", media="", features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """The value of some JavaScript on the page."""
        found = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def texts(self, selector: str) -> list[str]:
        """What the elements of a CSS selector show."""
        found = self.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText)")
        return [str(text) for text in found]

    def link(self, text: str) -> str:
        """The address of the first link with a text."""
        found = self.evaluate(
            f"([...document.links].find(a => a.innerText.trim() == {json.dumps(text)}) || {{}}).href || ''"
        )
        assert found, f"no link {text!r} on {self.evaluate('location.href')}"
        return str(found)

    def shoot(self, path: Path) -> None:
        """A picture of the page."""
        shot = self._ask("Page.captureScreenshot", captureBeyondViewport=False)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """Ends the browser and all that it started."""
        with contextlib.suppress(OSError):
            self._write.close()
            self._read.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._events.append(answer)

    def _next(self) -> dict[str, Any]:
        """The next message that is an event or an answer."""
        data = bytearray()
        while byte := self._read.read(1):
            if byte == b"\0":
                return dict(json.loads(data))
            data += byte
        raise AssertionError("the browser is gone")


@contextlib.contextmanager
def klaus(repository: Path) -> Iterator[str]:
    """klaus with one repository; gives the repository's address."""
    for name in ("klaus", "markdown"):
        if importlib.util.find_spec(name) is None:
            missing = f"{name} is missing: pip install {name}"
            pytest.fail(missing) if IN_CI else pytest.skip(missing)
    with _home() as home:

        def command(port: int) -> Sequence[str]:
            return (sys.executable, "-c", _KLAUS, str(port), str(repository))

        with listening(command, home) as (port, _):
            yield f"http://127.0.0.1:{port}/{repository.name.removesuffix('.git')}"


@contextlib.contextmanager
def cgit(repository: Path) -> Iterator[str]:
    """cgit with one repository, by fcgiwrap behind nginx; gives the repository's address."""
    wrap = program("fcgiwrap")
    cgi = program("cgit")
    with _home() as home:
        # git serves nobody a repository of somebody else's unless that is meant.
        (home / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
        (home / "cgitrc").write_text(_CGITRC.format(repository=repository))

        def command(port: int) -> Sequence[str]:
            return nginx(home, _CGIT.format(home=home, port=port, cgit=cgi, static=CGIT_FILES))

        with (
            running((wrap, "-c", "2", "-f", "-s", f"unix:{home}/cgi.sock"), home),
            listening(command, home) as (port, _),
        ):
            yield f"http://127.0.0.1:{port}/work"


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    # A short name: the path of a socket may have 107 characters, and pytest's folders are longer.
    with tempfile.TemporaryDirectory(prefix="uwf-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()
