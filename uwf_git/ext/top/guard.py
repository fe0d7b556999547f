"""Nobody answers what they haven't seen: which digits count for the question on the screen."""

from __future__ import annotations

import math
import time

from uwf_git.ext.top.question import Answer, Decision, Question
from uwf_git.plugin import ThreadId

_TO_READ = 1.0  # seconds from telling that a question was replaced until a digit answers it


class Guard:
    """The `question` on the screen, None if there is none. Times are on the monotonic clock."""

    def __init__(self) -> None:
        self.question: Question | None = None
        self._expected: ThreadId | None = None
        self._last = ""  # the key of the last question
        self._counts_from = 0.0

    def expect(self, thread: ThreadId | None) -> None:
        """Take the next question of a thread for what a key asked to see."""
        self._expected = thread

    def record(self, answer: Answer | Decision) -> None:
        """Expect what follows a recorded answer, unless that is on the screen already."""
        if self._last == answer.key:
            self._expected = answer.thread

    def take(self, question: Question | None) -> bool:
        """Guard a question; return whether it is another one than the last. One that takes the place of another by
        itself is answered by no digit until that was told."""
        self.question = question
        if question is None:
            return False
        is_new = question.key != self._last
        if question.thread == self._expected:
            self._expected, self._counts_from = None, 0.0
        elif is_new:
            self._counts_from = math.inf
        self._last = question.key
        return is_new

    @property
    def is_replaced(self) -> bool:
        """Whether another question is here now, and no digit was ignored for that yet."""
        return self._counts_from == math.inf

    def refusal(self, thread: ThreadId, number: int, typed: float, drawn: float) -> str:
        """Return why a digit that was `typed` does not answer a thread's question, "" if it may. The question is on the
        screen since it was `drawn`."""
        if self.question is None or self.question.thread != thread or typed < drawn:
            return f"{number}, typed before the question was shown"
        if typed < self._counts_from:
            self._counts_from = min(self._counts_from, time.monotonic() + _TO_READ)
            return f"{number}, another question is asked now: read it, and press {number} again"
        return ""

    def choose(self, number: int) -> Answer | Decision | None:
        """Return the answer with an option, None if there is no such option."""
        return self.question.choose(number) if self.question is not None else None
