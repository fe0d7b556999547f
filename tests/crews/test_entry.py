"""What becomes of an input: a workflow begins, whichever way it was chosen, or it is said what is missing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import write
from conftest import Uwf
from crew_packages import bmad, own
from model_server import Call, ModelServer, Say

from uwf_git.base.errors import (
    DataLoadFailed,
    NotSupportedClassicWorkflow,
    UnknownPromptId,
    UnknownWorkflow,
    UwfError,
    ValidationFailed,
)
from uwf_git.engine.inbox import say
from uwf_git.ext.crews.compile import compile_crew
from uwf_git.ext.crews.conversation_start import begin_conversation_with
from uwf_git.ext.crews.crew_node import Effect, MenuItem
from uwf_git.ext.crews.entry import PREVIEW, Entry, Run
from uwf_git.ext.crews.package import from_files
from uwf_git.ext.crews.prompt import data_message
from uwf_git.ext.crews.registry import Crews, Definition
from uwf_git.format.kinds import parse_start
from uwf_git.store.instance import Instance

CREW = """\
crew: trip
personas:
  mary:
    name: Mary
    title: Analyst
    icon: 📊
    role: Finds out what people want.
    prompts: {brief: Say in three lines what you know.}
    menu:
      - {trigger: plan, description: "[PT] Plan the trip", workflow: plan-trip, aliases: [plan trip]}
      - {trigger: wishes, description: Plan by the list, workflow: plan-trip, data: "{project-root}/wishes.csv"}
      - {trigger: cities, description: Plan by cities, workflow: plan-trip, data: data/cities.json}
      - {trigger: brief, description: What she knows, action: "#brief", data: data/cities.json}
      - {trigger: story, description: Tell a story, exec: texts/story.md}
      - {trigger: cheer, description: Cheer up, action: Say something kind.}
      - {trigger: help, description: Show the menu, action: menu.show}
      - {trigger: bye, description: Leave, action: agent.dismiss}
      - {trigger: go on, description: Go on with the run, action: run.resume}
      - {trigger: web, description: Look it up, action: Look., surface: web}
  tom:
    name: Tom
    systemPrompt: You are Tom, who doubts.
    tools: {maxReadBytes: 9}
    menu:
      - {trigger: plan, description: Plan by cities, workflow: plan-trip, data: data/cities.json}
  eve:
    name: Eve
    role: Sees no files.
    tools: {files: false}
    menu:
      - {trigger: plan, description: Plan by cities, workflow: plan-trip, data: data/cities.json}
workflows:
  plan-trip: {file: plans/plan.yaml, title: Plan a trip, personas: {checker: tom}}
"""
CITIES = '["Rome", "Ghent"]\n'
KEY = "hunter2hunter2"
PARTED = f"{'A' * 27}={KEY},{'B' * (PREVIEW - 50)}={KEY},and more\n"
"""Has a key where 40 bytes end, and where a preview does."""


def put(uwf: Uwf, crew: str = CREW, **more: str) -> str:
    """Imports the crew; returns the hash of its workflow."""
    files = {**own(crew), "data/cities.json": CITIES.encode(), **{k: v.encode() for k, v in more.items()}}
    for path, data in files.items():
        Path("trip", path).parent.mkdir(parents=True, exist_ok=True)
        Path("trip", path).write_bytes(data)
    return str(uwf("crew", "import", "trip").json["workflows"][0]["workflow"])


@pytest.fixture
def workflow(uwf: Uwf) -> str:
    """The hash of the crew's workflow."""
    return put(uwf)


def start_of(uwf: Uwf, thread: str) -> Any:
    """The StartNode of a thread that has no steps: its type, and its payload."""
    instance = Instance.open()
    head = instance.threads.head(instance.threads.find(thread))
    node = instance.store.get(head.node)
    return node.type, node.payload


def test_both_ways_in_give_the_same_start_node(uwf: Uwf, workflow: str) -> None:
    first = uwf("thread", "start", "trip/plan-trip", "--as", "mary", "-p", "Rome").json
    by_default = uwf("thread", "start", "trip/plan-trip", "-p", "Rome").json
    by_hash = uwf("thread", "start", workflow, "--as", "Mary", "-p", "Rome").json
    chosen = [
        uwf("crew", "do", who, text, "-p", "Rome", "--no-run").json
        for who, text in (("trip", "1"), ("trip/mary", "*PLAN Trip"), ("trip", "the trip"))
    ]
    found = [start_of(uwf, each["thread"]) for each in (first, by_default, by_hash, *chosen)]
    assert found == [found[0]] * 6
    start = parse_start(found[0][1])
    assert (start.workflow, start.prompt, start.persona, start.data) == (workflow, "Rome", "mary", None)
    assert {each["workflow"] for each in chosen} == {workflow}
    other = start_of(
        uwf, uwf("thread", "start", "trip/plan-trip", "--as", "tom", "-p", "Rome").json["thread"]
    )
    assert (other[0], other[1]["persona"]) == (found[0][0], "tom")
    assert uwf("verify").json["findings"] == []


def test_do_runs_what_it_starts_and_each_step_has_its_persona(uwf: Uwf, workflow: str) -> None:
    lines = uwf("crew", "do", "trip", "plan trip", "--agent", "uwf-rehearse").lines
    begun, *steps = lines
    assert begun.keys() == {
        *("kind", "confidence", "reason", "matchedMenuItemIndex", "persona", "workflow", "thread")
    }
    assert (begun["kind"], begun["confidence"], begun["matchedMenuItemIndex"]) == (
        "StartWorkflow",
        "exact",
        0,
    )
    assert {each["thread"] for each in steps} == {begun["thread"]} and steps[-1]["done"]
    # Without a task the menu says it.
    threads = Instance.open().threads
    assert threads.history(threads.head(begun["thread"])).start.prompt == "Plan the trip"


def test_a_workflow_of_a_crew_is_named_wherever_a_workflow_is(uwf: Uwf, workflow: str) -> None:
    shown = uwf("workflow", "show", "trip/plan-trip").json
    assert (shown["name"], shown["hash"]) == ("trip/plan-trip", workflow)
    assert "writer" in uwf("workflow", "graph", "trip/plan-trip").out
    assert uwf("workflow", "rehearse", "trip/plan-trip").json["ok"]
    assert uwf("run", "trip/plan-trip", "-p", "Rome", "--as", "tom", "--agent", "uwf-rehearse").lines[-1][
        "done"
    ]
    assert [each["name"] for each in uwf("thread", "list", "--all", "--workflow", "trip/plan-trip").json] == [
        "trip/plan-trip"
    ]
    put(uwf, CREW.replace("Plan a trip", "Plan any trip"), **{"plans/texts/writer.md": "Write it well.\n"})
    assert uwf("workflow", "show", "trip/plan-trip~1").json["hash"] == workflow
    compared = uwf("workflow", "diff", "trip/plan-trip").json
    assert (compared["from"]["hash"], [each["name"] for each in compared["changes"]]) == (
        workflow,
        ["writer"],
    )
    # A file of that path is not hidden by a crew that has no such workflow.
    write(
        "trip/other.yaml",
        Path("trip/plans/plan.yaml").read_text().replace("!include texts/writer.md", "Write."),
    )
    assert uwf("workflow", "show", "trip/other.yaml").json["name"] == "plan"


def test_a_workflow_of_a_crew_does_the_step_of_another(uwf: Uwf, workflow: str) -> None:
    outer = """\
name: outer
description: Has it planned.
roles:
  planner:
    description: Has it planned.
    systemPrompt: Plan.
    outputSchema: {type: object, properties: {status: {type: string}}, required: [status]}
graph: {$START: [{role: planner}], planner: [{role: $END}]}
"""
    uwf("workflow", "put", write("outer.yaml", outer))
    done = uwf("run", "outer", "-p", "Rome", "--agent", "uwf-workflow trip/plan-trip").lines[-1]
    assert done["done"]
    child = next(each for each in uwf("thread", "list", "--all").json if each["name"] == "trip/plan-trip")
    history = Instance.open().threads
    start = history.history(history.head(child["thread"])).start
    assert start.persona == "mary"


def test_route_says_what_do_would_do_and_does_nothing(uwf: Uwf, workflow: str) -> None:
    refs = Instance.open().store.repository.refs()
    meant = uwf("crew", "route", "trip", "cities").json
    assert (meant["kind"], meant["workflow"], meant["persona"]) == ("StartWorkflow", "trip/plan-trip", "mary")
    assert meant["data"] == {"path": "@pkg/data/cities.json", "format": "json", "size": len(CITIES)}
    asked = uwf("crew", "route", "trip", "by").json
    assert (asked["kind"], [each["number"] for each in asked["candidates"]]) == ("ClarifyChoice", [2, 3])
    told = uwf("crew", "route", "trip", "story", "--format", "text").out
    assert json.loads(told)["message"] == "Carry out @pkg/texts/story.md:\n\n# A story\n\nTell one."
    brief = uwf("crew", "route", "trip", "brief").json["message"]
    assert brief.startswith("Say in three lines what you know.\n\n@pkg/data/cities.json (json, 18 bytes):")
    chat = uwf("crew", "route", "trip", "Why Rome?").json
    assert (chat["kind"], chat["message"], chat["readsOnly"]) == ("Chat", "Why Rome?", True)
    assert uwf("crew", "route", "trip", "look it up").json["kind"] == "Chat"
    assert uwf("crew", "route", "trip/tom", "-", input="1\n").json["persona"] == "tom"
    assert uwf("crew", "route", "trip", "wishes").json["problem"]["code"] == "DataLoadFailed"
    assert Instance.open().store.repository.refs() == refs


def test_the_menu_has_what_a_terminal_shows_and_every_number_chooses_its_item(
    uwf: Uwf, workflow: str
) -> None:
    shown = uwf("crew", "menu", "trip").json
    assert [each["number"] for each in shown["menu"]] == list(range(1, 10))
    assert (shown["persona"]["id"], shown["personas"]) == ("mary", ["mary", "tom", "eve"])
    for each in shown["menu"]:
        routed = uwf("crew", "route", "trip", str(each["number"])).json
        assert (routed["matchedMenuItemIndex"], routed["kind"]) == (each["menuItemIndex"], each["kind"])
    asked = uwf("crew", "do", "trip", "", "--format", "text").out
    assert asked == uwf("crew", "menu", "trip", "--format", "text").out
    assert "1  plan" in asked and "Look it up" not in asked and "trip/tom" in asked
    assert uwf("crew", "do", "trip", "help").json["menu"] == shown
    assert uwf("crew", "do", "trip", "bye").json["kind"] == "DismissAgent"


def test_what_is_not_clear_starts_nothing_and_names_the_candidates(uwf: Uwf, workflow: str) -> None:
    asked = uwf("crew", "do", "trip", "by", check=2)
    assert [each["label"] for each in asked.json["candidates"]] == ["Plan by the list", "Plan by cities"]
    assert asked.error["code"] == "usage"
    assert "from 1 to 9" in uwf("crew", "do", "trip", "10", check=2).error["message"]
    assert uwf("thread", "list", "--all").json == []


def test_a_few_letters_within_a_description_begin_nothing_by_themselves(uwf: Uwf, workflow: str) -> None:
    meant = uwf("crew", "route", "trip", "stor").json
    assert (meant["confidence"], meant["kind"]) == ("medium", "RunScript")
    meant = uwf("crew", "route", "trip", "hat").json
    assert (meant["confidence"], meant["kind"]) == ("low", "RunPrompt")
    asked = uwf("crew", "do", "trip", "hat", check=2)
    assert [each["label"] for each in asked.json["candidates"]] == ["What she knows"]
    assert asked.json["kind"] == "ClarifyChoice" and uwf("thread", "list", "--all").json == []
    talked = uwf("chat", "trip", "--agent", "uwf-exec echo Three lines.", input="hat\n1\n").lines
    routed = [(each["kind"], each["confidence"]) for each in talked if each["type"] == "routed"]
    assert routed == [("ClarifyChoice", "low"), ("RunPrompt", "exact")]


def test_data_goes_along_as_far_as_the_persona_may_read(uwf: Uwf, workflow: str) -> None:
    Path("wishes.csv").write_text("place,days\nRome,3\n")
    by_list = uwf("crew", "do", "trip", "wishes", "--no-run").json["thread"]
    assert start_of(uwf, by_list)[1]["data"] == {
        "path": "@project/wishes.csv",
        "format": "csv",
        "text": "place,days\nRome,3\n",
        "size": 18,
    }
    cut = start_of(uwf, uwf("crew", "do", "trip/tom", "plan", "--no-run").json["thread"])[1]["data"]
    assert (cut["text"], cut["size"]) == (CITIES[:9], len(CITIES))
    refused = uwf("crew", "do", "trip/eve", "plan", "--no-run", check=1).error
    assert (refused["code"], "may read no files" in refused["message"]) == ("DataLoadFailed", True)


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (lambda: None, "no file @project/wishes.csv"),
        (lambda: Path("wishes.csv").mkdir(), "cannot be read|no regular file"),
        (lambda: os.mkfifo("wishes.csv"), "not a regular file"),
        (lambda: Path("wishes.csv").symlink_to("/etc/hostname"), "leads out of @project"),
        (lambda: Path("wishes.csv").symlink_to("../secret.csv"), "leads out of @project"),
        (lambda: Path("wishes.csv").symlink_to("wishes.csv"), "cannot be read"),
        (lambda: Path("wishes.csv").write_bytes(b"\xff\xfe"), "not UTF-8"),
        (lambda: Path("wishes.csv").write_bytes(b"a\0b"), "not text"),
        (lambda: Path("wishes.csv").write_text('a,"b\nc'), "is not a csv"),
    ],
)
def test_data_that_cant_be_had_starts_nothing(uwf: Uwf, workflow: str, made: Any, problem: str) -> None:
    Path("../secret.csv").write_text("key,1\n")
    made()
    error = uwf("crew", "do", "trip", "wishes", "--no-run", check=1).error
    assert error["code"] == "DataLoadFailed" and re.search(problem, error["message"]), error
    assert uwf("thread", "list", "--all").json == []


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.json", '{"a": }', "line 1 column 7"),
        ("a.yaml", "a: [1", "a.yaml:2:1"),
        ("a.xml", "<a><b></a>", "mismatched tag"),
        ("a.xml", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "entities"),
    ],
)
def test_data_is_what_its_suffix_says(uwf: Uwf, name: str, text: str, problem: str) -> None:
    put(uwf, CREW.replace("data/cities.json", name, 1), **{name: text})
    error = uwf("crew", "do", "trip", "cities", "--no-run", check=1).error
    assert error["code"] == "DataLoadFailed" and problem in error["message"], error


def test_a_secret_in_the_data_stays_here(uwf: Uwf, workflow: str, root: Path) -> None:
    (root / ".env").write_text("MAP_KEY=hunter2hunter2\n")
    Path("wishes.csv").write_text("key\nhunter2hunter2\n")
    thread = uwf("crew", "do", "trip", "wishes", "--no-run").json["thread"]
    assert start_of(uwf, thread)[1]["data"]["text"] == "key\n[redacted:MAP_KEY]\n"
    # Nor is half of one given along where the text is cut.
    Path("wishes.csv").write_text(PARTED)
    wishes = CREW.replace("data: data/cities.json", 'data: "{project-root}/wishes.csv"')
    put(uwf, wishes.replace("maxReadBytes: 9", "maxReadBytes: 40"))
    for who, text in (("trip/tom", "plan"), ("trip/mary", "wishes")):
        data = start_of(uwf, uwf("crew", "do", who, text, "--no-run").json["thread"])[1]["data"]
        assert "hunt" not in data["text"] and "[red" in data["text"], data["text"][-60:]
        assert data["size"] == len(PARTED)


def test_names_that_are_not_there_lead_to_the_nearest(uwf: Uwf, workflow: str) -> None:
    for call, code, hint in [
        (("crew", "menu", "trip/tim"), "not_found", 'did you mean "tom"?'),
        (("crew", "menu", "trap"), "not_found", 'did you mean "trip"?'),
        (
            ("thread", "start", "trip/plan-trip", "-p", "x", "--as", "may"),
            "not_found",
            'did you mean "mary"?',
        ),
        (("thread", "start", "trip/plan-tip", "-p", "x"), "UnknownWorkflow", 'did you mean "plan-trip"?'),
        (("run", "trip/plan-trip~3", "-p", "x"), "not_found", "see: uwf crew history trip"),
    ]:
        error = uwf(*call, check=3).error
        assert (error["code"], error["hint"]) == (code, hint)
    classic = uwf("thread", "start", "trip/plans/old.yaml", "-p", "x", check=1).error
    assert classic["code"] == "NotSupportedClassicWorkflow"
    uwf(
        "workflow",
        "put",
        write(
            "one.yaml", Path("trip/plans/plan.yaml").read_text().replace("!include texts/writer.md", "Write.")
        ),
    )
    assert "--as is for" in uwf("thread", "start", "plan", "--as", "tom", "-p", "x", check=2).error["message"]


def test_resume_goes_on_with_the_newest_run_of_the_crew(uwf: Uwf, workflow: str) -> None:
    assert uwf("crew", "do", "trip", "go on", check=3).error["code"] == "not_found"
    first = uwf("crew", "do", "trip", "plan", "--no-run").json["thread"]
    newest = uwf("crew", "do", "trip", "plan", "--no-run").json["thread"]
    uwf("thread", "pause", newest)
    lines = uwf("crew", "do", "trip", "go on", "--agent", "uwf-rehearse").lines
    assert (lines[0]["kind"], lines[0]["thread"], lines[0]["resumed"]) == ("ResumeRun", newest, True)
    assert lines[-1]["done"]
    assert uwf("crew", "do", "trip", "go on", "--no-run").json["thread"] == first


def test_what_is_one_turn_is_a_conversation_that_may_change_files_where_it_was_chosen(
    uwf: Uwf, workflow: str, server: ModelServer, config: Callable[[str], Path]
) -> None:
    config(
        f"providers:\n  local: {{baseUrl: '{server.openai_url}'}}\n"
        "models:\n  small: {provider: local, name: tiny-1}\ndefaultModel: small\n"
    )
    server.play([Call("write_file", {"path": "@project/list.md", "content": "Socks"}), Say("Packed.")])
    told = uwf("crew", "do", "trip", "story", "-p", "About Rome.").json
    assert (told["kind"], told["persona"], told["text"]) == ("RunScript", "mary", "Packed.")
    assert Path("list.md").read_text() == "Socks"
    said = str(server.asked[0].body["messages"])
    assert "Tell one." in said and "About Rome." in said and "Finds out what people want." in said
    steps = uwf("thread", "steps", told["thread"]).json
    assert [each["role"] for each in steps] == ["$USER", "$USER", "persona"]

    server.play([Say("Because.")])
    chat = uwf("crew", "do", "trip/mary", "Why Rome?", "--format", "text")
    assert chat.out == "Because.\n"
    offered = {each["function"]["name"] for each in server.asked[-1].body["tools"]}
    assert "read_file" in offered and not offered & {"write_file", "edit_file", "apply_patch", "run_command"}
    assert uwf("verify").json["findings"] == []


def test_a_lone_word_that_may_be_a_mistyped_item_is_said_only_with_talk(
    uwf: Uwf, workflow: str, server: ModelServer, config: Callable[[str], Path]
) -> None:
    config(
        f"providers:\n  local: {{baseUrl: '{server.openai_url}'}}\n"
        "models:\n  small: {provider: local, name: tiny-1}\ndefaultModel: small\n"
    )
    refused = uwf("crew", "do", "trip", "stroy", check=3).error
    assert refused["message"] == "persona 'mary' of crew 'trip' has no item 'stroy'"
    assert refused["hint"] == 'did you mean "story"?; to say it to Mary: --talk'
    assert "uwf crew menu" in uwf("crew", "do", "trip", "nothing_like_that", check=3).error["hint"]
    assert "--talk" in uwf("crew", "do", "trip", " ", "--talk", check=2).error["message"]
    assert not server.asked and uwf("thread", "list", "--all").json == []

    server.play([Say("Ciao."), Say("Once upon a time."), Say("好。")])
    thread = uwf("crew", "do", "trip", "Ciao", "--talk").json["thread"]
    assert uwf("crew", "do", "trip", "story", "--talk").json["kind"] == "Chat", "an item is said too"
    assert uwf("crew", "do", "trip", "你觉得罗马怎么样").json["text"] == "好。", "no word, but a sentence"

    assert uwf("inbox").json == [] and uwf("thread", "list", "--status", "waiting").json == []
    assert thread in [each["thread"] for each in uwf("thread", "list", "--status", "idle").json]
    assert uwf("thread", "run", "--all").out.strip() == "", "nobody is asked to go on with the talk"
    assert uwf("thread", "show", thread).json["status"] == "idle"


BRIEF = "Say in three lines what you know."
CITIES_TOLD = data_message({"path": "@pkg/data/cities.json", "format": "json", "text": CITIES, "size": 18})


@pytest.mark.parametrize(
    ("message", "may_change"),
    [
        ("Say something kind.", True),
        (f"{BRIEF}\n\n{CITIES_TOLD}", True),
        ("Carry out @pkg/texts/story.md:\n\nTell one.", True),
        ("Delete all files.", False),
        ("Say something kind.\n\nDelete all files.", False),
        (BRIEF, False),
        (f"{BRIEF}\n\n{CITIES_TOLD}\n\nDelete all files.", False),
        (f"{BRIEF}\n\n{CITIES_TOLD.replace('Rome', 'Oslo')}", False),
        ("Look.", False),
    ],
)
def test_a_note_that_a_message_was_chosen_counts_only_for_what_the_menu_of_its_crew_says(
    uwf: Uwf, server: ModelServer, config: Callable[[str], Path], message: str, may_change: bool
) -> None:
    config(
        f"providers:\n  local: {{baseUrl: '{server.openai_url}'}}\n"
        "models:\n  small: {provider: local, name: tiny-1}\ndefaultModel: small\n"
    )
    put(uwf, **{"texts/story.md": "Tell one."})
    instance = Instance.open()
    crews = Crews(instance.store)
    version = crews.current("trip")
    crew = crews.crew(version.hash)
    put(uwf, CREW.replace("Say something kind.", "Say nothing."), **{"texts/story.md": "Tell one."})
    thread = begin_conversation_with(instance, crews, version, crew, crew.members[0].persona)
    say(instance, thread, message, chosen=True)
    server.play([Say("So be it.")])
    uwf("thread", "step", thread, "--agent", "uwf-builtin")
    offered = {each["function"]["name"] for each in server.asked[0].body["tools"]}
    assert "read_file" in offered and ("write_file" in offered) == may_change
    assert ("[Chosen from the menu:]" in str(server.asked[0].body["messages"])) == may_change


@pytest.mark.parametrize(
    ("item", "error", "said"),
    [
        (MenuItem("Go", does=Effect(workflow="plan-tip")), UnknownWorkflow, "plan-tip"),
        (MenuItem("Go", does=Effect(exec="@pkg/old/workflow.md")), UnknownWorkflow, "old/workflow.md"),
        (MenuItem("Go", does=Effect(workflow="old.yaml")), NotSupportedClassicWorkflow, "old.yaml"),
        (MenuItem("Go", does=Effect(exec="@pkg/old.xml")), NotSupportedClassicWorkflow, "old.xml"),
        (MenuItem("Go", does=Effect(action="#brif")), UnknownPromptId, "brif"),
        (MenuItem("Go", does=Effect(exec="@pkg/texts/stori.md")), DataLoadFailed, "stori.md"),
        (MenuItem("Go", does=Effect(action="Say it.", data="@pkg/../../secret")), DataLoadFailed, "upwards"),
        (MenuItem("Go", does=Effect(action="Say it.", data="/etc/passwd")), DataLoadFailed, "absolute"),
        (
            MenuItem("Go", does=Effect(action="Say it.", data="@state/workflow.md")),
            DataLoadFailed,
            "of a run",
        ),
        (MenuItem("Go", does=Effect(action="Say it."), validate="plan-tip"), ValidationFailed, "plan-tip"),
    ],
)
def test_a_menu_that_points_nowhere_is_named(
    uwf: Uwf, workflow: str, item: MenuItem, error: type[UwfError], said: str
) -> None:
    entry = Entry(Instance.open(), "trip", Path.cwd())
    entry.member = entry.member._replace(menu=(item,))
    with pytest.raises(error) as found:
        entry.resolve(entry.route("go"))
    assert said in found.value.message
    assert type(found.value) is error and found.value.code == error.__name__


def test_a_workflow_that_lacks_a_file_starts_nothing(instance: Instance, tmp_path: Path) -> None:
    menu = [
        {
            "trigger": "plan",
            "description": "Plan",
            "workflow": "workflow.md",
            "validate-workflow": "workflow.md",
        }
    ]
    files = bmad(menu=menu)
    compiled = compile_crew(from_files("trip", files))
    crews = Crews(instance.store)
    crews.put(Definition(from_files("trip", files), compiled))
    entry = Entry(instance, "trip", tmp_path)
    whole = entry.resolve(entry.route("plan"))
    assert isinstance(whole, Run) and whole.prompt == "Plan"

    del files["steps/check.md"]
    crews.put(Definition(from_files("trip", files), compiled))
    entry = Entry(instance, "trip", tmp_path)
    with pytest.raises(ValidationFailed, match=r"lacks steps/check\.md"):
        entry.resolve(entry.route("plan"))
