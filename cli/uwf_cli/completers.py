"""What the tab key offers: threads, workflows, crews, hashes, agents. A shell asks by calling `uwf` with VARIABLE
set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli.invocation import Invocation

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLE = "_UWF_COMPLETE"
MOST = 100


def complete(invocation: Invocation, instruction: str) -> int:
    """Answers a shell that wants to know how a line may go on."""
    from click.shell_completion import shell_complete

    from uwf_cli.tree import uwf

    return shell_complete(uwf, {"obj": invocation}, "uwf", VARIABLE, instruction)


def offering(find: Callable[[Invocation, str], Iterable[tuple[str, str]]]) -> Any:
    """A completer that offers nothing where anything goes wrong: a shell's line is no place for errors."""

    def offer(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            invocation = context.find_object(Invocation) or Invocation()
            return [CompletionItem(name, help=said) for name, said in find(invocation, incomplete)][:MOST]
        except Exception:
            return []

    return offer


def _threads(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    """Those whose id begins so; where none does, those whose id ends so."""
    from uwf_git.store.threads import Damaged

    heads = invocation.instance.threads.all(archived=True)
    text = incomplete.upper()
    matching = [head for head in heads if head.thread.startswith(text)]
    for head in matching or [head for head in heads if head.thread.endswith(text)]:
        yield head.thread, "" if isinstance(head, Damaged) else f"{head.row.name}: {head.row.title}"


def _registered(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    return [(name, "") for name in invocation.instance.registry.names() if name.startswith(incomplete)]


def names_of(record: str) -> Any:
    """A completer of the names that a kind of record has refs under."""

    def find(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
        from uwf_git.store.ref_kinds import kind_of_record

        kind = kind_of_record(record)
        assert kind is not None, record
        refs = invocation.instance.store.repository.ref_names(kind.prefix)
        names = sorted(ref.removeprefix(kind.prefix) for ref in refs)
        return [(name, "") for name in names if name.startswith(incomplete)]

    return offering(find)


def _speakers(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    """The personas of all crews, by their ids."""
    from uwf_git.store.definitions import packages

    found = packages(invocation.instance.store)
    names = dict(speaker for each in found for name in each.names() for speaker in each.speakers(name))
    return [(id_, name) for id_, name in names.items() if id_.startswith(incomplete)]


def _of_packages(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.store.definitions import packages

    for found in packages(invocation.instance.store):
        yield from ((offer.address, offer.title) for offer in found.offers(incomplete))


def _remotes(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.store.remotes import without_password

    remotes = invocation.instance.remotes.all()
    return [(each.name, without_password(each.url)) for each in remotes if each.name.startswith(incomplete)]


def _workflows(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.api.workflows import file_names

    files = file_names(invocation.location.root)
    names = dict.fromkeys(name for name in files if name.startswith(incomplete))
    known = [*_registered(invocation, incomplete), *_of_packages(invocation, incomplete)]
    return [*known, *((name, "") for name in names), *_files(incomplete)]


def _files(incomplete: str) -> Iterable[tuple[str, str]]:
    folder, _, begin = incomplete.rpartition("/")
    inside = Path(folder or ("/" if incomplete.startswith("/") else "."))
    for path in sorted(inside.iterdir()) if inside.is_dir() else ():
        if path.name.startswith(begin) and (begin or not path.name.startswith(".")):
            if path.is_dir():
                yield f"{path}/", ""
            elif path.suffix in (".yaml", ".yml"):
                yield str(path), ""


def _hashes(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    store = invocation.instance.store
    store.sync()
    for node in store.index.hashes_with_prefix(incomplete.upper()):
        yield node, ""


def _steps(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.format.kinds import parse_step
    from uwf_git.format.types import STEPNODE

    store = invocation.instance.store
    store.sync()
    for node in store.index.hashes_of_type(STEPNODE):
        if node.startswith(incomplete.upper()):
            yield node, parse_step(store.get(node).payload).role


def _agents(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.config.known_agents import known_names
    from uwf_git.config.read import load_config

    config = load_config(invocation.location.root)
    names = known_names(config.agents, config.agent_clis)
    return [(name, "") for name in names if name.startswith(incomplete)]


def _settings(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.config.edit import list_values
    from uwf_git.config.settings import KEYS

    names = dict.fromkeys([*list_values(invocation.location.root), *KEYS])
    return [(name, "") for name in names if name.startswith(incomplete)]


complete_thread = offering(_threads)
complete_name = offering(_registered)
complete_workflow = offering(_workflows)
complete_crew = names_of("crew")
complete_speaker = offering(_speakers)
complete_hash = offering(_hashes)
complete_step = offering(_steps)
complete_agent = offering(_agents)
complete_setting = offering(_settings)
complete_remote = offering(_remotes)
complete_suite = names_of("suite")
