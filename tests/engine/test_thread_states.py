"""The states of threads: one table, and nothing else that spells a state."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import get_args

import pytest
import uwf_cli
from hypothesis import given
from hypothesis import strategies as st

import uwf_git
from uwf_git.base.errors import Waiting
from uwf_git.base.thread_states import (
    ABSENT,
    HOOKS,
    WORDS,
    Group,
    ThreadState,
    parse,
    states_of,
    words_in,
    worst,
)
from uwf_git.engine.thread_state import EndedState
from uwf_git.ext.fleet import queue_states
from uwf_git.format import endings

ROOTS = (Path(uwf_git.__file__).parent, Path(uwf_cli.__file__).parent)
TABLE = "base/thread_states.py"
SPELLED = {
    *WORDS,
    ABSENT,
    *(state.label for state in ThreadState),
    *(state.in_queue for state in ThreadState),
}

# Strings that are the word of a state, and mean something else.
STORED_ENDS = {
    "format/endings.py": {"completed", "failed", "killed"},  # in joins and archive tags, which never change
    "format/words.py": {"failed"},  # the cause of an attempt
    "engine/agent_code.py": {"failed"},  # what an agent has, in the message of its exception
    "ext/evaluation/node_types.py": {"completed", "failed", "waiting"},  # a trial's, in its schema
    "workflow/draft.py": {"completed", "failed"},  # `end` in the source of a workflow
}
CODES_OF_ERRORS = {
    "base/errors.py": {"waiting", "paused"},
    "ext/fleet/retry_policy.py": {"waiting", "paused"},
}
NAMES_IN_JSON = {  # of fields and events
    "api/attribution.py": {"absent"},
    "api/cockpit/board.py": {"running"},
    "api/cockpit/inbox.py": {"failed"},
    "api/cockpit/matrix.py": {"failed", "running", "waiting"},
    "api/cockpit/workflow.py": {"failed"},
    "api/events.py": {"failed", "paused", "waiting"},
    "api/listing.py": {"paused"},
    "api/progress.py": {"running"},
    "api/conversation.py": {"failed"},
    "ext/agents/cli/row.py": {"failed"},
    "engine/census.py": {"failed"},
    "engine/state.py": {"paused"},
    "ext/crews/commands/events.py": {"failed"},
    "ext/evaluation/commands/result_output.py": {"failed"},
    "ext/mcp/tools.py": {"running", "waiting"},
    "ext/top/board.py": {"running"},
    "ext/top/pane.py": {"failed", "running", "waiting"},
    "ext/web/events.py": {"failed"},
    "ext/web/thread.py": {"paused", "running"},
    "ext/web/waiting.py": {"paused"},
    "format/types.py": {"failed"},
    "api/cockpit/run.py": {"failed"},
    "commands/asking.py": {"paused"},
    "commands/branches.py": {"failed", "running", "waiting"},
    "commands/workflow_stats.py": {"failed"},
    "commands/conversation.py": {"failed"},
    "commands/reading.py": {"completed", "paused", "running"},
    "commands/spending.py": {"failed"},
    "commands/timeline.py": {"failed"},
    "commands/watch.py": {"failed", "paused", "waiting"},
}
ANSWERS_AND_RESULTS = {  # of agents, tools, calls, judges and checks
    "engine/kit/agent.py": {"failed"},
    "engine/kit/mentions.py": {"completed", "failed"},
    "engine/kit/record.py": {"failed"},
    "ext/agents/acp/agent.py": {"completed", "failed"},
    "ext/agents/acp/conversation.py": {"completed", "failed"},
    "ext/agents/exec.py": {"completed", "failed"},
    "ext/atif/writing.py": {"failed"},
    "ext/builtin/tools/mcp_client.py": {"failed"},
    "ext/builtin/tools/tool.py": {"failed"},
    "ext/ci/summary.py": {"failed"},
    "ext/ci/verification.py": {"failed"},
    "ext/code/agent.py": {"failed"},
    "ext/code/asking.py": {"failed"},
    "ext/code/calls.py": {"absent"},
    "ext/code/conversation.py": {"absent"},
    "ext/code/harness.py": {"idle"},
    "ext/code/live.py": {"idle"},
    "ext/evaluation/records.py": {"failed"},
    "ext/landing/landing_steps.py": {"failed"},
    "ext/landing/work_states.py": {"failed"},
    "forge/review_client.py": {"failed"},  # what GitLab calls a job
    "sandbox/bubblewrap.py": {"failed"},
    "sandbox/path.py": {"failed"},
    "sandbox/results.py": {"failed"},
}
VERBS_AND_PROSE = {
    "tree.py": {"running", "waiting"},  # modules of commands, as below
    "ext/evaluation/commands/tree.py": {"running"},
    "ext/fleet/commands/tree.py": {"running"},
    "commands/thread.py": {"killed"},
    "exchange_output.py": {"paused"},
    "ext/fleet/commands/queue.py": {"paused"},
    "engine/kit/branch_texts.py": {"completed", "failed"},  # for an agent that reads a join
    "workflow/diagram.py": {"failed"},  # an edge to `$FAIL`
}
OTHERS = STORED_ENDS | CODES_OF_ERRORS | NAMES_IN_JSON | ANSWERS_AND_RESULTS | VERBS_AND_PROSE


def test_nothing_but_the_table_spells_a_state() -> None:
    spelled: dict[str, set[str]] = defaultdict(set)
    literal = re.compile(rf"[\"'](?:{'|'.join(SPELLED)})[\"']")
    for root in ROOTS:
        for path in root.rglob("*.py"):
            text = path.read_text("utf-8")
            for node in ast.walk(ast.parse(text)) if literal.search(text) else ():
                if isinstance(node, ast.Constant) and node.value in SPELLED:
                    spelled[path.relative_to(root).as_posix()].add(node.value)
    del spelled[TABLE]
    assert dict(spelled) == OTHERS, "pass a ThreadState, or name the other meaning of the word above"


def test_no_page_and_no_script_compares_with_the_word_of_a_state() -> None:
    """Neither by a string nor by a class of the style."""
    words = "|".join(sorted(SPELLED))
    spelled = re.compile(
        rf"[=!]=+ *[\"'](?:{words})[\"']|^ *(?:{words}):|\.(?:{words})\b[^(;}}]*{{", re.MULTILINE
    )
    for root in ROOTS:
        for path in (*root.rglob("*.html"), *root.rglob("*.js"), *root.rglob("*.css")):
            if not {"dagre", "htmx", "code"} & set(path.parts):
                assert not spelled.findall(path.read_text("utf-8")), path


def test_states_that_share_a_word_look_alike_and_are_in_one_group_unless_one_has_ended() -> None:
    for word in WORDS:
        assert len({state.value.colour for state in states_of(word)}) == 1
        assert len({(state.is_ended, state.group) for state in states_of(word)}) == len(
            {state.is_ended for state in states_of(word)}
        )


def test_each_state_is_in_a_tab_of_the_pages() -> None:
    assert {word for group in Group for word in words_in(group)} == set(WORDS)


def test_an_ended_state_is_one_that_an_archive_tag_can_have() -> None:
    assert set(get_args(EndedState)) == {state for state in ThreadState if state.is_ended}
    assert {endings.COMPLETED, endings.FAILED, endings.KILLED} < {
        state.word for state in get_args(EndedState)
    }


def test_a_state_is_parsed_from_its_word_and_whether_it_is_an_end() -> None:
    for state in ThreadState:
        found = parse(state.word, state.is_ended)
        assert found is not None and (found.word, found.is_ended) == (state.word, state.is_ended)
    assert parse("failed", True) is ThreadState.FAILED and parse("failed", False) is ThreadState.FAILING
    assert parse("completed", False) is None and parse(None, True) is None


def test_a_queue_tells_an_end_at_fail_from_a_failure_that_is_tried_again() -> None:
    for word in queue_states.WORDS:
        assert queue_states.word_of(queue_states.parse(word)) == word
    assert queue_states.parse("failed") is ThreadState.FAILING
    assert queue_states.parse("ended failed") is ThreadState.FAILED
    assert queue_states.parse("of a later version") is queue_states.QueueState.BLOCKED


def test_the_hooks_of_the_documents_are_those_of_the_states() -> None:
    page = (Path(uwf_git.__file__).parents[1] / "docs/reference/configuration.md").read_text("utf-8")
    table = page.partition("| hook | when |")[2].partition("\n\n")[0]
    named = re.findall(r"`([a-z-]+)`", "".join(row.split("|")[1] for row in table.splitlines() if "|" in row))
    assert set(named) == set(HOOKS)


@given(st.lists(st.sampled_from([state.exit_status for state in ThreadState])))
def test_of_several_threads_the_worst_counts_and_waiting_least(statuses: list[int]) -> None:
    bad = [status for status in statuses if status != Waiting.exit_status]
    assert worst(statuses) == (max(bad, default=0) or max(statuses, default=0))


@pytest.mark.parametrize("word", WORDS)
def test_each_word_is_completed_and_taken_by_status(word: str) -> None:
    from uwf_cli.selection import _States

    assert _States(WORDS).convert(word, None, None) == states_of(word)
