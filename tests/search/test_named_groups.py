"""Named groups beside what the enumerator does not know: topologies, devices, a part of a tree.

What says where it goes is decided together with the groups; so a host is found exactly when some
way to give the groups, taken by somebody else, leaves it what the unnamed group asks for.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import Counter

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger.demand import merged_request
from resource_objects.providers import Provider
from resource_objects.providers.provider import Share
from resource_objects.reasons import Rule
from resource_objects.requests import Gang, Member, Request, RequestGroup
from resource_objects.resources.backtracking import CutShort
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa
from resource_objects.search import Snapshot, tree_search
from resource_objects.search import eligibility as named
from resource_objects.search import tree_search as hosting
from resource_objects.search.tree_search import FewUnits
from resource_objects.search.tree_solver import TreeSolver
from tests.search import device_fleets, numa_fleets, oracle
from tests.search.compatibility_cases import gpus, pool, tree
from tests.support import fleets
from tests.support.columns import columns_of
from tests.support.lengths import examples, some

TOPOLOGY = "NUMA_TOPOLOGY"
AMOUNTS = {"MEMORY_MB": [2, 16, 64]}


def group(suffix: str, resources: str = "", **conditions: object) -> RequestGroup:
    return RequestGroup(resources, suffix=suffix, **conditions)


def cells(*dedicated: int) -> NUMATopologyInventory:
    """Return cells of so many dedicated CPUs each."""
    first = itertools.accumulate(dedicated, initial=0)
    return NUMATopologyInventory(
        HostCell(number, dedicated=range(start, start + count), memory_mb=64)
        for number, (start, count) in enumerate(zip(first, dedicated, strict=False))
    )


# --- beside topologies and devices ---


def with_groups(chance: random.Random, request: Request, classes: list[str]) -> Request:
    """Return a request with one to three groups more, or with those alone."""
    groups = []
    for number in range(chance.choice([1, 1, 2, 2, 3])):
        name = chance.choice(classes)
        amount = chance.choice(AMOUNTS.get(name, [1, 1, 2]))
        groups.append(RequestGroup({name: amount}, suffix=f"_{number}"))
    policy = chance.choice([None, None, "isolate"])
    if chance.random() < 0.15:
        return Request(groups=groups, group_policy=policy)
    return request.replace(groups=(request.unnamed, *groups), group_policy=policy)


def generated(kind: str, seed: int) -> tuple[ro.Ledger, Request]:
    chance = random.Random(seed * 7 + 1)
    if kind == "numa":
        ledger, request = numa_fleets.fleet(seed)
        classes = ["VCPU", "PCPU", "FPGA", "FPGA", "MEMORY_MB", numa_fleets.PAGES]
    else:
        ledger, request = device_fleets.fleet(seed, traits=False)
        kept = set(ledger.backend.read().inventories.resource_class)
        classes = sorted(kept - {"MEMORY_MB"})
    return ledger, with_groups(chance, request, classes)


def options(ledger: ro.Ledger, host: str, name: str) -> list[Provider]:
    """Return who keeps a class on a host, less parts, whose whole gives it."""
    return [
        one
        for one in ledger.provider(host).walk()
        if any(r.resource_class == name for kept in one.inventories.values()
               for r in kept.to_records())
        and not any(s.resource_class == s.of_class == name for s in one.shares)
    ]  # fmt: skip


def can(ledger: ro.Ledger, host: str, request: Request) -> bool:
    """Return whether somebody can take the groups so that what is left has the rest."""
    names = [next(iter(one.resources.names())) for one in request.named]
    for chosen in itertools.product(*(options(ledger, host, name) for name in names)):
        if request.isolates and len({one.name for one in chosen}) < len(chosen):
            continue
        amounts: dict[str, Counter[str]] = {}
        for one, given in zip(request.named, chosen, strict=True):
            for name, amount in one.resources.by_name():
                amounts.setdefault(given.name, Counter())[name] += int(amount)
        try:
            ledger.claim("groups", {name: dict(some) for name, some in amounts.items()})
        except exceptions.CapacityException:
            continue
        try:
            if not request.unnamed.resources:
                return True
            rest = request.replace(groups=(request.unnamed,), group_policy=None)
            if any(one.host == host for one in ledger.snapshot().candidates(rest, limit=None)):
                return True
        finally:
            ledger.release("groups")
    return False


def is_told_apart(ledger: ro.Ledger, host: str, request: Request) -> bool:
    """Return whether it matters who takes the groups: what one consumer may take at most is summed,

    and of a cell a consumer has CPUs by name or by number.
    """
    names = {name for one in request.named for name in one.resources.names()}
    root = ledger.provider(host)
    most = [
        kept.max_unit for kind, kept in root.inventories.items()
        if kind.name in names and isinstance(kept, ro.IntegerInventory)
    ]  # fmt: skip
    has_cells_own = "PCPU" in names and "PCPU" not in root.inventories
    return has_cells_own or any(one is not None for one in most)


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("start", some(range(0, 400, 50)))
@pytest.mark.parametrize("kind", ["numa", "devices"])
def test_a_host_is_found_if_the_groups_leave_what_else_is_asked(kind, start):
    answers = Counter()
    for seed in range(start, start + 50):
        ledger, request = generated(kind, seed)
        found = ledger.snapshot().candidates(request, limit=None)
        if found.cut_short:
            continue
        for one in found:
            claim = ledger.claim("new", one)
            assert not list(ledger.audit()), seed
            assert claim.amounts == one.amounts, seed
            ledger.release("new")
            assert one.mappings.keys() - {""} == {each.suffix for each in request.named}, seed
        hosts = {one.host for one in found}
        told = dict(found.explain().by_host())
        for host in ledger.snapshot().hosts:
            assert host in hosts or told[host], seed
            if not is_told_apart(ledger, host, request):
                expected = can(ledger, host, request)
                assert (host in hosts) is expected, (seed, host, str(request))
                answers[expected] += 1
    assert min(answers[True], answers[False]) > 1


@pytest.mark.drawn
@pytest.mark.law(9)
@pytest.mark.parametrize("kind", ["numa", "devices"])
def test_a_small_budget_beside_what_is_located_never_says_no(kind):
    for seed in range(examples(200)):
        ledger, request = generated(kind, seed)
        kept = ledger.snapshot()
        whole = kept.candidates(request, limit=None)
        if whole.cut_short:
            continue
        hosts = {one.host for one in whole}
        for budget in (1, 2, 5, max(1, whole.steps - 1), whole.steps or 1):
            found = kept.candidates(request, limit=None, budget=budget)
            assert found.steps <= budget
            refused = {host for host, _ in found.explain().by_host()}
            assert not refused & hosts, (seed, budget)
            assert found.cut_short or list(found) == list(whole), (seed, budget)


def test_more_of_a_host_is_asked_for_and_what_is_located_has_one_way_beside_each_of_groups():
    ledger = ro.connect("memory://")
    host = Provider("h", "VCPU=8,MEMORY_MB=64")
    for number, kind in enumerate(("PGPU=1", "PGPU=1:max_unit=1", "PGPU=2")):
        host.add(f"h/{number}", kind)
    host.add_parts(TOPOLOGY, cells(4))
    ledger.sync(host)
    request = Request("NUMA_TOPOLOGY=1:dedicated=2", groups=[group("_1", "PGPU=1")])
    found = ledger.snapshot().candidates(request, per_host=9)
    assert [one.mappings["_1"] for one in found] == [("h/0",), ("h/1",), ("h/2",)]
    assert len({one.located for one in found}) == 1


def test_a_cell_gives_a_consumer_its_cpus_by_name_or_by_number():
    """Two dedicated CPUs in each cell, which the host does not count itself."""
    ledger = ro.connect("memory://")
    host = Provider("h", "DISK_GB=8")
    host.add_parts(TOPOLOGY, cells(2, 2))
    ledger.sync(host)
    request = Request("NUMA_TOPOLOGY=1:dedicated=1", groups=[group("_1", "PCPU=1")])
    (found,) = ledger.snapshot().candidates(request)
    assert found.mappings == {"": ("h/numa1",), "_1": ("h/numa0",)}
    ledger.claim("a", found)
    assert not list(ledger.audit())
    both = request.with_group("_2", "PCPU=2")
    assert not ledger.snapshot().candidates(both)


# --- a way that leaves too little, and the next ---


def test_what_one_way_uses_as_its_own_is_not_what_another_uses_because_of_shares():
    """Both ways use as much of h and of h/c; only one of them as the host's own, of which the

    unnamed group could not have two more.
    """
    uses = [[Share(resource_class="PGPU", of=of, of_class="VCPU", factor=2)] for of in ("h/c", "h")]
    host = tree(
        "h",
        "VCPU=10:max_unit=3",
        tree("h/c", "VCPU=3", traits=["CUSTOM_N"]),
        *(tree(f"h/g{n}", "PGPU=1", shares=shares) for n, shares in enumerate(uses)),
    )
    request = Request(
        "VCPU=2", forbidden=["CUSTOM_N"], groups=[group("_A", "PGPU=1"), group("_B", "VCPU=2")]
    )
    assert oracle.check_complete(columns_of([host]), request)
    assert oracle.check_hosts(columns_of([host]), request)


def test_who_has_too_few_units_beside_one_way_may_have_them_beside_another(monkeypatch):
    built = tree_search.candidate

    def few(*given):
        made = built(*given)
        if made.mappings[""] == made.mappings["_1"]:
            raise FewUnits
        return made

    monkeypatch.setattr(hosting, "candidate", few)
    host = tree("h", None, tree("h/0", "PGPU=2", traits=["CUSTOM_A"]), *gpus("i", 1))
    request = Request("PGPU=1", required=["CUSTOM_A"], groups=[group("_1", "PGPU=1")])
    (found,) = Snapshot(columns_of([host])).candidates(request)
    assert found.mappings == {"": ("h/0",), "_1": ("i/0",)}


@pytest.mark.drawn
@pytest.mark.law(5)
@pytest.mark.parametrize("compatibility", [None, "placement"], ids=["ours", "placement"])
def test_how_many_pools_are_counted_changes_nothing(monkeypatch, compatibility):
    monkeypatch.setattr(named, "COUNTED_POOLS", 0)
    for seed in range(examples(600)):
        chance = random.Random(seed)
        roots = fleets.fleet(chance)
        request = fleets.request(chance, roots, compatibility=compatibility)
        oracle.check_complete(columns_of(roots), request)


# --- a part of a tree ---


def cut() -> Snapshot:
    """Return what is at and below h/n, of h.

    h               VCPU=4     CUSTOM_R, in rack
    ├── h/m         VCPU=1
    └── h/n         MEMORY_MB  CUSTOM_N
        └── h/n/g   PGPU=1
    """
    host = tree(
        "h",
        "VCPU=4",
        tree("h/m", "VCPU=1"),
        tree("h/n", "MEMORY_MB=4", tree("h/n/g", "PGPU=1"), traits=["CUSTOM_N"]),
        traits=["CUSTOM_R"],
        aggregates=["rack"],
    )
    return Snapshot(columns_of([host, tree("other", "PGPU=1")]), at="h/n")


GROUP = {"groups": [group("_1", "PGPU=1", in_tree="h")]}


@pytest.mark.parametrize(
    ("conditions", "ours", "placement"),
    [
        ({"in_tree": "h"}, True, True),
        ({"in_tree": "h/m"}, True, True),
        ({"in_tree": "h/n"}, True, True),
        ({"in_tree": "other"}, False, False),
        (GROUP, True, True),
        ({"root_required": ["CUSTOM_R"]}, True, True),
        ({"root_required": ["CUSTOM_N"]}, False, False),
        ({"root_forbidden": ["CUSTOM_N"]}, True, True),
        ({"root_forbidden": ["CUSTOM_R"]}, False, False),
        ({"required": ["CUSTOM_R"]}, True, False),
        ({"required": ["CUSTOM_N"]}, True, True),
        ({"forbidden": ["CUSTOM_R"]}, False, True),
        ({"member_of": ["rack"]}, True, True),
        ({"not_member_of": ["rack"]}, False, False),
    ],
    ids=str,
)
def test_what_is_above_a_cut_counts_as_it_does_without_one(conditions, ours, placement):
    for compatibility, expected in ((None, ours), ("placement", placement)):
        request = Request("MEMORY_MB=1", **conditions, compatibility=compatibility)
        assert bool(cut().candidates(request)) is expected, compatibility


def test_of_what_is_above_a_cut_only_its_own_counts_for_a_group_by_placement():
    for conditions in ({"member_of": ["rack"]}, {"required": ["CUSTOM_R"]}):
        request = Request(groups=[group("_1", "MEMORY_MB=1", **conditions)])
        assert cut().candidates(request)
        assert not cut().candidates(request.replace(compatibility="placement"))


def test_a_group_that_asks_for_nothing_is_about_a_provider_and_not_what_is_above_the_cut():
    for trait, expected in (("CUSTOM_N", True), ("CUSTOM_R", False)):
        request = Request(
            groups=[group("_1", "PGPU=1"), group("_0", required=[trait])],
            same_subtree=[["_0", "_1"]],
        )
        assert bool(cut().candidates(request)) is expected


# --- what is told of the hosts that are no candidates ---


def test_hosts_that_only_their_pools_serve_are_each_told_of():
    """They find what one of them finds, and so only one of them is looked at."""
    hosts = [tree(f"h{number}", "VCPU=4", aggregates=["r"]) for number in range(3)]
    pools = [pool(name, "DISK_GB=5") for name in ("p", "q")]
    amounts = {"_1": "DISK_GB=4", "_2": "DISK_GB=3", "_3": "DISK_GB=3"}
    request = Request(
        groups=[group(suffix, amount) for suffix, amount in amounts.items()],
        compatibility="placement",
    )
    kept = Snapshot(columns_of([*hosts, *pools]))
    found = kept.candidates(request)
    assert not found
    told = dict(found.explain().by_host())
    assert list(told) == ["h0", "h1", "h2", "p", "q"]
    assert all(reason.group == "_1, _2, _3" for (reason,) in told.values())
    cut_short = kept.candidates(request, budget=found.steps - 1)
    assert cut_short.cut_short
    refused = {host for host, _ in cut_short.explain().by_host()}
    assert refused | set(cut_short.explain().undecided) == set(told)


def test_who_is_undecided_is_not_told_as_not_looked_at_as_well(monkeypatch):
    """h0 is undecided; h1 and h2 are found, which is all that is asked for; h3 is not looked at."""
    solutions, asked = TreeSolver.solutions, []

    def decided(solver):
        asked.append(solver)
        if len(asked) == 1:
            raise CutShort(1)
        return solutions(solver)

    monkeypatch.setattr(TreeSolver, "solutions", decided)
    roots = [Provider(f"h{number}") for number in range(4)]
    for root in roots:  # two share, which arrays do not decide
        for device in range(2):
            root.add(f"{root.name}/{device}", "PGPU=1")
    found = Snapshot(columns_of(roots)).candidates("PGPU=2", limit=2)
    assert [one.host for one in found] == ["h1", "h2"]
    assert str(found.explain()).splitlines() == [
        "h0: undecided, the budget of 30000 steps ran out",
        "and 1 more host not looked at: the limit was reached",
    ]


@pytest.mark.drawn
@pytest.mark.parametrize("compatibility", [None, "placement"], ids=["ours", "placement"])
def test_every_host_that_is_refused_is_told_why_and_no_other(compatibility):
    rules = set()
    for seed in range(examples(800)):
        chance = random.Random(seed)
        roots = fleets.fleet(chance, shares=compatibility is None)
        request = fleets.request(chance, roots, compatibility=compatibility)
        kept = Snapshot(columns_of(roots))
        found = kept.candidates(request, limit=None)
        told = dict(found.explain().by_host())
        hosts = {one.host for one in found}
        assert all(told.values()) and not hosts & told.keys(), seed
        if compatibility is None:
            assert hosts | told.keys() >= set(kept.hosts), seed
        suffixes = {one.suffix for one in request.named}
        for reason in (each for reasons in told.values() for each in reasons):
            rules.add(reason.rule)
            assert set((reason.group or "").split(", ")) <= suffixes | {""}, seed
            assert reason.rule is not Rule.CAPACITY or reason.requested > reason.free
    assert len(rules) > 10


# --- claims ---


def lab() -> ro.Ledger:
    ledger = ro.connect("memory://")
    for number in range(3):
        host = Provider(f"host{number}", "VCPU=8,DISK_GB=9")
        for gpu in range(3):
            host.add(f"host{number}/gpu{gpu}", "PGPU=1", traits=["CUSTOM_H100"])
        ledger.sync(host)
    return ledger


PAIR = Request(
    "VCPU=2",
    groups=[group("_1", "PGPU=1"), group("_2", "PGPU=1", required=["CUSTOM_H100"])],
    group_policy="isolate",
)


@pytest.mark.parametrize("compatibility", [None, "placement"], ids=["ours", "placement"])
def test_a_claim_keeps_the_whole_request(compatibility):
    ledger, request = lab(), PAIR.replace(compatibility=compatibility)
    assert ledger.claim("a", ledger.snapshot().candidates(request)).request == request
    assert ledger.get_claim("a").request == request
    moved = ledger.move("a", ledger.snapshot().candidates(request, order="spread"))
    assert moved.request == request
    assert moved.amounts == ro.Amounts("VCPU=2,PGPU=2")
    every = {"b": ledger.snapshot().candidates(request), "c": {"host2": "VCPU=1"}}
    assert [one.request for one in ledger.claim_all(every)] == [request, None]


def test_what_is_asked_besides_leaves_the_groups_as_they_are():
    ledger = lab()
    (host := ledger.provider("host0")).add_parts(
        TOPOLOGY,
        cells(4),
    )
    ledger.sync(host)
    request = PAIR.with_unnamed(
        RequestGroup("VCPU=2,DISK_GB=1", traits_of={"VCPU": ["!CUSTOM_H100"]})
    )
    ledger.claim("a", ledger.snapshot("host0").candidates(request))
    told = ledger.adjust("a", {"host0": {TOPOLOGY: numa(dedicated=1)}}).request
    assert told.named == request.named and told.isolates
    assert TOPOLOGY in told.unnamed.resources.names()


def test_what_locates_a_class_takes_the_place_of_what_was_asked_of_who_gives_it():
    before = Request(
        "DISK_GB=2,PCPU=1", traits_of={"PCPU": ["CUSTOM_A"], "DISK_GB": ["CUSTOM_B"]}
    ).with_group("_1", "PGPU=1")
    told = merged_request(before, Request("NUMA_TOPOLOGY=1:dedicated=2"))
    assert str(told) == "DISK_GB=2,NUMA_TOPOLOGY=1:dedicated=2 DISK_GB with=CUSTOM_B; _1: PGPU=1"


def test_a_lost_race_is_searched_anew_by_the_same_preference_with_the_next_seed(monkeypatch):
    ledger, again = lab(), []
    found = ledger.snapshot().candidates(PAIR, limit=1, per_host=3, order="pack", seed=5)
    ledger.claim("faster", {found[0].host: "VCPU=8"})
    searched = Snapshot.searched

    def seen(self, request, options):
        again.append((request, options))
        return searched(self, request, options)

    monkeypatch.setattr(Snapshot, "searched", seen)
    claim = ledger.claim("a", found)
    assert claim.amounts == ro.Amounts("VCPU=2,PGPU=2")
    ((request, options),) = again
    assert request == PAIR
    assert options == found.options.again(0) and options.seed == 6 and options.per_host == 3


@pytest.mark.parametrize("compatibility", [None, "placement"])
@pytest.mark.parametrize("wanted", [0, 5, 11])
def test_what_the_unnamed_group_needs_is_not_given_to_named_ones_first(wanted, compatibility):
    root = Provider("host0", "VCPU=1")
    for number in range(12):
        traits = [f"CUSTOM_N{number}", *(["CUSTOM_A"] if number == wanted else [])]
        root.add(f"host0/gpu{number:02}", "PGPU=1", traits=traits)
    unlike = [group(f"_{n}", "PGPU=1", forbidden=[f"CUSTOM_OTHER_{n}"]) for n in range(8)]
    request = Request(
        "PGPU=1",
        required=["CUSTOM_A"],
        groups=unlike,
        group_policy="none",
        compatibility=compatibility,
    )
    found = Snapshot(columns_of([root])).candidates(request, limit=1)
    assert found.steps < 200
    assert found[0].mappings[""] == (f"host0/gpu{wanted:02}",)


# --- equal sets of same_subtree ---


def switches(count: int, name: str = "h") -> Provider:
    """Return a host of switches with a GPU and a NIC each; the NIC of the first is used up."""
    root = Provider(name, "VCPU=64")
    for number in range(count):
        switch = root.add(f"{name}/{number}", traits=["CUSTOM_SWITCH"])
        switch.add(f"{name}/{number}/gpu", "PGPU=1")
        functions = ro.IntegerInventory(total=4, reserved=0 if number else 4)
        switch.add(f"{name}/{number}/nic", {"SRIOV_NET_VF": functions})
    return root


def sets(count: int, policy: str = "none", shape: str = "SGN", functions: int = 1) -> Request:
    """Return a request for sets of a switch, a GPU and a NIC.

    :param shape: which of these are in a set
    :param functions: how many the last set asks for
    """
    groups, subtrees = [], []
    for number in range(count):
        wanted = functions if number == count - 1 else 1
        resources = {"S": "", "G": "PGPU=1", "N": f"SRIOV_NET_VF={wanted}"}
        required = {"S": ["CUSTOM_SWITCH"]}
        own = [
            group(f"_{one}{number}", resources[one], required=required.get(one, ()))
            for one in shape
        ]
        groups += own if number % 2 else own[::-1]
        subtrees.append([one.suffix for one in own])
    return Request(groups=groups, group_policy=policy, same_subtree=subtrees)


@pytest.mark.parametrize("policy", ["none", "isolate"])
@pytest.mark.parametrize("functions", [1, 2], ids=["equal", "all but one"])
@pytest.mark.parametrize("count", [5, 8, 12])
def test_equal_sets_are_considered_once(count: int, functions: int, policy: str) -> None:
    """The steps of a refusal do not grow with the ways to name the sets, or to choose switches."""
    snapshot = Snapshot(columns_of([switches(count)]))
    request = sets(count, policy, functions=functions)
    refused = snapshot.candidates(request, budget=20 * count)
    assert not refused
    assert not refused.cut_short
    assert snapshot.candidates(sets(count - 1, policy, functions=functions), budget=20 * count)


def test_equal_sets_over_several_hosts_are_given_by_the_host_that_has_enough() -> None:
    snapshot = Snapshot(columns_of([switches(8, "a"), switches(9, "b")]))
    (found,) = snapshot.candidates(sets(8), budget=500)
    assert found.host == "b"


def test_equal_sets_are_listed_in_each_way_the_first_one_first() -> None:
    found = Snapshot(columns_of([switches(5)])).candidates(sets(2), limit=None, per_host=100)
    switch = [tuple(one.mappings[f"_S{n}"][0][-1] for n in range(2)) for one in found]
    assert switch == list(itertools.permutations("1234", 2))
    assert not found.cut_short


def test_how_often_sets_fit_is_bound_by_the_switches_that_can_give_one() -> None:
    snapshot = Snapshot(columns_of([switches(12)]))
    assert str(snapshot.how_many(sets(1))) == "11"
    assert str(snapshot.how_many(sets(2))) == "5"
    pair = Member("pair", sets(1), 11)
    assert snapshot.fit_gang(Gang([pair]))
    refused = snapshot.fit_gang(Gang([dataclasses.replace(pair, count=12)]))
    assert str(refused) == "pair requested 12, fits 11"


@pytest.mark.drawn
def test_sets_are_listed_as_the_enumerator_lists_them() -> None:
    """Of hosts of two or three switches: each form once, and none is missing."""
    found = 0
    for seed in range(examples(400)):
        chance = random.Random(seed)
        root = Provider("h", {"VCPU": 2, "PGPU": 1}, traits=chance.choice([[], ["CUSTOM_SWITCH"]]))
        for number in range(chance.choice([2, 2, 3])):
            switch = root.add(f"h/{number}", traits=["CUSTOM_SWITCH"])
            for gpu in range(chance.choice([1, 2])):
                switch.add(f"h/{number}/{gpu}", {"PGPU": chance.choice([1, 2])})
            switch.add(f"h/{number}/n", {"SRIOV_NET_VF": chance.choice([1, 2])})
        shape, policy = chance.choice(["SG", "SGN", "GN", "G"]), chance.choice(["none", "isolate"])
        request = sets(2, policy, shape, chance.choice([1, 1, 1, 2]))
        found += len(oracle.check_complete(columns_of([root]), request))
    assert found > 100
