"""What is asked to be near: as few places as possible, or one; against trying everything."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import search
from resource_objects.cli.environment import read_environment
from resource_objects.host import partitions
from resource_objects.providers.columns import Columns
from resource_objects.reasons import Rule
from resource_objects.testing.refusals import raises_code
from tests.search import oracle
from tests.search.compatibility_cases import tree
from tests.support import enumerator
from tests.support.columns import Kept, columns_of
from tests.support.enumerator import Found
from tests.support.fleets import TRAITS, Case, cases
from tests.support.fleets import fleet as drawn_fleet
from tests.support.fleets import request as drawn_request
from tests.support.lengths import some
from tests.support.near_reference import places_of


def listed(columns: Columns, request: ro.Request, per_host: int = oracle.ALL) -> list[Found]:
    """Return all candidates, found within a budget that is large enough."""
    snapshot = search.Snapshot(columns)
    found = snapshot.candidates(request, limit=None, per_host=per_host, budget=10**7)
    assert not found.cut_short, request
    return [enumerator.found_of(columns, one) for one in found]


def check_required(case: Case, level: str) -> str:
    """Hold the candidates of one place to those of the enumerator that are of one."""
    columns = columns_of(case.roots)
    kept = Kept(columns)
    request = case.request.replace(near=level, near_policy="required")
    plain = oracle.right(columns, case.request)
    wanted = [one for one in plain if places_of(kept, one, level) == 1]
    found = listed(columns, request)
    assert not [one for one in found if one not in wanted], request
    told = oracle.forms(columns, case.request, found)
    assert told == set(enumerator.forms(columns, case.request, wanted)), request
    first = [one.host for one in listed(columns, request, per_host=1)]
    assert first == sorted({one.host for one in wanted}), request
    check_reasons(columns, request, {one.host for one in plain}, {one.host for one in wanted})
    return "found" if wanted else "refused for it" if plain else "refused anyway"


def check_reasons(columns: Columns, request: ro.Request, plain: set[str], found: set[str]) -> None:
    """See that every host that is left out is told, and only by the level if only that fails."""
    explained = dict(search.Snapshot(columns).candidates(request, limit=None).explain().by_host())
    assert not found & explained.keys()
    for host in plain - found:
        reasons = explained[host]
        assert reasons, (host, request)
        for one in reasons:
            assert one.rule is not Rule.NEAR or one.requested > one.free, (one, request)
            assert one.rule not in {Rule.GROUPS, Rule.TOGETHER}, (one, request)
    for host in explained.keys() - plain:
        assert explained[host], (host, request)


def check_preferred(case: Case, level: str) -> str:
    """See that nothing is refused for a preference, and that the fewest places come first."""
    columns = columns_of(case.roots)
    kept = Kept(columns)
    request = case.request.replace(near=level)
    wanted = oracle.right(columns, case.request)
    found = listed(columns, request)
    told = oracle.forms(columns, case.request, found)
    assert told == set(enumerator.forms(columns, case.request, wanted)), request
    least = {
        host: min(places_of(kept, one, level) for one in wanted if one.host == host)
        for host in {one.host for one in wanted}
    }
    first = listed(columns, request, per_host=1)
    assert [one.host for one in first] == sorted(least, key=lambda host: (least[host], host))
    for one in first:
        assert places_of(kept, one, level) == least[one.host], (one, request)
    for host in least:
        counts = [places_of(kept, one, level) for one in found if one.host == host]
        assert counts[0] == least[host]
        assert counts == sorted(counts), request
    return f"fewest: {min(least.values(), default='none')}"


#: Holds a case to the enumerator, and tells what became of it.
Check = Callable[[Case, str], str]
CHECKS = pytest.mark.parametrize("check", [check_required, check_preferred])


@pytest.mark.law(5, 6)
@CHECKS
@pytest.mark.parametrize("start", some(range(0, 240, 40)))
def test_what_is_near_is_what_the_enumerator_says(start: int, check: Check) -> None:
    for seed in range(start, start + 40):
        chance = random.Random(seed)
        roots = drawn_fleet(chance, shares=seed % 4 != 0)
        check(Case(roots, drawn_request(chance, roots)), chance.choice(TRAITS))


def machines(chance: random.Random) -> Case:
    """Return one or two hosts of two or three sockets, most of which have a few things of each."""
    roots = []
    for number in range(chance.choice([1, 1, 2])):
        root = tree(f"h{number}", chance.choice(["DISK_GB=3", "DISK_GB=3,VCPU=2"]))
        for socket in range(chance.choice([2, 2, 3])):
            name = f"h{number}/s{socket}"
            devices = [tree(f"{name}/g{n}", "PGPU=1") for n in range(chance.choice([0, 1, 1, 2]))]
            if chance.random() < 0.5:
                traits = chance.choice([[], ["CUSTOM_A"]])
                devices.append(tree(f"{name}/n", f"SRIOV_NET_VF={chance.choice([1, 2])}"))
                devices[-1].update(traits=traits)
            amounts = chance.choice([None, "VCPU=2", "VCPU=3", "VCPU=4:step_size=2"])
            one = tree(name, amounts, *devices, traits=["CUSTOM_LEVEL"])
            if chance.random() < 0.1:
                one.update(traits=())
            root.update(children=(*root.children, one))
        roots.append(root)
    return Case(roots, drawn_request(chance, roots, groups_of=(0, 0, 0, 1, 2)))


@pytest.mark.law(5, 6)
@CHECKS
@pytest.mark.parametrize("start", some(range(0, 240, 40)))
def test_what_is_near_in_machines_with_sockets(start: int, check: Check) -> None:
    for seed in range(start, start + 40):
        check(machines(random.Random(seed)), "CUSTOM_LEVEL")


@pytest.mark.law(5)
@CHECKS
@given(st.data())
def test_what_is_near_in_the_smallest_case(check: Check, data: st.DataObject) -> None:
    event(check(data.draw(cases()), data.draw(st.sampled_from(TRAITS))))


# --- the cells and devices of a machine ---


def machine(
    name: str, cells: int = 2, gpus: Iterable[int | None] = (0, 0, 1), **figures: int
) -> ro.Provider:
    """Return a host as discovery finds it: its cells, and GPUs next to some of them, beside them.

    :param gpus: for each the cell, None where the firmware does not say
    """
    cpus, memory = figures.get("cpus", 4), figures.get("memory_mb", 1024)
    root = ro.Provider(name, f"VCPU={cells * cpus},MEMORY_MB={cells * memory},DISK_GB=10")
    if figures.get("numa", 1):
        found = [
            ro.HostCell(n, shared=range(n * cpus, n * cpus + cpus), memory_mb=memory)
            for n in range(cells)
        ]
        root.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory(found))
    devices = [
        ro.Device(f"0000:{n + 16:02x}:00.0", "10de", "2330", resource_class="PGPU", numa_node=cell)
        for n, cell in enumerate(gpus)
    ]
    root.add_parts("DEVICES", ro.PCIInventory(devices))
    return root


@pytest.fixture
def ledger() -> ro.Ledger:
    return ro.connect("memory://")


def told(ledger: ro.Ledger, amounts: str, **conditions: Any) -> list[str]:
    request = ro.Request(amounts, near="numa", **conditions)
    found = ledger.snapshot().candidates(request)
    return [*map(str, found), *str(found.explain()).splitlines()]


def test_devices_are_next_to_the_cells_that_give_the_cpus(ledger: ro.Ledger) -> None:
    ledger.sync(machine("a", gpus=(0, 1, 1)))
    gpus = "PGPU=1 of a/0000:11:00.0, PGPU=1 of a/0000:12:00.0"
    assert told(ledger, "VCPU=4,DISK_GB=1,PGPU=2") == [
        f"VCPU=4 of a/numa1, DISK_GB=1 of a, {gpus}",
        "no host was left out",
    ]
    assert told(ledger, "VCPU=4,DEVICES=2*PGPU", near_policy="required")[0] == (
        f"VCPU=4 of a/numa1, {gpus}"
    )
    assert told(ledger, "VCPU=6,PGPU=1", near_policy="required") == [
        "a: a/numa0: VCPU requested 6 in one NUMA cell, free 4 of 4 in the best"
    ]
    assert told(ledger, "VCPU=6,PGPU=1")[0] == (
        "VCPU=4 of a/numa0, VCPU=2 of a/numa1, PGPU=1 of a/0000:10:00.0"
    )


def test_cpus_of_a_named_group_are_those_of_the_machine_as_a_whole(ledger: ro.Ledger) -> None:
    """Found cells give to no group, so there is nothing that could be near."""
    ledger.sync(machine("a", gpus=(0, 1, 1)))
    ledger.claim("x", {"a/numa1": "VCPU=4"})
    cpus = ro.RequestGroup("VCPU=4", suffix="_CPUS")
    gpus = "PGPU=1 of a/0000:11:00.0, PGPU=1 of a/0000:12:00.0"
    grouped = told(ledger, "PGPU=2", groups=[cpus], near_policy="required")
    assert grouped[0] == f"{gpus}, VCPU=4 of a"
    assert told(ledger, "PGPU=2,VCPU=4", near_policy="required") == [
        "a: a/numa1: VCPU requested 4 in one NUMA cell, free 0 of 4 in the best (x holds 4)"
    ]


def test_a_device_that_does_not_say_its_cell_is_near_nothing(ledger: ro.Ledger) -> None:
    ledger.sync(machine("a", gpus=(None, None)))
    assert told(ledger, "VCPU=1,PGPU=2", near_policy="required") == [
        "a: PGPU requested 2 in one NUMA cell, no device reports its place"
    ]
    assert told(ledger, "VCPU=1,PGPU=2")[0].startswith("VCPU=1 of a, ")


def test_all_is_near_in_a_machine_of_one_cell(ledger: ro.Ledger) -> None:
    ledger.sync(machine("a", 1, gpus=(None, None)))
    found = told(ledger, "VCPU=1,PGPU=2", near_policy="required")
    assert found[0] == "VCPU=1 of a/numa0, PGPU=1 of a/0000:10:00.0, PGPU=1 of a/0000:11:00.0"


def test_cells_that_only_devices_name_are_cells(ledger: ro.Ledger) -> None:
    ledger.sync(machine("a", gpus=(0, 1, 1), numa=0))
    assert told(ledger, "VCPU=8,PGPU=2", near_policy="required")[0] == (
        "VCPU=8 of a, PGPU=1 of a/0000:11:00.0, PGPU=1 of a/0000:12:00.0"
    )
    assert told(ledger, "VCPU=8,PGPU=3", near_policy="required") == [
        "a: cell 1: PGPU requested 3 in one NUMA cell, free 2 of 2 in the best"
    ]


def test_who_holds_what_the_best_cell_lacks_is_told(ledger: ro.Ledger) -> None:
    ledger.sync(machine("a", gpus=(0, 0, 1, 1)))
    ledger.claim("ann", {"a/0000:10:00.0": "PGPU=1"})
    ledger.claim("bob", {"a/0000:12:00.0": "PGPU=1"})
    best = "a: a/numa0: PGPU requested 2 in one NUMA cell, free 1 of 2 in the best (ann holds 1)"
    assert told(ledger, "PGPU=2,VCPU=1", near_policy="required") == [best]
    assert told(ledger, "DEVICES=2*PGPU,VCPU=1", near_policy="required") == [best]


@given(st.randoms(use_true_random=False))
def test_no_fewer_cells_would_do(chance: random.Random) -> None:
    """What is found is claimed, and no smaller set of cells has enough of everything."""
    ledger, figures = ro.connect("memory://"), {"cpus": 3, "memory_mb": 4}
    cells = chance.choice([2, 3, 4])
    gpus = [chance.randrange(cells) for _ in range(chance.choice([2, 4, 6]))]
    ledger.sync(machine("a", cells, gpus, **figures))
    free = {cell: [3, 4, gpus.count(cell)] for cell in range(cells)}
    for cell in range(cells):
        taken = chance.choice([0, 0, 1, 2])
        if taken:
            ledger.claim(f"on-{cell}", {f"a/numa{cell}": f"VCPU={taken},MEMORY_MB={taken}"})
            free[cell] = [3 - taken, 4 - taken, free[cell][2]]
    for number, cell in enumerate(gpus):
        if chance.random() < 0.3:
            ledger.claim(f"gpu-{number}", {f"a/0000:{number + 16:02x}:00.0": "PGPU=1"})
            free[cell][2] -= 1
    wanted = [chance.choice([0, 1, 3, 4]), chance.choice([0, 1, 5]), chance.choice([0, 1, 2, 3])]
    names = ("VCPU", "MEMORY_MB", "PGPU")
    amounts: dict[str, Any] = {n: count for n, count in zip(names, wanted, strict=True) if count}
    if not amounts:
        return
    if "PGPU" in amounts and chance.random() < 0.5:  # the same, as devices that say where they go
        amounts["DEVICES"] = ro.devices("PGPU", amounts.pop("PGPU"))
    least = next(
        (
            count
            for count in range(1, cells + 1)
            for some in itertools.combinations(range(cells), count)
            if all(sum(free[cell][n] for cell in some) >= wanted[n] for n in range(3))
        ),
        None,
    )
    event(f"cells: {least}")
    found = ledger.snapshot().candidates(ro.Request(amounts, near="numa"))
    strict = ro.Request(amounts, near="numa", near_policy="required")
    assert bool(ledger.snapshot().candidates(strict)) == (least == 1)
    assert bool(found) == (least is not None)
    if found:
        assert len({cell_of(one, gpus) for one in found[0].allocations}) == least
        ledger.claim("job", found)


# --- distances ------------------------------------------------------------------------------------

#: Cells 0 and 2 are close, and so are 1 and 3.
PAIRS = ((10, 21, 11, 21), (21, 10, 21, 11), (11, 21, 10, 21), (21, 11, 21, 10))


def with_distances(
    distances: Sequence[Sequence[int | None]],
    cpus: Sequence[int] = (4, 4, 4, 4),
    memory_mb: Sequence[int] = (1024, 1024, 1024, 1024),
    gpus: Iterable[int] = (),
) -> ro.Provider:
    """Return a host whose cells are so far apart; None is a distance that is not reported."""
    root = ro.Provider("a", f"VCPU={sum(cpus)},MEMORY_MB={sum(memory_mb)}")
    cells = [
        ro.HostCell(
            n,
            shared=range(8 * n, 8 * n + cpus[n]),
            memory_mb=memory_mb[n],
            distances={to: apart for to, apart in enumerate(row) if apart is not None},
        )
        for n, row in enumerate(distances)
    ]
    root.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory(cells))
    devices = [
        ro.Device(f"0000:{n + 16:02x}:00.0", "10de", "2330", resource_class="PGPU", numa_node=cell)
        for n, cell in enumerate(gpus)
    ]
    if devices:
        root.add_parts("DEVICES", ro.PCIInventory(devices))
    return root


def cells_found(ledger: ro.Ledger, amounts: str, **conditions: Any) -> list[int]:
    """Return the cells of the first candidate."""
    first = ledger.snapshot().candidates(ro.Request(amounts, near="numa", **conditions))[0]
    names = [one.provider.removeprefix("a/numa") for one in first.allocations]
    return sorted({int(name) for name in names if name.isdecimal()})


def test_of_equally_few_cells_the_closest_are_used(ledger: ro.Ledger) -> None:
    ledger.sync(with_distances(PAIRS))
    assert cells_found(ledger, "VCPU=6") == [0, 2]
    assert ledger.claim("x", {"a/numa0": "VCPU=1"})
    assert cells_found(ledger, "VCPU=6") == [0, 2]
    assert cells_found(ledger, "VCPU=8") == [1, 3]
    assert cells_found(ledger, "VCPU=4") == [1]
    assert cells_found(ledger, "VCPU=12") == [1, 2, 3]


@pytest.mark.parametrize(
    ("order", "cells"), [("name", {0, 2}), ("pack", {1, 3}), ("spread", {0, 2})]
)
def test_the_order_decides_between_equally_close_cells(
    ledger: ro.Ledger, order: str, cells: set[int]
) -> None:
    ledger.sync(with_distances(PAIRS))
    ledger.claim("x", {"a/numa1": "VCPU=1"})
    found = ledger.snapshot().candidates(ro.Request("VCPU=7", near="numa"), order=order)[0]
    assert {int(one.provider.removeprefix("a/numa")) for one in found.allocations} == cells


def test_a_cell_without_cpus_is_used_with_the_cell_it_is_closest_to(ledger: ro.Ledger) -> None:
    apart = ((10, 32, 40, 15), (32, 10, 15, 40), (40, 15, 10, 50), (15, 40, 50, 10))
    ledger.sync(with_distances(apart, cpus=(4, 4, 0, 0), memory_mb=(64, 64, 4096, 4096)))
    assert cells_found(ledger, "VCPU=2,MEMORY_MB=2048") == [0, 3]
    ledger.claim("x", {"a/numa0": "VCPU=4"})
    assert cells_found(ledger, "VCPU=2,MEMORY_MB=2048") == [1, 2]


def test_a_device_is_used_with_the_closest_cell_that_has_cpus(ledger: ro.Ledger) -> None:
    ledger.sync(with_distances(PAIRS, gpus=[3]))
    ledger.claim("x", {"a/numa3": "VCPU=4"})
    assert cells_found(ledger, "VCPU=2,PGPU=1") == [1]
    assert cells_found(ledger, "VCPU=2,DEVICES=1*PGPU") == [1]


@given(st.randoms(use_true_random=False))
def test_no_equally_few_cells_are_closer(chance: random.Random) -> None:
    """Distances may be asymmetric, or missing in one direction or in both."""
    ledger, count = ro.connect("memory://"), chance.choice([3, 4, 5])
    apart = [
        [10 if n == to else chance.choice([11, 12, 20, 21, None]) for to in range(count)]
        for n in range(count)
    ]
    cpus = [chance.choice([0, 2, 3]) for _ in range(count)]
    if not sum(cpus):
        return
    ledger.sync(with_distances(apart, cpus, [64] * count))
    wanted = chance.randint(1, sum(cpus))
    enough = [
        some
        for size in range(1, count + 1)
        for some in itertools.combinations(range(count), size)
        if sum(cpus[n] for n in some) >= wanted and all(cpus[n] for n in some)
    ]
    closest = min(enough, key=lambda some: (len(some), distance(apart, some), some))
    assert cells_found(ledger, f"VCPU={wanted}") == list(closest)


def distance(apart: Sequence[Sequence[int | None]], cells: Sequence[int]) -> float:
    """Return the sum over each two cells, both ways; one way stands for the other."""
    total = 0.0
    for one, other in itertools.combinations(cells, 2):
        ways = [way for way in (apart[one][other], apart[other][one]) if way is not None]
        total += ways[0] + ways[-1] if ways else 10.0**9
    return total


def cell_of(one: Any, gpus: Sequence[int]) -> int:
    name = one.provider.removeprefix("a/")
    return int(name[4:]) if name.startswith("numa") else gpus[int(name[5:7], 16) - 16]


def test_a_consumer_keeps_what_it_asked(ledger: ro.Ledger) -> None:
    """So does who was overtaken: the next candidate is searched for in the same way."""
    ledger.sync(machine("a", gpus=(0, 0, 1, 1)))
    request = ro.Request("PGPU=2,VCPU=1", near="numa", near_policy="required")
    found, again = (ledger.snapshot().candidates(request) for _ in range(2))
    first, second = ledger.claim("one", found), ledger.claim("two", again)
    assert first.request == second.request == request
    assert str(second).startswith("two holds VCPU=1 of a/numa1, ")
    with pytest.raises(ro.exceptions.CapacityException):
        ledger.claim("three", ledger.snapshot().candidates(request))


# --- orders, bounds, cuts ---


def sockets(*gpus: int, **more: Any) -> ro.Provider:
    """Return a host of sockets with so many GPUs each."""
    below = [
        tree(
            f"h/s{number}",
            None,
            *(tree(f"h/s{number}/g{gpu}", "PGPU=1") for gpu in range(count)),
            traits=["CUSTOM_SOCKET"],
        )
        for number, count in enumerate(gpus)
    ]
    return tree("h", "VCPU=8", *below, **more)


@pytest.mark.parametrize(("order", "place"), [("name", "s0"), ("pack", "s2"), ("spread", "s1")])
def test_the_order_is_that_of_places_too(ledger: ro.Ledger, order: str, place: str) -> None:
    ledger.sync(sockets(3, 4, 2))
    request = ro.Request("PGPU=2", near="CUSTOM_SOCKET")
    (found,) = ledger.snapshot().candidates(request, order=order)
    assert {one.provider[:4] for one in found.allocations} == {f"h/{place}"}


def test_a_preference_that_takes_too_long_to_meet_is_found_all_the_same() -> None:
    """Every half of the sockets seems to have enough, and none has the trait that is required."""
    root = sockets(*[1] * 14)
    extra = [tree(f"h/extra{n}", "PGPU=1", traits=["CUSTOM_A"]) for n in range(7)]
    root.update(children=(*root.children, *extra))
    snapshot = search.Snapshot(columns_of([root]))
    request = ro.Request("PGPU=7", required=["CUSTOM_A"], near="CUSTOM_SOCKET")
    found = snapshot.candidates(request)
    assert len(found) == 1
    assert found.cut_short
    assert {one.provider[:7] for one in found[0].allocations} == {"h/extra"}
    strict = snapshot.candidates(request.replace(near_policy="required"))
    assert not strict
    assert not strict.cut_short


def test_a_preference_leaves_steps_to_find_somebody() -> None:
    """Each socket seems to have both, one GPU for either group; no hosts have them in one."""
    roots = []
    for number in range(40):
        name = f"h{number:02}"
        below = [
            tree(
                f"{name}/s{n}",
                None,
                tree(f"{name}/s{n}/a", "PGPU=1", traits=["CUSTOM_A", "CUSTOM_B"]),
                tree(f"{name}/s{n}/b", "PGPU=1"),
                traits=["CUSTOM_SOCKET"],
            )
            for n in range(4)
        ]
        roots.append(tree(name, None, *below))
    groups = [
        ro.RequestGroup("PGPU=1", suffix=f"_{trait}", required=[trait])
        for trait in ("CUSTOM_A", "CUSTOM_B")
    ]
    request = ro.Request(groups=groups, group_policy="isolate", near="CUSTOM_SOCKET")
    snapshot = search.Snapshot(columns_of(roots))
    found = snapshot.candidates(request, budget=400)
    assert found
    assert found.cut_short
    assert not snapshot.candidates(request, budget=100_000).cut_short


def test_devices_that_others_have_in_parts_are_told_so(ledger: ro.Ledger) -> None:
    root = tree("h", None)
    for name in ("s0", "s1"):
        socket = root.add(f"h/{name}", "VCPU=8", traits=["CUSTOM_SOCKET"])
        for number in range(2):
            partitions.thousandths(socket.add(f"h/{name}/g{number}", "PGPU=1"))
    ledger.sync(root)
    ledger.claim("cem", {"h/s0/g0": "CUSTOM_PGPU_THOUSANDTHS=500"})
    ledger.claim("dia", {"h/s1/g0": "PGPU=1"})
    request = ro.Request("PGPU=2", near="CUSTOM_SOCKET", near_policy="required")
    assert str(ledger.snapshot().candidates(request).explain()) == (
        "h: h/s0: PGPU requested 2 whole in one CUSTOM_SOCKET, 1 of 2 is whole: cem a half"
    )


def test_what_is_cut_out_of_a_place_is_in_it(ledger: ro.Ledger) -> None:
    ledger.sync(sockets(2, 1))
    request = ro.Request("PGPU=1", near="CUSTOM_SOCKET", near_policy="required")
    for at in ("h/s0", "h/s0/g1"):
        (found,) = ledger.snapshot(at=at).candidates(request)
        assert found.allocations[0].provider.startswith(at)
    found = ledger.snapshot(at="h/s1").candidates(
        request.replace(groups=ro.Request("PGPU=2").groups)
    )
    assert str(found.explain()) == "h/s1: PGPU requested 2, free 1 of 1"


def test_what_is_out_of_service_is_in_no_set_of_places(ledger: ro.Ledger) -> None:
    ledger.sync(sockets(2, 2))
    request = ro.Request("PGPU=2", near="CUSTOM_SOCKET", near_policy="required")
    ledger.disable("h/s0", reason="fan")
    (found,) = ledger.snapshot().candidates(request)
    assert {one.provider[:4] for one in found.allocations} == {"h/s1"}
    ledger.claim("job", {"h/s1/g0": "PGPU=1"})
    ledger.enable("h/s0")
    ledger.disable("h/s0/g1", reason="fan")
    told = str(ledger.snapshot().candidates(request).explain())
    assert told.startswith(
        "h: h/s1: PGPU requested 2 in one CUSTOM_SOCKET, free 1 of 2 in the best (job holds 1); "
        "h/s0/g1: disabled since"
    )


def test_places_go_on_from_one_snapshot_to_the_next(ledger: ro.Ledger) -> None:
    ledger.sync(sockets(2, 2))
    request = ro.Request("PGPU=2", near="CUSTOM_SOCKET", near_policy="required")
    for number, place in enumerate(("s0", "s1")):
        found = ledger.snapshot().candidates(request)
        assert str(ledger.claim(f"job-{number}", found)).startswith(
            f"job-{number} holds PGPU=1 of h/{place}"
        )
    ledger.release("job-0")
    ledger.sync(sockets(1, 2, 2))
    (found,) = ledger.snapshot().candidates(request)
    assert {one.provider[:4] for one in found.allocations} == {"h/s2"}


@pytest.mark.parametrize("policy", ["required", "preferred", "socket"])
def test_an_affinity_without_a_topology_is_refused_with_the_word_that_was_meant(
    ledger: ro.Ledger, policy: str
) -> None:
    picture = ledger.snapshot()
    with raises_code("InvalidRequest") as refused:
        picture.candidates(f"VCPU=1,DEVICES=2*PGPU@{policy}")
    assert str(refused.value) == (
        f"DEVICES: got '2*PGPU@{policy}', expected no affinity, near='numa' in the request "
        "(--near numa) instead, or a topology beside it to be near to"
    )
    with raises_code("InvalidRequest", match="expected no affinity, or a topology"):
        picture.candidates(ro.Request("DEVICES=2*PGPU@required", near="numa"))


def test_a_job_is_told_its_cell_and_the_cpus_of_it(ledger: ro.Ledger) -> None:
    ledger.sync(machine("a", gpus=(0, 1, 1)))
    request = ro.Request("VCPU=2,PGPU=2", near="numa")
    found = read_environment(ledger, ledger.claim("job", ledger.snapshot().candidates(request)))
    assert found["RESOURCE_OBJECTS_CELLS"] == "1"
    assert found["RESOURCE_OBJECTS_CPUS"] == "4-7"
    assert found["CUDA_VISIBLE_DEVICES"] == "1,2"
