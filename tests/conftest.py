"""What the tests share: the built program in a world made from nothing, and scripted fake agents.

A black-box test takes the fixtures `orch` (runs dist/orch as a subprocess) and `fake` (real
executables called claude, codex, ... that play the steps a test gave them):

    def test_answer_is_printed(orch, fake):
        fake("claude", claude_ok("42"))
        assert orch("what?").out == "42\\n"

A fake that is called without a step fails loudly, and so does a step that nobody used.
"""
from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

# A background job and nohup ignore some signals, and what is ignored is inherited: tests need them as they are by default.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "dist" / "orch"
TIMEOUT_S = 60


# === WHICH TESTS ARE FAST ================================================

# These start no orch either, but repositories or hundreds of hostile texts take their time.
THOROUGH = {"test_reset_times", "test_handoff", "test_snapshots", "test_verdict_shapes", "test_verdict_properties"}


def pytest_collection_modifyitems(items):
    """Mark as `fast` what does not touch the built program and is over in no time."""
    for item in items:
        if item.module.__name__ not in THOROUGH and not {"built", "orch", "fake"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.fast)


# === THE PROGRAM =========================================================

@pytest.fixture(scope="session")
def built():
    """dist/orch, built anew if a source is newer."""
    sources = [ROOT / "orch.py", ROOT / "tests" / "tools" / "build.py"]
    if not BUILT.exists() or BUILT.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        subprocess.run([sys.executable, str(sources[1]), str(BUILT)], check=True, stdout=subprocess.DEVNULL)
    return BUILT


@pytest.fixture(scope="session")
def python_dir(tmp_path_factory):
    """A directory that holds the Python under test as `python3`, and nothing else."""
    folder = tmp_path_factory.mktemp("python")
    (folder / "python3").symlink_to(os.path.realpath(sys.executable))
    return folder


class Result:
    """How a run of orch ended: `code`, `out`, `err` (text, undecodable bytes as surrogates)."""

    def __init__(self, code, out, err):
        self.code, self.out_bytes, self.err_bytes = code, out, err
        self.out, self.err = (data.decode("utf-8", "surrogateescape") for data in (out, err))

    @property
    def json(self):
        """Standard output as one JSON value."""
        return json.loads(self.out)

    @property
    def events(self):
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def notices(self):
        """The lines of standard error, each of which must be one of orch's own."""
        lines = self.err.splitlines()
        assert all(line.startswith("orch: ") for line in lines), self.err
        return lines

    def __repr__(self):
        return f"<exit {self.code}\n--- stdout\n{self.out[-3000:]}\n--- stderr\n{self.err[-3000:]}>"


class Orch:
    """Runs the built program in `work`, with an environment made from nothing."""

    def __init__(self, program, base, path):
        self.program, self.base = program, base
        self.user_home, self.work = base / "user", base / "work"
        self.home = self.user_home / ".orch"
        self.user_home.mkdir()
        self.work.mkdir()
        self.mark = uuid.uuid4().hex
        self.env = {
            "PATH": path, "HOME": str(self.user_home), "ORCH_HOME": str(self.home), "TZ": "UTC",
            "LANG": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1", "TMPDIR": str(base),
            "ORCH_TESTS_MARK": self.mark,    # how what a test left running is found
        }

    def start(self, *args, env=None, cwd=None, stdin=subprocess.DEVNULL, **popen):
        """Start orch and return at once. `env`: changes, None removes."""
        merged = {**self.env, **(env or {})}
        popen = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        return subprocess.Popen([os.fspath(self.program), *args], cwd=cwd or self.work, stdin=stdin,
                                env={name: value for name, value in merged.items() if value is not None}, **popen)

    def __call__(self, *args, input=None, timeout=TIMEOUT_S, **how):
        """Run orch to its end. `input`: text or bytes for standard input, which is /dev/null without."""
        if input is not None:
            how["stdin"] = subprocess.PIPE
            input = input.encode("utf-8", "surrogateescape") if isinstance(input, str) else input
        process = self.start(*args, **how)
        try:
            out, err = process.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            self.stop_leftovers()
            out, err = process.communicate()
            pytest.fail(f"orch {args!r} did not end within {timeout} s\n{Result(None, out, err)!r}")
        return Result(process.returncode, out or b"", err or b"")

    def configure(self, config, path=None):
        """Write `config` (a value, or text as it is) as the user's config, or to `path`."""
        path = path or self.home / "config.json"
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        return path

    def state(self):
        """state.json, or {} where there is none."""
        path = self.home / "state.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def ledger(self):
        """The records of usage.jsonl."""
        path = self.home / "usage.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def leftovers(self):
        """{pid: command line} of processes that descend from this test's runs, orch included."""
        wanted, found = f"ORCH_TESTS_MARK={self.mark}".encode(), {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                        found[int(entry.name)] = words
            except OSError:
                continue
        return found

    def stop_leftovers(self):
        """Kill what `leftovers` finds."""
        for pid in self.leftovers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@pytest.fixture
def orch(built, python_dir, tmp_path):
    """The built program, to be called: orch("prompt", "--json") -> Result."""
    agents = tmp_path / "agents"
    agents.mkdir()
    program = Orch(built, tmp_path, f"{agents}:{python_dir}:/usr/bin:/bin")
    program.agents = agents
    yield program
    program.stop_leftovers()


def wait_until(condition, timeout=10, what="the condition"):
    """Return the first true value of `condition()`, asked every 20 ms."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    return pytest.fail(f"{what} did not come true within {timeout} s")


def read_terminal(leader):
    """All that is still to come from the leader of a pseudo-terminal, which is closed then."""
    shown = b""
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:    # so Linux ends one whose other end is closed
            break
        if not data:
            break
        shown += data
    os.close(leader)
    return shown


def git(*args, cwd):
    """Run git without any user's settings; return what it printed."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
           "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
           "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org"}
    return subprocess.run(["git", "-c", "init.defaultBranch=main", *args], cwd=cwd, env=env, check=True,
                          capture_output=True, text=True).stdout


@pytest.fixture
def repo(orch):
    """The working directory as a git repository with one commit (a.txt, b.txt)."""
    git("init", "-q", cwd=orch.work)
    (orch.work / "a.txt").write_text("one\ntwo\n")
    (orch.work / "b.txt").write_text("bee\n")
    git("add", ".", cwd=orch.work)
    git("commit", "-q", "-m", "first", cwd=orch.work)
    return orch.work


# === FAKE AGENTS =========================================================

# The whole of a fake: logs its call, then plays the next step. Compiled once, as a start costs
# less that way. A step is taken by renaming its file, so that parallel calls get one each.
AGENT = r'''
import json, os, signal, sys, time

name = os.path.basename(sys.argv[0])
base = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0]))) + "/fakes"


def take():
    for entry in sorted(os.listdir(base + "/steps")):
        if entry.endswith("-" + name):
            try:
                os.rename(base + "/steps/" + entry, base + "/played/" + entry)
            except FileNotFoundError:
                continue
            with open(base + "/played/" + entry) as file:
                return json.load(file)
    return None


def put(number, data):
    while data:
        data = data[os.write(number, data):]


def main():
    if sys.argv[-2:] in (["auth", "status"], ["login", "status"], ["auth", "list"]):
        kind, step = "login", {"exit": 1 if os.path.exists(base + "/loggedout-" + name) else 0}
    else:
        kind, step = "run", take()
    stdin = b""
    if step is None or step.get("read_stdin", True):
        with open(0, "rb", closefd=False) as file:
            stdin = file.read()
    call = {"agent": name, "kind": kind, "argv": sys.argv[1:], "stdin": stdin.decode("latin-1"), "cwd": os.getcwd(),
            "env": dict(os.environ), "pid": os.getpid(), "pgid": os.getpgid(0), "sid": os.getsid(0), "at": time.time(),
            "unscripted": step is None}
    path = "%s/calls/%020d-%d" % (base, time.time_ns(), os.getpid())
    with open(path + ".part", "w") as file:
        json.dump(call, file)
    os.rename(path + ".part", path)
    if step is None:
        sys.stderr.write("fake %s: no step for %r\n" % (name, sys.argv[1:]))
        os._exit(99)
    play(step)


def play(step):
    for path, text in step.get("write", {}).items():
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "wb") as file:
            file.write(text.encode("latin-1"))
    time.sleep(step.get("delay", 0))
    put(1, step.get("stdout", "").encode("latin-1"))
    put(2, step.get("stderr", "").encode("latin-1"))
    if step.get("run"):
        exec(compile(step["run"], "step", "exec"), {"os": os, "sys": sys, "time": time, "signal": signal, "put": put})
    if step.get("kill"):
        signal.signal(step["kill"], signal.SIG_DFL)
        os.kill(os.getpid(), step["kill"])
        time.sleep(10)
    os._exit(step.get("exit", 0))


main()
'''


def step(stdout="", stderr="", exit=0, delay=0, write=None, kill=None, run="", read_stdin=True):
    """One scripted call of a fake agent, in this order: write files, sleep, print, run Python, end.

    Text or bytes alike; `run` sees os, sys, time, signal and put(fd, bytes).
    """
    latin = {path: _latin(text) for path, text in (write or {}).items()}
    return {"stdout": _latin(stdout), "stderr": _latin(stderr), "exit": exit, "delay": delay, "write": latin,
            "kill": kill, "run": run, "read_stdin": read_stdin}


def _latin(text):
    """Bytes as text that JSON can hold."""
    return (text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text).decode("latin-1")


class Call:
    """One call of a fake agent: agent, argv (without the program), stdin (bytes), cwd, env, pid, pgid, sid, at."""

    def __init__(self, record):
        self.__dict__.update(record)
        self.stdin = record["stdin"].encode("latin-1")

    @property
    def prompt(self):
        """The prompt as the agent got it: what stands after `--` or `--prompt=`, else standard input. Bytes."""
        if "--" in self.argv:
            return os.fsencode(self.argv[self.argv.index("--") + 1])
        glued = [word for word in self.argv if word.startswith("--prompt=")]
        return os.fsencode(glued[-1][len("--prompt="):]) if glued else self.stdin

    def __repr__(self):
        return f"<{self.agent} {[word[:60] for word in self.argv]} stdin={self.stdin[:60]!r}>"


class Fakes:
    """Fake agents on the PATH: fake("claude", step, ...) makes one and adds steps to it."""

    def __init__(self, agents, base, python):
        self.agents, self.base, self.python = agents, base, python
        self.forgive_unused = False
        self.count = 0
        for name in ("steps", "played", "calls"):
            (base / name).mkdir(parents=True)

    def __call__(self, name, *steps):
        path = self.agents / name
        if not path.exists():
            path.write_text(f"#!{self.python} -ISXutf8\n{AGENT}")
            path.chmod(0o755)
        for one in steps:
            self.count += 1
            (self.base / "steps" / f"{self.count:06}-{name}").write_text(json.dumps(one))
        return self

    def log_out(self, name):
        """Make the login check of `name` fail."""
        (self.base / f"loggedout-{name}").touch()

    def log_in(self, name):
        """Make the login check of `name` succeed again."""
        (self.base / f"loggedout-{name}").unlink()

    def _records(self):
        paths = sorted(path for path in (self.base / "calls").iterdir() if not path.name.endswith(".part"))
        return [Call(json.loads(path.read_text())) for path in paths]

    @property
    def calls(self):
        """All runs so far, in order; login checks left out."""
        return [call for call in self._records() if call.kind == "run"]

    @property
    def login_checks(self):
        """The agents whose login was checked, in order."""
        return [call.agent for call in self._records() if call.kind == "login"]

    @property
    def names(self):
        """The agents that ran, in order."""
        return [call.agent for call in self.calls]

    @property
    def call(self):
        """The only run."""
        assert len(self.calls) == 1, self.calls
        return self.calls[0]

    def problems(self):
        """What a test must not leave behind: steps unplayed, calls without a step."""
        unused = sorted(path.name for path in (self.base / "steps").iterdir())
        unscripted = [call for call in self._records() if call.unscripted]
        return ([f"unused step: {name}" for name in unused if not self.forgive_unused]
                + [f"called without a step: {call!r}" for call in unscripted])


@pytest.fixture
def fake(orch):
    """Fake agents beside `orch`: fake("claude", claude_ok("hi")); fake.calls."""
    fakes = Fakes(orch.agents, orch.base / "fakes", os.path.realpath(sys.executable))
    yield fakes
    problems = fakes.problems()
    assert not problems, "\n".join(problems)


# === WHAT THE REAL ONES PRINT ============================================
# Shortened from recordings of claude 2.1.197 and codex 0.171.0.

SESSION = "fc8c38ad-d879-4438-b300-3b3abe279494"
THREAD = "01a22e85-79d9-7860-a247-82e353eb9328"


def lines(*values):
    """Values as JSON lines."""
    return "".join(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n" for value in values)


def claude_ok(answer="done", *, input_tokens=11, cache_creation=22, cache_read=33, output_tokens=44, cost_usd=0.001309,
              model="claude-opus-4-8[1m]", session=SESSION, denials=(), **more):
    """Claude answers."""
    usage = {"input_tokens": input_tokens, "cache_creation_input_tokens": cache_creation,
             "cache_read_input_tokens": cache_read, "output_tokens": output_tokens}
    per_model = {model: {"inputTokens": input_tokens, "outputTokens": output_tokens, "cacheReadInputTokens": cache_read,
                         "cacheCreationInputTokens": cache_creation, "costUSD": cost_usd}}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model.partition("[")[0],
               "content": [{"type": "text", "text": answer}], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    return step(stdout=lines(
        _claude_init(model, session),
        {"type": "assistant", "message": message, "parent_tool_use_id": None, "session_id": session},
        {"type": "result", "subtype": "success", "is_error": False, "api_error_status": None, "duration_ms": 220,
         "num_turns": 1, "result": answer, "stop_reason": "end_turn", "session_id": session, "total_cost_usd": cost_usd,
         "usage": usage, "modelUsage": per_model, "permission_denials": list(denials),
         "terminal_reason": "completed"}), **more)


def claude_limit(reset_at, *, kind="five_hour", session=SESSION, **more):
    """Claude is at its usage limit until the epoch `reset_at`; None: it gives no time."""
    words = {"five_hour": "session limit", "seven_day": "weekly limit", "seven_day_opus": "Opus limit"}[kind]
    text = f"You've hit your {words}" + (f" · resets {claude_time(reset_at)} (UTC)" if reset_at else "")
    event = {"type": "rate_limit_event", "rate_limit_info": {
        "status": "rejected", "resetsAt": int(reset_at or 0), "rateLimitType": kind, "overageStatus": "rejected",
        "overageDisabledReason": "org_level_disabled", "isUsingOverage": False}, "session_id": session}
    if not reset_at:
        del event["rate_limit_info"]["resetsAt"]
    return claude_failed(text, status=429, error="rate_limit", before=[event], session=session, **more)


def claude_auth(**more):
    """Claude is not logged in."""
    return claude_failed("Not logged in · Please run /login", status=401, error="authentication_failed", **more)


def claude_error(**more):
    """Claude's server is overloaded: `failed`, but nobody is benched."""
    return claude_failed("API Error: 529 Overloaded. This is a server-side issue, usually temporary — "
                         "try again in a moment.", status=529, error="server_error", **more)


def claude_failed(text, *, status=None, error="unknown", before=(), session=SESSION, model="claude-opus-4-8[1m]", **more):
    """Claude ends with an error text: exit 1, all of it on standard output."""
    zero = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}
    message = {"id": "msg_2", "type": "message", "role": "assistant", "model": "<synthetic>", "stop_reason": "stop_sequence",
               "usage": zero, "content": [{"type": "text", "text": text}]}
    return step(exit=1, stdout=lines(
        _claude_init(model, session), *before,
        {"type": "assistant", "message": message, "parent_tool_use_id": None, "session_id": session, "error": error},
        {"type": "result", "subtype": "success", "is_error": True, "api_error_status": status, "duration_ms": 465,
         "num_turns": 1, "result": text, "stop_reason": "stop_sequence", "session_id": session, "total_cost_usd": 0,
         "usage": zero, "modelUsage": {}, "permission_denials": [], "terminal_reason": "completed"}), **more)


def _claude_init(model, session):
    return {"type": "system", "subtype": "init", "cwd": "/home/user/proj", "session_id": session, "tools": ["Bash", "Edit"],
            "mcp_servers": [], "model": model, "permissionMode": "default", "apiKeySource": "none",
            "claude_code_version": "2.1.197"}


def claude_time(epoch):
    """As Claude prints it in UTC: `3pm`, `10:43pm`, or with a date when more than a day ahead. Seconds are cut."""
    at = _utc(epoch)
    clock = f"{at.hour % 12 or 12}" + (f":{at.minute:02}" if at.minute else "") + ("am" if at.hour < 12 else "pm")
    if epoch - time.time() <= 24 * 3600:
        return clock
    year = f", {at.year}" if at.year != _utc(time.time()).year else ""
    return f"{at:%b} {at.day}{year}, {clock}"


CODEX_STDERR = "Reading additional input from stdin...\n"


def codex_ok(answer="done", *, input_tokens=1100, cached=600, output_tokens=70, reasoning=30, thread=THREAD, **more):
    """Codex answers. Its input_tokens include the cached ones."""
    usage = {"input_tokens": input_tokens, "cached_input_tokens": cached, "cache_write_input_tokens": 0,
             "output_tokens": output_tokens, "reasoning_output_tokens": reasoning}
    return step(stderr=CODEX_STDERR, stdout=lines(
        {"type": "thread.started", "thread_id": thread}, {"type": "turn.started"},
        {"type": "item.completed", "item": {"id": "item_0", "type": "agent_message", "text": answer}},
        {"type": "turn.completed", "usage": usage}), **more)


def codex_limit(reset_at=None, **more):
    """Codex is at its usage limit until the epoch `reset_at` (printed to the minute); None: it says "later"."""
    when = f"at {codex_time(reset_at)}" if reset_at else "later"
    return codex_failed("You’ve hit your usage limit. Upgrade to Pro (https://chatgpt.com/explore/pro), visit "
                        f"https://chatgpt.com/settings/usage to purchase more credits or try again {when}.", **more)


def codex_auth(**more):
    """Codex's key is refused."""
    return codex_failed("unexpected status 401 Unauthorized: Incorrect API key provided: sk-test-000., url: "
                        "http://127.0.0.1:8765/v1/responses, request id: req_mock000", **more)


def codex_overloaded(**more):
    """Codex's model is at capacity: `failed`, but nobody is benched."""
    return codex_failed("Selected model is at capacity. Please try a different model.", **more)


def codex_failed(message="The widget could not be frobnicated.", *, thread=THREAD, said="", **more):
    """Codex ends its turn with an error, after saying `said`."""
    spoken = [{"type": "item.completed", "item": {"id": "item_0", "type": "agent_message", "text": said}}] if said else []
    return step(exit=1, stderr=CODEX_STDERR, stdout=lines(
        {"type": "thread.started", "thread_id": thread}, {"type": "turn.started"}, *spoken,
        {"type": "error", "message": message}, {"type": "turn.failed", "error": {"message": message}}), **more)


def codex_time(epoch):
    """As Codex prints it in UTC: `10:43 PM` on the same day, else `Dec 3rd, 2026 11:13 PM`."""
    at = _utc(epoch)
    clock = f"{at.hour % 12 or 12}:{at.minute:02} {'AM' if at.hour < 12 else 'PM'}"
    if at.date() == _utc(time.time()).date():
        return clock
    suffix = "th" if 10 < at.day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(at.day % 10, "th")
    return f"{at:%b} {at.day}{suffix}, {at.year} {clock}"


def _utc(epoch):
    return datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)


def epoch_of(text):
    """The epoch of an ISO 8601 time that ends in Z."""
    assert text.endswith("Z"), text
    return datetime.datetime.fromisoformat(text[:-1] + "+00:00").timestamp()


def one_line_error(result, code=2):
    """Assert that orch refused with one helpful line and status `code`; return the line."""
    assert result.code == code, result
    assert result.out == "", result
    assert len(result.notices) == 1, result
    return result.notices[0]


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a tmpfs")
not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


# === RECIPES OF THE README ===============================================

NOT_RUN = re.compile(r"<!-- not run by the tests: (.+?) -->\s*\Z")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


class Block:
    """A fenced block of the README: `language`, `text`, `heading` above it, the `line` of its fence.

    `not_run` is the reason in a comment `<!-- not run by the tests: REASON -->` right above the fence, else None.
    """

    def __init__(self, readme, found):
        before = readme[:found.start()]
        self.language, self.text = found[1], found[2]
        self.line = before.count("\n") + 1
        self.heading = (re.findall(r"^#+ (.*)$", before, re.M) or [""])[-1]
        reason = NOT_RUN.search(before[-300:])
        self.not_run = reason[1] if reason else None
        first = next((line for line in self.script.splitlines() if line.strip()), "")
        self.name = re.sub(r"\W+", "-", f"{self.heading} {first}").strip("-")[:60]

    @property
    def script(self):
        """What a person types: of a console block the lines after `$ `, and after `> ` where they go on."""
        if self.language != "console":
            return self.text
        return "".join(line[2:] + "\n" for line in self.text.splitlines() if line.startswith(("$ ", "> ")))


def readme_blocks(*languages):
    """The README's blocks in these languages, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [block for block in (Block(text, found) for found in FENCE.finditer(text)) if block.language in languages]


def recipe(language, words):
    """The one block in this language that holds these words."""
    found = [block for block in readme_blocks(language) if words in block.text]
    assert len(found) == 1, f"{len(found)} blocks hold {words!r}"
    return found[0].text


class Shell:
    """A shell in the world of `orch`, with orch on its PATH and a git identity: shell("git commit", cwd=...)."""

    def __init__(self, orch):
        self.orch = orch
        (orch.agents / "orch").symlink_to(orch.program)
        self.env = {**orch.env, "EDITOR": "true", "TERM": "dumb"}
        config = orch.user_home / ".gitconfig"
        config.write_text("[user]\nname = A\nemail = a@example.org\n[init]\ndefaultBranch = main\n[advice]\ndetachedHead = false\n")

    def __call__(self, script, *, cwd=None, input=b"", ok=True, options="-eu", timeout=TIMEOUT_S, **env):
        """Run a script with bash; its Result. Variables that are None are removed; `ok`: it has to end with 0."""
        merged = {name: value for name, value in {**self.env, **env}.items() if value is not None}
        done = subprocess.run(["bash", *options.split(), "-c", script], cwd=cwd or self.orch.work, env=merged, check=False,
                              input=input.encode() if isinstance(input, str) else input, capture_output=True, timeout=timeout)
        result = Result(done.returncode, done.stdout, done.stderr)
        assert not ok or result.code == 0, result
        return result


@pytest.fixture
def shell(orch):
    """A shell with orch and its fake agents on the PATH."""
    return Shell(orch)
