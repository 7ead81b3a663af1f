"""Providers: trees that are trees, and their comparison."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.base import ResourceObject
from resource_objects.providers import Provider, diff
from resource_objects.resources.records import InventoryRecord
from resource_objects.testing.refusals import raises_code


def _tree() -> Provider:
    host = Provider("host0", "VCPU=8", traits=["CUSTOM_SSD"])
    shelf = host.add("host0/shelf", {})
    shelf.add("host0/gpu0", "PGPU=1", traits=["CUSTOM_H100"])
    host.add("host0/gpu1", "PGPU=1")
    return host


def test_walking_gives_parents_before_children() -> None:
    seen: set[str] = set()
    for provider, parent in _tree().parents():
        assert parent is None or parent.name in seen
        seen.add(provider.name)
    assert seen == {"host0", "host0/shelf", "host0/gpu0", "host0/gpu1"}


def test_a_name_is_in_a_tree_once() -> None:
    host = _tree()
    with pytest.raises(exceptions.InvalidTree, match="host0/gpu0"):
        host.add("host0/gpu0")
    assert len(list(host.walk())) == 4


def test_a_uuid_is_in_a_tree_once() -> None:
    host = Provider("host0", {})
    shelf = host.add("host0/shelf", uuid="6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e")
    with pytest.raises(exceptions.InvalidTree, match=r"6b7c0a9e.* each name and uuid once"):
        host.add("host0/gpu0", uuid=shelf.uuid)
    assert host.children == (shelf,)


def test_a_name_that_a_child_took_since_is_not_given_again() -> None:
    host = _tree()
    host.find("host0/gpu0").name = "host0/gpu2"
    host.find("host0/shelf").add("host0/gpu3")
    for name in ("host0/gpu2", "host0/gpu3"):
        with pytest.raises(exceptions.InvalidTree, match=name):
            host.add(name)
    assert host.add("host0/gpu0") is host.children[-1]


def _calls(task: Callable[[], object]) -> int:
    """Return how many functions of the library a task calls."""
    made = 0

    def count(frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal made
        module = frame.f_globals.get("__name__", "")
        made += event == "call" and module.startswith("resource_objects.")

    sys.setprofile(count)
    try:
        task()
    finally:
        sys.setprofile(None)
    return made


def test_an_add_checks_no_other_child_anew() -> None:
    host = Provider("host0", {})
    host.add("host0/warm")
    first = _calls(lambda: host.add("host0/first"))
    for n in range(200):
        host.add(f"host0/gpu{n}")
    assert _calls(lambda: host.add("host0/last")) == first


def _steps(task: Callable[[], object]) -> int:
    """Return how many lines of the module of providers a task runs."""
    made = 0

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal made
        if frame.f_globals.get("__name__") != Provider.__module__:
            return None
        made += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        task()
    finally:
        sys.settrace(before)
    return made


@pytest.mark.parametrize("below", [False, True])
def test_an_add_takes_as_many_steps_in_a_large_tree(below: bool) -> None:
    """Also where children get children in turn, as physical functions do."""
    host = Provider("host0", {})

    def add(name: str) -> None:
        child = host.add(name)
        if below:
            child.add(f"{name}/part")

    add("host0/warm")
    first = _steps(lambda: add("host0/first"))
    for n in range(500):
        add(f"host0/gpu{n}")
    assert _steps(lambda: add("host0/last")) == first


def test_a_tree_that_was_read_takes_children_as_quickly() -> None:
    ledger = ro.connect("memory://")
    host = Provider("host0", {})
    for n in range(200):
        host.add(f"host0/gpu{n}")
    ledger.sync(host)
    kept = ledger.provider("host0")
    kept.add("host0/warm")
    assert _steps(lambda: kept.add("host0/more")) < 100
    with pytest.raises(exceptions.InvalidTree, match="host0/gpu7"):
        kept.add("host0/gpu7")


def test_a_child_of_two_trees_is_looked_at_in_both() -> None:
    one = _tree()
    shelf = one.find("host0/shelf")
    other = Provider("host1", {}, children=[shelf])
    other.add("host1/gpu0")
    shelf.add("host0/new")
    for tree in (one, other):
        with pytest.raises(exceptions.InvalidTree, match="host0/new"):
            tree.add("host0/new")
    one.add("host1/gpu0")
    other.update(children=())
    other.add("host0/new")
    shelf.add("host0/newer")
    with pytest.raises(exceptions.InvalidTree, match="host0/newer"):
        one.add("host0/newer")
    other.add("host0/newer")


def test_what_was_taken_out_or_in_counts_at_the_next_add() -> None:
    host = _tree()
    [shelf, gpu] = host.children
    host.update(children=[shelf])
    assert host.add("host0/gpu1") is host.children[-1]
    shelf.update(children=[*shelf.children, Provider("host0/deep")])
    with pytest.raises(exceptions.InvalidTree, match="host0/deep"):
        host.add("host0/deep")
    twin = host.obj_clone()
    twin.add("host0/twin")
    assert gpu.add("host0/gpu0") and host.add("host0/twin")
    with pytest.raises(exceptions.InvalidTree, match="host0/twin"):
        copy.deepcopy(twin).add("host0/twin")


def test_a_refused_change_of_a_child_leaves_its_name_taken() -> None:
    host = _tree()
    child = host.find("host0/gpu0")
    with raises_code("InvalidName"):
        child.update(name=" ")
    with pytest.raises(exceptions.InvalidTree, match="host0/gpu0"):
        host.add("host0/gpu0")


def test_a_name_given_twice_in_different_branches_is_refused_by_sync() -> None:
    host = _tree()
    host.find("host0/shelf").add("host0/gpu1", "PGPU=1")  # the shelf does not know its siblings
    ledger = ro.connect("memory://")
    with pytest.raises(exceptions.InvalidTree, match="host0/gpu1"):
        ledger.sync(host)
    assert list(ledger.trees()) == []


def test_a_tree_has_at_most_100_levels() -> None:
    lowest = root = Provider("level0", {})
    for level in range(1, 102):
        lowest = lowest.add(f"level{level}")
    assert len(list(root.walk())) == 102
    with pytest.raises(exceptions.InvalidTree, match="at most 100 levels"):
        root.check()
    with pytest.raises(exceptions.InvalidTree, match="level101"):
        ro.connect("memory://").sync(root)


def test_a_kind_that_counts_a_class_twice_is_refused() -> None:
    class Double(ro.IntegerInventory):
        def to_records(self) -> tuple[InventoryRecord, ...]:
            return super().to_records() * 2

    host = Provider("host0", {"VCPU": Double(4)})
    with pytest.raises(exceptions.InvalidInventory, match="classes counted nowhere else"):
        diff(None, host)


def test_finding_what_is_not_there_names_it() -> None:
    with raises_code("ProviderNotFound", match=r"gpu9 .* not in the tree of host0"):
        _tree().find("gpu9")


def test_a_tree_goes_over_the_wire_whole() -> None:
    host = _tree()
    again = ResourceObject.obj_from_primitive(host.obj_to_primitive())
    assert again == host
    assert [p.name for p in again.walk()] == [p.name for p in host.walk()]


def test_a_copy_is_equal_and_its_own() -> None:
    host = _tree()
    twin = copy.deepcopy(host)
    twin.find("host0/gpu0").inventories["PGPU"].total = 2
    assert twin != host
    assert host.find("host0/gpu0").inventories["PGPU"].total == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Provider(""),
        lambda: Provider(" host"),
        lambda: Provider(7),  # type: ignore[arg-type]
        lambda: Provider("h" * 201),
        lambda: Provider("h", "VCPU=-1"),
        lambda: Provider("h", 7),
        lambda: Provider("h", traits=["HW_NO_SUCH"]),
        lambda: Provider("h", traits="CUSTOM_A"),
        lambda: Provider("h", uuid="7"),
        lambda: Provider("h", children=["x"]),  # type: ignore[list-item]
    ],
)
def test_what_is_no_provider_is_refused(make: Callable[[], Provider]) -> None:
    with pytest.raises(exceptions.InvalidInput) as refused:
        make()
    assert "expected" in str(refused.value)


@pytest.mark.parametrize("inventories", ["VCPU=8,DISK_GB=0", {"VCPU": 8, "DISK_GB": 0}])
def test_a_resource_of_total_0_is_not_there(inventories: Any) -> None:
    host = Provider("h", inventories)
    host.add("h/gpu0", "PGPU=0")
    assert [*map(str, host.walk())] == ["h: VCPU=8", "h/gpu0: "]


def test_an_inventory_whose_total_became_0_is_not_stored() -> None:
    host = Provider("h", "VCPU=8,DISK_GB=9")
    host.inventories["DISK_GB"].total = 0
    assert str(_kept(host)) == "h: VCPU=8"


# --- comparing ---


def _kept(tree: Provider) -> Provider:
    """Return the tree as a ledger returns it: with uuids and generations."""
    ledger = ro.connect("memory://")
    ledger.sync(tree)
    return ledger.provider(tree.name)


@pytest.mark.law(5)
def test_comparing_changes_neither_tree() -> None:
    kept, wanted = _kept(_tree()), _tree()
    wanted.inventories["VCPU"].total = 4
    before = kept.obj_to_primitive(), wanted.obj_to_primitive()
    diff(kept, wanted)
    assert (kept.obj_to_primitive(), wanted.obj_to_primitive()) == before


def test_nothing_changed_is_false_and_says_so() -> None:
    changes = diff(_kept(_tree()), _tree())
    assert not changes
    assert str(changes) == "nothing changed"


def test_what_changed_is_told_in_words() -> None:
    wanted = _tree()
    wanted.inventories["VCPU"].update(total=4, allocation_ratio="1.5")
    wanted.traits = frozenset()
    wanted.children = tuple(c for c in wanted.children if c.name != "host0/gpu1")
    wanted.add("host0/gpu2", "PGPU=1")
    assert str(diff(_kept(_tree()), wanted)).splitlines() == [
        "+ host0/gpu2",
        "~ host0: VCPU=4:allocation_ratio=1.5 -CUSTOM_SSD",
        "- host0/gpu1",
    ]


def test_removals_go_from_the_bottom_up() -> None:
    wanted = Provider("host0", "VCPU=8", traits=["CUSTOM_SSD"])
    gone = [removal.name for removal in diff(_kept(_tree()), wanted).removals]
    assert gone.index("host0/gpu0") < gone.index("host0/shelf")


def test_a_uuid_makes_a_rename_of_what_else_is_another_provider() -> None:
    kept = _kept(Provider("old", "VCPU=8"))
    renamed = diff(kept, Provider("new", "VCPU=8", uuid=kept.uuid))
    assert [update.definition.name for update in renamed.updates] == ["new"]
    assert not renamed.creates
    assert not renamed.removals


def test_a_tree_that_was_read_is_compared_at_its_generation() -> None:
    ledger = ro.connect("memory://")
    ledger.sync(Provider("host0", "VCPU=8"))
    read = ledger.provider("host0")
    ledger.sync(Provider("host0", "VCPU=16"))
    read.inventories["VCPU"].total = 4
    with raises_code("StaleDefinition", match="host0"):
        ledger.sync(read)
    assert ledger.usage()["host0", "VCPU"].total == 16
