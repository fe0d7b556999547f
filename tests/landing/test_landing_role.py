"""A role that lands the thread's work as a step: where the graph leads after it, and the round of a review."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import git
from conftest import REPOSITORY, Begin, Uwf
from landing_forge import Killer, one_forge
from landing_forge import LandingForge as Forge
from landing_shop import DONE, LANDED, Shop

from uwf_git.config.resolve import asks_model, full_name

BRANCH = "mend/add-two"
LISTED = (
    "{ type: object, properties: { lines: { type: array, items: { type: string } } }, required: [lines] }"
)
SCRIPT = """\
export const meta = { name: "script", description: "A script." };
return await agent("Land it.", { agentType: "uwf-land" });
"""


@pytest.fixture
def bare_shop(bare_shop: Shop) -> Shop:
    """With a role that lands."""
    bare_shop.with_landing_role()
    return bare_shop


@pytest.fixture
def shop(shop: Shop) -> Shop:
    """With a remote that is on no forge."""
    shop.with_remote()
    return shop


def steps_of(uwf: Uwf, thread: str) -> list[dict[str, Any]]:
    return list(uwf("thread", "steps", thread).json)


def output_of(uwf: Uwf, thread: str) -> dict[str, Any]:
    """The output of the last step, which is that of the role `land`."""
    step = steps_of(uwf, thread)[-1]
    assert (step["role"], step["agent"]) == ("land", "uwf-land")
    return dict(step["output"])


def landed(uwf: Uwf, shop: Shop, prompt: str = "Add *two*\nIt is missing.") -> str:
    thread = shop.accepted(prompt)
    uwf("thread", "run", thread)
    return thread


def test_the_work_lands_by_a_step_and_the_graph_ends_the_thread(uwf: Uwf, shop: Shop) -> None:
    before = shop.at_remote("rev-parse", "main")
    thread = landed(uwf, shop)
    output = output_of(uwf, thread)
    commit = shop.at_remote("rev-parse", "main")
    assert (output["status"], output["onto"], output["commit"], output["url"]) == (
        "landed",
        "main",
        commit,
        "",
    )
    assert shop.at_remote("rev-parse", "main~1") == before
    assert shop.at_remote("show", "main:sum.txt").split() == ["one", "two"]
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["work"]["text"]) == ("completed", "landed on main")
    assert "is in main already" in uwf("land", thread, check=1).error["message"]
    uwf("verify", "--strict")


def test_the_end_of_a_run_advises_nothing_about_work_that_a_step_has_landed(uwf: Uwf, shop: Shop) -> None:
    thread = shop.accepted()
    printed = uwf("thread", "run", thread, "--format", "text").err
    assert f"its code is at uwf/work/{thread}, landed on main" in printed


def test_a_train_passes_over_what_a_step_has_landed_and_the_target_dropped_since(
    uwf: Uwf, shop: Shop
) -> None:
    landed(uwf, shop)
    git("-C", shop.project, "push", "-q", "-f", "origin", "HEAD:main")
    assert uwf("land", "--train").json == []


def test_a_conflict_is_a_turn_of_the_role_that_the_edge_names_and_what_it_makes_of_it_lands(
    uwf: Uwf, shop: Shop
) -> None:
    thread = shop.accepted()
    shop.moves("sum.txt", "one\nthree\n")
    base = shop.at_remote("rev-parse", "main")
    merged, saw = shop.folder / "merged", shop.folder / "saw"
    merged.write_text("one\ntwo\nthree\n")
    merges = f"git merge -q {base} || cp {merged} sum.txt; git commit -qam merged"
    shop.configured(fixes=f"cat > {saw}; {merges}; ")
    uwf("thread", "run", thread, check=5)
    assert [step["role"] for step in steps_of(uwf, thread)] == [
        "fixer",
        "tests",
        "gate",
        "land",
        "fixer",
        "tests",
    ]
    conflict = steps_of(uwf, thread)[3]["output"]
    assert (conflict["status"], conflict["files"]) == ("conflict", ["sum.txt"])
    told = json.loads(saw.read_text())
    assert told["instruction"] == "it conflicts with main in sum.txt"
    assert f"git merge {base}" in told["prompt"] and "three" in told["prompt"]
    assert shop.at_remote("rev-parse", "main") == base
    uwf("thread", "answer", thread, "-m", "merge")
    uwf("thread", "run", thread)
    assert output_of(uwf, thread)["status"] == "landed"
    assert shop.at_remote("show", "main:sum.txt").split() == ["one", "two", "three"]
    assert shop.at_remote("rev-parse", "main~1") == base
    assert len(uwf("thread", "list", "--all").json) == 1, "no other thread goes on with it"


def test_a_check_that_fails_on_the_sum_alone_is_told_with_its_log(uwf: Uwf, shop: Shop) -> None:
    thread = shop.accepted()
    shop.moves("tests.sh", 'echo "is strict"; grep -q zero sum.txt\n')
    base, saw = shop.at_remote("rev-parse", "main"), shop.folder / "saw"
    shop.adds("zero")
    shop.configured(fixes=f"cat > {saw}; cat {shop.folder / 'what'} >> sum.txt; ")
    uwf("thread", "run", thread, check=5)
    failed = steps_of(uwf, thread)[3]["output"]
    assert (failed["status"], failed["reason"]) == ("failed", "sh tests.sh exited with 1: is strict")
    assert "```\nis strict\n```" in json.loads(saw.read_text())["prompt"]
    assert shop.at_remote("rev-parse", "main") == base
    uwf("thread", "answer", thread, "-m", "merge")
    uwf("thread", "run", thread)
    assert output_of(uwf, thread)["status"] == "landed"
    assert "zero" in shop.at_remote("show", "main:sum.txt")


def test_the_request_of_a_step_is_ready_and_the_end_brings_its_text_up_to_date(
    uwf: Uwf, forge: Forge
) -> None:
    thread = landed(uwf, forge.shop)
    output = output_of(uwf, thread)
    assert output["branch"] == BRANCH == forge.request["head"]
    assert output["commit"] == forge.shop.at_remote("rev-parse", BRANCH)
    assert str(output["url"]).endswith(f"/{forge.number}")
    title = str(forge.request["title"])
    assert not forge.request["draft"] and title.removeprefix("WIP:").removeprefix("Draft:") == title
    shown = uwf("thread", "show", thread, "--format", "text").out
    assert f"pull #{forge.number} open" in shown and "uwf land" not in shown
    body = str(forge.request["body"])
    again = uwf("land", thread).json
    assert (again["pull"]["number"], again["pull"]["draft"], again["commit"]) == (
        forge.number,
        False,
        output["commit"],
    )
    assert len(forge.server.changes) == 1
    assert "`land`" not in body and "`land`: `landed`" in str(forge.request["body"])
    assert "`land: landed`" not in str(forge.request["body"]), "it found nothing out about the tree"


def test_a_review_is_the_next_turn_and_the_graph_leads_to_the_same_branch_and_the_answers(
    uwf: Uwf, forge: Forge
) -> None:
    thread = landed(uwf, forge.shop)
    first = forge.shop.at_remote("rev-parse", BRANCH)
    forge.server.has(forge.number, ("ann", "And three."))
    onward = uwf("land", thread, "--sync").json["told"]
    assert onward != thread
    forge.shop.adds("three")
    uwf("thread", "run", onward, check=5)
    assert [step["role"] for step in steps_of(uwf, onward)][-3:] == ["$USER", "fixer", "tests"]
    uwf("thread", "answer", onward, "-m", "merge")
    uwf("thread", "run", onward)
    output = output_of(uwf, onward)
    assert (output["status"], output["branch"]) == ("landed", BRANCH)
    assert output["commit"] == forge.shop.at_remote("rev-parse", BRANCH) != first
    assert forge.shop.at_remote("show", f"{BRANCH}:sum.txt").split() == ["one", "two", "three"]
    answers = [text for _, login, text in forge.server.comments[forge.number] if login == forge.server.me]
    assert len(forge.server.changes) == len(answers) == 1
    assert str(output["commit"]) in answers[0] and "`fixer`: `added it`" in answers[0]
    assert uwf("land", onward, "--sync").json["items"] == []


@one_forge
def test_a_request_that_a_step_has_opened_is_no_draft_while_the_thread_goes_on(
    uwf: Uwf, forge: Forge
) -> None:
    workflow = forge.shop.folder / "mend.yaml"
    workflow.write_text(workflow.read_text().replace("landed: $END", "landed: gate"))
    thread = forge.shop.accepted()
    uwf("thread", "run", thread, check=5)
    again = uwf("land", thread).json
    assert (again["pull"]["new"], again["pull"]["draft"]) == (False, False)
    assert uwf("thread", "show", thread).json["work"]["state"] == "open"


@one_forge
def test_the_claims_of_a_request_that_a_step_has_opened_hold(uwf: Uwf, forge: Forge) -> None:
    thread = landed(uwf, forge.shop)
    git("-C", forge.shop.project, "fetch", "-q", "origin", BRANCH)
    git("-C", forge.shop.project, "checkout", "-q", "--detach", "FETCH_HEAD")
    text = forge.shop.folder / "request.md"
    for _ in ("opened by the step", "brought up to date after it"):
        text.write_text(str(forge.request["body"]))
        judged = uwf("claims", text).json
        assert [(row["what"], row["refused"]) for row in judged["claims"]] == [
            ("sh tests.sh exited with 0", None),
            ("tests: passed", None),
            ("gate: merge", None),
        ]
        uwf("land", thread)


@one_forge
def test_what_a_reviewer_says_before_a_landing_is_seen_to_before_it(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.at_gate()
    uwf("land", thread)  # a draft
    forge.server.has(forge.number, ("ann", "And three."))
    uwf("thread", "answer", thread, "-m", "merge")
    assert uwf("land", thread, "--sync").json["told"] == thread
    forge.shop.adds("three")
    uwf("thread", "run", thread, check=5)
    steps = steps_of(uwf, thread)[3:]
    assert [step["role"] for step in steps] == ["$USER", "land", "fixer", "tests"]
    assert steps[1]["output"] == {
        "status": "failed",
        "reason": "something was said before it landed",
        "files": [],
    }
    uwf("thread", "answer", thread, "-m", "merge")
    uwf("thread", "run", thread)
    assert output_of(uwf, thread)["status"] == "landed"
    assert "`fixer`: `added it`" in forge.server.comments[forge.number][-1][2]


@one_forge
def test_the_step_that_lands_is_nobodys_answer(uwf: Uwf, forge: Forge) -> None:
    workflow = forge.shop.folder / "mend.yaml"
    workflow.write_text(workflow.read_text().replace("failed: fixer }\n", "failed: gate }\n"))
    thread = forge.shop.at_gate()
    uwf("land", thread)
    forge.server.has(forge.number, ("ann", "And three."))
    uwf("thread", "answer", thread, "-m", "merge")
    uwf("land", thread, "--sync")
    uwf("thread", "run", thread, check=5)
    uwf("thread", "answer", thread, "-m", "merge")
    uwf("thread", "run", thread)
    assert output_of(uwf, thread)["status"] == "landed"
    assert [login for _, login, _ in forge.server.comments[forge.number]] == ["ann"]


@one_forge
def test_work_after_a_merge_lands_on_another_branch_as_the_hint_says(uwf: Uwf, forge: Forge) -> None:
    thread = landed(uwf, forge.shop)
    forge.server.merge(forge.number, "squash", by="bob")
    assert uwf("land", thread, "--sync").json["state"].startswith("merged")
    host = forge.server.url.partition("://")[2]
    forge.shop.configured(f"forges: {{ '{host}': gitea }}\n", fixes="echo x > more.txt; ")
    onward = str(uwf("thread", "resume", thread, "-m", "And more.").json["thread"])
    uwf("thread", "run", onward, check=5)
    uwf("thread", "answer", onward, "-m", "merge")
    refused = uwf("thread", "run", onward, check=6).error
    assert "is merged by bob" in refused["message"]
    uwf(*shlex.split(str(refused["hint"]).removeprefix("uwf ").replace("NAME", "mend/more")))
    assert output_of(uwf, onward)["branch"] == "mend/more"
    assert [change["head"] for change in forge.server.changes.values()] == [BRANCH, "mend/more"]


@one_forge
def test_the_comment_on_an_issue_says_that_a_step_has_landed_the_work(uwf: Uwf, forge: Forge) -> None:
    uwf("config", "set", "land.comment", "true")
    forge.server.has_issue(42, "Add two", "")
    uwf("workflow", "put", forge.shop.folder / "mend.yaml")
    thread = uwf("thread", "start", "mend", forge.server.issue_url(42)).json["thread"]
    uwf("thread", "run", thread, check=5)
    uwf("thread", "answer", thread, "-m", "merge")
    uwf("thread", "run", thread)
    (comment,) = forge.server.issue_comments[42]
    assert ": landed · 3 steps" in comment[2] and comment[2].endswith(str(output_of(uwf, thread)["url"]))


FAN_OUT = f"""\
name: mend
description: Mend each of them.
roles:
  lister: {{ description: l, systemPrompt: l, outputSchema: {LISTED} }}
  fixer: {{ description: f, systemPrompt: f, outputSchema: {DONE} }}
  land: {{ description: l, systemPrompt: l, outputSchema: {LANDED} }}
  end: {{ description: e, systemPrompt: e, outputSchema: {DONE} }}
graph:
  $START: [{{ role: lister }}]
  lister: [{{ each: $last().lines, role: fixer, prompt: "Add {{{{ item }}}}", join: end }}]
  fixer: {{ _: land }}
  land: {{ landed: end, conflict: fixer, failed: fixer }}
  end: {{ _: $END }}
"""


@one_forge
def test_each_branch_of_a_fan_out_lands_by_a_request_of_its_own(uwf: Uwf, forge: Forge, root: Path) -> None:
    (forge.shop.folder / "mend.yaml").write_text(FAN_OUT)
    config = root / "config.yaml"
    settings = yaml.safe_load(config.read_text())
    words = {"lister": '{"lines": ["two", "three"]}', "end": '{"change": "all"}'}
    settings["agents"] |= {
        name: {"command": "uwf-exec", "args": ["echo", text]} for name, text in words.items()
    }
    settings["agentOverrides"]["mend"] |= {name: name for name in words}
    config.write_text(yaml.safe_dump(settings))
    uwf("run", forge.shop.folder / "mend.yaml", "-p", "Add them")
    heads = sorted(str(change["head"]) for change in forge.server.changes.values())
    assert heads == ["mend/add-three", "mend/add-two"]


def example(name: str) -> dict[str, Any]:
    """A file of the guide."""
    guide = (REPOSITORY / "docs" / "guides" / "land-step.md").read_text()
    return dict(yaml.safe_load(guide.partition(f"```yaml file={name}\n")[2].partition("```")[0]))


@one_forge
def test_reviews_go_to_a_role_of_their_own_as_the_guide_says(uwf: Uwf, forge: Forge, root: Path) -> None:
    workflow, config = forge.shop.folder / "mend.yaml", root / "config.yaml"
    mend, triage, settings = (
        yaml.safe_load(workflow.read_text()),
        example("triage.yaml"),
        yaml.safe_load(config.read_text()),
    )
    mend["roles"] |= {**triage["roles"], "reviser": mend["roles"]["fixer"]}
    mend["graph"] |= {**triage["graph"], "reviser": {"_": "tests"}}
    workflow.write_text(yaml.safe_dump(mend))
    settings["agents"] |= example("triage-agents.yaml")["agents"]
    settings["agentOverrides"]["mend"] |= {"triage": "triage", "reviser": "fixes"}
    config.write_text(yaml.safe_dump(settings))
    thread = landed(uwf, forge.shop)
    forge.server.has(forge.number, ("ann", "And three."))
    reviewed = uwf("land", thread, "--sync").json["told"]
    forge.shop.adds("three")
    uwf("thread", "run", reviewed, check=5)
    assert [step["role"] for step in steps_of(uwf, reviewed)][-4:] == ["$USER", "triage", "reviser", "tests"]
    uwf("thread", "answer", reviewed, "-m", "merge")
    uwf("thread", "run", reviewed)
    onward = uwf("thread", "resume", reviewed, "-m", "And four.").json["thread"]
    forge.shop.adds("four")
    uwf("thread", "run", onward, check=5)
    assert [step["role"] for step in steps_of(uwf, onward)][-4:] == ["$USER", "triage", "fixer", "tests"]


def test_its_options_are_those_of_the_command(uwf: Uwf, shop: Shop) -> None:
    git("-C", shop.project, "push", "-q", "origin", "main:next")
    before = shop.at_remote("rev-parse", "main")
    shop.with_landing_role("lands")
    shop.configured()
    told = {}
    for options in ("--on next", "--commits all", "next", "--onto next --commits keep"):
        uwf("config", "set", "agents.lands.command", f"uwf-land {options}")
        (listed,) = (item for item in uwf("agent", "list").json if item["name"] == "lands")
        told[options] = listed["problem"]
    assert list(told.values()) == [
        "uwf-land has no option --on",
        "uwf-land: --commits is squash, steps or keep",
        "uwf-land has no argument next",
        "",
    ]
    assert output_of(uwf, landed(uwf, shop))["onto"] == "next"
    assert shop.at_remote("log", "-1", "--format=%an", "next") == "uwf-exec"
    assert shop.at_remote("rev-parse", "main") == before


# What was killed, or can't be said


def runs_again(uwf: Uwf, forge: Forge, thread: str, branch: str) -> None:
    uwf("thread", "run", thread)
    output = output_of(uwf, thread)
    assert (output["status"], output["branch"]) == ("landed", branch)
    assert [change["head"] for change in forge.server.changes.values()].count(branch) == 1
    assert forge.shop.at_remote("rev-parse", branch) == output["commit"]


@one_forge
def test_a_step_that_is_killed_as_its_request_is_opened_opens_no_second_one(
    uwf: Uwf, begin: Begin, forge: Forge
) -> None:
    thread, killer = forge.shop.accepted(), Killer(forge.server, "after")
    number = 0
    while not forge.server.changes:
        number += 1
        killer.kills(begin("thread", "run", thread), number)
        assert killer.has_killed
    assert steps_of(uwf, thread)[-1]["role"] == "gate"
    runs_again(uwf, forge, thread, BRANCH)


@pytest.mark.extended
@one_forge
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_step_that_is_killed_at_any_call_opens_no_second_request_and_forgets_none(
    uwf: Uwf, begin: Begin, forge: Forge, moment: str
) -> None:
    number, killer = 0, Killer(forge.server, moment)
    while number == 0 or killer.has_killed:
        number += 1
        thread, branch = forge.shop.accepted(f"Add the line {number}"), f"mend/add-the-line-{number}"
        killer.kills(begin("thread", "run", thread), number)
        if killer.has_killed:
            runs_again(uwf, forge, thread, branch)
    assert number > 3


def test_a_step_that_is_killed_after_it_has_pushed_says_that_the_work_landed(
    uwf: Uwf, begin: Begin, shop: Shop
) -> None:
    thread, hook = shop.accepted(), shop.remote / "hooks" / "post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nuntil test -s pid; do sleep 0.05; done; kill -9 $(cat pid)\n")
    hook.chmod(0o755)
    process = begin("thread", "run", thread)
    (shop.remote / "pid").write_text(str(process.pid))
    process.wait(60)
    hook.unlink()
    assert steps_of(uwf, thread)[-1]["role"] == "gate"
    uwf("thread", "run", thread)
    output = output_of(uwf, thread)
    assert (output["status"], output["commit"]) == ("landed", shop.at_remote("rev-parse", "main"))
    assert shop.at_remote("rev-list", "--count", "main") == "2"


def test_a_conflict_has_failed_where_the_role_has_no_word_for_it(uwf: Uwf, shop: Shop) -> None:
    workflow = shop.folder / "mend.yaml"
    text = workflow.read_text().replace("[conflict, failed]", "[failed]")
    workflow.write_text(text.replace("conflict: { role: fixer, prompt: '{{ reason }}' }, ", ""))
    thread = shop.accepted()
    shop.moves("sum.txt", "one\nthree\n")
    uwf("thread", "step", thread)
    assert output_of(uwf, thread)["status"] == "failed"


def test_nothing_lands_by_a_role_that_could_not_say_so(uwf: Uwf, shop: Shop) -> None:
    workflow = shop.folder / "mend.yaml"
    text = workflow.read_text().replace("const: landed", "const: done").replace("landed: $END", "done: $END")
    workflow.write_text(text)
    thread, before = shop.accepted(), shop.at_remote("rev-parse", "main")
    refused = uwf("thread", "run", thread, check=6).error
    assert "role land has no output for landed" in refused["message"] and "enum" in refused["hint"]
    assert shop.at_remote("rev-parse", "main") == before


# Time


def test_a_check_that_outlasts_its_own_limit_has_failed(uwf: Uwf, shop: Shop) -> None:
    thread, before = shop.accepted(), shop.at_remote("rev-parse", "main")
    shop.configured("land: { checks: [sleep 60], timeout: 0.2 }\n")
    uwf("thread", "step", thread)
    assert output_of(uwf, thread)["reason"] == "sleep 60 ran out of time"
    assert shop.at_remote("rev-parse", "main") == before


def test_a_check_that_outlasts_the_step_fails_it_and_the_step_can_be_made_again(uwf: Uwf, shop: Shop) -> None:
    shop.with_landing_role("lands")
    shop.configured("land: { checks: [sleep 60] }\n")
    uwf("config", "set", "agents.lands.command", "uwf-land")
    uwf("config", "set", "agents.lands.timeout", "1")
    thread, before = shop.accepted(), shop.at_remote("rev-parse", "main")
    refused = uwf("thread", "run", thread, check=6).error
    assert "ran out of time in the check sleep 60" in refused["message"]
    assert steps_of(uwf, thread)[-1]["role"] == "gate" and shop.at_remote("rev-parse", "main") == before
    assert [item for item in uwf("effect", "list", thread).json if item["kind"] == "check"] == []
    uwf("config", "unset", "land")
    uwf("config", "unset", "agents.lands.timeout")
    uwf("thread", "run", thread)
    assert output_of(uwf, thread)["status"] == "landed"


# Who may land


def test_an_agent_lands_nothing_neither_by_the_program_nor_by_another_thread(uwf: Uwf, shop: Shop) -> None:
    thread, other, third = shop.at_gate(), shop.accepted("Other"), shop.accepted("Third")
    before, printed = shop.at_remote("rev-parse", "main"), shop.folder / "printed"
    program = Path(sys.executable).with_name("uwf-land")
    bare = "env -u UWF_NONCE -u UWF_THREAD"
    acts = (
        f"{program} {other} land",
        f"uwf thread run {other}",
        f"uwf thread run {other} --agent land=uwf-land",
        f"{bare} uwf thread run {other} {third} -j 2",
        f"uwf land {other}",
    )
    script = "".join(f"{act} 2>&1 | cat; echo =====; " for act in acts)
    shop.configured(fixes=f"( {script} ) > {printed}; cat {shop.folder / 'what'} >> sum.txt; ")
    fork = uwf("thread", "fork", thread, "--at", "0").json["thread"]
    uwf("thread", "step", fork)
    for act, words in zip(acts, printed.read_text().split("=====\n")[:-1], strict=True):
        assert f"only a person lands thread {other}" in words or "engine's process alone" in words, act
    assert shop.at_remote("rev-parse", "main") == before
    for name in (other, third):
        assert steps_of(uwf, name)[-1]["role"] == "gate" and uwf("thread", "attempts", name).json == []


def test_a_program_that_is_named_by_its_path_lands_nothing(uwf: Uwf, shop: Shop) -> None:
    shop.with_landing_role(str(Path(sys.executable).with_name("uwf-land")))
    shop.configured()
    thread, before = shop.accepted(), shop.at_remote("rev-parse", "main")
    refused = uwf("thread", "run", thread, check=6).error
    assert "name uwf-land without a path" in refused["hint"]
    assert shop.at_remote("rev-parse", "main") == before


@pytest.mark.needs("bwrap", "node")
def test_code_that_asks_for_it_lands_nothing(uwf: Uwf, shop: Shop) -> None:
    (shop.folder / "script.js").write_text(SCRIPT)
    uwf("workflow", "put", shop.folder / "script.js")
    thread = uwf("thread", "start", "script", "-p", "null").json["thread"]
    uwf("thread", "run", thread, check=15)
    (call,) = (item["thread"] for item in uwf("thread", "list", "--all").json if item["thread"] != thread)
    (attempt,) = uwf("thread", "attempts", call).json
    assert "uwf-land plays roles that config.yaml gives to it" in attempt["error"]


def tried(uwf: Uwf, thread: str, step: int) -> str:
    """What the trial of a step's role after the same history says."""
    uwf("eval", "add", f"{thread}@{step}", "--to", "suite", "--name", "it")
    return uwf("eval", "run", "suite", "--retries", "0", "--format", "text", check=None).out


def test_a_trial_of_an_evaluation_lands_nothing(uwf: Uwf, shop: Shop) -> None:
    before, thread = shop.at_remote("rev-parse", "main"), landed(uwf, shop)
    git("-C", shop.project, "push", "-q", "-f", "origin", "HEAD:main")
    assert "is a trial of an evaluation, and lands nothing" in tried(uwf, thread, 4)
    assert shop.at_remote("rev-parse", "main") == before


def test_nor_does_a_workflow_within_a_trial(uwf: Uwf, shop: Shop, root: Path) -> None:
    workflow, config = shop.folder / "mend.yaml", root / "config.yaml"
    mend, settings = yaml.safe_load(workflow.read_text()), yaml.safe_load(config.read_text())
    del mend["roles"]["gate"], mend["graph"]["gate"]
    mend["graph"]["tests"]["passed"] = "land"
    workflow.write_text(yaml.safe_dump(mend))
    uwf("workflow", "put", workflow)
    graph = {"$START": {"_": "land"}, "land": {"_": "$END"}}
    outer = {**mend, "name": "outer", "roles": {"land": mend["roles"]["land"]}, "graph": graph}
    (shop.folder / "outer.yaml").write_text(yaml.safe_dump(outer))
    settings["agents"]["within"] = {"command": "uwf-workflow", "args": ["mend"]}
    settings["agentOverrides"]["outer"] = {"land": "within"}
    config.write_text(yaml.safe_dump(settings))
    before = shop.at_remote("rev-parse", "main")
    thread = str(uwf("thread", "start", shop.folder / "outer.yaml", "-p", "Add two").json["thread"])
    uwf("thread", "run", thread)
    assert shop.at_remote("rev-parse", "main") != before
    git("-C", shop.project, "push", "-q", "-f", "origin", "HEAD:main")
    assert "is a trial of an evaluation, and lands nothing" in tried(uwf, thread, 1)
    assert shop.at_remote("rev-parse", "main") == before


@pytest.mark.parametrize("agent", ["uwf-land", "land"])
def test_no_other_agent_stands_in_for_it_and_it_stands_in_for_none(agent: str) -> None:
    """By `--agent` for a whole run, or as the fallback that a workflow names."""
    assert not asks_model(full_name(agent))


def test_a_rehearsal_lands_nothing_and_needs_no_network(uwf: Uwf, shop: Shop) -> None:
    workflow, before = shop.folder / "mend.yaml", shop.at_remote("rev-parse", "main")
    git("-C", shop.project, "remote", "set-url", "origin", "http://127.0.0.1:1/shop.git")
    assert uwf("workflow", "validate", workflow).json["findings"] == []
    assert uwf("workflow", "rehearse", workflow).json["ok"]
    uwf("run", workflow, "-p", "Add two", "--agent", "uwf-rehearse")
    assert shop.at_remote("for-each-ref", "--format=%(objectname)", "refs/heads") == before
