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


def test_every_test_named_there_exists():
    there = {test: set(re.findall(r"^def test_(\w+)", (ROOT / "tests" / f"test_{test}.py").read_text("utf-8"), re.M))
             for test in {name.partition("::")[0] for mutant in mutants.MUTANTS for name in (*mutant.tests, *mutants.SMOKE)}}
    named = {mutants.function_of(mutants.node_of(test)) for mutant in mutants.MUTANTS for test in (*mutant.tests, *mutants.SMOKE)}
    assert [name for name in named if name.partition("::")[2] not in there[name.partition("::")[0]]] == []


def test_every_fault_test_is_claimed_by_a_mutant():
    claimed = {mutants.function_of(mutants.node_of(test)) for mutant in mutants.MUTANTS for test in mutant.tests}
    assert [test for test in mutants.fault_tests() if test not in claimed] == []
