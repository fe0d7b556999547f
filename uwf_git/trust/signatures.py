"""Signatures of commits and tags, as judged by git with the user's keys and trust."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.git.objects import is_signed, parse_commit, parse_tag
from uwf_git.git.program import Git
from uwf_git.git.repository import COMMIT, TAG, Oid, Repository
from uwf_git.store import archives, layout, ref_kinds

GOOD, BAD, UNKNOWN, EXPIRED, REVOKED, NONE = "good", "bad", "unknown", "expired", "revoked", "none"
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


class Signature(NamedTuple):
    """A signature's state: good, bad, unknown (untrusted or missing key), expired, revoked or none; other
    fields are empty if git doesn't know them. `fingerprint` is that of the key that signed, known of valid
    signatures only; `primary` that of the openpgp key which it belongs to."""

    state: str
    signer: str = ""
    key: str = ""
    fingerprint: str = ""
    primary: str = ""


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
    found: dict[Oid, Signed] = {}
    others: list[tuple[str, Oid]] = []
    for ref, oid in sorted(refs.items()):
        name = ref[ref.rindex("/") + 1 :]
        thread = ThreadId(name) if layout.is_thread_ref(ref) else None
        found.update({each.object: each for each in _records(repository, ref, thread, oid, found, others)})
    for ref, oid in others:
        found.update({each.object: each for each in _records(repository, ref, None, oid, found, [])})
    states = read(found)
    return [each._replace(signature=states[oid]) for oid, each in found.items()]


def _records(
    repository: Repository,
    ref: str,
    thread: ThreadId | None,
    oid: Oid,
    known: Mapping[Oid, Signed],
    others: list[tuple[str, Oid]],
) -> list[Signed]:
    found: dict[Oid, Signed] = {}
    pending = [(oid, thread)]
    while pending:
        at, belongs = pending.pop()
        if at in found or at in known:
            continue
        try:
            kind, data = repository.read(at)
            if kind == TAG:
                pointing = ref_kinds.kind_of(ref)
                target = pointing.target if pointing is not None else ""
                tag_kind = target if target in ("fork", "pause") else "archive"
                found[at] = Signed(ref, belongs, tag_kind, None, at, Signature(NONE))
                pending.append((parse_tag(data).target, belongs))
            elif kind == COMMIT:
                commit = parse_commit(data)
                record = layout.parse_message(commit.message)
                folded = layout.folded_month(commit.message) is not None
                what = record.kind if record else "fold" if folded else "other"
                # A version belongs to no thread, though threads depend on it.
                refs = ref_kinds.kind_of_record(what)
                of = None if refs is not None and refs.branches else belongs
                found[at] = Signed(ref, of, what, record.node if record else None, at, Signature(NONE))
                tags = _folded_tags(repository, at) if folded and at == oid else []
                same = commit.parents[:1] if what == "step" else commit.parents
                others += [(ref, parent) for parent in commit.parents[len(same) :]]
                pending += [(parent, of) for parent in same] + tags
        except (UwfError, ValueError, LookupError, OverflowError):
            continue
    return list(found.values())[::-1]


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
    object."""
    if allowed is not None:
        with tempfile.TemporaryDirectory(prefix="uwf-signers-") as folder:
            file = Path(folder) / "allowed_signers"
            file.write_bytes(allowed)
            return _signatures(repository, objects, ("-c", f"gpg.ssh.allowedSignersFile={file}"))
    return _signatures(repository, objects, ())


def _signatures(
    repository: Repository, objects: Iterable[Oid], settings: Sequence[str]
) -> dict[Oid, Signature]:
    found: dict[Oid, Signature] = {}
    commits: list[Oid] = []
    for oid in dict.fromkeys(objects):
        kind, data = repository.read(oid)
        if not is_signed(data):
            found[oid] = Signature(NONE)
        elif kind == COMMIT:
            commits.append(oid)
        else:
            found[oid] = _tag_signature(repository, oid, settings)
    found.update(_commit_signatures(repository, commits, settings))
    return found


def _commit_signatures(
    repository: Repository, commits: Sequence[Oid], settings: Sequence[str]
) -> Iterator[tuple[Oid, Signature]]:
    if not commits:
        return
    listed = "".join(f"{commit}\n" for commit in commits).encode()
    line = "--format=%H%x00%G?%x00%GS%x00%GK%x00%GF%x00%GP"
    done = Git(repository.path, variables=repository.variables).run(
        *settings, "log", "--no-walk=unsorted", "--stdin", "--no-show-signature", line, stdin=listed
    )
    for row in filter(None, done.out.decode("utf-8", "replace").split("\n")):
        oid, state, signer, key, fingerprint, primary = (row.split("\0") + [""] * 5)[:6]
        # git says N, none, also of a signature that no key is known for.
        found = UNKNOWN if state == "N" else _STATES.get(state, UNKNOWN)
        yield Oid(hex=oid), Signature(found, signer, key, fingerprint, primary)


def _tag_signature(repository: Repository, tag: Oid, settings: Sequence[str]) -> Signature:
    git = Git(repository.path, variables=repository.variables)
    done = git.run(*settings, "verify-tag", "--raw", str(tag), check=False)
    words = {}
    for line in done.err.splitlines():
        if line.startswith("[GNUPG:] "):
            name, _, rest = line.removeprefix("[GNUPG:] ").partition(" ")
            words[name] = rest
    if words:
        return _from_gpg(words)
    return _from_ssh(done.err, done.code)


def _from_gpg(words: dict[str, str]) -> Signature:
    valid = words.get("VALIDSIG", "").split(" ")
    fingerprint, primary = valid[0], valid[9] if len(valid) > 9 else ""
    for name, state in (
        ("BADSIG", BAD),
        ("REVKEYSIG", REVOKED),
        ("EXPKEYSIG", EXPIRED),
        ("EXPSIG", EXPIRED),
        ("GOODSIG", GOOD),
    ):
        if name in words:
            key, _, signer = words[name].partition(" ")
            if state == GOOD and {"TRUST_UNDEFINED", "TRUST_NEVER"} & words.keys():
                state = UNKNOWN
            return Signature(state, signer, key, fingerprint, primary)
    return Signature(UNKNOWN, key=words.get("ERRSIG", words.get("NO_PUBKEY", "")).partition(" ")[0])


def _from_ssh(said: str, code: int) -> Signature:
    for line in said.splitlines():
        if line.startswith('Good "git" signature'):
            before, _, key = line.rpartition(" key ")
            _, for_, rest = before.partition(" for ")
            signer = rest.rpartition(" with ")[0] if for_ else ""
            return Signature(GOOD if for_ and code == 0 else UNKNOWN, signer, key, key)
        if "incorrect signature" in line or "Signature verification failed" in line:
            return Signature(BAD)
    return Signature(UNKNOWN)
