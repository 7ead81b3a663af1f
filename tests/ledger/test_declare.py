"""Declaring: many trees at once, single fields of one provider, moves within and between trees."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import RetryPolicy, new_operation
from resource_objects.providers import Backend, Share
from resource_objects.providers.orders import Write
from resource_objects.testing.refusals import raises_code


def host(name: str, *children: str) -> ro.Provider:
    """Return a host with devices below it."""
    made = ro.Provider(name, "VCPU=8")
    for child in children:
        made.add(f"{name}/{child}", "PGPU=1")
    return made


def shape(ledger: ro.Ledger) -> dict[str, str | None]:
    """Return ``{provider: parent}`` of all that is kept."""
    return {
        provider.name: None if parent is None else parent.name
        for root in ledger.trees()
        for provider, parent in root.parents()
    }


def listed_shape(ledger: ro.Ledger) -> dict[str, tuple[str | None, str]]:
    """Return ``{provider: (parent, root)}`` as the backend lists it."""
    return {one.name: (one.parent, one.root) for one in ledger.providers()}


def generation(ledger: ro.Ledger, name: str) -> int:
    found = ledger.provider(name).generation
    assert found is not None
    return found


class Meddling:
    """A ledger's backend between whose reading and writing somebody else does something."""

    def __init__(self, ledger: ro.Ledger, meddle: Callable[[], Any], times: int = 1) -> None:
        self._backend: Backend = ledger.backend
        self._meddle = meddle
        self._times = times
        self.writes: list[Write] = []

    def commit(self, write: Write) -> Any:
        self.writes.append(write)
        if self._times:
            self._times -= 1
            self._meddle()
        return self._backend.commit(write)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def meddled(ledger: ro.Ledger, meddle: Callable[[], Any], times: int = 1) -> ro.Ledger:
    backend: Any = Meddling(ledger, meddle, times)
    return ro.Ledger(backend, retries=ledger.retries)


# --- sync of many trees ---


def test_many_trees_are_one_write(ledger: ro.Ledger) -> None:
    meddler: Any = meddled(ledger, lambda: None, 0)
    done = meddler.sync(*(host(f"host{n}", "gpu0") for n in range(50)))
    assert (done.created, done.updated, done.removed) == (100, 0, 0)
    assert len(meddler.backend.writes) == 1
    assert len(done.changes) == 50
    again = meddler.sync(*(host(f"host{n}", "gpu0") for n in range(50)))
    assert not again
    assert len(meddler.backend.writes) == 1


@pytest.mark.law(2)
def test_one_tree_that_cannot_be_leaves_all_as_they_were(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0", "gpu0"), host("host1", "gpu0"))
    ledger.claim("job", {"host1/gpu0": "PGPU=1"})
    before = list(ledger.trees())
    with raises_code("ProviderInUse", match="host1/gpu0"):
        ledger.sync(ro.Provider("host0", "VCPU=99"), ro.Provider("host2"), host("host1"))
    assert list(ledger.trees()) == before


def test_trees_of_a_sync_change_side_by_side(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0", "gpu0"), host("host1"))
    done = ledger.sync(host("host0"), host("host1", "gpu0", "gpu1"), ro.Provider("host2"))
    assert (done.created, done.updated, done.removed) == (3, 0, 1)
    assert str(done).splitlines() == ["- host0/gpu0", "+ host1/gpu0", "+ host1/gpu1", "+ host2"]
    assert list(shape(ledger)) == ["host0", "host1", "host1/gpu0", "host1/gpu1", "host2"]


def test_a_sync_of_nothing_does_nothing(ledger: ro.Ledger) -> None:
    assert not ledger.sync()
    assert ledger.sync().changes == ()


def test_one_operation_serves_all_trees_of_a_sync(ledger: ro.Ledger) -> None:
    operation = new_operation()
    trees = [host("host0"), host("host1")]
    assert ledger.sync(*trees, operation=operation).created == 2
    ledger.remove("host1")
    assert not ledger.sync(*reversed(trees), operation=operation)
    assert list(shape(ledger)) == ["host0"]
    with raises_code("OperationConflict", match="define of 2 trees"):
        ledger.sync(host("host0"), host("host9"), operation=operation)


@pytest.mark.parametrize(
    ("roots", "message"),
    [
        ([ro.Provider("a"), ro.Provider("a")], "each root once"),
        ([host("a", "x"), ro.Provider("b", children=[ro.Provider("a/x")])], "in one tree"),
        ([ro.Provider("a"), "b"], "providers, each the root of a tree"),
    ],
)
def test_trees_that_overlap_are_refused(ledger: ro.Ledger, roots: Any, message: str) -> None:
    with pytest.raises(exceptions.InvalidTree, match=message):
        ledger.sync(*roots)
    assert shape(ledger) == {}


def test_two_roots_that_are_the_same_tree_are_refused(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("old"))
    uuid = ledger.provider("old").uuid
    with pytest.raises(exceptions.InvalidTree, match="each tree once"):
        ledger.sync(ro.Provider("new", uuid=uuid), ro.Provider("old"))


def test_a_root_that_is_a_child_elsewhere_is_refused(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0", "gpu0"))
    with raises_code("ProviderExists", match=r"host0/gpu0.*in the tree of host0"):
        ledger.sync(ro.Provider("other"), ro.Provider("host0/gpu0"))
    assert shape(ledger) == {"host0": None, "host0/gpu0": "host0"}


def test_a_tree_that_somebody_changes_meanwhile_is_compared_again(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0"), host("host1"))

    def meddle() -> None:
        ledger.sync(host("host1", "gpu7"))

    done = meddled(ledger, meddle).sync(host("host0", "gpu0"), host("host1", "gpu0"))
    assert (done.created, done.removed) == (2, 1)
    assert list(shape(ledger)) == ["host0", "host0/gpu0", "host1", "host1/gpu0"]


def test_a_tree_that_somebody_makes_meanwhile_is_compared_again(ledger: ro.Ledger) -> None:
    done = meddled(ledger, lambda: ledger.sync(host("host1", "gpu0"))).sync(host("host1", "gpu1"))
    assert (done.created, done.removed) == (1, 1)


def test_comparing_again_ends(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0"))
    numbers = iter(range(1, 100))

    def meddle() -> None:
        ledger.change("host0", inventories=f"VCPU={next(numbers)}")

    meddler = meddled(ledger, meddle, 100)
    with raises_code("StaleDefinition", match="host0"):
        meddler.sync(host("host0", "gpu0"))
    assert next(numbers) == ledger.retries.definitions + 2


def test_an_old_reading_is_refused_and_not_retried(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0"), host("host1"))
    old = ledger.provider("host1")
    ledger.change("host1", traits=["CUSTOM_A"])
    moved = f"read at generation {old.generation}, now {generation(ledger, 'host1')}"
    with raises_code("StaleDefinition", match=moved):
        ledger.sync(host("host0", "gpu0"), old)
    assert list(shape(ledger)) == ["host0", "host1"]


# --- one provider: inventories, traits, aggregates, name ---


def test_inventories_are_replaced_and_the_rest_stays(ledger: ro.Ledger) -> None:
    ledger.sync(
        ro.Provider("host0", "VCPU=8,MEMORY_MB=9", traits=["CUSTOM_A"], aggregates=["r1"]),
    )
    before = generation(ledger, "host0")
    done = ledger.change("host0", inventories="VCPU=16:allocation_ratio=1.5,DISK_GB=3")
    assert str(done) == "~ host0: VCPU=16:allocation_ratio=1.5 DISK_GB=3 -MEMORY_MB"
    kept = ledger.provider("host0")
    assert str(kept.inventories) == "VCPU=16:allocation_ratio=1.5,DISK_GB=3"
    assert (kept.traits, kept.aggregates) == ({"CUSTOM_A"}, {"r1"})
    assert kept.generation not in (None, before)


def test_what_a_child_has_is_replaced_without_touching_its_tree(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0", "gpu0", "gpu1"))
    before = [generation(ledger, name) for name in ("host0", "host0/gpu0", "host0/gpu1")]
    ledger.change("host0/gpu0", inventories={"PGPU": ro.IntegerInventory(3)})
    assert str(ledger.provider("host0/gpu0").inventories) == "PGPU=3"
    after = [generation(ledger, name) for name in ("host0", "host0/gpu0", "host0/gpu1")]
    assert (after[0], after[2]) == (before[0], before[2]) and after[1] != before[1]


def test_a_provider_may_be_left_with_nothing(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=8", traits=["CUSTOM_A"], aggregates=["r1"]))
    seen = [generation(ledger, "host0")]
    for nothing in ({"inventories": {}}, {"traits": []}, {"aggregates": []}):
        ledger.change("host0", **nothing)  # type: ignore[arg-type]
        seen.append(generation(ledger, "host0"))
    kept = ledger.provider("host0")
    assert (len(kept.inventories), kept.traits, kept.aggregates) == (0, set(), set())
    assert seen == sorted(set(seen)), "each write raises it"


def test_traits_and_aggregates_are_replaced(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=8", traits=["CUSTOM_A"], aggregates=["r1"]))
    ledger.change("host0", traits=["CUSTOM_B", "HW_CPU_X86_AVX2"])
    ledger.change("host0", aggregates=["r2", "room 7"])
    kept = ledger.provider("host0")
    assert kept.traits == {"CUSTOM_B", "HW_CPU_X86_AVX2"}
    assert kept.aggregates == {"r2", "room 7"}
    assert str(kept.inventories) == "VCPU=8"
    assert {one.name for one in ledger.names.aggregates.list()} == {"r1", "r2", "room 7"}


def test_a_sync_that_says_nothing_of_aggregates_leaves_them(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=8", aggregates=["r1"]))
    ledger.sync(ro.Provider("host0", "VCPU=9"))
    assert ledger.provider("host0").aggregates == {"r1"}
    ledger.sync(ro.Provider("host0", "VCPU=9", aggregates=[]))
    assert ledger.provider("host0").aggregates == frozenset()


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger, at: ledger.change("host0", inventories="VCPU=1", generation=at),
        lambda ledger, at: ledger.change("host0", traits=["CUSTOM_B"], generation=at),
        lambda ledger, at: ledger.change("host0", aggregates=["r2"], generation=at),
        lambda ledger, at: ledger.change("host0", name="host9", generation=at),
        lambda ledger, at: ledger.change("host0", parent="host1", generation=at),
        lambda ledger, at: ledger.pools.report("host0", "VCPU=1", generation=at),
    ],
    ids=["inventories", "traits", "aggregates", "rename", "reparent", "report"],
)
def test_a_change_at_an_old_generation_is_refused(
    ledger: ro.Ledger, change: Callable[[ro.Ledger, int], Any]
) -> None:
    ledger.sync(host("host0"), host("host1"))
    old = generation(ledger, "host0")
    ledger.change("host0", traits=["CUSTOM_A"])
    now, before = generation(ledger, "host0"), list(ledger.trees())
    refused = rf"host0.*read at generation {old}, now {now}"
    with raises_code("StaleDefinition", match=refused):
        change(ledger, old)
    assert list(ledger.trees()) == before
    assert change(ledger, now)
    assert list(ledger.trees()) != before


def test_the_generation_is_asked_again_when_somebody_is_faster(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0"))

    def meddle() -> None:
        ledger.change("host0", traits=["CUSTOM_A"])

    with raises_code("StaleDefinition", match="host0"):
        meddled(ledger, meddle).change("host0", inventories="VCPU=1", generation=0)
    ledger.change("host0", traits=[])
    assert meddled(ledger, meddle).change("host0", inventories="VCPU=2")
    kept = ledger.provider("host0")
    assert (str(kept.inventories), kept.traits) == ("VCPU=2", {"CUSTOM_A"})


def test_an_inventory_in_use_stays(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=8,DISK_GB=10"))
    ledger.claim("job", {"host0": "DISK_GB=4"})
    with raises_code("InventoryInUse", match="host0"):
        ledger.change("host0", inventories="VCPU=99")
    assert str(ledger.provider("host0").inventories) == "VCPU=8,DISK_GB=10:used=4"
    ledger.change("host0", inventories="DISK_GB=1")
    assert ledger.provider("host0").inventories["DISK_GB"].free == -3


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger, name: ledger.change(name, inventories="VCPU=1"),
        lambda ledger, name: ledger.change(name, traits=[]),
        lambda ledger, name: ledger.change(name, aggregates=[]),
        lambda ledger, name: ledger.change(name, name="x"),
        lambda ledger, name: ledger.change(name, parent=None),
        lambda ledger, name: ledger.change("host0", parent=name),
        lambda ledger, name: ledger.remove(name),
    ],
)
def test_what_is_not_there_cannot_change(
    ledger: ro.Ledger, change: Callable[[ro.Ledger, str], Any]
) -> None:
    ledger.sync(host("host0"))
    for name in ("nobody", new_operation()):
        with raises_code("ProviderNotFound", match=name):
            change(ledger, name)


def test_what_cannot_be_is_refused_before_anything_is_asked(ledger: ro.Ledger) -> None:
    for change in (
        lambda: ledger.change("nobody", traits=["AVX"]),
        lambda: ledger.change("nobody", aggregates="r1"),
        lambda: ledger.change("nobody", aggregates=[""]),
        lambda: ledger.change("nobody", inventories="VCPU=x"),
        lambda: ledger.change("nobody", name=""),
        lambda: ledger.change("", parent=None),
    ):
        with pytest.raises(exceptions.InvalidInput):
            change()


def test_a_provider_gets_another_name_and_keeps_what_is_held(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0", "gpu0"))
    ledger.claim("job", {"host0": "VCPU=2", "host0/gpu0": "PGPU=1"})
    uuid, first = ledger.provider("host0").uuid, generation(ledger, "host0")
    assert str(ledger.change("host0", name="host9")) == "~ host9: name or parent"
    assert shape(ledger) == {"host9": None, "host0/gpu0": "host9"}
    assert ledger.provider("host9").uuid == uuid
    assert set(ledger.get_claim("job").by_provider()) == {"host9", "host0/gpu0"}
    second = generation(ledger, "host9")
    assert not ledger.change("host9", name="host9")
    assert generation(ledger, "host9") == second
    ledger.change(uuid or "", name="host0")
    assert len({first, second, generation(ledger, "host0")}) == 3


def test_a_name_of_somebody_else_is_refused(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0", "gpu0"), host("host1"))
    for name in ("host0/gpu0", "host1"):
        with raises_code("ProviderExists", match=name):
            ledger.change("host0", name=name)
    assert list(shape(ledger)) == ["host0", "host0/gpu0", "host1"]


@pytest.mark.parametrize("operation", [None, "6f0b6a52-3f0e-4b57-9d6e-0c6a2f1d7b11"])
def test_a_change_with_an_operation_happens_once(ledger: ro.Ledger, operation: str | None) -> None:
    ledger.sync(host("host0"))
    ledger.change("host0", inventories="VCPU=1", operation=operation)
    ledger.change("host0", inventories="VCPU=2")
    ledger.change("host0", inventories="VCPU=1", operation=operation)
    expected = "VCPU=1" if operation is None else "VCPU=2"
    assert str(ledger.provider("host0").inventories) == expected
    if operation:
        with raises_code("OperationConflict", match="define of host0"):
            ledger.change("host0", name="x", operation=operation)


# --- shares within a tree ---


def celled(name: str = "host0") -> ro.Provider:
    """Return a host whose two cells use its CPUs."""
    made = ro.Provider(name, "VCPU=8")
    for cell in ("cell0", "cell1"):
        made.add(
            f"{name}/{cell}",
            "VCPU=4",
            shares=[Share(resource_class="VCPU", of=name, of_class="VCPU")],
        )
    return made


def test_what_is_taken_at_a_cell_is_used_at_the_host(ledger: ro.Ledger) -> None:
    ledger.sync(celled())
    assert not ledger.sync(celled())
    ledger.claim("job", {"host0/cell0": "VCPU=3"})
    kept = ledger.provider("host0")
    assert kept.inventories["VCPU"].used == 3
    assert [child.inventories["VCPU"].used for child in kept.children] == [3, 0]
    assert kept.children[0].shares == celled().children[0].shares


def test_shares_follow_a_provider_that_gets_another_name(ledger: ro.Ledger) -> None:
    ledger.sync(celled())
    ledger.change("host0", name="host9")
    (first, _) = ledger.provider("host9").children
    assert first.shares == (Share(resource_class="VCPU", of="host9", of_class="VCPU"),)
    ledger.claim("job", {"host0/cell0": "VCPU=3"})
    assert ledger.provider("host9").inventories["VCPU"].used == 3


def test_a_shared_inventory_does_not_go_without_its_shares(ledger: ro.Ledger) -> None:
    ledger.sync(celled())
    with pytest.raises(exceptions.InvalidTree, match="expected VCPU as well, since parts such as"):
        ledger.change("host0", inventories="MEMORY_MB=4")
    with pytest.raises(exceptions.InvalidTree, match="shares of host0/cell1"):
        ledger.change("host0/cell1", inventories={})


def test_a_share_may_not_cross_trees(ledger: ro.Ledger) -> None:
    ledger.sync(celled(), host("host1"))
    before = list(ledger.trees())
    for parent in (None, "host1"):
        with pytest.raises(exceptions.InvalidTree, match="VCPU uses VCPU of host0"):
            ledger.change("host0/cell0", parent=parent)
    assert list(ledger.trees()) == before
    ledger.change("host0/cell0", parent="host0/cell1")
    assert ledger.change("host0", parent="host1")
    assert shape(ledger) == {
        "host1": None,
        "host0": "host1",
        "host0/cell1": "host0",
        "host0/cell0": "host0/cell1",
    }
    ledger.claim("job", {"host0/cell0": "VCPU=3"})
    assert ledger.provider("host0").inventories["VCPU"].used == 3


# --- removing ---


def test_a_child_that_goes_is_told_to_whoever_read_the_tree(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0", "gpu0", "gpu1"))
    old = ledger.provider("host0")
    done = ledger.remove("host0/gpu0")
    assert (done.removed, str(done)) == (1, "- host0/gpu0")
    assert shape(ledger) == {"host0": None, "host0/gpu1": "host0"}
    with raises_code("StaleDefinition", match="host0"):
        ledger.sync(old)


def test_what_others_use_does_not_go(ledger: ro.Ledger) -> None:
    ledger.sync(celled(), host("host1", "gpu0"))
    ledger.claim("job", {"host1/gpu0": "PGPU=1"})
    with raises_code("ProviderInUse", match="host1/gpu0"):
        ledger.remove("host1")
    made = celled("host2")
    made.add("host2/more", "VCPU=1")
    made.children[0].update(
        shares=(Share(resource_class="VCPU", of="host2/more", of_class="VCPU"),)
    )
    ledger.sync(made)
    with pytest.raises(exceptions.InvalidTree, match="shares of host2/cell0"):
        ledger.remove("host2/more")
    assert len(shape(ledger)) == 9


# --- moving ---


def test_a_provider_moves_within_its_tree(ledger: ro.Ledger) -> None:
    tree = ro.Provider("r")
    tree.add("a").add("a/x").add("a/x/y")
    tree.add("b")
    ledger.sync(tree)
    before = {one.name: one.generation for one in ledger.providers()}
    done = ledger.change("a/x", parent="b")
    assert (done.created, done.updated, done.removed) == (0, 1, 0)
    assert shape(ledger) == {"r": None, "a": "r", "b": "r", "a/x": "b", "a/x/y": "a/x"}
    assert {root for _, root in listed_shape(ledger).values()} == {"r"}
    generations = {one.name: one.generation for one in ledger.providers()}
    raised = {name for name, number in generations.items() if number != before[name]}
    assert raised == {"a", "b", "a/x"}
    assert all(generations[name] == before[name] for name in ("r", "a/x/y"))
    assert not ledger.change("a/x", parent="b")


def test_a_subtree_becomes_a_tree_and_goes_below_another(ledger: ro.Ledger) -> None:
    tree = ro.Provider("r", "VCPU=1")
    tree.add("a", "VCPU=2").add("a/x", "VCPU=3").add("a/x/y", "VCPU=4")
    ledger.sync(tree, host("other"))
    ledger.claim("job", {"a/x/y": "VCPU=1", "r": "VCPU=1"})
    ledger.change("a", parent=None)
    assert listed_shape(ledger) == {
        "r": (None, "r"),
        "a": (None, "a"),
        "a/x": ("a", "a"),
        "a/x/y": ("a/x", "a"),
        "other": (None, "other"),
    }
    assert not ledger.change("a", parent=None)
    ledger.change("a/x", parent="other")
    assert listed_shape(ledger) == {
        "r": (None, "r"),
        "a": (None, "a"),
        "a/x": ("other", "other"),
        "a/x/y": ("a/x", "other"),
        "other": (None, "other"),
    }
    assert set(ledger.get_claim("job").by_provider()) == {"a/x/y", "r"}
    assert ledger.usage("other")["a/x/y", "VCPU"].used == 1
    ledger.change("other", parent="r")
    assert {root for _, root in listed_shape(ledger).values()} == {"r", "a"}
    ledger.release("job")
    assert ledger.remove("r").removed == 4


@pytest.mark.parametrize("parent", ["r", "a", "a/x/y"])
def test_a_tree_has_no_loops(ledger: ro.Ledger, parent: str) -> None:
    tree = ro.Provider("r")
    tree.add("a").add("a/x").add("a/x/y")
    ledger.sync(tree)
    with pytest.raises(exceptions.InvalidTree, match=f"got '{parent}', expected a provider not"):
        ledger.change("r", parent=parent)
    assert ledger.provider("r").find("a/x/y")


def test_two_moves_at_once_make_no_loop(ledger: ro.Ledger) -> None:
    """Each is fine by itself; together they would put each tree below the other."""
    for name in "ab":
        tree = ro.Provider(name)
        tree.add(f"{name}/x").add(f"{name}/x/y")
        ledger.sync(tree)
    meddler = meddled(ledger, lambda: ledger.change("b", parent="a/x/y"))
    with pytest.raises(exceptions.InvalidTree, match="a provider not below it"):
        meddler.change("a", parent="b/x/y")
    assert {root for _, root in listed_shape(ledger).values()} == {"a"}
    assert len(list(ledger.provider("a").walk())) == 6


def test_a_child_made_below_what_moves_goes_with_it(ledger: ro.Ledger) -> None:
    tree = ro.Provider("r")
    tree.add("a").add("a/x")
    ledger.sync(tree)

    def meddle() -> None:
        now = ledger.provider("r").obj_clone()
        now.find("a/x").add("a/x/new")
        ledger.sync(now)

    meddled(ledger, meddle).change("a", parent=None)
    assert listed_shape(ledger)["a/x/new"] == ("a/x", "a")


def test_a_tree_is_not_made_too_deep(ledger: ro.Ledger) -> None:
    def chain(name: str, length: int) -> ro.Provider:
        root = last = ro.Provider(f"{name}0")
        for depth in range(1, length):
            last = last.add(f"{name}{depth}")
        return root

    ledger.sync(chain("a", 60), chain("b", 42))
    with pytest.raises(exceptions.InvalidTree, match=r"101 levels deep.*at most 100 levels"):
        ledger.change("a0", parent="b41")
    assert [root.name for root in ledger.trees()] == ["a0", "b0"]
    ledger.change("a0", parent="b40")
    assert [root.name for root in ledger.trees()] == ["b0"]


@pytest.mark.law(4)
def test_many_threads_that_declare_lose_nothing(url: str) -> None:
    """Every thread adds aggregates to every host; in the end all are there."""
    with ro.connect(url, retries=RetryPolicy(definitions=200)) as ledger:
        ledger.sync(*(host(f"host{n}") for n in range(3)))
        failures: list[BaseException] = []

        def add(number: int) -> None:
            try:
                for name in ("host0", "host1", "host2"):
                    for _ in range(100):
                        kept = ledger.provider(name)
                        wanted = (kept.aggregates or frozenset()) | {f"r{number}"}
                        try:
                            ledger.change(name, aggregates=wanted, generation=kept.generation)
                            break
                        except exceptions.Stale as error:
                            if not error.is_about("provider"):
                                raise
                            continue
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        for name in ("host0", "host1", "host2"):
            assert ledger.provider(name).aggregates == {"r0", "r1", "r2", "r3"}


# --- several changes of a provider at once ---


def test_a_change_may_say_all_at_once(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0", "gpu0"), host("host1"))
    ledger.claim("job", {"host0/gpu0": "PGPU=1"})
    before = ledger.feed.cursor()
    done = ledger.change(
        "host0/gpu0",
        name="host1/gpu7",
        parent="host1",
        inventories="PGPU=2",
        traits=["CUSTOM_A"],
        aggregates=["r1"],
    )
    assert done.updated >= 1
    assert shape(ledger) == {"host0": None, "host1": None, "host1/gpu7": "host1"}
    gpu = ledger.provider("host1/gpu7")
    assert (gpu.inventories["PGPU"].total, gpu.traits, gpu.aggregates) == (2, {"CUSTOM_A"}, {"r1"})
    assert gpu.inventories["PGPU"].used == 1
    assert set(ledger.get_claim("job").by_provider()) == {"host1/gpu7"}
    assert {change.kind for change in ledger.feed.changes(before)} == {"reparent"}
    assert not ledger.change("host1/gpu7", name="host1/gpu7", parent="host1", inventories="PGPU=2")


def test_a_change_of_several_happens_whole_or_not_at_all(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0", "gpu0"), host("host1"))
    ledger.claim("job", {"host0/gpu0": "PGPU=1"})
    kept = list(ledger.trees())
    for wrong, error in (
        ({"inventories": "CUSTOM_B=1", "parent": "host1"}, "InventoryInUse"),
        ({"name": "host1", "inventories": "PGPU=3"}, "ProviderExists"),
        ({"traits": ["NO_TRAIT"], "name": "other"}, "UnknownTrait"),
        ({"parent": "nobody", "name": "other"}, "ProviderNotFound"),
        ({"inventories": "PGPU=3", "generation": 9}, "StaleDefinition"),
    ):
        with raises_code(error):
            ledger.change("host0/gpu0", **wrong)  # type: ignore[arg-type]
        assert list(ledger.trees()) == kept


def test_a_change_of_nothing_changes_nothing(ledger: ro.Ledger) -> None:
    ledger.sync(host("host0"))
    before = ledger.feed.cursor()
    assert not ledger.change("host0")
    assert ledger.feed.cursor() == before
    with raises_code("ProviderNotFound"):
        ledger.change("nobody")
