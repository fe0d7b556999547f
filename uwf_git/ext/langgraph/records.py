"""What one thread has: its checkpoints and writes, and where the values of its nodes are."""

from __future__ import annotations

from typing import Any, NamedTuple

from uwf_git.ext.langgraph.values import Decoder, Encoder, Groups, Place
from uwf_git.plugin import Hash, Head, ThreadId


class CheckpointKey(NamedTuple):
    """A checkpoint's namespace, "" for that of the whole graph, and its id."""

    namespace: str
    checkpoint: str


class StoredWrites(NamedTuple):
    """A value that a task wrote to a channel, and where it is."""

    task: str
    task_path: str
    channel: str
    place: Place


class CheckpointThread:
    """A thread's records up to a head. `nodes` are nodes of its tree, which no later step's folder repeats; `places`
    are the large values in them; `taken` are the checkpoints whose values are among these."""

    def __init__(self, thread: ThreadId) -> None:
        self.thread = thread
        self.head: Head | None = None
        self.name: str | None = None
        self.order: list[Hash] = []
        self.checkpoints: dict[CheckpointKey, Hash] = {}
        self.writes: dict[CheckpointKey, dict[tuple[str, int], StoredWrites]] = {}
        self.nodes: set[Hash] = set()
        self.places: dict[bytes, Place] = {}
        self.groups: dict[tuple[str, str], Groups] = {}
        self.taken: dict[CheckpointKey, dict[str, Place]] = {}

    def add(self, node: Hash, payload: Any) -> None:
        """Take in the thread's next record."""
        self.name = payload.get("thread", self.name)
        if "checkpoint" not in payload:
            return
        self.order.append(node)
        key = key_in(payload)
        if "values" in payload:
            self.checkpoints[key] = node
            return
        there = self.writes.setdefault(key, {})
        for position, item in enumerate(payload["writes"]):
            index = payload["task"], item["index"]
            if item["index"] < 0 or index not in there:
                place = Place(node, ("writes", position, "value"))
                there[index] = StoredWrites(payload["task"], payload["path"], item["channel"], place)

    def newest(self, namespace: str) -> str:
        """Return the id of the newest checkpoint of a namespace, "" without one."""
        return max((key.checkpoint for key in self.checkpoints if key.namespace == namespace), default="")

    def ordered_writes(self, key: CheckpointKey) -> list[StoredWrites]:
        """Return the writes after a checkpoint in the order in which a graph applies them."""
        items = self.writes.get(key, {}).items()
        return [item for _, item in sorted(items, key=lambda entry: (entry[1].task_path, *entry[0]))]

    def take(self, decoder: Decoder, key: CheckpointKey, payload: Any) -> None:
        """Remember the nodes that a checkpoint was read from, and the places of its values."""
        self.nodes |= decoder.nodes
        self.taken[key] = places_in(self.checkpoints[key], payload)
        for channel, place in self.taken[key].items():
            if (groups := decoder.groups(place)) is not None:
                self.groups[key.namespace, channel] = groups


def key_in(payload: Any) -> CheckpointKey:
    return CheckpointKey(payload["namespace"], payload["checkpoint"])


def places_in(node: Hash, payload: Any) -> dict[str, Place]:
    """Return where the values of a checkpoint are, those elsewhere at the place that it refers to."""
    places = {}
    for channel, value in payload["values"].items():
        is_elsewhere = isinstance(value, dict) and "$at" in value
        places[channel] = Place.parse(value["$at"]) if is_elsewhere else Place(node, ("values", channel))
    return places


def encoded_again(payload: Any, node: Hash, decoder: Decoder, encoder: Encoder) -> dict[str, Any]:
    """Return a record for another thread: it refers to no node of its own thread."""

    def again(*path: str | int) -> Any:
        return encoder.typed(decoder.at(Place(node, path)), path)

    copy: dict[str, Any] = {key: value for key, value in payload.items() if key != "parts"}
    if "values" in copy:
        copy |= {"state": again("state"), "metadata": again("metadata")}
        copy["values"] = {channel: again("values", channel) for channel in copy["values"]}
    else:
        copy["writes"] = [
            {**item, "value": again("writes", at, "value")} for at, item in enumerate(copy["writes"])
        ]
    return copy
