"""Session input: a line editor on a terminal, else one line at a time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from uwf_git.plugin import Usage, UwfError, install_hint, one_line, terminal, terminal_drawing

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completion
    from prompt_toolkit.data_structures import Size
    from prompt_toolkit.document import Document

_PLACE = 30  # characters of the name of a run before the prompt's sign
_LONGEST = 1 << 20  # characters of a line, its end included

Offers = Callable[[], Iterable[tuple[str, str]]]
"""What could be typed now, and what it does."""


class InputSource(Protocol):
    """A source of inputs."""

    def read(self) -> str | None:
        """Return the next input, None at the end. Raises KeyboardInterrupt, and Usage for an oversized one,
        which is skipped."""

    def queued(self) -> AbstractContextManager[None]:
        """Keep input typed during the block for later, without echo."""


class Lines:
    """One input per line of standard input."""

    def read(self) -> str | None:
        line = self._piece()
        if len(line) <= _LONGEST:
            return line.rstrip("\r\n") if line else None
        while line and not line.endswith("\n"):
            line = self._piece()
        raise Usage(
            f"a line of over {_LONGEST} characters is left out",
            "say it in shorter messages, or name a file that holds it",
        )

    def queued(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _piece(self) -> str:
        return sys.stdin.readline(_LONGEST + 1) if sys.stdin is not None else ""


def typed(
    history: Path, clean: Callable[[str], str], offers: Offers, place: Callable[[], str]
) -> InputSource:
    """Return the source of inputs. `history` is a file of earlier ones, redacted by `clean`; `offers`
    completes a text, and `place` names the run that takes it. Raises UwfError without the line editor."""
    if sys.stdin is None or not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stdout)):
        return Lines()
    if os.environ.get("TERM", "dumb") == "dumb":
        return Lines()
    try:
        return _Prompt(history, clean, offers, place)
    except ModuleNotFoundError as error:
        raise UwfError(
            f"uwf chat needs the package {error.name} on a terminal", install_hint("chat")
        ) from None


class _Prompt:
    """A line editor. Enter sends, Alt-Enter adds a line, pasted text stays whole."""

    def __init__(
        self, path: Path, clean: Callable[[str], str], offers: Offers, place: Callable[[], str]
    ) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.history import FileHistory
        from prompt_toolkit.key_binding import KeyBindings
        from prompt_toolkit.output.vt100 import Vt100_Output

        class Kept(FileHistory):
            def load_history_strings(self) -> Iterable[str]:
                try:
                    return super().load_history_strings()
                except OSError:
                    return []

            def store_string(self, string: str) -> None:
                with suppress(OSError):  # a history is a convenience
                    super().store_string(clean(string))

        class Offering(Completer):
            def get_completions(self, document: Document, event: Any) -> Iterator[Completion]:
                begun = document.text
                for text, does in offers() if "\n" not in begun and begun.strip() else ():
                    if text.casefold().startswith(begun.casefold()):
                        yield Completion(text, -len(begun), display_meta=terminal.escape(does))

        with suppress(OSError):
            path.touch(mode=0o600)
        keys = KeyBindings()

        @keys.add("enter")
        def send(event: Any) -> None:
            event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def begin_line(event: Any) -> None:
            event.current_buffer.insert_text("\n")

        # Don't query the cursor position: typed-ahead input would mix with the answer.
        output = Vt100_Output(sys.stdout, _size, term=os.environ.get("TERM"), enable_cpr=False)
        self._session: PromptSession[str] = PromptSession(
            lambda: f"{terminal.escape(one_line(place(), _PLACE))}> ",
            history=Kept(path),
            completer=Offering(),
            multiline=True,
            key_bindings=keys,
            output=output,
            reserve_space_for_menu=4,
            prompt_continuation=lambda width, number, wrapped: " " * width,
        )

    def read(self) -> str | None:
        try:
            return self._session.prompt()
        except EOFError:
            return None

    @contextmanager
    def queued(self) -> Iterator[None]:
        import termios

        place = sys.stdin.fileno()
        before = termios.tcgetattr(place)
        inputs, outputs, control, local, *rest = before
        inputs &= ~termios.ICRNL
        local = local & ~(termios.ECHO | termios.ICANON) | termios.NOFLSH
        quiet = [inputs, outputs, control, local, *rest]

        def use(mode: list[Any]) -> None:
            with suppress(termios.error):  # it is gone
                termios.tcsetattr(place, termios.TCSANOW, mode)

        @contextmanager
        def as_before() -> Iterator[None]:
            use(before)
            try:
                yield
            finally:
                use(quiet)

        use(quiet)
        try:
            with terminal_drawing(as_before):
                yield
        finally:
            use(before)


def _size() -> Size:
    from shutil import get_terminal_size

    from prompt_toolkit.data_structures import Size

    size = get_terminal_size()
    return Size(rows=size.lines, columns=size.columns)
