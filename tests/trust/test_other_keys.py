"""OpenPGP keys and X.509 certificates count by their fingerprints, as git verifies them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_samples import ONE
from programs import need
from two_machines import Machine

from uwf_git.store import layout

EMAIL = "ann@example.invalid"


def run(*command: str | Path, input: str = "") -> str:
    done = subprocess.run(list(map(str, command)), input=input, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home for GnuPG, whose agent is ended afterwards."""
    need("gpg", "gpgsm", "openssl")
    folder = tmp_path_factory.mktemp("g")  # the name of a socket in it must stay short
    folder.chmod(0o700)
    monkeypatch.setenv("GNUPGHOME", str(folder))
    yield folder
    subprocess.run(["gpgconf", "--kill", "all"], capture_output=True, check=False)


def openpgp(_home: Path) -> str:
    run("gpg", "--batch", "--pinentry-mode", "loopback", "--passphrase", "", "--quick-generate-key",
        f"Ann <{EMAIL}>", "default", "sign", "never")  # fmt: skip
    return run("gpg", "--list-keys", "--with-colons").split("fpr:::::::::")[1].split(":")[0]


def x509(home: Path) -> str:
    key, certificate, both = (home / name for name in ("key.pem", "certificate.pem", "both.p12"))
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
        "-days", "30000", "-subj", f"/CN=Ann/emailAddress={EMAIL}")  # fmt: skip
    # What older versions of gpgsm read.
    old = ("-certpbe", "PBE-SHA1-3DES", "-keypbe", "PBE-SHA1-3DES", "-macalg", "sha1")
    run(
        "openssl",
        "pkcs12",
        "-export",
        *old,
        "-inkey",
        key,
        "-in",
        certificate,
        "-out",
        both,
        "-passout",
        "pass:",
    )
    (home / "gpgsm.conf").write_text("disable-crl-checks\n")
    run(
        "gpgsm",
        "--batch",
        "--passphrase-fd",
        "0",
        "--pinentry-mode",
        "loopback",
        "--import",
        both,
        input="\n",
    )
    listed = run("gpgsm", "--list-secret-keys", "--with-colons")
    fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))
    (home / "trustlist.txt").write_text(f"{fingerprint} S relax\n")
    subprocess.run(["gpgconf", "--kill", "all"], capture_output=True, check=False)
    return fingerprint


@pytest.mark.parametrize("kind", ["openpgp", "x509"])
def test_a_policy_knows_a_key_by_its_fingerprint(kind: str, uwf: Any, hermetic: Path, home: Path) -> None:
    fingerprint = {"openpgp": openpgp, "x509": x509}[kind](home)
    with Path(os.environ["GIT_CONFIG_GLOBAL"]).open("a") as file:
        file.write(f"[user]\n\temail = {EMAIL}\n\tsigningKey = {fingerprint}\n[gpg]\n\tformat = {kind}\n")
        file.write("[commit]\n\tgpgSign = true\n")
    machine = Machine(uwf, hermetic / "store")
    begun = machine("trust", "init").json
    assert (begun["name"], begun["signer"]) == ("ann", "ann")
    shown = machine("trust", "show").json
    assert shown["people"]["ann"]["keys"] == [{"kind": kind, "fingerprint": fingerprint}]
    assert shown["you"] == "ann"
    trusted = hermetic / "trust.yaml"
    text = machine("trust", "show", "--file", "--format", "text").out
    trusted.write_text(
        text + 'rules: [{threads: "*", signed-by: [ann]}, {workflows: "*", require: signed}]\n'
    )
    machine("trust", "set", trusted)
    (hermetic / "one.yaml").write_text(ONE)
    machine("workflow", "put", hermetic / "one.yaml")
    thread = machine("thread", "start", "one", "-p", "Do it").json["thread"]
    machine("thread", "step", thread)
    machine("verify")
    trusted.write_text(trusted.read_text().replace(fingerprint, f"{fingerprint}, revoked: always"))
    assert "nobody could change" in machine("trust", "set", trusted, check=1).error["hint"]
    other = run("openssl", "rand", "-hex", "20").strip().upper()
    trusted.write_text(trusted.read_text().replace(f"{fingerprint}, revoked: always", other))
    machine("trust", "set", trusted)
    found = machine("verify", check=14).json["findings"]
    assert len(found) == 4 and all(
        f"key {fingerprint}, which is not in the policy" in each["message"] for each in found
    )
    assert machine("trust", "set", trusted).json["changed"] is False
    trusted.write_text(text)
    assert machine("trust", "set", trusted, check=14).error["code"] == "requirement_unmet"
    git = ["git", "--git-dir", str(machine.store)]
    tag = run(*git, "rev-parse", f"{layout.ARCHIVE}{thread}").strip()
    assert "BEGIN" in run(*git, "cat-file", "tag", tag)


def test_the_own_key_of_a_configuration_that_names_none_is_said_to_be_missing(
    uwf: Any, hermetic: Path
) -> None:
    machine = Machine(uwf, hermetic / "store")
    machine("init")
    for setting in ("", "[gpg]\n\tformat = ssh\n", "[gpg]\n\tformat = wax\n"):
        Path(os.environ["GIT_CONFIG_GLOBAL"]).write_text(
            f"[user]\n\tname = A\n\temail = a@b.invalid\n{setting}"
        )
        refused = machine("trust", "init", check=1).error
        assert refused["code"] == "signing_failed" and refused["hint"]
