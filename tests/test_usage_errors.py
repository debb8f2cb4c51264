"""What is refused: exit 2, one helpful line, no agent started, nothing written."""
from __future__ import annotations

import json
import os
import re

import pytest
from conftest import claude_ok, one_line_error

# How a refusal says what to do: a place to look, the words that would be right, or another name.
FIX = r"see `|use: |usage: |check --|known: |did you mean|expected |No such file|Not a directory"


def refuse(orch, fake, *arguments, **how):
    """Run, assert the refusal, return its line."""
    fake("claude")
    before = sorted(orch.home.rglob("*")) if orch.home.exists() else None
    line = one_line_error(orch(*arguments, **how))
    assert fake.calls == []
    assert (sorted(orch.home.rglob("*")) if orch.home.exists() else None) == before
    return line


@pytest.mark.parametrize(("arguments", "named"), [
    (["--frobnicate", "x"], "--frobnicate"),
    (["--agen", "claude", "x"], "--agen"),
    (["--jso", "x"], "--jso"),
    (["-Z", "x"], "-Z"),
    (["--timeout"], "--timeout"),
    (["x", "--timeout", "soon"], "soon"),
    (["x", "--timeout", "-5"], "-5"),
    (["x", "--deadline", "1y"], "1y"),
    (["x", "--access", "wild"], "wild"),
    (["x", "--complexity", "hard"], "hard"),
    (["x", "--json=yes"], "--json"),
    (["--agent", "claud", "x"], 'claude'),
    (["--agent", "zzz", "x"], "zzz"),
    (["--context", "lean", "x"], "lean"),
    (["runs", "no-such-run"], "no-such-run"),
    (["runs", "resume"], "resume RUN"),
    (["runs", "resume", "no-such-run"], "no-such-run"),
    (["mcp", "please"], "orch run"),
    (["mcp", "--cd", "/nonexistent/dir"], "/nonexistent/dir"),
    (["mcp", "--access", "wild"], "wild"),
    (["mpc"], "mcp"),
    (["completion", "tcsh"], "bash | zsh | fish"),
    (["--cd", "/nonexistent/dir", "x"], "/nonexistent/dir"),
    (["--cd", __file__, "x"], __file__),
    (["--config", "/nonexistent/c.json", "x"], "/nonexistent/c.json"),
    (["status", "of", "the", "build"], "orch run"),
    (["agents", "please"], "orch run"),
    (["jobs", "one", "two"], "orch run"),
    (["status", "--frobnicate"], "--frobnicate"),
    (["stauts"], "status"),
    (["statsu"], "status"),
    (["statu"], "status"),
    (["help"], "orch --help"),
    (["version"], "orch --version"),
    (["jobss"], "jobs"),
    (["-v", "confg"], "config"),
    (["usage", "--by", "colour"], "colour"),
    (["usage", "--since", "yesterday"], "yesterday"),
    (["wait", "claud"], "claude"),
    (["wait", "--max", "soon"], "soon"),
    (["cooldown", "set", "claude"], "cooldown"),
    (["cooldown", "set", "claude", "soon"], "soon"),
    (["cooldown", "frobnicate"], "frobnicate"),
    (["cooldown", "clear"], "--all"),
    (["jobs", "no-such-job"], "no-such-job"),
    (["explain", "--stdout", "/nonexistent/file"], "/nonexistent/file"),
    (["explain", "--agent", "claud"], "claude"),
    (["config", "frobnicate"], "frobnicate"),
], ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "")
def test_wrong_usage_is_refused_in_one_line_that_names_it_and_what_to_do(orch, fake, arguments, named):
    line = refuse(orch, fake, *arguments)
    assert named in line and re.search(FIX, line), line


@pytest.mark.parametrize(("typo", "command"), [("stauts", "status"), ("jobss", "jobs"), ("uasge", "usage"), ("agent", "agents")])
def test_a_near_miss_names_the_command_and_the_way_to_mean_it(orch, fake, typo, command):
    line = refuse(orch, fake, typo)
    assert command in line and f"orch run {typo}" in line


@pytest.mark.parametrize("words", [["stauts", "now"], ["hello"], ["statement"], ["run", "stauts"], ["usage of tabs"]])
def test_what_is_no_near_miss_runs(orch, fake, words):
    fake("claude", claude_ok())
    assert orch(*words).code == 0


CONFIG_ERRORS = [
    ("{", "config.json"),
    ("[]", "config.json"),
    ("\"x\"", "config.json"),
    ('{"order": ["claude"], "order": ["codex"]}', "order"),
    ('{"agents": {"claude": {"args": [], "args": []}}}', "args"),
    ('{"oder": ["claude"]}', "order"),
    ('{"order": "claude"}', "order"),
    ('{"order": ["claud"]}', "claude"),
    ('{"order": [1]}', "order"),
    ('{"timeout": "soon"}', "soon"),
    ('{"timeout": true}', "timeout"),
    ('{"timeout": -1}', "timeout"),
    ('{"timeout": NaN}', "NaN"),
    ('{"access": "wild"}', "wild"),
    ('{"agents": {"claude": {"arg": []}}}', "args"),
    ('{"agents": {"claude": {"args": "x"}}}', "args"),
    ('{"agents": {"claude": {"args": [1]}}}', "args"),
    ('{"agents": {"claude": {"env": {"A": 1}}}}', "env"),
    ('{"agents": {"claude": {"output": "yaml"}}}', "yaml"),
    ('{"agents": {"claude": {"limit_patterns": ["("]}}}', "limit_patterns"),
    ('{"agents": {"mine": {"output": "text"}}}', "command"),
    ('{"rules": [{"match": "(", "agent": "claude"}]}', "rules[0].match"),
    ('{"rules": [{"keywords": ["x"], "agent": "claude"}, {"keywords": ["y"], "agent": "claud"}]}', "rules[1].agent"),
    ('{"rules": {"match": "x"}}', "rules"),
    ('{"rules": [{"keywords": ["x"], "agent": "claude", "complexity": "hard"}]}', "hard"),
    ('{"rules": [{"keywords": ["x"], "context": "nope"}]}', "nope"),
    ('{"contexts": {"lean": {"claud": []}}}', "claud"),
    ('{"contexts": {"lean": []}}', "lean"),
    ('{"model_map": {"hard": {}}}', "hard"),
    ('{"model_map": {"simple": {"claude": 3}}}', "model_map"),
    ('{"roles": {"../x": {"prompt": "p"}}}', "../x"),
    ('{"roles": {"r": {"on_failure": "shrug"}}}', "shrug"),
    ('{"roles": {"r": {"prompt": "p", "agent": "claud"}}}', "claude"),
    ('{"teams": {"t": ["nobody"]}}', "nobody"),
    ('{"auto": {"rules": [{"role": "nobody", "keywords": ["x"]}]}}', "nobody"),
    ('{"pipeline": {"max_parallel": 0}}', "max_parallel"),
    ('{"usage": {"keep_days": "many"}}', "keep_days"),
    ('{"jobs": {"prompt": "no"}}', "jobs.prompt"),
    ('{"handoff": {"diff_chars": "all"}}', "diff_chars"),
    ('{"trusted_projects": "~/src"}', "trusted_projects"),
]


@pytest.mark.parametrize(("text", "named"), CONFIG_ERRORS, ids=[text[:50] for text, _ in CONFIG_ERRORS])
def test_a_wrong_config_is_refused_in_one_line_that_names_it(orch, fake, text, named):
    orch.configure(text)
    line = refuse(orch, fake, "hello")
    assert named in line and "config.json" in line
    assert refuse(orch, fake, "config", "check") == line


def test_an_unknown_agent_in_a_rule_is_told_with_its_path_and_the_nearest_name(orch, fake):
    orch.configure({"rules": [{"keywords": ["a"], "agent": "codex"}, {"keywords": ["b"], "agent": "claud"}]})
    line = refuse(orch, fake, "hello")
    assert line.endswith('config.json: rules[1].agent: unknown agent "claud" (did you mean "claude"?)')


def test_a_config_that_is_not_utf8_is_refused(orch, fake):
    orch.configure("{}").write_bytes(b'{"_note": "caf\xe9"}')
    assert "config.json" in refuse(orch, fake, "hello")


def test_a_config_that_is_a_directory_is_refused(orch, fake):
    (orch.home / "config.json").mkdir(parents=True)
    assert "config.json" in refuse(orch, fake, "hello")


def test_a_broken_config_of_a_project_is_refused_too(orch, fake, repo):
    orch.configure("{", repo / ".orch" / "config.json")
    assert ".orch/config.json" in refuse(orch, fake, "hello")


def test_json_prints_a_rejected_result(orch, fake):
    fake("claude")
    result = orch("--json", "--agent", "nobody", "hello")
    value = json.loads(result.out)
    assert (result.code, value["status"], value["exit_code"], value["attempts"]) == (2, "rejected", 2, []), result
    assert "nobody" in value["error"]
    assert fake.calls == [] and not orch.home.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter any directory")
def test_a_directory_that_cannot_be_entered_is_refused(orch, fake):
    (orch.work / "locked").mkdir(mode=0)
    assert "locked" in refuse(orch, fake, "--cd", "locked", "hello")


def test_init_refuses_to_overwrite(orch, fake):
    assert orch("init").code == 0
    text = (orch.home / "config.json").read_text()
    assert "config.json" in one_line_error(orch("init"))
    assert (orch.home / "config.json").read_text() == text
    assert orch("config", "check").code == 0


@pytest.mark.parametrize("arguments", [["-p", "explain"], ["-n", "status"], ["--timeout", "5m", "wait"], ["--team", "x", "jobs"]])
def test_an_option_of_a_run_before_a_command_says_how_to_run_that_word(orch, fake, arguments):
    assert f"use: orch run {arguments[-1]} ..." in refuse(orch, fake, *arguments)


def test_a_typo_in_a_command_is_refused_with_standard_input_too(orch, fake):
    assert 'did you mean "status"' in refuse(orch, fake, "stauts", "-", input="it")


def test_the_check_of_the_config_is_json_where_that_is_asked_for(orch):
    assert orch("config", "check", "--json").json == []
    path = orch.configure({"timeout": "5m"})
    assert orch("config", "check", "--json").json == [{"file": str(path), "ok": True}]


def test_a_blank_in_a_typo_is_shown(orch, fake):
    assert refuse(orch, fake, "status ").startswith('orch: "status " is no command; did you mean "status"?')
