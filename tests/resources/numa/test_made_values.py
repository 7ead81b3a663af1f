"""The values of a decision are not checked again; they equal checked ones."""

from __future__ import annotations

import pytest

from resource_objects import base
from resource_objects.exceptions import CapacityException, SearchLimitReached
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, PlacedCell, numa
from tests.support.numa_strategies import question_of


def checked(value: base.ResourceObject) -> base.ResourceObject:
    """Return the same value, made with checks."""
    return value.replace()


@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_what_a_decision_makes_is_what_checking_makes(first: int) -> None:
    created = 0
    for seed in range(first, first + 250):
        inventory, amount, limit = question_of(seed)
        try:
            taken = inventory.consume(amount, limit)
        except (CapacityException, SearchLimitReached):
            continue
        created += 1
        for value in (taken, *taken.placed, -taken, *inventory.usage):
            assert value == checked(value) and hash(value) == hash(checked(value))
            assert repr(value) == repr(checked(value))
    assert created


def test_what_it_makes_cannot_change_either() -> None:
    host = NUMATopologyInventory([HostCell(0, dedicated=[0, 1], memory_mb=64)])
    taken = host.consume(numa(dedicated=1, memory_mb=64))
    with pytest.raises(AttributeError):
        taken.placed = ()
    assert type(taken).obj_from_primitive(taken.obj_to_primitive()) == taken
    assert taken.placed == (PlacedCell(0, pins={0: 0}),)
