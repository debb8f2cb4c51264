"""Nothing that is wrong with the home, its files, the disk or the clock costs the answer, or is told as a traceback."""
from __future__ import annotations

import errno

import pytest
from conftest import needs_proc
from tools import torture


@pytest.fixture
def arena(built, tmp_path):
    """A world whose agents do what the prompt says: "claude=limit codex=ok"."""
    one = torture.Arena(tmp_path / "arena", built, repo=False)
    yield one
    one.close()


@needs_proc
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.ENOTDIR], ids=lambda number: errno.errorcode[number])
def test_an_error_from_any_system_call_on_a_file_of_orch_costs_one_warning(arena, error):
    assert torture.fail_all_calls(arena, "claude=ok", [error])["calls failed"] >= 25


@needs_proc
def test_an_error_during_a_failover_costs_one_warning(arena):
    assert torture.fail_all_calls(arena, "claude=fail codex=ok", [errno.EIO], step=3)["calls failed"] >= 20


@needs_proc
@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a link to a file", "a link to nothing", "a link to a device", "brackets"])
def test_whatever_stands_in_place_of_a_file_of_orch(arena, kind):
    for place in torture.PLACES:
        torture.odd_file(arena, kind, place, torture.READERS[:5])
