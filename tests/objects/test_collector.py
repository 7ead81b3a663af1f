"""How often Python looks for garbage is a matter of the whole process: it is given back."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from resource_objects import collector
from tests.support.patience import PATIENCE

SELDOM = (100_000, 20, 100)


@pytest.fixture
def usual() -> Iterator[tuple[int, int, int]]:
    """What is set before, and again after the test."""
    before = gc.get_threshold()
    gc.set_threshold(900, 10, 10)
    yield (900, 10, 10)
    gc.set_threshold(*before)


def test_the_last_one_to_leave_sets_what_the_first_one_found(usual: tuple[int, int, int]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def build() -> None:
        with collector.seldom():
            inside.set()
            leave.wait(PATIENCE)

    other = threading.Thread(target=build)
    with collector.seldom():
        other.start()
        inside.wait(PATIENCE)
        assert gc.get_threshold() == SELDOM
    assert gc.get_threshold() == SELDOM  # the other one is building
    leave.set()
    other.join()
    assert gc.get_threshold() == usual


def test_it_is_given_back_after_an_error(usual: tuple[int, int, int]) -> None:
    with pytest.raises(KeyError), collector.seldom():
        raise KeyError
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("own", [(0, 10, 10), (500_000, 10, 10)])
def test_who_looks_as_seldom_already_goes_on(
    usual: tuple[int, int, int], own: tuple[int, int, int]
) -> None:
    gc.set_threshold(*own)
    with collector.seldom():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


def test_what_is_set_meanwhile_stays(usual: tuple[int, int, int]) -> None:
    with collector.seldom():
        gc.set_threshold(1234, 5, 6)
    assert gc.get_threshold() == (1234, 5, 6)
