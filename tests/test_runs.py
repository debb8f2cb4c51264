"""`orch runs`: what is kept of a project's runs with roles, and going on with one that was stopped."""
from __future__ import annotations

import functools
import json
import operator
import os
import pty
import random
import re
import signal
import subprocess
import time

import pytest
from conftest import (
    claude_error,
    claude_ok,
    codex_ok,
    codex_overloaded,
    git,
    needs_proc,
    one_line_error,
    wait_until,
)

ROLES = {"planner": {"prompt": "You plan."}, "builder": {"prompt": "You build.", "agent": "codex"},
         "reviewer": {"prompt": "You review.", "writes": False}, "critic": {"prompt": "You criticise.", "writes": False, "agent": "codex"},
         "tester": {"prompt": "You test."}}
STAY = "open('up-%d' % os.getpid(), 'w').close()\ntime.sleep(60)\n"


@pytest.fixture
def team(orch):
    """orch with roles in its config."""
    orch.configure({"roles": ROLES})
    return orch


def stopped_run(team, fake):
    """A run whose builder failed after its planner had finished; its id."""
    fake("claude", claude_ok("the plan\n## Handoff\nuse b.py"))
    fake("codex", codex_ok("x", exit=3))
    return team("--json", "--no-failover", "--roles", "planner,builder,tester", "make it").json["run_id"]


def roles_of(fake):
    """The roles that ran, in order."""
    return [call.env["ORCH_ROLE"] for call in fake.calls]


# === SHOWN ===============================================================

def test_runs_are_listed_with_status_age_roles_and_files(team, fake):
    run_id = stopped_run(team, fake)
    fake("claude", claude_ok("1"))
    team("--role", "planner", "second thoughts")
    shown = team("runs").out.splitlines()
    assert shown[0].split() == ["id", "when", "status", "roles", "files", "prompt"]
    assert "second thoughts" in shown[1] and " ago " in shown[1] and " ok " in shown[1]
    assert shown[2].startswith(run_id) and "failed" in shown[2] and "planner, builder failed, tester skipped" in shown[2]
    values = team("runs", "--json").json
    assert [value["status"] for value in values] == ["ok", "failed"]
    assert values[1]["id"] == run_id and values[1]["roles"][0]["artifact"].endswith("/planner.md")
    assert not os.path.exists(team.work / "runs")


def test_runs_of_the_same_second_are_listed_in_order_too(team, fake):
    fake("claude", *[claude_ok("1")] * 8)
    ids = [team("--json", "--role", "planner", str(n)).json["run_id"] for n in range(8)]
    assert [value["id"] for value in team("runs", "--json").json] == ids[::-1]


def test_one_run_is_shown_by_the_beginning_of_its_id(team, fake):
    run_id = stopped_run(team, fake)
    shown = team("runs", run_id[:10]).out
    assert shown.startswith(f"{run_id}: failed, ") and f".orch/runs/{run_id}/planner.md" in shown
    assert team("runs", run_id, "--json").json["roles"][1]["status"] == "failed"
    assert "more than one" not in shown
    assert "no run" in one_line_error(team("runs", "nope"))
    fake("claude", claude_ok("1"))
    team("--role", "planner", "again")
    assert "more than one run" in one_line_error(team("runs", "2"))


def test_what_a_role_said_is_printed(team, fake):
    run_id = stopped_run(team, fake)
    assert team("runs", run_id, "planner").out == "the plan\n## Handoff\nuse b.py\n"
    assert team("runs", run_id, "planner", "--json").json == {
        "id": run_id, "role": "planner", "finished": True, "answer": "the plan\n## Handoff\nuse b.py\n"}
    result = team("runs", run_id, "builder")
    assert (result.out, "failed" in result.err) == ("x\n", True), result
    assert "said nothing" in one_line_error(team("runs", run_id, "tester"))
    assert 'did you mean "planner"?' in one_line_error(team("runs", run_id, "planer"))
    assert "orch run" in one_line_error(team("runs", "of", "the", "river"))


def test_control_characters_are_kept_out_of_a_terminal_only(team, fake):
    fake("claude", claude_ok("\x1b[31mred\x07"))
    run_id = team("--json", "--role", "planner", "\x1b]0;evil\x07 make it").json["run_id"]
    assert team("runs", run_id, "planner").out == "\x1b[31mred\x07\n"
    master, slave = pty.openpty()
    process = team.start("runs", run_id, "planner", stdout=slave, stderr=subprocess.DEVNULL)
    os.close(slave)
    process.wait(60)
    shown = os.read(master, 1000)
    os.close(master)
    assert shown.rstrip() == b"red"
    assert "\x1b" not in team("runs").out + team("runs", run_id).out


def test_no_runs_is_no_error(team):
    assert team("runs").out == "no runs with roles in this project yet\n"
    assert team("runs", "--json").json == []
    assert not (team.work / ".orch").exists()


def test_what_lies_among_the_runs_and_is_none_is_passed_over(team, fake, tmp_path):
    fake("claude", claude_ok("1"))
    run_id = team("--json", "--role", "planner", "x").json["run_id"]
    runs = team.work / ".orch" / "runs"
    (runs / "notes.txt").write_text("x")
    (runs / "20200101T000000-aaaaaaaa").mkdir()
    (runs / "20200101T000000-bbbbbbbb").mkdir()
    (runs / "20200101T000000-bbbbbbbb" / "run.json").write_text('{"version": 1, "roles": [{"name": "../../x"}]}')
    os.mkfifo(runs / "20200101T000000-aaaaaaaa" / "run.json")
    result = team("runs", "--json")
    assert [value["id"] for value in result.json] == [run_id], result


def test_a_run_file_that_lacks_a_key_is_shown_or_passed_over(team, fake):
    run_id = stopped_run(team, fake)
    path = team.work / ".orch" / "runs" / run_id / "run.json"
    whole = path.read_text()
    for place in ((), ("options",), ("selection",), ("roles", 0)):
        for key in [*functools.reduce(operator.getitem, place, json.loads(whole))]:
            record = json.loads(whole)
            del functools.reduce(operator.getitem, place, record)[key]
            path.write_text(json.dumps(record))
            for result in (team("runs", run_id), team("runs")):
                assert result.code in (0, 2) and "Traceback" not in result.err, (place, key, result)
                assert place != ("roles", 0) or key in ("name", "status") or result.code == 0, (key, result)


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
@pytest.mark.parametrize("place", [("cwd",), ("options", "model"), ("options", "context"), ("roles", 0, "agent")])
def test_a_run_file_with_what_no_program_can_be_given_is_none(team, fake, place, text):
    run_id = stopped_run(team, fake)
    path = team.work / ".orch" / "runs" / run_id / "run.json"
    record = json.loads(path.read_text())
    functools.reduce(operator.getitem, place[:-1], record)[place[-1]] = text
    path.write_text(json.dumps(record))
    assert "no run" in one_line_error(team("runs", "resume", run_id))


def test_an_answer_that_is_a_link_is_not_read(team, fake, tmp_path):
    (tmp_path / "secret").write_text("key")
    fake("claude", claude_ok("1"))
    run_id = team("--json", "--role", "planner", "x").json["run_id"]
    path = team.work / ".orch" / "runs" / run_id / "planner.md"
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    result = team("runs", run_id, "planner")
    assert result.code == 2 and "key" not in result.out + result.err


def test_a_linked_folder_of_runs_is_refused(team, tmp_path):
    (tmp_path / "outside").mkdir()
    (team.work / ".orch").symlink_to(tmp_path / "outside")
    assert "link" in one_line_error(team("runs"))


def test_a_link_among_the_runs_is_passed_over(team, fake, tmp_path):
    fake("claude", claude_ok("1"))
    run_id = team("--json", "--role", "planner", "x").json["run_id"]
    (team.work / ".orch" / "runs" / "0").symlink_to(team.work / ".orch" / "runs" / run_id)
    result = team("runs", "--json")
    assert [value["id"] for value in result.json] == [run_id], result


# === GOING ON ============================================================

def test_a_run_goes_on_with_the_roles_that_have_no_answer(team, fake):
    run_id = stopped_run(team, fake)
    fake("codex", codex_ok("built\n## Handoff\nsee c.py"))
    fake("claude", claude_ok("tested"))
    result = team("runs", "resume", run_id[:-4], "--json")
    value = result.json
    assert (result.code, value["run_id"], value["status"]) == (0, run_id, "ok"), result
    assert roles_of(fake) == ["planner", "builder", "builder", "tester"]
    told = {call.env["ORCH_ROLE"]: call.prompt.decode() for call in fake.calls[2:]}
    assert "use b.py" in told["builder"] and "make it" in told["builder"]
    assert "use b.py" in told["tester"] and "see c.py" in told["tester"]
    assert [role["status"] for role in value["roles"]] == ["ok"] * 3
    assert value["answer"].index("the plan") < value["answer"].index("built") < value["answer"].index("tested")
    assert len(value["attempts"]) == 2
    assert [(job["id"], job["status"]) for job in team.state()["jobs"]] == [(run_id, "ok")]
    assert {line["task_id"] for line in team.ledger()} == {run_id}
    ids = [call.env["ORCH_ATTEMPT_ID"] for call in fake.calls]
    assert len(set(ids)) == 4, ids
    assert team("runs", "--json").json[0]["status"] == "ok"
    assert "has finished" in one_line_error(team("runs", "resume", run_id))


def test_going_on_happens_where_the_run_was_started(team, fake):
    git("init", "-q", cwd=team.work)
    (team.work / "deep").mkdir()
    fake("claude", claude_error(), claude_ok("1"))
    team("--no-failover", "--role", "planner", "x", cwd=team.work / "deep")
    (value,) = team("runs", "--json").json
    assert team("runs", "resume", value["id"]).code == 0
    assert fake.calls[1].cwd == str(team.work / "deep")
    path = team.work / ".orch" / "runs" / value["id"] / "run.json"
    (path.parent / "planner.md").unlink()
    path.write_text(json.dumps({**json.loads(path.read_text()), "cwd": "/etc", "status": "failed"}))
    fake("claude", claude_ok("1"))
    assert team("runs", "resume", value["id"]).code == 0
    assert fake.calls[2].cwd == str(team.work)


def test_who_reads_is_told_what_was_changed_before_the_run_was_stopped(team, fake, repo):
    fake("codex", codex_ok("half", exit=3, write={str(repo / "half.txt"): "half of it\n"}))
    args = ("--no-failover", "--roles", "builder,reviewer,tester", "make it")
    run_id = re.search("resume ([^`]+)", team(*args).err)[1]
    fake("codex", codex_ok("built", write={str(repo / "new.txt"): "the rest\n", str(repo / "half.txt"): "half of it\nmore\n"}))
    fake("claude", claude_error())
    shown = team("runs", "resume", run_id, "--json").json
    assert shown["changed_files"] == ["half.txt", "new.txt"]
    fake("claude", claude_ok("fine"), claude_ok("tested"))
    result = team("runs", "resume", run_id, "--json")
    assert result.json["changed_files"] == ["half.txt", "new.txt"], result
    told = {call.env["ORCH_ROLE"]: call.prompt.decode() for call in fake.calls[3:]}
    assert all(f"+{line}\n" in told["reviewer"] for line in ("half of it", "more", "the rest"))
    assert "- added: half.txt\n- added: new.txt\n" in told["tester"] and "+the rest" not in told["tester"]
    kept = team.work / ".orch" / "runs" / run_id / "changes.json"
    assert kept.stat().st_mode & 0o777 == 0o600


def test_going_on_reads_the_config_that_is_named_from_where_it_is_named(team, fake):
    git("init", "-q", cwd=team.work)
    (team.work / "deep").mkdir()
    fake("claude", claude_error())
    fake("codex", codex_ok("42"))
    run_id = team("--json", "--no-failover", "--role", "planner", "x", cwd=team.work / "deep").json["run_id"]
    team.configure({"roles": {"planner": {"agent": "codex"}}}, team.work / "c.json")
    result = team("runs", "resume", run_id, "--config", "c.json")
    assert (result.code, result.out, fake.calls[1].cwd) == (0, "42\n", str(team.work / "deep")), result


def test_going_on_outside_a_checkout_leaves_the_directory_for_nobody(team, fake):
    run_id = stopped_run(team, fake)
    path = team.work / ".orch" / "runs" / run_id / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "cwd": "/etc"}))
    fake("codex", codex_ok())
    fake("claude", claude_ok())
    assert team("runs", "resume", run_id).code == 0
    assert {call.cwd for call in fake.calls} == {str(team.work)}


def test_an_answer_that_is_a_link_is_handed_to_nobody(team, fake, tmp_path):
    run_id = stopped_run(team, fake)
    (tmp_path / "secret").write_text("the key of the house")
    path = team.work / ".orch" / "runs" / run_id / "planner.md"
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    fake("codex", codex_ok())
    fake("claude", claude_ok("planned anew"), claude_ok())
    assert team("runs", "resume", run_id).code == 0
    assert roles_of(fake)[2:] == ["planner", "builder", "tester"]
    assert not any(b"the key" in call.prompt for call in fake.calls)
    assert path.read_text() == "planned anew\n" and (tmp_path / "secret").read_text() == "the key of the house"


def test_going_on_keeps_the_options_and_takes_new_ones(team, fake):
    fake("claude", claude_error())
    run_id = team("--json", "--no-failover", "--roles", "planner,tester", "-m", "some-model", "--access", "read", "make it").json["run_id"]
    fake("claude", claude_error())
    team("runs", "resume", run_id)
    assert "some-model" in fake.calls[-1].argv and len(fake.calls) == 2          # and still no failover
    fake("claude", claude_ok("1"), claude_ok("2"))
    team("runs", "resume", run_id, "-m", "other-model")
    assert "other-model" in fake.calls[-1].argv


def test_going_on_may_take_a_complexity_and_failover_again(team, fake):
    team.configure({"roles": ROLES, "model_map": {"simple": {"claude": "small-model", "codex": "tiny-model"}}})
    run_id = stopped_run(team, fake)
    fake("codex", codex_overloaded())
    fake("claude", claude_ok("built"), claude_ok("tested"))
    assert team("runs", "resume", run_id, "-x", "simple", "--failover").code == 0
    assert fake.names[2:] == ["codex", "claude", "claude"]
    assert "tiny-model" in fake.calls[2].argv and "small-model" in fake.calls[4].argv


def test_going_on_does_not_widen_the_access_by_a_file_in_the_project(team, fake):
    run_id = stopped_run(team, fake)
    path = team.work / ".orch" / "runs" / run_id / "run.json"
    record = json.loads(path.read_text())
    record["options"]["access"] = "full"
    path.write_text(json.dumps(record))
    fake("codex", codex_ok())
    fake("claude", claude_ok())
    result = team("runs", "resume", run_id)
    assert "--access" in result.err and "workspace-write" in " ".join(fake.calls[2].argv)


def test_a_role_that_the_config_has_no_longer_is_an_error(team, fake):
    run_id = stopped_run(team, fake)
    team.configure({"roles": {"planner": {}, "tester": {}}})
    assert 'unknown role "builder"' in one_line_error(team("runs", "resume", run_id))


@needs_proc
def test_a_killed_run_is_cleared_up_and_goes_on(team, fake):
    fake("claude", claude_ok("the plan"), claude_ok("tested"))
    fake("codex", codex_ok("", run=STAY), codex_ok("built"))
    process = team.start("--roles", "planner,builder,tester", "make it")
    wait_until(lambda: list(team.work.glob("up-*")), 30, "the builder at work")
    process.kill()
    process.communicate()
    (shown,) = team("runs", "--json").json
    assert [shown["status"], *(role["status"] for role in shown["roles"])] == ["interrupted", "ok", "interrupted", "skipped"]
    run_id = shown["id"]
    result = team("runs", "resume", run_id, "--json")
    assert (result.code, result.json["run_id"]) == (0, run_id), result
    assert roles_of(fake) == ["planner", "builder", "builder", "tester"]
    assert any("was killed before it ended; 1 process of it stopped" in text for text in result.json["warnings"])
    assert "goes on with it" not in result.err          # it does already
    assert team.leftovers() == {}
    assert [(line["role"], line["outcome"]) for line in team.ledger()] == [
        ("planner", "ok"), ("builder", "aborted"), ("builder", "ok"), ("tester", "ok")]
    assert [(job["id"], job["status"]) for job in team.state()["jobs"]] == [(run_id, "ok")]
    assert len({call.env["ORCH_ATTEMPT_ID"] for call in fake.calls}) == 4
    assert list((team.home / "cache" / "running").iterdir()) == []


@needs_proc
def test_a_run_that_is_killed_when_it_goes_on_is_recorded_as_aborted(team, fake):
    run_id = stopped_run(team, fake)
    fake("codex", codex_ok("", run=STAY))
    fake("claude", claude_ok("42"))
    process = team.start("runs", "resume", run_id)
    wait_until(lambda: list(team.work.glob("up-*")), 30, "the builder at work")
    process.kill()
    process.communicate()
    assert team("next").out == "42\n"
    jobs = {job["id"]: job["status"] for job in team.state()["jobs"]}
    assert jobs.pop(run_id) == "aborted" and [*jobs.values()] == ["ok"]
    assert team.leftovers() == {}


@needs_proc
def test_a_run_that_is_killed_time_and_again_as_it_goes_on_leaves_nothing_running(team, fake):
    """What an earlier life of it has recorded, within the same second too, is no record of the latest one."""
    run_id = stopped_run(team, fake)
    for life in range(3):
        fake("codex", codex_ok("", run=STAY))
        process = team.start("runs", "resume", run_id)
        wait_until(lambda: len(list(team.work.glob("up-*"))) > life, 30, "the builder at work")  # noqa: B023
        process.kill()
        process.communicate()
        assert len(team.leftovers()) == 1
    fake("claude", claude_ok("42"))
    assert "1 process of it stopped" in team("next").err
    assert team.leftovers() == {}
    assert [(line["role"], line["outcome"]) for line in team.ledger()] == [
        ("planner", "ok"), ("builder", "failed"), *[("builder", "aborted")] * 3, (None, "ok")]
    job, _ = team.state()["jobs"]
    assert (job["id"], job["status"], job["attempts"]) == (run_id, "aborted", 1)
    assert len({call.env["ORCH_ATTEMPT_ID"] for call in fake.calls}) == len(fake.calls)


@needs_proc
def test_a_run_killed_with_two_roles_at_work_is_recorded_once_each(team, fake):
    fake("claude", claude_ok("", run=STAY))
    fake("codex", codex_ok("", run=STAY), codex_ok("42"))
    process = team.start("--roles", "reviewer,critic", "look")
    wait_until(lambda: len(list(team.work.glob("up-*"))) == 2, 30, "both at work")
    assert sorted(row["role"] for row in team("status", "--json").json["running"]) == ["critic", "reviewer"]
    assert " as critic, for " in team("status").out
    process.kill()
    process.communicate()
    result = team("-a", "codex", "next")
    assert result.out == "42\n" and result.err.count("1 process of it stopped") == 2
    assert "orch runs resume" in result.err
    assert sorted((line["role"] or "", line["outcome"]) for line in team.ledger()) == [
        ("", "ok"), ("critic", "aborted"), ("reviewer", "aborted")]
    assert [(job["status"], job["attempts"]) for job in team.state()["jobs"]] == [("aborted", 2), ("ok", 1)]
    assert team.leftovers() == {} and list((team.home / "cache" / "running").iterdir()) == []


@needs_proc
def test_a_run_that_is_still_going_is_not_gone_on_with(team, fake):
    fake("claude", claude_ok("", run=STAY))
    process = team.start("--roles", "planner,tester", "make it")
    wait_until(lambda: list(team.work.glob("up-*")), 30, "the planner at work")
    (value,) = team("runs", "--json").json
    assert [value["status"], *(role["status"] for role in value["roles"])] == ["running", "running", "waiting"]
    assert "still going" in one_line_error(team("runs", "resume", value["id"]))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert team("runs", "--json").json[0]["status"] == "aborted"


def test_an_aborted_batch_goes_on_with_the_one_that_has_not_finished(team, fake):
    fake("claude", claude_ok("", run=STAY), claude_ok("looked"), claude_ok("tested"))
    fake("codex", codex_ok("criticised"))
    process = team.start("--roles", "reviewer,critic,tester", "make it")
    wait_until(lambda: list(team.work.glob("up-*")) and list(team.work.glob(".orch/runs/*/critic.md")), 30, "the critic done")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    run_id = team("runs", "--json").json[0]["id"]
    assert err.endswith(b"orch: `orch runs resume %s` goes on from there\n" % run_id.encode())
    result = team("runs", "resume", run_id, "--json")
    assert result.code == 0 and sorted(roles_of(fake)) == ["critic", "reviewer", "reviewer", "tester"], result
    assert [role["status"] for role in result.json["roles"]] == ["ok"] * 3
    assert "criticised" not in fake.calls[2].prompt.decode()    # of its own batch
    assert "criticised" in fake.calls[3].prompt.decode()


def test_going_on_starts_nothing_inside_an_agent(team, fake):
    run_id = stopped_run(team, fake)
    assert "ORCH_DEPTH" in one_line_error(team("runs", "resume", run_id, env={"ORCH_DEPTH": "1"}))
    assert team("runs", run_id, env={"ORCH_DEPTH": "1"}).code == 0


@needs_proc
def test_a_team_killed_at_any_moment_goes_on_and_counts_every_role_once(team):
    seed = int(os.environ.get("SEED", time.time_ns() % 10 ** 6))
    rng, killed = random.Random(seed), 0
    said = team.base / "said"
    said.write_text(claude_ok("42\n## Handoff\nx")["stdout"])
    for name in ("claude", "codex"):
        (team.agents / name).write_text(f"#!/bin/sh\nsleep 0.05\ncat {said}\n")
        (team.agents / name).chmod(0o755)
    team.configure({"roles": {name: {"prompt": "x", "agent": "claude", "writes": name not in "bc"} for name in "abcd"}})
    began = time.monotonic()
    assert team("--roles", "a,b,c,d", "make it").code == 0
    whole_s = time.monotonic() - began
    for _ in range(60):                                 # those that end too soon on a machine that is free by now are passed over
        if killed == 8:
            break
        process = team.start("--roles", "a,b,c,d", "make it", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(rng.uniform(0.02, whole_s))
        except subprocess.TimeoutExpired:
            killed += 1
        process.kill()
        process.wait()
        listed = team("runs", "--json").json
        if listed[0]["status"] == "ok":
            continue
        run_id = listed[0]["id"]
        result = team("runs", "resume", run_id, "--json")
        assert (result.code, result.json["run_id"]) == (0, run_id), (seed, result)
        assert [(role["name"], role["status"]) for role in result.json["roles"]] == [(name, "ok") for name in "abcd"], (seed, result)
        answered = sorted(line["role"] for line in team.ledger() if line["task_id"] == run_id and line["outcome"] == "ok")
        assert sorted({*answered}) == [*"abcd"] and len(answered) <= 6, (seed, answered)    # two may be between ledger and file
        assert [job["status"] for job in team.state()["jobs"] if job["id"] == run_id] == ["ok"], seed
        assert team.leftovers() == {} and not list((team.home / "cache" / "running").iterdir()), seed
    assert killed == 8, (seed, killed)
