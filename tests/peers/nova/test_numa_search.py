"""Guest cells over a whole host: nova's search and ours, on thousands of small hosts.

Only pairs are looked at on which nova and we agree (:mod:`tests.peers.nova.test_numa_pairs` has the
others), so that what differs is the search. Nova's pair test, asked anew for each pair with a
request that nobody has written into, says what the search should find: we find a placement exactly
then. Nova's search says yes where there is none and no where there is one; both in their smallest
cases below.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from resource_objects.exceptions import CapacityException
from resource_objects.reasons import Rule
from resource_objects.resources.context import Context
from tests.peers.nova.numa_sides import CONF, Case, Guest, Host, Pool, cores, exception, hardware

pytestmark = pytest.mark.filterwarnings("ignore")

MANY = settings(
    max_examples=3000, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
NUMBERS = st.integers(0, 2**32)
BASE, TWO_MB, ONE_GB = 4, 2048, 1048576
PACKING = "packing_host_numa_cells_allocation_strategy"


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Let nova read no configuration file."""
    CONF([], project="nova", default_config_files=[])


@contextlib.contextmanager
def packing(is_wanted: bool) -> Iterator[None]:
    """Let nova pack, or spread."""
    CONF.set_override(PACKING, is_wanted, group="compute")
    try:
        yield
    finally:
        CONF.clear_override(PACKING, group="compute")


# --- random hosts and requests --------------------------------------------------------------------


def host_cell(chance: random.Random, number: int) -> Host:
    """Return a cell with dedicated CPUs and pages of up to three sizes, some of it used."""
    first = number * 16
    cpus = range(first, first + chance.choice([2, 4, 4, 6]))
    pools = [Pool(BASE, 1024 * 256)]
    for size, most in ((TWO_MB, 512), (ONE_GB, 2)):
        if chance.random() < 0.6:
            pools.append(Pool(size, most, 0, chance.choice([0, 0, most // 2])))
    return Host(
        id=number,
        dedicated=frozenset(cpus),
        siblings=cores(cpus, 2),
        memory_mb=sum(pool.mb for pool in pools),
        pools=tuple(pools),
        pinned=frozenset(cpu for cpu in cpus if chance.random() < 0.2),
        used_mb=chance.choice([0, 0, 512]),
        physnets=frozenset(name for name in ("left", "right") if chance.random() < 0.2),
    )


def question(number: int) -> Case:
    """Return a small host and a request of dedicated CPUs for it, often of unequal guest cells."""
    chance = random.Random(number)
    hosts = tuple(host_cell(chance, n) for n in range(chance.randint(1, 4)))
    count = chance.randint(1, min(3, len(hosts)))
    alike = chance.random() < 0.3
    one = _guest(chance)
    return Case(
        hosts,
        tuple(one if alike else _guest(chance) for _ in range(count)),
        page_size=chance.choice(["", "", "small", "large", "large", "any", "2048"]),
        thread_policy=chance.choice([None, None, "prefer", "require"]),
        has_emulator=chance.random() < 0.2,
        physnets=frozenset(name for name in ("left", "right") if chance.random() < 0.2),
    )


def _guest(chance: random.Random) -> Guest:
    return Guest(
        dedicated=chance.choice([1, 1, 2, 2, 3, 4]), memory_mb=chance.choice([256, 512, 1024])
    )


# --- what a search should find --------------------------------------------------------------------


def has_placement(case: Case) -> bool:
    """Return whether some host cells hold all guest cells, by nova's pair test asked anew."""
    places = range(len(case.hosts))
    able = {
        (guest, host): case.nova_pair(guest, host) is not None
        for guest in range(len(case.guests))
        for host in places
    }
    return any(
        all(able[guest, host] for guest, host in enumerate(hosts)) and has_networks(case, hosts)
        for hosts in itertools.permutations(places, len(case.guests))
    )


def has_networks(case: Case, hosts: tuple[int, ...]) -> bool:
    """Return whether nova finds the networks near enough."""
    topology = case.nova_host()
    return bool(
        hardware._numa_cells_support_network_metadata(
            topology,
            [topology.cells[host] for host in hosts],
            case.nova_limits().network_metadata if case.physnets else None,
        )
    )


def is_sound(case: Case, found: Any) -> bool:
    """Return whether nova's placement holds when each pair of it is asked anew, and counted."""
    hosts = [cell.id for cell in found.cells]
    if len(set(hosts)) != len(hosts):
        return False
    for guest, cell in enumerate(found.cells):
        if case.nova_pair(guest, cell.id) is None:
            return False
        if set(cell.cpu_pinning or ()) != set(case.nova_request().cells[guest].pcpuset):
            return False
    try:
        hardware.numa_usage_from_instance_numa(case.nova_host(), found)
    except (exception.CPUPinningInvalid, exception.CPUPinningUnknown):
        return False
    return True


@MANY
@given(NUMBERS.map(question))
def test_we_find_a_placement_exactly_when_there_is_one(case: Case) -> None:
    assert (case.ours() is not None) is has_placement(case)


@MANY
@given(NUMBERS.map(question))
def test_whatever_nova_rightly_finds_we_find(case: Case) -> None:
    theirs, ours = case.nova_search(), case.ours()
    if theirs is not None and is_sound(case, theirs):
        event("both find one")
        assert ours is not None
    elif theirs is not None:
        event("nova's placement does not hold")
    else:
        event("nova finds none" if ours is None else "nova misses one")


@MANY
@given(NUMBERS.map(question))
def test_what_we_find_nova_finds_sound(case: Case) -> None:
    """Our placement, asked pair by pair of nova's test, and counted by its accounting."""
    ours = case.ours()
    if ours is None:
        return
    asked = case.nova_request()
    for number, (cell, placed) in enumerate(zip(asked.cells, ours.placed, strict=True)):
        assert case.nova_pair(number, placed.cell) is not None
        cell.id = placed.cell
        cell.pin_vcpus(*placed.pins)
        cell.pagesize = placed.page_size_kib
        if number == 0 and ours.emulator_cpu is not None:
            cell.cpuset_reserved = {ours.emulator_cpu}
    counted = hardware.numa_usage_from_instance_numa(case.nova_host(), asked)
    inventory = case.inventory()
    inventory.consume(ours)
    for cell, used in zip(counted.cells, inventory.usage, strict=True):
        assert cell.pinned_cpus == set(used.pinned)


@pytest.mark.parametrize("pack", [False, True], ids=["spread", "pack"])
@settings(MANY, max_examples=1000)
@given(number=NUMBERS)
def test_the_same_host_cells_are_taken_where_any_will_do(pack: bool, number: int) -> None:
    """Equal guest cells that fit everywhere: both take those with the most, or the least, free."""
    chance = random.Random(number)
    hosts = tuple(dataclasses.replace(host_cell(chance, n), physnets=frozenset()) for n in range(4))
    case = Case(hosts, (Guest(dedicated=1, memory_mb=2),) * chance.randint(1, 3))
    if any(host.dedicated == host.pinned for host in hosts):
        return
    with packing(pack):
        theirs = case.nova_search()
    ours = case.inventory().fit(case.amount(), context=Context(pack=pack))
    assert {placed.cell for placed in ours.placed} == {cell.id for cell in theirs.cells}


# --- defects of nova's search, in their smallest cases --------------------------------------------


def cells_of(*counts: int) -> tuple[Host, ...]:
    """Return host cells with so many dedicated CPUs each."""
    ranges = [range(16 * number, 16 * number + count) for number, count in enumerate(counts)]
    return tuple(
        Host(
            id=number,
            dedicated=frozenset(cpus),
            siblings=cores(cpus, 1),
            memory_mb=64,
            pools=(Pool(BASE, 64 * 256),),
        )
        for number, cpus in enumerate(ranges)
    )


def shared_cells_of(*counts: int) -> tuple[Host, ...]:
    """Return the same with shared CPUs."""
    return tuple(
        dataclasses.replace(host, shared=host.dedicated, dedicated=frozenset())
        for host in cells_of(*counts)
    )


def test_five_vcpus_do_not_fit_four_cpus() -> None:
    """Nova keeps what fits by the guest cell's id, and its search writes the host cell's there."""
    case = Case(shared_cells_of(4, 4, 4), (Guest(shared=1), Guest(shared=1), Guest(shared=5)))
    found = case.nova_search()
    assert found is not None and not has_placement(case)
    with pytest.raises(CapacityException) as refused:
        case.inventory().fit(case.amount())
    assert {(r.rule, r.cell) for r in refused.value.reasons if r.rule is Rule.MAX_UNIT} == {
        (Rule.MAX_UNIT, cell) for cell in (0, 1, 2)
    }


def test_five_dedicated_vcpus_are_not_left_without_a_cpu() -> None:
    """The same with dedicated CPUs: nova returns the cell with nothing pinned."""
    case = Case(cells_of(4, 4, 4), (Guest(dedicated=1), Guest(dedicated=1), Guest(dedicated=5)))
    found = case.nova_search()
    assert found is not None and not found.cells[2].cpu_pinning and not has_placement(case)
    assert case.ours() is None


def test_cpus_are_of_the_host_cell_that_is_taken() -> None:
    """Nova hands back what an earlier try pinned, on another host cell; its accounting raises."""
    case = Case(cells_of(1, 2, 1, 1), (Guest(dedicated=1), Guest(dedicated=1), Guest(dedicated=2)))
    found = case.nova_search()
    first = found.cells[0]
    assert first.id == 0 and first.cpu_pinning == {0: 16}, "a CPU of host cell 1"
    with pytest.raises(exception.CPUPinningUnknown):
        hardware.numa_usage_from_instance_numa(case.nova_host(), found)
    ours = case.ours()
    assert ours is not None and has_placement(case)
    for placed in ours.placed:
        assert set(placed.pinned) <= case.hosts[placed.cell].dedicated


def test_what_fits_is_not_missed_for_unequal_guest_cells() -> None:
    """Nova keeps what does not fit by the same mixed-up ids, and then never looks at the rest."""
    case = Case(cells_of(1, 2, 1), (Guest(dedicated=1), Guest(dedicated=2)))
    assert case.nova_search() is None and has_placement(case)
    ours = case.ours()
    assert ours is not None and [placed.cell for placed in ours.placed] == [0, 1]


def test_large_pages_are_of_a_size_for_each_host_cell() -> None:
    """Nova writes the size it finds first into the request, and then looks for that size alone."""
    plain = cells_of(1, 1)
    hosts = (
        with_huge_pages(plain[0], Pool(ONE_GB, 4)),
        with_huge_pages(plain[1], Pool(TWO_MB, 512)),
    )
    guests = (Guest(dedicated=1, memory_mb=1024), Guest(dedicated=1, memory_mb=2048))
    case = Case(hosts, guests, page_size="large")
    other_way_round = dataclasses.replace(case, guests=guests[::-1])
    assert case.nova_search() is None and has_placement(case)
    assert other_way_round.nova_search() is not None
    for either, sizes in ((case, [TWO_MB, ONE_GB]), (other_way_round, [ONE_GB, TWO_MB])):
        ours = either.ours()
        assert ours is not None and [p.page_size_kib for p in ours.placed] == sizes


def with_huge_pages(host: Host, pool: Pool) -> Host:
    """Return a host cell with some huge pages besides."""
    return dataclasses.replace(host, memory_mb=host.memory_mb + pool.mb, pools=(*host.pools, pool))
