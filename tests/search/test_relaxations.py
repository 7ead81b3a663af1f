"""Each relaxation yields a candidate, and nothing smaller of its kind does."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
from fractions import Fraction

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.resources.catalog import is_device
from resource_objects.resources.numa import (
    GuestCell,
    HostCell,
    NUMATopologyInventory,
    PagePool,
    numa,
)
from resource_objects.search.relaxations import COSTS, first_step
from resource_objects.search.relaxed_request import placed_reductions
from resource_objects.search.script import Change, free_name
from resource_objects.testing.refusals import raises_code
from tests.search import device_fleets, numa_fleets, worlds
from tests.search.doors import counted

MORE = 1000
#: of one case: of few of them anything fits at all
SEEDS = 12


def fits(scenario, request):
    return bool(scenario.candidates(request, limit=1))


def naive_releases(snapshot, request):
    """Return who helps by leaving, tried one by one."""
    found = set()
    for name, _ in snapshot.fleet.places_of_holders.items():
        scenario = snapshot.fork()
        scenario.release(name)
        if fits(scenario, request):
            found.add(name)
    return found


def naive_added(snapshot, request):
    """Return the hosts of which one more helps."""
    fleet, found = snapshot.fleet, set()
    for tree, host in enumerate(fleet.hosts):
        scenario = snapshot.fork()
        change = Change("add", (free_name(fleet.hosts, host), "like", host))
        try:
            change.apply(scenario)
        except exceptions.Conflict as error:
            if not error.is_about("pool"):
                raise
            continue
        if tree not in fleet.pools.trees and fits(scenario, request):
            found.add(host)
    return found


def naive_enabled(snapshot, request):
    found = set()
    for place in snapshot.fleet.disabled:
        scenario = snapshot.fork()
        scenario.enable(snapshot.fleet.names[place])
        if fits(scenario, request):
            found.add(snapshot.fleet.names[place])
    return found


def naive_amount(snapshot, request, name):
    """Return the largest count of a class that fits, counted down; None if none does."""
    group = request.unnamed
    counts = dict(group.resources.by_name())
    asked = counts.pop(name).to_records(name)[0].amount
    for count in range(asked - 1, -1, -1):
        less = {**counts, name: count} if count else counts
        try:
            wanted = request.replace(groups=(group.replace(resources=ro.Amounts(less)),))
        except exceptions.InvalidInput:
            return None
        if fits(snapshot, wanted):
            return count
    return None


# --- what says where: devices and topologies, each way to ask for less tried one by one ---

#: What is less near, from the nearest on.
LESS_NEAR = {
    "required": ["socket", "legacy", "preferred"],
    "socket": ["preferred"],
    "legacy": ["preferred"],
    "preferred": [],
}


def naive_located(snapshot, request):
    """Return the kind and the amounts of the first of each way to ask for less that fits."""
    found = []
    for name, amount in request.unnamed.resources.by_name():
        for kind, ways in weaker_amounts(amount):
            for less in ways:
                with contextlib.suppress(exceptions.InvalidInput):  # that cannot be asked
                    wanted = with_less(request, name, less)
                    if fits(snapshot, wanted):
                        found.append((kind, str(wanted.resources)))
                        break
    return sorted(found)


def located_of(request, told):
    """Return the same of relaxations: those that change what says where."""
    located = {n: a for n, a in request.unnamed.resources.by_name() if ro.resource(n).is_placed}
    return sorted(
        (one.kind, str(one.request.resources))
        for one in told
        if one.change is None
        and (one.kind, one.subject) not in {("topology", name) for name in located}
        and any(one.request.unnamed.resources.get(n) != a for n, a in located.items())
    )


def with_less(request, name, less):
    """Return a request of another amount that says where; its counts follow from it."""
    group = request.unnamed
    asked = dict(group.resources.by_name())
    implied = asked.pop(name).placed_counts
    kept = {n: a for n, a in asked.items() if n not in implied}
    if less is not None:
        kept[name] = less() if callable(less) else less
    return request.replace(groups=(group.replace(resources=ro.Amounts(kept)),))


def weaker_amounts(amount):
    if isinstance(amount, ro.PCIAmount):
        yield from fewer_devices(amount)
    elif ro.resource("NUMA_TOPOLOGY").amount_kind is type(amount):
        yield "amount", less_of(amount, "dedicated", range(63, -1, -1))
        yield "amount", less_of(amount, "shared", range(63, -1, -1))
        if amount.page_size in ("", "small", "4", "2048"):
            mebibytes = range(62, -1, -2) if amount.page_size == "2048" else range(63, -1, -1)
            yield "amount", less_of(amount, "memory_mb", mebibytes)
        for fields in weaker_policies(amount):
            yield "policy", [functools.partial(amount.replace, **some) for some in fields]
        yield "topology", list(other_cells(amount))


def fewer_devices(amount):
    for place, one in enumerate(amount.requests):
        before, after = amount.requests[:place], amount.requests[place + 1 :]
        counts = [[one.replace(count=n)] for n in range(one.count - 1, 0, -1)]
        ways = [[*before, *some, *after] for some in [*counts, []]]
        yield "amount", [ro.PCIAmount(some) if some else None for some in ways]
        nears = [one.replace(affinity=affinity) for affinity in LESS_NEAR[one.affinity]]
        yield "policy", [ro.PCIAmount([*before, near, *after]) for near in nears]


def less_of(amount, what, most):
    """Yield topologies no guest cell of which has more of something than that."""
    for bound in most:
        if any(bound < figures_of(cell)[what] for cell in amount.cells):
            yield functools.partial(bounded, amount, what, bound)


def bounded(amount, what, bound):
    following = iter(range(999))
    cells = []
    for cell in amount.cells:
        figures = figures_of(cell)
        figures[what] = min(figures[what], bound)
        memory = figures.pop("memory_mb")
        cpus = {name: [next(following) for _ in range(n)] for name, n in figures.items()}
        cells.append(GuestCell(**cpus, memory_mb=memory))
    return amount.replace(cells=cells)


def figures_of(cell):
    cpus = {"shared": len(cell.shared), "dedicated": len(cell.dedicated)}
    return {**cpus, "memory_mb": cell.memory_mb}


def weaker_policies(amount):
    if amount.page_size in ("2048", "large"):
        yield [{"page_size": "any"}, {"page_size": ""}]
    elif amount.page_size:
        yield [{"page_size": ""}]
    if amount.thread_policy in ("isolate", "require"):
        yield [{"thread_policy": None}]
    if amount.emulator_policy == "isolate":
        yield [{"emulator_policy": None}]
    if amount.cpu_policy != "shared":
        shared = [GuestCell(shared=one.vcpus, memory_mb=one.memory_mb) for one in amount.cells]
        yield [{"cells": shared, "thread_policy": None, "emulator_policy": None}]
    if amount.one_socket:
        yield [{"one_socket": False}]
    for network in amount.physnets:
        yield [{"physnets": amount.physnets - {network}}]
    if amount.tunneled:
        yield [{"tunneled": False}]


def other_cells(amount):
    """Yield the same in fewer or more guest cells, the nearest number first, fewer before more."""
    every = [figures_of(cell) for cell in amount.cells]
    counts = {name: sum(one[name] for one in every) for name in every[0]}
    now = len(amount.cells)
    for cells in sorted(set(range(1, 2 * now + 1)) - {now}, key=lambda n: (abs(n - now), n)):
        try:
            even = numa(cells, **counts).cells
            if numa(now, **counts).cells != amount.cells:
                return
        except exceptions.InvalidInput:
            continue
        yield amount.replace(cells=even)


def naive_ratio(snapshot, request, provider, name):
    """Return the least capacity of an inventory with which it fits; None if none will do."""
    scenario = snapshot.fork()
    root = scenario.tree(provider)
    kept = next(one for one in root.walk() if one.name == provider).inventories[name]
    base = kept.total - kept.reserved
    asked = sum(r.amount for r in request.resources[name].to_records(name))
    for capacity in range(kept.capacity + 1, kept.used + asked + 3):
        scenario = snapshot.fork()
        ratio = ro.ratio.from_millionths(-(-capacity * 10**6 // base))
        raised = ro.IntegerInventory(
            kept.total,
            kept.reserved,
            kept.min_unit,
            kept.max_unit,
            kept.step_size,
            ratio,
        )
        scenario.resize(provider, {name: raised})
        if fits(scenario, request):
            return capacity
    return None


def plain_rows(snapshot):
    """Yield the (provider, class) of the inventories whose ratio may be another."""
    fleet = snapshot.fleet
    kept = {
        (place, name)
        for parts in fleet.parts.values()
        for place, shape in zip(parts.provider.tolist(), parts.shape.tolist(), strict=True)
        for name in parts.shapes[shape]
    }
    for name, rows in fleet.classes.items():
        for n, place in enumerate(rows.provider.tolist()):
            base = rows.total[n] - rows.reserved[n]
            is_unique = rows.is_part[n] or rows.is_single[n] or (place, name) in kept
            if base > 0 and not is_unique and not is_device(name):
                yield fleet.names[place], name


def crowded(fleets, seeds):
    """Yield worlds in which something fitted until nothing did any more."""
    for seed in seeds:
        ledger, request = fleets(seed)
        found = list(ledger.snapshot().candidates(request, limit=4))
        number = 0
        while found:
            ledger.claim(f"more-{number}", found[-1])
            found, number = list(ledger.snapshot().candidates(request, limit=4)), number + 1
        assert number, seed
        hosts = ledger.snapshot().hosts
        if seed % 2 and hosts:
            ledger.disable(hosts[0], reason="fan")
        yield seed, ledger.snapshot(), request
        ledger.close()


#: Of each kind of fleet seeds of worlds where something fits, and then nothing.
WORLDS = [
    *((counted, two) for two in ([9, 17], [30, 35], [37, 38], [42, 57], [81, 98], [101, 103])),
    *((counted, two) for two in ([106, 126], [132, 134], [140, 144], [147, 151], [152, 155])),
    *((numa_fleets.fleet, two) for two in ([13, 16], [18, 19], [20, 21], [24, 27], [35, 47])),
    *((numa_fleets.fleet, two) for two in ([49, 63], [64, 67], [70, 77], [81, 88], [98, 104])),
    *((device_fleets.fleet, two) for two in ([2, 19], [20, 34], [43, 48], [60, 68], [74, 76])),
    *((device_fleets.fleet, two) for two in ([77, 84], [85, 89], [91, 99], [100, 117])),
]
_FIRST = dict(reversed(WORLDS))


@pytest.mark.law(6)
@pytest.mark.parametrize(
    ("fleets", "seeds"),
    [
        pytest.param(*one, marks=() if one[1] is _FIRST[one[0]] else pytest.mark.long)
        for one in WORLDS
    ],
)
def test_what_is_found_is_what_trying_everything_finds(fleets, seeds):
    kinds = set()
    for seed, snapshot, request in crowded(fleets, seeds):
        told = snapshot.relaxations(request, MORE)
        assert told.fits is fits(snapshot, request), seed
        if told.fits:
            continue
        assert not told.cut_short, seed
        assert [one.cost for one in told] == sorted(one.cost for one in told)
        of = proven(snapshot, told)
        kinds |= set(of)
        assert set(of.get("release", ())) == naive_releases(snapshot, request), seed
        assert set(of.get("enable", ())) == naive_enabled(snapshot, request), seed
        check_amounts(snapshot, request, of.get("amount", {}))
        check_ratios(snapshot, request, of.get("ratio", {}))
        assert located_of(request, told) == naive_located(snapshot, request), seed
    assert kinds or any(seed % 2 for seed in seeds)  # where the only host may be out of service


KINDS_OF_LESS = {"amount", "policy", "topology"}
#: Seeds of fleets where a request for devices or a topology does not fit, and less of it does, of
#: which kinds at least.
LESS = [
    (device_fleets.fleet, [0, 1, 13, 27, 42, 86, 222, 228, 231, 409, 482], KINDS_OF_LESS),
    (numa_fleets.fleet, [3, 10, 28, 32, 42, 44, 166, 185, 332, 358, 912], KINDS_OF_LESS),
    *((device_fleets.fleet, range(one, one + 60), {"amount"}) for one in range(250, 490, 60)),
    *((numa_fleets.fleet, range(one, one + 60), {"amount"}) for one in range(250, 490, 60)),
]


@pytest.mark.law(6)
@pytest.mark.parametrize(
    ("fleets", "seeds", "every"),
    [pytest.param(*one, marks=() if n < 2 else pytest.mark.long) for n, one in enumerate(LESS)],
)
def test_less_of_what_says_where_is_found_as_by_trying_everything(fleets, seeds, every):
    kinds = set()
    for seed in seeds:
        ledger, request = fleets(seed)
        with ledger:
            snapshot = ledger.snapshot()
            told = snapshot.relaxations(request, MORE, kinds=KINDS_OF_LESS)
            proven(snapshot, told)
            assert not told.cut_short
            if not told.fits:
                less = located_of(request, told)
                assert less == naive_located(snapshot, request), seed
                kinds.update(kind for kind, _ in less)
    assert kinds >= every


#: Some of each sort of worlds; and those of which something untrue was told once.
CHANGED = [
    pytest.param(sort, start, 20, marks=pytest.mark.long if start else ())
    for sort in worlds.SORTS
    for start in range(0, 400, 20)
] + [("out of service", 1102, 1), ("out of service", 2367, 1), ("near", 1, 1)]


@pytest.mark.law(6)
@pytest.mark.parametrize(("sort", "start", "count"), CHANGED)
def test_who_leaves_returns_or_comes_is_whom_trying_everybody_finds(sort, start, count):
    kinds = ["release", "enable", "add"]
    for seed in range(start, start + count):
        world = worlds.SORTS[sort](seed)
        snapshot, request = world.snapshot, world.request
        told = snapshot.relaxations(request, MORE, kinds=kinds)
        assert not told.cut_short, seed
        if not told.fits:
            of = proven(snapshot, told)
            assert set(of.get("release", ())) == naive_releases(snapshot, request), seed
            assert set(of.get("enable", ())) == naive_enabled(snapshot, request), seed
            added = naive_added(snapshot, request)  # of hosts that are alike one is told
            assert set(of.get("add", ())) <= added, seed
            assert bool(of.get("add")) is bool(added), seed


def proven(snapshot, told):
    """Apply each relaxation in a scenario; return them by kind and subject."""
    of = {}
    for one in told:
        scenario = snapshot.fork()
        wanted = one.apply(scenario)
        assert fits(scenario, wanted), str(one)
        assert scenario.claim("proof", one.candidate), str(one)
        of.setdefault(one.kind, {})[one.subject] = one
    return of


def check_amounts(snapshot, request, found):
    asked = dict(request.unnamed.resources.by_name())
    located = {name for amount in asked.values() for name in amount.placed_counts}
    for name, amount in asked.items():
        if ro.resource(name).is_placed or name in located:
            continue
        largest, one = naive_amount(snapshot, request, name), found.get(name)
        assert (one is None) is (largest is None), name
        if one is not None and one.is_smallest:
            assert one.cost == 1 - Fraction(largest, amount.to_records(name)[0].amount), name


def check_ratios(snapshot, request, found):
    for provider, name in plain_rows(snapshot):
        if name not in request.resources:
            continue
        least = naive_ratio(snapshot, request, provider, name)
        one = found.get(f"{name} of {provider}")
        assert (one is None) is (least is None), (provider, name)
        if one is not None:
            scenario = snapshot.fork()
            one.apply(scenario)
            kept = next(p for p in scenario.tree(provider).walk() if p.name == provider)
            assert kept.inventories[name].capacity == least, (provider, name)


@pytest.fixture
def lab():
    with ro.connect("memory://") as ledger:
        for n in range(3):
            host = ro.Provider(f"host{n}", "VCPU=8,MEMORY_MB=1024", traits=["CUSTOM_SSD"])
            ledger.sync(host)
            ledger.claim(f"job-{n}", {f"host{n}": "VCPU=5"})
        yield ledger


def test_who_is_protected_stays_and_who_matters_is_dearer(lab):
    snapshot = lab.snapshot()

    def released(**said):
        return [one.subject for one in snapshot.relaxations("VCPU=8", kinds=["release"], **said)]

    assert released() == ["job-0", "job-1", "job-2"]
    assert released(protected=["job-0"]) == ["job-1", "job-2"]
    assert released(priorities={"job-0": 2, "job-1": 1}) == ["job-2", "job-1", "job-0"]


def test_the_end_of_a_claim_is_cheaper_the_sooner_it_is(lab):
    now = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)
    ends = {f"job-{n}": now + datetime.timedelta(hours=2 - n) for n in range(2)}
    told = lab.snapshot().relaxations("VCPU=8", ends=ends, now=now, kinds=["wait", "release"])
    assert [(one.kind, one.subject, one.cost) for one in told] == [
        ("wait", "job-1", Fraction(1, 4)),
        ("wait", "job-0", Fraction(1, 2)),
        ("release", "job-2", Fraction(15, 8)),
    ]
    assert told[0].description == "job-1 ends at 2026-11-23 01:00"


@pytest.mark.parametrize(
    "request_",
    [
        ro.Request("SRIOV_NET_VF=3"),
        ro.Request("VCPU=9,PGPU=2"),
        ro.Request(groups=[ro.RequestGroup("SRIOV_NET_VF=3", suffix="_n")]),
    ],
    ids=["functions", "beside a count", "group"],
)
def test_no_ratio_of_devices_is_raised(lab, request_):
    """A device exists once; what is counted beside it may be had more often."""
    host = ro.Provider("card", "VCPU=8,SRIOV_NET_VF=2")
    host.add("card/gpu", "PGPU=1")
    host.add("card/other", "PGPU=1")
    lab.sync(host)
    told = lab.snapshot().relaxations(request_, 9)
    raised = [one.subject for one in told if one.kind == "ratio"]
    assert raised == (["VCPU of card"] if "VCPU" in str(request_) else [])


def test_what_a_condition_costs_is_stated_and_may_be_said(lab):
    request = ro.Request("VCPU=4", required=["CUSTOM_SSD"], forbidden=["CUSTOM_OLD"])
    told = lab.snapshot().relaxations(request, 9)
    assert {one.kind: one.cost for one in told if one.kind in ("add", "trait")} == {
        "add": COSTS["add"]
    }
    cheap = lab.snapshot().relaxations(request, 1, costs={"add": Fraction(1, 100)})
    assert [str(one.change) for one in cheap] == ["add host0-like-1 like host0"]
    plan = Change.parse(str(cheap[0].change))
    assert plan == cheap[0].change


def test_conditions_of_a_request_are_dropped_one_by_one(lab):
    def told(request):
        found = lab.snapshot().relaxations(request, 9, kinds=set(COSTS) - {"add", "amount"})
        return [one.description for one in found if one.change is None]

    assert told(ro.Request("VCPU=2", required=["CUSTOM_FAST"])) == ["without the trait CUSTOM_FAST"]
    assert told(ro.Request("VCPU=2", forbidden=["CUSTOM_SSD"])) == [
        "also with the trait CUSTOM_SSD"
    ]
    assert told(ro.Request("VCPU=2", member_of=["rack1"])) == ["also outside rack1"]
    lab.release("job-2")
    four = ro.Request("VCPU=4", in_tree="host0")
    assert [one for one in told(four) if "host0" not in one] == []
    assert told(four)[0] == "also outside host0"
    assert told(ro.Request("VCPU=2", root_required=["CUSTOM_FAST"])) == [
        "without root_required CUSTOM_FAST"
    ]
    two = ro.Request("MEMORY_MB=1", group_policy="isolate").with_group("a", "VCPU=1")
    assert told(two.with_group("b", "VCPU=1")) == [
        "groups on one provider, not isolated",
        "without group a",
        "without group b",
    ]
    gpu = ro.Request("VCPU=2").with_group("gpu", "PGPU=1", required=["CUSTOM_FAST"])
    assert told(gpu) == ["without group gpu"]


def test_counts_beside_what_says_where_are_relaxed():
    with ro.connect("memory://") as ledger:
        host = ro.Provider("host0", "VCPU=4,DISK_GB=9")
        gpu = ro.Device("0000:3b:00.0", "10de", "2330", resource_class="PGPU")
        host.add_parts("DEVICES", ro.PCIInventory([gpu]))
        ledger.sync(host)

        def told(request):
            return [str(one) for one in ledger.snapshot().relaxations(request, kinds=["amount"])]

        assert told("VCPU=8,DEVICES=PGPU") == [
            "VCPU=4 instead of 8: VCPU=4 of host0, PGPU=1 of host0/0000:3b:00.0"
        ]
        assert told("VCPU=8,PGPU=1,DEVICES=PGPU") == told("VCPU=8,DEVICES=PGPU")


@pytest.fixture
def machine():
    """A machine of two cells of 40 CPUs, where 20 and 8 GiB are left of each, with three GPUs."""
    with ro.connect("memory://") as ledger:
        cells = [
            HostCell(n, dedicated=range(40 * n, 40 * n + 40), memory_mb=16384, socket=0)
            for n in range(2)
        ]
        host = ro.Provider("host0", "PCPU=80,MEMORY_MB=32768,DISK_GB=9")
        host.add_parts("NUMA_TOPOLOGY", NUMATopologyInventory(cells))
        gpus = [
            ro.Device(f"0000:3{n}:00.0", "10de", "2330", resource_class="PGPU", numa_node=n % 2)
            for n in range(3)
        ]
        host.add_parts("DEVICES", ro.PCIInventory(gpus))
        ledger.sync(host)
        ledger.claim("job-1", {"host0": {"NUMA_TOPOLOGY": numa(2, dedicated=40, memory_mb=16384)}})
        yield ledger


def less(ledger, request, *kinds):
    found = ledger.snapshot().relaxations(request, MORE, kinds=kinds or ["amount"])
    return [(one.description, str(one.request), one.cost, one.is_smallest) for one in found]


def test_a_topology_gets_fewer_cpus_and_less_memory(machine):
    asked = "NUMA_TOPOLOGY=1:dedicated={}:memory={}"
    assert less(machine, asked.format(24, 8192)) == [
        ("PCPU=20 instead of 24", asked.format(20, 8192), Fraction(1, 6), True)
    ]
    assert less(machine, "PCPU=24," + asked.format(24, 8192)) == [
        ("PCPU=20 instead of 24", "PCPU=20," + asked.format(20, 8192), Fraction(1, 6), True)
    ]
    assert less(machine, asked.format(20, 12288)) == [
        ("MEMORY_MB=8192 instead of 12288", asked.format(20, 8192), Fraction(1, 3), True)
    ]
    assert less(machine, asked.format(24, 12288)) == []  # no single change of an amount helps
    # of so many CPUs not all counts are tried, and which fit follows from no smaller one
    (one,) = less(machine, asked.format(100, 8192))
    assert one == ("PCPU=20 instead of 100", asked.format(20, 8192), Fraction(4, 5), False)


def test_unit_rules_of_the_host_bind_no_memory_of_its_cells(machine):
    host = machine.provider("host0")
    kept = {kind.name: inventory for kind, inventory in host.inventories.items()}
    step = ro.IntegerInventory(32768, step_size=1000)
    host.update(inventories=ro.Inventories({**kept, "MEMORY_MB": step}))
    machine.sync(host)
    asked = "NUMA_TOPOLOGY=1:dedicated=1:memory={}"
    (one,) = less(machine, asked.format(12288))
    assert one[1:] == (asked.format(8192), Fraction(1, 3), True)


def test_memory_in_pages_is_less_by_whole_pages():
    pages = [PagePool(size_kib=4, total=0), PagePool(size_kib=2048, total=9)]
    cell = HostCell(0, dedicated=[0], memory_mb=18, pages=pages)
    with ro.connect("memory://") as ledger:
        host = ro.Provider("host0", "PCPU=1")
        host.add_parts("NUMA_TOPOLOGY", NUMATopologyInventory([cell]))
        ledger.sync(host)
        asked = "NUMA_TOPOLOGY=1:dedicated=1:memory={}:page_size={}"
        assert less(ledger, asked.format(60, "2MB")) == [
            ("MEMORY_MB=18 instead of 60", asked.format(18, "2MB"), Fraction(7, 10), True)
        ]
        assert less(ledger, asked.format(60, "large")) == []  # how large is for the host to say


@pytest.mark.parametrize("is_ordered", [True, False])
def test_the_first_step_that_fits_is_found_whichever_it_is(is_ordered):
    request = ro.Request("DISK_GB=1,DEVICES=20*PGPU")
    ((reduction, make),) = [one for one in placed_reductions(request) if one[0].kind == "amount"]
    reduction = dataclasses.replace(reduction, is_ordered=is_ordered)
    for most in range(20):

        def size(step, most=most):
            devices = make(step).resources.get("DEVICES")
            return step.size if devices is None or devices.count <= most else None

        assert first_step(reduction, size) == Fraction(20 - most, 20)
    assert first_step(reduction, lambda step: None) is None


def test_a_topology_of_other_cells_and_policies_is_found(machine):
    assert less(machine, "NUMA_TOPOLOGY=1:dedicated=24", "topology", "policy") == [
        ("the counts of NUMA_TOPOLOGY alone", "PCPU=24", 1, True),
        ("2 guest cells instead of 1", "NUMA_TOPOLOGY=2:dedicated=24", 1, True),
    ]
    four = [one[0] for one in less(machine, "NUMA_TOPOLOGY=4:dedicated=8", "topology")]
    assert "2 guest cells instead of 4" in four
    asked = "NUMA_TOPOLOGY=1:dedicated=2:memory=64:page_size=2048"
    assert less(machine, asked, "policy") == [
        (
            "ordinary memory instead of pages of 2 MiB",
            "NUMA_TOPOLOGY=1:dedicated=2:memory=64",
            Fraction(1, 2),
            True,
        )
    ]
    require = "NUMA_TOPOLOGY=1:dedicated=2:thread_policy=require"
    assert [one[0] for one in less(machine, require, "policy")] == [
        "thread policy prefer instead of require"
    ]


def test_a_request_for_devices_gets_fewer_of_them_down_to_none(machine):
    gpus = "DISK_GB=1,DEVICES={}"
    assert less(machine, gpus.format("5*PGPU")) == [
        ("PGPU=3 instead of 5", gpus.format("3*PGPU"), Fraction(2, 5), True)
    ]
    assert less(machine, "PGPU=5,DEVICES=5*PGPU@alias=big") == [
        ("big=3 instead of 5", "PGPU=3,DEVICES=3*PGPU@alias=big", Fraction(2, 5), True)
    ]
    assert less(machine, gpus.format("8086.154c/2*PGPU")) == [
        ("8086.154c=0 instead of 1", gpus.format("2*PGPU"), 1, True)
    ]
    assert less(machine, gpus.format("2*8086.154c")) == [
        ("8086.154c=0 instead of 2", "DISK_GB=1", 1, True)
    ]
    assert less(machine, "DEVICES=2*8086.154c") == []  # nothing would be asked
    assert less(machine, "DEVICES=200*PGPU")[0][0] == "PGPU=3 instead of 200"
    of = {"FPGA": ["CUSTOM_A"], "DISK_GB": ["!CUSTOM_A"]}
    with_traits = ro.Request("DISK_GB=1,FPGA=1,DEVICES=FPGA", traits_of=of)
    assert [one[1] for one in less(machine, with_traits)] == ["DISK_GB=1 DISK_GB with=!CUSTOM_A"]


def test_devices_that_have_to_be_near_may_be_farther(machine):
    two = "NUMA_TOPOLOGY=1:dedicated=2,DEVICES={}*PGPU@{}"
    assert less(machine, two.format(3, "required"), "policy") == [
        (
            "affinity of PGPU socket instead of required",
            two.format(3, "socket"),
            Fraction(1, 2),
            True,
        )
    ]
    assert less(machine, two.format(3, "required"))[0][0] == "PGPU=2 instead of 3"


def test_a_kind_that_tells_no_less_is_left_as_it_is():
    """As one is that says where it is: to ask for less of that, ask without."""
    asked = ro.resource("NUMA_TOPOLOGY").make_amount(dedicated=2)
    assert ro.Resource.relaxations(ro.resource("NUMA_TOPOLOGY"), asked) == ()
    host = NUMATopologyInventory([HostCell(0, dedicated=[0, 1])])
    assert list(ro.resource("NUMA_TOPOLOGY").relaxations(host.fit(asked))) == []
    card = ro.PCIInventory([ro.Device("0000:3b:00.0", "10de", "2330", resource_class="PGPU")])
    assert list(ro.resource("DEVICES").relaxations(card.fit(ro.devices("PGPU")))) == []


def test_what_fits_needs_no_change_and_what_never_will_has_none(lab):
    assert lab.snapshot().relaxations("VCPU=1").fits
    assert str(lab.snapshot().relaxations("VCPU=1")) == "it fits as it is"
    none = lab.snapshot().relaxations("CUSTOM_X=1")
    assert (len(none), str(none), none.cut_short) == (0, "no single change helps", False)


def test_tries_that_end_are_no_no(lab):
    few = lab.snapshot().relaxations("VCPU=8", tries=1)
    assert few.cut_short
    with pytest.raises(exceptions.SearchLimitReached):
        bool(few)
    assert "cut short after 1 tries" in str(few)


@pytest.mark.parametrize(
    "said",
    [
        {"k": 0},
        {"k": True},
        {"tries": 0},
        {"costs": {"nothing": 1}},
        {"costs": {"add": 0}},
        {"costs": {"add": 0.5}},
        {"kinds": ["nothing"]},
        {"priorities": {"job-1": -1}},
        {"protected": "job-1"},
        {"budget": 0},
    ],
)
def test_options_that_cannot_be_are_refused(lab, said):
    with raises_code("InvalidRequest"):
        lab.snapshot().relaxations("VCPU=8", **said)
