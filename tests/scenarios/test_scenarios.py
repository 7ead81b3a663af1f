"""Every scenario of this folder, on a ledger in memory and on one in a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects.testing.drawing import Drawing
from tests.support.drawn_cases import DrawnCase
from tests.support.lengths import some

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, sqlite_url: Callable[[str], str]) -> Iterator[ro.Ledger]:
    """An empty ledger."""
    url = sqlite_url("ledger.db") if request.param == "sqlite" else "memory://"
    with ro.connect(url) as opened:
        yield opened


@pytest.mark.law(6)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_as_the_scenario_says(path: Path, ledger: ro.Ledger) -> None:
    DrawnCase.read(path).run(ledger)


@pytest.mark.parametrize("ledger", some(["memory", "sqlite"]), indirect=True)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_drawn_is_what_is_built_and_what_is_drawn_of_it(
    path: Path, ledger: ro.Ledger
) -> None:
    scenario = DrawnCase.read(path)
    scenario.build(ledger)
    assert Drawing.of(ledger) == scenario.drawing.by_name()
    assert Drawing.parse(str(scenario.drawing)) == scenario.drawing


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 35
