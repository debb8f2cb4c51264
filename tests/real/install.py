#!/usr/bin/env python3
"""Install the agent CLIs that tests/real runs, and two MCP clients, in pinned versions, outside the repository.

    python3 tests/real/install.py        install what is missing; the last line is the folder

They go to ${XDG_CACHE_HOME:-~/.cache}/orch-test-agents/<hash of the pins>, one folder for each agent and
`bin` with a link to each, and stay there. Everything is done by npm and pip with the settings they find;
their messages are kept in logs beside the agents, since they name hosts. A client that cannot be installed
costs its own tests alone, which are skipped with the reason.
"""
from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

# agent: (package, version). The agent's name is also that of its program.
PINS = {
    "claude": ("@anthropic-ai/claude-code", "2.1.197"),
    "codex": ("@openai/codex", "0.171.0"),
    "opencode": ("opencode-ai", "1.18.33"),
    "gemini": ("@google/gemini-cli", "0.61.0"),
    "copilot": ("@github/copilot", "1.0.102"),
}
# MCP client: (package, version); folders of their own beside the agents
CLIENTS = {
    "python-sdk": ("mcp", "2.3.0"),                                # from PyPI, for Python 3.10 and newer
    "inspector": ("@modelcontextprotocol/inspector", "2.12.0"),    # from npm
}
NEEDED_MB = 2000    # about 1,350 once installed, and what npm keeps while it unpacks

FAILED, NO_NPM, NO_REGISTRY = 1, 3, 4    # exit statuses; the last two are reasons to skip
UNREACHABLE = r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ERR_SOCKET_TIMEOUT|E40[137]|E5\d\d)\b"


class NotInstalled(Exception):
    """Why there are no agents to test: a sentence, and the exit status for it."""

    def __init__(self, reason: str, status: int):
        super().__init__(reason)
        self.status = status


def install() -> Path:
    """Return the folder that holds every pinned agent, after installing what is missing."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:    # two at once would unpack the same twice
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [agent for agent in PINS if not (folder / agent).is_dir()]
        _check_means(folder, missing)
        if missing:
            began = time.monotonic()
            _say(f"installing {len(missing)} agent CLIs (about 1.3 GB, about a minute) in {folder}")
            for agent in missing:
                _install_one(agent, folder)
            _say(f"installed {_size_mb(folder)} MB in {time.monotonic() - began:.0f} s")
        _link_programs(folder)
        _unpack_copilot(folder)
        for client in CLIENTS:
            _install_client(client, folder)
    return folder


def client_folder(client: str, folder: Path) -> Path:
    """Return where an MCP client is kept; where it could not be installed, `why_no_client` says why."""
    return folder / f"{client}-{CLIENTS[client][1]}"


def why_no_client(client: str, folder: Path) -> str | None:
    """Return why a client is not there, or None."""
    if client_folder(client, folder).is_dir():
        return None
    reason = folder / f"{client}.why"
    return reason.read_text() if reason.exists() else f"{client} is not installed"


def _install_client(client: str, folder: Path) -> None:
    """Unpack one client as an agent is, or note why that cannot be done."""
    package, version = CLIENTS[client]
    place, half_made, log = client_folder(client, folder), folder / f"{client}.partial", folder / f"{client}.log"
    if place.is_dir():
        return
    shutil.rmtree(half_made, ignore_errors=True)
    python = _newer_python()
    if client == "python-sdk" and python is None:
        (folder / f"{client}.why").write_text("the Python SDK needs Python 3.10 or newer")
        return
    steps = [[str(python), "-m", "venv", str(half_made)],
             [str(half_made / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{package}=={version}"]]
    if client != "python-sdk":
        half_made.mkdir()
        (half_made / "package.json").write_text("{}\n")
        steps = [["npm", "install", "--prefix", str(half_made), "--no-audit", "--no-fund", "--no-update-notifier", "--fetch-retries=1",
                  f"{package}@{version}"]]
    _say(f"installing {client} {version}")
    with log.open("wb") as out:
        for argv in steps:
            if shutil.which(argv[0]) is None or subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False).returncode:
                (folder / f"{client}.why").write_text(f"{package} {version} could not be installed; see {log}")
                _say(f"{client} could not be installed; see {log}")
                return
    half_made.rename(place)


def _newer_python() -> str | None:
    """Return a Python that the SDK runs on: the one at work, else another on the PATH."""
    if sys.version_info >= (3, 10):
        return sys.executable
    return next(filter(None, (shutil.which(f"python3.{minor}") for minor in range(14, 9, -1))), None)


def cache_folder() -> Path:
    """Return where this machine keeps exactly these versions."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    pins = repr((sorted(PINS.items()), platform.system(), platform.machine()))
    return base / "orch-test-agents" / hashlib.sha256(pins.encode()).hexdigest()[:12]


def _check_means(folder: Path, missing: list[str]) -> None:
    for program in ("node", "npm") if missing else ("node",):
        if shutil.which(program) is None:
            raise NotInstalled(f"{program} is not installed, and the agent CLIs come with npm", NO_NPM)
    free_mb = shutil.disk_usage(folder).free >> 20
    if missing and free_mb < NEEDED_MB:
        raise NotInstalled(f"{folder} has {free_mb} MB free, and {NEEDED_MB} are needed", FAILED)


def _install_one(agent: str, folder: Path) -> None:
    """Unpack one agent beside its place and rename it, so that a half-made one is never taken for whole."""
    package, version = PINS[agent]
    half_made, log = folder / f"{agent}.partial", folder / f"{agent}.log"
    shutil.rmtree(half_made, ignore_errors=True)
    half_made.mkdir()
    (half_made / "package.json").write_text("{}\n")
    argv = ["npm", "install", "--prefix", str(half_made), "--no-audit", "--no-fund", "--no-update-notifier",
            "--save-exact", "--fetch-retries=1", f"{package}@{version}"]
    with log.open("wb") as out:
        npm = subprocess.Popen(argv, cwd=half_made, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        _show_progress(npm, agent, version, half_made)
    if npm.returncode or not (half_made / "node_modules" / ".bin" / agent).exists():
        raise _failure(agent, log)
    half_made.rename(folder / agent)


def _failure(agent: str, log: Path) -> NotInstalled:
    unreachable = re.search(UNREACHABLE, log.read_text(errors="replace"))
    if unreachable:
        return NotInstalled(f"npm cannot reach its registry, or is refused there ({unreachable[0]}); see {log}", NO_REGISTRY)
    return NotInstalled(f"npm could not install {agent}; see {log}", FAILED)


def _show_progress(npm: subprocess.Popen[bytes], agent: str, version: str, folder: Path) -> None:
    """Wait for npm with one line of progress: rewritten in place on a terminal, else printed at the end."""
    began, live = time.monotonic(), sys.stderr.isatty()
    while npm.poll() is None:
        if live:
            _say(f"{agent} {version}: {_size_mb(folder)} MB, {time.monotonic() - began:.0f} s", end="\r")
        time.sleep(0.5)
    _say(f"{agent} {version}: {_size_mb(folder)} MB, {time.monotonic() - began:.1f} s")


def _link_programs(folder: Path) -> None:
    """Make `bin`: the agents, and the node that most of them ask for."""
    (folder / "bin").mkdir(exist_ok=True)
    programs = {agent: folder / agent / "node_modules" / ".bin" / agent for agent in PINS}
    for name, program in {**programs, "node": Path(shutil.which("node") or "/nonexistent")}.items():
        link = folder / "bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(program)


def _unpack_copilot(folder: Path) -> None:
    """Let Copilot CLI unpack itself once: it does so in each new HOME, 235 MB at a time; the tests link to these."""
    home = folder / "home"
    if not (home / ".cache" / "copilot").is_dir():
        subprocess.run([str(folder / "bin" / "copilot"), "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True,
                       env={"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "HOME": str(home), "COPILOT_AUTO_UPDATE": "false"})


def _size_mb(folder: Path) -> int:
    sizes = {}    # by inode: npm's scripts link the same program to several names
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(parent, name))
            except OSError:
                continue    # npm moves files while they are counted
            sizes[status.st_ino] = status.st_size
    return sum(sizes.values()) >> 20


def _say(text: str, end: str = "\n") -> None:
    erase = "\033[K" if sys.stderr.isatty() else ""
    print(f"test-real: {text}{erase}", end=end, file=sys.stderr, flush=True)


def main() -> int:
    try:
        print(install())
    except NotInstalled as why:
        _say(str(why))
        return why.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
