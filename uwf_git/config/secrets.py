"""Secrets, and taking them out of what is about to be hashed.

What is in a node can't be taken back once it is pushed, so secrets are replaced before hashing.

Known by value are those in the storage root's `.env`, and of the variables that `apiKeyEnv` and the list
`secrets` of the configuration name. Such a value is also found where it stands escaped in JSON, quoted in a
URL, or in base64, alone or within something longer (an Authorization header).

Other secrets are recognised by their look: the tokens that services issue, keys in PEM, credentials in
headers and URLs. Each shape has marks, one of which stands in every token of it. Only where a mark stands is
the shape's expression tried, so most texts cost a few searches for constants. No expression reads a part of
a text twice: runs are taken possessively, and none begins within a run of another try. What merely looks
random is no secret: hashes, ids of nodes and commits, UUIDs, images in base64 stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git import log
from uwf_git.errors import Invalid

if TYPE_CHECKING:
    from uwf_git.config.settings import Config

SHORTEST = 8  # characters; anything shorter would be found everywhere
_SHORTEST_ENCODED = 12
DOTENV_LIMIT = 64 * 1024  # bytes; all of it goes into an environment

_COMMON = frozenset(
    ("changeme", "development", "localhost", "password", "postgres", "production", "undefined")
)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s@?#]*", re.IGNORECASE)


class Secrets(dict[str, str]):
    """Secret values by variable name. `overridden` are those of `.env` that the real environment overrides: they
    are not used, but secret all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.overridden: list[tuple[str, str]] = []


def load_secrets(root: Path, config: Config | None, environ: Mapping[str, str]) -> Secrets:
    """The values of `<root>/.env`, and of every variable that an `apiKeyEnv` or the list `secrets` of the
    configuration names. The real environment wins over `.env`. Raises Invalid where `.env` can't be read."""
    secrets = Secrets()
    for name, value in _read_dotenv(root / ".env").items():
        effective = environ.get(name, "") or value
        secrets[name] = effective
        if effective != value:
            secrets.overridden.append((name, value))
    if config is not None:
        keys = (provider.api_key_env for provider in config.providers.values())
        for name in (*keys, *config.secrets):
            if name and (held := environ.get(name)):
                secrets[name] = held
    log.debug(
        "2DVK70CB",
        "knows {count} secrets: {names}",
        count=len(secrets),
        names=list(secrets),
        overridden=[name for name, _ in secrets.overridden],
    )
    return secrets


def _read_dotenv(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    if not path.is_dir() and (not path.is_file() or path.stat().st_size > DOTENV_LIMIT):
        raise Invalid(
            f"{path} is no file of at most {DOTENV_LIMIT // 1024} KiB", "it holds lines of NAME=value"
        )
    from io import StringIO

    from dotenv import dotenv_values

    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise Invalid(f"{path} can't be read: {reason}", "it holds lines of NAME=value") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise Invalid(f"{path}:{line}: holds a NUL, which no environment can", "remove that line")
    import logging

    logging.getLogger("dotenv").setLevel(logging.ERROR)  # it warns of odd lines on its own
    # Without interpolation: a `$` in a key is a character of it.
    return {
        name: value
        for name, value in dotenv_values(stream=StringIO(text), interpolate=False).items()
        if value
    }


class Redactor:
    """Replaces secrets by `[redacted:NAME]`, where NAME is the variable of a known one, or the kind of one
    that was recognised by its look. Made once, used for everything a step writes."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        names: dict[str, str] = {}
        overridden = secrets.overridden if isinstance(secrets, Secrets) else []
        for name, value in [*secrets.items(), *overridden]:
            if _worth_hiding(value):
                for form in _forms(value):
                    names.setdefault(form, name)
        self._names = names
        # Longest first: of two secrets that begin alike the whole of the longer one has to go.
        ordered = sorted(names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    @property
    def known(self) -> Collection[str]:
        """The secrets that are known by their values, in every form in which they are looked for."""
        return self._names.keys()

    def __bool__(self) -> bool:
        """Whether any secret is known by its value."""
        return self._pattern is not None

    def text(self, text: str) -> tuple[str, int]:
        """The text without secrets, and how many were replaced."""
        known = 0
        if self._pattern is not None:
            text, known = self._pattern.subn(lambda found: f"[redacted:{self._names[found[0]]}]", text)
        text, recognised = without_tokens(text)
        return text, known + recognised

    def value(self, value: Any) -> tuple[Any, int]:
        """A JSON value without secrets in its texts and keys, and how many were replaced."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            result: dict[str, Any] = {}
            count = 0
            for key, item in value.items():
                (name, in_key), (clean, inside) = self.text(key), self.value(item)
                result[name] = clean
                count += in_key + inside
            return result, count
        if isinstance(value, list | tuple):
            pairs = [self.value(item) for item in value]
            return [clean for clean, _ in pairs], sum(count for _, count in pairs)
        return value, 0


def told(redactions: Iterable[tuple[str, int]]) -> str:
    """How many secrets were taken out of a step and where, in a line: "3 secrets were taken out: answer,
    turn 4 (2)". "" where there were none. `redactions` is what a Detail holds: a number without a place in old ones."""
    places = list(redactions)
    total = sum(count for _, count in places)
    if not total:
        return ""
    said = "1 secret was taken out" if total == 1 else f"{total} secrets were taken out"
    where = ", ".join(place + (f" ({count})" if count > 1 else "") for place, count in places if place)
    return f"{said}: {where}" if where else said


def _worth_hiding(value: str) -> bool:
    """Whether a value is secret rather than a setting beside the secrets: a short or common word, a plain number,
    a path, or an address without anything private in it."""
    if len(value) < SHORTEST or value.lower() in _COMMON or value.isspace():
        return False
    if value.startswith(("/", "~/", "./")) and " " not in value and Path(value).expanduser().exists():
        return False
    if _ADDRESS.fullmatch(value):
        return any(len(part) >= 16 for part in value.split("://", 1)[1].split("/")[1:])
    digits = value.replace(".", "").replace(":", "")
    return not (digits.isdigit() and len(digits) < 12) and len(set(value)) > 2


def _forms(value: str) -> Iterator[str]:
    import base64
    import json
    from urllib.parse import quote, quote_plus

    yield value
    for ascii_only in (False, True):
        yield json.dumps(value, ensure_ascii=ascii_only)[1:-1]
    yield quote(value, safe="")
    yield quote_plus(value)
    data = value.encode("utf-8", "surrogatepass")
    for skipped in range(3):
        # Within something longer a value may begin at any of three places of a base64 group. The
        # characters that also hold bits of its neighbours are left out.
        encoded = base64.b64encode(bytes(skipped) + data).decode("ascii")
        first = (0, 2, 3)[skipped]
        last = (len(data) + skipped) * 8 // 6
        core = encoded[first:last]
        if len(core) >= _SHORTEST_ENCODED:
            yield core
            yield core.replace("+", "-").replace("/", "_")


_W = "[A-Za-z0-9_-]"
# Nothing of a token before it, unless that is the end of an escaped line in JSON; and nothing after it.
_ALONE = rf"(?:(?<!{_W})|(?<=\\[nrt]))"
_END = rf"(?!{_W})"
# Between a name and its value, in a header, JSON or code, escaped or not.
_IS = r"[\\\"'\s]{0,6}[:=][\\\"'\s]{0,6}"
_B64 = "[A-Za-z0-9._~+/-]"
_AZ = "[A-Za-z0-9_~.-]"


class Shape(NamedTuple):
    """A kind of secret. `pattern` is tried `back` characters before each of the marks. If it has a group, what
    group 1 matches stays in the text. `judge` says whether the rest is worth hiding."""

    name: str
    marks: tuple[str, ...]
    pattern: str
    judge: Callable[[str], bool] | None = None
    back: int = 0


def _is_random(text: str) -> bool:
    """Whether a text is more than a place-holder, such as your-token or YOUR_API_KEY."""
    mixed = text not in (text.lower(), text.upper())
    return any(map(str.isdigit, text)) or (mixed and len(text) >= 16) or text.endswith("=")


_PLACE_HOLDERS = ("password", "passwd", "secret", "token", "username", "example", "changeme", "your-password")


def _is_password(text: str) -> bool:
    return text.lower() not in _PLACE_HOLDERS and len(set(text)) > 2


_PEM_LINES = r"(?:[A-Za-z0-9+/=\s\\:,.]|-(?!----))"
_PEM_NAME = "(?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_PEM = (
    rf"-----BEGIN {_PEM_NAME}(?:{_PEM_LINES}{{64,20000}}+-----END {_PEM_NAME}"
    # Cut off, as a tool's output may be: the lines that are there.
    r"|(?:[\s\\]|\\[nr]){0,6}[A-Za-z0-9+/]{40,76}+[A-Za-z0-9+/=\s\\]*+)"
)
# A user may be empty, as in redis://:password@host. What follows an @ may also be an image's digest.
_URL = r"(://[^\s/@:?#\"'<>\\`]{0,200}:)[^\s/@:?#\"'<>\\`${}*]{5,300}+(?=@(?!sha\d))"
_AWS_MARKS = ("aws_secret", "AWS_SECRET", "awsSecret", "AwsSecret", "aws-secret")
_AWS = rf"((?i:aws[_-]?secret[_-]?(?:access[_-]?)?key){_IS})[A-Za-z0-9/+]{{40}}(?![A-Za-z0-9/+=])"
_HEADER = rf"((?i:authorization){_IS}(?i:bearer|basic|token|apikey)\s{{1,4}}){_B64}{{8,}}+=*"
_BEARER = rf"((?<![A-Za-z0-9])(?i:bearer)\s{{1,4}}){_B64}{{20,}}+=*"
_KEY_MARKS = ("pi-key", "pi-Key", "PI-Key", "PI-KEY", "rivate-token", "rivate-Token", "RIVATE-TOKEN")
_KEY = rf"((?i:pi-key|rivate-token){_IS}){_B64}{{16,}}+=*"
_GITHUB = ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")
_GITLAB = ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glagent-")
_SLACK = ("xoxa-", "xoxb-", "xoxe-", "xoxe.", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-")
_SLACK_REST = r"[A-Za-z0-9-]{16,}+(?:\.[A-Za-z0-9-]++){0,3}"
_STRIPE = ("sk_live_", "rk_live_", "sk_test_", "rk_test_")
_DIGITALOCEAN = ("dop_v1_", "doo_v1_", "dor_v1_")

SHAPES = (
    Shape("private-key", ("-----BEGIN ",), _PEM),
    Shape("github-token", _GITHUB, rf"{_ALONE}gh._[A-Za-z0-9]{{36,}}+"),
    Shape("github-token", ("github_pat_",), rf"{_ALONE}github_pat_[A-Za-z0-9_]{{22,}}+"),
    Shape("gitlab-token", _GITLAB, rf"{_ALONE}gl[a-z]+-{_W}{{20,}}+(?:\.[a-z0-9]{{2,20}}){{0,3}}"),
    Shape("aws-access-key", ("AKIA", "ASIA"), rf"{_ALONE}A[KS]IA[A-Z2-7]{{16}}{_END}"),
    Shape("aws-secret-key", _AWS_MARKS, _AWS),
    Shape("anthropic-key", ("sk-ant-",), rf"{_ALONE}sk-ant-{_W}{{20,}}+"),
    Shape("openai-key", ("sk-proj-", "sk-svcacct-", "sk-admin-"), rf"{_ALONE}sk-[a-z]+-{_W}{{20,}}+"),
    Shape("openrouter-key", ("sk-or-",), rf"{_ALONE}sk-or-(?:v\d-)?[0-9a-f]{{32,}}+"),
    Shape("openai-key", ("sk-",), rf"{_ALONE}sk-[A-Za-z0-9]{{32,}}+{_END}", _is_random),
    Shape("google-key", ("AIza",), rf"{_ALONE}AIza{_W}{{35}}{_END}"),
    Shape("google-secret", ("GOCSPX-",), rf"{_ALONE}GOCSPX-{_W}{{24,}}+"),
    Shape("google-token", ("ya29.",), rf"{_ALONE}ya29\.{_W}{{20,}}+"),
    Shape("slack-token", _SLACK, rf"{_ALONE}x[a-z]+[.-]{_SLACK_REST}", _is_random),
    Shape("slack-webhook", ("hooks.slack.com/",), r"(hooks\.slack\.com/[a-z]+/)[A-Za-z0-9_/+-]{20,}+"),
    Shape("stripe-key", _STRIPE, rf"{_ALONE}.k_(?:live|test)_[A-Za-z0-9]{{16,}}+"),
    Shape("stripe-secret", ("whsec_",), rf"{_ALONE}whsec_[A-Za-z0-9+/]{{24,}}+=*"),
    Shape("npm-token", ("npm_",), rf"{_ALONE}npm_[A-Za-z0-9]{{36}}{_END}"),
    Shape("pypi-token", ("pypi-AgE",), rf"{_ALONE}pypi-AgE{_W}{{50,}}+"),
    Shape("huggingface-token", ("hf_",), rf"{_ALONE}hf_[A-Za-z0-9]{{30,60}}+{_END}"),
    Shape("groq-key", ("gsk_",), rf"{_ALONE}gsk_[A-Za-z0-9]{{40,}}+"),
    Shape("xai-key", ("xai-",), rf"{_ALONE}xai-[A-Za-z0-9]{{60,}}+"),
    Shape("perplexity-key", ("pplx-",), rf"{_ALONE}pplx-[A-Za-z0-9]{{40,}}+"),
    Shape("replicate-token", ("r8_",), rf"{_ALONE}r8_[A-Za-z0-9]{{37,40}}+{_END}"),
    Shape("docker-token", ("dckr_",), rf"{_ALONE}dckr_(?:pat|oat)_{_W}{{20,}}+"),
    Shape("digitalocean-token", _DIGITALOCEAN, rf"{_ALONE}do._v1_[a-f0-9]{{64}}{_END}"),
    Shape("sendgrid-key", ("SG.",), rf"{_ALONE}SG\.{_W}{{20,24}}+\.{_W}{{39,50}}+"),
    Shape("vault-token", ("hvs.", "hvb."), rf"{_ALONE}hv.\.{_W}{{24,}}+"),
    Shape("age-key", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[0-9A-Z]{50,60}"),
    Shape("azure-key", ("AccountKey=", "AccessKey="), r"(Acc[a-z]+Key=)[A-Za-z0-9+/]{40,100}+={0,2}"),
    Shape("azure-signature", ("?sig=", "&sig=", ";sig="), r"(.sig=)[A-Za-z0-9%+/]{40,80}(?:%3D|=)"),
    Shape(
        "azure-secret",
        ("Q~",),
        rf"(?:(?<!{_AZ})|(?<=\\[nrt])){_AZ}{{3}}\dQ~{_AZ}{{30,33}}[A-Za-z0-9_~-]{_END}",
        back=4,
    ),
    Shape("jwt", ("eyJ",), rf"{_ALONE}eyJ{_W}{{10,}}+(?:\.{_W}{{10,}}+){{2}}(?:\.{_W}++){{0,2}}"),
    Shape("url-password", ("://",), _URL, _is_password),
    Shape("authorization", ("uthorization", "UTHORIZATION"), _HEADER, _is_random, back=1),
    Shape("authorization", ("earer ", "EARER "), _BEARER, _is_random, back=1),
    Shape("api-key", _KEY_MARKS, _KEY, _is_random),
)


_SHORTEST = 8  # characters that a token has


def without_tokens(text: str) -> tuple[str, int]:
    """The text with each token replaced by `[redacted:<name of its shape>]`, and how many there were."""
    count = 0
    if len(text) < _SHORTEST:
        return text, 0
    for shape in SHAPES:
        for mark in shape.marks:
            if mark in text:
                text, found = _without(text, shape, mark)
                count += found
    return text, count


def _without(text: str, shape: Shape, mark: str) -> tuple[str, int]:
    parts: list[str] = []
    done = 0
    for start, end in _found(text, shape, mark):
        parts += (text[done:start], f"[redacted:{shape.name}]")
        done = end
    return "".join((*parts, text[done:])) if parts else text, len(parts) // 2


def _found(text: str, shape: Shape, mark: str) -> Iterator[tuple[int, int]]:
    """Where the tokens of a shape begin and end, in order."""
    pattern = re.compile(shape.pattern)  # which caches it
    done = 0
    at = text.find(mark)
    while at >= 0:
        found = pattern.match(text, at - shape.back) if at - shape.back >= done else None
        if found is not None:
            start = found.end(1) if pattern.groups else found.start()
            if shape.judge is None or shape.judge(text[start : found.end()]):
                yield start, found.end()
            done = found.end()
        at = text.find(mark, max(at + len(mark), done))
