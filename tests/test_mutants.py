"""The table of deliberately broken builds does not rot: its texts stand in the source, its tests exist. `make mutants` runs it."""
from __future__ import annotations

import re
from collections import Counter

import pytest
from conftest import ROOT
from tools import mutants

IDS = [mutant.name for mutant in mutants.MUTANTS]


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=IDS)
def test_a_bug_fits_its_source(mutant):
    source = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert mutants.mutated(source, mutant) != source    # raises where a text stands there more than once, or not at all


def test_no_name_stands_twice():
    assert [name for name, count in Counter(IDS).items() if count > 1] == []


def functions_of(file):
    """The test functions of a file, as "file::name"."""
    return {f"{file}::{name}" for name in re.findall(r"^def test_(\w+)", (ROOT / "tests" / f"test_{file}.py").read_text("utf-8"), re.M)}


def test_every_test_that_is_named_in_the_table_and_in_the_readme_exists():
    named = {mutants.function_of(mutants.node_of(test)) for mutant in mutants.MUTANTS for test in (*mutant.tests, *mutants.SMOKE)}
    promised = set(re.findall(r"`(\w+::\w+)`", (ROOT / "README.md").read_text("utf-8"))) - {"crash::x"}
    there = set().union(*(functions_of(file) for file in {name.partition("::")[0] for name in named | promised}))
    assert named | promised <= there, (named | promised) - there
    assert len(promised) >= 20


def test_the_readme_says_how_many_broken_builds_there_are():
    text = (ROOT / "README.md").read_text("utf-8")
    assert f"{len(mutants.MUTANTS)} small ways" in text and f"all {len(mutants.MUTANTS)} are caught" in text


def test_every_fault_test_is_claimed_by_a_mutant():
    claimed = {mutants.function_of(mutants.node_of(test)) for mutant in mutants.MUTANTS for test in mutant.tests}
    assert [test for test in mutants.fault_tests() if test not in claimed] == []
