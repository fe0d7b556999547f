"""An attestation is an in-toto statement that programs of others verify: securesystemslib, in-toto, openssl, gpg."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from approvers import Colleague, at_gate
from bundle_files import DUET
from cli_samples import ONE, PAIR, REJECTS_ONCE, scripted, write
from commands import git
from conftest import REPOSITORY, Result, Uwf
from crew_packages import folder, own
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from evidence import (
    ADA,
    Answers,
    Evidence,
    altered,
    check_file,
    check_here,
    cloned,
    configure,
    ended_thread,
    make_key,
    places,
)
from jsonschema import Draft202012Validator
from late_import import imported_late
from old_stores import ACTIVE, ENDED, reviewed
from programs import need
from referencing import Registry, Resource
from workflows import opened

from uwf_git.base.errors import SigningFailed
from uwf_git.ext.attest.keys import raw_key
from uwf_git.ext.attest.statement import envelope
from uwf_git.git.objects import Person

if TYPE_CHECKING:
    from in_toto.models import metadata
    from securesystemslib import dsse, exceptions, signer
    from securesystemslib.signer import SSlibKey
else:
    metadata, dsse, exceptions, signer = map(
        imported_late,
        (
            "in_toto.models.metadata",
            "securesystemslib.dsse",
            "securesystemslib.exceptions",
            "securesystemslib.signer",
        ),
    )

SCHEMES = {"rsa": "rsa-pkcs1v15-sha256"}


def attested(uwf: Uwf, thread: str, *options: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """An envelope and its statement."""
    envelope: dict[str, Any] = json.loads(uwf("attest", thread, *options).out)
    return envelope, json.loads(base64.b64decode(envelope["payload"]))


def schema(name: str) -> Draft202012Validator:
    """A schema of docs/reference."""
    found = {
        each: json.loads((REPOSITORY / "docs/reference" / f"{each}.schema.json").read_text())
        for each in ("attestation", "audit-report")
    }
    for each in found.values():
        Draft202012Validator.check_schema(each)
    registry: Registry[Any] = Registry().with_resources(
        (each["$id"], Resource.from_contents(each)) for each in found.values()
    )
    return Draft202012Validator(found[name], registry=registry)


def a_run(uwf: Uwf, text: str = PAIR, script: str = REJECTS_ONCE) -> str:
    """A thread that has ended."""
    uwf("workflow", "put", write("flow.yaml", text))
    thread = str(uwf("thread", "start", re.findall(r"name: (\w+)", text)[0], "-p", "Do it").json["thread"])
    uwf("thread", "run", thread, "--agent", scripted(script))
    return thread


def make_another_key(evidence: Evidence, *kind: str) -> Path:
    """A key that signs attestations of a thread whose commits another one signed."""
    key = make_key(evidence.folder / "-".join(kind), *kind)
    configure("gpg.ssh.allowedSignersFile", evidence.signers)
    return key


def key_of(public: str) -> SSlibKey:
    loaded: Any = load_pem_public_key(public.encode())
    kind = signer.SSlibKey.from_crypto(loaded).keytype
    return signer.SSlibKey.from_crypto(loaded, scheme=SCHEMES.get(kind))


KEYS = [
    ("ed25519",),
    ("ecdsa", "-b", "256"),
    ("ecdsa", "-b", "384"),
    ("ecdsa", "-b", "521"),
    ("rsa", "-b", "2048"),
]


@pytest.mark.parametrize("kind", KEYS, ids="-".join)
def test_securesystemslib_and_in_toto_verify_the_signature_of_each_kind_of_key(
    uwf: Uwf, evidence: Evidence, kind: tuple[str, ...]
) -> None:
    make_another_key(evidence, *kind)
    told = uwf("attest", evidence.thread, "-o", "thread.json").json
    key = key_of(told["publicKey"])
    assert key.keyid == told["keyid"]
    envelope = dsse.Envelope.from_dict(json.loads(Path("thread.json").read_text()))
    assert envelope.verify([key], 1) == {key.keyid: key}
    metadata.Metadata.load("thread.json").verify_signature({"keyid": key.keyid, **key.to_dict()})
    envelope.payload = envelope.payload.replace(b"completed", b"abandoned")
    with pytest.raises(exceptions.VerificationError):
        envelope.verify([key], 1)


def test_the_same_thread_and_key_give_the_same_bytes(uwf: Uwf, evidence: Evidence) -> None:
    for kind in KEYS:
        make_another_key(evidence, *kind)
        assert uwf("attest", evidence.thread).out == uwf("attest", evidence.thread).out


def test_openssl_verifies_the_signature_of_the_encoded_payload(uwf: Uwf, evidence: Evidence) -> None:
    made = uwf("attest", evidence.thread, "-o", "thread.json").json
    envelope = json.loads(Path("thread.json").read_text())
    (signature,) = envelope["signatures"]
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    Path("data").write_bytes(b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload))
    Path("sig").write_bytes(base64.b64decode(signature["sig"]))
    Path("key.pem").write_text(made["publicKey"])
    words = "openssl pkeyutl -verify -pubin -inkey key.pem -rawin -in data -sigfile sig"
    assert (
        "Verified Successfully"
        in subprocess.run(words.split(), capture_output=True, text=True, check=True).stdout
    )


def test_a_statement_has_subjects_by_the_rules_of_in_toto_and_a_predicate_by_its_schema(
    uwf: Uwf, root: Path, evidence: Evidence
) -> None:
    _, statement = attested(uwf, evidence.thread)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == schema("attestation").schema["$id"]
    schema("attestation").validate(statement["predicate"])
    code = statement["predicate"]["steps"][0]["code"]
    digests = [each["digest"] for each in statement["subject"]]
    assert digests[:2] == [{"gitCommit": code["commit"]}, {"gitTree": code["tree"]}]
    assert git("-C", evidence.project, "rev-parse", f"{code['commit']}^{{tree}}") == code["tree"]
    for number, digest in enumerate(digests[2:], 1):
        output = statement["predicate"]["steps"][number - 1]["output"]
        ref, node = f"refs/uwf/archive/{evidence.thread}", output["node"]
        (path,) = re.findall(
            rf"^(steps/000{number}-.*/nodes/{node}\.json)$",
            git("--git-dir", root / "store.git", "ls-tree", "-r", "--name-only", ref),
            re.M,
        )
        text = subprocess.run(
            ["git", "--git-dir", root / "store.git", "cat-file", "blob", f"{ref}:{path}"],
            capture_output=True,
            check=True,
        ).stdout
        Path("output.json").write_bytes(text)
        assert (
            subprocess.run(
                ["sha256sum", "output.json"], capture_output=True, text=True, check=True
            ).stdout.split()[0]
            == digest["sha256"]
            == output["sha256"]
        )


def test_a_predicate_says_who_did_what_by_which_model_and_who_decided(uwf: Uwf, evidence: Evidence) -> None:
    _, statement = attested(uwf, evidence.thread)
    writer, gate = statement["predicate"]["steps"]
    by = {"name": "Ada Example", "email": ADA}
    assert (writer["role"], writer["agent"], writer["model"], writer["session"]) == (
        "writer",
        "uwf-writes",
        "acme-1",
        "session-1",
    )
    assert (writer["usage"], writer["cost"]) == ({"input": 10, "output": 2, "cached": 1}, 0.25)
    assert (
        writer["by"] == by and writer["signature"]["state"] == "good" and writer["signature"]["signer"] == ADA
    )
    (decision,) = statement["predicate"]["approvals"]
    assert decision == {
        **{"number": 2, "role": "gate", "kind": "decision", "by": by, "on": writer["commit"]},
        **{name: gate[name] for name in ("time", "signature")},
        "given": decision["given"],
    }
    (given,) = decision["given"]
    assert {name: given[name] for name in ("by", "commit", "signature")} == {
        name: gate[name] for name in ("by", "commit", "signature")
    }
    end = statement["predicate"]["end"]
    assert (end["status"], end["by"], end["signature"]["state"]) == ("completed", by, "good")


def test_a_key_of_an_agent_signs_without_its_file(uwf: Uwf, evidence: Evidence, key_agent: str) -> None:
    for number, kind in enumerate((("ed25519",), ("ecdsa", "-b", "384"), ("rsa", "-b", "2048"))):
        key = make_another_key(evidence, *kind)
        subprocess.run(["ssh-add", "-q", str(key)], check=True)
        key.unlink()
        configure(
            "user.signingKey",
            key.with_suffix(".pub") if number else f"key::{key.with_suffix('.pub').read_text()}",
        )
        told = uwf("attest", evidence.thread, "-o", f"{number}.json").json
        dsse.Envelope.from_dict(json.loads(Path(f"{number}.json").read_text())).verify(
            [key_of(told["publicKey"])], 1
        )


def test_the_user_s_key_attests_nothing_in_the_name_of_another(evidence: Evidence) -> None:
    repository = opened().store.repository
    envelope(repository, b"{}")
    repository.config.act_for(Person("Grace", "grace@example.invalid"))
    with pytest.raises(SigningFailed, match="Grace"):
        envelope(repository, b"{}")


def test_a_key_with_a_passphrase_that_no_agent_has_is_an_error(
    uwf: Uwf, tmp_path: Path, evidence: Evidence
) -> None:
    configure("user.signingKey", make_key(tmp_path / "locked", passphrase="open sesame"))
    error = uwf("attest", evidence.thread, check=1).error
    assert (
        error["code"] == "signing_failed"
        and "the key agent" in error["message"]
        and "ssh-add" in error["hint"]
    )


@pytest.fixture
def key_agent(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A key agent of the test's own."""
    need("ssh-agent")
    where = str(tmp_path_factory.mktemp("a") / "s")
    said = subprocess.run(["ssh-agent", "-s", "-a", where], capture_output=True, text=True, check=True).stdout
    monkeypatch.setenv("SSH_AUTH_SOCK", where)
    try:
        yield where
    finally:
        os.kill(int(re.findall(r"SSH_AGENT_PID=(\d+)", said)[0]), 15)


def test_a_key_on_a_token_makes_no_raw_signature(uwf: Uwf, tmp_path: Path) -> None:
    token = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIA== ada"
    assert raw_key({"user.signingKey": f"key::{token}"}.get) is None  # type: ignore[arg-type]
    (tmp_path / "sk.pub").write_text(token + "\n")
    assert raw_key({"user.signingKey": str(tmp_path / "sk.pub")}.get) is None  # type: ignore[arg-type]


def test_no_key_or_one_that_is_gone_is_an_error_and_writes_nothing(uwf: Uwf, evidence: Evidence) -> None:
    for key in (evidence.key.with_name("gone"), ""):
        configure("user.signingKey", key)
        error = uwf("attest", evidence.thread, "-o", "thread.json", check=1).error
        assert error["code"] == "signing_failed"
    assert not Path("thread.json").exists()
    json.loads(uwf("attest", evidence.thread, "--statement").out)


def test_a_gpg_key_signs_and_gpg_and_the_script_verify_it(
    uwf: Uwf,
    root: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need("gpg")
    home = tmp_path_factory.mktemp("g")
    home.chmod(0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    words = ["gpg", "--batch", "--pinentry-mode", "loopback", "--passphrase", "", "--quick-generate-key"]
    subprocess.run(
        [*words, f"Ada Example <{ADA}>", "default", "sign", "never"], check=True, capture_output=True
    )
    try:
        configure("commit.gpgSign", "true")
        thread = ended_thread(uwf, tmp_path)
        uwf("attest", thread, "-o", "thread.json")
        uwf("export", thread, "--audit-json", "report.json")
        assert json.loads(Path("thread.json").read_text())["signatures"][0]["keyid"] == "openpgp"
        clone = cloned(root / "store.git", tmp_path / "clone")
        for file in ("thread.json", "report.json"):
            done = check_file(Path(file), clone, "--code", tmp_path / "project")
            assert done.returncode == 0 and "signed by a key of gpg" in done.stdout, done.stdout + done.stderr
        report = json.loads(Path("report.json").read_text())
        assert report["record"]["steps"][0]["signature"]["signer"] == f"Ada Example <{ADA}>"
    finally:
        subprocess.run(["gpgconf", "--kill", "all"], check=False)


# Threads of each kind


def proved(uwf: Uwf, root: Path, thread: str, folder: Path) -> dict[str, Any]:
    """The predicate of a thread, which obeys its schema, and which the script finds as said but unsigned."""
    statement = json.loads(uwf("attest", thread, "--statement").out)
    schema("attestation").validate(statement["predicate"])
    folder.mkdir(exist_ok=True)
    report = folder / f"{thread}.json"
    uwf("export", thread, "--audit-json", report)
    schema("audit-report").validate(json.loads(report.read_text()))
    clone = cloned(root / "store.git", folder / f"{thread}.clone")
    status, said = check_here(report, clone, "--accept-unproved")
    assert status == 0 and ": as said" in said, said
    predicate: dict[str, Any] = statement["predicate"]
    return predicate


def test_a_thread_that_runs_one_that_was_killed_and_a_fork_are_attested(
    uwf: Uwf, root: Path, tmp_path: Path
) -> None:
    thread = a_run(uwf)
    fork = uwf("thread", "fork", thread, "--from-role", "critic").json["thread"]
    running = proved(uwf, root, fork, tmp_path)
    assert running["end"] is None and [each["role"] for each in running["steps"]] == [
        "writer",
        "critic",
        "writer",
    ]
    uwf("thread", "kill", fork, "--reason", "it is superseded: a better one")
    assert proved(uwf, root, fork, tmp_path / "again")["end"]["reason"] == "it is superseded: a better one"
    assert proved(uwf, root, thread, tmp_path)["end"]["status"] == "completed"


def test_a_thread_that_failed_is_attested_and_one_without_a_step_is_not(
    uwf: Uwf, root: Path, tmp_path: Path
) -> None:
    failing = ONE.replace("r: [{role: $END}]", "r: [{end: failed, reason: no number}]")
    thread = str(uwf("thread", "start", write("one.yaml", failing), "-p", "x").json["thread"])
    assert (
        uwf("attest", thread, "--statement", check=None).error["message"]
        == f"thread {thread} has no step to attest"
    )
    uwf("thread", "step", thread, check=10)
    assert (proved(uwf, root, thread, tmp_path)["end"]["status"]) == "failed"


def test_answers_and_remarks_are_approvals_of_their_kind(uwf: Uwf, root: Path, tmp_path: Path) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = str(uwf("thread", "start", "pair", "-p", "x").json["thread"])
    asks = scripted(
        "- {role: writer, output: {status: needs_input, question: Which?, options: [a, b]}}\n", "asks.yaml"
    )
    uwf("thread", "step", thread, "--agent", asks)
    uwf("thread", "answer", thread, "-m", "a")
    uwf("thread", "say", thread, "-m", "and be brief")
    found = proved(uwf, root, thread, tmp_path)
    assert [(each["number"], each["kind"]) for each in found["approvals"]] == [(2, "answer"), (3, "remark")]


def test_a_gate_names_each_approver_what_they_were_shown_and_why(
    uwf: Uwf, root: Path, tmp_path: Path
) -> None:
    thread = at_gate(uwf)
    Colleague(uwf, "ann").approves(thread)
    shown = uwf("thread", "show", thread).json["approvals"]["shown"]["digest"]
    Colleague(uwf, "bob")(
        "thread", "answer", thread, "-f", "decision=ship", "-f", "note=Fine", "-m", "I read it."
    )
    (gate,) = proved(uwf, root, thread, tmp_path)["approvals"]
    assert (gate["kind"], gate["role"], gate["by"]["name"]) == ("decision", "gate", "bob")
    told = [(each["by"]["email"], each["shown"], each["reason"], each["signature"]) for each in gate["given"]]
    assert told == [
        ("ann@example.invalid", shown, "", None),
        ("bob@example.invalid", shown, "I read it.", None),
    ]
    report = json.loads(Path(tmp_path / f"{thread}.json").read_text())
    assert "only git's configuration says that ann <ann@example.invalid> approved step 2" in report["unknown"]
    answers = Answers()
    for path in places(report["record"]["approvals"]):
        forged = {
            **report,
            "record": {**report["record"], "approvals": altered(report["record"]["approvals"], path)},
        }
        Path("forged.json").write_text(json.dumps(forged))
        clone = tmp_path / f"{thread}.clone"
        status, _ = check_here(Path("forged.json"), clone, "--accept-unproved", answers=answers)
        assert status == 1, path
    page = re.sub(r"<[^>]*>", " ", uwf("export", thread, "--audit", "-").out)
    assert "ann &lt;ann@example.invalid&gt;" in page and ": I read it." in page


def test_a_step_of_a_sub_workflow_has_the_steps_that_did_it(uwf: Uwf, root: Path, tmp_path: Path) -> None:
    inner = ONE.replace("n: {type: integer}", "text: {type: string}").replace("[n]", "[text]")
    uwf("workflow", "put", write("one.yaml", inner))
    uwf("workflow", "put", write("pair.yaml", PAIR.replace("name: pair", "name: outer")))
    root.joinpath("config.yaml").write_text(
        "agents:\n  inner: {command: uwf-workflow, args: [one]}\n  play: {command: uwf-rehearse}\n"
        "defaultAgent: play\nagentOverrides:\n  outer: {writer: inner}\n"
    )
    thread = str(uwf("thread", "start", "outer", "-p", "x").json["thread"])
    uwf("thread", "step", thread)
    (step,) = proved(uwf, root, thread, tmp_path)["steps"]
    assert step["child"]["workflow"]["name"] == "one" and [
        each["role"] for each in step["child"]["steps"]
    ] == ["r"]
    statement = json.loads(uwf("attest", thread, "--statement").out)
    names = [each["name"].rpartition("/")[0] for each in statement["subject"]]
    assert names == ["1/output", "1/1/output"]


@pytest.mark.needs("node", "bwrap")
def test_an_imported_thread_and_one_of_a_code_workflow_are_attested(
    uwf: Uwf, root: Path, tmp_path: Path
) -> None:
    uwf("import", reviewed(tmp_path / "old").root)
    assert proved(uwf, root, ENDED, tmp_path)["steps"][0]["by"] == {"name": "uwf", "email": "uwf@localhost"}
    assert proved(uwf, root, ACTIVE, tmp_path)["end"] is None
    uwf("workflow", "put", write("duet.py", DUET))
    uwf("workflow", "trust", "duet")
    thread = str(uwf("thread", "start", "duet", "-p", "x").json["thread"])
    uwf("thread", "run", thread, check=None)
    found = proved(uwf, root, thread, tmp_path)
    assert found["workflow"]["name"] == "duet" and found["end"]["status"] == "completed"
    assert [each["role"] for each in found["steps"]][-1] == "$END"


@pytest.mark.extended
def test_a_thread_of_a_hundred_steps_and_an_output_that_was_there_before(
    uwf: Uwf, root: Path, tmp_path: Path
) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = str(uwf("thread", "start", "pair", "-p", "x").json["thread"])
    same = "- {role: writer, output: {text: same}}\n- {role: critic, output: {approved: false}}\n" * 51
    uwf("thread", "run", thread, "--max-steps", "102", "--agent", scripted(same), check=11)
    found = proved(uwf, root, thread, tmp_path)
    assert len(found["steps"]) == 102
    assert len({each["output"]["sha256"] for each in found["steps"]}) == 2


def test_a_thread_of_a_crew_and_a_conversation_are_attested(uwf: Uwf, root: Path, tmp_path: Path) -> None:
    uwf("crew", "import", folder(tmp_path / "crew", own()))
    uwf("chat", "--agent", "uwf-rehearse", input="Hello\n")
    thread = str(uwf("thread", "start", "trip/plan-trip", "-p", "A weekend").json["thread"])
    uwf("thread", "step", thread, "--agent", "uwf-rehearse")
    threads = [each["thread"] for each in uwf("thread", "list", "--all").json if each["steps"]]
    assert len(threads) == 2
    for thread in threads:
        assert proved(uwf, root, thread, tmp_path)["steps"]


def test_a_folded_thread_is_attested(uwf: Uwf, root: Path, tmp_path: Path) -> None:
    thread = a_run(uwf)
    before = json.loads(uwf("attest", thread, "--statement").out)
    uwf("gc", "--fold-before", "2100-01-01")
    assert json.loads(uwf("attest", thread, "--statement").out) == before


# What is refused


def test_a_damaged_thread_is_refused(uwf: Uwf, root: Path, evidence: Evidence) -> None:
    store = root / "store.git"
    commit = git("--git-dir", store, "cat-file", "commit", f"refs/uwf/archive/{evidence.thread}^{{commit}}")
    tree = git("--git-dir", store, "ls-tree", commit.split()[1]).replace("README.md", "README.txt")
    forged = git("--git-dir", store, "mktree", data=tree + "\n")
    made = git(
        "--git-dir",
        store,
        "hash-object",
        "-t",
        "commit",
        "-w",
        "--stdin",
        data=commit.replace(commit.split()[1], forged, 1) + "\n",
    )
    git("--git-dir", store, "update-ref", "-d", f"refs/uwf/archive/{evidence.thread}")
    git("--git-dir", store, "update-ref", f"refs/uwf/threads/{evidence.thread}", made)
    done = uwf("attest", evidence.thread, "-o", "thread.json", check=7)
    assert f"thread {evidence.thread} is damaged" in done.error["message"]
    assert not Path("thread.json").exists()


def test_a_bad_signature_is_refused_and_told_in_a_report(uwf: Uwf, root: Path, evidence: Evidence) -> None:
    store, ref = root / "store.git", f"refs/uwf/archive/{evidence.thread}"
    commit = git("--git-dir", store, "cat-file", "commit", f"{ref}^{{commit}}")
    at = re.findall(r"^committer .* (\d+) \S+$", commit, re.M)[0]
    later = commit.replace(f" {at} ", f" {int(at) + 3600} ") + "\n"
    made = git("--git-dir", store, "hash-object", "-t", "commit", "-w", "--stdin", data=later)
    tag = git("--git-dir", store, "cat-file", "tag", ref).partition("-----BEGIN")[0]
    tagged = re.sub(r"^object \S+", f"object {made}", tag)
    made = git("--git-dir", store, "hash-object", "-t", "tag", "-w", "--stdin", data=tagged)
    git("--git-dir", store, "update-ref", ref, made)
    uwf("doctor", "--accept-store", check=None)  # which else tells of the other history first
    assert "signature" in uwf("attest", evidence.thread, check=7).error["message"]
    uwf("export", evidence.thread, "--audit-json", "report.json", check=7)
    report = json.loads(Path("report.json").read_text())
    assert report["verification"]["findings"][0]["code"] == "bad-signature"
    assert report["record"]["steps"][-1]["signature"]["state"] == "bad"
    assert "signed with a bad signature: step 2" in report["unknown"]


def test_a_secret_that_became_known_later_is_never_published(
    uwf: Uwf, root: Path, evidence: Evidence
) -> None:
    def refused(done: Result) -> None:
        assert "holds a secret (MODEL_KEY), which would be published" in done.error["message"]
        assert "session-1" not in done.out + done.err

    root.joinpath(".env").write_text("MODEL_KEY=session-1\n")
    refused(uwf("attest", evidence.thread, check=1))
    refused(uwf("attest", evidence.thread, "--statement", check=1))
    refused(uwf("attest", evidence.thread, "--agent-trace", check=1))
    refused(uwf("export", evidence.thread, "--audit", "-", check=1))
    refused(uwf("export", evidence.thread, "--audit-json", "-", check=1))


def test_an_existing_file_is_kept_without_force(uwf: Uwf, evidence: Evidence) -> None:
    Path("thread.json").write_text("mine")
    assert "--force" in uwf("attest", evidence.thread, "-o", "thread.json", check=1).error["hint"]
    assert Path("thread.json").read_text() == "mine"
    uwf("attest", evidence.thread, "-o", "thread.json", "--force")
    assert uwf("attest", evidence.thread, "--statement", "--agent-trace", check=2).error["code"] == "usage"


def test_without_its_library_the_command_names_what_installs_it(
    evidence: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of that name that cannot be imported stands before the real one."""
    (tmp_path / "bare" / "cryptography").mkdir(parents=True)
    (tmp_path / "bare" / "cryptography" / "__init__.py").write_text("raise ImportError('it is not here')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "bare")}
    words = [sys.executable, "-m", "uwf_cli.main", "attest", evidence.thread]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1 and "uwf attest needs the package cryptography" in done.stderr
    assert "[attest]" in done.stderr
