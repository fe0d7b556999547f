"""Errors: one class per outcome, each with a stable code and exit status. Messages name the id at fault,
hints say what to do next. The command prints them in one place."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

_E = TypeVar("_E", bound="AgentFailed")

# System errors of libgit2 and SQLite, by name: the libraries may not be loaded.
_OF_THE_MACHINE = ("_pygit2.GitError", "sqlite3.OperationalError", "sqlite3.DatabaseError")


class UwfError(Exception):
    """An error that a user can act on. `code` and `exit_status` are stable."""

    code = "failure"
    exit_status = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Invalid(UwfError):
    """A value violates the format: a node, a workflow, a configuration."""

    code = "invalid"


class UnknownWord(Invalid):
    """A node has a word of a closed set, or a type, that this version doesn't know: a newer one wrote it."""

    WAY_OUT = "a newer uwf wrote it: upgrade uwf-git"
    """The hint."""


class Oversized(Invalid):
    """A node or file is larger than a store takes. It was not written."""


class LimitExceeded(Invalid):
    """A workflow's expression or template exceeded its time or memory. Depends on the machine, so it is never
    cached."""


class Usage(UwfError):
    """The call cannot be carried out as given."""

    code = "usage"
    exit_status = 2


class NotFound(UwfError):
    """No workflow, thread, node or file has this name."""

    code = "not_found"
    exit_status = 3


class HeadMoved(UwfError):
    """A ref moved since it was read; nothing was written to it. `fork` is the thread that keeps a step which
    lost the race, or ""."""

    code = "head_moved"
    exit_status = 4
    fork = ""


class Busy(UwfError):
    """Another process holds the thread or a lock file."""

    code = "busy"
    exit_status = 4


class Waiting(UwfError):
    """The thread waits for a person."""

    code = "waiting"
    exit_status = 5


class Absent(Waiting):
    """The next role is a person's, who isn't at a terminal or has left it. Nothing was done or kept."""


class Paused(Waiting):
    """The thread is paused."""

    code = "paused"


class Killed(Invalid):
    """The thread was killed during its step."""


class Untrusted(UwfError):
    """The code workflow is not trusted on this machine."""

    code = "untrusted"
    exit_status = 5


class Throttled(NamedTuple):
    """A rate limit: `by` a provider of config.yaml or a program; `after` is its requested wait in seconds, or
    None."""

    by: str
    after: float | None = None

    @classmethod
    def told(cls, by: str, words: str) -> "Throttled | None":
        """Return the rate limit or used-up quota in a program's message, if any."""
        from uwf_git.base.quota_message import is_throttled, seconds_until_reset

        return cls(by, seconds_until_reset(words)) if is_throttled(words) else None


class AgentFailed(UwfError):
    """An agent failed, timed out or broke the protocol. The head is unchanged. `printed` are the ends of its
    output; `throttled`: a rate limit was the only cause; `timed_out`: a time limit was. `absence`: nothing went wrong,
    but a person is needed, or more of a budget; `is_final`: the thread has ended with it."""

    code = "agent_failed"
    exit_status = 6
    is_final = False
    printed: tuple[str, str] = ("", "")
    throttled: Throttled | None = None
    timed_out = False
    absence: Waiting | None = None

    def since(self: _E, cause: UwfError) -> _E:
        """Return this failure with its cause's information."""
        if isinstance(cause, AgentFailed):
            self.printed, self.throttled, self.timed_out = cause.printed, cause.throttled, cause.timed_out
        self.absence = cause if isinstance(cause, Absent) else None
        return self


class Unavailable(AgentFailed):
    """An agent could not be asked at all, because of its configuration, or since its program is not installed."""


class NoTransition(UwfError):
    """No edge applies to a role's output."""

    code = "no_transition"


class WorkflowFailed(UwfError):
    """A thread ended at `$FAIL`: it did not reach its goal. The run itself went well."""

    code = "workflow_failed"
    exit_status = 10


class NotRunning(UwfError):
    """A thread that could go on was stopped, or has no process here that runs it."""

    code = "not_running"
    exit_status = 11


class CompletedWithFailures(UwfError):
    """A thread reached its end, and more calls or branches of it failed than its workflow tolerates."""

    code = "completed_with_failures"
    exit_status = 15


class TimedOut(UwfError):
    """A wait for a thread took longer than allowed."""

    code = "timed_out"
    exit_status = 124


class OutOfRounds(UwfError):
    """A code workflow would exceed its maximum number of steps."""

    code = "out_of_rounds"


class StoreDamaged(UwfError):
    """A needed object is missing, truncated or corrupt."""

    code = "store_damaged"
    exit_status = 7


class StoreUnwritable(UwfError):
    """The repository cannot be written: read-only, full, or not ours."""

    code = "store_unwritable"


class HashCollision(StoreDamaged):
    """Two contents have the same XXH64; the second is refused."""

    code = "hash_collision"


class Rewritten(UwfError):
    """A remote replaced history that this store had seen there."""

    code = "rewritten"
    exit_status = 12


class RolledBack(Rewritten):
    """A ref lacks a head that this user's uwf recorded there, so nothing is recorded on what it leads to."""

    code = "rolled_back"


class NothingToVerify(UwfError):
    """There is nothing of uwf's where a verification was asked for."""

    code = "nothing_to_verify"
    exit_status = 13


class RequirementUnmet(UwfError):
    """A signature, signer or approval that is required is missing."""

    code = "requirement_unmet"
    exit_status = 14


class SigningFailed(UwfError):
    """A required signature could not be made. Nothing was written."""

    code = "signing_failed"


class WorkspaceFailed(UwfError):
    """A thread's workspace cannot be used, or what is in it not recorded. The agent's work is kept."""

    code = "workspace"


class RemoteFailed(UwfError):
    """git could not talk to a remote."""

    code = "remote"
    exit_status = 8


class Declined(RemoteFailed):
    """A remote refused."""

    code = "declined"


class Worse(UwfError):
    """The result is worse than allowed."""

    code = "worse"


class Undecided(UwfError):
    """A check could not be made, so nothing says whether all is well. `git bisect run` skips this exit status."""

    code = "undecided"
    exit_status = 125


class OutputFailed(UwfError):
    """The work is done, but the result cannot be printed."""

    code = "output_failed"
    exit_status = 9


class NotSupportedClassicWorkflow(Invalid):
    """A menu names a classic workflow or script (YAML or XML)."""

    code = "NotSupportedClassicWorkflow"


class StoreGone(NotFound):
    """There is no store where one with threads stood."""

    code = Undecided.code
    exit_status = Undecided.exit_status


class UnknownWorkflow(NotFound):
    """A menu names an unknown workflow."""

    code = "UnknownWorkflow"


class UnknownPromptId(NotFound):
    """A menu names an unknown prompt."""

    code = "UnknownPromptId"


class DataLoadFailed(Invalid):
    """A menu item's data file cannot be read or has the wrong format."""

    code = "DataLoadFailed"


class ValidationFailed(Invalid):
    """A workflow that a menu item requires to be complete isn't."""

    code = "ValidationFailed"


def error_of(kind: str, message: str, hint: str = "") -> UwfError:
    """Return the error of another process by the name of its class, a UwfError if this module has no such."""
    known = globals().get(kind)
    if isinstance(known, type) and issubclass(known, UwfError):
        return known(message, hint)
    return UwfError(message, hint)


class Failure(NamedTuple):
    """An error for output. `code` and `status` are stable; `findings` are a workflow's or package's, `file`
    is their default."""

    code: str
    status: int
    message: str
    hint: str = ""
    findings: Sequence[Any] = ()
    throttled: Throttled | None = None
    file: str = ""


def failure_of(error: Exception) -> Failure:
    """Return the failure for any exception, also of Python, the system or a library."""
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
