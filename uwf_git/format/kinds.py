"""Values of the built-in node kinds, parsed from and converted to payloads."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.base.text import one_line
from uwf_git.format.credit import Credit
from uwf_git.format.edges import Transition, parse_edges
from uwf_git.format.ids import Hash, is_hash
from uwf_git.format.origins import CALL, EDITED, ThreadOrigin, parse_origin
from uwf_git.format.payloads import from_payload, to_payload
from uwf_git.format.statuses import NEEDS_INPUT, SUSPEND
from uwf_git.format.types import (
    BMAD,
    CACHING_DETAIL,
    CACHING_TURN,
    CREW_DEFINITION,
    DEFINITIONS,
    DETAIL,
    ISSUE_START,
    PERSON,
    RESUME,
    START,
    STARTNODE,
    TURN,
    USER,
    is_kind,
)
from uwf_git.format.words import CAUSES, FAILED, require_known_words

if TYPE_CHECKING:
    from uwf_git.format.node import Node
    from uwf_git.format.personas import Persona

REHEARSE = "uwf-rehearse"
"""The agent that makes its answers up."""
HUMAN = "uwf-human"
"""The agent that is a person."""
INTERRUPTED, PAUSED_NOW, KILLED_NOW = (
    "interrupted",
    "broken off by a pause",
    "broken off, the thread was killed",
)
# Errors of attempts that nothing was wrong with.
STEP_INTERRUPTED = "the step was interrupted"
"""The error of a step whose engine was killed."""
ENDED_BY_USER = frozenset({INTERRUPTED, PAUSED_NOW, KILLED_NOW})
EXTRACT = "extract"
"""The tool whose turns hold what a model read out of a text."""
EXEC = "uwf-exec"
"""The agent that is a command."""
SUBWORKFLOW = "uwf-workflow"
"""The agent that does a step by a thread of its own."""
BODY = "_body"  # in a template: the text below the fields of the last answer
COMPLETE = "workflow is complete"
"""The condition of a package's nodes that ends a run whose variables say so."""
CONTENT, TIMESTAMP = "content", "timestamp"
"""The fields of a step in expressions: its agent's answer, and when it was made."""


class PackageNode(NamedTuple):
    """A node of a package's graph. `type` is step, decision, merge or end; `file` the path of its document in
    the package; `inputs` and `outputs` are paths below the project."""

    type: str
    file: str
    title: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


class Origin(NamedTuple):
    """A workflow's crew: its name, the workflow's id, the package's format, the paths of the entry document
    and the graph ("" if none), and a run's initial variables."""

    name: str
    workflow: str
    format: str
    entry: str = ""
    graph: str = ""
    variables: Mapping[str, Any] = {}


class Identity(NamedTuple):
    """A person, as git's user.name and user.email have it."""

    name: str
    email: str

    def __str__(self) -> str:
        return f"{self.name} <{self.email}>"


class Retry(NamedTuple):
    """How often a role's failed attempt is followed by another: `times` after the first, `backoff` seconds
    later and twice as long each time, if its cause is one of `on`."""

    times: int
    backoff: float = 10.0
    on: tuple[str, ...] = CAUSES


class Role(NamedTuple):
    """A role, with either a `system_prompt` or a `goal` and its companions. `tools` restricts what the user's
    configuration allows. `extract_prompt` is for the extraction model. `persona` is a fixed speaker's id or
    "", `node` the package's node in a crew's workflow. `timeout` limits an attempt, in seconds; `fallback`
    names the agent that plays the role when its own is throttled, "" for none. A `human` role is a person's:
    the `assignee`'s, if that isn't "". With `approvers`, only these may answer, and `quorum` of them must agree;
    with `not_author`, none who made what is judged; with `signed`, only by a signed commit."""

    name: str
    description: str
    schema: Hash
    system_prompt: str = ""
    goal: str = ""
    capabilities: tuple[str, ...] = ()
    procedure: str = ""
    output: str = ""
    tools: Mapping[str, Any] | None = None
    extract_prompt: str = ""
    persona: str = ""
    node: PackageNode | None = None
    timeout: float | None = None
    retry: Retry | None = None
    fallback: str = ""
    human: bool = False
    assignee: str = ""
    approvers: tuple[str, ...] = ()
    quorum: int = 1
    not_author: bool = False
    signed: bool = False

    @property
    def is_gate(self) -> bool:
        return bool(self.approvers)

    def request(self, instruction: str | None) -> str:
        """Return what a person is asked who plays the role: the edge's prompt, else what the role is."""
        return instruction or self.description.strip() or f"Play the role {self.name}."


class Condition(NamedTuple):
    """A named JSONata expression over `{start, steps}`."""

    name: str
    description: str
    expression: str


class Code(NamedTuple):
    """A code workflow's file. `language` is javascript or python; `id` the XXH64 of its bytes; `sha256` is
    for trust. `max_rounds` is the default limit on a thread's steps."""

    language: str
    id: str
    sha256: str
    size: int
    max_rounds: int | None = None


class Workflow(NamedTuple):
    """A compiled workflow. `graph` maps a role or $START to its edges in order. `budget` limits each thread:
    maxSteps, maxTokens, maxCost (US dollars), maxWallTime (seconds). With `code`, the code decides and
    `graph` is only its description. `crew` is its origin, and `personas` are that crew's by id. `workspace` is
    where its agents work, "" if it doesn't say."""

    name: str
    description: str
    roles: Mapping[str, Role]
    conditions: Mapping[str, Condition]
    graph: Mapping[str, tuple[Transition, ...]]
    budget: Mapping[str, float] | None = None
    code: Code | None = None
    crew: Origin | None = None
    personas: Mapping[str, "Persona"] = {}
    workspace: str = ""

    @property
    def resume(self) -> int | None:
        """The index of the $START edge for resuming finished threads, None if there is none."""
        edges = enumerate(self.graph.get(START, ()))
        return next((place for place, edge in edges if edge.status == RESUME), None)

    def stops(self, edge: Transition) -> bool:
        """Whether an edge isn't part of the graph: a package's generated edge from every node to $END for
        completed runs."""
        return self.crew is not None and self.crew.format == BMAD and edge.condition == COMPLETE

    @property
    def step_fields(self) -> tuple[str, ...]:
        """The fields of a step that conditions may use besides role, output, detail and agent."""
        conditions = (condition.expression for condition in self.conditions.values())
        return step_fields(" ".join((*conditions, *self.item_expressions)))

    @property
    def item_expressions(self) -> list[str]:
        """The expressions of its fan-outs."""
        return [edge.items for edge in self.edges if edge.items]

    @property
    def templates(self) -> list[str]:
        """The prompts and locations of its edges, joins and branches."""
        return [text for edge in self.edges for text in edge.templates]

    @property
    def edges(self) -> Iterator[Transition]:
        """All edges of the graph, each followed by those of its join."""
        for edges in self.graph.values():
            for edge in edges:
                yield edge
                yield from edge.join

    def is_persons(self, role: str) -> bool:
        """Return whether a person plays a role; False for one that the workflow doesn't have."""
        known = self.roles.get(role)
        return known is not None and known.human

    @property
    def has_gates(self) -> bool:
        """Whether one of its roles needs approvals."""
        return any(role.is_gate for role in self.roles.values())

    @property
    def needs_answers(self) -> bool:
        """Whether decisions or prompts depend on agents' answers besides their outputs."""
        return any(BODY in text for text in self.templates) or CONTENT in self.step_fields

    @property
    def package(self) -> str:
        """The name of the package that it is a part of, "" if of none."""
        return self.crew.name if self.crew is not None else ""

    @property
    def kind(self) -> str:
        return "crew" if self.crew is not None else "workflow" if self.code is None else "code"

    @property
    def file(self) -> str:
        """The name of the definition in a version's tree."""
        if self.crew is not None:
            return CREW_DEFINITION
        return DEFINITIONS[None if self.code is None else self.code.language]


class StartIssue(NamedTuple):
    """The issue that a thread's task is: `author` is a login, `read_at` in Unix seconds. Its text is that of the
    prompt's last `length` characters, and `sha256` the digest of it in UTF-8."""

    url: str
    number: int
    title: str
    author: str
    labels: tuple[str, ...]
    read_at: int
    length: int
    sha256: str

    @property
    def key(self) -> str:
        """Its name on a tracker, such as SHOP-42, with which the address of its page ends; on a forge its number."""
        last = self.url.rpartition("/")[2]
        return last if _KEY.fullmatch(last) and last.endswith(f"-{self.number}") else str(self.number)

    def value(self) -> dict[str, Any]:
        """Return the ISSUE_FIELDS, which templates and conditions have of it."""
        payload = {**to_payload(self), "key": self.key}
        return {name: payload[name] for name in ISSUE_FIELDS}


ISSUE_FIELDS = "url", "number", "key", "title", "author", "labels"
_KEY = re.compile(r"[A-Z][A-Z0-9_]{0,99}-[1-9][0-9]{0,17}")


class Start(NamedTuple):
    """A StartNode. `budget` is this thread's own; `max_rounds` is for code workflows. In a crew, `persona` is
    the default's id, and `data` a file from the menu: `path`, `format` (json, yaml, csv, xml or text), the
    beginning of its `text`, and `size` in bytes. `branch` is set if the thread is a branch of another, `call` if
    it is a call of code, or a run of edited code. `issue` is set if the prompt ends with an issue's text."""

    workflow: Hash
    prompt: str
    budget: Mapping[str, float] | None = None
    max_rounds: int | None = None
    persona: str = ""
    data: Mapping[str, Any] | None = None
    branch: ThreadOrigin | None = None
    call: ThreadOrigin | None = None
    issue: StartIssue | None = None

    @property
    def heading(self) -> str:
        """The text whose first line names the thread: the prompt, or the title of an issue that is all of it."""
        if self.issue is None or self.issue.length < len(self.prompt):
            return self.prompt
        key = self.issue.key
        return f"{one_line(self.issue.title, 80)} ({'#' if key.isdecimal() else ''}{key})"

    @property
    def has_parts(self) -> bool:
        """Whether it has fields that only some kinds of workflow have."""
        return bool(self.persona) or self.data is not None

    def typed_payload(self) -> tuple[Hash, Any]:
        """Return the type and payload of its node."""
        type_hash = STARTNODE if self.issue is None else ISSUE_START
        return type_hash, to_payload(self._replace(branch=self.branch or self.call, call=None))


class Step(NamedTuple):
    """A StepNode. `prev` is None for the first step."""

    start: Hash
    prev: Hash | None
    role: str
    output: Hash
    detail: Hash
    agent: str

    def payload(self) -> dict[str, Any]:
        return self._asdict()

    def context(
        self, node: Hash, output: Any, credit: Credit, answer: str | None = None, time: int = 0
    ) -> "StepContext":
        """Return the step, whose node is `node`, as moderator and agents see it."""
        return StepContext(
            node, self.role, output, self.detail, self.agent, answer or "", time, credit.persona
        )


class StepContext(NamedTuple):
    """A step as moderator and agents see it. `output` is the payload itself. `answer` is the agent's verbatim
    answer, read only if the workflow needs it, else ""; `time` is in Unix milliseconds, 0 if unknown."""

    hash: Hash
    role: str
    output: Any
    detail: Hash
    agent: str
    answer: str = ""
    time: int = 0
    persona: "Persona | None" = None

    @property
    def credit(self) -> Credit:
        return Credit(self.agent, self.persona)

    @property
    def by(self) -> str:
        return self.credit.text()

    @property
    def remark(self) -> str | None:
        """The text of a remark, which decisions ignore; None for other steps."""
        return remark_in(self.role, self.output)


class Usage(NamedTuple):
    """Tokens. `cached` is the part of `input` from the provider's cache, `written` the part written into it."""

    input: int
    output: int
    cached: int = 0
    written: int = 0

    def payload(self) -> dict[str, int]:
        return to_payload(self, always=("cached",))


class TurnRecord(NamedTuple):
    """A Turn node: `role` is user, assistant or tool. A tool's turn has its name, arguments and result, the
    model's `call` id, and whether it failed. An assistant's turn with tool calls is followed by one turn per
    call."""

    role: str
    text: str
    tool: str | None = None
    arguments: Any = None
    result: Any = None
    usage: Usage | None = None
    duration_ms: int | None = None
    model: str | None = None
    call: str | None = None
    failed: bool = False

    @property
    def is_remark(self) -> bool:
        """Whether a person said it to the running agent: `call` is the remark's id, and `arguments` have who said it
        when."""
        return self.role == "user" and self.call is not None

    @property
    def type(self) -> Hash:
        """The type of its node."""
        return CACHING_TURN if self.usage is not None and self.usage.written else TURN

    def payload(self) -> dict[str, Any]:
        of_tool = ("arguments", "result") if self.tool is not None else ()
        return to_payload(self, always=of_tool)


class Revision(NamedTuple):
    """The code that a step left: a commit of a project's repository, its tree, and the commit that the step
    began at, in hexadecimal. The repository is known by its first commit `root` and the URL of its remote, ""
    if unknown."""

    commit: str
    tree: str
    base: str
    root: str = ""
    remote: str = ""

    @property
    def is_changed(self) -> bool:
        """Whether the step changed anything."""
        return self.commit != self.base

    def is_later(self, begun: "Revision") -> bool:
        """Whether it is another commit than `begun`, the code of a fork, and not known to be of another project."""
        is_same = not self.root or not begun.root or self.root == begun.root
        return self.commit != begun.commit and is_same

    def payload(self) -> dict[str, str]:
        return to_payload(self)


class CallCounts(NamedTuple):
    """The calls of a code workflow's step: how many were asked, `failed`, and were `dropped` because the code went on
    without them; `tolerated` may fail."""

    asked: int
    failed: int
    dropped: int
    tolerated: int


class Detail(NamedTuple):
    """A Detail node. `turns` are Turn nodes; `context` is the head that the prompt was built from; `cost` is
    in US dollars; `budget` holds raised limits; `redactions` are the places and numbers of removed secrets.
    Of an imported step, `source` is its original id and `nodes` its original nodes. `code` is what it left in
    a worktree, `kept` the Session node of the agent's program, `approvals` the Approval nodes of the people whose
    answer it is, `calls` those of code, if any failed or were dropped."""

    answer: str
    turns: tuple[Hash, ...] = ()
    session: str | None = None
    model: str | None = None
    usage: Usage | None = None
    duration_ms: int = 0
    instruction: str | None = None
    context: Hash | None = None
    extraction: str = "native"
    cost: float | None = None
    notes: tuple[str, ...] = ()
    budget: Mapping[str, float] | None = None
    redactions: tuple[tuple[str, int], ...] = ()
    source: str | None = None
    nodes: tuple[Hash, ...] = ()
    code: Revision | None = None
    kept: Hash | None = None
    approvals: tuple[Hash, ...] = ()
    calls: CallCounts | None = None

    @property
    def type(self) -> Hash:
        """The type of its node."""
        return CACHING_DETAIL if self.usage is not None and self.usage.written else DETAIL

    @property
    def references(self) -> list[Hash]:
        """The nodes that it refers to."""
        others = filter(None, (self.context, self.kept))
        return [*self.turns, *others, *self.nodes, *self.approvals]

    def payload(self) -> dict[str, Any]:
        always = ("turns", "session", "model", "usage", "duration_ms", "instruction", "context", "extraction")
        payload = to_payload(self, always if self.source is None else (*always, "nodes"))
        if self.redactions:
            payload["redactions"] = [{"where": where, "count": count} for where, count in self.redactions]
        return payload


class SessionFile(NamedTuple):
    """A file of a program's session: its path below the program's folder of sessions, and its Text nodes."""

    path: str
    parts: tuple[Hash, ...]


class Session(NamedTuple):
    """A Session node: the files of a program's session, by the session's id. The program worked in `folder`."""

    program: str
    session: str
    folder: str
    files: tuple[SessionFile, ...]

    def payload(self) -> dict[str, Any]:
        return to_payload(self)


class Attempt(NamedTuple):
    """An Attempt node: a failed step. `prev` is the StepNode before, None at the start; `detail` is None
    without turns; `stdout` and `stderr` are the ends of its output; `code` is what it left in a worktree.
    `cause` is one of CAUSES; `resets_at` is when a throttling provider answers again (Unix seconds), None if
    it didn't say."""

    start: Hash
    prev: Hash | None
    role: str
    agent: str
    error: str
    detail: Hash | None = None
    stdout: str = ""
    stderr: str = ""
    code: Revision | None = None
    cause: str = FAILED
    resets_at: int | None = None

    def payload(self) -> dict[str, Any]:
        return to_payload(self, always=("detail",))


def parse_workflow(payload: Any) -> Workflow:
    """Parse a valid Workflow payload, of a code workflow too. Raises Invalid, UnknownWord."""
    try:
        require_known_words("Bundle" if "file" in payload else "Workflow", payload, payload["name"])
        return from_payload(
            Workflow,
            payload,
            roles={name: _parse_role(name, role) for name, role in payload["roles"].items()},
            conditions={
                name: Condition(name, item["description"], item["expression"])
                for name, item in payload.get("conditions", {}).items()
            },
            graph={source: parse_edges(edges) for source, edges in payload["graph"].items()},
            code=_parse_code(payload) if "file" in payload else None,
            crew=from_payload(Origin, payload["crew"]) if "crew" in payload else None,
            personas=_parse_personas(payload["personas"]) if "personas" in payload else {},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"a Workflow node has no valid {error}") from None


def _parse_personas(payload: Any) -> "dict[str, Persona]":
    from uwf_git.format.personas import parse_persona

    return {name: parse_persona(name, item) for name, item in payload.items()}


def _parse_code(payload: Any) -> Code:
    return from_payload(Code, {**payload, **payload["file"]})


def _parse_role(name: str, role: Any) -> Role:
    own = {
        "name": name,
        "schema": schema_of_role(role),
        "node": from_payload(PackageNode, role["node"]) if "node" in role else None,
        "retry": from_payload(Retry, role["retry"]) if "retry" in role else None,
    }
    return from_payload(Role, role, **own)


def schema_of_role(role: Any) -> Hash:
    """Return the hash of the schema of a role's outputs, from its part of a valid Workflow payload."""
    return Hash(role["outputSchema"] if "outputSchema" in role else role["frontmatter"])


def parse_start(payload: Any) -> Start:
    """Parse a StartNode's payload. Raises Invalid."""
    may_have = {"budget", "maxRounds", "persona", "data", "branch", "issue"}
    if (
        not isinstance(payload, dict)
        or payload.keys() - may_have != {"workflow", "prompt"}
        or not is_hash(payload["workflow"])
        or not isinstance(payload["prompt"], str)
        or not isinstance(payload.get("budget", {}), dict)
        or not isinstance(payload.get("maxRounds", 1), int)
        or not isinstance(payload.get("persona", ""), str)
        or not isinstance(payload.get("data", {}), dict)
        or not isinstance(payload.get("branch", {}), dict)
        or not ("issue" not in payload or _is_issue(payload["issue"]))
    ):
        raise Invalid(
            "not a StartNode: it has a workflow (a hash), a prompt (text), and maybe a budget, maxRounds, persona,"
            " data, branch, issue"
        )
    branch = parse_origin(payload["branch"]) if "branch" in payload else None
    is_call = branch is not None and branch.name in (CALL, EDITED)
    origins = {"branch": None if is_call else branch, "call": branch if is_call else None}
    issue = from_payload(StartIssue, payload["issue"]) if "issue" in payload else None
    return from_payload(Start, payload, **origins, issue=issue)


_OF_ISSUES = {**dict.fromkeys(("number", "readAt", "length"), int), "labels": list}
_OF_ISSUES |= dict.fromkeys(("url", "title", "author", "sha256"), str)


def _is_issue(payload: Any) -> bool:
    return (
        isinstance(payload, dict)
        and payload.keys() == _OF_ISSUES.keys()
        and all(type(payload[key]) is kind for key, kind in _OF_ISSUES.items())
        and all(isinstance(label, str) for label in payload["labels"])
    )


_OF_STEPS = frozenset(Step._fields)


def agent_name_problem(name: str) -> str:
    """Return why an agent's name is invalid, "" if valid. "human" and names with $ are reserved."""
    if not name.strip() or not name.isprintable():
        return "which is not a line of printable characters"
    if name.strip().casefold() == PERSON or name.lstrip().startswith("$"):
        return "which is not an agent's name"
    return ""


def parse_step(payload: Any) -> Step:
    """Parse a StepNode's payload. Raises Invalid."""
    if not isinstance(payload, dict) or payload.keys() != _OF_STEPS:
        raise Invalid(f"not a StepNode: it has exactly {', '.join(Step._fields)}")
    for name in ("start", "output", "detail"):
        if not is_hash(payload[name]):
            raise Invalid(f"not a StepNode: {name} is not a hash")
    if payload["prev"] is not None and not is_hash(payload["prev"]):
        raise Invalid("not a StepNode: prev is neither a hash nor null")
    if not isinstance(payload["role"], str) or not isinstance(payload["agent"], str):
        raise Invalid("not a StepNode: role and agent are text")
    return Step(**payload)


def parse_turn(payload: Any) -> TurnRecord:
    """Parse a valid Turn payload."""
    return from_payload(TurnRecord, payload, usage=_usage(payload.get("usage")))


def parse_detail(payload: Any) -> Detail:
    """Parse a valid Detail payload."""
    return from_payload(
        Detail,
        payload,
        usage=_usage(payload["usage"]),
        redactions=tuple((removed["where"], removed["count"]) for removed in payload.get("redactions", ())),
        code=_revision(payload),
        calls=from_payload(CallCounts, payload["calls"]) if "calls" in payload else None,
    )


def parse_session(payload: Any) -> Session:
    """Parse a valid Session payload."""
    files = tuple(from_payload(SessionFile, file) for file in payload["files"])
    return from_payload(Session, payload, files=files)


def parse_attempt(payload: Any, node: str = "") -> Attempt:
    """Parse a failed attempt from its node's payload. Raises UnknownWord, which names `node`."""
    require_known_words("Attempt", payload, node)
    return from_payload(Attempt, payload, code=_revision(payload))


def _revision(payload: Any) -> Revision | None:
    return from_payload(Revision, payload["code"]) if "code" in payload else None


def _usage(value: Any) -> Usage | None:
    return from_payload(Usage, value) if value else None


def status_of(output: Any) -> str | None:
    """Return an output's `$status`, else its `status`, else None."""
    if isinstance(output, dict):
        for key in ("$status", "status"):
            if isinstance(value := output.get(key), str):
                return value
    return None


def step_fields(expression: str) -> tuple[str, ...]:
    """Return the step fields that an expression uses, which are provided only then."""
    return tuple(name for name in (CONTENT, TIMESTAMP) if name in expression)


def answer_in(detail_type: str, detail: Any) -> str | None:
    """Return the verbatim answer in a step's detail, None if it has no text."""
    if is_kind(detail_type, "detail"):
        return parse_detail(detail).answer
    return detail if is_kind(detail_type, "text") and isinstance(detail, str) else None


def may_have_code(detail: "Node") -> bool:
    """Return whether a step with this detail may have left code: itself, or in a sub-workflow."""
    return not is_kind(detail.type, "detail") or "code" in detail.payload


def asks_human(output: Any) -> bool:
    """Return whether an output is the reserved question."""
    return isinstance(output, dict) and (
        output.get("$status") == SUSPEND or output.get("status") == NEEDS_INPUT
    )


def remark_in(role: str, output: Any) -> str | None:
    """Return the text of a remark step, None for other steps."""
    if role != USER or not isinstance(output, dict) or output.keys() != {"remark"}:
        return None
    return output["remark"] if isinstance(output["remark"], str) else None


def split_remarks(steps: Sequence[StepContext]) -> tuple[Sequence[StepContext], tuple[str, ...]]:
    """Split steps, oldest first, into those up to the last one that isn't a remark, and the texts of the
    remarks after it."""
    end = len(steps)
    while end and steps[end - 1].remark is not None:
        end -= 1
    if end == len(steps):
        return steps, ()
    return steps[:end], tuple(step.remark or "" for step in steps[end:])


def replied(text: str) -> dict[str, str]:
    """Return the output of a conversation's reply, after which it is the user's turn."""
    return {"$status": SUSPEND, "summary": title_of(text) if text.strip() else ""}


def reply_in(output: Any) -> str | None:
    """Return the first line of a reply's output, None for others."""
    if (
        not isinstance(output, dict)
        or output.keys() != {"$status", "summary"}
        or output["$status"] != SUSPEND
    ):
        return None
    return output["summary"] if isinstance(output["summary"], str) else None


SAID_ABOUT = "Said about "
"""The beginning of a text of `forge.feedback_text`; the URL of the reviewed change follows."""


def is_review(text: str) -> bool:
    """Return whether a text is what reviewers said about a thread's work."""
    return text.startswith((f"{SAID_ABOUT}http://", f"{SAID_ABOUT}https://"))


def title_of(prompt: str) -> str:
    """Return a prompt's first meaningful line, without heading marks."""
    first = next((line.strip("# \t") for line in prompt.splitlines() if line.strip("# \t")), "A thread")
    return one_line(first, 100)
