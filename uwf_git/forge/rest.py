"""Calls to the REST API of one server, with a login or without.

The login goes to the API's address alone: over https, or over http to this machine; redirects are not followed. Answers
are bounded in size, calls and waits in time. Calls that make something are not repeated: a failed one may have made it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from uwf_git.base.errors import Declined, Invalid, RemoteFailed, Usage
from uwf_git.base.text import one_line
from uwf_git.base.timelimit import TimeExceeded, time_limit
from uwf_git.base.version import VERSION
from uwf_git.forge.address import FORGEJO, GITEA, GITHUB, GITLAB

if TYPE_CHECKING:
    import httpx

_Answer = TypeVar("_Answer")

PATIENCE = 300.0
"""Seconds that one client may wait in all: for answers, for rate limits and after failures of the server."""

_LARGEST_ANSWER = 32 << 20
_CONNECT = 30.0  # seconds
_ANSWER = 60.0  # seconds from the call to the last byte; a large answer gets more, at this pace
_SLOWEST = 16 << 10  # bytes a second
_TRIES = 5
_SLOW_TRIES = 2
_SECONDARY = 60.0  # what GitHub asks for if it names no time
_TOKEN = re.compile(r"[\x21-\x7e]{1,4000}")
_RIGHTS = "is it there, and may the token see it and write? it needs {}"


class Hints(NamedTuple):
    """Hints of errors, for what their reader has to set. `rights` is about a token that may not do something."""

    token: str = "log in to the forge"
    repository: str = "it is OWNER/NAME"
    api: str = "see forges in config.yaml"
    again: str = "repeat it later"
    rights: Mapping[str, str] = {
        GITHUB: _RIGHTS.format("the scope repo, or rights for issues and pull requests"),
        GITLAB: _RIGHTS.format("the scope api"),
        FORGEJO: _RIGHTS.format("rights for issues and repositories"),
        GITEA: _RIGHTS.format("rights for issues and repositories"),
    }


HINTS = Hints()


class ForgeUnavailable(RemoteFailed):
    """The server failed, or asked to wait: the call may be repeated. `after` is in seconds. `is_slow`: it ran out of
    time."""

    after = 0.0
    is_slow = False


class ForgeDeclined(Declined):
    """The forge refused a call. `status` is that of HTTP, 0 if it answered with 200. `needs_login`: there was none."""

    status = 0
    needs_login = False

    @property
    def is_redirect(self) -> bool:
        """Whether it named another address, as for a repository or an issue that was moved."""
        return 300 <= self.status < 400


class RestClient:
    """An API of a kind at an address. `headers` have the login, whose `secrets` no error repeats; without one, `log_in`
    is the hint of errors that a login could mend. Raises Usage for an address or a token that is none. Methods raise
    ForgeDeclined, RemoteFailed, ForgeUnavailable."""

    def __init__(
        self,
        kind: str,
        api: str,
        headers: Mapping[str, str],
        secrets: Sequence[str],
        hints: Hints = HINTS,
        *,
        patience: float = PATIENCE,
        log_in: str = "",
    ) -> None:
        import httpx

        if not (secrets or log_in) or not all(map(_TOKEN.fullmatch, secrets)):
            raise Usage("there is no token for the forge's API", hints.token)
        self._kind = kind
        self._hints = hints
        self._secrets = secrets
        self._log_in = log_in
        self._patience = self._left = patience
        self._api = _address(api, hints)
        plain = self._api.scheme == "http"
        self._client = httpx.Client(
            headers={"User-Agent": f"uwf-git/{VERSION}", "Accept": "application/json", **headers},
            follow_redirects=False,
            # A proxy must not see what is sent in the clear.
            trust_env=not plain,
            verify=not plain,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def wait(self, error: ForgeUnavailable) -> None:
        """Wait as a failure asks for; raises it if there is no patience left."""
        if error.after > self._left:
            raise error
        self._left -= error.after
        time.sleep(error.after)

    def _wrong_answer(self, expected: str) -> RemoteFailed:
        return RemoteFailed(
            f"{self._api.host} did not answer with {expected}", "see whether the API's address is right"
        )

    def _object(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        answer = self._call(method, path, body)
        if not isinstance(answer, dict):
            raise self._wrong_answer("an object")
        return answer

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._answer(method, path, body)[0]

    def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[Any, Mapping[str, str]]:
        """Call until there is an answer; only for calls that may be repeated."""
        return self._repeated(lambda pause: self._sent(method, path, body, pause))

    def _repeated(self, call: Callable[[float], _Answer]) -> _Answer:
        slow = 0
        for attempt in range(_TRIES):
            try:
                return call(2.0**attempt)
            except ForgeUnavailable as error:
                slow += error.is_slow
                if attempt == _TRIES - 1 or slow == _SLOW_TRIES:
                    raise
                self.wait(error)
        raise AssertionError("a call answers or raises")

    def _sent(
        self, method: str, path: str, body: Mapping[str, Any] | None, pause: float
    ) -> tuple[Any, Mapping[str, str]]:
        text, headers = self._received(method, path, body, pause)
        if len(text) > _LARGEST_ANSWER:
            raise RemoteFailed(
                f"{self._api.host} answered {method} {one_line(path, 100)} with over {_LARGEST_ANSWER >> 20} MiB",
                "is the API's address right? if it is, delete what is too large there",
            )
        try:
            return json.loads(text) if text.strip() else None, headers
        except (ValueError, RecursionError):
            raise self._wrong_answer("JSON") from None

    def _end_of_text(self, path: str, keep: int) -> str:
        """Return the last bytes of an answer that is a text."""
        received = self._repeated(lambda pause: self._received("GET", path, None, pause, keep))
        return received[0].decode("utf-8", "replace")

    def _received(
        self, method: str, path: str, body: Mapping[str, Any] | None, pause: float, keep: int = 0
    ) -> tuple[bytes, Mapping[str, str]]:
        """Call, and return the answer's bytes, as far as they are read; with `keep` the last ones of those. The time
        that it takes counts into the client's patience."""
        import httpx

        host = self._api.host
        address = f"{self._api}{path}" if path.startswith("/") else path
        if (left := self._left) <= 0:
            raise self._too_slow(f"{host} has kept this waiting for {self._patience:.3g} s in all", pause)
        soon = min(_ANSWER, left)
        timeout = httpx.Timeout(soon, connect=min(_CONNECT, soon))
        text, size, began = bytearray(), 0, time.monotonic()
        try:
            request = self._client.build_request(method, address, json=body, timeout=timeout)
            # The client's timeouts are per read, so an answer that drips never hits them.
            with time_limit(left):
                with time_limit(soon):
                    response = self._client.send(request, stream=True)
                with closing(response):
                    for piece in response.iter_bytes():
                        text += piece
                        size += len(piece)
                        if keep:
                            del text[:-keep]
                        if size > _LARGEST_ANSWER:
                            break
                        if time.monotonic() - began > soon + size / _SLOWEST:
                            raise TimeExceeded
        except httpx.ConnectTimeout:
            raise self._too_slow(
                f"{host} cannot be reached: no connection within {timeout.connect:.3g} s", pause
            ) from None
        except (TimeExceeded, httpx.TimeoutException):
            seconds = time.monotonic() - began
            raise self._too_slow(f"{host} is too slow: no whole answer in {seconds:.3g} s", pause) from None
        except httpx.TransportError as error:
            raise self._unavailable(f"{host} cannot be reached: {type(error).__name__}", pause) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise RemoteFailed(f"{host} answered with what is not HTTP: {type(error).__name__}") from None
        finally:
            self._left -= time.monotonic() - began
        if response.is_success:
            return bytes(text), response.headers
        raise self._refusal(response, bytes(text), pause)

    def _refusal(self, response: httpx.Response, text: bytes, pause: float) -> RemoteFailed:
        status, host = response.status_code, self._api.host
        reason = self._reason(text)
        if (after := _rate_limit(response, reason)) is not None:
            message = f"{host} limits the rate of calls: it asks to wait {after:.0f} s"
            return self._unavailable(message, after, self._log_in)
        message = f"{host} answered {status}" + (f": {reason}" if reason else "")
        if status >= 500 or status == 408:
            return self._unavailable(message, pause)
        hint = ""
        if response.is_redirect:
            message = f"{host} answered {status}, a redirect, which is not followed with a token"
            hint = "was the repository renamed? give the API's new address"
        elif status in (401, 403, 404) and self._log_in:
            hint = self._log_in
        elif status == 401:
            hint = "the token is not valid, or expired"
        elif status in (403, 404):
            hint = self._hints.rights[self._kind]
        error = ForgeDeclined(message, hint)
        error.status, error.needs_login = status, bool(self._log_in) and status in (401, 403)
        return error

    def _unavailable(self, message: str, after: float, hint: str = "") -> ForgeUnavailable:
        error = ForgeUnavailable(message, hint or self._hints.again)
        error.after = max(after, 0.0)
        return error

    def _too_slow(self, message: str, after: float) -> ForgeUnavailable:
        hint = f"see whether {self._api.host} answers in a browser, or {self._hints.again}"
        error = self._unavailable(message, after, hint)
        error.is_slow = True
        return error

    def _reason(self, text: bytes) -> str:
        """Return the message of an error's body, without the login."""
        try:
            return self._message(json.loads(text))
        except (ValueError, RecursionError):
            return ""

    def _message(self, value: Any) -> str:
        if not isinstance(value, dict):
            return ""
        message = value.get("message") or value.get("error")
        if isinstance(message, dict | list):
            message = json.dumps(message)
        errors = value.get("errors")
        details = [
            detail
            for error in (errors if isinstance(errors, list) else ())
            if isinstance(detail := error.get("message") if isinstance(error, dict) else error, str)
        ]
        return self._without_secrets(text for text in (message, *details) if isinstance(text, str))

    def _without_secrets(self, texts: Iterable[str]) -> str:
        text = ": ".join(texts)
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return one_line(text, 300)


def _address(api: str, hints: Hints) -> httpx.URL:
    import httpx

    try:
        url = httpx.URL(api.rstrip("/"))
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("https", "http") or not url.host or url.userinfo or url.query or url.fragment:
        raise Usage(f"{one_line(api, 80)!r} is not the address of an API", hints.api)
    if url.scheme == "http" and not _is_here(url.host):
        raise Invalid(f"a token is not sent to {url.host} over http", "use the forge's https address")
    return url


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _rate_limit(response: httpx.Response, text: str) -> float | None:
    """Return the seconds to wait for a rate limit, None if it is another refusal."""
    headers = response.headers
    limited = response.status_code == 429 or (
        response.status_code == 403
        and (
            "retry-after" in headers
            or headers.get("x-ratelimit-remaining") == "0"
            or "rate limit" in text.lower()
        )
    )
    if not limited:
        return None
    if (after := _seconds(headers.get("retry-after"))) is not None:
        return after
    reset = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset")
    if (
        headers.get("x-ratelimit-remaining", headers.get("ratelimit-remaining")) == "0"
        and reset
        and reset.isdecimal()
    ):
        return max(float(reset[:12]) - time.time(), 1.0)
    return _SECONDARY


def _seconds(text: str | None) -> float | None:
    """Return a Retry-After header's seconds; it is a number or a date."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text.strip()[:9])
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None
