"""What a benchmark yields: rows of the table and points of plots; and how much is built and measured."""

from __future__ import annotations

from typing import NamedTuple


class Size(NamedTuple):
    """How much is built and how often it is measured."""

    turns: int
    threads: int
    many: int
    few: int
    long: int
    batch: int
    disk: int
    growth: tuple[int, ...]
    calls: int
    shared: int
    archived: tuple[int, ...]
    refs: tuple[int, ...]
    package: int
    menu: int
    crowds: tuple[int, ...]
    nodes: int
    signed: int

    @property
    def few_turns(self) -> int:
        """Turns for what takes seconds each."""
        return max(self.turns // 3, 1)


FULL = Size(
    turns=15,
    threads=1000,
    many=5000,
    few=50,
    long=5000,
    batch=50,
    disk=500,
    growth=(10, 100, 1000, 5000, 20_000),
    calls=100,
    shared=200,
    archived=(100, 5000, 50_000),
    refs=(100, 1000, 5000, 20_000),
    package=500,
    menu=200,
    crowds=(100, 5000, 50_000),
    nodes=1_000_000,
    signed=10_000,
)
QUICK = Size(
    turns=2,
    threads=20,
    many=60,
    few=10,
    long=40,
    batch=5,
    disk=20,
    growth=(10, 20, 40),
    calls=4,
    shared=5,
    archived=(5, 20),
    refs=(30, 60),
    package=20,
    menu=20,
    crowds=(5, 20),
    nodes=400,
    signed=20,
)


class Row(NamedTuple):
    """A line of the table: what was measured, against what, and what is allowed: a ratio, or without `against` the
    figure itself. `against` names in its last words, after `/`, what the yardstick is."""

    what: str
    figure: float
    unit: str
    against: float | None
    limit: float

    @property
    def ratio(self) -> float | None:
        """The figure in yardsticks."""
        return None if self.against is None else self.figure / self.against

    @property
    def holds(self) -> bool:
        """Whether the figure is within its limit."""
        return (self.figure if self.ratio is None else self.ratio) <= self.limit

    @property
    def verdict(self) -> str:
        """PASS or OVER."""
        return "PASS" if self.holds else "OVER"

    def line(self, judged: bool) -> str:
        """The row as text, with the verdict where it means something."""
        verdict = self.verdict if judged else ""
        if self.ratio is None:
            figures = f"{self.figure:9.2f} {self.unit:<2}{'':23}"
            return f"{self.what:<66}{figures}{self.limit:8.2f} {self.unit:<4}{verdict}"
        figures = f"{self.figure:9.2f} {self.unit:<2}{self.against:11.2f} {self.unit:<2}{self.ratio:8.2f} ×"
        return f"{self.what:<66}{figures}{self.limit:8.2f} ×   {verdict}"


class Point(NamedTuple):
    """A point of a line in a plot, whose x are all of one kind."""

    plot: str
    line: str
    x: float
    y: float


def compared(what: str, seconds: float, yardstick: float, limit: float) -> Row:
    """Seconds beside a yardstick's, of which they may be so many times as much."""
    return Row(what, seconds * 1000, "ms", yardstick * 1000, limit)


def cost(what: str, seconds: float, limit: float) -> Row:
    """Seconds, and how many they may be."""
    return Row(what, seconds * 1000, "ms", None, limit * 1000)


HEADER = f"{'':<66}{'measured':>12}{'yardstick':>14}{'ratio':>10}{'at most':>10}"
