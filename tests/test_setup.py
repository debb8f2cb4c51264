"""`orch init` and `orch agents`: what is there, what is logged in, and what to do about the rest."""
from __future__ import annotations

import json

import pytest
from conftest import codex_ok, one_line_error

import orch as core

HINTS = {agent.name: (agent.install_hint, agent.login_hint) for agent in core.AGENTS}


def written(orch):
    assert orch("config", "check").code == 0
    return json.loads((orch.home / "config.json").read_text())


def test_init_puts_first_who_is_logged_in_then_who_may_be(orch, fake):
    for name in ("claude", "codex", "gemini"):
        fake(name)
    fake.log_out("claude")
    result = orch("init")
    assert (result.code, result.out) == (0, f"{orch.home / 'config.json'}\n")
    config = written(orch)
    assert config["order"] == ["codex", "gemini", "claude"]
    assert [rule["agent"] for rule in config["rules"]] == ["gemini", "codex"]
    found = config["_found"]
    assert found["codex"] == "installed, logged in"
    assert found["claude"] == f"installed, not logged in; {HINTS['claude'][1]}"
    assert found["gemini"] == f"installed; if it is not logged in: {HINTS['gemini'][1]}"
    assert found["copilot"] == f"not installed; {HINTS['copilot'][0]}; then {HINTS['copilot'][1]}"
    assert result.notices == [f"orch: {name}: {what}" for name, what in found.items()]
    assert fake.calls == [] and sorted(fake.login_checks) == ["claude", "codex"]


def test_init_with_one_agent_writes_rules_for_it(orch, fake):
    fake("opencode")
    orch("init")
    config = written(orch)
    assert config["order"] == ["opencode"]
    assert {rule["agent"] for rule in config["rules"]} == {"opencode"}


def test_init_with_nothing_installed_writes_the_example_for_all_and_says_how_to_install(orch):
    result = orch("init")
    assert result.code == 0
    assert written(orch)["order"] == [agent.name for agent in core.AGENTS]
    for install, login in HINTS.values():
        assert f"not installed; {install}; then {login}" in result.err


def test_what_init_wrote_is_used(orch, fake):
    fake("codex", codex_ok("done"))
    fake("claude")
    fake.log_out("claude")
    orch("init")
    assert {rule["agent"] for rule in written(orch)["rules"]} == {"codex"}     # no rule sends anything to nobody
    assert orch("hello").out == "done\n"


def test_init_refuses_before_it_looks(orch, fake):
    fake("claude")
    orch.configure({})
    assert "move it away" in one_line_error(orch("init"))
    assert fake.login_checks == []


def test_init_does_not_follow_a_link(orch):
    orch.home.mkdir(mode=0o700)
    (orch.home / "config.json").symlink_to(orch.base / "elsewhere")
    assert "config.json" in one_line_error(orch("init"))
    assert not (orch.base / "elsewhere").exists()


def test_agents_says_how_to_install_and_log_in(orch, fake):
    for name in ("claude", "codex", "gemini"):
        fake(name)
    fake.log_out("codex")
    rows = {row["agent"]: row for row in orch("agents", "--json").json}
    assert rows["claude"]["hint"] is None
    assert rows["codex"]["hint"] == HINTS["codex"][1]
    assert rows["gemini"]["hint"] == f"if it is not logged in: {HINTS['gemini'][1]}"
    assert rows["opencode"]["hint"] == f"{HINTS['opencode'][0]}; then {HINTS['opencode'][1]}"
    for name, row in rows.items():
        assert (row["install_hint"], row["login_hint"]) == HINTS[name]
        assert (row["hint"] or "-") in orch("agents").out


def test_agents_of_the_config_have_hints_of_their_own_or_the_name_of_their_program(orch, fake):
    orch.configure({"agents": {"mine": {"command": ["my-agent", "--go"]},
                               "yours": {"command": ["your-agent"], "install_hint": "ask them", "login_hint": "knock"}}})
    rows = {row["agent"]: row for row in orch("agents", "--json").json}
    assert rows["mine"]["hint"] == "install `my-agent` on the PATH" and rows["mine"]["install_hint"] is None
    assert rows["yours"]["hint"] == "ask them; then knock"


@pytest.mark.parametrize("agent", core.AGENTS, ids=lambda agent: agent.name)
def test_every_built_in_agent_has_both_hints(agent):
    assert agent.install_hint.split()[0] == "npm" and f"`{agent.command[0]}" in agent.login_hint


def test_the_readme_has_the_same_commands():
    from test_structure import readme
    for agent in core.AGENTS:
        row = next(line for line in readme().splitlines() if line.startswith(f"| `{agent.name}` | `npm"))
        assert f"`{agent.install_hint}`" in row
        assert row.split("|")[3].strip().split("`")[1] in agent.login_hint
