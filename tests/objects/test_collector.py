"""The thresholds of Python's garbage collector belong to the process: they are restored."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from resource_objects import collector
from tests.support.patience import PATIENCE

SELDOM = (100_000, 20)
USUAL = (900, 10)


@pytest.fixture
def usual() -> Iterator[None]:
    """Set what is usual, and what was set before after the test."""
    before = gc.get_threshold()
    gc.set_threshold(*USUAL, 10)
    yield
    gc.set_threshold(*before)


@pytest.fixture(params=["as it is", "as Python 3.14 does"], autouse=True)
def thresholds(
    usual: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thresholds of Python: 3.14 has no third one and reports 0 for it."""
    if request.param == "as Python 3.14 does":
        as_it_is = gc.get_threshold
        monkeypatch.setattr(gc, "get_threshold", lambda: (*as_it_is()[:2], 0))


def found() -> tuple[int, ...]:
    return gc.get_threshold()[:2]


def test_the_last_one_to_leave_sets_what_the_first_one_found() -> None:
    inside, leave = threading.Event(), threading.Event()

    def build() -> None:
        with collector.fewer_collections():
            inside.set()
            leave.wait(PATIENCE)

    other = threading.Thread(target=build)
    with collector.fewer_collections():
        other.start()
        inside.wait(PATIENCE)
        assert found() == SELDOM
    assert found() == SELDOM  # the other one is building
    leave.set()
    other.join()
    assert found() == USUAL


def test_it_is_released_after_an_error() -> None:
    with pytest.raises(KeyError), collector.fewer_collections():
        raise KeyError
    assert found() == USUAL


@pytest.mark.parametrize("own_part", [(0, 10), (500_000, 10)])
def test_who_looks_as_seldom_already_goes_on(own_part: tuple[int, int]) -> None:
    gc.set_threshold(*own_part, 10)
    with collector.fewer_collections():
        assert found() == own_part
    assert found() == own_part


def test_what_is_set_meanwhile_remains() -> None:
    with collector.fewer_collections():
        gc.set_threshold(1234, 5, 6)
    assert found() == (1234, 5)
