"""Calling a command from a server: the result is a value, an error is a `Failed`, and standard streams stay
untouched. Calls may run in several threads; each opens and closes the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_cli import output, resolve, terminal
from uwf_cli.failures import failure_value, failure_without_secrets
from uwf_cli.invocation import Invocation

if TYPE_CHECKING:
    from uwf_git.git.objects import Person
    from uwf_git.store.instance import Instance
    from uwf_git.store.location import Location


class Result(NamedTuple):
    """A command's JSON value, and its warnings."""

    value: Any
    warnings: list[str]


class Failed(Exception):
    """A command's error as JSON, with its exit `status`, without secrets."""

    def __init__(self, code: str, message: str, hint: str = "", status: int = 1, **more: Any) -> None:
        super().__init__(message)
        self.message, self.hint, self.status = message, hint, status
        self.error = {"code": code, "message": message, "hint": hint, "exitStatus": status, **more}


class Call(Invocation):
    """An invocation that keeps its result and warnings."""

    def __init__(self, location: Location, person: Person | None = None) -> None:
        super().__init__()
        self._person = person
        self.format_option = "json"
        self.location = location
        self.value: Any = None

    @cached_property
    def instance(self) -> Instance:
        instance = super().instance
        if self._person is not None:
            instance.store.repository.config.act_for(self._person)
        return instance

    def begin_log(self) -> None:
        """The server has its own log."""

    def emit(self, value: Any, view: Any = None, shown: Any = None, compact: bool = False) -> None:
        self.value = value

    def emit_document(self, document: Any, value: Any, rich: bool = False) -> None:
        self.value = value() if callable(value) else value

    def warn(self, text: str) -> None:
        self.warnings.append(terminal.escape(text))


@contextmanager
def calling(location: Location, person: Person | None = None) -> Iterator[Call]:
    """Make a call, run its hooks, and close the store. Records are those of `person`, unsigned, or of the user. Raises
    Failed for any Exception."""
    invocation = Call(location, person)
    try:
        yield invocation
        invocation.afterwards()
    except Exception as error:
        failure = failure_without_secrets(invocation, error)
        raise Failed(status=failure.status, **failure_value(failure)) from error
    finally:
        if "instance" in invocation.__dict__:
            invocation.instance.store.index.close()


def call(location: Location, argv: tuple[str, ...], stdin: str = "") -> Result:
    """Run a command. `argv` is its arguments, `stdin` its input; lone surrogates are replaced in both. The
    exit status is dropped, since the value has the same information. Raises Failed."""
    from click.exceptions import Exit

    from uwf_cli.tree import uwf

    with calling(location) as invocation, resolve.stdin(_encodable(stdin)):
        try:
            with uwf.make_context("uwf", list(map(_encodable, argv)), obj=invocation) as context:
                uwf.invoke(context)
        except Exit:
            pass
    return Result(json.loads(output.as_json(invocation.value)), invocation.warnings)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
