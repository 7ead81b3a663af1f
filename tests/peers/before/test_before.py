"""This version beside the one whose house it replaces: every difference in an answer has a name.

``tox -e before`` installs that version from git. ``RO_TEST_BEFORE=5000`` asks so many questions of
each kind in place of :data:`~tests.peers.before.compare.COUNT`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from benchmarks import against
from tests.peers.before import compare, differences, questions, versions

COUNT = int(os.environ.get("RO_TEST_BEFORE", compare.COUNT))


@pytest.fixture(scope="session")
def both() -> Iterator[tuple[versions.Process, versions.Process]]:
    with pytest.MonkeyPatch.context():
        running = versions.running()
        try:
            found = running.__enter__()
        except against.Failed as error:
            pytest.skip(f"the version before is not here: {error}")
        try:
            yield found
        finally:
            running.__exit__(None, None, None)


@pytest.mark.parametrize("kind", questions.MAKERS)
def test_every_difference_has_a_name(
    both: tuple[versions.Process, versions.Process], kind: str
) -> None:
    found = compare.compared(*both, kind, COUNT)
    assert found.faults == []
    assert found.answered > COUNT // 20, "questions that nobody refuses"
    assert found.refused > COUNT // 20, "questions that are refused"


def test_questions_are_the_same_ones_each_time() -> None:
    for kind in questions.MAKERS:
        assert questions.case(kind, 7) == questions.case(kind, 7) != questions.case(kind, 8)


def test_a_fault_has_no_name() -> None:
    case = {"kind": "search", "trees": []}
    [found] = differences.differing({"candidates": [1]}, {"candidates": []})
    assert found == differences.Differing(("candidates",), [1], [])
    assert differences.name_of(case, found) is None


def test_the_page_is_of_the_committed_counts() -> None:
    counts = json.loads(compare.COUNTS.read_text())
    assert set(counts) == set(questions.MAKERS)
    assert compare.page(counts) == compare.PAGE.read_text()
