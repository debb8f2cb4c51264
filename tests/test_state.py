"""What orch keeps, and that nothing wrong with it ever costs the user the answer."""
from __future__ import annotations

import json
import os
import random as seeded
import re
import stat
import subprocess
import threading
import time

import pytest
from conftest import claude_limit, claude_ok, codex_ok, needs_root, not_root, one_line_error

import orch as core

LEDGER_KEYS = {"at", "task_id", "agent", "model", "outcome", "error_class", "usage", "cost_usd", "duration_ms", "prompt_chars",
               "project", "role", "kind"}


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def answered_with_one_warning(orch, fake, **how):
    """Run with --json; assert the answer and exactly one warning; return it."""
    fake("claude", claude_ok("42"), claude_ok("42"))
    plain = orch("what?", **how)
    assert (plain.code, plain.out) == (0, "42\n"), plain
    assert len(plain.notices) == 1, plain
    value = orch("--json", "what?", **how).json
    assert (value["status"], value["answer"]) == ("ok", "42")
    return plain.notices[0]


# --- what is written -----------------------------------------------------

def test_files_are_private(orch, fake):
    fake("claude", claude_limit(time.time() + 3600))
    fake("codex", codex_ok())
    old = os.umask(0)
    try:
        orch("--json", "go")
    finally:
        os.umask(old)
    assert mode(orch.home) == 0o700
    for path in orch.home.rglob("*"):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path


def test_the_home_is_dot_orch_in_the_users_own(orch, fake):
    fake("claude", claude_ok())
    orch("go", env={"ORCH_HOME": None})
    assert (orch.user_home / ".orch" / "state.json").exists()


def test_a_plain_run_writes_nothing_in_the_project(orch, fake, repo):
    before = sorted(repo.rglob("*"))
    fake("claude", claude_ok())
    orch("go")
    assert sorted(repo.rglob("*")) == before


def test_one_ledger_line_per_attempt_and_no_prompt_text(orch, fake):
    fake("claude", claude_limit(time.time() + 3600))
    fake("codex", codex_ok())
    value = orch("--json", "a secret plan").json
    records = orch.ledger()
    assert [set(record) for record in records] == [LEDGER_KEYS, LEDGER_KEYS]
    assert [(record["agent"], record["outcome"], record["kind"]) for record in records] == [
        ("claude", "limited", "run"), ("codex", "ok", "run")]
    assert {record["task_id"] for record in records} == {value["task_id"]}
    assert records[0]["prompt_chars"] == len("a secret plan")
    assert "secret plan" not in (orch.home / "usage.jsonl").read_text()


def test_usage_adds_up_what_the_agents_reported(orch, fake):
    fake("claude", claude_ok(input_tokens=10, cache_creation=0, cache_read=5, output_tokens=3, cost_usd=0.5), claude_ok(cost_usd=0.25))
    orch("go")
    orch("go")
    assert "0.75" in json.dumps(orch("usage", "--json").json)
    for by in ("agent", "model", "role", "project", "outcome", "day", "task"):
        assert orch("usage", "--by", by).code == 0
    assert "claude" in orch("usage", "--by", "agent").out


def test_jobs_keep_the_beginning_of_the_prompt_unless_told_not_to(orch, fake):
    fake("claude", claude_ok(), claude_ok())
    task_id = orch("--json", "abc " * 100).json["task_id"]
    jobs = orch("jobs", "--json").json
    assert len(jobs) == 1 and task_id in json.dumps(jobs)
    assert ("abc " * 50)[:150] in json.dumps(jobs) and "abc " * 51 not in json.dumps(jobs)
    assert task_id in orch("jobs", task_id).out
    orch.configure({"jobs": {"prompt": False}})
    orch("hush hush")
    assert "hush" not in json.dumps(orch("jobs", "--json").json)


def test_a_rejected_run_is_no_job(orch, fake):
    fake("claude", claude_ok())
    orch("go")
    orch("--agent", "nobody", "go")
    assert len(orch("jobs", "--json").json) == 1


def test_the_last_fifty_jobs_are_kept(orch, fake):
    fake("claude", claude_ok(), claude_ok())
    orch("go")
    state = orch.state()
    key = "task_id" if "task_id" in state["jobs"][0] else "id"
    state["jobs"] = [{**state["jobs"][0], key: f"old-{number:03}"} for number in range(60)]
    (orch.home / "state.json").write_text(json.dumps(state))
    newest = orch("--json", "go").json["task_id"]
    kept = [job[key] for job in orch.state()["jobs"]]
    assert len(kept) == 50
    assert newest in kept and "old-000" not in kept and "old-059" in kept


def test_reading_commands_write_nothing(orch, fake):
    fake("claude")
    for command in (["status"], ["jobs"], ["usage"], ["cooldown", "list"], ["config"], ["config", "check"], ["config", "schema"],
                    ["-n", "go"], ["explain", "--agent", "claude", "--exit", "1"]):
        result = orch(*command)
        assert result.code == 0, (command, result)
        assert not orch.home.exists(), command
    assert fake.calls == [] and fake.login_checks == []


# --- what is damaged -----------------------------------------------------

@pytest.mark.parametrize("text", ["{", "", "[]", "null", "\0\0\0\0", '{"version": 1, "cooldowns": []}', "caf\udce9"],
                         ids=["cut", "empty", "a list", "null", "NULs", "wrong shape", "not UTF-8"])
def test_a_corrupt_state_is_set_aside_with_one_warning(orch, fake, text):
    orch.home.mkdir(mode=0o700)
    (orch.home / "state.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    fake("claude", claude_ok("42"), claude_ok("42"))
    first, second = orch("what?"), orch("what?")
    assert (first.out, second.out) == ("42\n", "42\n"), first
    assert len(first.notices) == 1 and second.err == "", first
    aside = list(orch.home.glob("state.json.corrupt-*"))
    assert [path.read_bytes() for path in aside] == [text.encode("utf-8", "surrogateescape")]
    assert len(orch.state()["jobs"]) == 2


def test_a_newer_state_is_neither_used_nor_written(orch, fake):
    orch.home.mkdir(mode=0o700)
    text = json.dumps({"version": 999, "cooldowns": {"claude": {"until": 9e9}}, "jobs": "another shape"})
    (orch.home / "state.json").write_text(text)
    answered_with_one_warning(orch, fake)
    assert (orch.home / "state.json").read_text() == text
    assert orch("status").code == 0
    assert "state.json" in one_line_error(orch("cooldown", "set", "claude", "1h"))


def test_a_torn_ledger_line_is_completed_and_counted(orch, fake):
    fake("claude", claude_ok(), claude_ok())
    orch("go")
    path = orch.home / "usage.jsonl"
    whole = path.read_text()
    path.write_text(whole + whole[:40])
    orch("go")
    lines = path.read_text().split("\n")
    assert lines[1] == whole[:40] and lines[-1] == ""
    assert json.loads(lines[0])["agent"] == json.loads(lines[2])["agent"] == "claude"
    result = orch("usage")
    assert result.code == 0
    assert re.search(r"\b1\b[^\n]* lines?\b", result.out + result.err), result


def test_old_ledger_lines_are_trimmed_by_a_run(orch, fake):
    fake("claude", claude_ok(), claude_ok())
    orch("go")
    path = orch.home / "usage.jsonl"
    old = {**orch.ledger()[0], "at": "2020-01-01T00:00:00Z", "task_id": "ancient"}
    path.write_text(json.dumps(old) + "\n" + path.read_text())
    for stamp in [*(orch.home / "cache").rglob("*"), orch.home / "usage.lock", path]:
        if stamp.is_file():
            os.utime(stamp, (time.time() - 2 * 86400,) * 2)
    orch("go")
    assert "ancient" not in path.read_text()
    assert len(orch.ledger()) == 2


# --- what cannot be written ----------------------------------------------

def test_a_home_that_is_a_file(orch, fake):
    orch.home.write_text("not a directory")
    assert str(orch.home) in answered_with_one_warning(orch, fake)
    assert orch.home.read_text() == "not a directory"


def test_a_home_below_a_file(orch, fake):
    answered_with_one_warning(orch, fake, env={"ORCH_HOME": "/dev/null/orch"})


def test_a_home_whose_parent_is_missing_is_made(orch, fake):
    fake("claude", claude_ok("42"))
    home = orch.base / "new" / "deep" / "home"
    result = orch("what?", env={"ORCH_HOME": str(home)})
    assert (result.out, result.err) == ("42\n", "")
    assert (home / "state.json").exists()


@not_root
def test_a_home_that_may_not_be_written(orch, fake):
    orch.home.mkdir(mode=0o500)
    answered_with_one_warning(orch, fake)


@pytest.fixture
def mounted(orch):
    """A function that mounts a small tmpfs as orch's home."""
    def mount(options):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(orch.home)], capture_output=True, text=True,
                              check=False)
        if done.returncode:
            pytest.skip(f"mount: {done.stderr.strip()}")
    orch.home.mkdir(mode=0o700)
    yield mount
    subprocess.run(["umount", str(orch.home)], capture_output=True, check=False)


@needs_root
def test_a_home_on_a_read_only_disk(orch, fake, mounted):
    mounted("ro,size=64k")
    answered_with_one_warning(orch, fake)


@needs_root
def test_a_home_on_a_full_disk(orch, fake, mounted):
    mounted("size=64k")
    with open(orch.home / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 512)
        except OSError:
            pass
    answered_with_one_warning(orch, fake)
    assert not (orch.home / "state.json").exists() or orch.state() is not None


def test_a_lock_held_by_a_stopped_process_delays_but_does_not_block_reading(orch, fake):
    import fcntl
    fake("claude", claude_ok())
    orch("go")
    with open(orch.home / "state.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert orch("status", timeout=10).code == 0
        assert orch("jobs", timeout=10).code == 0


# --- many at once --------------------------------------------------------

def test_twenty_runs_at_once_lose_nothing(orch, fake):
    fake("claude", *[claude_ok("42")] * 20)
    runs = [orch.start("--json", f"number {number}") for number in range(20)]
    ids = set()
    for run in runs:
        out, err = run.communicate(timeout=60)
        assert (run.returncode, err) == (0, b"")
        ids.add(json.loads(out)["task_id"])
    assert len(ids) == 20
    assert {record["task_id"] for record in orch.ledger()} == ids
    assert all(task_id in json.dumps(orch.state()["jobs"]) for task_id in ids)
    assert len(orch.state()["jobs"]) == 20
    assert [path.name for path in orch.home.iterdir() if "tmp" in path.name] == []


def test_a_run_in_progress_is_shown_and_one_that_was_killed_is_settled(orch, fake):
    from conftest import wait_until
    fake("claude", claude_ok(run="time.sleep(30)"), claude_ok("42"))
    process = orch.start("slow one")
    wait_until(lambda: fake.calls, what="the agent's start")
    agent = fake.calls[0].pid
    running = list((orch.home / "cache" / "running").iterdir())
    assert len(running) == 1
    shown = orch("status").out
    assert "running: " in shown and " on claude, for " in shown and "not known" not in shown
    assert orch("status", "--json").json["running"][0]["alive"] is True
    process.kill()
    process.communicate()
    assert os.path.exists(f"/proc/{agent}") or not os.path.isdir("/proc")
    result = orch("next one")
    assert result.out == "42\n"
    assert len(result.notices) == 1, result
    wait_until(lambda: not orch.leftovers(), what="the end of the dead run's agent")
    assert list((orch.home / "cache" / "running").iterdir()) == []
    assert "aborted" in json.dumps(orch("jobs", "--json").json)
    assert orch("status").err == ""


# --- what an agent does to orch's own files ------------------------------

def test_an_agent_that_empties_the_temporary_folder_costs_no_answer(orch, fake, repo):
    fake("claude", claude_ok("42", run=f"import shutil; [shutil.rmtree(e) for e in os.scandir({str(orch.base)!r})"
                                       " if e.name.startswith('orch-')]"))
    fake("codex")                                     # a second one, so that a snapshot is taken
    result = orch("what?")
    assert (result.code, result.out, result.err) == (0, "42\n", ""), result


def test_an_agent_that_replaces_the_home_by_a_file_costs_no_answer(orch, fake):
    home = str(orch.home)
    fake("claude", claude_ok("42", run=f"os.rename({home!r}, {home + '.away'!r}); open({home!r}, 'w').close()"))
    result = orch("what?")
    assert (result.code, result.out) == (0, "42\n"), result
    assert len(result.notices) == 1, result


def test_a_note_that_names_folders_of_others_removes_none(orch, fake):
    """What a note says of a dead run's temporary folders is no licence to remove what it likes."""
    name = "orch-0123456789abcdef"
    mine = [orch.base / "precious", orch.base / f"x{name}", orch.base / name / "inside", orch.base / "elsewhere" / "inside"]
    for folder in mine:
        folder.mkdir(parents=True)
    (orch.base / "links").mkdir()
    link, file = orch.base / "links" / name, orch.base / "elsewhere" / name
    link.symlink_to(orch.base / "elsewhere")
    file.write_text("x")
    named = [*map(str, mine), str(link), str(file), os.path.relpath(orch.base / name, orch.work), f"/\0/{name}", f"/\ud800/{name}", name, None, 7]
    note = {"host": os.uname().nodename, "boot": "another", "pid": 1, "start": "0", "marker": "20260101T000000-aaaa.1"}
    for number, folders in enumerate([named, "orch-0123456789abcdef", 7]):
        orch.configure({**note, "folders": folders}, orch.home / "cache" / "running" / f"20260101T000000-aaaa.{number}.json")
    fake("claude", claude_ok("42"))
    result = orch("what?")
    assert (result.code, result.out) == (0, "42\n"), result
    assert all(folder.is_dir() for folder in mine) and link.is_symlink() and file.exists()


@pytest.mark.parametrize("kind", ["nested", "loop"])
def test_unreadable_notes_of_running_attempts_cost_no_answer(orch, fake, kind):
    cache = orch.home / "cache"
    cache.mkdir(parents=True)
    if kind == "nested":
        (cache / "running").mkdir()
        (cache / "running" / "x.json").write_text("[" * 100_000)
    else:
        (cache / "running").symlink_to("running")
    fake("claude", claude_ok("42"))
    result = orch("what?")
    assert (result.code, result.out) == (0, "42\n"), result
    assert len(result.notices) == (kind == "loop"), result


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_a_ledger_that_is_no_file_neither_hangs_nor_crashes(orch, fake, kind):
    orch.home.mkdir()
    os.mkfifo(orch.home / "usage.jsonl") if kind == "fifo" else (orch.home / "usage.jsonl").mkdir()
    assert "usage.jsonl" in answered_with_one_warning(orch, fake)
    for command in ("usage", "status"):
        line = one_line_error(orch(command))
        assert "usage.jsonl: cannot be read" in line and line.count("usage.jsonl") == 1, line


@pytest.mark.parametrize("text", ["{", "{}", "[1]", "[" * 100_000, '{"stdout": 1}', None])
def test_a_kept_attempt_that_is_damaged_is_refused_in_one_line(orch, text):
    folder = orch.home / "cache" / "attempts"
    folder.mkdir(parents=True)
    path = folder / "20260101T000000-aaaa.1.json"
    os.mkfifo(path) if text is None else path.write_text(text)
    assert f"{path}: cannot be read" in one_line_error(orch("explain", "--task", "20260101T000000-aaaa"))


def test_the_last_of_ten_kept_attempts_is_the_tenth(orch, fake):
    fake("claude")
    kept = {"at": "2026-01-01T00:00:00Z", "agent": "claude", "prompt": "", "stdout": "", "exit_code": 1}
    for number in (1, 2, 9, 10):
        orch.configure({**kept, "stderr": f"error {number}"}, orch.home / "cache" / "attempts" / f"20260101T000000-00000000.{number}.json")
    assert orch("explain", "--json", "--task", "20260101T000000-00000000").json["evidence"] == "error 10"


def test_names_of_runs_sort_by_time_within_a_second_too():
    random = seeded.Random(3)
    times = [1_700_000_000 + step + ms / 1000 for step in range(3) for ms in sorted(random.sample(range(1000), 200))]
    names = [core.new_task_id(now) for now in times]
    assert [name[:-4] for name in names] == sorted(name[:-4] for name in names)
    assert len(set(names)) == len(names) and all(re.fullmatch(r"\d{8}T\d{6}-[0-9a-f]{8}", name) for name in names)
    assert len({core.new_task_id(times[0]) for _ in range(50)}) > 40, "the same moment, other names"


@needs_root
def test_a_killed_run_noted_on_a_disk_that_became_read_only_costs_no_answer(orch, fake, mounted):
    mounted("size=256k")
    folder = orch.home / "cache" / "running"
    folder.mkdir(parents=True)
    note = {"host": os.uname().nodename, "boot": "another", "pid": 1, "start": "0", "marker": "20260101T000000-aaaa.1"}
    (folder / "20260101T000000-aaaa.1.json").write_text(json.dumps(note))
    mounted("remount,ro")
    fake("claude", claude_ok("42"))
    result = orch("what?")
    assert (result.code, result.out, len(result.notices)) == (0, "42\n", 2), result


def test_odd_values_in_the_state_crash_no_command(orch, fake):
    odd = {"until": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 999)), "reason": {"a": 1}, "source": 3, "set_at": []}
    orch.home.mkdir()
    (orch.home / "state.json").write_text(json.dumps({"version": 1, "cooldowns": {"claude": odd}, "jobs": [{"id": 5, "prompt": {}}]}))
    fake("claude")
    for command in (["status"], ["jobs"], ["jobs", "5"], ["cooldown", "list"], ["agents"], ["status", "--json"]):
        assert orch(*command).code == 0, command


def test_folders_that_several_make_at_once_are_made(tmp_path):
    """As two first runs in one project do."""
    troubles = []

    def make(start, path):
        start.wait()
        try:
            core.make_folder(path)
        except OSError as err:
            troubles.append(err)
    for turn in range(100):
        start = threading.Barrier(4)
        threads = [threading.Thread(target=make, args=(start, f"{tmp_path}/{turn}/a/b/{number}")) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert troubles == []
