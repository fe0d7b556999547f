"""Lines of a stream that comes in pieces."""

from __future__ import annotations

import random

from uwf_git.base.line_buffer import LineBuffer


class Counted(bytes):
    """A piece that counts the bytes which are searched, or copied together with it."""

    handled = 0

    def split(self, *words: object) -> list[bytes]:  # type: ignore[override]
        Counted.handled += len(self)
        return super().split(*words)  # type: ignore[arg-type]

    def __radd__(self, other: bytes) -> bytes:
        Counted.handled += len(other) + len(self)
        return bytes(other) + bytes(self)


def test_pieces_cut_anywhere_come_to_the_same_lines() -> None:
    dice = random.Random(7)
    text = b"".join(dice.choice([b"a", b"b", b"\n"]) for _ in range(400))
    for _ in range(50):
        buffer, lines, rest = LineBuffer(), [], text
        while rest:
            size = dice.randint(0, 9)
            lines += buffer.add(rest[:size])
            rest = rest[size:]
            assert buffer.size == len(text[: len(text) - len(rest)].rpartition(b"\n")[2])
        assert [*lines, buffer.take()] == text.split(b"\n")


def test_a_long_line_is_handled_once_however_many_pieces_it_comes_in() -> None:
    buffer, piece = LineBuffer(), Counted(b"x" * 1000)
    Counted.handled = 0
    assert not any(buffer.add(piece) for _ in range(1000))
    assert Counted.handled == 1_000_000
    assert [len(line) for line in buffer.add(b"y\nz")] == [1_000_001]
    assert buffer.take() == b"z"
