"""Many at once on one home: every line there once, no half file seen, nobody starves, nothing is locked for ever."""
from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from types import SimpleNamespace

import pytest
from conftest import claude_ok, needs_proc
from tools import torture

import orch as core

pytestmark = needs_proc
SEED = int(os.environ.get("SEED", time.time_ns() % 10 ** 6))


@pytest.fixture
def arena(built, tmp_path):
    """A world whose agents do what the prompt says: "claude=limit codex=ok"."""
    one = torture.Arena(tmp_path / "arena", built)
    yield one
    one.close()


def test_sixty_four_processes_of_every_kind_lose_and_double_nothing(arena):
    figures = torture.crowd(arena, SEED, 64)
    assert figures["runs"] >= 10, figures


def test_no_writer_starves_and_no_reader_sees_half_a_file(arena):
    figures = torture.hammer(arena, 16, 12)
    assert figures["worst wait ms"] < figures["of allowed ms"], figures


def test_a_line_that_is_still_being_written_is_not_seen(orch):
    """At every byte of it; the hammer would see one by chance only."""
    orch.home.mkdir(mode=0o700)
    world = core.make_world(orch.env, str(orch.work), None)
    record = {"at": "2026-01-01T00:00:00Z", "task_id": "t"}
    line = json.dumps(record).encode() + b"\n"
    for size in range(len(line) - 1):
        (orch.home / "usage.jsonl").write_bytes(line + line[:size])
        assert list(core.read_ledger(world)) == [record], size


def test_whoever_has_waited_longer_for_a_lock_asks_more_often(tmp_path, monkeypatch):
    """Else those that come anew are always quicker, and one of 64 waits until all others are done."""
    now_s, pauses = 0.0, []

    def sleep(seconds):
        nonlocal now_s
        now_s += seconds
        pauses.append(seconds)
    monkeypatch.setattr(core, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    monkeypatch.setattr(core, "try_lock", lambda _fd: now_s > 10)
    with core.locked(str(tmp_path / "lock")):
        assert 0.02 < max(pauses) <= 0.05 and pauses[-1] < 0.005


def test_a_lock_that_somebody_keeps_costs_a_warning_and_not_the_answer(orch, fake, monkeypatch):
    fake("claude", claude_ok("42"))
    orch.home.mkdir(mode=0o700)
    monkeypatch.setattr(core, "LOCK_WAIT_S", 0.5)
    monkeypatch.setattr(os, "environ", {**os.environ, **orch.env})
    with open(orch.home / "state.lock", "a") as state, open(orch.home / "usage.lock", "a") as usage:
        fcntl.flock(state, fcntl.LOCK_EX)
        fcntl.flock(usage, fcntl.LOCK_EX)
        result = core.run("hi", cwd=str(orch.work))
    assert (result.answer, len(result.warnings)) == ("42", 1) and "locked by another process" in result.warnings[0]


def test_threads_of_one_program_run_at_once(orch, fake, monkeypatch):
    fake("claude", *[claude_ok("42", delay=0.2)] * 6)
    monkeypatch.setattr(os, "environ", {**os.environ, **orch.env})
    results = []
    threads = [threading.Thread(target=lambda: results.append(core.run("hi", cwd=str(orch.work)))) for _ in range(6)]
    before = len(os.listdir("/proc/self/fd"))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [result.answer for result in results] == ["42"] * 6
    assert len({result.task_id for result in results}) == len(orch.ledger()) == len(orch.state()["jobs"]) == 6
    assert len(os.listdir("/proc/self/fd")) == before    # none leaks
