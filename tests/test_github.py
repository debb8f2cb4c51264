"""GitHub Actions: summary, outputs, one annotation; and no text of an agent that commands the runner."""
from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time

import pytest
from conftest import (
    claude_auth,
    claude_error,
    claude_failed,
    claude_limit,
    claude_ok,
    codex_failed,
    codex_limit,
    codex_ok,
    needs_proc,
    step,
)

import orch as program

COMMANDS = {"error", "warning", "notice", "debug", "group", "endgroup", "add-mask", "set-output", "set-env", "add-path",
            "save-state", "echo", "add-matcher", "remove-matcher", "stop-commands"}
TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


class Runner:
    """What GitHub's runner does with a step: its files, and the commands that it reads in the log.

    After ActionCommand.cs and ActionCommandManager.cs of github.com/actions/runner.
    """

    def __init__(self, folder):
        self.summary_path, self.output_path = folder / "summary.md", folder / "output.txt"
        self.env = {"GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_ENV": str(folder / "env"), "GITHUB_PATH": str(folder / "path"),
                    "GITHUB_STATE": str(folder / "state"), "GITHUB_OUTPUT": str(self.output_path),
                    "GITHUB_STEP_SUMMARY": str(self.summary_path)}
        for name in ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
            with open(self.env[name], "w"):
                pass

    @property
    def summary(self):
        return self.summary_path.read_text()

    @property
    def outputs(self):
        """{name: value} of the outputs file, by the runner's rules."""
        found, lines = {}, self.output_path.read_bytes().decode().split("\n")
        while lines:
            line = lines.pop(0)
            name, mark, rest = line.partition("<<")
            if "=" in line.partition("<<")[0] or (line and not mark):
                name, mark, found[name] = line.partition("=")
                assert mark, f"invalid format {line!r}"
            elif line:
                end = lines.index(rest)
                found[name], lines = "\n".join(lines[:end]), lines[end + 1:]
        return found


def commands_in(lines):
    """The commands that the runner would carry out on reading these lines."""
    done, token = [], None
    for line in lines:
        found = re.match(r"[\s\ufeff]*::(\S+?)(?: .*?)?::(.*)", line) or re.search(r"##\[(\S+?)(?: [^\]]*)?\](.*)", line)
        name = found and found[1].lower()
        if token and name == token:
            token = None
        elif name in COMMANDS and not token:
            done.append(line)
            token = found[2] if name == "stop-commands" else None
    assert token is None, "commands stay stopped"
    return [line for line in done if not line.startswith("::stop-commands::")]


@pytest.fixture
def runner(orch, tmp_path):
    """A runner for `orch`, its variables set."""
    folder = tmp_path / "runner"
    folder.mkdir()
    made = Runner(folder)
    orch.env.update(made.env)
    return made


# === SUMMARY AND OUTPUTS =================================================

def test_an_answer_goes_to_summary_and_outputs(orch, fake, runner):
    fake("claude", claude_ok("It **works**.\n\n- one\n- two\n"))
    result = orch("does it?")
    assert (result.code, result.out, result.err) == (0, "It **works**.\n\n- one\n- two\n", "")
    job = orch.state()["jobs"][0]
    assert runner.outputs == {"status": "ok", "agent": "claude", "model": "claude-opus-4-8[1m]", "answer": "It **works**.\n\n- one\n- two",
                              "error": "", "error_class": "", "exit_code": "0", "retry_at": "", "task_id": job["id"]}
    for part in ("### orch: claude answered\n", "| 1 | claude |", "| ok |", "77", "$0.0013", "Route: claude", job["id"],
                 "> It **works**.\n> \n> - one\n> - two\n"):
        assert part in runner.summary, runner.summary


def test_a_failover_shows_both_attempts_their_sum_and_one_warning(orch, fake, runner):
    reset = (time.time() // 3600 + 3) * 3600
    fake("claude", claude_limit(reset))
    fake("codex", codex_ok("done"))
    result = orch("go")
    assert (result.code, result.out) == (0, "done\n")
    assert [line for line in result.err.splitlines() if line.startswith("::")] == [
        "::warning title=orch::" + re.sub("%", "%25", f"claude: {orch.state()['cooldowns']['claude']['reason']}; codex answered")]
    for part in ("| 1 | claude |", "| limited |", "| 2 | codex |", "| all |", "### orch: codex answered"):
        assert part in runner.summary, runner.summary


def test_a_limit_is_a_warning_with_its_end(orch, fake, runner):
    fake("claude", claude_limit((time.time() // 3600 + 3) * 3600))
    fake("codex", codex_limit((time.time() // 3600 + 5) * 3600))
    result = orch("go")
    assert (result.code, result.out) == (75, "")
    outputs = runner.outputs
    assert (outputs["status"], outputs["exit_code"], outputs["answer"]) == ("unavailable", "75", "")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", outputs["retry_at"])
    annotation, = (line for line in result.err.splitlines() if line.startswith("::"))
    assert annotation.startswith("::warning title=orch::")
    assert annotation.endswith(f"(free again at {outputs['retry_at']})")
    assert f"free again at {outputs['retry_at']}" in runner.summary


@pytest.mark.parametrize(("steps", "arguments", "code"), [
    ([claude_error()], ["--no-failover", "go"], 1), ([claude_auth()], ["--no-failover", "go"], 77),
    ([step(run="time.sleep(60)")], ["--no-failover", "-t", "0.2", "go"], 124), ([], ["-a", "nobody", "go"], 2), ([], [" "], 2),
    ([], ["-a", "codex", "--no-failover", "go"], 127),
])
def test_a_failure_is_one_error_and_an_output(orch, fake, runner, steps, arguments, code):
    fake("claude", *steps)
    result = orch(*arguments)
    assert (result.code, result.out) == (code, "")
    assert len([line for line in result.err.splitlines() if line.startswith("::error title=orch::")]) == 1, result
    assert commands_in(result.err.splitlines()) == [line for line in result.err.splitlines() if line.startswith("::")]
    assert runner.outputs["exit_code"] == str(code)
    assert runner.outputs["error"]
    assert runner.summary.startswith("### orch: ")


@pytest.mark.parametrize("arguments", [["--json"], ["--events"], ["-q"]])
def test_other_forms_of_output_go_there_too(orch, fake, runner, arguments):
    fake("claude", claude_ok("yes"))
    assert orch(*arguments, "go").code == 0
    assert runner.outputs["answer"] == "yes"
    assert "> yes\n" in runner.summary


def test_what_stands_in_the_files_stays_and_an_unfinished_line_is_ended(orch, fake, runner):
    runner.output_path.write_text("mine=1")
    runner.summary_path.write_text("# Mine")
    fake("claude", claude_ok("yes"), claude_ok("again"))
    orch("go")
    orch("go")
    assert (runner.outputs["mine"], runner.outputs["answer"]) == ("1", "again")
    assert runner.summary.startswith("# Mine\n### orch: ")
    assert runner.summary.count("### orch: claude answered") == 2


@pytest.mark.parametrize("env", [{"GITHUB_ACTIONS": None}, {"GITHUB_ACTIONS": "false"}, {"GITHUB_ACTIONS": ""},
                                 {"GITHUB_OUTPUT": "", "GITHUB_STEP_SUMMARY": None}])
def test_without_a_runner_or_its_files_nothing_is_written(orch, fake, runner, env):
    fake("claude", claude_ok("yes"))
    result = orch("go", env=env)
    assert (result.code, result.out, result.err) == (0, "yes\n", "")
    assert (runner.summary, runner.output_path.read_text()) == ("", "")


def test_a_dry_run_tells_the_runner_nothing(orch, fake, runner):
    fake("claude")
    assert orch("-n", "go").code == 0
    assert (runner.summary, runner.output_path.read_text()) == ("", "")


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "nowhere"])
@pytest.mark.parametrize("name", ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"])
def test_a_file_that_cannot_be_written_costs_one_warning(orch, fake, runner, tmp_path, name, kind):
    path, target = tmp_path / "odd", tmp_path / "target"
    if kind != "nowhere":
        {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "link": lambda: path.symlink_to(target)}[kind]()
    fake("claude", claude_ok("yes"), claude_ok("yes"))
    env = {name: str(path / "x" if kind == "nowhere" else path)}
    result = orch("go", env=env)
    assert (result.code, result.out) == (0, "yes\n")
    assert len(result.notices) == 1
    assert f"${name}" in result.notices[0]
    assert any(name in text for text in orch("--json", "go", env=env).json["warnings"])
    assert not target.exists()
    assert runner.summary if name == "GITHUB_OUTPUT" else runner.outputs["answer"] == "yes"


@needs_proc
def test_a_full_disk_costs_one_warning_and_leaves_no_half(orch, fake, runner):
    fake("claude", claude_ok("yes" * 1000))
    result = orch("go", preexec_fn=lambda: __import__("resource").setrlimit(__import__("resource").RLIMIT_FSIZE, (2000, 2000)))
    assert (result.code, result.out) == (0, "yes" * 1000 + "\n")
    assert (runner.summary, runner.output_path.read_text()) == ("", "")
    assert sum("GITHUB_" in line for line in result.notices) == 1


# === NOTHING AN AGENT SAYS IS A COMMAND ==================================

HOSTILE = ["::error::x", "  ::add-mask::x", "fine\n\t::set-output name=a::b", "a ##[add-mask]b", "###[group]x", "a\r::warning::x",
           "::STOP-COMMANDS::x\nfine", "\ufeff::error::x", "\u2003::error::x", "a\u2028::error::x", "::endgroup::\n" * 50]


@pytest.mark.parametrize("answer", HOSTILE, ids=ascii)
def test_commands_in_an_answer_are_stopped_and_the_answer_stays_as_it_is(orch, fake, runner, answer):
    fake("claude", claude_ok(answer))
    process = orch.start("go")
    lines, out = read_like_the_runner(process)
    assert process.wait(30) == 0
    assert out == answer.rstrip("\n") + "\n"
    assert commands_in(lines) == []
    assert any(line.startswith("::stop-commands::") for line in lines)
    assert runner.outputs["answer"] == answer.rstrip("\n")


def read_like_the_runner(process):
    """The lines of both streams in the order in which the runner uses them, and standard output as a whole.

    Of what it finds waiting it uses standard error first; like .NET it ends lines at a carriage return too.
    """
    lines, data, open_fds = [], {2: b"", 1: b""}, {2: process.stderr.fileno(), 1: process.stdout.fileno()}
    seen = {1: 0, 2: 0}
    while open_fds:
        ready = select.select(list(open_fds.values()), [], [], 30)[0]
        time.sleep(0.02)
        for number, fd in list(open_fds.items()):
            part = os.read(fd, 1 << 16) if fd in ready or select.select([fd], [], [], 0)[0] else None
            if part == b"":
                del open_fds[number]
            data[number] += part or b""
        for number in (2, 1):
            end = len(data[number]) if number not in open_fds else data[number].rfind(b"\n") + 1
            if end > seen[number]:
                text = data[number][seen[number]:end].decode("utf-8", "replace")
                lines += re.split(r"\r\n|\r|\n", text[:-1] if text.endswith("\n") else text)
                seen[number] = end
    return lines, data[1].decode()


@pytest.mark.parametrize("answer", HOSTILE, ids=ascii)
def test_in_one_stream_the_order_is_exact(orch, fake, runner, answer):
    fake("claude", claude_ok(answer))
    text = orch("go", stderr=subprocess.STDOUT).out
    token = re.match("::stop-commands::([0-9a-f]{32})\n", text)[1]
    assert text == f"::stop-commands::{token}\n" + answer.rstrip("\n") + f"\n::{token}::\n"


@pytest.mark.parametrize("answer", ["std::string", "a :: b", "x = a[::2]", "## [a]", "# # [x]"])
def test_a_harmless_answer_stops_nothing(orch, fake, runner, answer):
    fake("claude", claude_ok(answer))
    result = orch("go")
    assert (result.out, result.err) == (answer + "\n", "")


def test_the_kept_answer_of_a_role_commands_nothing_either(orch, fake, runner):
    orch.configure({"roles": {"planner": {"prompt": "You plan."}}})
    fake("claude", claude_ok("::error::x"))
    orch("--role", "planner", "go")
    text = orch("runs", "20", "planner", stderr=subprocess.STDOUT).out
    assert "::error::x\n" in text
    assert commands_in(text.splitlines()) == []


def test_a_file_gets_the_answer_and_the_log_nothing(orch, fake, runner, tmp_path):
    fake("claude", claude_ok("::error::x"))
    with open(tmp_path / "answer", "wb") as file:
        result = orch("go", stdout=file)
    assert (result.code, result.err) == (0, "")
    assert (tmp_path / "answer").read_text() == "::error::x\n"


@pytest.mark.parametrize("arguments", [["--json"], ["--events"]])
@pytest.mark.parametrize("answer", HOSTILE, ids=ascii)
def test_json_holds_the_answer_and_no_command(orch, fake, runner, arguments, answer):
    fake("claude", claude_ok(answer))
    result = orch(*arguments, "go")
    assert commands_in(result.out.splitlines() + result.err.splitlines()) == []
    assert (json.loads(result.out) if arguments == ["--json"] else result.events[-1])["answer"].strip("\n") == answer.strip("\n")


@pytest.mark.parametrize("text", ["::error::x", "a ##[add-mask]b", "two\n::error::x", "100% \r\n::set-env name=A::b", "##[group]"])
def test_an_agents_error_commands_nothing_wherever_it_is_told(orch, fake, runner, text):
    fake("claude", claude_failed(text, status=500))
    fake("codex", codex_ok("done"))
    result = orch("-v", "go")
    assert result.code == 0
    annotation, = commands_in(result.err.splitlines())
    assert annotation.startswith("::warning title=orch::claude: ")
    listed = orch("jobs").out + orch("usage", "--by", "model").out + orch("status").out + orch("jobs", "--json").out
    assert commands_in(listed.splitlines()) == []


def test_a_secret_in_an_error_is_not_printed(orch, fake, runner):
    fake("claude", claude_failed(f"bad token {TOKEN}", status=500))
    fake("codex", codex_failed(f"bad token {TOKEN}"))
    result = orch("-v", "go")
    assert result.code == 1
    for text in (result.err, runner.summary, runner.output_path.read_text()):
        assert "[REDACTED:github-token]" in text or "REDACTED:github" in text
        assert TOKEN not in text
    fake("claude", claude_failed(f"bad token {TOKEN}", status=500))
    fake("codex", codex_failed(f"bad token {TOKEN}"))
    elsewhere = orch("-v", "go", env={name: None for name in orch.env if name.startswith("GITHUB_")})
    assert elsewhere.err.count("[REDACTED:github-token]") >= 2 and TOKEN not in elsewhere.err, "any log may be read by others"


def test_a_model_that_is_called_like_a_command_commands_nothing_in_a_table(orch, fake, runner):
    fake("claude", claude_ok("yes", model="::error::x"))
    orch("go")
    assert commands_in(orch("usage", "--by", "model").out.splitlines()) == []


def test_agents_do_not_get_the_runners_files(orch, fake, runner):
    fake("claude", claude_ok("yes"))
    orch("go")
    assert not [name for name in fake.call.env if name in runner.env and name not in ("GITHUB_ACTIONS", "CI")]
    assert fake.call.env["GITHUB_ACTIONS"] == "true"


# === WAITING =============================================================

@pytest.mark.parametrize("wait", ["forever", "6h"])
def test_waiting_is_capped(orch, fake, runner, wait):
    fake("claude")
    orch("cooldown", "set", "claude", "9h")
    result = orch("--no-failover", "--wait", wait, "--deadline", "0.2", "--json", "go")
    assert result.code == 124
    assert any("capped" in line for line in result.err.splitlines())
    assert any("capped" in text for text in result.json["warnings"])
    assert "capped" not in orch("--no-failover", "--wait", "5h", "--deadline", "0.2", "go").err
    assert "capped" not in orch("--no-failover", "--wait", wait, "--deadline", "0.2", "go", env={"GITHUB_ACTIONS": None}).err


def test_waiting_is_capped_where_a_run_goes_on_too(orch, fake, runner):
    fake("claude", claude_limit(time.time() + 7200))
    orch.configure({"order": ["claude"], "roles": {"r": {"prompt": "p"}}})
    assert orch("--role", "r", "go").code == 75
    run = orch("runs", "--json").json[0]["id"]
    result = orch("runs", "resume", run, "--json", "--wait", "forever", "--deadline", "0.2")
    assert (result.code, sum("capped" in line for line in result.err.splitlines())) == (124, 1), result
    assert any("capped" in text for text in result.json["warnings"])


def test_a_log_says_once_that_orch_waits_and_until_when(orch, fake):
    fake("claude")
    orch("cooldown", "set", "claude", "9h")
    waiting, ended = orch("--no-failover", "--wait", "1h", "--deadline", "0.3", "go").notices
    assert re.fullmatch(r"orch: every agent is at its limit \(until (\w+ \d+, )?\d\d:\d\d, in (9 h|8 h 59 min)\); waiting, at most 1 s", waiting)
    assert "deadline" in ended
    assert "waiting" not in orch("-q", "--no-failover", "--wait", "1h", "--deadline", "0.3", "go").err


def test_waiting_without_an_end_is_capped(orch, fake, runner):
    fake("claude")
    assert "capped" in orch("wait").err
    assert orch("wait", "--max", "1h").err == ""


# === THE TEXTS ===========================================================

def result(**changes):
    done = {"agent": "claude", "model": None, "outcome": "ok", "error": None, "usage": None, "duration_ms": 1000, "cost_usd": None}
    return {"status": "ok", "agent": "claude", "model": None, "answer": "yes", "error": None, "error_class": None, "exit_code": 0,
            "retry_at": None, "task_id": "t", "route": {"agent": "claude", "reason": "first in order"}, "warnings": [],
            "attempts": [done], "usage": None, "duration_ms": 1000, "cost_usd": None, **changes}


def test_a_plain_run_costs_one_look_up():
    asked = []

    class Env(dict):
        def get(self, name, default=None):
            asked.append(name)
            return default
    assert program.runner_of(Env()) is None
    assert asked == ["GITHUB_ACTIONS"]


@pytest.mark.parametrize(("changes", "text"), [
    ({}, ""), ({"exit_code": 130, "error": "stopped by INT"}, ""), ({"exit_code": 143}, ""),
    ({"exit_code": 1, "error": "50%\nof it\r"}, "::error title=orch::50%25%0Aof it\n"),
    ({"exit_code": 75, "error": "limit", "retry_at": "2026-01-01T00:00:00Z"},
     "::warning title=orch::limit (free again at 2026-01-01T00:00:00Z)\n"),
    ({"exit_code": 1, "error": f"bad {TOKEN}"}, "::error title=orch::bad [REDACTED:github-token]\n"),
])
def test_annotations(changes, text):
    assert program.render_annotation(result(**changes)) == text


def test_quiet_leaves_out_the_annotation_of_a_run_that_went_well():
    tried = [{**result()["attempts"][0], "outcome": "failed", "error": "x"}, *result()["attempts"]]
    assert program.render_annotation(result(attempts=tried)) == "::warning title=orch::claude: x; claude answered\n"
    assert program.render_annotation(result(attempts=tried), quiet=True) == ""


def test_the_summary_is_masked_and_the_outputs_hold_the_answer_itself():
    asked = result(answer=f"use {TOKEN}", error=f"bad {TOKEN}", warnings=[f"saw {TOKEN}"])
    assert TOKEN not in program.render_step_summary(asked)
    outputs = program.render_outputs(asked, "x")
    assert f"answer<<x\nuse {TOKEN}\nx\n" in outputs
    assert outputs.count(TOKEN) == 1


@pytest.mark.parametrize("answer", ["```\nnever closed", "<details>never closed", "<!-- never closed", "a\r## heading", "a\x0b# b",
                                    "a\u2028# b", "> quoted", "| a | b |\n|---|---|"])
def test_an_answer_stays_in_its_quotation(answer):
    text = program.render_step_summary(result(answer=answer))
    body = text.partition("task t\n")[2].strip("\n")
    assert body
    assert all(line.startswith("> ") for line in body.split("\n"))
    assert not re.search("[\r\x0b\u2028]", text)


@pytest.mark.parametrize("answer", ["![a](https://x/?q)", r"\![a](https://x)", "<img src=//x>", "<IMG src=//x>", "</picture><source srcset=x>",
                                    "<div>\n<img src=x>\n</div>", "![a][r]\n\n[r]: https://x", "<svg/onload=x>"])
def test_no_answer_has_a_browser_fetch_anything(answer):
    text = program.render_step_summary(result(answer=answer))
    assert not re.search(r"!\[|<(img|picture|/picture|source|svg)", text, re.I)


@pytest.mark.parametrize("error", ["a|b", "<img src=x>", "`x", "[a](b)", "two\nlines | x", "\x1b[31mred", "*a* _b_ ~~c~~ #1 @you"])
def test_an_error_stays_in_its_cell(error):
    tried = [{**result()["attempts"][0], "outcome": "failed", "error": error}]
    text = program.render_step_summary(result(attempts=tried, status="failed", exit_code=1, error=error))
    row, = (line for line in text.splitlines() if line.startswith("| 1 |"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 9, row
    assert not re.search(r"(?<!\\)[<`\[*#@~]", row), row


@pytest.mark.parametrize("written", [0, 500_000, 1_040_000, (1 << 20) - 600, (1 << 20) - 10, 1 << 20, 2 << 20])
@pytest.mark.parametrize("answer", ["x" * 3_000_000, "line\n" * 600_000, "é\n" * 400_000, ""])
def test_a_summary_fits_or_is_left_out(written, answer):
    size = len(program.render_step_summary(result(answer=answer), written).encode())
    assert written + size <= 1 << 20 or not size
    assert size or written > (1 << 20) - 700


@pytest.mark.parametrize("answer", ["x" * 99_999, "x" * 100_000, "x" * 100_001, "é" * 99_999, "🎉" * 99_999, "\udcff" * 200_000])
def test_an_output_fits_into_a_variable(answer):
    value = program.render_outputs(result(answer=answer), "END").partition("answer<<END\n")[2].partition("\nEND\n")[0]
    data = value.encode("utf-8", "surrogateescape")
    assert len(data) <= 100_000
    assert (value == answer) == (len(answer.encode("utf-8", "surrogateescape")) <= 100_000)
    kept, _, note = value.rpartition("\n")
    assert value == answer or note == f"[cut by orch: {len(answer.encode('utf-8', 'surrogateescape')) - len(kept.encode())} bytes more]"
