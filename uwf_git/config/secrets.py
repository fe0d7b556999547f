"""Secrets, and removing them before anything is hashed.

A node cannot be recalled once pushed. So secrets in agents' and people's texts are replaced before hashing,
and definitions and nodes put by hand are refused if they contain any. Everything stored passes `Redactor`;
see `NodeStore.gate`.

Known values are those of `.env`, of variables named by `apiKeyEnv` and `secrets`, and of environment
variables with secret-looking names, also of those in `.env` files of a checkout that git doesn't track; those of
commands and the keyring once they were read. They are also found
quoted for JSON, URL or HTML (see `quoting`), in hex or base64, also within longer values, and with changed line
breaks. Each random-looking line of a multi-line value is a secret by itself.

Other secrets are recognised by form; see `tokens`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from uwf_git.base import log
from uwf_git.base.errors import Invalid
from uwf_git.config.quoting import quoted_pattern, unquoted, unspaced
from uwf_git.config.tokens import is_random, without_lines_of_keys, without_tokens
from uwf_git.git.libgit2 import GitError, indexed

if TYPE_CHECKING:
    from uwf_git.config.settings import Config, SecretSource

SHORTEST = 8  # characters; anything shorter would be found everywhere
_SHORTEST_ENCODED = 12
_SHORTEST_BROKEN = 12  # minimum length of secrets that are also searched across lines
DOTENV_LIMIT = 64 * 1024  # bytes; all of it goes into an environment
# Of a checkout, without those that are to be copied and filled in.
_SETTINGS_FILE = r"(?:\.env(?:rc|\.(?!example|sample|template|dist).*)?|\.dev\.vars)$"
_MOST_IN_CHECKOUT = 1000  # variables

_COMMON = frozenset(
    ("changeme", "development", "localhost", "password", "postgres", "production", "redacted", "undefined")
)
_ADDRESS = r"(?i)[a-z][a-z0-9+.-]*://[^\s@?#]*"

# Last words of variable names: the value is a secret, or is one if it looks random.
_SECRET_NAME = (
    r"(?:TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|(?:^|_)(?:PASS|PWD|PAT)"
    r"|(?:API|ACCESS|SECRET|PRIVATE|MASTER|SIGNING|ENCRYPTION|ACCOUNT|SERVICE)_?KEY|SECRET_KEY_BASE)$"
)
_MAYBE_SECRET_NAME = r"(?:^|_)(?:KEY|AUTH|AUTH_CONFIG|COOKIE)$"
_QUALIFIER = r"(?:_(?:[0-9]+|V[0-9]+|PROD|PRODUCTION|DEV|STAGING|TEST|LIVE|OLD|NEW|BACKUP|B64|BASE64))+$"
_NO_SECRETS = ("PWD", "OLDPWD")  # has or had a secret
# Settings often stored beside keys: model and address.
_SETTING_NAME = (
    r"(?:^|_)(?:(?:MODEL|DEPLOYMENT)(?:_NAME|_ID)?|PROVIDER|BASE_UR[LI]|API_(?:BASE|URL|VERSION|TYPE)|ENDPOINT"
    r"|HOST|HOSTNAME|PORT|REGION|LOCATION|LOG_LEVEL)$"
)
_SETTING = r"(?a)[\w.:/+\[\]-]+(?:@[\w-]+)?"  # of Vertex, a model may be NAME@DATE
_LOGIN = r"://.*@|:[^/]*@"
_UNGUESSABLE = r"(?i)(?=[A-Za-z]*[0-9])[A-Za-z0-9]{16,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_GIT_SETTING = "GIT_CONFIG_"  # in which a key is the name of a setting

_LEAST_NUMBER = 10**11
_LONGEST_HEADER = 40  # characters
_HEADER = r"(?i)authorization|api-key|private-token|aws[_-]?secret"
_REMEMBERED, _MOST_REMEMBERED = 64 * 1024, 64  # characters, texts
_PLACE = r"\[redacted:([^\]\n]*)\]"
REDACTED = re.compile(r"\[redacted:[A-Za-z_][A-Za-z0-9_-]*\]")
"""The place of a secret that was taken out of a text."""

# Line breaks inside a secret: a newline, possibly escaped or as in JSON, and the indentation of the next line. White
# space within a secret may have changed.
_BREAKS = r"[\r\n]|\\[rn]"
_BREAK = r"(?:[ \t\\]*(?:[\r\n]|\\[rn])(?:\s|\\+[nrt]|\\)*+)?"
_SPACE = r"(?:\s|\\+[nrt]|\\)++"
_PARTS = r"\s+|\S"


class Secrets(dict[str, str]):
    """Known secrets by variable name. `others` are also secret: values of `.env` overridden by the environment, and
    environment variables with secret-looking names. `harmless` variables are not: settings such as
    `OPENAI_MODEL` and those in `notSecrets`. A secret of `sources` is read when it is looked up as `secrets[name]`,
    once, and known from then on to all redactors of this process; Unavailable is raised if it can't be."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__()
        self.others: list[tuple[str, str]] = []
        self.harmless: frozenset[str] = frozenset()
        self.sources: Mapping[str, SecretSource] = {}
        self._environ = environ
        self._granted: set[str] = set()

    def __missing__(self, name: str) -> str:
        from uwf_git.config.secret_source import read_secret

        source, clean = self.sources[name], Redactor(self)
        value = read_secret(source, name, self._environ, lambda text: clean.text(text)[0])
        self[name] = value
        learn({name: value})
        return value

    def value(self, name: str) -> str:
        """Return a variable's value, also one that is no secret; "" for none. Raises Unavailable."""
        try:
            return self[name]
        except KeyError:
            return self._environ.get(name, "")

    def environment(self, names: Iterable[str] = ()) -> dict[str, str]:
        """Return the environment of a program: this process's without the secrets that the configuration and `.env`
        name, the settings of `.env`, and of these secrets those in `names`. Raises Unavailable."""
        granted = {name: value for name in names if (value := self.value(name))}
        self._granted.update(granted)
        kept = {name: self[name] for name in self.harmless if name in self}
        for name, value in self._environ.items():
            if name in self.harmless or not (name in self or name in self.sources):
                kept[name] = value
        return kept | granted

    def withheld(self, text: str) -> str:
        """Return a variable in a program's output that no program of this process was given, "" for none."""
        names = {*self, *self.sources} - self.harmless - self._granted
        return next((word for word in re.findall(r"[A-Za-z_]\w*", text) if word in names), "")

    def unread(self) -> dict[str, str]:
        """Return every variable that something could get, without reading sources."""
        return {**dict.fromkeys(self.sources, "unread"), **self, **self._environ}

    def kept_from(self, names: Iterable[str] = ()) -> dict[str, str]:
        """Return an environment for foreign code, without variables that are named like secrets either."""
        names = set(names)
        return {
            name: value
            for name, value in self.environment(names).items()
            if name in names or name in self.harmless or not holds_secret(name, value)
        }


def load_secrets(root: Path, config: Config | None, environ: Mapping[str, str]) -> Secrets:
    """Return the secrets of `<root>/.env`, of configured variables and of the environment, without
    `notSecrets` and settings. The environment overrides `.env`. Raises Invalid for an unreadable `.env`."""
    secrets = Secrets(environ)
    declared: set[str] = set()
    models: set[str] = set()
    for name, value in read_dotenv(root / ".env").items():
        effective = environ.get(name, "") or value
        secrets[name] = effective
        if effective != value:
            secrets.others.append((name, value))
    if config is not None:
        secrets.sources = config.secret_sources
        for name in secrets.sources:
            if value := secrets.pop(name, ""):  # the source counts, not `.env`
                secrets.others.append((name, value))
        models = {model.name for model in config.models.values()}
        keys = [provider.api_key_env for provider in config.providers.values()]
        declared = {name for name in (*keys, *config.secrets) if name}
        for name in (*keys, *config.secrets):
            if name and (held := environ.get(name)):
                secrets[name] = held
        secrets.others += [
            (f"providers.{provider.name}.apiKey", provider.api_key)
            for provider in config.providers.values()
            if provider.api_key
        ]
    named = [
        (name, value) for name, value in environ.items() if name not in secrets and holds_secret(name, value)
    ]
    secrets.others += named
    private = {name for name, value in secrets.others if not _is_setting(name, value, models)} | declared
    secrets.harmless = frozenset(
        name
        for name, value in secrets.items()
        if name not in private
        and (_is_setting(name, value, models) or not (_worth_hiding(value) or holds_secret(name, value)))
    )
    if config is not None:
        secrets.harmless |= frozenset(config.not_secrets)
    log.debug(
        "2DVK70CB",
        "knows {count} secrets: {names}",
        count=len(secrets) + len(named),
        names=[*secrets, *(name for name, _ in named)],
        overridden=[name for name, _ in secrets.others if name in secrets],
    )
    return secrets


def holds_secret(name: str, value: str) -> bool:
    """Return whether a variable's name suggests a secret: `DB_PASSWORD`, `API_KEY_2`. For vague names such as
    `SORT_KEY` the value must look random."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z0-9]+", "_", name).upper().strip("_")
    if words in _NO_SECRETS or words.startswith(_GIT_SETTING):
        return False
    words = re.sub(_QUALIFIER, "", words)
    if re.search(_SECRET_NAME, words):
        return True
    return re.search(_MAYBE_SECRET_NAME, words) is not None and is_random(value)


def _is_setting(name: str, value: str, models: Collection[str]) -> bool:
    """Return whether a variable of `.env` is a setting: by its name, unless its value has a login or token;
    or its value is a configured model's name."""
    if value in models:
        return True
    words = re.sub(_QUALIFIER, "", re.sub(r"[^A-Za-z0-9]+", "_", name).upper().strip("_"))
    named = re.search(_SETTING_NAME, words) and re.fullmatch(_SETTING, value)
    return bool(named) and not re.search(_LOGIN, value) and not re.search(_UNGUESSABLE, value)


def read_dotenv(path: Path) -> dict[str, str]:
    """Return the variables of a file of lines `NAME=value`, without empty ones; none if it isn't there. Raises Invalid
    if it cannot be read."""
    if not path.exists():
        return {}
    if not path.is_dir() and (not path.is_file() or path.stat().st_size > DOTENV_LIMIT):
        raise Invalid(
            f"{path} is not a file of at most {DOTENV_LIMIT // 1024} KiB", "it holds lines of NAME=value"
        )
    from io import StringIO

    from dotenv import dotenv_values

    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise Invalid(f"{path} cannot be read: {reason}", "it holds lines of NAME=value") from None
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


def checkout_secrets(top: Path, git_dir: Path) -> dict[str, str]:
    """Return the variables of settings files at the top of a checkout, such as `.env`, that are named like secrets. A
    file that git tracks is no secret, and a stranger's could name any word one; of one that cannot be read there are
    none."""
    try:
        with os.scandir(top) as entries:
            names = sorted(
                item.name for item in entries if re.match(_SETTINGS_FILE, item.name) and item.is_file()
            )
    except OSError:
        return {}
    try:
        tracked = indexed(str(git_dir), names) if names else frozenset()
    except (GitError, ValueError):  # an index that libgit2 can't read, such as a sparse one
        from uwf_git.git.ignored import ignored_below

        is_ignored = ignored_below(top)
        tracked = frozenset(name for name in names if is_ignored is not None and not is_ignored(name))
    variables: dict[str, str] = {}
    for name in (name for name in names if name not in tracked):
        with suppress(Invalid, OSError):
            variables |= {
                key: value for key, value in read_dotenv(top / name).items() if holds_secret(key, value)
            }
        if len(variables) > _MOST_IN_CHECKOUT:
            break
    return dict(islice(variables.items(), _MOST_IN_CHECKOUT))


class SecretLocation(NamedTuple):
    """A secret's place: its variable, or its kind if recognised by form, and the line from 1."""

    name: str
    line: int

    def __str__(self) -> str:
        return f"a secret ({self.name})"


class Redactor:
    """Replaces secrets by `[redacted:NAME]`, with the variable's name or the kind. One per process."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        others = secrets.others if isinstance(secrets, Secrets) else []
        harmless = secrets.harmless if isinstance(secrets, Secrets) else frozenset()
        values = [(name, value) for name, value in [*secrets.items(), *others] if name not in harmless]
        places = [_place(name) for name, _ in values]
        self._names: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._whole: dict[str, str] = {}
        for name, value in values:
            # A placeholder's text must not match again.
            if _worth_hiding(value) and not any(value in place for place in places):
                self._hide(name, value)
        self._order()
        _redactors.add(self)

    def learn(self, name: str, value: str) -> None:
        """Hide from now on a secret that came from elsewhere, such as a login."""
        self.learn_all({name: value})

    def learn_all(self, values: Mapping[str, str]) -> None:
        new = [item for item in values.items() if _worth_hiding(item[1]) and item[1] not in self._values]
        for name, value in new:
            self._hide(name, value)
        if new:
            self.__dict__.pop("_squeezed", None)
            self._order()

    def _hide(self, name: str, value: str) -> None:
        self._values.setdefault(value, name)
        for form in _forms(value):
            self._names.setdefault(form, name)
            self._whole.setdefault(form, name)
        if lines := list(_lines(value)):
            self._whole.setdefault("".join(lines), name)  # rewrapped at any width
        for line in lines:
            self._names.setdefault(line, name)

    def _order(self) -> None:
        # Longest first: of two secrets that begin alike the whole of the longer one has to go.
        self._ordered = sorted(self._names, key=len, reverse=True)
        self._clean: set[str] = set()

    @property
    def known(self) -> Collection[str]:
        """Known values in every searched form."""
        return self._names.keys()

    def __bool__(self) -> bool:
        """Whether any secret is known by its value."""
        return bool(self._names)

    def text(self, text: str) -> tuple[str, int]:
        """Return the text without secrets, and their number."""
        if text in self._clean or len(text) < SHORTEST:
            return text, 0
        known = 0
        if self._names:
            for form in self._broken_in(text):
                text, count = self._pattern_of(form).subn(_place(self._whole[form]), text)
                known += count
            for value in self._quoted_in(text):
                text, count = quoted_pattern(value).subn(_place(self._values[value]), text)
                known += count
            if there := [form for form in self._ordered if form in text]:
                pattern = re.compile("|".join(map(re.escape, there)))
                text, count = pattern.subn(lambda match: _place(self._names[match[0]]), text)
                known += count
        text, recognised = without_tokens(text)
        more = recognised
        while more:  # without one there may be another, which it had cut off
            text, more = without_tokens(text)
            recognised += more
        self._remember(text)
        return text, known + recognised

    def _remember(self, text: str) -> None:
        if len(text) <= _REMEMBERED:
            if len(self._clean) >= _MOST_REMEMBERED:
                self._clean.clear()
            self._clean.add(text)

    @cached_property
    def _squeezed(self) -> list[tuple[bytes, str]]:
        squeezed = [(_squeezed(form), form) for form in sorted(self._whole, key=len, reverse=True)]
        return [
            (core, form) for core, form in squeezed if len(core) >= _SHORTEST_BROKEN and not form.isalpha()
        ]

    def _broken_in(self, text: str) -> list[str]:
        if not self._squeezed or not re.search(_BREAKS, text):
            return []
        squeezed = _squeezed(text)
        return [form for core, form in self._squeezed if core in squeezed]

    def _quoted_in(self, text: str) -> list[str]:
        if not self._values or not (decoded := unquoted(text)):
            return []
        values = sorted(self._values, key=len, reverse=True)
        return [value for value in values if any(unspaced(value) in plain for plain in decoded)]

    def _pattern_of(self, form: str) -> re.Pattern[str]:
        return re.compile(
            _BREAK.join(_wherever(part) for part in re.findall(_PARTS, form))
        )  # which caches it

    def value(self, value: Any) -> tuple[Any, int]:
        """Return a JSON value without secrets in texts and keys, and their number. A secret number becomes a
        text."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            result: dict[str, Any] = {}
            count = 0
            for key, item in value.items():
                (name, in_key), (clean, inside) = self.text(key), self._under(key, item)
                result[name] = clean
                count += in_key + inside
            return result, count
        if isinstance(value, list | tuple):
            pairs = [self.value(item) for item in value]
            clean, spread = _without_spread_keys([clean for clean, _ in pairs])
            return clean, sum(count for _, count in pairs) + spread
        if isinstance(value, int) and self._names and abs(value) >= _LEAST_NUMBER:
            text, count = self.text(str(value))
            return (text, count) if count else (value, 0)
        return value, 0

    def _under(self, key: str, value: Any) -> tuple[Any, int]:
        clean, count = self.value(value)
        if isinstance(clean, str) and (head := _head(key)):
            with_key, replaced = self.text(head + clean)
            if replaced and with_key.startswith(head):
                return with_key.removeprefix(head), count + replaced
        return clean, count

    def first(self, content: Any) -> SecretLocation | None:
        """Return the first secret in a text, JSON value or file, or None."""
        if isinstance(content, bytes):
            text = content.decode("utf-8", "replace")
            # Also its UTF-16 form.
            return self.first(text) or (self.first(text.replace("\0", "")) if "\0" in text else None)
        if not isinstance(content, str):
            texts = (
                item for item in _texts(content, []) if len(item) >= SHORTEST and item not in self._clean
            )
            return next((spot for item in texts if (spot := self.first(item))), None)
        clean, count = self.text(content)
        if not count:
            return None
        pairs = zip(clean, content, strict=False)
        begin = next((at for at, (one, other) in enumerate(pairs) if one != other), 0)
        place = re.compile(_PLACE).search(clean, max(clean.rfind("[redacted:", 0, begin + 1), 0))
        return SecretLocation(place[1] if place else "", content.count("\n", 0, begin) + 1)

    def refuse(self, content: Any, where: str, kept: str) -> None:
        """Raise Invalid for content with a secret that cannot be changed. `where` begins the message: a
        file's path, with the line added, or words such as "the payload"; `kept` is what it becomes."""
        if spot := self.first(content):
            line = f":{spot.line}:" if isinstance(content, bytes) else ""
            raise Invalid(f"{where}{line} holds {spot}, and {kept} is stored as it is", "remove it")


_redactors: WeakSet[Redactor] = WeakSet()
"""Those of this process, such as its log's, which learn secrets that are read later."""


def learn(values: Mapping[str, str]) -> None:
    """Hide secrets from now on from all that this process stores, by variable."""
    for redactor in list(_redactors):
        redactor.learn_all(values)


def removal_note(redactions: Iterable[tuple[str, int]]) -> str:
    """Return where secrets were removed: "3 secrets were taken out: answer, turn 4 (2)"; "" for none.
    `redactions` is a Detail's, a number without places in old ones."""
    places = list(redactions)
    total = sum(count for _, count in places)
    if not total:
        return ""
    sentence = "1 secret was taken out" if total == 1 else f"{total} secrets were taken out"
    where = ", ".join(place + (f" ({count})" if count > 1 else "") for place, count in places if place)
    return f"{sentence}: {where}" if where else sentence


def _worth_hiding(value: str) -> bool:
    if len(value) < SHORTEST or value.lower() in _COMMON or value.isspace():
        return False
    if value.startswith(("/", "~/", "./")) and " " not in value and Path(value).expanduser().exists():
        return False
    if re.fullmatch(_ADDRESS, value):
        return any(len(part) >= 16 for part in value.split("://", 1)[1].split("/")[1:])
    digits = value.replace(".", "").replace(":", "")
    return not (digits.isdigit() and len(digits) < 12) and len(set(value)) > 2


def _forms(value: str) -> Iterator[str]:
    import base64
    import json

    yield value
    for ascii_only in (False, True):
        yield json.dumps(value, ensure_ascii=ascii_only)[1:-1]
    data = value.encode("utf-8", "surrogatepass")
    yield data.hex()
    yield data.hex().upper()
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


def _lines(value: str) -> Iterator[str]:
    if "\n" in value:
        for line in value.splitlines():
            if any(map(is_random, re.findall(r"[A-Za-z0-9+/=_-]{24,}", line))):
                yield line.strip()


def _place(name: str) -> str:
    return f"[redacted:{name}]"


def _wherever(part: str) -> str:
    if part.isspace():
        return _SPACE
    return r"\\+" if part == "\\" else (r"\\*" if part in "\"'/" else "") + re.escape(part)


def _squeezed(text: str) -> bytes:
    data = re.sub(rb"\\+[nrt]", b"", text.encode("utf-8", "surrogatepass"))
    return data.translate(None, b" \t\r\n\v\f\\")


def _without_spread_keys(items: Sequence[Any]) -> tuple[list[Any], int]:
    if all(isinstance(item, str) for item in items):
        return without_lines_of_keys(items)
    return list(items), 0


def _texts(value: Any, collected: list[str]) -> list[str]:
    if isinstance(value, str):
        collected.append(value)
    elif isinstance(value, (dict, Mapping)):
        for key, item in value.items():
            collected.append(key)
            if item is not None:
                _texts(item, collected)
            if isinstance(item, str) and (head := _head(key)):
                collected.append(head + item)
    elif isinstance(value, list | tuple):
        for item in value:
            _texts(item, collected)
        if value and _without_spread_keys(value)[1]:
            collected.append("\n".join(value))
    elif isinstance(value, int) and abs(value) >= _LEAST_NUMBER:
        collected.append(str(value))
    return collected


def _head(key: str) -> str:
    return f"{key}: " if len(key) <= _LONGEST_HEADER and re.search(_HEADER, key) else ""
