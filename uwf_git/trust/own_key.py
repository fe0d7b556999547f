"""The user's own signing key, as git's configuration names it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import SigningFailed
from uwf_git.base.text import one_line
from uwf_git.git.repository import Repository
from uwf_git.git.signing import default_ssh_key
from uwf_git.sandbox.programs import find_program, trusted_path
from uwf_git.trust.policy import OPENPGP, SSH, X509, Policy, fingerprint_of

_LISTERS = {OPENPGP: "gpg", X509: "gpgsm"}
_CONFIGURE = "git config --global gpg.format ssh; git config --global user.signingKey ~/.ssh/id_ed25519.pub"


class OwnKey(NamedTuple):
    """A key that can sign here. `fingerprints` are its own and those of its subkeys, `text` is an ssh key's public
    half."""

    kind: str
    fingerprints: tuple[str, ...]
    text: str = ""

    def owner(self, policy: Policy) -> str | None:
        """Return the person whose key it is."""
        for person in policy.people.values():
            if any(key.fingerprint in self.fingerprints for key in person.keys):
                return person.name
        return None


def own_key(repository: Repository) -> OwnKey:
    """Return the key that git would sign with. Raises SigningFailed if it names none, or it cannot be found."""
    configured = repository.config.signing
    style = configured("gpg.format").lower() or OPENPGP
    if style == SSH:
        text = _public_half(configured("user.signingKey") or default_ssh_key(configured))
        try:
            return OwnKey(SSH, (fingerprint_of(text),), " ".join(text.split()[:2]))
        except ValueError as error:
            raise SigningFailed(f"user.signingKey cannot be used: {error}", _CONFIGURE) from None
    if style not in _LISTERS:
        raise SigningFailed(f"gpg.format is {style!r}", "git knows openpgp, ssh and x509")
    named = configured("user.signingKey") or f"<{repository.config.user.email}>"
    named_program = configured(f"gpg.{style}.program") or (style == OPENPGP and configured("gpg.program"))
    fingerprints = _fingerprints(named_program or _LISTERS[style], named)
    if not fingerprints:
        raise SigningFailed(f"no {style} key to sign with: {one_line(named, 80)}", _CONFIGURE)
    return OwnKey(style, fingerprints)


def _public_half(key: str) -> str:
    literal = key.removeprefix("key::")
    if literal != key or key.startswith("ssh-"):
        return literal
    path = Path(key).expanduser()
    for file in (path, path.with_name(f"{path.name}.pub")):
        try:
            text = file.read_text("utf-8", "replace")[:20_000]
        except OSError:
            continue
        if "PRIVATE KEY" not in text:
            return text.strip()
    done = _run("ssh-keygen", "-y", "-P", "", "-f", str(path))
    if done is None or done.returncode != 0:
        raise SigningFailed(f"there is no public half of {key}", f"put it beside it, as {path.name}.pub")
    return done.stdout.decode("utf-8", "replace").strip()


def _fingerprints(program: str, key: str) -> tuple[str, ...]:
    done = _run(program, "--batch", "--list-secret-keys", "--with-colons", "--", key.rstrip("!"))
    if done is None or done.returncode != 0:
        return ()
    rows = (line.split(":") for line in done.stdout.decode("utf-8", "replace").splitlines())
    return tuple(row[9] for row in rows if row[0] == "fpr" and len(row) > 9)


def _run(program: str, *args: str) -> subprocess.CompletedProcess[bytes] | None:
    where = str(Path(program).expanduser()) if "/" in program else find_program(program)
    if where is None:
        return None
    env = {**os.environ, "PATH": trusted_path()}
    try:
        return subprocess.run(
            [where, *args], stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
