"""Shell completion of threads, workflows, crews, hashes and agents. A shell calls `uwf` with VARIABLE set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from uwf_cli.invocation import Invocation

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Offers = Iterable[tuple[str, str]]
"""Names and what they stand for."""

VARIABLE = "_UWF_COMPLETE"
MOST = 100


def complete(invocation: Invocation, instruction: str) -> int:
    from click.shell_completion import shell_complete

    from uwf_cli.tree import uwf

    return shell_complete(uwf, {"obj": invocation}, "uwf", VARIABLE, instruction)


def offer(
    find: Callable[[Invocation, str], Offers],
    context: click.Context,
    _parameter: click.Parameter,
    incomplete: str,
) -> list[CompletionItem]:
    """Offer what a function finds, and nothing on errors."""
    from click.shell_completion import CompletionItem

    try:
        invocation = context.find_object(Invocation) or Invocation()
        return [CompletionItem(name, help=text) for name, text in find(invocation, incomplete)][:MOST]
    except Exception:
        return []


def complete_path(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Leave files and folders to the shell."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _registered(record: str, invocation: Invocation, begun: str) -> Offers:
    """Offer the registered names of a kind of record."""
    from uwf_git.store.ref_kinds import kind_of_record

    kind = kind_of_record(record)
    assert kind is not None, record
    refs = sorted(invocation.instance.store.repository.ref_names(kind.prefix))
    return _beginning(begun, (ref.removeprefix(kind.prefix) for ref in refs))


def _beginning(begun: str, names: Iterable[str]) -> Offers:
    return [(name, "") for name in names if name.startswith(begun)]


def _threads(invocation: Invocation, begun: str) -> Offers:
    """Offer threads by the beginning of their id, or if there are none by its end."""
    from uwf_git.store.threads import DamagedThread

    heads = invocation.instance.threads.all(archived=True)
    text = begun.upper()
    matching = [head for head in heads if head.thread.startswith(text)]
    for head in matching or [head for head in heads if head.thread.endswith(text)]:
        yield head.thread, "" if isinstance(head, DamagedThread) else f"{head.row.name}: {head.row.title}"


def _workflows(invocation: Invocation, begun: str) -> Offers:
    from uwf_git.api.workflows import file_names
    from uwf_git.store.definitions import packages

    instance = invocation.instance
    yield from _beginning(begun, instance.registry.names())
    for package in packages(instance.store):
        yield from ((offer.address, offer.title) for offer in package.offers(begun))
    yield from _beginning(begun, dict.fromkeys(file_names(invocation.location.root)))
    yield from _files(begun)


def _files(begun: str) -> Offers:
    folder, _, begin = begun.rpartition("/")
    inside = Path(folder or ("/" if begun.startswith("/") else "."))
    for path in sorted(inside.iterdir()) if inside.is_dir() else ():
        if path.name.startswith(begin) and (begin or not path.name.startswith(".")):
            if path.is_dir():
                yield f"{path}/", ""
            elif path.suffix in (".yaml", ".yml"):
                yield str(path), ""


def _speakers(invocation: Invocation, begun: str) -> Offers:
    """Offer the personas of all crews by id."""
    from uwf_git.store.definitions import packages

    stored = packages(invocation.instance.store)
    speakers = dict(speaker for item in stored for name in item.names() for speaker in item.speakers(name))
    return [(id_, name) for id_, name in speakers.items() if id_.startswith(begun)]


def _remotes(invocation: Invocation, begun: str) -> Offers:
    from uwf_git.store.remotes import without_password

    remotes = invocation.instance.remotes.all()
    return [
        (remote.name, without_password(remote.url)) for remote in remotes if remote.name.startswith(begun)
    ]


def _hashes(invocation: Invocation, begun: str) -> Offers:
    store = invocation.instance.store
    store.sync()
    return ((node, "") for node in store.index.hashes_with_prefix(begun.upper()))


def _steps(invocation: Invocation, begun: str) -> Offers:
    from uwf_git.format.types import STEPNODE

    store = invocation.instance.store
    store.sync()
    for node in store.index.hashes_of_type(STEPNODE):
        if node.startswith(begun.upper()):
            yield node, store.step(node).role


def _agents(invocation: Invocation, begun: str) -> Offers:
    from uwf_git.config.read import load_config
    from uwf_git.config.resolve import known_names

    return _beginning(begun, known_names(load_config(invocation.location.root)))


def _settings(invocation: Invocation, begun: str) -> Offers:
    from uwf_git.config.edit import list_values
    from uwf_git.config.settings import known_keys

    return _beginning(begun, dict.fromkeys([*list_values(invocation.location.root), *known_keys()]))


def _groups(_invocation: Invocation, begun: str) -> Offers:
    from uwf_git.api.cockpit.inbox import groups

    return [(name, label) for name, label in groups().items() if name.startswith(begun)]


def _views(invocation: Invocation, begun: str) -> Offers:
    from uwf_git.api.filters import views

    return [(name, words) for name, words in views(invocation.instance).items() if name.startswith(begun)]


complete_thread = partial(offer, _threads)
complete_name = partial(offer, partial(_registered, "workflow"))
complete_workflow = partial(offer, _workflows)
complete_crew = partial(offer, partial(_registered, "crew"))
complete_speaker = partial(offer, _speakers)
complete_hash = partial(offer, _hashes)
complete_step = partial(offer, _steps)
complete_agent = partial(offer, _agents)
complete_setting = partial(offer, _settings)
complete_remote = partial(offer, _remotes)
complete_group = partial(offer, _groups)
complete_view = partial(offer, _views)
complete_suite = partial(offer, partial(_registered, "suite"))
