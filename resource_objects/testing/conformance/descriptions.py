"""Rules of what a definition says beside figures, and of writes that depend on definitions."""

from __future__ import annotations

import dataclasses
import datetime
import json
import uuid as uuids

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
)
from resource_objects.providers.listing import ProviderFilter
from resource_objects.providers.orders import ClaimOrder, Operation, Release, Replacement, Write
from resource_objects.providers.provider import Share
from resource_objects.resources.records import InventoryRecord, KindRecord
from resource_objects.testing.conformance.base import (
    AGGREGATE,
    CLASS,
    Kit,
    adjust,
    change_names,
    claim,
    define,
    deltas,
    host,
    kept,
    law,
    names_of,
    now,
    order,
    picture,
    release,
    rename,
)

_NOTHING = frozenset[str]()


def _record(name: str, total: int) -> InventoryRecord:
    return InventoryRecord(name, total, 0, 1, None, 1, 1_000_000, total)


def _tray(slots: int = 8, colour: str = "red") -> ProviderDefinition:
    """A provider with one inventory that is kept as two records, and a plain one."""
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
    """What else is known of a provider, and what a write may demand of it."""

    # --- aggregates ---

    def test_aggregates_come_change_and_go(self, backend: Backend) -> None:
        tree = Provider("host0", "VCPU=8", aggregates=["rack-1", "Größe 大"])
        tree.add("host0/gpu0", aggregates=["rack-1"])
        define(backend, tree)
        found = picture(backend).providers
        assert found["host0"].aggregates == {"rack-1", "Größe 大"}
        assert found["host0/gpu0"].aggregates == {"rack-1"}
        assert set(names_of(backend, AGGREGATE)) == {"rack-1", "Größe 大"}
        tree = kept(backend, "host0")
        tree.update(aggregates={"rack-1", "rack-2"})
        define(backend, tree)
        after = picture(backend).providers
        assert after["host0"].aggregates == {"rack-1", "rack-2"}
        assert after["host0"].generation > found["host0"].generation
        assert after["host0/gpu0"] == found["host0/gpu0"]

    def test_who_says_nothing_of_aggregates_leaves_them(self, backend: Backend) -> None:
        define(backend, Provider("host0", "VCPU=8", aggregates=["rack-1"]))
        define(backend, Provider("host0", "VCPU=9"))
        assert picture(backend).providers["host0"].aggregates == {"rack-1"}
        define(backend, Provider("host0", "VCPU=9", aggregates=[]))
        assert picture(backend).providers["host0"].aggregates == set()
        assert names_of(backend, AGGREGATE) == ["rack-1"]  # it stays, empty

    @law(7)
    def test_aggregates_that_look_alike_differ(self, backend: Backend) -> None:
        alike = ["rack", "Rack", "räck", "ra\u0308ck", "rackß", "rackss", "r" * 255, "r" * 254]
        define(backend, Provider("host0", "VCPU=8", aggregates=alike))
        assert picture(backend).providers["host0"].aggregates == set(alike)
        assert names_of(backend, AGGREGATE) == sorted(alike)

    def test_a_provider_that_goes_leaves_its_aggregates(self, backend: Backend) -> None:
        tree = Provider("host0", "VCPU=8", aggregates=["rack-1"])
        tree.add("host0/gpu0", aggregates=["rack-1", "rack-2"])
        define(backend, tree)
        define(backend, Provider("host0", "VCPU=8"))
        assert picture(backend).providers["host0"].aggregates == {"rack-1"}

    # --- kinds ---

    def test_a_kind_of_several_records_is_kept_whole(self, backend: Backend) -> None:
        definition = _tray()
        uuid = _made(backend, definition)
        found = picture(backend).providers["tray"]
        assert set(found.inventories) == {"CUSTOM_TRAY_SLOT", "CUSTOM_TRAY_WATT", "DISK_GB"}
        assert found.kinds == set(definition.kinds)
        claim(backend, "job", {uuid: "CUSTOM_TRAY_SLOT=2,CUSTOM_TRAY_WATT=90"})
        found = picture(backend, "tray").providers["tray"]
        assert found.inventories["CUSTOM_TRAY_WATT"].used == 90
        [listed] = backend.list_providers(ProviderFilter(), 10)
        assert set(listed.kinds) == found.kinds
        assert {record.resource_class: record for record in listed.records} == found.inventories

    def test_a_kind_changes_and_goes(self, backend: Backend) -> None:
        before = _tray()
        _made(backend, before)
        after = dataclasses.replace(_tray(16, "blue"), uuid=before.uuid)
        changed = (_record("CUSTOM_TRAY_SLOT", 16),)
        _update(
            backend, ProviderUpdate(after, 0, changed, (), _NOTHING, _NOTHING, kinds_changed=True)
        )
        found = picture(backend).providers["tray"]
        assert found.kinds == set(after.kinds)
        assert found.inventories["CUSTOM_TRAY_SLOT"].total == 16
        plain = dataclasses.replace(before, inventories=before.inventories[2:], kinds=())
        gone = ("CUSTOM_TRAY_SLOT", "CUSTOM_TRAY_WATT")
        generation = found.generation
        _update(
            backend,
            ProviderUpdate(plain, generation, (), gone, _NOTHING, _NOTHING, kinds_changed=True),
        )
        found = picture(backend).providers["tray"]
        assert not found.kinds and set(found.inventories) == {"DISK_GB"}

    def test_an_update_of_something_else_leaves_kinds(self, backend: Backend) -> None:
        definition = _tray()
        _made(backend, definition)
        more = dataclasses.replace(definition, traits=frozenset({"CUSTOM_A"}))
        _update(backend, ProviderUpdate(more, 0, (), (), more.traits, _NOTHING))
        assert picture(backend).providers["tray"].kinds == set(definition.kinds)

    def test_a_kind_is_still_whole_when_its_class_is_renamed(self, backend: Backend) -> None:
        uuid = _made(backend, _tray())
        claim(backend, "job", {uuid: "CUSTOM_TRAY_WATT=90"})
        change_names(backend, rename(CLASS, "CUSTOM_TRAY_WATT", "CUSTOM_POWER"))
        found = picture(backend).providers["tray"]
        [kind] = found.kinds
        assert kind.classes == ("CUSTOM_TRAY_SLOT", "CUSTOM_POWER")
        assert found.inventories["CUSTOM_POWER"].used == 90

    # --- reports ---

    def test_who_reports_is_noted_with_the_time(self, backend: Backend) -> None:
        names = define(backend, host("host0"), host("host1"))
        before = picture(backend).providers
        assert before["host0"].reported_at is None
        first = now()
        backend.commit(Write(Operation(), "report", "host0", reported=(names["host0"],)))
        found = picture(backend).providers
        reported_at = found["host0"].reported_at
        assert reported_at is not None and first <= reported_at <= now()
        assert found["host1"] == before["host1"]
        assert dataclasses.replace(found["host0"], reported_at=None) == before["host0"]
        [listed] = backend.list_providers(ProviderFilter(names=frozenset({"host0"})), 1)
        assert listed.reported_at == reported_at
        define(backend, host("host0", "VCPU=1"))
        assert picture(backend).providers["host0"].reported_at == reported_at

    @law(2)
    def test_nobody_reports_for_what_is_not_there(self, backend: Backend) -> None:
        names = define(backend, host("host0"))
        before = picture(backend)
        nobody = str(uuids.uuid4())
        with pytest.raises(exceptions.ProviderNotFound) as refused:
            write = Write(Operation(), "report", "host0", reported=(names["host0"], nobody))
            backend.commit(write)
        assert refused.value.subject == nobody
        assert picture(backend) == before

    @law(2)
    def test_a_report_comes_with_its_figures_or_not_at_all(self, backend: Backend) -> None:
        names = define(backend, host("host0"))
        stale = ProviderDefinition(names["host0"], "host0", None, (), _NOTHING)
        changes = DefinitionChanges(
            "host0", updates=(ProviderUpdate(stale, 7, (), (), _NOTHING, _NOTHING),)
        )
        before = picture(backend)
        with pytest.raises(exceptions.StaleDefinition):
            backend.commit(
                Write(Operation(), "report", "host0", changes, reported=(names["host0"],))
            )
        assert picture(backend) == before

    def test_stale_reports_are_listed(self, backend: Backend) -> None:
        names = define(backend, host("old"), host("new"), host("never"))
        backend.commit(Write(Operation(), "report", "old", reported=(names["old"],)))
        middle = _a_later_moment()
        backend.commit(Write(Operation(), "report", "new", reported=(names["new"],)))

        def before(moment: datetime.datetime) -> list[str]:
            wanted = ProviderFilter(reported_before=moment)
            return [listed.name for listed in backend.list_providers(wanted, 10)]

        assert before(middle) == ["old"]
        assert before(_a_later_moment()) == ["old", "new"]

    # --- what a write demands ---

    @law(2)
    def test_a_claim_may_demand_unchanged_definitions(self, backend: Backend) -> None:
        names = define(backend, host("host0"), host("host1"))
        read = {name: one.generation for name, one in picture(backend).providers.items()}
        unchanged = tuple((names[name], read[name]) for name in names)
        wanted = [ClaimOrder("job", deltas({names["host0"]: "VCPU=1"}))]
        define(backend, host("host1", "VCPU=7"))
        before = picture(backend)
        with pytest.raises(exceptions.StaleDefinition) as refused:
            order(backend, *wanted, unchanged=unchanged)
        assert refused.value.subject in ("host1", names["host1"])
        assert picture(backend) == before
        order(backend, *wanted, unchanged=unchanged[:1])
        define(backend, Provider("row", "VCPU=1"))
        order(backend, Release("job"), unchanged=unchanged[:1])

    def test_what_is_gone_is_not_unchanged(self, backend: Backend) -> None:
        names = define(backend, host("host0"))
        with pytest.raises(exceptions.StaleDefinition):
            order(
                backend,
                ClaimOrder("job", deltas({names["host0"]: "VCPU=1"})),
                unchanged=((str(uuids.uuid4()), 0),),
            )
        assert backend.held("job") is None

    def test_claims_are_no_change_of_a_definition(self, backend: Backend) -> None:
        names = define(backend, host("host0"))
        read = picture(backend).providers["host0"].generation
        for number in range(3):
            order(
                backend,
                ClaimOrder(f"job-{number}", deltas({names["host0"]: "VCPU=1"})),
                unchanged=((names["host0"], read),),
            )

    # --- the counter of allocation writes ---

    def test_writes_of_allocations_are_counted(self, backend: Backend) -> None:
        tree = host("host0", "VCPU=8,MEMORY_MB=64")
        tree.add(
            "host0/cell0",
            "VCPU=4",
            shares=[Share(resource_class="VCPU", of="host0", of_class="VCPU")],
        )
        names = define(backend, tree, host("host1"))
        assert _writes(backend) == {"host0": 0, "host0/cell0": 0, "host1": 0}
        claim(backend, "job", {names["host0"]: "VCPU=1"})
        assert _writes(backend) == {"host0": 1, "host0/cell0": 0, "host1": 0}
        claim(backend, "job-2", {names["host0/cell0"]: "VCPU=1"})
        assert _writes(backend) == {"host0": 2, "host0/cell0": 1, "host1": 0}
        order(backend, Replacement("job", deltas({names["host1"]: "VCPU=1"})))
        assert _writes(backend) == {"host0": 3, "host0/cell0": 1, "host1": 1}
        adjust(backend, "job-2", {names["host0/cell0"]: "VCPU=1"})
        release(backend, "job")
        assert _writes(backend) == {"host0": 4, "host0/cell0": 2, "host1": 2}

    def test_the_counter_never_goes_back(self, backend: Backend) -> None:
        names = define(backend, host("host0", "VCPU=8,DISK_GB=9"))
        claim(backend, "job", {names["host0"]: "DISK_GB=1"})
        release(backend, "job")
        claim(backend, "job", {names["host0"]: "VCPU=1"})
        counted = _writes(backend)["host0"]
        define(backend, host("host0", "VCPU=8"))
        assert _writes(backend)["host0"] == counted
        define(backend, host("host0", "VCPU=8,DISK_GB=9"))
        assert _writes(backend)["host0"] == counted
        claim(backend, "job-2", {names["host0"]: "DISK_GB=1"})
        assert _writes(backend)["host0"] == counted + 1


def _update(backend: Backend, update: ProviderUpdate) -> None:
    backend.define(Operation(), DefinitionChanges(update.definition.name, updates=(update,)))


def _writes(backend: Backend) -> dict[str, int]:
    return {
        listed.name: listed.allocation_writes
        for listed in backend.list_providers(ProviderFilter(), 100)
    }


def _a_later_moment() -> datetime.datetime:
    """Return a moment that is later than all before, also on a clock of coarse ticks."""
    began = now()
    while (moment := now()) <= began:
        pass
    return moment
