"""Agent x scenario: what orch makes of everything that a real agent says of its model's answers.

The rows are played beside all other tests (conftest.py), from the beginning: agents wait more than they compute.
"""
from __future__ import annotations

import datetime
import re
import time
from typing import NamedTuple

import pytest
from conftest import Result  # tests/conftest.py

from .models import ANSWER, Play, say, write

# What a printed reset is good for
EPOCH = "epoch"         # stated to the second, and kept
CLOCK = "clock"         # printed to the minute, which cuts the seconds; orch adds a minute
IN_2S, IN_2H = "in 2 s", "in 2 h"      # from when it was read
GUESS_5M, GUESS_1H = "a guess of 5 minutes", "a guess of 1 hour"
SPANS = {IN_2S: 2, IN_2H: 7200, GUESS_5M: 300, GUESS_1H: 3600}

# What one answer uses (input, output, cache reads), from what the pretend models claim; output includes reasoning
CLAUDE = (11 + 22, 44, 33)
OPENAI = (1100 - 600, 70, 600)
GEMINI = (1200 - 700, 80 + 20, 700)
OPENCODE_USD = (500 * 1 + 600 * 0.1 + 70 * 10) / 1e6
NONE, ZERO = None, (0, 0, 0)
OWN = "its own"         # a cost from the agent's price list

# What decided, as `orch explain` names it
OWN_LIMIT, OWN_AUTH, HTTP_401, SITS = "limit pattern", "auth pattern", "http 401", "retries at a limit"
HIT, REACHED, CREDITS = "limit: hit a limit", "limit: limit reached", "limit: credits"    # patterns for any agent


class Row(NamedTuple):
    """One line of the table."""
    login: str
    scenario: str                        # see `_steps`; a * behind: with the agent's default retries
    outcome: str
    error_class: str | None
    code: int                            # orch's exit status
    reset: str | None = None
    used: tuple[int, int, int] | None = NONE
    cost: str | float | None = None
    session: bool | None = True          # whether its id is known; None: it depends on how fast the agent is
    rule: str | None = None              # what `orch explain` says decided, of a limit or a refusal
    grace: str = "3s"                    # `limit_grace`

    def __str__(self):
        return f"{self.login}-{self.scenario}"

    def order(self):
        """A key to sort by: what takes long begins first."""
        return self.scenario not in SLOW, self.login not in ("opencode", "copilot", "gemini"), str(self)

    def play(self, real):
        """Run orch once."""
        scenario = self.scenario.rstrip("*")
        play = real.log_in(self.login, *_steps(scenario, real), patient=self.scenario.endswith("*"))
        real.configure({"limit_grace": self.grace})
        limits = ["--timeout", {"silence": "12s", "drop": "25s"}.get(scenario, "120s")]
        began = time.time()
        try:
            result = real.ask(self.login.partition("-")[0], *limits)
        finally:
            real.stop_leftovers()
        ended, made = time.time(), real.work / "made.txt"
        rule = self.rule and _rule(real("explain", "--task", result.json["task_id"], "--json").json["rule"])
        return Played(result, play, ended, ended - began, made.read_text() if made.exists() else None, rule)


ROWS = [
    # Claude Code with an API key: its errors state no time
    Row("claude", "answer", "ok", None, 0, None, CLAUDE, OWN),
    Row("claude", "edit", "ok", None, 0, None, tuple(2 * n for n in CLAUDE), OWN),
    Row("claude", "usage_limit", "limited", "rate_limit", 75, GUESS_5M, ZERO, 0, rule=HIT),
    Row("claude", "usage_limit*", "limited", "rate_limit", 75, GUESS_5M, ZERO, 0, rule=HIT),
    Row("claude", "rate_limit", "limited", "rate_limit", 75, GUESS_5M, ZERO, 0, rule=HIT),
    Row("claude", "credits", "limited", "credits", 75, GUESS_1H, ZERO, 0, rule=CREDITS),
    Row("claude", "refused", "auth", "auth", 77, None, ZERO, 0, rule=HTTP_401),
    Row("claude", "refused*", "auth", "auth", 77, None, ZERO, 0, rule=HTTP_401),
    Row("claude", "no_model", "failed", "model", 1, None, ZERO, 0),
    Row("claude", "overloaded", "failed", "overloaded", 1, None, ZERO, 0),
    Row("claude", "server_error", "failed", "overloaded", 1, None, ZERO, 0),
    Row("claude", "drop", "ok", None, 0, None, CLAUDE, OWN),         # it asks again without a stream
    Row("claude", "silence", "failed", "timeout", 124),
    Row("claude", "context", "failed", "context", 1, None, ZERO, 0),
    # Claude Code with a subscription
    Row("claude-plan", "answer", "ok", None, 0, None, CLAUDE, OWN),
    Row("claude-plan", "usage_limit", "limited", "usage_limit", 75, EPOCH, ZERO, 0, rule=OWN_LIMIT),
    Row("claude-plan", "edit+usage_limit", "limited", "usage_limit", 75, EPOCH, CLAUDE, OWN, rule=OWN_LIMIT),
    Row("claude-plan", "weekly_limit", "limited", "usage_limit", 75, EPOCH, ZERO, 0, rule=OWN_LIMIT),
    Row("claude-plan", "model_limit", "limited", "usage_limit", 75, EPOCH, ZERO, 0, rule=OWN_LIMIT),
    Row("claude-plan", "rate_limit", "failed", "overloaded", 1, None, ZERO, 0),    # "not your usage limit", it says
    Row("claude-plan", "refused", "auth", "auth", 77, None, ZERO, 0, rule=HTTP_401),
    # Codex with a provider of its own, and with a ChatGPT login
    Row("codex", "answer", "ok", None, 0, None, OPENAI),
    Row("codex", "edit", "ok", None, 0, None, tuple(2 * n for n in OPENAI)),
    Row("codex", "usage_limit", "limited", "usage_limit", 75, CLOCK, rule=OWN_LIMIT),
    Row("codex", "edit+usage_limit", "limited", "usage_limit", 75, CLOCK, rule=OWN_LIMIT),
    Row("codex", "weekly_limit", "limited", "usage_limit", 75, CLOCK, rule=OWN_LIMIT),
    Row("codex", "rate_limit", "limited", "rate_limit", 75, GUESS_5M, rule=OWN_LIMIT),
    Row("codex", "rate_limit*", "limited", "rate_limit", 75, GUESS_5M, grace="30s", rule=OWN_LIMIT),
    Row("codex", "credits", "limited", "credits", 75, GUESS_1H, rule=OWN_LIMIT),
    Row("codex", "refused", "auth", "auth", 77, rule=HTTP_401),
    Row("codex", "no_model", "failed", "model", 1),
    Row("codex", "overloaded", "failed", "overloaded", 1),
    Row("codex", "server_error", "failed", "overloaded", 1),
    Row("codex", "drop", "failed", "network", 1),
    Row("codex", "silence", "failed", "timeout", 124),
    Row("codex", "context", "failed", "context", 1),
    Row("codex-plan", "answer", "ok", None, 0, None, OPENAI),
    Row("codex-plan", "usage_limit", "limited", "usage_limit", 75, CLOCK, rule=OWN_LIMIT),
    Row("codex-plan", "weekly_limit", "limited", "usage_limit", 75, CLOCK, rule=OWN_LIMIT),
    Row("codex-plan", "credits", "limited", "credits", 75, GUESS_1H, rule=OWN_LIMIT),
    Row("codex-plan", "refused", "auth", "auth", 77, rule=OWN_AUTH),
    # opencode sits at a limit without a word but in its log; only where a short wait is stated does it give up by itself
    Row("opencode", "answer", "ok", None, 0, None, OPENAI, OPENCODE_USD),
    Row("opencode", "edit", "ok", None, 0, None, tuple(2 * n for n in OPENAI), 2 * OPENCODE_USD),
    # (at a grace of 8 s, the title's own errors, which prove nothing, come in between)
    Row("opencode", "usage_limit*", "limited", "usage_limit", 75, GUESS_5M, session=False, grace="8s", rule=SITS),
    Row("opencode", "edit+usage_limit*", "limited", "usage_limit", 75, GUESS_5M, OPENAI, OPENCODE_USD, rule=SITS),
    Row("opencode", "rate_limit*", "limited", "rate_limit", 75, IN_2S, rule=REACHED),
    Row("opencode", "credits*", "limited", "credits", 75, GUESS_1H, session=False, rule=SITS),
    Row("opencode", "refused", "auth", "auth", 77, rule=HTTP_401),
    Row("opencode", "no_model", "failed", "model", 1),
    Row("opencode", "overloaded", "failed", "overloaded", 1),
    Row("opencode", "server_error", "failed", "overloaded", 1),
    Row("opencode", "drop", "failed", "timeout", 124, None, ZERO, 0),      # it asks again for ever
    Row("opencode", "silence", "failed", "timeout", 124, session=None),
    Row("opencode", "context", "failed", "context", 1),
    # Gemini CLI sits at a limit too, unless a day's quota is used up
    Row("gemini", "answer", "ok", None, 0, None, GEMINI),
    Row("gemini", "edit", "ok", None, 0, None, tuple(2 * n for n in GEMINI)),
    Row("gemini", "usage_limit*", "limited", "usage_limit", 75, GUESS_5M, rule=OWN_LIMIT),
    Row("gemini", "timed_limit", "limited", "usage_limit", 75, IN_2H, rule=OWN_LIMIT),
    Row("gemini", "timed_limit*", "limited", "usage_limit", 75, IN_2H, session=False, rule=SITS),
    Row("gemini", "rate_limit", "limited", "rate_limit", 75, IN_2S, rule=OWN_LIMIT),
    Row("gemini", "credits*", "limited", "credits", 75, GUESS_1H, session=False, rule=SITS),
    Row("gemini", "refused", "auth", "auth", 77, rule=OWN_AUTH),
    Row("gemini", "no_model", "failed", "model", 1),
    Row("gemini", "overloaded", "failed", "overloaded", 1),
    Row("gemini", "server_error", "failed", "overloaded", 1),
    Row("gemini", "drop", "failed", "network", 1, None, GEMINI),
    Row("gemini", "silence", "failed", "timeout", 124, session=False),
    Row("gemini", "context", "failed", "context", 1),
    # Copilot CLI with a provider of one's own; it asks again for a minute where no time is stated, and is stopped before that
    Row("copilot", "answer", "ok", None, 0, None, OPENAI),
    Row("copilot", "edit", "ok", None, 0, None, tuple(2 * n for n in OPENAI)),
    Row("copilot", "usage_limit", "limited", "usage_limit", 75, EPOCH, rule=REACHED),
    Row("copilot", "edit+usage_limit", "limited", "usage_limit", 75, EPOCH, OPENAI, rule=REACHED),
    Row("copilot", "rate_limit", "limited", "rate_limit", 75, IN_2S, grace="30s", rule=REACHED),
    Row("copilot", "credits", "limited", "credits", 75, GUESS_1H, session=None, grace="30s", rule=SITS),
    Row("copilot", "refused", "auth", "auth", 77, rule=HTTP_401),
    Row("copilot", "no_model", "failed", "model", 1),
    Row("copilot", "overloaded", "failed", "overloaded", 1),
    Row("copilot", "server_error", "failed", "overloaded", 1),
    Row("copilot", "drop", "failed", "network", 1),
    Row("copilot", "silence", "failed", "timeout", 124, session=None),
    Row("copilot", "context", "failed", "context", 1),
]
SLOW = {"credits", "silence", "drop", "rate_limit", "rate_limit*"}      # begun first


class Played(NamedTuple):
    """What came of a row."""
    result: Result          # of orch
    play: Play              # of the models
    at: float               # when it ended
    took_s: float
    made: str | None        # the text of the file that the agent was told to write
    rule: str | None        # by which it was judged


def _steps(scenario, real):
    edit = write(str(real.work / "made.txt"), "by the model")
    return {"answer": [say()], "edit": [edit, say()], "edit+usage_limit": [edit, "usage_limit"]}.get(scenario) or [scenario]


def _rule(name):
    """A rule's name, without the agent's and its number in the table."""
    return re.sub(r"^\w+ (\w+ pattern) \d+$", r"\1", name)


def _column(row):
    return "answers, tokens" if row.outcome == "ok" else "limits" if row.outcome == "limited" else "other failures"


@pytest.mark.parametrize("row", [pytest.param(row, id=str(row), marks=pytest.mark.proves(_column(row))) for row in ROWS])
def test_real_agent_is_understood(row, played):
    done = played[row].result()
    attempt = done.result.json["attempts"][0]
    used = attempt["usage"]
    seen = Row(
        row.login, row.scenario, attempt["outcome"], attempt["error_class"], done.result.code, _reset(row, done, attempt["retry_at"]),
        used and (used["input_tokens"], used["output_tokens"], used["cache_read_tokens"]), _cost(row, attempt["cost_usd"]),
        row.session if row.session is None else bool(attempt["session_id"]), done.rule, row.grace)
    wrong = [f"{name}: {got!r}, not {wanted!r}" for name, got, wanted in zip(Row._fields, seen, row) if got != wanted]
    asked = " ".join(request.step for request in done.play.requests)
    if wrong:
        pytest.fail("; ".join(wrong) + f"\nerror: {attempt['error']}\nasked: {asked}\ntook: {done.took_s:.1f} s", pytrace=False)
    assert done.result.json["answer"] == (ANSWER if row.outcome == "ok" else None)
    assert done.made and done.made.strip() == "by the model" if row.scenario.startswith("edit") else done.made is None
    assert not row.scenario.endswith("*") or done.took_s < 60, "orch lets it sit"


def _reset(row, done, retry_at):
    """`row.reset` where the time that orch gives is right for it; else what it gives, for the message."""
    if retry_at is None:
        return None
    at, stated = datetime.datetime.fromisoformat(retry_at.replace("Z", "+00:00")).timestamp(), done.play.reset_at
    ahead_s = at - done.at      # as the result gives full seconds, up to one more than it was
    about = {span: -done.took_s - 1 < ahead_s - span_s <= 1 for span, span_s in SPANS.items()}
    right = {EPOCH: at == stated, CLOCK: at == stated - stated % 60 + 60, **about}
    return row.reset if right.get(row.reset) else f"{retry_at}, which is {at - stated:+.0f} s from the stated one, {at - done.at:.0f} s ahead"


def _cost(row, cost_usd):
    if row.cost == OWN and cost_usd and cost_usd > 0:
        return OWN
    return row.cost if isinstance(row.cost, (int, float)) and cost_usd == pytest.approx(row.cost) else cost_usd
