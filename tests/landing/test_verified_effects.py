"""Verification finds each record of an effect that is forged, truncated or out of order, and no honest one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import ONE
from commands import git
from conftest import Uwf
from outside import Outside, sending
from workflows import opened

from uwf_git.ext.landing import EFFECTS
from uwf_git.ext.landing.effect_records import Effect, Effects, Settlement, key_of, page_and_message
from uwf_git.ext.landing.effects import once
from uwf_git.ext.landing.node_types import EFFECT, SETTLEMENT
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.words import COMMENT, DONE, FOUND
from uwf_git.git.objects import Person
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import start_of
from uwf_git.store.instance import Instance
from uwf_git.store.location import locate
from uwf_git.store.thread_records import folder_of


class Forger:
    """Writes records of effects with the library's own hands, but without its checks."""

    def __init__(self, uwf: Uwf, thread: str) -> None:
        self.uwf = uwf
        self.thread = ThreadId(thread)
        self.instance = opened()
        self.ref = EFFECTS.prefix + thread

    @property
    def tip(self) -> Oid | None:
        return self.instance.store.repository.ref(self.ref)

    def effect(self, **changes: Any) -> Effect:
        """What is honest at the head, with some fields changed."""
        head = self.instance.threads.head(self.thread)
        begin = start_of(self.instance.store, head.commit)
        key = key_of(Oid(raw=begin.oid), COMMENT, "https://forge.invalid", "x")
        prev = head.node if head.row.kind == "step" else None
        effect = Effect(
            begin.node, prev, key, COMMENT, "x", "0" * 64, head.row.time, "https://forge.invalid", "x"
        )
        return effect._replace(**changes)

    def commit(
        self,
        content: Effect | Settlement,
        *,
        when: int | None = None,
        message: str = "",
        page: bytes = b"",
        more: dict[str, bytes] | None = None,
        without: bool = False,
        parents: list[Oid] | None = None,
        payload: dict[str, Any] | None = None,
    ) -> Hash:
        store, repository = self.instance.store, self.instance.store.repository
        head = self.instance.threads.head(self.thread)
        type_hash = EFFECT if isinstance(content, Effect) else SETTLEMENT
        node = store.put(type_hash, {**content.payload(), **(payload or {})})
        known = {head.node, head.row.start or head.node, *store.references(store.get(node))}
        known |= self.instance.threads.workflow_nodes(repository.commit(head.commit).tree)
        files: dict[str, bytes | Oid] = dict(store.files(node, known))
        files["README.md"], text = page_and_message(node, content)
        if without:
            del files[f"nodes/{node}.json"]
        files |= {**({"README.md": page} if page else {}), **(more or {})}
        before = repository.write_folder({".gitattributes": layout.GITATTRIBUTES})
        if self.tip is not None:
            before = repository.commit(self.tip).tree
        tree = repository.graft(before, folder_of(EFFECTS, node), repository.write_folder(files))
        if parents is None:
            parents = [*([self.tip] if self.tip is not None else []), head.commit]
        person = Person("Eve Example", "eve@example.invalid")
        oid = repository.write_commit(
            tree, parents, person, message or text, content.at if when is None else when, committer=person
        )
        git("--git-dir", self.instance.location.git_dir, "update-ref", self.ref, str(oid))
        return node

    def codes(self) -> set[str]:
        return {item["code"] for item in self.uwf("verify", check=None).json["findings"]} - {"unwitnessed"}


@pytest.fixture
def forger(uwf: Uwf, hermetic: Path) -> Forger:
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    return Forger(uwf, uwf("thread", "start", "one", "-p", "Do it").json["thread"])


def test_what_the_library_writes_is_valid(forger: Forger, tmp_path: Path) -> None:
    outside = Outside(tmp_path)
    once(forger.instance, forger.thread, sending(), outside.send)
    forger.uwf("thread", "step", forger.thread, "--agent", "uwf-rehearse")
    once(Instance(forger.instance.location), forger.thread, sending("other"), outside.send)
    assert forger.codes() == set()


def test_the_double_writes_what_is_valid_where_nothing_is_forged(forger: Forger) -> None:
    effect = forger.commit(forger.effect())
    assert forger.codes() == set()
    forger.commit(Settlement(effect, DONE, forger.effect().at, "1"))
    assert forger.codes() == set()


EFFECT_FORGERIES: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "a key that does not follow from the thread": ({"key": "0" * 32}, {}, {"wrong-chain"}),
    "a kind that the key is not of": ({"kind": "push"}, {}, {"wrong-chain"}),
    "a target that the key is not of": ({"target": "https://other.invalid"}, {}, {"wrong-chain"}),
    "a name that the key is not of": ({"name": "y"}, {}, {"wrong-chain"}),
    "a word that nobody knows": ({"kind": "mail"}, {}, {"unknown-word"}),
    "another time than the commit's": ({}, {"when": 1_780_000_000}, {"wrong-chain"}),
    "another message": ({}, {"message": "x\n\nUwf-Effect: {}\n"}, {"wrong-message"}),
    "another page": ({}, {"page": b"# Nothing\n"}, {"wrong-page"}),
    "a file beside it": ({}, {"more": {"secret.txt": b"x"}}, {"extra-file"}),
    "no node": ({}, {"without": True}, {"missing-file"}),
    "no parent": ({}, {"parents": []}, {"wrong-parent"}),
}


@pytest.mark.parametrize("forgery", EFFECT_FORGERIES)
def test_an_effect_is_found_that_has(forger: Forger, forgery: str) -> None:
    changes, more, codes = EFFECT_FORGERIES[forgery]
    content = forger.effect(**changes)
    if "message" in more:
        node = forger.instance.store.put(EFFECT, content.payload())
        more = {"message": more["message"].format(node)}
    forger.commit(content, **more)
    assert forger.codes() == codes


def test_an_effect_of_another_step_is_found(forger: Forger) -> None:
    head = forger.instance.threads.head(forger.thread)
    forger.commit(forger.effect(prev=head.node))
    assert "wrong-chain" in forger.codes()


def test_the_key_of_a_twin_is_found(forger: Forger) -> None:
    """A thread with the same StartNode has other keys, so the records of one can't stand in for the other's."""
    twin = forger.uwf("thread", "start", "one", "-p", "Do it").json["thread"]
    other = Forger(forger.uwf, twin)
    forger.commit(other.effect())
    assert forger.codes() == {"wrong-chain"}


def _twice(forger: Forger) -> None:
    effect = forger.effect()
    forger.commit(effect)
    forger.commit(effect)


def _settled_before(forger: Forger) -> None:
    effect = forger.effect()
    node = forger.instance.store.put(EFFECT, effect.payload())
    forger.commit(Settlement(node, DONE, effect.at))
    forger.commit(effect)


def _of_a_settlement(forger: Forger) -> None:
    effect = forger.effect()
    settlement = forger.commit(Settlement(forger.commit(effect), DONE, effect.at))
    forger.commit(Settlement(settlement, FOUND, effect.at))


def _unknown_outcome(forger: Forger) -> None:
    effect = forger.effect()
    forger.commit(Settlement(forger.commit(effect), "perhaps", effect.at))


def _unbound(forger: Forger) -> None:
    effect = forger.effect()
    node = forger.commit(effect)
    assert forger.tip is not None
    forger.commit(Settlement(node, DONE, effect.at), parents=[forger.tip])


def _truncated(forger: Forger) -> None:
    """The record is gone from the tree that its settlement stands on."""
    effect, repository = forger.effect(), forger.instance.store.repository
    node = forger.commit(effect)
    forger.commit(Settlement(node, DONE, effect.at))
    assert forger.tip is not None
    commit = repository.commit(forger.tip)
    folders = {entry.name: entry for entry in repository.tree(commit.tree)}
    kept = [entry for entry in repository.tree(folders["effects"].oid) if entry.name != node]
    tree = repository.with_entries(commit.tree, folders["effects"]._replace(oid=repository.write_tree(kept)))
    oid = repository.rewrite_commit(forger.tip, tree, commit.parents)
    git("--git-dir", forger.instance.location.git_dir, "update-ref", forger.ref, str(oid))


CHAINS: dict[str, tuple[Callable[[Forger], None], str]] = {
    "one effect twice": (_twice, "changed-file"),
    "a settlement before its effect": (_settled_before, "wrong-chain"),
    "the settlement of a settlement": (_of_a_settlement, "wrong-kind"),
    "an outcome that nobody knows": (_unknown_outcome, "unknown-word"),
    "a settlement that is bound to no head": (_unbound, "wrong-parent"),
    "an effect that its settlement has lost": (_truncated, "changed-file"),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_history_of_effects_is_found_that_has(forger: Forger, chain: str) -> None:
    forge, code = CHAINS[chain]
    forge(forger)
    assert code in forger.codes()


def test_a_forged_record_is_refused_by_a_pull_and_the_thread_is_taken(forger: Forger, tmp_path: Path) -> None:
    git("init", "-q", "--bare", tmp_path / "hub.git")
    forger.commit(forger.effect(key="0" * 32))
    forger.uwf("remote", "add", "hub", tmp_path / "hub.git")
    store = forger.instance.location.git_dir
    git("--git-dir", store, "push", "-q", tmp_path / "hub.git", "refs/uwf/*:refs/uwf/*")
    other = {"UWF_STORAGE_ROOT": str(tmp_path / "other")}
    forger.uwf("init", env=other)
    forger.uwf("remote", "add", "hub", tmp_path / "hub.git", env=other)
    pulled = forger.uwf("pull", "hub", env=other, check=None)
    assert forger.ref in pulled.out and pulled.code == 7
    instance = Instance(locate(str(tmp_path / "other"), os.environ, Path.cwd()))
    assert instance.threads.exists(forger.thread)
    assert Effects(instance.store).tip(forger.thread) is None
