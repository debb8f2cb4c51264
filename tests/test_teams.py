"""Roles and teams: in order and at once, what is handed over, what is kept, what a failure stops."""
from __future__ import annotations

import json

import pytest
from conftest import claude_ok, codex_ok, one_line_error

ROLES = {
    "planner": {"prompt": "You plan."}, "builder": {"prompt": "You build.", "agent": "codex"},
    "reviewer": {"prompt": "You review.", "writes": False}, "critic": {"prompt": "You criticise.", "writes": False},
    "tester": {"prompt": "You test."},
}
CONFIG = {"roles": ROLES, "teams": {"full": ["planner", "builder", "tester"], "review": ["builder", "reviewer", "critic", "tester"]}}


def run_folder(orch):
    """The folder of the only run."""
    (folder,) = [path for path in (orch.work / ".orch" / "runs").iterdir() if path.is_dir()]
    return folder


@pytest.fixture
def team(orch):
    """orch with roles in its config."""
    orch.configure(CONFIG)
    return orch


def test_a_role_is_told_its_prompt_and_the_request_word_for_word(team, fake):
    fake("claude", claude_ok("42"))
    result = team("--role", "planner", "what ```is``` it?")
    assert (result.code, result.out) == (0, "42\n"), result
    prompt = fake.call.prompt.decode()
    assert prompt.startswith("You plan.\n") and "what ```is``` it?" in prompt
    assert fake.call.env["ORCH_ROLE"] == "planner"
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
    assert "use b.py" in fake.calls[1].prompt.decode() and "The plan." not in fake.calls[1].prompt.decode()
    assert "see c.py" in fake.calls[2].prompt.decode() and "use b.py" in fake.calls[2].prompt.decode()
    assert (run_folder(team) / "planner.md").read_text() == "The plan.\n## Handoff\nuse b.py\n"
    assert json.loads((run_folder(team) / "run.json").read_text())["status"] == "ok"


def test_an_unknown_role_is_refused_with_the_nearest(team, fake):
    fake("claude")
    assert 'did you mean "planner"?' in one_line_error(team("--role", "planer", "x"))
    assert 'did you mean "full"?' in one_line_error(team("--team", "fulll", "x"))
    assert not (team.work / ".orch").exists()


def test_a_plain_run_creates_no_orch_folder(team, fake):
    fake("claude", claude_ok("42"))
    assert team("hi").out == "42\n"
    assert not (team.work / ".orch").exists()
