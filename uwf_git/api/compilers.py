"""Compilers of code workflows, from extensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from uwf_git.base import extensions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from uwf_git.config.settings import Config
    from uwf_git.format.document import Document
    from uwf_git.format.kinds import Workflow
    from uwf_git.workflow.compile import Compiled


class Compiler(Protocol):
    """Compiles code workflows of one language."""

    def compile_file(self, path: Path, config: Config, name: str | None = None) -> Compiled:
        """Compile a file by evaluating it for its descriptor. `name` is for a file without one. Raises
        NotFound, Usage, InvalidWorkflow."""

    def compile_described(self, text: bytes, shown: str, document: Document, name: str) -> Compiled:
        """Compile a file whose descriptor is given, without evaluation. Raises InvalidWorkflow."""

    def start_warnings(self, workflow: Workflow, prompt: str, config: Config | None) -> Iterable[str]:
        """Return warnings for a thread that starts with a prompt, also of roles that `config` has no agent for."""


def compiler(language: str) -> Compiler:
    """Return the compiler of a language, such as `format.types.JAVASCRIPT`."""
    return cast(Compiler, extensions.load(extensions.compiler(language)))
