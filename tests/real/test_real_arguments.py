"""The rows of orch's table of agents against the real CLIs: versions, flags, log-in checks."""
from __future__ import annotations

import subprocess

import pytest

import orch

from .agents import change_settings
from .install import PINS
from .models import say

ROWS = {row.name: row for row in orch.AGENTS}


def effort_of(request):
    """The effort that a request asks for."""
    body = request.body
    thinking = body.get("generationConfig", {}).get("thinkingConfig", {})
    return (body.get("output_config", {}).get("effort") or body.get("reasoning", {}).get("effort") or body.get("reasoning_effort")
            or thinking.get("thinkingLevel"))


@pytest.mark.proves("flags")
@pytest.mark.parametrize("agent, model, asked", [
    ("claude", "claude-sonnet-5", "claude-sonnet-5"), ("codex", "gpt-9-other", "gpt-9-other"),
    ("opencode", "pretend/two", "two"), ("gemini", "gemini-2.5-pro", "gemini-2.5-pro"), ("copilot", "gpt-5.2", "gpt-5.2")])
def test_model_and_effort_reach_the_model(real, agent, model, asked):
    play = real.log_in(agent, say())
    if agent == "opencode":
        models = {name: {"name": name, "reasoning": True, "limit": {"context": 200_000, "output": 8_000}} for name in ("one", "two")}
        path = real.user_home / ".config" / "opencode" / "opencode.json"
        provider = {"npm": "@ai-sdk/openai-compatible", "models": models, "options": {"baseURL": f"{play.url}/v1", "apiKey": "sk-test-000"}}
        change_settings(path, {"provider": {"pretend": provider}})
    flags = ["--effort", "high"] if ROWS[agent].effort_args else []
    done = real.ask(agent, "--model", model, *flags)
    assert done.code == 0, done
    assert play.conversation[0].model == asked
    assert done.json["attempts"][0]["model"] == model
    if flags:
        assert effort_of(play.conversation[0]) == "high", play.conversation[0].body


@pytest.mark.proves("flags")
@pytest.mark.parametrize("agent", list(PINS))
def test_version_is_the_pinned_one(real, agent):
    done = subprocess.run([agent, "--version"], env=real.env, cwd=real.work, capture_output=True, text=True, timeout=60, check=False)
    assert PINS[agent][1] in done.stdout, done


@pytest.mark.proves("flags")
@pytest.mark.parametrize("login", ["claude", "claude-plan", "codex-plan"])
def test_login_check_tells_who_is_logged_in(real, login):
    agent = login.partition("-")[0]

    def status():
        return subprocess.run(ROWS[agent].login_check, env=real.env, cwd=real.work, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=60, check=False).returncode
    assert status() != 0
    real.log_in(login, say())
    assert status() == 0
