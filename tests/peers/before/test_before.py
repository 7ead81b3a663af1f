"""This version compared with the one before the reductions: every difference has a name.

``tox -e before`` installs that version from git. ``RO_TEST_BEFORE=20`` asks twenty times as many
questions of each subject, and ``RO_TEST_BEFORE_FROM=1000`` others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from benchmarks import against
from tests.peers.before import compare, differences, questions_host, subjects, versions

TIMES = float(os.environ.get("RO_TEST_BEFORE", "1"))
FIRST = int(os.environ.get("RO_TEST_BEFORE_FROM", "0"))


@pytest.fixture(scope="session")
def both() -> Iterator[tuple[versions.Process, versions.Process]]:
    running = versions.running()
    try:
        found = running.__enter__()
    except against.Failed as error:
        pytest.skip(f"the version before is not here: {error}")
    try:
        yield found
    finally:
        running.__exit__(None, None, None)


@pytest.mark.parametrize("kind", subjects.BY_KIND)
def test_every_difference_has_a_name(
    both: tuple[versions.Process, versions.Process], kind: str
) -> None:
    count = max(1, int(subjects.BY_KIND[kind].sample * TIMES))
    found = compare.compared(*both, kind, range(FIRST, FIRST + count))
    assert found.faults == []
    assert found.answered > count // 20, "questions that are answered"
    assert found.refused > count // 20, "questions that are refused"


def test_every_registered_class_is_in_a_wire_form(
    both: tuple[versions.Process, versions.Process],
) -> None:
    [(_, _, registered)] = versions.answered(*both, [subjects.case("wire", 0)])
    drawn: set[str] = set()
    for seed in range(1, 20):
        drawn |= _names(subjects.drawn_objects(seed))
    abstract = {"Amount", "Inventory", "Resource"}
    assert (
        set(registered["done"]) - drawn - {f"resource_objects.{one}" for one in abstract} == set()
    )


def _names(wire: object) -> set[str]:
    if isinstance(wire, list):
        return set().union(*map(_names, wire))
    if not isinstance(wire, dict):
        return set()
    name = {wire["versioned_object.name"]} if "versioned_object.name" in wire else set()
    return name.union(*map(_names, wire.values()))


def test_questions_are_the_same_ones_each_time() -> None:
    for kind in subjects.BY_KIND:
        seed = 7 + len(questions_host.archives())
        assert subjects.case(kind, seed) == subjects.case(kind, seed) != subjects.case(kind, 1)


def test_a_difference_without_a_name_is_a_fault() -> None:
    found = compare.Compared()
    found.add({"kind": "search", "seed": 1}, {"done": [1]}, {"done": []})
    assert found.faults == ["search 1: ('done',): [1] is now []"]


def test_the_page_has_the_subjects_and_the_differences() -> None:
    assert compare.page() == compare.PAGE.read_text()
    names = [one.name for one in differences.DIFFERENCES]
    assert len(names) == len(set(names))
