"""UwfSaver by LangGraph's own suite for checkpointers."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

import uwf_git
from uwf_git.ext.langgraph import UwfSaver


def test_the_saver_conforms_in_all_required_and_all_optional_parts(tmp_path: Path) -> None:
    @checkpointer_test(name="UwfSaver")
    async def savers() -> AsyncGenerator[UwfSaver, None]:
        with UwfSaver(tmp_path) as saver:
            yield saver

    report = asyncio.run(validate(savers))
    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert failures == {}
    assert {name for name, result in report.results.items() if result.passed} == {
        *map(str, (c.value for c in Capability))
    }
    assert uwf_git.open(tmp_path).verify() == []
