"""A trust file is read whole, with every mistake by its line, and says whose a signature is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from signers import Signer, trust_file

from uwf_git.base.errors import Invalid
from uwf_git.trust.policy import InvalidPolicy, Policy, fingerprint_of, page, parse
from uwf_git.trust.signatures import Signature

FINGERPRINT = "0123456789ABCDEF0123456789ABCDEF01234567"


def read(text: str) -> Policy:
    return parse(text.encode())


def wrong(text: str) -> list[tuple[int, str]]:
    with pytest.raises(InvalidPolicy) as caught:
        read(text)
    return [(each.line, each.code) for each in caught.value.findings]


@pytest.fixture
def ann(hermetic: Path) -> Signer:
    return Signer(hermetic, "ann")


@pytest.fixture
def bob(hermetic: Path) -> Signer:
    return Signer(hermetic, "bob")


def test_a_key_has_the_fingerprint_that_ssh_prints(ann: Signer) -> None:
    printed = subprocess.run(["ssh-keygen", "-lf", str(ann.key)], capture_output=True, text=True, check=True)
    assert fingerprint_of(ann.public) == printed.stdout.split()[1]


def test_people_groups_and_rules_are_read(ann: Signer, bob: Signer) -> None:
    policy = read(
        trust_file(
            {"ann": ann, "bob": bob},
            rules="[{threads: 'release-*', of: answers, signed-by: [both]}, {workflows: '*', require: signed}]",
            more="groups: {both: [ann, bob]}\n",
        )
    )
    assert policy.members(["both"]) == {"ann", "bob"}
    assert policy.members(["ann", "nobody"]) == {"ann"}
    assert [str(rule) for rule in policy.rules] == [
        "answers of threads release-*: signed by both",
        "workflows *: signed",
    ]
    assert [len(policy.rules_for("threads", name, ["answers"])) for name in ("release-1", "other")] == [1, 0]
    assert not policy.rules_for("threads", "release-1", ["steps"])


def test_a_signature_is_the_person_s_whose_key_made_it(ann: Signer) -> None:
    policy = read(trust_file({"ann": ann}))
    key = fingerprint_of(ann.public)
    assert policy.person_of(Signature("good", "anybody", key, key)) == "ann"
    assert policy.person_of(Signature("unknown", "", key, key)) == "ann"
    assert policy.person_of(Signature("bad", "ann", key, "")) is None
    assert policy.person_of(Signature("good", "ann", "SHA256:other", "SHA256:other")) is None
    assert policy.person_of(Signature("none")) is None
    assert policy.person_of(Signature("none"), "Ann@example.invalid") == "ann"
    assert policy.person_of(Signature("good", "", "SHA256:x", "SHA256:x"), "ann@example.invalid") is None


def test_an_openpgp_key_is_known_by_its_primary_key_or_a_subkey() -> None:
    spaced = " ".join(FINGERPRINT[at : at + 4] for at in range(0, 40, 4)).lower()
    policy = read(f"people: {{ann: {{keys: [{{openpgp: {spaced!r}}}]}}}}\nmaintainers: [ann]\n")
    assert policy.person_of(Signature("good", "", "", FINGERPRINT, "")) == "ann"
    assert policy.person_of(Signature("good", "", "", "F" * 40, FINGERPRINT)) == "ann"
    assert policy.person_of(Signature("good", "", "", FINGERPRINT[:16], "")) is None


def test_times_of_a_key_are_in_utc() -> None:
    text = (
        f"people: {{ann: {{keys: [{{x509: {FINGERPRINT}, from: 2026-01-01, until: 2026-02-01T12:30Z,"
        " revoked: always}]}}\nmaintainers: [ann]\n"
    )
    key = read(text).people["ann"].keys[0]
    assert (key.since, key.until, key.revoked, key.end) == (1767225600, 1769949000, 0, 0)


WRONG = {
    "a name that is unknown": ("maintainers: [ann, eve]", [(6, "unknown-name")]),
    "an unknown key of the file": ("maintainers: [ann]\nsigners: [ann]", [(7, "unknown-key")]),
    "a rule about nothing": ("maintainers: [ann]\nrules:\n  - require: signed", [(8, "bad-rule")]),
    "a rule with two demands": (
        "maintainers: [ann]\nrules:\n  - threads: '*'\n    require: signed\n    signed-by: [ann]",
        [(8, "bad-rule")],
    ),
    "a demand that is none": (
        "maintainers: [ann]\nrules:\n  - threads: '*'\n    require: trust",
        [(9, "bad-rule")],
    ),
    "an unknown record": (
        "maintainers: [ann]\nrules:\n  - threads: '*'\n    of: [step]\n    require: signed",
        [(9, "bad-rule")],
    ),
    "records of a workflow": (
        "maintainers: [ann]\nrules:\n  - workflows: '*'\n    of: [steps]\n    require: signed",
        [(9, "bad-rule")],
    ),
    "a pattern with a space": (
        "maintainers: [ann]\nrules:\n  - threads: 'a b'\n    require: signed",
        [(8, "bad-pattern")],
    ),
    "nobody who may sign": (
        "maintainers: [ann]\nrules:\n  - threads: '*'\n    signed-by: []",
        [(9, "empty")],
    ),
    "a group named like a person": ("maintainers: [ann]\ngroups:\n  ann: [ann]", [(8, "same-name")]),
    "no maintainer": ("maintainers: []", [(6, "empty")]),
    "an allowance that is none": ("maintainers: [ann]\nallow: [everything]", [(7, "bad-rule")]),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_mistake_is_named_by_its_line(what: str, ann: Signer) -> None:
    text, expected = WRONG[what]
    head = f"# who\npeople:\n  ann:\n    emails: [ann@example.invalid]\n    keys: [{ann.public}]\n"
    assert wrong(f"{head}{text}\n") == expected


@pytest.mark.parametrize(
    "key",
    [
        "ssh-ed25519 AAAA",
        "ssh-dss AAAAB3NzaC1kc3M=",
        "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIA==",
        "AAAAC3NzaC1lZDI1NTE5",
        "{openpgp: 0123456789ABCDEF}",
        "{ssh: 1, x509: 2}",
        "{from: 2026-01-01}",
        f"{{openpgp: {FINGERPRINT}, until: tomorrow}}",
        f"{{openpgp: {FINGERPRINT}, from: 2026-13-01}}",
        f"{{openpgp: {FINGERPRINT}, from: 2026-02-01, until: 2026-01-01}}",
    ],
)
def test_a_key_that_is_none_is_refused(key: str, ann: Signer) -> None:
    found = wrong(f"people:\n  ann:\n    keys:\n      - {ann.public}\n      - {key}\nmaintainers: [ann]\n")
    assert found and {line for line, _ in found} == {5}


def test_a_key_of_two_people_is_refused(ann: Signer) -> None:
    assert wrong(trust_file({"ann": ann, "bob": ann})) == [(7, "shared-key")]


def test_a_policy_that_nobody_could_change_is_refused() -> None:
    assert wrong("people: {ann: {}}\nmaintainers: [ann]\n") == [(2, "no-key")]


@pytest.mark.parametrize(
    "text", ["", "[]", "people", "people: []\nmaintainers: {}\n", "people: {}\n", "a: &a [*a]"]
)
def test_what_is_no_trust_file_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        read(text)


def test_a_pattern_takes_no_time_on_a_hostile_name() -> None:
    policy = read(
        f"people: {{ann: {{keys: [{{x509: {FINGERPRINT}}}]}}}}\nmaintainers: [ann]\n"
        "rules: [{threads: '*a*a*a*a*a*a*a*a*b', require: signed}]\n"
    )
    assert not policy.rules_for("threads", "a" * 100_000, ["steps"])
    assert policy.rules_for("threads", "a" * 10 + "b", ["steps"])


def test_the_page_shows_keys_and_rules_and_no_markup_of_names(ann: Signer) -> None:
    text = trust_file({"ann": ann}, rules="[{threads: '*', signed-by: [ann]}]")
    shown = page(read(text)).decode()
    assert fingerprint_of(ann.public) in shown
    assert "threads \\*: signed by ann" in shown
