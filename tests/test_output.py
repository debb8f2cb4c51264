"""What a run prints: the answer alone on standard output, everything else on standard error."""
from __future__ import annotations

import os
import time

import pytest
from conftest import (
    claude_error,
    claude_failed,
    claude_limit,
    claude_ok,
    codex_ok,
    epoch_of,
    read_terminal,
    step,
)

RESULT_KEYS = {"status", "agent", "model", "answer", "error", "error_class", "exit_code", "task_id", "cwd", "route", "context",
               "attempts", "changed_files", "usage", "cost_usd", "duration_ms", "retry_at", "warnings"}
ATTEMPT_KEYS = {"agent", "model", "effort", "outcome", "error_class", "error", "exit_code", "signal", "duration_ms", "usage",
                "cost_usd", "session_id", "retry_at"}


@pytest.mark.parametrize("answer", ["42", "42\n", "two\n\nlines", "  indented", "ünï ✓ 🎉", "{\"a\": 1}", "ends in spaces  "])
def test_the_answer_stands_alone_on_stdout_and_ends_in_one_newline(orch, fake, answer):
    fake("claude", claude_ok(answer))
    result = orch("what?")
    assert result.code == 0, result
    assert result.out == answer.rstrip("\n") + "\n"


def test_a_run_that_needs_nothing_said_says_nothing(orch, fake):
    fake("claude", claude_ok("42"))
    assert orch("what?").err == ""


def test_after_a_failed_first_attempt_only_the_second_answer_is_printed(orch, fake):
    fake("claude", claude_failed("I had begun to say something", before=[
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "PARTIAL"}]}}], status=529))
    fake("codex", codex_ok("whole"))
    result = orch("what?")
    assert (result.code, result.out) == (0, "whole\n"), result
    assert result.notices


def test_a_failure_prints_nothing_on_stdout(orch, fake):
    fake("claude", claude_error())
    result = orch("--no-failover", "what?")
    assert (result.code, result.out) == (1, ""), result
    assert result.notices


def test_an_answer_from_a_text_agent_is_printed_once(orch, fake):
    orch.configure({"order": ["mine"], "agents": {"mine": {"command": ["mine"], "output": "text"}}})
    fake("mine", step(stdout="first\nsecond\n", stderr="chatter\n"))
    result = orch("what?")
    assert (result.code, result.out) == (0, "first\nsecond\n"), result


def test_quiet_prints_no_notices(orch, fake):
    fake("claude", claude_limit(time.time() + 7200))
    fake("codex", codex_ok("whole"))
    result = orch("-q", "what?")
    assert (result.out, result.err) == ("whole\n", ""), result


@pytest.mark.parametrize("name", ["LC_ALL", "LANG"])
def test_the_answer_survives_the_c_locale(orch, fake, name):
    fake("claude", claude_ok("ünï ✓ 🎉"))
    result = orch("what?", env={"LANG": None, name: "C"})
    assert result.out_bytes == "ünï ✓ 🎉\n".encode(), result


def test_control_characters_of_an_agent_never_reach_a_notice(orch, fake):
    fake("claude", claude_failed("boom \x1b[31mred\x1b]0;title\x07 \r over\nnext", status=529))
    result = orch("--no-failover", "what?")
    assert result.code == 1, result
    assert all(ord(char) >= 32 or char == "\n" for char in result.err), result
    assert result.notices


def test_json_is_one_object_with_exactly_the_documented_keys(orch, fake):
    fake("claude", claude_ok("42", cost_usd=0.25))
    result = orch("--json", "what?").json
    assert set(result) == RESULT_KEYS
    assert set(result["attempts"][0]) == ATTEMPT_KEYS
    assert set(result["route"]) == {"agent", "reason", "rule"}
    assert (result["status"], result["agent"], result["answer"], result["exit_code"]) == ("ok", "claude", "42", 0)
    assert (result["error"], result["error_class"], result["retry_at"], result["context"]) == (None,) * 4
    assert result["cwd"] == str(orch.work)
    assert result["cost_usd"] == 0.25
    assert result["warnings"] == []


def test_json_gives_null_for_what_is_not_known(orch, fake):
    orch.configure({"order": ["mine"], "agents": {"mine": {"command": ["mine"], "output": "text"}}})
    fake("mine", step(stdout="42\n"))
    result = orch("--json", "what?").json
    attempt = result["attempts"][0]
    assert (result["model"], result["cost_usd"], result["usage"], result["changed_files"]) == (None,) * 4
    assert [attempt[key] for key in ("model", "effort", "error", "signal", "usage", "cost_usd", "session_id")] == [None] * 7


def test_tokens_of_caches_are_counted_apart(orch, fake):
    fake("claude", claude_ok(input_tokens=11, cache_creation=22, cache_read=33, output_tokens=44))
    fake("codex", codex_ok(input_tokens=1100, cached=600, output_tokens=70))
    claude, codex = orch("--json", "x").json["usage"], orch("--json", "-a", "codex", "x").json["usage"]
    assert claude | {"input_tokens": 33, "output_tokens": 44, "cache_read_tokens": 33} == claude
    assert codex | {"input_tokens": 500, "output_tokens": 70, "cache_read_tokens": 600} == codex


def test_json_sums_up_two_attempts(orch, fake):
    fake("claude", claude_limit(time.time() + 7200))
    fake("codex", codex_ok("whole"))
    result = orch("--json", "what?").json
    assert [(one["agent"], one["outcome"], one["exit_code"]) for one in result["attempts"]] == [
        ("claude", "limited", 1), ("codex", "ok", 0)]
    assert result["attempts"][0]["retry_at"].endswith("Z")
    assert result["attempts"][0]["error_class"] == "usage_limit"
    assert (result["agent"], result["answer"], result["status"]) == ("codex", "whole", "ok")
    assert result["route"]["agent"] == "claude"


def test_json_of_a_failure_has_the_error_and_no_answer(orch, fake):
    fake("claude", claude_error())
    result = orch("--json", "--no-failover", "what?")
    value = result.json
    assert result.code == value["exit_code"] == 1
    assert (value["status"], value["answer"], value["error_class"]) == ("failed", None, "overloaded")
    assert "529" in value["error"]


def test_events_are_json_lines_and_the_last_is_the_result(orch, fake):
    fake("claude", claude_limit(time.time() + 7200))
    fake("codex", codex_ok("whole"))
    result = orch("--events", "what?")
    events = result.events
    kinds = [event["type"] for event in events]
    assert kinds[0] == "start" and kinds[-1] == "result", kinds
    assert kinds.count("result") == 1
    wanted = ["start", "route", "attempt_start", "attempt_end", "handoff", "attempt_start", "attempt_end", "result"]
    rest = iter(kinds)
    assert all(kind in rest for kind in wanted), kinds
    assert kinds.index("attempt_start") < kinds.index("cooldown") < kinds.index("handoff")
    assert set(events[-1]) == RESULT_KEYS | {"type", "at"}
    assert events[-1]["answer"] == "whole"
    assert len({event["task_id"] for event in events}) == 1
    times = [epoch_of(event["at"]) for event in events]
    assert times == sorted(times)
    known = {"start", "route", "attempt_start", "activity", "text", "attempt_end", "cooldown", "handoff", "warning", "result"}
    assert set(kinds) <= known


def test_events_come_while_the_agent_runs(orch, fake):
    fake("claude", claude_ok("42", run="time.sleep(1.5)"))
    process = orch.start("--events", "what?")
    begun = time.monotonic()
    process.stdout.readline()
    assert time.monotonic() - begun < 1.2
    process.communicate(timeout=20)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["status", "--help"], ["run", "--help"]])
def test_version_and_help_go_to_stdout(orch, arguments):
    result = orch(*arguments)
    assert result.code == 0, result
    assert result.out.strip() and result.err == ""
    assert not orch.home.exists()


def test_a_dumb_terminal_gets_no_escape_codes(orch, fake):
    import pty
    fake("claude", claude_ok("42", delay=0.5))
    leader, follower = pty.openpty()
    process = orch.start("what?", stderr=follower, env={"TERM": "dumb"})
    os.close(follower)
    out, _ = process.communicate(timeout=20)
    assert out == b"42\n"
    assert b"\x1b" not in read_terminal(leader)


@pytest.mark.parametrize("options", [[], ["-p"]])
def test_quiet_says_nothing_of_standard_input(orch, fake, options):
    fake("claude", claude_ok("42"), claude_ok("42"))
    reader, writer = os.pipe()
    try:
        if not options:
            os.write(writer, b"data that nobody asked for")
        quiet = orch("-q", *options, "hi", stdin=reader)
        loud = orch(*options, "hi", stdin=reader)
    finally:
        os.close(writer)
        os.close(reader)
    assert (quiet.code, quiet.out, quiet.err) == (0, "42\n", ""), quiet
    assert len(loud.notices) == 1, loud


def test_json_names_the_directory_as_it_is(orch, fake):
    folder = orch.work / "two  blanks\nand a line"
    folder.mkdir()
    fake("claude", claude_ok("42"))
    assert orch("--json", "hi", cwd=folder).json["cwd"] == str(folder)
    assert orch.state()["jobs"][0]["cwd"] == orch.ledger()[0]["project"] == str(folder)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["status"], ["usage", "--json"]])
def test_a_closed_pipe_ends_a_command_quietly(orch, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = orch(*arguments, stdout=writer)
    finally:
        os.close(writer)
    assert (result.code, result.err) == (-13, ""), result


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["status"]])
def test_a_full_disk_under_standard_output_is_told_in_one_line(orch, arguments):
    with open("/dev/full", "wb") as full:
        result = orch(*arguments, stdout=full)
    assert (result.code, len(result.notices)) == (1, 1), result
