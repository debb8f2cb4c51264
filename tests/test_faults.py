"""Nothing that is wrong with the home, its files, the disk or the clock costs the answer, or is told as a traceback."""
from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from conftest import claude_limit, claude_ok, codex_ok, needs_proc, needs_root, step, wait_until
from tools import torture

import orch as core


@pytest.fixture
def arena(built, tmp_path):
    """A world whose agents do what the prompt says: "claude=limit codex=ok"."""
    one = torture.Arena(tmp_path / "arena", built, repo=False)
    yield one
    one.close()


# --- files of the home ---------------------------------------------------

@needs_proc
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.ENOTDIR], ids=lambda number: errno.errorcode[number])
def test_an_error_from_any_system_call_on_a_file_of_orch_costs_one_warning(arena, error):
    assert torture.fail_all_calls(arena, "claude=ok", [error])["calls failed"] >= 25


@needs_proc
def test_an_error_during_a_failover_costs_one_warning(arena):
    assert torture.fail_all_calls(arena, "claude=fail codex=ok", [errno.EIO], step=3)["calls failed"] >= 20


@needs_proc
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=lambda number: errno.errorcode[number])
def test_errors_that_last_from_any_call_on_cost_one_warning_and_no_byte(arena, error):
    assert torture.fail_all_calls(arena, "claude=ok", [error], lasts=True)["calls failed"] >= 25


@needs_proc
def test_a_write_that_takes_half_leaves_no_half_line_and_costs_one_warning(arena):
    assert torture.halve_writes(arena, "claude=limit codex=ok")["writes halved"] >= 8


@needs_proc
@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a link to a file", "a link to nothing", "a link to a device", "brackets"])
def test_whatever_stands_in_place_of_a_file_of_orch(arena, kind):
    for place in torture.PLACES:
        torture.odd_file(arena, kind, place, torture.READERS[:5])


@pytest.mark.parametrize("wreck", ["shutil.rmtree(home)", "shutil.rmtree(home); open(home, 'w').close()",
                                   "shutil.rmtree(home + '/cache'); os.mkdir('elsewhere'); os.symlink(os.path.abspath('elsewhere'), home + '/cache')",
                                   "[os.unlink(home + '/' + n) for n in ('state.lock', 'usage.lock')]"])
def test_an_agent_that_wrecks_the_home_costs_no_answer(orch, fake, wreck):
    fake("claude", claude_ok("1"), claude_ok("42", run=f"import shutil\nhome = os.environ['ORCH_HOME']\n{wreck}\n"))
    orch("first")
    result = orch("what?")
    assert (result.code, result.out) == (0, "42\n"), result
    assert len(result.notices) <= 1


@pytest.mark.parametrize("wreck", ["shutil.rmtree(tmp)", "[shutil.rmtree(tmp + '/' + n) for n in os.listdir(tmp)]",
                                   "[os.unlink(tmp + '/' + n + '/git/HEAD') for n in os.listdir(tmp)]"])
def test_an_agent_that_clears_the_temporary_folder_costs_no_answer(orch, fake, repo, wreck):
    tmp = orch.base / "tmp"
    tmp.mkdir()
    fake("claude", claude_ok("42", run=f"import shutil\ntmp = os.environ['TMPDIR']\n{wreck}\n"))
    fake("codex")
    result = orch("--json", "what?", env={"TMPDIR": str(tmp)})
    assert (result.code, result.json["answer"], result.err) == (0, "42", "")


def test_without_a_temporary_folder_a_run_answers_and_the_demo_says_why_not(orch, fake):
    fake("claude", claude_ok("42"))
    fake("copilot", step(stdout='{"type":"assistant.message","data":{"content":"43"}}\n{"type":"result","exitCode":0}\n'))
    env = {"TMPDIR": "/nonexistent"}
    assert orch("what?", env=env).out == "42\n"
    result = orch("-a", "copilot", "--no-failover", "what?", env=env)
    assert b"Traceback" not in result.err_bytes and result.code in (0, 1), result
    demo = orch("demo", env=env)
    assert demo.code == 2 and len(demo.notices) == 1 and "TMPDIR" in demo.err, demo


def test_a_run_that_ends_by_an_error_of_its_caller_is_settled_by_the_next(orch, fake, monkeypatch):
    """Somebody's event handler raises in mid-run: what was begun is not forgotten."""
    fake("claude", claude_ok(stderr="x\n"), claude_ok("42"))

    def emit(kind, /, **_fields):
        if kind == "attempt_end":
            raise RuntimeError("of the caller's own")
    world = core.make_world(orch.env, str(orch.work), core.Stop(), emit)
    with pytest.raises(RuntimeError):
        core.run_request(world, core.Request("first"), None)
    path, = (orch.home / "cache" / "running").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": 2 ** 22 + 1}))    # as if this process had ended
    assert "killed before it ended" in orch("second").err
    assert [job["status"] for job in orch.state()["jobs"]] == ["aborted", "ok"]
    assert [record["outcome"] for record in orch.ledger()] == ["ok", "ok"]


def test_a_file_is_on_the_disk_before_it_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    """No test can pull the plug; the order of the calls decides what is left then."""
    seen = []
    spy = torture.Calls(str(tmp_path), 1, lambda name, args: seen.append(name), lasts=True)
    monkeypatch.setattr(core, "os", spy)
    core.replace_file(str(tmp_path / "state.json"), [b"old"])
    core.replace_file(str(tmp_path / "state.json"), [b"new"])
    monkeypatch.undo()
    assert (tmp_path / "state.json").read_bytes() == b"new" and os.listdir(tmp_path) == ["state.json"]
    assert [name for name in seen if name in ("open", "fsync", "replace")] == ["open", "fsync", "replace"] * 2


# --- permissions ---------------------------------------------------------

@pytest.fixture
def weak(orch, fake):
    """A world in which orch runs as nobody, for whom permissions count: its folder, and a function that runs orch."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become nobody")
    base = Path(tempfile.mkdtemp(prefix="weak-"))
    shutil.copy(orch.program, base / "orch")
    (base / "bin").mkdir()
    (base / "bin" / "claude").write_text(f"#!/bin/sh\ncat {base}/said\n")
    (base / "bin" / "claude").chmod(0o755)
    (base / "said").write_text(claude_ok("42")["stdout"])
    (base / "home").mkdir()
    base.chmod(0o755)
    python = os.path.dirname(os.path.realpath(shutil.which("python3", path=orch.env["PATH"])))
    env = {**orch.env, "ORCH_HOME": str(base / "home"), "HOME": str(base), "TMPDIR": "/tmp", "PATH": f"{base}/bin:{python}:/usr/bin:/bin"}
    if subprocess.run(["python3", "-c", ""], env=env, user=65534, check=False, capture_output=True).returncode:
        pytest.skip("nobody may not run this Python")

    def run(*args, **how):
        return subprocess.run([base / "orch", *args], env=env, cwd="/", user=65534, group=65534, extra_groups=[], capture_output=True,
                              timeout=60, check=False, **how)
    run.home = base / "home"
    yield run
    shutil.rmtree(base, ignore_errors=True)


@pytest.mark.parametrize(("mode", "of"), [(0o500, ""), (0o000, ""), (0o000, "cache"), (0o500, "cache"), (0o000, "cache/running"),
                                          (0o500, "cache/running"), (0o000, "state.json"), (0o000, "usage.jsonl"),
                                          (0o400, "usage.jsonl"), (0o000, "state.lock"), (0o000, "cache/attempts")])
def test_missing_permissions_cost_one_warning(weak, mode, of):
    os.chown(weak.home, 65534, 65534)
    assert weak("hi").returncode == 0
    for name in ("cache/attempts", "cache/running"):
        (weak.home / name).mkdir(exist_ok=True)
        os.chown(weak.home / name, 65534, 65534)
    (weak.home / of).chmod(mode)
    done = weak("hi")
    if mode == 0 and of == "":    # nobody knows what the config in there says
        assert done.returncode == 2 and done.stderr.count(b"\n") == 1, done
    else:
        assert (done.returncode, done.stdout) == (0, b"42\n") and done.stderr.count(b"\n") <= 1, done
    for command in (["status"], ["usage"], ["jobs"], ["agents"], ["explain", "--task", "2"], ["cooldown", "list"], ["cooldown", "clear", "--all"]):
        done = weak(*command)
        assert done.returncode in (0, 2) and b"Traceback" not in done.stderr, (command, done)


def test_a_project_that_may_not_be_written_costs_a_team_one_warning(weak):
    (weak.home / "config.json").write_text('{"roles": {"a": {}, "b": {}}}')
    os.chown(weak.home, 65534, 65534)
    done = weak("--roles", "a,b", "-q", "--json", "hi")    # in /
    value = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, b""), done
    assert len(value["warnings"]) == 1 and "not kept as files" in value["warnings"][0]
    assert value["answer"].count("42") == 2


def test_the_home_of_somebody_else_costs_one_warning(weak):
    done = weak("hi")
    assert (done.returncode, done.stdout) == (0, b"42\n") and done.stderr.count(b"\n") == 1, done


@pytest.mark.parametrize("umask", [0o777, 0o277])
def test_a_umask_that_takes_ones_own_rights_locks_nobody_out(weak, umask):
    weak.home.rmdir()
    os.chown(weak.home.parent, 65534, 65534)
    for _ in range(2):
        done = weak("hi", umask=umask)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"42\n", b""), done
    modes = {path.relative_to(weak.home.parent): path.stat().st_mode & 0o777 for path in (weak.home, *weak.home.rglob("*"))}
    assert [path for path, mode in modes.items() if mode != (0o700 if (weak.home.parent / path).is_dir() else 0o600)] == []
    assert len(json.loads(weak("jobs", "--json").stdout)) == 2


# --- disks ---------------------------------------------------------------

@pytest.fixture
def disk(orch):
    """A function that mounts a small tmpfs as orch's home, and another that mounts it anew."""
    def mount(options):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(orch.home)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"mount: {done.stderr.strip()}")
    orch.home.mkdir(mode=0o700)
    yield mount
    subprocess.run(["umount", str(orch.home)], capture_output=True, check=False)


@needs_root
@needs_proc
def test_a_disk_that_turns_read_only_beside_a_dead_run_costs_one_warning(orch, fake, disk):
    disk("size=1m")
    fake("claude", step(run="time.sleep(60)"), claude_ok("42"), claude_ok("43"))
    process = orch.start("dies")
    wait_until(lambda: fake.calls, what="the agent's start")
    process.kill()
    process.communicate()
    disk("remount,ro")
    result = orch("what?")
    assert (result.code, result.out) == (0, "42\n"), result
    assert len(result.notices) == 2, result    # the dead run, and that it cannot be recorded
    disk("remount,rw")
    assert "killed before it ended" in orch("what?").err
    assert [job["status"] for job in orch.state()["jobs"]] == ["aborted", "ok"]


@needs_root
@pytest.mark.parametrize("room", [0, 100, 4096, 8192])
def test_a_disk_that_fills_up_never_leaves_half_a_file(orch, fake, disk, room):
    disk("size=64k")
    fake("claude", claude_ok("1"), claude_ok("42"), claude_limit(time.time() + 3600))
    fake("codex", codex_ok("43"))
    orch("first")
    state, ledger = (orch.home / "state.json").read_bytes(), (orch.home / "usage.jsonl").read_bytes()
    with open(orch.home / "filler", "wb", buffering=0) as file:
        with pytest.raises(OSError, match="No space"):
            while True:
                file.write(b"x" * 512)
        file.truncate(max(file.tell() - room, 0))
    for answer in ("42\n", "43\n"):
        result = orch("what?")
        assert (result.code, result.out) == (0, answer), result
        assert len([line for line in result.notices if "not fully recorded" in line]) <= 1, result
    assert orch.state()["jobs"][0] == json.loads(state)["jobs"][0]
    assert (orch.home / "usage.jsonl").read_bytes().startswith(ledger)
    assert all(orch.ledger())
    assert orch("usage").err == ""
    assert [name for name in os.listdir(orch.home) if name.endswith((".new", "corrupt"))] == []


# --- a large ledger ------------------------------------------------------

def large_ledger(path, size):
    """Write a ledger of `size` bytes, all of it three days old."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3 * 86400))
    record = {"at": at, "task_id": "t", "agent": "claude", "model": None, "outcome": "ok", "error_class": None, "usage": None,
              "cost_usd": None, "duration_ms": 1, "prompt_chars": 2, "project": "/x" * 20, "role": None, "kind": "run"}
    block = (json.dumps(record) + "\n").encode() * 4000
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        while file.tell() < size:
            file.write(block)


@needs_proc
def test_a_large_ledger_costs_a_run_and_status_nothing(orch, fake):
    large_ledger(orch.home / "usage.jsonl", 100_000_000)
    fake("claude", claude_ok("42"))
    for argv, said in ((["what?"], b"42\n"), (["status"], b"today: 1 attempt")):
        with orch.start(*argv) as process:
            cost = torture.watch_cost(process)
            assert said in process.communicate(timeout=60)[0]
        assert cost.read_bytes < 20_000_000, argv    # orch itself has a few
    with open(orch.home / "usage.jsonl", "rb") as file:
        file.seek(-400, os.SEEK_END)
        assert orch.state()["jobs"][0]["id"].encode() in file.read()


@needs_proc
@pytest.mark.parametrize("command", [["usage"], ["status"], ["what?"]])
def test_a_line_without_an_end_is_never_read_whole(orch, fake, command):
    orch.home.mkdir(mode=0o700)
    with open(orch.home / "usage.jsonl", "wb") as file:
        file.write(b'{"at": "2020-01-01T00:00:00Z", "task_id": "old"}\n')
        file.truncate(200_000_000)    # NULs that take no room
    fake("claude", claude_ok("42"))
    fake.forgive_unused = True
    with orch.start(*command) as process:
        cost = torture.watch_cost(process)
        process.communicate(timeout=120)
    assert process.returncode == 0
    assert cost.peak_bytes < 64 << 20, f"{cost.peak_bytes >> 20} MiB"


# --- clocks --------------------------------------------------------------

YEAR_S = 365 * 86400


@pytest.mark.parametrize("ahead_s", [-60 * YEAR_S, -YEAR_S, -3600, 3600, 40 * YEAR_S, 1000 * YEAR_S, 9000 * YEAR_S])
def test_a_clock_that_jumps_loses_nothing_and_locks_nobody_out(orch, fake, ahead_s):
    def run_at(shift, prompt):
        stop = core.Stop()
        world = core.replaced(core.make_world(orch.env, str(orch.work), stop), now=lambda: time.time() + shift)
        try:
            return core.run_request(world, core.Request(prompt), None)
        finally:
            stop.close()
    fake("claude", claude_limit(time.time() + 3600), claude_ok("42"), claude_ok("43"))
    fake("codex", codex_ok("1"), codex_ok("42"), codex_ok("43"))
    fake.forgive_unused = True
    assert run_at(0, "first").answer == "1"
    second = run_at(ahead_s, "second")
    assert second.answer == "42"
    if abs(ahead_s) >= YEAR_S:    # no limit of an agent is that long: the end that was stated is not believed, or past
        assert second.agent == "claude"
    assert run_at(0, "third").answer == "43"
    assert [job["status"] for job in orch.state()["jobs"]] == ["ok"] * 3
    kept_days = 90    # what is older by a clock that has jumped ahead is trimmed
    assert len(orch.ledger()) >= 2 if ahead_s > kept_days * 86400 else len(orch.ledger()) == 4
    assert stat.S_IMODE((orch.home / "state.json").stat().st_mode) == 0o600
    for command in (["status"], ["usage"], ["usage", "--since", "1d"], ["jobs"], ["cooldown", "list"]):
        result = orch(*command)
        assert (result.code, result.err) == (0, ""), (command, result)
