"""Secrets, and taking them out of what is about to be hashed.

What is in a node can't be taken back once it is pushed, so secrets are replaced before hashing. Known are
the values in the storage root's `.env`, and of the variables that `apiKeyEnv` and the list `secrets` of the
configuration name. Such a value is also found where it stands escaped in JSON, quoted in a URL, or in
base64, alone or within something longer (an Authorization header). Other people's secrets are recognised by
their look alone: `token_shapes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.config.token_shapes import without_tokens
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
    """Secret values by variable name. `overridden` are those of `.env` that the real environment
    overrides: nobody uses them, but they are no less secret."""

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


def told(redactions: Iterable[Mapping[str, Any]] | int) -> str:
    """How many secrets were taken out of a step and where, in a line: "3 secrets were taken out: answer,
    turn 4 (2)". "" where there were none. `redactions` is what a Detail holds, a mere number in old ones."""
    places = [] if isinstance(redactions, int) else list(redactions)
    total = redactions if isinstance(redactions, int) else sum(each["count"] for each in places)
    if not total:
        return ""
    said = "1 secret was taken out" if total == 1 else f"{total} secrets were taken out"
    where = ", ".join(each["where"] + (f" ({each['count']})" if each["count"] > 1 else "") for each in places)
    return f"{said}: {where}" if where else said


def _worth_hiding(value: str) -> bool:
    """Not a setting that merely stands beside the secrets: a short or common word, a plain number, a
    path, or an address without anything private in it."""
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
