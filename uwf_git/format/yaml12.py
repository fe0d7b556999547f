"""YAML 1.2 by the core schema, with positions and hard limits; reading and writing.

PyYAML scans; typing is done here, because PyYAML follows YAML 1.1, in which `no`, `1:30` and `2024-01-01` are
not strings. Only JSON values result. Aliases and `<<` merges are expanded and counted: a few lines of nested
aliases would otherwise become gigabytes. The output means the same to 1.1 readers.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from uwf_git.base.errors import UwfError
from uwf_git.base.text import one_line
from uwf_git.format.cbor import MAX_INTEGER
from uwf_git.format.document import (
    MAX_BYTES,
    TOP,
    Document,
    InvalidYaml,
    Mark,
    check_size,
    decode,
    read_bytes,
)
from uwf_git.format.schema import ValuePath

MAX_VALUES = 100_000
MAX_EXPANDED = 20_000
MAX_CHARACTERS = 4 * MAX_BYTES
MAX_DEPTH = 100

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = r"(?a)[-+]?[0-9]+"
_OCT = r"(?a)0o[0-7]+"
_HEX = r"(?a)0x[0-9a-fA-F]+"
_FLOAT = r"(?a)[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
_INF = r"(?a)[-+]?\.(inf|Inf|INF)"
_NAN = frozenset({".nan", ".NaN", ".NAN"})
_MAY_BE_SPECIAL = frozenset("0123456789+-.~nNtTfF")

_PLAIN = r"(?a)[A-Za-z_$/][\w$/.@+-]*(?: [\w$/.@+(][\w$/.@+,;()'-]*)*"
# Words that YAML 1.1 takes for booleans and nothing: other readers may still follow it.
_OLD_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_LONGEST_PLAIN = 100
_ODD = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]"

_CORE = "tag:yaml.org,2002:"
_INCLUDE = "!include"

Include = Callable[[str], Document | str]
"""What `!include PATH` stands for: a document's value, or a text."""


def core(text: str) -> Any:
    """Return the value of a plain scalar by the core schema: None, bool, int, float (also inf and nan) or
    str."""
    if text and text[0] not in _MAY_BE_SPECIAL:
        return text
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if re.fullmatch(_INT, text):
        # Python refuses to convert thousands of digits; no such number is wanted either.
        return int(text) if len(text) < 1000 else math.copysign(math.inf, -1 if text[0] == "-" else 1)
    if re.fullmatch(_OCT, text):
        return int(text[2:], 8)
    if re.fullmatch(_HEX, text):
        return int(text[2:], 16)
    if re.fullmatch(_FLOAT, text):
        return float(text)
    if re.fullmatch(_INF, text):
        return -math.inf if text[0] == "-" else math.inf
    if text in _NAN:
        return math.nan
    return text


def is_json_number(value: Any) -> bool:
    """Return whether a node can hold a number: finite, integers within ±(2^53-1)."""
    if isinstance(value, float):
        return math.isfinite(value)
    return -MAX_INTEGER <= int(value) <= MAX_INTEGER


_DOUBLE_QUOTED = r'(?s)"(?:[^"\\]|\\.)*+"'
_PAIR = r"(?i)(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})"


def _with_long_escapes(quoted: re.Match[str]) -> str:
    """Write surrogate pairs, which JSON has and YAML refuses, as one escape."""

    def long(pair: re.Match[str]) -> str:
        code = 0x10000 + ((int(pair[2], 16) - 0xD800) << 10) + int(pair[3], 16) - 0xDC00
        return f"{pair[1]}\\U{code:08x}"

    return re.sub(_PAIR, long, quoted[0])


_COMMENT = r"(?m)(?:^|(?<=[ \t]))#[^\n]*"


def with_comments(source: str) -> tuple[str, tuple[str, ...]]:
    """Return YAML in which `a: closes #12` means the whole text, as does `a: &b c` without an alias, for texts of
    models: they rarely mean a comment or an anchor. Also returns the comments that are left. Broken YAML is
    returned as it is."""
    if "#" not in source and "&" not in source:
        return source, ()
    import yaml

    try:
        events = list(yaml.parse(source, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        return source, ()
    scalars: list[Any] = [event for event in events if isinstance(event, yaml.ScalarEvent)]
    aliases = {event.anchor for event in events if isinstance(event, yaml.AliasEvent)}
    starts = [event.start_mark.index for event in scalars]
    texts = {
        event.start_mark.index: (event.end_mark.index, source[event.start_mark.index : event.end_mark.index])
        for event in scalars
        if event.anchor and event.anchor not in aliases and event.style not in ("|", ">")
    }
    comments = []
    for comment in re.finditer(_COMMENT, source):
        at = bisect_right(starts, comment.start()) - 1
        event = scalars[at] if at >= 0 else None
        if event is not None and comment.start() < event.end_mark.index:
            continue
        if event is not None and _is_cut(event, source[event.end_mark.index : comment.start()]):
            start = event.start_mark.index
            written = source[start : event.end_mark.index] or " "
            texts[start] = comment.end(), written + source[event.end_mark.index : comment.end()]
        else:
            comments.append(comment[0].rstrip())
    for start, (end, text) in sorted(texts.items(), reverse=True):
        before = " " if text.startswith(" ") else ""
        text = json.dumps(" ".join(text.split()), ensure_ascii=False)
        source = f"{source[:start]}{before}{text}{source[end:]}"
    return source, tuple(comments)


def _is_cut(event: Any, between: str) -> bool:
    """Return whether a comment right behind a scalar, with `between` before it, belongs to a text."""
    if between.strip(" \t") or event.style or event.tag is not None:
        return False
    return not event.value or (isinstance(core(event.value), str) and event.value.lower() not in _OLD_WORDS)


def read(path: Path) -> Document:
    """Parse a file. Raises NotFound, Invalid."""
    return load(read_bytes(path), str(path))


def load(
    text: str | bytes,
    name: str,
    *,
    tolerant: bool = False,
    include: Include | None = None,
) -> Document:
    """Parse a text. Raises InvalidYaml with line and column, Invalid above 1 MiB.

    `name` is for messages. `include` resolves `!include PATH`, which is refused without it. With `tolerant`,
    for model output, unusual keys and numbers stay strings. An empty text is None.
    """
    check_size(text, name)
    text = decode(text, name)
    if text.lstrip()[:1] in ("{", "[") and (document := _json_document(text, name)) is not None:
        return document
    builder = _Builder(name, tolerant, include)
    root = _compose(text, name)
    data = None if root is None else builder.value(root, (), 0)
    return Document(name, data, builder.marks, builder.keys, builder.scalars)


def _json_document(text: str, name: str) -> Document | None:
    """Return a JSON text's document. JSON is almost YAML: its escapes of surrogates, long keys and tabs are not."""
    from uwf_git.format.json_text import read_json

    try:
        document, repeated = read_json(text, name)
    except InvalidYaml:
        return None
    return None if repeated else document


class _Node:
    """A scalar (`text`), list (`items`) or mapping (`pairs`), shared by its aliases."""

    __slots__ = ("is_counted", "is_open", "items", "kind", "mark", "pairs", "plain", "tag", "text")

    def __init__(self, kind: str, tag: str | None, mark: Mark, text: str = "", plain: bool = False) -> None:
        self.kind = kind
        self.tag = tag
        self.mark = mark
        self.text = text
        self.plain = plain
        self.items: list[_Ref] = []
        self.pairs: list[tuple[_Ref, _Ref]] = []
        self.is_open = kind != "scalar"
        self.is_counted = False


class _Ref(NamedTuple):
    """A node in its place: `mark` is the alias's or the node's position."""

    node: _Node
    mark: Mark


_ODD_HINT = "save it as plain UTF-8 text, without control characters"


def _compose(text: str, name: str) -> _Ref | None:
    if not text:
        return None
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if "\\u" in text:
        text = re.sub(_DOUBLE_QUOTED, _with_long_escapes, text)
    try:
        return _build(yaml.parse(text, Loader=loader), name)
    except yaml.MarkedYAMLError as error:
        mark = _mark(error.problem_mark or error.context_mark)
        problem = error.problem or error.context or "not YAML"
        if "maximum nesting depth" in problem:  # libyaml reads ahead, and has a limit of its own
            raise _too_deep(name, mark) from None
        if error.context and error.problem:
            problem += f", {error.context}"
            if error.context_mark and error.context_mark.line + 1 != mark.line:
                problem += f" that begins in line {error.context_mark.line + 1}"
        raise InvalidYaml(name, mark, one_line(problem), _syntax_hint(text, mark)) from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidYaml(name, TOP, f"not YAML: {one_line(str(error))}", _ODD_HINT) from None


def _too_deep(name: str, mark: Mark) -> InvalidYaml:
    return InvalidYaml(name, mark, f"nested deeper than {MAX_DEPTH} levels")


def _build(events: Iterator[Any], name: str) -> _Ref | None:
    import yaml

    anchors: dict[str, _Node] = {}
    stack: list[tuple[_Node, list[_Ref]]] = []
    root: _Ref | None = None
    documents = 0
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise InvalidYaml(
                    name, _mark(event.start_mark), "a second document begins", "one file, one document"
                )
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            node, children = stack.pop()
            node.is_open = False
            if node.kind == "map":
                node.pairs = list(zip(children[::2], children[1::2], strict=True))
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        mark = _mark(event.start_mark)
        anchor: str = event.anchor or ""
        if isinstance(event, yaml.AliasEvent):
            target_node = anchors.get(anchor)
            if target_node is None:
                raise InvalidYaml(name, mark, f"no anchor &{one_line(anchor)} stands before its alias")
            if target_node.is_open:
                raise InvalidYaml(name, mark, f"anchor &{one_line(anchor)} holds itself")
            node = target_node
        elif isinstance(event, yaml.ScalarEvent):
            node = _Node("scalar", event.tag, mark, event.value, plain=not event.style)
        else:
            is_map = isinstance(event, yaml.MappingStartEvent)
            node = _Node("map" if is_map else "list", getattr(event, "tag", None), mark)
        ref = _Ref(node, mark)
        if stack:
            stack[-1][1].append(ref)
        else:
            root = ref
        if isinstance(event, yaml.AliasEvent):
            continue
        if anchor:
            anchors[anchor] = node
        if node.kind != "scalar":
            if len(stack) >= MAX_DEPTH:
                raise _too_deep(name, mark)
            stack.append((node, node.items))
    return root


class _Builder:
    """Converts a node graph to values with positions."""

    def __init__(self, name: str, tolerant: bool, include: Include | None) -> None:
        self._name = name
        self._tolerant = tolerant
        self._include = include
        self._values = self._expanded = 0
        self._characters = 0
        self.marks: dict[ValuePath, Mark] = {}
        self.keys: dict[ValuePath, Mark] = {}
        self.scalars: dict[ValuePath, str] = {}

    def value(self, ref: _Ref, path: ValuePath, depth: int) -> Any:
        node = ref.node
        if node.is_counted:
            self._count(ref.mark, expanded=1)
        else:
            self._count(ref.mark, 1)
            node.is_counted = True
        if depth > MAX_DEPTH:
            self._refuse(ref.mark, f"nested deeper than {MAX_DEPTH} levels")
        self.marks[path] = ref.mark
        if node.tag == _INCLUDE:
            return self._included(node, path)
        if node.kind == "scalar":
            self._count(ref.mark, characters=len(node.text))
            self.scalars[path] = node.text
            return self._scalar(node)
        if node.tag not in (None, "!", _CORE + ("map" if node.kind == "map" else "seq")):
            self._refuse_tag(node)
        if node.kind == "list":
            return [self.value(item, (*path, number), depth + 1) for number, item in enumerate(node.items)]
        mapping: dict[str, Any] = {}
        for key, (mark, item) in self._entries(node).items():
            below = (*path, key)
            self.keys[below] = mark
            self._characters += len(key)
            mapping[key] = self.value(item, below, depth + 1)
        return mapping

    def _entries(self, node: _Node) -> dict[str, tuple[Mark, _Ref]]:
        own: dict[str, tuple[Mark, _Ref]] = {}
        merged: dict[str, tuple[Mark, _Ref]] = {}
        for key, item in node.pairs:
            if key.node.plain and key.node.tag is None and key.node.text == "<<":
                for source in self._merge_sources(item):
                    entries = self._entries(source)
                    self._count(item.mark, expanded=1 + len(entries))
                    for name, entry in entries.items():
                        merged.setdefault(name, entry)
                continue
            name = self._key(key)
            if name in own:
                first = own[name][0].line
                self._refuse(
                    key.mark, f'key "{one_line(name)}" is already in line {first}', "remove one of them"
                )
            own[name] = (key.mark, item)
        return {**merged, **own}

    def _merge_sources(self, ref: _Ref) -> list[_Node]:
        nodes = [ref.node] if ref.node.kind == "map" else [item.node for item in ref.node.items]
        if not nodes or any(node.kind != "map" for node in nodes):
            self._refuse(ref.mark, "<< takes a mapping or a list of mappings")
        return nodes

    def _key(self, ref: _Ref) -> str:
        node = ref.node
        if node.kind != "scalar" or node.tag == _INCLUDE:
            self._refuse(
                ref.mark, "a key is text, not a collection", "quote a key or value that begins with { or ["
            )
        value = self._scalar(node)
        if isinstance(value, str):
            return value
        if not self._tolerant:
            shown = one_line(node.text)
            self._refuse(ref.mark, f"key {shown or 'of nothing'} is not text", f'quote it: "{shown}"')
        return node.text

    def _scalar(self, node: _Node) -> Any:
        tag = node.tag
        if tag is None:
            value = core(node.text) if node.plain else node.text
        elif tag in ("!", _CORE + "str"):
            value = node.text
        elif tag in (_CORE + "null", _CORE + "bool", _CORE + "int", _CORE + "float"):
            value = core(node.text)
            kinds: dict[str, tuple[type, ...]] = {
                "null": (type(None),),
                "bool": (bool,),
                "int": (int,),
                "float": (int, float),
            }
            kind = tag.removeprefix(_CORE)
            if not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "bool"):
                self._refuse(node.mark, f'"{one_line(node.text, 40)}" is no !!{kind}')
        else:
            self._refuse_tag(node)
        if isinstance(value, int | float) and not isinstance(value, bool) and not is_json_number(value):
            if self._tolerant:
                return node.text
            self._refuse(
                node.mark,
                f"{one_line(node.text, 40)} is a number JSON cannot hold",
                "quote it to make it text",
            )
        if isinstance(value, str):
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                self._refuse(node.mark, "text holds a lone surrogate", "it is not valid Unicode; replace it")
        return value

    def _included(self, node: _Node, path: ValuePath) -> Any:
        if node.kind != "scalar" or not node.text:
            self._refuse(node.mark, "!include takes the path of a file", "!include prompts/reviewer.md")
        if self._include is None:
            self._refuse(node.mark, "!include is not possible here")
        try:
            got = self._include(node.text)
        except InvalidYaml as error:  # in the included file: its own position says more
            self._refuse(node.mark, f"!include: {error.message}", error.hint)
        except UwfError as error:
            self._refuse(node.mark, error.message, error.hint)
        if isinstance(got, str):
            self._count(node.mark, characters=len(got))
            self.scalars[path] = got
            return got
        self._count(node.mark, len(got.marks), sum(map(len, got.scalars.values())))
        for source, target in ((got.marks, self.marks), (got.keys, self.keys)):
            for below, mark in source.items():
                within = mark.within or f"{one_line(got.name)}:{mark.line}:{mark.column}"
                target[path + below] = Mark(node.mark.line, node.mark.column, within)
        for below, text in got.scalars.items():
            self.scalars[path + below] = text
        return got.data

    def _count(self, mark: Mark, values: int = 0, characters: int = 0, expanded: int = 0) -> None:
        self._values += values
        self._expanded += expanded
        self._characters += characters
        if self._values > MAX_VALUES:
            self._refuse(mark, f"over {MAX_VALUES} values", "split the document, or use fewer values")
        if self._expanded > MAX_EXPANDED:
            self._refuse(mark, f"aliases expand to over {MAX_EXPANDED} values", "use fewer aliases")
        if self._characters > MAX_CHARACTERS:
            self._refuse(
                mark, f"over {MAX_CHARACTERS >> 20} MiB once aliases are expanded", "use fewer aliases"
            )

    def _refuse_tag(self, node: _Node) -> NoReturn:
        tag = node.tag or ""
        shown = "!!" + tag.removeprefix(_CORE) if tag.startswith(_CORE) else tag
        self._refuse(
            node.mark, f"tag {one_line(shown, 60)} is not known", "only !include and the core types are"
        )

    def _refuse(self, mark: Mark, problem: str, hint: str = "") -> NoReturn:
        raise InvalidYaml(self._name, mark, problem, hint)


def _mark(mark: Any) -> Mark:
    return TOP if mark is None else Mark(mark.line + 1, mark.column + 1)


def _syntax_hint(text: str, mark: Mark) -> str:
    lines = text.split("\n")
    line = lines[mark.line - 1] if mark.line <= len(lines) else ""
    character = line[mark.column - 1 : mark.column]
    if character == "\t" or "\t" in line[: len(line) - len(line.lstrip())]:
        return "indent with spaces, not tabs"
    if character in ("@", "`", "%"):
        return f"quote a text that begins with {character}"
    if line[mark.column - 1 :].startswith(": ") or "{{" in line:
        return "quote a text that holds `: ` or begins with { or ["
    return "is a quote or bracket before it not closed, or a line not indented as those beside it?"


def dump(value: Any) -> str:
    """Write a JSON value as block-style YAML, keys in order. `load` returns the same value."""
    lines: list[str] = []
    _block(value, 0, lines)
    return "\n".join(lines) + "\n"


def scalar(value: Any) -> str:
    """Write a scalar on one line."""
    if not isinstance(value, str):
        return json.dumps(value)
    if (
        len(value) <= _LONGEST_PLAIN
        and re.fullmatch(_PLAIN, value)
        and value.casefold() not in _OLD_WORDS
        and isinstance(core(value), str)
    ):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return re.sub(_ODD, lambda match: f"\\u{ord(match.group()):04x}", quoted)


def _block(value: Any, indent: int, lines: list[str]) -> None:
    space = " " * indent
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _entry(f"{space}{scalar(str(key))}:", item, indent, lines)
    elif isinstance(value, list | tuple) and value:
        for item in value:
            if isinstance(item, dict | list | tuple) and item:
                inner: list[str] = []
                _block(item, indent + 2, inner)
                lines.append(f"{space}- {inner[0].lstrip(' ')}")
                lines += inner[1:]
            else:
                _entry(f"{space}-", item, indent, lines)
    else:
        _entry("", value, indent, lines)


def _entry(head: str, value: Any, indent: int, lines: list[str]) -> None:
    lead = head + " " if head else ""
    if isinstance(value, dict | list | tuple):
        if value:
            lines.append(head)
            _block(value, indent + 2, lines)
        else:
            lines.append(lead + ("{}" if isinstance(value, dict) else "[]"))
    elif isinstance(value, str) and _reads_as_block(value):
        body = value.removesuffix("\n")
        lines.append(f"{lead}|{'-' if body == value else '+' if body.endswith(chr(10)) else ''}")
        pad = " " * (indent + 2)
        lines += [pad + line if line else "" for line in body.split("\n")]
    else:
        lines.append(lead + scalar(value))


def _reads_as_block(text: str) -> bool:
    first = text.lstrip("\n")[:1]
    return (
        "\n" in text.rstrip("\n")
        and first not in ("", " ", "\t")
        and not text.startswith("\n")
        and "\x85" not in text
        and not re.search(_ODD, text)
    )
