"""A thread as an in-toto statement, and the DSSE envelope that signs it.

    payloadType   application/vnd.in-toto+json
    payload       the statement: JSON with sorted keys and without blanks
    signatures    one. Of an SSH key the raw signature, which cosign and in-toto verify; else `keyid` is ssh, openpgp
                  or x509, and the signature that of ssh-keygen (for the namespace "uwf"), gpg or gpgsm, in ASCII armour

Subjects are the commits of code, their trees, and the files of outputs. docs/guides/audit.md describes each field.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from uwf_git.ext.attest.keys import RawKey, raw_key
from uwf_git.plugin import sign, signing_style

if TYPE_CHECKING:
    from uwf_git.plugin import Repository

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://uwf-git.invalid/attestations/thread/v1"
PAYLOAD = "application/vnd.in-toto+json"
NAMESPACE = "uwf"
"""What SSH keys sign here, apart from git's commits."""


def statement(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statement about a thread's record."""
    subjects = {(subject["name"], *subject["digest"].values()): subject for subject in _subjects(record, "")}
    return {
        "_type": STATEMENT,
        "subject": list(subjects.values()),
        "predicateType": PREDICATE,
        "predicate": record,
    }


def _subjects(record: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    for step in record["steps"]:
        name = f"{where}{step['number']}"
        code = step["code"]
        if code and code["commit"] != code["base"]:
            for what, algorithm in (("commit", "gitCommit"), ("tree", "gitTree")):
                yield {"name": f"{name}/{what}", "digest": {algorithm: code[what]}}
        output = step["output"]
        yield {"name": f"{name}/output/{output['node']}", "digest": {"sha256": output["sha256"]}}
        if step["child"]:
            yield from _subjects(step["child"], f"{name}/")


def canonical(value: Any) -> bytes:
    """Return JSON with sorted keys, without blanks, in ASCII: the bytes that are signed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def encoded(payload: bytes) -> bytes:
    """Return the bytes that a DSSE signature is of: its pre-authentication encoding."""
    return b"DSSEv1 %d %b %d %b" % (len(PAYLOAD), PAYLOAD.encode(), len(payload), payload)


def envelope(repository: Repository, payload: bytes) -> tuple[dict[str, Any], RawKey | None]:
    """Return the envelope of a statement, signed with the key that signs commits, and the key of its raw signature,
    None if it can make none. Raises SigningFailed, UwfError without the package that signs."""
    configured, data = repository.config.signing, encoded(payload)
    style = signing_style(configured)
    key = raw_key(configured) if style == "ssh" else None
    if key is not None:
        keyid, signature = key.id, key.sign(data)
    else:
        keyid, signature = style, sign(configured, repository.user, data, NAMESPACE).encode("ascii")
    signatures = [{"keyid": keyid, "sig": _base64(signature)}]
    return {"payloadType": PAYLOAD, "payload": _base64(payload), "signatures": signatures}, key


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
