"""Damaged inputs for every parser, a few here and 100,000 in the torture run: never a traceback, never more than seconds."""
from __future__ import annotations

import os
import time

import pytest
from tools import torture

fuzzing = torture.fuzzing    # one module, however it is named
SEED = int(os.environ.get("SEED", time.time_ns() % 10 ** 6))


@pytest.mark.parametrize("name", fuzzing.TARGETS)
def test_a_parser_takes_anything(built, name):
    assert fuzzing.fuzz(name, SEED, 400)["inputs"] == 400


def test_a_command_takes_any_damaged_home(built, tmp_path):
    arena = torture.Arena(tmp_path / "arena", built, repo=False)
    try:
        assert torture.fuzz_home(arena, SEED, 300)["inputs"] == 300
    finally:
        arena.close()


def test_most_kinds_of_damage_get_through_to_what_they_are_meant_for(built):
    """A fuzzer whose every input is refused at the door tests the door."""
    for name in fuzzing.TARGETS:
        figures = fuzzing.fuzz(name, 1, 100)
        assert figures["refused"] < 98, figures


@pytest.mark.parametrize("text", ["(a+)+$" * 10, "*a" * 20 + "b", "*" * 5000 + "x", "\\b(" * 500])
def test_a_config_with_a_costly_pattern_is_refused_or_matched_in_time(orch, fake, text):
    """Regular expressions are the user's own; globs and keywords also come from checkouts."""
    import orch as core
    begun = time.process_time()
    core.glob_matches(text, "a" * 3000)
    core.has_keyword("a " * 5000, [text])
    assert time.process_time() - begun < 2
