"""What the commands that talk to a remote share: the git program with its progress on a terminal, and how
the result of a pull or push is told.

What a plain `git fetch` brought: noticed by the commands on threads, and taken over as `uwf pull` would.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from uwf_cli import terminal
from uwf_cli.invocation import Invocation
from uwf_git.errors import Busy, UwfError
from uwf_git.values.ids import ThreadId

if TYPE_CHECKING:
    from uwf_git.git.program import Git
    from uwf_git.sharing.adopt import Adopted, Refused
    from uwf_git.sharing.pull import Pulled
    from uwf_git.sharing.push import Report
    from uwf_git.store.opened import Instance

_QUIET_CASES = ("equal", "ahead", "ended-here")
_ERASE_LINE = "\x1b[K"


def git_for(instance: Instance) -> Git:
    """The git program; what it says goes to standard error where that is a terminal."""
    from uwf_git.git.program import Git

    return Git(instance.store.repository.path, _watch if terminal.is_terminal(sys.stderr) else None)


def _watch(text: str) -> None:
    """git's progress, with whatever a server may have put into it escaped but the ways to stay on a line."""
    parts = re.split(r"(\r\n|\r|\x1b\[K)", text)
    shown = [part if part in ("\r", "\r\n", _ERASE_LINE) else terminal.escape(part) for part in parts]
    sys.stderr.write("".join(shown))
    sys.stderr.flush()


def verified_progress(invocation: Invocation) -> Callable[[int, int], None] | None:
    """Tells on a terminal how many refs have been verified."""
    if not terminal.is_terminal(sys.stderr):
        return None

    def tell(done: int, of: int) -> None:
        if of >= 100 and (done % 50 == 0 or done == of):
            sys.stderr.write(f"\ruwf: verified {done} of {of} refs" + ("\n" if done == of else ""))
            sys.stderr.flush()

    return tell


def pulled_value(pulled: Pulled) -> dict[str, Any]:
    """The result of a pull as JSON."""
    value: dict[str, Any] = {
        "remote": pulled.remote,
        "adopted": [_adopted(each) for each in pulled.adopted],
        "refused": [_refused(each) for each in pulled.refused],
    }
    if pulled.strange:
        value["strange"] = list(pulled.strange)
    if pulled.merged:
        value["merged"] = [
            {
                "workflow": each.name,
                "accepted": each.accepted.to_json() if each.accepted else None,
                "problem": each.problem.message if each.problem else None,
                "hint": each.problem.hint if each.problem else None,
            }
            for each in pulled.merged
        ]
    return value


def _adopted(each: Adopted) -> dict[str, Any]:
    value: dict[str, Any] = {"ref": each.ref, "case": each.case.label, "number": each.case.value}
    if each.thread:
        value["thread"] = each.thread
    if each.fork:
        value["fork"] = {"thread": each.fork, "steps": each.steps, "side": "ours" if each.ours else "theirs"}
    if each.proposal:
        value["proposal"] = each.proposal
    return value


def _refused(each: Refused) -> dict[str, Any]:
    return {
        "ref": each.ref,
        "later": each.later,
        "problem": each.problem or (each.findings[0].message if each.findings else ""),
        "findings": [finding.as_json() for finding in each.findings],
    }


def pulled_text(value: Any) -> str:
    """The result of a pull for people: a line for whatever is new, one for how much there was."""
    adopted = [each for each in value["adopted"] if each["case"] not in _QUIET_CASES]
    lines = [_adopted_line(each) for each in adopted]
    for each in value["refused"]:
        what = terminal.style("left for later" if each["later"] else "refused", "red")
        lines.append(f"{what}  {_short(each['ref'])}: {each['problem']}")
    for each in value.get("merged", ()):
        if each["accepted"]:
            lines.append(f"merged     workflow {each['workflow']}: now {each['accepted']['hash']}")
        else:
            refused = terminal.style("refused", "red")
            lines.append(f"{refused}  merge of workflow {each['workflow']}: {each['problem']}")
    if value.get("strange"):
        count = len(value["strange"])
        many = f"{count} ref{'s' * (count > 1)}"
        lines.append(f"left       {many} that uwf doesn't know, such as {value['strange'][0]}")
    if len(lines) > 40:
        lines = [*lines[:30], f"… and {len(lines) - 30} more"]
    return "\n".join(lines) if lines else f"nothing new on {value['remote']}"


def _adopted_line(each: Any) -> str:
    line = f"{_TOLD.get(each['case'], each['case'])}  {_short(each['ref'])}"
    if fork := each.get("fork"):
        whose = "your" if fork["side"] == "ours" else "their"
        many = f"{fork['steps']} step{'s' * (fork['steps'] != 1)}"
        line += f"; {whose} {many} went on as thread {terminal.style(fork['thread'], 'bold')}"
    if each.get("proposal"):
        line += f"; your version is kept: uwf workflow accept {each['proposal']}"
    return line


_TOLD = {
    "unknown": "new      ",
    "behind": "moved on ",
    "diverged": "diverged ",
    "ended-there": "ended    ",
    "ended-there-behind": "ended    ",
    "ended-there-ahead": "ended    ",
    "ended-here-behind": "ended    ",
    "ended-twice": "ended    ",
    "deleted-there": "deleted  ",
    "two-histories": "replaced ",
    "two-commits": "same     ",
}


def _short(ref: str) -> str:
    return ref.removeprefix("refs/uwf/").replace("threads/", "thread ").replace("archive/", "thread ")


def pushed_value(remote: str, report: Report) -> dict[str, Any]:
    """The result of a push as JSON."""
    return {
        "remote": remote,
        "pushed": [
            {"ref": each.ref, "object": str(each.object)} for each in report.pushed if each.object is not None
        ],
        "deleted": [each.ref for each in report.pushed if each.object is None],
        "refused": [
            {"ref": each.ref, "reason": each.reason, "lost": each.lost, "deletion": each.deletion}
            for each in report.rejected
        ],
        "large": [each._asdict() for each in report.large],
    }


def pushed_text(value: Any) -> str:
    """The result of a push for people."""
    lines = [f"pushed   {_short(each['ref'])}" for each in value["pushed"]]
    ended = {each["ref"].rpartition("/")[2] for each in value["pushed"]}
    lines += [f"deleted  {_short(ref)}" for ref in value["deleted"] if ref.rpartition("/")[2] not in ended]
    for each in value["refused"]:
        if each["deletion"]:
            lines.append(f"left     {_short(each['ref'])}: {each['reason']}; it counts as ended all the same")
        else:
            lines.append(f"{terminal.style('refused', 'red')}  {_short(each['ref'])}: {each['reason']}")
    if len(lines) > 40:
        lines = [*lines[:30], f"… and {len(lines) - 30} more"]
    return "\n".join(lines) if lines else f"nothing new for {value['remote']}"


def tell_large(invocation: Invocation, large: Sequence[Any]) -> None:
    """Warns of blobs that forges don't like."""
    for each in large[:5]:
        what = f"node {each.node}" if each.node else f"blob {each.blob}"
        invocation.warn(f"{what} has {each.size / 1_000_000:.1f} MB; forges advise at most 1 MB a file")
    if len(large) > 5:
        invocation.warn(f"{len(large) - 5} more blobs have over 1 MB")


def find_thread(invocation: Invocation, text: str) -> ThreadId:
    """The thread whose id begins so, what git fetched included. Raises NotFound, Usage."""
    adopt_news(invocation)
    return invocation.instance.threads.find(text)


def adopt_news(invocation: Invocation) -> None:
    """Verifies and takes over what git fetched by itself since the last pull. Problems are told and keep
    nobody from listing what is here."""
    if not invocation.location.git_dir.exists() or not invocation.instance.store.repository.has_tracking_refs:
        return
    from uwf_git.sharing.pull import adopt_fetched

    try:
        for pulled in adopt_fetched(invocation.instance):
            if pulled.adopted:
                invocation.note(f"took over what git fetched from {pulled.remote}")
            for each in pulled.refused:
                invocation.warn(
                    f"{each.ref} of {pulled.remote} was not taken over; see: uwf verify --remote {pulled.remote}"
                )
    except Busy:
        return
    except UwfError as error:
        invocation.warn(error.message)
