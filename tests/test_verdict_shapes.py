"""The same messages in other shapes: wrapped, coloured, below work, above a stack, echoed, and very long."""
import json
import os
import random
import re
import textwrap
import time

import pytest
from test_corpus import BY_NAME, MORE, ROWS, attempts, judged
from test_handoff import facts

import orch as v
from orch import Agent, Clock, Ended, Report, replaced

JUDGED = [row for row in ROWS + MORE if not row["stream"].endswith("-json") and row["expect_class"] != "ok"]
# What a terminal of that width leaves of a message whose words are longer than a line is no message any more
UNWRAPPABLE = {row["id"] for row in JUDGED if max(map(len, re.split(r"\s", row["text"]))) > 50}
CURSOR = {row["id"] for row in JUDGED if "\x1b[8G" in row["text"]}
WORK = "\n".join(f"Editing file src/module_{number}.py and running its tests" for number in range(300))
STACK = "\n".join(f"    at Object.handler{number} (file:///usr/lib/node_modules/x/bundle.js:{number}:10)" for number in range(12))


def wrapped(text, indent):
    lines = (textwrap.wrap(line, 80, subsequent_indent=indent, break_on_hyphens=False) or [""] for line in text.split("\n"))
    return "\n".join(line for group in lines for line in group)


def boxed(text):
    body = "".join(f"│ {line:<98} │\n" for line in text.split("\n"))
    return f"╭{'─' * 100}╮\n{body}╰{'─' * 100}╯"


SHAPES = {
    "wrapped by a terminal, indented": lambda text: wrapped(text, "  "),
    "coloured": lambda text: "\n".join(f"\x1b[91m{line}\x1b[0m" for line in text.split("\n")),
    "each word bold": lambda text: re.sub(r"(\w+)", "\x1b[1m\\1\x1b[22m", text),
    "after a spinner": lambda text: "".join(f"\x1b[2K\x1b[1G{sign} Thinking..." for sign in "⠋⠙⠹⠸") + "\r\x1b[K" + text,
    "after a spinner with returns": lambda text: "".join(f"{sign} Working\r" for sign in "⠋⠙⠹⠸") + "\n" + text,
    "with carriage returns": lambda text: text.replace("\n", "\r\n"),
    "doubled": lambda text: f"{text}\n{text}",
    "above a stack": lambda text: f"{text}\n{STACK}",
    "above a stack and a version": lambda text: f"{text}\n{STACK}\n\nNode.js v20.20.0",
    "among blank lines": lambda text: f"\n\n{text}\n\n\n",
    "in a box": boxed,
    "below 300 lines of work": lambda text: f"{WORK}\n{text}",
}


@pytest.mark.parametrize("shape", [*SHAPES, "on the other stream"])
def test_message_is_understood_in_any_shape(shape):
    spoken = SHAPES.get(shape, str)
    some = random.Random(shape).sample(JUDGED, 60) if "300 lines" in shape and not os.environ.get("FULL") else JUDGED
    for row in some:
        if row["id"] in CURSOR and shape in ("each word bold", "wrapped by a terminal, indented"):
            continue                        # its own escapes would be torn
        if row["exit_code"] == 0 and "300 lines" in shape:
            continue                        # an exit status 0 with an answer is ok
        for agent, out, err in attempts(row):
            text = spoken(out or err)
            streams = (text, "") if bool(out) != (shape == "on the other stream") else ("", text)
            verdict = judged(agent, *streams, row["exit_code"], row)
            allowed = {row["expect_class"], row["alt_class"]} - {None}
            assert verdict.outcome in allowed, (row["id"], agent.output, text, verdict)


def test_wrapped_message_without_indent_is_understood():
    for row in JUDGED:
        if row["id"] in UNWRAPPABLE | CURSOR or row["exit_code"] == 0:
            continue
        for agent, out, err in attempts(row):
            text = wrapped(out or err, "")
            if any(line[:1].isupper() for line in set(text.split("\n")) - set((out or err).split("\n"))):
                continue                    # nothing tells a new sentence at the margin from a new message
            verdict = judged(agent, *((text, "") if out else ("", text)), row["exit_code"], row)
            allowed = {row["expect_class"], row["alt_class"]} - {None}
            assert verdict.outcome in allowed, (row["id"], agent.output, text, verdict)


def test_tokens_used_may_follow_the_error_of_codex():
    codex = replaced(BY_NAME["codex"], output="text")
    text = "user\nfix it\nERROR: You've hit your usage limit. Try again at 9:05 PM.\ntokens used\n1,234\n"
    verdict = judged(codex, "", text, 1, {"now": 1796076000.0, "zone": "UTC"})
    assert (verdict.outcome, verdict.reset_at) == ("limited", 1796072700.0 + 86400), verdict


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_prompt_that_is_echoed_with_other_line_ends_benches_nobody(width):
    rng = random.Random(width)
    for row in rng.sample(JUDGED, 120 if os.environ.get("FULL") else 40):
        prompt = "Continue. The agent before you stopped with this message, which you need not repeat to me: " + row["text"]
        echo = "\n".join(textwrap.wrap(v.fold_text(prompt), width))
        for agent in (Agent("mine", ("mine",)), *(replaced(agent, output="text") for agent in v.AGENTS)):
            for out, err in ((echo, ""), ("", f"user\n{echo}\n"), ("", "\n".join(f"> {line}" for line in echo.split("\n")))):
                verdict = judged(agent, out, err, 1, row, prompt)
                assert verdict.outcome == "failed", (row["id"], agent.name, echo, verdict)


def test_handoff_that_codex_echoes_in_text_benches_nobody():
    codex = replaced(BY_NAME["codex"], output="text")
    for row in JUDGED:
        if row["expect_class"] == "limited":
            prompt, _ = v.render_handoff(facts(answer=row["text"], request="Understand this: " + row["text"]))
            shown = f"OpenAI Codex v0.171.0\n--------\nuser\n{v.fold_text(prompt)}\ncodex\nI start.\nERROR: stream closed\n"
            verdict = judged(codex, "", shown, 1, row, prompt)
            assert verdict.outcome == "failed", (row["id"], verdict)
            real = shown + "ERROR: You've hit your usage limit. Try again later.\n"
            assert judged(codex, "", real, 1, row, prompt).outcome == "limited", row["id"]


@pytest.mark.parametrize("width", [30, 50, 80, 400])
def test_agent_that_says_what_a_handoff_quotes_of_another_means_it_and_an_echo_does_not(width):
    said = "You have hit your usage limit. Try again in 2 hours."
    mine = Agent("mine", ("mine",))
    prompt, _ = v.render_handoff(facts(stopped=(v.Stopped("other", f"usage_limit ({said})"),), answer=f"I tried.\n{said}\nI go."))
    echo = "\n".join(line for part in prompt.split("\n") for line in textwrap.wrap(part, width) or [""])
    row = {"now": 1796076000.0, "zone": "UTC"}
    for shown in (said, f"{said}\n", f"{echo}\nworking\n{said}"):
        assert judged(mine, "", shown, 1, row, prompt).outcome == "limited", (width, shown)
    assert judged(mine, "", f"{echo}\nI start.\nsomething broke", 1, row, prompt).outcome == "failed"


def test_only_lines_around_its_words_are_searched_and_nothing_is_missed(monkeypatch):
    """The shortcut for long texts finds what a search of the whole text finds."""
    seen = {}
    for chars in (10 ** 9, 0):
        monkeypatch.setattr(v, "SHORT_TEXT", chars)
        for row in ROWS + MORE:
            for number, (agent, out, err) in enumerate(attempts(row)):
                verdict = judged(agent, out, err, row["exit_code"], row)
                same = (verdict.outcome, verdict.error_class, verdict.rule)
                assert seen.setdefault((row["id"], number), same) == same, row["id"]


@pytest.mark.parametrize("line", [
    "E       AssertionError: assert 'rate limit exceeded' in 'ok'", "FAILED tests/test_api.py::test_429 - quota exceeded",
    "src/limit.py:42: raise RateLimitError('usage limit reached')", "+    message = 'You have hit your usage limit'",
    "-usage limit reached", "   42\tusage limit reached", "17→    # rate limit reached, try again in 30 seconds",
    "12 │ weekly limit reached", "You've used 98% of your weekly limit · resets 4pm", "Approaching usage limit · resets 9pm",
    "Concurrent subagent limit reached. You can run 10 subagents at once.", "error: recursion limit reached",
    "Time limit exceeded", "File size limit exceeded: 10MB", "Maximum output token limit reached", "disk quota exceeded",
    "Token limit exceeded: prompt is 210000 tokens, maximum is 200000", "Tool call limit reached", "Retry limit exceeded",
    "Memory usage limit exceeded", "cpu limit reached", "5 out of 10 requests failed", "Credits used: 0.12", "went over budget",
    "AssertionError: user is not authenticated", "expected invalid_grant", "rendered 'must be logged in'", "separate limit reached",
    "Foreign key limit exceeded", "Expired sessions go to /login to log in", "E: request timed out at a low balance",
    "AssertionError [ERR_ASSERTION]: Expected 'usage limit reached'", "SSL certificate has expired", "Unexpected token 'e', \"event\" is not valid JSON", "SyntaxError: invalid token (x.py, line 3)",
])
def test_line_of_code_or_another_limit_benches_nobody(line):
    for agent in (Agent("mine", ("mine",)), *(replaced(agent, output="text") for agent in v.AGENTS)):
        for out, err in ((line, ""), ("", line), (f"I tried.\n{line}\n", f"{line}\n{line}")):
            verdict = judged(agent, out, err, 1, {"now": 1796076000.0, "zone": "UTC"})
            assert verdict.outcome == "failed", (agent.name, line, verdict)


@pytest.mark.parametrize("agent", [replaced(agent, output="text") for agent in v.AGENTS], ids=lambda agent: agent.name)
def test_work_that_talks_of_limits_benches_nobody_however_few_last_lines_count(agent):
    work = "Usage limit reached for the tenant.\n" + "".join(f"edited file {number}\n" for number in range(60))
    assert judged(agent, work, "", 1, {"now": 1796076000.0, "zone": "UTC"}).outcome == "failed"


def test_no_last_line_counts_where_the_agent_has_said_so():
    deaf = Agent("mine", ("mine",), verdict_last=0)
    row = {"now": 1796076000.0, "zone": "UTC"}
    assert judged(deaf, "I hit it: usage limit reached, resets in 3h", "boom: it broke", 1, row).outcome == "failed"
    assert judged(deaf, "Error: usage limit reached, resets in 3h", "", 1, row).outcome == "limited", "there is nothing else"


# (piece, how often): made when a test needs it, since what this process holds its children seem to hold too
HOSTILE = {
    "one letter": ("a", (4 << 20)), "blanks": (" ", (4 << 20)), "line ends": ("\n", (4 << 20)), "short lines": ("x\n", (2 << 20)),
    "a verb": ("exceeded your ", 300_000), "limits": ("rate limit ", 400_000), "errors": ("Error: ", 600_000),
    "prefixes": (("Error " * 660 + "\n"), 1000), "escapes": ("\x1b[", (2 << 20)), "moves": ("\x1b[5G", (1 << 20)),
    "spinner": ("⠋ x\r", (1 << 20)), "boxes": (("│" + " " * 998 + "\n"), 4000), "frames": (("│" + " " * 3000), 1300),
    "dashes": (("-" * 3999 + "\n"), 1000), "blank lines": ((" " * 3999 + "\n"), 1000), "tokens": ("access token abc ", 250_000),
    "headers": ('X-Codex-Primary-Reset-At":"1777936568",', 100_000), "wrapped": (("a" * 70 + "\n"), 60_000),
    "resets": ("resets in 3h ", 300_000), "quotes": ('"', (4 << 20)), "braces": ('{"a":', 800_000), "stack": ("    at x\n", 400_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_four_megabytes_of_anything_are_judged_in_linear_time(name):
    piece, times = HOSTILE[name]
    text = piece * times
    for agent in (Agent("mine", ("mine",)), *(replaced(BY_NAME[known], output="text") for known in ("claude", "gemini"))):
        started = time.process_time()
        v.classify(agent, Ended(1, None, None, text, text), Report(answer=text, raw=True), "do it", Clock(1.8e9, "UTC"))
        assert time.process_time() - started < 10, f"{agent.name}: {time.process_time() - started:.1f} s"


def test_normal_failure_is_judged_in_milliseconds():
    text = f"{WORK}\nError: 3 tests failed, 12 passed"
    for agent in (Agent("mine", ("mine",)), *(replaced(agent, output="text") for agent in v.AGENTS)):
        best = 1.0
        for _ in range(5):
            started = time.process_time()
            v.classify(agent, Ended(1, None, None, text, text), Report(answer=text, raw=True), "do it", Clock(1.8e9, "UTC"))
            best = min(best, time.process_time() - started)
        assert best < 0.05, f"{agent.name}: {best * 1000:.0f} ms"


def test_rows_are_complete_and_differ():
    assert len({row["id"] for row in ROWS + MORE}) == len(ROWS + MORE)
    assert {tuple(row) for row in MORE} == {tuple(ROWS[0])}
    json.dumps(MORE).encode()


@pytest.mark.parametrize("code, outcome", [(173, "limited"), (145, "auth"), (147, "auth"), (247, "failed"), (244, "failed")])
def test_exit_status_of_gemini_that_is_all_there_is_decides(code, outcome):
    fmt = v.FORMATS["gemini-json"]
    ended = Ended(code)
    verdict = v.classify(BY_NAME["gemini"], ended, v.finish(fmt, v.Draft(), ended), "", Clock(1.8e9, "UTC"))
    assert (verdict.outcome, verdict.scope) == (outcome, "model" if outcome == "limited" else "agent"), verdict
