"""`-n` prints the route and the exact argument lists; it starts nothing and writes nothing."""
from __future__ import annotations

import subprocess

import pytest
from conftest import claude_ok


@pytest.mark.parametrize("options", [[], ["--json"], ["-a", "codex"], ["-m", "some-model", "--access", "read"], ["--", "--help"]])
def test_a_dry_run_starts_and_writes_nothing(orch, fake, repo, options):
    fake("claude")
    fake("codex")
    before = sorted(repo.rglob("*"))
    result = orch("-n", "hi", *options)
    assert result.code == 0, result
    assert result.out
    assert fake.calls == [] and fake.login_checks == []
    assert not orch.home.exists()
    assert sorted(repo.rglob("*")) == before


def test_a_dry_run_shows_what_a_run_would_start(orch, fake):
    fake("claude", claude_ok())
    shown = orch("-n", "-m", "some-model", "fix the bug").out
    orch("-m", "some-model", "fix the bug")
    for word in ["claude", *fake.call.argv]:
        assert word in shown, (word, shown)


def test_a_dry_run_in_json_holds_the_argument_lists(orch, fake):
    fake("claude", claude_ok())
    value = orch("-n", "--json", "fix it's $(bug)").json
    orch("fix it's $(bug)")
    wanted = ["claude", *fake.call.argv]

    def lists(node):
        if isinstance(node, list):
            yield node
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from lists(child)
    assert any(found[-len(wanted) + 1:] == wanted[1:] and found[0].endswith("claude") for found in lists(value) if found), value


def test_a_dry_run_shows_the_order_of_failover_and_why_an_agent_is_skipped(orch, fake):
    fake("claude")
    fake("codex")
    orch("cooldown", "set", "claude", "1h")
    shown = orch("-n", "hi").out
    assert "codex" in shown and "claude" in shown


def test_a_dry_run_shows_arguments_as_a_shell_takes_them(orch, fake):
    fake("claude")
    prompt = "it's\ttwo\nlines \\ \x1b[31m"
    shown = orch("-n", "-a", "claude", "--", prompt).out
    words = next(line for line in shown.splitlines() if line.strip().startswith("claude -p"))
    done = subprocess.run(["bash", "-c", f"set -- {words}; printf %s \"${{!#}}\""], capture_output=True, check=True)
    assert done.stdout.decode() == prompt


def test_a_dry_run_refuses_what_a_run_refuses(orch, fake):
    fake("claude")
    assert orch("-n", "-a", "claud", "hi").code == 2
    assert orch("-n", "").code == 2


@pytest.mark.parametrize("plan", [[], ["--role", "r"]])
def test_a_plan_is_one_line_among_events_and_quiet_where_that_is_asked_for(orch, fake, repo, plan):
    fake("claude")
    orch.configure({"roles": {"r": {"prompt": "p"}}})
    orch.configure({"access": "full"}, repo / ".orch" / "config.json")
    assert len(orch("-n", "--events", *plan, "hi").events) == 1
    assert orch("-n", *plan, "hi").notices and orch("-n", "-q", *plan, "hi").err == ""
