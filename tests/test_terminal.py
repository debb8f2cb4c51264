"""What a person at a terminal sees: tables that fit, colours, bars, the live line, and a terminal left as it was.

Tables are read off a pty. The live line is looked at where a person would see it: on the screen of tmux.
"""
from __future__ import annotations

import fcntl
import os
import pty
import random
import re
import shutil
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from conftest import claude_ok, read_terminal, step, wait_until

import orch as o

ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def on_terminal(orch, *args, columns=80, env=None):
    """What a command shows on a terminal so wide, line ends made plain; with its exit status."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = orch.start(*args, stdout=follower, stderr=subprocess.DEVNULL, env={"TERM": "xterm", **(env or {})})
    os.close(follower)
    shown = read_terminal(leader).decode().replace("\r\n", "\n")
    return process.wait(timeout=20), shown


def columns_of(text):
    """The columns that a line takes, for the characters that these tests use; not asked of the program that is tested."""
    return sum(2 if "\u3000" <= c <= "\u9fff" else 0 if c == "\u0301" else 1 for c in text)


def job(number, prompt, status="ok"):
    return {"id": f"20261201T00000{number}-0000000{number}", "at": "2026-12-01T00:00:00Z", "status": status, "agent": "claude",
            "attempts": 1, "prompt": prompt}


def with_jobs(orch, *jobs):
    orch.home.mkdir(parents=True, exist_ok=True)
    orch.configure(o.json.dumps({"version": 1, "cooldowns": {}, "limit_counts": {}, "jobs": list(jobs)}),
                   orch.home / "state.json")


def with_usage(orch, *days):
    """A ledger with one attempt for each (day, input tokens)."""
    lines = [{"at": f"{day}T12:00:00Z", "task_id": f"t{tokens}", "agent": "claude", "model": None, "outcome": "ok",
              "error_class": None, "usage": {"input_tokens": tokens, "output_tokens": 0, "cache_read_tokens": 0},
              "cost_usd": None, "duration_ms": 1, "prompt_chars": 1, "project": "/p", "role": None, "kind": "run"}
             for day, tokens in days]
    orch.configure("".join(o.json.dumps(line) + "\n" for line in lines), orch.home / "usage.jsonl")


# --- tables --------------------------------------------------------------


@pytest.mark.parametrize("columns", [40, 60, 80, 132])
def test_a_table_fits_the_window(orch, columns):
    with_jobs(orch, job(1, "a long prompt " * 12), job(2, "日本語の長い文章" * 10), job(3, "short"))
    code, shown = on_terminal(orch, "jobs", columns=columns, env={"NO_COLOR": "1"})
    lines = shown.splitlines()
    assert (code, len(lines)) == (0, 4)
    assert max(map(columns_of, lines)) <= columns
    assert max(map(columns_of, lines[1:])) >= columns - 1    # and uses it: a wide character may not fit
    assert lines[1].split()[-1] == "short"


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_narrow_window_gets_fewer_columns_rather_than_stumps(orch, fake, columns):
    fake("claude")
    with_usage(orch, ("2026-11-28", 12_345), ("2026-11-29", 4000))
    assert orch("cooldown", "set", "claude", "3h").code == 0
    usage = on_terminal(orch, "usage", columns=columns)[1]
    assert max(map(len, usage.splitlines())) <= columns and "…" not in usage
    assert "16.3k" in usage and "not reported" in usage    # billable and cost stay
    status = on_terminal(orch, "status", columns=columns, env={"NO_COLOR": "1"})[1].splitlines()
    assert max(map(len, status[:-1])) <= columns
    assert any(line.startswith("claude") and "cooling until " in line for line in status)
    assert ("set by hand" in "".join(status)) == (columns > 40)


@pytest.mark.parametrize("columns", [60, 80])
def test_how_long_an_agent_cools_is_never_cut(orch, fake, columns):
    fake("claude")
    limit = o.cooldown_entry(time.time() + 30 * 3600, "You've hit your weekly limit · resets Dec 3, 11:15pm (Europe/Berlin)", "agent", 0)
    orch.home.mkdir(parents=True)
    orch.configure({"version": 1, "cooldowns": {"claude": limit, "codex:some-model": limit}, "limit_counts": {}, "jobs": []},
                   orch.home / "state.json")
    for command in (["status"], ["agents"], ["cooldown", "list"]):
        shown = on_terminal(orch, *command, columns=columns, env={"NO_COLOR": "1"})[1]
        table = shown.splitlines()[:-1] if command == ["status"] else shown.partition("\nclaude: ")[0].splitlines()
        cooling = [line for line in table if "until " in line]
        assert cooling and all(re.search(r"until \w+ \d+, \d\d:\d\d, in 1 d \d h( |$)", line) for line in cooling), shown
        assert command == ["agents"] or max(map(columns_of, table)) <= columns, shown
    assert "You've hit your" in on_terminal(orch, "status", columns=80)[1]


def test_where_a_value_comes_from_can_be_told_in_80_columns(orch, repo):
    orch.configure({"access": "read", "trusted_projects": [str(repo)], "rules": [{"match": "a long expression " * 9, "agent": "codex"}]})
    orch.configure({"timeout": "5m"}, repo / ".orch" / "config.json")
    shown = on_terminal(orch, "config", columns=80)[1]
    assert re.search(r'^access +"read" +~/\.orch/config\.json$', shown, re.M), shown
    assert re.search(r'^timeout +"5m" +…\S*/work/\.orch/config\.json$', shown, re.M), shown
    assert re.search(r'^usage\.keep_days +90 +built-in$', shown, re.M), shown
    assert max(map(columns_of, shown.splitlines())) <= 80


@pytest.mark.parametrize("columns", [20, 30, 40])
def test_of_a_path_its_end_is_shown(columns):
    table = o.Columns(("name", "program"), paths=(1,))
    text = o.render_table(table, [("one", "/usr/a/long/way/down/to/some/program"), ("two", "not a path, but longer than some of them are")],
                          o.Look(columns))
    one, two = text.splitlines()[1:]
    assert max(map(columns_of, (one, two))) <= columns
    assert one.startswith("one   …") and one.endswith("program") and two.startswith("two   not a") and two.endswith("…")


def test_what_is_to_do_about_an_agent_is_never_cut(orch):
    shown = on_terminal(orch, "agents", columns=40, env={"NO_COLOR": "1"})[1].splitlines()
    for agent in o.AGENTS:
        assert f"{agent.name}: {agent.install_hint}; then {agent.login_hint}" in shown


def test_a_pipe_gets_whole_cells_and_no_escapes(orch):
    prompt = "a long prompt " * 12
    with_jobs(orch, job(1, prompt), job(2, "b", "failed"))
    result = orch("jobs", env={"TERM": "xterm-256color", "COLUMNS": "40"})
    assert prompt.strip() in result.out and "\x1b" not in result.out


def test_columns_stay_aligned_beside_wide_characters_and_marks(orch):
    for model in ("日本", "e\u0301", "plain"):
        assert orch("cooldown", "set", f"claude:{model}", "1h").code == 0
    rows = orch("cooldown", "list").out.splitlines()
    starts = {columns_of(row[:re.search("cooling|until", row).start()]) for row in rows}
    assert len(rows) == 4 and len(starts) == 1, rows


@pytest.mark.parametrize(("env", "coloured"), [
    ({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False), ({"TERM": None}, False)])
def test_colours_are_for_terminals_that_want_them(orch, env, coloured):
    with_jobs(orch, job(1, "a", "failed"), job(2, "b"))
    code, shown = on_terminal(orch, "jobs", env=env)
    assert code == 0
    assert ("\x1b[31mfailed\x1b[0m" in shown) == coloured == ("\x1b[32mok\x1b[0m" in shown)
    assert coloured or "\x1b" not in shown
    assert ESCAPE.sub("", shown) == orch("jobs").out


def test_no_cell_brings_its_own_escapes(orch):
    with_jobs(orch, job(1, "\x1b[31mred\x07 \x9b2J"))
    assert "\x1b[31mred" not in on_terminal(orch, "jobs")[1]


def test_no_note_of_a_run_brings_escapes(orch):
    note = {"marker": "m", "host": "elsewhere", "task_id": "\x1b[31mred", "agent": "a\nb", "role": None,
            "at": o.render_time(time.time() - 90)}
    (orch.home / "cache" / "running").mkdir(parents=True)
    orch.configure(o.json.dumps(note), orch.home / "cache" / "running" / "m.json")
    shown = orch("status").out
    assert re.search("running: red on a b, for 1 min 3[0-9] s on elsewhere, not known", shown, re.M) and "\x1b" not in shown


def test_usage_by_day_has_bars_on_a_terminal_alone(orch):
    with_usage(orch, ("2026-11-28", 1000), ("2026-11-29", 4000), ("2026-11-30", 0))
    code, shown = on_terminal(orch, "usage", "--by", "day", columns=120)
    bars = [line.count("█") for line in shown.splitlines()]
    assert code == 0 and bars == [0, 7, 30, 0, 0]    # a quarter of 30 columns is 7 and a half
    assert "▌" in shown.splitlines()[1]
    piped = orch("usage", "--by", "day").out
    assert "█" not in piped
    assert [line.split() for line in piped.splitlines()] == [re.sub("[█▌]", "", line).split() for line in shown.splitlines()]
    for columns in (40, 50, 60, 80):
        narrow = on_terminal(orch, "usage", "--by", "day", columns=columns)[1]
        assert max(map(columns_of, narrow.splitlines())) <= columns and "2026-11-28" in narrow and "not reported" in narrow
        assert ("█" * 10 in narrow) == (columns >= 50), narrow


@pytest.mark.parametrize(("options", "shown"), [
    ((), r"half a line\norch: one: .*; going on with two\nthe other half\norch: two: .*\n"),
    (("-q",), r"half a line\nthe other half\norch: two: .*\n"),
    (("--no-failover",), r"half a line\norch: one: .*\n"),
])
def test_what_follows_streamed_text_on_a_terminal_has_a_line_of_its_own(orch, fake, options, shown):
    orch.configure({"order": ["one", "two"], "agents": {name: {"command": [name], "output": "text"} for name in ("one", "two")}})
    fake("one", failed := step("half a line", "quota exceeded\n", 1))
    if "--no-failover" not in options:
        fake("two", {**failed, "stdout": "the other half"})
    leader, follower = pty.openpty()
    process = orch.start(*options, "hi", stdout=follower, stderr=follower, env={"TERM": "dumb"})
    os.close(follower)
    text = read_terminal(leader).decode().replace("\r\n", "\n")
    process.wait(timeout=20)
    assert re.fullmatch(shown, text), text


# --- the live line, on a screen ------------------------------------------


class Tmux:
    """One window of a tmux of its own."""

    def __init__(self, folder, columns):
        self.socket = str(folder / "tmux")
        self("-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", str(columns), "-y", "20",
             "env -i PATH=/usr/bin:/bin TERM=screen PS1='$ ' bash --norc -i")

    def __call__(self, *words):
        return subprocess.run(["tmux", "-S", self.socket, *words], capture_output=True, text=True, check=True, timeout=20,
                              env={"PATH": "/usr/bin:/bin", "TERM": "xterm", "LANG": "C.UTF-8"}).stdout

    def type(self, line):
        self("send-keys", "-t", "t", "-l", line + "\n")

    def screen(self):
        """The lines that are not blank, those scrolled away included."""
        return [line.rstrip() for line in self("capture-pane", "-p", "-S", "-", "-t", "t").splitlines() if line.strip()]

    def sees(self, pattern):
        """Wait until a line matches; return it."""
        return wait_until(lambda: next((line for line in self.screen() if re.search(pattern, line)), None), timeout=20, what=pattern)


@pytest.fixture
def tmux(tmp_path):
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    opened = []

    def start(columns=80):
        opened.append(Tmux(tmp_path, columns))
        return opened[-1]
    yield start
    for one in opened:
        one("kill-server")


def as_typed(orch, *words):
    """A command line that starts orch in the test's surroundings."""
    script = orch.base / "o"
    script.write_text("#!/bin/sh\n" + "".join(f"export {name}='{text}'\n" for name, text in orch.env.items())
                      + f"export TERM=screen\ncd '{orch.work}'\nexec '{orch.program}' \"$@\"\n")
    script.chmod(0o755)
    return f"{script} {' '.join(words)}"


def event(block, message="m1", tokens=1500):
    return o.json.dumps({"type": "assistant", "message": {
        "id": message, "content": [block], "usage": {"input_tokens": tokens, "output_tokens": 0}}})


def at_work(orch, tool="src/app.py"):
    """A step of a fake that edits a file, and ends when the test says so."""
    gate = orch.base / "gate"
    tool_use = event({"type": "tool_use", "name": "Edit", "input": {"file_path": tool}})
    done = claude_ok("the answer")
    wait = f"print({tool_use!r}, flush=True)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)\n"
    return {**done, "stdout": "", "run": wait + f"put(1, {done['stdout']!r}.encode('latin-1'))"}, gate


def test_the_live_line_tells_who_how_long_what_and_tokens_and_is_gone_at_the_end(orch, fake, tmux):
    edit, gate = at_work(orch)
    fake("claude", edit)
    window = tmux(80)
    window.type("clear; " + as_typed(orch, "hi") + "; echo status $?")
    line = window.sees(r"claude · .*app\.py")
    assert re.fullmatch(r"claude · \d+ s · editing app\.py · 1\.5k tokens", line), line
    window.sees(r"claude · 2 s")    # it ticks
    gate.touch()
    window.sees("status 0")
    assert window.screen()[-3:-1] == ["the answer", "status 0"] or window.screen()[-2:] == ["the answer", "status 0"], window.screen()
    assert not any("·" in line for line in window.screen())


W = o.Work
TEAM = [W("builder", "claude", "editing a_module.py", 9000), W("reviewer", "codex", "running pytest -q tests/test_a_module.py", 3300)]
WAITING = W("", "", "every agent is at its limit")


LONG = [W("", "claude", "running pytest -q -n auto --dist worksteal tests/test_modu", 1500)]


@pytest.mark.parametrize(("columns", "work", "left_s", "line"), [
    (117, LONG, None, "claude · 1 min 15 s · running pytest -q -n auto --dist worksteal tests/test_modu · 1.5k tokens"),
    (77, LONG, None, "claude · 1 min 15 s · running pytest -q -n auto --dist workste… · 1.5k tokens"),
    (37, LONG, None, "claude · 1 min 15 s · 1.5k tokens"),
    (20, LONG, None, "claude · 1 min 15 s"),
    (117, TEAM, None, "builder (claude) editing a_module.py · reviewer (codex) running pytest -q tests/test_a_m… · 1 min 15 s · 12.3k tokens"),
    (77, TEAM, None, "builder editing a_mod… · reviewer running pytest… · 1 min 15 s · 12.3k tokens"),
    (57, TEAM, None, "builder · reviewer · 1 min 15 s · 12.3k tokens"),
    (77, [W("reviewer", "claude", "started", 66), W("critic", "codex", "2", 0)], None,
     "reviewer (claude) started · critic (codex) 2 · 1 min 15 s · 66 tokens"),
    (37, TEAM, None, "builder · reviewer · 1 min 15 s"),
    (77, [WAITING], 7800, "every agent is at its limit · free in 2 h 10 min · 1 min 15 s"),
    (37, [WAITING], 7800, "free in 2 h 10 min · 1 min 15 s"),
    (77, [W("", "claude codex", "at the limit")], 7800, "claude codex · at the limit · free in 2 h 10 min · 1 min 15 s"),
    (37, [W("", "claude codex", "at the limit")], 7800, "claude codex · free in 2 h 10 min"),
])
def test_what_agents_do_gives_way_in_the_live_line_before_any_number(columns, work, left_s, line):
    assert o.render_live(work, 75, left_s, columns) == line


@pytest.mark.parametrize("seed", range(20))
def test_a_live_line_fits_whatever_it_has_to_say(seed):
    dice = random.Random(seed)
    for _ in range(50):
        work = [W(dice.choice(("", "planner", "日本")), dice.choice(("claude", "codex", "")), "running " + "x 日" * dice.randrange(30),
                  dice.choice((0, 12, 123_456))) for _ in range(dice.randrange(1, 4))]
        columns = dice.randrange(1, 140)
        line = o.render_live(work, dice.randrange(9999), dice.choice((None, 5)), columns)
        assert columns_of(line) <= columns, (seed, columns, work, line)


@pytest.mark.parametrize("columns", [16, 30])
def test_a_narrow_window_gets_a_short_line(orch, fake, tmux, columns):
    edit, gate = at_work(orch, "日本語" * 20)
    fake("claude", edit)
    window = tmux(columns)
    window.type("clear; " + as_typed(orch, "hi"))
    window.sees(r"claude · \d+ s")
    assert sum("·" in line for line in window.screen()) == 1
    gate.touch()
    window.sees("the answer")
    assert not any("·" in line for line in window.screen())


@pytest.mark.parametrize("mode", ["", "printf '\\033[?1049h'; "], ids=["lines broken anew", "lines cut"])
def test_a_window_made_narrower_costs_no_line_of_the_users(orch, fake, tmux, mode):
    edit, gate = at_work(orch, "a-long-name" * 5)
    fake("claude", edit)
    window = tmux(100)
    window.type(f"clear; {mode}seq 5; " + as_typed(orch, "hi"))
    window.sees(r"1\.5k tokens")
    window("resize-window", "-t", "t", "-x", "40", "-y", "20")
    window.sees(r"^claude · \d+ s · 1\.5k tokens$")
    gate.touch()
    window.sees("the answer")
    lines = window.screen()
    assert lines[lines.index("1"):][:5] == list("12345") and lines.count("the answer") == 1, lines
    assert sum("·" in line for line in lines) <= (0 if mode else 2), lines    # rows of a line broken anew are not taken back


@pytest.mark.parametrize(("key", "status"), [("C-c", 130), ("C-\\", 131)])
def test_a_key_that_ends_it_leaves_nothing_of_a_full_line(orch, fake, tmux, key, status):
    edit, _ = at_work(orch, "a-long-name" * 5)
    fake("claude", edit)
    window = tmux(60)
    window.type("clear; " + as_typed(orch, "hi"))
    window.sees(r"claude · .*… · 1\.5k tokens$")
    window("send-keys", "-t", "t", key)
    wait_until(lambda: not orch.leftovers(), timeout=20, what="the end of the run")
    window.type("echo status $?")
    window.sees(f"^status {status}$")
    assert not any("·" in line for line in window.screen()), window.screen()


def test_the_line_is_gone_as_soon_as_a_stop_is_asked_for(orch, fake, tmux):
    edit, _ = at_work(orch)
    ready = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); open({str(orch.base / 'deaf')!r}, 'w')\n"
    fake("claude", {**edit, "run": ready + edit["run"]})
    window = tmux(60)
    window.type("clear; " + as_typed(orch, "hi"))
    window.sees(r"claude · .*app\.py")
    window("send-keys", "-t", "t", "C-c")
    wait_until(lambda: not any("·" in line for line in window.screen()), timeout=1.5, what="the end of the line")
    assert orch.leftovers()    # the agent is killed two seconds after it was asked
    time.sleep(1.1)
    assert not any("·" in line for line in window.screen())


def test_a_job_in_the_background_leaves_the_terminal_to_the_shell(orch, fake, tmux):
    edit, gate = at_work(orch)
    fake("claude", edit)
    window = tmux(80)
    window.type("clear; stty tostop; " + as_typed(orch, "hi", ">", str(orch.work / "answer")) + " &")
    wait_until(lambda: fake.calls, what="the agent")
    time.sleep(2.5)    # two ticks
    assert not any("·" in line for line in window.screen()), window.screen()
    window.type("fg")
    window.sees(r"claude · \d+ s")
    window("send-keys", "-t", "t", "C-z")
    window.sees("Stopped")
    window.type("clear; bg; echo here")
    window.sees("^here$")
    gate.touch()
    wait_until(lambda: not orch.leftovers(), timeout=20, what="the end of the run")
    window.type("echo next")
    window.sees("^next$")
    lines = window.screen()
    assert not any("·" in line for line in lines[lines.index("here"):]), lines
    assert (orch.work / "answer").read_text() == "the answer\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(orch, fake, tmux, number):
    edit, _ = at_work(orch)
    fake("claude", edit)
    window = tmux(80)
    window.type(f"clear; stty -a > '{orch.base}/before'; " + as_typed(orch, "hi") + f"; stty -a > '{orch.base}/after'; echo over")
    window.sees(r"claude · .*app\.py")
    if number == signal.SIGINT:
        window("send-keys", "-t", "t", "C-c")
    else:
        for pid, words in orch.leftovers().items():
            if words.startswith("python3 -IS"):
                os.kill(pid, number)
    wait_until(lambda: not orch.leftovers(), timeout=20, what="the end of the run")
    window.type("echo next")
    window.sees("^next$")
    assert not any("·" in line for line in window.screen()), window.screen()
    if number != signal.SIGINT:    # an interrupt ends the whole line of bash
        assert (orch.base / "before").read_text() == wait_until(lambda: (orch.base / "after").exists() and (orch.base / "after").read_text())


def break_build(orch, body):
    """Make orch a program that has a bug: `body` runs in place of judging what an agent came to."""
    (orch.base / "broken").mkdir()
    broken = orch.base / "broken" / "orch.py"
    source = Path(o.__file__).read_text(encoding="utf-8")
    broken.write_text(source.replace("def classify(", f"def classify(*_a):\n    {body}\n\n\ndef _classify(", 1), encoding="utf-8")
    orch.program = orch.base / "broken" / "run"
    orch.program.write_text(f"#!/bin/sh\nexec python3 '{broken}' \"$@\"\n")
    orch.program.chmod(0o755)


def test_a_crash_leaves_the_terminal_as_it_was(orch, fake, tmux):
    fake("claude", claude_ok("the answer", run="time.sleep(1.2)"))
    break_build(orch, "1 / 0")
    window = tmux(80)
    window.type("clear; " + as_typed(orch, "hi") + " 2>&1 | cat > '" + str(orch.base / "log") + "'; " + as_typed(orch, "hi") + "; echo status $?")
    fake("claude", claude_ok("the answer", run="time.sleep(1.2)"))
    window.sees(r"claude · 1 s")
    window.sees("status 70")
    screen = window.screen()
    assert any("ZeroDivisionError" in line for line in screen)
    assert not any("·" in line for line in screen), screen
    assert "\x1b" not in (orch.base / "log").read_text()


def test_a_traceback_is_notices_like_all_others_whatever_it_quotes(orch, fake):
    fake("claude", claude_ok("the answer"))
    break_build(orch, "raise ValueError('\\n::error::bad\\n##[group]x\\x1b[2J ' + 'sk-ant-' + 'a' * 95)")
    result = orch("hi", env={"GITHUB_ACTIONS": "true"})
    assert (result.code, result.out) == (70, "") and "ValueError" in result.err and "bad" in result.err, result
    assert all(line.startswith("orch: ") for line in result.err.splitlines())
    assert "##[" not in result.err and "\x1b" not in result.err and "aaaa" not in result.err


def test_waiting_for_a_reset_counts_down(orch, fake, tmux):
    fake("claude", claude_ok("the answer"))
    orch.configure({"order": ["claude"]})
    assert orch("cooldown", "set", "claude", "4s").code == 0
    window = tmux(80)
    window.type("clear; " + as_typed(orch, "--wait", "1m", "hi"))
    first = window.sees(r"free in [234] s")
    window.sees(r"free in 1 s")
    window.sees("the answer")
    assert "at its limit" in first
    assert not any("free in" in line for line in window.screen())


def test_orch_wait_counts_down_too(orch, fake, tmux):
    fake("claude")
    orch.configure({"order": ["claude"]})
    assert orch("cooldown", "set", "claude", "4s").code == 0
    window = tmux(80)
    window.type("clear; " + as_typed(orch, "wait") + "; echo status $?")
    window.sees(r"claude.* free in [234] s")
    window.sees(r"free in 1 s")
    window.sees("status 0")
    assert not any("free in" in line for line in window.screen())
    piped = orch("wait")
    assert (piped.code, piped.out, piped.err) == (0, "", "")


def test_an_interrupt_of_orch_wait_leaves_no_line(orch, fake, tmux):
    fake("claude")
    orch.configure({"order": ["claude"]})
    assert orch("cooldown", "set", "claude", "1h").code == 0
    window = tmux(80)
    window.type("clear; " + as_typed(orch, "wait"))
    window.sees(r"claude.* free in")
    window("send-keys", "-t", "t", "C-c")
    wait_until(lambda: not orch.leftovers(), timeout=20, what="the end of orch wait")
    window.type("echo status $?")
    window.sees("status 130")
    assert not any("free in" in line for line in window.screen()), window.screen()


# --- an answer as it comes ------------------------------------------------


def streamed(orch, fake, run):
    """What a terminal is sent while a text agent runs `run`, once the first word of the agent has come."""
    orch.configure({"order": ["mine"], "agents": {"mine": {"command": ["mine"], "output": "text"}}})
    fake("mine", step(run=run))
    leader, follower = pty.openpty()
    process = orch.start("hi", stdout=follower, stderr=follower, env={"TERM": "xterm"})
    os.close(follower)
    shown = read_terminal(leader).decode().replace("\r\n", "\n")
    assert process.wait(timeout=20) == 0, shown
    return "FIRST" + shown.partition("FIRST")[2]


def test_the_live_line_leaves_alone_what_an_agent_has_written(orch, fake):
    shown = streamed(orch, fake, "put(1, b'FIRST '); time.sleep(2.5); put(1, b'42\\n')")
    assert shown == "FIRST 42\n"


@pytest.mark.parametrize("pieces", [
    (b"FIRST\x1b", b"[31mred\x1b[0m"), (b"FIRST\x1b[3", b"1mred"), (b"FIRST\x1b]0;title", b" of it\x07red"),
    (b"FIRST\x1b]0;title\x1b", b"\\red"), (b"FIRST\x1bPdata", b" and\x07 more\x1b\\red"), (b"FIRST\x1b(", b"Bred"),
    (b"FIRST", b"red\x1b[3")])
def test_an_escape_sequence_in_two_pieces_leaves_nothing_behind(orch, fake, pieces):
    shown = streamed(orch, fake, "".join(f"put(1, {piece!r}); time.sleep(0.3)\n" for piece in pieces))
    assert shown == "FIRSTred\n"


@pytest.fixture
def frozen(orch, fake):
    """Start orch on a terminal that nobody reads, with a text agent that never ends its answer."""
    orch.configure({"order": ["mine"], "agents": {"mine": {"command": ["mine"], "output": "text"}}})
    fake("mine", step(run="while True: put(1, b'x' * 500 + b'\\n'); time.sleep(0.0005)"))
    leader, follower = pty.openpty()

    def start(*args):
        return orch.start(*args, "hi", stdout=follower, stderr=follower, env={"TERM": "xterm"})
    yield start
    os.close(leader)
    os.close(follower)


@pytest.mark.parametrize("options", [[], ["--events"], ["-v"]])
def test_a_time_limit_holds_on_a_terminal_that_nobody_reads(orch, frozen, options):
    process = frozen("-t", "2", *options)
    wait_until(lambda: orch.state().get("jobs"), timeout=20, what="the end of the run")
    assert [line["error_class"] for line in orch.ledger()] == ["timeout"]
    process.terminate()                                    # it would tell the rest
    assert process.wait(timeout=20) in (-signal.SIGTERM, 124)


def test_one_signal_stops_a_run_on_a_terminal_that_nobody_reads(orch, frozen, fake):
    process = frozen()
    wait_until(lambda: fake.calls, what="the agent's start")
    time.sleep(2)
    process.terminate()
    wait_until(lambda: orch.state().get("jobs"), timeout=20, what="the end of the run")
    assert [line["outcome"] for line in orch.ledger()] == ["aborted"]
    process.terminate()
    assert process.wait(timeout=20) == -signal.SIGTERM
