"""Tests of definitions: trees of providers, their attributes, reports and shares."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import random
import uuid as uuids
from typing import Any

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider
from resource_objects.providers.columns import AllocationColumns, Columns, UnitColumns
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
)
from resource_objects.providers.feed import SHARDS, Cursor
from resource_objects.providers.listing import By, ConsumerFilter, ProviderFilter
from resource_objects.providers.orders import ConsumerOrder, NameKind, Operation, Use, Write
from resource_objects.resources import IntegerInventory
from resource_objects.resources.records import AmountRecord, InventoryRecord, KindRecord
from resource_objects.testing.conformance import suite as kit
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.refusals import raises_code


def _tree() -> Provider:
    """Return a host with two GPUs, one of which has a partition."""
    root = Provider("host0", "VCPU=8:reserved=1:allocation_ratio=1.5,MEMORY_MB=16384:step_size=512")
    root.update(traits={"HW_CPU_X86_AVX2", "CUSTOM_FAST"})
    gpu = root.add("host0/gpu0", "PGPU=1:max_unit=1", traits=["CUSTOM_H100"])
    gpu.add("host0/gpu0/part0", "CUSTOM_SLICE=7:min_unit=2")
    root.add("host0/gpu1")
    return root


def _update(backend: Backend, update: ProviderUpdate) -> None:
    backend.define(Operation(), DefinitionChanges(update.definition.name, updates=(update,)))


class DefinitionRules(kit.Kit):
    """``define`` and ``read``."""

    # --- reading ---

    def test_a_new_ledger_is_empty(self, backend: Backend) -> None:
        assert backend.read() == Columns()
        assert backend.cursor() == backend.read().cursor == Cursor((0,) * SHARDS)

    def test_a_defined_tree_is_read_as_it_was_defined(self, backend: Backend) -> None:
        kit.define(backend, _tree())
        stored = kit.stored_tree(backend, "host0")
        for provider, expected in zip(stored.walk(), _tree().walk(), strict=True):
            for field in ("name", "inventories", "traits"):
                assert getattr(provider, field) == getattr(expected, field)
            assert provider.uuid == str(uuids.UUID(provider.uuid))
            assert provider.generation is not None
        assert not kit.changes_to(backend, _tree())
        uuid = str(uuids.uuid4())
        assert kit.define(backend, Provider("host1", uuid=uuid)) == {"host1": uuid}
        kit.define(backend, Provider("host2", {"VCPU": IntegerInventory(total=16, used=9)}))
        assert kit.ledger_state(backend).used("host2", "VCPU") == 0  # claims alone use anything

    def test_trees_are_read_by_names_or_uuids_of_their_providers(self, backend: Backend) -> None:
        names = kit.define(backend, _tree(), kit.host("host1"), kit.host("host2"))
        kit.claim(backend, "job", {names["host1"]: "VCPU=1", names["host2"]: "VCPU=2"})
        tree = set(names) - {"host1", "host2"}
        for name in ("host0", "host0/gpu0/part0"):
            for handle in (name, names[name]):
                assert set(kit.ledger_state(backend, handle).providers) == tree
        state = kit.ledger_state(backend, "host0/gpu1", names["host1"], "host1", "nobody")
        assert set(state.providers) == {*tree, "host1"}
        assert state.allocations == {("job", "host1", "VCPU"): 1}
        assert backend.read("nobody") == backend.read(str(uuids.uuid4())) == Columns()
        assert backend.uuids({*names, "nobody"}) == names and backend.uuids([]) == {}

    def test_allocations_are_read_only_on_request(self, backend: Backend) -> None:
        names = kit.define(backend, _tree())
        use = Use(names["host0/gpu0"], "PGPU", 1, ("gpu0",))
        kit.order(backend, ConsumerOrder.claim("job", (use,)))
        for trees_read in ((), ("host0",)):
            columns = backend.read(*trees_read)
            partial = backend.read(*trees_read, allocations=False)
            assert partial.allocations == AllocationColumns() and partial.units == UnitColumns()
            allocations, units = columns.allocations, columns.units
            assert dataclasses.replace(partial, allocations=allocations, units=units) == columns
            assert partial.cursor == columns.cursor and 1 in partial.inventories.used

    @kit.law(11)
    def test_reading_changes_nothing(self, backend: Backend) -> None:
        names = kit.define(backend, _tree())
        kit.claim(backend, "job", {names["host0"]: "VCPU=2"})
        before, cursor = kit.ledger_state(backend), backend.cursor()
        for _ in range(3):
            backend.read("host0")
            backend.consumer("job")
            backend.consumer("nobody")
            backend.uuids(["host0", "nobody"])
        assert (kit.ledger_state(backend), backend.cursor()) == (before, cursor)

    # --- changing ---

    def test_a_wide_and_deep_tree_is_one_change(self, backend: Backend) -> None:
        root = Provider("row", "VCPU=1")
        for rack in range(20):
            below = root.add(f"rack{rack}", traits=[f"CUSTOM_{rack}"])
            for slot in range(20):
                below = below.add(f"rack{rack}/{slot}", "VCPU=8,DISK_GB=9")
        kit.define(backend, root)
        assert len(kit.ledger_state(backend, "rack7/7").providers) == 421
        kit.define(backend, Provider("row", "VCPU=1"))
        assert set(kit.ledger_state(backend).providers) == {"row"}

    @kit.law(2, 4)
    def test_an_update_can_demand_used_amounts(self, backend: Backend) -> None:
        names = kit.define(backend, kit.host("host0", "VCPU=8,DISK_GB=9"))
        kit.claim(backend, "job", {names["host0"]: "VCPU=3"})
        [update] = kit.changes_to(backend, kit.host("host0", "VCPU=6,DISK_GB=7")).updates
        before = kit.ledger_state(backend)
        for vcpu in (2, 4, 3):
            used = AmountRecord("VCPU", vcpu), AmountRecord("DISK_GB", 0)
            demanding = dataclasses.replace(update, expected_use=used)
            if vcpu == 3:
                _update(backend, demanding)
                continue
            with raises_code("StaleDefinition", match=f"{vcpu} of VCPU was used"):
                _update(backend, demanding)
            assert kit.ledger_state(backend) == before
        assert kit.ledger_state(backend).providers["host0"].inventories["VCPU"].total == 6

    # --- opening and closing ---

    def test_a_closed_backend_refuses_every_call(self, backend: Backend) -> None:
        backend.close()
        backend.close()
        for use in (
            backend.read,
            backend.cursor,
            lambda: backend.consumer("job"),
            lambda: backend.outcome(Operation()),
            lambda: backend.uuids(["host0"]),
            lambda: backend.list_providers(ProviderFilter(), 1),
            lambda: backend.list_consumers(ConsumerFilter(), 1),
            lambda: backend.list_names(NameKind.TRAIT, 1),
            lambda: backend.totals(ConsumerFilter(), By.USER),
            lambda: backend.changes(Cursor((0,) * SHARDS), 1),
            lambda: backend.release(Operation(), "job"),
            lambda: backend.prune(kit.now()),
        ):
            with raises_code("LedgerClosed"):
                use()

    def test_a_url_of_another_backend_is_refused(self) -> None:
        with raises_code("InvalidURL"):
            self.backend_class.open("nonsense://nowhere/nothing")

    def test_upgrading_a_current_database_changes_nothing(self, backend: Backend, url: str) -> None:
        kit.define(backend, kit.host())
        before = kit.ledger_state(backend)
        assert backend.upgrade() == self.backend_class.upgrade_database(url) == []
        assert kit.ledger_state(backend) == before

    def test_two_ledgers_never_mix(self, backend: Backend, another_url: str) -> None:
        with contextlib.closing(self.backend_class.open(another_url)) as other:
            kit.define(other, kit.host("host1", "VCPU=1"), kit.host("host0", "VCPU=99"))
            names = kit.define(backend, kit.host("host0", "VCPU=8"))
            kit.claim(backend, "job", {names["host0"]: "VCPU=8"})
            assert set(kit.ledger_state(other).providers) == {"host0", "host1"}
            assert kit.ledger_state(other).allocations == {} and other.consumer("job") is None
            with raises_code("ProviderNotFound"):
                kit.claim(backend, "job-2", {other.uuids(["host0"])["host0"]: "VCPU=1"})

    @requires(Requirement.PERSISTENCE)
    def test_a_ledger_outlives_its_backend(self, backend: Backend, url: str) -> None:
        start, names = backend.cursor(), kit.define(backend, _tree())
        claim = Operation(), ConsumerOrder.claim("job", kit.deltas({names["host0"]: "VCPU=2"}))
        record, before = backend.claim(*claim), kit.ledger_state(backend)
        entries = backend.changes(start, 10)
        backend.close()
        with contextlib.closing(self.backend_class.open(url)) as again:
            assert kit.ledger_state(again) == before
            assert again.consumer("job") == again.claim(*claim) == record
            assert again.changes(start, 10) == entries != ()

    @requires(Requirement.SHARING)
    def test_two_backends_of_one_ledger_agree(self, backend: Backend, url: str) -> None:
        with contextlib.closing(self.backend_class.open(url)) as other:
            names = kit.define(backend, kit.host("host0", "VCPU=8,CUSTOM_NEW=1"))
            kit.claim(other, "job", {names["host0"]: "VCPU=8,CUSTOM_NEW=1"})
            assert kit.ledger_state(backend) == kit.ledger_state(other)
            with pytest.raises(exceptions.CapacityException):
                kit.claim(backend, "job-2", {names["host0"]: "CUSTOM_NEW=1"})


# --- attributes of providers ---


def _tray(slots: int = 8, colour: str = "red") -> ProviderDefinition:
    """Return a provider with a placed resource of two records, and a plain inventory."""
    body = json.dumps({"colour": colour, "said": "Größe 大小 🖥" + "x" * 70_000})
    kind = KindRecord("CUSTOM_TRAY", ("CUSTOM_TRAY_SLOT", "CUSTOM_TRAY_WATT"), body)
    totals = {"CUSTOM_TRAY_SLOT": slots, "CUSTOM_TRAY_WATT": 500, "DISK_GB": 9}
    records = tuple(
        InventoryRecord(name, total, 0, 1, None, 1, 1_000_000, total)
        for name, total in totals.items()
    )
    uuid = str(uuids.uuid4())
    return ProviderDefinition(uuid, "tray", None, records, frozenset(), None, (), (kind,))


class DescriptionRules(kit.Kit):
    """Placed resources, reports and counters of providers."""

    # --- placed resources ---

    @pytest.fixture
    def tray(self, backend: Backend) -> ProviderDefinition:
        """Define a tray; return its definition."""
        tray = _tray()
        backend.define(Operation(), DefinitionChanges("tray", creates=(tray,)))
        return tray

    def test_a_placed_resource_of_several_records_is_stored(
        self, backend: Backend, tray: ProviderDefinition
    ) -> None:
        kit.claim(backend, "job", {tray.uuid: "CUSTOM_TRAY_SLOT=2,CUSTOM_TRAY_WATT=90"})
        provider = kit.ledger_state(backend, "tray").providers["tray"]
        assert set(provider.inventories) == {"CUSTOM_TRAY_SLOT", "CUSTOM_TRAY_WATT", "DISK_GB"}
        assert provider.kinds == set(tray.kinds)
        assert provider.inventories["CUSTOM_TRAY_WATT"].used == 90
        listed = kit.listed_provider(backend, "tray")
        assert set(listed.kinds) == provider.kinds
        assert {record.resource_class: record for record in listed.records} == provider.inventories

    def test_a_placed_resource_is_changed_and_removed(
        self, backend: Backend, tray: ProviderDefinition
    ) -> None:
        after = dataclasses.replace(_tray(16, "blue"), uuid=tray.uuid)
        generation = kit.listed_provider(backend, "tray").generation
        _update(backend, ProviderUpdate(after, generation, tray))
        _update(backend, kit.updated(backend, "tray", traits=frozenset({"CUSTOM_A"})))
        provider = kit.ledger_state(backend).providers["tray"]
        assert provider.kinds == set(after.kinds)
        assert provider.inventories["CUSTOM_TRAY_SLOT"].total == 16
        plain = dataclasses.replace(tray, inventories=tray.inventories[2:], kinds=())
        _update(backend, ProviderUpdate(plain, provider.generation, after))
        provider = kit.ledger_state(backend).providers["tray"]
        assert not provider.kinds and set(provider.inventories) == {"DISK_GB"}

    def test_a_placed_resource_keeps_its_classes_when_one_is_renamed(
        self, backend: Backend, tray: ProviderDefinition
    ) -> None:
        kit.claim(backend, "job", {tray.uuid: "CUSTOM_TRAY_WATT=90"})
        kit.change_names(backend, kit.rename(kit.CLASS, "CUSTOM_TRAY_WATT", "CUSTOM_POWER"))
        provider = kit.ledger_state(backend).providers["tray"]
        [kind] = provider.kinds
        assert kind.classes == ("CUSTOM_TRAY_SLOT", "CUSTOM_POWER")
        assert provider.inventories["CUSTOM_POWER"].used == 90

    # --- reports ---

    def test_the_time_of_a_report_is_stored(self, backend: Backend) -> None:
        uuid = kit.define(backend, kit.host("host0"), kit.host("host1"))["host0"]
        before = kit.ledger_state(backend).providers
        assert before["host0"].reported_at is None
        first = kit.now()
        backend.commit(Write(Operation(), "report", "host0", reported=(uuid,)))
        providers = kit.ledger_state(backend).providers
        reported_at = providers["host0"].reported_at
        assert reported_at is not None and first <= reported_at <= kit.now()
        assert kit.listed_provider(backend, "host0").reported_at == reported_at
        providers["host0"] = dataclasses.replace(providers["host0"], reported_at=None)
        assert providers == before
        kit.define(backend, kit.host("host0", "VCPU=1"))
        assert kit.ledger_state(backend).providers["host0"].reported_at == reported_at

    def test_the_time_of_adoption_is_stored_once_and_is_no_report(self, backend: Backend) -> None:
        uuid = kit.define(backend, kit.host("host0"), kit.host("host1"))["host0"]
        before = kit.ledger_state(backend).providers
        first, cursor = kit.now(), backend.cursor()
        uses = kit.deltas({uuid: "VCPU=1"})
        item = ConsumerOrder.claim("vm", uses, aggregate=True, adopts=True)
        backend.commit(Write(Operation(), "adopt", "host0", orders=(item,), adopted=(uuid,)))
        [entry] = backend.changes(cursor, 10)
        assert (entry.reports, entry.definitions, entry.consumers) == ((uuid,), (), ("vm",))
        providers = kit.ledger_state(backend).providers
        at = providers["host0"].adopted_at
        assert at is not None and first <= at <= kit.now()
        assert (providers["host0"].reported_at, providers["host1"]) == (None, before["host1"])
        listed = kit.listed_provider(backend, "host0")
        assert (listed.adopted_at, listed.reported_at) == (at, None)
        backend.commit(Write(Operation(), "report", "host0", reported=(uuid,)))
        backend.commit(Write(Operation(), "adopt", "host0", adopted=(uuid,)))
        kit.define(backend, kit.host("host0", "VCPU=2"))
        provider = kit.ledger_state(backend).providers["host0"]
        assert provider.adopted_at == at and provider.reported_at is not None

    def test_stale_reports_are_listed(self, backend: Backend) -> None:
        names = kit.define(backend, kit.host("old"), kit.host("new"), kit.host("never"))
        backend.commit(Write(Operation(), "report", "old", reported=(names["old"],)))
        middle = kit.later_moment()
        backend.commit(Write(Operation(), "report", "new", reported=(names["new"],)))

        def before(moment: datetime.datetime) -> list[str]:
            provider_filter = ProviderFilter(reported_before=moment)
            return [listed.name for listed in backend.list_providers(provider_filter, 10)]

        assert before(middle) == ["old"]
        assert before(kit.later_moment()) == ["old", "new"]

    # --- generations and counters ---

    @kit.law(2)
    def test_a_generation_of_a_provider_never_repeats(self, backend: Backend) -> None:
        """Check also for a provider that is created again with its uuid."""
        uuid, chance, seen = str(uuids.uuid4()), random.Random(7), list[int]()
        job = ConsumerOrder.claim("job", kit.deltas({uuid: "VCPU=1"}))

        def check() -> None:
            generation = kit.ledger_state(backend).providers["host0"].generation
            assert generation not in seen
            for before in seen:
                with raises_code("StaleDefinition"):
                    kit.order(backend, job, unchanged=((uuid, before),))
            seen.append(generation)

        for cpus in (8, 16, 24):
            for more in range(chance.randint(1, 3)):
                tree = Provider("host0", f"VCPU={cpus + more}", traits=["CUSTOM_A"], uuid=uuid)
                kit.define(backend, tree)
                check()
            for item, other in ("AB", "BA"):
                kit.change_names(
                    backend, kit.rename(kit.TRAIT, f"CUSTOM_{item}", f"CUSTOM_{other}")
                )
                check()
            kit.order(backend, job, unchanged=((uuid, seen[-1]),))
            kit.release(backend, "job")
            backend.define(Operation(), kit.removal_of(backend, "host0"))

    def test_writes_of_a_definition_are_counted(self, backend: Backend) -> None:
        """Count updates without effect, but no added children and no updates with ``counts=0``."""
        kit.define(backend, kit.host("host0", "VCPU=8"))

        def write(name: str, new_name: str, **options: Any) -> int:
            update = kit.updated(backend, name)
            after = dataclasses.replace(update.definition, name=new_name)
            _update(backend, dataclasses.replace(update, definition=after, **options))
            listed = kit.listed_provider(backend, new_name)
            assert listed.generation > 0
            return listed.definition_writes

        assert write("host0", "host0") == 1
        assert write("host0", "host0", children_changed=True) == 1
        assert write("host0", "host1", counts=0) == 1
        assert write("host1", "host2") == 2

    def test_writes_of_a_consumer_are_counted(self, backend: Backend) -> None:
        """Count from 1 for a consumer that is created again."""
        [uuid] = kit.define(backend, kit.host("host0", "VCPU=8")).values()
        written = [kit.claim(backend, "job", {uuid: "VCPU=1"})]
        written.append(kit.adjust(backend, "job", {uuid: "VCPU=1"}))
        written += kit.order(backend, ConsumerOrder.replace("job", kit.deltas({uuid: "VCPU=3"})))
        assert [item.writes for item in written] == [1, 2, 3]
        record = backend.consumer("job")
        assert record is not None and record.writes == 3
        kit.release(backend, "job")
        assert kit.claim(backend, "job", {uuid: "VCPU=1"}).writes == 1
