"""`orch demo` shows a limit and a handoff with nothing installed, and leaves nothing behind."""
from __future__ import annotations

import os
import re

from conftest import one_line_error


def test_the_demo_runs_with_nothing_installed(orch):
    before = sorted(orch.base.rglob("*"))
    result = orch("demo", timeout=30)
    assert result.code == 0, result
    text = result.out + result.err
    assert "limit" in text
    assert re.search(r"\b\d\d?:\d\d\b", text)    # when the pretend limit ends
    assert "diff" in text.lower() and re.search(r"^[ |>]*\+ *\w", text, re.M)
    assert "Traceback" not in text
    assert sorted(orch.base.rglob("*")) == before
    assert orch.leftovers() == {}


def test_the_demo_needs_no_home_and_no_git(orch):
    (orch.base / "bin").mkdir()
    for name in ("sh", "env"):
        os.symlink(f"/bin/{name}" if name == "sh" else f"/usr/bin/{name}", orch.base / "bin" / name)
    path = os.pathsep.join([str(orch.base / "bin"), orch.env["PATH"].split(os.pathsep)[1]])
    result = orch("demo", env={"PATH": path, "HOME": "/nonexistent", "ORCH_HOME": None}, timeout=30)
    assert result.code == 0, result
    assert not os.path.exists("/nonexistent")


def test_the_demo_is_never_mistaken_for_the_users_own_state(orch):
    orch("cooldown", "set", "claude", "1h")
    before = (orch.home / "state.json").read_bytes()
    assert orch("demo", timeout=30).code == 0
    assert (orch.home / "state.json").read_bytes() == before
    assert not (orch.home / "usage.jsonl").exists()


def test_the_demo_refuses_a_word_it_does_not_know(orch):
    assert orch("demo", "please").code == 2


def test_the_demo_without_a_temporary_folder_is_refused_in_one_line(orch):
    assert "TMPDIR" in one_line_error(orch("demo", env={"TMPDIR": "/nonexistent"}))
