"""Where things stand in a commit's tree, and what its message says: the parts of the format that a
stranger with plain git sees.

    .gitattributes                       marks node files as generated, so forges fold them
    README.md                            what this thread is and where it stands (from its start on)
    workflow.yaml                        the definition as its author wrote it; of a bundle workflow.esm.js, .py
    workflow/{README.md,nodes/,include/} the workflow's page, its nodes, the files it includes
    start/{README.md,nodes/}             the prompt
    steps/0003-reviewer/{README.md,nodes/}   one step; from 100 on steps/01xx/0100-reviewer
    steps/00xx.md                        the list of a full hundred of steps
    attempts/0001-reviewer/{README.md,nodes/}  only on refs/uwf/attempts/<ULID>

Extensions say in their modules what the commits of their records hold.

The README of each folder is a page that people read; `pages` makes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.base.text import one_line
from uwf_git.format.ids import Hash, ThreadId, is_hash, is_thread_id, name_problem
from uwf_git.format.kinds import Attempt, credited
from uwf_git.git.objects import Person
from uwf_git.git.repository import Oid
from uwf_git.store import ref_kinds

if TYPE_CHECKING:
    from uwf_git.format.personas import Persona

GITATTRIBUTES = b"* -text\n**/nodes/*.json linguist-generated=true gitlab-generated=true\n"

NAMESPACE = "refs/uwf/"
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
# Where a remote's published branches are; those of what is registered in versions are tracked.
BRANCHES = "refs/heads/uwf/"

# Where a workflow's version has the files that it was made of besides its definition: of a crew's, all of the package.
INCLUDED = "workflow/include/"

# The characters that may be said of why a thread is paused.
LONGEST_REASON = 500
# The characters that a person may say of a proposed version: in all, and on the first line.
LONGEST_WORDS, LONGEST_SUBJECT = 10_000, 100

_NODE_FILE = re.compile(r"(?:^|/)nodes/([0-9A-Z]{13})\.json$")
_FORKED = "forked by hand"
_UNSAFE = re.compile(r"[^\w.-]+")
_MONTH = re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])")
_TRAILER = re.compile(r"^(Uwf-[A-Za-z-]+): (.*)$")


def is_shared_ref(name: str) -> bool:
    """Whether a ref is one that travels, and its name one that uwf makes. Others are never fetched."""
    kind = ref_kinds.kind_of(name)
    if kind is None or not kind.is_shared:
        return False
    rest = name.removeprefix(kind.prefix)
    if kind.names == "name":
        return name_problem(rest) is None
    if kind.names == "month":
        return _MONTH.fullmatch(rest) is not None
    return is_hash(rest) if kind.names == "node" else is_thread_id(rest)


def is_local_ref(name: str) -> bool:
    """Whether a ref stays on this machine, one of a room that this version doesn't know among them."""
    kind = ref_kinds.kind_of(name)
    return not kind.is_shared if kind is not None else name.startswith(ref_kinds.RESERVED)


def is_newer_ref(name: str) -> bool:
    """Whether a ref is of a kind that this version doesn't know. A newer version made it: it isn't damage."""
    known = ref_kinds.kind_of(name) is not None or name.startswith(ref_kinds.RESERVED)
    return name.startswith(NAMESPACE) and not known


def is_followed_ref(name: str) -> bool:
    """Whether the index follows a ref: what is shared, and proposals."""
    kind = ref_kinds.kind_of(name)
    return kind is not None and bool(kind.target)


def is_thread_ref(name: str) -> bool:
    """Whether a ref belongs to one thread: the last part of its name is the thread's id."""
    kind = ref_kinds.kind_of(name)
    return kind is not None and kind.of_thread


def needs_thread(name: str) -> bool:
    """Whether a ref says something of a thread that has to be here. Where one parted from another is kept without."""
    return is_thread_ref(name) and not name.startswith((THREADS, ARCHIVE, FORKS))


def is_of_versions(branch: str) -> bool:
    """Whether a remote's branch is that of something that is registered in versions."""
    return branch.startswith(BRANCHES) and branch.startswith(branches_of_versions())


def shared() -> tuple[str, ...]:
    """The prefixes of the refs that travel, in the order of a transfer: one that is cut off leaves what makes sense."""
    return tuple(kind.prefix for kind in ref_kinds.every() if kind.is_shared)


def of_threads() -> tuple[str, ...]:
    """The prefixes of the refs that belong to one thread."""
    return tuple(kind.prefix for kind in ref_kinds.every() if kind.of_thread)


def branches_of_versions() -> tuple[str, ...]:
    """Where the branches are of what is registered in versions, by the kinds of these."""
    return tuple(kind.branches for kind in ref_kinds.versioned().values())


def word_for(ref: str) -> str:
    """What messages call what a ref of no thread is of: "workflow"; "" if there is no word for it."""
    kind = ref_kinds.kind_of(ref)
    return kind.word if kind is not None and not kind.of_thread else ""


def words() -> dict[str, str]:
    """What messages call what refs of no thread are of, by their prefixes; first what is registered in versions."""
    kinds = sorted(ref_kinds.every(), key=lambda kind: not kind.branches)
    return {kind.prefix: kind.word for kind in kinds if kind.word and not kind.of_thread}


def refs_of_threads(threads: Iterable[ThreadId]) -> dict[str, ThreadId]:
    """Every ref that threads may have, with the thread that it would be of."""
    return {prefix + thread: thread for thread in threads for prefix in of_threads()}


def namespace_of(ref: str) -> str:
    """A ref's name without its last part: `refs/uwf/threads/`."""
    return ref[: ref.rindex("/") + 1]


def thread_of(ref: str) -> ThreadId:
    """The thread that a ref of a thread is about."""
    return ThreadId(ref[ref.rindex("/") + 1 :])


def removed(ref: str) -> str:
    """Where what a ref of a thread pointed at is kept, once the thread was removed here."""
    return REMOVED + ref.removeprefix(NAMESPACE)


def tracking(remote: str, name: str) -> str:
    """Where a remote's shared ref, or its branch of a published workflow or crew, is tracked."""
    if is_of_versions(name):
        return f"{REMOTES}{remote}/branches/{name.removeprefix(BRANCHES)}"
    return f"{REMOTES}{remote}/{name.removeprefix(NAMESPACE)}"


def tracked(remote: str, name: str) -> str:
    """The remote's name of what a tracking ref tracks: the inverse of `tracking`."""
    rest = name.removeprefix(f"{REMOTES}{remote}/")
    if rest.startswith("branches/"):
        return BRANCHES + rest.removeprefix("branches/")
    return NAMESPACE + rest


def node_file(node: Hash) -> str:
    """Where a node's file stands in the folder of a record: `nodes/<hash>.json`."""
    return f"nodes/{node}.json"


def node_in_path(path: str) -> Hash | None:
    """The hash that a path promises, if it is a node's."""
    match = _NODE_FILE.search(path)
    return Hash(match.group(1)) if match and is_hash(match.group(1)) else None


def slug(role: str) -> str:
    """A role's name as part of a path: letters, digits, dots and dashes, at most 40."""
    name = role.removeprefix("$").lower() if role.startswith("$") else role
    return _UNSAFE.sub("-", name).strip(".-")[:40] or "role"


def step_folder(number: int, role: str) -> tuple[str, ...]:
    """The folders of a step below the root: ("steps", "0003-reviewer"), and from step 100 on with a
    century between, so that no folder outgrows a few hundred entries."""
    name = f"{number:04d}-{slug(role)}"
    if number < 100:
        return ("steps", name)
    return ("steps", f"{number // 100:02d}xx", name)


def attempt_folder(number: int, role: str) -> tuple[str, ...]:
    """The folders of a failed attempt below the root."""
    return ("attempts", f"{number:04d}-{slug(role)}")


class Trailers(NamedTuple):
    """What the trailers of a commit message name: the kind of record and the node it is about."""

    kind: str
    node: Hash


FOLD_TRAILER = "Uwf-Fold"


def message(subject: str, trailers: dict[str, str], body: str = "") -> str:
    """A commit message whose last paragraph are trailers."""
    parts = [one_line(subject, 100)]
    if body:
        parts.append(body.strip())
    parts.append("\n".join(f"{key}: {one_line(value, 200)}" for key, value in trailers.items() if value))
    return "\n\n".join(parts) + "\n"


def workflow_message(name: str, node: Hash) -> str:
    """The message of a workflow version."""
    return message(f"workflow {name} {node}", {"Uwf-Workflow": node})


def in_words(words: str, message: str) -> str:
    """The message of a version with a person's words in place of its subject; the trailers stay. Raises Invalid."""
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
    """Whether a text is `message` with other words before its trailers, none of which acts on a terminal."""
    words = text.removesuffix(f"\n\n{_trailers_of(message)}\n")
    return (
        words != text
        and len(words) <= LONGEST_WORDS
        and words.replace("\n", "").replace("\t", "").isprintable()
    )


def _trailers_of(message: str) -> str:
    return message.rstrip("\n").rsplit("\n\n", 1)[-1]


def crew_definition(crew: str, workflow: str) -> bytes:
    """The file that says which workflow of which crew a version is of."""
    said = json.dumps({"crew": crew, "workflow": workflow}, ensure_ascii=False, separators=(",", ":"))
    return f"{said}\n".encode()


def start_message(workflow: str, prompt: str, node: Hash) -> str:
    """The message of a thread's beginning: its subject is the workflow and the task's first line."""
    first = next((line for line in prompt.splitlines() if line.strip()), "start")
    return message(f"start {workflow}: {first}", {"Uwf-Start": node})


def step_message(number: int, node: Hash, role: str, agent: str, verdict: str, extraction: str) -> str:
    """The message of a step. `verdict` is what `pages.verdict` says of its output, `extraction` "" where the detail
    has none."""
    return message(
        f"{number:04d} {one_line(role, 40)}" + (f": {verdict}" if verdict else ""),
        {"Uwf-Step": node, "Uwf-Role": role, "Uwf-Agent": agent, "Uwf-Extraction": extraction},
    )


def agent_author(agent: str, persona: Persona | None = None) -> Person:
    """The author of the commit of an agent's step, for which a persona spoke: `Ada (uwf-claude-code)`."""
    spoke = persona and persona._replace(name=one_line(persona.name, 60))
    return Person(credited(one_line(agent, 60), spoke), f"{slug(agent)}@agents.invalid")


def attempt_message(number: int, node: Hash, attempt: Attempt) -> str:
    """The message of a failed attempt."""
    return message(
        f"attempt {number:04d} {one_line(attempt.role, 40)}: {attempt.error}",
        {"Uwf-Attempt": node, "Uwf-Role": attempt.role, "Uwf-Agent": attempt.agent},
    )


def tag_name(thread: str) -> str:
    """What a thread's archive tag and fork tag are called in the tag object."""
    return f"uwf/{thread}"


def fork_tag(fork: str, origin: str, base: Oid, when: int) -> bytes:
    """The content of the tag that says that a thread parted from another at `base`: the same on every machine.
    `when` is in Unix seconds."""
    head = f"object {base}\ntype commit\ntag {tag_name(fork)}\ntagger uwf <uwf@localhost> {when} +0000"
    return f"{head}\n\nfork of {origin}\n".encode("ascii")


def fork_message(origin: str) -> str:
    """The message of the tag that says that somebody has forked a thread from another: its tagger, at its time."""
    return f"fork of {origin}\n{_FORKED}\n"


def is_fork_message(message: str, origin: str) -> bool:
    """Whether a fork tag's message is one that uwf writes, to the last character."""
    return f"{message.removesuffix(chr(10))}\n" in (f"fork of {origin}\n", fork_message(origin))


def is_forked(message: str) -> bool:
    """Whether a fork tag's message says that somebody wanted the fork. Without that, two sides have diverged."""
    return message.split("\n")[1:2] == [_FORKED]


def pause_tag(thread: str, commit: Oid, tagger: str, when: int, message: str) -> bytes:
    """The content of a tag that says of a thread what was said of the one it parted from. `tagger` is a name and an
    address, `when` in Unix seconds."""
    head = f"object {commit}\ntype commit\ntag {tag_name(thread)}\ntagger {tagger} {when} +0000"
    return f"{head}\n\n{message}".encode()


def fork_origin(message: str) -> ThreadId | None:
    """The thread that a fork tag's message says it parted from; None where it says nothing of the kind."""
    first = message.split("\n", 1)[0]
    origin = first.removeprefix("fork of ")
    return ThreadId(origin) if first != origin and is_thread_id(origin) else None


def pin_message(node: Hash) -> str:
    """The message of a commit that keeps a node put by hand."""
    return message(f"node {node}", {"Uwf-Node": node})


def parse_message(text: str) -> Trailers | None:
    """The record a message declares in its last paragraph; None where it is no commit of ours."""
    last = text.rstrip("\n").rsplit("\n\n", 1)[-1]
    for line in last.split("\n"):
        match = _TRAILER.match(line)
        if match and is_hash(match[2]) and (kind := ref_kinds.record_of(match[1])) is not None:
            return Trailers(kind, Hash(match[2]))
    return None


def folded_month(text: str) -> str | None:
    """The month that a message says a fold is of; None where it is that of another commit."""
    last = text.rstrip("\n").rsplit("\n\n", 1)[-1]
    match = _TRAILER.match(last.split("\n", 1)[0])
    if match and match.group(1) == FOLD_TRAILER and _MONTH.fullmatch(match.group(2)):
        return match.group(2)
    return None
