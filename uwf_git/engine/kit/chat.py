"""A client for OpenAI-compatible chat completions: one request at a time, with explicit limits.

Transient failures (429, 5xx, dropped connections, broken streams) are retried after a pause; others raise a
one-line error that names the endpoint. An optional field that an endpoint refuses (streaming and its options,
the older name of a limit, the response format, marks for caches) is omitted from then on.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from uwf_git.base import log
from uwf_git.base.errors import AgentFailed, Invalid, Throttled, Unavailable
from uwf_git.base.text import one_line
from uwf_git.base.timelimit import TimeExceeded, time_limit
from uwf_git.config.settings import CacheMarks, Rates
from uwf_git.engine.kit.cache_marks import Mark, mark_for, marked, takes_key
from uwf_git.engine.kit.chat_stream import TOO_LONG, Stream, StreamProblem, surrogates_joined, text_of_parts
from uwf_git.engine.kit.context import Reply
from uwf_git.engine.kit.response_format import JSON_OBJECT
from uwf_git.format.kinds import TurnRecord, Usage

if TYPE_CHECKING:
    import httpx

    from uwf_git.config.settings import Config

MAX_BYTES = 64_000_000  # a streamed token takes two hundred of them
MAX_TEXT = 8_000_000
_RETRIED = frozenset((408, 409, 425, 429))  # and all from 500 on
_ABOUT_FIELDS = frozenset((400, 405, 406, 415, 422, 501))
_ABOUT_FORMS = re.compile(r"response[ _]?format|json[ _](schema|object|mode|validate)|structured[ _]output")
_ABOUT_MARKS = re.compile(
    r"cache_control|prompt_cache|content[^.\n]{0,80}\b(string|str)\b|\b(string|str)\b[^.\n]{0,80}content"
)
_TOO_LONG = re.compile(
    r"context[ _]length|context[ _](window|size)|maximum context|too many (input )?tokens"
    r"|(prompt|input|request|messages?)[^.\n]{0,40} too (long|large)"
    r"|reduce the length|exceeds? the maximum number of tokens",
    re.IGNORECASE,
)
_LONGER = "raise the agent's timeout in config.yaml"
_SHOWN = 200  # characters of a body in an error
_REFUSED = ("content_filter", "refusal", "safety")  # why an answer ended


class Endpoint(NamedTuple):
    """`name` is the provider's; `key` never appears in messages. `wait` is the longest Retry-After, in
    seconds, that is obeyed; `marks` is the setting of the provider."""

    name: str
    url: str
    model: str
    key: str
    wait: float = Rates().wait
    marks: CacheMarks | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r}, {self.url!r}, {self.model!r}, key={'set' if self.key else 'none'})"


class Limits(NamedTuple):
    """Limits of a request. Times in seconds."""

    connect: float = 10.0
    read: float = 300.0  # without a byte: a model may think for minutes before the first one
    whole: float = 3600.0  # all attempts at one answer; comments keep a connection alive for ever
    attempts: int = 4
    pause: float = 0.5  # before the second attempt; doubled for each further one
    longest_pause: float = 60.0
    bytes: int = MAX_BYTES
    text: int = MAX_TEXT  # characters of an answer


Hear = Callable[[str | None], object]
"""Takes what a model says, piece by piece as it comes; None where that breaks off, and is asked for again."""


class ContextTooLong(AgentFailed):
    """The messages exceed the model's context window."""


class Completion(NamedTuple):
    """A model's reply. `message` is the protocol's own; `finish` says why it ended ("stop", "length",
    "tool_calls", …)."""

    text: str
    message: Mapping[str, Any]
    model: str
    finish: str
    usage: Usage | None
    duration_ms: int

    @property
    def is_refusal(self) -> bool:
        """Whether the model or a filter refused to answer."""
        refusal = self.message.get("refusal")
        return self.finish in _REFUSED or (isinstance(refusal, str) and bool(refusal.strip()))

    def no_answer(self) -> AgentFailed | None:
        """Return the failure for a refusal, an empty answer or one without an end, else None."""
        if self.is_refusal:
            words = one_line(self.text, _SHOWN) or f"finish_reason {self.finish}"
            return AgentFailed(
                f"model {self.model} refused to answer: {words}",
                "rephrase the task, or use another model",
            )
        if self.finish in ("length", "max_tokens") and self.text.strip():
            return AgentFailed(
                f"the answer of model {self.model} was cut off at its limit of tokens",
                "raise --max-tokens, or ask for less at once",
            )
        if self.finish == "tool_calls" and self.message.get("tool_calls") and self.text.strip():
            return AgentFailed(f"model {self.model} ended at a call of a tool", "try again, or another model")
        if self.text.strip():
            return None
        why = f" (finish_reason {self.finish})" if self.finish else ""
        hint = "raise --max-tokens" if self.finish == "length" else "try again, or another model"
        return AgentFailed(f"model {self.model} gave an empty answer{why}", hint)

    def reply(self, session: str | None = None) -> Reply:
        """Return this as an agent's reply of one turn."""
        turn = TurnRecord("assistant", self.text, usage=self.usage, duration_ms=self.duration_ms)
        return Reply(self.text, session, self.model, self.usage, (turn,))


def model_alias(agent: str, config: Config, alias: str | None) -> str:
    """Return the given alias of a model, else the configuration's. Raises Unavailable if there is none,
    Invalid for an unknown alias in the configuration."""
    from uwf_git.config.resolve import resolve_model

    if alias is not None:
        return alias
    model = resolve_model(config, "agent")
    if model is None:
        one = "default" if "default" in config.models else next(iter(config.models), None)
        named = f"one of config.yaml's models has to be the default: uwf config set defaultModel {one}"
        raise Unavailable(f"{agent} has no model to ask", named if one else "set one up with: uwf setup")
    return model.alias


def missing_price(agent: str, config: Config, alias: str | None) -> str:
    """Return why the model's cost cannot be known, "" if it has a price. Raises as `model_alias`."""
    model = config.models.get(model_alias(agent, config, alias))
    return f"model {model.name} has no price" if model is not None and model.price is None else ""


def provider_alias(agent: str, config: Config, alias: str | None) -> str:
    """Return the alias of the model's provider, "" for an unconfigured model. Raises as `model_alias`."""
    model = config.models.get(model_alias(agent, config, alias))
    return model.provider if model is not None else ""


def ready(agent: str, config: Config, alias: str | None, environ: Mapping[str, str]) -> str:
    """As `Agent.ready`, for a model by its alias."""
    resolve_endpoint(config, model_alias(agent, config, alias), environ)
    return ""


def resolve_endpoint(config: Config, alias: str, secrets: Mapping[str, str]) -> Endpoint:
    """Return the endpoint of a configured model. `secrets` are the known values by variable. Raises Invalid for an
    unknown alias, AgentFailed if the key is not set or cannot be read."""
    model = config.models.get(alias)
    if model is None:
        raise Invalid(
            f"model {alias!r} is not configured",
            f"have: {', '.join(sorted(config.models)) or 'none'}; uwf setup",
        )
    provider = config.providers.get(model.provider)
    if provider is None:
        raise Invalid(
            f"model {alias!r} names the provider {model.provider!r}, which is not configured", "uwf setup"
        )
    key = provider.api_key
    if provider.api_key_env:
        try:
            key = secrets[provider.api_key_env]
        except KeyError:
            key = ""
        if not key:
            raise AgentFailed(
                f"{provider.api_key_env}, the key of provider {provider.name}, is not set",
                f"export it, or put it into {config.path.parent / '.env'} with: uwf setup",
            )
    url = provider.base_url.rstrip("/") + "/chat/completions"
    return Endpoint(provider.name, url, model.name, key, provider.limits.wait, provider.cache_marks)


class _Retry(Exception):
    """A transient failure. `after` is the server's Retry-After; `throttled` marks rate limits."""

    def __init__(
        self, problem: str, hint: str = "", after: float | None = None, throttled: bool = False
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.after = after
        self.throttled = throttled or after is not None


class _Adapted(Exception):
    """The endpoint refused a field that the next request leaves out."""


class _Dialect(NamedTuple):
    """Fields that an endpoint refused. `mark` is what its cache takes, {} if it takes or needs none. `forms` counts the
    refused kinds of `response_format`: JSON Schema, then JSON object."""

    mark: Mark
    stream: bool = True
    stream_options: bool = True
    max_tokens: bool = True
    forms: int = 0

    def body(self, fields: Mapping[str, Any], stream: bool, cache_key: str) -> dict[str, Any]:
        body = {**fields, "messages": marked(fields["messages"], self.mark, "tools" in fields)}
        if cache_key and takes_key(self.mark):
            body["prompt_cache_key"] = cache_key
        if stream and self.stream:
            body["stream"] = True
            if self.stream_options:
                body["stream_options"] = {"include_usage": True}
        if "max_tokens" in body and not self.max_tokens:
            body["max_completion_tokens"] = body.pop("max_tokens")
        if self.forms and "response_format" in body:
            wanted = body.pop("response_format")
            if self.forms == 1 and wanted != JSON_OBJECT:
                body["response_format"] = dict(JSON_OBJECT)
            elif self.forms == 1:
                body["response_format"] = wanted
        return body

    def after(self, body: Mapping[str, Any], refusal: str) -> _Dialect | None:
        complaint = refusal.lower()
        if "stream_options" in body and ("stream_options" in complaint or "include_usage" in complaint):
            return self._replace(stream_options=False)
        if "stream" in body and "stream" in complaint:
            return self._replace(stream=False)
        if "max_tokens" in body and "max_completion_tokens" in complaint:
            return self._replace(max_tokens=False)
        if "response_format" in body and _ABOUT_FORMS.search(complaint):
            return self._replace(forms=2 if body["response_format"] == JSON_OBJECT else 1)
        if self.mark and _ABOUT_MARKS.search(complaint):
            return self._replace(mark={})
        return None


_dialects: dict[tuple[str, str, CacheMarks | None], _Dialect] = {}
"""What endpoints take after refusals in this process, by address, model and setting of marks."""


class Chat:
    """A connection to one endpoint, kept between requests. A context manager. Requests with the same `cache_key` are
    likely to begin alike."""

    def __init__(self, endpoint: Endpoint, limits: Limits = Limits(), *, cache_key: str = "") -> None:  # noqa: B008
        import httpx

        self.endpoint = endpoint
        self._cache_key = cache_key
        self._limits = limits
        mark = mark_for(endpoint.marks, endpoint.url, endpoint.model)
        self._about = endpoint.url, endpoint.model, endpoint.marks
        self._dialect = _dialects.get(self._about, _Dialect(mark))
        self._unfinished = 0
        self._hear: Hear | None = None
        self._heard = False
        try:
            self._url = httpx.URL(endpoint.url)
            if self._url.scheme not in ("http", "https") or not self._url.host:
                raise httpx.InvalidURL("no http(s) address")
            headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
            # Loading the certificates takes as long as a request; they are only needed for TLS.
            plain = self._url.scheme == "http" and not any(
                name.lower().endswith("_proxy") for name in os.environ
            )
            self._client = httpx.Client(headers=headers, follow_redirects=False, verify=not plain)
        except (httpx.InvalidURL, ValueError, UnicodeError) as error:
            if endpoint.key and not endpoint.key.isascii():
                raise Invalid(
                    f"the key of provider {endpoint.name} holds characters no key has", ""
                ) from None
            raise Invalid(
                f"provider {endpoint.name} has no usable baseUrl: {error}", "as in https://api.example.com/v1"
            ) from None
        # Credentials in the address are secret too.
        self._shown = str(self._url.copy_with(username=None, password=None, query=None))

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        deadline: float | None = None,
        extra: Mapping[str, Any] | None = None,
        stream: bool = False,
        hear: Hear | None = None,
    ) -> Completion:
        """Return one completion. `deadline` (time.monotonic()) limits everything including pauses; `extra`
        are more request fields. With `stream` it is streamed to `hear` if possible, and returned whole.
        Raises AgentFailed, ContextTooLong."""
        self._hear, self._heard = hear, False
        fields = {"model": self.endpoint.model, "messages": list(messages), **(extra or {})}
        began = time.monotonic()
        end = began + self._limits.whole
        deadline = end if deadline is None else min(deadline, end)
        attempt = 1
        while True:
            log.debug(
                "JC746PT8",
                "asks {model} of {provider}, attempt {attempt}",
                model=self.endpoint.model,
                provider=self.endpoint.name,
                url=self._shown,
                attempt=attempt,
                messages=len(messages),
                stream=stream,
            )
            try:
                value = self._attempt(self._dialect.body(fields, stream, self._cache_key), deadline)
                done = self._completion(value, began)
                if hear is not None and not self._heard and done.text:
                    hear(done.text)
                log.info(
                    "M7CFF7FE",
                    "{model} answered in {milliseconds} ms",
                    model=done.model,
                    milliseconds=done.duration_ms,
                    finish=done.finish,
                    usage=done.usage._asdict() if done.usage else None,
                    size=len(done.text),
                    attempts=attempt,
                )
                return done
            except _Adapted:
                log.info(
                    "7HCB2AVH",
                    "{provider} refuses a field: asks without it",
                    provider=self.endpoint.name,
                    takes=self._dialect._asdict(),
                )
                continue
            except _Retry as failure:
                if hear is not None and self._heard:
                    self._heard = False
                    hear(None)
                log.warning(
                    "1F9BX0SA",
                    "{provider} {problem}",
                    provider=self.endpoint.name,
                    problem=failure.problem,
                    attempt=attempt,
                    wait=failure.after,
                )
                if attempt >= self._limits.attempts:
                    times = f" ({attempt} attempts)" if attempt > 1 else ""
                    self._give_up(failure, failure.problem + times, failure.hint)
                self._pause(attempt, failure, deadline)
                attempt += 1

    def _attempt(self, body: Mapping[str, Any], deadline: float) -> Any:
        import httpx

        seconds = deadline - time.monotonic()
        if seconds <= 0:
            self._fail("no time left to ask", _LONGER, timed_out=True)
        read = min(self._limits.read, seconds)
        connect = min(self._limits.connect, seconds)
        timeout = httpx.Timeout(read, connect=connect)
        accept = "text/event-stream, application/json" if "stream" in body else "application/json"
        headers = {"Content-Type": "application/json", "Accept": accept}
        # Escaped, so that a lone surrogate in a prompt can't break the request's encoding.
        data = json.dumps(body).encode("ascii")
        try:
            # The client's timeouts are per byte, so slow headers never hit them. This one comes a second later than
            # those, whose messages are more precise.
            with (
                time_limit(seconds + 1),
                self._client.stream(
                    "POST", self._url, content=data, headers=headers, timeout=timeout
                ) as response,
            ):
                if response.status_code != 200:
                    self._refused(response, self._text(response, deadline), body)
                if "text/event-stream" in response.headers.get("content-type", "").lower():
                    return self._streamed(self._chunks(response, deadline))
                return self._read(response, deadline)
        except TimeExceeded:
            self._fail("was still answering when the time was up", _LONGER, timed_out=True)
        except httpx.ConnectTimeout:
            raise _Retry(f"no connection within {connect:.3g} s", "is the address right?") from None
        except httpx.TimeoutException:
            hint = _LONGER if read == seconds else "try again later"
            self._fail(f"no answer within {read:.3g} s", hint, timed_out=True)
        except httpx.TransportError as error:
            reason = self._flat(str(error)) or type(error).__name__
            if "CERTIFICATE" in reason.upper():
                self._fail(f"cannot be trusted: {reason}", "check the address and the machine's certificates")
            what = "cannot be reached" if isinstance(error, httpx.ConnectError) else "dropped the connection"
            raise _Retry(f"{what}: {reason}", "is the address right, and is the server up?") from None
        except (httpx.DecodingError, httpx.InvalidURL, httpx.TooManyRedirects, UnicodeError) as error:
            self._fail(f"answered what cannot be read: {self._flat(str(error))}", "")

    def _chunks(self, response: httpx.Response, deadline: float) -> Iterator[bytes]:
        size = 0
        for chunk in response.iter_bytes():
            size += len(chunk)
            if size > self._limits.bytes:
                self._fail(f"answered more than {self._limits.bytes // 1_000_000 or 1} MB", TOO_LONG)
            if time.monotonic() > deadline:
                self._fail("was still answering when the time was up", _LONGER, timed_out=True)
            yield chunk

    def _text(self, response: httpx.Response, deadline: float) -> str:
        return b"".join(self._chunks(response, deadline)).decode("utf-8", "replace")

    def _streamed(self, chunks: Iterable[bytes]) -> Any:
        import httpx

        stream = Stream(self._limits.text, self._describe)
        try:
            # Beyond the end mark too: a connection that is read to its end is used again.
            for chunk in chunks:
                stream.feed(chunk)
            stream.close()
        except StreamProblem as problem:
            shown = f": {self._flat(problem.shown)}" if problem.shown else ""
            if problem.passing:
                raise _Retry(problem.problem + shown, "try again later") from None
            self._fail(problem.problem + shown, problem.hint)
        except (httpx.TransportError, AgentFailed):
            if not stream.ended:
                raise
        if not stream.begun:
            raise _Retry("answered nothing")
        if not stream.ended:
            self._unfinished += 1
            if self._unfinished > 1:  # it may be its habit
                self._dialect = self._dialect._replace(stream=False)
            raise _Retry("broke its answer off", "try again later")
        return stream.value()

    def _describe(self, text: str) -> None:
        if self._hear is not None:
            self._heard = True
            self._hear(text)

    def _read(self, response: httpx.Response, deadline: float) -> Any:
        text = self._text(response, deadline)
        if text.lstrip().startswith(("data:", "event:", ": ")):
            return self._streamed([text.encode()])
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            if text.lstrip()[:1] == "<":
                self._fail(f"answered a web page, not JSON: {self._flat(text)}", "does baseUrl lack /v1?")
            if not text.strip():
                raise _Retry("answered nothing") from None
            self._fail(f"answered what is not JSON: {self._flat(text)}", "does baseUrl lack /v1?")

    def _refused(self, response: httpx.Response, text: str, body: Mapping[str, Any]) -> NoReturn:
        status = response.status_code
        log.debug(
            "GA3Z98JF",
            "{provider} answers {status}: {said}",
            provider=self.endpoint.name,
            status=status,
            said=self._flat(text),
        )
        if status in _ABOUT_FIELDS:
            dialect = self._dialect.after(body, text)
            if dialect is not None:
                self._dialect = _dialects[self._about] = dialect
                raise _Adapted
        problem = (
            f"answered {status} {response.reason_phrase}".rstrip() + f": {self._flat(text) or 'no text'}"
        )
        if status in (401, 403):
            self._fail(problem, "is the key right, and may it use this model? uwf setup")
        if 300 <= status < 400:
            target = self._flat(response.headers.get("location", "nowhere"))
            self._fail(f"answered {status}, a redirect to {target}", "put that address into baseUrl")
        if status in (400, 413, 422) and _TOO_LONG.search(text):
            raise ContextTooLong(f"{self.endpoint.name} ({self._shown}) {problem}", "a model with more room")
        if status == 404:
            self._fail(problem, "check baseUrl and the model's name in config.yaml")
        if status == 402 or "insufficient_quota" in text:
            self._fail(problem, "the quota of the account is used up: raise it, or ask another model")
        if status in _RETRIED or status >= 500:
            raise _Retry(problem, "try again later", _retry_after(response.headers), status == 429)
        self._fail(problem)

    def _pause(self, attempt: int, failure: _Retry, deadline: float) -> None:
        pause = min(self._limits.longest_pause, self._limits.pause * 2 ** (attempt - 1))
        pause *= random.uniform(0.5, 1)  # so that processes refused together don't come back together
        if failure.after is not None:
            if failure.after > self.endpoint.wait:
                sentence = f"{failure.problem}; it asks to wait {failure.after:.0f} s"
                self._give_up(failure, sentence, "try again later")
            pause = max(pause, failure.after)
        log.debug("MTBJTRN9", "waits {seconds} s before the next attempt", seconds=round(pause, 2))
        if time.monotonic() + pause >= deadline:
            self._give_up(failure, f"{failure.problem}; no time is left for another attempt", failure.hint)
        time.sleep(pause)

    def _completion(self, value: Any, began: float) -> Completion:
        error = value.get("error") if isinstance(value, dict) else None
        if error:
            complaint = error.get("message") if isinstance(error, dict) else error
            self._fail(f"answered an error: {self._flat(str(complaint or error))}")
        listed = value.get("choices") if isinstance(value, dict) else None
        choice = listed[0] if isinstance(listed, list) and listed else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(choice, dict) or not isinstance(message, dict):
            self._fail(
                f"answered without choices: {self._flat(json.dumps(value))}",
                "is it a chat completions endpoint?",
            )
        model = value.get("model")
        text = surrogates_joined(_text_of(message))
        if len(text) > self._limits.text:
            self._fail(f"answered more than {self._limits.text // 1_000_000 or 1} MB", TOO_LONG)
        return Completion(
            text,
            message,
            model if isinstance(model, str) and model else self.endpoint.model,
            str(choice.get("finish_reason") or ""),
            _usage(value.get("usage")),
            round((time.monotonic() - began) * 1000),
        )

    def _give_up(self, failure: _Retry, problem: str, hint: str) -> NoReturn:
        self._fail(problem, hint, Throttled(self.endpoint.name, failure.after) if failure.throttled else None)

    def _fail(
        self, problem: str, hint: str = "", throttled: Throttled | None = None, timed_out: bool = False
    ) -> NoReturn:
        error = AgentFailed(f"{self.endpoint.name} ({self._shown}) {problem}", hint)
        error.throttled, error.timed_out = throttled, timed_out
        raise error from None

    def _flat(self, text: str) -> str:
        text = text.replace(self.endpoint.key, "[key]") if self.endpoint.key else text
        return one_line(text[: _SHOWN * 4], _SHOWN)


def _text_of(message: Mapping[str, Any]) -> str:
    content = text_of_parts(message.get("content"))
    if isinstance(content, str):
        return content
    refusal = message.get("refusal")
    return refusal if isinstance(refusal, str) else ""


_READ = "cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens"
_WRITTEN = "cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens"
"""How OpenAI, DeepSeek, Anthropic and the gateways to them count the input that a cache had, and that it got."""


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    details = value.get("prompt_tokens_details")
    counted = {**value, **(details if isinstance(details, dict) else {})}
    counts = [_count(value.get("prompt_tokens")), _count(value.get("completion_tokens"))]
    if counts == [None, None]:
        return None
    read, written = (
        next(filter(None, (_count(counted.get(name)) for name in names)), 0) for names in (_READ, _WRITTEN)
    )
    prompt = counts[0] or 0
    # Some gateways pass on Anthropic's count, which leaves out what a cache had and got.
    beside = read + written if read + written > prompt else 0
    return Usage(prompt + beside, counts[1] or 0, read, written)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**53 else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text):
        return float(text)
    if not text:
        return None
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None
