"""Completions of names and ids, with descriptions. May raise any error."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from uwf_git.store.instance import Instance

Offers = Iterable[tuple[str, str]]


def threads(instance: Instance, begun: str) -> Offers:
    """Offer threads by the beginning of their id, or if there are none by its end."""
    from uwf_git.store.threads import DamagedThread

    heads = instance.threads.all(archived=True)
    text = begun.upper()
    matching = [head for head in heads if head.thread.startswith(text)]
    for head in matching or [head for head in heads if head.thread.endswith(text)]:
        yield head.thread, "" if isinstance(head, DamagedThread) else f"{head.row.name}: {head.row.title}"


def names(instance: Instance, record: str, begun: str) -> Offers:
    """Offer the registered names of a kind of record."""
    from uwf_git.store.ref_kinds import kind_of_record

    kind = kind_of_record(record)
    assert kind is not None, record
    found = sorted(ref.removeprefix(kind.prefix) for ref in instance.store.repository.ref_names(kind.prefix))
    return [(name, "") for name in found if name.startswith(begun)]


def speakers(instance: Instance, begun: str) -> Offers:
    """Offer the personas of all crews by id."""
    from uwf_git.store.definitions import packages

    found = packages(instance.store)
    known = dict(speaker for each in found for name in each.names() for speaker in each.speakers(name))
    return [(id_, name) for id_, name in known.items() if id_.startswith(begun)]


def workflows_of_packages(instance: Instance, begun: str) -> Offers:
    from uwf_git.store.definitions import packages

    for found in packages(instance.store):
        yield from ((offer.address, offer.title) for offer in found.offers(begun))


def remotes(instance: Instance, begun: str) -> Offers:
    from uwf_git.store.remotes import without_password

    found = instance.remotes.all()
    return [(each.name, without_password(each.url)) for each in found if each.name.startswith(begun)]


def hashes(instance: Instance, begun: str) -> Offers:
    instance.store.sync()
    return ((node, "") for node in instance.store.index.hashes_with_prefix(begun.upper()))


def steps(instance: Instance, begun: str) -> Offers:
    from uwf_git.format.types import STEPNODE

    store = instance.store
    store.sync()
    for node in store.index.hashes_of_type(STEPNODE):
        if node.startswith(begun.upper()):
            yield node, store.step(node).role


def agents(root: Path, begun: str) -> Offers:
    from uwf_git.config.known_agents import known_names
    from uwf_git.config.read import load_config

    config = load_config(root)
    known = known_names(config)
    return [(name, "") for name in known if name.startswith(begun)]


def settings(root: Path, begun: str) -> Offers:
    from uwf_git.config.edit import list_values
    from uwf_git.config.settings import known_keys

    known = dict.fromkeys([*list_values(root), *known_keys()])
    return [(name, "") for name in known if name.startswith(begun)]
