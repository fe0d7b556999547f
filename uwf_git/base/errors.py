"""The errors a caller can meet: one class an outcome, each with a stable code and exit status.

Every message names the id at fault; every hint says what to do next. The command turns them into
one line on stderr in one place; the library only raises them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

_E = TypeVar("_E", bound="AgentFailed")

# What libgit2 and SQLite raise where the system refuses them something, by name: they may not be loaded.
_OF_THE_MACHINE = ("_pygit2.GitError", "sqlite3.OperationalError", "sqlite3.DatabaseError")


class UwfError(Exception):
    """Something a user can act on. `code` and `exit_status` are published and stable."""

    code = "failure"
    exit_status = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Invalid(UwfError):
    """A value breaks the format: a node against its schema, a workflow, a configuration."""

    code = "invalid"


class LimitExceeded(Invalid):
    """An expression or a template of a workflow took more time or memory than it may. That says something about
    the machine and the moment too, so nothing remembers it."""


class Usage(UwfError):
    """The call itself can't be carried out as given."""

    code = "usage"
    exit_status = 2


class NotFound(UwfError):
    """No workflow, thread, node or file of that name."""

    code = "not_found"
    exit_status = 3


class HeadMoved(UwfError):
    """A ref is no longer where the caller read it; nothing was written to it. `fork` is the id of the thread that keeps
    a step which lost the race, "" if there is none."""

    code = "head_moved"
    exit_status = 4
    fork = ""


class Busy(UwfError):
    """Somebody else holds the thread or a lock file of the repository."""

    code = "busy"
    exit_status = 4


class Waiting(UwfError):
    """The thread asks a human, so no role can go next."""

    code = "waiting"
    exit_status = 5


class Absent(Waiting):
    """A human plays the role that is next, and nobody is at a terminal. Nothing was done or kept."""


class Paused(Waiting):
    """Somebody paused the thread, so nothing is stepped until it is resumed."""

    code = "paused"


class Killed(Invalid):
    """Somebody killed the thread while it was stepped."""


class Untrusted(UwfError):
    """The workflow is code that nobody has trusted on this machine, so nothing of it is run."""

    code = "untrusted"
    exit_status = 5


class Throttled(NamedTuple):
    """That somebody was asked too often: a provider of config.yaml, or a program, by its name. `after` is in how many
    seconds it wants to be asked again, None where it doesn't say."""

    by: str
    after: float | None = None

    @classmethod
    def told(cls, by: str, words: str) -> Throttled | None:
        """What a program says that speaks with a provider itself, where it says that it is asked too often."""
        import re

        number = r"\b(HTTP|status|error|code)\b[^0-9\n]{0,20}(429|529)\b|\b(429|529) (too many|slow)"
        said = r"rate[ _-]?limit|too many requests|(is|currently) overloaded|overloaded_error|usage limit reached"
        if not re.search(f"(?i){number}|{said}", words):
            return None
        after = re.search(r"(?i)(?:retry[ _-]?after|again in)\W{0,3}([0-9]{1,6}(?:\.[0-9]+)?) ?s", words)
        return cls(by, float(after[1]) if after else None)


class AgentFailed(UwfError):
    """An agent broke the protocol, failed or ran out of time. The head is where it was. `printed` are the ends of what
    its program wrote to standard output and standard error; `throttled` says that it failed only because it was asked
    too often."""

    code = "agent_failed"
    exit_status = 6
    printed: tuple[str, str] = ("", "")
    throttled: Throttled | None = None

    def since(self: _E, cause: UwfError) -> _E:
        """This failure, with what its cause knows of the agent."""
        if isinstance(cause, AgentFailed):
            self.printed, self.throttled = cause.printed, cause.throttled
        return self


class NoTransition(UwfError):
    """The graph has no edge for what a role produced."""

    code = "no_transition"


class OutOfRounds(UwfError):
    """A bundle has made as many steps as it may, and would go on."""

    code = "out_of_rounds"


class StoreDamaged(UwfError):
    """An object the store needs is missing, truncated or not what its id says."""

    code = "store_damaged"
    exit_status = 7


class HashCollision(StoreDamaged):
    """Two different contents have one XXH64 hash; the first is kept, the second refused."""

    code = "hash_collision"


class SigningFailed(UwfError):
    """The user's configuration asks for signatures, and there was none to be had. Nothing was written."""

    code = "signing_failed"


class RemoteFailed(UwfError):
    """The git program could not talk to a remote."""

    code = "remote"
    exit_status = 8


class Declined(RemoteFailed):
    """A remote was reached, and doesn't take what it is given."""

    code = "declined"


class Worse(UwfError):
    """What was judged is worse than it may be."""

    code = "worse"


class Undecided(UwfError):
    """Whether it is worse nobody can tell. The exit status is the one by which `git bisect run` skips a commit."""

    code = "undecided"
    exit_status = 125


class OutputFailed(UwfError):
    """The command has done its work, and can't print what came of it."""

    code = "output_failed"
    exit_status = 9


class NotSupportedClassicWorkflow(Invalid):
    """A menu names a workflow or a script of the classic form, which is YAML or XML."""

    code = "NotSupportedClassicWorkflow"

    def __init__(self, shown: str) -> None:
        super().__init__(
            f"{shown} is of the classic form, which is not carried out",
            "convert it to workflow.md with a graph and steps",
        )


class UnknownWorkflow(NotFound):
    """A menu names a workflow that its crew doesn't have."""

    code = "UnknownWorkflow"


class UnknownPromptId(NotFound):
    """A menu names a prompt that its persona doesn't have."""

    code = "UnknownPromptId"


class DataLoadFailed(Invalid):
    """The file that an item of a menu brings along can't be read, or isn't what its name says."""

    code = "DataLoadFailed"


class ValidationFailed(Invalid):
    """A workflow that has to be whole before an item of a menu is carried out isn't."""

    code = "ValidationFailed"


class Failure(NamedTuple):
    """An error as it is told. `code` and `status` are published and stable; `findings` are those of a workflow or a
    package, with the `file` of those that name none; `throttled` who wants to be asked later."""

    code: str
    status: int
    message: str
    hint: str = ""
    findings: Sequence[Any] = ()
    throttled: Throttled | None = None
    file: str = ""


def failure_of(error: Exception) -> Failure:
    """An error in the words that people are told it in; also one of Python's own, of the system's or of a library's."""
    if isinstance(error, UwfError):
        findings = getattr(error, "findings", ())
        throttled = getattr(error, "throttled", None)
        file = getattr(error, "file", "")
        return Failure(error.code, error.exit_status, error.message, error.hint, findings, throttled, file)
    kind = type(error)
    if kind.__module__ == "sqlite3" and "locked" in str(error):
        return Failure("busy", 4, "the store's index is locked by another process", "repeat")
    if f"{kind.__module__}.{kind.__name__}" in _OF_THE_MACHINE:
        return Failure("failure", 1, str(error), "check the disk, its permissions and free space, and repeat")
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Failure("failure", 1, f"{where}{error.strerror or error}")
    return Failure("internal", 1, f"internal error: {kind.__name__}: {error}", "UWF_DEBUG=1 shows where")
