"""Real graphs of LangGraph over UwfSaver, and what uwf does with their threads."""

from __future__ import annotations

import asyncio
import json
import operator
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from conftest import Uwf
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

import uwf_git
from uwf_git.ext.langgraph import UwfSaver
from uwf_git.ext.langgraph.values import Decoder, Encoder, Place, pack

LONG = "The CSV export does not quote commas. " * 20


class Notes(TypedDict):
    notes: Annotated[list[str], operator.add]
    approved: bool


def config(thread: str, **more: str) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[UwfSaver]:
    with UwfSaver(tmp_path / "store") as saver:
        yield saver


def summaries(path: Path) -> list[str]:
    """What the steps of the only thread say of themselves."""
    [thread] = uwf_git.open(path).threads()
    return [step.output["summary"] for step in thread.steps]


def notes_graph(saver: UwfSaver) -> Any:
    """Two nodes, the second of which asks a person."""
    graph: Any = StateGraph(Notes)
    graph.add_node("write", lambda state: {"notes": [f"{LONG}{len(state['notes'])}"]})
    graph.add_node("review", lambda state: {"approved": interrupt({"shown": state["notes"][-1]}) == "yes"})
    graph.add_edge(START, "write")
    graph.add_edge("write", "review")
    graph.add_conditional_edges("review", lambda state: END if state["approved"] else "write")
    return graph.compile(checkpointer=saver)


def test_a_graph_waits_for_a_person_and_goes_on_in_another_process(saver: UwfSaver) -> None:
    asked = notes_graph(saver).invoke({"notes": []}, config("shop-42"))
    assert asked["__interrupt__"][0].value["shown"] == f"{LONG}0"
    assert any(summary.startswith("review asks: {'shown': '") for summary in summaries(saver.path))
    with UwfSaver(saver.path) as other:
        assert notes_graph(other).get_state(config("shop-42")).next == ("review",)
        again = notes_graph(other).invoke(Command(resume="no"), config("shop-42"))
    assert again["__interrupt__"][0].value["shown"] == f"{LONG}1"
    done = notes_graph(saver).invoke(Command(resume="yes"), config("shop-42"))
    assert done == {"notes": [f"{LONG}0", f"{LONG}1"], "approved": True}
    assert uwf_git.open(saver.path).verify() == []


def test_the_past_of_a_thread_is_read_edited_and_gone_on_from(saver: UwfSaver) -> None:
    app = notes_graph(saver)
    app.invoke({"notes": []}, config("shop-42"))
    app.invoke(Command(resume="no"), config("shop-42"))
    states = list(app.get_state_history(config("shop-42")))
    ids = [state.config["configurable"]["checkpoint_id"] for state in states]
    assert ids == sorted(ids, reverse=True) and [len(state.values["notes"]) for state in states] == [
        2,
        1,
        1,
        0,
        0,
    ]
    before = next(state for state in states if state.next == ("review",) and len(state.values["notes"]) == 1)
    edited = app.update_state(before.config, {"notes": ["edited"]})
    branch = app.invoke(Command(resume="yes"), edited)
    assert branch["notes"] == [f"{LONG}0", "edited"]
    assert app.get_state(states[0].config).values["notes"] == [f"{LONG}0", f"{LONG}1"]
    assert uwf_git.open(saver.path).verify() == []


def test_messages_subgraphs_and_async_calls_come_back_as_they_were(saver: UwfSaver) -> None:
    inner: Any = StateGraph(MessagesState)
    inner.add_node("ask", lambda state: {"messages": [AIMessage(interrupt("name?"), id="2", name="clerk")]})
    inner.add_edge(START, "ask")
    outer: Any = StateGraph(MessagesState)
    outer.add_node("clerk", inner.compile())
    outer.add_edge(START, "clerk")
    app = outer.compile(checkpointer=saver)

    async def run() -> Any:
        await app.ainvoke({"messages": [HumanMessage(LONG, id="1")]}, config("a/b c"))
        state = await app.aget_state(config("a/b c"), subgraphs=True)
        assert state.tasks[0].state.next == ("ask",)
        await app.ainvoke(Command(resume="Ada"), config("a/b c"))
        return await app.aget_state(config("a/b c"))

    state = asyncio.run(run())
    assert state.values["messages"] == [HumanMessage(LONG, id="1"), AIMessage("Ada", id="2", name="clerk")]
    assert {
        item.config["configurable"]["checkpoint_ns"].partition(":")[0] for item in saver.list(config("a/b c"))
    } == {
        "",
        "clerk",
    }
    assert uwf_git.open(saver.path).verify() == []


def test_a_thread_is_forked_pushed_pulled_and_gone_on_with_elsewhere(saver: UwfSaver, tmp_path: Path) -> None:
    app = notes_graph(saver)
    app.invoke({"notes": []}, config("shop-42"))
    store = uwf_git.open(saver.path)
    [thread] = store.threads()
    fork = thread.fork()
    assert app.invoke(Command(resume="yes"), config(fork.id))["approved"]
    assert app.get_state(config("shop-42")).next == ("review",)
    assert app.get_state(config(fork.id)).next == ()
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "shared.git"], check=True)
    store.add_remote("shared", str(tmp_path / "shared.git"))
    store.push("shared")
    with UwfSaver(tmp_path / "elsewhere") as other:
        there = uwf_git.open(tmp_path / "elsewhere")
        there.add_remote("shared", str(tmp_path / "shared.git"))
        there.pull("shared")
        assert {item.config["configurable"]["thread_id"] for item in other.list(None)} == {"shop-42", fork.id}
        assert notes_graph(other).invoke(Command(resume="yes"), config("shop-42"))["approved"]
        assert there.verify() == []
        there.push("shared")
    store.pull("shared")
    assert app.get_state(config("shop-42")).values["approved"]


WRITER = """
import sys
from uwf_git.ext.langgraph import UwfSaver
from langgraph.checkpoint.base import empty_checkpoint

name, count = sys.argv[2], int(sys.argv[3])
with UwfSaver(sys.argv[1]) as saver:
    parent = {"configurable": {"thread_id": "shared", "checkpoint_ns": ""}}
    values = []
    for number in range(count):
        values = [*values, f"{name} {number} " + "x" * 300]
        versions = {"notes": number + 1}
        checkpoint = {**empty_checkpoint(), "channel_values": {"notes": values}, "channel_versions": versions}
        parent = saver.put(parent, checkpoint, {"step": number, "writer": name}, versions)
        saver.put_writes(parent, [("notes", [values[-1]])], f"{name} {number}")
        print(parent["configurable"]["checkpoint_id"], flush=True)
"""


def writer(store: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, store, name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


def test_two_processes_lose_nothing_and_a_kill_leaves_what_was_stored(tmp_path: Path) -> None:
    with UwfSaver(tmp_path) as saver:
        both = [writer(tmp_path, name, 25) for name in ("left", "right")]
        told = {line.strip() for process in both for line in process.communicate()[0].splitlines()}
        killed = writer(tmp_path, "killed", 10_000)
        assert killed.stdout is not None
        lines = [killed.stdout.readline().strip() for _ in range(20)]
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        stored = {item.config["configurable"]["checkpoint_id"]: item for item in saver.list(config("shared"))}
        assert told | {*lines} <= stored.keys() and len(told) == 50
        for item in stored.values():
            about = item.metadata
            notes = item.checkpoint["channel_values"]["notes"]
            assert notes == [
                f"{about['writer']} {number} " + "x" * 300 for number in range(about["step"] + 1)
            ]
            if item.config["configurable"]["checkpoint_id"] in told:
                assert [write[2] for write in item.pending_writes or ()] == [[notes[-1]]]
    assert uwf_git.open(tmp_path).verify() == []


def test_growing_state_is_stored_once(saver: UwfSaver) -> None:
    graph: Any = StateGraph(Notes)
    graph.add_node("work", lambda state: {"notes": [f"{len(state['notes'])} " + os.urandom(1000).hex()]})
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: END if len(state["notes"]) == 100 else "work")
    app = graph.compile(checkpointer=saver)
    notes = app.invoke({"notes": []}, {**config("long"), "recursion_limit": 200})["notes"]
    packs = sum(path.stat().st_size for path in saver.path.rglob("*.pack"))
    assert packs < 1_000_000  # of 10 MB in a hundred states of up to 200 KB
    with UwfSaver(saver.path) as again:
        assert again.get_tuple(config("long")).checkpoint["channel_values"]["notes"] == notes
        again_app = graph.compile(checkpointer=again)
        again_app.update_state(config("long"), {"notes": ["more"]})
        assert sum(path.stat().st_size for path in saver.path.rglob("*.pack")) < packs + 20_000


def test_a_known_secret_is_refused_and_the_state_before_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("SHOP_API_KEY=correct-horse-battery-staple\n")
    with UwfSaver(tmp_path) as saver:
        app = notes_graph(saver)
        app.invoke({"notes": []}, config("shop-42"))
        with pytest.raises(uwf_git.Invalid, match="SHOP_API_KEY"):
            app.update_state(config("shop-42"), {"notes": ["key: correct-horse-battery-staple"]})
        with pytest.raises(uwf_git.Invalid, match="SHOP_API_KEY"):
            app.update_state(config("shop-42"), {"notes": [b"key: correct-horse-battery-staple"]})
        assert app.get_state(config("shop-42")).next == ("review",)
    assert b"battery" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*.pack"))


def test_values_that_json_lacks_come_back_exactly(saver: UwfSaver) -> None:
    serde = JsonPlusSerializer()
    values = {
        "b": [
            1.0,
            -0.0,
            1e308,
            float("inf"),
            2**63,
            -(2**60),
            "\x00\ud7ff",
            b"\xff",
            None,
            True,
            (1, 2),
            {3, 4},
        ],
        "a": {"z": 1, "y": {2: "two", "$at": "no place"}, "": [[], {}]},
        "deep": json.loads("[" * 190 + "]" * 190),
        "raw": b"\x00" * 300,
    }
    checkpoint: Any = {
        **{"v": 1, "id": "1", "ts": "", "versions_seen": {}, "channel_values": values},
        "channel_versions": dict.fromkeys(values, 1),
    }
    stored = saver.put(config("odd"), checkpoint, {}, checkpoint["channel_versions"])
    with UwfSaver(saver.path) as other:
        found = other.get_tuple(stored).checkpoint["channel_values"]
    assert {name: serde.dumps_typed(value) for name, value in found.items()} == {
        name: serde.dumps_typed(value) for name, value in values.items()
    }
    assert list(found["a"]) == ["z", "y", ""]


def test_an_encrypted_state_is_stored_as_it_is(tmp_path: Path) -> None:
    class Cipher:
        def encrypt(self, plain: bytes) -> tuple[str, bytes]:
            return "xor", bytes(byte ^ 85 for byte in plain)

        def decrypt(self, _: str, secret: bytes) -> bytes:
            return bytes(byte ^ 85 for byte in secret)

    with UwfSaver(tmp_path, serde=EncryptedSerializer(Cipher())) as saver:
        app = notes_graph(saver)
        app.invoke({"notes": []}, config("shop-42"))
        app.invoke(Command(resume="yes"), config("shop-42"))
        assert app.get_state(config("shop-42")).values["notes"] == [f"{LONG}0"]
    assert "review asks" in summaries(tmp_path)
    assert uwf_git.open(tmp_path).verify() == []


def test_a_thread_is_of_the_project_in_which_its_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uwf: Uwf
) -> None:
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    subprocess.run(["git", "init", "-q"], check=True)
    with UwfSaver(tmp_path / "store") as saver:
        notes_graph(saver).invoke({"notes": []}, config("shop-42"))
        notes_graph(saver).invoke(Command(resume="no"), config("shop-42"))
        saver.prune(["shop-42"])
    monkeypatch.setenv("UWF_STORAGE_ROOT", str(tmp_path / "store"))
    [thread] = uwf("thread", "list").json
    assert (thread["title"], thread["project"]) == ("shop-42", "shop")


def test_an_agent_makes_no_step_of_a_graph(saver: UwfSaver) -> None:
    notes_graph(saver).invoke({"notes": []}, config("shop-42"))
    [thread] = uwf_git.open(saver.path).threads()
    with pytest.raises(uwf_git.Invalid, match="made by its own program"):
        thread.step(agent="uwf-rehearse")


def test_a_list_is_the_same_however_it_grew() -> None:
    nodes: dict[Any, Any] = {}

    def put(value: Any, parts: Any) -> Any:
        return (
            nodes.setdefault(f"{len(nodes):013}", {"value": value, "parts": [*parts]})
            and f"{len(nodes) - 1:013}"
        )

    from uwf_git.ext.langgraph.values import Groups

    places: dict[bytes, Place] = {}
    groups = Groups()
    items: list[Any] = []
    for number in range(0, 600, 7):
        items = [*items, *(f"{at} " * 100 for at in range(number, number + 7))][-500 - number % 3 :]
        encoder = Encoder(places, put)
        made = encoder.typed(("msgpack", pack(items)), ("values", "notes"), groups)
        node = f"record {number}"
        nodes[node] = {"values": {"notes": made}}
        encoder.settle(node)  # type: ignore[arg-type]
        decoder = Decoder(nodes.__getitem__, {})
        place = Place(node, ("values", "notes"))  # type: ignore[arg-type]
        assert decoder.at(place) == ("msgpack", pack(items))
        again = decoder.groups(place)
        assert again is not None and again.items == groups.items
        assert len(made) < 40
