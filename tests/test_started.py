"""However orch is started: closed descriptors, ignored signals, no terminal, a terminal in the background, an early interrupt."""
from __future__ import annotations

import json
import os
import pty
import random
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import claude_ok, needs_proc, step, wait_until

SLEEP = "time.sleep(60)\n"


def shell(orch, script, **how):
    """Run a line of sh in which $ORCH is the program."""
    return subprocess.run(["sh", "-c", script], env={**orch.env, "ORCH": str(orch.program)}, cwd=orch.work, timeout=60,
                          capture_output=True, check=False, **how)


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_a_closed_descriptor_costs_nothing(orch, fake, closed):
    fake("claude", claude_ok("42"))
    done = shell(orch, f'"$ORCH" -v hi {closed}')    # there is something to tell
    assert (done.returncode, done.stdout) == (0, b"42\n")
    assert fake.call.stdin == b""


@pytest.mark.parametrize("words", ["- hi", "-p hi"])
def test_a_closed_standard_input_is_empty_and_not_some_other_file(orch, fake, words):
    fake("claude", claude_ok("42"))
    assert shell(orch, f'"$ORCH" {words} <&-').returncode == 0
    assert fake.call.prompt.strip() == b"hi"


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_standard_output_is_no_success(orch, fake, closed):
    fake("claude", claude_ok("42"))
    assert shell(orch, f'"$ORCH" hi {closed}').returncode == 1
    assert len(orch.ledger()) == 1
    assert shell(orch, f'"$ORCH" status {closed}').returncode == 1


def test_a_full_disk_under_standard_output_is_no_success(orch, fake):
    fake("claude", claude_ok("42"))
    done = shell(orch, '"$ORCH" hi > /dev/full')
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1


def test_nohup_in_the_background_outlives_its_terminal(orch, fake):
    fake("claude", claude_ok("42", run="time.sleep(1)"))
    shell(orch, 'nohup "$ORCH" hi > out 2> err < /dev/null & sleep 0.5; kill -HUP $!; wait $!')
    assert (orch.work / "out").read_text() == "42\n"


def test_ignored_child_signals_lose_no_exit_status(orch, fake):
    def run(*argv):    # without a shell: dash takes this one signal for itself
        return subprocess.run([sys.executable, orch.program, *argv, "--json"], env=orch.env, cwd=orch.work, capture_output=True, timeout=60,
                              check=False, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    fake("claude", step(exit=3, stderr="broken\n"))
    fake.log_out("claude")
    done = run("--no-failover", "hi")
    assert (done.returncode, json.loads(done.stdout)["attempts"][0]["exit_code"]) == (1, 3), done
    assert [row["logged_in"] for row in json.loads(run("agents").stdout) if row["agent"] == "claude"] == [False]


def test_an_interrupt_at_any_moment_of_the_start_is_no_traceback(orch, fake):
    seed = time.time_ns() % 10 ** 6
    rng = random.Random(seed)
    begun = time.monotonic()
    orch("status")
    took_s = time.monotonic() - begun
    for _ in range(60):
        process = orch.start("status")
        time.sleep(rng.random() * took_s)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        # the first milliseconds belong to Python itself: before it reads a line of orch
        assert b"orch" not in err, (seed, process.returncode, err)
        started = b'File "<string>"' in err                 # Python had come to the first line of the program
        assert process.returncode in (0, -signal.SIGINT) or (err and not started), (seed, process.returncode, err)


@needs_proc
def test_notices_that_nobody_reads_hang_nothing(orch, fake):
    """Standard error is a full pipe: the time limit is kept, and TERM ends orch."""
    fake("claude", step(run=SLEEP))
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    process = orch.start("-v", "--json", "--no-failover", "-t", "1", "hi", stderr=writer)
    wait_until(lambda: fake.calls, what="the agent's start")
    wait_until(lambda: orch.leftovers().keys() <= {process.pid}, timeout=20, what="the agent's end")
    process.terminate()
    assert process.wait(timeout=20) in (124, -signal.SIGTERM)
    os.close(reader)
    os.close(writer)


@pytest.fixture
def terminal():
    """An interactive shell on a terminal of its own: terminal(line) types, terminal() reads what is shown."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe("bash", ["bash", "--norc", "-i"], {"PATH": "/usr/bin:/bin", "PS1": "$ ", "TERM": "xterm"})
    shown = b""

    def act(line=None):
        nonlocal shown
        if line is not None:
            os.write(fd, line.encode() + b"\n")
        while select.select([fd], [], [], 0.05)[0]:
            try:
                shown += os.read(fd, 65536)
            except OSError:    # the shell has ended
                break
        return shown
    yield act
    os.close(fd)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("tostop", ["", "stty tostop; "])
def test_a_run_in_the_background_of_an_interactive_shell_ends_without_the_terminal(orch, fake, terminal, tostop):
    fake("claude", claude_ok("42", run="time.sleep(0.5)"))
    variables = " ".join(f"{name}='{text}'" for name, text in orch.env.items())
    terminal(f"{tostop}cd {orch.work} && env {variables} {orch.program} hi > out 2> err &")
    wait_until(lambda: (orch.work / "out").exists() and (orch.work / "out").read_text() == "42\n", timeout=30)
    terminal("exit")


def test_few_descriptors_are_an_error_and_not_a_traceback(orch, fake):
    fake("claude", *[claude_ok("42")] * 30)
    fake.forgive_unused = True
    for most in (*range(10, 24), 32):
        done = shell(orch, f'ulimit -n {most}; exec "$ORCH" --no-failover hi')
        assert done.returncode in (0, 1, 2, 127), (most, done)
        assert b"Traceback" not in done.stderr or b"orch" not in done.stderr, (most, done)


def test_a_removed_working_directory_is_refused(orch, fake):
    fake("claude")
    done = shell(orch, 'mkdir gone; cd gone; rmdir ../gone; exec "$ORCH" hi')
    assert done.returncode == 2 and done.stderr.count(b"orch: ") == 1 and b"Traceback" not in done.stderr, done


def test_a_run_in_a_removed_directory_has_a_result(orch, fake):
    fake("claude")
    done = shell(orch, 'mkdir gone; cd gone; rmdir ../gone; exec "$ORCH" --json hi')
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"], result["exit_code"], result["cwd"]) == (2, "rejected", 2, None), done
    assert "has been removed" in result["error"]


@pytest.mark.parametrize("command", [
    "status", "usage --json", "jobs", "cooldown set claude 1h", "cooldown", "config check", "agents", "runs", "explain --now 0",
    "completion bash", "-C .. -n hi", "init"])
def test_what_needs_no_directory_works_in_a_removed_one(orch, fake, command):
    fake("claude")
    done = shell(orch, f'mkdir gone; cd gone; rmdir ../gone; exec "$ORCH" {command}')
    assert done.returncode == (2 if ".." in command else 0) and b"Traceback" not in done.stderr, done


def test_an_empty_environment_is_enough(orch, fake):
    fake("claude")
    done = subprocess.run([sys.executable, orch.program, "status"], env={}, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done
