"""Real agents under stress: odd prompts, odd standard input, signals, git hooks."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from conftest import git, wait_until  # tests/conftest.py

from .conftest import survivors, told
from .models import ANSWER, say, shell

AGENTS = ["claude", "codex", "opencode", "gemini", "copilot"]
agents = pytest.mark.parametrize("agent", AGENTS)

ODD_PROMPT = "--help -x 'quoted' \"twice\" $HOME `id` \\n é 🎉\n--\n- a list\n/init"
LONG_PROMPT = "-" + "the quick brown fox " * 10_000 + "and its end"


@pytest.mark.proves("any prompt")
@agents
def test_prompt_reaches_a_real_agent_unchanged_beside_an_open_silent_standard_input(real, agent):
    play = real.log_in(agent, say())
    read_end, write_end = os.pipe()
    try:
        done = real.ask(agent, prompt=ODD_PROMPT, stdin=read_end)
    finally:
        os.close(read_end)
        os.close(write_end)
    assert (done.code, done.json["answer"]) == (0, ANSWER), done
    assert told(play.conversation[0], ODD_PROMPT), play.conversation[0].body


@pytest.mark.proves("any prompt")
@agents
def test_prompt_of_200_kb_reaches_a_real_agent_unchanged(real, agent):
    play = real.log_in(agent, say())
    done = real("--json", "--no-failover", "-a", agent, "-", input=LONG_PROMPT, timeout=150)
    assert (done.code, done.json["answer"]) == (0, ANSWER), done
    assert told(play.conversation[0], LONG_PROMPT)


@pytest.mark.proves("stops")
@pytest.mark.parametrize("busy", ["thinking", "in its shell"])
@agents
def test_nothing_of_a_stopped_real_agent_survives(real, agent, busy, mark):
    asleep = real.work / "asleep"
    step = "silence" if busy == "thinking" else shell(f": {mark}; touch {asleep}; sleep 300")
    play = real.log_in(agent, step, say())
    process = real.start("--json", "--no-failover", "-a", agent, "--access", "full", "say hello", env={"MARK": mark})
    wait_until(lambda: play.conversation and (busy == "thinking" or asleep.exists()), timeout=60, what="work of the agent")
    time.sleep(0.5)
    assert survivors(mark), "nothing to stop"
    asked = time.monotonic()
    process.terminate()
    out, err = process.communicate(timeout=60)
    took_s = time.monotonic() - asked
    assert process.returncode == -signal.SIGTERM, err
    assert survivors(mark) == {}
    assert took_s < 8
    result = json.loads(out)
    assert (result["status"], result["exit_code"], len(result["attempts"])) == ("aborted", 143, 1)


HOOK = """#!/bin/sh
exec <&-
exec {orch} --json --no-failover -a {agent} --access full "say hello" > {base}/result.json 2> {base}/stderr
"""


@pytest.mark.proves("`full`, in a git hook")
@agents
def test_real_agent_works_in_a_git_hook_with_standard_input_closed(real, agent):
    seen = real.base / "seen"       # outside the directory: what `full` allows
    real.log_in(agent, shell(f"git rev-parse --show-toplevel > {seen}; git status > status.txt; env >> {seen}"), say())
    git("init", "-q", cwd=real.work)
    hook = real.work / ".git" / "hooks" / "pre-commit"
    hook.write_text(HOOK.format(orch=real.program, agent=agent, base=real.base))
    hook.chmod(0o755)
    (real.work / "staged.txt").write_text("staged\n")
    (real.work / "other.txt").write_text("not staged\n")
    git("add", "staged.txt", cwd=real.work)
    author = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", "commit", "-q", "-m", "one", "staged.txt"], cwd=real.work, env={**real.env, **author},
                          capture_output=True, text=True, timeout=150, check=False)
    result = json.loads((real.base / "result.json").read_text())
    assert (done.returncode, result["answer"]) == (0, ANSWER), done
    assert git("show", "--name-only", "--format=", cwd=real.work).split() == ["staged.txt"]
    top, *variables = seen.read_text().splitlines()
    inherited = {line.partition("=")[0] for line in variables}
    assert not inherited & {"GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX"}
    assert {"ORCH_DEPTH", "ORCH_ATTEMPT_ID"} <= inherited
    assert top == str(real.work)
