"""Roles and teams: in order and at once, what is handed over, what is kept, what a failure stops."""
from __future__ import annotations

import json
import os
import pty
import re
import signal
import stat
import subprocess
import threading
import time

import pytest
from conftest import (
    claude_auth,
    claude_error,
    claude_limit,
    claude_ok,
    codex_auth,
    codex_failed,
    codex_ok,
    codex_overloaded,
    git,
    needs_proc,
    not_root,
    one_line_error,
    read_terminal,
    wait_until,
)

import orch as core

ROLES = {
    "planner": {"prompt": "You plan."}, "builder": {"prompt": "You build.", "agent": "codex"},
    "reviewer": {"prompt": "You review.", "writes": False}, "critic": {"prompt": "You criticise.", "writes": False, "agent": "codex"},
    "tester": {"prompt": "You test."},
}
TEAMS = {"full": ["planner", "builder", "tester"], "review": ["builder", "reviewer", "critic", "tester"], "pair": ["reviewer", "critic"]}


def run_folder(orch):
    """The folder of the only run."""
    (folder,) = [path for path in (orch.work / ".orch" / "runs").iterdir() if path.is_dir()]
    return folder


def prompts(fake):
    """{role: prompt as text} of all calls so far."""
    return {call.env["ORCH_ROLE"]: call.prompt.decode() for call in fake.calls}


def names(result):
    """Roles and their statuses, as the result has them."""
    return [(role["name"], role["status"]) for role in result.json["roles"]]


def until(condition):
    """Python for a fake's `run`: wait for a condition of the outside, fail after 20 s."""
    return (f"import glob\nfor _ in range(1000):\n    if {condition}:\n        break\n    time.sleep(0.02)\n"
            "else:\n    os._exit(9)\n")


@pytest.fixture
def team(orch):
    """orch with roles in its config."""
    orch.configure({"roles": ROLES, "teams": TEAMS})
    return orch


# === IN ORDER ============================================================

def test_a_role_is_told_its_prompt_and_the_request_word_for_word(team, fake):
    fake("claude", claude_ok("42"))
    result = team("--role", "planner", "what ```is``` it?")
    assert (result.code, result.out) == (0, "42\n"), result
    prompt = fake.call.prompt.decode()
    assert prompt.startswith("You plan.\n") and "what ```is``` it?" in prompt
    assert fake.call.env["ORCH_ROLE"] == "planner" and "ORCH_ASSETS_DIR" not in fake.call.env
    assert "## Handoff" not in prompt                   # nobody comes after it
    assert team.ledger()[0]["role"] == "planner"


def test_a_team_runs_its_roles_in_order_and_hands_over(team, fake):
    fake("claude", claude_ok("The plan.\n## Handoff\nuse b.py"), claude_ok("tested"))
    fake("codex", codex_ok("built\n## Handoff\nsee c.py"))
    result = team("--json", "--team", "full", "make it")
    assert result.code == 0, result
    assert fake.names == ["claude", "codex", "claude"]
    value = result.json
    assert [(role["name"], role["status"], role["agent"]) for role in value["roles"]] == [
        ("planner", "ok", "claude"), ("builder", "ok", "codex"), ("tester", "ok", "claude")]
    assert value["run_id"] == value["task_id"] == run_folder(team).name
    assert {line["task_id"] for line in team.ledger()} == {value["run_id"]}
    assert [job["id"] for job in team.state()["jobs"]] == [value["run_id"]]
    told = prompts(fake)
    assert "use b.py" in told["builder"] and "The plan." not in told["builder"] and "## Handoff" in told["builder"]
    assert "see c.py" in told["tester"] and "use b.py" in told["tester"]
    assert (run_folder(team) / "planner.md").read_text() == "The plan.\n## Handoff\nuse b.py\n"
    assert json.loads((run_folder(team) / "run.json").read_text())["status"] == "ok"
    assert value["selection"] == {"by": "team", "team": "full", "roles": ["planner", "builder", "tester"], "reasons": ['team "full"']}
    assert [attempt["agent"] for attempt in value["attempts"]] == ["claude", "codex", "claude"]
    assert value["usage"]["billable"] == sum(role["usage"]["billable"] for role in value["roles"])


def test_the_report_names_each_role(team, fake):
    fake("claude", claude_ok("my plan"), claude_ok("my tests"))
    result = team("--roles", "planner, tester", "make it")
    assert result.out == "# planner (claude)\n\nmy plan\n\n# tester (claude)\n\nmy tests\n"
    assert [line for line in result.notices if "done" not in line] == ["orch: [1/2] planner (claude) ...", "orch: [2/2] tester (claude) ..."]
    assert [line.partition(" done in ")[0] for line in result.notices if "done" in line] == [
        "orch: [1/2] planner (claude)", "orch: [2/2] tester (claude)"]
    assert "tokens" in result.err


def test_usage_groups_a_team_by_role_and_by_task(team, fake):
    fake("claude", claude_ok("1"), claude_ok("2"))
    value = team("--json", "--roles", "planner,tester", "make it").json
    assert {row["role"] for row in team("usage", "--by", "role", "--json").json} == {"planner", "tester"}
    assert [(row["task"], row["attempts"]) for row in team("usage", "--by", "task", "--json").json] == [(value["run_id"], 2)]


def test_attempt_ids_of_one_team_differ(team, fake):
    fake("claude", claude_error(), claude_ok("1"))
    fake("codex", codex_ok("2"))
    team("--roles", "planner,tester", "make it")
    ids = [call.env["ORCH_ATTEMPT_ID"] for call in fake.calls]
    assert len(set(ids)) == 3 and len({one.rpartition(".")[0] for one in ids}) == 1


def test_events_name_their_role(team, fake):
    fake("claude", claude_ok("1"), claude_ok("2"))
    events = team("--events", "--roles", "planner,tester", "make it").events
    assert events[0]["type"] == "start" and events[0]["roles"] == ["planner", "tester"]
    assert events[-1]["type"] == "result" and events[-1]["status"] == "ok"
    of_roles = [event for event in events if event["type"] in ("route", "attempt_start", "attempt_end", "role_end")]
    assert [(e["type"], e["role"], e["step"], e["of"]) for e in of_roles] == [
        (kind, role, step, 2) for step, role in ((1, "planner"), (2, "tester"))
        for kind in ("route", "attempt_start", "attempt_end", "role_end")]
    assert all(event["task_id"] == events[0]["task_id"] and event["at"] for event in events)


def test_a_role_that_says_a_nul_does_not_keep_the_next_from_its_work(team, fake):
    fake("claude", claude_ok("## Handoff\nuse b\0.py"), claude_ok("2"))
    assert team("--roles", "planner,tester", "make it").code == 0
    assert "use b.py" in prompts(fake)["tester"]


def test_the_fourth_handoff_is_cut_so_that_the_total_fits(team, fake):
    fake("claude", *[claude_ok(f"## Handoff\n{letter * 1900}") for letter in "abcd"], claude_ok("end"))
    team.configure({"roles": {**{f"r{n}": {"prompt": "x"} for n in range(5)}}, "pipeline": {"handoff_chars": 6000}})
    assert team("--roles", "r0,r1,r2,r3,r4", "make it").code == 0
    last = prompts(fake)["r4"]
    for letter in "dcb":
        assert letter * 1900 in last
    assert 100 < last.count("a" * 10) * 10 < 300 and "[...]" in last     # what was left of 6,000
    fake("claude", *[claude_ok(f"## Handoff\n{letter * 1900}") for letter in "abcd"], claude_ok("end"))
    team.configure({"roles": {**{f"r{n}": {"prompt": "x"} for n in range(5)}}, "pipeline": {"handoff_chars": 2000}})
    team("--roles", "r0,r1,r2,r3,r4", "make it")
    last = prompts(fake)["r4"]
    assert "d" * 1900 in last and "c" * 101 not in last and "b" * 10 not in last


def test_a_later_role_is_told_what_has_changed_and_a_reader_the_diff(team, fake, repo):
    fake("codex", codex_ok("built", write={str(repo / "new.txt"): "a line of it\n"}))
    fake("claude", claude_ok("fine"), claude_ok("tested"))
    result = team("--json", "--roles", "builder,reviewer,tester", "make it")
    told = prompts(fake)
    assert "new.txt" not in told["builder"]
    assert "new.txt" in told["reviewer"] and "+a line of it" in told["reviewer"]
    assert "new.txt" in told["tester"] and "+a line of it" not in told["tester"]
    assert result.json["changed_files"] == ["new.txt"]


def test_the_work_of_a_teammate_is_not_called_older_than_the_task_when_a_role_fails_over(team, fake, repo):
    (repo / "mine.txt").write_text("my own\n")
    earlier = "(not an agent's work; paths from the top level):\n- mine.txt\n\n"
    fake("codex", codex_ok("built", write={str(repo / "new.txt"): "x\n"}), codex_failed())
    fake("claude", claude_error(), claude_error())
    value = team("--json", "--roles", "builder,tester", "make it").json
    handoff = fake.calls[-1].prompt.decode()
    assert fake.names == ["codex", "claude", "codex"] and earlier in handoff, handoff
    fake("codex", codex_ok("tested"))
    assert team("runs", "resume", value["run_id"]).code == 0
    handoff = fake.calls[-1].prompt.decode()
    assert fake.names[3:] == ["claude", "codex"] and earlier in handoff, handoff


def test_a_reader_reads_whatever_the_options_say(team, fake):
    fake("codex", codex_ok("fine"))
    team("--role", "critic", "--access", "full", "look")
    assert "read-only" in " ".join(fake.call.argv)


def test_a_role_has_its_agent_model_effort_context_and_arguments(orch, fake):
    orch.configure({"contexts": {"lean": {"codex": ["--lean"]}}, "rules": [{"keywords": ["make"], "agent": "claude", "model": "rules"}],
                    "roles": {"r": {"prompt": "x", "agent": "codex", "model": "mine", "effort": "high", "context": "lean",
                                    "agent_args": {"codex": ["--extra"], "claude": ["--other"]}, "access": "read"}}})
    fake("codex", codex_ok())
    value = orch("--json", "--role", "r", "make it").json
    argv = fake.call.argv
    assert {"mine", "--lean", "--extra"} <= set(argv) and "--other" not in argv and "rules" not in argv
    assert "read-only" in " ".join(argv) and any("high" in word for word in argv)
    assert value["roles"][0]["agent"] == "codex"


@pytest.mark.parametrize(("options", "words"), [
    (["--role", "planner", "--team", "full"], "exclude"),
    (["--roles", "planner", "--auto"], "exclude"),
    (["--auto", "--no-auto"], "exclude"),
    (["--roles", "planner,"], "--roles"),
    (["--roles", ""], "--roles"),
    (["--roles", "planner,planner"], "share a file"),
    (["--role", "planer"], 'did you mean "planner"?'),
    (["--roles", "planner,testr"], 'did you mean "tester"?'),
    (["--team", "fulll"], 'did you mean "full"?'),
    (["--role", "zzz\x1b[31m"], "known: planner"),
])
def test_wrong_roles_are_refused_before_anything_starts(team, fake, options, words):
    fake("claude")
    line = one_line_error(team(*options, "x"))
    assert words in line and "\x1b" not in line
    assert not (team.work / ".orch").exists()


def test_a_team_that_names_a_role_twice_is_refused(orch, fake):
    orch.configure({"roles": ROLES, "teams": {"twice": ["planner", "Planner", "planner"]}})
    fake("claude")
    assert "teams.twice" in one_line_error(orch("x"))


@pytest.mark.parametrize("option", ["--role", "--team"])
def test_an_empty_name_is_no_plain_run(team, fake, option):
    """As `--team "$TEAM"` has it where the variable is not set."""
    fake("claude")
    assert 'unknown' in one_line_error(team(option, "", "x"))


@pytest.mark.parametrize("rule", [{"role": "planner"}, {"keywords": ["x"]}, {"role": "planner", "keywords": []}])
def test_half_a_rule_of_auto_is_refused(orch, fake, rule):
    orch.configure({"roles": ROLES, "auto": {"rules": [rule]}})
    fake("claude")
    assert "auto.rules[0]" in one_line_error(orch("x"))


def test_one_role_alone_is_as_quiet_as_a_plain_run(team, fake):
    fake("claude", claude_ok("42"), claude_ok("42"))
    assert team("--role", "planner", "x").err == ""
    assert "[1/1] planner (claude) done in" in team("-v", "--role", "planner", "x").err


def test_quiet_is_quiet(team, fake):
    fake("claude", claude_ok("42"), claude_ok("42"))
    assert team("-q", "--roles", "planner,tester", "x").err == ""


def test_the_ready_made_team_runs(orch, fake):
    orch("init")
    fake("claude", *[claude_ok(f"## Handoff\n{number}") for number in range(4)])
    result = orch("--json", "--team", "full", "add a parser")
    assert names(result) == [(name, "ok") for name in ("planner", "builder", "reviewer", "tester")]
    assert all("add a parser" in prompt for prompt in prompts(fake).values())
    fake("claude", claude_ok(), claude_ok())
    assert [name for name, _ in names(orch("--json", "--auto", "Fix the parser and its tests"))] == ["builder", "tester"]


@pytest.mark.parametrize("name", ["a.failed", "A.FAILED"])
def test_a_role_that_would_pass_for_a_failed_one_is_refused(orch, fake, name):
    orch.configure({"roles": {name: {"prompt": "x"}}})
    fake("claude")
    assert ".failed" in one_line_error(orch("hi"))


def test_without_a_role_in_the_config_the_error_says_how_to_get_some(orch, fake):
    fake("claude")
    assert "orch init" in one_line_error(orch("--team", "full", "x"))


# === AT ONCE =============================================================

def test_two_readers_run_at_once_and_the_report_keeps_the_order_of_the_plan(team, fake):
    """The first ends only when the second's answer is kept: one after the other they would never end."""
    fake("claude", claude_ok("from the reviewer", run=until("glob.glob('.orch/runs/*/critic.md')")))
    fake("codex", codex_ok("from the critic"))
    result = team("--json", "--team", "pair", "look")
    assert result.code == 0, result
    assert names(result) == [("reviewer", "ok"), ("critic", "ok")]
    answer = result.json["answer"]
    assert 0 <= answer.index("from the reviewer") < answer.index("from the critic")
    assert [attempt["agent"] for attempt in result.json["attempts"]] == ["claude", "codex"]
    told = prompts(fake)
    assert "from the critic" not in told["reviewer"] and "from the reviewer" not in told["critic"]


def test_the_live_line_shows_all_that_are_at_work(team, fake):
    fake("claude", claude_ok("1", run=until("glob.glob('.orch/runs/*/critic.md')")))
    fake("codex", codex_ok("2", run=until("os.path.exists('go')")))
    master, slave = pty.openpty()
    process = team.start("--team", "pair", "look", stderr=slave, env={"TERM": "xterm"})
    os.close(slave)
    shown = b""
    while b"reviewer (claude)" not in shown.rpartition(b"\r")[2] or b"critic (codex)" not in shown.rpartition(b"\r")[2]:
        shown += os.read(master, 1000)
    (team.work / "go").touch()
    shown += read_terminal(master)
    assert process.wait(60) == 0
    assert shown.count(b"\n") == 4 and shown.endswith(b"tokens\r\n"), shown


def test_the_live_line_forgets_who_has_ended(team, fake):
    fake("claude", claude_ok("1", run=until("os.path.exists('go')")))
    fake("codex", codex_ok("2", run=until("os.path.exists('go-codex')")))
    master, slave = pty.openpty()
    process = team.start("--team", "pair", "look", stdout=subprocess.DEVNULL, stderr=slave, env={"TERM": "xterm"})
    os.close(slave)
    shown = b""
    while b"reviewer (claude) " not in shown or b"critic (codex) " not in shown:
        shown += os.read(master, 1000)
    (team.work / "go-codex").touch()
    while b"reviewer (claude)" not in shown.partition(b"tokens\r\n")[2]:
        shown += os.read(master, 1000)
    (team.work / "go").touch()
    shown += read_terminal(master)
    assert process.wait(60) == 0
    assert b"critic" not in shown.partition(b"tokens\r\n")[2], shown


def test_no_more_run_at_once_than_allowed_and_all_of_a_batch_see_the_same(team, fake):
    """Each enters, waits until it has seen a second one inside, and fails if it sees a third."""
    inside = ("os.makedirs('in', exist_ok=True)\nme = 'in/%d' % os.getpid()\nopen(me, 'w').close()\n"
              "for turn in range(1000):\n    count = len(os.listdir('in'))\n    if count > 2:\n        os._exit(9)\n"
              "    if (count == 2 or os.path.exists('met')) and turn > 5:\n        break\n    time.sleep(0.02)\nelse:\n    os._exit(8)\n"
              "open('met', 'w').close()\nos.unlink(me)\n")
    team.configure({"roles": {name: {"prompt": "x", "writes": False} for name in "abcd"}, "pipeline": {"max_parallel": 2}})
    fake("claude", *[claude_ok(f"## Handoff\nsaid {number}", run=inside) for number in range(4)])
    result = team("--json", "--no-failover", "--roles", "a,b,c,d", "look")
    assert names(result) == [(name, "ok") for name in "abcd"], result
    assert not any("said" in prompt for prompt in prompts(fake).values())


def test_one_at_once_is_one_after_the_other(team, fake):
    team.configure({"roles": {name: {"prompt": "x", "writes": False} for name in "ab"}, "pipeline": {"max_parallel": 1}})
    alone = "os.mkdir('alone')\ntime.sleep(0.1)\nos.rmdir('alone')\n"
    fake("claude", claude_ok("1", run=alone), claude_ok("2", run=alone))
    assert team("--no-failover", "--roles", "a,b", "look").code == 0


def test_a_role_limited_in_a_batch_fails_over_alone_and_cools_its_agent_for_later_ones(team, fake):
    fake("claude", claude_limit(time.time() + 3600))
    fake("codex", codex_ok("built"), codex_ok("looked"), codex_ok("looked"), codex_ok("tested"))
    result = team("--json", "--team", "review", "make it")
    assert result.code == 0, result
    assert [role["agent"] for role in result.json["roles"]] == ["codex"] * 4
    assert sorted(fake.names) == ["claude", "codex", "codex", "codex", "codex"]
    assert "claude" in team.state()["cooldowns"]
    assert fake.calls[-1].env["ORCH_ROLE"] == "tester"
    assert any(line.startswith("orch: [2/4] reviewer: claude: You've hit your session limit") for line in result.notices)


@needs_proc
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_that_run_at_once(team, fake, signum):
    stay = "import signal\nopen('up-%d' % os.getpid(), 'w').close()\ntime.sleep(60)\n"
    fake("claude", claude_ok("1", run=stay))
    fake("codex", codex_ok("2", run=stay))
    process = team.start("--json", "--roles", "reviewer,critic,tester", "look")
    wait_until(lambda: len(list(team.work.glob("up-*"))) == 2, 30, "two agents at work")
    process.send_signal(signum)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == -signum
    value = json.loads(out)
    assert (value["status"], value["exit_code"]) == ("aborted", 128 + signum)
    assert [(role["name"], role["status"]) for role in value["roles"]] == [("reviewer", "aborted"), ("critic", "aborted"), ("tester", "skipped")]
    assert team.leftovers() == {}
    assert [line["outcome"] for line in team.ledger()] == ["aborted", "aborted"]
    assert [job["status"] for job in team.state()["jobs"]] == ["aborted"]
    assert list((team.home / "cache" / "running").iterdir()) == []


@needs_proc
def test_a_second_signal_kills_all_at_once(team, fake):
    stay = ("def late(*_):\n    time.sleep(1.8)\n    open('late', 'w').close()\n    time.sleep(60)\n"     # after 2 s comes the KILL
            "signal.signal(signal.SIGTERM, late)\nopen('up-%d' % os.getpid(), 'w').close()\ntime.sleep(60)\n")
    fake("claude", claude_ok("1", run=stay))
    fake("codex", codex_ok("2", run=stay))
    process = team.start("--team", "pair", "look")
    wait_until(lambda: len(list(team.work.glob("up-*"))) == 2, 30, "two agents at work")
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT and team.leftovers() == {}
    assert not (team.work / "late").exists()


@needs_proc
def test_suspending_reaches_all_that_run_at_once_and_costs_no_time_limit(team, fake):
    wait = "open('up-%d' % os.getpid(), 'w').close()\n" + until("os.path.exists('go')")
    fake("claude", claude_ok("1", run=wait))
    fake("codex", codex_ok("2", run=wait))
    process = team.start("--team", "pair", "--timeout", "10s", "look")
    pids = [int(path.name[3:]) for path in wait_until(lambda: [*team.work.glob("up-*")][1:] and [*team.work.glob("up-*")], 30, "two agents")]
    process.send_signal(signal.SIGTSTP)
    for pid in (*pids, process.pid):
        wait_until(lambda pid=pid: core.read_process(pid) and state_of(pid) == "T", 10, "the stop")
    process.send_signal(signal.SIGCONT)
    (team.work / "go").touch()
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0 and out.count(b"# ") == 2, err


def state_of(pid):
    """The letter of a process's state."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


@needs_proc
def test_a_signal_leaves_those_that_wait_for_their_turn_where_they_are(team, fake):
    stay = "open('up-%d' % os.getpid(), 'w').close()\ntime.sleep(60)\n"
    team.configure({"roles": {name: {"prompt": "x", "writes": False} for name in "abc"}})
    fake("claude", claude_ok("1", run=stay), claude_ok("2", run=stay))
    process = team.start("--json", "--roles", "a,b,c", "look")
    wait_until(lambda: len(list(team.work.glob("up-*"))) == 2, 30, "two agents at work")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert [(role["name"], role["status"]) for role in json.loads(out)["roles"]] == [("a", "aborted"), ("b", "aborted"), ("c", "skipped")]
    assert b"[3/3]" not in err


@needs_proc
def test_a_closed_standard_output_stops_all_that_run_at_once(team, fake):
    stay = """
def part(*_):
    time.sleep(0.3)
    open('parted-%d' % os.getpid(), 'w').close()
    os._exit(0)
signal.signal(signal.SIGTERM, part)
open('up-%d' % os.getpid(), 'w').close()
time.sleep(60)
"""
    fake("claude", claude_ok("1", run=stay))
    fake("codex", codex_ok("2", run=stay))
    process = team.start("--team", "pair", "look")
    wait_until(lambda: len(list(team.work.glob("up-*"))) == 2, 30, "two agents at work")
    process.stdout.close()
    assert process.wait(timeout=30) == -signal.SIGPIPE
    assert len(list(team.work.glob("parted-*"))) == 2      # both had their two seconds
    process.stderr.close()
    assert team.leftovers() == {}


@needs_proc
def test_a_closed_standard_output_leaves_each_agent_its_time_to_end(team, fake):
    """Both watches see it: the second is no second request, which would kill at once."""
    leave = ("def end(*_):\n    time.sleep(0.3)\n    open('bye-%d' % os.getpid(), 'w').close()\n    os._exit(1)\n"
             "signal.signal(signal.SIGTERM, end)\nopen('up-%d' % os.getpid(), 'w').close()\ntime.sleep(60)\n")
    fake("claude", claude_ok("1", run=leave))
    fake("codex", codex_ok("2", run=leave))
    process = team.start("--team", "pair", "look")
    wait_until(lambda: len(list(team.work.glob("up-*"))) == 2, 30, "two agents at work")
    process.stdout.close()
    assert process.wait(timeout=30) == -signal.SIGPIPE
    process.stderr.close()
    assert len(list(team.work.glob("bye-*"))) == 2


def test_a_time_limit_holds_for_the_whole_team(team, fake):
    fake("claude", claude_ok("1", run="time.sleep(60)"))
    result = team("--json", "--roles", "planner,tester", "--deadline", "1s", "look")
    assert (result.code, names(result)) == (124, [("planner", "failed"), ("tester", "skipped")])


# === FAILURES ============================================================

def test_a_failed_reviewer_stops_the_tester_and_leaves_the_builders_artifact(team, fake):
    fake("codex", codex_ok("built\n## Handoff\nall of it"), codex_ok("criticised"))
    fake("claude", claude_error())
    result = team("--json", "--no-failover", "--team", "review", "make it")
    assert (result.code, result.json["status"]) == (1, "failed")
    assert names(result) == [("builder", "ok"), ("reviewer", "failed"), ("critic", "ok"), ("tester", "skipped")]
    assert result.json["error"].startswith("reviewer: claude: ") and "orch runs resume" in result.json["error"]
    folder = run_folder(team)
    assert (folder / "builder.md").read_text() == "built\n## Handoff\nall of it\n"
    assert (folder / "critic.md").exists() and not (folder / "reviewer.md").exists() and not (folder / "tester.md").exists()
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    assert [job["status"] for job in team.state()["jobs"]] == ["failed"]


def test_what_a_failed_role_said_is_kept_apart(team, fake):
    fake("codex", codex_failed(said="I got half way."))
    result = team("--json", "--no-failover", "--role", "builder", "make it")
    assert result.code == 1
    assert (run_folder(team) / "builder.failed.md").read_text() == "I got half way.\n"
    assert result.json["roles"][0]["artifact"].endswith("/builder.failed.md")


def test_a_failure_that_may_be_passed_over_stops_nothing(orch, fake):
    orch.configure({"roles": {**ROLES, "reviewer": {**ROLES["reviewer"], "on_failure": "continue"}}})
    fake("claude", claude_error(), claude_ok("tested"))
    result = orch("--json", "--no-failover", "--roles", "reviewer,tester", "make it")
    assert (result.code, result.json["answer"]) == (0, "tested")
    assert names(result) == [("reviewer", "failed"), ("tester", "ok")]
    assert "This role failed" in prompts(fake)["tester"]
    fake("claude", claude_error())
    assert orch("--no-failover", "--role", "reviewer", "make it").code == 1


@pytest.mark.parametrize("last", ["stop", "continue"])
def test_the_failure_that_decides_is_the_one_that_is_told(orch, fake, last):
    orch.configure({"roles": {"a": {"agent": "claude", "on_failure": "continue"}, "b": {"agent": "codex", "on_failure": last}}})
    fake("claude", claude_error())
    fake("codex", codex_failed())
    value = orch("--json", "--no-failover", "--roles", "a,b", "make it").json
    assert (value["agent"], value["error_class"]) == ("codex", "unknown") and value["error"].startswith("b: codex: "), value
    assert value["exit_code"] == 1


def test_a_team_at_its_limits_says_when_to_come_back(team, fake):
    reset = int(time.time()) + 3600
    fake("claude", claude_limit(reset))
    result = team("--json", "--roles", "planner,tester", "make it")
    assert (result.code, result.json["status"]) == (75, "unavailable")
    assert result.json["retry_at"] and result.json["error"].startswith("planner: ")


# === CAPABILITIES, READINESS =============================================

ART = {"roles": {"artist": {"prompt": "You draw.", "capability": "image"}, "planner": {"prompt": "You plan."}},
       "agents": {"codex": {"capabilities": ["image"]}}}


def test_what_an_artist_makes_is_what_lies_in_its_directory(orch, fake):
    orch.configure(ART)
    draw = ("folder = os.environ['ORCH_ASSETS_DIR']\nos.makedirs(folder + '/sub')\n"
            "for name in ('b.png', 'a.png', 'sub/c.png'):\n    open(folder + '/' + name, 'w').close()\n"
            "os.symlink('/etc/passwd', folder + '/passwd.png')\nos.symlink('/etc', folder + '/etc')\nos.mkfifo(folder + '/pipe.png')\n")
    fake("codex", codex_ok("I drew a.png, b.png and also nothing.png", run=draw))
    value = orch("--json", "--role", "artist", "a cat").json
    folder = run_folder(orch) / "assets" / "artist"
    wanted = [str(folder / name) for name in ("a.png", "b.png", "sub/c.png")]
    assert value["assets"] == value["roles"][0]["assets"] == wanted
    assert fake.call.env["ORCH_ASSETS_DIR"] == str(folder) and str(folder) in fake.call.prompt.decode()


def test_an_assets_directory_that_was_swapped_for_a_link_has_no_assets(orch, fake):
    orch.configure(ART)
    fake("codex", codex_ok("done", run="folder = os.environ['ORCH_ASSETS_DIR']\nos.rmdir(folder)\nos.symlink('/etc', folder)\n"))
    assert orch("--json", "--role", "artist", "a cat").json["assets"] == []


def test_a_capability_never_fails_over(orch, fake):
    orch.configure(ART)
    fake("codex", codex_overloaded())
    fake("claude")
    result = orch("--role", "artist", "a cat")
    assert (result.code, fake.names) == (1, ["codex"])


@pytest.mark.parametrize(("trouble", "code", "words"), [
    ("logged out", 77, "logged in"), ("cooling", 75, "at its limit"), ("missing", 127, "installed"), ("unable", 2, "capability"),
])
def test_an_artist_that_is_not_ready_is_refused_before_the_first_role_starts(orch, fake, trouble, code, words):
    orch.configure({**ART, "agents": {} if trouble == "unable" else ART["agents"],
                    **({"roles": {**ART["roles"], "artist": {"prompt": "x", "capability": "image", "agent": "mine"}},
                        "agents": {"mine": {"command": ["mine"], "capabilities": []}}} if trouble == "unable" else {})})
    fake("claude")
    if trouble != "missing":
        fake("codex")
    if trouble == "logged out":
        fake.log_out("codex")
    if trouble == "cooling":
        orch("cooldown", "set", "codex", "1h")
    result = orch("--json", "--roles", "planner,artist", "a cat")
    assert (result.code, fake.names) == (code, []), result
    assert words in result.json["error"]
    assert (result.json["retry_at"] is not None) == ("(until " in result.json["error"]) == (trouble == "cooling")
    assert not (orch.work / ".orch").exists()


def test_an_interrupt_does_not_wait_for_a_login_check(orch, fake):
    orch.configure({**ART, "agents": {"codex": {"capabilities": ["image"], "login_check": ["sleep", "19.5"]}}})
    fake("codex")
    process = orch.start("--json", "--role", "artist", "a cat")
    wait_until(lambda: any("sleep" in words for words in orch.leftovers().values()), what="the login check")
    time.sleep(0.3)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    value = json.loads(process.communicate(timeout=30)[0])
    assert (value["status"], value["exit_code"], process.returncode) == ("aborted", 130, -signal.SIGINT)
    assert time.monotonic() - began < 10 and orch.leftovers() == {}
    assert not (orch.home / "cache" / "readiness.json").exists(), "what was not answered is not remembered"


def test_a_login_check_that_hangs_says_nothing_of_the_others(orch, fake):
    fake("claude")
    fake("codex")
    orch.configure({"order": ["claude", "codex"], "agents": {"claude": {"login_check": ["sleep", "40"]}, "codex": {"login_check": ["false"]}}})
    rows = {row["agent"]: row["logged_in"] for row in orch("agents", "--json", timeout=60).json}
    assert (rows["claude"], rows["codex"]) == (None, False)


def test_an_interrupt_does_not_wait_for_what_a_login_check_left_behind(orch, fake):
    fake("codex")
    orch.configure({"agents": {"codex": {"login_check": ["sh", "-c", "setsid sleep 30 & sleep 30"]}}})
    process = orch.start("agents")
    wait_until(lambda: sum("sleep" in words for words in orch.leftovers().values()) >= 2, what="the login check")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=15) == -signal.SIGINT
    orch.stop_leftovers()                              # whoever leaves the group of a check is left alone


def test_a_role_whose_agent_is_disabled_is_refused_before_anything_starts(orch, fake):
    orch.configure({"agents": {"codex": {"enabled": False}}, "roles": {"p": {"prompt": "x", "agent": "codex"}}})
    fake("codex")
    result = orch("--no-failover", "--role", "p", "hi")
    assert (result.code, fake.calls) == (2, []) and "codex" in result.err and "install" not in result.err, result


@pytest.mark.parametrize("command", ["agents", "init"])
def test_an_interrupted_command_leaves_no_login_check(orch, fake, command):
    fake("codex")                                      # the built-in check is the fake's own
    program = orch.base / "slow" / "codex"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 19.5\n")
    program.chmod(0o755)
    process = orch.start(command, env={"PATH": f"{program.parent}:{orch.env['PATH']}"})
    wait_until(lambda: any("sleep" in words for words in orch.leftovers().values()), what="the login check")
    process.send_signal(signal.SIGINT)
    assert (process.communicate(timeout=30)[0], process.returncode) == (b"", -signal.SIGINT)
    assert orch.leftovers() == {} and not (orch.home / "config.json").exists()


def test_a_login_check_is_believed_for_a_minute(orch, fake):
    orch.configure(ART)
    fake("codex", codex_ok(), codex_ok())
    orch("--role", "artist", "a cat")
    orch("--role", "artist", "a dog")
    assert fake.login_checks == ["codex"]
    path = orch.home / "cache" / "readiness.json"
    cached = json.loads(path.read_text())
    cached["codex"]["at"] -= 61
    path.write_text(json.dumps(cached))
    fake("codex", codex_ok())
    orch("--role", "artist", "a cow")
    assert fake.login_checks == ["codex"] * 2


def test_who_has_logged_in_since_is_ready_at_once(orch, fake):
    orch.configure(ART)
    fake("codex", codex_ok())
    fake.log_out("codex")
    assert orch("--role", "artist", "a cat").code == 77
    fake.log_in("codex")
    assert orch("--role", "artist", "a cat").code == 0


def test_an_artist_that_is_free_is_taken_before_one_to_wait_for(orch, fake):
    orch.configure({**ART, "agents": {"claude": {"capabilities": ["image"]}, **ART["agents"]}})
    fake("claude")
    fake("codex", codex_ok())
    orch("cooldown", "set", "claude", "1h")
    assert orch("--wait", "3s", "--role", "artist", "a cat").code == 0


def test_an_agent_that_says_what_it_can_is_taken_before_one_that_says_nothing(orch, fake):
    orch.configure(ART)
    fake("claude")
    fake("codex", codex_ok())
    assert orch("--role", "artist", "a cat").code == 0 and fake.names == ["codex"]
    orch.configure({**ART, "agents": {}})
    fake("claude", claude_ok())
    assert orch("--role", "artist", "a cat").code == 0 and fake.names == ["codex", "claude"]


def test_orch_agents_shows_readiness(orch, fake):
    orch.configure(ART)
    fake("claude")
    fake("codex")
    fake.log_out("claude")
    rows = {row["agent"]: row for row in orch("agents", "--json").json}
    assert (rows["codex"]["ready"], rows["codex"]["capabilities"]) == (True, ["image"])
    assert (rows["claude"]["ready"], rows["claude"]["capabilities"]) == (False, None)
    assert (rows["codex"]["state"], rows["claude"]["state"]) == ("ready", "not logged in")
    assert rows["gemini"]["ready"] is False
    shown = orch("agents").out
    assert "image" in next(line for line in shown.splitlines() if line.startswith("codex"))
    assert re.search(r"(?m)^claude +not logged in +no ", shown)


# === --auto ==============================================================

AUTO = {"roles": ROLES, "auto": {"enabled": True, "rules": [{"role": "planner", "keywords": ["plan"]},
                                                             {"role": "tester", "keywords": ["tests"], "priority": 2}]}}


def test_auto_picks_roles_and_says_why(orch, fake):
    orch.configure(AUTO)
    fake("claude", claude_ok("1"), claude_ok("2"))
    value = orch("--json", "write the tests, then plan the rest").json
    assert [role["name"] for role in value["roles"]] == ["planner", "tester"]
    assert value["selection"] == {"by": "auto", "roles": ["planner", "tester"], "team": None,
                                  "reasons": ['planner: "plan"', 'tester: "tests"']}


def test_a_question_runs_plainly_and_the_result_says_so(orch, fake):
    orch.configure(AUTO)
    fake("claude", claude_ok("42"))
    result = orch("--json", "what do the tests do?")
    assert result.json["selection"]["reasons"] == ["a question picks no role"]
    assert (result.json["answer"], result.json["run_id"], result.json["roles"]) == ("42", None, None)
    assert fake.call.prompt == b"what do the tests do?" and not (orch.work / ".orch").exists()


def test_what_comes_from_standard_input_picks_no_role(orch, fake):
    orch.configure(AUTO)
    fake("claude", claude_ok(), claude_ok())
    assert names(orch("--json", "write tests", "-", input="the plan of what is built")) == [("tester", "ok")]
    assert names(orch("--json", "-", input="write tests")) == [("tester", "ok")]


def test_auto_is_asked_for_or_switched_off(orch, fake):
    orch.configure({**AUTO, "auto": {**AUTO["auto"], "enabled": False}})
    fake("claude", claude_ok(), claude_ok(), claude_ok())
    assert "selection" not in orch("--json", "write tests").json
    assert names(orch("--json", "--auto", "write tests")) == [("tester", "ok")]
    orch.configure(AUTO)
    assert "selection" not in orch("--json", "--no-auto", "write tests").json


def test_a_role_asked_for_by_name_beats_auto(orch, fake):
    orch.configure(AUTO)
    fake("claude", claude_ok())
    assert names(orch("--json", "--role", "planner", "write tests")) == [("planner", "ok")]


# === FILES ===============================================================

def test_artifacts_are_the_owners_alone_and_git_does_not_see_them(team, fake, repo):
    fake("claude", claude_ok("1"))
    old = os.umask(0)
    try:
        team("--role", "planner", "make it")
    finally:
        os.umask(old)
    folder = run_folder(team)
    assert (folder.parent / ".gitignore").read_text() == "*\n"
    assert git("status", "--porcelain", cwd=repo) == ""
    assert not any(path.name.endswith(".new") for path in folder.iterdir())
    for path in [folder, *folder.iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_artifacts_lie_at_the_top_of_the_checkout(team, fake, repo):
    (repo / "deep").mkdir()
    fake("claude", claude_ok("1"))
    team("--role", "planner", "make it", cwd=repo / "deep")
    assert run_folder(team).parent == repo / ".orch" / "runs" and not (repo / "deep" / ".orch").exists()


@pytest.mark.parametrize("link", [".orch", ".orch/runs"])
def test_a_link_on_the_way_to_the_artifacts_is_refused(team, fake, link, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    path = team.work / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(outside)
    fake("claude")
    assert "link" in one_line_error(team("--role", "planner", "make it"))
    assert list(outside.iterdir()) == [] and fake.calls == []


def test_nobody_is_told_to_remove_the_home_of_orch(team, fake, tmp_path):
    team.home.rename(tmp_path / "kept")
    team.home.symlink_to(tmp_path / "kept")
    fake("claude")
    error = one_line_error(team("--role", "planner", "make it", cwd=team.user_home))
    assert "another directory" in error and "remove it" not in error


def test_a_link_that_an_agent_puts_there_is_not_followed(team, fake, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    swap = f"import shutil\n(folder,) = [p for p in os.scandir('.orch/runs') if p.is_dir()]\nshutil.rmtree(folder.path)\nos.symlink({str(outside)!r}, folder.path)\n"
    fake("claude", claude_ok("the answer", run=swap), claude_ok("tested"))
    result = team("--json", "--roles", "planner,tester", "make it")
    assert result.code == 0 and "the answer" in result.json["answer"], result
    assert list(outside.iterdir()) == []
    assert any("link" in text for text in result.json["warnings"])


def test_no_room_for_artifacts_costs_a_warning_and_not_the_answer(team, fake):
    (team.work / ".orch").write_text("a file")
    fake("claude", claude_ok("plan\n## Handoff\nuse b.py"), claude_ok("tested"))
    result = team("--json", "--roles", "planner,tester", "make it")
    assert result.code == 0 and "tested" in result.json["answer"]
    assert [role["artifact"] for role in result.json["roles"]] == [None, None]
    assert len(result.json["warnings"]) == 1 and ".orch" in result.json["warnings"][0]
    assert "use b.py" in prompts(fake)["tester"]


@not_root
def test_a_checkout_that_may_not_be_written_costs_a_warning(team, fake):
    team.work.chmod(0o500)
    fake("claude", claude_ok("42"))
    result = team("--role", "planner", "make it")
    team.work.chmod(0o700)
    assert result.out == "42\n" and "not kept" in result.err


def test_a_home_that_cannot_be_written_is_told_once(team, fake, tmp_path):
    home = tmp_path / "file"
    home.write_text("x")
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"roles": ROLES}))
    fake("claude", claude_ok("1"), claude_ok("2"))
    result = team("--json", "--config", str(config), "--roles", "planner,tester", "make it", env={"ORCH_HOME": str(home)})
    assert result.code == 0 and len(result.json["warnings"]) == 1, result


def test_a_plain_run_creates_no_orch_folder(team, fake, repo):
    fake("claude", claude_ok("42"))
    value = team("--json", "hi").json
    assert not (repo / ".orch").exists()
    assert not {"run_id", "roles", "assets", "selection"} & set(value)


def test_two_teams_at_once_in_one_project(team, fake):
    meet = "open('up-%d' % os.getpid(), 'w').close()\n" + until("len(glob.glob('up-*')) >= 2")
    fake("claude", claude_ok("1", run=meet), claude_ok("2", run=meet))
    runs = [team.start("--json", "--role", "planner", "make it") for _ in range(2)]
    values = [json.loads(run.communicate(timeout=60)[0]) for run in runs]
    assert [(value["status"], value["warnings"]) for value in values] == [("ok", []), ("ok", [])]
    assert len({value["run_id"] for value in values}) == 2
    assert len(team("runs", "--json").json) == 2


# === --dry-run ===========================================================

def test_a_dry_run_prints_the_plan_and_starts_nothing(team, fake, repo):
    fake("claude")
    fake("codex")
    before = sorted(repo.rglob("*"))
    result = team("-n", "--team", "review", "-m", "some-model", "make it")
    rows = [line.split() for line in result.out.splitlines()]
    assert rows[0][1:5] == ["builder,", "reviewer,", "critic,", "tester"]
    assert [row[:3] for row in rows[2:6]] == [["1", "builder", "codex"], ["2", "reviewer", "claude"], ["2", "critic", "codex"], ["3", "tester", "claude"]]
    assert [row[5] for row in rows[2:6]] == ["edit", "read", "read", "edit"]
    assert rows[3][3] == "some-model" and "login not checked" in result.out
    assert fake.calls == fake.login_checks == []
    assert sorted(repo.rglob("*")) == before and not (team.home / "state.json").exists()


def test_a_dry_run_tells_once_that_the_state_is_not_used(team, fake):
    fake("claude")
    fake("codex")
    (team.home / "state.json").write_text("{")
    assert len(team("-n", "--team", "review", "make it").notices) == 1


def test_a_dry_run_in_json_has_the_argument_lists(team, fake):
    fake("claude", claude_ok())
    value = team("-n", "--json", "--role", "planner", "make it").json
    team("--role", "planner", "make it")
    assert value["roles"][0]["candidates"][0]["argv"][1:] == fake.call.argv
    assert value["selection"]["by"] == "role"


def test_a_dry_run_of_auto_says_why_there_is_no_role(orch, fake):
    orch.configure(AUTO)
    fake("claude")
    assert orch("-n", "what do the tests do?").out.startswith("roles: none (a question picks no role)\nroute: claude")


# === TRUST ===============================================================

def test_a_checkouts_team_is_made_of_the_users_roles_alone(team, fake, repo):
    team.configure({"teams": {"mine": ["planner"], "evil": ["planner", "stranger"], "full": ["+", "planner"], "pair": ["+", "tester"]},
                    "roles": {"stranger": {"prompt": "be evil"}}},
                   repo / ".orch" / "config.json")
    fake("claude", claude_ok("42"), claude_ok("43"))
    result = team("--team", "mine", "hi")
    assert (result.code, result.out) == (0, "42\n"), result
    refused = [line.split('"')[1] for line in result.notices if "trusted_projects" in line]
    assert sorted(refused) == ["roles", "teams.evil", "teams.full", "teams.pair"]
    assert len(team("-n", "--json", "--team", "pair", "x").json["roles"]) == 2
    assert '"evil"' in one_line_error_of(team("--team", "evil", "hi"))
    assert team("hi").out == "43\n"


def one_line_error_of(result):
    """The last line of a refusal; warnings may stand before it."""
    assert (result.code, result.out) == (2, ""), result
    return result.notices[-1]


# === FROM PYTHON =========================================================

def test_the_library_runs_roles_too(team, fake, monkeypatch):
    fake("claude", *[claude_ok("42")] * 6)
    monkeypatch.setattr(os, "environ", {**os.environ, **team.env})
    results = []
    threads = [threading.Thread(target=lambda: results.append(core.run("hi", cwd=str(team.work), roles=("planner", "tester")))) for _ in range(3)]
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self") else 0
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [result.status for result in results] == ["ok"] * 3
    assert len({result.run_id for result in results}) == 3
    assert [role["name"] for role in results[0].roles] == ["planner", "tester"]
    assert not before or len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(core.OrchError, match="planner"):
        core.run("hi", cwd=str(team.work), role="planer")


def test_the_library_runs_readers_at_once_and_leaves_no_thread(team, fake, monkeypatch):
    fake("claude", claude_ok("1", run=until("glob.glob('.orch/runs/*/critic.md')")))
    fake("codex", codex_ok("2"))
    monkeypatch.setattr(os, "environ", {**os.environ, **team.env})
    before = threading.active_count()
    assert core.run("hi", cwd=str(team.work), team="pair").status == "ok"
    assert threading.active_count() == before


def test_who_listens_to_a_team_hears_one_event_at_a_time():
    inside, together = [], []

    def listen(_kind, /, **_fields):
        inside.append(1)
        time.sleep(0.001)
        together.append(len(inside))
        inside.pop()
    stop = core.Stop()
    stop.on_tick = lambda: listen("tick")
    world = core.one_at_a_time(core.make_world({}, "/", stop, listen))
    threads = [threading.Thread(target=lambda: [(world.emit("text"), stop.on_tick()) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.close()
    assert together == [1] * 160


def test_an_agent_that_orch_started_starts_no_team(team, fake):
    fake("claude")
    assert "ORCH_DEPTH" in one_line_error(team("--role", "planner", "x", env={"ORCH_DEPTH": "1"}))


def test_nobody_logged_in_is_77_and_nobody_installed_127(team, fake):
    fake("claude", claude_auth())
    fake("codex", codex_auth())
    assert team("--role", "planner", "x").code == 77
    for name in ("claude", "codex"):
        (team.agents / name).unlink()
    assert team("--role", "planner", "x").code == 127
