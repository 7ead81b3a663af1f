"""The search on one tree, held to the product of all choices."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resource_objects.exceptions import SearchLimitReached
from resource_objects.providers import Provider
from resource_objects.providers.provider import Share
from resource_objects.requests import Request, RequestGroup
from resource_objects.resources import backtracking
from resource_objects.resources.backtracking import Budget
from resource_objects.search import Snapshot
from resource_objects.search.demands import Source, TreeDemand
from resource_objects.search.problem import compile_request
from resource_objects.search.tree_solver import TreeSolver
from tests.support.columns import columns_of
from tests.support.lengths import examples

TRAITS = ["CUSTOM_A", "CUSTOM_B"]
PGPU_OF_HOST = Share(resource_class="PGPU", of="h", of_class="VCPU", factor=1)


def asked(root: Provider, request: Request, budget: int = 10**9) -> tuple[TreeSolver, Budget]:
    question = compile_request(request, Snapshot(columns_of([root]))._fleet)
    purse = Budget(budget)
    return TreeSolver(question.fleet, 0, purse, named=question.named), purse


def generated(chance: random.Random) -> tuple[Provider, Request]:
    """Return a host with two cells of devices, many of them equal, and up to four groups."""
    root = Provider("h", {"VCPU": chance.choice([2, 4])})
    for cell in range(2):
        above = root.add(f"h/{cell}", "MEMORY_MB=2", traits=["CUSTOM_CELL"])
        for number in range(chance.choice([1, 2, 3])):
            one = above.add(
                f"h/{cell}/{number}",
                {"PGPU": chance.choice([1, 2, 2]), "VCPU": 1},
                traits=[trait for trait in TRAITS if chance.random() < 0.3],
            )
            if chance.random() < 0.3:
                one.update(shares=[PGPU_OF_HOST])
    groups = []
    for number in range(chance.choice([1, 2, 3, 3, 4])):
        what = chance.choice(["PGPU=1", "PGPU=1", "PGPU=2", "VCPU=1", "VCPU=1,PGPU=1"])
        required = [trait for trait in TRAITS if chance.random() < 0.15]
        groups.append(RequestGroup(what, suffix=f"_{number}", required=required))
    subtrees = []
    if chance.random() < 0.4:
        groups.append(RequestGroup(suffix="_cell", required=["CUSTOM_CELL"]))
        subtrees = [["_cell", *chance.sample([f"_{n}" for n in range(len(groups) - 1)], 1)]]
    policy = chance.choice([None, "isolate"])
    return root, Request(groups=groups, group_policy=policy, same_subtree=subtrees)


class Everything:
    """Every way to give the groups, ``(suffix, provider)``, by trying all of them."""

    def __init__(self, root: Provider, request: Request) -> None:
        self.request = request
        self.providers = {one.name: one for one in root.walk()}
        self.parent = {one.name: above and above.name for one, above in root.parents()}
        options = [[n for n in self.providers if self.gives(group, n)] for group in request.named]
        suffixes = [group.suffix for group in request.named]
        self.ways = {
            tuple(zip(suffixes, chosen, strict=True))
            for chosen in itertools.product(*options)
            if self.is_right(dict(zip(suffixes, chosen, strict=True)))
        }

    def above(self, name: str) -> list[str]:
        found = [name]
        while (parent := self.parent[found[-1]]) is not None:
            found.append(parent)
        return found

    def gives(self, group: RequestGroup, name: str) -> bool:
        some = self.above(name) if group.resources else [name]
        has = {trait for one in some for trait in self.providers[one].traits}
        kept = {kind.name for kind in self.providers[name].inventories}
        return group.required <= has and set(group.resources.names()) <= kept

    def is_right(self, chosen: dict[str, str]) -> bool:
        if self.request.isolates and len(set(chosen.values())) < len(chosen):
            return False
        return self.fits(chosen) and all(
            any(all(chosen[top] in self.above(chosen[suffix]) for suffix in some) for top in some)
            for some in self.request.same_subtree
        )

    def fits(self, chosen: dict[str, str]) -> bool:
        used: Counter[tuple[str, str]] = Counter()
        for group in self.request.named:
            one = self.providers[chosen[group.suffix]]
            for kind, amount in group.resources.by_name():
                used[one.name, kind] += int(amount)
                for share in one.shares:
                    if share.resource_class == kind:
                        used[share.of, share.of_class] += int(amount) * share.factor
        return all(
            count <= self.providers[name].inventories[kind].total
            for (name, kind), count in used.items()
        )


def alike(root: Provider, request: Request, way: tuple[tuple[str, str], ...]) -> object:
    """Return a key of a way that is the same if equal providers or equal groups are exchanged."""
    providers = {one.name: one for one in root.walk()}
    groups = {group.suffix: group for group in request.named}
    in_sets = {s: [s in some for some in request.same_subtree] for s in groups}

    def kind(suffix: str) -> str:
        return f"{groups[suffix].replace(suffix='_')} {in_sets[suffix]}"

    def like(name: str) -> str:
        one = providers[name]
        if one.children or name == "h":
            return name
        figures = sorted((str(k), str(v)) for k, v in one.inventories.items())
        return f"{name.rsplit('/', 1)[0]} {figures} {sorted(one.traits)} {one.shares}"

    by_provider: dict[str, list[str]] = {}
    for suffix, name in way:
        by_provider.setdefault(name, []).append(kind(suffix))
    return tuple(sorted((like(name), tuple(sorted(held))) for name, held in by_provider.items()))


@pytest.mark.drawn
@pytest.mark.law(5)
def test_every_way_is_found_and_of_those_alike_at_least_one():
    ways, tries = 0, examples(600)
    for seed in range(tries):
        root, request = generated(random.Random(seed))
        expected = Everything(root, request).ways
        found_by, _ = asked(root, request)
        snapshot = Snapshot(columns_of([root]))
        kinds = compile_request(request, snapshot._fleet).named.kinds
        found = set()
        for one in found_by.solutions():
            suffixes = [iter(kind.suffixes) for kind in kinds]
            given = {next(suffixes[n]): snapshot._fleet.names[at] for n, at in one.groups}
            way = tuple((group.suffix, given[group.suffix]) for group in request.named)
            assert way in expected, (seed, way)
            found.add(alike(root, request, way))
        assert found == {alike(root, request, way) for way in expected}, seed
        ways += len(expected)
    assert ways > 2 * tries


@pytest.mark.drawn
@pytest.mark.law(9)
def test_a_small_budget_ends_it_and_is_never_overdrawn():
    for seed in range(examples(300)):
        root, request = generated(random.Random(seed))
        whole, purse = asked(root, request)
        every = list(whole.solutions())
        for budget in {1, purse.spent // 2, purse.spent - 1, purse.spent} - {-1, 0}:
            try:
                cut, short = asked(root, request, budget)
                found = list(cut.solutions())
            except SearchLimitReached:
                assert budget < purse.spent
            else:
                assert found == every and short.spent == purse.spent <= budget


def tall(groups: int) -> tuple[Provider, Request]:
    """Return a host of as many devices as there are groups, no two of which are alike."""
    chance, traits = random.Random(1), [f"CUSTOM_T{number}" for number in range(30)]
    root = Provider("h", "VCPU=1")
    for number in range(groups):
        root.add(f"h/{number:03}", "PGPU=1", traits=chance.sample(traits, 20))
    some = [
        RequestGroup("PGPU=1", suffix=f"_{n}", required=chance.sample(traits, 2))
        for n in range(groups)
    ]
    return root, Request(groups=some, group_policy="isolate")


def test_what_a_large_request_looks_at_is_paid_for():
    """A budget bounds the time of any request: preparation and each step are paid for."""
    root, request = tall(150)
    small = asked(*tall(10))[1]
    assert small.spent < 20
    large = asked(root, request)[1]
    assert large.spent > 300
    with pytest.raises(SearchLimitReached):
        asked(root, request, 300)


def test_isolated_groups_without_two_alike_are_matched_step_by_step():
    isolated, purse = asked(*tall(150))
    one = next(isolated.solutions())
    assert len({provider for _, provider in one.groups}) == 150
    assert purse.spent < 3000


@pytest.mark.parametrize("room", [0, 3])
def test_how_many_dead_ends_are_remembered_changes_no_way(monkeypatch, room):
    for seed in range(60):
        root, request = generated(random.Random(seed))
        every = list(asked(root, request)[0].solutions())
        with monkeypatch.context() as patched:
            patched.setattr(backtracking, "REMEMBERED", room)
            assert list(asked(root, request)[0].solutions()) == every, seed


# --- one class ---


@st.composite
def givers(draw):
    step = draw(st.integers(1, 2))
    low = step * draw(st.integers(1, 3))
    return Source(low, step * draw(st.integers(0, 4)), step, draw(st.booleans()))


def ways(amount, some, allowed=-1, budget=10**6):
    """Return every way to provide a class, by devices that all differ."""
    root = Provider("h", "VCPU=1")
    for number in range(len(some)):
        root.add(f"h/{number}", "VCPU=1", traits=[f"CUSTOM_{number}"])
    demand = TreeDemand(amount, range(1, 1 + len(some)), tuple(some), allowed, ())
    solver = TreeSolver(Snapshot(columns_of([root]))._fleet, 0, Budget(budget), [demand])
    return [solution.parts[0] for solution in solver.solutions()]


def _is_part(source, part):
    return source.low <= part <= source.high and part % source.step == 0


def every_way(amount, some):
    """Yield every way, trying all parts of all."""
    for parts in itertools.product(range(amount + 1), repeat=len(some)):
        taking = [place for place, part in enumerate(parts) if part]
        fits = all(_is_part(some[place], parts[place]) for place in taking)
        shared = len(taking) == 1 or all(some[place].is_device for place in taking)
        if sum(parts) == amount and fits and shared:
            yield tuple((place, parts[place]) for place in taking)


@settings(max_examples=examples(200))
@given(st.integers(1, 6), st.lists(givers(), max_size=4))
def test_every_way_comes_once(amount, some):
    assert sorted(ways(amount, some)) == sorted(every_way(amount, some))


def test_givers_that_are_left_out_give_nothing():
    some = [Source(1, 4, 1, True)] * 3
    assert set(ways(2, some, 0b101)) == {((0, 2),), ((2, 2),), ((0, 1), (2, 1))}


def test_a_huge_amount_is_cut_short_and_not_written_out():
    some = [Source(1, 2**40, 1, True)] * 2
    with pytest.raises(SearchLimitReached):
        ways(2**40, some, budget=1000)


@pytest.mark.parametrize(
    ("used", "most"), [("CUSTOM_POWER=6", 6), ("VGPU=6", 2), ("CUSTOM_POWER=15", 2)]
)
def test_a_group_leaves_less_of_its_inventory_and_of_those_that_share_it(used, most):
    root = Provider("h", "CUSTOM_POWER=20")
    share = Share(resource_class="VGPU", of="h", of_class="CUSTOM_POWER", factor=2)
    root.add("h/0", "VGPU=8:min_unit=2:step_size=2").update(shares=[share])
    snapshot, group = Snapshot(columns_of([root])), RequestGroup(used, suffix="_1")
    able = [n for n in range(1, 9) if snapshot.candidates(Request(f"VGPU={n}", groups=[group]))]
    assert able == list(range(2, most + 1, 2))
