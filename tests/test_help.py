"""`--help` of every command, and errors of a run that say what to do."""
from __future__ import annotations

import re
import shlex
import time

import pytest
from conftest import claude_auth, claude_limit, codex_limit, one_line_error, step

import orch as core

COMMANDS = [command.name for command in core.COMMANDS]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_usage_options_and_an_example_that_is_right(orch, name):
    result = orch(name, "--help")
    assert (result.code, result.err) == (0, "")
    usage, *rest = result.out.split("\n\n")
    command = core.BY_NAME[name]
    assert usage == f"usage: orch {name} [options] {command.words}".rstrip()
    for option in (*command.options, core.HELP):
        assert re.search(rf"(^|\s){option.names[-1]}( |$)", result.out, re.M), option.names
    example = command.example
    assert rest[-1] == f"example: {example}\n"
    words = shlex.split(re.split(" && | > ", example)[0])
    given = core.read_line(words[1:])
    assert words[0] == "orch" and given.command == name


def test_help_lists_every_command(orch):
    out = orch("--help").out
    assert all(re.search(rf"^  {name} +\w", out, re.M) for name in COMMANDS)


def test_help_fits_a_terminal_of_80_columns(orch):
    assert [line for name in (None, *COMMANDS) for line in orch(*([name] if name else []), "--help").out.splitlines()
            if len(line) > 80 and not line.startswith(("example: ", "usage: "))] == []


def test_no_login_says_how_to_log_in(orch, fake):
    fake("claude", claude_auth())
    result = orch("hello", "--no-failover")
    assert result.code == 77
    assert result.notices[-1].endswith(core.AGENTS[0].login_hint)


def test_a_limit_says_when_and_how_to_wait(orch, fake):
    fake("claude", claude_limit(time.time() + 3600))
    for _ in range(2):                                     # after an attempt, and without one
        assert re.search(r"\(until .*; with `--wait forever` orch waits\)$", orch("hello", "--no-failover").notices[-1])


@pytest.mark.parametrize(("hours", "said"), [((2, 5), "; claude is free first (until "), ((5, 2), ". (until ")])
def test_a_time_is_told_as_that_of_the_agent_who_is_free_then(orch, fake, hours, said):
    ends = [time.time() // 60 * 60 + hour * 3600 for hour in hours]
    fake("claude", claude_limit(ends[0]))
    fake("codex", codex_limit(ends[1]))
    result = orch("hello")
    assert result.code == 75 and "codex: You've hit your usage limit" in result.notices[-1]
    assert re.search(re.escape(said) + r"(\w+ \d+, )?\d\d:\d\d, in (1 h 5\d min|2 h);", result.notices[-1]), result


def test_an_agent_that_was_passed_over_may_be_free_first(orch, fake):
    fake("claude")
    fake("codex", codex_limit(time.time() + 9 * 3600))
    assert orch("cooldown", "set", "claude", "1h").code == 0
    assert "; another agent is free first (until " in orch("hello").notices[-1]


def test_a_failure_that_was_not_understood_names_explain(orch, fake):
    fake("claude", step(stdout="", exit=3))
    result = orch("hello", "--no-failover")
    ask = re.search(r"; see `orch (explain --task \S+)`$", result.notices[-1])
    assert result.code == 1 and ask, result
    assert orch(*ask[1].split()).out.startswith("agent:       claude")


@pytest.mark.parametrize(("arguments", "fix"), [
    ([], 'orch "fix the failing test"'),
    (["--cd", "nowhere", "x"], "check --cd"),
    (["--config", "nowhere", "x"], "check --config"),
    (["-c", "lean", "x"], 'the config has no "contexts"'),
    (["explain", "--task", "x"], "`orch jobs`"),
    (["cooldown", "set", "claude:", "1h"], "agent:model"),
])
def test_a_refusal_says_what_to_do(orch, fake, arguments, fix):
    fake("claude")
    assert fix in one_line_error(orch(*arguments))


def test_inside_an_agent_the_way_out_is_named(orch, fake):
    fake("claude")
    assert "unset ORCH_DEPTH" in one_line_error(orch("hello", env={"ORCH_DEPTH": "1"}))


@pytest.mark.parametrize(("config", "known"), [
    ({"zzz": 1}, "known: access, agents"), ({"order": ["zzz"]}, "known: claude, codex"),
    ({"rules": [{"keywords": ["x"], "context": "zzz"}]}, "known: none"),
])
def test_a_word_of_the_config_with_nothing_near_is_told_what_is_known(orch, config, known):
    orch.configure(config)
    assert known in one_line_error(orch("config", "check"))
