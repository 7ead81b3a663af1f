"""Every scenario of this folder, on a ledger in memory and on one in a database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import resource_objects as ro
from tests.databases import Scratch
from tests.support.drawing import Drawing
from tests.support.drawn_cases import DrawnCase

FILES = sorted(Path(__file__).parent.glob("*.txt"))


def prepare(url: str) -> None:
    ro.connect(url).close()


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, scratch: Scratch) -> Iterator[ro.Ledger]:
    """An empty ledger."""
    with contextlib.ExitStack() as stack:
        url = "memory://"
        if request.param == "sqlite":
            url = stack.enter_context(scratch.prepared("sqlite", prepare))
        yield stack.enter_context(ro.connect(url))


@pytest.mark.law(6)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_as_the_scenario_says(path: Path, ledger: ro.Ledger) -> None:
    DrawnCase.read(path).run(ledger)


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
