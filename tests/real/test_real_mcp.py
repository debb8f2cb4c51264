"""`orch mcp` with clients that nobody here wrote: the official Python SDK, the MCP Inspector, and the real agents."""
from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import claude_ok, step, wait_until  # tests/conftest.py

from .agents import change_settings
from .conftest import FOLDER, told
from .install import client_folder, why_no_client
from .models import say, use

TIMEOUT_S = 120
HANGS = "open('begun', 'w').close()\ntime.sleep(300)\n"


def folder_of(client):
    """Where a client is installed; skips the test where it is not."""
    why = why_no_client(client, Path(FOLDER))
    if why:
        pytest.skip(why)
    return client_folder(client, Path(FOLDER))


def run(argv, orch):
    """Run a client beside orch's fakes or agents; returns what it printed."""
    done = subprocess.run(argv, env=orch.env, cwd=orch.work, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done
    return done.stdout


# === CLIENTS =============================================================

@pytest.mark.parametrize("mode, revision", [("auto", "2026-07-28"), ("legacy", "2025-11-25"), ("2026-07-28", "2026-07-28")])
def test_official_python_sdk_gets_what_it_asks_for(orch, fake, program, mode, revision):
    fake("claude", *[claude_ok("42")] * 3, step(run=HANGS), claude_ok("42"))
    python = folder_of("python-sdk") / "bin" / "python"
    seen = json.loads(run([python, Path(__file__).with_name("sdk_client.py"), program, mode], orch))
    assert seen.pop("progress") == sorted(range(1, 4)), seen
    assert seen == {
        "revision": revision, "tools": ["orch_run", "orch_status", "orch_usage"], "run": [False, "42", "42"], "refused": True,
        "status": ["agents", "running", "today"], "usage": ["corrupt_lines", "groups", "total"], "both": ["42", "42"],
        "unknown": -32602, "cancelled": True, "after": "42"}
    assert sorted(job["status"] for job in orch.state()["jobs"]) == ["aborted", "ok", "ok", "ok", "ok"]
    assert orch.leftovers() == {}


def test_mcp_inspector_lists_and_calls(orch, fake, program):
    fake("claude", claude_ok("42"))
    node = Path(FOLDER) / "bin" / "node"
    inspector = folder_of("inspector") / "node_modules" / ".bin" / "mcp-inspector"
    variables = [word for name, text in orch.env.items() for word in ("-e", f"{name}={text}")]

    def ask(*words):
        return json.loads(run([node, inspector, "--cli", *variables, program, "mcp", *words], orch))
    tools = {tool["name"]: tool for tool in ask("--method", "tools/list")["tools"]}
    assert list(tools) == ["orch_run", "orch_status", "orch_usage"] and tools["orch_run"]["outputSchema"]["type"] == "object"
    result = ask("--method", "tools/call", "--tool-name", "orch_run", "--tool-arg", "prompt=what?")
    assert (result["content"], result["structuredContent"]["answer"]) == ([{"type": "text", "text": "42"}], "42")
    assert ask("--method", "tools/call", "--tool-name", "orch_status")["structuredContent"]["today"]["attempts"] == 1
    assert orch.leftovers() == {}


# === AGENTS ==============================================================
# As the README says to add orch. All but claude and opencode keep the environment from their servers, and the
# pretend logins are made of variables: `-e`.

def add_to_claude(real, variables):
    run(["claude", "mcp", "add", "orch", "--", real.program, "mcp"], real)
    return ["claude", "-p", "--allowedTools", "mcp__orch__orch_run", "--"]


def add_to_codex(real, variables):
    run(["codex", "mcp", "add", "orch", *[w for pair in variables for w in ("--env", pair)], "--", real.program, "mcp"], real)
    config = real.user_home / ".codex" / "config.toml"
    more = '[mcp_servers.orch]\ntool_timeout_sec = 3600\ndefault_tools_approval_mode = "approve"\n'
    config.write_text(config.read_text().replace("[mcp_servers.orch]\n", more))
    return ["codex", "exec", "--skip-git-repo-check", "--"]


def add_to_gemini(real, variables):
    run(["gemini", "mcp", "add", "--scope", "user", "--timeout", "3600000", "--trust", *[w for pair in variables for w in ("-e", pair)],
         "orch", str(real.program), "mcp"], real)
    return ["gemini", "-p"]


def add_to_copilot(real, variables):
    run(["copilot", "mcp", "add", "orch", *[w for pair in variables for w in ("--env", pair)], "--", real.program, "mcp"], real)
    return ["copilot", "--allow-tool", "orch", "-p"]


def add_to_opencode(real, variables):
    server = {"type": "local", "command": [str(real.program), "mcp"], "timeout": 3_600_000}
    change_settings(real.user_home / ".config" / "opencode" / "opencode.json", {"mcp": {"orch": server}})
    return ["opencode", "run", "--"]


ADD = {"claude": add_to_claude, "codex": add_to_codex, "gemini": add_to_gemini, "copilot": add_to_copilot, "opencode": add_to_opencode}


@pytest.mark.proves("calls orch as a tool")
@pytest.mark.parametrize("agent", list(ADD))
def test_real_agent_gives_a_task_to_another_by_orch(real, agent):
    other = "codex" if agent == "claude" else "claude"
    asks = real.log_in(agent, use("orch_run", prompt="say something", agent=other), say("that is all"))
    heard = real.log_in(other, say("words of the other agent"))
    names = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "IS_SANDBOX", "ORCH_HOME")
    argv = ADD[agent](real, [f"{name}={real.env[name]}" for name in names if name in real.env])
    printed = run([*argv, "ask orch"], real)
    assert [(line["agent"], line["outcome"]) for line in real.ledger()] == [(other, "ok")], (
        printed, asks.conversation[0].tools, asks.conversation[-1].body)
    assert "that is all" in printed
    assert told(heard.conversation[0], "say something")
    assert told(asks.conversation[-1], "words of the other agent"), asks.conversation[-1].body
    assert real.state()["jobs"][-1]["status"] == "ok"
    wait_until(lambda: not [words for words in real.leftovers().values() if str(real.program) in words], what="the end of the server")


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_real_agent_that_orch_started_may_not_start_another(real, agent):
    other = "codex" if agent == "claude" else "claude"
    asks = real.log_in(agent, use("orch_run", prompt="say something", agent=other), say("that is all"))
    ADD[agent](real, [])                                   # codex keeps ORCH_DEPTH from its servers; the ancestry tells
    if agent == "claude":
        change_settings(real.user_home / ".claude" / "settings.json", {"permissions": {"allow": ["mcp__orch__orch_run"]}})
    done = real.ask(agent)
    assert (done.code, done.json["answer"]) == (0, "that is all"), done
    assert told(asks.conversation[-1], "already inside an agent that orch started") or "already inside an agent" in json.dumps(
        asks.conversation[-1].body), asks.conversation[-1].body
    assert len(real.ledger()) == 1
