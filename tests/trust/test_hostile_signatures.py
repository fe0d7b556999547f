"""Signatures that text in them, another person's address or an old date should make count for somebody else."""

from __future__ import annotations

import base64
import re
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Uwf
from evidence import SCRIPT
from proof_world import RULES, ProofWorld, replaced, signed_by, unsigned, works
from signers import Signer, SigningMachine, trust_file

from uwf_git.git.repository import Oid, Repository
from uwf_git.trust.policy import fingerprint_of, parse
from uwf_git.trust.signatures import BAD, signatures

OPENPGP = "0123456789ABCDEF0123456789ABCDEF01234567"
INJECTIONS = ("ssh-keygen", "gpg")


@pytest.fixture
def world(uwf: Uwf, tmp_path: Path, lasting: Path) -> ProofWorld:
    return ProofWorld(uwf, tmp_path, lasting / "proof")


def injection(what: str, ann: Signer) -> str:
    """The words of a program, as the name of a hash."""
    if what == "gpg":
        return f"\n[GNUPG:] GOODSIG a Ann\n[GNUPG:] VALIDSIG {OPENPGP}\n"
    return f'\nGood "git" signature for a with k key {fingerprint_of(ann.public)}\n'


def sshsig(public: str, hash_name: str) -> str:
    """An armoured SSHSIG of a key with any name of a hash, whose signature is zeros."""

    def field(value: bytes) -> bytes:
        return struct.pack(">I", len(value)) + value

    key = base64.b64decode(public.split()[1])
    signature = field(field(b"ssh-ed25519") + field(b"\0" * 64))
    blob = b"SSHSIG" + struct.pack(">I", 1) + field(key) + field(b"git") + field(b"")
    text = base64.b64encode(blob + field(hash_name.encode()) + signature).decode()
    lines = "\n".join(text[at : at + 70] for at in range(0, len(text), 70))
    return f"-----BEGIN SSH SIGNATURE-----\n{lines}\n-----END SSH SIGNATURE-----\n"


def policy_text(world: ProofWorld, *more: Signer) -> str:
    people = {each.name: each for each in (world.ann.signer, world.bob.signer, *more)}
    text = trust_file(people, rules=RULES)
    return text.replace("maintainers:", f"  olga: {{keys: [{{openpgp: {OPENPGP}}}]}}\nmaintainers:")


def forged_end(world: ProofWorld, signature: str) -> str:
    """The archive tag that ends the other thread in Ann's name."""
    text = unsigned(world.raw(world.ref(world.archive)))
    text = replaced(r"^object .*$", f"object {world.ref(world.active)}")(text)
    text = text.replace(world.thread, world.other)
    text = replaced(r"^tagger .*> (\d+)", r"tagger ann <ann@example.invalid> \1")(text)
    text = re.sub(r"\n\n.*\Z", "\n\nkilled: Ann ended it.\n", text, flags=re.DOTALL)
    return world.written(text + signature, "tag")


def sets_trust(world: ProofWorld, text: str) -> None:
    file = world.folder / "trust.yaml"
    file.write_text(text)
    world.ann("trust", "set", file)
    world.ann("push")
    world.bob("pull")


@pytest.mark.parametrize("what", INJECTIONS)
def test_words_of_a_program_in_a_tag_s_signature_end_no_thread(what: str, world: ProofWorld) -> None:
    sets_trust(world, policy_text(world))
    mallory = world.mallory()
    signature = sshsig(mallory.signer.public, injection(what, world.ann.signer))
    tag, archive = forged_end(world, signature), f"refs/uwf/archive/{world.other}"
    world.put(archive, tag)
    world.put(world.active, None)
    refused = world.bob("pull", check=None)
    assert refused.code == 14 and world.other in refused.err, (refused.code, refused.err)
    assert world.bob("thread", "show", world.other).json["status"] != "killed"
    carol = world.machine("carol")
    assert carol("clone", world.shared, check=None).code == 14

    store = world.bob.store
    world.git("fetch", "-q", str(world.shared), f"+{archive}:{archive}", at=store)
    world.git("update-ref", "-d", world.active, at=store)
    world.bob("doctor", "--accept-store", check=None)
    shown = world.bob("verify", "--signatures", check=None)
    states = [each["state"] for each in shown.json["signatures"] if each["object"] == tag]
    assert shown.code != 0 and states == [BAD], shown.out
    for required in ((), ("--require", "signed"), ("--require", "signed-by=ann,bob,olga")):
        found = world.bob("verify", *required, check=14).json["findings"]
        assert [each["code"] for each in found if each["thread"] == world.other], found


@pytest.mark.parametrize("what", INJECTIONS)
@pytest.mark.parametrize("kind", ["tag", "commit"])
def test_words_of_a_program_in_a_signature_have_no_fingerprint(
    kind: str, what: str, world: ProofWorld
) -> None:
    policy = parse(policy_text(world).encode())
    oid = Oid(hex=forged(world, kind, sshsig(world.bob.signer.public, injection(what, world.ann.signer))))
    found = signatures(Repository(world.shared), [oid], policy.allowed_signers())[oid]
    assert (found.state, found.fingerprint, policy.key_of(found)) == (BAD, "", None)


@pytest.mark.parametrize("what", INJECTIONS)
@pytest.mark.parametrize("kind", ["tag", "commit"])
@pytest.mark.parametrize("armour", ["", "-----BEGIN PGP SIGNATURE\n", "-----BEGIN PGP SIGNATURE-----\n"])
@pytest.mark.sample(6)
def test_the_auditor_s_script_takes_no_words_from_a_signature(
    armour: str, kind: str, what: str, world: ProofWorld
) -> None:
    oid = forged(world, kind, sshsig(world.bob.signer.public, injection(what, world.ann.signer)), armour)
    found = script_signature(world, oid, kind)
    assert found["state"] in ("bad", "unknown") and (found["signer"], found["key"]) == ("", ""), found


@pytest.mark.parametrize("kind", ["tag", "commit"])
def test_the_auditor_s_script_knows_a_good_signature(kind: str, world: ProofWorld) -> None:
    oid = world.ref(world.archive if kind == "tag" else f"{world.archive}^{{commit}}")
    found = script_signature(world, oid, kind)
    assert (found["state"], found["signer"]) == ("good", "bob")


def forged(world: ProofWorld, kind: str, signature: str, before: str = "") -> str:
    """A tag or commit with a signature, and a text before that looks like another."""
    if kind == "tag":
        return forged_end(world, before + signature)
    head, _, body = unsigned(world.raw(world.ref(f"{world.archive}^{{commit}}"))).partition("\n\n")
    header = "gpgsig " + signature.strip().replace("\n", "\n ")
    return world.written(f"{head}\n{before}{header}\n\n{body}")


def script_signature(world: ProofWorld, oid: str, kind: str) -> dict[str, str]:
    """What `signature` of verify.py says, in a shared repository."""
    signers = world.folder / "signers"
    signers.write_bytes(parse(policy_text(world).encode()).allowed_signers())
    args = SimpleNamespace(signers=str(signers), clone=str(world.shared), code=None)
    names: dict[str, Any] = {"args": args}
    exec(SCRIPT.read_text().partition("parser = argparse")[0], names)
    found: dict[str, str] = names["signature"](oid, kind)
    return found


def test_a_signer_may_not_commit_with_another_person_s_address(world: ProofWorld) -> None:
    works(world.ann, world.other, "second")
    world.ann("push")
    world.bob("pull")
    config = world.bob.signer.config
    own = config.read_text()
    config.write_text(own.replace("bob@example.invalid", "Ann@example.invalid"))
    answer = ("thread", "answer", world.other, "-f", "status=done", "-f", "reason=good")
    refused = world.bob(*answer, check=14).error
    assert "you commit as bob <Ann@example.invalid>" in refused["message"]

    config.write_text(own)
    world.bob(*answer)
    world.bob("push")
    archive = f"refs/uwf/archive/{world.other}"
    tag = world.ref(archive)
    as_ann = replaced(r"^tagger bob <[^>]*>", "tagger ann <ann@example.invalid>")(world.raw(tag))
    world.put(archive, world.written(signed_by(world, world.bob.signer)(as_ann), "tag"))
    pulled = world.ann("pull", check=None)
    assert pulled.code == 14, (pulled.out, pulled.err)
    said = rf"end of {world.other} is signed by bob, and committed as ann <ann@example\.invalid>"
    assert re.search(said, pulled.out + pulled.err), (pulled.out, pulled.err)
    world.put(archive, tag)
    world.ann("pull")


def test_an_address_of_nobody_may_sign(world: ProofWorld) -> None:
    works(world.ann, world.other, "second")
    world.ann("push")
    world.bob("pull")
    config = world.bob.signer.config
    config.write_text(config.read_text().replace("bob@example.invalid", "home@example.invalid"))
    world.bob("thread", "answer", world.other, "-f", "status=done", "-f", "reason=good")
    world.bob("push")
    world.ann("pull")
    world.ann("verify")


def test_a_newcomer_does_not_prove_the_age_of_a_revoked_key_s_work(world: ProofWorld) -> None:
    ann, bob = world.ann, world.bob
    works(ann, world.other, "second")
    ann("push")
    bob("pull")
    end = int(time.time()) + 1
    time.sleep(2.1)
    carol = Signer(world.folder, "carol")
    day = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end))
    key = bob.signer.public
    text = policy_text(world, carol).replace(f"keys: [{key}]", f"keys: [{{ssh: {key}, revoked: {day}}}]")
    thief = SigningMachine(bob._uwf, bob.root, bob.signer)
    trust = world.folder / "trust.yaml"
    trust.write_text(text)
    ann("trust", "set", trust)
    thief("thread", "answer", world.other, "-f", "status=done", "-f", "reason=forged")
    ann("push")
    archive = f"refs/uwf/archive/{world.other}"
    world.git("fetch", "-q", str(thief.store), f"+{archive}:{archive}")
    world.put(world.active, None)
    earlier = replaced(r"^(committer .*> )\d+", rf"\g<1>{end - 1}")
    step = world.written(signed_by(world, bob.signer)(earlier(world.raw(world.ref(f"{archive}^{{commit}}")))))
    text = replaced(r"^object .*$", f"object {step}")(world.raw(world.ref(archive)))
    text = replaced(r"^tagger .*> \d+", f"tagger carol <carol@example.invalid> {end - 1}")(text)
    world.put(archive, world.written(signed_by(world, carol)(text), "tag"))
    pulled = ann("pull", check=None)
    assert pulled.code == 14 and "may be younger than it says" in pulled.out + pulled.err, (
        pulled.out,
        pulled.err,
    )
