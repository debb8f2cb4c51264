"""Starting, watching and stopping: nothing hangs, nothing survives, no sibling is touched."""
from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import termios
import time

import pytest
from conftest import claude_ok, codex_ok, lines, needs_proc, step, wait_until
from tools import torture

import orch as core

# Starts a helper (a sleeper named by `marker`) in its own session, as agents start their tools' shells.
DETACHED = """
import subprocess
helper = subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(60)"], start_new_session=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
SLEEP = "time.sleep(60)\n"
IGNORE_TERM = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def test_an_agent_runs_in_a_process_group_of_its_own(orch, fake):
    fake("claude", claude_ok())
    orch("hi")
    assert fake.call.pgid == fake.call.pid
    assert fake.call.pgid != os.getpgid(0)


def test_a_timeout_stops_the_agent(orch, fake):
    fake("claude", step(run=SLEEP))
    begun = time.monotonic()
    result = orch("--json", "--no-failover", "--timeout", "0.5", "hi")
    assert time.monotonic() - begun < 5
    attempt = result.json["attempts"][0]
    assert (result.code, attempt["outcome"], attempt["error_class"]) == (124, "failed", "timeout"), result
    assert orch.leftovers() == {}


def test_an_agent_that_ignores_term_is_killed_after_two_seconds(orch, fake):
    fake("claude", step(run=IGNORE_TERM + SLEEP))
    begun = time.monotonic()
    assert orch("--no-failover", "-t", "0.5", "hi").code == 124
    assert 2 < time.monotonic() - begun < 7
    assert orch.leftovers() == {}


def test_exit_zero_after_a_timeout_is_still_a_timeout(orch, fake):
    fake("claude", step(run="signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n" + SLEEP))
    assert orch("--no-failover", "-t", "0.5", "hi").code == 124


def test_a_timeout_fails_over(orch, fake):
    fake("claude", step(run=SLEEP))
    fake("codex", codex_ok("finished"))
    assert orch("-t", "0.5", "hi").out == "finished\n"


def test_silence_is_limited_and_every_sign_of_life_counts(orch, fake):
    busy = "for _ in range(6):\n    time.sleep(0.2)\n    put(2, b'.')\n"
    fake("claude", claude_ok("42", run=busy), step(stdout="{", run=SLEEP))
    assert orch("--idle-timeout", "0.8", "hi").out == "42\n"
    result = orch("--json", "--no-failover", "--idle-timeout", "0.5", "hi")
    assert (result.code, result.json["error_class"]) == (124, "silent"), result


def test_a_grandchild_that_holds_the_pipes_does_not_hang_the_run(orch, fake):
    holder = "import subprocess; subprocess.Popen(['sleep', '30'])"
    fake("claude", claude_ok("42", run=holder))
    begun = time.monotonic()
    result = orch("hi")
    assert time.monotonic() - begun < 5
    assert result.out == "42\n"
    assert len(result.notices) == 1, result    # what was left running is named
    assert any("sleep" in words for words in orch.leftovers().values())


def test_what_an_agent_deliberately_left_running_is_left_alone_and_named(orch, fake):
    fake("claude", claude_ok("42", run=DETACHED))
    result = orch("hi")
    assert result.out == "42\n"
    assert len(result.notices) == 1, result
    assert len(orch.leftovers()) == 1


def test_what_is_just_starting_is_looked_at_again(monkeypatch):
    """Between fork and exec a process has no environment to be known by."""
    looks = iter([b"\0\0", b"\0\0", b"\0ORCH_ATTEMPT_ID=t.1\0"])
    monkeypatch.setattr(core, "process_table", lambda newer_than: {9: core.Process(9, 1, 9, 9, "0"), 10: core.Process(10, 2, 0, 0, "0")})
    monkeypatch.setattr(core, "_environ", lambda pid: b"\0\0" if pid == 10 else next(looks, b"\0ORCH_ATTEMPT_ID=t.1\0"))
    assert core.orphans("t.1", 5) == [9]


@needs_proc
def test_a_timeout_reaches_what_left_the_process_group(orch, fake):
    fake("claude", step(run=DETACHED + SLEEP))
    orch("--no-failover", "-t", "1", "hi")
    assert orch.leftovers() == {}


@needs_proc
def test_a_timeout_reaches_an_orphan_in_a_session_of_its_own(orch, fake):
    orphan = ("import subprocess\nsubprocess.run([sys.executable, '-IS', '-c', 'import subprocess, sys;"
              " subprocess.Popen([\"sleep\", \"60\"], start_new_session=True, stdout=2)'])\n")
    fake("claude", step(run=orphan + SLEEP))
    orch("--no-failover", "-t", "1", "hi")
    assert orch.leftovers() == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], ids=lambda number: number.name)
def test_a_signal_stops_everything_and_ends_orch_by_the_same_signal(orch, fake, number):
    fake("claude", step(run=DETACHED + SLEEP))
    fake("codex")
    process = orch.start("hi")
    wait_until(lambda: fake.calls and len(orch.leftovers()) >= 3, what="the agent and its helper")
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == -number
    assert out == b""
    assert orch.leftovers() == {}
    assert fake.names == ["claude"]
    assert "aborted" in str(orch.state()["jobs"])


def test_an_aborted_run_has_a_result(orch, fake):
    fake("claude", step(run=SLEEP))
    process = orch.start("--json", "hi")
    wait_until(lambda: fake.calls, what="the agent's start")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=10)
    import json
    assert (json.loads(out)["status"], json.loads(out)["exit_code"]) == ("aborted", 143)


def test_a_second_interrupt_kills_at_once(orch, fake):
    fake("claude", step(run=IGNORE_TERM + SLEEP))
    process = orch.start("hi")
    wait_until(lambda: fake.calls, what="the agent's start")
    time.sleep(0.2)    # for the fake to ignore TERM
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert time.monotonic() - begun < 1.8
    assert process.returncode == -signal.SIGINT
    assert orch.leftovers() == {}


def test_a_signal_that_was_ignored_at_the_start_stays_ignored(orch, fake):
    fake("claude", claude_ok("42", run="time.sleep(1)"))
    process = orch.start("hi", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_until(lambda: fake.calls, what="the agent's start")
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=20)[0] == b"42\n"
    assert process.returncode == 0


def test_stopping_one_run_leaves_its_sibling_alone(orch, fake):
    fake("claude", step(run=SLEEP))
    fake("codex", codex_ok("42", run="time.sleep(1.5)"))
    sibling = orch.start("-a", "codex", "hi")
    stopped = orch.start("-a", "claude", "hi")
    wait_until(lambda: len(fake.calls) == 2, what="both starts")
    stopped.send_signal(signal.SIGTERM)
    stopped.communicate(timeout=10)
    assert sibling.communicate(timeout=10)[0] == b"42\n"


def test_stop_and_continue_reach_the_agent(orch, fake):
    fake("claude", claude_ok("42", run="time.sleep(0.8)"))
    process = orch.start("hi")
    wait_until(lambda: fake.calls, what="the agent's start")
    pid = fake.calls[0].pid
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: state_of(pid) == "T", what="the agent's stop")
    wait_until(lambda: state_of(process.pid) == "T", what="orch's stop")
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=20)[0] == b"42\n"


def state_of(pid):
    """The letter of a process's state, or None without /proc."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return None


def test_an_agent_that_dies_by_a_signal_is_told_so(orch, fake):
    fake("claude", step(kill=signal.SIGSEGV))
    attempt = orch("--json", "--no-failover", "hi").json["attempts"][0]
    assert (attempt["outcome"], attempt["error_class"]) == ("failed", "signal")
    assert str(attempt["signal"]) in ("11", "SEGV", "SIGSEGV")
    assert attempt["exit_code"] is None


@needs_proc
@pytest.mark.parametrize("agent", ["claude", "mine"])
def test_two_hundred_megabytes_of_output_neither_block_nor_bloat(orch, fake, agent, tmp_path):
    orch.configure({"agents": {"mine": {"command": ["mine"], "output": "text"}}})
    event = lines({"type": "assistant", "message": {"content": [{"type": "text", "text": "x" * 9000}]}}).encode()
    fake(agent, step(run=f"block = {event!r} * 100\nfor _ in range(200_000_000 // len(block)):\n    put(1, block)\n"
                         f"put(1, {claude_ok('END')['stdout'].encode()!r})\n"))
    with open(tmp_path / "out", "wb") as out:
        process = orch.start("--no-failover", "-a", agent, "hi", stdout=out)
        process.stderr.close()
        used = torture.watch_cost(process).peak_bytes
    assert process.returncode == 0
    assert used < 64 << 20, f"{used} bytes"
    if agent == "claude":
        assert (tmp_path / "out").read_text() == "END\n"
    else:
        assert 0 < (tmp_path / "out").stat().st_size < 6_000_000


def test_a_line_too_long_to_be_true_is_skipped(orch, fake):
    fake("claude", claude_ok("42", run="") | {"run": "", "stdout": "x" * 9_000_000 + "\n" + claude_ok("42")["stdout"]})
    assert orch("hi").out == "42\n"


def test_an_event_too_long_to_be_read_is_told(orch, fake):
    event = json.dumps({"type": "assistant", "message": {"content": [{"type": "text", "text": "x" * 9_000_000}]}})
    fake("claude", claude_ok("42") | {"stdout": event + "\n" + claude_ok("42")["stdout"]})
    value = orch("--json", "hi").json
    assert value["answer"] == "42" and any("1 output line" in text and "8 MiB" in text for text in value["warnings"]), value["warnings"]


TOOLS = {"claude": {"type": "user", "message": {"content": [{"type": "tool_result", "content": "x" * 9_000_000}]}},
         "codex": {"type": "item.completed", "item": {"id": "1", "type": "command_execution", "aggregated_output": "x" * 9_000_000}}}


@pytest.mark.parametrize("agent", TOOLS)
def test_what_a_tool_printed_is_too_long_to_be_read_but_no_lost_answer(orch, fake, agent):
    good = claude_ok("42") if agent == "claude" else codex_ok("42")
    begun, _, end = good["stdout"].rstrip("\n").rpartition("\n")
    fake(agent, good | {"stdout": f"{begun}\n{json.dumps(TOOLS[agent])}\n{end}\n"})
    orch.configure({"order": [agent]})
    value = orch("--json", "hi").json
    assert (value["status"], value["answer"]) == ("ok", "42") and "8 MiB" in value["warnings"][0], value["warnings"]


@pytest.mark.parametrize("way", ["--timeout", "--deadline"])
def test_a_limit_of_a_month_is_kept_as_any_other(orch, fake, way):
    fake("claude", claude_ok("42"), claude_ok("43"))
    assert orch("--events", way, "30d", "hi").events[-1]["answer"] == "42"
    process = orch.start(way, "30d", "-", stdin=subprocess.PIPE)
    time.sleep(0.5)                                    # so that it has to wait
    assert process.communicate(b"hi", timeout=20)[0] == b"43\n"


def test_an_agent_stuck_at_its_limit_tells_the_reset_that_stands_beside_its_message(orch, fake):
    orch.configure({"limit_grace": 1, "order": ["mine"], "agents": {"mine": {"command": ["mine"], "retry_lines": '\\{"level":"warn"'}}})
    line = '{"level":"warn","message":"rate limit exceeded, will be retried","retry-after":"7200"}\n'
    fake("mine", step(stderr=line, run=SLEEP))
    ends_at = core.parse_time(orch("--json", "hi").json["retry_at"])
    assert 7000 < ends_at - time.time() < 7400


def test_an_agent_that_cannot_be_watched_is_not_left_running(orch, monkeypatch):
    import selectors
    kept = []

    def refuse():
        with pytest.raises(OSError, match="Too many"):  # as for real: there is none left to look around with either
            while True:
                kept.append(os.open("/dev/null", os.O_RDONLY))
        raise OSError(24, "Too many open files")
    orch.configure({"agents": {"mine": {"command": ["sh", "-c", "sleep 60"]}}, "order": ["mine"]})
    for name, value in orch.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(selectors, "DefaultSelector", refuse)
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        with pytest.raises(OSError, match="Too many"):
            core.run("hi", cwd=str(orch.work))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        for fd in kept:
            os.close(fd)
    wait_until(lambda: not orch.leftovers(), what="the agent's end")


def test_an_answer_in_a_line_too_long_to_be_read_is_a_failure(orch, fake):
    fake("codex", codex_ok("I start.") | {"stdout": codex_ok("x" * 9_000_000)["stdout"]})
    result = orch("-a", "codex", "--no-failover", "--json", "hi")
    assert (result.code, result.json["status"], result.json["answer"]) == (1, "failed", None), result
    assert "the answer is lost" in result.json["error"] and "8 MiB" in result.json["warnings"][0], result.json["warnings"]


def test_a_flood_on_standard_error_does_not_block(orch, fake):
    fake("claude", claude_ok("42", run="put(2, b'noise\\n' * 2_000_000)"))
    assert orch("hi").out == "42\n"


def test_a_closed_standard_output_stops_the_agent(orch, fake):
    fake("claude", step(run=SLEEP))
    fake("codex")
    process = orch.start("hi")
    wait_until(lambda: fake.calls, what="the agent's start")
    process.stdout.close()
    process.stderr.read()
    assert process.wait(timeout=20) in (141, -signal.SIGPIPE)
    assert orch.leftovers() == {}
    assert fake.names == ["claude"]


def test_events_on_a_closed_standard_output_stop_the_agent(orch, fake):
    talk = "while True:\n    put(1, b'{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}}\\n')\n    time.sleep(0.05)\n"
    away = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    fake("claude", step(run=away + talk))
    fake("codex")
    process = orch.start("--events", "hi")
    wait_until(lambda: fake.calls, what="the agent's start")
    process.stdout.close()
    process.stderr.read()
    assert process.wait(timeout=20) in (141, -signal.SIGPIPE)
    assert orch.leftovers() == {}
    assert [line["outcome"] for line in orch.ledger()] == [job["status"] for job in orch.state()["jobs"]] == ["aborted"]


FLOOD = "while True:\n    put(1, b'{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}}\\n')\n    time.sleep(0.0005)\n"


def wait_until_full(process):
    """Wait until the pipe of a run's standard output takes no more."""
    def unread():
        return int.from_bytes(fcntl.ioctl(process.stdout, termios.FIONREAD, b"\0" * 4), sys.byteorder)
    wait_until(lambda: unread() > 61_000, timeout=30, what="a full pipe")


def test_the_result_is_the_last_event_however_slow_the_reader_is(orch, fake):
    fake("claude", step(run=FLOOD))
    process = orch.start("--events", "hi")
    wait_until(lambda: fake.calls, what="the agent's start")
    wait_until_full(process)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: orch.state().get("jobs"), what="the end of the run")
    time.sleep(1)                                      # and it stays full
    events = [json.loads(line) for line in process.communicate(timeout=20)[0].splitlines()]
    assert (events[-1]["type"], events[-1]["status"]) == ("result", "aborted")


@pytest.mark.parametrize("limit", [("--timeout", "4"), ("--deadline", "4")])
def test_a_reader_that_never_reads_keeps_no_agent_going_beyond_its_time(orch, fake, limit):
    fake("claude", step(run=FLOOD))
    process = orch.start("--events", "--no-failover", *limit, "hi")
    wait_until_full(process)
    wait_until(lambda: orch.state().get("jobs"), timeout=20, what="the end of the run")
    assert [line["error_class"] for line in orch.ledger()] == ["timeout"]
    events = [json.loads(line) for line in process.communicate(timeout=20)[0].splitlines()]
    assert (events[-1]["type"], events[-1]["exit_code"], process.returncode) == ("result", 124, 124)
    assert [event["type"] for event in events].count("attempt_end") == 1


def test_the_time_a_reader_takes_is_no_silence_of_the_agent(orch, fake):
    talk = FLOOD.replace("while True", "for _ in range(2000)")
    fake("claude", step(run=talk + f"put(1, {claude_ok('42')['stdout'].encode('latin-1')!r})\n"))
    process = orch.start("--events", "--no-failover", "--idle-timeout", "3", "hi")
    wait_until_full(process)
    time.sleep(4.5)
    events = [json.loads(line) for line in process.communicate(timeout=20)[0].splitlines()]
    assert (events[-1]["type"], events[-1]["answer"], process.returncode) == ("result", "42", 0)


def test_the_pipe_to_head_ends_as_shells_expect(orch, fake):
    fake("claude", claude_ok("line\n" * 200_000))
    done = subprocess.run(["sh", "-c", f"'{orch.program}' hi | head -n 1"], env=orch.env, cwd=orch.work, timeout=30,
                          capture_output=True, check=False)
    assert done.stdout == b"line\n"
    assert b"Traceback" not in done.stderr


def test_an_agent_that_reads_no_input_does_not_break_a_long_prompt(orch, fake):
    fake("claude", claude_ok("42", read_stdin=False))
    assert orch("-", input="x" * 3_000_000).out == "42\n"


def test_an_agent_that_closes_its_output_early_is_waited_for(orch, fake):
    closing = "os.close(1); os.close(2); time.sleep(0.7); open('late.txt', 'w').write('x')"
    fake("claude", claude_ok("42", run=closing))
    assert orch("hi").out == "42\n"
    assert (orch.work / "late.txt").exists()


def test_an_agent_stuck_at_its_limit_is_stopped_and_called_limited(orch, fake):
    orch.configure({"limit_grace": 1, "order": ["opencode", "claude"]})
    stuck = ('timestamp=2026-11-30T22:04:17.422Z level=ERROR run=a5cc34fb message="stream error" providerID=mock modelID=mock-ok'
             ' session.id=ses_dd18 small=false agent=build mode=primary error.error="AI_APICallError: The usage limit has been reached"\n')
    fake("opencode", step(stderr=stuck, run=SLEEP))
    fake("claude", claude_ok("42"))
    result = orch("--json", "hi").json
    assert (result["answer"], result["attempts"][0]["outcome"]) == ("42", "limited")
    assert orch.leftovers() == {}


def test_a_quiet_agent_whose_work_is_about_limits_is_left_alone(orch, fake):
    orch.configure({"limit_grace": 1, "agents": {"mine": {"command": ["mine"], "output": "text"}}, "order": ["mine"]})
    told = "I will make the client retry when the rate limit is exceeded.\nRunning the test suite now.\n"
    fake("mine", step(stdout=told, run="time.sleep(2.5); put(1, b'All tests pass.\\n')"))
    result = orch("hi")
    assert (result.code, result.out) == (0, told + "All tests pass.\n"), result


def test_no_file_of_orch_leaks_into_the_agent(orch, fake):
    listing = "put(1, (' '.join(sorted(os.listdir('/proc/self/fd'))) + '\\n').encode())"
    orch.configure({"agents": {"mine": {"command": ["mine"], "output": "text"}}})
    fake("mine", step(run=listing))
    numbers = orch("-a", "mine", "hi").out.split()
    assert set(numbers) <= {"0", "1", "2", "3"}, numbers    # 3: the listing's own


@pytest.mark.parametrize("option", ["--json", "--events"])
def test_a_run_stopped_while_it_reads_its_prompt_has_a_result(orch, fake, option):
    fake("claude")
    process = orch.start(option, "-", stdin=subprocess.PIPE)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    out = process.stdout.read()
    assert (process.wait(timeout=20), json.loads(out)["status"], json.loads(out)["exit_code"]) == (-signal.SIGTERM, "aborted", 143)


def test_a_closed_socket_as_standard_output_stops_the_agent(orch, fake):
    fake("claude", step(run=SLEEP))
    ours, theirs = socket.socketpair()
    process = orch.start("hi", stdout=theirs.fileno())
    theirs.close()
    wait_until(lambda: fake.calls, what="the agent's start")
    ours.close()
    assert process.wait(timeout=20) == -signal.SIGPIPE
    assert orch.leftovers() == {}


def test_data_in_a_fifo_that_is_open_both_ways_is_no_closed_standard_output(orch, fake, tmp_path):
    fake("claude", claude_ok("42", delay=0.5))
    os.mkfifo(tmp_path / "fifo")
    both_ways = os.open(tmp_path / "fifo", os.O_RDWR)
    try:
        os.write(both_ways, b"something unread, ")
        assert orch.start("hi", stdout=both_ways).wait(timeout=20) == 0
        assert os.read(both_ways, 100) == b"something unread, 42\n"
    finally:
        os.close(both_ways)


@pytest.mark.parametrize("arguments", [["--wait", "1m", "hi"], ["-"], ["-p", "hi"], ["wait"]])
def test_a_closed_standard_output_ends_waiting_too(orch, fake, arguments):
    fake("claude")
    orch.configure({"order": ["claude"]})
    assert orch("cooldown", "set", "claude", "60s").code == 0
    began = time.monotonic()
    process = orch.start(*arguments, stdin=subprocess.PIPE)
    time.sleep(0.7)
    process.stdout.close()
    told = process.stderr.read().decode()
    assert (process.wait(timeout=20), fake.calls) == (-signal.SIGPIPE, []), told
    assert time.monotonic() - began < 20 and "silent" not in told


@pytest.mark.parametrize("how", ["option", "config"])
@pytest.mark.parametrize("arguments", [["-", "hi"], ["-p", "hi"]])
@pytest.mark.parametrize("said", [b"", b"a"])
def test_a_deadline_holds_for_reading_the_prompt(orch, fake, how, arguments, said):
    fake("claude")
    if how == "config":
        orch.configure({"deadline": 1})
    process = orch.start("--json", *(["--deadline", "1s"] if how == "option" else []), *arguments, stdin=subprocess.PIPE)
    process.stdin.write(said)
    process.stdin.flush()
    result = json.loads(process.stdout.read())
    assert (process.wait(timeout=20), result["exit_code"], result["status"], result["error_class"]) == (124, 124, "failed", "timeout")
    assert "standard input" in result["error"] and fake.calls == []


@pytest.mark.parametrize("how", ["option", "config"])
def test_what_reading_the_prompt_took_is_gone_from_the_deadline(orch, fake, how):
    fake("claude", step(run=SLEEP))
    if how == "config":
        orch.configure({"deadline": 4.5})
    process = orch.start(*(["--deadline", "4.5s"] if how == "option" else []), "-", stdin=subprocess.PIPE)
    time.sleep(3.5)
    began = time.monotonic()
    process.communicate(b"hi", timeout=20)
    assert process.returncode == 124 and time.monotonic() - began < 3.5


def test_a_flood_on_standard_input_ends_at_the_deadline(orch, fake):
    fake("claude")
    with subprocess.Popen(["sh", "-c", "while :; do echo x; sleep 0.01; done"], stdout=subprocess.PIPE) as flood:
        result = orch("--deadline", "1s", "-", stdin=flood.stdout)
        flood.kill()
    assert result.code == 124 and len(result.notices) == 1, result


@pytest.mark.parametrize("arguments", [["-"], ["-p", "hi"]])
def test_a_standard_input_that_cannot_be_read_is_told(orch, fake, arguments):
    fake("claude")
    with open(orch.work / "out", "w") as out:
        result = orch("--json", *arguments, stdin=out)
    assert (result.code, result.json["status"]) == (2, "rejected"), result
    assert result.json["error"].startswith("standard input: cannot be read: ") and len(result.notices) == 1


def test_an_agent_that_is_there_but_cannot_be_started_has_failed(orch, fake):
    fake("claude")
    fake("codex", codex_ok("42"))
    orch.configure({"agents": {"claude": {"env": {"LONG": "x" * 140_000}}}})      # more than Linux takes
    result = orch("--json", "hi").json
    assert (result["attempts"][0]["outcome"], result["answer"]) == ("failed", "42")
    assert "Argument list too long" in result["attempts"][0]["error"]
    assert orch("--no-failover", "hi").code == 1
