"""Whatever agents write and do: bounded memory, bounded time, an end, and the right verdict."""
from __future__ import annotations

import json
import os
import signal
import threading
import time

import pytest
from conftest import claude_auth, claude_ok, codex_ok, git, needs_git, needs_proc, step
from tools import torture

SLEEP = "time.sleep(60)\n"
MINE = {"agents": {"mine": {"command": ["mine"], "output": "text"}}}


@needs_proc
@pytest.mark.parametrize("name", torture.FLOODS)
def test_memory_stays_under_64_megabytes_whatever_an_agent_writes(built, tmp_path, name):
    arena = torture.Arena(tmp_path / "arena", built, repo=False)
    try:
        figures = torture.flood(arena, name, 40 << 20)
        assert figures["peak MB"] < 64, figures
        assert figures["processor s"] < 15, figures    # a tenth of it on an idle machine
    finally:
        arena.close()


CHANGES = {
    "long lines": "for n in range(19): open(f'new{n}', 'w').write('\N{CRAB}' + 'x' * 1_000_000)\n",
    "what was there": "for n in range(3): open(f'big{n}', 'ab').write(b'x')\n",
    "a subject": "open('said', 'w').write('word ' * 5_000_000)\n"
                 "os.system('git -c user.name=A -c user.email=a@b.c commit -q --allow-empty -F said; rm said')\n",
    "files": "os.mkdir('d')\nfor n in range(5000): open(f'd/{n}', 'w').write(f'{n}\\n' * 100)\n",
}


@needs_proc
@needs_git
@pytest.mark.parametrize("name", CHANGES)
def test_memory_stays_under_64_megabytes_whatever_an_agent_changes(orch, fake, repo, name):
    for number in range(3):
        (repo / f"big{number}").write_bytes(b"y" * (15 << 20))
    git("add", ".", cwd=repo)
    git("commit", "-q", "-m", "big", cwd=repo)
    fake("claude", claude_auth(run=CHANGES[name], write={"a.txt": "small\n"}))
    fake("codex", codex_ok("42"))
    with open(orch.base / "out", "wb") as out:
        cost = torture.watch_cost(orch.start("--json", "hi", stdout=out, stderr=out))
    handoff = fake.calls[1].prompt.decode()
    assert "a.txt (+1 -2)" in handoff and "+small" in handoff, handoff[:2000]
    assert cost.peak_bytes < 64 << 20, cost


@needs_proc
@pytest.mark.parametrize("name", ["a failure after both", "bytes that are no text", "a long answer"])
def test_a_role_takes_no_more_memory_than_a_plain_run(built, tmp_path, name):
    arena = torture.Arena(tmp_path / "arena", built, repo=False)
    try:
        figures = torture.flood(arena, name, 40 << 20, "--role", "worker")
        assert figures["peak MB"] < 64, figures
    finally:
        arena.close()


DOES = {"shut": "os.close(1); os.close(2)\n" + SLEEP, "gone": "os.closerange(0, 100)\n" + SLEEP,
        "deaf": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP,
        "drip": "while True: put(1, b'usage limit reached soon, rate limit\\n'); time.sleep(0.001)"}


@needs_proc
def test_watching_an_agent_costs_little_processor_time_whatever_it_does(orch, fake):
    """Seconds of which an orch that spins would take most; the prompt is longer than a pipe holds, and never read."""
    orch.configure({"agents": {name: {"command": [name], "output": "text"} for name in DOES}, "order": list(DOES), "limit_grace": "1h"})
    (orch.base / "prompt").write_text("fix it " * 50_000)
    costs = {}

    def run(name):
        with open(orch.base / "prompt", "rb") as prompt, open(os.devnull, "w") as null:
            process = orch.start("-a", name, "--no-failover", "-t", "3", "-", stdin=prompt, stdout=null, stderr=null)
        costs[name] = torture.watch_cost(process)
    for name, does in DOES.items():
        fake(name, step(run=does, read_stdin=False))
    threads = [threading.Thread(target=run, args=(name,)) for name in DOES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(fake.calls) == len(costs) == len(DOES)
    for name, cost in costs.items():    # on a busy machine a spinning orch gets little time, but calls all the same
        assert cost.spent_s < 1.5 and cost.reads < 20_000, (name, cost)
    drip, shut = costs["drip"], costs["shut"]    # judging a piece takes a millisecond, reading it a tenth of one
    assert drip.spent_s - shut.spent_s < 0.15 + (drip.reads - shut.reads) * 0.0003, costs


def test_a_flood_does_not_hide_the_verdict(orch, fake):
    """100 MB on each stream, then the limit: it is still seen."""
    orch.configure({"agents": {"mine": {"command": ["mine"], "output": "text", "limit_patterns": ["credits? used up"]}}, "order": ["mine", "codex"]})
    fake("mine", step(run="for _ in range(100):\n    put(1, b'x' * 1_000_000)\n    put(2, b'y\\n' * 500_000)\nput(2, b'credits used up\\n')\n", exit=1))
    fake("codex", codex_ok("42"))
    result = orch("--json", "hi").json
    assert [attempt["outcome"] for attempt in result["attempts"]] == ["limited", "ok"]


def test_an_answer_that_ends_in_what_looks_like_errors_is_an_answer(orch, fake):
    fake("claude")
    orch.configure({"order": ["mine"], **MINE})
    fake("mine", step(stdout="The log says:\n" + "ERROR: You've hit your usage limit.\n" * 20_000))
    assert orch("hi").code == 0


@pytest.mark.parametrize("stream", [1, 2])
def test_an_agent_that_closes_its_pipe_and_works_on_is_waited_for(orch, fake, stream):
    fake("claude", claude_ok("42", run=f"os.close({stream}); time.sleep(0.5); open('late', 'w').close()"))
    assert orch("hi").out == "42\n"
    assert (orch.work / "late").exists()


def test_an_agent_that_closes_everything_and_stays_is_stopped_in_time(orch, fake):
    fake("claude", step(run="os.closerange(0, 100)\n" + SLEEP))
    assert orch("--no-failover", "-t", "0.7", "hi").code == 124
    assert orch.leftovers() == {}


def test_an_agent_that_writes_nothing_has_failed(orch, fake):
    fake("claude", step())
    fake("codex", codex_ok("42"))
    assert orch("hi").out == "42\n"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTERM, signal.SIGPIPE, signal.SIGABRT], ids=lambda number: number.name)
def test_an_agent_that_ends_by_a_signal_fails_over(orch, fake, number):
    fake("claude", step(kill=number))
    fake("codex", codex_ok("42"))
    result = orch("--json", "hi").json
    assert (result["attempts"][0]["error_class"], result["answer"]) == ("signal", "42")


@needs_proc
def test_an_agent_that_stops_itself_is_ended_at_the_time_limit(orch, fake):
    """It is woken, too, so that it can clean up."""
    clean_up = "signal.signal(signal.SIGTERM, lambda *_: (open('clean', 'w').close(), os._exit(0)))\n"
    fake("claude", step(run=clean_up + "os.kill(os.getpid(), signal.SIGSTOP)\n" + SLEEP))
    assert orch("--no-failover", "-t", "0.7", "hi", timeout=30).code == 124
    assert (orch.work / "clean").exists()
    assert orch.leftovers() == {}


@needs_proc
def test_a_time_limit_reaches_children_that_ignore_term_in_sessions_of_their_own(orch, fake):
    deaf = ("import subprocess\nfor _ in range(5):\n    subprocess.Popen([sys.executable, '-ISc', 'import signal, time;"
            " signal.signal(15, signal.SIG_IGN); signal.signal(1, signal.SIG_IGN); time.sleep(60)'], start_new_session=True)\n")
    fake("claude", step(run=deaf + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP))
    assert orch("--no-failover", "-t", "1.5", "hi").code == 124
    assert orch.leftovers() == {}


@needs_proc
def test_children_that_keep_forking_while_they_are_stopped_do_not_get_away(orch, fake):
    forking = ("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n"
               "        while True:\n            if os.fork():\n                time.sleep(0.3)\n                os._exit(0)\n"
               "            time.sleep(0.1)\n")
    fake("claude", step(run=forking + SLEEP))
    assert orch("--no-failover", "-t", "1", "hi").code == 124
    assert orch.leftovers() == {}


@needs_proc
def test_a_grandchild_that_writes_for_ever_does_not_hang_the_run(orch, fake):
    writer = ("import subprocess\nsubprocess.Popen([sys.executable, '-ISc', 'import os\\nwhile True: os.write(2, b\"x\" * 1000)'],"
              " start_new_session=True)\n")
    fake("claude", claude_ok("42", run=writer))
    begun = time.monotonic()
    result = orch("hi")
    assert (result.code, result.out) == (0, "42\n"), result
    assert time.monotonic() - begun < 20


def test_an_agent_whose_program_is_gone_or_broken_fails_over(orch, fake):
    fake("claude")
    fake("codex", codex_ok("42"), codex_ok("42"), codex_ok("42"))
    for content in ("#!/nonexistent/interpreter\n", "\x7fELF broken", ""):
        (orch.agents / "claude").write_text(content)
        result = orch("--json", "hi")
        assert (result.code, result.json["answer"]) == (0, "42"), (content, result)


@needs_proc
def test_one_gigabyte_of_short_lines_is_read_faster_than_an_agent_writes(built, tmp_path):
    """A tenth of it here, all of it in the torture run."""
    arena = torture.Arena(tmp_path / "arena", built, repo=False)
    try:
        figures = torture.flood(arena, "short lines on both streams", 100 << 20)
        assert figures["processor s"] < 10, figures
    finally:
        arena.close()


def test_numbers_that_no_machine_holds_reach_no_file(orch, fake):
    """Tokens, costs and times as an agent may print them: every file and result stays JSON that anybody can read."""
    numbers = ["1e999", "-1e999", "NaN", "1" + "0" * 400, "-5", "1.5", "true", "null", "[]", '"7"', "1e308", "0.1e-400"]
    template = claude_ok("42")["stdout"].strip().split("\n")[-1]
    steps = []
    for number in numbers:
        result = json.loads(template)
        result["usage"] = dict.fromkeys(result["usage"], "@")
        result.update(total_cost_usd="@", duration_ms="@", num_turns="@", modelUsage={"m": {"inputTokens": "@", "costUSD": "@"}})
        steps.append(step(stdout=json.dumps(result).replace('"@"', number) + "\n"))
    fake("claude", *steps)

    def strict(text):
        return json.loads(text, parse_constant=pytest.fail)
    for number in numbers:
        result = orch("--json", "hi")
        assert strict(result.out)["answer"] == "42", (number, result)
    for line in (orch.home / "usage.jsonl").read_text().splitlines():
        strict(line)
    strict((orch.home / "state.json").read_text())
    for command in (["status"], ["usage"], ["usage", "--json"], ["jobs"], ["jobs", "--json"]):
        result = orch(*command)
        assert (result.code, result.err) == (0, ""), (command, result)


def test_a_reset_time_that_no_clock_reaches_locks_nobody_out(orch, fake):
    for number in ("1e308", "99999999999999", "-1", "NaN", "0", '"soon"'):
        event = json.dumps({"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": "@", "rateLimitType": "five_hour"}})
        said = claude_ok("x")["stdout"].strip().split("\n")[-1]
        refused = {**json.loads(said), "is_error": True, "api_error_status": 429, "result": "You've hit your session limit"}
        fake("claude", step(stdout=event.replace('"@"', number) + "\n" + json.dumps(refused) + "\n", exit=1))
        result = orch("--json", "--no-failover", "hi")
        assert result.code == 75, (number, result)
        until = [entry["until"] for entry in orch.state()["cooldowns"].values()]
        assert all(until_at < time.strftime("%Y", time.gmtime(time.time() + 40 * 86400)) + "-99" for until_at in until), until
        orch("cooldown", "clear", "--all")
