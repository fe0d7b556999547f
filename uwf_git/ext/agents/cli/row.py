"""Rows of the agent program table: how a program is called, and how its output is read. Users write them too:
docs/reference/agent-rows.md has the keys, and `shipped/` has the shipped rows.

Only values that `complete` lists end a run: name the good ones. Without `aside` the values that the row does not
describe have no significance. With it, `[]` for none, all but those have: one after the last message means that
this was not the answer, and `text` must repeat that message.

In the `folder` of `sessions`, `{project}` is the folder whose file `.project_root` names the step's folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.plugin import NamedAgent, nearest, one_line

if TYPE_CHECKING:
    from uwf_git.plugin import Config, ConfigReader

SECTION = "agentClis"
ANY_ROW = "uwf-cli"
"""The agent that takes the name of a row of `agentClis`."""

EVERY, KEYS = "[]", "[keys]"
OUTPUTS = ("lines", "json", "text")
PROMPTS = ("stdin", "argument", "messages")
"""With `messages` it is a line of JSON, as claude reads it, and further lines are remarks, until the program has
printed a value that `inputEnd` describes."""
SUMS = ("last", "sum", "session")
CONDITIONS = (
    *("always", "write", "readonly", "run", "norun", "fetch", "nofetch", "network", "nomcp"),
    *("crew", "crewwrite", "asking"),
)
PLACEHOLDERS = ("args", "new", "session", "prompt", "cwd")
STREAMS = ("stdout", "stderr", "log")

_STEP = re.compile(r"\.([^.\[\]]+)|\[(-?\d+|keys)?\]")
_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")
_SAID = re.compile(r"\{([.\[][^{}]*)\}")
_VERSION = re.compile(r"\d+(\.\d+){0,3}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

Path = tuple[str | int, ...]
Tests = tuple[tuple[Path, tuple[Any, ...]], ...]


class Select(NamedTuple):
    """Selects printed values by `when`, or their items at `each` by `where`."""

    when: Tests = ()
    each: Path | None = None
    where: Tests = ()


class Find(NamedTuple):
    """Locates a value. `pattern` captures its first group, or the whole match. `say` alternates words and
    paths."""

    path: Path = ()
    select: Select = Select()
    pattern: str | None = None
    stream: str = "stdout"
    say: tuple[str | Path, ...] = ()


class UsageAt(NamedTuple):
    """Locates tokens and cost. Finds and matches are added up; `total` is "last" (the last value counts),
    "sum", or "session" (the session so far). Of values with the same `by`, the last counts, and these are
    added. The cost is unknown if a value matches `guess`. The first place with any counts."""

    input: tuple[Find, ...]
    output: tuple[Find, ...]
    cached: tuple[Find, ...] = ()
    written: tuple[Find, ...] = ()
    cost: tuple[Find, ...] = ()
    select: Select = Select()
    total: str = "last"
    by: Path | None = None
    guess: Tests = ()
    stream: str = "stdout"


class TurnAt(NamedTuple):
    """Locates turns. With `text` it is the assistant's; texts of one `group` are joined, as are pieces marked
    by `delta`. With `tool` it is a call, with `result` its result; separate ones are matched by `call`. `whole`
    holds for a printed value whose message is finished."""

    select: Select
    text: Path | None = None
    group: Path | None = None
    delta: bool = False
    call: Path | None = None
    tool: Path | None = None
    arguments: Path | None = None
    result: Path | None = None
    failed: Tests = ()
    whole: Tests = ()


class Option(NamedTuple):
    """Arguments and variables added while a condition holds, unless the user's arguments have one of
    `unless`, or a file exists at a path in it. See `CONDITIONS`."""

    when: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    unless: tuple[str, ...] = ()


class SecondCall(NamedTuple):
    """A second call after the run, whose JSON has model, usage and turns. Its items at `each` after the last
    that matches `since` are read."""

    args: tuple[str, ...]
    each: Path | None = None
    since: Tests = ()


class LinesAt(NamedTuple):
    """Locates things in the lines of a session, or the messages of an exported one: those for which `when` holds, of
    those with the same `by` the last. A `prompt` begins an exchange; `time` is ISO 8601 or Unix milliseconds; `folder`
    is where the program worked. `reads` has the rest as a row has it for output."""

    reads: AgentRow
    prompt: tuple[Find, ...]
    time: tuple[Find, ...]
    folder: tuple[Find, ...] = ()
    when: Tests = ()
    by: Path | None = None


class SessionsAt(NamedTuple):
    """Locates a session: patterns of `files` below one of `folders`; or the arguments `exports`, which print
    it as a JSON document with a list of messages at `each`, and `imports`, which take it back. `lines` reads it."""

    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    each: str = ""
    lines: LinesAt | None = None


class AgentRow(NamedTuple):
    """An agent program. See the module's docstring."""

    name: str
    program: str
    first: tuple[str, ...]
    resume: tuple[str, ...] = ()
    prompt: str = "stdin"
    input_end: Tests = ()
    output: str = "text"
    install: str = ""
    version: tuple[str, ...] = ("--version",)
    least: str = ""
    env: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    after: SecondCall | None = None
    session: tuple[Find, ...] = ()
    renames: bool = False
    text: tuple[Find, ...] = ()
    model: tuple[Find, ...] = ()
    usage: tuple[UsageAt, ...] = ()
    turns: tuple[TurnAt, ...] = ()
    complete: tuple[Find, ...] = ()
    aside: tuple[Select, ...] | None = None
    errors: tuple[Find, ...] = ()
    trouble: tuple[Find, ...] = ()
    denied: tuple[Find, ...] = ()
    log: tuple[str, ...] = ()
    sessions: SessionsAt | None = None
    login: str = ""
    sign_in: str = ""
    signed_in: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    lost: str = ""
    tools: bool = True

    @property
    def variables(self) -> tuple[str, ...]:
        """The secrets that the program gets: `keys`, and those by which it is signed in."""
        return (*self.keys, *(name[1:] for name in self.signed_in if re.fullmatch(r"\$[A-Z0-9_]+", name)))

    @property
    def asks(self) -> bool:
        """Whether the program can ask for leave on its output, and be answered on its input."""
        return any(option.when == "asking" for option in self.options)


def parse_path(text: str) -> Path | None:
    """Parse a path such as `.a[0].b`; None if invalid."""
    if text == ".":
        return ()
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            return None
        name, index = step.groups()
        steps.append(name or (EVERY if index is None else KEYS if index == "keys" else int(index)))
        at = step.end()
    return tuple(steps) if steps else None


class RowProblem(NamedTuple):
    """A problem of a row. `missing` parts may still be added, key by key."""

    text: str
    missing: bool = False


def parse_row(value: Any, name: str = "") -> tuple[AgentRow, list[RowProblem]]:
    """Return the row without invalid parts, and its problems, missing ones last."""
    reader = _Reader()
    row = reader.row(value, name)
    return row, sorted(reader.problems, key=lambda problem: problem.missing)


class _Reader:
    """Reads a row and collects its problems."""

    def __init__(self) -> None:
        self.problems: list[RowProblem] = []

    def row(self, value: Any, name: str) -> AgentRow:
        data = self._mapping(value, "an agent CLI", tuple(_ROW))
        program = self._text(data.get("program"), "program")
        row = AgentRow(name or program, program, ())
        for key, (field, read) in _ROW.items():
            if data.get(key) is not None and key not in ("program", "version"):
                row = row._replace(**{field: read(self, data[key], key)})
        version = self._mapping(data.get("version"), "version", ("args", "least"))
        if "args" in version:
            row = row._replace(version=self._texts(version["args"], "version.args"))
        if "least" in version:
            row = row._replace(least=self._least(version["least"]))
        if not program:
            self._miss("program is missing: what is the command called?")
        if not row.first and "first" not in data:
            self._miss("first is missing: the arguments of a first run, [] for none")
        self._placeholders(row)
        return row

    def _placeholders(self, row: AgentRow) -> None:
        for key, words in (("first", row.first), ("resume", row.resume)):
            used = [placeholder for word in words for placeholder in _PLACEHOLDER.findall(word)]
            for item in used:
                if item not in PLACEHOLDERS:
                    self._refuse(
                        f"{key} has the unknown placeholder {{{item}}}: {_known(item, PLACEHOLDERS)}"
                    )
            if (words or key == "first") and row.prompt == "argument" and "prompt" not in used:
                self._miss(f"{key} needs {{prompt}}, since prompt is argument")
        if row.resume and not any("{session}" in word for word in row.resume):
            self._refuse("resume needs {session}")
        if row.resume and not row.session and not any("{new}" in word for word in row.first):
            self._miss("resume needs session: where the id is printed")
        if row.prompt == "messages" and not (row.input_end and row.output == "lines"):
            self._miss("inputEnd and output: lines are needed, since prompt is messages")
        if row.asks and row.prompt != "messages":
            self._miss("prompt: messages is needed, since options has asking")
        streams = {*(find.stream for find in row.model), *(place.stream for place in row.usage)}
        if not row.log and "log" in streams:
            self._miss("from: log needs log: the files that the program keeps of a session")

    def _find(self, value: Any, key: str) -> Find | None:
        if isinstance(value, str):
            path = self._path(value, key)
            return None if path is None else Find(path)
        data = self._mapping(value, key, ("path", "say", "match", "from", "when", "each", "where"))
        if not data:
            return None
        path = self._path(data.get("path", "."), f"{key}.path")
        match = data.get("match")
        pattern = self._pattern(match, f"{key}.match") if match is not None else None
        streams = STREAMS if key == "model" else STREAMS[:2]
        stream = self._choice(data.get("from", "stdout"), f"{key}.from", streams)
        return Find(path or (), self._select(data, key), pattern, stream, self._said(data.get("say"), key))

    def _said(self, value: Any, key: str) -> tuple[str | Path, ...]:
        pieces = _SAID.split(self._text(value, f"{key}.say"))
        paths = [self._path(text, f"{key}.say") or () for text in pieces[1::2]]
        return tuple(item for pair in zip(pieces[::2], [*paths, None], strict=True) for item in pair if item)

    def _finds(self, value: Any, key: str) -> tuple[Find, ...]:
        listed = value if isinstance(value, list) else [value]
        finds = [self._find(item, key) for item in listed]
        return tuple(find for find in finds if find is not None)

    def _select(self, data: Mapping[str, Any], key: str) -> Select:
        path = data.get("each")
        return Select(
            self._tests(data.get("when"), f"{key}.when"),
            None if path is None else self._path(path, f"{key}.each"),
            self._tests(data.get("where"), f"{key}.where"),
        )

    def _tests(self, value: Any, key: str) -> Tests:
        tests = []
        for text, wanted in self._mapping(value, key).items():
            path = self._path(text if text.startswith((".", "[")) else f".{text}", key)
            if path is not None:
                tests.append((path, tuple(wanted) if isinstance(wanted, list) else (wanted,)))
        return tuple(tests)

    def _selects(self, value: Any, key: str) -> tuple[Select, ...]:
        listed = value if isinstance(value, list) else [value]
        return tuple(
            self._select(self._mapping(item, key, ("when", "each", "where")), key) for item in listed
        )

    def _usages(self, value: Any, key: str) -> tuple[UsageAt, ...]:
        return tuple(self._usage(item, key) for item in (value if isinstance(value, list) else [value]))

    def _usage(self, value: Any, key: str) -> UsageAt:
        named = (*UsageAt._fields[:5], "total", "by", "guess", "from", "when", "each", "where")
        data = self._mapping(value, key, named)
        total = self._choice(data.get("total", "last"), f"{key}.total", SUMS)
        amounts = {name: self._amounts(data.get(name), f"{key}.{name}") for name in UsageAt._fields[:5]}
        by = self._path(data["by"], f"{key}.by") if "by" in data else None
        guess = self._tests(data.get("guess"), f"{key}.guess")
        stream = self._choice(data.get("from", "stdout"), f"{key}.from", STREAMS)
        return UsageAt(
            **amounts, select=self._select(data, key), total=total, by=by, guess=guess, stream=stream
        )

    def _turns(self, value: Any, key: str) -> tuple[TurnAt, ...]:
        if not isinstance(value, list):
            self._refuse(f"{key} must be a list")
            return ()
        return tuple(self._turn(item, f"{key}[{number}]") for number, item in enumerate(value))

    def _turn(self, value: Any, key: str) -> TurnAt:
        named = ("text", "group", "call", "tool", "arguments", "result")
        data = self._mapping(value, key, (*named, "delta", "failed", "whole", "when", "each", "where"))
        paths = {name: self._path(data[name], f"{key}.{name}") for name in named if name in data}
        if not {"text", "tool", "result"} & paths.keys():
            self._refuse(f"{key} needs text, tool or result")
        return TurnAt(
            self._select(data, key),
            delta=self._switch(data.get("delta", False), f"{key}.delta"),
            failed=self._tests(data.get("failed"), f"{key}.failed"),
            whole=self._tests(data.get("whole"), f"{key}.whole"),
            **paths,
        )

    def _options(self, value: Any, key: str) -> tuple[Option, ...]:
        options = []
        for item in value if isinstance(value, list) else [value]:
            data = self._mapping(item, key, ("if", "args", "env", "unless"))
            when = data.get("if", "always")
            if when not in CONDITIONS:
                self._refuse(f"{key}: unknown condition {when!r}: {_known(str(when), CONDITIONS)}")
                continue
            args = self._texts(data.get("args", []), f"{key}.args")
            env = self._env(data.get("env"), f"{key}.env")
            options.append(Option(when, args, env, self._texts(data.get("unless", []), f"{key}.unless")))
        return tuple(options)

    def _after(self, value: Any, key: str) -> SecondCall:
        data = self._mapping(value, key, ("args", "each", "since"))
        path = data.get("each")
        return SecondCall(
            self._texts(data.get("args", []), f"{key}.args"),
            None if path is None else self._path(path, f"{key}.each"),
            self._tests(data.get("since"), f"{key}.since"),
        )

    def _sessions(self, value: Any, key: str) -> SessionsAt | None:
        data = self._mapping(value, key, ("folder", "files", "export", "import", "each", "lines"))
        folders, files, exports, imports = (
            self._texts(data.get(name, []), f"{key}.{name}")
            for name in ("folder", "files", "export", "import")
        )
        path = self._path(data["each"], f"{key}.each") if "each" in data else ()
        if folders or files:
            fits = bool(folders and files) and not data.keys() & {"export", "import", "each"}
        else:
            fits = bool(exports and imports) and path is not None and path[1:] == (EVERY,)
        parts = [name for pattern in files for name in pattern.split("/")]
        fits = fits and all(name not in ("", ".", "..") for name in parts)
        fits = fits and all("{session" in pattern for pattern in files)
        fits = fits and all(folder.startswith(("/", "~/", "$")) for folder in folders)
        if not fits:
            self._refuse(
                f"{key} needs folder and files with {{session}}, or export, import and each: .NAME[]"
            )
            return None
        lines = self._lines(data["lines"], f"{key}.lines") if "lines" in data else None
        return SessionsAt(folders, files, exports, imports, str(path[0]) if path else "", lines)

    def _lines(self, value: Any, key: str) -> LinesAt | None:
        data = self._mapping(value, key, ("prompt", "time", "folder", "when", "by", *_OF_LINES))
        if missing := [name for name in ("prompt", "time", "session", "turns") if name not in data]:
            self._refuse(f"{key} needs {missing[0]}")
            return None
        reads = AgentRow(key, "", (), output="lines")
        for name in _OF_LINES:
            if name in data:
                field, read = _ROW[name]
                reads = reads._replace(**{field: read(self, data[name], f"{key}.{name}")})
        prompt, time, folder = (
            self._finds(data.get(name, []), f"{key}.{name}") for name in ("prompt", "time", "folder")
        )
        by = self._path(data["by"], f"{key}.by") if "by" in data else None
        return LinesAt(reads, prompt, time, folder, self._tests(data.get("when"), f"{key}.when"), by)

    def _env(self, value: Any, key: str) -> tuple[tuple[str, str], ...]:
        variables = self._mapping(value, key)
        for name, text in variables.items():
            if not _VARIABLE.fullmatch(name) or not isinstance(text, str) or "\0" in text:
                self._refuse(f"{key}: {name} must be the name of a variable, and its value text")
        return tuple((name, text) for name, text in variables.items() if isinstance(text, str))

    def _path(self, value: Any, key: str) -> Path | None:
        path = parse_path(value) if isinstance(value, str) else None
        if path is None:
            self._refuse(f"{key}: {value!r} is not a path, such as .result.text or .content[].text")
        return path

    def _amounts(self, value: Any, key: str) -> tuple[Find, ...]:
        finds = []
        for item in [] if value is None else value if isinstance(value, list) else [value]:
            data = (
                self._mapping(item, key, ("path", "match")) if isinstance(item, Mapping) else {"path": item}
            )
            path = self._path(data.get("path", "."), key)
            pattern = self._pattern(data["match"], f"{key}.match") if "match" in data else None
            if path is not None:
                finds.append(Find(path, pattern=pattern))
        return tuple(finds)

    def _pattern(self, value: Any, key: str) -> str:
        text = self._text(value, key)
        try:
            re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            self._refuse(f"{key} is not a regular expression: {error}")
            return r"(?!)"
        return text

    def _least(self, value: Any) -> str:
        if isinstance(value, str) and _VERSION.fullmatch(value):
            return value
        self._refuse('version.least must be a version in quotes, such as "1.2.0"')
        return ""

    def _choice(self, value: Any, key: str, known: Sequence[str] = ()) -> str:
        known = known or {"prompt": PROMPTS, "output": OUTPUTS}[key]
        if value not in known:
            self._refuse(f"{key} is one of {', '.join(known)}")
            return known[0]
        return str(value)

    def _switch(self, value: Any, key: str) -> bool:
        if not isinstance(value, bool):
            self._refuse(f"{key} must be true or false")
        return value is True

    def _text(self, value: Any, key: str) -> str:
        if value is None:
            return ""
        if not isinstance(value, str) or "\0" in value:
            self._refuse(f"{key} must be text")
            return ""
        return value

    def _texts(self, value: Any, key: str) -> tuple[str, ...]:
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(e, str) and "\0" not in e for e in listed):
            self._refuse(f"{key} must be a list of texts; quote numbers")
            return ()
        return tuple(listed)

    def _mapping(self, value: Any, key: str, known: Sequence[str] = ()) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._refuse(f"{key} must be a mapping")
            return {}
        for item in value:
            if known and item not in known:
                self._refuse(f"unknown key {item!r} in {key}: {_known(str(item), known)}")
        return {str(entry): value[entry] for entry in value}

    def _refuse(self, problem: str) -> None:
        self.problems.append(RowProblem(problem))

    def _miss(self, problem: str) -> None:
        self.problems.append(RowProblem(problem, missing=True))


def _known(name: str, known: Sequence[str]) -> str:
    return nearest(name, known) or "known: " + ", ".join(known)


_OF_LINES = ("session", "model", "usage", "turns", "complete")
_Read = Callable[[_Reader, Any, str], Any]
_ROW: Mapping[str, tuple[str, _Read]] = {
    "program": ("program", _Reader._text),
    "install": ("install", _Reader._text),
    "version": ("version", _Reader._texts),
    "first": ("first", _Reader._texts),
    "resume": ("resume", _Reader._texts),
    "prompt": ("prompt", _Reader._choice),
    "inputEnd": ("input_end", _Reader._tests),
    "output": ("output", _Reader._choice),
    "env": ("env", _Reader._env),
    "unset": ("unset", _Reader._texts),
    "options": ("options", _Reader._options),
    "after": ("after", _Reader._after),
    "session": ("session", _Reader._finds),
    "renames": ("renames", _Reader._switch),
    "text": ("text", _Reader._finds),
    "model": ("model", _Reader._finds),
    "usage": ("usage", _Reader._usages),
    "turns": ("turns", _Reader._turns),
    "complete": ("complete", _Reader._finds),
    "aside": ("aside", _Reader._selects),
    "errors": ("errors", _Reader._finds),
    "trouble": ("trouble", _Reader._finds),
    "denied": ("denied", _Reader._finds),
    "log": ("log", _Reader._texts),
    "sessions": ("sessions", _Reader._sessions),
    "login": ("login", _Reader._pattern),
    "signIn": ("sign_in", _Reader._text),
    "signedIn": ("signed_in", _Reader._texts),
    "keys": ("keys", _Reader._texts),
    "lost": ("lost", _Reader._pattern),
    "tools": ("tools", _Reader._switch),
}


class Rows(NamedTuple):
    """The section `agentClis`. A row in `broken`, with its problems, stops only steps that use it."""

    rows: Mapping[str, AgentRow] = {}
    broken: Mapping[str, str] = {}


def rows_of(config: Config) -> Rows:
    rows: Rows = config.sections.get(SECTION, Rows())
    return rows


def read_rows(reader: ConfigReader, value: Any) -> Rows:
    """Read the section, whose rows are agents by name."""
    rows, broken = {}, {}
    for name, entry in reader.mapping((SECTION,), value, SECTION).items():
        row, problems = parse_row(entry, name)
        rows[name] = row
        reader.named_agents[name] = NamedAgent(ANY_ROW, row.tools)
        if problems:
            broken[name] = "; ".join(problem.text for problem in problems)
        for problem in problems:
            text = f'{SECTION} "{one_line(name, 40)}": {problem.text}'
            (reader.missing if problem.missing else reader.late).append(reader.problem((SECTION, name), text))
    return Rows(rows, broken)
