"""Damaged inputs for everything that orch parses; seeded. `fuzz` runs them, torture.py and test_fuzz.py call it.

Each target takes a Random, makes one input and hands it to orch's own functions. What may be raised is what
the function documents; anything else is a finding, told with the seed that repeats it.
"""
from __future__ import annotations

import copy
import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orch

DATA = Path(__file__).resolve().parent.parent / "data"
NOW = 1796076000.0
SLOW_S = 2.0                                               # an input that takes longer is a finding too, on any machine

ODD_TEXTS = ("", " ", "\0", "\n", "\x1b[31m", "\ud800", "\udcff", "é", "\U0001F600", "\u202e", "a" * 5000, "../../x", "-",
             "--", "--help", "{prompt}", "%s", "$(id)", "`id`", "NaN", "null", "claude", "1h", "9" * 400, "2026-11-30T10:00:00Z",
             "rate limit", "resets 3pm (Mars/Base)", "\\", '"', "(", "(a+)+$", "[", "*" * 30, "+", "0001-01-01T00:00:00+23:59")
ODD_VALUES: Sequence[Any] = (None, True, False, 0, -1, 1, 1.5, 10 ** 400, -10 ** 30, 1e308, float("inf"), float("nan"), [], {}, [[]],
                             {"": {}}, ["+"], [None], {"type": "result"}, *ODD_TEXTS)


# === DAMAGE ==============================================================

def damaged_bytes(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, cut out, put in or doubled."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        end = min(at + rng.choice((1, 3, 20, 200)), len(out))
        odd = rng.choice((b"\0", b"\xff", b"\n", b"\x1b[2J", b"{", b'"', b"\xe2\x80", b"]" * 50, bytes([rng.randrange(256)])))
        out[at:end] = rng.choice((b"", odd, bytes(out[at:end]) * 2, bytes(rng.randrange(256) for _ in range(end - at))))
    return bytes(out)


def damaged_text(rng: random.Random, text: str) -> str:
    """The same for a text; half characters included."""
    at = rng.randrange(len(text) + 1)
    end = min(at + rng.choice((0, 1, 5, 40)), len(text))
    return text[:at] + rng.choice((*ODD_TEXTS, text[at:end] * 3, chr(rng.choice((rng.randrange(128), rng.randrange(0x11000)))))) + text[end:]


def damaged_value(rng: random.Random, value: Any) -> Any:
    """A copy of a JSON value with something in it exchanged, removed or added."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 4))):
        spots = list(_spots(value))
        if not spots:
            return rng.choice(ODD_VALUES)
        owner, key = rng.choice(spots)
        action = rng.randrange(5)
        if action == 0:
            del owner[key]
        elif action == 1 and isinstance(owner, dict):
            owner[rng.choice(ODD_TEXTS)] = copy.deepcopy(rng.choice(ODD_VALUES))    # else what is damaged next is the table
        elif action == 2 and isinstance(owner[key], str):
            owner[key] = damaged_text(rng, owner[key])
        else:
            owner[key] = copy.deepcopy(rng.choice((*ODD_VALUES, rng.choice(spots)[0])))
    return value


def _spots(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a value."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 1000:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        found += [(one, key) for key in keys]
        waiting += [one[key] for key in keys]
    return found


def deep(rng: random.Random) -> str:
    """JSON nested beyond what any parser takes."""
    depth = rng.choice((100, 900, 990, 1000, 5000, 100_000))
    return rng.choice(("[", '{"a":', '{"type":"result","a":[')) * depth


def damaged_json(rng: random.Random, value: Any) -> str:
    """JSON text of a damaged value, or damaged text of a sound one."""
    kind = rng.randrange(10)
    if kind == 0:
        return deep(rng)
    if kind < 4:
        return damaged_text(rng, json.dumps(value))
    return json.dumps(damaged_value(rng, value))


# === TARGETS =============================================================

RECORDED = [json.loads(line) for path in sorted((DATA / "recordings").glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
MESSAGES = [json.loads(line)["text"] for line in (DATA / "messages.jsonl").read_text("utf-8").splitlines()]
CONFIG = {
    "order": ["claude", "codex"], "agents": {"claude": {"args": ["+", "--x"], "env": {"A": "b"}, "limit_patterns": ["used up"]},
                                             "mine": {"command": ["my-agent"], "output": "text", "login_check": ["my-agent", "login"]}},
    "rules": [{"match": "\\b(refactor|rename)\\b", "agent": "codex", "model": "m", "effort": "high", "context": "lean"},
              {"keywords": ["docs", "readme"], "agent": "claude", "complexity": "simple"}, {"paths": ["*.css", "web/**"], "agent": "claude"}],
    "contexts": {"lean": {"claude": ["--strict"], "codex": ["-c", "x"]}}, "model_map": {"simple": {"claude": "small"}},
    "access": "edit", "timeout": "1h", "idle_timeout": 0, "deadline": 0, "limit_grace": "30s", "default_cooldown": "5m",
    "handoff": {"summary": True, "diff_chars": 12000}, "usage": {"keep_days": 90}, "jobs": {"prompt": True},
    "roles": {"reviewer": {"agent": "codex", "writes": False, "prompt": "You review", "on_failure": "continue"}},
    "teams": {"full": ["reviewer"]}, "auto": {"enabled": False, "max_roles": 3}, "trusted_projects": ["~/src/mine"]}
STATE = {
    "version": 1, "cooldowns": {"claude": {"until": "2026-12-02T20:00:00Z", "reason": "limit", "source": "agent", "set_at": "2026-11-30T10:00:00Z"},
                                "codex:m": {"until": "2026-12-02T20:00:00Z", "reason": "set by hand", "source": "user", "set_at": None}},
    "limit_counts": {"claude": 2}, "jobs": [{
        "id": "20261130T100000-00000000", "at": "2026-11-30T10:00:00Z", "status": "ok", "agent": "claude", "model": None, "exit_code": 0,
        "error": None, "attempts": 1, "duration_ms": 5, "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 0, "billable": 3},
        "cost_usd": 0.5, "cwd": "/x", "project": "/x", "prompt": "hi", "retry_at": None}]}
RECORD = {
    "at": "2026-11-30T10:00:00Z", "task_id": "20261130T100000-00000000", "agent": "claude", "model": None, "outcome": "ok",
    "error_class": None, "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 0, "billable": 3}, "cost_usd": 0.5,
    "duration_ms": 5, "prompt_chars": 2, "project": "/x", "role": None, "kind": "run"}
NOTE = {"host": os.uname().nodename, "boot": "b", "pid": 1, "start": "1", "marker": "20261130T100000-00000000.1", "task_id": "20261130T100000-00000000",
        "agent": "claude", "model": None, "kind": "run", "at": "2026-11-30T10:00:00Z", "run_at": "2026-11-30T10:00:00Z", "earlier": 0, "nth": 1,
        "folders": ["/tmp/orch-0123456789abcdef"], "project": "/x", "prompt_chars": 2, "prompt": "hi"}
KEPT = {"at": "2026-11-30T10:00:00Z", "task_id": "t", "agent": "claude", "model": None, "exit_code": 1, "signal": None, "stopped": None,
        "prompt": "hi", "stdout": "x", "stderr": "y"}
DIFF = ("diff --git a/a.py b/a.py\nindex 1..2 100644\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-one\n+password = 'hunter2hunter2'\n"
        "+-----BEGIN RSA PRIVATE KEY-----\n+MIIEowIBAAKCAQEA\n+-----END RSA PRIVATE KEY-----\n+```\n+sk-ant-REDACTED\n")


def config(rng: random.Random) -> None:
    """A config is refused with one line, or holds."""
    text = damaged_json(rng, CONFIG)
    below = [orch.Layer("built-in", orch.DEFAULTS)]
    if rng.random() < 0.7:
        layer = orch.parse_config(text, "config.json")
    else:
        layer, warnings = orch.parse_untrusted(text, "config.json", orch.merged(below))
        assert all(isinstance(line, str) for line in warnings)
        for agent in layer.raw.get("agents", {}) if isinstance(layer.raw, dict) else ():
            raise AssertionError(f"an untrusted project defines {agent}")
    layers = [*below, layer]
    settled = orch.config_of(layers)
    orch.origins(layers)
    for prompt in ("rename the docs in web/a.css", rng.choice(ODD_TEXTS) + "x"):
        orch.route(settled, orch.Request(prompt), {}, lambda _agent: True, lambda: ["web/a.css", "b.py"])


def durations(rng: random.Random) -> None:
    """A duration is a number of seconds up to ten years, or refused."""
    text = damaged_text(rng, rng.choice(("90s", "10m", "1h30m", "2d", "1w", "0", "1.5", "1e3", "4000d", "600w")))
    seconds = orch.parse_duration(rng.choice((text, rng.choice(ODD_VALUES))))
    assert 0 <= seconds <= 3660 * 86400, (text, seconds)


def state(rng: random.Random) -> None:
    """A state is corrupt, or everything that reads and changes it works."""
    known = orch.parse_state(damaged_json(rng, STATE))
    verdict = orch.Verdict("limited", rng.choice(("usage_limit", "credits", None)), "at its limit",
                           rng.choice((None, NOW + 60, NOW - 60, 9e9)), rng.random() < 0.5)
    entry, count = orch.cooldown_after(known, "claude", verdict, NOW, 300)
    after = orch.with_job(orch.with_success(orch.with_limit(known, "claude", entry, count), ["claude"]), {"id": "x"}, NOW)
    assert orch.parse_state(json.dumps(after))["jobs"][-1] == {"id": "x"}
    ends = orch.cooling(known, NOW)
    orch.render_cooldowns([{"key": key, "end": end, **known["cooldowns"][key]} for key, end in ends.items()], NOW, time.gmtime)
    orch.render_jobs(known["jobs"], NOW)


def told(lines: list[bytes]) -> list[str]:
    """Lines of a file as the reader hands them on."""
    return [line.decode("utf-8", "replace") for line in lines]


def ledger(rng: random.Random) -> None:
    """Every line is a record or counted as corrupt; any cut gives a beginning."""
    lines = [damaged_json(rng, RECORD).encode("utf-8", "surrogatepass") for _ in range(3)] + [json.dumps(RECORD).encode()]
    lines.append(damaged_bytes(rng, lines[-1]))
    for by in orch.USAGE_KEYS:
        summary = orch.summarise(orch.parse_ledger(told(lines)), by, rng.choice(("", "2026-11-30T00:00:00Z")))
        orch.render_usage(summary, by)
        json.dumps(summary)
    whole = b"\n".join(lines)
    cut = whole[:rng.randrange(len(whole) + 1)].split(b"\n")[:-1]
    assert list(map(repr, orch.parse_ledger(told(cut)))) == list(map(repr, orch.parse_ledger(told(lines))))[:len(cut)] or b"\n" in b"".join(lines)


def outputs(rng: random.Random) -> None:
    """Whatever an agent prints is judged, and the result can be written as JSON; however it was cut into pieces."""
    row = rng.choice(RECORDED)
    agent = rng.choice(orch.AGENTS)
    if rng.random() < 0.8:
        agent = next((one for one in orch.AGENTS if one.name == row["argv"][0].rpartition("/")[2]), agent)
    out, err = (damaged_output(rng, row[name]) for name in ("stdout", "stderr"))
    prompt = rng.choice(("", "hi", row["stdout"][:200], *ODD_TEXTS))
    fmt, ways = orch.FORMATS[agent.output], []
    code = rng.choice((0, 1, 2, 41, 127, 173, None))
    ended = orch.Ended(code, 15 if code is None else None, rng.choice((None, None, "timeout", "silent", "limit", "aborted")),
                       out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
    for pieces in ([out], _chunks(rng, out)):
        draft, lines = orch.Draft(prompt), orch.Lines(orch.LINE_BYTES)
        for piece in pieces:
            for line in lines.feed(piece):
                orch.feed_line(fmt, draft, line)
        orch.feed_line(fmt, draft, lines.rest())
        report = orch.finish(fmt, draft, ended)
        verdict = orch.classify(agent, ended, report, prompt, orch.Clock(NOW, "UTC"))
        ways.append(repr((report, verdict)))
    assert ways[0] == ways[1], "another answer when cut into other pieces"
    assert verdict.outcome in orch.OUTCOMES
    for text in (report.answer, report.error or "", verdict.error or "", verdict.evidence, report.session_id or "", report.model or ""):
        text.encode()
    fields = {name: item for name, item in vars(report).items() if name != "usage"}
    json.dumps([fields, orch.usage_json(report.usage)], allow_nan=False)
    if verdict.outcome == "limited":
        entry, _ = orch.cooldown_after(orch.empty_state(), "x", verdict, NOW, 300)
        assert orch.parse_time(entry["until"]), entry
    orch.sits_at_limit(agent, ended.stderr[-8192:], prompt)


def damaged_output(rng: random.Random, text: str) -> bytes:
    """A recorded stream with a line's JSON damaged, or bytes, or more of the same."""
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    try:
        lines[at] = damaged_json(rng, json.loads(lines[at]))
    except ValueError:
        lines[at] = damaged_text(rng, lines[at] + rng.choice(MESSAGES))
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    return damaged_bytes(rng, data) if rng.random() < 0.3 else data


def _chunks(rng: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(5))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)])]


def messages(rng: random.Random) -> None:
    """A reset time is a finite moment or none; the text does not grow the time that it takes."""
    text = damaged_text(rng, rng.choice(MESSAGES))
    if rng.random() < 0.1:
        text = rng.choice(MESSAGES) * 200 + text
    found = orch.parse_reset(text, rng.choice((NOW, 0.0, 4e9)), rng.choice(("UTC", "Europe/Berlin", None)))
    assert found is None or -1e12 < found.at < 1e12, (text, found)
    orch.render_time(found.at if found else None)


ARGUMENTS = ("run", "status", "jobs", "usage", "cooldown", "list", "set", "clear", "agents", "explain", "wait", "init", "config", "check", "demo",
             "-a", "claude", "--agent=claude", "-m", "-e", "-c", "-x", "simple", "--access", "read", "-C", "/", "-t", "5", "--wait", "1h", "-n",
             "--json", "--events", "-p", "-q", "-v", "--config", "--", "-", "fix it", "-- x", "--by", "day", "--since", "2d", "--max", "-h",
             "--help", "--version", "-V", "-qv", "-a=x", "--no-failover", "--deadline", "--exit", "--now", "0", "--zone", "UTC", "--task", "stauts")


def arguments(rng: random.Random) -> None:
    """A command line is understood, or refused with one line; every word of a prompt stays a word."""
    argv = [rng.choice((*ARGUMENTS, *ODD_TEXTS)) for _ in range(rng.randrange(6))]
    if argv and rng.random() < 0.5:
        argv[-1] = damaged_text(rng, argv[-1])
    if rng.random() < 0.2:
        given = orch.read_line(["--", *argv])
        assert isinstance(given, orch.Given) and list(given.words) == argv, argv
    orch.read_line(argv)


def handoffs(rng: random.Random) -> None:
    """A handoff is made of anything, holds the request, masks what it masked before, and keeps within its bounds."""
    diff, answer = damaged_text(rng, DIFF * rng.choice((1, 30))), damaged_text(rng, rng.choice(MESSAGES))
    files = tuple(orch.Change(rng.choice("AMDTR"), damaged_text(rng, "src/a.py"), rng.choice((None, "b")), rng.choice((None, 3)), 1)
                  for _ in range(rng.choice((0, 1, 200))))
    data = diff.encode("utf-8", "surrogatepass")
    spans = orch.patch_spans(data.splitlines(keepends=True), files[:1])
    parts = {path: data[start:end].decode("utf-8", "replace") for path, (start, end) in spans.items()}
    changes = orch.fit_diff(files, parts, 12_000)
    facts = orch.HandoffFacts(
        request=rng.choice(ODD_TEXTS), stopped=(orch.Stopped("claude", answer),), branch=rng.choice((None, *ODD_TEXTS)),
        earlier=rng.choice((None, (), ODD_TEXTS)), changes=rng.choice((None, changes, orch.Changes(files, diff[:12_000], ("src/a.py",)))),
        unknown_why=answer, commits=rng.choice(((), ODD_TEXTS)), summary=answer, answer=diff)
    text, _ = orch.render_handoff(facts)
    assert facts.request in text
    masked, _ = orch.mask_secrets(diff)
    assert orch.mask_secrets(masked)[0] == masked


def git_output(rng: random.Random) -> None:
    """What `git diff-tree` prints, in sound records with any path."""
    paths = [damaged_text(rng, "a/b").replace("\0", "") or "x" for _ in range(3)]
    raw = [os.fsencode(path.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")) for path in paths]
    output = b"".join(b":100644 100644 1 2 M\0" + path + b"\0" for path in raw) + b"".join(b"3\t1\t" + path + b"\0" for path in raw)
    for change in orch.parse_tree_diff(output, os.fsdecode):
        orch.show_path(change.path)
    for text in paths:
        orch.printable(text).encode()
        orch.one_line(text, 50)


TARGETS: Mapping[str, tuple[Callable[[random.Random], None], tuple[type[Exception], ...]]] = {
    "arguments": (arguments, (orch.OrchError,)),
    "config": (config, (orch.OrchError,)),
    "durations": (durations, (ValueError,)),
    "git's output": (git_output, ()),
    "handoffs": (handoffs, ()),
    "ledger": (ledger, ()),
    "messages": (messages, ()),
    "agents' output": (outputs, ()),
    "state": (state, (ValueError, orch.OrchError)),
}


def fuzz(name: str, seed: int, count: int, end_at: float = float("inf")) -> dict[str, Any]:
    """Run `count` inputs of one target; raise AssertionError for the first that does what it may not."""
    target, allowed = TARGETS[name]
    refused, slowest, number = 0, 0.0, 0
    for number in range(1, count + 1):
        one = f"{seed} {name} {number}"
        begun = time.process_time()
        try:
            target(random.Random(one))
        except allowed:
            refused += 1
        except Exception as err:
            raise AssertionError(f"{name}: {type(err).__name__}: {err!s:.300} (repeat with fuzzing.again({one!r}))") from err
        took = time.process_time() - begun
        assert took < SLOW_S, f"{name}: an input took {took:.1f} s (repeat with fuzzing.again({one!r}))"
        slowest = max(slowest, took)
        if time.monotonic() > end_at:
            break
    return {"parser": name, "inputs": number, "refused": refused, "slowest ms": round(slowest * 1000, 1)}


def again(one: str) -> None:
    """Repeat one input, by the words of its finding: "SEED TARGET NUMBER"."""
    TARGETS[one.partition(" ")[2].rpartition(" ")[0]][0](random.Random(one))
