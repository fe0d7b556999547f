"""Compiling a code workflow into its nodes.

The contract is checked in the syntax tree first; only valid files are evaluated, for their descriptor. Equal
files give equal nodes; the XXH64 identifies a version, the SHA-256 is for trust.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.ext.code.descriptor import parse_descriptor
from uwf_git.ext.code.script import descriptor_of, is_script, script_of, start_warnings
from uwf_git.ext.code.syntax import Breaches, Places
from uwf_git.plugin import (
    CODE,
    JAVASCRIPT,
    MAX_CODE_BYTES,
    PYTHON,
    Compiled,
    Document,
    Finding,
    Findings,
    InvalidWorkflow,
    Source,
    SourceMark,
    Usage,
    Workflow,
    cbor,
    code_name_of,
    file_id,
    hash_of,
    language_of,
    name_problem,
    one_line,
    parse_workflow,
    read_bytes,
)

if TYPE_CHECKING:
    from uwf_git.ext.code import javascript, python
    from uwf_git.plugin import Config


def compile_bundle(path: Path, config: Config, name: str | None = None) -> Compiled:
    """Compile a code workflow without storing it. Its name is the descriptor's, else `name`, else the file's.
    Raises NotFound, Usage for a conflicting `name`, InvalidWorkflow."""
    language = language_of(path)
    assert language is not None
    return _evaluated(read_bytes(path, MAX_CODE_BYTES), language, config, str(path), name, code_name_of(path))


def read_again(workflow: Workflow, text: bytes, config: Config) -> Compiled:
    """Compile a trusted code workflow again from its file. Raises as `compile_bundle`."""
    assert workflow.code is not None
    return _evaluated(text, workflow.code.language, config, workflow.file, None, workflow.name)


def _evaluated(
    text: bytes, language: str, config: Config, shown: str, name: str | None, otherwise: str
) -> Compiled:
    from uwf_git.ext.code.describe import describe

    if is_script(text, language):
        return _of_script(text, language, shown, name, otherwise)
    breaches, places = _contract(text, language)
    if breaches:
        raise InvalidWorkflow(shown, breaches)
    described = describe(text, language, config)
    if described.problem or described.run not in ("", "function"):
        message = described.problem or f"run is {described.run}, not a function"
        finding = Finding(max(described.line, 1), max(described.column, 1), "error", "fails", message)
        raise InvalidWorkflow(shown, [finding])
    document = Document(shown, described.descriptor, *places, {})
    return _compiled(text, language, document, name, otherwise)


def _of_script(text: bytes, language: str, shown: str, name: str | None, otherwise: str) -> Compiled:
    """Compile a workflow script by its literal `meta`; nothing is run."""
    if not_text := _not_utf8(text):
        raise InvalidWorkflow(shown, not_text)
    breaches, script = _checked(text, language)
    if any(breach.severity == "error" for breach in breaches):
        raise InvalidWorkflow(shown, breaches)
    descriptor = descriptor_of(script.meta, dict.fromkeys(script.types), name or otherwise)
    compiled = _compiled(text, language, Document(shown, descriptor, {}, {}, {}), name, otherwise)
    return compiled._replace(warnings=(*breaches, *compiled.warnings))


def _checked(text: bytes, language: str) -> tuple[list[Finding], Any]:
    breaches = Breaches()
    script = script_of(text, language)
    script.check(breaches)
    return breaches.sorted(), script


def compile_described(text: bytes, shown: str, document: Document, name: str) -> Compiled:
    """Compile JavaScript with a given descriptor, without evaluation. Raises as `compile_bundle`."""
    breaches, _ = _contract(text, JAVASCRIPT)
    if breaches:
        raise InvalidWorkflow(shown, breaches)
    return _compiled(text, JAVASCRIPT, document, name, name)


def _compiled(text: bytes, language: str, document: Document, name: str | None, otherwise: str) -> Compiled:
    shown = document.name
    findings = Findings(document)
    descriptor = parse_descriptor(document, findings)
    own_name = descriptor.payload.get("name")
    if name is not None and own_name and name != own_name:
        raise Usage(f"{one_line(shown)} calls itself {own_name!r}", "leave out --name")
    called = own_name or name or otherwise
    if problem := name_problem(called):
        findings.error((), "bad-name", f'workflow name "{called}" {problem}', "give it a --name")
    warnings = findings.sorted()
    if any(finding.severity == "error" for finding in warnings):
        raise InvalidWorkflow(shown, warnings)
    payload: dict[str, Any] = cbor.normalise(
        {
            **descriptor.payload,
            "name": called,
            "language": language,
            "file": {"id": file_id(text), "sha256": hashlib.sha256(text).hexdigest(), "size": len(text)},
        }
    )
    source = Source(shown, text, document.data, document, {})
    workflow = parse_workflow(payload)
    return Compiled(payload, hash_of(CODE, payload), descriptor.schemas, workflow, source, tuple(warnings))


def breaches_of(text: bytes, language: str) -> list[Finding]:
    """Return the static violations of the contract."""
    return [finding for finding in _contract(text, language)[0] if finding.severity == "error"]


def _contract(text: bytes, language: str) -> tuple[list[Finding], tuple[Places, Places]]:
    if not_text := _not_utf8(text):
        return not_text, ({}, {})
    if is_script(text, language):
        return _checked(text, language)[0], ({}, {})
    breaches = Breaches()
    module = _module(text, language)
    module.check(breaches)
    return breaches.sorted(), module.places()


def _not_utf8(text: bytes) -> list[Finding]:
    breaches = Breaches()
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        breaches.add(SourceMark(line, 1), "not-utf-8", "not UTF-8", "save the file as UTF-8")
    return breaches.sorted()


def _module(text: bytes, language: str) -> javascript.Module | python.Module:
    if language == PYTHON:
        from uwf_git.ext.code.python import Module as PythonModule

        return PythonModule(text)
    from uwf_git.ext.code.javascript import Module

    return Module(text)


class Contract:
    """The compiler for the registry."""

    compile_file = staticmethod(compile_bundle)
    compile_described = staticmethod(compile_described)
    start_warnings = staticmethod(start_warnings)
