"""The examples in the docstrings of orch.py are true."""
from __future__ import annotations

import doctest

import pytest

import orch

EXAMPLES = [test for test in doctest.DocTestFinder(exclude_empty=True).find(orch) if test.examples]


@pytest.mark.parametrize("example", EXAMPLES, ids=[test.name for test in EXAMPLES])
def test_the_example_in_a_docstring_is_true(example):
    said = []
    failed, _ = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=said.append)
    assert not failed, "".join(said)


def test_there_are_examples():
    assert len(EXAMPLES) > 20
