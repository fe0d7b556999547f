"""`uwf land`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from uwf_git.ext.landing.settings import COMMITS
from uwf_git.plugin import (
    Failures,
    Invocation,
    ThreadFilters,
    ThreadSelection,
    Usage,
    UwfError,
    chosen_threads,
    command,
    completers,
    counted,
    find_thread,
    terminal,
)

if TYPE_CHECKING:
    from uwf_git.plugin import ThreadId


@command(
    "uwf land @",
    "uwf land 01JK7M --onto release/2",
    "uwf land @ --sync",
    "uwf land 01JK7M --no-forge --format text > request.md",
    "uwf land --train",
)
@click.argument("threads", metavar="[ID]...", nargs=-1, shell_complete=completers.complete_thread)
@click.option("--onto", metavar="BRANCH", help="Branch to land on. Default: the remote's.")
@click.option("--branch", metavar="NAME", help="Branch of the request. Default: as land.branch makes it.")
@click.option("--remote", metavar="NAME", help="The project's remote. Default: origin, or the only one.")
@click.option(
    "--commits",
    type=click.Choice(COMMITS),
    help="One commit for all, one for each step, or all as they are. Default: land.commits.",
)
@click.option(
    "--sync", is_flag=True, help="Give the thread what reviewers and checks said, and land nothing."
)
@click.option(
    "--with-secrets", "exposes", is_flag=True, help="Land also what is, or looks like, a secret in the code."
)
@click.option("--no-forge", "plain", is_flag=True, help="Ask no forge: push to the branch itself.")
@click.option(
    "--train",
    is_flag=True,
    help="Push to the branch itself, each on top of the last. Without IDs all that is ready.",
)
def land(
    invocation: Invocation,
    threads: tuple[str, ...],
    onto: str | None,
    branch: str | None,
    remote: str | None,
    commits: str | None,
    sync: bool,
    plain: bool,
    train: bool,
    exposes: bool,
) -> None:
    """Land the work of threads on the branch that it is for.

    Its commits are made again on that branch, and the workflow's checks run on the result. If the remote is on a forge,
    that is pushed to a branch of its own, and a pull request is opened or brought up to date: a draft until the thread
    has ended. Else the branch itself is pushed, or moved here without a remote. A check is a role that a command plays
    and whose output says passed. A conflict, a failed check or a secret in the code goes back to the thread.

    With --sync, comments, reviews and failed checks of the request that the thread doesn't have yet become its next
    turn. Each comment is answered once, when the work has landed again.
    """
    from uwf_git.ext.landing.landing import InTarget, Landing, Options
    from uwf_git.ext.landing.last_tries import noted
    from uwf_git.ext.landing.sync import sync_reviews
    from uwf_git.ext.landing.train import ready

    if not threads and not train:
        everything = "" if sync else ", or --train for all that is ready"
        raise Usage("no thread was named", f"give ids, @ for the newest{everything}")
    if branch and len(threads) != 1:
        raise Usage("--branch is for one thread", "leave it out: land.branch names branches")
    if sync and (onto or commits or plain or train or exposes):
        raise Usage(
            "--sync excludes --onto, --commits, --no-forge, --with-secrets and --train", "it lands nothing"
        )
    instance = invocation.instance
    options = Options(onto or "", branch or "", remote or "", commits or "", plain or train, exposes=exposes)

    def landed(thread: ThreadId) -> dict[str, Any]:
        instance.require_person(f"lands thread {thread}")
        head = instance.threads.head(thread)
        if sync:
            return sync_reviews(instance, head, options.remote, options.branch).as_json()
        with noted(instance, head):
            return Landing(instance, head, options, invocation.note).land().as_json()

    several = len(threads) != 1 or train
    view = partial(_synced_view if sync else partial(_view, with_text=plain), with_thread=several)
    if not several:
        invocation.emit(landed(find_thread(invocation, threads[0])), view)
        return
    failures = Failures(invocation)
    chosen = (
        chosen_threads(invocation, ThreadSelection(threads, ThreadFilters()), failures)
        if threads
        else ready(instance)
    )
    if not sync:
        invocation.note(f"lands in this order: {', '.join(chosen)}" if chosen else "nothing is ready to land")

    def results() -> Iterator[dict[str, Any]]:
        for thread in chosen:
            try:
                yield landed(thread)
            except InTarget as error:
                if threads:
                    failures.add(error)
                else:
                    invocation.note(error.message)
            except UwfError as error:
                failures.add(error)

    invocation.emit_each(results(), view)
    failures.end()


def _synced_view(value: Any, with_thread: bool) -> str:
    rows = [("thread", value["thread"])] if with_thread else []
    rows.append(("pull", f"{value['url']}  {value['state']}"))
    for item in value["items"]:
        by = item["author"] + (f" ({item['standing']})" if item["standing"] else "")
        said = f": {item['text']}" if item["text"] else ""
        parts = (by, item["place"], item["verdict"])
        rows.append((item["kind"], f"{' '.join(filter(None, parts))}{said}"))
    if value["approved"]:
        rows.append(("approved", ", ".join(value["approved"])))
    if value["unread"]:
        rows.append(("unread", f"{', '.join(value['unread'])}: the token may not read them"))
    if value["left"]:
        rows.append(("left", f"{value['left']} more: repeat when the thread has seen to these"))
    if value["told"] is not None:
        rows.append(("next", f"uwf thread run {value['told']}, then: uwf land {value['told']}"))
    elif value["state"] == "open":
        rows.append(("new", "nothing"))
    return terminal.fields(rows)


def _view(value: Any, with_text: bool, with_thread: bool = False) -> str:
    from uwf_git.ext.landing.landing_words import on_target, pull_done

    passed = [" ".join(check["command"]) for check in value["checks"]]
    what = on_target(value)
    rows = [("checks", f"{', '.join(passed)}: passed" if passed else "none")]
    if (pull := value["pull"]) is not None:
        rows = [("branch", f"{value['branch']}  {what}"), *rows]
        rows.append(("pull", f"{pull['url']}  {pull_done(pull)}, draft: {'yes' if pull['draft'] else 'no'}"))
        if value["answered"]:
            rows.append(("answered", counted(value["answered"], "comment")))
    else:
        rows = [("landed", f"{what}, which is {value['commit'][:12]} now"), *rows]
    rows = [("thread", value["thread"]), *rows] if with_thread else rows
    text = f"\n\n{value['request']['title']}\n\n{value['request']['body'].rstrip()}" if with_text else ""
    return terminal.fields(rows) + text
