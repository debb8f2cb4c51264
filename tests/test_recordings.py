"""What the real CLIs printed, through feed_line, finish and classify."""
import glob
import json
import os

import pytest

import orch as v
from orch import Ended, Usage, replaced

RECORDINGS = os.path.join(os.path.dirname(__file__), "data", "recordings")
BY_NAME = {agent.name: agent for agent in v.AGENTS}
ZERO = (0, 0, 0)
# Tokens of one model request (input, output, cache read), as the pretend server counts and each CLI reports them
ONE = {"claude": (33, 44, 33), "codex": (500, 70, 600), "opencode": (500, 70, 600), "gemini": (500, 100, 700)}
# What a scenario means: outcome and error class. The last scenario of an id decides ("edit,usage_limit").
SCENARIOS = {
    "ok": ("ok", None), "edit": ("ok", None), "usage_warning": ("ok", None), "none": ("ok", None),
    "usage_limit": ("limited", "usage_limit"), "usage_limit_weekly": ("limited", "usage_limit"),
    "usage_limit_opus": ("limited", "usage_limit"), "usage_limit_outofcredits": ("limited", "usage_limit"),
    "usage_limit_noheaders": ("limited", "usage_limit"), "rate429": ("limited", "rate_limit"),
    "sse_rate": ("limited", "rate_limit"), "credit": ("limited", "credits"), "sse_quota": ("limited", "credits"),
    "auth401": ("auth", "auth"), "forbidden403": ("auth", "auth"),
    "overloaded": ("failed", "overloaded"), "error500": ("failed", "overloaded"), "sse_error": ("failed", "overloaded"),
    "model404": ("failed", "model"), "model400": ("failed", "model"), "context": ("failed", "context"),
    "midstream": ("failed", "network"), "refused": ("failed", "network"), "dns": ("failed", "network"),
    "hang": ("failed", "signal"), "toolsleep": ("failed", "signal"),
    "hang-sigint20": ("failed", "signal"), "hang-sigterm20": ("failed", "signal"),
}
# With an API key claude's 429 is a rate limit; without the headers of a subscription it is the server's, not the account's
FAMILIES = {
    ("claude", "usage_limit"): ("limited", "rate_limit"), ("claude", "usage_limit_weekly"): ("limited", "rate_limit"),
    ("claude", "usage_limit_noheaders"): ("limited", "rate_limit"),
    ("claude-oauth", "usage_limit_noheaders"): ("failed", "overloaded"),
    ("claude-oauth", "rate429"): ("failed", "overloaded"),
    ("claude", "midstream"): ("ok", None), ("claude", "sse_error"): ("ok", None),       # tried again without a stream
}
UNKNOWN, SIGNAL = ("failed", "unknown"), ("failed", "signal")
EXCEPTIONS = {
    "claude/json-noauth.ok": ("auth", "auth"), "claude/text-noauth.ok": ("auth", "auth"),
    "claude/json-edit-bypass.edit": ("failed", "permission"),
    "claude/json-limit-afterok.ok,usage_limit": ("ok", None),                           # one request was enough
    "claude/json-sigint.hang": UNKNOWN, "claude/tool-sigint.toolsleep": UNKNOWN,
    "claude/tool-pgterm.toolsleep": ("ok", None), "claude/tool-sigterm.toolsleep": ("ok", None),
    "codex-chatgpt/json-model.ok": ("failed", "network"), "codex-chatgpt/json.auth401": ("failed", "network"),
    "codex/json-badconfig.ok": ("failed", "model"), "codex/json-nokey.ok": ("auth", "auth"),
    "codex/json-sigint.hang": UNKNOWN, "codex/tool-sigint.toolsleep": UNKNOWN,
    "codex/json.refused": SIGNAL, "codex/json-300s.refused": SIGNAL, "codex/json-builtin-envbase.ok": SIGNAL,
    "codex/json-stdin-openpipe.ok": SIGNAL, "opencode/json-stdin-openpipe.ok": SIGNAL,
    "copilot/noauth-json.ok": ("auth", "auth"), "copilot/noauth.ok": ("auth", "auth"),
    "gemini/json-nokey.ok": ("auth", "auth"),
    "gemini/json-m.error500": SIGNAL,                                                   # killed while it tried again
    "gemini/json-pgterm.hang": UNKNOWN, "gemini/json-relaunch-pgterm.hang": UNKNOWN,    # exit 0 on TERM, without a word
    "gemini/json-sigint.hang": UNKNOWN, "gemini/json-sigterm.hang": UNKNOWN,
    "gemini/tool-pgterm.toolsleep": UNKNOWN, "gemini/tool-sigint.toolsleep": UNKNOWN,
    "gemini/tool-sigterm.toolsleep": UNKNOWN,
    "opencode/json.midstream": SIGNAL, "opencode/json.sse_error": SIGNAL,               # an endless loop, killed
    "opencode/json.usage_limit": SIGNAL, "opencode/text.credit": SIGNAL,                # silent without its log
    **dict.fromkeys((
        "claude-oauth/json-sid-second.ok", "claude/json-bad-flag.ok", "claude/json-dashprompt-nodashdash.ok",
        "claude/json-noprompt-null.ok", "claude/json-resume-bad.ok", "claude/json-resume-othercwd.ok",
        "claude/json-session-id-again.ok", "claude/json-session-id-bad.ok", "claude/json-stdin-empty.ok",
        "claude/stream-json-noverbose.ok", "codex/json-badflag.ok", "codex/json-dashprompt-nodashdash.ok",
        "codex/json-fullauto.ok", "codex/json-nogit-nocheck.ok", "codex/json-noprompt-null.ok",
        "codex/json-resume-bad.ok", "codex/json-stdin-empty.ok", "copilot/dash-p.ok", "gemini/badflag.ok",
        "gemini/dash-p.ok", "gemini/dash-positional.ok", "gemini/noprompt-null.ok", "opencode/json-badflag.ok",
        "opencode/json-badmodel.ok", "opencode/json-badprovider.ok", "opencode/json-dash-nodashdash.ok",
        "opencode/json-noprompt-null.ok", "opencode/json-session-bad.ok", "opencode/text-badmodel.ok",
        "copilot/stdin-big.ok",          # the recording itself is cut at 60,000 characters
    ), UNKNOWN),
}
# Tokens where they are not one request's (or two, for an edit): failures that reported some, and resumed threads
TOKENS = {
    "claude-oauth/json-acceptEdits.edit,usage_limit": (33, 44, 33), "claude/tool-sigint.toolsleep": (33, 44, 33),
    "claude/tool-pgterm.toolsleep": (66, 88, 66), "claude/tool-sigterm.toolsleep": (66, 88, 66),
    "codex/json-resume.ok": (1000, 140, 1200),              # a thread's usage is its total
    "gemini/json.ok": (1000, 200, 1400), "gemini/stream-json.ok": (1000, 200, 1400),      # the router asked a model too
    "gemini/json-m-default.edit": (500, 100, 700), "gemini/json-m.midstream": (2000, 400, 2800),
    "opencode/json.midstream": ZERO, "gemini/stream-json-m.usage_limit": ZERO,
}
RUN_WORDS = {"claude": "-p", "codex": "exec", "opencode": "run"}


def read_rows():
    rows = []
    for path in sorted(glob.glob(f"{RECORDINGS}/*.jsonl")):
        with open(path, encoding="utf-8") as lines:
            rows += map(json.loads, lines)
    return [row for row in rows if RUN_WORDS.get(row["argv"][0], "") in [*row["argv"], ""] and "list-" not in row["id"]]


ROWS = read_rows()


def replay(row, stopped=None, chunks=None):
    """The report and the verdict of a recorded run."""
    own = BY_NAME[row["argv"][0]]
    agent = own if "json" in " ".join(row["argv"]) else replaced(own, output="text")
    fmt, draft = v.FORMATS[agent.output], v.Draft()
    for stream in ("stdout", "stderr"):
        for line in row[stream].split("\n"):
            v.feed_line(fmt, draft, line.encode("utf-8", "surrogatepass"), stream)
    code = row["exit_code"]
    ended = Ended(code if code >= 0 else None, -code if code < 0 else None, stopped, row["stdout"], row["stderr"])
    report = v.finish(fmt, draft, ended)
    return agent, report, v.classify(agent, ended, report, "say hello", v.Clock(1796076000.0, "UTC"))


def expected(row):
    family, scenario = row["id"].split("/")[0], row["id"].split(".", 1)[1].split(",")[-1]
    if row["id"] in EXCEPTIONS:
        return EXCEPTIONS[row["id"]]
    if (family, scenario) in FAMILIES:
        return FAMILIES[family, scenario]
    key = next(name for name in sorted(SCENARIOS, key=len, reverse=True) if scenario.startswith(name))
    return SCENARIOS[key]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_recorded_run_is_judged_by_its_scenario(row):
    _, _, verdict = replay(row)
    assert (verdict.outcome, verdict.error_class) == expected(row), verdict
    assert verdict.rule and verdict.evidence
    assert (verdict.error is None) == (verdict.outcome == "ok"), verdict


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_recorded_usage_is_counted_exactly(row):
    agent, report, verdict = replay(row)
    cli = row["argv"][0]
    if agent.output == "text" or cli == "copilot":
        assert report.usage is None
        return
    one = ONE[cli]
    want = TOKENS.get(row["id"])
    if want is None and verdict.outcome == "ok":
        requests = 2 if row["id"].endswith("edit") else 1
        want = tuple(requests * tokens for tokens in one)
    if want is None:                     # a failure: nothing, or zeros where the CLI states zeros
        assert report.usage in (None, Usage(*ZERO)), report.usage
    else:
        assert report.usage == Usage(*want)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_good_answer_is_the_models_text(row):
    _, report, verdict = replay(row)
    if verdict.outcome == "ok":
        assert report.answer.strip() in ("Hello from the mock model.", "Done: wrote mock_edit.txt.")
        assert report.raw or report.session_id


def by_id(name):
    return next(row for row in ROWS if row["id"] == name)


def test_epoch_of_a_rejected_limit_beats_the_prose():
    _, report, verdict = replay(by_id("claude-oauth/stream-json.usage_limit"))
    assert report.limit_type == "five_hour" and verdict.reset_at == report.reset_at
    assert not verdict.coarse


def test_named_model_is_the_scope():
    _, _, verdict = replay(by_id("claude-oauth/text.usage_limit_claim_seven_day_opus"))
    assert verdict.scope == "model:opus" and verdict.coarse


def test_denied_tools_are_warnings():
    for name in ("claude/json-edit-default.edit", "copilot/json-noallow.edit"):
        _, report, _ = replay(by_id(name))
        assert len(report.warnings) == 1 and report.warnings[0].startswith("permission denied: ")


def test_notes_of_codex_stay_out_of_the_error():
    for row in ROWS:
        if row["argv"][0] == "codex":
            _, report, verdict = replay(row)
            assert "Reconnecting" not in f"{report.error} {verdict.error}", row["id"]
            assert "Model metadata" not in f"{report.error} {verdict.error}", row["id"]


def test_costs_are_what_the_agent_says():
    assert replay(by_id("claude/json.ok"))[1].cost_usd == 0.001309
    assert replay(by_id("opencode/json.edit"))[1].cost_usd == 0.0014
    assert replay(by_id("codex/json.ok"))[1].cost_usd is None


@pytest.mark.parametrize("name, limited", [
    ("opencode/text-logs-300s.usage_limit", True), ("gemini/json-m.rate429", True), ("gemini/json-m.credit", True),
    ("codex/json-default-retries.sse_rate", True), ("copilot/json.usage_limit", True),
    ("codex/json.refused", False), ("gemini/json-m.overloaded", False), ("gemini/json-m.error500", False),
    ("opencode/json.usage_limit", False), ("claude/json-noint.hang", False), ("copilot/json-noint.hang", False),
])
def test_agent_that_was_stopped_at_a_limit_is_limited(name, limited):
    row = by_id(name)
    for stopped in ("timeout", "silent"):
        _, _, verdict = replay(row, stopped)
        assert verdict.outcome == ("limited" if limited else "failed"), verdict
        assert limited or verdict.error_class == stopped


def test_recorded_retries_show_while_they_go_on():
    gemini, claude, codex = BY_NAME["gemini"], BY_NAME["claude"], BY_NAME["codex"]
    log = by_id("opencode/text-logs-300s.usage_limit")["stderr"].split("\n")[:5]
    assert v.sits_at_limit(BY_NAME["opencode"], "\n".join(log), "say hello")
    assert not v.sits_at_limit(BY_NAME["opencode"], "\n".join([*log, '{"type":"text","part":{}}']), "say hello")
    assert v.sits_at_limit(gemini, by_id("gemini/json-m.rate429")["stderr"], "x")
    assert not v.sits_at_limit(gemini, "Attempt 1 failed: You have exhausted your capacity on this model. "
                               "Your quota will reset after 5s.. Retrying after 6173ms...", "x")
    stream = by_id("claude/stream-json.rate429")["stdout"].replace('_delay_ms":2000', '_delay_ms":60000').split("\n")
    assert v.sits_at_limit(claude, "\n".join(line for line in stream if "api_retry" in line), "x")
    assert not v.sits_at_limit(claude, "\n".join(stream), "x")
    lines = by_id("codex/json-default-retries.sse_rate")["stdout"].replace("again in 2s", "again in 45s").split("\n")
    assert v.sits_at_limit(codex, "\n".join(lines[:4]), "x")
    assert v.sits_at_limit(gemini, by_id("gemini/json-m.credit")["stderr"], "x")


# Where the program's own wait is short, silence after it is a model at work: claude gives up after its second retry,
# codex after its fifth, within seconds; of gemini's, only the later ones take as long as `limit_grace`.
@pytest.mark.parametrize("name, stream, lines", [
    ("claude/stream-json.rate429", "stdout", 2), ("codex/json-default-retries.sse_rate", "stdout", 8),
    ("gemini/json-m.credit", "stderr", 3), ("gemini/json-m.rate429", "stderr", 16),
])
def test_recorded_retry_that_is_near_is_no_sitting(name, stream, lines):
    row = by_id(name)
    text = "\n".join(row[stream].split("\n")[:lines])
    assert "429" in text or "limit" in text
    assert v.sits_at_limit(BY_NAME[row["argv"][0]], text, "x") is None


LOG = 'timestamp=2026-12-01T11:59:00Z level=ERROR message="stream error" small=false error.error="AI_APICallError: %s"\n'
REFUSED = '{"type":"model.call_failure","data":{"statusCode":429,"errorMessage":"429 rate limit exceeded"}}\n'
AGAIN = '{"type":"error","message":"Reconnecting... %s (exceeded retry limit, last status: 429 Too Many Requests)"}\n'
TRIED = '{"type":"system","subtype":"api_retry","attempt":1,"retry_delay_ms":%s,"error_status":429,"error":"rate_limit"}\n'
SITS = [
    ("claude", TRIED % 514.6, False), ("claude", TRIED % 30000, True),
    ("codex", AGAIN % "1/5", False), ("codex", AGAIN % "5/5", False), ("codex", AGAIN % "12/20", True),
    ("gemini", "Attempt 1 failed with status 429. Retrying with backoff... _ApiError: quota exceeded", False),
    ("gemini", "Attempt 5 failed with status 429. Retrying with backoff... _ApiError: quota exceeded", True),
    ("opencode", LOG % "Rate limit reached for m. Please try again in 2s.", False),
    ("opencode", LOG % "Rate limit reached for m. Please try again in 7m12s.", True),
    ("opencode", LOG % "The usage limit has been reached", True),
    ("opencode", LOG % "The usage limit has been reached" + '{"type":"step_start","part":{}}', False),
    ("copilot", REFUSED, True), ("copilot", REFUSED + '{"type":"model.call_start","data":{}}', False),
    ("mine", "I will make the client retry when the rate limit is exceeded.\nRunning the test suite now.", False),
    ("mine", "Added retry with backoff when the rate limit is exceeded", False),
    ("mine", "Let me try again: the test expects 'rate limit exceeded'.", False),
    ("mine", "The client retries 3 times: rate limit exceeded", False), ("mine", "Waiting for tests of: quota exceeded", False),
    ("mine", "Rate limit reached. Retrying in 20 seconds...", False), ("mine", "Rate limit reached. Waiting 3s", False),
    ("mine", "Rate limit reached. Retrying in 3600 seconds...", True), ("mine", "Usage limit reached, waiting until 9pm", True),
    ("mine", "Rate limited: usage limit reached. Waiting 45 s\n\n", True), ("mine", "Quota exceeded. Please retry in 7 min", True),
    ("mine", "Rate limit reached. Retrying in 3600 seconds...\nEditing main.py", False),
]


@pytest.mark.parametrize("name, text, sits", SITS)
def test_only_a_long_wait_with_nothing_after_it_is_sitting_at_a_limit(name, text, sits):
    agent = BY_NAME.get(name, v.Agent(name, (name,)))
    assert (v.sits_at_limit(agent, text, "do it") is not None) == sits
    stopped = v.classify(agent, Ended(None, 15, "timeout", "", text), v.Report(), "do it", v.Clock(1796076000.0, "UTC"))
    assert stopped.outcome == ("limited" if sits else "failed"), stopped


def test_every_row_starts_as_it_was_recorded():
    """The flags that the table uses stand in recorded command lines of that CLI."""
    seen = {cli: {word.split("=")[0] for row in ROWS if row["argv"][0] == cli for word in row["argv"]}
            for cli in BY_NAME}
    for agent in v.AGENTS:
        words = {*agent.command, *agent.subcommand, *agent.args}
        assert {word for word in words if word.startswith("-")} <= seen[agent.name], agent.name
        for template in (agent.model_args, agent.prompt_args, agent.access_args["full"]):
            flags = {word.split("=")[0] for word in template if word.startswith("-") and word != "--"}
            unproven = flags - seen[agent.name] - {"--allow-all-paths", "--model"}
            assert not unproven, (agent.name, unproven)


def test_an_agent_stopped_at_its_limit_is_judged_by_what_the_server_said():
    said = "429 You exceeded your current quota, please check your plan and billing details."
    event = {"type": "model.call_failure", "data": {"statusCode": 429, "requestBody": "x" * 2000, "errorMessage": said}}
    agent = next(row for row in v.AGENTS if row.output == "copilot-json")
    draft = v.Draft("x")
    v.feed_line(v.FORMATS[agent.output], draft, json.dumps(event))
    ended = Ended(None, 15, "limit", json.dumps(event) + "\n", "")
    verdict = v.classify(agent, ended, v.finish(v.FORMATS[agent.output], draft, ended), "x", v.Clock(0.0, "UTC"))
    assert (verdict.outcome, verdict.error_class) == ("limited", "credits"), verdict
    assert said in verdict.error


def test_an_agent_stopped_at_its_limit_is_shown_by_what_its_retry_says():
    event = TRIED % 60000 + '{"type":"system","subtype":"status","session_id":"s"}\n'
    event = event.replace('"rate_limit"}', '"rate_limit","session_id":"99674d29-7294-4196-b5f3-cf96be4b4b76"}')
    long = LOG.replace("small=false", "small=false " + "agent=build " * 30) % "Rate limit reached for m. Please try again in 20m."
    for name, text, error_class, shown, reset_at in (
            ("claude", event, "rate_limit", "sat at its limit: rate_limit", None),
            ("opencode", long, "rate_limit", "sat at its limit: AI_APICallError: Rate limit reached for m. Please try again in 20m.", 1200)):
        verdict = v.classify(BY_NAME[name], Ended(None, 15, "limit", "", text), v.Report(), "x", v.Clock(0.0, "UTC"))
        assert (verdict.outcome, verdict.error_class, verdict.error) == ("limited", error_class, shown), verdict
        assert verdict.reset_at == reset_at, verdict


@pytest.mark.parametrize("name, stdout, stderr", [
    ("opencode", '{"type":"text","part":{"text":"Working."}}\n', LOG % "The usage limit has been reached"),
    ("mine", "Working.\n", "The usage limit has been reached. Retrying in 60s\n"),
    ("mine", "The usage limit has been reached. Retrying in 60s\n", "debug: on\n")])
def test_a_limit_that_may_have_come_before_the_work_is_none_unless_the_agent_was_seen_to_sit_there(name, stdout, stderr):
    agent = BY_NAME.get(name, v.Agent(name, (name,)))
    before = stdout.startswith("Working") or name == "opencode"
    for stopped, outcome in (("timeout", "failed" if before else "limited"), ("limit", "limited")):
        verdict = v.classify(agent, Ended(None, 15, stopped, stdout, stderr), v.Report(), "x", v.Clock(0.0, "UTC"))
        assert verdict.outcome == outcome, verdict
        assert outcome == "failed" or "usage limit has been reached" in verdict.error, verdict
