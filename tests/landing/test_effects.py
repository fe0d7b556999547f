"""What a thread sends to the outside is recorded before it is sent, and sent once."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_samples import ONE
from commands import git
from conftest import Uwf
from outside import Crash, Outside, sending
from workflows import opened

from uwf_git.base.errors import Declined, Invalid, RolledBack, Undecided, Usage
from uwf_git.ext.landing import EFFECTS
from uwf_git.ext.landing.effect_records import Effects, RecordedEffect, Settlement, recorded_effects
from uwf_git.ext.landing.effects import LONGEST, once
from uwf_git.format.ids import ThreadId
from uwf_git.format.words import COMMAND, DONE, FAILED, FOUND, PUSH, UNKNOWN
from uwf_git.store.instance import Instance


@pytest.fixture
def thread(uwf: Uwf, hermetic: Path) -> ThreadId:
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    return ThreadId(uwf("thread", "start", "one", "-p", "Do it").json["thread"])


@pytest.fixture
def instance(thread: ThreadId) -> Instance:
    return opened()


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path)


def recorded(instance: Instance, thread: ThreadId) -> list[RecordedEffect]:
    return Effects(instance.store).of_thread(thread)


def is_found_once_it_answers(instance: Instance, thread: ThreadId, outside: Outside) -> None:
    outside.is_unreachable = False
    assert once(instance, thread, sending(), outside.send, outside.look_up).outcome == FOUND
    assert len(outside.arrived) == 1


def crashed(instance: Instance, thread: ThreadId, outside: Outside, when: str) -> None:
    outside.crashes = when
    with pytest.raises(Crash):
        once(instance, thread, sending(), outside.send)
    outside.crashes = ""


def test_an_effect_is_recorded_before_it_is_sent(
    instance: Instance, thread: ThreadId, outside: Outside
) -> None:
    seen: list[RecordedEffect] = []

    def send(key: str) -> str:
        seen.extend(Effects(Instance(instance.location).store).of_thread(thread))
        return outside.send(key)

    done = once(instance, thread, sending(), send)
    assert [(item.outcome, item.effect.key) for item in seen] == [("open", outside.arrived[0])]
    assert (done.outcome, done.effect) == (DONE, seen[0].hash)
    assert done.reference.endswith("/comments/1")


def test_what_was_sent_is_not_sent_again(instance: Instance, thread: ThreadId, outside: Outside) -> None:
    first = once(instance, thread, sending(), outside.send, outside.look_up)
    again = once(instance, thread, sending(content="In other words."), outside.send, outside.look_up)
    assert again == first and len(outside.arrived) == 1
    assert len(recorded(instance, thread)) == 1


def test_other_names_kinds_and_targets_are_other_effects(
    instance: Instance, thread: ThreadId, outside: Outside
) -> None:
    for item in (
        sending(),
        sending("other"),
        sending(kind=PUSH),
        sending()._replace(target="https://forge.invalid/2"),
    ):
        once(instance, thread, item, outside.send, outside.look_up)
    assert len(set(outside.arrived)) == 4


def test_a_crash_after_sending_is_found_at_the_other_side(
    instance: Instance, thread: ThreadId, outside: Outside
) -> None:
    crashed(instance, thread, outside, "after")
    settlement = once(instance, thread, sending(), outside.send, outside.look_up)
    assert (settlement.outcome, settlement.reference[-11:]) == (FOUND, "/comments/1")
    assert len(outside.arrived) == 1


def test_a_crash_before_sending_is_sent_with_the_same_key(
    instance: Instance, thread: ThreadId, outside: Outside
) -> None:
    crashed(instance, thread, outside, "before")
    (begun,) = recorded(instance, thread)
    assert once(instance, thread, sending(), outside.send, outside.look_up).effect == begun.hash
    assert outside.arrived == [begun.effect.key]
    assert [item.outcome for item in recorded(instance, thread)] == [DONE]


@pytest.mark.parametrize("has_look_up", [True, False])
def test_what_nobody_can_tell_is_recorded_as_unknown_and_not_sent(
    instance: Instance, thread: ThreadId, outside: Outside, has_look_up: bool
) -> None:
    crashed(instance, thread, outside, "after")
    outside.is_unreachable = True
    for _ in range(2):
        with pytest.raises(Undecided, match="which was begun, was carried out") as undecided:
            once(instance, thread, sending(), outside.send, outside.look_up if has_look_up else None)
        assert undecided.value.hint == "repeat", "only a command has --check"
    assert [len(item.settlements) for item in recorded(instance, thread)] == [1]
    assert recorded(instance, thread)[0].outcome == UNKNOWN and len(outside.arrived) == 1
    is_found_once_it_answers(instance, thread, outside)


def test_what_is_unknown_is_sent_once_it_is_known_not_to_be_there(
    instance: Instance, thread: ThreadId, outside: Outside
) -> None:
    crashed(instance, thread, outside, "before")
    with pytest.raises(Undecided):
        once(instance, thread, sending(), outside.send)
    assert once(instance, thread, sending(), outside.send, outside.look_up).outcome == DONE
    assert len(outside.arrived) == 1


def test_what_was_refused_may_be_tried_again(instance: Instance, thread: ThreadId, outside: Outside) -> None:
    outside.is_refusing = True
    for _ in range(2):
        with pytest.raises(Declined, match="422"):
            once(instance, thread, sending(), outside.send)
    outside.is_refusing = False
    assert once(instance, thread, sending(), outside.send).outcome == DONE
    assert [item.outcome for item in recorded(instance, thread)] == [FAILED, FAILED, DONE]
    assert [item.outcome for item in recorded_effects(instance, thread)] == [DONE]
    assert len(outside.arrived) == 1


def test_a_refusal_after_it_was_unknown_still_needs_a_look_up(
    instance: Instance, thread: ThreadId, outside: Outside
) -> None:
    """Another machine may have recorded the refusal of an attempt of its own."""
    crashed(instance, thread, outside, "after")
    (begun,) = recorded(instance, thread)
    effects, head = Effects(instance.store), instance.threads.head(thread)
    for outcome in (UNKNOWN, FAILED):
        effects.record(head, Settlement(begun.hash, outcome, head.row.time))
    with pytest.raises(Undecided):
        once(instance, thread, sending(), outside.send)
    assert once(instance, thread, sending(), outside.send, outside.look_up).outcome == FOUND


def test_what_another_machine_may_have_sent_is_looked_up_first(
    instance: Instance, thread: ThreadId, outside: Outside
) -> None:
    once(instance, thread, sending(), outside.send)
    git("--git-dir", instance.location.git_dir, "update-ref", "-d", EFFECTS.prefix + thread)
    other = Instance(instance.location, {})  # as one that has never seen the ref
    outside.is_unreachable = True
    with pytest.raises(Undecided, match="was sent before"):
        once(other, thread, sending(), outside.send, outside.look_up)
    assert not Effects(other.store).of_thread(thread)
    is_found_once_it_answers(other, thread, outside)


def test_other_content_under_the_key_of_a_crash_is_an_effect_of_its_own(
    instance: Instance, thread: ThreadId, outside: Outside
) -> None:
    crashed(instance, thread, outside, "before")
    once(instance, thread, sending(content="In other words."), outside.send, outside.look_up)
    first, second = recorded(instance, thread)
    assert first.effect.key == second.effect.key and first.effect.sha256 != second.effect.sha256
    assert [item.outcome for item in recorded_effects(instance, thread)] == [DONE]


def test_a_name_belongs_to_one_command(instance: Instance, thread: ThreadId, outside: Outside) -> None:
    once(instance, thread, sending(kind=COMMAND), outside.send)
    with pytest.raises(Usage, match="another command"):
        once(instance, thread, sending(kind=COMMAND, content="x"), outside.send)
    assert len(outside.arrived) == 1


def test_a_secret_in_what_is_recorded_before_prevents_it_and_afterwards_is_taken_out(
    instance: Instance, thread: ThreadId, outside: Outside, root: Path
) -> None:
    secret = "s3cr3t-of-the-file-Zx81"
    (root / ".env").write_text(f"MODEL_KEY={secret}\n")
    with pytest.raises(Invalid, match="holds a secret"):
        once(instance, thread, sending()._replace(target=f"https://{secret}@x"), outside.send)
    assert not outside.arrived
    reference = once(
        instance, thread, sending(), lambda key: f"said {secret}\n{'x' * 9000}\x1b[31m"
    ).reference
    assert secret not in reference and len(reference) <= LONGEST and reference.isprintable()


def test_threads_with_the_same_task_have_other_keys(
    uwf: Uwf, instance: Instance, thread: ThreadId, outside: Outside
) -> None:
    twin = ThreadId(uwf("thread", "start", "one", "-p", "Do it").json["thread"])
    heads = [instance.threads.head(item) for item in (thread, twin)]
    assert heads[0].node == heads[1].node, "they share their StartNode"
    for item in (thread, twin):
        once(instance, item, sending(), outside.send, outside.look_up)
    assert len(set(outside.arrived)) == 2


def test_a_lost_record_is_told_and_not_sent_again(
    instance: Instance, thread: ThreadId, outside: Outside
) -> None:
    once(instance, thread, sending(), outside.send)
    git("--git-dir", instance.location.git_dir, "update-ref", "-d", EFFECTS.prefix + thread)
    with pytest.raises(RolledBack):
        once(Instance(instance.location), thread, sending(), outside.send)
    assert len(outside.arrived) == 1
