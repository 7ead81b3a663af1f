"""Devices claimed, allocated, freed and looked for: nova's tracker and our inventory, side by side.

Random lives of small hosts go on until nova says something that we do not: that is one of
:class:`~tests.peers.nova.pci_tracker.Drift`, each of which has its smallest case here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from resource_objects.exceptions import CapacityException
from resource_objects.interop.nova.pci_devices import device_pools
from resource_objects.resources.pci import Device, DeviceRequest, DeviceSpec, PCIAmount
from tests.peers.nova import pci_differences
from tests.peers.nova.pci_lives import Life
from tests.peers.nova.pci_sides import CONF, exception
from tests.peers.nova.pci_tracker import Drift, Host, rows

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 40


@pytest.fixture(scope="module", autouse=True)
def ready() -> Iterator[None]:
    """Let nova read no configuration file, and not say what it drops."""
    CONF([], project="nova", default_config_files=[])
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def database() -> Iterator[None]:
    """Give nova's objects a database in memory."""
    with rows():
        yield


def test_lives_are_the_same_but_for_drifts_that_have_names() -> None:
    counts: Counter[str] = Counter()
    for number in range(pci_differences.LIVES):
        with rows():
            life = Life(number)
            host = life.begin()
            drifts = (life.step(host) for _ in range(STEPS))
            first = next((drift for drift in drifts if drift is not None), None)
        counts["" if first is None else first.name] += 1
    del counts[""]
    assert counts == Counter(pci_differences.DRIFTS)


# --- the smallest case of each drift --------------------------------------------------------------

PF = Device("0000:3b:00.0", "8086", "1572", "type-PF", numa_node=0)
PARTS = tuple(
    Device(f"0000:3b:02.{n}", "8086", "154c", "type-VF", parent=PF.address, numa_node=0)
    for n in range(2)
)
GPU = Device("0000:5e:00.0", "10de", "1db4", numa_node=0)
A_PF = DeviceRequest([DeviceSpec(types=["type-PF"])])
A_PART = DeviceRequest([DeviceSpec(types=["type-VF"])])
A_GPU = DeviceRequest([DeviceSpec(vendor_id="10de")])


def same(host: Host) -> None:
    """Hold both sides to say the same as yet."""
    assert host.drift() is None


def an_allocated_part_is_freed() -> Drift | None:
    host = Host((PF, *PARTS))
    host.claim("a", A_PART)
    host.allocate("a")
    host.claim("b", A_PART)
    same(host)
    host.free("a")
    assert host.nova_states()[PF.address] == "unavailable"
    assert host.ours.state(PF.address) == "unclaimable"
    return host.drift()


def a_part_that_is_gone_is_freed() -> Drift | None:
    host = Host((PF, PARTS[0]))
    host.claim("a", A_PART)
    host.look((PF,))
    same(host)
    host.free("a")
    assert host.nova_states() == dict(host.ours.states()) == {PF.address: "available"}
    assert not host.nova_free() and host.ours.free == 1
    return host.drift()


def the_other_part_is_freed_too() -> Drift | None:
    host = Host((PF, *PARTS))
    host.claim("a", A_PART)
    host.claim("b", A_PART)
    host.look((PF, next(part for part in PARTS if part.address in host.held["b"].addresses)))
    host.free("a")
    same(host)
    host.free("b")
    assert host.nova_states()[PF.address] == "unclaimable"
    assert host.ours.state(PF.address) == "available"
    return host.drift()


def a_device_that_came_back_is_freed() -> Drift | None:
    host = Host((GPU,))
    host.claim("a", A_GPU)
    host.look(())
    host.look((GPU,))
    same(host)
    host.free("a")
    assert host.nova_states() == {} and host.ours.free == 1
    return host.drift()


def a_part_of_a_held_function_is_found() -> Drift | None:
    host = Host((PF,))
    host.claim("a", A_PF)
    same(host)
    host.look((PF, PARTS[0]))
    assert host.nova_states()[PARTS[0].address] == "available"
    assert PARTS[0].address not in host.ours.states()
    return host.drift()


def a_part_of_a_held_function_is_gone() -> Drift | None:
    host = Host((PF, PARTS[0]))
    host.claim("a", A_PF)
    same(host)
    host.look((PF,))
    assert PARTS[0].address not in host.nova_states()
    assert host.ours.state(PARTS[0].address) == "spent"
    return host.drift()


def a_function_is_not_split_any_more() -> Drift | None:
    host = Host((PF, PARTS[0]))
    host.claim("a", A_PART)
    host.look((PF.replace(type="type-PCI"),))
    same(host)
    host.allocate("a")
    assert host.nova_states()[PF.address] == "unclaimable"
    assert host.ours.state(PF.address) == "unavailable"
    return host.drift()


def a_free_device_changes() -> Drift | None:
    host = Host((GPU,))
    host.look((GPU.replace(numa_node=1),))
    assert host.nova_free()[GPU.address]["numa_node"] == 0
    assert device_pools(host.ours)[0].numa_node == 1
    return host.drift()


def a_host_without_devices_is_asked() -> Drift | None:
    host = Host(())
    with pytest.raises(CapacityException):
        host.ours.consume(PCIAmount([A_GPU]))
    return host.claim("a", A_GPU)


SMALLEST: dict[Drift, Callable[[], Drift | None]] = {
    Drift.WHOLE_STAYS_UNAVAILABLE: an_allocated_part_is_freed,
    Drift.RELATIVES_LOST: a_part_that_is_gone_is_freed,
    Drift.GONE_PART_COUNTS: the_other_part_is_freed_too,
    Drift.CAME_BACK: a_device_that_came_back_is_freed,
    Drift.RELATIVE_FOUND: a_part_of_a_held_function_is_found,
    Drift.PARTS_GONE: a_part_of_a_held_function_is_gone,
    Drift.WHOLE_UNTIED: a_function_is_not_split_any_more,
    Drift.POOL_STAYS: a_free_device_changes,
    Drift.NOTHING_CLAIMED: a_host_without_devices_is_asked,
}


@pytest.mark.parametrize("drift", Drift, ids=lambda drift: drift.name.lower())
def test_a_drift_in_its_smallest_case(drift: Drift) -> None:
    assert SMALLEST[drift]() is drift


def test_a_part_that_is_found_while_its_function_is_held_is_not_given_out() -> None:
    """Nova takes it from its pool, and fails to claim it; then it is in no pool."""
    host = Host((PF,))
    host.claim("a", A_PF)
    host.look((PF, PARTS[0]))
    with pytest.raises(exception.PciDevicePFInvalidStatus):
        host.claim("b", A_PART)
    assert not host.nova_free()
    with pytest.raises(CapacityException):
        host.ours.consume(PCIAmount([A_PART]))
    host.free("a")
    assert host.ours.free == 2


def test_a_device_that_changed_while_it_was_free_can_still_go() -> None:
    """Nova looks for it in the pool that it would be in now, and stops looking at devices."""
    host = Host((GPU,))
    host.look((GPU.replace(numa_node=1),))
    with pytest.raises(exception.PciDevicePoolEmpty):
        host.look(())
    assert host.ours.rediscover([]).removed == (GPU.address,)


def test_a_device_for_one_use_is_not_given_out_again() -> None:
    """c.5: nova's tracker has it free again; that it is reserved only placement knows."""
    host = Host((GPU.replace(one_time_use=True),))
    host.claim("a", A_GPU)
    host.allocate("a")
    host.free("a")
    assert host.nova_free().keys() == {GPU.address}
    assert host.ours.state(GPU.address) == "spent" and host.ours.free == 0


# --- the same on both sides -----------------------------------------------------------------------


def test_states_are_those_of_nova() -> None:
    """c.1: a claimed function, then an allocated one; a claimed part, then an allocated one."""
    host = Host((PF, *PARTS))
    for request in (A_PF, A_PART):
        for step in (host.claim, lambda owner, _: host.allocate(owner)):
            step("a", request)
            same(host)
        host.free("a")
        same(host)
    assert set(host.ours.states().values()) == {"available"}


def test_what_changed_while_it_was_held_counts_when_it_is_free() -> None:
    """c.2: nova calls it stale."""
    host = Host((GPU,))
    host.claim("a", A_GPU)
    host.look((GPU.replace(numa_node=1),))
    same(host)
    host.free("a")
    same(host)
    assert host.nova_free()[GPU.address]["numa_node"] == 1


def test_what_went_while_it_was_held_goes_when_it_is_free() -> None:
    """c.2: nova remembers it to be removed when freed."""
    host = Host((GPU,))
    host.claim("a", A_GPU)
    host.look(())
    same(host)
    assert host.nova_states() == {GPU.address: "claimed"}
    host.free("a")
    same(host)
    assert host.nova_states() == {}


def test_a_function_that_lost_its_parts_moves_to_another_pool() -> None:
    """c.2: nova moves a device whose type changed."""
    host = Host((PF,))
    host.look((PF.replace(type="type-PCI"),))
    same(host)
    assert host.nova_free()[PF.address]["dev_type"] == "type-PCI"


def test_every_drift_is_in_the_table_of_the_documentation() -> None:
    rows = pci_differences.LIFE
    assert {row.case.upper() for row in rows} - {""} == {drift.name for drift in Drift}
