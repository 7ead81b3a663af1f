"""Tests of claims: their records, requests, units and exact figures, and repeated operations."""

from __future__ import annotations

import dataclasses
import json

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend
from resource_objects.providers.orders import ConsumerOrder, Operation, StoredRequest, Use, Write
from resource_objects.testing.conformance import suite as kit


class ClaimRules(kit.Kit):
    """Consumers, their claims and their operations."""

    # --- records ---

    def test_the_request_is_stored_with_the_claim(self, backend: Backend) -> None:
        here, _ = kit.two_hosts(backend)
        text = json.dumps({"said": "Größe 大小 🖥 \\ \" ' % :x ?", "long": "x" * 200_000})
        request = StoredRequest(text)
        assert kit.claim(backend, "job", {here: "VCPU=2"}, request=request).request == request
        record = backend.consumer("job")
        assert record is not None and record.request == request
        assert backend.held_by(["job", "nobody"]) == {"job": record} and backend.held_by([]) == {}
        assert kit.release(backend, "job").request == request

    # --- exact figures and names of units ---

    def test_many_units_are_one_write(self, backend: Backend) -> None:
        [here] = kit.define(backend, kit.host("host0", "PCPU=600")).values()
        units = [f"cpu{n}" for n in range(600)]
        kit.order(backend, _claim_of_units("job", here, *units))
        assert kit.ledger_state(backend).units == {
            ("host0", unit): ("PCPU", "job") for unit in units
        }
        with pytest.raises(exceptions.CapacityException):
            kit.order(backend, _claim_of_units("other", here, *units))
        claims = (_claim_of_units(unit, here, unit) for unit in units)
        kit.order(backend, ConsumerOrder.release("job"), *claims)
        assert kit.ledger_state(backend).units == {
            ("host0", unit): ("PCPU", unit) for unit in units
        }

    # --- repeated operations ---

    def test_a_repeated_write_returns_its_first_outcome_after_later_writes(
        self, backend: Backend
    ) -> None:
        """Names of providers in the outcome can be former or current ones."""
        here, _ = kit.two_hosts(backend)
        gang = tuple(
            ConsumerOrder.claim(name, (Use(here, "VCPU", 1, (f"cpu-{name}",)),), project="p")
            for name in ("b", "a", "c")
        )
        write = Write(Operation(), "gang", "gang", orders=gang)
        first = backend.commit(write)
        move = ConsumerOrder.replace("a", kit.deltas({here: "VCPU=2"}))
        kit.order(backend, ConsumerOrder.release("b"), move)
        tree = kit.stored_tree(backend, "host0")
        tree.update(name="renamed")
        kit.define(backend, tree)
        again = backend.commit(write)
        assert [record.consumer for record in again] == ["b", "a", "c"]
        for record, earlier in zip(again, first, strict=True):
            assert [(use.key, use.amount, use.units) for use in record.held] == [
                (use.key, use.amount, use.units) for use in earlier.held
            ]
            assert dataclasses.replace(record, held=earlier.held) == earlier


def _claim_of_units(consumer: str, uuid: str, *units: str) -> ConsumerOrder:
    return ConsumerOrder.claim(consumer, (Use(uuid, "PCPU", len(units), units),))
