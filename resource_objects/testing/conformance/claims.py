"""Tests of claims, adjustments, releases and units."""

from __future__ import annotations

import datetime
import json
import uuid as uuids

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider
from resource_objects.providers.allocation import HELD
from resource_objects.providers.decision import MOST_HOLDERS
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Operation,
    StoredRequest,
    Use,
)
from resource_objects.testing.conformance.suite import (
    Kit,
    claim,
    define,
    deltas,
    host,
    law,
    ledger_state,
    order,
    release,
    two_hosts,
)
from resource_objects.testing.refusals import raises_code


class ClaimRules(Kit):
    """``claim``, ``adjust`` and ``release``."""

    # --- claim ---

    def test_a_claim_returns_its_whole_record(self, backend: Backend) -> None:
        here, destination = two_hosts(backend)
        before = datetime.datetime.now(datetime.UTC)
        uses = deltas({here: "VCPU=2,MEMORY_MB=512", destination: "VCPU=1"})
        order = ConsumerOrder.claim("job", uses, uuid=str(uuids.uuid4()))
        record = backend.claim(Operation(), order)
        assert (record.uuid, record.consumer, record.state) == (order.uuid, "job", HELD)
        assert record.uuid == str(uuids.UUID(record.uuid))
        assert before <= record.created_at <= datetime.datetime.now(datetime.UTC)
        assert set(record.held) == {
            Use(here, "VCPU", 2, (), "host0"),
            Use(here, "MEMORY_MB", 512, (), "host0"),
            Use(destination, "VCPU", 1, (), "host1"),
        }

    def test_the_request_is_stored_with_the_claim(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        text = json.dumps({"said": "Größe 大小 🖥 \\ \" ' % :x ?", "long": "x" * 200_000})
        request = StoredRequest(text)
        order = ConsumerOrder.claim("job", deltas({here: "VCPU=2"}), request=request)
        assert backend.claim(Operation(), order).request == request
        record = backend.held("job")
        assert record is not None and record.request == request
        assert release(backend, "job").request == request

    @law(6)
    def test_a_refusal_names_the_largest_consumers(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        for name, amount in (("j-10", 1), ("c", 3), ("j-2", 1), ("d", 2), ("j-3", 1)):
            claim(backend, name, {here: f"VCPU={amount}"})
        with pytest.raises(exceptions.CapacityException) as refused:
            claim(backend, "job", {here: "VCPU=1"})
        [reason] = refused.value.reasons
        largest = (("c", 3), ("d", 2), ("j-2", 1), ("j-3", 1), ("j-10", 1))
        assert reason.holders == largest[:MOST_HOLDERS]

    @law(6)
    def test_each_of_many_reasons_names_its_own_consumers(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}", "VCPU=2,DISK_GB=2") for n in range(70)))
        for number in range(70):
            amounts = {names[f"host{number}"]: "VCPU=1,DISK_GB=2"}
            claim(backend, f"job-{number}", amounts)
        with pytest.raises(exceptions.CapacityException) as refused:
            claim(backend, "all", dict.fromkeys(names.values(), "VCPU=2,DISK_GB=1"))
        assert {
            (reason.where, reason.resource, reason.holders) for reason in refused.value.reasons
        } == {
            (f"host{number}", resource_class, ((f"job-{number}", amount),))
            for number in range(70)
            for resource_class, amount in (("VCPU", 1), ("DISK_GB", 2))
        }

    def test_a_claim_may_be_large(self, backend: Backend) -> None:
        root = Provider("rack")
        for number in range(150):
            root.add(f"host{number}", "VCPU=8,MEMORY_MB=1024")
        names = define(backend, root)
        expected = {uuid: "VCPU=1,MEMORY_MB=2" for name, uuid in names.items() if name != "rack"}
        claim(backend, "gang", expected)
        state = ledger_state(backend)
        assert len(state.allocations) == 300
        assert state.used("host149", "MEMORY_MB") == 2
        release(backend, "gang")
        assert ledger_state(backend).allocations == {}

    # --- release ---

    def test_a_consumer_that_is_created_again_has_another_claim(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=8"})
        release(backend, "job")
        second = claim(backend, "job", {here: "VCPU=8"})
        assert first.uuid != second.uuid

    # --- exact ---

    @law(7)
    @pytest.mark.parametrize(
        ("figures", "capacity"),
        [
            ("VCPU=100:allocation_ratio=1.15", 115),
            ("VCPU=3:allocation_ratio=0.333334", 1),
            ("VCPU=3:allocation_ratio=0.333333", 0),
            ("VCPU=1000003:reserved=2:allocation_ratio=0.000001", 1),
            ("VCPU=7:allocation_ratio=0.142857", 0),
        ],
    )
    def test_ratios_are_exact(self, backend: Backend, figures: str, capacity: int) -> None:
        [here] = define(backend, host("host0", figures)).values()
        assert ledger_state(backend).providers["host0"].inventories["VCPU"].capacity == capacity
        if capacity:
            claim(backend, "job", {here: f"VCPU={capacity}"})
        with pytest.raises(exceptions.CapacityException):
            claim(backend, "other", {here: "VCPU=1"})


# --- units: names of CPUs and devices ---


def _host(backend: Backend, inventories: str = "VCPU=8,PCPU=8") -> str:
    return define(backend, host("host0", inventories))["host0"]


def _take(backend: Backend, consumer: str, uuid: str, *units: str) -> ConsumerRecord:
    use = Use(uuid, "PCPU", len(units), units)
    [record] = order(backend, ConsumerOrder.claim(consumer, (use,)))
    return record


class UnitRules(Kit):
    """Allocation of units."""

    @law(7)
    def test_units_that_look_alike_differ(self, backend: Backend) -> None:
        here = _host(backend, "PCPU=16")
        alike = [
            "0000:0a:00.0",
            "0000:0A:00.0",
            "a",
            "A",
            "ä",
            "a\u0308",
            "大",
            "ß",
            "ss",
            "u" * 255,
        ]
        _take(backend, "job", here, *alike)
        assert _units(backend, "job") == set(alike)
        for unit in alike:
            with raises_code("UnitTaken"):
                _take(backend, "other", here, unit)

    def test_many_units_are_one_write(self, backend: Backend) -> None:
        here = _host(backend, "PCPU=600")
        units = [f"cpu{n}" for n in range(600)]
        _take(backend, "job", here, *units)
        assert _units(backend, "job") == set(units)
        with pytest.raises(exceptions.CapacityException):
            _take(backend, "other", here, *units)
        order(
            backend,
            ConsumerOrder.release("job"),
            *(ConsumerOrder.claim(unit, (Use(here, "PCPU", 1, (unit,)),)) for unit in units),
        )
        assert ledger_state(backend).units == {("host0", unit): ("PCPU", unit) for unit in units}


def _units(backend: Backend, consumer: str) -> set[str]:
    record = backend.held(consumer)
    assert record is not None
    return {unit for uses in record.held for unit in uses.units}
