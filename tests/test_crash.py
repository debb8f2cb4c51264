"""orch killed at any moment loses nothing, locks nothing, and the next run clears up after it."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT, claude_failed, claude_ok, codex_ok, needs_proc, step, wait_until
from tools import torture

import orch as core
from orch import read_process

pytestmark = needs_proc
SLEEP = "time.sleep(60)\n"


@pytest.fixture
def arena(built, tmp_path):
    """A world whose agents do what the prompt says: "claude=limit codex=ok"."""
    one = torture.Arena(tmp_path / "arena", built)
    yield one
    one.close()


def test_a_kill_at_any_moment_loses_nothing_and_the_next_run_clears_up(arena):
    seed = int(os.environ.get("SEED", time.time_ns() % 10 ** 6))
    with torture.load(2):
        figures = torture.kill_runs(arena, seed, 15)
    assert figures["runs killed"] >= 9, (seed, figures)


def test_a_kill_at_any_system_call_on_a_file_of_orch_loses_nothing(arena):
    assert torture.kill_calls(arena, "claude=ok")["calls killed"] >= 25


def test_a_kill_half_way_through_any_write_loses_nothing_but_that_write(arena):
    assert torture.kill_calls(arena, "claude=fail codex=ok", torture.die_half_way)["calls killed"] >= 4


def test_a_kill_between_two_attempts_loses_nothing(arena):
    assert torture.kill_calls(arena, "claude=fail codex=ok", step=4)["calls killed"] >= 15


@pytest.fixture
def dead_note(orch, fake):
    """A function that leaves the note of a run which was killed, its process ids changed as the test wants."""
    def leave(**changes):
        fake("claude", step(run=SLEEP))
        before = len(fake.calls)
        process = orch.start("the dead one")
        wait_until(lambda: len(fake.calls) > before, what="the agent's start")
        process.kill()
        process.communicate()
        [path] = (orch.home / "cache" / "running").iterdir()
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, **changes}))
        return fake.calls[-1].pid
    return leave


def lives(pid):
    return read_process(pid) is not None


def test_what_a_killed_orch_left_is_stopped_told_of_and_recorded_once(orch, fake, dead_note):
    agent = dead_note()
    fake("claude", claude_ok("42"), claude_ok("43"))
    first, second = orch("next"), orch("after that")
    assert (first.out, second.out, second.err) == ("42\n", "43\n", "")
    assert len(first.notices) == 1 and "killed before it ended; 1 process of it stopped" in first.notices[0], first
    assert not lives(agent)
    assert [record["outcome"] for record in orch.ledger()] == ["aborted", "ok", "ok"]
    assert [job["status"] for job in orch.state()["jobs"]] == ["aborted", "ok", "ok"]


def test_a_killed_run_is_one_job_with_all_its_attempts_and_what_they_cost(orch, fake):
    fake("claude", claude_failed("The widget could not be frobnicated."),
         claude_ok("in short: nothing", input_tokens=7, cache_creation=0, output_tokens=2, cost_usd=0.75))    # asked what it did
    fake("codex", step(run=SLEEP))
    process = orch.start("the dead one")
    wait_until(lambda: len(fake.calls) == 3, what="the second agent's start")
    process.kill()
    process.communicate()
    fake("claude", claude_ok("42"))
    assert orch("next").out == "42\n"
    job = orch.state()["jobs"][0]
    assert (job["status"], job["agent"], job["attempts"], job["cost_usd"]) == ("aborted", "codex", 2, 0.75)
    assert (job["usage"]["input_tokens"], job["usage"]["output_tokens"], job["usage"]["billable"]) == (7, 2, 9)


@pytest.mark.parametrize(("args", "count"), [((), 1), (("-a", "copilot"), 2), (("--roles", "one,two"), 2)])
def test_the_temporary_folders_of_a_killed_run_are_removed(orch, fake, repo, args, count):
    """Copies of the user's files, and what an agent writes its tokens to."""
    orch.configure({"roles": {"one": {"prompt": "x"}, "two": {"prompt": "x"}}})
    for agent in ("claude", "copilot"):
        fake(agent, step(run=SLEEP)) if (agent == "copilot") == ("copilot" in args) else fake(agent)
    process = orch.start(*args, "the dead one")
    wait_until(lambda: fake.calls, what="the agent's start")
    process.kill()
    process.communicate()
    assert len(list(orch.base.glob("orch-*"))) == count
    fake("codex", codex_ok("42"))
    assert orch("-a", "codex", "next").out == "42\n"
    assert list(orch.base.glob("orch-*")) == []


def test_a_lock_that_a_child_still_holds_is_waited_for(orch, fake, dead_note, monkeypatch):
    """A kill between fork and exec: the child has the lock of the note until it becomes the agent."""
    dead_note()
    fake("claude", claude_ok("42"))
    [note] = (orch.home / "cache" / "running").iterdir()
    answers, real = iter([False] * 3), core.try_lock
    monkeypatch.setattr(core, "try_lock", lambda fd: next(answers, True) and real(fd) if os.path.samestat(os.fstat(fd), held) else real(fd))
    monkeypatch.setattr(os, "environ", {**os.environ, **orch.env})
    held = os.stat(note)
    result = core.run("next", cwd=str(orch.work))
    assert result.answer == "42" and "killed before it ended; 1 process of it stopped" in result.warnings[0], result
    assert [job["status"] for job in orch.state()["jobs"]] == ["aborted", "ok"]


def test_a_reused_process_id_is_nobody_of_ours(orch, fake, dead_note):
    bystander = subprocess.Popen([sys.executable, "-ISc", "import time; time.sleep(60)"])
    time.sleep(0.05)    # start times are in ticks of 10 ms
    try:
        dead_note(pid=bystander.pid)
        fake("claude", claude_ok("42"))
        assert orch("next").out == "42\n"
        assert bystander.poll() is None
        assert list((orch.home / "cache" / "running").iterdir()) == []
    finally:
        bystander.kill()
        bystander.wait()


def test_a_run_of_another_host_on_a_shared_home_is_left_alone(orch, fake, dead_note):
    agent = dead_note(host="another.example.org")
    fake("claude", claude_ok("42"))
    result = orch("next")
    assert (result.out, result.err) == ("42\n", "")
    assert lives(agent)
    assert len(list((orch.home / "cache" / "running").iterdir())) == 1
    assert "aborted" not in json.dumps(orch.state())
    assert "on another.example.org, not known whether it still runs" in orch("status").out
    [row] = orch("status", "--json").json["running"]
    assert (row["host"], row["alive"]) == ("another.example.org", None)


def test_a_run_of_a_host_that_never_came_back_is_recorded_after_a_week(orch, fake, dead_note):
    """A container has a new name each time: nobody else would ever clear up after it."""
    old = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 8 * 86400))
    dead_note(host="another.example.org", boot="another boot", at=old, run_at=old)
    assert "running" not in orch("status").out
    fake("claude", claude_ok("42"))
    result = orch("next")
    assert result.out == "42\n" and "0 processes of it stopped, recorded as aborted" in result.notices[0], result
    assert list((orch.home / "cache" / "running").iterdir()) == []
    assert [job["status"] for job in orch.state()["jobs"]] == ["aborted", "ok"]


def test_after_a_reboot_the_run_is_recorded_and_nothing_is_signalled(orch, fake, dead_note):
    agent = dead_note(boot="another boot")
    fake("claude", claude_ok("42"))
    assert "0 processes" in orch("next").notices[0]
    assert lives(agent)
    assert [job["status"] for job in orch.state()["jobs"]] == ["aborted", "ok"]


def test_a_dev_server_that_an_agent_left_survives_the_kill_of_a_later_orch(orch, fake, dead_note):
    serve = ("import subprocess\nsubprocess.Popen(['sleep', '60'], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)\n")
    fake("claude", claude_ok("started", run=serve))
    orch("start the dev server")
    [server] = [pid for pid, words in orch.leftovers().items() if words.startswith("sleep")]
    dead_note()
    fake("claude", claude_ok("42"))
    assert "1 process of it" in orch("next").notices[0]
    assert lives(server)


def test_two_runs_at_once_clear_up_one_dead_run_once(orch, fake, dead_note):
    dead_note()
    fake("claude", *[claude_ok("42")] * 6)
    runs = [orch.start(f"next {number}") for number in range(6)]
    errors = [run.communicate(timeout=60)[1] for run in runs]
    assert [run.returncode for run in runs] == [0] * 6
    assert sum(err.count(b"killed before it ended") for err in errors) == 1, errors
    assert [record["outcome"] for record in orch.ledger()].count("aborted") == 1
    assert [job["status"] for job in orch.state()["jobs"]].count("aborted") == 1


def test_a_note_that_was_torn_off_is_cleared(orch, fake):
    folder = orch.home / "cache" / "running"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "20260101T000000-00000000.1.json").write_text("")
    (folder / "20260101T000000-00000001.1.json").write_text('{"host": "x", "ma')
    fake("claude", claude_ok("42"))
    result = orch("hi")
    assert (result.out, result.err) == ("42\n", "")
    assert list(folder.iterdir()) == []


def test_a_run_that_was_killed_when_all_was_recorded_is_not_recorded_again(orch, fake):
    fake("claude", claude_ok("42", run="import shutil, glob\nfor note in glob.glob(os.environ['ORCH_HOME'] + '/cache/running/*'):\n"
                                       "    shutil.copy(note, note.replace('cache/running', ''))\n"))
    fake("codex", codex_ok("43"))
    orch("one")
    [copy] = orch.home.glob("*.1.json")
    copy.rename(orch.home / "cache" / "running" / copy.name)
    result = orch("-a", "codex", "two")
    assert (result.out, result.err) == ("43\n", "")
    assert list((orch.home / "cache" / "running").iterdir()) == []
    assert len(orch.ledger()) == len(orch.state()["jobs"]) == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_locks_of_a_process_that_ends_are_free(orch, fake, number):
    """One ends while it holds both, another while its agent works: the next run waits for nobody."""
    orch.home.mkdir(mode=0o700)
    hold = (f"import os, signal, sys; sys.path[:0] = [{str(ROOT)!r}]; import orch\n"
            f"with orch.locked({str(orch.home / 'state.lock')!r}), orch.locked({str(orch.home / 'usage.lock')!r}):\n"
            f"    os.kill(os.getpid(), {number:d})\n")
    assert subprocess.run([sys.executable, "-ISBc", hold], check=False).returncode == -number
    fake("claude", step(run=SLEEP), claude_ok("42"))
    process = orch.start("hi")
    wait_until(lambda: fake.calls, what="the agent's start")
    process.send_signal(number)
    process.communicate(timeout=20)
    result = orch("hi")
    assert result.out == "42\n" and "locked" not in result.err, result
