"""A remark is said on a thread's page, which shows what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from commands import begin, wait_for
from conftest import Uwf
from site_serving import Serve, entered
from steering_agents import TALKER

TEXT = 'Keep <b>the flag</b>\nand "quotes" \u202e.'


@pytest.fixture
def changing(serve: Serve) -> Iterator[httpx.Client]:
    yield from entered(serve("--write"))


def test_a_remark_to_a_thread_at_work_is_pending_on_its_page_until_a_step_has_it(
    uwf: Uwf, changing: httpx.Client, thread: str, script: Callable[[str, str], Path]
) -> None:
    running = begin("thread", "step", thread, "--agent", script("talker", TALKER), as_fork=True)
    wait_for(Path("started"))
    page = changing.get(f"/thread/{thread}").text
    assert 'name="remark"' in page and "uwf thread say" in page
    head = uwf("thread", "show", thread).json["head"]
    origin = {"Origin": str(changing.base_url).rstrip("/")}
    answer = changing.post(f"/thread/{thread}/say", data={"head": head, "remark": TEXT}, headers=origin)
    assert answer.status_code == 303, answer.text
    page = changing.get(f"/thread/{thread}").text
    assert "pending" in page and "at the next prompt" in page
    assert "Keep &lt;b&gt;the flag" in page and "<b>the flag" not in page
    (remark,) = uwf("thread", "show", thread).json["remarks"]
    assert remark["text"].splitlines()[0] == "Keep <b>the flag</b>"
    Path("go").touch()
    assert running.wait(60) == 0
    page = changing.get(f"/thread/{thread}").text
    assert "at the next prompt" not in page
    assert [step["role"] for step in uwf("thread", "steps", thread).json] == ["writer", "$USER"]
    empty = changing.post(f"/thread/{thread}/say", data={"head": head, "remark": " "}, headers=origin)
    assert empty.status_code >= 400
