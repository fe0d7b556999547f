"""What is printed beside an answer, or in place of one, and speaks of its decision."""

from __future__ import annotations

import json
from typing import Any

import pytest

from uwf_git.engine.kit.context import Reply
from uwf_git.engine.kit.extract import ExpectedOutput, judge
from uwf_git.engine.kit.printed_answer import judge_printed
from uwf_git.format.builtin import META
from uwf_git.format.kinds import Role
from uwf_git.format.node import hash_of
from uwf_git.format.schema import Schema


def wanted(properties: dict[str, Any], **others: Any) -> ExpectedOutput:
    schema = Schema({"type": "object", "properties": properties, "required": list(properties), **others})
    return ExpectedOutput(Role("reviewer", "Reviews", hash_of(META, schema.payload)), schema)


REVIEW = wanted({"approved": {"type": "boolean"}, "summary": {"type": "string"}})
CHECK = wanted({"passed": {"type": "boolean"}, "report": {"type": "string"}})
CHECKS = {
    name: wanted({name: {"type": "boolean"}, "report": {"type": "string"}})
    for name in ("passed", "success", "ok", "approved", "done", "completed")
}
STATUS = wanted({"status": {"enum": ["passed", "failed"]}, "report": {"type": "string"}})
YES = '{"approved": true, "summary": "a"}'
BLOCK = "---\napproved: true\nsummary: a\n---\n"

BESIDE = [
    "Running checks...\napproved: false\nsummary: x",
    "approved: false\nsummary: x\nThanks for reading.",
    "Here it is:\n\n    approved: false",
    "Review done.\nApproved: No.",
    "Review done.\nApproved: No, since there are no tests.",
    "Approved: no because there are no tests",
    "Review done.\nApproved: Rejected",
    "Approved: ❌",
    "cat <<EOF > out.yaml\napproved: false\nEOF",
    "Verdict\n> approved: false",
    "Verdict\n1. approved: false",
    "<think>approved: false</think>",
    "a\nis_approved: false",
    "a\nisApproved = false",
]
MARKUP = [
    "**approved**: false",
    "**Approved:** false",
    "`approved`: `false`",
    "«approved»: false",
    "| approved | false |",
    "| approved | summary |\n|---|---|\n| false | x |",
    "approved,summary\nfalse,x",
    "approved,false\nsummary,x",
    "approved\tsummary\nfalse\tx",
    "approved  summary\nno        x",
    "## approved\n\nfalse",
    "## Approved\n\nNo.\n",
    "Approved\n--------\nfalse",
    "<approved>false</approved>",
    "```xml\n<approved>false</approved>\n```",
    "<field name='approved'>false</field>",
    '<review approved="false"/>',
    '<approved type="boolean">false</approved>',
    "<plist><key>approved</key>\n<false/></plist>",
    "Done.\n<!-- approved: false -->",
    "@@ -0,0 +1 @@\n+approved: false",
    "{&quot;approved&quot;: false}",
    "approved\uff1a false",
    '[{"name":"approved","value":false}]',
    "2026-01-01 INFO approved=false",
    "❌ approved: false",
    "(approved: false)",
    "approved......false",
]
NOTATIONS = [
    "```toml\napproved = false\n```",
    "[review]\napproved = false",
    "start\n+++\napproved = false\n+++",
    "; ini\napproved=false",
    "export approved=false",
    "const approved = false;",
    "let approved: bool = false;",
    "Review(approved=False)",
    "map[approved:false]",
    "{:approved false}",
    "{:approved=>false}",
    "return {\n  approved = false,\n}",
    "review {\n  approved = false\n}",
    "array ('approved' => false,)",
    'a:1:{s:8:"approved";b:0;}',
    "(approved false)",
    "(approved . #f)",
    "approved -> false",
    "POST\napproved=false&summary=x",
    "POST\napproved%3Dfalse",
    "Here: {“approved”: false}",
    "a\bap\bpproved: false",
    '{"result":"---\\napproved: false\\nsummary: x\\n---"}',
    '{"type":"tool_result","content":[{"type":"text","text":"approved: false"}]}',
    '{"app\u200broved": false}',
    "a\napp\u00adroved: false",
    '{"\\u0061pproved": false,}',
    '{" approved ": false}',
]
UNFINISHED = [
    '{"approved"',
    'A log.\n{"approved"',
    'A log.\nVerdict: {"approved"',
    *('{"reasons": ["a", "b"], "'[:end] for end in range(1, 25)),
    *('A log.\n{"reasons": ["a", "b"], "appr'[:end] for end in range(8, 36)),
    *(f"{log}{end}" for log in ("", "A log.\n") for end in ("```", "```js", "```json", "---", "---\nsumm")),
    "---\napproved",
    "A log.\n---\napproved\n",
    "A log.\n``",
    "A log.\n--",
]
DENIALS = [
    "false",
    "no",
    "rejected",
    "NOT APPROVED",
    "Verdict: rejected.",
    '{"ok":false}',
    '{"success":false}',
    '{"is_approved":false}',
    '{"approve": false, "summary_": "no"}',
    '{"verdict":"rejected"}',
    '{"error":{"code": 529}}',
    '{"type":"result","is_error":true}',
    '```json\n{"ok": false}\n```',
]
SECOND = [
    "Correction: approved: false",
    'No wait: {"approved": false, "summary": "b"} is right.',
    "| approved | false |",
    "{'approved': False}",
    "approved: false\nsummary: b",
    "- approved: false",
    '{"approved": false}',
    '{"approved": fal',
    '{"approved": false, "summary": "b", "why": "no tests"}',
    '[{"approved": false, "summary": "b"}]',
    '{"result": {"approved": false, "summary": "b"}}',
    '{"Approved": false, "Summary": "b"}',
    '{"approved": false, "summary": "b",}',
    '```json\n{"approved": false, "summary": "b",}\n```',
    'Final: {"approved": false, "summary": "b"}',
    '```toml\napproved = false\nsummary = "b"\n```',
    "<answer><approved>false</approved></answer>",
    "Correction:\n\n---\napproved: false\nsummary: b\nreason: none\n---",
    "Correction:\n\n---\napproved: false\nsummary: b",
]


REFUSALS = [
    "I do not approve this",
    "I can\u2019t accept this change: it has no tests.",
    "REJECTED: the tests are missing",
    "**Rejected** - there are no tests",
    "Changes requested:\n- a test",
    "1..2\nok 1\nnot ok 2 - adds",
    '<testsuites>\n<testsuite tests="3" failures="1" errors="0"></testsuite>\n</testsuites>',
]


@pytest.mark.parametrize("printed", [*REFUSALS, *BESIDE, *MARKUP, *NOTATIONS, *UNFINISHED, *DENIALS])
def test_a_printed_rejection_is_not_left_to_the_exit_status(printed: str) -> None:
    for text in (printed, printed.replace("\n", "\r\n"), f"\x1b[31m{printed}\x1b[0m\n"):
        verdict = judge_printed(text, REVIEW)
        assert verdict is not None, "the exit status would decide"
        assert verdict.problems and "line" in verdict.problems[0]
        assert judge(Reply(text), REVIEW).problems


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", [YES, BLOCK, f"```json\n{YES}\n```"])
def test_a_mention_that_disagrees_with_an_answer_makes_it_none(first: str, second: str) -> None:
    for text in (f"{first}\n\n{second}\n", f"{second}\n\n{first}\n"):
        for verdict in (judge_printed(text, REVIEW), judge(Reply(text), REVIEW)):
            assert verdict is None or verdict.problems
        assert judge_printed(text, REVIEW) is not None


@pytest.mark.parametrize(
    "text",
    [
        '{"approved": true, "summary": "a", "Approved": false}',
        '{"approved": true, "summary": "a", "review": {"approved": false}}',
        "---\napproved: true\nsummary: a\nreview: {approved: no}\n---\n",
    ],
)
def test_fields_that_disagree_within_an_answer_make_it_none(text: str) -> None:
    for verdict in (judge_printed(text, REVIEW), judge(Reply(text), REVIEW)):
        assert verdict is not None and verdict.problems


@pytest.mark.parametrize(
    "around",
    [
        "{answer}\n\nApproved: yes. The tests pass, and approved, false positives aside, is right.",
        "<think>\napproved: false? No.\n</think>\n{answer}",
        "I looked.\n\n{answer}\n\n| approved | true |\n",
        "{answer}\n\nApproved: no further comments.",
        "{answer}\n\nAn unapproved: false or auto_approved: false is something else.",
    ],
)
def test_what_agrees_with_an_answer_does_no_harm(around: str) -> None:
    for answer in (BLOCK, '{"approved": true, "summary": "approved: false was wrong"}'):
        text = around.format(answer=answer)
        for verdict in (judge_printed(text, REVIEW), judge(Reply(text), REVIEW)):
            assert verdict is not None and not verdict.problems
            assert verdict.output["approved"] is True


@pytest.mark.parametrize(
    "text",
    [
        f"The tool printed\n\n```json\n{YES}\n```\n\nbut tests fail. Rejected.",
        f"My first thought was this:\n\n{BLOCK}\nBut now I reject.",
        *(
            f"<{tag}>\n{BLOCK}</{tag}>\nRejected."
            for tag in (
                *("scratch_pad", "thought_process", "internal_monologue", "inner_thoughts", "plan"),
                *("rough_draft", "tool_result", "function_results", "document"),
            )
        ),
        f"```think\n{BLOCK}```\nRejected.",
        f"## Reasoning\n\n{BLOCK}\n## Verdict\n\nRejected.",
        f"API Error: 529 Overloaded\n\n{BLOCK}",
    ],
)
def test_what_is_quoted_or_thought_is_no_answer(text: str) -> None:
    for verdict in (judge_printed(text, REVIEW), judge(Reply(text), REVIEW)):
        assert verdict is not None and verdict.problems


def test_a_listed_status_is_compared_by_its_words() -> None:
    review = wanted({"status": {"enum": ["approved", "changes requested"]}})
    for text in (
        "Status: changes requested",
        "x\nstatus = Changes_Requested",
        "| status | changes-requested |",
    ):
        verdict = judge_printed(text, review)
        assert verdict is not None and verdict.problems
        verdict = judge(Reply(f"---\nstatus: approved\n---\n\n{text}"), review)
        assert "answers that disagree" in verdict.problems[0]
        assert not judge(Reply(f"---\nstatus: changes requested\n---\n\n{text}"), review).problems


HONEST = {
    "tap": "ok 1 - adds\nnot ok 2 - subtracts # TODO later\nok 3 - not ok\n1..3\n",
    "junit": '<testsuites>\n<testsuite tests="3" failures="0" errors="0"></testsuite>\n</testsuites>\n',
    "pytest": "============ test session starts ============\ncollected 5 items\n\ntests/test_passed.py .....   [100%]"
    "\n\n============ 5 passed, 1 skipped in 0.10s ============\n",
    "pytest -v": "tests/x.py::test_approved_false PASSED [ 50%]\ntests/x.py::test_success[passed-no] PASSED [100%]\n",
    "pytest -rA": "PASSED tests/x.py::test_a\nXFAIL tests/x.py::test_b - not done: no time\n5 passed, 1 xfailed\n",
    "unittest": "..\n--------------\nRan 2 tests in 0.001s\n\nOK\n",
    "make": "make[1]: Entering directory '/x'\ncc -Wall -o x x.c\nmake[1]: Nothing to be done for 'all'.\n",
    "mypy": "Success: no issues found in 3 source files\n",
    "ruff": "All checks passed!\n",
    "eslint": '[{"filePath":"/a.js","messages":[],"errorCount":0,"fatalErrorCount":0,"usedDeprecatedRules":[]}]\n',
    "shellcheck": '{"comments":[]}\n',
    "cargo test": "running 2 tests\ntest a ... ok\ntest b ... ok\n\ntest result: ok. 2 passed; 0 failed; 0 ignored\n",
    "cargo build": '{"reason":"compiler-artifact","fresh":true}\n{"reason":"build-finished","success2":true}\n',
    "go test": "ok  \texample.com/a\t0.004s\n?   \texample.com/b\t[no test files]\n",
    "go test -json": '{"Action":"run","Package":"a","Test":"TestA"}\n'
    '{"Action":"output","Package":"a","Output":"--- PASS: TestA (0.00s)\\n"}\n{"Action":"pass","Package":"a"}\n',
    "jest": "PASS ./a.test.js\n  ✓ adds (2 ms)\n\nTests:       5 passed, 5 total\nSnapshots:   0 total\nTime: 1 s\n",
    "node": "TAP version 13\n# Subtest: adds\nok 1 - adds\n1..1\n# tests 1\n# pass 1\n# fail 0\n",
    "npm": "> x@1.0.0 build\n> tsc\n\nadded 12 packages, and audited 13 packages in 1s\n\nfound 0 vulnerabilities\n",
    "npm audit": '{"auditReportVersion": 2, "vulnerabilities": {}, "metadata": {"vulnerabilities": {"total": 0}}}\n',
    "git diff": "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@ def f() {\n-x = 1\n+x = 2\n",
    "diff": "1c1\n< a\n---\n> b\n",
    "pre-commit": "trim trailing whitespace.......Passed\ncheck yaml.......(no files to check)Skipped\n",
    "terraform": "No changes. Your infrastructure matches the configuration.\n\nApply complete! Resources: 0 added.\n",
    "ansible": "PLAY RECAP ****\nlocalhost : ok=3    changed=1    unreachable=0    failed=0    skipped=0\n",
    "docker": '[{"Id":"sha256:1","Config":{"Tty":false,"OpenStdin":false},"Architecture":"amd64"}]\n',
    "coverage": "Name    Stmts   Miss  Cover\n---------------------------\na.py       10      0   100%\n",
    "ctest": "100% tests passed, 0 tests failed out of 3\n\nTotal Test time (real) =   0.01 sec\n",
    "gradle": "> Task :test\n\nBUILD SUCCESSFUL in 3s\n5 actionable tasks: 5 executed\n",
    "maven": "[INFO] Tests run: 5, Failures: 0, Errors: 0\n[INFO] BUILD SUCCESS\n",
    "markdown": "# Title\n\n- a\n\n---\n\nMore\n\n```js\nlet x = {};\n```\n",
}


@pytest.mark.parametrize("tool", HONEST)
def test_what_tools_print_is_left_to_the_exit_status(tool: str) -> None:
    for check in (*CHECKS.values(), STATUS):
        assert judge_printed(HONEST[tool], check) is None
    if not HONEST[tool].startswith("{"):
        assert judge_printed(HONEST[tool], wanted({}, additionalProperties=True)) is None


def test_what_a_failed_command_prints_beside_no_answer_is_left_to_the_exit_status() -> None:
    for text in (*MARKUP, "---", '{"ok": false}', "NOT APPROVED"):
        verdict = judge_printed(text, CHECK, failed=True)
        assert verdict is None or verdict.problems


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "text",
    [
        "approved " * 30_000,
        "approved:" * 30_000,
        "approved,x\n" * 30_000,
        "approved: true\n" * 30_000,
        "\\" * 1_000_000 + "&" * 500_000,
        json.dumps([{"message": "approval", "n": n} for n in range(20_000)]),
        "<a" * 300_000 + "approved" + "<a " * 30_000,
    ],
    ids=range(7),
)
def test_megabytes_are_read_in_linear_time(text: str) -> None:
    judge_printed(text, REVIEW)  # at least hours in quadratic time
    judge(Reply(BLOCK + text), REVIEW)
