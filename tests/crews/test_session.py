"""`uwf chat` with a persona of a crew: its menu, a run that is started from it, and talk before and after."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import git_servers
import pytest
from cli_samples import on_terminal, write
from commands import git
from conftest import Uwf
from crew_packages import folder, own
from model_server import Call, ModelServer, Say

from uwf_git.base.extras import install_hint

CREW = """\
crew: trip
personas:
  mary:
    name: Mary
    title: Analyst
    role: Finds out what people want.
    prompts: {brief: Say in three lines what you know.}
    menu:
      - {trigger: plan, description: "[PT] Plan the trip", workflow: plan-trip, aliases: [plan trip]}
      - {trigger: brief, description: What she knows, action: "#brief"}
      - {trigger: talk of Rome, description: Praise Rome, action: Praise it.}
      - {trigger: talk of Ghent, description: Praise Ghent, action: Praise it too.}
      - {trigger: bye, description: Leave, action: agent.dismiss}
  tom: {name: Tom, role: Doubts.}
workflows:
  plan-trip: {file: plans/plan.yaml, title: Plan a trip, personas: {checker: tom}}
"""
QUESTION = Say("---\n$status: $SUSPEND\nquestion: Where to?\noptions: [Rome, Ghent]\n---\n")
PLAN = Say("---\nplan: Three days\n---\n\nIt is written.")
APPROVED = Say("---\nstatus: approved\n---\n\nIt is good.")
READING = {"read_file", "list_dir", "glob", "grep"}
PROMPT = "\x1b[?2004h"
"""What a line editor sends when it begins."""


@pytest.fixture
def model(uwf: Uwf, server: ModelServer, config: Callable[[str], Path]) -> ModelServer:
    """A server that is configured as the default model, with nobody for any role; and the crew."""
    config(
        f"providers:\n  local: {{baseUrl: '{server.openai_url}'}}\n"
        "models:\n  small: {provider: local, name: tiny-1}\ndefaultModel: small\n"
    )
    uwf("crew", "import", folder(Path("trip"), own(CREW)))
    return server


def chat(uwf: Uwf, *inputs: str, who: tuple[str, ...] = ("trip",), status: int = 0) -> list[dict[str, Any]]:
    """What happens in a session with these inputs, but for the words as they come."""
    events = uwf("chat", *who, input="".join(f"{each}\n" for each in inputs), check=status).lines
    return [each for each in events if each["type"] != "delta"]


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in events if each["type"] == kind]


def offered(server: ModelServer, place: int) -> set[str]:
    """The tools that were offered with a request."""
    return {each["function"]["name"] for each in server.asked[place].body.get("tools", ())}


def test_a_run_that_a_chat_starts_stands_on_it_and_the_talk_after_it_on_the_run(
    uwf: Uwf, model: ModelServer, root: Path
) -> None:
    model.play([Say("I am Mary."), QUESTION])
    events = chat(uwf, "who are you?", "/pause", "1", status=2)
    assert (events[0]["persona"], events[0]["workflow"]) == ("mary", "trip/$chat")
    assert [each["number"] for each in of(events, "menu")[0]["menu"]] == [1, 2, 3, 4, 5]
    assert "there is no /pause here" in of(events, "error")[0]["error"]["message"]
    assert [each["kind"] for each in of(events, "routed")] == ["Chat", "StartWorkflow"]
    talk, run = of(events, "message")[0]["thread"], of(events, "run")[0]["thread"]
    (question,) = of(events, "question")
    assert (question["thread"], question["question"], question["options"]) == (
        run,
        "Where to?",
        ["Rome", "Ghent"],
    )
    assert [each["thread"] for each in uwf("inbox").json] == [run]

    # Coming back is being asked again.
    paused = chat(uwf, "/pause", "Rome", who=("--resume", run), status=5)
    assert [each["step"] for each in of(paused, "question")] == [question["step"]]
    assert (of(paused, "run")[-1]["status"], of(paused, "error")[0]["error"]["code"]) == ("paused", "paused")
    model.play([PLAN, APPROVED, Say("It went well."), Say("Good.")])
    after = chat(uwf, "*resume", "2", "how was it?", "thanks", who=("trip", "--resume"), status=0)
    assert of(after, "session")[0]["thread"] == talk
    assert of(after, "run")[-1]["status"] == "completed"
    assert [(each["role"], each["persona"]["name"]) for each in of(after, "step")] == [
        *(("writer", "Mary"), ("checker", "Tom")),
    ]
    assert uwf("thread", "steps", run).json[1]["output"] == {"answer": "Ghent"}
    assert "- forNodeId: writer\nGhent" in model.asked[0].body["messages"][-1]["content"]
    said = of(after, "message")
    later = said[-1]["thread"]
    assert len({talk, run, later}) == 3
    assert [each["text"] for each in said if each["thread"] == later] == [
        *("how was it?", "It went well.", "thanks", "Good."),
    ]
    assert "Three days" in model.asked[2].body["messages"][1]["content"], "what the run came to is told"

    store = root / "store.git"
    heads = {
        line.split()[0]
        for line in git(
            "--git-dir", store, "for-each-ref", "--format=%(objectname)%(*objectname)"
        ).splitlines()
    }
    merges = git("--git-dir", store, "log", "--all", "--merges", "--format=%P %s").splitlines()
    assert sorted(line.split(" ", 2)[2] for line in merges) == [
        *("start trip/$chat: A conversation with Mary.", "start trip/plan-trip: Plan the trip"),
    ]
    assert all(any(head.endswith(line.split()[1]) for head in heads) for line in merges)
    assert uwf("verify").json["findings"] == []
    uwf("cas", "reindex")
    assert uwf("verify").json["findings"] == []
    assert of(chat(uwf, who=("trip/mary", "--resume")), "session")[0]["thread"] == later


def test_what_is_chosen_from_the_menu_may_change_something_and_talk_may_not(
    uwf: Uwf, model: ModelServer
) -> None:
    write = Call("write_file", {"path": "a.txt", "content": "x"})
    model.play([write, Say("I may not."), write, Say("Done."), Say("Rome is fine."), Say("No.")])
    events = chat(uwf, "please write it", "brief", "praise", "1", "and now?", "bye", "never heard")
    assert [each["kind"] for each in of(events, "routed")] == [
        *("Chat", "RunPrompt", "ClarifyChoice", "Instruct", "Chat", "DismissAgent"),
    ]
    assert len(of(events, "routed")[2]["candidates"]) == 2
    assert [each["failed"] for each in of(events, "tool")] == [True, False]
    assert offered(model, 0) == offered(model, -1) == READING
    assert offered(model, 2) > READING
    said = [each["text"] for each in of(events, "message") if each["role"] == "$USER"]
    assert said == ["please write it", "Say in three lines what you know.", "Praise it.", "and now?"]
    # The same words whenever they are told: what was said before stands first in each request.
    longest = model.asked[-1].body["messages"]
    for each in model.asked:
        assert longest[1 : len(each.body["messages"])] == each.body["messages"][1:]
    assert longest[5]["content"] == "[Chosen from the menu:]\n\nSay in three lines what you know."
    assert longest[-1]["content"] == "and now?"
    assert chat(uwf, who=("nobody",), status=3) == []


def test_a_crew_is_talked_with_on_a_terminal_from_its_menu_to_the_end_of_a_run(
    uwf: Uwf, model: ModelServer
) -> None:
    model.play([QUESTION, PLAN, APPROVED, Say("Always.")])
    inputs = ["plan tr\t", "Three days in June", "/pause", "/resume", "Ghent", "are you glad?", "/stop"]
    typed: list[Any] = [(PROMPT, each) for each in inputs]
    typed.append((PROMPT, lambda _child, terminal: os.write(terminal, b"\x04")))
    status, shown = on_terminal("chat", "trip", typed=typed)
    plain = re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", shown)
    assert status == 2, plain
    assert "Mary, Analyst" in plain
    assert "Plan the trip\nsay in a line what it is about" in plain
    assert "task> " in plain and "plan-trip> " in plain
    assert re.search(r"Where to\?\n +1 +Rome\n +2 +Ghent", plain)
    assert "It is written." in plain and "plan: Three days" not in plain, "the fields are for the workflow"
    assert re.search(r"3  writer by Mary \(uwf-builtin\)", plain)
    ended, kept = (uwf("thread", "list", "--all").json[place] for place in (1, 0))
    assert (ended["status"], ended["name"], kept["name"]) == ("completed", "trip/plan-trip", "trip/$chat")
    assert ended["title"] == "Three days in June"
    stopped = chat(uwf, "plan", "/stop", "are you there?", status=6)  # the model has no more to say
    assert [each["status"] for each in of(stopped, "run")][-1] == "killed"
    assert of(stopped, "message")[-1]["thread"] not in {each["thread"] for each in of(stopped, "run")}


def test_an_empty_task_begins_a_run_as_the_menu_says_and_leaving_begins_none(
    uwf: Uwf, model: ModelServer
) -> None:
    model.play([QUESTION])
    typed: list[Any] = [(PROMPT, each) for each in ("plan", "/leave", "plan", "", "/leave")]
    typed.append((PROMPT, lambda _child, terminal: os.write(terminal, b"\x04")))
    status, shown = on_terminal("chat", "trip", typed=typed)
    assert status == 0, shown
    assert shown.count("say in a line what it is about") == 2
    (waiting,) = uwf("inbox").json
    assert (waiting["name"], waiting["title"]) == ("trip/plan-trip", "Plan the trip")
    assert [each["name"] for each in uwf("thread", "list").json] == ["trip/plan-trip", "trip/$chat"]


def test_a_command_at_the_question_for_a_task_keeps_the_question(uwf: Uwf, model: ModelServer) -> None:
    model.play([QUESTION])
    typed: list[Any] = [
        (PROMPT, each) for each in ("plan", "/help", "/nothing", "//home is near", "/leave", "/leave")
    ]
    typed.append((PROMPT, lambda _child, terminal: os.write(terminal, b"\x04")))
    status, shown = on_terminal("chat", "trip", typed=typed)
    plain = re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", shown)
    assert status == 2, plain
    assert re.search(r"/leave +Don't begin the run\.", plain) and "there is no /nothing here" in plain
    assert "there is no /leave here" in plain and "/dismiss or Ctrl-D leaves the chat" in plain
    assert uwf("inbox").json[0]["title"] == "/home is near"


def test_a_run_that_failed_lets_the_menu_through_and_is_left_as_it_is(uwf: Uwf, model: ModelServer) -> None:
    model.play([])  # which fails whoever asks
    events = chat(uwf, "plan", "and now?", "/unheard-of", "/help", status=2)
    run, talk = of(events, "run")[0]["thread"], events[0]["thread"]
    failed, free, unknown = (each["error"] for each in of(events, "error"))
    assert free["message"] == f"run {run} has failed" and failed["code"] == "agent_failed"
    assert free["hint"] == "/resume continues it, /leave leaves it, /stop ends it"
    assert "/unheard-of" in unknown["message"]
    (listed,) = of(events, "help")  # for an unknown command ends nothing
    assert "/leave" in [each["name"] for each in listed["commands"]]

    model.play([Say("Rome is grand."), QUESTION, Say("I am Mary."), PLAN])
    inputs = ["", "talk of Rome", "/resume", "/leave", "who are you?", "/resume"]
    events = chat(uwf, *inputs, who=("--resume", run))
    assert [each["status"] for each in of(events, "run")] == ["failed", "left", "left"]
    assert len(of(events, "menu")) == 1, "an empty input shows it"
    said = of(events, "message")
    assert [each["text"] for each in said[1::2]] == ["Rome is grand.", "I am Mary."]
    assert talk is None or said[0]["thread"] == talk
    assert [each["thread"] for each in of(events, "question")] == [run, run], "which it is asked again"
    assert uwf("thread", "show", run).json["status"] == "waiting"
    assert uwf("verify").json["findings"] == []


def test_a_run_that_failed_is_left_by_a_pause_too(uwf: Uwf, model: ModelServer) -> None:
    model.play([])
    run = of(chat(uwf, "plan", status=6), "run")[0]["thread"]
    model.play([Say("I am Mary.")])
    events = chat(uwf, "/pause", "who are you?", who=("--resume", run))
    assert [each["status"] for each in of(events, "run")] == ["failed", "paused", "left"]
    assert of(events, "message")[-1]["text"] == "I am Mary."
    assert uwf("thread", "show", run).json["status"] == "paused"


def test_a_run_that_no_chat_began_is_answered_in_one_and_talked_about_after_its_end(
    uwf: Uwf, model: ModelServer
) -> None:
    run = uwf("thread", "start", "trip/plan-trip", "--as", "tom", "-p", "Plan it.").json["thread"]
    model.play([QUESTION])
    asked = uwf("thread", "run", run, "--agent", "uwf-builtin", check=None).lines[-1]
    assert asked["status"] == "waiting"
    model.play([PLAN, APPROVED, Say("Very well.")])
    events = chat(uwf, "2", "how was it?", who=("--resume", run))
    assert (events[0]["thread"], events[0]["persona"]) == (None, "tom")
    assert of(events, "menu") == [], "what is typed answers the run"
    assert [each["question"] for each in of(events, "question")] == ["Where to?"]
    assert "- forNodeId: writer\nGhent" in model.asked[0].body["messages"][-1]["content"]
    assert [each["status"] for each in of(events, "run")][-1] == "completed"
    later = of(events, "message")[-1]["thread"]
    assert later != run
    assert "Three days" in model.asked[2].body["messages"][1]["content"], "what the run came to is told"
    assert uwf("verify").json["findings"] == []


def test_a_completed_run_is_gone_back_to_by_its_id_and_the_talk_begins_after_it(
    uwf: Uwf, model: ModelServer, root: Path
) -> None:
    model.play([PLAN, APPROVED])
    ended = uwf("chat", "trip", input="plan\n/dismiss\n")
    run = of(ended.lines, "run")[-1]["thread"]
    model.play([Say("Good.")])
    events = chat(uwf, "", "how was it?", who=("--resume", run))
    assert [each["status"] for each in of(events, "run")] == ["completed"]
    assert len(of(events, "menu")) == 1, "nothing is left to be answered"
    later = of(events, "message")[-1]["thread"]
    assert later not in (run, events[0]["thread"])
    # The second parent of the first commit of the talk is the last of the run.
    log = git("--git-dir", root / "store.git", "log", "--merges", "--format=%P", f"refs/uwf/threads/{later}")
    (archived,) = git(
        "--git-dir", root / "store.git", "for-each-ref", "--format=%(*objectname)", f"refs/**/{run}"
    ).split()
    assert log.split()[1] == archived

    # One that was killed is over: its conversation goes on, and without one there is nothing to go on with.
    model.play([QUESTION])
    killed = chat(uwf, "plan", "/stop", who=("trip",))
    assert of(chat(uwf, who=("--resume", of(killed, "run")[0]["thread"])), "session")[0]["thread"] is not None
    alone = uwf("thread", "start", "trip/plan-trip", "-p", "Plan it.").json["thread"]
    uwf("thread", "kill", alone)
    assert "is killed" in uwf("chat", "--resume", alone, check=1).error["message"]


def test_a_conversation_goes_on_with_the_crew_of_its_thread_whatever_became_of_that(
    uwf: Uwf, model: ModelServer, root: Path, hermetic: Path
) -> None:
    tom = "tom: {name: Tom, role: Doubts., menu: [{trigger: plan, description: Plan, workflow: plan-trip}]}"
    uwf("crew", "import", folder(Path("met"), own(CREW.replace("tom: {name: Tom, role: Doubts.}", tom))))
    model.play([Say("I am Tom.")])
    talk = of(chat(uwf, "who are you?", who=("trip/tom",)), "message")[0]["thread"]
    run = uwf("thread", "start", "trip/plan-trip", "--as", "tom", "-p", "Plan it.").json["thread"]
    without = CREW.replace("  tom: {name: Tom, role: Doubts.}\n", "").replace("checker: tom", "checker: mary")
    uwf("crew", "import", folder(Path("changed"), own(without.replace("plan-trip", "other"))))

    def goes_on(store: Path) -> list[str]:
        """The session goes on with Tom, his menu, and the run that it starts."""
        known = {"UWF_STORAGE_ROOT": str(store)}
        model.play([Say("Still Tom."), QUESTION])
        told = uwf("chat", "--resume", talk, input="and now?\n/menu\nplan\n/stop\n", env=known, check=None)
        events = told.lines
        assert (events[0]["thread"], events[0]["crew"], events[0]["persona"]) == (talk, "trip", "tom"), told
        assert of(events, "message")[1]["text"] == "Still Tom."
        assert [each["description"] for each in of(events, "menu")[0]["menu"]] == ["Plan"]
        assert [each["question"] for each in of(events, "question")] == ["Where to?"], told
        assert uwf("chat", "--resume", run, input="", env=known).lines[0]["persona"] == "tom"
        assert uwf("verify", "--all", env=known).json["findings"] == []
        shown = uwf("chat", "--resume", talk, "--format", "text", input="", env=known).err
        return [line for line in shown.splitlines() if "trip" in line]

    own_one = "this goes on with the one that it began with"
    assert goes_on(root) == [f"uwf: crew 'trip' has another version by now: {own_one}"]
    uwf("crew", "rm", "trip", "--yes")
    line = f"uwf: crew 'trip' isn't registered here: {own_one}"
    assert goes_on(root) == [line]
    hub, there = hermetic / "hub.git", hermetic / "there"
    uwf("remote", "add", "origin", git_servers.bare(hub))
    uwf("push")
    uwf("clone", hub, env={"UWF_STORAGE_ROOT": str(there)})
    (there / "config.yaml").write_bytes((root / "config.yaml").read_bytes())
    assert uwf("crew", "list", env={"UWF_STORAGE_ROOT": str(there)}).json == []
    assert goes_on(there) == [line]


def test_without_the_line_editor_one_line_says_what_to_install_and_lines_are_read_all_the_same(
    uwf: Uwf, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("hidden/sitecustomize.py", "import sys\nsys.modules['prompt_toolkit'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(Path("hidden").absolute()))
    agent = ("--agent", "uwf-exec echo Hello.")
    status, shown = on_terminal("chat", *agent, columns=400)
    assert status == 1
    assert f"uwf chat needs the package prompt_toolkit on a terminal — {install_hint('chat')}" in shown
    assert "Hello." in uwf("chat", *agent, input="Hi\n").out
