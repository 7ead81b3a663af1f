"""Rules of writes that change definitions and what is held at once: moves of inventories."""

from __future__ import annotations

import dataclasses
import uuid as uuids

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider
from resource_objects.providers.definition import DefinitionChanges, ProviderRemoval
from resource_objects.providers.orders import (
    Adjustment,
    ClaimOrder,
    ClaimRecord,
    Delta,
    Operation,
    Order,
    Release,
    Replacement,
    Write,
)
from resource_objects.providers.provider import Share
from resource_objects.resources import Inventories
from resource_objects.testing.conformance.base import (
    CLASS,
    Kit,
    changes_to,
    claim,
    define,
    deltas,
    host,
    kept,
    law,
    order,
    picture,
    rename,
)


def _reshape(
    backend: Backend, changes: DefinitionChanges, *orders: Order
) -> tuple[ClaimRecord, ...]:
    return backend.commit(Write(Operation(), "reshape", changes.root, changes, orders))


def _with_cells(backend: Backend, cells: int = 2) -> tuple[Provider, dict[str, str]]:
    """Return a host that is kept with cells that have nothing, and the uuids of all."""
    root = host("host0", "VCPU=8,MEMORY_MB=64")
    for number in range(cells):
        root.add(f"cell{number}")
    names = define(backend, root)
    return kept(backend, "host0"), names


def _to_cells(tree: Provider) -> Provider:
    """Return the tree with the CPUs of the host moved into its cells."""
    tree.update(inventories=Inventories({"MEMORY_MB": 64}))
    for child in tree.children:
        child.update(inventories=Inventories({"VCPU": 4}))
    return tree


class ReshapeRules(Kit):
    """Definitions and orders in one write."""

    @law(1, 2)
    def test_an_inventory_moves_with_all_who_hold_it(self, backend: Backend) -> None:
        tree, names = _with_cells(backend)
        root = names["host0"]
        for number, amount in enumerate((3, 1, 4)):
            claim(backend, f"job-{number}", {root: f"VCPU={amount},MEMORY_MB=1"})
        changes = changes_to(backend, _to_cells(tree))
        moves: list[Order] = [
            Replacement("job-0", deltas({names["cell0"]: "VCPU=3", root: "MEMORY_MB=1"})),
            Replacement("job-1", deltas({names["cell0"]: "VCPU=1", root: "MEMORY_MB=1"})),
            Adjustment("job-2", deltas({names["cell1"]: "VCPU=4", root: "VCPU=-4"})),
        ]
        records = _reshape(backend, changes, *moves)
        assert [record.consumer for record in records] == ["job-0", "job-1", "job-2"]
        found = picture(backend)
        assert set(found.providers["host0"].inventories) == {"MEMORY_MB"}
        assert found.allocations == {
            ("job-0", "cell0", "VCPU"): 3,
            ("job-1", "cell0", "VCPU"): 1,
            ("job-2", "cell1", "VCPU"): 4,
            **{(f"job-{number}", "host0", "MEMORY_MB"): 1 for number in range(3)},
        }

    @law(2)
    def test_who_is_left_behind_refuses_all(self, backend: Backend) -> None:
        tree, names = _with_cells(backend)
        claim(backend, "job-0", {names["host0"]: "VCPU=3"})
        claim(backend, "job-1", {names["host0"]: "VCPU=1"})
        before = picture(backend)
        changes = changes_to(backend, _to_cells(tree))
        with pytest.raises(exceptions.InventoryInUse) as refused:
            _reshape(backend, changes, Replacement("job-0", deltas({names["cell0"]: "VCPU=3"})))
        assert refused.value.subject == "host0"
        assert picture(backend) == before

    @law(2)
    def test_who_does_not_fit_refuses_all(self, backend: Backend) -> None:
        tree, names = _with_cells(backend)
        claim(backend, "job", {names["host0"]: "VCPU=5"})
        before = picture(backend)
        changes = changes_to(backend, _to_cells(tree))
        with pytest.raises(exceptions.CapacityException) as refused:
            _reshape(backend, changes, Replacement("job", deltas({names["cell0"]: "VCPU=5"})))
        assert {reason.where for reason in refused.value.reasons} == {"cell0"}
        assert picture(backend) == before
        assert backend.held("job") is not None

    @law(2)
    def test_a_reshape_of_what_was_changed_is_refused(self, backend: Backend) -> None:
        tree, names = _with_cells(backend)
        claim(backend, "job", {names["host0"]: "VCPU=3"})
        old = backend.held("job")
        assert old is not None
        changes = changes_to(backend, _to_cells(tree))
        move = Replacement("job", deltas({names["cell0"]: "VCPU=3"}), generation=old.generation)
        order(backend, Adjustment("job", deltas({names["host0"]: "VCPU=1"})))
        before = picture(backend)
        with pytest.raises(exceptions.StaleConsumer):
            _reshape(backend, changes, move)
        assert picture(backend) == before
        other = kept(backend, "host0")
        other.find("cell1").update(traits={"CUSTOM_A"})
        define(backend, other)
        before = picture(backend)
        with pytest.raises(exceptions.StaleDefinition):
            _reshape(backend, changes, dataclasses.replace(move, generation=None))
        assert picture(backend) == before

    @law(2)
    def test_everything_is_there_while_orders_are_carried_out(self, backend: Backend) -> None:
        """What goes is there until the end, what comes is there from the start."""
        names = define(backend, host("old", "VCPU=8"), host("stays", "VCPU=8"))
        claim(backend, "job", {names["old"]: "VCPU=8"})
        claim(backend, "other", {names["stays"]: "VCPU=8"})
        created = changes_to(backend, Provider("new", "VCPU=16", uuid=str(uuids.uuid4())))
        [old] = backend.read("old").providers.generation
        changes = dataclasses.replace(
            created, removals=(ProviderRemoval(names["old"], "old", old),)
        )
        new = created.creates[0].uuid
        _reshape(
            backend,
            changes,
            Replacement("job", deltas({new: "VCPU=8"})),
            Replacement("other", deltas({new: "VCPU=8"})),
        )
        found = picture(backend)
        assert set(found.providers) == {"new", "stays"}
        assert (found.used("new", "VCPU"), found.used("stays", "VCPU")) == (16, 0)

    @law(2)
    def test_a_provider_goes_only_when_nobody_is_left(self, backend: Backend) -> None:
        names = define(backend, host("old", "VCPU=8"), host("new", "VCPU=8"))
        claim(backend, "job", {names["old"]: "VCPU=5"})
        generation = picture(backend).providers["old"].generation
        removal = ProviderRemoval(names["old"], "old", generation)
        changes = DefinitionChanges("old", removals=(removal,))
        before = picture(backend)
        with pytest.raises(exceptions.ProviderInUse):
            move = {names["old"]: "VCPU=-4", names["new"]: "VCPU=4"}
            _reshape(backend, changes, Adjustment("job", deltas(move)))
        with pytest.raises(exceptions.ProviderInUse):
            _reshape(
                backend,
                changes,
                Release("job"),
                ClaimOrder("late", deltas({names["old"]: "VCPU=1"})),
            )
        assert picture(backend) == before
        _reshape(backend, changes, Replacement("job", deltas({names["new"]: "VCPU=5"})))
        assert set(picture(backend).providers) == {"new"}

    @law(4)
    def test_units_follow_who_holds_them(self, backend: Backend) -> None:
        root = host("host0", "PCPU=4")
        root.add("cell0")
        root.add("cell1")
        names = define(backend, root)
        here, cells = names["host0"], (names["cell0"], names["cell1"])
        order(
            backend,
            ClaimOrder("a", (Delta(here, "PCPU", 2, ("cpu0", "cpu3")),)),
            ClaimOrder("b", (Delta(here, "PCPU", 1, ("cpu1",)),)),
        )
        tree = kept(backend, "host0")
        tree.update(inventories=Inventories({}))
        for child in tree.children:
            child.update(inventories=Inventories({"PCPU": 2}))
        _reshape(
            backend,
            changes_to(backend, tree),
            Replacement("a", (Delta(cells[0], "PCPU", 1, ("cpu0",)), _unit(cells[1], "cpu3"))),
            Replacement("b", (_unit(cells[0], "cpu1"),)),
        )
        assert picture(backend).units == {
            ("cell0", "cpu0"): ("PCPU", "a"),
            ("cell1", "cpu3"): ("PCPU", "a"),
            ("cell0", "cpu1"): ("PCPU", "b"),
        }

    @law(1)
    def test_an_inventory_becomes_a_shared_one(self, backend: Backend) -> None:
        """The CPUs of a host go into its cells, and stay its own too."""
        tree, names = _with_cells(backend)
        claim(backend, "a", {names["host0"]: "VCPU=4"})
        claim(backend, "b", {names["host0"]: "VCPU=4"})
        share = Share(resource_class="VCPU", of="host0", of_class="VCPU")
        for child in tree.children:
            child.update(inventories=Inventories({"VCPU": 4}), shares=(share,))
        changes = changes_to(backend, tree)
        moves = [
            Replacement("a", deltas({names["cell0"]: "VCPU=4"})),
            Replacement("b", deltas({names["cell1"]: "VCPU=4"})),
        ]
        _reshape(backend, changes, *moves)
        found = picture(backend)
        assert [found.used(name, "VCPU") for name in ("host0", "cell0", "cell1")] == [8, 4, 4]
        back = kept(backend, "host0")
        for child in back.children:
            child.update(inventories=Inventories({}), shares=())
        home = [Replacement(name, deltas({names["host0"]: "VCPU=4"})) for name in ("a", "b")]
        _reshape(backend, changes_to(backend, back), *home)
        found = picture(backend)
        assert found.used("host0", "VCPU") == 8 and not found.providers["cell0"].shares

    @law(1)
    def test_shares_that_change_count_for_what_moves(self, backend: Backend) -> None:
        root = host("host0", "VCPU=8,CUSTOM_X=8")
        root.add("cell0", "CUSTOM_SLICE=4")
        names = define(backend, root)
        claim(backend, "stays", {names["cell0"]: "CUSTOM_SLICE=1"})
        claim(backend, "goes", {names["cell0"]: "CUSTOM_SLICE=1"})
        tree = kept(backend, "host0")
        tree.find("cell0").update(
            shares=(Share(resource_class="CUSTOM_SLICE", of="host0", of_class="VCPU", factor=2),)
        )
        _reshape(
            backend,
            changes_to(backend, tree),
            Release("goes"),
            ClaimOrder("comes", deltas({names["cell0"]: "CUSTOM_SLICE=3"})),
        )
        assert picture(backend).used("host0", "VCPU") == 8
        tree = kept(backend, "host0")
        tree.find("cell0").update(
            shares=(Share(resource_class="CUSTOM_SLICE", of="host0", of_class="CUSTOM_X"),)
        )
        _reshape(backend, changes_to(backend, tree), Release("comes"))
        found = picture(backend)
        assert (found.used("host0", "VCPU"), found.used("host0", "CUSTOM_X")) == (0, 1)

    def test_new_figures_bind_at_once(self, backend: Backend) -> None:
        names = define(backend, host("host0", "VCPU=4"))
        grown = changes_to(backend, host("host0", "VCPU=8"))
        _reshape(backend, grown, ClaimOrder("job", deltas({names["host0"]: "VCPU=8"})))
        shrunk = changes_to(backend, host("host0", "VCPU=4"))
        with pytest.raises(exceptions.CapacityException):
            _reshape(
                backend,
                shrunk,
                Release("job"),
                ClaimOrder("job-2", deltas({names["host0"]: "VCPU=5"})),
                ClaimOrder("job-3", deltas({names["host0"]: "VCPU=4"})),
            )
        _reshape(
            backend, shrunk, Replacement("job", deltas({names["host0"]: "VCPU=7"}))
        )  # not worse than it was
        record = picture(backend).providers["host0"].inventories["VCPU"]
        assert (record.capacity, record.used) == (4, 7)

    def test_names_definitions_and_orders_go_together(self, backend: Backend) -> None:
        names = define(backend, Provider("host0", {"CUSTOM_OLD": 4}))
        claim(backend, "job", {names["host0"]: {"CUSTOM_OLD": 4}})
        created = changes_to(backend, Provider("host1", {"CUSTOM_NEW": 4}))
        backend.commit(
            Write(
                Operation(),
                "reshape",
                "host0",
                created,
                (Replacement("job", deltas({created.creates[0].uuid: {"CUSTOM_NEW": 4}})),),
                names=(rename(CLASS, "CUSTOM_OLD", "CUSTOM_NEW"),),
            )
        )
        assert picture(backend).allocations == {("job", "host1", "CUSTOM_NEW"): 4}

    def test_a_large_reshape_is_one_write(self, backend: Backend) -> None:
        tree, names = _with_cells(backend, cells=20)
        tree.update(inventories=Inventories({"VCPU": 4000, "MEMORY_MB": 64}))
        define(backend, tree)
        gang = [ClaimOrder(f"job-{n}", deltas({names["host0"]: "VCPU=7"})) for n in range(300)]
        order(backend, *gang)
        tree = kept(backend, "host0")
        tree.update(inventories=Inventories({"MEMORY_MB": 64}))
        for child in tree.children:
            child.update(inventories=Inventories({"VCPU": 200}))
        moves = [
            Replacement(f"job-{n}", deltas({names[f"cell{n % 20}"]: "VCPU=7"})) for n in range(300)
        ]
        _reshape(backend, changes_to(backend, tree), *moves)
        found = picture(backend)
        assert len(found.allocations) == 300
        assert {found.used(f"cell{n}", "VCPU") for n in range(20)} == {105}


def _unit(uuid: str, unit: str) -> Delta:
    return Delta(uuid, "PCPU", 1, (unit,))
