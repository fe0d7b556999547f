"""The packages of other programs are there, and with them what the tests of this folder import."""

import inspect_ai.log
import langgraph.checkpoint.conformance


def test_other_programs_have_tests_and_readers() -> None:
    assert callable(langgraph.checkpoint.conformance.validate)
    assert callable(inspect_ai.log.read_eval_log)
