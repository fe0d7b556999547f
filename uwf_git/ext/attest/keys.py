"""Raw signatures by SSH keys, which other programs than ssh-keygen verify.

    ed25519    the 64 bytes
    ecdsa      DER, with SHA-256, SHA-384 or SHA-512 by the curve; from a file by RFC 6979, always the same
    rsa        PKCS #1 v1.5 with SHA-256

A key is read from its file. If that has a passphrase, or there is only the public half, the key agent signs, by
draft-ietf-sshm-ssh-agent.
"""

from __future__ import annotations

import os
import socket
import struct
from base64 import b64decode
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from uwf_git.plugin import SigningFailed, SigningSettings, UwfError, install_hint, ssh_key

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGEST = 256 * 1024  # bytes of a key's file, or of an agent's reply
_PATIENCE = 60.0  # seconds for an agent, which may ask its user
_SIGN, _SIGNED, _WITH_SHA256 = 13, 14, 2
_FILES_OF_FIDO = b"sk-"


class RawKey(NamedTuple):
    """A key that makes raw signatures. `id` is the key's as in securesystemslib: the SHA-256 of its canonical
    JSON. `pem` is its public half, in which cosign reads it."""

    id: str
    pem: str
    sign: Callable[[bytes], bytes]


class _Public(Protocol):
    def public_bytes(self, encoding: Any, format: Any) -> bytes: ...


def raw_key(configured: SigningSettings) -> RawKey | None:
    """Return the SSH key that signs commits, None for one on a FIDO token, which makes no raw signatures. Raises
    SigningFailed, UwfError without the package cryptography."""
    try:
        from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    except ImportError:
        raise UwfError("uwf attest needs the package cryptography", install_hint("attest")) from None
    named = ssh_key(configured)
    if named.literal:
        line = named.literal.encode("utf-8", "replace")
    else:
        file = Path(named.file)
        data = _read(file)
        if not _is_public(data):
            private = _private(data)
            if private is not None:
                return _of_file(private)
            data = _read(file.with_name(f"{file.name}.pub"))
        elif file.suffix == ".pub" and os.access(secret := file.with_suffix(""), os.R_OK):
            private = _private(_read(secret))
            if private is not None:
                return _of_file(private)
        line = data
    if line.startswith(_FILES_OF_FIDO):
        return None
    try:
        public = load_ssh_public_key(line)
        blob = b64decode(line.split()[1], validate=True)
    except (ValueError, IndexError) as error:
        raise SigningFailed(f"cannot sign: the public key cannot be read: {error}", _CHECK) from None
    return _key(public, lambda message: _by_agent(blob, public, message))


_CHECK = "check user.signingKey: git config --list --show-origin"


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(_LARGEST)
    except OSError as error:
        raise SigningFailed(f"cannot sign: {file}: {error.strerror}", _CHECK) from None


def _is_public(data: bytes) -> bool:
    return data.startswith((b"ssh-", b"ecdsa-", _FILES_OF_FIDO))


def _private(data: bytes) -> Any:
    """Return a private key, None if it has a passphrase or is on a token."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    is_ssh = b"-----BEGIN OPENSSH PRIVATE KEY-----" in data
    try:
        return load_ssh_private_key(data, None) if is_ssh else load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def _of_file(private: Any) -> RawKey:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256

    def made(message: bytes) -> bytes:
        if isinstance(private, Ed25519PrivateKey):
            return private.sign(message)
        if isinstance(private, RSAPrivateKey):
            return private.sign(message, PKCS1v15(), SHA256())
        assert isinstance(private, EllipticCurvePrivateKey)
        return private.sign(message, ECDSA(_hash_of(private.curve), deterministic_signing=True))

    return _key(private.public_key(), made)


def _hash_of(curve: Any) -> Any:
    from cryptography.hazmat.primitives import hashes

    return {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}[curve.key_size]


def _key(public: Any, sign: Callable[[bytes], bytes]) -> RawKey:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    known: _Public = public
    if not isinstance(public, Ed25519PublicKey | RSAPublicKey | EllipticCurvePublicKey):
        raise SigningFailed("cannot sign: the key is neither ed25519 nor ecdsa nor rsa", _CHECK)
    pem = known.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")
    kind, scheme, value = "ed25519", "ed25519", ""
    if isinstance(public, Ed25519PublicKey):
        value = known.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
    elif isinstance(public, RSAPublicKey):
        kind, scheme, value = "rsa", "rsa-pkcs1v15-sha256", pem
    else:
        kind, scheme, value = "ecdsa", f"ecdsa-sha2-nistp{public.curve.key_size}", pem
    canonical = f'{{"keytype":"{kind}","keyval":{{"public":"{value}"}},"scheme":"{scheme}"}}'
    return RawKey(sha256(canonical.encode("ascii")).hexdigest(), pem, sign)


def _by_agent(blob: bytes, public: Any, message: bytes) -> bytes:
    where = os.environ.get("SSH_AUTH_SOCK", "")
    request = bytes([_SIGN]) + _text(blob) + _text(message) + struct.pack(">I", _WITH_SHA256)
    try:
        with socket.socket(socket.AF_UNIX) as agent:
            agent.settimeout(_PATIENCE)
            agent.connect(where)
            agent.sendall(_text(request))
            (size,) = struct.unpack(">I", _received(agent, 4))
            reply = _received(agent, min(size, _LARGEST))
    except OSError as error:
        raise _refused(error.strerror or str(error) or "it does not answer") from None
    if reply[:1] != bytes([_SIGNED]):
        raise _refused("it does not have the key, or its user declined")
    try:
        signature, _ = _cut(reply[1:])
        _, rest = _cut(signature)
        return _as_der(_cut(rest)[0], public)
    except struct.error:
        raise _refused("its reply is not whole") from None


def _as_der(signature: bytes, public: Any) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    if not isinstance(public, EllipticCurvePublicKey):
        return signature
    r, rest = _cut(signature)
    return encode_dss_signature(int.from_bytes(r, "big"), int.from_bytes(_cut(rest)[0], "big"))


def _text(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _cut(data: bytes) -> tuple[bytes, bytes]:
    """Split off the text at the beginning. Raises struct.error."""
    (size,) = struct.unpack_from(">I", data)
    if len(data) < 4 + size:
        raise struct.error("too short")
    return data[4 : 4 + size], data[4 + size :]


def _received(agent: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = agent.recv(size - len(parts))
        if not part:
            raise OSError("it hung up")
        parts += part
    return parts


def _refused(why: str) -> SigningFailed:
    return SigningFailed(
        f"cannot sign: the key agent: {why}",
        "add the key: ssh-add; a key without a passphrase is read from its file",
    )
