"""Commits and archive tags are signed as git's own configuration says, and git agrees with what was signed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_samples import ONE
from conftest import Uwf
from programs import need
from workflows import opened

from uwf_git.git.repository import Oid
from uwf_git.trust.signatures import BAD, GOOD, NONE, UNKNOWN, signatures

ADA = "ada@example.invalid"


def run(*command: str | Path, check: bool = True, input: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=input, capture_output=True, text=True, check=check)


def configure(key: str, value: str | Path) -> None:
    run("git", "config", "--file", os.environ["GIT_CONFIG_GLOBAL"], key, str(value))


def git(root: Path, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return run("git", "--git-dir", str(root / "store.git"), *args, check=check)


@pytest.fixture
def workflow(hermetic: Path) -> Path:
    path = hermetic / "one.yaml"
    path.write_text(ONE)
    return path


@pytest.fixture
def ssh_key(hermetic: Path) -> Path:
    """A key without a passphrase, which the file of allowed signers says is Ada's."""
    need("ssh-keygen")
    key = hermetic / ".ssh" / "id"
    key.parent.mkdir(mode=0o700)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", str(key))
    allowed = hermetic / "allowed"
    allowed.write_text(f"{ADA} {key.with_suffix('.pub').read_text()}")
    configure("gpg.ssh.allowedSignersFile", allowed)
    configure("gpg.format", "ssh")
    return key


@pytest.fixture
def signing_ssh(ssh_key: Path) -> Path:
    configure("user.signingKey", ssh_key)
    configure("commit.gpgSign", "true")
    return ssh_key


@pytest.fixture
def signing_gpg(
    hermetic: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A GPG key of Ada's in a home of its own. Its agent is ended afterwards."""
    need("gpg")
    home = tmp_path_factory.mktemp("g")  # the name of a socket in it must stay short
    home.chmod(0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    made = run(
        "gpg", "--batch", "--pinentry-mode", "loopback", "--passphrase", "", "--quick-generate-key",
        f"Ada Example <{ADA}>", "default", "sign", "never", check=False,
    )  # fmt: skip
    try:
        assert made.returncode == 0, made.stderr
        configure("commit.gpgSign", "true")
        yield run("gpg", "--list-keys", "--with-colons").stdout.split("fpr:::::::::")[1].split(":")[0]
    finally:
        run("gpgconf", "--kill", "all", check=False)


def a_run(uwf: Uwf, workflow: Path) -> str:
    """A thread that has ended, so there are version, start, step and tag."""
    uwf("workflow", "put", workflow)
    thread = str(uwf("thread", "start", "one", "-p", "Do it").json["thread"])
    uwf("thread", "step", thread)
    return thread


def objects(root: Path, thread: str) -> tuple[list[str], str]:
    """The commits of a thread, newest first, and its archive tag."""
    ref = f"refs/uwf/archive/{thread}"
    return git(root, "rev-list", ref).stdout.split(), git(root, "rev-parse", ref).stdout.strip()


def test_what_is_signed_with_an_ssh_key_is_accepted_by_git(
    uwf: Uwf, root: Path, workflow: Path, signing_ssh: Path
) -> None:
    commits, tag = objects(root, a_run(uwf, workflow))
    assert len(commits) == 3
    for commit in commits:
        assert f'Good "git" signature for {ADA}' in git(root, "verify-commit", commit).stderr
    assert f'Good "git" signature for {ADA}' in git(root, "verify-tag", tag).stderr
    git(root, "fsck", "--strict", "--no-dangling")


def test_what_is_signed_with_a_gpg_key_is_accepted_by_git(
    uwf: Uwf, root: Path, workflow: Path, signing_gpg: str
) -> None:
    commits, tag = objects(root, a_run(uwf, workflow))
    for commit in commits:
        assert "Good signature from" in git(root, "verify-commit", commit).stderr
    assert "Good signature from" in git(root, "verify-tag", tag).stderr
    found = signatures(opened().store.repository, [Oid(hex=each) for each in (*commits, tag)])
    assert {each.state for each in found.values()} == {GOOD}
    assert {each.fingerprint for each in found.values()} == {signing_gpg}
    assert {each.signer for each in found.values()} == {f"Ada Example <{ADA}>"}
    git(root, "fsck", "--strict", "--no-dangling")


def test_a_signed_thread_is_read_as_any_other(uwf: Uwf, workflow: Path, signing_ssh: Path) -> None:
    thread = a_run(uwf, workflow)
    assert uwf("thread", "show", thread).json["status"] == "completed"
    other = uwf("thread", "start", "one", "-p", "Do it").json["thread"]
    uwf("thread", "kill", other, "--reason", "superseded")
    uwf("cas", "reindex")
    head = opened().threads.head(opened().threads.find(other))
    assert head.archive is not None
    assert (head.archive.status, head.archive.reason) == ("killed", "superseded")


def test_who_signed_what_is_told(uwf: Uwf, root: Path, workflow: Path, signing_ssh: Path) -> None:
    commits, tag = objects(root, a_run(uwf, workflow))
    fingerprint = run("ssh-keygen", "-lf", signing_ssh).stdout.split()[1]
    found = signatures(opened().store.repository, [Oid(hex=each) for each in (*commits, tag)])
    assert [(each.state, each.signer, each.fingerprint) for each in found.values()] == [
        (GOOD, ADA, fingerprint)
    ] * 4


def test_what_was_tampered_with_is_a_bad_signature(
    uwf: Uwf, root: Path, workflow: Path, signing_ssh: Path
) -> None:
    commits, tag = objects(root, a_run(uwf, workflow))
    repository = opened().store.repository
    forged = []
    for kind, oid in (("commit", commits[0]), ("tag", tag)):
        raw = repository.read(Oid(hex=oid))[1].replace(b"Ada Example", b"Eve Example")
        forged.append(Oid(hex=forge(root, kind, raw)))
    assert [each.state for each in signatures(repository, forged).values()] == [BAD, BAD]


def test_a_key_that_nobody_vouches_for_is_unknown_and_no_signature_is_none(
    uwf: Uwf, root: Path, workflow: Path, signing_ssh: Path, hermetic: Path
) -> None:
    commits, tag = objects(root, a_run(uwf, workflow))
    (hermetic / "allowed").write_text("")
    configure("commit.gpgSign", "false")
    plain = objects(root, str(a_run(uwf, workflow)))[1]
    asked = [Oid(hex=each) for each in (commits[0], tag, plain)]
    found = signatures(opened().store.repository, asked)
    assert [found[oid].state for oid in asked] == [UNKNOWN, UNKNOWN, NONE]


@pytest.mark.parametrize("prefix", ["", "key::"])
def test_a_key_that_is_named_by_its_public_half_is_taken_from_the_agent(
    prefix: str, uwf: Uwf, root: Path, workflow: Path, ssh_key: Path, monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    need("ssh-agent")
    socket = tmp_path_factory.mktemp("a") / "s"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        while run("ssh-add", ssh_key, check=False).returncode:
            assert agent.poll() is None
        configure("user.signingKey", prefix + ssh_key.with_suffix(".pub").read_text().strip())
        configure("commit.gpgSign", "true")
        ssh_key.unlink()
        commits, tag = objects(root, a_run(uwf, workflow))
        git(root, "verify-commit", *commits)
        git(root, "verify-tag", tag)
    finally:
        agent.terminate()
        agent.wait()


def test_the_key_may_come_from_a_command(
    uwf: Uwf, root: Path, workflow: Path, ssh_key: Path, script: Callable[[str, str], Path]
) -> None:
    key = ssh_key.with_suffix(".pub").read_text().strip()
    body = (
        "import os, sys\n"
        f"args = [{str(ssh_key)!r} if arg.endswith('/key') else arg for arg in sys.argv[1:] if arg != '-U']\n"
        "os.execvp('ssh-keygen', ['ssh-keygen', *args])"
    )
    signer = script("signer", body)
    configure("gpg.ssh.program", signer)
    configure("gpg.ssh.defaultKeyCommand", f"echo '{key}'")
    configure("commit.gpgSign", "true")
    commits, _ = objects(root, a_run(uwf, workflow))
    configure("gpg.ssh.program", "ssh-keygen")
    git(root, "verify-commit", *commits)


def test_tags_are_signed_or_not_by_their_own_setting(
    uwf: Uwf, root: Path, workflow: Path, signing_ssh: Path
) -> None:
    configure("tag.gpgSign", "false")
    assert "SIGNATURE" not in git(root, "cat-file", "tag", objects(root, a_run(uwf, workflow))[1]).stdout
    configure("commit.gpgSign", "off")
    configure("tag.gpgSign", "yes")
    commits, tag = objects(root, a_run(uwf, workflow))
    assert "gpgsig" not in git(root, "cat-file", "commit", commits[0]).stdout
    git(root, "verify-tag", tag)


def test_settings_of_the_repository_and_of_included_files_count(
    uwf: Uwf, root: Path, workflow: Path, ssh_key: Path, hermetic: Path
) -> None:
    uwf("init")
    (hermetic / "more").write_text(f"[user]\n\tsigningKey = {ssh_key}\n")
    configure("include.path", hermetic / "more")
    git(root, "config", "commit.gpgSign", "1")
    git(root, "verify-commit", *objects(root, a_run(uwf, workflow))[0])


BROKEN = {
    "no key": ({"gpg.format": "ssh"}, "user.signingKey is not set"),
    "a key that is not there": ({"gpg.format": "ssh", "user.signingKey": "/nowhere/key"}, "ssh-keygen"),
    "a program that is not there": ({"gpg.program": "/nowhere/gpg"}, "/nowhere/gpg"),
    "a program that fails": ({"gpg.program": "false"}, "false"),
    "a program that signs nothing": ({"gpg.program": "true"}, "true"),
    "a format of its own": ({"gpg.format": "wax"}, "wax"),
    "an unreadable command": (
        {"gpg.format": "ssh", "gpg.ssh.defaultKeyCommand": "echo 'x"},
        "gpg.ssh.defaultKeyCommand",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_where_signing_fails_nothing_is_recorded(
    what: str, uwf: Uwf, root: Path, workflow: Path, hermetic: Path
) -> None:
    uwf("workflow", "put", workflow)
    thread = uwf("thread", "start", "one", "-p", "Do it").json["thread"]
    before = git(root, "for-each-ref").stdout
    configure("commit.gpgSign", "true")
    settings, told = BROKEN[what]
    for key, value in settings.items():
        configure(key, value)
    for command in (
        ("thread", "start", "one", "-p", "Do it"),
        ("thread", "kill", thread),
        ("thread", "step", thread),
    ):
        error = uwf(*command, check=1).error
        assert error["code"] == "signing_failed" and told in error["message"], error
        assert error["hint"] or what == "an unreadable command"
    assert git(root, "for-each-ref").stdout == before


def test_a_setting_that_is_no_boolean_is_named(uwf: Uwf, workflow: Path) -> None:
    configure("commit.gpgSign", "perhaps")
    assert "commit.gpgSign" in uwf("workflow", "put", workflow, check=1).error["message"]


def test_who_does_not_sign_pays_nothing_for_it(uwf: Uwf, workflow: Path) -> None:
    uwf("workflow", "put", workflow)
    code = (
        "import sys; from uwf_cli.main import main\n"
        "try: main()\n"
        "finally: print(*[m for m in ('uwf_git.git.signing', 'uwf_git.trust.signatures') if m in sys.modules],"
        " file=sys.stderr)"
    )
    done = run(sys.executable, "-c", code, "thread", "start", "one", "-p", "Do it")
    assert done.stderr.strip() == ""


def forge(root: Path, kind: str, raw: bytes) -> str:
    made = subprocess.run(
        ["git", "--git-dir", str(root / "store.git"), "hash-object", "-w", "-t", kind, "--stdin"],
        input=raw, capture_output=True, check=True,
    )  # fmt: skip
    return made.stdout.decode().strip()


def test_verify_tells_who_signed_which_step(uwf: Uwf, root: Path, workflow: Path, signing_ssh: Path) -> None:
    thread = a_run(uwf, workflow)
    step = uwf("thread", "show", thread).json["head"]
    assert "signatures" not in uwf("verify").json
    told = uwf("verify", "--signatures").json["signatures"]
    assert [(each["kind"], each["state"], each["signer"]) for each in told] == [
        ("workflow", GOOD, ADA),
        ("start", GOOD, ADA),
        ("step", GOOD, ADA),
        ("archive", GOOD, ADA),
    ]
    assert [each["thread"] for each in told] == [None, thread, thread, thread]
    assert told[2]["node"] == step
    assert ADA in uwf("verify", thread, "--signatures", "--format", "text").out


def test_verify_tells_the_signatures_of_folded_threads(
    uwf: Uwf, root: Path, workflow: Path, signing_ssh: Path
) -> None:
    thread = a_run(uwf, workflow)
    tag = objects(root, thread)[1]
    uwf("gc", "--fold-before", "9999-01-01")
    git(root, "prune", "--expire=now")
    git(root, "repack", "-adq")
    assert git(root, "cat-file", "-e", tag, check=False).returncode
    told = uwf("verify", "--signatures").json["signatures"]
    assert {(each["kind"], each["state"]) for each in told} == {
        (kind, GOOD) for kind in ("workflow", "start", "step", "archive", "fold")
    }
    assert [each["thread"] for each in told if each["kind"] == "archive"] == [thread]


def test_verify_finds_a_bad_signature_and_takes_none_for_no_fault(
    uwf: Uwf, root: Path, workflow: Path, signing_ssh: Path
) -> None:
    thread = a_run(uwf, workflow)
    tag = objects(root, thread)[1]
    raw = opened().store.repository.read(Oid(hex=tag))[1]
    git(root, "update-ref", f"refs/uwf/archive/{thread}", forge(root, "tag", raw.replace(b"Ada", b"Eve")))
    configure("commit.gpgSign", "false")
    unsigned = uwf("thread", "start", "one", "-p", "Do it").json["thread"]
    found = uwf("verify", "--signatures", check=7).json
    codes = {(each["code"], each["thread"]) for each in found["findings"]}
    assert codes == {("bad-signature", thread), ("rolled-back", thread)}
    assert [each["state"] for each in found["signatures"] if each["thread"] == unsigned] == [NONE]
    uwf("verify", unsigned, "--signatures")


def test_work_that_could_not_be_signed_is_taken_over_by_the_next_step(uwf: Uwf, hermetic: Path) -> None:
    (hermetic / "one.yaml").write_text(ONE)
    thread = uwf("thread", "start", hermetic / "one.yaml", "-p", "Do it").json["thread"]
    config = hermetic / ".gitconfig"
    unsigned = config.read_text()
    config.write_text(unsigned + "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = /bin/false\n")
    agent = f"sh -c 'echo ran >>{hermetic}/ran; exec uwf-rehearse \"$@\"' --"
    assert uwf("thread", "step", thread, "--agent", agent, check=1).error["code"] == "signing_failed"
    config.write_text(unsigned)
    assert uwf("thread", "step", thread, "--agent", agent).json["done"]
    assert (hermetic / "ran").read_text() == "ran\n"
