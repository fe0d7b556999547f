"""Compilers of workflows in code, each of which an extension has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from uwf_git import ext

if TYPE_CHECKING:
    from pathlib import Path

    from uwf_git.config.settings import Config
    from uwf_git.format.document import Document
    from uwf_git.format.findings import Finding
    from uwf_git.workflow.compile import Compiled


class Compiler(Protocol):
    """Makes workflows of files of code, whose language the format knows."""

    def compile_file(self, path: Path, config: Config, name: str | None = None) -> Compiled:
        """Evaluate a file, for its descriptor. `name` is for a file that has none. Raises NotFound, Usage,
        InvalidWorkflow."""

    def compile_described(self, text: bytes, shown: str, document: Document, name: str) -> Compiled:
        """Evaluate nothing: the descriptor is a document. Raises InvalidWorkflow."""

    def breaches_of(self, text: bytes, language: str) -> list[Finding]:
        """What of the text breaks the contract, as far as that shows without evaluating it."""


def compiler(language: str) -> Compiler:
    """The compiler of a language, such as `format.types.JAVASCRIPT`."""
    return cast(Compiler, ext.load(ext.compiler(language)))
