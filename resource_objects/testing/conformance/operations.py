"""Rules of operations: a write that is repeated happens once."""

from __future__ import annotations

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend
from resource_objects.providers.backend import Adjustment, ClaimOrder, Operation
from resource_objects.testing.conformance.base import (
    Kit,
    changes_to,
    claim,
    define,
    deltas,
    host,
    kept,
    law,
    picture,
    release,
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
