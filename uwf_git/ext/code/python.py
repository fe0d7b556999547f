"""The contract for Python, checked in the syntax tree: one module with `descriptor` and `run`, or a
`workflow` made by `define`, importing only the standard library. Dynamic violations are refused by the
harness."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from uwf_git.ext.code.syntax import Breaches, Part, Places, places_in
from uwf_git.plugin import SourceMark, ValuePath, nearest, one_line

LIBRARY = "uwf_git.workflow"
REFUSED = {
    **dict.fromkeys(("importlib", "imp", "pkgutil", "zipimport", "zipapp", "site"), "loads other files"),
    **dict.fromkeys(("runpy", "ensurepip", "venv", "pydoc", "idlelib"), "runs other files"),
    **dict.fromkeys(("code", "codeop", "pdb", "bdb", "doctest", "timeit", "trace"), "makes code of text"),
    "ctypes": "reaches Python's internals",
}
"""Modules of the standard library by which code could come in that isn't in the file, and how."""
_BUILTINS = {
    "eval": "makes code of text, which is not run",
    "exec": "runs code made of text",
    "compile": "makes code of text, which is not run",
    "__import__": "imports at run time",
}
_ONE_FILE = f"a bundle is one file: it imports the standard library and {LIBRARY} only"
_ARGUMENTS = {
    "name": "name",
    "description": "description",
    "roles": "roles",
    "max_rounds": "maxRounds",
    "budget": "budget",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """A module's syntax tree."""

    def __init__(self, source: bytes) -> None:
        self._lines = source.split(b"\n")
        self._error: tuple[SourceMark, str] | None = None
        try:
            self._root = ast.parse(source)
        except SyntaxError as error:
            self._error = SourceMark(error.lineno or 1, error.offset or 1), error.msg
        except (ValueError, RecursionError, MemoryError) as error:
            self._error = SourceMark(1, 1), f"it cannot be parsed: {error or 'it is nested too deep'}"
        if self._error is not None:
            self._root = ast.Module([], [])
        self._top = dict(self._bound())

    def check(self, breaches: Breaches) -> None:
        if self._error is not None:
            place, message = self._error
            breaches.add(place, "syntax", f"this is not Python: {message}")
            return
        own = self._own_names()
        for node in ast.walk(self._root):
            match node:
                case ast.Import(names=names):
                    for item in names:
                        self._check_import(node, item.name, breaches)
                case ast.ImportFrom(level=0, module=str(name)):
                    self._check_import(node, name, breaches)
                    for item in node.names if name == "builtins" else ():
                        self._check_builtin(node, item.name, breaches)
                case ast.ImportFrom():
                    breaches.add(
                        self.mark(node), "foreign-import", "it imports another file beside it", _ONE_FILE
                    )
                case ast.Name(id=name) if name not in own:
                    self._check_builtin(node, name, breaches)
                case ast.Attribute(value=ast.Name(id="builtins" | "__builtins__"), attr=name):
                    self._check_builtin(node, name, breaches)
        self._check_exports(breaches)

    def mark(self, node: ast.AST) -> SourceMark:
        row, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        return SourceMark(row, len(self._lines[row - 1][:column].decode("utf-8", "replace")) + 1)

    def places(self) -> tuple[Places, Places]:
        """Return the positions of the descriptor's literal values and keys."""
        top = self._top.get("workflow", self._top.get("descriptor"))
        return places_in(top, self._resolved, self.mark, _parts)

    def _check_import(self, node: ast.AST, name: str, breaches: Breaches) -> None:
        top, shown = name.partition(".")[0], one_line(name, 60)
        if name == LIBRARY or top == "__future__":
            return
        if top in REFUSED:
            message = f'"{shown}" is not allowed: it {REFUSED[top]}'
            breaches.add(self.mark(node), "foreign-import", message)
        elif top.startswith("_") and top in sys.stdlib_module_names:
            breaches.add(self.mark(node), "foreign-import", f'"{shown}" is one of Python\'s internals')
        elif top not in sys.stdlib_module_names:
            hint = nearest(top, sys.stdlib_module_names) or _ONE_FILE
            message = f'imports "{shown}", which is not in the standard library'
            breaches.add(self.mark(node), "foreign-import", message, hint)

    def _check_builtin(self, node: ast.AST, name: str, breaches: Breaches) -> None:
        if name in _BUILTINS:
            code = "dynamic-import" if name == "__import__" else "code-of-text"
            breaches.add(self.mark(node), code, f"{name}() is not allowed: it {_BUILTINS[name]}")

    def _check_exports(self, breaches: Breaches) -> None:
        if "workflow" in self._top:
            return
        for name, example in (
            ("descriptor", 'descriptor = {"description": …, "roles": {…}}, or workflow = define(…)'),
            ("run", "async def run(input, options): … yield …"),
        ):
            if name not in self._top:
                breaches.add(SourceMark(1, 1), "missing-export", f'has no "{name}"', example)
        run = self._resolved(self._top.get("run"))
        if isinstance(run, Function):
            yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _within(run))
            if isinstance(run, ast.AsyncFunctionDef) != yields:
                hint = "write async def run, with a yield for each step"
                breaches.add(self.mark(run), "no-generator", "run is not an async generator", hint)
        elif isinstance(run, ast.Constant | ast.Dict | ast.List | ast.Tuple | ast.ClassDef):
            breaches.add(self.mark(run), "no-generator", "run is not a function", "write async def run")

    def _bound(self) -> Iterator[tuple[str, ast.AST]]:
        for node in self._root.body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    yield node.name, node
                case ast.Assign(targets=targets):
                    for target in targets:
                        if isinstance(target, ast.Name):
                            yield target.id, node.value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    yield name, value
                case ast.Import() | ast.ImportFrom():
                    for item in node.names:
                        yield item.asname or item.name, node

    def _own_names(self) -> set[str]:
        own: set[str] = set()
        for node in ast.walk(self._root):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    own.add(name)
                case ast.arg(arg=name):
                    own.add(name)
                case ast.Name(id=name, ctx=ast.Store()):
                    own.add(name)
                case ast.ImportFrom(module=module) if module != "builtins":
                    own.update(item.asname or item.name for item in node.names)
        return own

    def _resolved(self, node: ast.AST | None) -> ast.AST | None:
        for _ in range(8):
            if not isinstance(node, ast.Name):
                return node
            node = self._top.get(node.id)
        return None


def _within(function: Function) -> Iterator[ast.AST]:
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending += ast.iter_child_nodes(node)


def _parts(node: ast.AST, path: ValuePath) -> Iterator[Part[ast.AST]]:
    match node:
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, key, value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            yield from ((number, None, item) for number, item in enumerate(items))
        case ast.Call(keywords=given) if not path:
            for keyword in given:
                if keyword.arg in _ARGUMENTS:
                    yield _ARGUMENTS[keyword.arg], keyword, keyword.value
