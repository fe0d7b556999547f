"""Findings of a verification."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from uwf_git.format.ids import Hash, ThreadId

CODES = {
    # objects
    "damaged": "an object is missing, truncated or not what its id says",
    "oversized": "an object is larger than the limit, and was not read",
    "malformed": "an object is not a well-formed commit, tree, tag or node",
    # trees
    "unsafe-name": "a file's name could be mistaken for something else on some system",
    "unsafe-mode": "an entry is not a plain file or folder: a symlink, a submodule, a program",
    "tree-limit": "a tree is deeper or holds more than any record does",
    "extra-file": "a file or folder that does not belong there",
    "missing-file": "a file that belongs there is not there",
    "changed-file": "a commit changes or removes what was there before it",
    "replaced": "an object that git shows as another, by refs/replace or info/grafts, which uwf doesn't follow",
    # nodes
    "wrong-hash": "a node's content has another hash than its name says",
    "collision": "two contents have one hash",
    "bad-type": "a node's type is not a schema, or cannot be applied",
    "breaks-schema": "a node does not obey its type",
    "unknown-word": "a word or a type that this version doesn't know: a newer uwf wrote it, and it isn't checked",
    "missing-node": "something a node refers to is not in the commit's tree",
    # records
    "no-record": "a commit that records nothing, or points at something that no ref of its kind may",
    "wrong-kind": "a record is not of the kind that belongs there",
    "wrong-message": "a commit's message is not what its node says",
    "wrong-author": "a commit whose author is not the agent of its step or attempt",
    "wrong-parent": "a commit's parents are not what its record asks for",
    "wrong-chain": "a node's start or prev is not that of the commit before",
    "wrong-role": "a step by another role than the workflow called for",
    "not-a-person": "a step of a person's role that names an agent",
    "approval-forged": "an approval that its person did not give, or nobody who may approve",
    "approval-stale": "an approval of something else than the step: another head, another output shown, or taken back",
    "approval-self": "an approval by who made any part of what is judged, where the role excludes them",
    "approval-missing": "a step with fewer approvals that count than its role asks for",
    "after-end": "a step where the workflow had ended",
    "wrong-persona": "a start in which nobody of the crew speaks, or one of a crew where the workflow is of none",
    "wrong-data": "a start with a file that no menu brings along: its path, format, size or text",
    "wrong-issue": "a start whose prompt doesn't end with the issue's text of which it has the digest",
    "no-decision": "the workflow cannot say who goes next, so nobody can have",
    "wrong-output": "an output of a type that its role does not answer with",
    "wrong-detail": "a detail whose instruction, context or remark is not what the history gives",
    "wrong-fork": "a fork whose edge, items, branches or policy do not follow from the history",
    "wrong-branch": "a branch that is not what its fork says, or not under the id that follows from it",
    "wrong-join": "a join that tells something else than its branches came to, or joins too early",
    "wrong-call": "a call of code by another thread than says so, or not under the id that follows from what was asked",
    "wrong-code": "code whose commit has another tree in a project here, or is not a commit",
    "lost-code": "code whose commit was made here, and is gone from its project",
    "other-patch": "a commit of a project whose message claims a thread that changed something else",
    "wrong-page": "a page for people that is not what the nodes say",
    # workflows
    "bad-source": "a workflow's definition does not compile",
    "other-source": "a workflow's definition compiles to another node",
    "wrong-name": "a workflow under another's name, or a thread under another id than its start says, that is no fork",
    # refs
    "wrong-ref": "a ref points at something that does not belong there",
    "missing-ref": "a ref was seen here and is gone, though no uwf deleted it",
    "wrong-base": "a base branch on a remote that hides steps of the branch that is compared with it",
    "rewritten": "a remote has other history than was seen there",
    "rolled-back": "a remote, or the store, has less history than was seen there",
    "unwitnessed": "a head, or a new store in the place of another, that this user's log of heads doesn't explain",
    "wrong-tag": "a tag does not say what its ref asks for",
    "bad-signature": "a signature that is not one of what it depends on",
    # trust
    "invalid-policy": "a trust policy that cannot be read, or holds more than one does",
    "policy-not-signed": "a trust policy that is not signed by a maintainer whom the one before names",
    "policy-replaced": "a trust policy that does not stand on the one in force here",
    "requirement-unmet": "a record that is not signed as the trust policy, or --require, requires",
    "not-provable": "a valid signature whose key has ended since; nothing here shows that it was made before that",
    "too-many": "there is more than is reported",
    "unchecked": "nothing is known to be wrong: checking it takes longer than one command may take",
    # branches and checkouts
    "foreign-commit": "a commit on a branch of uwf's that is not uwf's",
    "other-thread": "a branch with another thread, or other steps, than it is called after",
    "edited-file": "a file of the folder or the index that is not what was committed",
    # warnings: valid, but notable
    "rehearsed": "a thread with steps whose answers were made up",
    "shallow": "commits that are not in the clone: verified as far as the newest trees tell",
    "squashed": "steps that have no commits of their own: verified by their nodes",
    "unregistered": "a version that a forge merged and no store has registered yet",
    "edited-source": "a definition edited on a forge, with the page of the version before",
    "behind": "a thread's branch that lacks its last steps",
    "projects-page": "a README.md that is a project's where a thread has its page",
    # notes: as it should be, and no more can be said
    "coded": "a thread of a code workflow: its code is not run again to confirm its steps",
    "code-elsewhere": "a thread with code that no project on this machine has",
    "approval-unjudged": "nothing here says whether an approval is an approver's: a key, or a trust policy, is missing",
    "own-time": "branches that begin at another time than their fork: signed ones, or an earlier version's",
    "thread-elsewhere": "a thread's branch where the thread's own refs were not fetched",
    "project": "a project's branch: what is its own was not verified",
    "not-checked-out": "files that were left out of the checkout, which nobody reads there",
    "untracked": "files beside the published ones that are in no commit",
    "line-endings": "files whose line endings git converted when it checked them out",
    "newer": "a ref of a kind that this version doesn't know: a newer uwf made it, and it isn't checked",
}
"""The findings by their codes, which are published and stable."""


UNCHECKED = "unchecked"
"""The code of a finding for what could not be verified here."""
UNTRUSTED = frozenset(("policy-not-signed", "policy-replaced", "requirement-unmet", "not-provable"))
"""The codes of what is sound, and not signed as it has to be."""


class Finding(NamedTuple):
    """A violation of the format. `code` is a key of CODES; `thread` is None if it concerns none; `step` is a
    StepNode's hash or None; `object` a git id; `ref` the ref that leads there; `path` the file that it is
    about, "" for none, and `line` the first wrong line of that file, from 1 on, 0 if none can be named."""

    code: str
    thread: ThreadId | None
    step: Hash | None
    object: str
    message: str
    ref: str = ""
    path: str = ""
    line: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object; `path` and `line` only of what is about a file, and a line of it."""
        value = self._asdict()
        for key in ("path", "line"):
            if not value[key]:
                del value[key]
        return value


class ShownDiff(NamedTuple):
    """The diff of code that somebody was shown: the SHA-256 of git's words, between commits in hexadecimal. A project
    that has another makes it the `finding`."""

    base: str
    commit: str
    sha256: str
    finding: Finding


class OpenQuestions(NamedTuple):
    """What checks of commits can't tell: notes on that, and diffs that a project may tell of."""

    notes: list[Finding]
    diffs: list[ShownDiff]


class Report(Protocol):
    """A function that takes a finding. `at` is its object, by default the commit or ref being checked; `path`
    and `line` as in a Finding."""

    def __call__(self, code: str, message: str, at: object = None, path: str = "", line: int = 0) -> None: ...


class Listener:
    """A Report that forwards findings and records whether there were any."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.is_silent = True

    def __call__(self, code: str, message: str, at: object = None, path: str = "", line: int = 0) -> None:
        self.is_silent = False
        self._report(code, message, at, path, line)


class Located:
    """A Report that adds the path of a file, unless a finding has one."""

    def __init__(self, report: Report, path: str) -> None:
        self._report = report
        self._path = path

    def __call__(self, code: str, message: str, at: object = None, path: str = "", line: int = 0) -> None:
        self._report(code, message, at, path or self._path, line)


class Bad(Exception):
    """Ends the check of something unreadable; it becomes a Finding. `at` and `path` as in a Report."""

    def __init__(self, code: str, message: str, at: object = None, path: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.at = at
        self.path = path
