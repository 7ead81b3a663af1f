"""Thread policies: which CPUs dedicated vCPUs get, down to the thread.

The cores of the cells are written as the sets of their CPUs. Most have the numbers of real
machines: the second threads of all cores come after the first ones.
"""

from __future__ import annotations

import pytest

from resource_objects.reasons import Rule
from resource_objects.resources.numa import (
    CellUsage,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    PlacedCell,
    numa,
)
from tests.resources.numa.hosts import cored, cpus_of, host, plain, refused, rules
from tests.support.numa_reference import faults

SMT2 = [(0, 4), (1, 5), (2, 6), (3, 7)]
SMT4 = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
#: Two cores of two threads, four of one.
HYBRID = [(0, 1), (2, 3), (4,), (5,), (6,), (7,)]


def taken(
    cores: list[tuple[int, ...]],
    dedicated: int,
    policy: str | None,
    pinned: tuple[int, ...] = (),
    emulator: str | None = None,
) -> tuple[list[int], tuple[int, ...], int | None]:
    """Return the CPU of each vCPU, those left empty, and the emulator's; the matcher agrees."""
    inventory = host(cored(0, *cores), usage=[CellUsage(0, pinned=pinned)])
    asked = numa(dedicated=dedicated, thread_policy=policy, emulator_policy=emulator)
    assigned = inventory.fit(asked)
    assert faults(inventory, assigned) == []
    return cpus_of(assigned), assigned.placed[0].idle, assigned.emulator_cpu


# --- isolate -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "dedicated", "pinned", "cpus", "idle"),
    [
        pytest.param(SMT2, 2, (), [0, 1], (4, 5), id="a core each, its sibling left empty"),
        pytest.param(SMT2, 4, (), [0, 1, 2, 3], (4, 5, 6, 7), id="every core"),
        pytest.param(SMT2, 2, (4,), [1, 2], (5, 6), id="a half used core will not do"),
        pytest.param(SMT4, 1, (), [0], (4, 8, 12), id="four threads"),
        pytest.param([(0,), (1,)], 2, (), [0, 1], (), id="without siblings"),
        pytest.param(HYBRID, 2, (), [4, 5], (), id="cores with the fewest threads first"),
        pytest.param(HYBRID, 5, (), [0, 4, 5, 6, 7], (1,), id="then those with more"),
    ],
)
def test_isolated_vcpus_have_a_core_each(
    cores: list[tuple[int, ...]],
    dedicated: int,
    pinned: tuple[int, ...],
    cpus: list[int],
    idle: tuple[int, ...],
) -> None:
    assert taken(cores, dedicated, "isolate", pinned) == (cpus, idle, None)


def test_a_core_is_not_wholly_free_while_one_of_its_threads_is_the_hosts() -> None:
    inventory = host(cored(0, (0, 4), (1, 5), dedicated=[0, 1, 5]))
    assert cpus_of(inventory.fit(numa(dedicated=1, thread_policy="isolate"))) == [1]
    (reason,) = refused(inventory, numa(dedicated=2, thread_policy="isolate"))
    assert str(reason) == "cell 0: PCPU requested 2, free 1 under the policy isolate"


def test_a_core_is_not_wholly_free_while_one_of_its_threads_is_shared() -> None:
    """Hosts that keep some threads of a core shared and others dedicated cannot isolate there."""
    inventory = host(cored(0, (0, 4), (1, 5), dedicated=[0, 1, 5], shared=[4]))
    assert rules(refused(inventory, numa(dedicated=2, thread_policy="isolate"))) == ["threads"]


def test_the_siblings_of_isolated_vcpus_are_taken() -> None:
    inventory = host(cored(0, *SMT2))
    inventory.consume(numa(dedicated=3, thread_policy="isolate"))
    assert inventory.usage[0].pinned == (0, 1, 2, 4, 5, 6)
    assert cpus_of(inventory.consume(numa(dedicated=2))) == [3, 7]
    assert rules(refused(inventory, numa(dedicated=1))) == ["capacity"]


def test_two_vcpus_that_are_assigned_to_one_core_are_not_isolated() -> None:
    """As many cores are taken as there are vCPUs, but one of them has both."""
    inventory = host(cored(0, *SMT2))
    placed = PlacedCell(0, pins={0: 0, 1: 4}, idle=(1, 5))
    asked = numa(dedicated=2, thread_policy="isolate").replace(placed=[placed])
    assert rules(refused(inventory, asked)) == ["threads"]
    apart = PlacedCell(0, pins={0: 0, 1: 5}, idle=(1, 4))
    assert inventory.can_provide(asked.replace(placed=[apart]))


def test_isolation_on_a_host_with_threads_works_though_none_of_its_cpus_are_shared() -> None:
    """Nova never lets it (bug 1889633)."""
    inventory = host(cored(0, *SMT2, shared=[8, 9]))
    assert inventory.can_provide(numa(dedicated=4, thread_policy="isolate"))


def test_idle_siblings_count_where_cpus_are_taken_by_number_only() -> None:
    """Four CPUs are free by name, three of them in truth: a core and its sibling go, no second."""
    inventory = host(cored(0, (0, 2), (1, 3)), usage=[CellUsage(0, loose=1)])
    assert inventory.can_provide(numa(dedicated=1, thread_policy="isolate"))
    (reason,) = refused(inventory, numa(dedicated=2, thread_policy="isolate"))
    assert (reason.rule, reason.requested, reason.free) == (Rule.CAPACITY, 4, 3)


# --- require -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "dedicated", "pinned", "cpus"),
    [
        pytest.param(SMT2, 2, (), [0, 4], id="two threads of a core"),
        pytest.param(SMT2, 4, (), [0, 4, 1, 5], id="neighbours are siblings"),
        pytest.param(SMT2, 3, (), [0, 4, 1], id="an odd one ends up alone"),
        pytest.param(SMT2, 1, (), [0], id="one alone"),
        pytest.param(SMT2, 2, (0, 5), [2, 6], id="half used cores will not do"),
        pytest.param(SMT4, 4, (), [0, 4, 8, 12], id="four threads of a core"),
        pytest.param(SMT4, 4, (0, 1, 2, 3), [4, 8, 12, 5], id="three of each, if three are free"),
        pytest.param(
            SMT4,
            4,
            (0, 4, 1, 5, 2, 6, 3, 7),
            [8, 12, 9, 13],
            id="two of each, if only two are free",
        ),
        pytest.param(HYBRID, 4, (), [0, 1, 2, 3], id="cores of one thread will not do"),
    ],
)
def test_required_threads_are_siblings(
    cores: list[tuple[int, ...]], dedicated: int, pinned: tuple[int, ...], cpus: list[int]
) -> None:
    assert taken(cores, dedicated, "require", pinned)[0] == cpus


@pytest.mark.parametrize(
    ("cores", "dedicated", "pinned", "most"),
    [
        pytest.param([(0,), (1,)], 1, (), 0, id="no threads at all"),
        pytest.param(SMT2, 4, (0, 1, 2), 2, id="single threads"),
        pytest.param(HYBRID, 5, (), 4, id="not enough cores with threads"),
        pytest.param(SMT2, 3, (0,), None, id="an odd one beside a taken sibling"),
    ],
)
def test_required_threads_are_not_made_of_single_ones(
    cores: list[tuple[int, ...]], dedicated: int, pinned: tuple[int, ...], most: int | None
) -> None:
    inventory = host(cored(0, *cores), usage=[CellUsage(0, pinned=pinned)])
    asked = numa(dedicated=dedicated, thread_policy="require")
    if most is None:
        assert cpus_of(inventory.fit(asked)) == [1, 5, 2]
    else:
        (reason,) = refused(inventory, asked)
        assert (reason.rule, reason.requested, reason.bound) == (Rule.THREADS, dedicated, most)
        assert reason.unit == "require"
        assert inventory.can_provide(numa(dedicated=dedicated)), "without the policy they fit"


def test_how_many_threads_a_core_has_counts_also_those_of_the_host() -> None:
    """The host keeps the first thread of each core: what is left are single threads."""
    inventory = host(cored(0, *SMT2, dedicated=[4, 5, 6, 7]))
    assert rules(refused(inventory, numa(dedicated=2, thread_policy="require"))) == ["threads"]


# --- prefer, and nothing said --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "dedicated", "pinned", "cpus"),
    [
        pytest.param(SMT2, 2, (), [0, 4], id="siblings where there are any"),
        pytest.param(SMT2, 2, (0,), [1, 5], id="a whole core before halves"),
        pytest.param(SMT2, 1, (0,), [1], id="a single one opens a core that has siblings"),
        pytest.param(SMT2, 3, (0, 1, 2), [4, 5, 6], id="single threads where there are no others"),
        pytest.param(SMT2, 5, (0, 1, 2), [3, 7, 4, 5, 6], id="any threads in the end"),
        pytest.param(SMT4, 5, (), [0, 4, 8, 12, 1], id="whole cores, then one more"),
        pytest.param(
            SMT4,
            2,
            (0, 4, 1),
            [2, 6],
            id="as many of a core as it has",
        ),
        pytest.param(HYBRID, 3, (), [0, 1, 2], id="cores with threads before those without"),
        pytest.param(HYBRID, 7, (), [0, 1, 2, 4, 5, 6, 7], id="every kind of core"),
        pytest.param([(0,), (1,), (2,)], 2, (0,), [1, 2], id="without siblings the lowest"),
        pytest.param([(0, 1), (2,), (3,)], 1, (0,), [1], id="equal ones by the lowest CPU"),
    ],
)
@pytest.mark.parametrize("policy", ["prefer", None])
def test_siblings_are_preferred(
    cores: list[tuple[int, ...]],
    dedicated: int,
    pinned: tuple[int, ...],
    cpus: list[int],
    policy: str | None,
) -> None:
    assert taken(cores, dedicated, policy, pinned)[0] == cpus


def test_of_cores_that_will_do_those_with_the_fewest_free_threads_come_first() -> None:
    """As many threads of a core as will do; then cores that are opened already, least left first.

    Free are three threads of cores 0 and 1, two of core 2, all four of core 3.
    """
    pinned = (0, 1, 2, 6)
    assert taken(SMT4, 4, "require", pinned)[0] == [3, 7, 11, 15], "four of one core"
    assert taken(SMT4, 5, "require", pinned)[0] == [4, 8, 12, 5, 9], "three of each"
    assert taken(SMT4, 8, "require", pinned)[0] == [4, 8, 12, 5, 9, 13, 3, 7]
    assert taken(SMT4, 12, "prefer", pinned)[0] == [3, 7, 11, 15, 4, 8, 12, 5, 9, 13, 10, 14]


def test_a_request_takes_the_same_cpus_however_its_siblings_are_listed() -> None:
    one = HostCell(0, dedicated=range(8), siblings=SMT2)
    other = HostCell(0, dedicated=reversed(range(8)), siblings=[core[::-1] for core in SMT2[::-1]])
    asked = numa(dedicated=3)
    assert host(one).fit(asked) == host(other).fit(asked)


def test_vcpus_take_cpus_in_their_order_whatever_their_numbers() -> None:
    asked = NUMATopologyAmount(
        [GuestCell(dedicated=[1, 3], shared=[0]), GuestCell(dedicated=[2, 4])],
        thread_policy="require",
    )
    inventory = host(cored(0, (0, 4), (1, 5), shared=[8]), cored(1, (2, 6), (3, 7), shared=[9]))
    assert [placed.pins for placed in inventory.fit(asked).placed] == [
        ((1, 0), (3, 4)),
        ((2, 2), (4, 6)),
    ]


@pytest.mark.parametrize("policy", ["prefer", "require", "isolate"])
def test_a_guest_cell_without_dedicated_vcpus_has_no_thread_policy(policy: str) -> None:
    """It may be beside others that do; a cell without threads will do."""
    asked = NUMATopologyAmount(
        [GuestCell(shared=[0]), GuestCell(dedicated=[1, 2])], thread_policy=policy
    )
    inventory = host(HostCell(0, shared=[8]), cored(1, (0, 2), (1, 3)))
    assert [placed.cell for placed in inventory.fit(asked).placed] == [0, 1]


# --- the emulator --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "dedicated", "policy", "pinned", "cpus", "emulator"),
    [
        pytest.param(SMT2, 2, None, (), [0, 4], 1, id="prefer: the next core"),
        pytest.param(SMT2, 2, None, (1,), [0, 4], 5, id="prefer: half a core before a whole one"),
        pytest.param(SMT2, 3, None, (), [0, 4, 1], 5, id="prefer: beside an odd one"),
        pytest.param(SMT2, 7, None, (), [0, 4, 1, 5, 2, 6, 3], 7, id="prefer: the last one"),
        pytest.param(SMT2, 4, "require", (), [0, 4, 1, 5], 2, id="require: the next core"),
        pytest.param(SMT2, 3, "require", (7,), [0, 4, 1], 5, id="require: beside an odd one"),
        pytest.param(
            [(0, 1, 2), (3, 4)], 4, "require", (), [0, 1, 3, 4], 2, id="require: the odd thread"
        ),
        pytest.param(SMT2, 1, "require", (1,), [0], 4, id="require: never in a vCPU's place"),
        pytest.param(SMT2, 2, "isolate", (), [0, 1], 2, id="isolate: a core of no vCPU"),
        pytest.param(SMT2, 2, "isolate", (2,), [0, 1], 3, id="isolate: half a core will not do"),
        pytest.param(HYBRID, 4, "isolate", (), [0, 4, 5, 6], 7, id="isolate: the smallest core"),
        pytest.param(HYBRID, 1, "isolate", (6, 7), [4], 5, id="isolate: a core of one thread"),
    ],
)
def test_the_emulator_has_one_more_cpu(
    cores: list[tuple[int, ...]],
    dedicated: int,
    policy: str | None,
    pinned: tuple[int, ...],
    cpus: list[int],
    emulator: int,
) -> None:
    found = taken(cores, dedicated, policy, pinned, "isolate")
    assert (found[0], found[2]) == (cpus, emulator)


def test_beside_isolated_vcpus_the_emulator_takes_a_core_and_leaves_its_siblings_empty() -> None:
    """Nova counts the siblings of the emulator's CPU with it, as of the vCPUs'."""
    inventory = host(cored(0, *SMT2))
    asked = numa(dedicated=2, thread_policy="isolate", emulator_policy="isolate")
    assigned = inventory.consume(asked)
    assert (assigned.emulator_cpu, assigned.placed[0].idle) == (2, (4, 5, 6))
    assert inventory.usage[0].pinned == (0, 1, 2, 4, 5, 6)
    assert cpus_of(inventory.fit(numa(dedicated=1))) == [3]
    inventory.consume(-assigned)
    assert inventory.usage[0].pinned == ()


def test_an_isolated_emulator_has_a_core_also_beside_shared_vcpus() -> None:
    asked = NUMATopologyAmount(
        [GuestCell(shared=[0]), GuestCell(dedicated=[1])],
        thread_policy="isolate",
        emulator_policy="isolate",
    )
    inventory = host(cored(0, (0, 2), shared=[8]), cored(1, (1, 3)))
    placed = inventory.fit(asked).placed
    assert [placed.idle for placed in placed] == [(2,), (3,)]


def test_without_a_core_for_the_emulator_a_request_is_refused() -> None:
    inventory = host(cored(0, *SMT2), usage=[CellUsage(0, pinned=[7])])
    asked = numa(dedicated=3, thread_policy="isolate", emulator_policy="isolate")
    (reason,) = refused(inventory, asked)
    assert str(reason) == "cell 0: PCPU requested 4, no core is free for the emulator"
    assert (reason.rule, reason.bound) == (Rule.EMULATOR, 0)
    assert inventory.can_provide(asked.replace(emulator_policy=None))
    full = host(plain(0, range(4)))
    assert rules(refused(full, numa(dedicated=4, emulator_policy="isolate"))) == ["capacity"]


def test_the_emulator_goes_with_guest_cell_0_even_if_that_has_no_dedicated_vcpus() -> None:
    asked = NUMATopologyAmount(
        [GuestCell(shared=[0]), GuestCell(dedicated=[1])], emulator_policy="isolate"
    )
    inventory = host(plain(0, [0], shared=[2]), plain(1, [1]))
    assigned = inventory.fit(asked)
    assert (assigned.placed[0].cell, assigned.emulator_cpu) == (0, 0)
    assert inventory.consume(assigned).placed_counts == {"VCPU": 1, "PCPU": 2}
    assert inventory.usage[0].pinned == (0,)
