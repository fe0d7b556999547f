"""The trust file: who the people are, with which keys, and what has to be signed by whom. Pure: a text becomes
a `Policy`, and a `Policy` its page.

    people:
      ann:
        emails: [ann@example.com]
        keys:
          - ssh-ed25519 AAAAC3Nza…
          - {openpgp: FINGERPRINT, from: 2026-01-01, until: 2027-01-01, revoked: 2026-06-01T12:00:00Z}
    groups:
      reviewers: [ann, bob]
    maintainers: [ann]
    rules:
      - threads: release-*
        of: [answers, ends]
        signed-by: [reviewers]
      - workflows: "*"
        require: signed
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.base.markdown import code, inline, table
from uwf_git.base.text import counted, harmless, iso, one_line
from uwf_git.format.ids import name_problem
from uwf_git.store.new_record import (
    ANSWERS,
    ATTEMPTS,
    DELETIONS,
    ENDS,
    FORKS,
    PAUSES,
    REWRITES,
    STARTS,
    STEPS,
)

if TYPE_CHECKING:
    from uwf_git.format.document import Document
    from uwf_git.format.findings import Finding, Findings
    from uwf_git.trust.signatures import Signature

FILE = "trust.yaml"

SSH, OPENPGP, X509 = "ssh", "openpgp", "x509"
OF_THREADS = (STARTS, STEPS, ANSWERS, ENDS, ATTEMPTS, PAUSES, FORKS)
"""The records of a thread, as rules call them: its start, its agents' steps, its persons' steps and approvals, its
archive tag, failed attempts, its pause, and the tag of a fork that a user made."""

SUBJECTS = ("threads", "workflows", "crews", "suites", "baselines")
"""The kinds of records that rules are about."""
SIGNED = "signed"
ALWAYS = 0  # Unix seconds; a key that is revoked for its whole life

_LONGEST_NAME = 100
_MOST_PEOPLE, _MOST_KEYS, _MOST_RULES, _MOST_NAMES = 2000, 50, 500, 2000
_MOST_ACCEPTED = 15_000
_OID = re.compile(r"[0-9a-f]{40}", re.ASCII)
_SSH_TYPE = re.compile(r"(?:sk-)?(?:ssh-(?:ed25519|rsa)|ecdsa-sha2-nistp(?:256|384|521))(?:@openssh\.com)?")
_FINGERPRINT = re.compile(r"[0-9A-F]{40}|[0-9A-F]{64}")
_EMAIL = re.compile(r"[^\s<>@]+@[^\s<>@]+")
_PATTERN = re.compile(r"[\w.*/-]+")
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})(?:T(\d{2}:\d{2}(?::\d{2})?)Z)?", re.ASCII)


class Key(NamedTuple):
    """A key. `fingerprint` is as git prints it: `SHA256:…` of ssh, upper-case hexadecimal of openpgp and x509;
    `text` is an ssh key's public half, else "". It is valid `since` a Unix time, 0 for always, and `until`
    another; from `revoked` on its signatures don't count."""

    kind: str
    fingerprint: str
    text: str = ""
    since: int = 0
    until: int | None = None
    revoked: int | None = None

    @property
    def end(self) -> int | None:
        """The time from which its signatures don't count, None for never."""
        ends = [item for item in (self.until, self.revoked) if item is not None]
        return min(ends) if ends else None


class Person(NamedTuple):
    """A person with the keys that they sign with."""

    name: str
    emails: tuple[str, ...]
    keys: tuple[Key, ...]


class Rule(NamedTuple):
    """A requirement for records. `subject` is one of SUBJECTS; `patterns` match the names of definitions, of
    threads those of their workflows; `of` are the records of threads. `signers` are names of people and groups,
    empty for anybody with a key in the policy."""

    subject: str
    patterns: tuple[str, ...]
    of: frozenset[str]
    signers: tuple[str, ...]

    def applies(self, subject: str, name: str, of: Iterable[str] = ()) -> bool:
        """Return whether the rule is about a record. `name` is a definition's, or that of a thread's workflow;
        `of` is what a record of a thread is, of OF_THREADS."""
        return (
            subject == self.subject
            and (subject != "threads" or not self.of.isdisjoint(of))
            and any(_matches(pattern, name) for pattern in self.patterns)
        )

    def __str__(self) -> str:
        what = self.subject
        if self.subject == "threads" and self.of != frozenset(OF_THREADS):
            what = f"{', '.join(item for item in OF_THREADS if item in self.of)} of threads"
        by = f"signed by {', '.join(self.signers)}" if self.signers else SIGNED
        return f"{what} {', '.join(self.patterns)}: {by}"


class Policy(NamedTuple):
    """A parsed trust file. `groups` have the names of their people. `maintainers`, people and groups, may
    change the policy. `allow` is what a server's hook permits besides. Records with the git ids `accepted`, and all
    that they stand on, count as they are. `commit` is the git id of the version,
    "" if it is not stored."""

    people: Mapping[str, Person]
    groups: Mapping[str, frozenset[str]]
    maintainers: tuple[str, ...]
    rules: tuple[Rule, ...]
    allow: frozenset[str] = frozenset()
    accepted: frozenset[str] = frozenset()
    commit: str = ""

    def person_of(self, signature: Signature, email: str = "") -> str | None:
        """Return the name of a signature's person, by the fingerprint of a valid signature. `email` finds the
        person of something unsigned. Says nothing of the key's times: `judgement` does."""
        if signature.state == "none":
            folded = email.casefold()
            names = (
                person.name for person in self.people.values() if folded in map(str.casefold, person.emails)
            )
            return next(names, None) if email else None
        if signature.state not in ("good", "unknown"):
            return None
        owned = self.key_of(signature)
        return owned[0] if owned else None

    def key_of(self, signature: Signature) -> tuple[str, Key] | None:
        """Return the person and key of a valid signature, by its fingerprint. The key may be untrusted by gpg, or have
        ended since."""
        from uwf_git.trust.signatures import VALID

        if signature.state not in VALID:
            return None
        for fingerprint in (signature.fingerprint, signature.primary):
            for person in self.people.values():
                for key in person.keys:
                    if fingerprint and key.fingerprint == fingerprint:
                        return person.name, key
        return None

    def has_address_of_another(self, maker: str, person: str) -> bool:
        """Return whether a committer or tagger, `NAME <EMAIL>`, has an address that belongs to others, and not to a
        person."""
        addresses = set(_EMAIL.findall(maker.casefold()))
        owners = {
            item.name
            for item in self.people.values()
            if not addresses.isdisjoint(map(str.casefold, item.emails))
        }
        return bool(owners) and person not in owners

    def members(self, names: Iterable[str]) -> frozenset[str]:
        """Return the people among names of people and groups, and in these groups."""
        members: set[str] = set()
        for name in names:
            members |= self.groups.get(name, frozenset([name]) if name in self.people else frozenset())
        return frozenset(members)

    def rules_for(self, subject: str, name: str, of: Iterable[str] = ()) -> tuple[Rule, ...]:
        """Return the rules about a record, as for `Rule.applies`; all of them must be met."""
        return tuple(rule for rule in self.rules if rule.applies(subject, name, of))

    def allowed_signers(self) -> bytes:
        """Return ssh's allowed signers: every ssh key, under its person's name. Times are left to
        `judgement`."""
        lines = [
            f'{person.name} namespaces="git" {key.text}\n'
            for person in self.people.values()
            for key in person.keys
            if key.kind == SSH
        ]
        return "".join(lines).encode()

    def to_json(self) -> dict[str, Any]:
        return {
            "people": {name: _person_json(person) for name, person in self.people.items()},
            "groups": {name: sorted(members) for name, members in self.groups.items()},
            "maintainers": list(self.maintainers),
            "rules": [_rule_json(rule) for rule in self.rules],
            "allow": sorted(self.allow),
            "accepted": len(self.accepted),
        }


class InvalidPolicy(Invalid):
    """A trust file has errors, in `findings`."""

    def __init__(self, file: str, findings: Sequence[Finding]) -> None:
        first = next(finding for finding in findings if finding.severity == "error")
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        where = f"{one_line(file)}:{first.line}:{first.column}"
        super().__init__(f"{where}: {first.message}{more}", first.hint)
        self.findings = tuple(findings)
        self.file = file


def parse(text: bytes, file: str = FILE, commit: str = "") -> Policy:
    """Parse a trust file. Raises InvalidPolicy with all findings, InvalidYaml, Invalid above 1 MiB."""
    from uwf_git.format.findings import Findings
    from uwf_git.format.yaml12 import load

    document = load(text, file)
    findings = Findings(document)
    policy = _Reader(document, findings).policy(commit)
    if errors := findings.sorted():
        raise InvalidPolicy(file, errors)
    return policy


def fingerprint_of(text: str) -> str:
    """Return the fingerprint of an ssh key's public half, `TYPE BASE64 …`. Raises ValueError."""
    words = text.split()
    if len(words) < 2 or not _SSH_TYPE.fullmatch(words[0]):
        raise ValueError("it is not the public half of an ssh key")
    try:
        blob = base64.b64decode(words[1], validate=True)
    except binascii.Error:
        raise ValueError("its second word is not base64") from None
    length = int.from_bytes(blob[:4], "big")
    if blob[4 : 4 + length] != words[0].encode():
        raise ValueError(f"its content is not a key of type {words[0]}")
    return "SHA256:" + base64.b64encode(sha256(blob).digest()).decode().rstrip("=")


def page(policy: Policy) -> bytes:
    """Return the page of a policy, which forges show."""
    parts = ["# Who signs what", "Derived from `trust.yaml`, which counts."]
    maintainers = ", ".join(map(inline, policy.maintainers))
    parts.append(f"Changes of this policy are signed by: {maintainers}.")
    if policy.rules:
        lines = [f"- {inline(str(rule), 2000)}" for rule in policy.rules]
        parts += ["## Rules", "\n".join(lines)]
    rows = [
        (inline(person.name), key.kind, code(key.fingerprint), _times(key))
        for person in policy.people.values()
        for key in person.keys
    ]
    parts += ["## Keys", table(("person", "kind", "fingerprint", "valid"), rows)]
    if policy.groups:
        lines = [f"- {inline(name)}: {', '.join(sorted(group))}" for name, group in policy.groups.items()]
        parts += ["## Groups", "\n".join(lines)]
    if policy.accepted:
        parts.append(f"Accepted as they are: {counted(len(policy.accepted), 'record')}, and all before.")
    if policy.allow:
        parts.append(f"A server allows: {', '.join(sorted(policy.allow))}.")
    return harmless("\n\n".join(parts) + "\n").encode()


def _times(key: Key) -> str:
    parts = []
    if key.since:
        parts.append(f"from {iso(key.since)}")
    if key.until is not None:
        parts.append(f"until {iso(key.until)}")
    if key.revoked is not None:
        parts.append("revoked" if key.revoked == ALWAYS else f"revoked {iso(key.revoked)}")
    return ", ".join(parts) or "always"


def _person_json(person: Person) -> dict[str, Any]:
    return {"emails": list(person.emails), "keys": [_key_json(key) for key in person.keys]}


def _key_json(key: Key) -> dict[str, Any]:
    value: dict[str, Any] = {"kind": key.kind, "fingerprint": key.fingerprint}
    if key.since:
        value["from"] = iso(key.since)
    if key.until is not None:
        value["until"] = iso(key.until)
    if key.revoked is not None:
        value["revoked"] = iso(key.revoked)
    return value


def _rule_json(rule: Rule) -> dict[str, Any]:
    value: dict[str, Any] = {rule.subject: list(rule.patterns)}
    if rule.subject == "threads":
        value["of"] = [item for item in OF_THREADS if item in rule.of]
    if rule.signers:
        return value | {"signed-by": list(rule.signers)}
    return value | {"require": SIGNED}


def _matches(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern, in which `*` stands for any characters. Linear in both."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == name
    last = rest.pop()
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    at, end = len(first), len(name) - len(last)
    for piece in rest:
        position = name.find(piece, at, end)
        if position < 0:
            return False
        at = position + len(piece)
    return True


class _Reader:
    """Reads a document, with a finding for every problem."""

    def __init__(self, document: Document, findings: Findings) -> None:
        from uwf_git.format.fields import Fields

        self._data = document.data
        self._findings = findings
        self._fields = Fields(findings)
        self._owners: dict[str, str] = {}

    def policy(self, commit: str) -> Policy:
        known = ("people", "groups", "maintainers", "rules", "allow", "accepted")
        data = self._fields.mapping(self._data, (), "the trust file", known) or {}
        for key in ("people", "maintainers"):
            if self._data and key not in data:
                self._findings.key_error((), "missing-key", f"the trust file has no {key}", f"add {key}:")
        people = self._people(data.get("people", {}))
        groups = self._groups(data.get("groups", {}), people)
        known_names = frozenset((*people, *groups))
        maintainers = self._names(data.get("maintainers", []), ("maintainers",), "maintainers", known_names)
        if "maintainers" in data and not maintainers:
            self._findings.key_error(
                ("maintainers",), "empty", "no maintainer is named", "name who may change this file"
            )
        policy = Policy(
            people,
            groups,
            maintainers,
            tuple(self._rules(data.get("rules", []), known_names)),
            frozenset(self._allow(data.get("allow", []))),
            frozenset(self._accepted(data.get("accepted", []))),
            commit,
        )
        signing = policy.members(maintainers)
        if maintainers and not any(people[name].keys for name in signing):
            self._findings.key_error(
                ("maintainers",), "no-key", "no maintainer has a key", "nobody could change the policy again"
            )
        return policy

    def _people(self, value: Any) -> dict[str, Person]:
        people: dict[str, Person] = {}
        if not isinstance(value, dict):
            self._fields.wrong_type(("people",), "people", "a mapping of names", value)
            return people
        self._limit(("people",), value, _MOST_PEOPLE, "people")
        for name, item in list(value.items())[:_MOST_PEOPLE]:
            path = ("people", name)
            self._name(path, name)
            data = self._fields.mapping(item, path, one_line(name, 60), ("emails", "keys")) or {}
            emails = self._texts(data.get("emails", []), (*path, "emails"), "emails")
            for number, email in enumerate(emails):
                if not _EMAIL.fullmatch(email):
                    message = f"{one_line(email, 80)!r} is not an address"
                    self._findings.error((*path, "emails", number), "bad-email", message)
            keys = data.get("keys", [])
            if not isinstance(keys, list):
                self._fields.wrong_type((*path, "keys"), "keys", "a list", keys)
                keys = []
            self._limit((*path, "keys"), keys, _MOST_KEYS, "keys")
            read = [
                key
                for number, entry in enumerate(keys[:_MOST_KEYS])
                if (key := self._key(entry, (*path, "keys", number), name)) is not None
            ]
            people[name] = Person(name, tuple(emails), tuple(read))
        return people

    def _key(self, value: Any, path: tuple[str | int, ...], owner: str) -> Key | None:
        data: dict[str, Any] = {SSH: value} if isinstance(value, str) else {}
        if not data:
            known = (SSH, OPENPGP, X509, "from", "until", "revoked")
            data = self._fields.mapping(value, path, "a key", known, wanted="a key or a mapping") or {}
        kinds = [kind for kind in (SSH, OPENPGP, X509) if kind in data]
        if len(kinds) != 1:
            if data:
                self._findings.error(
                    path, "bad-key", "a key has one of ssh, openpgp and x509", "ssh: its public half"
                )
            return None
        kind = kinds[0]
        text = data[kind]
        where = path if isinstance(value, str) else (*path, kind)
        if not isinstance(text, str):
            self._fields.wrong_type(where, f"the {kind} key", "text", text)
            return None
        try:
            fingerprint = fingerprint_of(text) if kind == SSH else _fingerprint(text)
        except ValueError as error:
            self._findings.error(where, "bad-key", f"this {kind} key cannot be read: {error}", _HINTS[kind])
            return None
        if (other := self._owners.setdefault(fingerprint, owner)) != owner:
            self._findings.error(
                where, "shared-key", f"this key is {one_line(other, 60)}'s too", "give each person their own"
            )
        kept = " ".join(text.split()[:2]) if kind == SSH else ""
        since = self._time(data, path, "from")
        until, revoked = self._time(data, path, "until"), self._time(data, path, "revoked", always=True)
        if since is not None and until is not None and until <= since:
            self._findings.error((*path, "until"), "bad-time", "the key ends before it begins")
        return Key(kind, fingerprint, kept, since or 0, until, revoked)

    def _time(
        self, data: Mapping[str, Any], path: tuple[str | int, ...], key: str, always: bool = False
    ) -> int | None:
        if key not in data:
            return None
        value = data[key]
        if always and value == "always":
            return ALWAYS
        match = _TIME.fullmatch(value) if isinstance(value, str) else None
        try:
            if match is not None:
                clock = match[2] or "00:00"
                shape = "%Y-%m-%dT%H:%M:%S" if clock.count(":") == 2 else "%Y-%m-%dT%H:%M"
                import calendar

                return calendar.timegm(time.strptime(f"{match[1]}T{clock}", shape))
        except ValueError:
            pass
        self._findings.error(
            (*path, key),
            "bad-time",
            f"{key} is not a time",
            "2026-12-31 or 2026-12-31T18:00:00Z, in UTC" + (", or always" if always else ""),
        )
        return None

    def _groups(self, value: Any, people: Mapping[str, Person]) -> dict[str, frozenset[str]]:
        groups: dict[str, frozenset[str]] = {}
        if not isinstance(value, dict):
            self._fields.wrong_type(("groups",), "groups", "a mapping of names", value)
            return groups
        self._limit(("groups",), value, _MOST_PEOPLE, "groups")
        for name, members in list(value.items())[:_MOST_PEOPLE]:
            path = ("groups", name)
            self._name(path, name)
            if name in people:
                self._findings.key_error(path, "same-name", f"{one_line(name, 60)} is a person's name too")
            groups[name] = frozenset(
                self._names(members, path, f"group {one_line(name, 60)}", frozenset(people))
            )
        return groups

    def _rules(self, value: Any, names: frozenset[str]) -> Iterable[Rule]:
        if not isinstance(value, list):
            self._fields.wrong_type(("rules",), "rules", "a list", value)
            return
        self._limit(("rules",), value, _MOST_RULES, "rules")
        for number, item in enumerate(value[:_MOST_RULES]):
            path = ("rules", number)
            known = (*SUBJECTS, "of", "require", "signed-by")
            data = self._fields.mapping(item, path, "a rule", known)
            if data is None:
                continue
            subjects = [entry for entry in SUBJECTS if entry in data]
            if len(subjects) != 1:
                about = "one of " + ", ".join(SUBJECTS)
                self._findings.error(path, "bad-rule", f"a rule is about {about}", 'such as threads: "*"')
                continue
            subject = subjects[0]
            if ("require" in data) == ("signed-by" in data):
                self._findings.error(
                    path, "bad-rule", "a rule has either require: signed or signed-by: [NAMES]"
                )
                continue
            patterns = self._patterns(data[subject], (*path, subject))
            of = self._of(data, path, subject)
            signers: tuple[str, ...] = ()
            if "signed-by" in data:
                signers = self._names(data["signed-by"], (*path, "signed-by"), "signed-by", names)
                if not signers:
                    self._findings.key_error((*path, "signed-by"), "empty", "signed-by names nobody")
            elif data["require"] != SIGNED:
                self._findings.error((*path, "require"), "bad-rule", "require can be: signed")
            yield Rule(subject, patterns, of, signers)

    def _patterns(self, value: Any, path: tuple[str | int, ...]) -> tuple[str, ...]:
        patterns = [value] if isinstance(value, str) else self._texts(value, path, "the names")
        for pattern in patterns:
            if not _PATTERN.fullmatch(pattern) or len(pattern) > _LONGEST_NAME:
                self._findings.error(
                    path,
                    "bad-pattern",
                    f"{one_line(pattern, 60)!r} is not a name",
                    "* stands for any characters",
                )
        if not patterns:
            self._findings.error(path, "empty", "no name is given", '"*" stands for all')
        return tuple(patterns)

    def _of(self, data: Mapping[str, Any], path: tuple[str | int, ...], subject: str) -> frozenset[str]:
        if "of" not in data:
            return frozenset(OF_THREADS if subject == "threads" else ())
        if subject != "threads":
            self._findings.key_error((*path, "of"), "bad-rule", "only a rule about threads has of:")
            return frozenset()
        value = data["of"]
        chosen = [value] if isinstance(value, str) else self._texts(value, (*path, "of"), "of")
        for item in chosen:
            if item not in OF_THREADS:
                hint = self._findings.nearest(item, OF_THREADS)
                self._findings.error(
                    (*path, "of"), "bad-rule", f"threads have no {one_line(item, 60)!r}", hint
                )
        return frozenset(chosen)

    def _allow(self, value: Any) -> list[str]:
        chosen = self._texts(value, ("allow",), "allow")
        for number, item in enumerate(chosen):
            if item not in (DELETIONS, REWRITES):
                message = f"{one_line(item, 60)!r} cannot be allowed"
                self._findings.error(
                    ("allow", number), "bad-rule", message, f"known: {DELETIONS}, {REWRITES}"
                )
        return chosen

    def _accepted(self, value: Any) -> list[str]:
        ids = self._texts(value, ("accepted",), "accepted", _MOST_ACCEPTED)
        for number, name in enumerate(ids):
            if not _OID.fullmatch(name):
                hint = "of a commit or a tag, in quotes: 40 hexadecimal digits"
                self._findings.error(
                    ("accepted", number), "bad-id", f"{one_line(name, 60)!r} is not an id", hint
                )
        return ids

    def _names(
        self, value: Any, path: tuple[str | int, ...], what: str, known: frozenset[str]
    ) -> tuple[str, ...]:
        chosen = self._texts([value] if isinstance(value, str) else value, path, what)
        for number, item in enumerate(chosen):
            if item not in known:
                hint = self._findings.nearest(item, known)
                self._findings.error(
                    (*path, number), "unknown-name", f"nobody is called {one_line(item, 60)}", hint
                )
        return tuple(dict.fromkeys(entry for entry in chosen if entry in known))

    def _texts(
        self, value: Any, path: tuple[str | int, ...], what: str, most: int = _MOST_NAMES
    ) -> list[str]:
        if not isinstance(value, list):
            self._fields.wrong_type(path, what, "a list", value)
            return []
        self._limit(path, value, most, "entries")
        texts = []
        for number, item in enumerate(value[:most]):
            if isinstance(item, str):
                texts.append(item)
            else:
                self._fields.wrong_type((*path, number), what, "text", item)
        return texts

    def _name(self, path: tuple[str | int, ...], name: str) -> None:
        if problem := name_problem(name):
            self._findings.key_error(path, "bad-name", f"the name {one_line(name, 40)!r} {problem}")

    def _limit(self, path: tuple[str | int, ...], value: Any, most: int, what: str) -> None:
        if len(value) > most:
            self._findings.key_error(path, "too-many", f"{len(value)} {what} are more than {most}")


_HINTS = {
    SSH: "it is the line of the .pub file",
    OPENPGP: "see: gpg --list-keys --with-fingerprint",
    X509: "see: gpgsm --list-keys",
}


def _fingerprint(text: str) -> str:
    plain = text.replace(" ", "").replace(":", "").upper()
    if not _FINGERPRINT.fullmatch(plain):
        raise ValueError("it is not a whole fingerprint")
    return plain
