#!/usr/bin/env python3
"""A pretend model server: Anthropic messages, OpenAI Responses and chat completions, Gemini.

    with Models() as models:
        play = models.play(write("/tmp/x", "text"), "usage_limit")
        ... point an agent at play.url ...
        assert "text" in play.requests[1].text

A play is what one run of an agent meets: one step for each request of its conversation, the last one
for all that follow. A step is an answer (`say`, `write`, `shell`) or the name of a trouble: the keys of
ERRORS, "drop" (the stream is cut midway, and only the stream) and "silence". What an agent asks on the
side (a title, which model to take) uses up no step. Everything asked is kept in `play.requests`.

    python3 models.py TROUBLE...     serve one play and print what is asked, to try an agent by hand
"""
from __future__ import annotations

import gzip
import json
import re
import select
import shlex
import socket
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, NamedTuple, Optional

ANSWER = "Hello from the pretend model."
DROP_AFTER = 4          # events of a stream that is cut

# What the answers claim to have cost. The numbers differ so that none can be taken for another.
ANTHROPIC_USAGE = {"input_tokens": 11, "cache_creation_input_tokens": 22, "cache_read_input_tokens": 33, "output_tokens": 44}
OPENAI_USAGE = {"input": 1100, "cached": 600, "output": 70, "reasoning": 30}
GEMINI_USAGE = {"promptTokenCount": 1200, "cachedContentTokenCount": 700, "candidatesTokenCount": 80, "thoughtsTokenCount": 20,
                "totalTokenCount": 1300}


# === STEPS ===============================================================

class Step(NamedTuple):
    """One answer of the model: words, or a tool call; or a trouble's name as `kind`."""
    kind: str
    text: str = ""
    path: str = ""
    command: str = ""


def say(text: str = ANSWER) -> Step:
    """Answer with words."""
    return Step("say", text)


def write(path: str, text: str) -> Step:
    """Call the tool that writes a file; where there is none, the shell."""
    return Step("write", text, path, f"printf %s {shlex.quote(text)} > {shlex.quote(path)}")


def shell(command: str) -> Step:
    """Call the tool that runs a shell command."""
    return Step("shell", command=command)


def use(tool: str, **arguments: Any) -> Step:
    """Call the offered tool whose name ends so: clients put a server's name before those of its tools."""
    return Step("use", tool, command=json.dumps(arguments))


TOOL_STEPS = ("write", "shell", "use")
MOST_WAITS = 30    # for a tool that is not offered yet


# (tool, its arguments from a step), in the order of preference; the first that the agent offers is called.
Tool = tuple[str, Callable[[Step], Any]]
WRITERS: tuple[Tool, ...] = (
    ("Write", lambda step: {"file_path": step.path, "content": step.text}),            # claude
    ("write", lambda step: {"filePath": step.path, "content": step.text}),             # opencode
    ("write_file", lambda step: {"file_path": step.path, "content": step.text}),       # gemini
    ("create", lambda step: {"path": step.path, "file_text": step.text}),              # copilot
    ("apply_patch", lambda step: f"*** Begin Patch\n*** Add File: {step.path}\n+{step.text}\n*** End Patch"),
)
SHELLS: tuple[Tool, ...] = (
    ("Bash", lambda step: {"command": step.command, "description": "run", "timeout": 400_000}),
    ("bash", lambda step: {"command": step.command, "description": "run", "timeout": 400_000, "mode": "sync",
                           "initial_wait": 300}),
    ("run_shell_command", lambda step: {"command": step.command}),
    ("exec_command", lambda step: {"cmd": step.command, "yield_time_ms": 290_000}),
    ("shell_command", lambda step: {"command": step.command, "timeout_ms": 400_000}),
    ("exec", lambda step: f"text(JSON.stringify(await tools.exec_command({json.dumps({'cmd': step.command})})));"),
)


class Call(NamedTuple):
    """A tool call: text as `arguments` where the tool takes free text."""
    name: str
    arguments: Any
    namespace: str = ""    # codex offers the tools of an MCP server in one


def tool_call(step: Step, offered: list[str], habit: str) -> Call:
    """The call for a step; a tool named by `habit` ("Write Bash") where the agent offers none that would do.

    An agent that keeps its tools back must also refuse one that the model asks for all the same.
    """
    if step.kind == "use":
        return Call(next((name for name in offered if name.endswith(step.text)), step.text), json.loads(step.command))
    writers = WRITERS if step.kind == "write" else ()
    for name, arguments in (*writers, *SHELLS):
        if name in offered:
            return Call(name, arguments(step))
    wanted = habit.split()[0 if step.kind == "write" else 1]
    return Call(wanted, dict((*WRITERS, *SHELLS))[wanted](step))


# === TROUBLES ============================================================
# {protocol: {kind: what to send}}, made from the request's model and the time of the reset.

class Reply(NamedTuple):
    """An error as a server sends it."""
    status: int
    body: Any
    headers: dict[str, str] = {}


def _anthropic(status: int, kind: str, message: str, **headers: str) -> Reply:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_pretend"},
                 {"request-id": "req_pretend", **named})


def _anthropic_limit(claim: str, reset_at: int) -> Reply:
    """A subscription's limit: these headers are where Claude Code takes the time from."""
    window, other = ("5h", "7d") if claim == "five_hour" else ("7d", "5h")
    unified = {"status": "rejected", "reset": reset_at, "representative-claim": claim, "overage-status": "rejected",
               "overage-disabled-reason": "org_level_disabled", f"{window}-status": "rejected", f"{window}-reset": reset_at,
               f"{window}-utilization": "1.0", f"{other}-status": "allowed", f"{other}-reset": reset_at + 86400,
               f"{other}-utilization": "0.3"}
    reply = _anthropic(429, "rate_limit_error", "This request would exceed your account's rate limit. Please try again later.",
                       retry_after=str(max(0, reset_at - int(time.time()))))
    reply.headers.update({f"anthropic-ratelimit-unified-{name}": str(value) for name, value in unified.items()})
    return reply


def _openai(status: int, message: str, kind: str, code: str | None, **headers: str) -> Reply:
    return Reply(status, {"error": {"message": message, "type": kind, "param": None, "code": code}},
                 {name.replace("_", "-"): text for name, text in headers.items()})


def _codex_limit(reset_at: int, minutes: int) -> Reply:
    left_s = reset_at - int(time.time())
    return Reply(429, {"error": {"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus",
                                 "resets_at": reset_at, "resets_in_seconds": left_s}},
                 {"retry-after": str(left_s), "x-codex-primary-used-percent": "100", "x-codex-primary-window-minutes": str(minutes),
                  "x-codex-primary-reset-at": str(reset_at), "x-codex-primary-reset-after-seconds": str(left_s)})


def _gemini(code: int, status: str, message: str, *details: dict[str, Any]) -> Reply:
    named = [{**detail, "@type": f"type.googleapis.com/google.rpc.{detail['@type']}"} for detail in details]
    return Reply(code, {"error": {"code": code, "message": message, "status": status, "details": named}})


def _gemini_quota(per: str, delay: str) -> Reply:
    metric = "generativelanguage.googleapis.com/generate_content_free_tier_requests"
    return _gemini(
        429, "RESOURCE_EXHAUSTED", f"You exceeded your current quota. \n* Quota exceeded for metric: {metric}\nPlease retry in {delay}.",
        {"@type": "QuotaFailure", "violations": [{"quotaMetric": metric, "quotaId": f"GenerateRequestsPer{per}PerProjectPerModel-FreeTier"}]},
        {"@type": "RetryInfo", "retryDelay": delay})


Trouble = Callable[[str, int], Reply]
STRANGE = "messages.1: something odd was found here"     # a failure that has no name
SOON = {"retry_after": "1", "retry_after_ms": "100"}    # so that those who ask a broken server again do it soon
ANTHROPIC_ERRORS: dict[str, Trouble] = {
    "usage_limit": lambda model, at: _anthropic_limit("five_hour", at),
    "weekly_limit": lambda model, at: _anthropic_limit("seven_day", at),
    "model_limit": lambda model, at: _anthropic_limit("seven_day_opus", at),
    "rate_limit": lambda model, at: _anthropic(
        429, "rate_limit_error", "This request would exceed your organization's rate limit of 50 requests per minute.", retry_after="2"),
    "credits": lambda model, at: _anthropic(
        400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."),
    "refused": lambda model, at: _anthropic(401, "authentication_error", "invalid x-api-key"),
    "no_model": lambda model, at: _anthropic(404, "not_found_error", f"model: {model}"),
    "overloaded": lambda model, at: _anthropic(529, "overloaded_error", "Overloaded"),
    "server_error": lambda model, at: _anthropic(500, "api_error", "Internal server error"),
    "strange": lambda model, at: _anthropic(400, "invalid_request_error", STRANGE),
    "context": lambda model, at: _anthropic(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
}
OPENAI_ERRORS: dict[str, Trouble] = {
    "usage_limit": lambda model, at: _codex_limit(at, 300),
    "weekly_limit": lambda model, at: _codex_limit(at, 10080),
    "rate_limit": lambda model, at: _openai(
        429, f"Rate limit reached for {model} in organization org-pretend on tokens per min (TPM): Limit 30000, Used 29000, "
        "Requested 2000. Please try again in 2s.", "tokens", "rate_limit_exceeded", retry_after="2"),
    "credits": lambda model, at: _openai(
        429, "You exceeded your current quota, please check your plan and billing details.", "insufficient_quota", "insufficient_quota"),
    "refused": lambda model, at: _openai(401, "Incorrect API key provided: sk-test-000.", "invalid_request_error", "invalid_api_key"),
    "no_model": lambda model, at: _openai(
        404, f"The model `{model}` does not exist or you do not have access to it.", "invalid_request_error", "model_not_found"),
    "overloaded": lambda model, at: _openai(
        503, "Our servers are currently overloaded. Please try again later.", "service_unavailable_error", "server_is_overloaded", **SOON),
    "server_error": lambda model, at: _openai(500, "The server had an error while processing your request.", "server_error", None, **SOON),
    "strange": lambda model, at: _openai(400, STRANGE, "invalid_request_error", "strange"),
    "context": lambda model, at: _openai(
        400, "Your input exceeds the context window of this model.", "invalid_request_error", "context_length_exceeded"),
}
GEMINI_ERRORS: dict[str, Trouble] = {
    "usage_limit": lambda model, at: _gemini_quota("Day", "2s"),
    "timed_limit": lambda model, at: _gemini(
        429, "RESOURCE_EXHAUSTED", "You have exhausted your capacity on this model. Your quota will reset after 2h0m0s.",
        {"@type": "ErrorInfo", "reason": "QUOTA_EXHAUSTED", "domain": "cloudcode-pa.googleapis.com", "metadata": {"model": model}},
        {"@type": "RetryInfo", "retryDelay": f"{at - int(time.time())}s"}),
    "rate_limit": lambda model, at: _gemini_quota("Minute", "2s"),
    "credits": lambda model, at: _gemini(429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted. Please go to AI Studio."),
    "refused": lambda model, at: _gemini(
        400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.",
        {"@type": "ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}),
    "no_model": lambda model, at: _gemini(
        404, "NOT_FOUND", f"models/{model} is not found for API version v1beta, or is not supported for generateContent."),
    "overloaded": lambda model, at: _gemini(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "server_error": lambda model, at: _gemini(500, "INTERNAL", "An internal error has occurred."),
    "strange": lambda model, at: _gemini(400, "INVALID_ARGUMENT", STRANGE),
    "context": lambda model, at: _gemini(
        400, "INVALID_ARGUMENT", "The input token count (2100000) exceeds the maximum number of tokens allowed (1048576)."),
}


# === PROTOCOLS ===========================================================
# Each says its answer twice: whole, and as the events of a stream, (event name or None, data).

class Turn(NamedTuple):
    """One answer to send: words, or words and a tool call."""
    model: str
    text: str
    call: Call | None
    number: int            # of the request in its play: ids must differ within a conversation


Events = Iterator[tuple[Optional[str], Any]]


def _words(text: str) -> list[str]:
    return re.findall(r"\S+\s*", text)


def anthropic_whole(turn: Turn) -> Any:
    """A message of /v1/messages."""
    content: list[Any] = [{"type": "text", "text": turn.text}]
    if turn.call:
        content.append({"type": "tool_use", "id": f"toolu_{turn.number}", "name": turn.call.name, "input": turn.call.arguments})
    return {"id": f"msg_{turn.number}", "type": "message", "role": "assistant", "model": turn.model, "content": content,
            "stop_reason": "tool_use" if turn.call else "end_turn", "stop_sequence": None, "usage": ANTHROPIC_USAGE}


def anthropic_events(turn: Turn) -> Events:
    """The same as server-sent events."""
    whole = anthropic_whole(turn)
    started = {**whole, "content": [], "stop_reason": None, "usage": {**ANTHROPIC_USAGE, "output_tokens": 1}}

    def event(kind: str, **fields: Any) -> tuple[str, Any]:
        return kind, {"type": kind, **fields}
    yield event("message_start", message=started)
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for word in _words(turn.text):
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
    yield event("content_block_stop", index=0)
    if turn.call:
        yield event("content_block_start", index=1, content_block={**whole["content"][1], "input": {}})
        yield event("content_block_delta", index=1,
                    delta={"type": "input_json_delta", "partial_json": json.dumps(turn.call.arguments)})
        yield event("content_block_stop", index=1)
    yield event("message_delta", delta={"stop_reason": whole["stop_reason"], "stop_sequence": None},
                usage={"output_tokens": ANTHROPIC_USAGE["output_tokens"]})
    yield event("message_stop")


def responses_whole(turn: Turn) -> Any:
    """A response of /v1/responses."""
    used = OPENAI_USAGE
    return {"id": f"resp_{turn.number}", "object": "response", "created_at": int(time.time()), "model": turn.model,
            "status": "completed", "output": [_responses_item(turn)],
            "usage": {"input_tokens": used["input"], "input_tokens_details": {"cached_tokens": used["cached"]},
                      "output_tokens": used["output"], "output_tokens_details": {"reasoning_tokens": used["reasoning"]},
                      "total_tokens": used["input"] + used["output"]}}


def _responses_item(turn: Turn) -> dict[str, Any]:
    if turn.call is None:
        return {"type": "message", "id": f"msg_{turn.number}", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": turn.text, "annotations": []}]}
    common = {"id": f"call_item_{turn.number}", "call_id": f"call_{turn.number}", "name": turn.call.name, "status": "completed"}
    if isinstance(turn.call.arguments, str):
        return {"type": "custom_tool_call", **common, "input": turn.call.arguments}
    common |= {"namespace": turn.call.namespace} if turn.call.namespace else {}
    return {"type": "function_call", **common, "arguments": json.dumps(turn.call.arguments)}


def responses_events(turn: Turn) -> Events:
    """The same as server-sent events, which codex asks for."""
    whole, item = responses_whole(turn), _responses_item(turn)
    part = item.get("content", [None])[0]
    yield from _numbered([
        ("response.created", {"response": {**whole, "status": "in_progress", "output": [], "usage": None}}),
        ("response.output_item.added", {"output_index": 0, "item": {
            **item, "status": "in_progress", **({"content": []} if part else {"arguments": "", "input": ""})}}),
        *([("response.content_part.added", {"item_id": item["id"], "output_index": 0, "content_index": 0,
                                            "part": {**part, "text": ""}})] if part else []),
        *([("response.output_text.delta", {"item_id": item["id"], "output_index": 0, "content_index": 0, "delta": word})
           for word in _words(turn.text)] if part else []),
        *([("response.output_text.done", {"item_id": item["id"], "output_index": 0, "content_index": 0, "text": turn.text})]
          if part else []),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": whole})])


def _numbered(events: list[tuple[str, dict[str, Any]]]) -> Events:
    for number, (kind, fields) in enumerate(events):
        yield kind, {"type": kind, "sequence_number": number, **fields}


def _chat_call(turn: Turn) -> list[Any]:
    if turn.call is None:
        return []
    arguments = turn.call.arguments if isinstance(turn.call.arguments, str) else json.dumps(turn.call.arguments)
    return [{"index": 0, "id": f"call_{turn.number}", "type": "function",
             "function": {"name": turn.call.name, "arguments": arguments}}]


def chat_whole(turn: Turn) -> Any:
    """A completion of /v1/chat/completions."""
    used, calls = OPENAI_USAGE, _chat_call(turn)
    message = {"role": "assistant", "content": turn.text, **({"tool_calls": calls} if calls else {})}
    return {"id": f"chatcmpl-{turn.number}", "object": "chat.completion", "created": int(time.time()), "model": turn.model,
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
            "usage": {"prompt_tokens": used["input"], "completion_tokens": used["output"], "total_tokens": used["input"] + used["output"],
                      "prompt_tokens_details": {"cached_tokens": used["cached"]},
                      "completion_tokens_details": {"reasoning_tokens": used["reasoning"]}}}


def chat_events(turn: Turn) -> Events:
    """The same as server-sent events."""
    whole = chat_whole(turn)

    def chunk(delta: Any, finish: str | None = None) -> tuple[None, Any]:
        return None, {**whole, "object": "chat.completion.chunk", "usage": None,
                      "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    yield chunk({"role": "assistant", "content": ""})
    for word in _words(turn.text):
        yield chunk({"content": word})
    if turn.call:
        yield chunk({"tool_calls": _chat_call(turn)})
    yield chunk({}, whole["choices"][0]["finish_reason"])
    yield None, {**whole, "object": "chat.completion.chunk", "choices": []}
    yield None, "[DONE]"


def _gemini_part(part: Any, turn: Turn, finish: str | None) -> Any:
    candidate = {"content": {"parts": [part], "role": "model"}, "index": 0, **({"finishReason": finish} if finish else {})}
    return {"candidates": [candidate], "usageMetadata": GEMINI_USAGE, "modelVersion": turn.model, "responseId": f"r{turn.number}"}


def gemini_whole(turn: Turn) -> Any:
    """A generateContent response."""
    return list(gemini_events(turn))[-1][1] if turn.call else _gemini_part({"text": turn.text}, turn, "STOP")


def gemini_events(turn: Turn) -> Events:
    """The same as streamGenerateContent sends it."""
    parts: list[Any] = [{"text": word} for word in _words(turn.text)]
    if turn.call:
        parts = [{"functionCall": {"id": f"call_{turn.number}", "name": turn.call.name, "args": turn.call.arguments},
                  "thoughtSignature": "c2lnbmF0dXJl"}]
    for index, part in enumerate(parts):
        yield None, _gemini_part(part, turn, "STOP" if index == len(parts) - 1 else None)


class Protocol(NamedTuple):
    """How one API is spoken."""
    path: str                                  # a regular expression: which requests are its own
    errors: dict[str, Trouble]
    whole: Callable[[Turn], Any]
    events: Callable[[Turn], Events]
    tools: Callable[[dict[str, Any]], list[str]]
    habit: str                                 # the tools called where the agent offers none


def _flat_tools(body: dict[str, Any]) -> list[str]:
    """Names of the tools, those in a namespace included."""
    found = []
    for tool in body.get("tools") or []:
        found += [tool.get("name") or tool.get("type", ""), *_flat_tools(tool)]
    return found


def _namespace_of(body: dict[str, Any], name: str) -> str:
    """The namespace that holds a tool of this name, if one does."""
    spaces = [tool["name"] for tool in body.get("tools") or [] if tool.get("type") == "namespace" and name in _flat_tools(tool)]
    return spaces[0] if spaces else ""


PROTOCOLS = {
    "messages": Protocol(r"/messages$", ANTHROPIC_ERRORS, anthropic_whole, anthropic_events, _flat_tools, "Write Bash"),
    "responses": Protocol(r"/responses$", OPENAI_ERRORS, responses_whole, responses_events, _flat_tools, "exec_command exec_command"),
    "chat": Protocol(r"/chat/completions$", OPENAI_ERRORS, chat_whole, chat_events,
                     lambda body: [tool["function"]["name"] for tool in body.get("tools") or []], "write bash"),
    "gemini": Protocol(
        r"/models/[^/:]+:(?:streamG|g)enerateContent$", GEMINI_ERRORS, gemini_whole, gemini_events,
        lambda body: [f["name"] for tool in body.get("tools") or [] for f in tool.get("functionDeclarations", [])],
        "write_file run_shell_command"),
}
# Gemini CLI asks a model which model to take, and wants JSON back
GEMINI_CHOICE = json.dumps({"complexity_reasoning": "simple", "complexity_score": 10, "reasoning": "simple", "model_choice": "flash"})


# === PLAYS ===============================================================

class Request(NamedTuple):
    """What an agent asked."""
    protocol: str          # a key of PROTOCOLS
    step: str              # the kind of the step it met
    model: str
    aside: bool            # not of the conversation
    tools: list[str]       # offered to the model
    body: dict[str, Any]   # {} where it is compressed in a way that the standard library cannot undo
    text: str
    at: float


class Play:
    """The steps for one run of an agent, and what it asked."""

    def __init__(self, url: str, steps: tuple[Step | str, ...], reset_at: int):
        self.url, self.reset_at = url, reset_at
        self.steps = [Step(step) if isinstance(step, str) else step for step in steps]
        self.requests: list[Request] = []
        self.taken = self.waited = 0
        self.lock = threading.Lock()

    def next_step(self, aside: bool, offered: list[str]) -> tuple[Step, int]:
        """The step for a request, and the request's number; what is asked aside meets no tool call.

        An agent may still be connecting to the server that has the tool: until it is offered, the model waits.
        """
        with self.lock:
            step = self.steps[min(self.taken, len(self.steps) - 1)]
            if step.kind == "use" and not aside and self.waited < MOST_WAITS and not any(n.endswith(step.text) for n in offered):
                self.waited += 1
                return shell("sleep 1"), len(self.requests)
            self.taken += not aside
            return (say() if aside and step.kind in TOOL_STEPS else step), len(self.requests) + self.taken

    @property
    def conversation(self) -> list[Request]:
        """What was asked, without what was asked aside."""
        return [request for request in self.requests if not request.aside]


class Models:
    """The server: listens on the loopback address from `with` to the end of its block."""

    def __init__(self, port: int = 0) -> None:
        self.plays: dict[str, Play] = {}
        self.server = _Server(("127.0.0.1", port), _Handler)
        self.server.plays = self.plays
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Models:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.closing.set()
        self.server.shutdown()
        self.server.server_close()

    def play(self, *steps: Step | str, reset_in_s: int = 7200) -> Play:
        """Make a play; `reset_in_s` is what its limits say."""
        name = f"play{len(self.plays)}"
        url = f"http://127.0.0.1:{self.server.server_address[1]}/{name}"
        self.plays[name] = Play(url, steps or (say(),), int(time.time()) + reset_in_s)
        return self.plays[name]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    plays: dict[str, Play]

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self.closing = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An agent that was stopped drops its connections; that is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer(b"")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._answer(self._read_body())

    def log_message(self, *_: Any) -> None:
        """Say nothing: standard error belongs to the tests."""

    def _answer(self, raw: bytes) -> None:
        _, name, path = self.path.partition("?")[0].split("/", 2) if self.path.count("/") > 1 else ("", "", "")
        play = self.server.plays.get(name)
        protocol = next((key for key, row in PROTOCOLS.items() if re.search(row.path, "/" + path)), None)
        if self.headers.get("upgrade"):
            self._send(Reply(426, {"error": {"message": "no web socket here"}}))
        elif play is None or protocol is None or self.command != "POST":
            self._send(_beside(path))
        else:
            self._converse(play, protocol, path, raw)

    def _converse(self, play: Play, protocol: str, path: str, raw: bytes) -> None:
        """Meet a request with the play's next step."""
        row, body, text = PROTOCOLS[protocol], _json(raw), raw.decode("utf-8", "replace")
        model = body.get("model") or (re.findall(r"/models/([^/:]+):", "/" + path) or [""])[0]
        tools = row.tools(body)
        wants_json = "responseJsonSchema" in text or "responseSchema" in text
        aside = bool(body) and not tools
        step, number = play.next_step(aside, tools)
        play.requests.append(Request(protocol, step.kind, model, aside, tools, body, text, time.time()))
        streams = body.get("stream", not body) or "streamGenerate" in path
        if step.kind in row.errors:
            return self._send(row.errors[step.kind](model, play.reset_at))
        if step.kind == "silence":
            return self._hang()
        call = tool_call(step, tools, row.habit) if step.kind in TOOL_STEPS else None
        call = call and call._replace(namespace=_namespace_of(body, call.name))
        turn = Turn(model, GEMINI_CHOICE if wants_json else "I will do that." if call else step.text or ANSWER, call, number)
        if not streams:
            return self._send(Reply(200, row.whole(turn)))
        return self._stream(row.events(turn), DROP_AFTER if step.kind == "drop" else None)

    def _read_body(self) -> bytes:
        raw = b""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
                raw += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        encoding = self.headers.get("content-encoding", "")
        return gzip.decompress(raw) if encoding == "gzip" else zlib.decompress(raw) if encoding == "deflate" else raw

    def _send(self, reply: Reply) -> None:
        data = json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, text in {"content-type": "application/json", **reply.headers, "content-length": str(len(data))}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, events: Events, most: int | None) -> None:
        """Send server-sent events; after `most` of them the connection is cut."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for number, (kind, data) in enumerate(events):
            if number == most:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            head = f"event: {kind}\n" if kind else ""
            text = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(f"{head}data: {text}\n\n".encode())
            self.wfile.flush()

    def _hang(self) -> None:
        """Say nothing until the agent goes away."""
        self.close_connection = True
        while not self.server.closing.is_set():
            if select.select([self.connection], [], [], 0.25)[0] and not self.connection.recv(1, socket.MSG_PEEK):
                return


def _beside(path: str) -> Reply:
    """What an agent asks beside its conversation: the models there are, how long a prompt is."""
    if path.endswith("/models"):
        return Reply(200, {"object": "list", "data": [{"id": "pretend", "object": "model", "created": 1, "owned_by": "x"}], "models": []})
    if path.endswith(("count_tokens", ":countTokens")):
        return Reply(200, {"input_tokens": 123, "totalTokens": 123})
    if path == "oauth/token":
        return Reply(401, {"error": {"code": "refresh_token_expired", "message": "Your refresh token has expired."}})
    return Reply(404, {"error": {"type": "not_found_error", "message": "not found"}})


def _json(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def main() -> None:
    """Serve one play until interrupted."""
    with Models(port=8765) as models:
        play = models.play(*sys.argv[1:])
        print(play.url, flush=True)
        shown = 0
        while True:
            for request in play.requests[shown:]:
                print(request.protocol, request.step, request.model, "aside" if request.aside else request.tools, flush=True)
                shown += 1
            time.sleep(0.2)


if __name__ == "__main__":
    main()
