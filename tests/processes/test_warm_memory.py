"""A warm process that makes step after step needs no more memory for it."""

from __future__ import annotations

import os

import pytest
from fleets import FIVE, STEPS
from pool_soak import LARGEST, proportional
from uwf_cli.invocation import PROGRAM
from workflows import opened, register

from uwf_git.format.kinds import Start
from uwf_git.git.repository import Oid
from uwf_git.sandbox.warm import WarmPool
from uwf_git.store.instance import Instance

THREADS = 200  # of five steps
WARMED_UP = 40  # threads, after which memory is flat
GROWTH = 4 << 20  # bytes


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_a_warm_process_has_as_much_memory_after_1000_steps_as_after_200(instance: Instance) -> None:
    version = register(instance, FIVE)
    start = Oid(hex=version.commit)
    threads = [instance.threads.start(start, Start(version.hash, f"Say {n}")) for n in range(THREADS)]
    memory, own, processes = [], [], set()
    pool = WarmPool(PROGRAM, os.environ)
    try:
        for thread in threads:
            process = pool.spawn(["thread", "run", thread, "--agent", "uwf-rehearse"])
            assert process.stdout is not None and process.stderr is not None
            process.stdout.read()
            assert process.wait() == 0, process.stderr.read()
            process.stdout.close()
            process.stderr.close()
            processes.add(process.pid)
            memory.append(proportional(process.pid))
            own.append(proportional(process.pid, "Pss_Anon"))  # without the store's files, which grow
    finally:
        pool.close()
    assert len(processes) == 1
    rows = opened().threads
    assert all(rows.head(thread).row.number == STEPS for thread in threads)
    assert max(memory) < LARGEST
    assert max(own[WARMED_UP:]) - own[WARMED_UP - 1] < GROWTH, own[:: THREADS // 20]
