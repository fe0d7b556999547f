"""Signing commits and tags by git's configuration.

    commit.gpgSign, tag.gpgSign     what is signed
    gpg.format                      openpgp (default), ssh or x509
    user.signingKey                 an id, a file, or a public key after `key::`; with openpgp by default the address
    gpg.program, gpg.ssh.program …  the programs, if named otherwise
    gpg.ssh.defaultKeyCommand       prints the key if none is set

Only the user's configuration names programs, never a store.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from errno import ENOENT
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import SigningFailed
from uwf_git.base.text import one_line
from uwf_git.git.objects import Person
from uwf_git.sandbox.programs import find_program, trusted_path

Configured = Callable[[str], str]
"""Returns a setting of git by its key, "" if unset."""

_PROGRAMS = {"openpgp": "gpg", "x509": "gpgsm", "ssh": "ssh-keygen"}


def style_of(configured: Configured) -> str:
    """Return which kind of key signs: openpgp, ssh or x509. Raises SigningFailed."""
    style = configured("gpg.format").lower() or "openpgp"
    if style not in _PROGRAMS:
        raise SigningFailed(f"gpg.format is {style!r}", "git knows openpgp, ssh and x509")
    return style


def sign(configured: Configured, user: Person, data: bytes, namespace: str = "git") -> str:
    """Return the armoured signature of a commit's or tag's text. `configured` returns git settings or "".
    `namespace` says what an SSH key signs: a signature of one counts for no other. Raises SigningFailed."""
    style = style_of(configured)
    program = configured(f"gpg.{style}.program") or (style == "openpgp" and configured("gpg.program")) or ""
    program = str(Path(program).expanduser()) if program else _PROGRAMS[style]
    if style == "ssh":
        return _sign_ssh(configured, program, data, namespace)
    key = configured("user.signingKey") or f"{user.name} <{user.email}>"
    done = _run([program, "--status-fd=2", "-bsau", key], data)
    if done.returncode != 0 or b"[GNUPG:] SIG_CREATED " not in done.stderr:
        raise _failed(program, done)
    return _armour(done.stdout)


class SshKey(NamedTuple):
    """An SSH key that signs: a `file` of either half, or the `literal` public half, whose private one is with
    the agent. The other is ""."""

    file: str
    literal: str


def ssh_key(configured: Configured) -> SshKey:
    """Return the configured SSH key. Raises SigningFailed."""
    key = configured("user.signingKey") or default_ssh_key(configured)
    literal = key.removeprefix("key::") if key.startswith("key::") else key if key.startswith("ssh-") else ""
    return SshKey("" if literal else str(Path(key).expanduser()), literal.strip())


def _sign_ssh(configured: Configured, program: str, data: bytes, namespace: str) -> str:
    named, literal = ssh_key(configured)
    with tempfile.TemporaryDirectory(prefix="uwf-sign-") as folder:
        text = Path(folder) / "data"
        text.write_bytes(data)
        file = Path(named)
        if literal:  # the private half is with the agent
            file = Path(folder) / "key"
            file.write_text(literal + "\n")
        use_agent = ["-U"] if literal else []
        done = _run([program, "-Y", "sign", "-n", namespace, "-f", str(file), *use_agent, str(text)], b"")
        path = text.with_name("data.sig")
        if done.returncode != 0 or not path.is_file():
            raise _failed(program, done)
        return _armour(path.read_bytes())


def default_ssh_key(configured: Configured) -> str:
    """Return what `gpg.ssh.defaultKeyCommand` prints. Raises SigningFailed."""
    command = configured("gpg.ssh.defaultKeyCommand")
    if not command:
        raise SigningFailed(
            "no key to sign with: user.signingKey is not set",
            "name one: git config --global user.signingKey ~/.ssh/id_ed25519.pub",
        )
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise SigningFailed(f"gpg.ssh.defaultKeyCommand cannot be read: {error}") from None
    done = _run(argv, b"")
    first = done.stdout.decode("utf-8", "replace").partition("\n")[0].strip()
    if done.returncode != 0 or not first.startswith(("key::", "ssh-")):
        raise SigningFailed("gpg.ssh.defaultKeyCommand printed no key", "try: ssh-add -L")
    return first


def _run(argv: Sequence[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
    # In the session of this process's terminal, where programs ask for the passphrase; the background process left by
    # them is the key agent.
    program = argv[0] if "/" in argv[0] else find_program(argv[0])
    try:
        if program is None:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT))
        env = {**os.environ, "PATH": trusted_path()}
        return subprocess.run([program, *argv[1:]], input=data, capture_output=True, env=env, check=False)
    except OSError as error:
        raise SigningFailed(
            f"cannot sign: {argv[0]}: {error.strerror}", "install it, or set commit.gpgSign to false"
        ) from None


def _armour(data: bytes) -> str:
    return data.decode("ascii", "replace").replace("\r", "")


def _failed(program: str, done: subprocess.CompletedProcess[bytes]) -> SigningFailed:
    lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines()]
    telling = [line for line in lines if line and not line.startswith("[GNUPG:]")]
    reason = one_line(telling[0], 200) if telling else f"it exited with {done.returncode}"
    return SigningFailed(
        f"cannot sign: {Path(program).name}: {reason}",
        "check user.signingKey, or set commit.gpgSign to false: git config --list --show-origin",
    )
