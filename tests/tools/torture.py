#!/usr/bin/env python3
"""Try to break orch, for as long as asked: `torture.py [--seconds N] [--seed S] [PROGRAM]`.

The attacks are the functions of this file; the tests call the same ones with small numbers. Each
returns figures and raises AssertionError, the seed in its text, where a promise does not hold.

    kill_runs     KILL at random moments, one run after another, under load
    kill_calls    KILL at the n-th system call that touches a file of orch's, for every n
    fail_calls    an error from the n-th such call, or from all that follow too: the answer must come all the same
    halve_writes  the n-th write, or all from there on, take half of what they are given
    crowd         many processes on one home, of every kind, at once
    hammer        the longest wait for a lock among many writers, while the ledger is trimmed under them
    flood         peak memory and processor time while an agent writes whatever it likes
    fuzz_*        damaged inputs for everything that is parsed (fuzzing.py, beside this file)
"""
from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import fuzzing  # noqa: E402  (found by the line above)

import orch  # noqa: E402

STATUSES = frozenset(map(int, orch.Exit)) - {70}           # what a status may be when nothing is wrong with orch
END_S = 60                                                 # longer than this is called hanging

Figures = dict[str, Any]


# === ARENA ===============================================================
# A world made from nothing, with agents that play the word which the prompt has for them:
# "claude=limit codex=ok". They are written in sh, as a start must cost less than orch's.

AGENT = r"""#!/bin/sh
name=${0##*/} base=%(base)s args="$*"
case "$args" in *"$name="*) word=${args#*"$name="} word=${word%%%%[!a-z]*} ;; *) word=ok ;; esac
echo "$ORCH_ATTEMPT_ID $$ $word" >> "$base/calls"
code=1
case $word in
    ok) code=0 ;;
    slow) sleep 0.2; word=ok code=0 ;;
    hang) exec sleep 600 ;;
    deaf) trap '' TERM HUP INT; sleep 600; sleep 600 ;;
    away) setsid sleep 600 < /dev/null > /dev/null 2>&1 & sleep 600 ;;
    dies) kill -9 $$ ;;
    wrecks) rm -rf "$ORCH_HOME"; : > "$ORCH_HOME"; word=ok code=0 ;;
    limit) until=$(($(date +%%s) + 1))
           echo '{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":'$until',"rateLimitType":"five_hour"}}' ;;
esac
cat "$base/say/$name-$word"
exit $code
"""
CLAUDE = {"type": "result", "subtype": "success", "is_error": False, "result": "42", "session_id": "s",
          "total_cost_usd": 0.01, "usage": {"input_tokens": 3, "output_tokens": 4}}
REFUSED = {"is_error": True, "api_error_status": 429, "result": "You've hit your session limit"}
SAID: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "claude-ok": [CLAUDE],
    "claude-limit": [{**CLAUDE, **REFUSED}],
    "claude-fail": [{**CLAUDE, "is_error": True, "result": "The widget could not be frobnicated."}],
    "codex-ok": [{"type": "thread.started", "thread_id": "t"}, {"type": "turn.started"},
                 {"type": "item.completed", "item": {"id": "0", "type": "agent_message", "text": "42"}},
                 {"type": "turn.completed", "usage": {"input_tokens": 5, "cached_input_tokens": 1, "output_tokens": 2}}],
    "codex-fail": [{"type": "thread.started", "thread_id": "t"}, {"type": "turn.started"},
                   {"type": "turn.failed", "error": {"message": "The widget could not be frobnicated."}}],
}


class Arena:
    """A home, a working directory and agents, below `base`."""

    def __init__(self, base: Path, program: Path, *, repo: bool = True) -> None:
        self.base, self.program = base, program
        self.home, self.work, self.tmp = base / "home", base / "work", base / "tmp"
        self.mark = os.urandom(8).hex()
        tools = base / "bin"
        for folder in (self.work, self.tmp, tools, base / "say"):
            folder.mkdir(parents=True)
        (tools / "python3").symlink_to(os.path.realpath(sys.executable))
        for name in ("claude", "codex"):
            self.agent(name, AGENT % {"base": base})
        for name, events in SAID.items():
            (base / "say" / name).write_text("".join(json.dumps(event) + "\n" for event in events))
        self.env = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(base), "ORCH_HOME": str(self.home), "TZ": "UTC",
                    "LANG": "C.UTF-8", "TMPDIR": str(self.tmp), "GIT_CONFIG_NOSYSTEM": "1", "TORTURE_MARK": self.mark}
        if repo and shutil.which("git"):
            self.git("init", "-q")
            (self.work / "a.txt").write_text("one\n")
            self.git("add", ".")
            self.git("-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-q", "-m", "first")

    def git(self, *args: str) -> None:
        """Run git in the working directory."""
        subprocess.run(["git", *args], cwd=self.work, env=self.env, check=True, capture_output=True)

    def agent(self, name: str, script: str) -> None:
        """Put an agent's program on the PATH."""
        path = self.base / "bin" / name
        path.write_text(script)
        path.chmod(0o755)

    def start(self, *args: str, **how: Any) -> subprocess.Popen[bytes]:
        """Start orch."""
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **how}
        return subprocess.Popen([str(self.program), *args], cwd=self.work, env=self.env, **how)

    def run(self, *args: str) -> tuple[int, bytes, bytes]:
        """Run orch to its end, which must come: status, output, errors."""
        with self.start(*args) as process:
            try:
                out, told = process.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"orch {args} hangs") from None
        return process.returncode, out, told

    def calls(self) -> list[str]:
        """The attempt ids for which an agent was started, in order."""
        path = self.base / "calls"
        return [line.split(" ")[0] for line in path.read_text().splitlines()] if path.exists() else []

    def leftovers(self) -> list[str]:
        """Processes of this arena that still live, as "pid: command"."""
        wanted, found = b"TORTURE_MARK=" + self.mark.encode(), []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit() and wanted in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    found.append(f"{entry}: " + Path("/proc", entry, "cmdline").read_text("utf-8", "replace").replace("\0", " "))
        return found

    def close(self) -> None:
        """Stop what still runs."""
        for line in self.leftovers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line.partition(":")[0]), signal.SIGKILL)


class Memory:
    """What the files of a home must never lose from one look to the next."""

    def __init__(self, arena: Arena) -> None:
        self.arena, self.seen, self.jobs = arena, b"", list[str]()
        self.notes = arena.home / "cache" / "running"
        self.torn = 0                                      # so many lines may be cut: a write was killed half-way
        self.attempts: set[str] = set()                    # ids of all that were begun

    def look(self, told: str) -> None:
        """Look again, while no writer runs: all parses, nothing has gone, no lock is held."""
        home = self.arena.home
        ledger = (home / "usage.jsonl").read_bytes() if (home / "usage.jsonl").exists() else b""
        kept = self.seen.rpartition(b"\n")[0] if not self.seen.endswith(b"\n") else self.seen
        assert ledger.startswith(kept), f"{told}: the ledger has lost lines"
        whole = ledger.split(b"\n")[:-1]
        torn = sum(not sound_line(line) for line in whole)
        assert torn <= self.torn, f"{told}: a ledger line does not parse: {whole[-3:]}"
        self.seen = ledger
        if (home / "state.json").exists():
            state = orch.parse_state((home / "state.json").read_text())
            ids = [job["id"] for job in state["jobs"]]
            new = [one for one in ids if one not in self.jobs]
            assert ids == [*self.jobs, *new][-orch.KEEP_JOBS:], f"{told}: jobs have gone: {self.jobs} {ids}"
            assert len(set(ids)) == len(ids), f"{told}: a job stands there twice"
            self.jobs = ids
        for note in self.notes.iterdir() if self.notes.exists() else ():
            with contextlib.suppress(ValueError):          # killed while it wrote the note: nothing has begun
                self.attempts.add(json.loads(note.read_text())["marker"])
        for name in ("state.lock", "usage.lock"):
            if (home / name).exists():
                with open(home / name, "rb") as lock:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        raise AssertionError(f"{told}: {name} is still locked") from None

    def settled(self, told: str) -> None:
        """After a run that ended by itself: everything that was ever begun is recorded, once, and nothing runs."""
        self.look(told)
        self.attempts.update(self.arena.calls())
        lines = Counter(json.loads(line)["task_id"] for line in self.seen.splitlines() if sound_line(line))
        begun = Counter(attempt.partition(".")[0] for attempt in self.attempts)
        wrong = {task: (count, lines[task]) for task, count in begun.items() if lines[task] != count}
        left = os.listdir(self.notes) if self.notes.exists() else []
        assert not wrong, f"{told}: attempts and ledger lines of a task differ: {wrong}; notes left: {left}"
        recent = sorted(begun)[-30:]
        assert set(recent) <= set(self.jobs), f"{told}: no job for {set(recent) - set(self.jobs)}"
        notes = self.notes
        assert not notes.exists() or os.listdir(notes) == [], f"{told}: notes stay: {os.listdir(notes)}"
        assert self.arena.leftovers() == [], f"{told}: still running: {self.arena.leftovers()}"
        aside = [name for name in os.listdir(self.arena.home) if "corrupt" in name]
        assert aside == [], f"{told}: set aside: {aside}"


def sound_line(line: bytes) -> bool:
    """Whether a line of the ledger is a record."""
    return next(iter(orch.parse_ledger([line.decode("utf-8", "replace")]))) is not None


# === CRASHES =============================================================

PLAYS = ("claude=ok", "claude=limit codex=ok", "claude=fail codex=ok", "claude=hang", "claude=deaf", "claude=away",
         "claude=fail codex=hang", "claude=slow", "claude=dies codex=slow")


def kill_runs(arena: Arena, seed: int, rounds: int, end_at: float = float("inf")) -> Figures:
    """Start a run, kill orch after a random time, let the next run settle it; all under load."""
    rng, memory = random.Random(seed), Memory(arena)
    longest, killed, adopted = 0.4, 0, 0
    arena.run("claude=ok")
    for number in range(rounds):
        if time.monotonic() > end_at:
            break
        told, play = f"seed {seed}, round {number}", rng.choice(PLAYS)
        for _ in range(rng.choice((1, 1, 1, 2))):          # at times the one that clears up is killed as well
            process = arena.start("--json", play, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(rng.random() ** 1.5 * longest)
            process.kill()
            killed += process.wait() == -signal.SIGKILL
            memory.look(told)
        begun = time.monotonic()
        code, out, err = arena.run("claude=ok codex=ok")
        longest = min(max(longest * 0.95, (time.monotonic() - begun) * 1.2), 1.5)
        assert (code, out) == (0, b"42\n") and b"Traceback" not in err, f"{told}: {code} {out!r} {err!r}"
        adopted += err.count(b"was killed before it ended")
        memory.settled(told)
    return {"runs killed": killed, "told of by the next run": adopted, "calls of agents": len(arena.calls())}


@contextlib.contextmanager
def load(count: int) -> Iterator[None]:
    """Keep the processors busy, so that orders of events are seen which an idle machine never shows."""
    command = [sys.executable, "-ISc", f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(10000))"]
    spinners = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


# === SYSTEM CALLS ========================================================
# A child process runs orch's own code with an `os` that counts the calls which touch a file of
# ours and does something at the n-th: dies before it, dies half-way through it, has it fail or
# take half. What `lasts` happens at all calls from there on, as on a disk that is full or broken.

WATCHED = {"open", "write", "replace", "rename", "link", "unlink", "mkdir", "rmdir", "fsync", "ftruncate", "utime",
           "listdir", "pread", "stat", "fstat", "close"}


Act = Callable[[str, tuple[Any, ...]], Any]                # what happens at a call; None: the real one follows


class Calls:
    """Stands in for the module `os` inside orch."""

    def __init__(self, below: str, at: int, act: Act, *, lasts: bool = False) -> None:
        self.below, self.at, self.act, self.lasts, self.count = below, at, act, lasts, 0
        self.watched = {"write"} if act in (die_half_way, take_half) else WATCHED

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self.watched:
            return real

        def call(*args: Any, **more: Any) -> Any:
            if self.concerns(args[0] if args else None):
                self.count += 1
                if self.count == self.at or (self.lasts and self.count > self.at):
                    done = self.act(name, args)
                    if done is not None:
                        return done
            return real(*args, **more)
        return call

    def concerns(self, what: object) -> bool:
        """Whether a path or a descriptor is a file below our folder."""
        if isinstance(what, int):
            try:
                what = os.readlink(f"/proc/self/fd/{what}")
            except OSError:
                return False
        return isinstance(what, (str, bytes)) and os.fsdecode(what).startswith(self.below)


def die(name: str, args: tuple[Any, ...]) -> None:
    """Be killed before the call."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_half_way(name: str, args: tuple[Any, ...]) -> None:
    """Be killed half-way through a write."""
    os.write(args[0], bytes(args[1])[:len(args[1]) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def take_half(name: str, args: tuple[Any, ...]) -> int:
    """Write half of it, and say so."""
    return os.write(args[0], bytes(args[1])[:len(args[1]) // 2])


def fail_with(number: int) -> Act:
    """Have the call fail with this error; closing cannot."""
    def fail(name: str, args: tuple[Any, ...]) -> None:
        if name != "close":
            raise OSError(number, os.strerror(number), args[0] if isinstance(args[0], str) else None)
    return fail


def in_child(arena: Arena, argv: Sequence[str], calls: Calls) -> tuple[int, bytes, bytes, bool]:
    """Run orch's main in a forked child with these calls: status, output, errors, whether the n-th call was reached."""
    paths = [arena.base / "out", arena.base / "err", arena.base / "reached"]
    paths[2].unlink(missing_ok=True)
    act = calls.act

    def note_and_act(name: str, args: tuple[Any, ...]) -> Any:
        paths[2].touch()
        return act(name, args)
    calls.act = note_and_act
    pid = os.fork()
    if pid == 0:
        try:
            for fd, path in ((1, paths[0]), (2, paths[1])):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), fd)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(arena.work)
            os.environ.clear()
            os.environ.update(arena.env)
            vars(orch)["os"] = calls
            os._exit(orch.main(list(argv)))
        except BaseException:
            traceback.print_exc(file=open(2, "w", closefd=False))  # noqa: SIM115  (the child ends here)
        finally:
            os._exit(99)
    status = wait_for(pid)
    return status, paths[0].read_bytes(), paths[1].read_bytes(), paths[2].exists()


def wait_for(pid: int, most_s: float = END_S) -> int:
    """Wait for a child, which must end; its exit status, negative for a signal."""
    end_at = time.monotonic() + most_s
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end_at:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"process {pid} hangs")
        time.sleep(0.001)


def kill_calls(arena: Arena, play: str, act: Act = die, step: int = 1) -> Figures:
    """Kill a run at its first call, at its second, and so on, until it ends before that."""
    memory, number = Memory(arena), 1
    arena.run("claude=ok")
    while True:
        told = f"{play!r}, {act.__name__} at call {number}"
        code, _, err, reached = in_child(arena, ["--json", play], Calls(str(arena.home), number, act))
        memory.torn += act is die_half_way
        memory.look(told)
        if not reached:
            assert code == 0, f"{told}: {code} {err!r}"
            break
        assert code == -signal.SIGKILL, f"{told}: {code} {err!r}"
        code, out, err = arena.run("claude=ok codex=ok")
        assert (code, out) == (0, b"42\n") and b"Traceback" not in err, f"{told}, the next run: {code} {out!r} {err!r}"
        memory.settled(told)
        number += step
    return {"calls killed": (number - 1) // step}


ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EDQUOT)


def fail_calls(arena: Arena, play: str, number: int, error: int, *, lasts: bool = False) -> tuple[bool, bytes]:
    """Have one call of a run fail, or all from there on; the answer must come.

    Whether there was such a call, and what orch said.
    """
    told = f"{play!r}, {errno.errorcode[error]} {'from' if lasts else 'at'} call {number}"
    code, out, err, reached = in_child(arena, ["--json", play], Calls(str(arena.home), number, fail_with(error), lasts=lasts))
    assert b"Traceback" not in err, f"{told}: {err.decode()}"
    if b"config.json: cannot be read" in err:              # whoever cannot read the rules does not guess
        assert code == orch.Exit.REJECTED, f"{told}: {code} {err!r}"
        return reached, err
    assert code == 0 and json.loads(out)["answer"] == "42", f"{told}: {code} {out!r} {err!r}"
    assert err.count(b"\n") <= 2, f"{told}: {err.decode()}"     # a failover and one warning
    return reached, err


def fail_all_calls(arena: Arena, play: str, errors: Sequence[int] = ERRORS, step: int = 1, *, lasts: bool = False) -> Figures:
    """Have each call of a run fail in turn, in a home where one run has been; what it left must stay."""
    count, warned, first = 0, 0, first_run(arena)
    for error in errors:
        number, reached = 1, True
        while reached:
            lay_out(arena, first if number % 2 else {})    # else the home is new as well
            reached, err = fail_calls(arena, play, number, error, lasts=lasts)
            if number % 2:
                look_after(arena, first, f"{play!r}, {errno.errorcode[error]}, call {number}, lasting: {lasts}")
            count, warned = count + reached, warned + (b"not fully recorded" in err)
            number += step
        assert arena.leftovers() == [], f"{play!r}: {arena.leftovers()}"
    return {"calls failed": count, "told as a warning": warned}


def first_run(arena: Arena) -> dict[str, bytes]:
    """The files of a home in which one run has been."""
    shutil.rmtree(arena.home, ignore_errors=True)
    arena.run("claude=ok")
    return {path.name: path.read_bytes() for path in (arena.home / "state.json", arena.home / "usage.jsonl")}


def lay_out(arena: Arena, files: Mapping[str, bytes]) -> None:
    """Make the home anew, with these files; without any, there is none."""
    shutil.rmtree(arena.home, ignore_errors=True)
    for name, data in files.items():
        arena.home.mkdir(mode=0o700, exist_ok=True)
        (arena.home / name).write_bytes(data)


def look_after(arena: Arena, first: Mapping[str, bytes], told: str) -> None:
    """After a run in which something failed: what was there before it still is, and every line of the ledger is whole."""
    ledger = (arena.home / "usage.jsonl").read_bytes()
    assert ledger.startswith(first["usage.jsonl"]), f"{told}: the ledger has lost bytes"
    assert all(map(sound_line, ledger.split(b"\n")[:-1])), f"{told}: half a line was left: {ledger[-300:]!r}"
    jobs = orch.parse_state((arena.home / "state.json").read_text())["jobs"]
    assert jobs[:1] == orch.parse_state(first["state.json"].decode())["jobs"], f"{told}: the first job has gone"


def halve_writes(arena: Arena, play: str) -> Figures:
    """Have the n-th write take half, or all from there on; nothing half stays, and nothing that was there is lost."""
    count, warned, first = 0, 0, first_run(arena)
    for lasts in (False, True):
        number, reached = 1, True
        while reached:
            lay_out(arena, first)
            told = f"{play!r}, half a write at {number}, lasting: {lasts}"
            code, out, err, reached = in_child(arena, ["--json", play], Calls(str(arena.home), number, take_half, lasts=lasts))
            assert code == 0 and json.loads(out)["answer"] == "42" and b"Traceback" not in err, f"{told}: {code} {err.decode()}"
            assert not reached or b"not fully recorded" in err, f"{told}: not told: {err.decode()}"
            look_after(arena, first, told)
            assert (arena.home / "usage.jsonl").read_bytes().endswith(b"\n"), f"{told}: half a line was left"
            if number == 1:
                assert arena.run("claude=ok")[:2] == (0, b"42\n"), f"{told}: the next run"
            count, warned, number = count + reached, warned + (b"not fully recorded" in err), number + 1
    return {"writes halved": count, "told as a warning": warned}


# === ODD FILES ===========================================================
# What else may stand where orch expects a file of its own.

KINDS: Mapping[str, Callable[[Path, Path], object]] = {
    "a folder": lambda path, _: path.mkdir(),
    "a pipe": lambda path, _: os.mkfifo(path),
    "a link to a file": lambda path, other: path.symlink_to(other),
    "a link to nothing": lambda path, other: path.symlink_to(f"{other}-not"),
    "a link to itself": lambda path, _: path.symlink_to(path.name),
    "a link to a device": lambda path, _: path.symlink_to("/dev/zero"),
    "brackets": lambda path, _: path.write_text("[" * 100_000),
    "nothing": lambda path, _: path.write_text(""),
    "a number": lambda path, _: path.write_text("7"),
    "zeros": lambda path, _: path.write_bytes(bytes(5000)),
}
PLACES = ("state.json", "usage.jsonl", "config.json", "state.lock", "usage.lock", "cache", "cache/running",
          "cache/attempts", "cache/ledger-trimmed", "cache/readiness.json", "state.json.new", "usage.jsonl.new",
          "cache/running/20260101T000000-00000000.1.json", "cache/attempts/20260101T000000-00000000.1.json")
READERS = (["status"], ["usage"], ["jobs"], ["agents"], ["explain", "--task", "2026"], ["config"], ["cooldown", "list"],
           ["cooldown", "clear", "--all"], ["cooldown", "set", "claude", "1s"], ["wait", "--max", "1"], ["-n", "x"], ["init"])


def odd_file(arena: Arena, kind: str, place: str, readers: Sequence[Sequence[str]] = READERS) -> int:
    """Put something odd in place of a file: a run answers, commands end well, and no link is followed for writing."""
    precious = arena.base / "precious"
    for argv in (["claude=fail codex=ok"], *readers):
        told = f"{kind} as {place}, orch {' '.join(argv)}"
        precious.write_text("precious\n")
        shutil.rmtree(arena.home, ignore_errors=True)
        path = arena.home / place
        path.parent.mkdir(parents=True)
        KINDS[kind](path, precious)
        code, out, err, _ = in_child(arena, argv, Calls("/nowhere", 0, die))
        assert code in STATUSES and b"Traceback" not in err, f"{told}: {code} {err.decode()}"
        most = 2 + (len(orch.AGENTS) + 2) * (argv[0] == "init")    # a failover and one warning; init tells of each agent
        assert err.count(b"\n") <= most, f"{told}: {err.decode()}"
        if "=" in argv[0] and place != "config.json":
            assert (code, out) == (0, b"42\n"), f"{told}: {code} {err.decode()}"
        assert precious.read_text() == "precious\n" and not Path(f"{precious}-not").exists(), f"{told}: link followed"
    return 1 + len(readers)


# === MEMORY AND TIME =====================================================

class Cost(NamedTuple):
    """What a process took."""
    peak_bytes: int                                        # the most memory that it had
    spent_s: float                                         # processor time
    reads: int                                             # calls of read()
    read_bytes: int


def watch_cost(process: subprocess.Popen[bytes], every_s: float = 0.002) -> Cost:
    """Wait for a process to end; what it took by itself.

    `rusage` will not do: memory starts with the size of the process that forked, and all takes in the children.
    """
    cost, folder, tick_s = Cost(0, 0, 0, 0), f"/proc/{process.pid}", 1 / os.sysconf("SC_CLK_TCK")
    while process.poll() is None:
        with contextlib.suppress(OSError, IndexError):
            status, stat, io = (Path(folder, name).read_text() for name in ("status", "stat", "io"))
            peaks = [int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM")]
            ticks, counts = map(int, stat.rpartition(")")[2].split()[11:13]), io.split()
            now = Cost(max(peaks, default=0), sum(ticks) * tick_s, int(counts[5]), int(counts[1]))
            cost = now._replace(peak_bytes=max(cost.peak_bytes, now.peak_bytes))
        time.sleep(every_s)
    return cost


PUT = """
import json, os, sys
def put(fd, data):
    data = memoryview(data)
    while data:
        data = data[os.write(fd, data[:1 << 20]):]
MB, size, smile = 1 << 20, %d, "\\U0001F600".encode()
many = range(size >> 20)
def event(**fields):
    put(1, json.dumps(fields).encode() + b"\\n")
"""
DONE = "event(type='result', subtype='success', is_error=False, result='42', session_id='s', usage={})\n"
# name -> agent, what it does; `mine` prints text, the others their machine formats
FLOODS: Mapping[str, tuple[str, str]] = {
    "nothing": ("claude", DONE),
    "text": ("mine", "for _ in many: put(1, b'x' * MB)"),
    "short lines on both streams": ("claude", f"for _ in many: put(1, b'x\\n' * (MB // 2)); put(2, b'y\\n' * (MB // 2))\n{DONE}"),
    "wide characters": ("mine", "for _ in many: put(1, smile * (MB // 4))"),
    "a wide character among narrow ones": ("mine", "for _ in many: put(1, smile + b'x' * MB); put(2, smile + b'y' * MB)"),
    "a failure after both": ("mine", "for _ in many: put(1, smile + b'x\\n' * (MB // 2)); put(2, smile + b'y\\n' * MB)\nsys.exit(1)"),
    "bytes that are no text": ("mine", "for _ in many: put(1, b'\\xff' * MB)"),
    "one long line": ("claude", f"for _ in many: put(1, b'x' * MB)\nput(1, b'\\n')\n{DONE}"),
    "a line of lists": ("claude", f"put(1, b'{{\"type\": [' + b'[],' * 2600000 + b'[]]}}\\n')\n{DONE}"),
    "a line of names": ("claude", "put(1, b'{' + b','.join(b'\"%d\":{}' % i for i in range(600000)) + b'}\\n')\n" + DONE),
    "a line of brackets": ("claude", f"put(1, b'{{\"type\":' + b'[' * 7000000 + b'\\n')\n{DONE}"),
    "a long answer": ("claude", "event(type='result', subtype='success', is_error=False, result='y' * 7 * MB)"),
    "long messages of codex": ("codex", "for i in many: event(type='item.completed', item=dict(id=str(i), type='agent_message', text='z' * MB))"),
    "long messages of opencode": ("opencode", "for i in many: event(type='text', part=dict(id=str(i), text='z' * MB))"),
    "long messages of gemini": ("gemini", "for i in many: event(type='message', role='assistant', content='z' * MB, delta=True)"),
    "long messages of copilot": ("copilot", "for i in many: event(type='assistant.message', data=dict(messageId=str(i), content='z' * MB))"),
    "many events": ("claude", "for i in range(size >> 9): event(type='assistant', session_id=str(i), message=dict(id=str(i), content=[dict(type='text', text='z' * 400)]))\n" + DONE),
    "many refusals": ("claude", "event(type='result', subtype='success', is_error=False, result='42', permission_denials=[dict(tool_name=str(i)) for i in range(50000)])"),
}


def flood(arena: Arena, name: str, size: int, *options: str) -> Figures:
    """Let an agent write `size` bytes and more of what the name says; the memory and the time that orch took."""
    agent, body = FLOODS[name]
    arena.agent(agent, f"#!{os.path.realpath(sys.executable)} -IS\n{PUT % size}\n{body}\n")
    config = {"order": [agent], "agents": {"mine": {"command": ["mine"], "output": "text"}}, "roles": {"worker": {}}}
    arena.home.mkdir(exist_ok=True)
    (arena.home / "config.json").write_text(json.dumps(config))
    begun = time.monotonic()
    with open(arena.base / "out", "wb") as out, open(arena.base / "err", "wb") as err:
        process = arena.start("--json", "-a", agent, *options, "hi", stdout=out, stderr=err)
        cost = watch_cost(process)
    told = (arena.base / "err").read_bytes()
    assert process.returncode in STATUSES and b"Traceback" not in told, f"{name}: {process.returncode} {told.decode()}"
    answer = json.loads((arena.base / "out").read_bytes())["answer"]
    assert answer == "42" or DONE not in body, f"{name}: {answer!r:.100}"
    return {"flood": name, "peak MB": round(cost.peak_bytes / (1 << 20), 1), "processor s": round(cost.spent_s, 1),
            "seconds": round(time.monotonic() - begun, 1)}


# === DAMAGED HOMES =======================================================

def fuzz_home(arena: Arena, seed: int, count: int, end_at: float = float("inf")) -> Figures:
    """Give each command a home whose files are damaged; it ends with a documented status and without a traceback."""
    done = 0
    while done < count and time.monotonic() < end_at:
        batch = range(done, min(done + 100, count))        # a process for so many: main leaves its pipe open
        pid = os.fork()
        if pid == 0:
            os._exit(_fuzz_batch(arena, seed, batch))
        assert wait_for(pid) == 0, (arena.base / "finding").read_text()
        done = batch.stop
    return {"parser": "commands on damaged homes", "inputs": done}


def _fuzz_batch(arena: Arena, seed: int, numbers: range) -> int:
    found = "the process ended"
    try:
        enter(arena)
        for number in numbers:
            rng = random.Random(f"{seed} home {number}")
            damage_home(arena, rng)
            argv = [part if part != "2026" else rng.choice(("2026", "..", "x")) for part in rng.choice(READERS)]
            for path in (arena.base / "out", arena.base / "err"):
                os.truncate(path, 0)
            found = f"seed {seed}, number {number}: orch {argv}"
            code = orch.main(argv)
            err = (arena.base / "err").read_text("utf-8", "replace")
            if code not in STATUSES or "Traceback" in err:
                found += f" ended with {code}: {err}"
                return 1
        return 0
    except BaseException:
        found += f": {traceback.format_exc()}"
        return 1
    finally:
        (arena.base / "finding").write_text(found)


def enter(arena: Arena) -> None:
    """Make this process one that was started in the arena, its outputs in files."""
    for fd, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(arena.base / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600), fd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(arena.work)
    os.environ.clear()
    os.environ.update(arena.env)


def damage_home(arena: Arena, rng: random.Random) -> None:
    """Write a home anew in which some files are damaged."""
    shutil.rmtree(arena.home, ignore_errors=True)
    samples: Mapping[str, Any] = {
        "state.json": fuzzing.STATE, "usage.jsonl": fuzzing.RECORD, "config.json": fuzzing.CONFIG,
        "cache/running/20260101T000000-00000000.1.json": {**fuzzing.NOTE, "boot": orch.boot_id()},
        "cache/attempts/20260101T000000-00000000.1.json": fuzzing.KEPT,
        "cache/readiness.json": {"claude": {"ok": True, "at": time.time()}}}
    today, tomorrow = (time.strftime("%Y-%m-%d", time.gmtime(time.time() + more_s)) for more_s in (0, 2 * 86400))
    for name, sample in samples.items():
        path = arena.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        sound = name == "config.json" or rng.random() < 0.4
        text = json.dumps(sample) if sound else fuzzing.damaged_json(rng, sample)
        text = text.replace("2026-11-30", today).replace("2026-12-02", tomorrow)
        data = (text + "\n").encode("utf-8", "surrogatepass")
        path.write_bytes(data if sound or rng.random() < 0.7 else fuzzing.damaged_bytes(rng, data))
    if rng.random() < 0.5:
        (arena.home / "config.json").unlink()


# === CROWDS ==============================================================

def crowd(arena: Arena, seed: int, count: int) -> Figures:
    """Start `count` processes of every kind on one home at once: nothing is lost, doubled, torn or left behind."""
    rng = random.Random(seed)
    kinds = [["claude=ok", "--json"], ["claude=fail codex=ok", "--json"], ["-a", "codex", "codex=ok", "--json"], ["claude=slow", "--json"],
             ["cooldown", "set", "opencode", "1h"], ["cooldown", "clear", "--all"], ["usage", "--json"], ["status", "--json"],
             ["jobs", "--json"], ["cooldown", "list", "--json"]]
    arena.home.mkdir(mode=0o700, exist_ok=True)
    old = {**fuzzing.RECORD, "at": "2020-01-01T00:00:00Z", "task_id": "ancient"}
    (arena.home / "usage.jsonl").write_text((json.dumps(old) + "\n") * 20)    # there is something to trim
    slowest = 0.0
    started = [(argv, time.monotonic(), arena.start(*argv)) for argv in [kinds[0], *(rng.choice(kinds) for _ in range(count - 1))]]
    tasks = []
    for argv, began, process in started:
        told = f"seed {seed}, orch {argv}"
        out, err = process.communicate(timeout=END_S * 2)
        slowest = max(slowest, time.monotonic() - began)
        assert process.returncode == 0 and b"Traceback" not in err, f"{told}: {process.returncode} {err.decode()}"
        # also: no reader saw half a line, which `usage` would call corrupt
        assert b"locked by" not in err and b"corrupt" not in err, f"{told}: {err.decode()}"
        value = json.loads(out or b"null")
        if "--json" in argv and "=" in "".join(argv[:3]):
            tasks.append(value["task_id"])
    lines = Counter(json.loads(line)["task_id"] for line in (arena.home / "usage.jsonl").read_text().splitlines())
    lines.pop("ancient", None)
    called = Counter(call.partition(".")[0] for call in arena.calls())
    assert lines == called and set(called) == set(tasks), f"seed {seed}: lines {lines}, calls {called}, tasks {tasks}"
    jobs = [job["id"] for job in orch.parse_state((arena.home / "state.json").read_text())["jobs"]]
    wanted = min(len(tasks), orch.KEEP_JOBS)
    assert len(jobs) == len(set(jobs)) == wanted and set(jobs) <= set(tasks), f"seed {seed}: jobs {jobs}"
    assert os.listdir(arena.home / "cache" / "running") == [], f"seed {seed}: notes stay"
    assert [name for name in os.listdir(arena.home) if name.endswith(".new") or "corrupt" in name] == [], f"seed {seed}"
    return {"processes at once": count, "runs": len(tasks), "attempts": sum(lines.values()), "slowest s": round(slowest, 1)}


def hammer(arena: Arena, processes: int, rounds: int) -> Figures:
    """Many processes that only write, beside two that only read and two that only trim: the longest wait for a lock.

    A record's time is its round, and what is older than half of the newest one's may go, so that there is always
    something to drop: the second half of the rounds must all be there.
    """
    arena.home.mkdir(mode=0o700, exist_ok=True)
    stop, begun = orch.Stop(), time.monotonic()
    world = orch.make_world(arena.env, str(arena.work), stop)
    writers, readers = [], []
    for number in range(processes):
        pid = os.fork()
        if pid == 0:
            os._exit(_write_on(arena, world, number, rounds))
        writers.append(pid)
    for number, act in enumerate((_read_on, _read_on, _trim_on, _trim_on)):
        pid = os.fork()
        if pid == 0:
            os._exit(act(arena, world, number, rounds))
        readers.append(pid)
    failed = [pid for pid in writers if wait_for(pid, END_S * 2) != 0]
    all_s = time.monotonic() - begun
    for pid in readers:
        os.kill(pid, signal.SIGTERM)
    failed += [pid for pid in readers if wait_for(pid) not in (0, -signal.SIGTERM)]
    stop.close()
    assert not failed, "\n".join(path.read_text() for path in arena.base.glob("hammer-*") if "Error" in path.read_text())
    waits = [float(path.read_text()) for path in arena.base.glob("hammer-*")]
    records = [json.loads(line) for line in (arena.home / "usage.jsonl").read_text().splitlines()]
    assert all(record["pad"] == "x" * record["pad_chars"] for record in records), "bytes lost"
    there = Counter(record["task_id"] for record in records)
    kept = [f"{number}.{one}" for number in range(processes) for one in range(rounds // 2, rounds)]
    assert set(there.values()) == {1} and there.keys() >= set(kept), f"lost {set(kept) - there.keys()} or doubled {there.most_common(3)}"
    trims = sum(int(path.read_text()) for path in arena.base.glob("trims-?"))
    counts = orch.parse_state((arena.home / "state.json").read_text())["limit_counts"]
    assert sum(counts.values()) == processes * rounds, f"changes of the state lost: {counts}"
    return {"writers": processes, "writes": 2 * processes * rounds, "trims": trims, "all of it ms": round(all_s * 1000), "worst wait ms": round(max(waits) * 1000), "of allowed ms": orch.LOCK_WAIT_S * 1000}


def _write_on(arena: Arena, world: orch.World, number: int, rounds: int) -> int:
    told, worst = arena.base / f"hammer-{number}", 0.0

    def change(state: dict[str, Any]) -> dict[str, Any]:
        counts = state["limit_counts"]
        key = str(number * rounds // 90 + rng.randrange(100))
        while counts.get(key, 0) >= 98:  # a state file takes no larger count
            key = str(int(key) + 100)
        return {**state, "limit_counts": {**counts, key: counts.get(key, 0) + 1}}
    rng = random.Random(number)
    try:
        for one in range(rounds):
            begun = time.monotonic()
            chars = rng.randrange(9000)
            orch.append_ledger(world, {"at": orch.render_time(one), "task_id": f"{number}.{one}", "pad": "x" * chars, "pad_chars": chars})
            between = time.monotonic()
            warning = orch.update_state(world, change)
            assert warning is None, warning
            worst = max(worst, between - begun, time.monotonic() - between)
        told.write_text(str(worst))
        return 0
    except BaseException:
        told.write_text(traceback.format_exc())
        return 1


def _read_on(arena: Arena, world: orch.World, number: int, rounds: int) -> int:
    """Read until TERM comes: never half a file, never half a line, never less than before."""
    seen, since = 0, orch.render_time(rounds // 2) or ""
    try:
        while True:
            _, warning = orch.read_state(world)
            assert warning is None, warning
            records = list(orch.read_ledger(world))
            assert None not in records, "half a line"
            kept = sum(record["at"] >= since for record in records if record)
            assert kept >= seen, "less than before"
            seen = kept
    except BaseException:
        (arena.base / f"hammer-reader-{number}").write_text(traceback.format_exc())
        return 1


def _trim_on(arena: Arena, world: orch.World, number: int, rounds: int) -> int:
    """Trim until TERM comes, each time what is older than half of the newest record's time."""
    told, count = arena.base / f"trims-{number}", 0
    told.write_text("0")
    try:
        while True:
            newest_at = max((orch.parse_time(record["at"]) or 0 for record in orch.read_ledger(world) if record), default=0)
            oldest_at = newest_at // 2
            with contextlib.suppress(FileNotFoundError):
                os.utime(arena.home / "cache" / "ledger-trimmed", (0, 0))    # it is time again
            before = orch.open_ledger(world)
            orch.trim_ledger(orch.replaced(world, now=lambda at=oldest_at: at + 86400), 1)
            after = orch.open_ledger(world)
            count += not os.path.samestat(os.fstat(before.fileno()), os.fstat(after.fileno()))
            before.close()
            after.close()
            (arena.base / f"trims-{number}.new").write_text(str(count))
            (arena.base / f"trims-{number}.new").replace(told)
    except BaseException:
        (arena.base / f"hammer-trimmer-{number}").write_text(traceback.format_exc())
        return 1


# === THE RUN =============================================================
# Every attack in turn, each with its share of the time; a table of figures at the end.

@contextlib.contextmanager
def arena_for(program: Path, *, repo: bool = True) -> Iterator[Arena]:
    """An arena in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        one = Arena(Path(folder) / "arena", program, repo=repo)
        try:
            yield one
        finally:
            one.close()


def kills(program: Path, seed: int, end_at: float) -> Iterator[Figures]:
    """KILL at random moments, then at every call."""
    with arena_for(program) as arena, load(os.cpu_count() or 2):
        yield kill_runs(arena, seed, 10 ** 6, end_at)
    for play in PLAYS[:3]:
        for act in (die, die_half_way):
            with arena_for(program) as arena:
                yield {"play": play, "how": act.__name__, **kill_calls(arena, play, act)}


def errors(program: Path, seed: int, end_at: float) -> Iterator[Figures]:
    """Errors from every call, lasting ones, halved writes; odd files in every place."""
    with arena_for(program, repo=False) as arena:          # every kind in every place, whatever the time
        count = sum(odd_file(arena, kind, place, READERS[:1]) for kind in KINDS for place in PLACES)
        yield {"kinds": len(KINDS), "places": len(PLACES), "commands run": count}
    for play in PLAYS[:3]:
        with arena_for(program, repo=False) as arena:
            step = 1 if time.monotonic() < end_at else 7
            yield {"play": play, **halve_writes(arena, play)}
            yield {"play": play, **fail_all_calls(arena, play, step=step)}
            yield {"play": play, "lasting": True, **fail_all_calls(arena, play, step=step + 2, lasts=True)}
    with arena_for(program, repo=False) as arena:
        count = sum(odd_file(arena, kind, place) for kind in KINDS for place in PLACES if time.monotonic() < end_at)
        yield {"kinds": len(KINDS), "places": len(PLACES), "more commands run": count}


def crowds(program: Path, seed: int, end_at: float) -> Iterator[Figures]:
    """Crowds until the time is up, then the hammer."""
    number = 0
    while number < 1 or time.monotonic() < end_at:
        with arena_for(program) as arena:
            figures = crowd(arena, seed + number, 64)
        number += 1
    yield {"crowds": number, **figures}
    with arena_for(program) as arena:
        yield hammer(arena, 64, 20)


def floods(program: Path, seed: int, end_at: float) -> Iterator[Figures]:
    """Every flood: a gigabyte where there is time for it."""
    for name in FLOODS:
        with arena_for(program, repo=False) as arena:
            yield flood(arena, name, (1 << 30) if time.monotonic() < end_at else (100 << 20))


FUZZED = 100_000


def damage(program: Path, seed: int, end_at: float) -> Iterator[Figures]:
    """At least 100,000 inputs, in equal parts, and damaged homes for a while."""
    each = -(-FUZZED // len(fuzzing.TARGETS))
    for name in fuzzing.TARGETS:
        yield fuzzing.fuzz(name, seed, each)
    with arena_for(program, repo=False) as arena:
        yield fuzz_home(arena, seed, 10 ** 6, max(end_at, time.monotonic() + 5))


# attack -> its share of the time
ATTACKS: Mapping[Callable[[Path, int, float], Iterator[Figures]], float] = {
    kills: 0.25, errors: 0.15, crowds: 0.1, floods: 0.15, damage: 0.35}


def main(argv: Sequence[str] | None = None) -> int:
    """Attack for about as long as asked, and print what came of it."""
    parser = argparse.ArgumentParser(description="Try to break orch.", allow_abbrev=False)
    parser.add_argument("program", nargs="?", default="dist/orch", help="the built program (default: dist/orch)")
    parser.add_argument("--seconds", type=float, default=600, help="about how long (default: 600); some attacks need their minimum")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10 ** 6, help="repeat a run (default: by the clock)")
    parser.add_argument("--only", choices=[attack.__name__ for attack in ATTACKS], help="one kind of attack")
    given = parser.parse_args(argv)
    print(f"seed {given.seed}, {given.seconds:.0f} s, Python {sys.version.split()[0]}, {os.cpu_count()} cores", flush=True)
    failed = 0
    chosen = [attack for attack in ATTACKS if given.only in (None, attack.__name__)]
    for attack in chosen:
        begun = time.monotonic()
        share = given.seconds * (1 if given.only else ATTACKS[attack])
        print(f"\n{attack.__name__}: {attack.__doc__}", flush=True)
        try:
            for figures in attack(Path(given.program).resolve(), given.seed, begun + share):
                print("  " + ", ".join(f"{name}: {figure}" for name, figure in figures.items()), flush=True)
        except AssertionError as err:
            failed += 1
            print(f"  BROKEN: {err}", flush=True)
        print(f"  ({time.monotonic() - begun:.0f} s)", flush=True)
    print(f"\nseed {given.seed}: {failed or 'nothing'} broken")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
