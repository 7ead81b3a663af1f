"""Tests of definitions: trees of providers, their attributes, reports and shares."""

from __future__ import annotations

import dataclasses
import datetime
import json
import random
import uuid as uuids
from typing import Any

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider, diff
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import (
    DefinitionChanges,
    ExpectedUse,
    ProviderDefinition,
    ProviderRemoval,
    ProviderUpdate,
)
from resource_objects.providers.feed import SHARDS, Cursor
from resource_objects.providers.listing import By, ConsumerFilter, ProviderFilter
from resource_objects.providers.orders import ConsumerOrder, NameKind, Operation, Use, Write
from resource_objects.providers.provider import Share
from resource_objects.resources import IntegerInventory
from resource_objects.resources.records import InventoryRecord, KindRecord
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.conformance.suite import (
    AGGREGATE,
    CLASS,
    TRAIT,
    Kit,
    adjust,
    change_names,
    changes_to,
    claim,
    define,
    deltas,
    host,
    later_moment,
    law,
    ledger_state,
    names_of,
    now,
    order,
    release,
    remove,
    rename,
    stored_tree,
    updated,
)
from resource_objects.testing.refusals import raises_code


def _tree() -> Provider:
    """Return a host with two GPUs, one of which has a partition."""
    root = Provider("host0", "VCPU=8:reserved=1:allocation_ratio=1.5,MEMORY_MB=16384:step_size=512")
    root.update(traits={"HW_CPU_X86_AVX2", "CUSTOM_FAST"})
    gpu = root.add("host0/gpu0", "PGPU=1:max_unit=1", traits=["CUSTOM_H100"])
    gpu.add("host0/gpu0/part0", "CUSTOM_SLICE=7:min_unit=2")
    root.add("host0/gpu1")
    return root


class DefinitionRules(Kit):
    """``define`` and ``read``."""

    # --- reading ---

    def test_a_new_ledger_is_empty(self, backend: Backend) -> None:
        assert backend.read() == Columns()
        assert backend.cursor() == backend.read().cursor == Cursor((0,) * SHARDS)

    def test_a_defined_tree_is_read_as_it_was_defined(self, backend: Backend) -> None:
        define(backend, _tree())
        result = stored_tree(backend, "host0")
        assert [provider.name for provider in result.walk()] == [p.name for p in _tree().walk()]
        for provider, expected in zip(result.walk(), _tree().walk(), strict=True):
            assert provider.inventories == expected.inventories
            assert provider.traits == expected.traits
            assert provider.uuid == str(uuids.UUID(provider.uuid))
            assert provider.generation is not None

    def test_a_specified_uuid_is_stored(self, backend: Backend) -> None:
        values = str(uuids.uuid4())
        assert define(backend, Provider("host0", uuid=values)) == {"host0": values}

    def test_a_tree_is_read_by_name_or_uuid_of_any_of_its_providers(self, backend: Backend) -> None:
        names = define(backend, _tree(), host("host1"))
        for name in ("host0", "host0/gpu0/part0"):
            for handle in (name, names[name]):
                assert set(ledger_state(backend, handle).providers) == set(names) - {"host1"}

    def test_reading_one_tree_leaves_out_allocations_at_others(self, backend: Backend) -> None:
        names = define(backend, host("host0"), host("host1"))
        claim(backend, "both", {names["host0"]: "VCPU=1", names["host1"]: "VCPU=2"})
        assert ledger_state(backend, "host1").allocations == {("both", "host1", "VCPU"): 2}

    def test_an_unknown_tree_is_read_as_empty_columns(self, backend: Backend) -> None:
        define(backend, host())
        assert backend.read("host1") == backend.read(str(uuids.uuid4())) == Columns()

    def test_several_trees_are_read_at_once(self, backend: Backend) -> None:
        names = define(backend, _tree(), host("host1"), host("host2"))
        claim(backend, "job", {names["host1"]: "VCPU=1", names["host2"]: "VCPU=1"})
        state = ledger_state(backend, "host0/gpu1", names["host1"], "host1", "nobody")
        assert set(state.providers) == set(names) - {"host2"}
        assert state.allocations == {("job", "host1", "VCPU"): 1}
        assert backend.read("nobody") == Columns()

    def test_allocations_are_read_only_on_request(self, backend: Backend) -> None:
        names = define(backend, _tree())
        use = Use(names["host0/gpu0"], "PGPU", 1, ("gpu0",))
        backend.claim(Operation(), ConsumerOrder.claim("job", (use,)))
        for trees_read in ((), ("host0",)):
            complete = backend.read(*trees_read)
            less = backend.read(*trees_read, allocations=False)
            assert less.allocations == Columns().allocations and less.units == Columns().units
            assert less == dataclasses.replace(
                complete, allocations=less.allocations, units=less.units
            )
            assert less.cursor == complete.cursor
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
        before = ledger_state(backend)
        for _ in range(3):
            backend.read("host0")
            backend.held("job")
            backend.held("nobody")
            backend.uuids(["host0", "nobody"])
        assert ledger_state(backend) == before

    # --- changing ---

    def test_an_equal_definition_is_no_change(self, backend: Backend) -> None:
        define(backend, _tree())
        assert not changes_to(backend, _tree())

    def test_a_change_moves_the_generation_of_the_changed_provider_only(
        self, backend: Backend
    ) -> None:
        define(backend, _tree())
        before = ledger_state(backend).providers
        tree = stored_tree(backend, "host0")
        tree.find("host0/gpu1").update(traits={"CUSTOM_H100"})
        define(backend, tree)
        after = ledger_state(backend).providers
        assert after["host0/gpu1"].traits == {"CUSTOM_H100"}
        assert after["host0/gpu1"].generation != before["host0/gpu1"].generation
        assert {n: p for n, p in after.items() if n != "host0/gpu1"} == {
            n: p for n, p in before.items() if n != "host0/gpu1"
        }

    # --- names and uuids ---

    def test_a_uuid_in_use_is_refused(self, backend: Backend) -> None:
        [taken] = define(backend, host("host0")).values()
        before = ledger_state(backend)
        with raises_code("ProviderExists"):
            backend.define(Operation(), _created(Provider("other", uuid=taken)))
        assert ledger_state(backend) == before

    def test_a_release_names_the_removed_provider_whose_name_was_reused(
        self, backend: Backend
    ) -> None:
        claimed = define(backend, host("host0"))["host0"]
        claim(backend, "job", {claimed: "VCPU=1"})
        second = str(uuids.uuid4())
        goes = ProviderRemoval(claimed, "host0", stored_tree(backend, "host0").generation or 0)
        created = _created(Provider("host0", "VCPU=2", uuid=second))
        changes = dataclasses.replace(created, removals=(goes,))
        (record,) = order(backend, ConsumerOrder.release("job"), definitions=changes)
        assert [(uses.provider, uses.provider_uuid) for uses in record.held] == [("host0", claimed)]
        assert backend.uuids(["host0"]) == {"host0": second}

    # --- trees ---

    def test_a_wide_and_deep_tree_is_one_change(self, backend: Backend) -> None:
        root = Provider("row", "VCPU=1")
        for rack in range(20):
            below = root.add(f"rack{rack}", traits=[f"CUSTOM_{rack}"])
            for slot in range(20):
                below = below.add(f"rack{rack}/{slot}", "VCPU=8,DISK_GB=9")
        define(backend, root)
        assert len(ledger_state(backend, "rack7/7").providers) == 421
        define(backend, Provider("row", "VCPU=1"))
        assert set(ledger_state(backend).providers) == {"row"}

    # --- used amounts ---

    @law(1)
    def test_a_definition_does_not_change_the_used_amount(self, backend: Backend) -> None:
        names = define(backend, _tree())
        claim(backend, "job", {names["host0"]: "VCPU=2"})
        tree = Provider("host0", {"VCPU": IntegerInventory(total=16, used=9)})
        define(backend, tree)
        assert ledger_state(backend).used("host0", "VCPU") == 2

    def test_a_provider_in_use_is_reported_before_an_inventory_in_use(
        self, backend: Backend
    ) -> None:
        """Check for each order of the removals and of the stored rows."""
        wide = host("host0", "VCPU=8,MEMORY_MB=64,DISK_GB=9")
        for name in ("host0/b", "host0/a"):
            wide.add(name, "PGPU=1")
        names = define(backend, wide)
        claim(
            backend,
            "job",
            {names["host0"]: "VCPU=1,MEMORY_MB=1", names["host0/a"]: "PGPU=1"},
        )
        claim(backend, "other", {names["host0/b"]: "PGPU=1"})
        narrow = changes_to(backend, host("host0", "DISK_GB=9"))
        before = ledger_state(backend)

        def refused(changes: DefinitionChanges) -> tuple[str, str, str]:
            with pytest.raises(exceptions.LedgerError) as error:
                backend.define(Operation(), changes)
            assert ledger_state(backend) == before
            return error.value.code, error.value.name, str(error.value)

        backwards = dataclasses.replace(narrow, removals=narrow.removals[::-1])
        for changes in (narrow, backwards):
            first = changes.removals[0].name
            assert refused(changes)[:2] == ("ProviderInUse", first)
        release(backend, "other")
        before = ledger_state(backend)
        assert refused(narrow)[:2] == ("ProviderInUse", "host0/a")
        adjust(backend, "job", {names["host0/a"]: "PGPU=-1"})
        before = ledger_state(backend)
        kind, subject, options = refused(narrow)
        assert (kind, subject) == ("InventoryInUse", "host0")
        assert "MEMORY_MB" in options and "VCPU" not in options

    @law(2)
    def test_one_refused_change_of_many_refuses_all(self, backend: Backend) -> None:
        define(backend, _tree())
        before = ledger_state(backend)
        provider = stored_tree(backend, "host0")
        good = ProviderDefinition(str(uuids.uuid4()), "new", provider.uuid, (), frozenset())
        now = updated(backend, "host0", inventories=())
        stale = dataclasses.replace(now, generation=now.generation + 1)
        changes = DefinitionChanges(provider.uuid or "", creates=(good,), updates=(stale,))
        with raises_code("StaleDefinition"):
            backend.define(Operation(), changes)
        assert ledger_state(backend) == before

    @law(2, 4)
    def test_an_update_can_demand_used_amounts(self, backend: Backend) -> None:
        names = define(backend, host("host0", "VCPU=8,DISK_GB=9"))
        claim(backend, "job", {names["host0"]: "VCPU=3"})
        [expected] = changes_to(backend, host("host0", "VCPU=6,DISK_GB=7")).updates

        def relying(vcpu: int) -> ProviderUpdate:
            used = ExpectedUse("VCPU", vcpu), ExpectedUse("DISK_GB", 0)
            return dataclasses.replace(expected, expected_use=used)

        before = ledger_state(backend)
        for other in (2, 4):
            with raises_code("StaleDefinition", match=f"{other} of VCPU was used"):
                _update(backend, relying(other))
            assert ledger_state(backend) == before
        _update(backend, relying(3))
        assert ledger_state(backend).providers["host0"].inventories["VCPU"].total == 6

    # --- opening and closing ---

    def test_a_closed_backend_refuses_every_call(self, backend: Backend) -> None:
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
            with raises_code("LedgerClosed"):
                use()

    def test_a_url_of_another_backend_is_refused(self) -> None:
        with pytest.raises(exceptions.InvalidURL):
            self.backend_class.open("nonsense://nowhere/nothing")

    def test_upgrading_a_current_database_changes_nothing(self, backend: Backend, url: str) -> None:
        define(backend, host())
        before = ledger_state(backend)
        assert backend.upgrade() == self.backend_class.upgrade_database(url) == []
        assert ledger_state(backend) == before

    def test_two_ledgers_never_mix(self, backend: Backend, another_url: str) -> None:
        other = self.backend_class.open(another_url)
        try:
            define(other, host("host1", "VCPU=1"), host("host0", "VCPU=99"))
            names = define(backend, host("host0", "VCPU=8"))
            claim(backend, "job", {names["host0"]: "VCPU=8"})
            assert set(ledger_state(other).providers) == {"host0", "host1"}
            assert ledger_state(other).allocations == {} and other.held("job") is None
            other_names = other.uuids(["host0"])
            with raises_code("ProviderNotFound"):
                claim(backend, "job-2", {other_names["host0"]: "VCPU=1"})
        finally:
            other.close()

    @requires(Requirement.PERSISTENCE)
    def test_a_ledger_outlives_its_backend(self, backend: Backend, url: str) -> None:
        names = define(backend, _tree())
        record = claim(backend, "job", {names["host0"]: "VCPU=2"})
        before = ledger_state(backend)
        backend.close()
        again = self.backend_class.open(url)
        try:
            assert ledger_state(again) == before
            assert again.held("job") == record
        finally:
            again.close()

    @requires(Requirement.SHARING)
    def test_two_backends_of_one_ledger_agree(self, backend: Backend, url: str) -> None:
        other = self.backend_class.open(url)
        try:
            names = define(backend, host("host0", "VCPU=8,CUSTOM_NEW=1"))
            claim(other, "job", {names["host0"]: "VCPU=8,CUSTOM_NEW=1"})
            assert ledger_state(backend) == ledger_state(other)
            with pytest.raises(exceptions.CapacityException):
                claim(backend, "job-2", {names["host0"]: "CUSTOM_NEW=1"})
        finally:
            other.close()


def _created(root: Provider) -> DefinitionChanges:
    """Return the changes that create a tree."""
    return diff(None, root)


# --- attributes of providers, and writes that depend on definitions ---


_NOTHING = frozenset[str]()


def _record(name: str, total: int) -> InventoryRecord:
    return InventoryRecord(name, total, 0, 1, None, 1, 1_000_000, total)


def _tray(slots: int = 8, colour: str = "red") -> ProviderDefinition:
    """Return a provider with a placed resource of two records, and a plain inventory."""
    body = json.dumps({"colour": colour, "said": "Größe 大小 🖥" + "x" * 70_000})
    kind = KindRecord("CUSTOM_TRAY", ("CUSTOM_TRAY_SLOT", "CUSTOM_TRAY_WATT"), body)
    records = (
        _record("CUSTOM_TRAY_SLOT", slots),
        _record("CUSTOM_TRAY_WATT", 500),
        _record("DISK_GB", 9),
    )
    uuid = str(uuids.uuid4())
    return ProviderDefinition(uuid, "tray", None, records, _NOTHING, None, (), (kind,))


def _made(backend: Backend, definition: ProviderDefinition) -> str:
    backend.define(Operation(), DefinitionChanges(definition.name, creates=(definition,)))
    return definition.uuid


class DescriptionRules(Kit):
    """Attributes, reports and counters of providers."""

    # --- aggregates ---

    @law(7)
    def test_aggregates_that_look_alike_differ(self, backend: Backend) -> None:
        alike = ["rack", "Rack", "räck", "ra\u0308ck", "rackß", "rackss", "r" * 255, "r" * 254]
        define(backend, Provider("host0", "VCPU=8", aggregates=alike))
        assert ledger_state(backend).providers["host0"].aggregates == set(alike)
        assert names_of(backend, AGGREGATE) == sorted(alike)

    # --- kinds ---

    def test_a_placed_resource_of_several_records_is_stored(self, backend: Backend) -> None:
        definition = _tray()
        uuid = _made(backend, definition)
        provider = ledger_state(backend).providers["tray"]
        assert set(provider.inventories) == {"CUSTOM_TRAY_SLOT", "CUSTOM_TRAY_WATT", "DISK_GB"}
        assert provider.kinds == set(definition.kinds)
        claim(backend, "job", {uuid: "CUSTOM_TRAY_SLOT=2,CUSTOM_TRAY_WATT=90"})
        provider = ledger_state(backend, "tray").providers["tray"]
        assert provider.inventories["CUSTOM_TRAY_WATT"].used == 90
        [listed] = backend.list_providers(ProviderFilter(), 10)
        assert set(listed.kinds) == provider.kinds
        assert {record.resource_class: record for record in listed.records} == provider.inventories

    def test_a_placed_resource_is_changed_and_removed(self, backend: Backend) -> None:
        before = _tray()
        _made(backend, before)
        after = dataclasses.replace(_tray(16, "blue"), uuid=before.uuid)
        _update(backend, ProviderUpdate(after, _generation(backend), before))
        provider = ledger_state(backend).providers["tray"]
        assert provider.kinds == set(after.kinds)
        assert provider.inventories["CUSTOM_TRAY_SLOT"].total == 16
        plain = dataclasses.replace(before, inventories=before.inventories[2:], kinds=())
        _update(backend, ProviderUpdate(plain, provider.generation, after))
        provider = ledger_state(backend).providers["tray"]
        assert not provider.kinds and set(provider.inventories) == {"DISK_GB"}

    def test_an_update_of_traits_leaves_placed_resources(self, backend: Backend) -> None:
        definition = _tray()
        _made(backend, definition)
        more = dataclasses.replace(definition, traits=frozenset({"CUSTOM_A"}))
        _update(backend, ProviderUpdate(more, _generation(backend), definition))
        assert ledger_state(backend).providers["tray"].kinds == set(definition.kinds)

    def test_a_placed_resource_keeps_its_classes_when_one_is_renamed(
        self, backend: Backend
    ) -> None:
        uuid = _made(backend, _tray())
        claim(backend, "job", {uuid: "CUSTOM_TRAY_WATT=90"})
        change_names(backend, rename(CLASS, "CUSTOM_TRAY_WATT", "CUSTOM_POWER"))
        provider = ledger_state(backend).providers["tray"]
        [kind] = provider.kinds
        assert kind.classes == ("CUSTOM_TRAY_SLOT", "CUSTOM_POWER")
        assert provider.inventories["CUSTOM_POWER"].used == 90

    # --- reports ---

    def test_the_time_of_a_report_is_stored(self, backend: Backend) -> None:
        names = define(backend, host("host0"), host("host1"))
        before = ledger_state(backend).providers
        assert before["host0"].reported_at is None
        first = now()
        backend.commit(Write(Operation(), "report", "host0", reported=(names["host0"],)))
        providers = ledger_state(backend).providers
        reported_at = providers["host0"].reported_at
        assert reported_at is not None and first <= reported_at <= now()
        assert providers["host1"] == before["host1"]
        assert dataclasses.replace(providers["host0"], reported_at=None) == before["host0"]
        [listed] = backend.list_providers(ProviderFilter(names=frozenset({"host0"})), 1)
        assert listed.reported_at == reported_at
        define(backend, host("host0", "VCPU=1"))
        assert ledger_state(backend).providers["host0"].reported_at == reported_at

    def test_the_time_of_adoption_is_stored_once_and_is_no_report(self, backend: Backend) -> None:
        names = define(backend, host("host0"), host("host1"))
        before = ledger_state(backend).providers
        assert before["host0"].adopted_at is None
        first, cursor = now(), backend.cursor()
        consumer_order = ConsumerOrder.claim(
            "somebody", deltas({names["host0"]: "VCPU=1"}), aggregate=True, adopts=True
        )
        adopted = (names["host0"],)
        backend.commit(
            Write(Operation(), "adopt", "host0", orders=(consumer_order,), adopted=adopted)
        )
        [entry] = backend.changes(cursor, 10)
        assert (entry.reports, entry.definitions) == (adopted, ())
        assert entry.consumers == ("somebody",)
        providers = ledger_state(backend).providers
        at = providers["host0"].adopted_at
        assert at is not None and first <= at <= now()
        assert (providers["host0"].reported_at, providers["host1"]) == (None, before["host1"])
        [listed] = backend.list_providers(ProviderFilter(names=frozenset({"host0"})), 1)
        assert (listed.adopted_at, listed.reported_at) == (at, None)
        backend.commit(Write(Operation(), "report", "host0", reported=adopted))
        backend.commit(Write(Operation(), "adopt", "host0", adopted=adopted))
        providers = ledger_state(backend).providers
        assert providers["host0"].adopted_at == at and providers["host0"].reported_at is not None
        define(backend, host("host0", "VCPU=2"))
        assert ledger_state(backend).providers["host0"].adopted_at == at

    def test_stale_reports_are_listed(self, backend: Backend) -> None:
        names = define(backend, host("old"), host("new"), host("never"))
        backend.commit(Write(Operation(), "report", "old", reported=(names["old"],)))
        middle = later_moment()
        backend.commit(Write(Operation(), "report", "new", reported=(names["new"],)))

        def before(moment: datetime.datetime) -> list[str]:
            provider_filter = ProviderFilter(reported_before=moment)
            return [listed.name for listed in backend.list_providers(provider_filter, 10)]

        assert before(middle) == ["old"]
        assert before(later_moment()) == ["old", "new"]

    # --- what a write demands ---

    @law(2)
    def test_a_generation_of_a_provider_never_repeats(self, backend: Backend) -> None:
        """Check also for a provider that is created again with its uuid."""
        uuid, chance, seen = str(uuids.uuid4()), random.Random(7), list[int]()
        job = ConsumerOrder.claim("job", deltas({uuid: "VCPU=1"}))

        def note() -> None:
            generation = ledger_state(backend).providers["host0"].generation
            assert generation not in seen
            for before in seen:
                with raises_code("StaleDefinition"):
                    order(backend, job, unchanged=((uuid, before),))
            seen.append(generation)

        for cpus in (8, 16, 24):
            for more in range(chance.randint(1, 3)):
                tree = Provider("host0", f"VCPU={cpus + more}", traits=["CUSTOM_A"], uuid=uuid)
                define(backend, tree)
                note()
            for item, other in ("AB", "BA"):
                change_names(backend, rename(TRAIT, f"CUSTOM_{item}", f"CUSTOM_{other}"))
                note()
            order(backend, job, unchanged=((uuid, seen[-1]),))
            release(backend, "job")
            remove(backend, "host0")

    # --- the counter of allocation writes ---

    def test_writes_of_a_definition_are_counted(self, backend: Backend) -> None:
        """Count updates without effect, but no added children and no updates with ``counts=0``."""
        [uuid] = define(backend, host("host0", "VCPU=8")).values()
        stored = ProviderDefinition(uuid, "host0", None, (), frozenset())

        def write(after: ProviderDefinition, **options: Any) -> int:
            [listed] = backend.list_providers(ProviderFilter(uuids=frozenset([uuid])), 1)
            before = dataclasses.replace(after, name=listed.name)
            update = ProviderUpdate(after, listed.generation, before)
            _update(backend, dataclasses.replace(update, **options))
            [listed] = backend.list_providers(ProviderFilter(uuids=frozenset([uuid])), 1)
            assert listed.generation > 0
            return listed.definition_writes

        assert write(stored) == 1
        assert write(stored, children_changed=True) == 1
        assert write(dataclasses.replace(stored, name="host1"), counts=0) == 1
        assert write(dataclasses.replace(stored, name="host2")) == 2

    def test_writes_of_a_consumer_are_counted(self, backend: Backend) -> None:
        """Count from 1 for a consumer that is created again."""
        [uuid] = define(backend, host("host0", "VCPU=8")).values()
        written = [claim(backend, "job", {uuid: "VCPU=1"})]
        written.append(adjust(backend, "job", {uuid: "VCPU=1"}))
        written += order(backend, ConsumerOrder.replace("job", deltas({uuid: "VCPU=3"})))
        assert [item.writes for item in written] == [1, 2, 3]
        record = backend.held("job")
        assert record is not None and record.writes == 3
        release(backend, "job")
        assert claim(backend, "job", {uuid: "VCPU=1"}).writes == 1


def _generation(backend: Backend) -> int:
    """Return the generation of the only provider."""
    [listed] = backend.list_providers(ProviderFilter(), 10)
    return listed.generation


def _update(backend: Backend, update: ProviderUpdate) -> None:
    backend.define(Operation(), DefinitionChanges(update.definition.name, updates=(update,)))


# --- shares ---


def share(name: str, of: str, of_class: str | None = None, factor: int = 1) -> Share:
    """Return the share by which ``name`` uses ``of_class`` (default ``name``) at ``of``."""
    return Share(resource_class=name, of=of, of_class=of_class or name, factor=factor)


def _cells(cpus: str = "VCPU=8", cells: int = 2) -> Provider:
    """Return a host whose cells share its CPUs."""
    root = Provider("host0", f"{cpus},MEMORY_MB=1000")
    for number in range(cells):
        root.add(f"cell{number}", "VCPU=4", shares=[share("VCPU", "host0")])
    return root


def _card() -> Provider:
    """Return a card of 8 slices; a large partition uses 4 of them, a small one 1."""
    root = Provider("card", "CUSTOM_SLICE=8,CUSTOM_GB=80")
    for name, slices, memory, count in (("large", 4, 40, 2), ("small", 1, 10, 7)):
        kind = f"CUSTOM_{name.upper()}"
        of = [share(kind, "card", "CUSTOM_SLICE", slices), share(kind, "card", "CUSTOM_GB", memory)]
        root.add(name, {kind: count}, shares=of)
    return root


class ShareRules(Kit):
    """Use through shares."""

    # --- changes of shares ---

    @law(2)
    def test_a_target_in_use_is_not_removed(self, backend: Backend) -> None:
        names = define(backend, _cells())
        claim(backend, "job", {names["cell0"]: "VCPU=1"})
        before = ledger_state(backend)
        records = updated(backend, "host0").definition.inventories
        inventories = tuple(record for record in records if record.resource_class != "VCPU")
        update = updated(backend, "host0", inventories=inventories)
        with raises_code("InventoryInUse"):
            _update(backend, update)
        assert ledger_state(backend) == before

    def test_free_capacity_is_bounded_by_the_targets_of_shares(self, backend: Backend) -> None:
        names = define(backend, _card())
        claim(backend, "a", {names["large"]: "CUSTOM_LARGE=1", names["small"]: "CUSTOM_SMALL=1"})

        def with_room(**room: int) -> list[str]:
            provider_filter = ProviderFilter(room=tuple(room.items()))
            return [row.name for row in backend.list_providers(provider_filter, 10)]

        assert with_room(CUSTOM_SMALL=3) == ["small"]
        assert with_room(CUSTOM_SMALL=4) == []
        assert with_room(CUSTOM_LARGE=1) == []
        assert with_room(CUSTOM_SLICE=3, CUSTOM_GB=30) == ["card"]
