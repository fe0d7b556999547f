"""What steps change a little stands in joined packs as deltas, which everybody reads."""

from __future__ import annotations

import os
import re
import shutil
import socket
from pathlib import Path

import pygit2
import pytest
from commands import git
from conftest import Uwf
from hypothesis import given
from hypothesis import strategies as st
from test_small_packs import folder, fsck, packs
from test_threads import append, start

from uwf_git.git.objects import BLOB, TREE, id_of
from uwf_git.git.packing import MANY, OURS
from uwf_git.git.packs import DEPTH, Pack, applied, delta_of
from uwf_git.git.repository import Oid
from uwf_git.store.instance import Instance

ANSWER = "".join(f'Line {number} of what was "found" é.\n' for number in range(60))
STEPS = 2 * MANY
WORDS = st.lists(st.sampled_from([b"same words again ", b"\n", b'"', b"\0", b"other", b"x" * 70_000])).map(
    b"".join
)


def depths(pack: Path) -> dict[str, int]:
    """The deltas in a pack by their ids, and how many others each stands on, itself among them."""
    listed = git("verify-pack", "-v", pack).splitlines()
    found = re.compile(r"([0-9a-f]{40}) \w+ +\d+ \d+ \d+ (\d+) [0-9a-f]{40}")
    return {match[1]: int(match[2]) for line in listed if (match := found.fullmatch(line))}


def grown(instance: Instance, steps: int = STEPS) -> str:
    """A new thread of so many steps."""
    thread = start(instance)
    head = instance.threads.head(thread)
    for number in range(steps):
        head = append(instance, head, number, f"{number}: {ANSWER}")
    return thread


@given(WORDS, WORDS, WORDS, st.sampled_from([BLOB, TREE]))
def test_a_delta_makes_what_it_was_made_of(before: bytes, between: bytes, after: bytes, kind: int) -> None:
    base = before + b"1 of 10" + after
    for content in (base, after + before, before + between + b"2 of 10" + after, between, b""):
        delta = delta_of(kind, base, content)
        assert applied(base, delta, len(content)) == content
        assert len(delta) <= len(content) + len(content) // 127 + 24


def test_plain_git_and_libgit2_read_every_object_of_a_joined_pack(instance: Instance, tmp_path: Path) -> None:
    grown(instance)
    git_dir = instance.store.repository.path
    joined = max(packs(instance), key=lambda pack: pack.stat().st_size)
    assert len(depths(joined)) > 4 * MANY
    again = tmp_path / "again.idx"
    git("--git-dir", git_dir, "index-pack", "--strict", "-o", again, joined)
    assert again.read_bytes() == joined.with_suffix(".idx").read_bytes()
    database = pygit2.Odb(str(git_dir / "objects"))
    here = {Oid(raw=each.oid): (each.kind, each.content) for each in Pack(joined, 1 << 20).objects()}
    assert set(map(str, here)) == set(
        re.findall(r"(?m)^[0-9a-f]{40}(?= \w+ +\d+ \d)", git("verify-pack", "-v", joined))
    )
    for oid, (kind, content) in here.items():
        assert database.read(oid) == (kind, content) and id_of(kind, content) == oid
    fsck(instance)
    copy = tmp_path / "copy.git"
    git("clone", "-q", "--mirror", f"file://{git_dir}", copy)
    git("--git-dir", copy, "fsck", "--strict", "--no-dangling")
    before = git("--git-dir", git_dir, "rev-list", "--objects", "--all")
    git("--git-dir", git_dir, "repack", "-adq")
    (whole,) = folder(instance).glob("*.pack")
    assert (
        len(depths(whole)) > 4 * MANY
        and git("--git-dir", git_dir, "rev-list", "--objects", "--all") == before
    )


def test_a_step_takes_less_than_twice_what_was_said_in_it(instance: Instance) -> None:
    thread = start(instance)
    head = instance.threads.head(thread)
    said = [os.urandom(3000).hex() for _ in range(STEPS)]
    before = sum(pack.stat().st_size for pack in packs(instance))
    for number in range(STEPS):
        head = append(instance, head, number, said[number])
    while len(packs(instance)) > 1:  # what is joined soon isn't packed tightly before
        with instance.store.repository.together():
            instance.store.repository.write_blob(os.urandom(8))
    after = sum(pack.stat().st_size for pack in packs(instance))
    # Hexadecimal digits compress to half.
    assert after - before < 1.5 * STEPS * 3000


def test_packs_that_were_joined_keep_their_deltas_when_they_are_joined_again(instance: Instance) -> None:
    repository = instance.store.repository
    deltas: dict[str, int] = {}
    for turn in range(MANY + 1):
        for number in range(MANY):
            with repository.together():
                text = "".join(f"{turn} line {line} of this text\n" for line in range(20))
                repository.write_blob(f"# A page\n{number}\n{text}".encode())
        for pack in packs(instance):
            deltas |= depths(pack)
    kept = {name: depth for pack in packs(instance) for name, depth in depths(pack).items()}
    assert len(deltas) > (MANY - 2) * MANY and {name: kept.get(name) for name in deltas} == deltas


def test_what_is_in_two_joined_packs_stays_the_base_of_its_deltas(instance: Instance) -> None:
    repository, there = instance.store.repository, folder(instance)
    page = "".join(f"line {line} of this text\n" for line in range(20))
    aside = there.parent / "aside"
    aside.mkdir()
    for turn in ("first", "second"):
        for number in range(MANY):
            with repository.together():
                repository.write_blob(f"# A page\n\n{page}".encode())
                repository.write_blob(f"{turn}{number}".encode())
                repository.write_blob(f"# A page\n{turn} {number}\n{page}".encode())
        for pack in packs(instance):
            for part in (pack, pack.with_suffix(".idx")):
                part.rename(aside / part.name)
    for part in aside.iterdir():
        part.rename(there / part.name)
    for number in range(MANY):
        with repository.together():
            repository.write_blob(f"{number} more".encode())
    assert len(packs(instance)) < MANY
    found = [oid for pack in packs(instance) for oid in depths(pack)]
    assert len(found) == len(set(found)) >= 2 * MANY - 2
    for turn in ("first", "second"):
        for number in range(MANY):
            content = f"# A page\n{turn} {number}\n{page}".encode()
            assert Instance(instance.location).store.repository.read(id_of(BLOB, content)) == (BLOB, content)


def test_no_more_deltas_stand_on_one_another_than_git_itself_makes(instance: Instance) -> None:
    repository = instance.store.repository
    at_work = repository.path / "gc.pid"
    at_work.write_text(f"{os.getpid()} {socket.gethostname()}")
    page = "".join(f"line {line} of this text\n" for line in range(20))
    for number in range(2 * DEPTH + 20):
        with repository.together():
            repository.write_blob(f"# A page\n{number}\n{page}".encode())
    at_work.unlink()
    with repository.together():
        repository.write_blob(b"the last")
    (joined,) = packs(instance)
    made = depths(joined)
    assert len(made) > 2 * DEPTH and DEPTH - 2 < max(made.values()) <= DEPTH


@pytest.mark.parametrize("at", [0.1, 0.5])
def test_a_base_that_is_damaged_is_told_by_verify_and_doctor(instance: Instance, uwf: Uwf, at: float) -> None:
    thread = grown(instance)
    uwf("verify")
    joined = max(packs(instance), key=lambda pack: pack.stat().st_size)
    listed = git("verify-pack", "-v", joined).splitlines()
    bases = {line.split()[6]: None for line in listed if len(line.split()) == 7}
    whole = {line.split()[0]: int(line.split()[4]) for line in listed if len(line.split()) == 5}
    places = sorted(whole[base] for base in bases if base in whole)
    damaged = places[int(len(places) * at)]
    joined.chmod(0o644)
    data = bytearray(joined.read_bytes())
    data[damaged + 20 : damaged + 40] = bytes(20)
    joined.write_bytes(data)
    shutil.rmtree(instance.location.git_dir / "uwf" / "cache", ignore_errors=True)
    assert uwf("verify", check=None).code != 0
    told = uwf("doctor", check=None)
    assert told.code != 0 and joined.name in told.out + told.err, told.out + told.err
    assert thread and joined.name.startswith(OURS)
