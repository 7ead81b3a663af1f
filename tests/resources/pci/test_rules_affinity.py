"""The affinity of devices to the host cells of their consumer.

Source: Nova's ``hw:pci_numa_affinity_policy``. The table is given here, by the naive matcher and by
the decision; all of them agree.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.exceptions import CapacityException
from resource_objects.reasons import Rule
from resource_objects.resources.context import CellMap, Context
from resource_objects.resources.pci import PCIAmount, PCIInventory, devices
from tests.resources.pci.hosts import cells, gpu, host, nic, on_cells, refused, rules
from tests.support.pci_reference import is_near

#: Four host cells in two sockets.
TWO_SOCKETS = {0: 0, 1: 0, 2: 1, 3: 1}
#: The same, of which one does not say its socket.
UNKNOWN = {0: 0, 1: 0, 2: 1, 3: None}


def ask(
    inventory: PCIInventory,
    affinity: str,
    chosen: tuple[int, ...] | None,
    sockets: dict[int, int | None] | None = None,
    count: int = 1,
) -> tuple[str, ...] | None:
    """Return the devices for chosen host cells, None if they are too few."""
    request = devices("PGPU", count, affinity=affinity)
    place = {} if chosen is None else {"context": on_cells(cells(sockets or TWO_SOCKETS), chosen)}
    try:
        return inventory.fit(request, **place).addresses
    except CapacityException:
        return None


@pytest.mark.parametrize(
    ("affinity", "node", "chosen", "sockets", "expected"),
    [
        pytest.param("required", 1, (1,), TWO_SOCKETS, True, id="required, there"),
        pytest.param("required", 1, (0, 1), TWO_SOCKETS, True, id="required, at one of two"),
        pytest.param("required", 1, (0,), TWO_SOCKETS, False, id="required, elsewhere"),
        pytest.param("required", None, (0,), TWO_SOCKETS, False, id="required, nobody knows"),
        pytest.param("legacy", 1, (1,), TWO_SOCKETS, True, id="legacy, there"),
        pytest.param("legacy", 1, (0,), TWO_SOCKETS, False, id="legacy, elsewhere"),
        pytest.param("legacy", None, (0,), TWO_SOCKETS, True, id="legacy, nobody knows"),
        pytest.param("preferred", 1, (1,), TWO_SOCKETS, True, id="preferred, there"),
        pytest.param("preferred", 1, (0,), TWO_SOCKETS, True, id="preferred, elsewhere"),
        pytest.param("preferred", None, (0,), TWO_SOCKETS, True, id="preferred, nobody knows"),
        pytest.param("socket", 1, (1,), TWO_SOCKETS, True, id="socket, there"),
        pytest.param("socket", 1, (0,), TWO_SOCKETS, True, id="socket, beside"),
        pytest.param("socket", 2, (0, 1), TWO_SOCKETS, False, id="socket, elsewhere"),
        pytest.param("socket", 2, (0, 3), TWO_SOCKETS, True, id="socket, beside one of two"),
        pytest.param("socket", None, (0,), TWO_SOCKETS, False, id="socket, nobody knows the node"),
        pytest.param("socket", 9, (0,), TWO_SOCKETS, False, id="socket, at no cell there is"),
        pytest.param("socket", 1, (0,), UNKNOWN, False, id="socket, one is not known: beside"),
        pytest.param("socket", 1, (1,), UNKNOWN, True, id="socket, one is not known: there"),
        pytest.param("socket", 3, (3,), UNKNOWN, True, id="socket, its own is not known: there"),
    ],
)
def test_a_policy_says_which_nodes_are_near_enough(
    affinity: str,
    node: int | None,
    chosen: tuple[int, ...],
    sockets: dict[int, int | None],
    expected: bool,
) -> None:
    """b.8, the pools each policy allows."""
    inventory = host(gpu(numa_node=node))
    assert (ask(inventory, affinity, chosen, sockets) is not None) is expected
    assert is_near(affinity, node, chosen, sockets) is expected
    if not expected:
        request = devices("PGPU", affinity=affinity)
        (reason,) = refused(inventory, request, context=on_cells(cells(sockets), chosen))
        assert (reason.rule.value, reason.requested, reason.bound) == ("affinity", 1, 0)
        assert str(reason) == "PGPU requested 1, at most 0 near its host cells"


@pytest.mark.parametrize("affinity", ["required", "legacy", "preferred", "socket"])
@pytest.mark.parametrize("node", [0, 7, None])
def test_who_has_no_host_cells_is_near_to_every_device(affinity: str, node: int | None) -> None:
    """b.8: the policies are about cells; a request without topology has none."""
    assert ask(host(gpu(numa_node=node)), affinity, None) is not None
    assert is_near(affinity, node, None)


@pytest.mark.parametrize(
    ("affinity", "order"),
    [("legacy", "20"), ("preferred", "2013"), ("required", "2"), ("socket", "23")],
)
def test_narrower_rings_are_used_first(affinity: str, order: str) -> None:
    """b.8: the stricter sets first; preferred: those in the cells or unknown before the rest."""
    inventory = host(gpu(0), *(gpu(node, numa_node=node) for node in (1, 2, 3)))
    addresses = [f"0000:0{int(number) + 1}:00.0" for number in order]
    for count in range(1, len(order) + 1):
        result = ask(inventory, affinity, (2,), count=count)
        assert result == tuple(sorted(addresses[:count]))
    assert ask(inventory, affinity, (2,), count=len(order) + 1) is None


def test_nearer_cells_go_before_farther_ones() -> None:
    inventory = host(gpu(1, numa_node=1), gpu(2, numa_node=2))
    far = CellMap({0: 0, 1: 1, 2: 1}, {0: {0: 10, 1: 32, 2: 21}})
    request = devices("PGPU", affinity="preferred")
    assert inventory.fit(request, context=on_cells(far, [0])).addresses == ("0000:03:00.0",)


def test_the_wider_ring_is_only_used_for_what_the_narrower_does_not_have() -> None:
    """b.8: Nova widens for a whole request; ours device by device, and takes what is near."""
    inventory = host(gpu(0, numa_node=1), gpu(1, numa_node=0), gpu(2, numa_node=1))
    request = devices("PGPU", 2, affinity="preferred")
    assigned = inventory.fit(request, context=on_cells(cells(2), [0]))
    assert assigned.addresses == ("0000:01:00.0", "0000:02:00.0")
    assert [placed.numa_node for placed in assigned.placed] == [1, 0]


def test_each_request_has_a_policy_of_its_own() -> None:
    inventory = host(gpu(0, numa_node=0), gpu(1, numa_node=1))
    request = devices("PGPU", affinity="preferred") + devices("PGPU", affinity="required")
    assigned = inventory.fit(request, context=on_cells(cells(2), [1]))
    assert assigned.of(1) == ("0000:02:00.0",), "who can do with another gives way"
    assert assigned.of(0) == ("0000:01:00.0",)


def test_a_pf_is_as_near_as_it_says_itself_wherever_its_vfs_are() -> None:
    inventory = host(nic(2, numa_node=0))
    request = devices("8086:1572", types=["type-PF"], affinity="required")
    assert inventory.can_provide(request)
    assert rules(refused(inventory, request, context=on_cells(cells(2), [1]))) == ["affinity"]


def test_what_is_assigned_is_allocated_to_its_policy_too() -> None:
    inventory = host(gpu(0, numa_node=0))
    assigned = inventory.fit(devices("PGPU", affinity="required"), context=on_cells(cells(2), [0]))
    assert inventory.fit(assigned, context=on_cells(cells(2), [0])) == assigned
    assert inventory.fit(assigned) == assigned, "nobody asks for cells"
    assert rules(refused(inventory, assigned, context=on_cells(cells(2), [1]))) == ["affinity"]


NODES = st.sampled_from([None, 0, 1, 2, 3, 9])
SOCKETS = st.lists(st.sampled_from([0, 1, None]), min_size=4, max_size=4)
CHOSEN = st.sets(st.integers(0, 3), min_size=1)
AFFINITIES = st.sampled_from(["required", "legacy", "preferred", "socket"])


@given(AFFINITIES, NODES, SOCKETS, CHOSEN, CHOSEN)
def test_more_cells_never_take_a_device_away(
    affinity: str,
    node: int | None,
    sockets: list[int | None],
    several: set[int],
    other_items: set[int],
) -> None:
    """The joint search relies on it: more cells never have fewer devices near to them."""
    table = dict(enumerate(sockets))
    inventory = host(gpu(numa_node=node))
    near = ask(inventory, affinity, tuple(several), table) is not None
    assert near == is_near(affinity, node, several, table)
    if near:
        assert ask(inventory, affinity, tuple(several | other_items), table) is not None


def test_no_cells_chosen_is_not_the_same_as_no_consumer_asks() -> None:
    inventory = host(gpu(numa_node=0))
    request: PCIAmount = devices("PGPU", affinity="required")
    assert inventory.can_provide(request)
    assert rules(refused(inventory, request, context=on_cells(cells(1), []))) == ["affinity"]


def test_what_is_assigned_may_be_stored_within_some_devices() -> None:
    """Each device outside is named in the error; those inside are allocated."""
    inventory = PCIInventory([gpu(0), gpu(1)])
    first, second = inventory.part_ids()
    assigned = inventory.fit(devices("PGPU"), context=Context(allowed=[second]))
    assert assigned.addresses == ("0000:02:00.0",)
    assert inventory.fit(assigned, context=Context(allowed=[second])) == assigned
    with pytest.raises(CapacityException) as refusal:
        inventory.fit(assigned, context=Context(allowed=[first]))
    assert [(reason.rule, reason.unit) for reason in refusal.value.reasons] == [
        (Rule.FOREIGN, "0000:02:00.0")
    ]
