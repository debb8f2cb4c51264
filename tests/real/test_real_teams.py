"""A team of real agents: one plans, another builds, the first reviews what has changed; then two review at once."""
from __future__ import annotations

import pytest
from conftest import git  # tests/conftest.py

from .conftest import told
from .models import say, write

ROLES = {"planner": {"agent": "claude", "prompt": "You plan.", "writes": False},
         "builder": {"agent": "codex", "prompt": "You build."},
         "reviewer": {"agent": "claude", "prompt": "You review.", "writes": False},
         "critic": {"agent": "codex", "prompt": "You criticise.", "writes": False}}
REQUEST = "add made.txt, please"


@pytest.fixture
def checkout(real, committed):
    """A repository with one commit, and a config with teams."""
    real.configure({"limit_grace": "3s", "roles": ROLES, "teams": {"three": ["planner", "builder", "reviewer"], "pair": ["reviewer", "critic"]}})
    return committed


def test_team_of_three_on_two_real_agents(real, checkout):
    first = real.log_in("claude", say("Long words.\n## Handoff\nmake made.txt with one line"), say("I have read it: fine."))
    second = real.log_in("codex", write(str(checkout / "made.txt"), "the only line\n"), say("Built.\n## Handoff\nmade.txt is there"))
    done = real("--json", "--team", "three", "--", REQUEST, timeout=150)
    result = done.json
    assert (done.code, [(role["name"], role["status"], role["agent"]) for role in result["roles"]]) == (
        0, [("planner", "ok", "claude"), ("builder", "ok", "codex"), ("reviewer", "ok", "claude")]), done
    assert result["changed_files"] == ["made.txt"]
    planner, reviewer = first.conversation
    for part in ("You plan.", REQUEST):
        assert told(planner, part), part
    for part in ("You build.", REQUEST, "make made.txt with one line"):
        assert told(second.conversation[0], part), part
    assert not told(second.conversation[0], "Long words.")
    for part in ("You review.", REQUEST, "make made.txt with one line", "made.txt is there", "+the only line"):
        assert told(reviewer, part), part
    assert result["answer"].endswith("I have read it: fine.") and result["usage"]["output_tokens"] > 0
    assert {line["role"] for line in real.ledger()} == {"planner", "builder", "reviewer"}
    assert git("status", "--porcelain", cwd=checkout) == "?? made.txt\n"


def test_two_real_agents_review_at_once(real, checkout):
    real.log_in("claude", say("from the reviewer"))
    real.log_in("codex", say("from the critic"))
    done = real("--events", "--team", "pair", "--", REQUEST, timeout=150)
    assert done.code == 0 and done.events[-1]["answer"].index("reviewer") < done.events[-1]["answer"].index("critic"), done
    order = [event["type"] for event in done.events if event["type"] in ("attempt_start", "attempt_end")]
    assert order == ["attempt_start", "attempt_start", "attempt_end", "attempt_end"]
    assert git("status", "--porcelain", cwd=checkout) == ""


def test_real_role_that_failed_is_run_again_by_resume(real, checkout):
    real.log_in("claude", say("Plan.\n## Handoff\nmake made.txt"))
    real.log_in("codex", "refused")
    run_id = real("--json", "--no-failover", "--roles", "planner,builder", "--", REQUEST, timeout=150).json["run_id"]
    again = real.log_in("codex", say("Built."))
    done = real("runs", "resume", run_id, "--json", timeout=150)
    assert (done.code, done.json["run_id"], [role["status"] for role in done.json["roles"]]) == (0, run_id, ["ok", "ok"]), done
    assert told(again.conversation[0], "make made.txt")
