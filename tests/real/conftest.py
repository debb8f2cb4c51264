"""What the tests of the real agents share. They run only under `make test-real` (run.py), never by accident.

    def test_answer(real):
        play = real.log_in("claude-plan", "usage_limit")       # Claude Code meets a limit
        assert real.ask("claude").code == 75

Everything runs in a network namespace with the loopback device alone, in an environment made from
nothing, with a HOME of its own for each test.
"""
from __future__ import annotations

import concurrent.futures
import json
import os
import uuid
from pathlib import Path

import pytest
from conftest import Orch, git  # tests/conftest.py

from .agents import QUIET, log_in
from .models import Models

FOLDER = os.environ.get("ORCH_REAL_AGENTS")      # set by run.py: where the agents are installed
if not FOLDER:
    collect_ignore_glob = ["*"]

ZONE = "Asia/Kolkata" if os.path.exists("/usr/share/zoneinfo/Asia/Kolkata") else "UTC"    # half an hour off, no summer time
TIMEOUT_S = 150
AT_ONCE = 3              # rows of the matrix, on two cores
PROVEN = pytest.StashKey()


# === RUNS ================================================================

class RealOrch(Orch):
    """The built program with the real agents on its PATH."""

    def __init__(self, program, base, python_dir, models):
        super().__init__(program, base, f"{FOLDER}/bin:{python_dir}:/usr/bin:/bin")
        self.models = models
        (base / "tmp").mkdir()
        (self.user_home / ".cache").mkdir()
        (self.user_home / ".cache" / "copilot").symlink_to(f"{FOLDER}/home/.cache/copilot")    # see install.py
        self.env.update(TMPDIR=str(base / "tmp"), TZ=ZONE, TERM="xterm", IS_SANDBOX="1", **QUIET)    # IS_SANDBOX: claude as root
        self.configure({"limit_grace": "3s"})

    def log_in(self, login, *steps, patient=False, reset_in_s=7200):
        """Let the agent of `login` meet these steps; returns the play."""
        play = self.models.play(*steps, reset_in_s=reset_in_s)
        self.env.update(log_in(login, self.user_home, play.url, patient))
        return play

    def ask(self, agent, *args, prompt="say hello", **how):
        """Run one agent, and take the result object."""
        return self("--json", "--no-failover", "--agent", agent, "--timeout", f"{TIMEOUT_S - 30}s", *args, "--", prompt,
                    timeout=TIMEOUT_S, **how)


def survivors(mark):
    """{pid: command line} of the processes whose command line or environment holds `mark`, whoever's child they are."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                words, environment = ((entry / name).read_bytes() for name in ("cmdline", "environ"))
                if mark.encode() in words or mark.encode() in environment:
                    found[int(entry.name)] = words.replace(b"\0", b" ").decode(errors="replace")[:200]
        except OSError:
            continue
    return found


def strings(value):
    """Every string in a JSON value."""
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(part)


def told(request, text):
    """Whether an agent's request holds `text`, whole and unchanged."""
    return any(text in string for string in strings(request.body))


@pytest.fixture(scope="session")
def models():
    """The pretend model server."""
    with Models() as server:
        yield server


@pytest.fixture(scope="session")
def program(request):
    """The program under test: dist/orch, or what run.py was given."""
    return Path(os.environ.get("ORCH_REAL_PROGRAM") or request.getfixturevalue("built"))


@pytest.fixture(scope="session")
def new_real(program, python_dir, models, tmp_path_factory):
    """Make a RealOrch in a folder of its own."""
    return lambda: RealOrch(program, tmp_path_factory.mktemp("real"), python_dir, models)


@pytest.fixture(scope="session", autouse=True)
def played(request, new_real):
    """{row: future} of the matrix's rows that this session tests; they are played beside the other tests."""
    rows = {item.callspec.params["row"] for item in request.session.items if "row" in getattr(item, "fixturenames", ())}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {row: pool.submit(row.play, new_real()) for row in sorted(rows, key=lambda row: row.order())}
        yield futures
        for future in futures.values():
            future.cancel()


def pytest_collection_modifyitems(items):
    """Put the matrix last."""
    items.sort(key=lambda item: "row" in getattr(item, "fixturenames", ()))


@pytest.fixture
def real(new_real):
    """orch with real agents; what a test leaves running is stopped."""
    one = new_real()
    yield one
    one.stop_leftovers()


@pytest.fixture
def committed(real):
    """The working directory as a repository with one commit (old.txt)."""
    git("init", "-q", cwd=real.work)
    (real.work / "old.txt").write_text("committed\n")
    git("add", ".", cwd=real.work)
    git("commit", "-q", "-m", "first", cwd=real.work)
    return real.work


@pytest.fixture
def mark():
    """A word that no other process has."""
    return f"mark{uuid.uuid4().hex}"


# === WHAT WAS PROVEN =====================================================
# `@pytest.mark.proves(column)` on a test with an `agent`, a `login` or a `row`: run.py makes a table of it.

def pytest_configure(config):
    config.addinivalue_line("markers", "proves(column): what a test of the real agents shows, for the README's table")
    config.stash[PROVEN] = []


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    shows = item.get_closest_marker("proves")
    if shows is None or not (call.when == "call" or report.failed or report.skipped):
        return
    given = item.callspec.params
    agent = (given.get("agent") or given.get("login") or given["row"].login).partition("-")[0]
    notes = [text for name, text in item.user_properties if name == "note" and text]
    item.config.stash[PROVEN].append([agent, shows.args[0], report.passed, notes])


def pytest_sessionfinish(session):
    path = os.environ.get("ORCH_REAL_RESULTS")
    if path:
        Path(path).write_text(json.dumps(session.config.stash[PROVEN]))
