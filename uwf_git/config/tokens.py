"""Tokens that are recognised by their look: what services issue, keys in PEM, credentials in headers and URLs.

Each shape has marks, one of which stands in every token of it. Only where a mark stands is the shape's expression
tried, so most texts cost a few searches for constants. No expression reads a part of a text twice: runs are taken
possessively, and none begins within a run of another try. What merely looks random is no secret: hashes, ids of nodes
and commits, UUIDs, images in base64 stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
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
    """A kind of secret. `pattern` is tried `back` characters before each of the marks. If it has a group, what
    group 1 matches stays in the text. `judge` says whether the rest is worth hiding."""

    name: str
    marks: tuple[str, ...]
    pattern: str
    judge: Callable[[str], bool] | None = None
    back: int = 0


def is_random(text: str) -> bool:
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
_LONG = 16  # characters of one word that all others have, but for those in headers and URLs
_AMONG_WORDS = tuple(shape for shape in SHAPES if shape.name in ("url-password", "authorization"))


def without_tokens(text: str) -> tuple[str, int]:
    """The text with each token replaced by `[redacted:<name of its shape>]`, and how many there were."""
    count = 0
    if len(text) < _SHORTEST:
        return text, 0
    # In prose no word is as long as a token, which takes a fraction of looking for all the marks.
    is_prose = max(map(len, text.split()), default=0) < _LONG
    for shape in _AMONG_WORDS if is_prose else SHAPES:
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
