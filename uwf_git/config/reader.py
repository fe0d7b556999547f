"""Typed access to the parts of `config.yaml`: wrong ones are skipped and reported with their place."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from uwf_git.base.errors import Usage
from uwf_git.base.text import one_line
from uwf_git.config.settings import VARIABLE, ConfigProblem, NamedAgent, key_hint, parse_command
from uwf_git.format.amounts import parse_duration
from uwf_git.format.document import Document
from uwf_git.format.schema import ValuePath

Entry = TypeVar("Entry")


class Reader:
    """Reads a document's parts. `problems` are wrong values. `late` are those that stop only the steps that use them;
    `missing` are values that may still be added, key by key. `named_agents` are those of extensions' sections."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[ConfigProblem] = []
        self.late: list[ConfigProblem] = []
        self.missing: list[ConfigProblem] = []
        self.named_agents: dict[str, NamedAgent] = {}

    def problem(self, path: ValuePath, message: str, hint: str = "") -> ConfigProblem:
        """Return the problem of the value at a path."""
        mark = self.document.mark(path)
        return ConfigProblem(mark.line, mark.column, message, hint)

    def entries(self, section: str, value: Any, read: Callable[[ValuePath, Any], Entry]) -> dict[str, Entry]:
        """Read each entry of a section by name."""
        return {
            name: read((section, name), entry)
            for name, entry in self.mapping((section,), value, section).items()
        }

    def refuse(self, path: ValuePath, message: str, hint: str = "") -> None:
        """Report a wrong value."""
        self.problems.append(self.problem(path, message, hint))

    def mapping(self, path: ValuePath, value: Any, what: str, known: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the mapping at a path, {} if absent. With `known`, other keys are refused."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(path, f"{one_line(what)} must be a mapping")
            return {}
        for key in value if known else ():
            if key in known:
                continue
            message = f'unknown key "{one_line(key, 60)}"' + (f" in {one_line(what, 60)}" if path else "")
            mark = self.document.key_mark((*path, key))
            self.problems.append(ConfigProblem(mark.line, mark.column, message, key_hint(key, known)))
        return value

    def text(self, path: ValuePath, data: dict[str, Any], key: str) -> str:
        """Return the printable text of a key, "" if absent or wrong."""
        value = data.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raw = self.document.raw((*path, key))
            hint = f'quote it: "{one_line(raw, 60)}"' if raw else ""
            self.refuse((*path, key), f"{one_line(key)} must be text", hint)
            return ""
        if not value.strip() or not value.isprintable():
            self.refuse((*path, key), f"{one_line(key)} is empty or unprintable")
            return ""
        return value

    def texts(self, path: ValuePath, value: Any) -> tuple[str, ...] | None:
        """Return a list of texts, None if absent or wrong."""
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            self.refuse(path, f"{path[-1]} must be a list of texts", 'quote numbers: ["--port", "80"]')
            return None
        return tuple(value)

    def names(self, path: ValuePath, value: Any) -> dict[str, str]:
        """Return a mapping from names to texts, without wrong ones."""
        entries = self.mapping(path, value, ".".join(map(str, path)))
        names = {key: self.text(path, entries, key) for key in entries}
        return {key: name for key, name in names.items() if name}

    def variables(self, path: ValuePath, value: Any) -> tuple[str, ...]:
        """Return names of environment variables."""
        names = self.texts(path, value) or ()
        for name in names:
            if not re.fullmatch(VARIABLE, name):
                # The text may be the secret itself, so it isn't shown.
                self.refuse(
                    path, f"{path[-1]} must be names of environment variables", "such as GITHUB_TOKEN"
                )
                return ()
        return names

    def command(self, path: ValuePath, text: str, key: str = "command") -> tuple[str, ...]:
        """Split a command line into its words. `key` is its place below `path`."""
        try:
            command, args = parse_command(text)
        except Usage as error:
            self.refuse((*path, key), error.message, error.hint)
            return ()
        return (command, *args)

    def timeout(self, path: ValuePath, entry: dict[str, Any], key: str = "timeout") -> float | None:
        """Return a duration in seconds, None if absent or wrong."""
        if entry.get(key) is None:
            return None
        timeout = parse_duration(entry[key])
        if timeout is None:
            shown = one_line(self.document.raw((*path, key)) or "a collection", 40)
            self.refuse((*path, key), f"{key} {shown} is not a duration", 'seconds, or "10m", "1h30m"')
        return timeout
