#!/usr/bin/env python3
"""Measure start-up and the cost of a run: `bench.py [PROGRAM] [ROUNDS]`.

Prints medians in milliseconds, taken in turn so that a busy machine hits all alike, and their
ratio to M: what Python needs just to import the modules that any such program needs.
"""
from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 20
AGENT = """#!/bin/sh
echo '{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"x","usage":{}}'
"""


def main(argv: list[str]) -> int:
    """Measure, print the table."""
    program = os.path.abspath(argv[1] if len(argv) > 1 else "dist/orch")
    rounds = int(argv[2]) if len(argv) > 2 else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        times = measure(cases(program), environment(Path(folder)), folder, rounds)
    middle = {name: statistics.median(values) for name, values in times.items()}
    middle["a run without its agent"] = middle["orch x"] - middle["the agent alone"]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, median of {rounds}\n")
    print(f"{'':28} {'ms':>8} {'of M':>6}")
    for name, value in middle.items():
        print(f"{name:28} {value * 1000:8.1f} {value / middle['M: the imports it needs']:6.2f}")
    return 0


def cases(program: str) -> dict[str, list[str]]:
    """Name -> command line."""
    python = ["python3", "-I", "-S", "-c"]
    return {
        "F: bare interpreter": [*python, "pass"],
        "M: the imports it needs": [*python, "import argparse, subprocess, json, fcntl"],
        "orch --version": [program, "--version"],
        "orch status": [program, "status"],
        "the agent alone": ["claude"],
        "orch x": [program, "x"],
    }


def environment(folder: Path) -> dict[str, str]:
    """Variables made from nothing, with one agent on the PATH and this Python as python3."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "python3").symlink_to(os.path.realpath(sys.executable))
    (tools / "claude").write_text(AGENT)
    (tools / "claude").chmod(0o755)
    return {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8", "TZ": "UTC"}


def measure(commands: dict[str, list[str]], env: dict[str, str], cwd: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of each command, in each round; the first round only warms up."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    os.environ["PATH"] = env["PATH"]    # where the first word of a command is looked up
    for number in range(rounds + 1):
        for name, command in commands.items():
            begun = time.perf_counter()
            subprocess.run(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=True)
            if number:
                times[name].append(time.perf_counter() - begun)
    return times


if __name__ == "__main__":
    sys.exit(main(sys.argv))
