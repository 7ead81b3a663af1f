"""One guest cell on one host cell: nova's own test and ours, over thousands of random pairs.

Where they differ it is by a :class:`~tests.peers.nova.numa_rules.Deviation`, each of which has its
smallest case here; and exactly the pairs differ for which they say so.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from resource_objects.exceptions import CapacityException
from resource_objects.interop.nova import load_host_numa_topology
from resource_objects.reasons import Rule
from tests.peers.nova import numa_differences
from tests.peers.nova.numa_chances import BASE, LARGE, ROOMY, TWO_MB, lone_share, pair
from tests.peers.nova.numa_rules import ERROR, NO, NOVA, OURS, YES, Deviation, answer, told_by
from tests.peers.nova.numa_sides import (
    CONF,
    Case,
    Guest,
    Host,
    Pool,
    cores,
    exception,
    hardware,
    objects,
)

pytestmark = pytest.mark.filterwarnings("ignore")

MANY = settings(
    max_examples=4000, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Let nova read no configuration file."""
    CONF([], project="nova", default_config_files=[])


def nova_says(case: Case) -> str:
    """Return nova's answer for the first guest cell on the first host cell."""
    found = case.nova_pair()
    if isinstance(found, ValueError):
        return ERROR
    return NO if found is None else YES


def we_say(case: Case) -> str:
    return NO if case.ours() is None else YES


# --- random pairs ---------------------------------------------------------------------------------

NUMBERS = st.integers(0, 2**32)


@MANY
@given(NUMBERS.map(pair))
def test_every_difference_is_one_that_has_a_name(case: Case) -> None:
    ours, theirs = we_say(case), nova_says(case)
    assert ours == answer(case, OURS)
    assert theirs == answer(case, NOVA)
    event(f"nova {theirs}: {', '.join(one.name for one in told_by(case)) or 'the same'}")


@MANY
@given(NUMBERS.map(pair))
def test_where_both_say_yes_the_pages_are_the_same(case: Case) -> None:
    ours, theirs = case.ours(), case.nova_pair()
    if ours is None or theirs is None or isinstance(theirs, ValueError):
        return
    size = ours.placed[0].page_size_kib
    if case.page_size and case.guests[0].memory_mb:
        assert theirs.pagesize == (size or case.hosts[0].pools[0].size_kib)
    else:
        assert size is None


@MANY
@given(NUMBERS.map(pair))
def test_what_we_place_nova_counts_as_we_do(case: Case) -> None:
    """Our CPUs and pages, given to nova's accounting: what is left then is what we say is left."""
    ours = case.ours()
    host = case.hosts[0]
    knows_siblings = host.dedicated <= frozenset().union(*host.siblings)
    if ours is None or not host.pools or (case.thread_policy == "isolate" and not knows_siblings):
        return  # its accounting knows no cell without pages, and isolates only CPUs with siblings
    placed = ours.placed[0]
    asked = case.nova_request()
    cell = asked.cells[0]
    cell.id = 0
    cell.pagesize = placed.page_size_kib
    cell.pin_vcpus(*placed.pins)
    cell.cpuset_reserved = None if ours.emulator_cpu is None else {ours.emulator_cpu}
    counted = hardware.numa_usage_from_instance_numa(case.nova_host(), asked).cells[0]
    inventory = case.inventory()
    inventory.consume(ours)
    (used,) = inventory.usage
    huge = sum(size * count for size, count in used.pages) // 1024
    assert counted.pinned_cpus == set(used.pinned)
    assert counted.cpu_usage == used.shared
    assert counted.memory_usage == used.memory_mb + huge
    assert {p.size_kb: p.used for p in counted.mempages[1:] if p.used} == dict(used.pages)


# --- guest cells of a mixed request that have shared vCPUs alone ----------------------------------


@settings(MANY, max_examples=1000)
@given(NUMBERS.map(lone_share))
def test_differences_of_guest_cells_without_dedicated_vcpus_have_names(case: Case) -> None:
    assert we_say(case) == answer(case, OURS)
    assert nova_says(case) == answer(case, NOVA)
    event(f"{', '.join(one.name for one in told_by(case)) or 'the same'}")


# --- each difference has its smallest case --------------------------------------------------------

PAIR, FOUR_CPUS = frozenset({0, 1}), frozenset(range(4))
ONE_CORE = Host(dedicated=PAIR, siblings=(PAIR,))
TWO_CPUS = Host(shared=PAIR, siblings=cores((0, 1), 1), memory_mb=64)
FOUR_K = Pool(BASE, 64 * 256)

#: ``{deviation: (the smallest case, nova's answer; ours is the other)}``
SMALLEST: dict[Deviation, tuple[Case, str]] = {
    Deviation.ISOLATE_WITH_SMT: (
        Case((ONE_CORE,), (Guest(dedicated=1),), thread_policy="isolate"),
        NO,
    ),
    Deviation.ISOLATE_HYBRID: (
        Case(
            (
                Host(
                    shared=frozenset({0, 1, 2}),
                    dedicated=frozenset({0, 1, 2}),
                    siblings=(PAIR, frozenset({2})),
                ),
            ),
            (Guest(dedicated=2),),
            thread_policy="isolate",
        ),
        NO,
    ),
    Deviation.EMULATOR_ON_HALF_A_CORE: (
        Case(
            (
                Host(
                    shared=FOUR_CPUS,
                    dedicated=FOUR_CPUS,
                    siblings=cores(range(4), 2),
                    pinned=frozenset({0}),
                ),
            ),
            (Guest(dedicated=1),),
            thread_policy="isolate",
            has_emulator=True,
        ),
        YES,
    ),
    Deviation.CPUS_WITHOUT_CORE: (
        Case((Host(dedicated=frozenset({0})),), (Guest(dedicated=1),)),
        ERROR,
    ),
    Deviation.RATIO_SKIPPED: (
        Case(
            (dataclasses.replace(ONE_CORE, memory_mb=64),),
            (Guest(dedicated=1, memory_mb=64),),
            memory_ratio="0.5",
        ),
        YES,
    ),
    Deviation.RATIO_OF_ALL: (
        Case(
            (
                dataclasses.replace(
                    TWO_CPUS, memory_mb=128, pools=(FOUR_K, Pool(TWO_MB, 32)), used_mb=64
                ),
            ),
            (Guest(shared=1, memory_mb=64),),
        ),
        YES,
    ),
    Deviation.RATIO_IS_FLOAT: (
        Case(
            (dataclasses.replace(TWO_CPUS, memory_mb=100, used_mb=15),),
            (Guest(shared=1, memory_mb=100),),
            memory_ratio="1.15",
        ),
        NO,
    ),
    Deviation.RESERVED_SERVES: (
        Case(
            (dataclasses.replace(TWO_CPUS, pools=(dataclasses.replace(FOUR_K, reserved=256),)),),
            (Guest(shared=1, memory_mb=64),),
            memory_ratio="2",
        ),
        YES,
    ),
    Deviation.EITHER_WAY: (
        Case(
            (
                Host(
                    shared=PAIR, dedicated=PAIR, siblings=cores((0, 1), 1), pinned=frozenset({0, 1})
                ),
            ),
            (Guest(shared=1),),
        ),
        YES,
    ),
    Deviation.NOTHING_NEEDS_PAGES: (
        Case((TWO_CPUS,), (Guest(shared=1),), page_size="small"),
        NO,
    ),
    Deviation.NO_VCPU_NEEDS_THREADS: (
        Case((TWO_CPUS, ROOMY), (Guest(shared=1), LARGE), thread_policy="require"),
        NO,
    ),
}


@pytest.mark.parametrize("deviation", Deviation, ids=lambda deviation: deviation.name.lower())
def test_a_difference_in_its_smallest_case(deviation: Deviation) -> None:
    case, theirs = SMALLEST[deviation]
    assert told_by(case) == (deviation,)
    assert nova_says(case) == theirs
    assert we_say(case) == (NO if theirs == YES else YES)


def test_reserved_pages_also_bound_what_a_ratio_allows() -> None:
    """Two deviations at once: by one alone nova would say what we say."""
    host = dataclasses.replace(TWO_CPUS, pools=(dataclasses.replace(FOUR_K, reserved=256),))
    case = Case((host,), (Guest(shared=1, memory_mb=64),))
    assert (nova_says(case), we_say(case)) == (YES, NO)
    assert set(told_by(case)) == {Deviation.RESERVED_SERVES, Deviation.RATIO_OF_ALL}


# --- beside the pair ------------------------------------------------------------------------------


def test_use_of_shared_cpus_counts_without_limits_too() -> None:
    """Nova: with no limits handed in, a full cell takes another one."""
    full = dataclasses.replace(TWO_CPUS, shared_used=2)
    case = Case((full,), (Guest(shared=1),))
    assert nova_says(case) == NO
    assert hardware._numa_fit_instance_cell(full.of_nova(), case.nova_request().cells[0])
    assert we_say(case) == NO


BOTH_ISOLATED: dict[str, Any] = {"thread_policy": "isolate", "has_emulator": True}


def accounted(case: Case, found: Any) -> Any:
    asked = objects.InstanceNUMATopology(cells=[found])
    return hardware.numa_usage_from_instance_numa(case.nova_host(), asked)


def test_what_fits_can_be_counted_with_an_isolated_emulator() -> None:
    """Nova takes the emulator's CPU of a core that is half used, then pins it with its sibling."""
    host = Host(
        shared=FOUR_CPUS,
        dedicated=FOUR_CPUS,
        siblings=cores(range(4), 2),
        memory_mb=64,
        pools=(FOUR_K,),
        pinned=frozenset({0}),
    )
    asked = (Guest(dedicated=1, memory_mb=2),)
    case = Case((host,), asked, **BOTH_ISOLATED)
    with pytest.raises(exception.CPUPinningInvalid):
        accounted(case, case.nova_pair())
    assert we_say(case) == NO
    free = Case((dataclasses.replace(host, pinned=frozenset()),), asked, **BOTH_ISOLATED)
    inventory = free.inventory()
    taken = inventory.consume(free.amount())
    assert taken.placed[0].pinned == (0, 1, 3) and taken.emulator_cpu == 2
    inventory.consume(-taken)
    assert inventory.usage == free.inventory().usage


def test_what_fits_can_be_counted_on_a_cell_without_pages() -> None:
    """Nova looks for the smallest page size of a cell that lists none."""
    case = Case((TWO_CPUS,), (Guest(shared=1, memory_mb=64),))
    with pytest.raises(IndexError):
        accounted(case, case.nova_pair())
    inventory = case.inventory()
    taken = inventory.consume(case.amount())
    assert inventory.free_memory_mb == 0
    inventory.consume(-taken)
    assert inventory.free_memory_mb == 64


def test_a_topology_from_before_liberty_can_be_asked() -> None:
    """Nova leaves the dedicated CPUs of such a host unset."""
    old = '{"cells": [{"id": 0, "cpus": "0-1", "mem": {"total": 64, "used": 0}}]}'
    theirs = objects.NUMATopology.obj_from_db_obj(objects.NUMATopology.from_legacy_object(old))
    case = Case((TWO_CPUS,), (Guest(dedicated=1, memory_mb=64),))
    with pytest.raises(NotImplementedError):
        hardware.numa_fit_instance_to_host(theirs, case.nova_request(), {}, case.nova_limits())
    assert load_host_numa_topology(old).fit(case.amount()).cpuset == "0"


def test_giving_back_what_is_not_taken_is_an_error() -> None:
    """Nova's counts stop at 0, silently."""
    case = Case((dataclasses.replace(TWO_CPUS, pools=(FOUR_K,)),), (Guest(shared=1, memory_mb=64),))
    found = objects.InstanceNUMATopology(cells=[case.nova_pair()])
    left = hardware.numa_usage_from_instance_numa(case.nova_host(), found, free=True)
    assert (left.cells[0].cpu_usage, left.cells[0].memory_usage) == (0, 0)
    taken = case.ours()
    assert taken is not None
    with pytest.raises(CapacityException) as refused:
        case.inventory().consume(-taken)
    assert {reason.rule for reason in refused.value.reasons} == {Rule.USED_BELOW_ZERO}


def test_every_difference_is_in_the_table_of_the_documentation() -> None:
    assert {row.case.upper() for row in numa_differences.PAIR} - {""} == {d.name for d in Deviation}
