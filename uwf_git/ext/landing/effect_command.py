"""`uwf effect run` and `uwf effect list`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import click

from uwf_git.plugin import (
    Declined,
    Invocation,
    Table,
    ThreadId,
    Undecided,
    Usage,
    command,
    completers,
    find_thread,
    last_line,
    one_line,
    parse_thread_id,
    words,
)

if TYPE_CHECKING:
    from uwf_git.ext.landing.effects import LookUp

KEY_VARIABLE = "UWF_EFFECT_KEY"
_CHECK_SECONDS = 120.0
_KEPT = 64 * 1024  # bytes of a command's output in which its last line is looked for


def _thread_of(invocation: Invocation, text: str | None, otherwise: str) -> ThreadId:
    """Return the thread that an option names, else the one of the step that this command runs within."""
    if text is not None:
        return find_thread(invocation, text)
    if named := os.environ.get("UWF_THREAD"):
        return parse_thread_id(named)
    raise Usage("no thread is named", f"within a step it is that of the step; elsewhere: {otherwise}")


@command(
    "uwf effect run -- gh issue comment 42 --body 'Fixed.'",
    "uwf effect run --key deploy --check ./is-deployed -- ./deploy",
)
@click.option(
    "--key", "name", metavar="NAME", help="Name of the effect in the thread. Default: the command itself."
)
@click.option("--check", metavar="CMD", help="Shell command that checks whether the effect is there.")
@click.option(
    "--thread",
    metavar="ID",
    help="Thread to record it in. Default: that of the step.",
    shell_complete=completers.complete_thread,
)
@click.argument("argv", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    invocation: Invocation, name: str | None, check: str | None, thread: str | None, argv: tuple[str, ...]
) -> None:
    """Run a command with an effect on the outside, once for the thread.

    The effect is recorded before COMMAND runs. Called again with the same name, COMMAND doesn't run: the recorded
    outcome is printed. COMMAND and CMD get the effect's key as UWF_EFFECT_KEY, to send it along and to look for it.
    COMMAND has no standard input. Its last line is recorded as the reference, such as the address of a comment. If
    it fails, it may be run again.

    CMD is asked before each run: it exits with 0 if the effect is there, and prints the reference as its last line,
    with 1 if it surely isn't, else it is not known. Without CMD, the effect of a killed command is not known: it isn't
    run again, and the status is 125.
    """
    from uwf_git.ext.landing.effects import Sending, once

    instance = invocation.instance
    content = b"\0".join(map(os.fsencode, argv))
    sending = Sending(words.COMMAND, "", name or sha256(content).hexdigest()[:16], content, shlex.join(argv))

    look_up = partial(_checked, check) if check is not None else None
    send = partial(_sent, argv, look_up)
    settlement = once(instance, _thread_of(invocation, thread, "--thread ID"), sending, send, look_up)
    value = {
        "effect": settlement.effect,
        "name": sending.name,
        "outcome": settlement.outcome,
        "reference": settlement.reference,
    }
    invocation.emit(value, lambda shown: shown["reference"] or shown["outcome"])


def _sent(argv: tuple[str, ...], look_up: LookUp | None, key: str) -> str:
    """Run a command and return the reference. Raises Declined if it failed, Undecided if it was killed."""
    from uwf_git.ext.landing.effects import LOOK_HINT
    from uwf_git.plugin import AgentFailed, processes

    try:
        done = processes.run_command(
            argv,
            env=_environment(key),
            keep=_KEPT,
            on_stdout=_show,
            on_stderr=_show,
            guarded=True,
        )
    except AgentFailed as error:  # it could not be started
        raise Declined(error.message, error.hint) from None
    if done.returncode == 0:
        return _reference(done.stdout_tail)
    program = one_line(argv[0], 60)
    if look_up is not None and (reference := look_up(key)) is not None:
        return reference
    if done.returncode < 0 and look_up is None:
        raise Undecided(
            f"it is not known what {program} did before signal {-done.returncode} killed it", LOOK_HINT
        )
    raise Declined(
        f"{program} failed with status {done.returncode}",
        "it counts as not carried out: repeat it, with --check CMD to be certain",
    )


def _checked(check: str, key: str) -> str | None:
    """Return the reference that a check prints, None if it says that nothing is there. Raises Undecided."""
    from uwf_git.plugin import AgentFailed, processes

    try:
        done = processes.run_command(
            ("/bin/sh", "-c", check),
            env=_environment(key),
            timeout=_CHECK_SECONDS,
            keep=_KEPT,
            on_stderr=_show,
        )
    except AgentFailed as error:
        raise Undecided(error.message, error.hint) from None
    if done.timed_out:
        raise Undecided(f"the check took over {_CHECK_SECONDS:g} s", "repeat")
    if done.returncode == 0:
        return _reference(done.stdout_tail)
    if done.returncode == 1:
        return None
    raise Undecided(f"the check ended with status {done.returncode}", "repeat")


def _environment(key: str) -> dict[str, str]:
    return {**os.environ, KEY_VARIABLE: key}


def _show(piece: bytes) -> None:
    sys.stderr.buffer.write(piece)
    sys.stderr.buffer.flush()


def _reference(output: bytes) -> str:
    return last_line(output.decode("utf-8", "replace")).strip()


@command("uwf effect list", "uwf effect list 01JK7M")
@click.argument("thread", metavar="[ID]", required=False, shell_complete=completers.complete_thread)
def list_(invocation: Invocation, thread: str | None) -> None:
    """List a thread's effects on the outside, and the checks before them, oldest first. Default: the step's thread.

    The outcome is done; found, if a look-up found the effect at the other side; failed; unknown; or open, without a
    record of the outcome. Unknown and open effects are looked up before they are sent again. A check has passed or
    failed; its reference is the node with its log: uwf cas get NODE.
    """
    from uwf_git.ext.landing.effect_records import listed

    invocation.emit(listed(invocation.instance, _thread_of(invocation, thread, "uwf effect list ID")), _LIST)


def _what(effect: Mapping[str, Any]) -> str:
    parts = (effect["kind"], effect["target"], effect["text"] or effect["name"])
    return one_line(" ".join(filter(None, parts)), 200)


_LIST = Table(
    ("time", "at"),
    "outcome",
    ("reference", lambda effect: effect["reference"] or effect["reason"]),
    ("what", _what),
    empty="no effect",
    free=-1,
)
