"""Every message of the corpus, judged as plain text and as the agent's own row.

How a row's `stream` becomes an attempt:

  stdout, stderr   the text stands on that stream, the other one is empty. It is judged twice: by the agent's row with
                   `output` "text" (a user who runs the CLI in its plain mode), and by the row as it is (a machine
                   format that meets plain text). Where the row's format is a machine format, the text stands on stderr
                   and the case is `ok`, the second run gets a complete answer of that format on stdout: with nothing
                   there the right verdict is `failed` whatever stderr says.
  stdout-json,     the text is the machine format of the agent, and its row is used as it is.
  stderr-json
An agent without a row is a user's own: text output, no patterns.
"""
import json
import os

import pytest

import orch as v
from orch import Agent, Ended, replaced

DATA = os.path.join(os.path.dirname(__file__), "data")


def read_rows(name):
    with open(os.path.join(DATA, name), encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


ROWS = read_rows("messages.jsonl")
MORE = read_rows("more_messages.jsonl")
BY_NAME = {agent.name: agent for agent in v.AGENTS}
ANSWERS = {
    "claude-stream": '{"type":"result","subtype":"success","is_error":false,"result":"Done."}',
    "codex-json": '{"type":"item.completed","item":{"type":"agent_message","text":"Done."}}\n{"type":"turn.completed"}',
    "opencode-json": '{"type":"text","part":{"text":"Done."}}\n{"type":"step_finish","part":{"reason":"stop"}}',
    "gemini-json": '{"response": "Done.", "stats": {}}',
    "copilot-json": '{"type":"assistant.message","data":{"content":"Done."}}\n{"type":"result","exitCode":0}',
    "text": "",
}


def judged(agent, stdout, stderr, exit_code, row, prompt="do the work"):
    fmt = v.FORMATS[agent.output]
    draft = v.Draft()
    for stream, text in (("stdout", stdout), ("stderr", stderr)):
        for line in text.split("\n"):
            v.feed_line(fmt, draft, line.encode("utf-8", "surrogatepass"), stream)
    ended = Ended(exit_code, None if exit_code is not None else 15, None, stdout, stderr)
    report = v.finish(fmt, draft, ended)
    return v.classify(agent, ended, report, prompt, v.Clock(row["now"], row["zone"]))


def attempts(row):
    own = BY_NAME.get(row["agent"], Agent(row["agent"], (row["agent"],)))
    stream, _, machine = row["stream"].partition("-")
    plain = replaced(own, output="text")
    for agent in [own] if machine else [plain, own] if own.output != "text" else [own]:
        out, err = (row["text"], "") if stream == "stdout" else ("", row["text"])
        if stream == "stderr" and row["expect_class"] == "ok" and not machine:
            out = ANSWERS[agent.output]
        yield agent, out, err


@pytest.mark.parametrize("row", ROWS + MORE, ids=lambda row: row["id"])
def test_message_of_the_corpus_is_understood(row):
    for agent, out, err in attempts(row):
        exit_code = row["exit_code"]
        verdict = judged(agent, out, err, exit_code, row)
        allowed = {row["expect_class"], row["alt_class"]} - {None}
        assert verdict.outcome in allowed, (agent.output, verdict)
        assert verdict.rule and verdict.evidence, verdict
        if verdict.outcome != "limited" or row["expect_class"] != "limited":
            continue
        # `model` says that the text need not name the model; naming it is no mistake
        assert row["scope"] in (verdict.scope, verdict.scope.partition(":")[0]), verdict
        resets = [at for at in (row["expect_reset"], row["alt_reset"]) if at is not None]
        if not resets:
            assert verdict.reset_at is None, verdict
        else:
            assert verdict.reset_at is not None, verdict
            off = min(abs(verdict.reset_at - at) for at in resets)
            assert off <= (row["tolerance_s"] or 0) + 1, (off, verdict)


# What the corpus leaves open: the class, which decides how long a guess cools, and the model that a limit is for
CLASSES = [
    ("mine", "Error: balance too low", "limited", "credits", "agent"),
    ("mine", '{"error": "rate_limit", "session_id": "s1"}: rate limit exceeded', "limited", "rate_limit", "agent"),
    ("mine", 'Error: 403 {"error":{"message":"Key limit exceeded (total limit). Manage it using https://x/keys","code":403}}',
     "limited", "credits", "agent"),
    ("claude", "API Error: Request timed out. Check your internet connection and proxy settings", "failed", "network", "agent"),
    ("claude", "API Error: The socket connection was closed unexpectedly.", "failed", "network", "agent"),
    ("cursor-agent", "Error: You've hit your usage limit for Opus. Switch to Auto for more usage or set a Spend Limit.",
     "limited", "usage_limit", "model:opus"),
    ("codex", "ERROR: You've hit your usage limit for codex-mini. Switch to another model now, or try again later.",
     "limited", "usage_limit", "model:codex-mini"),
    ("droid", '402 {"status":402,"title":"Payment Required","detail":"You\'ve reached your 5-hour usage limit."}',
     "limited", "usage_limit", "agent"),
    ("claude", "API Error: Request rejected (429) · [1309][Your GLM Coding Plan package has expired and is temporarily "
     "unavailable. You can go to the website to renew]", "limited", "credits", "agent"),
    ("mine", "litellm.InternalServerError: Overloaded\nThe API provider's servers are down or overloaded.",
     "failed", "overloaded", "agent"),
]


@pytest.mark.parametrize("name, text, outcome, error_class, scope", CLASSES)
def test_class_and_scope_of_a_message(name, text, outcome, error_class, scope):
    agent = replaced(BY_NAME.get(name, Agent(name, (name,))), output="text")
    streams = (text, "") if agent.verdict_stream == "stdout" else ("", text)
    verdict = judged(agent, *streams, 1, {"now": 1796076000.0, "zone": "UTC"})
    assert (verdict.outcome, verdict.error_class, verdict.scope) == (outcome, error_class, scope), verdict
