"""From one real agent to the next: the first changes a file and hits its limit, the second is told so."""
from __future__ import annotations

import hashlib

import pytest

from .conftest import told
from .models import say, write

REQUEST = "add made.txt, please"
PAIRS = [("claude-plan", "codex"), ("codex", "claude"), ("opencode", "gemini"), ("gemini", "copilot"), ("copilot", "opencode")]


@pytest.fixture
def checkout(committed):
    """A repository with one commit and a change of the user's own."""
    (committed / "old.txt").write_text("committed\nand changed by the user\n")
    return committed


@pytest.mark.parametrize("first, second, agent", [
    pytest.param(first, second, second, marks=pytest.mark.proves("takes over"), id=f"{first}-to-{second}") for first, second in PAIRS])
def test_next_real_agent_is_told_what_the_first_has_changed(real, checkout, first, second, agent):
    before = digests(checkout / ".git")
    real.log_in(first, write(str(checkout / "made.txt"), "four lines\nof text\nby the\nfirst agent\n"), "usage_limit")
    heard = real.log_in(second, say("finished"))
    configure(real, first, second)
    done = real("--json", "--", REQUEST, timeout=150)
    result = done.json
    assert [attempt["outcome"] for attempt in result["attempts"]] == ["limited", "ok"], done
    assert (done.code, result["agent"], result["answer"]) == (0, second, "finished")
    assert result["changed_files"] == ["made.txt"]
    for part in (REQUEST, "+of text", result["attempts"][0]["error"][:40], "made.txt", "old.txt"):
        assert told(heard.conversation[0], part), f"{part!r} is not in the handoff"
    assert not told(heard.conversation[0], "+and changed by the user")
    assert digests(checkout / ".git") == before


@pytest.mark.parametrize("agent, other", [
    pytest.param(agent, other, marks=pytest.mark.proves("takes over"), id=agent)
    for agent, other in (("claude", "codex"), ("codex", "claude"), ("opencode", "codex"), ("gemini", "codex"), ("copilot", "codex"))])
def test_failed_real_agent_is_asked_for_a_summary_in_its_own_session(real, checkout, agent, other):
    first = real.log_in(agent, write(str(checkout / "made.txt"), "one"), "strange", say("I made a file and stopped."))
    heard = real.log_in(other, say("finished"))
    configure(real, agent, other)
    done = real("--json", "--", REQUEST, timeout=150)
    assert [attempt["error_class"] for attempt in done.json["attempts"]] == ["unknown", None], done
    assert told(first.conversation[-1], REQUEST), "the summary was not asked in the same session"
    assert told(heard.conversation[0], "I made a file and stopped."), done


def configure(real, first, second):
    """Make these two the only agents, in this order."""
    names = [login.partition("-")[0] for login in (first, second)]
    others = {name: {"enabled": False} for name in ("claude", "codex", "opencode", "gemini", "copilot") if name not in names}
    return real.configure({"limit_grace": "3s", "order": names, "agents": others})


def digests(folder):
    """{file: hash of its content} of everything below a folder, but for the one that opencode writes into .git."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*") if path.is_file() and path != folder / "opencode"}
