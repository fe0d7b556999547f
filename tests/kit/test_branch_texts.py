"""Forks and joins are told to agents in words, and within the size of a history."""

from __future__ import annotations

from typing import Any

from uwf_git.api.conversation import past_prompt
from uwf_git.api.run import Options, run
from uwf_git.engine.kit.branch_texts import fork_text, join_text
from uwf_git.format.fan_out import Fork, ForkedBranch, JoinedBranch, join_payload
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Start, StepContext
from uwf_git.git.repository import Oid
from uwf_git.kit import Context, Reply, create_agent
from uwf_git.store.instance import Instance
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.source import parse_source

NODE = Hash("0123456789ABC")
THREAD = ThreadId("01" + "0" * 24)


def steps(*branches: JoinedBranch, items: tuple[Any, ...] | None = None) -> list[StepContext]:
    given = items or tuple({"path": f"{number}.py"} for number in range(len(branches)))
    fork = Fork("planner", 0, "file", given, (ForkedBranch(NODE, "fixer"),), ("reviewer",), len(given), True)
    forked = StepContext(NODE, "$FORK", fork.payload(), NODE, "uwf")
    return [forked, StepContext(NODE, "$JOIN", join_payload(branches), NODE, "uwf")]


def done(output: Any) -> JoinedBranch:
    return JoinedBranch("completed", THREAD, NODE, output)


def test_a_join_tells_each_branch_by_index_without_hashes() -> None:
    inner = join_payload([done({"n": 1})])
    failed = JoinedBranch("failed", THREAD, NODE, None, "no way")
    fork, join = steps(done({"fixed": True}), failed, JoinedBranch("left", THREAD), done(inner))
    assert fork_text(2, fork) == "## Step 2: 4 branches forked, one for each file"
    text = join_text(3, join, fork, 10_000)
    assert NODE not in text and THREAD not in text
    parts = text.split("\n\n### ")
    assert parts[0] == "## Step 3: 2 of 4 branches completed and joined, one for each file"
    assert [part.split("\n")[0] for part in parts[1:]] == [
        "Branch 0 completed",
        "Branch 1 failed: no way",
        "Branch 2 had not ended, and goes on no further",
        "Branch 3 completed",
    ]
    assert 'file: {"path": "0.py"}' in parts[1] and '"fixed": true' in parts[1]
    assert '"n": 1' in parts[4]


def test_short_outputs_leave_their_room_to_long_ones() -> None:
    fork, join = steps(*[done("x")] * 9, done("y" * 50_000), done("z" * 3_000))
    text = join_text(3, join, fork, 20_000)
    assert len(text) < 21_000 and text.count("y") > 10_000 and text.count("z") == 3_000
    assert text.count("characters left out") == 1
    assert f"`uwf thread read {THREAD}` has the rest" in text


def test_of_more_branches_than_fit_the_last_are_left_out() -> None:
    fork, join = steps(*[done({"text": "x" * 1_000})] * 5_000)
    text = join_text(3, join, fork, 30_000)
    assert len(text) < 40_000 and text.count("### Branch") == 100
    assert f"4,900 more branches are left out here for the size: `uwf thread step-details {NODE}`" in text


WORKFLOW = """\
version: 1
name: audit
description: Audits files.
roles:
  planner: {description: d, systemPrompt: s, outputSchema: {type: object, properties: {files: {type: array}}}}
  fixer: {description: d, systemPrompt: s, outputSchema: {type: object, properties: {fixed: {type: string}}}}
  reviewer: {description: d, systemPrompt: s, outputSchema: {type: object, properties: {ok: {type: boolean}}}}
graph:
  $START: [{role: planner}]
  planner:
    - {each: $last().files, as: file, role: fixer, prompt: "Fix {{ file }}", join: {role: reviewer, prompt: "{{ summary }}"}}
  fixer: [{role: reviewer}]
  reviewer: [{role: $END}]
"""  # noqa: E501


def test_prompts_around_a_fan_out_are_the_same_when_they_are_made_again(instance: Instance) -> None:
    prompts: dict[tuple[str, str], str] = {}
    outputs = {"planner": {"files": ["a", "b"]}, "fixer": {"fixed": "yes"}, "reviewer": {"ok": True}}

    def play(context: Context) -> Reply:
        prompts[context.thread, context.role.name] = context.prompt
        return Reply("done", output=outputs[context.role.name])

    version = instance.registry.put(compile_source(parse_source(WORKFLOW.encode(), "audit.yaml", None)))
    thread = instance.threads.start(Oid(hex=version.commit), Start(version.hash, "Audit"))
    agent = create_agent("uwf-test", play)
    list(run(instance, thread, lambda: Options(agent, hooks=False)))
    planner, reviewer = prompts[thread, "planner"], prompts[thread, "reviewer"]
    assert "- Allowed next: each file: fixer, then reviewer." in planner
    assert "the joined branches (step 3)" in reviewer and "### Branch 1 completed\n\nfile: b\n" in reviewer
    assert reviewer.endswith("2 of 2 branches completed\n\n" + reviewer.split("\n\n")[-1])
    branches = [each for each in prompts if each[1] == "fixer"]
    assert len(branches) == 2
    first = prompts[branches[0]]
    assert "# The task\n\nFix a\n" in first and "- Allowed next: the end of this branch." in first
    assert "which is branch 0 of a fork" in first and "planner" not in first
    assert past_prompt(instance, thread, 4)["prompt"] == reviewer
    assert past_prompt(instance, ThreadId(branches[0][0]), 1)["prompt"] == first
