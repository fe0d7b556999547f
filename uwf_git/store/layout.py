"""Paths in a commit's tree, ref names and commit messages: the parts of the format that plain git shows.

    .gitattributes                       marks node files as generated, so forges fold them
    README.md                            the thread's page (from its start on)
    workflow.yaml                        the definition as written; of a code workflow workflow.esm.js, .py
    workflow/{README.md,nodes/,include/} the workflow's page, its nodes, the files it includes
    start/{README.md,nodes/}             the prompt
    steps/0003-reviewer/{README.md,nodes/}   one step; from 100 on steps/01xx/0100-reviewer
    steps/00xx.md                        the list of a full hundred of steps
    attempts/0001-reviewer/{README.md,nodes/}  only on refs/uwf/attempts/<ULID>
    approvals/<hash>/{README.md,nodes/}  alone in the tree on refs/uwf/approvals/<ULID>

Extensions document the trees of their records. `pages` makes the READMEs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.base.text import one_line
from uwf_git.format.ids import Hash, ThreadId, is_hash, is_thread_id, name_problem
from uwf_git.git.objects import Person
from uwf_git.store import ref_kinds

if TYPE_CHECKING:
    from uwf_git.format.credit import Credit
    from uwf_git.format.kinds import Attempt
    from uwf_git.git.repository import Oid

GITATTRIBUTES = b"* -text\n**/nodes/*.json linguist-generated=true gitlab-generated=true\n"

NAMESPACE = "refs/uwf/"
POLICY = ref_kinds.TRUST.prefix + ref_kinds.TRUST.names
WORKFLOWS = ref_kinds.WORKFLOWS.prefix
THREADS = ref_kinds.THREADS.prefix
ARCHIVE = ref_kinds.ARCHIVE.prefix
ATTEMPTS = ref_kinds.ATTEMPTS.prefix
PINS = ref_kinds.PINS.prefix
FORKS = ref_kinds.FORKS.prefix
PAUSED = ref_kinds.PAUSED.prefix
FOLDED = ref_kinds.FOLDED.prefix
PROPOSALS = ref_kinds.PROPOSALS.prefix
RESUMED = ref_kinds.RESUMED.prefix
REMOVED = ref_kinds.REMOVED.prefix
MERGED = ref_kinds.MERGED.prefix
REMOTES = ref_kinds.REMOTES.prefix
REWRITTEN = ref_kinds.REWRITTEN.prefix
WORK = ref_kinds.WORK.prefix
# A remote's published branches; those of registered versions are tracked.
BRANCHES = "refs/heads/uwf/"
THREAD_BRANCHES = BRANCHES + "threads/"

INCLUDED = "workflow/include/"
"""Other source files of a workflow's version; for a crew, the whole package."""

# The characters that may be said of why a thread is paused.
LONGEST_REASON = 500
# The characters that a person may say of a proposed version: in all, and on the first line.
LONGEST_WORDS, LONGEST_SUBJECT = 10_000, 100

_NODE_FILE = r"(?:^|/)nodes/([0-9A-Z]{13})\.json$"
_FORKED = "forked by hand"
_UNSAFE = r"[^\w.-]+"
_MONTH = r"[0-9]{4}-(?:0[1-9]|1[0-2])"
_TRAILER = r"^(Uwf-[A-Za-z-]+): (.*)$"


def is_shared_ref(name: str) -> bool:
    """Return whether a ref is shared and has a valid name. Others are never fetched."""
    kind = ref_kinds.kind_of(name)
    if kind is None or not kind.is_shared:
        return False
    rest = name.removeprefix(kind.prefix)
    if kind.names == "name":
        return name_problem(rest) is None
    if kind.names == "policy":
        return rest == kind.names
    if kind.names == "month":
        return re.fullmatch(_MONTH, rest) is not None
    return is_hash(rest) if kind.names == "node" else is_thread_id(rest)


def is_local_ref(name: str) -> bool:
    """Return whether a ref stays on this machine, including those of unknown rooms."""
    kind = ref_kinds.kind_of(name)
    return not kind.is_shared if kind is not None else name.startswith(ref_kinds.RESERVED)


def is_newer_ref(name: str) -> bool:
    """Return whether a ref is of an unknown kind: made by a newer version, and not damage."""
    known = ref_kinds.kind_of(name) is not None or name.startswith(ref_kinds.RESERVED)
    return name.startswith(NAMESPACE) and not known


def is_followed_ref(name: str) -> bool:
    """Return whether the index follows a ref: shared refs and proposals."""
    kind = ref_kinds.kind_of(name)
    return kind is not None and bool(kind.target)


def is_thread_ref(name: str) -> bool:
    """Return whether a ref belongs to one thread, whose id is the last part of its name."""
    kind = ref_kinds.kind_of(name)
    return kind is not None and kind.of_thread


def needs_thread(name: str) -> bool:
    """Return whether a ref makes sense only if its thread is here. Divergence records are kept without."""
    return is_thread_ref(name) and not name.startswith((THREADS, ARCHIVE, FORKS))


def is_of_versions(branch: str) -> bool:
    """Return whether a remote's branch is that of a definition."""
    return branch.startswith(BRANCHES) and branch.startswith(version_branches())


def shared() -> tuple[str, ...]:
    """Return the prefixes of shared refs in transfer order: an interrupted transfer leaves a consistent
    store."""
    return tuple(kind.prefix for kind in ref_kinds.every() if kind.is_shared)


def of_threads() -> tuple[str, ...]:
    return tuple(kind.prefix for kind in ref_kinds.every() if kind.of_thread)


def version_branches() -> tuple[str, ...]:
    return tuple(kind.branches for kind in ref_kinds.versioned().values())


def word_for(ref: str) -> str:
    """Return the word for a definition's ref in messages ("workflow"), "" if none."""
    kind = ref_kinds.kind_of(ref)
    return kind.word if kind is not None and not kind.of_thread else ""


def words() -> dict[str, str]:
    """Return the words for refs that belong to no thread, by prefix; definitions first."""
    kinds = sorted(ref_kinds.every(), key=lambda kind: not kind.branches)
    return {kind.prefix: kind.word for kind in kinds if kind.word and not kind.of_thread}


def refs_of_threads(threads: Iterable[ThreadId]) -> dict[str, ThreadId]:
    """Map every ref that these threads may have to its thread."""
    return {prefix + thread: thread for thread in threads for prefix in of_threads()}


def namespace_of(ref: str) -> str:
    """Return a ref's name without its last part: `refs/uwf/threads/`."""
    return ref[: ref.rindex("/") + 1]


def thread_of(ref: str) -> ThreadId:
    return ThreadId(ref[ref.rindex("/") + 1 :])


def tracking(remote: str, name: str) -> str:
    """Return the tracking ref of a remote's shared ref or published branch."""
    if is_of_versions(name):
        return f"{REMOTES}{remote}/branches/{name.removeprefix(BRANCHES)}"
    return f"{REMOTES}{remote}/{name.removeprefix(NAMESPACE)}"


def rewritten(remote: str, name: str) -> str:
    """Return the ref that keeps what a remote has in place of what was seen of a ref."""
    return f"{REWRITTEN}{remote}/{name.removeprefix(NAMESPACE)}"


def tracked(remote: str, name: str) -> str:
    """The inverse of `tracking`."""
    rest = name.removeprefix(f"{REMOTES}{remote}/")
    if rest.startswith("branches/"):
        return BRANCHES + rest.removeprefix("branches/")
    return NAMESPACE + rest


def node_file(node: Hash) -> str:
    """Return `nodes/<hash>.json`."""
    return f"nodes/{node}.json"


def node_in_path(path: str) -> Hash | None:
    """Return the hash in the path of a node's file, else None."""
    match = re.search(_NODE_FILE, path)
    return Hash(match.group(1)) if match and is_hash(match.group(1)) else None


def slug(role: str) -> str:
    """Return a role's name for a path: letters, digits, dots and dashes, at most 40."""
    name = role.removeprefix("$").lower() if role.startswith("$") else role
    return re.sub(_UNSAFE, "-", name).strip(".-")[:40] or "role"


def step_folder(number: int, role: str) -> tuple[str, ...]:
    """Return a step's folders: ("steps", "0003-reviewer"), and from step 100 on with one per hundred, so that
    no folder exceeds a few hundred entries."""
    name = f"{number:04d}-{slug(role)}"
    if number < 100:
        return ("steps", name)
    return ("steps", f"{number // 100:02d}xx", name)


def attempt_folder(number: int, role: str) -> tuple[str, ...]:
    return ("attempts", f"{number:04d}-{slug(role)}")


class Trailers(NamedTuple):
    """The trailers of a commit message: the kind of record and its node."""

    kind: str
    node: Hash


FOLD_TRAILER = "Uwf-Fold"


def message(subject: str, trailers: dict[str, str], body: str = "") -> str:
    """Return a commit message with trailers as its last paragraph."""
    parts = [one_line(subject, 100)]
    if body:
        parts.append(body.strip())
    parts.append("\n".join(f"{key}: {one_line(value, 200)}" for key, value in trailers.items() if value))
    return "\n\n".join(parts) + "\n"


def workflow_message(name: str, node: Hash) -> str:
    return message(f"workflow {name} {node}", {"Uwf-Workflow": node})


def in_words(words: str, message: str) -> str:
    """Return a version's message with a person's text instead of its subject; trailers are kept. Raises
    Invalid."""
    lines = [line.rstrip() for line in words.strip().split("\n")]
    if not lines[0].strip():
        raise Invalid("the message is empty", "leave it out, or say what the version changes")
    if len(lines[0]) > LONGEST_SUBJECT:
        raise Invalid(
            f"the first line of the message has more than {LONGEST_SUBJECT} characters",
            "put the rest below it, after an empty line",
        )
    body = "\n".join(lines[1:]).strip("\n")
    text = "\n\n".join(filter(None, (lines[0], body, _trailers_of(message)))) + "\n"
    if not is_in_words(text, message):
        raise Invalid(
            f"the message has control characters, or more than {LONGEST_WORDS} characters", "shorten it"
        )
    return text


def is_in_words(text: str, message: str) -> bool:
    """Return whether a text is `message` with other words before its trailers, without control characters."""
    words = text.removesuffix(f"\n\n{_trailers_of(message)}\n")
    return (
        words != text
        and len(words) <= LONGEST_WORDS
        and words.replace("\n", "").replace("\t", "").isprintable()
    )


def _trailers_of(message: str) -> str:
    return message.rstrip("\n").rsplit("\n\n", 1)[-1]


THREAD_TRAILER = "Uwf-Thread"
PROJECT_TRAILER = "Uwf-Project"


def start_message(
    workflow: str, heading: str, node: Hash, thread: ThreadId | None = None, project: str = ""
) -> str:
    """Return the message of a thread's start: workflow and first line of its heading. It names the thread, so that no
    two begin with the same commit unless one is a fork of the other, and its project, as `Project.label`; an
    imported thread's start names neither."""
    first = next((line for line in heading.splitlines() if line.strip()), "start")
    trailers = {"Uwf-Start": node, THREAD_TRAILER: thread or "", PROJECT_TRAILER: project}
    return message(f"start {workflow}: {first}", trailers)


def step_message(
    number: int, node: Hash, role: str, agent: str, verdict: str, extraction: str, code: str = ""
) -> str:
    """Return the message of a step. `verdict` is `pages.verdict` of its output, `extraction` "" if the detail
    has none, `code` the commit of the code that it left, "" if none."""
    return message(
        f"{number:04d} {one_line(role, 40)}" + (f": {verdict}" if verdict else ""),
        {
            "Uwf-Step": node,
            "Uwf-Role": role,
            "Uwf-Agent": agent,
            "Uwf-Extraction": extraction,
            "Uwf-Code": code,
        },
    )


def part_message(fork: Hash, number: int) -> str:
    """Return the message of a commit that gathers branches of a fork for their join."""
    return message(f"{number} branches of fork {fork}", {"Uwf-Part": fork})


def agent_author(credit: Credit) -> Person:
    """Return the author of an agent's step."""
    return Person(credit.text(_author_name, _author_name), f"{slug(credit.agent)}@agents.invalid")


def _author_name(text: str) -> str:
    return one_line(text, 60)


def attempt_message(number: int, node: Hash, attempt: Attempt) -> str:
    return message(
        f"attempt {number:04d} {one_line(attempt.role, 40)}: {attempt.error}",
        {
            "Uwf-Attempt": node,
            "Uwf-Role": attempt.role,
            "Uwf-Agent": attempt.agent,
            "Uwf-Code": attempt.code.commit if attempt.code else "",
        },
    )


def united_message(kind: str, node: Hash, name: str = "") -> str:
    """Return the message of a commit that unites two sides of a kind of record."""
    row = ref_kinds.kind_of_record(kind)
    assert row is not None
    return message(f"{row.word}{f' {name}' if name else ''}: two sides", {row.trailer: node})


def end_message(status: str, reason: str) -> str:
    """Return the message of an archive tag: the status, and the reason on one line if there is one."""
    return (f"{status}: {one_line(reason, 500)}" if reason.strip() else status) + "\n"


def tag_name(thread: str) -> str:
    """Return the name inside a thread's archive and fork tags."""
    return f"uwf/{thread}"


def fork_tag(fork: str, origin: str, base: Oid, when: int) -> bytes:
    """Return the content of a divergence tag at `base`, the same on every machine. `when` is in Unix seconds."""
    head = f"object {base}\ntype commit\ntag {tag_name(fork)}\ntagger uwf <uwf@localhost> {when} +0000"
    return f"{head}\n\nfork of {origin}\n".encode("ascii")


def derived_fork(fork: str, message: str, base: Oid, when: int) -> bytes | None:
    """Return the divergence tag that a tag with this message would be, None if it is of a fork that a user made."""
    origin = fork_origin(message)
    return fork_tag(fork, origin, base, when) if origin is not None and not is_forked(message) else None


def fork_message(origin: str) -> str:
    """Return the message of the tag for a fork that a user made."""
    return f"fork of {origin}\n{_FORKED}\n"


def is_fork_message(message: str, origin: str) -> bool:
    """Return whether a message is exactly one that uwf writes for a fork tag."""
    return f"{message.removesuffix(chr(10))}\n" in (f"fork of {origin}\n", fork_message(origin))


def is_forked(message: str) -> bool:
    """Return whether a fork tag's message says that a user made the fork; otherwise two sides diverged."""
    return message.split("\n")[1:2] == [_FORKED]


def pause_tag(thread: str, commit: Oid, tagger: str, when: int, message: str) -> bytes:
    """Return the content of the pause tag of a divergence's other side. `tagger` is a name and an address,
    `when` in Unix seconds."""
    head = f"object {commit}\ntype commit\ntag {tag_name(thread)}\ntagger {tagger} {when} +0000"
    return f"{head}\n\n{message}".encode()


def fork_origin(message: str) -> ThreadId | None:
    """Return the origin named in a fork tag's message, else None."""
    first = message.split("\n", 1)[0]
    origin = first.removeprefix("fork of ")
    return ThreadId(origin) if first != origin and is_thread_id(origin) else None


def pin_message(node: Hash) -> str:
    return message(f"node {node}", {"Uwf-Node": node})


def parse_message(text: str) -> Trailers | None:
    """Return the record declared in a message's last paragraph, None if the commit is not ours."""
    for key, value in _trailers_in(text):
        if is_hash(value) and (kind := ref_kinds.record_of(key)) is not None:
            return Trailers(kind, Hash(value))
    return None


def newer_record(text: str) -> str | None:
    """Return the trailer of a record of a kind that this version doesn't know, else None."""
    if parse_message(text) is not None:
        return None
    return next(
        (key for key, value in _trailers_in(text) if ref_kinds.may_record(key) and is_hash(value)), None
    )


def thread_named(text: str) -> ThreadId | None:
    """Return the thread that the message of a start names, None if it names none."""
    named = (value for key, value in _trailers_in(text) if key == THREAD_TRAILER and is_thread_id(value))
    return next(map(ThreadId, named), None)


def project_named(text: str) -> str:
    """Return the project that the message of a start names, "" if it names none."""
    return next((value for key, value in _trailers_in(text) if key == PROJECT_TRAILER), "")


def folded_month(text: str) -> str | None:
    """Return the month in a fold's message, None for other commits."""
    match = re.match(_TRAILER, _trailers_of(text).split("\n", 1)[0])
    if match and match[1] == FOLD_TRAILER and re.fullmatch(_MONTH, match[2]):
        return match[2]
    return None


def _trailers_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the trailers in a message's last paragraph."""
    for line in _trailers_of(text).split("\n"):
        if match := re.match(_TRAILER, line):
            yield match[1], match[2]
