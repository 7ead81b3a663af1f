"""Networks: a request is next to those that some cell of the host is next to at all."""

from __future__ import annotations

import pytest

from resource_objects.reasons import Rule
from resource_objects.resources.context import Context
from resource_objects.resources.numa import numa
from tests.resources.numa.hosts import host, on, plain, refused, uneven

RED, BLUE = "red", "blue"


def cells(*networks: list[str]) -> list:  # type: ignore[type-arg]
    """Return cells of two CPUs that are next to these networks."""
    return [plain(i, [2 * i, 2 * i + 1], physnets=names) for i, names in enumerate(networks)]


def test_a_network_draws_a_request_to_a_cell_next_to_it() -> None:
    inventory = host(*cells([], [], [RED]))
    assert on(inventory.fit(numa(dedicated=1))) == [0]
    assert on(inventory.fit(numa(dedicated=1, physnets=[RED]))) == [2]


def test_one_cell_next_to_it_is_enough() -> None:
    inventory = host(*cells([], [], [RED]))
    assert on(inventory.fit(numa(2, dedicated=2, physnets=[RED]))) == [0, 2]


def test_a_network_that_no_cell_declares_is_ignored() -> None:
    """The rule is soft: it is not known to be far from anything."""
    inventory = host(*cells([], [RED]))
    assert on(inventory.fit(numa(dedicated=1, physnets=["green"]))) == [0]
    assert on(inventory.fit(numa(dedicated=1, physnets=["green", RED]))) == [1]


def test_a_network_whose_cells_cannot_hold_the_request_refuses_it() -> None:
    inventory = host(*cells([], [RED]))
    inventory.consume(numa(dedicated=1, physnets=[RED]))
    reason, there = refused(inventory, numa(dedicated=2, physnets=[RED]))
    assert reason.rule is Rule.NETWORK
    assert str(reason) == ("NUMA_TOPOLOGY requested 1 host cells, none next to red may be used")
    assert (there.rule, there.cell, there.requested) == (Rule.CAPACITY, 1, 2)


def test_cells_that_may_not_be_used_still_declare_their_networks() -> None:
    inventory = host(*cells([], [RED]))
    (reason,) = refused(inventory, numa(dedicated=1, physnets=[RED]), context=Context(allowed=[0]))
    assert reason.rule is Rule.NETWORK


def test_several_networks_need_several_cells_or_one_that_has_all() -> None:
    apart, together = host(*cells([RED], [BLUE], [])), host(*cells([RED], [BLUE], [], [RED, BLUE]))
    asked = numa(dedicated=1, physnets=[RED, BLUE])
    assert refused(apart, asked)[0].rule is Rule.NETWORK
    assert on(together.fit(asked)) == [3]
    assert on(apart.fit(numa(2, dedicated=2, physnets=[RED, BLUE]))) == [0, 1]


@pytest.mark.parametrize(
    ("sizes", "expected"), [((3, 1), [0, 2]), ((1, 3), [2, 0])], ids=["large first", "small first"]
)
def test_which_guest_cell_is_next_to_which_network_is_found_in_any_order(
    sizes: tuple[int, int], expected: list[int]
) -> None:
    """Only cell 0 holds three, so the other one has to be next to blue."""
    inventory = host(
        plain(0, range(4), physnets=[RED]),
        plain(1, [4, 5], physnets=[RED]),
        plain(2, [6], physnets=[BLUE]),
    )
    asked = uneven(*sizes, physnets=[RED, BLUE])
    assert on(inventory.fit(asked)) == expected
    inventory.consume(numa(dedicated=1, physnets=[BLUE]))
    reason, *there = refused(inventory, asked)
    assert (reason.rule, reason.unit) == (Rule.NETWORK, "blue")
    assert {(one.rule, one.cell) for one in there} == {(Rule.CAPACITY, 2)}  # why not that one


def test_tunnelled_networks_are_one_more_of_the_same_rule() -> None:
    inventory = host(plain(0, [0]), plain(1, [1], tunneled=True))
    assert on(inventory.fit(numa(dedicated=1))) == [0]
    assert on(inventory.fit(numa(dedicated=1, tunneled=True))) == [1]
    assert on(host(plain(0, [0])).fit(numa(dedicated=1, tunneled=True))) == [0]
    inventory.consume(numa(dedicated=1, tunneled=True))
    reason, there = refused(inventory, numa(dedicated=1, tunneled=True))
    assert reason.unit == "tunnelled networks"
    assert (there.rule, there.cell, there.free) == (Rule.CAPACITY, 1, 0)


def test_networks_and_sockets_are_decided_together() -> None:
    inventory = host(
        plain(0, [0], socket=0),
        plain(1, [1], socket=0),
        plain(2, [2], socket=1, physnets=[RED]),
        plain(3, [3], socket=1),
    )
    asked = numa(2, dedicated=2, physnets=[RED], one_socket=True)
    assert on(inventory.fit(asked)) == [2, 3]
    inventory.consume(numa(dedicated=1, physnets=[RED]))
    assert refused(inventory, asked)
