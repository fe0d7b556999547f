"""The policy's history: the first is trusted on first use, each later one is a maintainer's and stands on it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from forged import Forger
from signers import Signer, trust_file
from workflows import opened

from uwf_git.base.errors import RequirementUnmet, SigningFailed
from uwf_git.git.program import Git
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout
from uwf_git.store.instance import Instance
from uwf_git.store.location import init, locate
from uwf_git.trust import policies
from uwf_git.trust.policy import page, parse


class Team:
    """Ann, Bob and Eve, and a store in this process that one of them uses."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.people = {name: Signer(folder, name) for name in ("ann", "bob", "eve")}
        self._patch = patch
        init(locate(None, os.environ, Path.cwd()))
        self.use("ann")

    def use(self, name: str) -> Instance:
        self._patch.setenv("GIT_CONFIG_GLOBAL", str(self.people[name].config))
        self.instance = opened()
        return self.instance

    @property
    def repository(self) -> Repository:
        return self.instance.store.repository

    def text(self, *names: str, maintainers: str = "ann", rules: str = "", more: str = "") -> bytes:
        people = {name: self.people[name] for name in names or ("ann", "bob")}
        return trust_file(people, maintainers, rules, more).encode()

    def sets(self, text: bytes) -> Oid:
        return policies.write(self.instance, text)

    def forges(
        self, name: str, text: bytes, *parents: Oid, when: int | None = None, shown: bytes | None = None
    ) -> Oid:
        """A policy's commit that plain git makes and this person signs."""
        git = Forger(self.repository.path)
        blobs = {"trust.yaml": text, "README.md": page(parse(text)) if shown is None else shown}
        tree = git.rows(
            *((("100644", path.encode(), git.blob(data))) for path, data in sorted(blobs.items()))
        )
        words = [word for parent in parents for word in ("-p", str(parent))]
        environ = {**os.environ, **self.people[name].environment}
        if when is not None:
            environ |= {"GIT_COMMITTER_DATE": f"{when} +0000"}
        command = ["git", "--git-dir", str(git.git_dir), "commit-tree", tree, *words, "-m", "policy", "-S"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        return Oid(hex=done.stdout.strip())

    def moves(self, commit: Oid | None) -> None:
        """Moves the ref as plain git does."""
        words = ["-d", layout.POLICY] if commit is None else [layout.POLICY, str(commit)]
        subprocess.run(["git", "--git-dir", str(self.repository.path), "update-ref", *words], check=True)
        self.instance = opened()

    def codes(self, commit: Oid) -> list[str]:
        return [each.code for each in policies.problems(self.repository, commit)]

    @property
    def current(self) -> str:
        policy = policies.current(self.instance)
        return policy.commit if policy is not None else ""


@pytest.fixture
def team(hermetic: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    return Team(hermetic, monkeypatch)


def test_a_store_without_a_policy_has_none(team: Team) -> None:
    assert policies.current(team.instance) is None
    assert not (team.repository.private / "policy").exists()


def test_a_policy_is_its_maintainer_s_file_and_its_page(team: Team) -> None:
    text = team.text(rules="[{threads: '*', require: signed}]")
    commit = team.sets(text)
    policy = policies.current(team.instance)
    assert policy is not None and policy.commit == str(commit)
    assert policies.current(team.repository) == policy
    assert policies.text_of(team.repository, commit) == text
    assert policies.signer_of(team.repository, commit) == "ann"


def test_a_maintainer_changes_it_and_nobody_else(team: Team) -> None:
    first = team.sets(team.text())
    team.use("bob")
    with pytest.raises(RequirementUnmet, match="signed by bob, who is not"):
        team.sets(team.text(maintainers="bob"))
    team.use("eve")
    with pytest.raises(RequirementUnmet):
        team.sets(team.text("ann", "bob", "eve", maintainers="eve"))
    assert team.current == str(first)
    team.use("ann")
    second = team.sets(team.text(maintainers="bob"))
    with pytest.raises(RequirementUnmet):  # the one before says who
        team.sets(team.text())
    team.use("bob")
    third = team.sets(team.text(maintainers="ann"))
    versions = policies.lineage(team.repository, third)
    assert versions == [third, second, first]
    assert [policies.signer_of(team.repository, each) for each in versions] == ["bob", "ann", "ann"]


def test_the_history_of_a_valid_policy_is_read_without_starting_git(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = team.sets(team.text())
    second = team.sets(team.text("ann"))
    with monkeypatch.context() as patch:
        patch.setattr(Git, "run", lambda *_, **__: pytest.fail("git was started"))
        versions = policies.history(team.repository, second)
        with pytest.raises(pytest.fail.Exception):  # as whoever verifies a signature does
            policies.signer_of(team.repository, second)
    assert [(each.commit, set(each.policy.people)) for each in versions] == [
        (second, {"ann"}),
        (first, {"ann", "bob"}),
    ]
    assert [each.time for each in versions] == [team.repository.commit(oid).time for oid in (second, first)]


def test_the_first_is_signed_by_a_maintainer_of_its_own(team: Team) -> None:
    team.use("bob")
    with pytest.raises(RequirementUnmet):
        team.sets(team.text())
    assert team.current == "" and team.repository.ref(layout.POLICY) is None


def test_without_a_key_nothing_is_written(team: Team) -> None:
    team.people["ann"].config.write_text("[user]\n\tname = ann\n\temail = a@b\n[gpg]\n\tformat = ssh\n")
    team.use("ann")
    with pytest.raises(SigningFailed, match="signingKey"):
        team.sets(team.text())
    assert team.repository.ref(layout.POLICY) is None


def test_a_chain_by_plain_git_is_as_good(team: Team) -> None:
    first = team.forges("ann", team.text())
    second = team.forges("ann", team.text(maintainers="bob"), first)
    team.moves(second)
    assert team.current == str(second)


ATTACKS = {
    "by somebody else": (policies.NOT_SIGNED, lambda team, first: team.forges("bob", team.text(), first)),
    "by a stranger who names themself": (
        policies.NOT_SIGNED,
        lambda team, first: team.forges("eve", team.text("ann", "eve", maintainers="eve"), first),
    ),
    "replaced by another": (policies.REPLACED, lambda team, first: team.forges("ann", team.text("ann"))),
    "with a page that lies": (
        policies.WRONG_PAGE,
        lambda team, first: team.forges("ann", team.text("ann"), first, shown=b"All is well.\n"),
    ),
    "back-dated": (
        policies.NOT_SIGNED,
        lambda team, first: team.forges("ann", team.text("ann"), first, when=1_000_000_000),
    ),
    "a merge": (
        policies.INVALID,
        lambda team, first: team.forges("ann", team.text("ann"), first, team.forges("eve", team.text())),
    ),
    "by a stranger, and then by a maintainer": (
        policies.NOT_SIGNED,
        lambda team, first: team.forges(
            "ann", team.text("ann"), team.forges("eve", team.text("ann", "eve"), first)
        ),
    ),
}


@pytest.mark.parametrize("what", ATTACKS)
def test_a_ref_that_was_moved_by_force_is_not_followed(what: str, team: Team) -> None:
    first = team.sets(team.text())
    code, attack = ATTACKS[what]
    forged = attack(team, first)
    assert team.codes(forged) == [code]
    team.moves(forged)
    assert team.current == str(first)


def test_a_rollback_is_not_followed_nor_a_removal(team: Team) -> None:
    first = team.sets(team.text())
    second = team.sets(team.text("ann"))
    assert team.codes(first) == []  # a remote may be behind
    team.moves(first)
    assert team.codes(first) == [policies.REPLACED]
    assert team.current == str(second)
    team.moves(None)
    assert team.current == str(second)
    assert team.sets(team.text()) and team.current != str(second)


def test_an_unsigned_change_or_one_with_a_bad_signature_is_not_followed(team: Team) -> None:
    first = team.sets(team.text())
    good = team.forges("ann", team.text("ann"), first)
    raw = team.repository.read(good)[1]
    git = Forger(team.repository.path)
    bad = Oid(hex=git.write("commit", raw.replace(b"\n\npolicy", b"\n\npolitely")))
    begin, end = raw.index(b"\ngpgsig"), raw.index(b"-----END SSH SIGNATURE-----") + 27
    none = Oid(hex=git.write("commit", raw[:begin] + raw[end:]))
    for forged in (bad, none):
        assert team.codes(forged) == [policies.NOT_SIGNED]
    assert team.codes(good) == []


def test_a_maintainer_s_key_that_is_revoked_or_has_expired_changes_nothing(team: Team) -> None:
    def text(more: str) -> bytes:
        keys = f"{{ssh: {team.people['bob'].public}{more}}}"
        return (
            f"people:\n  ann: {{keys: [{team.people['ann'].public}]}}\n  bob: {{keys: [{keys}]}}\n"
            "maintainers: [ann, bob]\n"
        ).encode()

    team.sets(text(", until: 2100-01-01"))
    revoked = team.sets(text(", revoked: always"))
    assert team.codes(team.forges("bob", team.text(), revoked)) == [policies.NOT_SIGNED]
    when = team.repository.commit(revoked).time
    team.sets(text(", until: 2100-01-01"))
    last = team.repository.ref(layout.POLICY)
    assert last is not None
    later = team.forges("bob", team.text(), last, when=when + 5)
    assert not policies.problems(team.repository, later)
    assert policies.problems(team.repository, later, now=5_000_000_000)  # its date is a claim of its maker


def test_the_user_s_own_file_of_signers_is_not_needed_and_does_not_count(team: Team, hermetic: Path) -> None:
    allowed = hermetic / "allowed"
    allowed.write_text(f"ann@example.invalid {team.people['eve'].public}\n")
    with team.people["ann"].config.open("a") as file:
        file.write(f'[gpg "ssh"]\n\tallowedSignersFile = {allowed}\n')
    team.use("ann")
    first = team.sets(team.text())
    assert team.codes(team.forges("eve", team.text("ann"), first)) == [policies.NOT_SIGNED]


def test_a_file_with_mistakes_becomes_no_policy(team: Team) -> None:
    from uwf_git.trust.policy import InvalidPolicy

    with pytest.raises(InvalidPolicy):
        team.sets(b"people: {}\n")
    first = team.sets(team.text())
    forged = team.forges("ann", b"people: {ann: [\n", first, shown=b"")
    assert team.codes(forged) == [policies.INVALID]
