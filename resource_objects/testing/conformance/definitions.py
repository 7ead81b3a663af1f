"""Rules of definitions: what providers are, and how that changes."""

from __future__ import annotations

import dataclasses
import uuid as uuids

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider, diff
from resource_objects.providers.columns import Columns, trees
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderRemoval,
    ProviderUpdate,
)
from resource_objects.providers.feed import SHARDS, Cursor
from resource_objects.providers.listing import By, ConsumerFilter, ProviderFilter
from resource_objects.providers.orders import ClaimOrder, Delta, NameKind, Operation
from resource_objects.resources import IntegerInventory, Inventories
from resource_objects.testing.conformance.base import (
    Kit,
    changes_to,
    claim,
    define,
    host,
    kept,
    law,
    now,
    picture,
    release,
)


def _tree() -> Provider:
    """A host with two GPUs, one of which has a partition."""
    root = Provider("host0", "VCPU=8:reserved=1:allocation_ratio=1.5,MEMORY_MB=16384:step_size=512")
    root.update(traits={"HW_CPU_X86_AVX2", "CUSTOM_FAST"})
    gpu = root.add("host0/gpu0", "PGPU=1:max_unit=1", traits=["CUSTOM_H100"])
    gpu.add("host0/gpu0/part0", "CUSTOM_SLICE=7:min_unit=2")
    root.add("host0/gpu1")
    return root


class DefinitionRules(Kit):
    """What ``define`` does, and what ``read`` says of it."""

    # --- reading ---

    def test_a_new_ledger_is_empty(self, backend: Backend) -> None:
        assert backend.read() == Columns()
        assert backend.cursor() == backend.read().cursor == Cursor((0,) * SHARDS)

    def test_what_is_defined_reads_back(self, backend: Backend) -> None:
        define(backend, _tree())
        found = kept(backend, "host0")
        assert [provider.name for provider in found.walk()] == [p.name for p in _tree().walk()]
        for provider, wanted in zip(found.walk(), _tree().walk(), strict=True):
            assert provider.inventories == wanted.inventories
            assert provider.traits == wanted.traits
            assert provider.uuid == str(uuids.UUID(provider.uuid))
            assert provider.generation is not None

    def test_a_uuid_that_is_given_is_kept(self, backend: Backend) -> None:
        given = str(uuids.uuid4())
        assert define(backend, Provider("host0", uuid=given)) == {"host0": given}

    def test_a_tree_is_read_by_name_or_uuid_of_any_of_its_providers(self, backend: Backend) -> None:
        names = define(backend, _tree(), host("host1"))
        for name in ("host0", "host0/gpu0/part0"):
            for handle in (name, names[name]):
                assert set(picture(backend, handle).providers) == set(names) - {"host1"}

    def test_reading_one_tree_leaves_out_what_others_hold(self, backend: Backend) -> None:
        names = define(backend, host("host0"), host("host1"))
        claim(backend, "both", {names["host0"]: "VCPU=1", names["host1"]: "VCPU=2"})
        assert picture(backend, "host1").allocations == {("both", "host1", "VCPU"): 2}

    def test_an_unknown_tree_reads_as_nothing(self, backend: Backend) -> None:
        define(backend, host())
        assert backend.read("host1") == backend.read(str(uuids.uuid4())) == Columns()

    def test_several_trees_are_read_at_once(self, backend: Backend) -> None:
        names = define(backend, _tree(), host("host1"), host("host2"))
        claim(backend, "job", {names["host1"]: "VCPU=1", names["host2"]: "VCPU=1"})
        found = picture(backend, "host0/gpu1", names["host1"], "host1", "nobody")
        assert set(found.providers) == set(names) - {"host2"}
        assert found.allocations == {("job", "host1", "VCPU"): 1}
        assert backend.read("nobody") == Columns()

    def test_allocations_are_read_only_if_they_are_asked_for(self, backend: Backend) -> None:
        names = define(backend, _tree())
        wanted = Delta(names["host0/gpu0"], "PGPU", 1, ("gpu0",))
        backend.claim(Operation(), ClaimOrder("job", (wanted,)))
        for trees_read in ((), ("host0",)):
            whole = backend.read(*trees_read)
            less = backend.read(*trees_read, allocations=False)
            assert less.allocations == Columns().allocations and less.units == Columns().units
            assert less == dataclasses.replace(
                whole, allocations=less.allocations, units=less.units
            )
            assert less.cursor == whole.cursor
            assert 1 in less.inventories.used

    def test_names_are_looked_up_together(self, backend: Backend) -> None:
        names = define(backend, _tree())
        assert backend.uuids([]) == {}
        assert backend.uuids(["host0", "nobody"]) == {"host0": names["host0"]}
        assert backend.uuids({*names, "nobody"}) == names

    @law(11)
    def test_reading_changes_nothing(self, backend: Backend) -> None:
        names = define(backend, _tree())
        claim(backend, "job", {names["host0"]: "VCPU=2"})
        before = picture(backend)
        for _ in range(3):
            backend.read("host0")
            backend.held("job")
            backend.held("nobody")
            backend.uuids(["host0", "nobody"])
        assert picture(backend) == before

    # --- changing ---

    def test_defining_the_same_again_is_no_change(self, backend: Backend) -> None:
        define(backend, _tree())
        assert not changes_to(backend, _tree())

    def test_a_change_moves_the_generation_of_the_changed_provider_only(
        self, backend: Backend
    ) -> None:
        define(backend, _tree())
        before = picture(backend).providers
        tree = kept(backend, "host0")
        tree.find("host0/gpu1").update(traits={"CUSTOM_H100"})
        define(backend, tree)
        after = picture(backend).providers
        assert after["host0/gpu1"].traits == {"CUSTOM_H100"}
        assert after["host0/gpu1"].generation > before["host0/gpu1"].generation
        assert {n: p for n, p in after.items() if n != "host0/gpu1"} == {
            n: p for n, p in before.items() if n != "host0/gpu1"
        }

    def test_inventories_and_traits_come_change_and_go(self, backend: Backend) -> None:
        define(backend, _tree())
        wanted = Provider("host0", "VCPU=4,DISK_GB=100", traits=["CUSTOM_FAST", "CUSTOM_NEW"])
        define(backend, wanted)
        found = kept(backend, "host0")
        assert found.inventories == Inventories("VCPU=4,DISK_GB=100")
        assert found.traits == {"CUSTOM_FAST", "CUSTOM_NEW"}
        assert not found.children

    def test_a_provider_may_have_nothing(self, backend: Backend) -> None:
        define(backend, Provider("rack"))
        assert kept(backend, "rack").inventories == Inventories()

    @law(2)
    def test_a_stale_change_changes_nothing(self, backend: Backend) -> None:
        define(backend, _tree())
        tree = kept(backend, "host0")
        tree.inventories["VCPU"] = IntegerInventory(total=16)
        tree.find("host0/gpu1").update(traits={"CUSTOM_H100"})
        changes = changes_to(backend, tree)
        other = kept(backend, "host0")
        other.find("host0/gpu1").update(traits={"CUSTOM_A100"})
        define(backend, other)
        before = picture(backend)
        with pytest.raises(exceptions.StaleDefinition) as refused:
            backend.define(Operation(), changes)
        assert refused.value.subject == "host0/gpu1"
        assert picture(backend) == before

    def test_a_provider_that_changed_is_not_removed(self, backend: Backend) -> None:
        define(backend, _tree())
        changes = changes_to(backend, Provider("host0"))
        other = kept(backend, "host0")
        other.find("host0/gpu1").update(traits={"CUSTOM_A100"})
        define(backend, other)
        before = picture(backend)
        with pytest.raises(exceptions.StaleDefinition):
            backend.define(Operation(), changes)
        assert picture(backend) == before

    def test_a_provider_that_is_gone_cannot_be_changed(self, backend: Backend) -> None:
        define(backend, _tree())
        tree = kept(backend, "host0")
        tree.find("host0/gpu1").update(traits={"CUSTOM_H100"})
        changes = changes_to(backend, tree)
        define(backend, Provider("host0"))
        with pytest.raises(exceptions.StaleDefinition):
            backend.define(Operation(), changes)

    # --- names and uuids ---

    @law(2)
    def test_a_taken_name_is_refused_and_nothing_is_made(self, backend: Backend) -> None:
        define(backend, host("host0"), host("host1"))
        wanted = host("host2")
        wanted.add("host2/new")
        wanted.add("host1")
        before = picture(backend)
        changes = _created(wanted)
        with pytest.raises(exceptions.ProviderExists) as refused:
            backend.define(Operation(), changes)
        assert refused.value.subject == "host1"
        assert picture(backend) == before

    def test_a_taken_uuid_is_refused(self, backend: Backend) -> None:
        [taken] = define(backend, host("host0")).values()
        before = picture(backend)
        with pytest.raises(exceptions.ProviderExists):
            backend.define(Operation(), _created(Provider("other", uuid=taken)))
        assert picture(backend) == before

    def test_renaming_keeps_everything_else(self, backend: Backend) -> None:
        names = define(backend, _tree())
        claim(backend, "job", {names["host0"]: "VCPU=2"})
        tree = kept(backend, "host0")
        tree.update(name="renamed")
        define(backend, tree)
        assert backend.uuids(["host0", "renamed"]) == {"renamed": names["host0"]}
        assert picture(backend).allocations == {("job", "renamed", "VCPU"): 2}
        record = backend.held("job")
        assert record is not None and record.held[0].provider == "renamed"

    def test_renaming_to_a_taken_name_is_refused(self, backend: Backend) -> None:
        define(backend, host("host0"), host("host1"))
        tree = kept(backend, "host0")
        tree.update(name="host1")
        before = picture(backend)
        with pytest.raises(exceptions.ProviderExists):
            define(backend, tree)
        assert picture(backend) == before

    def test_providers_may_swap_their_names(self, backend: Backend) -> None:
        names = define(backend, _tree())
        tree = kept(backend, "host0")
        first, second = tree.find("host0/gpu0"), tree.find("host0/gpu1")
        first.update(name="host0/gpu1")
        second.update(name="host0/gpu0")
        define(backend, tree)
        assert backend.uuids(["host0/gpu0", "host0/gpu1"]) == {
            "host0/gpu0": names["host0/gpu1"],
            "host0/gpu1": names["host0/gpu0"],
        }

    def test_a_name_may_go_to_another_in_the_same_change(self, backend: Backend) -> None:
        define(backend, _tree())
        tree = kept(backend, "host0")
        tree.update(children=tuple(c for c in tree.children if c.name != "host0/gpu1"))
        another = str(uuids.uuid4())
        tree.add("host0/gpu1", "PGPU=1", uuid=another)
        define(backend, tree)
        assert backend.uuids(["host0/gpu1"]) == {"host0/gpu1": another}

    # --- trees ---

    def test_parents_come_before_children_also_after_a_move(self, backend: Backend) -> None:
        define(backend, _tree())
        tree = kept(backend, "host0")
        older = tree.find("host0/gpu0")
        younger = tree.add("shelf")
        tree.update(children=tuple(c for c in tree.children if c is not older))
        younger.update(children=(older,))
        define(backend, tree)
        moved = picture(backend).providers  # which checks the order, and the roots
        assert moved["host0/gpu0"].parent == "shelf"
        assert moved["host0/gpu0/part0"].root == "host0"

    def test_a_tree_may_get_another_root(self, backend: Backend) -> None:
        names = define(backend, _tree())
        tree = kept(backend, "host0")
        gpu = tree.find("host0/gpu0")
        tree.update(children=tuple(c for c in tree.children if c is not gpu))
        gpu.update(children=(*gpu.children, tree))
        backend.define(Operation(), changes_to(backend, gpu))
        found = picture(backend, "host0")
        assert set(found.providers) == set(names)
        assert {provider.root for provider in found.providers.values()} == {"host0/gpu0"}

    def test_a_tree_may_lose_its_root(self, backend: Backend) -> None:
        define(backend, _tree())
        gpu = kept(backend, "host0").find("host0/gpu0")
        backend.define(Operation(), changes_to(backend, gpu))
        assert set(picture(backend).providers) == {"host0/gpu0", "host0/gpu0/part0"}

    def test_a_parent_that_is_gone_gets_no_child(self, backend: Backend) -> None:
        define(backend, _tree())
        tree = kept(backend, "host0")
        tree.find("host0/gpu1").add("host0/gpu1/part0")
        changes = changes_to(backend, tree)
        define(backend, Provider("host0"))
        before = picture(backend)
        with pytest.raises(exceptions.StaleDefinition):
            backend.define(Operation(), changes)
        assert picture(backend) == before

    def test_a_provider_with_a_child_nobody_knew_of_stays(self, backend: Backend) -> None:
        define(backend, _tree())
        changes = changes_to(backend, Provider("host0"))
        tree = kept(backend, "host0")
        tree.find("host0/gpu1").add("host0/gpu1/part0")
        define(backend, tree)
        before = picture(backend)
        with pytest.raises(exceptions.StaleDefinition):
            backend.define(Operation(), changes)
        assert picture(backend) == before

    @law(2)
    @pytest.mark.parametrize("below", ["host0/gpu0", "host0/gpu0/part0"])
    def test_two_moves_never_make_a_circle(self, backend: Backend, below: str) -> None:
        define(backend, _tree())
        changes = _moved(backend, "host0/gpu1", below)
        backend.define(Operation(), _moved(backend, "host0/gpu0", "host0/gpu1"))
        before = picture(backend)
        with pytest.raises(exceptions.StaleDefinition) as refused:
            backend.define(Operation(), changes)
        assert refused.value.subject in ("host0/gpu0", "host0/gpu0/part0", "host0/gpu1")
        assert "below itself" in str(refused.value)
        assert picture(backend) == before

    @law(2)
    def test_nothing_is_moved_below_what_is_gone(self, backend: Backend) -> None:
        define(backend, _tree())
        changes = _moved(backend, "host0/gpu0", "host0/gpu1")
        tree = kept(backend, "host0")
        tree.update(children=tuple(c for c in tree.children if c.name != "host0/gpu1"))
        define(backend, tree)
        before = picture(backend)
        with pytest.raises(exceptions.StaleDefinition) as refused:
            backend.define(Operation(), changes)
        assert refused.value.subject == "host0/gpu0"
        assert picture(backend) == before

    @law(2)
    def test_a_provider_that_a_child_was_moved_below_stays(self, backend: Backend) -> None:
        define(backend, _tree())
        tree = kept(backend, "host0")
        tree.update(children=tuple(c for c in tree.children if c.name != "host0/gpu1"))
        changes = _bare(changes_to(backend, tree))
        backend.define(Operation(), _moved(backend, "host0/gpu0", "host0/gpu1"))
        before = picture(backend)
        with pytest.raises(exceptions.StaleDefinition) as refused:
            backend.define(Operation(), changes)
        assert refused.value.subject == "host0/gpu1"
        assert picture(backend) == before

    def test_a_wide_and_deep_tree_is_one_change(self, backend: Backend) -> None:
        root = Provider("row", "VCPU=1")
        for rack in range(20):
            below = root.add(f"rack{rack}", traits=[f"CUSTOM_{rack}"])
            for slot in range(20):
                below = below.add(f"rack{rack}/{slot}", "VCPU=8,DISK_GB=9")
        define(backend, root)
        assert len(picture(backend, "rack7/7").providers) == 421
        define(backend, Provider("row", "VCPU=1"))
        assert set(picture(backend).providers) == {"row"}

    # --- what is used ---

    @law(1)
    def test_definitions_never_touch_what_is_used(self, backend: Backend) -> None:
        names = define(backend, _tree())
        claim(backend, "job", {names["host0"]: "VCPU=2"})
        tree = Provider("host0", {"VCPU": IntegerInventory(total=16, used=9)})
        define(backend, tree)
        assert picture(backend).used("host0", "VCPU") == 2

    def test_shrinking_below_what_is_used_is_allowed(self, backend: Backend) -> None:
        names = define(backend, host("host0", "VCPU=8"))
        claim(backend, "job", {names["host0"]: "VCPU=6"})
        define(backend, host("host0", "VCPU=4:reserved=3"))
        record = picture(backend).providers["host0"].inventories["VCPU"]
        assert (record.capacity, record.used) == (1, 6)

    @law(2)
    def test_an_inventory_in_use_stays(self, backend: Backend) -> None:
        names = define(backend, host())
        claim(backend, "job", {names["host0"]: "VCPU=6"})
        before = picture(backend)
        wanted = host("host0", "MEMORY_MB=1")
        wanted.add("host0/new")
        with pytest.raises(exceptions.InventoryInUse) as refused:
            define(backend, wanted)
        assert refused.value.subject == "host0" and "VCPU" in str(refused.value)
        assert picture(backend) == before

    @law(2)
    def test_a_provider_in_use_stays(self, backend: Backend) -> None:
        names = define(backend, _tree())
        claim(backend, "job", {names["host0/gpu0"]: "PGPU=1"})
        before = picture(backend)
        with pytest.raises(exceptions.ProviderInUse) as refused:
            define(backend, Provider("host0"))
        assert refused.value.subject == "host0/gpu0"
        assert picture(backend) == before

    def test_what_is_used_no_more_may_go(self, backend: Backend) -> None:
        names = define(backend, _tree())
        claim(backend, "job", {names["host0/gpu0"]: "PGPU=1", names["host0"]: "VCPU=1"})
        release(backend, "job")
        define(backend, Provider("host0"))
        assert set(picture(backend).providers) == {"host0"}

    def test_a_whole_tree_may_go(self, backend: Backend) -> None:
        define(backend, _tree(), host("host1"))
        [root] = trees(backend.read("host0"))
        removals = tuple(
            ProviderRemoval(provider.uuid or "", provider.name, provider.generation or 0)
            for provider in reversed(list(root.walk()))
        )
        backend.define(Operation(), DefinitionChanges(root.uuid or "", removals=removals))
        assert set(picture(backend).providers) == {"host1"}

    @law(2)
    def test_one_refused_change_of_many_refuses_all(self, backend: Backend) -> None:
        define(backend, _tree())
        before = picture(backend)
        found = kept(backend, "host0")
        definition = ProviderDefinition(found.uuid or "", "host0", None, (), frozenset())
        good = ProviderDefinition(str(uuids.uuid4()), "new", found.uuid, (), frozenset())
        stale = ProviderUpdate(
            definition, (found.generation or 0) + 1, (), (), frozenset(), frozenset()
        )
        changes = DefinitionChanges(found.uuid or "", creates=(good,), updates=(stale,))
        with pytest.raises(exceptions.StaleDefinition):
            backend.define(Operation(), changes)
        assert picture(backend) == before

    @law(2)
    def test_several_trees_are_one_change(self, backend: Backend) -> None:
        names = define(backend, _tree(), host("host1"), host("host2"))
        claim(backend, "job", {names["host2"]: "MEMORY_MB=1"})
        before = picture(backend)
        wanted = [host("host0", "VCPU=4"), host("host1", "VCPU=3"), host("host2", "VCPU=2")]
        with pytest.raises(exceptions.InventoryInUse) as refused:
            backend.define(Operation(), changes_to(backend, *wanted))
        assert refused.value.subject == "host2"
        assert picture(backend) == before
        wanted = [*wanted[:2], host("host3", "VCPU=1")]
        backend.define(Operation(), changes_to(backend, *wanted))
        found = picture(backend).providers
        assert set(found) == {"host0", "host1", "host2", "host3"}
        assert [found[one.name].inventories["VCPU"].total for one in wanted] == [4, 3, 1]

    # --- opening and closing ---

    def test_a_closed_backend_is_of_no_use(self, backend: Backend) -> None:
        backend.close()
        backend.close()
        for use in (
            backend.read,
            backend.cursor,
            lambda: backend.held("job"),
            lambda: backend.outcome(Operation()),
            lambda: backend.uuids(["host0"]),
            lambda: backend.list_providers(ProviderFilter(), 1),
            lambda: backend.list_consumers(ConsumerFilter(), 1),
            lambda: backend.list_names(NameKind.TRAIT, 1),
            lambda: backend.totals(ConsumerFilter(), By.USER),
            lambda: backend.changes(Cursor((0,) * SHARDS), 1),
            lambda: backend.release(Operation(), "job"),
            lambda: backend.prune(now()),
        ):
            with pytest.raises(exceptions.LedgerClosed):
                use()

    def test_a_url_of_another_backend_is_refused(self) -> None:
        with pytest.raises(exceptions.InvalidURL):
            self.backend_class.open("nonsense://nowhere/nothing")

    def test_upgrading_what_is_up_to_date_does_nothing(self, backend: Backend, url: str) -> None:
        define(backend, host())
        before = picture(backend)
        assert backend.upgrade() == self.backend_class.upgrade_database(url) == []
        assert picture(backend) == before

    def test_two_ledgers_never_mix(self, backend: Backend, another_url: str) -> None:
        other = self.backend_class.open(another_url)
        try:
            define(other, host("host1", "VCPU=1"), host("host0", "VCPU=99"))
            names = define(backend, host("host0", "VCPU=8"))
            claim(backend, "job", {names["host0"]: "VCPU=8"})
            assert set(picture(other).providers) == {"host0", "host1"}
            assert picture(other).allocations == {} and other.held("job") is None
            other_names = other.uuids(["host0"])
            with pytest.raises(exceptions.ProviderNotFound):
                claim(backend, "job-2", {other_names["host0"]: "VCPU=1"})
        finally:
            other.close()

    def test_what_is_kept_outlives_the_backend(self, backend: Backend, url: str) -> None:
        self.need("persistent")
        names = define(backend, _tree())
        record = claim(backend, "job", {names["host0"]: "VCPU=2"})
        before = picture(backend)
        backend.close()
        again = self.backend_class.open(url)
        try:
            assert picture(again) == before
            assert again.held("job") == record
        finally:
            again.close()

    def test_two_backends_of_one_ledger_agree(self, backend: Backend, url: str) -> None:
        self.need("persistent")
        other = self.backend_class.open(url)
        try:
            names = define(backend, host("host0", "VCPU=8,CUSTOM_NEW=1"))
            claim(other, "job", {names["host0"]: "VCPU=8,CUSTOM_NEW=1"})
            assert picture(backend) == picture(other)
            with pytest.raises(exceptions.CapacityException):
                claim(backend, "job-2", {names["host0"]: "CUSTOM_NEW=1"})
        finally:
            other.close()


def _moved(backend: Backend, name: str, below: str) -> DefinitionChanges:
    """Return the bare change that moves a child of ``host0`` below another of that tree."""
    tree = kept(backend, "host0")
    moved, parent = tree.find(name), tree.find(below)
    tree.update(children=tuple(c for c in tree.children if c is not moved))
    parent.update(children=(*parent.children, moved))
    return _bare(changes_to(backend, tree))


def _bare(changes: DefinitionChanges) -> DefinitionChanges:
    """Return changes without the parents they only bump: the backend sees for itself."""
    updates = tuple(update for update in changes.updates if not update.only_children)
    return dataclasses.replace(changes, updates=updates)


def _created(root: Provider) -> DefinitionChanges:
    """Return the change that makes a tree, whatever is there."""
    return diff(None, root)
