"""The contract for JavaScript, checked in the syntax tree: one module that exports `descriptor` and `run` and
imports only Node's built-in modules. Dynamic violations are refused at run time: the linker knows no other
module, and Node cannot compile text."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from uwf_git.ext.code.syntax import Breaches, Part, Places, check_meta, places_in
from uwf_git.plugin import SourceMark, UwfError, ValuePath, install_hint, nearest, one_line

if TYPE_CHECKING:
    from tree_sitter import Node

_NAMES = """
    assert assert/strict async_hooks buffer child_process console constants crypto dgram diagnostics_channel dns
    dns/promises domain events fs fs/promises http http2 https net os path path/posix path/win32 perf_hooks process
    punycode querystring readline readline/promises stream stream/consumers stream/promises stream/web string_decoder
    sys timers timers/promises tls trace_events tty url util util/types wasi zlib
"""
BUILTIN = frozenset(_NAMES.split())
"""Node's built-in modules that a bundle may import, with or without `node:` before the name."""
WITH_PREFIX = frozenset(("sqlite", "test", "test/reporters"))
"""Those that are only there with `node:` before the name."""
REFUSED = {
    "module": "loads other files",
    "vm": "makes code of text",
    "worker_threads": "runs other files",
    "cluster": "runs other files",
    "inspector": "makes code of text",
    "inspector/promises": "makes code of text",
    "repl": "makes code of text",
    "v8": "changes what Node allows",
}
"""Built-in modules by which code could come in that isn't in the file, and how."""

_OF_PROCESS = {
    "binding": "reaches Node's internals",
    "_linkedBinding": "reaches Node's internals",
    "dlopen": "loads other files",
    "getBuiltinModule": "imports at run time",
}
_GLOBALS = ("globalThis", "global", "self", "window")
_FUNCTIONS = (
    "arrow_function",
    "function_declaration",
    "function_expression",
    "generator_function",
    "generator_function_declaration",
)
_DECLARATIONS = ("lexical_declaration", "variable_declaration", "using_declaration")
_SHORT = "shorthand_property_identifier"
_IDENTIFIERS = ("identifier", "shorthand_property_identifier_pattern")
_SCOPES = ("program", "statement_block", "switch_case", "class_static_block")
_BUNDLE_IT = "bundle it into the file: esbuild --bundle --format=esm --platform=node"

_QUERY = """
[(import_statement source: (string) @module) (export_statement source: (string) @module)]
(call_expression function: (import) @dynamic)
((call_expression function: (identifier) @required) (#eq? @required "require"))
((identifier) @eval (#eq? @eval "eval"))
([(call_expression function: (identifier) @made) (new_expression constructor: (identifier) @made)]
  (#eq? @made "Function"))
(member_expression object: (identifier) @object property: (property_identifier) @property)
(ERROR) @error
(MISSING) @missing
"""


class Module:
    """A module's syntax tree."""

    def __init__(self, source: bytes) -> None:
        """Raises UwfError without the parser."""
        try:
            from tree_sitter import Parser

            _language()
        except ModuleNotFoundError:
            raise UwfError("code in JavaScript needs the package tree-sitter", install_hint("code")) from None
        source = source.removeprefix(codecs.BOM_UTF8)
        self._root = Parser(_language()).parse(source).root_node
        self._lines = source.split(b"\n")
        self._declared = dict(self._declarations())

    def check(self, breaches: Breaches) -> None:
        nodes = self._captured()
        if self._root.has_error:
            place = next(iter((*nodes.get("error", ()), *nodes.get("missing", ()))), self._root)
            breaches.add(self.mark(place), "no-javascript", "cannot be read as JavaScript")
            return  # consequences of a syntax error would be reported as breaches
        for node in nodes.get("module", ()):
            self._check_import(node, breaches)
        for node in nodes.get("dynamic", ()):
            breaches.add(self.mark(node), "dynamic-import", "import() is not allowed", _BUNDLE_IT)
        for node in nodes.get("required", ()):
            if not _is_own(node):
                breaches.add(self.mark(node), "foreign-import", "a module has no require()", _BUNDLE_IT)
        for key in ("eval", "made"):
            for node in nodes.get(key, ()):
                if not _is_own(node):
                    name = "eval" if key == "eval" else "Function()"
                    breaches.add(
                        self.mark(node), "code-of-text", f"{name} makes code of text, which is not run"
                    )
        for node in nodes.get("object", ()):
            self._check_member(node, breaches)
        self._check_exports(breaches)

    def mark(self, node: Node) -> SourceMark:
        row, column = node.start_point
        return SourceMark(row + 1, len(self._lines[row][:column].decode("utf-8", "replace")) + 1)

    def places(self) -> tuple[Places, Places]:
        """Return the positions of the descriptor's literal values and keys."""
        value = self._exported().get("descriptor", (self._root, None))[1]
        return places_in(value, self._resolved, self.mark, _parts)

    def _captured(self) -> dict[str, list[Node]]:
        from tree_sitter import QueryCursor

        return QueryCursor(_query()).captures(self._root)

    def _check_import(self, node: Node, breaches: Breaches) -> None:
        name = _string(node)
        plain = name.removeprefix("node:")
        shown = one_line(name, 60)
        if plain in REFUSED:
            message = f'"{shown}" is not allowed: it {REFUSED[plain]}'
            breaches.add(self.mark(node), "foreign-import", message)
        elif plain not in BUILTIN and not (plain in WITH_PREFIX and name.startswith("node:")):
            hint = nearest(plain, BUILTIN) if name.startswith("node:") else _BUNDLE_IT
            message = f'imports "{shown}", which is not a built-in module of Node'
            breaches.add(self.mark(node), "foreign-import", message, hint)

    def _check_member(self, node: Node, breaches: Breaches) -> None:
        member = node.parent
        field = member.child_by_field_name("property") if member is not None else None
        name, prop = _text(node), _text(field)
        if name == "process" and prop in _OF_PROCESS and not _is_own(node):
            message = f"process.{prop} is not allowed: it {_OF_PROCESS[prop]}"
            breaches.add(self.mark(node), "foreign-import", message)
        elif name in _GLOBALS and prop in ("eval", "Function") and not _is_own(node):
            message = f"{name}.{prop} makes code of text, which is not run"
            breaches.add(self.mark(node), "code-of-text", message)

    # Exports

    def _check_exports(self, breaches: Breaches) -> None:
        exported = self._exported()
        if "default" in exported:
            hint = "export const descriptor = …; export async function* run(input, options) { … }"
            breaches.add(self.mark(exported["default"][0]), "default-export", "has a default export", hint)
        for name, example in (
            ("descriptor", "export const descriptor = { description, roles }"),
            ("run", "export async function* run(input, options) { … }"),
        ):
            if name not in exported:
                breaches.add(SourceMark(1, 1), "missing-export", f'exports no "{name}"', example)
        place, value = exported.get("run", (self._root, None))
        value = self._resolved(value)
        if value is None:
            return
        if value.type in _FUNCTIONS:
            is_async = any(child.type == "async" for child in value.children)
            is_generator = value.type.startswith("generator")
            if is_async != is_generator:
                breaches.add(
                    self.mark(place),
                    "no-generator",
                    "run is not an async generator",
                    "write async function* run",
                )
        elif value.type in ("object", "array", "string", "number", "class", "class_declaration"):
            breaches.add(
                self.mark(place), "no-generator", "run is not a function", "write async function* run"
            )

    def _exported(self) -> dict[str, tuple[Node, Node | None]]:
        exports: dict[str, tuple[Node, Node | None]] = {}
        for statement in self._root.named_children:
            if statement.type != "export_statement":
                continue
            if any(child.type == "default" for child in statement.children):
                exports["default"] = (statement, None)
            declaration = statement.child_by_field_name("declaration")
            if declaration is not None:
                exports.update({name: (node, node) for name, node in _declared(declaration)})
            for clause in statement.named_children:
                for named_child in clause.named_children if clause.type == "export_clause" else ():
                    name = named_child.child_by_field_name("name")
                    alias = named_child.child_by_field_name("alias") or name
                    if name is not None and alias is not None:
                        local = _text(name)
                        exports[_string(alias) if alias.type == "string" else _text(alias)] = (
                            named_child,
                            self._declared.get(local),
                        )
        return exports

    def _declarations(self) -> Iterator[tuple[str, Node]]:
        for statement in self._root.named_children:
            inner = statement.child_by_field_name("declaration")
            yield from _declared(inner if inner is not None else statement)

    def _resolved(self, node: Node | None) -> Node | None:
        for _ in range(8):
            if node is None:
                return None
            if node.type == "variable_declarator":
                node = node.child_by_field_name("value")
            elif node.type in ("identifier", _SHORT):
                node = self._declared.get(_text(node))
            elif node.type == "parenthesized_expression" and node.named_child_count == 1:
                node = node.named_children[0]
            else:
                return node
        return None


_NOT_AGAIN = {
    ("Date", "now"): "Date.now() throws in a script, which must ask the same when it runs again",
    ("Math", "random"): "Math.random() throws in a script, which must ask the same when it runs again",
}
_OPTIONS = ("label", "phase", "schema", "model", "effort", "isolation", "agentType")
_META_FIRST = "a script begins with: export const meta = { name, description }"
_VALUES = {"true": True, "false": False, "null": None, "undefined": None}


class Script(Module):
    """A workflow script: its `meta` is the only export, and a literal. `types` are the agent types and models that it
    names."""

    def __init__(self, source: bytes) -> None:
        super().__init__(source)
        self.meta: Any = None
        self.types: list[str] = []

    def check(self, breaches: Breaches) -> None:
        super().check(breaches)
        top = self._exported().get("meta", (None, None))[1]
        for pair in _all(self._root, "pair"):
            value = pair.child_by_field_name("value")
            is_own = top is not None and top.start_byte <= pair.start_byte < top.end_byte
            if _key(pair) in ("agentType", "model") and value is not None and not is_own:
                self.types += [_string(value)] if value.type == "string" else []
        self._check_options(breaches)

    def _check_options(self, breaches: Breaches) -> None:
        """Warn of written-out options that agent() ignores."""
        for call in _all(self._root, "call_expression"):
            node = call.child_by_field_name("arguments")
            options = node.named_children[-1] if node is not None and node.named_child_count > 1 else None
            if _text(call.child_by_field_name("function")) != "agent" or options is None:
                continue
            for part in options.named_children if options.type == "object" else ():
                name = _text(part) if part.type == _SHORT else _key(part) if part.type == "pair" else None
                if name is not None and name not in _OPTIONS:
                    message = f"agent() ignores the option {one_line(name, 60)!r}, which it does not have"
                    hint = nearest(name, _OPTIONS)
                    breaches.add(self.mark(part), "unknown-option", message, hint, severity="warning")

    def _check_import(self, node: Node, breaches: Breaches) -> None:
        shown = one_line(_string(node), 60)
        message = f'a script cannot import "{shown}"'
        breaches.add(self.mark(node), "foreign-import", message, "a script asks agents for what it needs")

    def _check_member(self, node: Node, breaches: Breaches) -> None:
        super()._check_member(node, breaches)
        field = node.parent.child_by_field_name("property") if node.parent is not None else None
        message = _NOT_AGAIN.get((_text(node), _text(field)))
        if message is not None and not _is_own(node):
            breaches.add(
                self.mark(node), "not-again", message, "pass what differs in args", severity="warning"
            )

    def _check_exports(self, breaches: Breaches) -> None:
        exported = self._exported()
        for name in exported.keys() - {"meta"}:
            breaches.add(
                self.mark(exported[name][0]), "foreign-export", f"a script exports meta alone, not {name}"
            )
        if "meta" not in exported:
            breaches.add(SourceMark(1, 1), "missing-export", "does not export its meta", _META_FIRST)
            return
        place, value = exported["meta"]
        first = next((child for child in self._root.named_children if not _is_preamble(child)), None)
        if first is None or not first.start_byte <= place.start_byte < first.end_byte:
            breaches.add(self.mark(place), "meta-first", "meta is not the first statement", _META_FIRST)
        value = value.child_by_field_name("value") if value is not None else None
        try:
            self.meta = _literal(value)
        except _NoLiteral as error:
            hint = "write the values out: it is read without running the script"
            breaches.add(self.mark(error.node or place), "bad-meta", "meta is not a literal", hint)
            return
        check_meta(self.meta, self.mark(place), breaches)


def _is_preamble(node: Node) -> bool:
    return node.type in ("comment", "hash_bang_line") or _text(node).rstrip(";") in (
        "'use strict'",
        '"use strict"',
    )


class _NoLiteral(Exception):
    def __init__(self, node: Node | None) -> None:
        super().__init__()
        self.node = node


def _literal(node: Node | None) -> Any:
    """Return the value of a literal. Raises _NoLiteral."""
    if node is None:
        raise _NoLiteral(node)
    if node.type == "object":
        fields = {}
        for pair in node.named_children:
            if pair.type == "comment":
                continue
            key = _key(pair)
            if pair.type != "pair" or key is None:
                raise _NoLiteral(pair)
            fields[key] = _literal(pair.child_by_field_name("value"))
        return fields
    if node.type == "array":
        return [_literal(child) for child in node.named_children if child.type != "comment"]
    if node.type in ("string", "template_string"):
        return _unescaped(node)
    if node.type == "number":
        return _number(node, _text(node))
    if node.type == "unary_expression" and _text(node).startswith("-"):
        return -_literal(node.child_by_field_name("argument"))
    if node.type in _VALUES:
        return _VALUES[node.type]
    if node.type == "parenthesized_expression" and node.named_child_count == 1:
        return _literal(node.named_children[0])
    if node.type == "binary_expression" and _text(node.child_by_field_name("operator")) == "+":
        first, right = (_literal(node.child_by_field_name(side)) for side in ("left", "right"))
        if isinstance(first, str) and isinstance(right, str):
            return first + right
    raise _NoLiteral(node)


def _number(node: Node, text: str) -> int | float:
    try:
        return int(text.replace("_", ""), 0)
    except ValueError:
        pass
    try:
        return float(text.replace("_", ""))
    except ValueError:
        raise _NoLiteral(node) from None


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}


def _unescaped(node: Node) -> str:
    parts = []
    for child in node.named_children:
        text = _text(child)
        if child.type == "escape_sequence":
            code = text[1:]
            if code[0] in "xu":
                parts.append(chr(int(code[1:].strip("{}"), 16)))
            else:
                parts.append(_ESCAPES.get(code, code))
        elif child.type == "string_fragment":
            parts.append(text)
        else:
            raise _NoLiteral(child)
    return "".join(parts)


def _all(top: Node, *kinds: str) -> Iterator[Node]:
    pending = [top]
    while pending:
        node = pending.pop()
        if node.type in kinds:
            yield node
        pending += reversed(node.named_children)


@cache
def _language() -> Any:
    import tree_sitter_javascript
    from tree_sitter import Language

    return Language(tree_sitter_javascript.language())


@cache
def _query() -> Any:
    from tree_sitter import Query

    return Query(_language(), _QUERY)


def _declared(statement: Node) -> Iterator[tuple[str, Node]]:
    if statement.type in _DECLARATIONS:
        for child in statement.named_children:
            name = child.child_by_field_name("name")
            if name is not None and name.type == "identifier":
                yield _text(name), child
    elif statement.type in (*_FUNCTIONS, "class_declaration"):
        name = statement.child_by_field_name("name")
        if name is not None:
            yield _text(name), statement


def _is_own(node: Node) -> bool:
    name, scope = _text(node), node.parent
    if scope is not None and scope.type in ("variable_declarator", "formal_parameters"):
        return True
    while scope is not None:
        if scope.type in (*_FUNCTIONS, "method_definition"):
            for field in ("parameters", "parameter"):
                declared = scope.child_by_field_name(field)
                names = _all(declared, *_IDENTIFIERS) if declared is not None else ()
                if name in map(_text, names):
                    return True
        if scope.type in _SCOPES and any(
            name == known for child in scope.named_children for known, _ in _declared(child)
        ):
            return True
        scope = scope.parent
    return False


def _parts(node: Node, path: ValuePath) -> Iterator[Part[Node]]:
    if node.type == "object":
        for pair in node.named_children:
            name = _key(pair)
            if name is not None:
                yield name, pair, pair.child_by_field_name("value") or pair
    elif node.type == "array":
        items = [item for item in node.named_children if item.type != "comment"]
        yield from ((number, None, item) for number, item in enumerate(items))


def _key(pair: Node) -> str | None:
    key = pair if pair.type == _SHORT else pair.child_by_field_name("key") if pair.type == "pair" else None
    if key is None or key.type not in ("property_identifier", "string", _SHORT):
        return None
    return _string(key) if key.type == "string" else _text(key)


def _string(node: Node) -> str:
    return _text(node)[1:-1]


def _text(node: Node | None) -> str:
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""


def modules() -> Iterable[str]:
    """Return the built-in modules that may be imported."""
    return sorted((*BUILTIN, *(f"node:{name}" for name in (*BUILTIN, *WITH_PREFIX))))
