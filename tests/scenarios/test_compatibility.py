"""The compatibility table: as the code has it, and each row with a scenario that reproduces it."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects.search.eligibility import OURS, PLACEMENT, Reach
from tests.support.drawn_cases import Ask, DrawnCase

HERE = Path(__file__).parent
PAGES = HERE.parents[1] / "doc" / "source" / "explanation"
SCENARIOS = {path.stem: DrawnCase.read(path) for path in sorted(HERE.glob("*.txt"))}
FIELDS = [field.name for field in dataclasses.fields(OURS)]


def tables() -> Iterator[list[list[str]]]:
    """Yield the tables of the page: rows of cells, without the headers."""
    text = (PAGES / "compatibility.rst").read_text(encoding="utf-8")
    for table in text.split(".. list-table::")[1:]:
        table = table.split("\n\n", 1)[1]
        rows = re.split(r"^   \* - ", table.split("\n\n")[0], flags=re.MULTILINE)[1:]
        yield [
            [" ".join(cell.split()) for cell in re.split(r"^     - ", row, flags=re.MULTILINE)]
            for row in rows[1:]
        ]


CHOSEN, COMMON = tables()


def name_of(row: list[str]) -> str:
    """Return the name of the difference that a row is about."""
    return row[0].split("``")[1]


def scenario_of(row: list[str]) -> str:
    """Return the name of the scenario that a row refers to."""
    match = re.fullmatch(r":ref:`(\w+) <scenario-(\w+)>`", row[-1])
    assert match, row[-1]
    assert match[1] == match[2]
    return match[1]


def said(value: object) -> str:
    """Return a value of the code in the words of the table."""
    if isinstance(value, Reach):
        return str(value.value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "all" if value is None else str(value)


def test_the_rows_are_the_fields_of_the_code() -> None:
    assert [name_of(row) for row in CHOSEN] == FIELDS


@pytest.mark.parametrize("row", CHOSEN, ids=name_of)
def test_a_row_says_what_the_code_has(row: list[str]) -> None:
    _, ours, placement, default, _ = row
    field = name_of(row)
    assert (ours, placement) == (said(getattr(OURS, field)), said(getattr(PLACEMENT, field)))
    assert default == "by syntax"


@pytest.mark.parametrize("row", CHOSEN, ids=name_of)
def test_the_scenario_of_a_row_shows_both_columns(row: list[str]) -> None:
    scenario = SCENARIOS[scenario_of(row)]
    assert name_of(row) in scenario.differences
    asks = [step for step in scenario.steps if isinstance(step, Ask)]
    assert any(len(ask.answers) == 2 and ask.answers[0] != ask.answers[1] for ask in asks)


@pytest.mark.parametrize("row", COMMON, ids=name_of)
def test_a_row_that_is_common_has_its_scenario(row: list[str]) -> None:
    assert name_of(row) in SCENARIOS[scenario_of(row)].differences
    assert name_of(row) not in FIELDS


def test_every_difference_of_a_scenario_has_a_row() -> None:
    rows = {(name_of(row), scenario_of(row)) for row in [*CHOSEN, *COMMON]}
    shown = {(name, stem) for stem, one in SCENARIOS.items() for name in one.differences}
    assert rows <= shown
    assert {name for name, _ in shown} == {name for name, _ in rows}


@pytest.mark.parametrize("field", FIELDS)
def test_each_row_by_itself_decides_its_scenario(field: str, monkeypatch) -> None:
    """Exchange one value of ours for Placement's: the scenario of the row then fails."""
    (row,) = (row for row in CHOSEN if name_of(row) == field)
    other = dataclasses.replace(OURS, **{field: getattr(PLACEMENT, field)})
    scenario = SCENARIOS[scenario_of(row)]
    with ro.connect("memory://") as ledger:
        assert scenario.failures(ledger) == []
    for module in _users():
        monkeypatch.setattr(module, "semantics_of", lambda asked: _instead(asked, other))
    with ro.connect("memory://") as ledger:
        assert scenario.failures(ledger) != []


def _instead(request: ro.Request, ours: object) -> object:
    return PLACEMENT if request.compatibility == "placement" else ours


def _users() -> list[object]:
    """Return the modules that ask by whose rules a request is read."""
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("resource_objects.search") and hasattr(module, "semantics_of")
    ]


def test_the_page_of_scenarios_lists_each_scenario_once() -> None:
    text = (PAGES / "scenarios.rst").read_text(encoding="utf-8")
    listed = re.findall(r"^\* (\w+)$", text, flags=re.MULTILINE)
    assert sorted(listed) == sorted(SCENARIOS)
