"""`orch explain`: what it says of each class, of a user's own patterns, and of bad input."""
from __future__ import annotations

import json

import pytest
from conftest import one_line_error

NOW = ("--now", "2026-09-15T10:00:00Z", "--zone", "UTC")
CASES = {
    "limited": ("claude", "stdout", 1, "You've hit your weekly limit · resets Mon 12:00am",
                {"outcome": "limited", "error_class": "usage_limit", "reset_at": "2026-09-21T00:00:00Z", "scope": "agent"}),
    "of a model": ("claude", "stdout", 1, "You've hit your Opus limit · resets 3pm",
                   {"outcome": "limited", "reset_at": "2026-09-15T15:00:00Z", "scope": "model:opus"}),
    "auth": ("claude", "stdout", 1, "Failed to authenticate: OAuth session expired and could not be refreshed",
             {"outcome": "auth", "error_class": "auth", "reset_at": None}),
    "overloaded": ("codex", "stderr", 1, "ERROR: Selected model is at capacity. Please try a different model.",
                   {"outcome": "failed", "error_class": "overloaded", "rule": "veto: overloaded"}),
    "context": ("opencode", "stderr", 1, "Error: prompt is too long: 210000 tokens",
                {"outcome": "failed", "error_class": "context"}),
    "model": ("opencode", "stderr", 1, "Error: model not found: x", {"outcome": "failed", "error_class": "model"}),
    "network": ("claude", "stdout", 1, "API Error: Unable to connect to API (ConnectionRefused)",
                {"outcome": "failed", "error_class": "network"}),
    "ok": ("claude", "stdout", 0, '{"type":"result","subtype":"success","is_error":false,"result":"Done."}',
           {"outcome": "ok", "error_class": None, "evidence": "exit status 0 and a complete answer"}),
    "not found": ("gemini", "stdout", 127, "", {"outcome": "not_found"}),
    "signal": ("claude", "stdout", -15, "", {"outcome": "failed", "error_class": "signal", "evidence": "ended by signal 15"}),
    "status": ("gemini", "stdout", 173, "", {"outcome": "limited", "rule": "http 429", "scope": "model"}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_class_is_explained_for_people_and_as_json(orch, tmp_path, name):
    agent, stream, code, text, expected = CASES[name]
    file = tmp_path / "output"
    file.write_text(text, encoding="utf-8")
    given = ("explain", "--agent", agent, f"--exit={code}", f"--{stream}", str(file), *NOW)
    shown = orch(*given, "--json").json
    assert {key: shown[key] for key in expected} == expected, shown
    assert shown["agent"] == agent and shown["rule"] and shown["evidence"], shown
    told = orch(*given)
    assert told.code == 0 and not told.err, told
    lines = dict(line.split(":", 1) for line in told.out.splitlines())
    assert {key: shown[key] or "-" for key in shown} == {key: value.strip() for key, value in lines.items()}


def test_patterns_of_the_config_are_reported_by_name(orch, tmp_path):
    orch.home.mkdir(parents=True, exist_ok=True)
    row = {"command": ["mine"], "limit_patterns": ["nothing", "vault is shut until"], "auth_patterns": ["badge expired"]}
    (orch.home / "config.json").write_text(json.dumps({"agents": {"mine": row}}))
    for text, outcome, rule in (("the vault is shut until 5pm", "limited", "config limit_patterns[1]"),
                                ("badge expired", "auth", "config auth_patterns[0]")):
        (tmp_path / "err").write_text(text)
        shown = orch("explain", "--agent", "mine", "--stderr", str(tmp_path / "err"), *NOW, "--json").json
        assert (shown["outcome"], shown["rule"], shown["evidence"]) == (outcome, rule, text), shown


@pytest.mark.parametrize(("arguments", "named"), [
    (("--agent", "nobody"), "nobody"), (("--stdout", "/nonexistent"), "/nonexistent"), (("--stderr", "/"), "/"),
    (("--prompt", "/nonexistent"), "/nonexistent"), (("--zone", "Mars/Base"), "Mars/Base"), (("--zone", "../x"), "../x"),
    (("--now", "yesterday"), "yesterday"), (("--now", "1e400"), "1e400"), (("--exit", "many"), "many"),
    (("--stdout", "-", "--stderr", "-"), "not two"), (("--exit", "300"), "300"), (("--exit=-99",), "-99"), (("--task", "zzz"), "zzz"),
])
def test_bad_input_is_one_line_and_exit_2(orch, arguments, named):
    assert named in one_line_error(orch("explain", *arguments))


def test_standard_input_and_pipes_are_read(orch, shell):
    limit = "You've hit your weekly limit · resets Mon 12:00am"
    for stream in ("--stdout - <<< $LIMIT", "--stdout <(echo $LIMIT)", "--stdout /dev/stdin < <(echo $LIMIT)"):
        shown = json.loads(shell(f"orch explain --agent claude --json {' '.join(NOW)} {stream}", LIMIT=limit).out)
        assert (shown["outcome"], shown["reset_at"]) == ("limited", "2026-09-21T00:00:00Z"), (stream, shown)


def test_output_that_is_no_text_is_read(orch, tmp_path):
    (tmp_path / "out").write_bytes(b"\xff\xfe\x00bad\nYou've hit your limit \xc2\xb7 resets 3pm")
    shown = orch("explain", "--agent", "claude", "--stdout", str(tmp_path / "out"), *NOW, "--json").json
    assert (shown["outcome"], shown["reset_at"]) == ("limited", "2026-09-15T15:00:00Z"), shown
