"""`orch mcp`: agents as tools, by the Model Context Protocol on standard input and output."""
from __future__ import annotations

import json
import os
import pty
import random
import re
import signal
import subprocess
import threading
import time
import types
from pathlib import Path

import pytest
from conftest import claude_limit, claude_ok, codex_ok, git, needs_proc, step, wait_until
from tools.fuzzing import ODD_VALUES, damaged_bytes

import orch as core

SESSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
NEWEST = "2026-07-28"
META = "io.modelcontextprotocol/"
MODERN = {META + "protocolVersion": NEWEST, META + "clientCapabilities": {}}
SLEEP = "time.sleep(60)\n"
DETACHED = """
import subprocess
helper = subprocess.Popen([sys.executable, "-IS", "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"],
                          start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""


# === A CLIENT ============================================================

class Client:
    """Speaks to one `orch mcp`; every line that it prints must be JSON-RPC."""

    def __init__(self, orch, *options, **how):
        self.process = orch.start("mcp", *options, **{"stdin": subprocess.PIPE, **how})
        self.heard, self.news, self.ended, self.count = [], threading.Condition(), False, 0
        self.reader = threading.Thread(target=self._listen, daemon=True)
        if self.process.stdout:
            self.reader.start()

    def _listen(self):
        for line in self.process.stdout:
            with self.news:
                self.heard += check_line(line)
                self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def put(self, *lines):
        """Send lines: bytes as they are, values as JSON."""
        data = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method, params=None, **more):
        """Send a request; returns its id."""
        self.count += 1
        self.put({"jsonrpc": "2.0", "id": self.count, "method": method, **({} if params is None else {"params": params}), **more})
        return self.count

    def wait(self, wanted, what):
        """The first message for which `wanted` is true."""
        with self.news:
            found = self.news.wait_for(lambda: [m for m in self.heard if wanted(m)] or self.ended, 30)
        assert found and found is not True, f"no {what} among {self.heard}"
        return found[0]

    def answer(self, message_id):
        """The response with this id."""
        return self.wait(lambda m: m.get("id") == message_id and "method" not in m, f"answer to {message_id}")

    def ask(self, method, params=None):
        """A request's result."""
        found = self.answer(self.send(method, params))
        assert "result" in found, found
        return found["result"]

    def refused(self, method, params=None):
        """A request's error."""
        return self.answer(self.send(method, params))["error"]

    def begin(self, revision=SESSIONS[-1]):
        """Initialize; returns this client."""
        self.ask("initialize", {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
        self.put({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def call(self, tool, arguments=None, **params):
        """Call a tool; returns the request's id."""
        return self.send("tools/call", {"name": tool, "arguments": arguments or {}, **params})

    def run(self, **arguments):
        """The result of orch_run."""
        return self.answer(self.call("orch_run", arguments))["result"]

    def close(self):
        """End the input; returns the exit status and standard error."""
        if not self.process.stdin.closed:
            self.process.stdin.close()
        code = self.process.wait(30)
        self.reader.join(30)
        return code, self.process.stderr.read().decode()

    def named(self, method):
        """The notifications of this name so far."""
        return [m["params"] for m in self.heard if m.get("method") == "notifications/" + method]


def check_line(line):
    """The messages of one line of output, each valid JSON-RPC as a server may send it."""
    assert line.endswith(b"\n"), line
    found = json.loads(line.decode("utf-8"))
    for message in found if isinstance(found, list) else [found]:
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            assert set(message) == {"jsonrpc", "method", "params"} and isinstance(message["params"], dict)
        else:
            assert set(message) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"}), message
            assert isinstance(message.get("result", {}), dict)
            if "error" in message:
                assert isinstance(message["error"]["code"], int) and isinstance(message["error"]["message"], str)
    return found if isinstance(found, list) else [found]


@pytest.fixture
def client(orch):
    """Start `orch mcp`: client("--access", "read") -> Client; at the end all must have gone."""
    clients = []

    def start(*options, **how):
        clients.append(Client(orch, *options, **how))
        return clients[-1]
    yield start
    for one in clients:
        if one.process.poll() is None:
            one.process.stdin.close()
            assert one.process.wait(30) == 0
        assert b"Traceback" not in one.process.stderr.read() if not one.process.stderr.closed else True


# === REVISIONS ===========================================================

@pytest.mark.parametrize(("asked", "settled"), [*zip(SESSIONS, SESSIONS), ("1999-01-01", SESSIONS[-1]), (NEWEST, SESSIONS[-1])])
def test_initialize_settles_the_revision(client, asked, settled):
    result = client().ask("initialize", {"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
    assert result["protocolVersion"] == settled
    assert result["capabilities"] == {"tools": {}, "logging": {}}
    assert (result["serverInfo"]["name"], result["serverInfo"]["version"]) == ("orch", core.__version__)
    assert ("title" in result["serverInfo"]) == (settled >= "2025-06-18")


@pytest.mark.parametrize("revision", SESSIONS)
def test_tools_show_what_the_revision_knows(client, fake, revision):
    fake("claude", claude_ok("42"))
    one = client().begin(revision)
    tools = {tool["name"]: tool for tool in one.ask("tools/list")["tools"]}
    assert list(tools) == ["orch_run", "orch_status", "orch_usage"]
    assert all(("annotations" in tool) == (revision >= "2025-03-26") for tool in tools.values())
    assert all(("outputSchema" in tool) == ("title" in tool) == (revision >= "2025-06-18") for tool in tools.values())
    result = one.run(prompt="what?")
    assert result["content"] == [{"type": "text", "text": "42"}] and result["isError"] is False
    assert ("structuredContent" in result) == (revision >= "2025-06-18")


def test_newest_revision_needs_no_session(client, fake):
    fake("claude", claude_ok("42"))
    one = client()
    found = one.ask("server/discover", {"_meta": MODERN})
    assert found["supportedVersions"][0] == NEWEST and found["resultType"] == "complete"
    listed = one.ask("tools/list", {"_meta": MODERN})
    assert (listed["resultType"], listed["cacheScope"], listed["ttlMs"] > 0) == ("complete", "private", True)
    assert listed["_meta"][META + "serverInfo"]["name"] == "orch"
    result = one.answer(one.call("orch_run", {"prompt": "x"}, _meta={**MODERN, "progressToken": "p"}))["result"]
    assert (result["resultType"], result["structuredContent"]["answer"]) == ("complete", "42")
    assert one.named("message") == [] and one.named("progress")      # log messages only where the request asks for them


def test_both_eras_are_served_side_by_side(client):
    one = client().begin("2024-11-05")
    assert "title" in one.ask("tools/list", {"_meta": MODERN})["tools"][0]
    assert "title" not in one.ask("tools/list")["tools"][0]


@pytest.mark.parametrize(("method", "meta", "code"), [
    ("server/discover", {**MODERN, META + "protocolVersion": "2031-01-01"}, -32022),
    ("tools/list", {**MODERN, META + "protocolVersion": "2025-11-25"}, -32022),
    ("tools/list", {**MODERN, META + "protocolVersion": 7}, -32602),
    ("tools/list", {META + "protocolVersion": NEWEST}, -32602),
    ("tools/list", {**MODERN, META + "logLevel": "loud"}, -32602),
    ("tools/list", {}, -32602),
    ("server/discover", {}, -32602),
    ("logging/setLevel", MODERN, -32601),
    ("ping", MODERN, -32601),
    ("ping", {**MODERN, META + "protocolVersion": "2031-01-01"}, -32022),
    ("resources/list", MODERN, -32601),
])
def test_requests_that_name_no_usable_revision_are_refused(client, method, meta, code):
    error = client().refused(method, {"_meta": meta})
    assert error["code"] == code
    if code == -32022:
        assert error["data"]["supported"][0] == NEWEST and error["data"]["requested"] == meta[META + "protocolVersion"]


def test_what_is_not_in_the_session_s_revision_is_unknown(client):
    assert client().begin().refused("server/discover")["code"] == -32601


# === MESSAGES ============================================================

PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
BAD = [                                                    # (line, the id and code of the error, or None for silence)
    (b"{\n", (None, -32700)),
    (b"nonsense\n", (None, -32700)),
    (b"\xff\xfe\n", (None, -32700)),
    (b"\xef\xbb\xbf{}\n", (None, -32700)),
    (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}\n', (None, -32700)),
    (b"[" * 100_000 + b"\n", (None, -32700)),
    (b"1" * 10_000 + b"\n", (None, -32700) if hasattr(__import__("sys"), "get_int_max_str_digits") else (None, -32600)),
    (b"\n", None),
    (b"  \r\n", None),
    (b"7\n", (None, -32600)),
    (b'"ping"\n', (None, -32600)),
    (b"null\n", (None, -32600)),
    (b"{}\n", (None, -32600)),
    (b"[]\n", (None, -32600)),
    ([PING], (None, -32600)),                              # no batches in this revision
    ({**PING, "jsonrpc": "1.0"}, ("p", -32600)),
    ({"id": 5, "method": "ping"}, (5, -32600)),
    ({**PING, "id": None}, (None, -32600)),
    ({**PING, "id": True}, (None, -32600)),
    ({**PING, "id": {}}, (None, -32600)),
    ({**PING, "id": "\ud800"}, (None, -32600)),            # half a character: it cannot be sent back
    ({"jsonrpc": "2.0", "id": "a\udfffb"}, (None, -32600)),
    ({**PING, "method": "tools/list", "params": {"_meta": {"progressToken": "\ud800"}}}, ("p", -32602)),
    (b'{"jsonrpc": "2.0", "id": 1e999, "method": "ping"}\n', (None, -32600)),
    ({**PING, "method": 7}, ("p", -32600)),
    ({"jsonrpc": "2.0", "method": 7}, (None, -32600)),
    ({"jsonrpc": "2.0", "id": "p"}, ("p", -32600)),
    ({**PING, "params": []}, ("p", -32602)),
    ({**PING, "params": "x"}, ("p", -32602)),
    ({**PING, "method": "frobnicate"}, ("p", -32601)),
    ({**PING, "method": "notifications/initialized"}, ("p", -32601)),
    ({**PING, "method": ""}, ("p", -32601)),
    ({**PING, "method": "x" * 100_000}, ("p", -32601)),
    ({"jsonrpc": "2.0", "method": "ping"}, None),          # a notification: never answered
    ({"jsonrpc": "2.0", "method": "tools/list"}, None),
    ({"jsonrpc": "2.0", "method": "frobnicate", "params": []}, None),
    ({"jsonrpc": "2.0", "method": "notifications/cancelled"}, None),
    ({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}}, None),
    ({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}, None),
    ({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": True}}, None),
    ({"jsonrpc": "2.0", "id": 3, "result": {}}, None),     # an answer to what was never asked
    ({"jsonrpc": "2.0", "id": 3, "error": {"code": 1, "message": "x"}}, None),
    ({**PING, "method": "initialize"}, ("p", -32602)),
    ({**PING, "method": "initialize", "params": {"protocolVersion": 1}}, ("p", -32602)),
    ({**PING, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": []}}, ("p", -32602)),
    ({**PING, "method": "logging/setLevel", "params": {"level": "loud"}}, ("p", -32602)),
    ({**PING, "method": "logging/setLevel"}, ("p", -32602)),
    ({**PING, "method": "tools/list", "params": {"cursor": "2"}}, ("p", -32602)),
    ({**PING, "method": "tools/list", "params": {"_meta": 7}}, ("p", -32602)),
    ({**PING, "method": "tools/list", "params": {"_meta": {"progressToken": []}}}, ("p", -32602)),
    ({**PING, "method": "tools/call"}, ("p", -32602)),
    ({**PING, "method": "tools/call", "params": {"name": 7}}, ("p", -32602)),
    ({**PING, "method": "tools/call", "params": {"name": "orch_demo"}}, ("p", -32602)),
    ({**PING, "method": "tools/call", "params": {"name": "orch_status", "arguments": []}}, ("p", -32602)),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": [' + b"1," * 250_000 + b"1]}}\n", (None, -32600)),
]


def test_malformed_messages_get_the_right_error_or_silence(client):
    one = client().begin()
    for line, expected in BAD:
        before = len(one.heard)
        one.put(line)
        assert one.ask("ping") == {}                       # what came before it is all that the line is answered by
        errors = [(m["id"], m["error"]["code"]) for m in one.heard[before:-1]]
        assert errors == ([] if expected is None else [expected]), (line[:200] if isinstance(line, bytes) else line, errors)
    assert one.close() == (0, "")


def test_requests_before_initialize_are_refused_but_ping_is_not(client):
    one = client()
    assert one.ask("ping") == {}
    assert one.refused("tools/list")["code"] == -32602
    assert one.refused("tools/call", {"name": "orch_status"})["code"] == -32602
    assert one.refused("frobnicate")["code"] == -32601


def test_batches_are_for_the_one_revision_that_has_them(client, fake):
    fake("claude", claude_ok("42"))
    one = client().begin("2025-03-26")
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}
    call = {**PING, "id": "c", "method": "tools/call", "params": {"name": "orch_run", "arguments": {"prompt": "x"}}}
    one.put([note, PING, 7, call, {"jsonrpc": "2.0", "id": 9, "result": {}}, {**PING, "id": "i", "method": "initialize"}])
    one.answer("c")
    batch = {m["id"]: m for m in one.heard[-4:]}
    assert list(batch) == ["p", None, "i", "c"] and batch["c"]["result"]["content"][0]["text"] == "42"
    assert (batch[None]["error"]["code"], batch["i"]["error"]["code"]) == (-32600, -32600)
    before = len(one.heard)
    one.put([note, note], [])
    one.ask("ping")
    assert [m.get("error", {}).get("code") for m in one.heard[before:]] == [-32600, None]


@needs_proc
def test_lines_over_ten_megabytes_are_dropped_and_refused_by_id_where_it_can_be_told(client):
    one = client().begin()
    filler = b"x" * (1 << 20)
    for head, tail, expected in ((b'{"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"x": "', b'"}}\n', "a"),
                                 (b'{"method": "ping", "params": {"x": "', b'"}, "jsonrpc": "2.0", "id": 1234}\n', 1234),
                                 (b'{"method": "ping", "params": {"x": "', b'"}, "jsonrpc": "2.0", "id": "\xff"}\n', None),
                                 (b'{"jsonrpc": "2.0", "id": "a\x01", "method": "ping", "params": {"x": "', b'"}}\n', None),
                                 (b'{"params": {"x": "', b'"}}\n', None)):
        for piece in (head, *[filler] * 30, tail):
            one.put(piece)
        error = one.answer(expected)["error"]
        one.heard.clear()
        assert error["code"] == -32600 and "10 MiB" in error["message"]
    status = Path(f"/proc/{one.process.pid}/status").read_text()
    assert int(status.partition("VmHWM:")[2].split()[0]) < 64 << 10
    one.put(json.dumps({**PING, "params": {"x": "y" * (9 << 20)}}).encode() + b"\n")     # a large one is no trouble
    assert one.answer("p")["result"] == {}


def test_last_line_without_an_end_counts_and_half_of_one_is_an_error(client):
    one = client()
    one.put(json.dumps(PING).encode())
    assert one.close() == (0, "")
    assert [m["id"] for m in one.heard] == ["p"]
    other = client()
    other.put(json.dumps(PING).encode()[:-5])
    assert other.close() == (0, "")
    assert [(m["id"], m["error"]["code"]) for m in other.heard] == [(None, -32700)]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_in_only_json_rpc_goes_out(client, fake, seed):
    rng = random.Random(seed)
    good = [PING, {**PING, "method": "tools/list"}, {**PING, "method": "tools/call", "params": {"name": "orch_status"}},
            {**PING, "method": "tools/call", "params": {"name": "orch_usage", "arguments": {"by": "day"}}},
            {**PING, "method": "tools/list", "params": {"_meta": MODERN}}, {**PING, "method": "server/discover", "params": {"_meta": MODERN}},
            {**PING, "method": "initialize", "params": {"protocolVersion": rng.choice(SESSIONS), "capabilities": {}, "clientInfo": {}}},
            {**PING, "method": "tools/call", "params": {"name": "orch_run", "arguments": {"prompt": "", "cwd": "/", "agent": "x"}}},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "p"}}]
    one = client()
    for _ in range(150):
        message = json.loads(json.dumps(rng.choice(good)))
        place = message
        while isinstance(place.get("params"), dict) and rng.random() < 0.7:
            place = place["params"] if rng.random() < 0.7 else place["params"].get("arguments", message)
            if place is message:
                break
        if place:
            place[rng.choice(list(place))] = rng.choice(ODD_VALUES)
        data = json.dumps(rng.choice((message, message, [message, message]))).encode()
        one.put((damaged_bytes(rng, data) if rng.random() < 0.5 else data) + b"\n")
    one.put({**PING, "id": "last"})
    assert one.answer("last")["result"] == {}, f"seed {seed}"
    code, err = one.close()
    assert code == 0 and "Traceback" not in err, (seed, err)


# === TOOLS ===============================================================

def test_run_returns_the_answer_and_the_result_object(orch, client, fake, repo):
    fake("claude", claude_limit(None))
    fake("codex", codex_ok("added", write={"new.txt": "x"}))
    one = client().begin()
    result = one.run(prompt="add new.txt", timeout="90s", cwd=str(repo))
    shown = result["structuredContent"]
    assert result["content"] == [{"type": "text", "text": "added"}] and result["isError"] is False
    assert (shown["status"], shown["agent"], shown["answer"], shown["changed_files"]) == ("ok", "codex", "added", ["new.txt"])
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["limited", "ok"]
    assert orch.state()["jobs"][-1]["id"] == shown["task_id"]
    status = one.answer(one.call("orch_status"))["result"]
    assert json.loads(status["content"][0]["text"]) == status["structuredContent"]
    assert {row["agent"]: row["state"] for row in status["structuredContent"]["agents"]}["claude"] == "cooling"
    usage = one.answer(one.call("orch_usage", {"by": "outcome"}))["result"]["structuredContent"]
    assert {row["outcome"]: row["attempts"] for row in usage["groups"]} == {"limited": 1, "ok": 1}
    assert usage["total"]["attempts"] == 2


def test_arguments_reach_the_agent_as_the_options_do(orch, client, fake):
    fake("claude", *[claude_ok("42")] * 2)
    orch.configure({"contexts": {"lean": {"claude": ["--strict-mcp-config"]}}})
    orch("-a", "claude", "-m", "some-model", "-e", "high", "-c", "lean", "--access", "read", "--", "--help")
    client().begin().run(prompt="--help", agent="claude", model="some-model", effort="high", context="lean", access="read")
    first, second = fake.calls
    assert second.argv == first.argv and "some-model" in second.argv and second.prompt == b"--help"
    assert second.cwd == first.cwd


def test_roles_teams_and_auto_are_arguments_too(orch, client, fake, repo):
    fake("claude", *[claude_ok(f"claude {n}") for n in range(3)])
    fake("codex", codex_ok("codex says"))
    orch.configure({
        "roles": {"planner": {"prompt": "You plan.", "writes": False}, "builder": {"agent": "codex", "prompt": "You build."}},
        "teams": {"pair": ["planner", "builder"]}, "auto": {"rules": [{"role": "planner", "keywords": ["plan"]}]}})
    one = client().begin()
    team = one.run(prompt="add it", team="pair", access="read")["structuredContent"]
    assert [(row["name"], row["agent"], row["status"]) for row in team["roles"]] == [("planner", "claude", "ok"), ("builder", "codex", "ok")]
    assert "claude 0" in team["answer"] and team["answer"].endswith("codex says")
    assert team["run_id"] == team["task_id"]
    assert [row["name"] for row in one.run(prompt="do it", role="planner")["structuredContent"]["roles"]] == ["planner"]
    assert [row["name"] for row in one.run(prompt="make a plan for it", auto=True)["structuredContent"]["roles"]] == ["planner"]
    assert one.run(prompt="x", team="pair", role="planner")["content"][0]["text"].count("exclude each other") == 1
    assert "nobody" in one.run(prompt="x", role="nobody")["content"][0]["text"]
    assert one.answer(one.call("orch_run", {"prompt": "x", "auto": "yes"}))["result"]["isError"] is True


def test_auto_is_asked_for_or_switched_off_by_a_call_too(orch, client, fake):
    fake("claude", *[claude_ok("42")] * 3)
    rules = [{"role": "planner", "keywords": ["plan"]}]
    orch.configure({"roles": {"planner": {"prompt": "You plan."}}, "auto": {"enabled": True, "rules": rules}})
    one = client().begin()
    found = [one.run(prompt="make a plan", **wish)["structuredContent"] for wish in ({}, {"auto": False}, {"auto": True})]
    assert [shown.get("run_id") is not None for shown in found] == [True, False, True]


def test_no_role_is_allowed_more_than_the_server(orch, client, fake):
    fake("claude", claude_ok("1"), claude_ok("2"))
    orch.configure({"roles": {"wide": {"prompt": "You do all.", "access": "full"}}})
    orch("--role", "wide", "--access", "read", "x")
    client("--access", "read").begin().run(prompt="x", role="wide")
    first, second = (call.argv[:-1] for call in fake.calls)
    assert second == first


def test_failed_run_is_a_result_that_the_model_sees(client, fake):
    reset_at = int(time.time()) // 60 * 60 + 7200
    fake("claude", claude_limit(reset_at))
    result = client().begin().run(prompt="x")
    assert result["isError"] is True and result["content"][0]["text"].startswith("orch: ")
    shown = result["structuredContent"]
    assert "--wait" not in result["content"][0]["text"]    # an option that it does not have
    assert (shown["status"], shown["retry_at"]) == ("unavailable", f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(reset_at))}")


REFUSED = [
    ({}, "prompt: missing"),
    ({"prompt": 7}, "prompt: expected a string"),
    ({"prompt": "x", "frobnicate": 1}, "unknown key"),
    ({"prompt": "x", "agnet": "claude"}, '"agent"'),
    ({"prompt": "x", "access": "wild"}, "access"),
    ({"prompt": "x", "access": "full"}, "access"),
    ({"prompt": "x", "timeout": []}, "timeout"),
    ({"prompt": "x", "timeout": "soon"}, "timeout"),
    ({"prompt": "x", "timeout": -1}, "timeout"),
    ({"prompt": "x", "timeout": 1e300}, "timeout"),
    ({"prompt": "x", "model": "--yolo"}, "model: may not begin with a dash"),
    ({"prompt": "x", "effort": "-x"}, "effort: may not begin with a dash"),
    ({"prompt": "x", "model": "m" * 5000}, "model: too long"),
    ({"prompt": "x", "k" * 5000: 1}, "too long"),
    ({"prompt": "x", "model": "a\0b"}, "model: may hold neither"),
    ({"prompt": "x", "effort": "\ud800"}, "effort: may hold neither"),
    ({"prompt": " "}, "the prompt is empty"),
    ({"prompt": "a\0b"}, "NUL"),
    ({"prompt": "a\ud800b"}, "half a character"),
    ({"prompt": "x", "agent": "claud"}, 'did you mean "claude"'),
    ({"prompt": "x", "context": "lean"}, "lean"),
    ({"prompt": "x", "cwd": "/nonexistent/dir"}, "/nonexistent/dir"),
    ({"prompt": "x", "cwd": __file__}, "no such directory"),
    ({"prompt": "x", "cwd": "a\0b"}, "cwd: expected text without a NUL"),
    ({"prompt": "x", "cwd": "\ud800"}, "cwd: expected text without"),
]


def test_what_is_refused_is_told_to_the_model_and_starts_nothing(client, fake):
    fake("claude")
    one = client().begin()
    for arguments, named in REFUSED:
        result = one.run(**arguments)
        assert result["isError"] is True and named in result["content"][0]["text"], (arguments, result)
    old = client().begin("2025-06-18")                     # wrong arguments were an error of the protocol then
    for arguments, named in REFUSED[:6]:
        error = old.refused("tools/call", {"name": "orch_run", "arguments": arguments})
        assert error["code"] == -32602 and named in error["message"], error
    assert fake.calls == []


def test_a_role_at_its_limit_says_when_to_come_back(orch, client, fake):
    orch.configure({"roles": {"artist": {"prompt": "x", "capability": "image"}}, "agents": {"codex": {"capabilities": ["image"]}}})
    fake("codex")
    orch("cooldown", "set", "codex", "1h")
    result = client().begin().run(prompt="x", role="artist")
    assert result["structuredContent"]["retry_at"] and "(until " in result["content"][0]["text"]


def test_numbers_of_seconds_are_durations(client, fake):
    fake("claude", *[step(run=SLEEP)] * 2)
    one = client().begin("2025-06-18")
    for timeout in ("0.5", 0.5):
        assert one.run(prompt="x", timeout=timeout)["structuredContent"]["error_class"] == "timeout"
    used = one.answer(one.call("orch_usage", {"since": 86400}))["result"]["structuredContent"]
    assert used["total"]["attempts"] == 2


def test_no_call_may_do_more_than_the_server_was_started_for(orch, client, fake):
    fake("claude", *[claude_ok("42")] * 3)
    orch.configure({"access": "full"})
    reader = client("--access", "read").begin()
    tool = reader.ask("tools/list")["tools"][0]
    assert tool["annotations"]["readOnlyHint"] is True and tool["annotations"]["destructiveHint"] is False
    assert tool["inputSchema"]["properties"]["access"]["enum"] == ["read"]
    assert reader.run(prompt="x", access="edit")["content"][0]["text"] == 'orch: access: expected "read", not "edit"'
    reader.run(prompt="x")                                 # the config's full is brought down to what the server allows
    editor = client().begin()
    assert editor.ask("tools/list")["tools"][0]["inputSchema"]["properties"]["access"]["enum"] == ["read", "edit"]
    editor.run(prompt="x")
    client("--access", "full").begin().run(prompt="x")
    levels = next(row.access_args for row in core.AGENTS if row.name == "claude")
    for call, level in zip(fake.calls, ("read", "edit", "full")):
        assert [word for word in levels[level] if word not in call.argv] == [], level


def test_server_with_a_directory_runs_nothing_outside_of_it(orch, client, fake):
    fake("claude", *[claude_ok("42")] * 2)
    (orch.work / "in" / "side").mkdir(parents=True)
    (orch.work / "in" / "link").symlink_to(orch.work)
    one = client("--cd", "in").begin()
    for cwd in ("..", "/", "link", str(orch.work), str(orch.work / "inn")):
        assert "outside of" in one.run(prompt="x", cwd=cwd)["content"][0]["text"]
    one.run(prompt="x")
    one.run(prompt="x", cwd="side")
    assert [call.cwd for call in fake.calls] == [str(orch.work / "in"), str(orch.work / "in" / "side")]


def test_the_config_of_the_server_is_not_looked_for_where_a_call_runs(orch, client, fake):
    fake("claude", claude_ok("42"))
    (orch.work / "evil").mkdir()
    program = {"command": [str(orch.base / "evil.sh")], "output": "text"}
    orch.configure({"order": ["mine"], "agents": {"mine": program}}, orch.work / "evil" / "c.json")
    orch.configure({"order": ["claude"]}, orch.work / "c.json")
    one = client("--config", "c.json").begin()
    assert one.run(prompt="x", cwd="evil")["structuredContent"]["answer"] == "42"


def test_output_schema_has_the_keys_of_the_result():
    assert list(core.output_schema("run")["properties"]) == list(core.Result.__annotations__)


def test_agent_of_orch_s_own_may_not_run_another_but_may_look(client, fake):
    fake("claude")
    one = client(env={"ORCH_DEPTH": "1"}).begin()
    result = one.run(prompt="x")
    assert result["isError"] is True and "already inside an agent" in result["content"][0]["text"]
    assert result["structuredContent"]["status"] == "rejected"
    assert one.answer(one.call("orch_status"))["result"]["isError"] is False
    assert one.answer(one.call("orch_usage"))["result"]["isError"] is False


ASKS_ORCH = r"""
import json, subprocess
lines = [{"id": 1, "method": "tools/call", "params": {"name": "orch_run", "arguments": {"prompt": "again"}, "_meta": %r}}]
server = subprocess.Popen([%r, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]})
server.stdin.write(b"".join(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n" for line in lines))
server.stdin.flush()
found = json.loads(server.stdout.readline())
server.stdin.close()
server.wait()
put(1, found["result"]["content"][0]["text"].encode())
"""


@needs_proc
def test_recursion_is_seen_where_the_client_keeps_the_environment_from_its_servers(orch, fake):
    fake("mine", step(run=ASKS_ORCH % (MODERN, str(orch.program))))
    orch.configure({"agents": {"mine": {"command": ["mine"]}}, "order": ["mine"]})
    assert "already inside an agent" in orch("hi").out


# === AT WORK =============================================================

MEET = """
open(%r + "/here-%%d" %% os.getpid(), "w").close()
for _ in range(1500):
    if len([n for n in os.listdir(%r) if n.startswith("here-")]) >= %d:
        break
    time.sleep(0.02)
else:
    os._exit(3)
"""


def test_several_calls_are_at_work_at_once(orch, client, fake):
    meet = MEET % (str(orch.base), str(orch.base), 4)
    fake("claude", *[claude_ok(f"{n}", run=meet) for n in range(4)])
    one = client().begin()
    ids = [one.call("orch_run", {"prompt": "x"}) for _ in range(4)]
    assert one.ask("ping") == {}
    answers = {one.answer(message_id)["result"]["structuredContent"]["answer"] for message_id in ids}
    assert answers == {"0", "1", "2", "3"}
    assert len(orch.ledger()) == len(orch.state()["jobs"]) == 4


@needs_proc
def test_cancelled_call_is_stopped_with_all_that_it_started_and_says_no_more(orch, client, fake):
    fake("claude", step(run=DETACHED + f"open({str(orch.base)!r} + '/begun', 'w').close()\n" + SLEEP), claude_ok("42"))
    one = client().begin()
    message_id = one.call("orch_run", {"prompt": "x"}, _meta={"progressToken": 5})
    wait_until((orch.base / "begun").exists)
    assert len(orch.leftovers()) == 3
    one.put({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message_id, "reason": "enough"}})
    one.ask("ping")
    before = len(one.named("progress"))
    wait_until(lambda: list(orch.leftovers()) == [one.process.pid], what="the end of all but the server")
    assert one.run(prompt="x")["content"][0]["text"] == "42"
    assert len(one.named("progress")) == before
    assert one.close()[0] == 0
    assert [m for m in one.heard if m.get("id") == message_id and "method" not in m] == []
    assert sorted(job["status"] for job in orch.state()["jobs"]) == ["aborted", "ok"]


def test_cancelled_member_of_a_batch_is_left_out(orch, client, fake):
    fake("claude", step(run=f"open({str(orch.base)!r} + '/begun', 'w').close()\n" + SLEEP))
    one = client().begin("2025-03-26")
    one.put([PING, {**PING, "id": "c", "method": "tools/call", "params": {"name": "orch_run", "arguments": {"prompt": "x"}}}])
    wait_until((orch.base / "begun").exists)
    one.put({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "c"}})
    one.answer("p")
    assert one.close()[0] == 0
    assert [m["id"] for m in one.heard[1:]] == ["p"]


@needs_proc
def test_end_of_input_stops_every_call_and_leaves_nothing(orch, client, fake):
    begun = f"open({str(orch.base)!r} + '/begun-%d' % os.getpid(), 'w').close()\n"
    fake("claude", step(run=DETACHED + begun + SLEEP), step(run="signal.signal(15, signal.SIG_IGN)\n" + begun + SLEEP))
    one = client().begin()
    ids = [one.call("orch_run", {"prompt": "x"}) for _ in range(2)]
    wait_until(lambda: len(list(orch.base.glob("begun-*"))) == 2)
    assert one.close()[0] == 0
    assert orch.leftovers() == {}
    for message_id in ids:                                 # nobody may be listening any more; if somebody is: the truth
        assert one.answer(message_id)["result"]["structuredContent"]["status"] == "aborted"
    assert [job["status"] for job in orch.state()["jobs"]] == ["aborted"] * 2


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_stops_every_call_and_the_server_ends_by_it(orch, client, fake, number):
    fake("claude", step(run=DETACHED + f"open({str(orch.base)!r} + '/begun', 'w').close()\n" + SLEEP))
    one = client().begin()
    one.call("orch_run", {"prompt": "x"})
    wait_until((orch.base / "begun").exists)
    one.process.send_signal(number)
    assert one.process.wait(30) == -number
    assert orch.leftovers() == {}


PARTING = """
def part(*_):
    time.sleep(0.3)
    open(%r, "w").close()
    os._exit(0)
signal.signal(15, part)
open(%r, "w").close()
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["signal", "end of input", "cancelled", "client gone"])
def test_an_agent_that_is_stopped_may_finish_what_it_has_in_hand(orch, client, fake, how):
    begun, parted = orch.base / "begun", orch.base / "parted"
    fake("claude", step(run=PARTING % (str(parted), str(begun))))
    read, write = os.pipe()
    one = client(stdout=write)
    os.close(write)
    one.put({**PING, "method": "tools/call", "params": {"name": "orch_run", "arguments": {"prompt": "x"}, "_meta": MODERN}})
    wait_until(begun.exists)
    if how == "signal":
        one.process.send_signal(signal.SIGTERM)
    elif how == "cancelled":
        one.put({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "p"}})
        wait_until(parted.exists)
    if how == "client gone":
        os.close(read)
    else:
        one.process.stdin.close()
    assert one.process.wait(30) == {"signal": -signal.SIGTERM, "client gone": -signal.SIGPIPE}.get(how, 0)
    assert parted.exists()
    if how != "client gone":
        os.close(read)


@needs_proc
def test_client_that_no_longer_listens_stops_every_call(orch, client, fake):
    fake("claude", step(run=DETACHED + f"open({str(orch.base)!r} + '/begun', 'w').close()\n" + SLEEP))
    read, write = os.pipe()
    one = client(stdout=write)
    os.close(write)
    one.put({**PING, "method": "tools/call", "params": {"name": "orch_run", "arguments": {"prompt": "x"}, "_meta": MODERN}})
    wait_until((orch.base / "begun").exists)
    os.close(read)
    assert one.process.wait(30) == -signal.SIGPIPE
    assert orch.leftovers() == {}


def unread_answer(orch, client, fake):
    """A client that has asked for a megabyte and not read it, and the pipe in which it waits."""
    fake("claude", claude_ok("x" * 1_000_000))
    read, write = os.pipe()
    one = client(stdout=write)
    os.close(write)
    one.put({**PING, "method": "tools/call", "params": {"name": "orch_run", "arguments": {"prompt": "x"}, "_meta": MODERN}})
    wait_until(lambda: orch.state().get("jobs"))
    return one, read


@needs_proc
def test_client_that_reads_nothing_hangs_nothing(orch, client, fake):
    one, read = unread_answer(orch, client, fake)
    one.process.stdin.close()
    assert one.process.wait(30) == 0
    os.close(read)
    assert orch.leftovers() == {}


@needs_proc
def test_client_that_reads_late_gets_everything(orch, client, fake):
    one, read = unread_answer(orch, client, fake)
    time.sleep(2.5)
    with open(read, "rb") as file:
        assert len(json.loads(file.readline())["result"]["content"][0]["text"]) == 1_000_000
        one.put({**PING, "method": "tools/list", "params": {"_meta": MODERN}})
        assert json.loads(file.readline())["id"] == PING["id"]
        one.process.stdin.close()                          # before the reader goes, which would be an end of its own
        assert one.process.wait(30) == 0


def test_an_id_at_work_cannot_be_used_again_and_later_it_can(orch, client, fake):
    meet = MEET % (str(orch.base), str(orch.base), 2)
    fake("claude", claude_ok("first", run=meet), claude_ok("second"))
    one = client().begin()
    call = {**PING, "method": "tools/call", "params": {"name": "orch_run", "arguments": {"prompt": "x"}}}
    one.put(call)
    wait_until(lambda: list(orch.base.glob("here-*")))
    one.put(call)
    assert one.answer("p")["error"]["code"] == -32600
    (orch.base / "here-now").touch()
    assert one.wait(lambda m: "result" in m and m["id"] == "p", "result")["result"]["content"][0]["text"] == "first"
    one.put(call)
    one.wait(lambda m: m.get("id") == "p" and m.get("result", {}).get("content", [{}])[0].get("text") == "second", "result")


def test_more_calls_than_can_be_good_are_refused(orch, client, fake):
    fake("claude", *[claude_ok("42", run=MEET % (str(orch.base), str(orch.base), core.MOST_CALLS))] * core.MOST_CALLS)
    one = client().begin()
    ids = [one.call("orch_run", {"prompt": "x"}) for _ in range(core.MOST_CALLS + 1)]
    refused = one.answer(ids[-1])["result"]
    assert refused["isError"] is True and "calls are at work" in refused["content"][0]["text"]
    assert {one.answer(message_id)["result"]["isError"] for message_id in ids[:-1]} == {False}


# === WHAT THE CLIENT HEARS MEANWHILE =====================================

def test_progress_is_told_to_whoever_gave_a_token_and_only_grows(client, fake):
    fake("claude", claude_limit(None), claude_ok("x"))
    fake("codex", codex_ok("42"), codex_ok("43"))
    one = client().begin()
    one.answer(one.call("orch_run", {"prompt": "x"}, _meta={"progressToken": "t"}))
    told = one.named("progress")
    assert {note["progressToken"] for note in told} == {"t"}
    numbers = [note["progress"] for note in told]
    assert numbers == sorted(set(numbers)) and len(numbers) >= 4
    assert any("codex" in note["message"] for note in told)
    one.run(prompt="x", agent="codex")
    assert len(one.named("progress")) == len(told)
    fake.forgive_unused = True


def test_progress_tells_whose_it_is_of_several_at_work():
    stop, told = core.Stop(), []
    server = types.SimpleNamespace(world=core.make_world({}, "/", stop), wire=types.SimpleNamespace(put=told.append))
    one = core.Call(server, core.Message("tools/call", {"name": "orch_run"}, True, 1), core.Terms("2025-06-18", None, 5))
    reviewer, critic = {"role": "reviewer", "step": 1, "of": 2}, {"role": "critic", "step": 2, "of": 2}
    one.event("attempt_start", agent="claude", kind="run", **reviewer)
    one.event("attempt_start", agent="codex", kind="run", **critic)
    one.told_at = float("-inf")
    one.event("activity", agent="claude", text="reading a.py", **reviewer)
    one.told_at = float("-inf")
    one.event("activity", agent="codex", text="running ls", **critic)
    one.told_at = float("-inf")
    one.tick()
    one.event("role_end", agent="codex", status="ok", usage=None, duration_ms=7000, **critic)
    one.told_at = float("-inf")
    one.tick()
    one.stop.close()
    stop.close()
    assert [re.sub(r" · \d+ s$", "", note["params"]["message"]) for note in told] == [
        "[1/2] reviewer: claude has begun", "[2/2] critic: codex has begun", "[1/2] reviewer: claude: reading a.py",
        "[2/2] critic: codex: running ls", "reviewer (claude) reading a.py · critic (codex) running ls",
        "[2/2] critic (codex) done in 7 s", "reviewer (claude) reading a.py"]


def test_notices_come_as_log_messages_of_the_level_that_was_asked_for(client, fake):
    fake("claude", claude_limit(None), claude_limit(None))
    fake("codex", *[codex_ok("42")] * 4)
    one = client().begin()
    one.run(prompt="x")
    assert [(note["level"], "going on with codex" in note["data"]) for note in one.named("message")] == [("notice", True)]
    assert one.ask("logging/setLevel", {"level": "error"}) == {}
    one.run(prompt="x")
    assert len(one.named("message")) == 1
    assert one.ask("logging/setLevel", {"level": "debug"}) == {}
    one.run(prompt="x")
    assert {note["level"] for note in one.named("message")[1:]} == {"info"}
    one.answer(one.call("orch_run", {"prompt": "x"}, _meta={**MODERN, META + "logLevel": "emergency"}))
    fake.forgive_unused = True


# === STARTED ANYHOW ======================================================

def test_person_at_a_terminal_is_told_what_this_is(orch):
    ours, theirs = pty.openpty()
    process = orch.start("mcp", stdin=theirs)
    os.close(theirs)
    assert b"started by an MCP client" in process.stderr.readline()
    os.write(ours, b"\x04")
    assert process.wait(30) == 0 and process.stdout.read() == b""
    os.close(ours)


@pytest.mark.parametrize("how", ["closed", "/dev/full"])
def test_output_that_takes_nothing_is_an_error(orch, how):
    argv = ["sh", "-c", f'exec "$0" mcp >{"&-" if how == "closed" else how}', str(orch.program)]
    done = subprocess.run(argv, env=orch.env, cwd=orch.work, input=json.dumps(PING).encode() + b"\n", capture_output=True,
                          timeout=30, check=False)
    assert (done.returncode, done.stdout) == (1, b"") and b"standard output" in done.stderr


def test_snapshots_and_agents_print_nothing_on_the_server_s_output(client, fake, repo):
    git("checkout", "-q", "-b", "other", cwd=repo)
    fake("claude", step(stdout="garbage\n{\"jsonrpc\": 1}\n", stderr="noise\n", exit=1), claude_ok("x"))
    fake("codex", codex_ok("42"))
    assert client().begin().run(prompt="x")["content"][0]["text"] == "42"       # each line is checked as it comes
    fake.forgive_unused = True
