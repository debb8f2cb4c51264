#!/usr/bin/env python3
"""Prove orch on the real agent CLIs, offline: what `make test-real` runs.

    python3 tests/real/run.py [--table FILE] [--program FILE] [--require] [PYTEST ARGUMENT...]

Installs the pinned CLIs where they are missing, then runs pytest on this folder inside a network
namespace in which only the loopback device is up. Where that is not possible, it says why and ends
with 0, or with 1 under --require.
"""
from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from real.install import NO_NPM, NO_REGISTRY, PINS, NotInstalled, install  # noqa: E402

INSIDE = "--inside"                 # the first argument of this program once it is in the namespace
COLUMNS = ("answers, tokens", "limits", "other failures", "takes over", "`read` changes nothing", "`edit` stays inside",
           "`full`, in a git hook", "any prompt", "stops", "flags", "calls orch as a tool")


def main() -> int:
    """Install, enter a namespace, run the tests, write the table."""
    if sys.argv[1:2] == [INSIDE]:
        return run_inside(sys.argv[2:])
    options, rest = _parser().parse_known_args()
    why_not = missing_means()
    if why_not:
        return _skip(why_not, options.require)
    try:
        folder = install()
    except NotInstalled as why:
        return _skip(str(why), options.require) if why.status in (NO_NPM, NO_REGISTRY) else _fail(str(why))
    with tempfile.TemporaryDirectory(prefix="orch-real-", dir="/var/tmp") as scratch:    # some sandboxes let agents write in /tmp
        results = Path(scratch, "results.json")
        env = {**os.environ, "ORCH_REAL_AGENTS": str(folder), "ORCH_REAL_RESULTS": str(results)}
        if options.program:
            env["ORCH_REAL_PROGRAM"] = os.path.abspath(options.program)
        began = time.monotonic()
        argv = [*namespace(), sys.executable, __file__, INSIDE, "--basetemp", f"{scratch}/tests", *rest]
        status = subprocess.run(argv, env=env, cwd=HERE.parent.parent, check=False).returncode
        _say(f"took {time.monotonic() - began:.0f} s")
        if options.table and results.exists():
            Path(options.table).write_text(render_table(json.loads(results.read_text())))
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Prove orch on the real agent CLIs, offline.", allow_abbrev=False)
    parser.add_argument("--table", metavar="FILE", help="write a Markdown table of what was proven")
    parser.add_argument("--program", metavar="FILE", help="test this orch instead of dist/orch")
    parser.add_argument("--require", action="store_true", help="fail where the tests cannot run")
    return parser


def namespace() -> list[str]:
    """Return the command that starts another in a network namespace of its own."""
    return ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]


def missing_means() -> str | None:
    """Why the tests cannot run here, or None."""
    if shutil.which("unshare") is None:
        return "there is no unshare here, and without a network namespace something could leave this machine"
    made = subprocess.run([*namespace(), "true"], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespace can be made here ({made.stderr.strip()})"
    return None


def run_inside(pytest_arguments: list[str]) -> int:
    """Bring up the loopback device, make sure that it is alone, and run pytest."""
    set_loopback_up()
    others = [name for _, name in socket.if_nameindex() if name != "lo" and _is_up(name)]
    if others:
        return _fail(f"not alone: {', '.join(others)}")
    argv = [sys.executable, "-m", "pytest", str(HERE), "-p", "no:cacheprovider", *pytest_arguments]
    os.execv(sys.executable, argv)


def set_loopback_up() -> None:
    """`ip link set lo up`, without ip: SIOCSIFFLAGS with IFF_UP and IFF_RUNNING."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))


def _is_up(name: str) -> bool:
    return bool(int(Path(f"/sys/class/net/{name}/flags").read_text(), 16) & 1) if Path(f"/sys/class/net/{name}").exists() else False


def render_table(proven: list[tuple[str, str, bool, list[str]]]) -> str:
    """Return the Markdown table: one row for each agent, one column for each thing that tests show.

    >>> print(render_table([("claude", "limits", True, []), ("claude", "limits", True, ["no time"])]), end="")
    | agent | version | limits |
    |---|---|---|
    | claude | 2.1.197 | yes (2): no time |
    """
    columns = [column for column in COLUMNS if any(column == row[1] for row in proven)]
    lines = [["agent", "version", *columns], ["---"] * (2 + len(columns))]
    for agent in [name for name in PINS if any(name == row[0] for row in proven)]:
        cells = [[row for row in proven if row[:2] in ((agent, column), [agent, column])] for column in columns]
        lines.append([agent, PINS[agent][1], *map(_cell, cells)])
    return "".join(f"| {' | '.join(cells)} |\n" if cells[0] != "---" else "|---" * len(cells) + "|\n" for cells in lines)


def _cell(rows: list[tuple[str, str, bool, list[str]]]) -> str:
    if not rows:
        return "not tested"
    failed = sum(not passed for _, _, passed, _ in rows)
    notes = list(dict.fromkeys(note for row in rows for note in row[3]))
    return (f"{failed} of {len(rows)} failed" if failed else f"yes ({len(rows)})") + (": " + "; ".join(notes) if notes else "")


def _skip(why: str, require: bool) -> int:
    _say(f"{'not run' if require else 'skipped'}: {why}")
    return int(require)


def _fail(why: str) -> int:
    _say(why)
    return 1


def _say(text: str) -> None:
    print(f"test-real: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
