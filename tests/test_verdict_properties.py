"""What must hold for any output: seeded, the seed stands in every message."""
import json
import os
import random

import pytest
from test_corpus import ANSWERS, BY_NAME
from test_corpus import ROWS as CORPUS
from test_recordings import ROWS as RECORDED
from test_recordings import replay

import orch as v
from orch import Agent, Ended, Report, replaced

CLOCK = v.Clock(1796076000.0, "UTC")
OWN = Agent("mine", ("mine",))
AGENTS = [*v.AGENTS, *(replaced(agent, output="text") for agent in v.AGENTS), OWN]
TEXTS = [row["text"] for row in CORPUS]
SAMPLE = len(TEXTS) if os.environ.get("FULL") else 25      # FULL=1: every message in every frame, 40 s
BENCHING = ("limited", "auth")


def run(agent, stdout="", stderr="", exit_code=1, prompt="", signal=None, stopped=None):
    fmt, draft = v.FORMATS[agent.output], v.Draft(prompt)
    for stream, text in (("stdout", stdout), ("stderr", stderr)):
        for line in (text.split(b"\n") if isinstance(text, bytes) else text.split("\n")):
            v.feed_line(fmt, draft, line, stream)
    texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in (stdout, stderr)]
    ended = Ended(exit_code, signal, stopped, *texts)
    report = v.finish(fmt, draft, ended)
    json.dumps([report.answer, report.error]).encode()
    report.answer.encode(), (report.error or "").encode()
    return report, v.classify(agent, ended, report, prompt, CLOCK)


def ids(agent):
    return f"{agent.name}-{agent.output}"


PROMPTS = (
    "{}",
    "Fix the parser: it must understand\n\n{}\n\nand tell the user when to come back.",
    'Our log says "{}". Why? Do not log in anywhere, just explain.',
    "Continue the work. The agent before you stopped: {}\nIts last words: rate limit, usage limit, 429.\n- finish it",
)


@pytest.mark.parametrize("agent", AGENTS, ids=ids)
@pytest.mark.parametrize("frame", PROMPTS)
def test_echoed_prompt_benches_nobody(agent, frame):
    seed = f"{agent.name} {agent.output} {frame}"
    for number, text in random.Random(seed).sample(list(enumerate(TEXTS)), SAMPLE):
        prompt = frame.format(text)
        for echo in (prompt, f"user\n{prompt}\nexec\nls\n", prompt + "\n", "\n".join(prompt.split("\n")[:-1]) or prompt):
            for exit_code in (0, 1):
                for out, err in ((echo, ""), ("", echo), (echo, echo)):
                    _, verdict = run(agent, out, err, exit_code, prompt)
                    assert verdict.outcome not in BENCHING, (number, exit_code, bool(out), bool(err), echo, verdict)


def test_short_prompt_hides_no_real_limit():
    for prompt in ("rate limit", "usage limit", "limit", "quota exceeded", "You", "\n", "ERROR", "resets 3pm"):
        for agent in AGENTS:
            _, verdict = run(agent, "You've hit your usage limit · resets 3pm", exit_code=1, prompt=prompt)
            if agent.verdict_stream != "stderr":
                assert verdict.outcome == "limited", (prompt, agent.name, verdict)
        _, verdict = run(BY_NAME["codex"], "", f"user\n{prompt}\nERROR: You’ve hit your usage limit. Try again at 9 PM.",
                         prompt=prompt)
        assert verdict.outcome == "limited", (prompt, verdict)


def answer_of(agent, text):
    """A complete good run of the agent whose answer is `text`."""
    if agent.output == "text":
        return text
    if agent.output == "gemini-json":
        return json.dumps({"session_id": "s", "response": text, "stats": {"models": {}}}, indent=2)
    done = json.dumps("Done.")
    assert done in ANSWERS[agent.output]
    return ANSWERS[agent.output].replace(done, json.dumps(text))


@pytest.mark.parametrize("agent", AGENTS, ids=ids)
def test_good_answer_may_say_anything(agent):
    for number, text in enumerate(TEXTS):
        for said in (f"I fixed the parser. It now understands:\n\n{text}\n", f"The sentence is\n{text}\nand I added a test."):
            report, verdict = run(agent, answer_of(agent, said), exit_code=0, prompt="fix the parser")
            assert verdict.outcome == "ok", (number, said, verdict)
            assert report.answer == said
        if agent.output != "text":          # a machine format says by itself that it is an answer, even if it is all there is
            report, verdict = run(agent, answer_of(agent, text), exit_code=0)
            assert verdict.outcome == "ok" and report.answer == text, (number, verdict)


@pytest.mark.parametrize("agent", v.AGENTS, ids=ids)
def test_tool_output_in_events_benches_nobody(agent):
    """A machine format whose tools print limits, and that then ends without a word of its own."""
    events = {
        "claude-stream": lambda text: {"type": "user", "message": {"content": [{"type": "tool_result", "content": text}]}},
        "codex-json": lambda text: {"type": "item.completed", "item": {"type": "command_execution", "aggregated_output": text}},
        "opencode-json": lambda text: {"type": "tool_use", "part": {"tool": "bash", "state": {"output": text}}},
        "gemini-json": lambda text: {"type": "tool_result", "output": text},
        "copilot-json": lambda text: {"type": "tool.execution_complete", "data": {"result": {"content": text}}},
    }[agent.output]
    for number, text in enumerate(TEXTS):
        for exit_code, signal, stopped in ((1, None, None), (0, None, None), (None, 9, None), (None, 15, "timeout")):
            _, verdict = run(agent, json.dumps(events(text)) + "\n", "", exit_code, "x", signal, stopped)
            assert verdict.outcome == "failed", (number, exit_code, verdict)


@pytest.mark.parametrize("seed", range(20))
def test_any_cut_of_a_recording_is_judged(seed):
    rng = random.Random(seed)
    for row in rng.sample(RECORDED, 25):
        cut = {**row, "stdout": row["stdout"][:rng.randrange(len(row["stdout"]) + 1)],
               "stderr": row["stderr"][rng.randrange(len(row["stderr"]) + 1):]}
        _, _, verdict = replay(cut, rng.choice([None, None, "timeout", "silent", "aborted", "limit"]))
        assert verdict.outcome in ("ok", "failed", "limited", "auth", "not_found", "aborted"), (seed, row["id"])
        if row["exit_code"] == 0 and replay(row)[2].outcome == "ok":
            assert replay(cut)[2].outcome in ("ok", "failed"), (seed, row["id"])


@pytest.mark.parametrize("seed", range(20))
def test_chunks_do_not_matter(seed):
    """Lines fed one by one from any chunking of the bytes give the same report."""
    rng = random.Random(seed)
    for row in rng.sample(RECORDED, 10):
        agent, whole, _ = replay(row)
        raw, draft, held = row["stdout"].encode("utf-8", "surrogatepass"), v.Draft(), b""
        while raw:
            size = rng.randrange(1, 400)
            *lines, held = (held + raw[:size]).split(b"\n")
            raw = raw[size:]
            for line in lines:
                v.feed_line(v.FORMATS[agent.output], draft, line)
        v.feed_line(v.FORMATS[agent.output], draft, held)
        code = row["exit_code"]
        ended = Ended(code if code >= 0 else None, -code if code < 0 else None, None, row["stdout"], row["stderr"])
        assert v.finish(v.FORMATS[agent.output], draft, ended) == whole, (seed, row["id"])


JUNK = (None, True, False, 0, -1, 1.5, float("nan"), float("inf"), 10 ** 400, 1 << 63, "", "x", "\ud800", "\x00", "429",
        [], [[]], [None], {}, {"type": []}, {"message": 3}, "You've hit your usage limit", ["text"], [{"type": "text", "text": 7}])


def mangled(rng, item, depth=0):
    """The value with some of its parts replaced by junk."""
    if rng.random() < 0.12:
        return rng.choice(JUNK)
    if isinstance(item, dict) and depth < 6:
        return {key: mangled(rng, part, depth + 1) for key, part in item.items() if rng.random() > 0.05}
    if isinstance(item, list) and depth < 6:
        return [mangled(rng, part, depth + 1) for part in item]
    return item


def all_events():
    events = {}
    for row in RECORDED:
        for line in row["stdout"].split("\n"):
            if line.startswith("{"):
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                events.setdefault((row["argv"][0], event.get("type"), event.get("subtype")), []).append(event)
    return [event for group in events.values() for event in group[:4]]


@pytest.mark.parametrize("seed", range(10))
def test_mangled_events_never_raise(seed):
    rng, events = random.Random(seed), all_events()
    for fmt in v.FORMATS.values():
        draft = v.Draft()
        for number in range(2000):
            event = mangled(rng, rng.choice(events))
            line = json.dumps(event) if rng.random() < 0.9 else json.dumps(event)[:rng.randrange(200)]
            shown = v.feed_line(fmt, draft, line)
            assert shown is None or isinstance(shown, str), (seed, number, line)
            if number % 100 == 99:
                ended = Ended(rng.choice([0, 1, 173, None]), rng.choice([None, 9]), rng.choice([None, "timeout"]),
                              line, rng.choice(["", line, "\n{" + line]))
                report = v.finish(fmt, draft, ended)
                assert isinstance(report.answer, str), (seed, number)
                for agent in rng.sample(AGENTS, 2):
                    v.classify(agent, ended, report, "p", CLOCK)
                draft = v.Draft()


@pytest.mark.parametrize("fmt", v.FORMATS.values(), ids=v.FORMATS.keys())
def test_strange_lines_never_raise(fmt):
    draft = v.Draft()
    deep = '{"type":"assistant","message":' + "[" * 100_000
    for line in (b"", b"\xff\xfe{", b'{"type":"result","result":"\xff\xfe"}', deep, deep.encode(), "{" * 200_000,
                 '{"type":"result","result":"\\ud800"}', '{"type":"result","usage":{"input_tokens":NaN}}',
                 '{"type":"result","total_cost_usd":' + "9" * 6000 + "}", '{"type":"result","total_cost_usd":1e999}',
                 "null", "[]", "3", '"x"', '{"type":null}', '{"type":["a"]}', '{"type":{}}', "\ud800", "{\ud800", " \t{}",
                 b'{"type":"text"}' + b" " * (9 << 20)):
        assert v.feed_line(fmt, draft, line) is None or True
    for stdout in ("", "\ud800", deep, '{"response":' + "9" * 6000 + "}", "[" * 100_000, '[{"type":"result"},3]'):
        for stderr in ("", "\n{" * 5000, deep, "{\n  \"error\": 3\n}"):
            report = v.finish(fmt, draft, Ended(173, None, None, stdout, stderr))
            (report.answer + (report.error or "")).encode()


def test_memory_is_bounded():
    fmt, draft = v.FORMATS["gemini-json"], v.Draft()
    piece = json.dumps({"type": "message", "role": "assistant", "content": "x" * 65536, "delta": True})
    for _ in range(400):
        v.feed_line(fmt, draft, piece)
    assert sum(map(len, draft.parts)) <= 2 * v.ANSWER_CHARS + 65536
    report = v.finish(fmt, draft, Ended(0, None, None, "x", ""))
    assert len(report.answer) == v.ANSWER_CHARS and any("cut" in line for line in report.warnings)
    denial = {"type": "result", "permission_denials": [{"tool_name": f"T{n}"} for n in range(5000)]}
    draft = v.Draft()
    v.feed_line(v.FORMATS["claude-stream"], draft, json.dumps(denial))
    assert len(v.finish(v.FORMATS["claude-stream"], draft, Ended(0)).warnings) <= v.WARNINGS + 1


def test_stopped_and_silent_endings():
    for agent in AGENTS:
        assert run(agent, exit_code=None, signal=15, stopped="aborted")[1].outcome == "aborted"
        for stopped in ("timeout", "silent"):
            verdict = run(agent, exit_code=0, stopped=stopped)[1]
            assert (verdict.outcome, verdict.error_class) == ("failed", stopped), agent.name
        assert run(agent, exit_code=None, signal=15, stopped="limit")[1].outcome == "limited"
        for code in (126, 127):
            assert run(agent, exit_code=code)[1].outcome == "not_found", agent.name
        assert run(agent, "", "env: 'node': No such file or directory", 127)[1].outcome == "not_found"
        assert run(agent, "half an answer", "", 127)[1].outcome == "failed"
        verdict = run(agent, exit_code=None, signal=9)[1]
        assert (verdict.outcome, verdict.error_class) == ("failed", "signal"), agent.name


def test_empty_or_unfinished_machine_output_is_failed():
    for agent in v.AGENTS:
        assert run(agent, exit_code=0)[1].outcome == "failed", agent.name
        assert run(agent, '{"type":"init"}\n', exit_code=0)[1].outcome == "failed", agent.name
    assert run(OWN, exit_code=0)[1].outcome == "ok"


def test_patterns_of_the_config_are_named():
    agent = replaced(OWN, user_limit_patterns=("nothing", "credits? used up"), user_auth_patterns=("badge expired",))
    verdict = run(agent, "", "all credit used up, back at noon")[1]
    assert (verdict.outcome, verdict.rule) == ("limited", "config limit_patterns[1]")
    assert verdict.evidence == "all credit used up, back at noon"
    spaced = replaced(OWN, user_limit_patterns=("(?<=all )gone", "no  +more"))
    assert run(spaced, "", "it is all gone")[1].rule == "config limit_patterns[0]"
    verdict = run(agent, "", "badge expired")[1]
    assert (verdict.outcome, verdict.rule) == ("auth", "config auth_patterns[0]")


@pytest.mark.parametrize("text", [
    "line 429", "529", "401", "quota", "limit", "the limit is 100", "status 200", "rate", "error on line 401",
    "see section 429 of the manual", "quota: 12 GB", "limits.py", "rate_limit.py", "login.py", "POST /login 200",
    "pages 418-429", "Reached max turns (30)", "logged in as x", "token budget: 5000", "unlimited", "401k plan",
])
def test_bare_number_or_word_proves_nothing(text):
    for agent in AGENTS:
        for out, err in ((text, ""), ("", text), ("", f"ERROR: {text}"), (f"Error: {text}", "")):
            assert run(agent, out, err, 1)[1].outcome == "failed", (agent.name, text)


def test_declared_verdict_wins_over_any_text():
    report = Report(failed=True, error="API Error: 529 Overloaded", status=529)
    for text in TEXTS:
        verdict = v.classify(BY_NAME["claude"], Ended(1, None, None, text, text), report, "", CLOCK)
        assert verdict.outcome == "failed" and verdict.error_class == "overloaded"


def test_status_401_is_read_before_a_limit():
    report = Report(failed=True, error="Your quota exceeded trial has ended", status=401)
    assert v.classify(BY_NAME["claude"], Ended(1), report, "", CLOCK).outcome == "auth"


def test_warning_of_a_limit_gives_no_reset():
    event = {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed_warning", "resetsAt": 1796079999}}
    last = {"type": "result", "is_error": True, "api_error_status": 429, "result": "You've hit your weekly limit"}
    stream = f"{json.dumps(event)}\n{json.dumps(last)}"
    assert run(BY_NAME["claude"], stream)[1].reset_at is None
    assert run(BY_NAME["claude"], stream.replace("allowed_warning", "rejected"))[1].reset_at == 1796079999


def test_rejected_limit_with_an_error_needs_no_result():
    info = {"status": "rejected", "resetsAt": 1796079999, "rateLimitType": "seven_day_opus"}
    message = {"content": [{"type": "text", "text": "You've hit your Opus limit"}]}
    lines = ({"type": "rate_limit_event", "rate_limit_info": info},
             {"type": "assistant", "error": "rate_limit", "message": message})
    verdict = run(BY_NAME["claude"], "\n".join(map(json.dumps, lines)), exit_code=None, signal=9)[1]
    assert (verdict.outcome, verdict.scope, verdict.reset_at) == ("limited", "model:opus", 1796079999)


def test_transcript_of_codex_without_a_verdict_line_proves_nothing():
    plain = replaced(BY_NAME["codex"], output="text")
    shown = "OpenAI Codex v0.171.0\n--------\nuser\nfix it\nexec\ncat notes\nYou've hit your usage limit. Try again at 9 PM."
    for exit_code, signal in ((1, None), (None, 9)):
        assert run(plain, "", shown, exit_code, "fix it", signal)[1].outcome == "failed"


def test_only_the_last_line_of_claude_is_its_verdict():
    plain = replaced(BY_NAME["claude"], output="text")
    assert run(plain, "The old text was:\nYou've hit your limit · resets 3pm\nError: it broke")[1].outcome == "failed"
    assert run(plain, "I began.\nYou've hit your limit · resets 3pm")[1].outcome == "limited"


def test_subagent_is_not_the_answer():
    lines = [{"type": "assistant", "parent_tool_use_id": parent, "message": {"id": text, "content": [{"type": "text", "text": text}]}}
             for parent, text in ((None, "mine"), ("toolu_1", "its own"))]
    assert run(BY_NAME["claude"], "\n".join(map(json.dumps, lines)))[0].answer == "mine"


@pytest.mark.parametrize("line", [
    "npm error 429 Too Many Requests: rate limit exceeded", "gh: API rate limit exceeded for user ID 1",
    "toomanyrequests: You have reached your pull rate limit", "remote: usage limit reached", "curl: quota exceeded",
])
def test_limits_of_other_programs_bench_nobody(line):
    for agent in AGENTS:
        for out, err in (("", line), (line, "")):
            assert run(agent, out, err)[1].outcome == "failed", agent.name


@pytest.mark.parametrize("said, outcome", [
    ("Error: usage limit reached, resets in 2h", "limited"), ("Error: not logged in", "auth"), ("Error: 401 Unauthorized", "auth"),
    ("Error: fetch failed", "failed"), ("Error: the server is overloaded", "failed")])
def test_the_line_that_decided_is_shown_however_much_stands_above_it(said, outcome):
    notes = "".join(f"[info] loading plugin number {number} from /usr/lib/agent/plugins/number-{number}.js\n" for number in range(5))
    for above, shown in ((notes, said), ("[info] hello\n", f"[info] hello {said}")):
        _, verdict = run(OWN, stderr=above + said)
        assert (verdict.outcome, verdict.error) == (outcome, shown), verdict
