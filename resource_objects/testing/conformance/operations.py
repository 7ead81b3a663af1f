"""Rules of operations: a write that is repeated happens once."""

from __future__ import annotations

import dataclasses
import uuid as uuids
from typing import Any

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend
from resource_objects.providers.allocation import CONFIRMED
from resource_objects.providers.orders import (
    Adjustment,
    ClaimOrder,
    ClaimRecord,
    Delta,
    NameAction,
    NameChange,
    Operation,
    Release,
    Renewal,
    Replacement,
    Write,
)
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
    release,
    rename,
)


def _host(backend: Backend) -> str:
    return define(backend, host())["host0"]


class OperationRules(Kit):
    """What a repeated operation does: nothing, and it says what the first one said."""

    def test_a_repeated_claim_returns_the_first_outcome(self, backend: Backend) -> None:
        here = _host(backend)
        operation, order = Operation(), ClaimOrder("job", deltas({here: "VCPU=8"}))
        first = backend.claim(operation, order)
        before = picture(backend)
        assert backend.claim(operation, order) == first
        assert picture(backend) == before

    def test_a_repeated_claim_may_ask_for_what_a_new_search_found(self, backend: Backend) -> None:
        here = _host(backend)
        operation = Operation()
        first = backend.claim(operation, ClaimOrder("job", deltas({here: "VCPU=8"})))
        assert backend.claim(operation, ClaimOrder("job", deltas({here: "MEMORY_MB=1"}))) == first

    def test_a_claim_repeated_after_its_release_claims_nothing(self, backend: Backend) -> None:
        here = _host(backend)
        operation, order = Operation(), ClaimOrder("job", deltas({here: "VCPU=8"}))
        first = backend.claim(operation, order)
        release(backend, "job")
        assert backend.claim(operation, order) == first
        assert backend.held("job") is None

    def test_a_repeated_adjustment_returns_the_first_outcome(self, backend: Backend) -> None:
        here = _host(backend)
        claim(backend, "job", {here: "VCPU=1"})
        operation, order = Operation(), Adjustment("job", deltas({here: "VCPU=3"}))
        first = backend.adjust(operation, order)
        assert backend.adjust(operation, order) == first
        assert picture(backend).used("host0", "VCPU") == 4

    def test_a_repeated_adjustment_to_nothing_returns_the_first_outcome(
        self, backend: Backend
    ) -> None:
        here = _host(backend)
        claim(backend, "job", {here: "VCPU=1"})
        operation, order = Operation(), Adjustment("job", deltas({here: "VCPU=-1"}))
        first = backend.adjust(operation, order)
        assert backend.adjust(operation, order) == first

    def test_a_repeated_release_returns_the_first_outcome(self, backend: Backend) -> None:
        here = _host(backend)
        claim(backend, "job", {here: "VCPU=1"})
        operation = Operation()
        first = backend.release(operation, "job")
        assert backend.release(operation, "job") == first
        claim(backend, "job", {here: "VCPU=2"})
        assert backend.release(operation, "job") == first
        assert picture(backend).used("host0", "VCPU") == 2

    def test_a_repeated_definition_does_nothing(self, backend: Backend) -> None:
        _host(backend)
        tree = kept(backend, "host0")
        tree.add("host0/gpu0", "PGPU=1")
        changes, operation = changes_to(backend, tree), Operation()
        backend.define(operation, changes)
        before = picture(backend)
        backend.define(operation, changes)
        assert picture(backend) == before

    def test_a_refused_operation_may_be_tried_again(self, backend: Backend) -> None:
        here = _host(backend)
        claim(backend, "other", {here: "VCPU=8"})
        operation, order = Operation(), ClaimOrder("job", deltas({here: "VCPU=1"}))
        with pytest.raises(exceptions.CapacityException):
            backend.claim(operation, order)
        release(backend, "other")
        assert backend.held("job") is None
        assert backend.claim(operation, order).held[0].amount == 1

    @law(2)
    def test_an_id_stands_for_one_kind_of_write_and_one_subject(self, backend: Backend) -> None:
        here = _host(backend)
        operation, order = Operation(), ClaimOrder("job", deltas({here: "VCPU=1"}))
        backend.claim(operation, order)
        tree = kept(backend, "host0")
        tree.add("host0/gpu0")
        changes = changes_to(backend, tree)
        before = picture(backend)
        with pytest.raises(exceptions.OperationConflict) as refused:
            backend.claim(operation, ClaimOrder("job-2", order.deltas))
        assert refused.value.subject == operation.id
        with pytest.raises(exceptions.OperationConflict):
            backend.adjust(operation, Adjustment("job", order.deltas))
        with pytest.raises(exceptions.OperationConflict):
            backend.release(operation, "job")
        with pytest.raises(exceptions.OperationConflict):
            backend.define(operation, changes)
        assert picture(backend) == before

    def test_an_operation_that_was_never_done_has_no_outcome(self, backend: Backend) -> None:
        assert backend.outcome(Operation()) is None

    def test_an_outcome_tells_what_the_operation_was(self, backend: Backend) -> None:
        here = _host(backend)
        operation = Operation()
        record = backend.claim(operation, ClaimOrder("job", deltas({here: "VCPU=1"})))
        found = backend.outcome(operation)
        assert found is not None
        assert (found.kind, found.subject, found.claim) == ("claim", "job", record)
        release(backend, "job")
        assert backend.outcome(operation) == found

    @law(2)
    def test_every_kind_of_write_happens_once(self, backend: Backend) -> None:
        tree = host("host0", "VCPU=8,MEMORY_MB=64")
        tree.add("host0/cell0", "VCPU=4")
        names = define(backend, tree)
        here, cell = names["host0"], names["host0/cell0"]
        claim(backend, "a", {here: "VCPU=2"})
        claim(backend, "b", {cell: "VCPU=4"})
        smaller = host("host0", "VCPU=8,MEMORY_MB=64")
        steps: list[dict[str, Any]] = [
            {"orders": (Adjustment("a", deltas({here: "VCPU=1"})),)},
            {"orders": (Replacement("a", deltas({cell: "VCPU=4"})), Release("b"))},
            {"orders": (Renewal("a", None, CONFIRMED), ClaimOrder("b", deltas({here: "VCPU=3"})))},
            {"reported": (here,)},
            {"names": (NameChange(CLASS, NameAction.ENSURE, "CUSTOM_A"),)},
            {"names": (rename(CLASS, "CUSTOM_A", "CUSTOM_B"),)},
            {"names": (NameChange(CLASS, NameAction.DELETE, "CUSTOM_B"),)},
            {"orders": (Replacement("a", deltas({here: "VCPU=4"})),), "definitions": smaller},
            {"orders": (Release("a"), Release("b"))},
        ]
        for number, step in enumerate(steps):
            if "definitions" in step:
                step["definitions"] = changes_to(backend, step["definitions"])
            write = Write(Operation(), "step", f"step-{number}", **step)
            first = backend.commit(write)
            assert len(first) == len(write.orders)
            before, cursor = picture(backend), backend.cursor()
            assert backend.commit(write) == first
            found = backend.outcome(write.operation)
            assert found is not None and found.claims == first
            with pytest.raises(exceptions.OperationConflict):
                backend.commit(dataclasses.replace(write, subject="other"))
            with pytest.raises(exceptions.OperationConflict):
                backend.commit(dataclasses.replace(write, kind="other"))
            assert (picture(backend), backend.cursor()) == (before, cursor)

    def test_a_repeated_write_says_what_it_said_whatever_came_after(self, backend: Backend) -> None:
        here = _host(backend)
        operation = Operation()
        write = Write(
            operation,
            "gang",
            "gang",
            orders=tuple(
                ClaimOrder(name, (Delta(here, "VCPU", 1, (f"cpu-{name}",)),), project="p")
                for name in ("b", "a", "c")
            ),
        )
        first = backend.commit(write)
        order(backend, Release("b"), Replacement("a", deltas({here: "VCPU=2"})))
        tree = kept(backend, "host0")
        tree.update(name="renamed")
        define(backend, tree)
        again = backend.commit(write)
        assert [one.consumer for one in again] == ["b", "a", "c"]
        assert [_without_names(one) for one in again] == [_without_names(one) for one in first]

    @law(2)
    def test_a_repeated_reshape_is_known_before_anything_is_compared(
        self, backend: Backend
    ) -> None:
        """Its definitions are stale by then, through itself."""
        here = _host(backend)
        claim(backend, "job", {here: "VCPU=8"})
        tree = kept(backend, "host0")
        tree.add("host0/cell0", "VCPU=8", uuid=str(uuids.uuid4()))
        tree.update(inventories=Inventories("MEMORY_MB=1"))
        changes = changes_to(backend, tree)
        move = Replacement("job", deltas({changes.creates[0].uuid: "VCPU=8"}))
        write = Write(Operation(), "reshape", "host0", changes, (move,))
        first = backend.commit(write)
        before = picture(backend)
        assert backend.commit(write) == first
        assert picture(backend) == before

    def test_operations_outlive_the_backend(self, backend: Backend, url: str) -> None:
        self.need("persistent")
        here = _host(backend)
        operation, order = Operation(), ClaimOrder("job", deltas({here: "VCPU=1"}))
        first = backend.claim(operation, order)
        backend.close()
        again = self.backend_class.open(url)
        try:
            assert again.claim(operation, order) == first
        finally:
            again.close()


def _without_names(record: ClaimRecord) -> ClaimRecord:
    """Return a record without the names of providers, which may be those of then or of today."""
    held = tuple(dataclasses.replace(one, provider="") for one in record.held)
    return dataclasses.replace(record, held=held)
