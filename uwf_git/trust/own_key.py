"""The key that this machine signs with, as git's configuration names it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uwf_git.git.config import GitConfig
    from uwf_git.trust.policy import Policy

_LONGEST = 1 << 16  # bytes of a public key


def signing_person(config: GitConfig, policy: Policy) -> str | None:
    """Return the person of a policy whose key `user.signingKey` names, None if it names none of them."""
    key = config.value("user.signingKey")
    if not key:
        return None
    if (config.value("gpg.format").lower() or "openpgp") == "ssh":
        fingerprint = _ssh_fingerprint(key)
        return _owner(policy, lambda known: known == fingerprint) if fingerprint else None
    short = key.replace(" ", "").removeprefix("0x").rstrip("!").upper()
    if len(short) < 16 or not all(c in "0123456789ABCDEF" for c in short):
        return None
    return _owner(policy, lambda known: known.endswith(short))


def _ssh_fingerprint(key: str) -> str:
    from uwf_git.trust.policy import fingerprint_of

    text = key.removeprefix("key::")
    if not text.startswith(("ssh-", "ecdsa-", "sk-")):
        path = Path(key).expanduser()
        for file in (path, path.with_name(path.name + ".pub")):
            with suppress(OSError, UnicodeDecodeError):
                text = file.read_bytes()[:_LONGEST].decode("ascii")
                if text.startswith(("ssh-", "ecdsa-", "sk-")):
                    break
    try:
        return fingerprint_of(text)
    except ValueError:
        return ""


def _owner(policy: Policy, is_key: Callable[[str], bool]) -> str | None:
    found = (
        person.name
        for person in policy.people.values()
        if any(is_key(key.fingerprint) for key in person.keys)
    )
    return next(found, None)
