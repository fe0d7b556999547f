"""Tokens recognised by form: services' tokens, PEM keys, credentials in headers and URLs.

Each shape has marks, one of which is in every token; its expression is tried only at marks, so most texts
cost a few constant searches. Expressions are possessive and never start within another match, so they are
linear. Random-looking hashes, ids, UUIDs and base64 images are not secrets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

_W = "[A-Za-z0-9_-]"
# Nothing of a token before it, unless that is the end of an escaped line in JSON; and nothing after it.
_ALONE = rf"(?:(?<!{_W})|(?<=\\[nrt]))"
_END = rf"(?!{_W})"
# Between a name and its value, in a header, JSON or code, escaped or not.
_IS = r"[\\\"'\s]{0,6}[:=][\\\"'\s]{0,6}"
_B64 = "[A-Za-z0-9._~+/-]"
_AZ = "[A-Za-z0-9_~.-]"


class Shape(NamedTuple):
    """A kind of secret. `pattern` is tried `back` characters before each mark. Group 1, if any, stays in the
    text. `judge` decides whether the rest is secret."""

    name: str
    marks: tuple[str, ...]
    pattern: str
    judge: Callable[[str], bool] | None = None
    back: int = 0


def is_random(text: str) -> bool:
    """Return whether a text is more than a placeholder such as your-token."""
    mixed = text not in (text.lower(), text.upper())
    return any(map(str.isdigit, text)) or (mixed and len(text) >= 16) or text.endswith("=")


_PLACE_HOLDERS = ("password", "passwd", "secret", "token", "username", "example", "changeme", "your-password")


def _is_password(text: str) -> bool:
    return text.lower() not in _PLACE_HOLDERS and len(set(text)) > 2


_PEM_LINES = r"(?:[A-Za-z0-9+/=\s\\:,.]|-(?!----))"
_PEM_NAME = "(?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_EOL = r"(?:\s|\\++[nr]?)"
_PEM_MOST = 20_000  # characters from begin to end marker, with line prefixes
_PEM = (
    rf"-----BEGIN {_PEM_NAME}(?:{_PEM_LINES}{{64,{_PEM_MOST}}}+-----END {_PEM_NAME}"
    # Cut off, as a tool's output may be: the lines that are there.
    rf"|{_EOL}{{0,6}}+[A-Za-z0-9+/]{{40,}}+(?:{_EOL}++[A-Za-z0-9+/]{{40,}}+)*+={{0,2}}"
    rf"(?:{_EOL}++[A-Za-z0-9+/]++={{0,2}}(?=[^\S\r\n]*+(?:[\r\n\\\"'.…]|\Z)))?+"
    # With something before or after each line, which stays; see `_lines_of_key`.
    r"|)"
)
_PEM_GAP = 300  # characters from one line of a key to the next, and for the headers before the first
_PEM_ALONE = 100  # maximum line length if the end marker is missing
# A line of a key, but for the sign that a diff puts in front of it.
_PEM_LINE = r"(?<![A-Za-z0-9+/])(?:(?<=[\n\0])\+)?+([A-Za-z0-9+/]{40,}+={0,2})"
_PEM_LAST = r"[\s-]*+(?:(?<=[\n\0])\+)?+([A-Za-z0-9+/]{1,75}+={0,2})(?![A-Za-z0-9+/=_-])(?! *\w)"
# A number or character between two lines, without the indentation and the sign of a diff before it.
_PEM_BETWEEN = r"[\s+-]*+(\d++|[^\s+-])"
# The user may be empty, as in redis://:password@host. The text after an @ may be an image's digest.
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
    Shape("openai-key", ("sk-",), rf"{_ALONE}sk-[A-Za-z0-9]{{32,}}+{_END}", is_random),
    Shape("google-key", ("AIza",), rf"{_ALONE}AIza{_W}{{35}}{_END}"),
    Shape("google-secret", ("GOCSPX-",), rf"{_ALONE}GOCSPX-{_W}{{24,}}+"),
    Shape("google-token", ("ya29.",), rf"{_ALONE}ya29\.{_W}{{20,}}+"),
    Shape("slack-token", _SLACK, rf"{_ALONE}x[a-z]+[.-]{_SLACK_REST}", is_random),
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
    Shape("uwf-nonce", ("uwfnonce-",), rf"{_ALONE}uwfnonce-[0-9a-f]{{32}}{_END}"),
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
    Shape("authorization", ("uthorization", "UTHORIZATION"), _HEADER, is_random, back=1),
    Shape("authorization", ("earer ", "EARER "), _BEARER, is_random, back=1),
    Shape("api-key", _KEY_MARKS, _KEY, is_random),
)


_SHORTEST = 8  # characters that a token has
# Characters of one word that all others have, but for those in headers and URLs; as `_SPACED` makes them alike.
_LONG_WORD = b"x" * 16
_SPACED = bytes(32 if number < 128 and chr(number).isspace() else 120 for number in range(256))
_AMONG_WORDS = tuple(shape for shape in SHAPES if shape.name in ("url-password", "authorization"))


def without_tokens(text: str) -> tuple[str, int]:
    """Replace tokens by `[redacted:<shape>]`; return the text and their number."""
    count = 0
    if len(text) < _SHORTEST:
        return text, 0
    # In prose no word is as long as a token, which takes a fraction of looking for all the marks.
    is_prose = _LONG_WORD not in text.encode("ascii", "replace").translate(_SPACED)
    for shape in _AMONG_WORDS if is_prose else SHAPES:
        for mark in shape.marks:
            if mark in text:
                text, replaced = _without(text, shape, mark)
                count += replaced
    return text, count


def without_lines_of_keys(lines: Sequence[str]) -> tuple[list[str], int]:
    """The same for a JSON list of lines with a private key spread over them."""
    shape = SHAPES[0]
    text = "\0".join(lines)
    if not any(mark in text for mark in shape.marks) or text.count("\0") >= len(lines):
        return list(lines), 0
    spans = [_lines_of_key(text, match.end()) for match in re.finditer(f"-----BEGIN {_PEM_NAME}", text)]
    clean, count = _replaced(text, shape, filter(None, spans))
    return clean.split("\0"), count


def _without(text: str, shape: Shape, mark: str) -> tuple[str, int]:
    return _replaced(text, shape, _found(text, shape, mark))


def _replaced(text: str, shape: Shape, tokens: Iterable[Sequence[tuple[int, int]]]) -> tuple[str, int]:
    parts: list[str] = []
    done = count = 0
    for spans in tokens:
        for start, end in spans:
            parts += (text[done:start], f"[redacted:{shape.name}]")
            done = end
        count += 1
    return "".join((*parts, text[done:])) if parts else text, count


def _found(text: str, shape: Shape, mark: str) -> Iterator[Sequence[tuple[int, int]]]:
    pattern = re.compile(shape.pattern)  # which caches it
    done = 0
    at = text.find(mark)
    while at >= 0:
        match = pattern.match(text, at - shape.back) if at - shape.back >= done else None
        if match is not None:
            start = match.end(1) if pattern.groups else match.start()
            spans = [(start, match.end())]
            if shape is SHAPES[0] and "-----END " not in match[0]:
                spans = [] if match[0].endswith("-----") else spans
                spans += _lines_of_key(text, match.end())
            if spans and (shape.judge is None or shape.judge(text[start : match.end()])):
                yield spans
            done = max(match.end(), spans[-1][1] if spans else 0)
        at = text.find(mark, max(at + len(mark), done))


def _lines_of_key(text: str, begin: int) -> list[tuple[int, int]]:
    limit = min(begin + _PEM_MOST, len(text))
    if (other := text.find("-----BEGIN ", begin, limit)) >= 0:
        limit = other
    end = text.find("-----END ", begin, limit)
    if end >= 0:
        limit = end
    spans: list[tuple[int, int]] = []
    done, between = begin, ""
    for match in re.compile(_PEM_LINE).finditer(text, begin, limit):
        if match.start(1) - done > _PEM_GAP:
            break
        if end < 0 and spans and text.count("\n", done, match.start()) > 1:
            break
        if not _is_line_of_key(match[1]) or (end < 0 and len(match[1]) > _PEM_ALONE):
            continue
        if spans and (last := _last_line(text, done, match.start(), between)):
            spans.append(last)
        else:
            between = text[done : match.start(1)]
        spans.append(match.span(1))
        done = match.end(1)
    if spans and (last := _last_line(text, done, min(limit, done + _PEM_GAP), between)):
        complete = 0 <= end - last[1] <= _PEM_GAP
        rest = text[slice(*last)]
        if complete or rest.endswith("=") or (len(rest) >= _SHORTEST and is_random(rest)):
            spans.append(last)
    return spans


def _last_line(text: str, done: int, limit: int, between: str) -> tuple[int, int] | None:
    """Return a key's shorter last line, which follows the same separator as the lines before; numbers count
    up, a diff's sign may differ."""
    for part in re.finditer(_PEM_BETWEEN, between[-_PEM_GAP:]):
        match = re.compile(_PEM_BETWEEN).match(text, done, limit)
        if match is None or (match[1] != part[1] and not (match[1] + part[1]).isdecimal()):
            return None
        done = match.end()
    match = re.compile(_PEM_LAST).match(text, done, limit)
    return match.span(1) if match else None


def _is_line_of_key(text: str) -> bool:
    return (
        text not in (text.lower(), text.upper()) and len(set(text)) > 8 and text.count("/") * 8 <= len(text)
    )
