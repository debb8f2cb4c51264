#!/usr/bin/env python3
"""Measure what orch costs: `bench.py [PROGRAM] [--rounds N] [--only WORD] [--json FILE] [--table]`.

Every figure is a median of runs taken in turn, so that a busy machine hits all alike, and is put in
relation to what nobody can go below: F, a bare interpreter; M, an interpreter that imports the four
modules this kind of program needs; `git status`; `cat`; a bare loop of json.loads. Data is made here
and removed at the end. Nothing is judged by an absolute time.
"""
from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import pty
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

PYTHON = ["python3", "-I", "-S", "-c"]
M_IMPORTS = "import argparse, subprocess, json, fcntl"
ANSWER = ('{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"x",'
          '"usage":{"input_tokens":9,"output_tokens":3}}')
NOISY = 1.5                       # M's slowest quarter against its fastest: above, the machine is doing something else


class Bench:
    """A temporary place with fake agents, and the figures measured in it."""

    def __init__(self, program: str, folder: Path, rounds: int) -> None:
        self.program, self.folder, self.rounds = program, folder, rounds
        self.rows: list[dict[str, object]] = []
        tools = folder / "bin"
        tools.mkdir()
        (tools / "python3").symlink_to(os.path.realpath(sys.executable))
        self.env = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8", "TZ": "UTC",
                    "GIT_CONFIG_NOSYSTEM": "1"}
        os.environ["PATH"] = self.env["PATH"]    # where the first word of a command is looked up
        self.agent("claude", f"echo '{ANSWER}'")

    def agent(self, name: str, script: str) -> None:
        """Write a fake agent, a shell script."""
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, command: Sequence[str], cwd: Path | None = None, **more: str) -> float:
        """Seconds that a command takes."""
        begun = time.perf_counter()
        subprocess.run(command, env={**self.env, **more}, cwd=cwd or self.folder, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - begun

    def medians(self, commands: dict[str, Callable[[], float]], rounds: int | None = None) -> dict[str, float]:
        """Median seconds of each command, taken in turn; the first round only warms up."""
        times: dict[str, list[float]] = {name: [] for name in commands}
        for number in range((rounds or self.rounds) + 1):
            for name, measure in commands.items():
                taken = measure()
                if number:
                    times[name].append(taken)
        self.times = times
        return {name: statistics.median(values) for name, values in times.items()}

    def row(self, name: str, figure: float, unit: str, ratio: float | None, of: str, target: float | None) -> None:
        """Note and print one figure; `ratio` is to `of`, at most `target`."""
        held = None if ratio is None or target is None else ratio <= target
        self.rows.append({"name": name, "figure": round(figure, 4), "unit": unit, "of": of, "target": target,
                          "ratio": None if ratio is None else round(ratio, 3), "held": held})
        verdict = {None: "", True: "held", False: "MISSED"}[held]
        shown = "" if ratio is None else f"{ratio:6.2f} x {of}"
        print(f"{name:44} {figure:10.1f} {unit:5} {shown:24} {'' if target is None else f'<= {target:g}':8} {verdict}", flush=True)


def start_up(bench: Bench) -> None:
    """Start-up, and what orch adds to an agent."""
    orch = bench.program
    bench.agent("slow", f"sleep 0.3; echo '{ANSWER}'")
    slow_home = str(bench.folder / "slow-home")
    os.mkdir(slow_home)
    for home, name in ((bench.folder / ".orch", "claude"), (Path(slow_home), "slow")):
        agents = {name: {"command": [name], "output": "claude-stream"}}
        (home / "config.json").write_text(json.dumps({"order": [name], "agents": agents}))
    got = bench.medians({
        "F": lambda: bench.run([*PYTHON, "pass"]), "M": lambda: bench.run([*PYTHON, M_IMPORTS]),
        "orch --version": lambda: bench.run([orch, "--version"]), "orch --help": lambda: bench.run([orch, "--help"]),
        "orch status": lambda: bench.run([orch, "status"]),
        "agent": lambda: bench.run(["claude"]), "run": lambda: bench.run([orch, "x"]),
        "slow agent": lambda: bench.run(["slow"]), "slow run": lambda: bench.run([orch, "x"], ORCH_HOME=slow_home),
    })
    spread = statistics.quantiles(bench.times["M"], n=4)
    if spread[2] / spread[0] > NOISY:
        print(f"This machine is too busy to trust the figures: M varies from {spread[0] * 1000:.0f} to {spread[2] * 1000:.0f} ms.")
    floor, ms = got["M"], 1000.0
    bench.row("F: a bare interpreter", got["F"] * ms, "ms", None, "", None)
    bench.row("M: the imports that this shape needs", floor * ms, "ms", got["M"] / got["F"], "F", None)
    bench.row("orch --version", got["orch --version"] * ms, "ms", got["orch --version"] / got["F"], "F", 2)
    for name in ("orch --help", "orch status"):
        bench.row(name, got[name] * ms, "ms", got[name] / floor, "M", 1.25)
    for name, run, agent, target in (("a run, less its agent, which returns at once", "run", "agent", 1.35),
                                     ("a run, less its agent, which takes 300 ms", "slow run", "slow agent", 1.1)):
        bench.row(name, (got[run] - got[agent]) * ms, "ms", (got[run] - got[agent]) / floor, "M", target)


def repository(bench: Bench, files: int, untracked_bytes: int) -> Path:
    """A repository with so many committed files, 100 to a folder, and so much untracked data."""
    top = bench.folder / f"repo-{files}"
    for number in range(files):
        path = top / f"d{number // 100}" / f"f{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"line {number}\n" * 5)
    who = ["-c", "user.name=b", "-c", "user.email=b@example.org", "-c", "gc.auto=0"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "x"], ["gc", "-q"], ["status"]):
        bench.run(["git", *words], top)
    for number in range(-(-untracked_bytes // (8 << 20))):
        (top / f"data{number}.bin").write_bytes(os.urandom(1 << 20) * 8)
    return top


def snapshots(bench: Bench) -> None:
    """What a run costs more inside a repository, where it takes a snapshot first."""
    (bench.folder / ".orch" / "config.json").write_text('{"order": ["claude", "codex"]}')
    bench.agent("codex", "exit 1")
    for files, untracked_bytes, target, rounds in ((1_000, 0, 2.0, bench.rounds), (100_000, 1 << 30, 1.5, 5)):
        top = repository(bench, files, untracked_bytes)
        got = bench.medians({"git status": functools.partial(bench.run, ["git", "status"], top),
                             "inside": functools.partial(bench.run, [bench.program, "x"], top),
                             "outside": functools.partial(bench.run, [bench.program, "x"])}, rounds)
        more = got["inside"] - got["outside"]
        bench.row(f"git status, {files:,} files", got["git status"] * 1000, "ms", None, "", None)
        bench.row(f"a run there, less a run outside, {files:,} files", more * 1000, "ms", more / got["git status"], "git status", target)


def throughput(bench: Bench) -> None:
    """Text passed through to a terminal, and machine output parsed as it comes."""
    size = 64 << 20
    text = bench.folder / "text"
    text.write_bytes(b"a line of an answer, as long as lines are\n" * (size // 42))
    bench.agent("writer", "sleep 0.5; date +%s.%N; sleep 0.5")
    agents = {"writer": {"command": ["writer"], "output": "text"},
              "talker": {"command": ["sh", "-c", f"exec cat '{text}'"], "output": "text"}}
    (bench.folder / ".orch" / "config.json").write_text(json.dumps({"order": ["talker"], "agents": agents}))
    got = bench.medians({"cat": lambda: on_terminal(bench, ["cat", str(text)])[0],
                         "orch": lambda: on_terminal(bench, [bench.program, "-q", "x"])[0]}, 3)
    bench.row("text to a terminal", size / got["orch"] / 1e6, "MB/s", got["orch"] / got["cat"], "time of cat", 2)
    delays = []
    for _ in range(5):
        _, pieces = on_terminal(bench, [bench.program, "-q", "-a", "writer", "x"])
        delays.append(min(at for at, _ in pieces) - float(pieces[0][1].split()[0]))
    bench.row("first byte on a terminal after the agent wrote it", statistics.median(delays) * 1000, "ms",
              statistics.median(delays) / 0.02, "20 ms", 1)
    parse_json(bench)


def on_terminal(bench: Bench, command: list[str]) -> tuple[float, list[tuple[float, bytes]]]:
    """Run a command with a terminal as its standard output; seconds, and what came when."""
    ours, theirs = pty.openpty()
    pieces: list[tuple[float, bytes]] = []
    begun = time.perf_counter()
    process = subprocess.Popen(command, env=bench.env, cwd=bench.folder, stdin=subprocess.DEVNULL, stdout=theirs,
                               stderr=subprocess.DEVNULL)
    os.close(theirs)
    while True:
        try:
            data = os.read(ours, 1 << 16)
        except OSError:                  # Linux ends a terminal so
            break
        if not data:
            break
        if len(pieces) < 100:
            pieces.append((time.time(), data))
    process.wait()
    os.close(ours)
    return time.perf_counter() - begun, pieces


def parse_json(bench: Bench) -> None:
    """100 MB of events, against a bare loop of json.loads over the same lines; peak memory."""
    events = bench.folder / "events"
    event = {"type": "assistant", "message": {"content": [{"type": "text", "text": "word " * 40}], "usage": {"output_tokens": 3}}}
    line = json.dumps(event) + "\n"
    events.write_text(line * (100_000_000 // len(line)) + ANSWER + "\n")
    bench.agent("claude", f"exec cat '{events}'")
    (bench.folder / ".orch" / "config.json").write_text('{"order": ["claude"]}')
    loop = "import json, sys\nfor line in sys.stdin.buffer: json.loads(line)"
    got = bench.medians({"loop": lambda: bench.run(["sh", "-c", f"cat '{events}' | python3 -I -S -c '{loop}'"]),
                         "orch": lambda: bench.run([bench.program, "x"])}, 3)
    bench.row("100 MB of events parsed", 100 / got["orch"], "MB/s", got["orch"] / got["loop"], "time of json.loads", 2)
    bench.row("peak memory of parsing them", peak_mb(bench, [bench.program, "x"]), "MB", None, "", None)
    bench.agent("claude", f"echo '{ANSWER}'")


def peak_mb(bench: Bench, command: list[str]) -> float:
    """Peak resident memory of a command, without that of its children."""
    code = ("import os, resource, subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL); "
            "_, _, r = os.wait4(p.pid, 0); print(r.ru_maxrss)")
    done = subprocess.run([sys.executable, "-c", code, *command], env=bench.env, cwd=bench.folder, stdin=subprocess.DEVNULL,
                          capture_output=True, check=True)
    return int(done.stdout) / (1 if resource.getpagesize() and sys.platform == "darwin" else 1024)


def ledger(bench: Bench) -> None:
    """`usage` over a large ledger, and `status` as the ledger grows."""
    path = bench.folder / ".orch" / "usage.jsonl"
    loop = f"import json\nfor line in open({str(path)!r}, 'rb'): json.loads(line)"
    status = {}
    for lines in (1_000, 100_000, 1_000_000):
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(ledger_lines(lines))
        status[lines] = bench.medians({"status": lambda: bench.run([bench.program, "status"])})["status"]
        bench.row(f"orch status, ledger of {lines:,} lines", status[lines] * 1000, "ms", status[lines] / status[1_000],
                  "1,000 lines", 1.15)
    got = bench.medians({"loop": lambda: bench.run([*PYTHON, loop]), "usage": lambda: bench.run([bench.program, "usage"])}, 3)
    bench.row("orch usage, ledger of 1,000,000 lines", got["usage"], "s", got["usage"] / got["loop"], "time of json.loads", 1.3)
    peak = peak_mb(bench, [bench.program, "usage"])
    bench.row("peak memory of orch usage", peak, "MB", peak / 40, "40 MB", 1)
    path.unlink()


def ledger_lines(count: int) -> Iterator[str]:
    """So many lines, the last ones of a year ago, as a run writes them."""
    for number in range(count):
        yield json.dumps({
            "at": f"2025-{1 + number * 11 // count:02}-01T{number % 24:02}:00:00Z", "task_id": f"20250101T000000-{number:08x}",
            "agent": ("claude", "codex")[number % 2], "model": None, "outcome": "ok", "error_class": None,
            "usage": {"input_tokens": number % 900, "output_tokens": 30, "cache_read_tokens": 400, "billable": number % 900 + 30},
            "cost_usd": 0.01, "duration_ms": 1234, "prompt_chars": 40, "project": "/p", "role": None, "kind": "run"},
            separators=(",", ":")) + "\n"


def concurrent(bench: Bench) -> None:
    """64 runs at once on one home, against 64 with a home each, which share no lock."""
    def all_at_once(homes: list[str]) -> float:
        begun = time.perf_counter()
        threads = [threading.Thread(target=bench.run, args=([bench.program, "x"],), kwargs={"ORCH_HOME": home}) for home in homes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begun
    one = [str(bench.folder / "one")] * 64
    got = bench.medians({"shared": lambda: all_at_once(one),
                         "apart": lambda: all_at_once([str(bench.folder / f"home{n}") for n in range(64)])}, 5)
    bench.row("64 runs at once on one home", got["shared"] * 1000, "ms", got["shared"] / got["apart"], "a home each", 1.5)


def markdown(rows: Sequence[dict[str, object]]) -> Iterator[str]:
    """The table of the README: what has a ratio."""
    yield "| | measured | in relation | target |"
    yield "|---|---|---|---|"
    for row in rows:
        if row["ratio"] is not None:
            target = "" if row["target"] is None else f"{row['target']:g}" + ("" if row["held"] else ", missed")
            yield f"| {row['name']} | {row['figure']:.1f} {row['unit']} | {row['ratio']:.2f} × {row['of']} | {target} |"


PARTS = {"start": start_up, "ledger": ledger, "throughput": throughput, "concurrent": concurrent, "snapshots": snapshots}


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", nargs="?", default="dist/orch")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--table", action="store_true", help="end with the table for the README")
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, medians of {given.rounds} where not said otherwise\n")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(os.path.abspath(given.program), Path(folder), given.rounds)
        for name, part in PARTS.items():
            if given.only in (None, name):
                (bench.folder / ".orch").mkdir(exist_ok=True)
                part(bench)
    if given.table:
        print("\n" + "\n".join(markdown(bench.rows)))
    if given.json:
        Path(given.json).write_text(json.dumps({"python": platform.python_version(), "figures": bench.rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
