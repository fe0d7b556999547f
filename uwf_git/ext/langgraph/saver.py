"""A checkpointer of LangGraph that keeps checkpoints in threads of uwf.

Each checkpoint, and what a task writes between two of them, is a step: a commit on the thread's ref. The thread of
LangGraph's `thread_id` has an id whose last 16 characters follow from it, and its first StartNode has it as the prompt.
A `thread_id` that is the id of such a thread means that one: a fork has no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import INTERRUPT

from uwf_git.ext.langgraph.records import CheckpointKey, CheckpointThread, key_in
from uwf_git.ext.langgraph.threads import CheckpointThreads
from uwf_git.ext.langgraph.values import Decoder, Encoder, Groups, Place
from uwf_git.plugin import ThreadId, Usage, one_line

_T = TypeVar("_T")
_LONGEST_QUESTION = 200
_Items = list[dict[str, Any]]  # within the class, `list` is a method


class UwfSaver(BaseCheckpointSaver[int]):
    """A checkpointer on a uwf store: the one of the environment and current folder, or in a folder, which is made if
    needed. Each checkpoint and each write is on the disk when its call returns. It may be used by many threads, and by
    many processes at a time."""

    def __init__(self, path: str | Path | None = None, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        # A store belongs to one thread of a program, and LangGraph calls from several.
        self._worker = ThreadPoolExecutor(1, "uwf-checkpoints")
        self._threads: CheckpointThreads = self._worker.submit(CheckpointThreads, path).result()
        self.path = self._threads.path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store. Every call has stored what it was given already."""
        if not self._worker._shutdown:
            self._worker.submit(self._threads.close)
            self._worker.shutdown()

    def _run(self, call: Callable[..., _T], *arguments: Any) -> _T:
        return self._worker.submit(call, *arguments).result()

    async def _arun(self, call: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, partial(call, *arguments))

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, the newest of its namespace unless the configuration names one."""
        return self._run(self._get, config)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._arun(self._get, config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first, of one thread or all."""
        for name, key in self._run(self._keys, config, before):
            if limit is not None and limit <= 0:
                return
            if (item := self._run(self._listed, name, key, filter)) is not None:
                yield item
                limit = limit and limit - 1

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for name, key in await self._arun(self._keys, config, before):
            if limit is not None and limit <= 0:
                return
            if (item := await self._arun(self._listed, name, key, filter)) is not None:
                yield item
                limit = limit and limit - 1

    def _get(self, config: RunnableConfig) -> CheckpointTuple | None:
        name, namespace, checkpoint = _names(config)
        thread = self._threads.find(name)
        if thread is None:
            return None
        records = self._threads.records(thread)
        key = CheckpointKey(namespace, checkpoint or records.newest(namespace))
        return self._tuple(name, records, key) if key in records.checkpoints else None

    def _keys(
        self, config: RunnableConfig | None, before: RunnableConfig | None
    ) -> Sequence[tuple[str, CheckpointKey]]:
        until = get_checkpoint_id(before) if before else None
        wanted = config["configurable"] if config else {}
        keys: list[tuple[str, CheckpointKey]] = []
        for name in [str(wanted["thread_id"])] if config else self._threads.names():
            thread = self._threads.find(name)
            records = self._threads.records(thread) if thread is not None else None
            for key in records.checkpoints if records is not None else ():
                if (
                    wanted.get("checkpoint_ns", key.namespace) == key.namespace
                    and (wanted.get("checkpoint_id") or key.checkpoint) == key.checkpoint
                    and (until is None or key.checkpoint < until)
                ):
                    keys.append((name, key))
        return sorted(keys, key=lambda item: item[1].checkpoint, reverse=True)

    def _listed(self, name: str, key: CheckpointKey, filter: dict[str, Any] | None) -> CheckpointTuple | None:
        thread = self._threads.find(name)
        records = self._threads.records(thread) if thread is not None else None
        if records is None or key not in records.checkpoints:
            return None  # it was removed meanwhile
        metadata = self._metadata(records, key) if filter else {}
        if any(metadata.get(field) != value for field, value in (filter or {}).items()):
            return None
        return self._tuple(name, records, key)

    def _metadata(self, records: CheckpointThread, key: CheckpointKey) -> dict[str, Any]:
        node = records.checkpoints[key]
        decoder = self._threads.decoder(records)
        value: dict[str, Any] = self._load(decoder, Place(node, ("metadata",)))
        return value

    def _load(self, decoder: Decoder, place: Place) -> Any:
        return self.serde.loads_typed(decoder.at(place))

    def _tuple(self, name: str, records: CheckpointThread, key: CheckpointKey) -> CheckpointTuple:
        node = records.checkpoints[key]
        decoder = self._threads.decoder(records)
        payload = decoder.payload(node)
        values = {
            channel: self._load(decoder, Place(node, ("values", channel))) for channel in payload["values"]
        }
        writes = records.ordered_writes(key)
        pending = [(item.task, item.channel, self._load(decoder, item.place)) for item in writes]
        parent = payload["parent"]
        checkpoint: Any = {**self._load(decoder, Place(node, ("state",))), "channel_values": values}
        records.take(decoder, key, payload)
        return CheckpointTuple(
            _config(name, key),
            checkpoint,
            self._load(decoder, Place(node, ("metadata",))),
            _config(name, CheckpointKey(key.namespace, parent)) if parent else None,
            pending,
        )

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint. Raises Invalid, storing nothing, if it holds a known secret."""
        return self._run(self._put, config, checkpoint, metadata, new_versions)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._arun(self._put, config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote after a checkpoint. Raises as `put`."""
        self._run(self._put_writes, config, writes, task_id, task_path)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._arun(self._put_writes, config, writes, task_id, task_path)

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        name, namespace, parent = _names(config)
        key = CheckpointKey(namespace, checkpoint["id"])
        state: dict[str, Any] = {**checkpoint}
        values = state.pop("channel_values")
        about = get_serializable_checkpoint_metadata(config, metadata)
        versions = checkpoint["channel_versions"]

        def record(records: CheckpointThread, encoder: Encoder) -> dict[str, Any]:
            kept = self._kept(records, CheckpointKey(namespace, parent or ""), versions, new_versions)
            encoded = {channel: encoder.refer(place) for channel, place in kept.items()}
            for channel, value in values.items():
                if channel not in kept or _is_small(value):
                    groups = records.groups.setdefault((namespace, channel), Groups())
                    path = "values", channel
                    encoded[channel] = encoder.typed(self.serde.dumps_typed(value), path, groups)
            return {
                "summary": _checkpoint_summary(key, about),
                "checkpoint": key.checkpoint,
                "namespace": namespace,
                "parent": parent,
                "state": encoder.typed(self.serde.dumps_typed(_sorted(state)), ("state",)),
                "values": encoded,
                "metadata": encoder.typed(self.serde.dumps_typed(_sorted(about)), ("metadata",)),
            }

        self._threads.append(name, record)
        return _config(name, key)

    def _kept(
        self,
        records: CheckpointThread,
        parent: CheckpointKey,
        versions: ChannelVersions,
        new_versions: ChannelVersions,
    ) -> dict[str, Any]:
        """Return the places of the values that the parent has in the versions of a new checkpoint."""
        if parent not in records.checkpoints:
            return {}
        if parent not in records.taken:  # so that its values aren't stored again
            self._tuple("", records, parent)
        known = records.taken[parent]
        return {
            channel: place
            for channel, place in known.items()
            if channel in versions and channel not in new_versions
        }

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> None:
        name, namespace, checkpoint = _names(config)
        if checkpoint is None:
            raise Usage("writes belong to a checkpoint, and the configuration has no checkpoint_id")
        key = CheckpointKey(namespace, checkpoint)

        def record(records: CheckpointThread, encoder: Encoder) -> dict[str, Any] | None:
            there = records.writes.get(key, {})
            items: _Items = []
            for position, (channel, value) in enumerate(writes):
                index = WRITES_IDX_MAP.get(channel, position)
                if index < 0 or (task, index) not in there:
                    at = "writes", len(items), "value"
                    encoded = encoder.typed(self.serde.dumps_typed(value), at)
                    items.append({"index": index, "channel": channel, "value": encoded})
            if not items:
                return None
            return {
                "summary": _writes_summary(key, path, items, dict(writes)),
                "checkpoint": checkpoint,
                "namespace": namespace,
                "task": task,
                "path": path,
                "writes": items,
            }

        self._threads.append(name, record)

    # Threads

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread. `uwf thread restore` has it back as long as `uwf gc` keeps removed threads."""
        self._run(self._threads.remove, str(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._arun(self._threads.remove, str(thread_id))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Fork a thread under another name. Raises Invalid if there is a thread of that name."""
        self._run(self._threads.copy, str(source_thread_id), str(target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._arun(self._threads.copy, str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Replace threads by new ones with the newest checkpoint of each namespace alone, and what it is made of; or
        with the strategy "delete" remove them."""
        self._run(self._prune, thread_ids, strategy)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._arun(self._prune, thread_ids, strategy)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Replace the threads that have checkpoints of runs by new ones without these checkpoints and their writes."""
        self._run(self._delete_for_runs, run_ids)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._arun(self._delete_for_runs, run_ids)

    def _prune(self, names: Sequence[str], strategy: str) -> None:
        if strategy not in ("keep_latest", "delete"):
            raise Usage(f"{strategy!r} is not a strategy of prune", "keep_latest and delete are")
        for name in map(str, names):
            if strategy == "delete":
                self._threads.remove(name)
            elif (thread := self._threads.find(name)) is not None:
                records = self._threads.records(thread)
                kept: set[CheckpointKey] = set()
                for namespace in {key.namespace for key in records.checkpoints}:
                    kept |= self._needed(records, CheckpointKey(namespace, records.newest(namespace)))
                self._keep(name, thread, kept)

    def _needed(self, records: CheckpointThread, key: CheckpointKey) -> set[CheckpointKey]:
        """Return a checkpoint and those before it that have what its delta channels are made of."""
        needed: set[CheckpointKey] = set()
        deltas: set[str] | None = None
        while key in records.checkpoints and (deltas is None or deltas):
            needed.add(key)
            payload = self._threads.decoder(records).payload(records.checkpoints[key])
            if deltas is None:
                deltas = set(self._metadata(records, key).get("counters_since_delta_snapshot", ()))
            deltas -= payload["values"].keys()
            key = CheckpointKey(key.namespace, payload["parent"] or "")
        return needed

    def _delete_for_runs(self, runs: Sequence[str]) -> None:
        gone = {*map(str, runs)}
        for name in self._threads.names() if gone else ():
            thread = self._threads.find(name)
            if thread is None:
                continue
            records = self._threads.records(thread)
            kept = {
                key for key in records.checkpoints if self._metadata(records, key).get("run_id") not in gone
            }
            if not kept:
                self._threads.remove(name)
            elif len(kept) < len(records.checkpoints):
                self._keep(name, thread, kept)

    def _keep(self, name: str, thread: ThreadId, kept: set[CheckpointKey]) -> None:
        """Put some checkpoints and their writes into a new thread of a name, in the order they have, and remove the old
        one. They are encoded anew: else they would refer to the ones that go."""
        records = self._threads.records(thread)
        if kept == records.checkpoints.keys():
            return
        self._threads.replace(name, thread, lambda payload: key_in(payload) in kept)


def _names(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Return the thread, the namespace and the checkpoint of a configuration."""
    wanted = config["configurable"]
    return str(wanted["thread_id"]), wanted.get("checkpoint_ns", ""), get_checkpoint_id(config)


def _config(name: str, key: CheckpointKey) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": name,
            "checkpoint_ns": key.namespace,
            "checkpoint_id": key.checkpoint,
        }
    }


def _sorted(value: Any) -> Any:
    """Return what LangGraph says about a checkpoint, in which the order of keys means nothing, with sorted keys."""
    return {key: _sorted(value[key]) for key in sorted(value)} if type(value) is dict else value


def _is_small(value: Any) -> bool:
    """Return whether a value is shorter than a reference to it."""
    return (
        value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) < 32)
    )


def _checkpoint_summary(key: CheckpointKey, metadata: Any) -> str:
    where = f" in {key.namespace}" if key.namespace else ""
    return f"checkpoint {metadata.get('step', '')} ({metadata.get('source', '')}){where}"


def _writes_summary(key: CheckpointKey, path: str, items: _Items, values: dict[str, Any]) -> str:
    """Say what a task wrote: the channels, or what it asks, unless that is stored as bytes that nobody is to read."""
    task = path.rpartition(", ")[2].strip("_") or "input"
    where = f" in {key.namespace}" if key.namespace else ""
    encoded = {item["channel"]: item["value"] for item in items}
    if (question := encoded.get(INTERRUPT)) is not None:
        is_readable = not (isinstance(question, dict) and "$typed" in question)
        asked = values[INTERRUPT]
        questions = asked if isinstance(asked, list | tuple) else [asked]
        texts = [one_line(str(getattr(item, "value", item)), _LONGEST_QUESTION) for item in questions]
        return f"{task} asks{where}{': ' + '; '.join(texts) if is_readable else ''}"
    shown = [channel.strip("_") for channel in encoded if not channel.startswith(("branch:", "__pregel"))]
    return f"{task} wrote {', '.join(shown) or 'nothing'}{where}"
