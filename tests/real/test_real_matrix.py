"""Agent x scenario: what orch makes of everything that a real agent says of its model's answers.

All rows are played at once, before the first is looked at: the agents wait more than they compute.
"""
from __future__ import annotations

import concurrent.futures
import datetime
import time
from typing import NamedTuple

import pytest

from .models import ANSWER, say, write

AT_ONCE = 5             # on two cores

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

    def __str__(self):
        return f"{self.login}-{self.scenario}"


ROWS = [
    # Claude Code with an API key: its errors state no time
    Row("claude", "answer", "ok", None, 0, None, CLAUDE, OWN),
    Row("claude", "edit", "ok", None, 0, None, tuple(2 * n for n in CLAUDE), OWN),
    Row("claude", "usage_limit", "limited", "rate_limit", 75, GUESS_5M, ZERO, 0),
    Row("claude", "usage_limit*", "limited", "rate_limit", 75, GUESS_5M, ZERO, 0),
    Row("claude", "rate_limit", "limited", "rate_limit", 75, GUESS_5M, ZERO, 0),
    Row("claude", "credits", "limited", "credits", 75, GUESS_1H, ZERO, 0),
    Row("claude", "refused", "auth", "auth", 77, None, ZERO, 0),
    Row("claude", "refused*", "auth", "auth", 77, None, ZERO, 0),
    Row("claude", "no_model", "failed", "model", 1, None, ZERO, 0),
    Row("claude", "overloaded", "failed", "overloaded", 1, None, ZERO, 0),
    Row("claude", "server_error", "failed", "overloaded", 1, None, ZERO, 0),
    Row("claude", "drop", "ok", None, 0, None, CLAUDE, OWN),         # it asks again without a stream
    Row("claude", "silence", "failed", "timeout", 124),
    Row("claude", "context", "failed", "context", 1, None, ZERO, 0),
    # Claude Code with a subscription
    Row("claude-plan", "answer", "ok", None, 0, None, CLAUDE, OWN),
    Row("claude-plan", "usage_limit", "limited", "usage_limit", 75, EPOCH, ZERO, 0),
    Row("claude-plan", "edit+usage_limit", "limited", "usage_limit", 75, EPOCH, CLAUDE, OWN),
    Row("claude-plan", "weekly_limit", "limited", "usage_limit", 75, EPOCH, ZERO, 0),
    Row("claude-plan", "model_limit", "limited", "usage_limit", 75, EPOCH, ZERO, 0),
    Row("claude-plan", "rate_limit", "failed", "overloaded", 1, None, ZERO, 0),    # "not your usage limit", it says
    Row("claude-plan", "refused", "auth", "auth", 77, None, ZERO, 0),
    # Codex with a provider of its own, and with a ChatGPT login
    Row("codex", "answer", "ok", None, 0, None, OPENAI),
    Row("codex", "edit", "ok", None, 0, None, tuple(2 * n for n in OPENAI)),
    Row("codex", "usage_limit", "limited", "usage_limit", 75, CLOCK),
    Row("codex", "edit+usage_limit", "limited", "usage_limit", 75, CLOCK),
    Row("codex", "weekly_limit", "limited", "usage_limit", 75, CLOCK),
    Row("codex", "rate_limit", "limited", "rate_limit", 75, GUESS_5M),
    Row("codex", "rate_limit*", "limited", "rate_limit", 75, GUESS_5M),
    Row("codex", "credits", "limited", "credits", 75, GUESS_1H),
    Row("codex", "refused", "auth", "auth", 77),
    Row("codex", "no_model", "failed", "model", 1),
    Row("codex", "overloaded", "failed", "overloaded", 1),
    Row("codex", "server_error", "failed", "overloaded", 1),
    Row("codex", "drop", "failed", "network", 1),
    Row("codex", "silence", "failed", "timeout", 124),
    Row("codex", "context", "failed", "context", 1),
    Row("codex-plan", "answer", "ok", None, 0, None, OPENAI),
    Row("codex-plan", "usage_limit", "limited", "usage_limit", 75, CLOCK),
    Row("codex-plan", "weekly_limit", "limited", "usage_limit", 75, CLOCK),
    Row("codex-plan", "credits", "limited", "credits", 75, GUESS_1H),
    Row("codex-plan", "refused", "auth", "auth", 77),
    # opencode sits at every limit without a word but in its log, and no log states a time
    Row("opencode", "answer", "ok", None, 0, None, OPENAI, OPENCODE_USD),
    Row("opencode", "edit", "ok", None, 0, None, tuple(2 * n for n in OPENAI), 2 * OPENCODE_USD),
    Row("opencode", "usage_limit*", "limited", "usage_limit", 75, GUESS_5M, session=False),
    Row("opencode", "edit+usage_limit*", "limited", "usage_limit", 75, GUESS_5M, OPENAI, OPENCODE_USD),
    Row("opencode", "rate_limit*", "limited", "rate_limit", 75, GUESS_5M, session=False),
    Row("opencode", "credits*", "limited", "credits", 75, GUESS_1H, session=False),
    Row("opencode", "refused", "auth", "auth", 77),
    Row("opencode", "no_model", "failed", "model", 1),
    Row("opencode", "overloaded", "failed", "overloaded", 1),
    Row("opencode", "server_error", "failed", "overloaded", 1),
    Row("opencode", "drop", "failed", "timeout", 124, None, ZERO, 0),      # it asks again for ever
    Row("opencode", "silence", "failed", "timeout", 124, session=None),
    Row("opencode", "context", "failed", "context", 1),
    # Gemini CLI sits at a limit too, unless a day's quota is used up
    Row("gemini", "answer", "ok", None, 0, None, GEMINI),
    Row("gemini", "edit", "ok", None, 0, None, tuple(2 * n for n in GEMINI)),
    Row("gemini", "usage_limit*", "limited", "usage_limit", 75, GUESS_5M),
    Row("gemini", "timed_limit", "limited", "usage_limit", 75, IN_2H),
    Row("gemini", "timed_limit*", "limited", "usage_limit", 75, IN_2H, session=False),
    Row("gemini", "rate_limit", "limited", "rate_limit", 75, IN_2S),
    Row("gemini", "credits*", "limited", "credits", 75, GUESS_1H, session=False),
    Row("gemini", "refused", "auth", "auth", 77),
    Row("gemini", "no_model", "failed", "model", 1),
    Row("gemini", "overloaded", "failed", "overloaded", 1),
    Row("gemini", "server_error", "failed", "overloaded", 1),
    Row("gemini", "drop", "failed", "network", 1, None, GEMINI),
    Row("gemini", "silence", "failed", "timeout", 124, session=False),
    Row("gemini", "context", "failed", "context", 1),
    # Copilot CLI with a provider of one's own
    Row("copilot", "answer", "ok", None, 0, None, OPENAI),
    Row("copilot", "edit", "ok", None, 0, None, tuple(2 * n for n in OPENAI)),
    Row("copilot", "usage_limit", "limited", "usage_limit", 75, EPOCH),
    Row("copilot", "edit+usage_limit", "limited", "usage_limit", 75, EPOCH, OPENAI),
    Row("copilot", "rate_limit", "limited", "rate_limit", 75, IN_2S),
    Row("copilot", "credits", "limited", "credits", 75, GUESS_1H),
    Row("copilot", "refused", "auth", "auth", 77),
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
    result: object          # of orch
    play: object            # of the models
    at: float               # when it ended
    took_s: float
    made: str | None        # the text of the file that the agent was told to write


@pytest.fixture(scope="module")
def played(request, new_real):
    """{row: future} of the rows that this session tests."""
    rows = [item.callspec.params["row"] for item in request.session.items if item.module is request.module]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {row: pool.submit(_play, row, new_real()) for row in sorted(set(rows), key=_order)}
        yield futures
        for future in futures.values():
            future.cancel()


def _order(row):
    return row.scenario not in SLOW, row.login not in ("opencode", "copilot", "gemini"), str(row)


def _play(row, real):
    """Run orch once for a row."""
    scenario = row.scenario.rstrip("*")
    play = real.log_in(row.login, *_steps(scenario, real), patient=row.scenario.endswith("*"))
    limits = ["--timeout", {"silence": "12s", "drop": "25s"}.get(scenario, "120s")]
    began = time.time()
    try:
        result = real.ask(row.login.partition("-")[0], *limits)
    finally:
        real.stop_leftovers()
    made = real.work / "made.txt"
    return Played(result, play, time.time(), time.time() - began, made.read_text() if made.exists() else None)


def _steps(scenario, real):
    edit = write(str(real.work / "made.txt"), "by the model")
    return {"answer": [say()], "edit": [edit, say()], "edit+usage_limit": [edit, "usage_limit"]}.get(scenario) or [scenario]


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
        row.session if row.session is None else bool(attempt["session_id"]))
    wrong = [f"{name}: {got!r}, not {wanted!r}" for name, got, wanted in zip(Row._fields, seen, row) if got != wanted]
    asked = " ".join(request.step for request in done.play.requests)
    if wrong:
        pytest.fail("; ".join(wrong) + f"\nerror: {attempt['error']}\nasked: {asked}\ntook: {done.took_s:.1f} s", pytrace=False)
    assert done.result.json["answer"] == (ANSWER if row.outcome == "ok" else None)
    assert done.made and done.made.strip() == "by the model" if "edit" in row.scenario else done.made is None
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
