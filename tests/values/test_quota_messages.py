"""What providers and programs say of a used-up quota, as they word it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from uwf_git.base.errors import Throttled
from uwf_git.base.quota_message import LONGEST, is_throttled, seconds_until_reset

NOON = datetime(2026, 3, 10, 12, 0, tzinfo=UTC).timestamp()
HOUR = 3600.0


@pytest.fixture(autouse=True)
def at_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Claude usage limit reached. Your limit will reset at 7pm (UTC).", 7 * HOUR + 5),
        ("5-hour limit reached ∙ resets 3pm", 3 * HOUR + 5),
        ("You've hit your session limit · resets 3:45pm (Europe/Berlin)", 2.75 * HOUR + 5),
        ("You've reached your weekly limit · resets Mar 12 at 10am (UTC)", 46 * HOUR + 5),
        ("Weekly limit reached ∙ resets 11am", 23 * HOUR + 5),
        (f"Claude AI usage limit reached|{int(NOON + 90)}", 90.0),
        ("You've hit your usage limit. Try again in 2 hours 15 minutes.", 2.25 * HOUR),
        (
            "You've hit your usage limit. Upgrade to Pro or try again in 3 days 4 hours 5 minutes.",
            76 * HOUR + 300,
        ),
        ("You've hit your usage limit. Try again at Mar 11th, 2026 1:30 AM.", 13.5 * HOUR + 5),
        ("Rate limit reached for gpt-4o: Please try again in 1.2s. Visit …", 1.2),
        ("Rate limit reached: Please try again in 6m0s.", 360.0),
        ("Rate limit reached: please try again in 320ms.", 0.32),
        ("429 RESOURCE_EXHAUSTED: Quota exceeded. Please retry in 38.7s.", 38.7),
        ('429 quota exceeded "retryDelay": "13s"', 13.0),
        ("You have exhausted your capacity on this model. Your quota will reset after 5h32m10s.", 19930.0),
        ("HTTP 429 Too Many Requests; Retry-After: 120", 120.0),
        ("error 429: rate limited, retry_after=7", 7.0),
        ("rate limit: resets_at: 1773144090", 90.0),
        ("quota exceeded until 2026-03-10T13:00:00Z", HOUR),
        ("HTTP 429, Retry-After: Tue, 10 Mar 2026 12:00:04 GMT", 4.0),
        ("Retry-After: 4", 4.0),
        ("429: retry-after-ms: 4000", 4.0),
        ("rate limit: send your request again after 1m30.5s", 90.5),
        ("x-ratelimit-reset-requests: 1m30.5s", 90.5),
        ("usage limit reached, at 3:15am (UTC)", 15.25 * HOUR + 5),
        ("rate limit, available again 15:30 UTC", 3.5 * HOUR + 5),
        ("API Error: Overloaded (529)", None),
        ("529 Overloaded", None),
        ("429 too many requests", None),
        ("overloaded_error: Overloaded", None),
        ("insufficient_quota: You exceeded your current quota, please check your plan", None),
        ("rate limit: try again in 900 days", None),
        ("rate limit reached, resets 25pm", None),
    ],
)
def test_a_message_tells_of_a_limit_and_of_its_end(words: str, seconds: float | None) -> None:
    assert is_throttled(words)
    found = seconds_until_reset(words, NOON)
    assert found == (None if seconds is None else pytest.approx(seconds))
    assert found is None or 0 <= found <= LONGEST


@pytest.mark.parametrize(
    "words",
    [
        "the tests failed with code 42",
        "line 429 has an error",
        "Limit the output to 10 lines",
        "connection refused",
        "the overloaded operator at line 529",
        "retry 3 times",
    ],
)
def test_other_messages_tell_of_none(words: str) -> None:
    assert not is_throttled(words) and Throttled.told("x", words) is None


def test_a_time_that_has_just_passed_is_now_and_not_tomorrow() -> None:
    assert seconds_until_reset("limit reached, resets 12pm", NOON + 30) == 0.0
    assert seconds_until_reset("limit reached, resets 12pm", NOON + HOUR) == pytest.approx(23 * HOUR + 5)
