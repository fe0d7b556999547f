"""Signatures of commits and tags, as judged by git with the user's keys and trust.

ssh-keygen prints text that the signer chose, newlines included. So the armour says which program speaks, of ssh-keygen
the first line counts and nothing else, and status words of GnuPG count for its own signatures only.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import Undecided, UwfError
from uwf_git.base.text import one_line
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.git.objects import is_signed, parse_commit, parse_tag
from uwf_git.git.program import Git
from uwf_git.git.repository import COMMIT, TAG, Oid, Repository
from uwf_git.store import archives, layout, ref_kinds

GOOD, BAD, UNKNOWN, EXPIRED, REVOKED, NONE = "good", "bad", "unknown", "expired", "revoked", "none"
"""The states of a signature."""
# git log's %G?: U is a good signature by an unverified key, E one that cannot be checked, X and Y good ones of an
# expired signature or key.
_STATES = {
    "G": GOOD,
    "B": BAD,
    "U": UNKNOWN,
    "E": UNKNOWN,
    "X": EXPIRED,
    "Y": EXPIRED,
    "R": REVOKED,
    "N": NONE,
}
VALID = (GOOD, UNKNOWN, EXPIRED, REVOKED)
"""The states in which a fingerprint is that of the key that signed: the signature is valid, whatever the key is."""

# The armours that git knows. It takes a tag's signature from the last such line.
_ARMOUR = re.compile(
    rb"^-----BEGIN (?:PGP SIGNATURE|PGP MESSAGE|SIGNED MESSAGE|SSH SIGNATURE)-----", re.MULTILINE
)
_SSH_BEGIN, _SSH_END = b"-----BEGIN SSH SIGNATURE-----", b"\n-----END SSH SIGNATURE-----"
_HEADER = re.compile(rb"^gpgsig (.*(?:\n .*)*)", re.MULTILINE)
_SSH_HASHES = (b"sha256", b"sha512")
_SSH_GOOD = re.compile(r'Good "git" signature (?:for (.+) )?with \S+ key (\S+)')
# What git says if it could not ask the program. It then calls the signature bad, or none.
_NOT_CHECKED = re.compile(
    r"(?:error|fatal): (?:could not create temporary file|failed writing detached signature|cannot (?:run|fork|exec))"
)
_GPG_STATES = {
    "BADSIG": BAD,
    "ERRSIG": UNKNOWN,
    "REVKEYSIG": REVOKED,
    "EXPKEYSIG": EXPIRED,
    "EXPSIG": EXPIRED,
    "GOODSIG": GOOD,
}
"""The states by GnuPG's words, of which a signature has one."""


class Signature(NamedTuple):
    """A signature's state: good, bad, unknown (untrusted or missing key), expired, revoked or none; other
    fields are empty if git doesn't know them. `fingerprint` is that of the key that signed, known of valid
    signatures only; `primary` that of the openpgp key which it belongs to."""

    state: str
    signer: str = ""
    key: str = ""
    fingerprint: str = ""
    primary: str = ""


UNSIGNED = Signature(NONE)


class Signed(NamedTuple):
    """A record that may be signed. `ref` is the first ref by name that leads to it. `kind` is a commit's
    (workflow, start, step, attempt, pin, fold) or a tag's (archive, fork, pause); `node` is a commit's node.
    """

    ref: str
    thread: ThreadId | None
    kind: str
    node: Hash | None
    object: Oid
    signature: Signature


class SignatureReader:
    """Signatures verified by git, each once. `allowed` as for `signatures`."""

    def __init__(self, repository: Repository, allowed: bytes | None = None) -> None:
        self.repository = repository
        self._allowed = allowed
        self._known: dict[Oid, Signature] = {}

    def __call__(self, objects: Iterable[Oid]) -> dict[Oid, Signature]:
        wanted = list(objects)
        if new := [oid for oid in wanted if oid not in self._known]:
            self._known.update(signatures(self.repository, new, self._allowed))
        return {oid: self._known[oid] for oid in wanted}


def signed_records(refs: Mapping[str, Oid], read: SignatureReader) -> list[Signed]:
    """Return every reachable record once, oldest first, with its signature. Unreadable ones are left to
    `verify`. Folded threads' tags are written again."""
    repository = read.repository
    signed_by_object: dict[Oid, Signed] = {}
    others: list[tuple[str, Oid]] = []
    for ref, oid in sorted(refs.items()):
        name = ref[ref.rindex("/") + 1 :]
        thread = ThreadId(name) if layout.is_thread_ref(ref) else None
        signed_by_object.update(
            {
                record.object: record
                for record in _records(repository, ref, thread, oid, signed_by_object, others)
            }
        )
    for ref, oid in others:
        signed_by_object.update(
            {record.object: record for record in _records(repository, ref, None, oid, signed_by_object, [])}
        )
    states = read(signed_by_object)
    return [item._replace(signature=states[oid]) for oid, item in signed_by_object.items()]


def _records(
    repository: Repository,
    ref: str,
    thread: ThreadId | None,
    oid: Oid,
    known: Mapping[Oid, Signed],
    others: list[tuple[str, Oid]],
) -> list[Signed]:
    signed_by_object: dict[Oid, Signed] = {}
    pending = [(oid, thread)]
    while pending:
        at, belongs = pending.pop()
        if at in signed_by_object or at in known:
            continue
        try:
            kind, data = repository.read(at)
            if kind == TAG:
                pointing = ref_kinds.kind_of(ref)
                target = pointing.target if pointing is not None else ""
                tag_kind = target if target in ("fork", "pause") else "archive"
                signed_by_object[at] = Signed(ref, belongs, tag_kind, None, at, UNSIGNED)
                pending.append((parse_tag(data).target, belongs))
            elif kind == COMMIT:
                commit = parse_commit(data)
                record = layout.parse_message(commit.message)
                folded = layout.folded_month(commit.message) is not None
                what = record.kind if record else "fold" if folded else "other"
                # A version belongs to no thread, though threads depend on it.
                refs = ref_kinds.kind_of_record(what)
                of = None if refs is not None and refs.branches else belongs
                signed_by_object[at] = Signed(ref, of, what, record.node if record else None, at, UNSIGNED)
                tags = _folded_tags(repository, at) if folded and at == oid else []
                same = commit.parents[:1] if what == "step" else commit.parents
                others += [(ref, parent) for parent in commit.parents[len(same) :]]
                pending += [(parent, of) for parent in same] + tags
        except (UwfError, ValueError, LookupError, OverflowError):
            continue
    return list(signed_by_object.values())[::-1]


def _folded_tags(repository: Repository, commit: Oid) -> list[tuple[Oid, ThreadId | None]]:
    """Return a fold's archive tags as objects for git, signed ones last, before the commits that they share
    with the fold."""
    entries = archives.read(repository, commit).threads.values()
    for entry in entries:
        if is_signed(entry.raw) and not repository.has(entry.tag):
            repository.write_raw_tag(entry.raw)
    return [(entry.tag, entry.thread) for entry in entries if repository.has(entry.tag)]


def signatures(
    repository: Repository, objects: Iterable[Oid], allowed: bytes | None = None
) -> dict[Oid, Signature]:
    """Return the signatures of commits and tags. git starts one process for each signed object. `allowed` are
    the ssh signers to know, instead of those of the user's configuration. Raises StoreDamaged for an unreadable
    object, Undecided if signatures could not be checked, as on a full disk."""
    import tempfile

    wanted = list(objects)
    if not wanted:
        return {}
    try:
        folder = tempfile.TemporaryDirectory(prefix="uwf-signers-")
        file = Path(folder.name) / "allowed_signers"
        file.write_bytes(allowed or b"")
    except OSError as error:
        raise _unchecked(str(error)) from None
    with folder:
        settings = ("-c", f"gpg.ssh.allowedSignersFile={file}") if allowed is not None else ()
        # Python looks for another folder if that of TMPDIR is gone; git doesn't.
        git = Git(repository.path, variables={**repository.variables, "TMPDIR": folder.name})
        return _signatures(repository, git, wanted, settings)


def _unchecked(reason: str) -> Undecided:
    """Return the error for signatures that nobody could look at: they are neither good nor forged."""
    hint = "git needs ssh-keygen or gpg, and space in the folder of TMPDIR"
    return Undecided(f"signatures could not be checked: {one_line(reason, 200)}", hint)


def _signatures(
    repository: Repository, git: Git, objects: Iterable[Oid], settings: Sequence[str]
) -> dict[Oid, Signature]:
    signatures: dict[Oid, Signature] = {}
    commits: list[Oid] = []
    for oid in dict.fromkeys(objects):
        kind, data = repository.read(oid)
        if not is_signed(data):
            signatures[oid] = UNSIGNED
            continue
        armoured = _armoured(kind, data)
        is_ssh = armoured.startswith(_SSH_BEGIN)
        if is_ssh and _ssh_hash(armoured) not in _SSH_HASHES:
            signatures[oid] = Signature(BAD)
        elif kind == COMMIT:
            commits.append(oid)
        else:
            signatures[oid] = _tag_signature(git, oid, settings, is_ssh)
    signatures.update(_commit_signatures(git, commits, settings))
    return signatures


def _commit_signatures(
    git: Git, commits: Sequence[Oid], settings: Sequence[str]
) -> Iterator[tuple[Oid, Signature]]:
    if not commits:
        return
    listed = "".join(f"{commit}\n" for commit in commits).encode()
    line = "--format=%H%x00%G?%x00%GS%x00%GK%x00%GF%x00%GP"
    done = git.run(
        *settings, "log", "--no-walk=unsorted", "--stdin", "--no-show-signature", line, stdin=listed
    )
    for said in done.err.splitlines():  # no program's words
        if _NOT_CHECKED.match(said):
            raise _unchecked(said.partition(": ")[2])
    for row in filter(None, done.out.decode("utf-8", "replace").split("\n")):
        oid, state, signer, key, fingerprint, primary = (row.split("\0") + [""] * 5)[:6]
        # git says N, none, also of a signature that no key is known for.
        state_here = UNKNOWN if state == "N" else _STATES.get(state, UNKNOWN)
        if state in "BEN":  # not valid
            fingerprint = primary = ""
        yield Oid(hex=oid), Signature(state_here, signer, key, fingerprint, primary)


def _armoured(kind: int, data: bytes) -> bytes:
    """Return the signature that git verifies, b"" if it finds none."""
    if kind == COMMIT:
        headers = _HEADER.findall(data.partition(b"\n\n")[0])
        return b"\n".join(headers).replace(b"\n ", b"\n")
    starts = [match.start() for match in _ARMOUR.finditer(data)]
    return data[starts[-1] :] if starts else b""


def _ssh_hash(armoured: bytes) -> bytes:
    """Return the name of the hash in an SSHSIG (OpenSSH's PROTOCOL.sshsig), b"" if it is malformed."""
    encoded, end, _ = armoured.removeprefix(_SSH_BEGIN).partition(_SSH_END)
    try:
        blob = base64.b64decode(b"".join(encoded.split()), validate=True)
    except ValueError:
        return b""
    if not end or not blob.startswith(b"SSHSIG"):
        return b""
    value, at = b"", len(b"SSHSIG") + 4  # behind the version
    for _field in ("public key", "namespace", "reserved", "hash"):
        length = int.from_bytes(blob[at : at + 4], "big")
        value, at = blob[at + 4 : at + 4 + length], at + 4 + length
    return value if at <= len(blob) else b""


def _tag_signature(git: Git, tag: Oid, settings: Sequence[str], is_ssh: bool) -> Signature:
    done = git.run(*settings, "verify-tag", "--raw", str(tag), check=False)
    first = done.err.partition("\n")[0]  # behind it there may be words of the signer
    if _NOT_CHECKED.match(first):
        raise _unchecked(first.partition(": ")[2])
    return (_from_ssh if is_ssh else _from_gpg)(done.err, done.code)


def _from_gpg(output: str, code: int) -> Signature:
    rows = [
        line.removeprefix("[GNUPG:] ").partition(" ")[::2]
        for line in output.split("\n")
        if line.startswith("[GNUPG:] ")
    ]
    words = dict(rows)
    names = [name for name, _ in rows if name in _GPG_STATES]
    if len(names) != 1:  # git calls several signatures in one unknown, too
        return Signature(UNKNOWN, key=words.get("NO_PUBKEY", ""))
    key, _, signer = words[names[0]].partition(" ")
    state = _GPG_STATES[names[0]]
    if names[0] in ("BADSIG", "ERRSIG"):
        return Signature(state, signer if state == BAD else "", key)
    if state == GOOD and (code or {"TRUST_UNDEFINED", "TRUST_NEVER"} & words.keys()):
        state = UNKNOWN
    valid = words.get("VALIDSIG", "").split(" ")
    return Signature(state, signer, key, valid[0], valid[9] if len(valid) > 9 else "")


def _from_ssh(output: str, code: int) -> Signature:
    """Read the first line. The fingerprint of a key that is not among the signers is not vouched for."""
    first = output.partition("\n")[0]
    if match := _SSH_GOOD.fullmatch(first):
        signer, key = match[1] or "", match[2]
        return Signature(GOOD, signer, key, key) if signer and code == 0 else Signature(UNKNOWN, "", key)
    return Signature(BAD if first.startswith("Could not verify signature") else UNKNOWN)
