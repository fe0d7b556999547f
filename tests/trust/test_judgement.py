"""Each kind of record is judged by the key that signed it, and by the times that are provable."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import crew_packages
import pytest
from cli_samples import GATE, ONE
from signers import Signer, SigningMachine, trust_file

from uwf_git.store import ref_kinds
from uwf_git.store.index import Overlay
from uwf_git.store.indexing import Store
from uwf_git.store.new_record import step_of
from uwf_git.trust.judgement import MET, NOT_PROVABLE, UNMET, Judgement, Requirements, SeenSignatures
from uwf_git.trust.policy import OF_THREADS, SUBJECTS, fingerprint_of, parse

KINDS = (*SUBJECTS[1:], *OF_THREADS)
ALL = "[" + ", ".join(f"{{{each}: '*', require: signed}}" for each in SUBJECTS) + "]"
FAR = 4_000_000_000  # Unix seconds, after the end of keys that end in 2050


class Store_:
    """A store with a record of each kind, which Bob made."""

    def __init__(self, uwf: Callable[..., Any], folder: Path) -> None:
        self.folder = folder
        self.people = {name: Signer(folder, name) for name in ("ann", "bob")}
        self.machine = SigningMachine(uwf, folder / "store", self.people["bob"])
        self.machine("init")

    def fills(self) -> str:
        """Makes a record of each kind; the thread's id."""
        machine, folder = self.machine, self.folder
        for name, text in (("gate", GATE), ("one", ONE)):
            (folder / f"{name}.yaml").write_text(text)
            machine("workflow", "put", folder / f"{name}.yaml")
        machine("crew", "import", crew_packages.folder(folder / "crew", crew_packages.own()))
        (folder / "cases.jsonl").write_text('{"prompt": "x", "expected": {"n": 1}}\n')
        machine("eval", "import", folder / "cases.jsonl", "--to", "fine", "--workflow", "one")
        machine("eval", "run", "fine", check=None)
        machine("eval", "baseline", "set", "fine")
        thread = str(machine("thread", "start", "gated", "-p", "Announce it").json["thread"])
        fork = str(machine("thread", "fork", thread, "--at", "0").json["thread"])
        machine("thread", "step", fork, "--agent", "false", check=6)
        machine("thread", "pause", fork)
        self.steps(thread)
        machine("thread", "answer", thread, "-f", "decision=send")
        return thread

    @property
    def thread(self) -> str:
        """What `fills` returned."""
        return (self.folder / "thread").read_text()

    def steps(self, thread: str) -> None:
        replies = self.folder / "replies.yaml"
        replies.write_text("- { role: writer, output: { text: first } }\n")
        self.machine("thread", "step", thread, "--agent", f"uwf-rehearse --script {replies}")

    def judge(self, *keys: str, now: float | None = None, rules: str = ALL) -> list[Judgement]:
        """Judges everything by a policy in which Bob has keys; `KEY` in one stands for his."""
        listed = ", ".join(each.replace("KEY", self.people["bob"].public) for each in keys)
        text = (
            f"people:\n  ann: {{keys: [{self.people['ann'].public}]}}\n  bob: {{keys: [{listed}]}}\n"
            f"maintainers: [ann]\nrules: {rules}\n"
        )
        opened = Store.open(self.machine.store)
        store = Store(opened.repository, Overlay())
        refs = opened.repository.refs()
        return Requirements(store, parse(text.encode()), now=now).judge(refs)

    def outcomes(self, *keys: str, now: float | None = None, rules: str = ALL) -> dict[str, set[str]]:
        """The outcomes by kind of record."""
        found: dict[str, set[str]] = {}
        for each in self.judge(*keys, now=now, rules=rules):
            found.setdefault(each.record.of[0] if each.record.of else each.record.subject, set()).add(
                each.outcome
            )
        return found


@pytest.fixture
def store(uwf: Any, hermetic: Path) -> Store_:
    return Store_(uwf, hermetic)


@pytest.fixture
def filled(uwf: Any, hermetic: Path, lasting: Path) -> Store_:
    """A store with a record of each kind."""
    return filled_once(uwf, hermetic, lasting / "filled")


@pytest.fixture
def unsigned(uwf: Any, hermetic: Path, lasting: Path) -> Store_:
    """As `filled`, and nothing is signed."""
    return filled_once(uwf, hermetic, lasting / "unsigned", signs=False)


def filled_once(uwf: Any, folder: Path, kept: Path, signs: bool = True) -> Store_:
    if not kept.exists():
        first = Store_(uwf, kept)
        first.people["bob"].signs(commits=signs)
        (kept / "thread").write_text(first.fills())
    shutil.copytree(kept, folder, dirs_exist_ok=True)
    return Store_(uwf, folder)


def every(outcome: str) -> dict[str, set[str]]:
    return {kind: {outcome} for kind in KINDS}


def test_each_kind_of_record_is_judged_by_its_key(filled: Store_) -> None:
    assert filled.outcomes("KEY") == every(MET)
    for keys, reason in (
        ((), "which is not in the policy"),
        (("{ssh: KEY, until: 2001-01-01}",), "with a key that was expired"),
        (("{ssh: KEY, revoked: 2001-01-01}",), "with a key that was revoked"),
        (("{ssh: KEY, revoked: always}",), "with a key that was revoked"),
        (("{ssh: KEY, from: 2100-01-01}",), "before the key was valid"),
    ):
        assert filled.outcomes(*keys) == every(UNMET), keys
        assert all(reason in each.reason for each in filled.judge(*keys))
    assert filled.outcomes("{ssh: KEY, from: 2001-01-01, until: 2100-01-01}") == every(MET)
    by_ann = ALL.replace("require: signed", "signed-by: [ann]")
    assert filled.outcomes("KEY", rules=by_ann) == every(UNMET)
    assert {each.person for each in filled.judge("KEY", rules=by_ann)} == {"bob"}
    assert filled.outcomes("KEY", rules=by_ann.replace("ann", "bob")) == every(MET)


def test_each_kind_of_record_that_is_unsigned_is_unmet(unsigned: Store_) -> None:
    assert unsigned.outcomes("KEY") == every(UNMET)
    assert all(each.reason.endswith("is not signed") for each in unsigned.judge("KEY"))
    assert {each.record.word.split()[0] for each in unsigned.judge("KEY")} == {
        *("workflow", "crew", "suite", "baseline", "start", "step", "answer", "attempt", "the")
    }


def test_every_shared_kind_of_refs_is_under_a_rule_or_needs_none() -> None:
    ruled = {kind.prefix: kind.rule for kind in ref_kinds.every() if kind.is_shared}
    assert set(ruled.values()) - {""} == {*SUBJECTS[1:], *OF_THREADS} - {"starts"}
    # The policy has a rule of its own, and a node's name is its hash.
    assert {prefix for prefix, rule in ruled.items() if not rule} == {"refs/uwf/trust/", "refs/uwf/nodes/"}


def test_a_step_that_names_a_person_as_its_agent_is_a_step_all_the_same() -> None:
    assert step_of("gate", "uwf-human", True) == step_of("$USER", "user", False) == ("answers",)
    assert step_of("writer", "uwf-human", False) == ("steps", "answers")
    assert step_of("writer", "uwf-llm", False) == ("steps",)


def test_a_rule_is_about_the_records_that_it_names(unsigned: Store_) -> None:
    rules = "[{threads: ga*d, of: [answers, ends], require: signed}]"
    found = unsigned.judge("KEY", rules=rules)
    assert [each.record.of for each in found] == [("answers",), ("ends",)]
    assert {each.record.thread for each in found} == {unsigned.thread}
    assert unsigned.judge("KEY", rules="[{threads: other, require: signed}]") == []


def test_what_was_signed_with_a_key_that_has_ended_since_is_not_provable_by_its_date(filled: Store_) -> None:
    ends = "{ssh: KEY, until: 2050-01-01}"
    assert filled.outcomes(ends) == every(MET)  # it has not ended, and this store has seen it
    assert filled.outcomes(ends, now=FAR) == every(MET)
    (filled.machine.store / "uwf" / "signatures.db").unlink()
    assert filled.outcomes(ends, now=FAR) == every(NOT_PROVABLE)
    assert all("may be younger than it says" in each.reason for each in filled.judge(ends, now=FAR))
    assert filled.outcomes("{ssh: KEY, revoked: 2050-01-01}", now=FAR) == every(NOT_PROVABLE)


def test_a_store_that_saw_it_too_late_proves_nothing(filled: Store_) -> None:
    ends = "{ssh: KEY, until: 2050-01-01}"
    assert filled.outcomes(ends, now=FAR) == every(NOT_PROVABLE)
    assert filled.outcomes(ends, now=FAR + 1) == every(
        NOT_PROVABLE
    )  # it is seen since then, which is after the end


@pytest.mark.parametrize("entered", ["before", "after"])
def test_a_record_on_top_proves_its_age_if_the_policy_had_its_key_by_then(
    entered: str, store: Store_
) -> None:
    (store.folder / "gate.yaml").write_text(GATE)
    store.machine("workflow", "put", store.folder / "gate.yaml")
    thread = str(store.machine("thread", "start", "gated", "-p", "Announce it").json["thread"])
    store.steps(thread)
    store.machine.signer = store.people["ann"]
    text = trust_file(store.people)
    (store.folder / "trust.yaml").write_text(text)
    if entered == "before":
        store.machine("trust", "set", store.folder / "trust.yaml")
    store.machine("thread", "answer", thread, "-f", "decision=send")
    if entered == "after":
        time.sleep(1.1)
        store.machine("trust", "set", store.folder / "trust.yaml")
    ends = "{ssh: KEY, until: 2050-01-01}"
    found = {each.outcome for each in store.judge(ends, now=FAR) if each.person == "bob"}
    assert found == {MET if entered == "before" else NOT_PROVABLE}
    # Ann's answer is later than that: it proves that the step is older than her answer, and no more.
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    early = store.judge(f"{{ssh: KEY, from: 2001-01-01, until: '{soon}'}}", now=FAR)
    assert {each.outcome for each in early if each.person == "bob"} == {UNMET}


def test_the_signer_s_own_later_records_prove_no_age(store: Store_) -> None:
    (store.folder / "trust.yaml").write_text(trust_file(store.people, maintainers="bob"))
    store.machine("trust", "set", store.folder / "trust.yaml")
    store.fills()
    assert store.outcomes("{ssh: KEY, until: 2050-01-01}", now=FAR) == every(NOT_PROVABLE)


def test_a_signature_that_an_older_version_noted_is_verified_again_and_keeps_its_time(filled: Store_) -> None:
    ends = "{ssh: KEY, until: 2050-01-01}"
    assert filled.outcomes(ends) == every(MET)
    path = filled.machine.store / "uwf" / "signatures.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE seen SET fingerprint = 'forged'")
        db.execute("PRAGMA user_version = 1")
    assert filled.outcomes(ends, now=FAR) == every(MET)
    cache = SeenSignatures(filled.machine.store / "uwf")
    found = cache.get([each.record.object for each in filled.judge(ends, now=FAR)])
    cache.close()
    assert {each.fingerprint for each in found.values()} == {fingerprint_of(filled.people["bob"].public)}
    assert all(each.since < FAR for each in found.values())


def test_a_signature_is_verified_once_and_its_policy_each_time(filled: Store_) -> None:
    filled.outcomes("KEY")
    objects = [each.record.object for each in filled.judge("KEY")]
    seen = SeenSignatures(filled.machine.store / "uwf").get(objects)
    assert len(seen) == len(objects)
    assert filled.outcomes("{ssh: KEY, revoked: always}") == every(UNMET)
    assert filled.outcomes() == every(UNMET)


def test_a_tag_whose_signature_is_of_another_text_is_bad(filled: Store_) -> None:
    from forged import Forger

    git, thread = Forger(filled.machine.store), filled.thread
    raw = git("cat-file", "tag", f"refs/uwf/archive/{thread}").encode() + b"\n"
    forged = git.write("tag", raw.replace(b"bob@", b"bot@"))
    git("update-ref", f"refs/uwf/archive/{thread}", forged)
    (ended,) = (
        each for each in filled.judge("KEY") if each.record.of == ("ends",) and each.record.thread == thread
    )
    assert (ended.outcome, ended.reason) == (
        UNMET,
        f"the end of {thread} is signed, but the signature is bad",
    )


def test_the_ends_in_a_fold_are_judged(filled: Store_) -> None:
    filled.machine("gc", "--fold-before", "9999-01-01")
    assert filled.outcomes("KEY")["ends"] == {MET}
    assert filled.outcomes()["ends"] == {UNMET}
