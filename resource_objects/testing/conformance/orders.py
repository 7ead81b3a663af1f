"""Tests of orders: consumers, changes of their claims, and several orders in one write.

Repeated writes happen once, and a reshape changes definitions and allocations together.
"""

from __future__ import annotations

import dataclasses
import datetime

from resource_objects.providers import Backend, Provider
from resource_objects.providers.allocation import CONFIRMED, HELD, RELEASED
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Expect,
    Operation,
    StoredRequest,
    Use,
    Write,
)
from resource_objects.resources import Inventories
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.conformance.suite import (
    Kit,
    adjust,
    changes_to,
    claim,
    define,
    deltas,
    host,
    law,
    ledger_state,
    order,
    release,
    sorted_record,
    stored_tree,
    two_hosts,
)
from resource_objects.testing.refusals import raises_code

_LATER = datetime.datetime(2100, 2, 28, 23, 59, 59, 123456, tzinfo=datetime.UTC)


def _only(backend: Backend, item: ConsumerOrder) -> ConsumerRecord:
    [record] = order(backend, item)
    return record


class OrderRules(Kit):
    """The orders of a write."""

    # --- records of consumers ---

    def test_a_consumer_has_every_field(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        consumer_order = ConsumerOrder.claim(
            "job",
            deltas({here: "VCPU=1"}),
            project="Größe",
            user="大",
            consumer_type="INSTANCE",
            expires_at=_LATER,
        )
        record = backend.claim(Operation(), consumer_order)
        options = record.project, record.user, record.consumer_type, record.expires_at
        assert options == ("Größe", "大", "INSTANCE", _LATER)
        assert backend.held("job") == record

    def test_unspecified_fields_are_none(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        record = claim(backend, "job", {here: "VCPU=1"})
        options = (
            record.project,
            record.user,
            record.consumer_type,
            record.expires_at,
            record.request,
        )
        assert options == (None,) * 5
        assert backend.held("job") == record

    def test_several_consumers_are_read_at_once(self, backend: Backend) -> None:
        here, destination = two_hosts(backend)
        records = {
            name: sorted_record(
                claim(backend, name, {here: "VCPU=1", destination: "MEMORY_MB=7"}, project=name)
            )
            for name in ("a", "B", "b")
        }
        uses = backend.held_by(["a", "B", "b", "nobody"])
        assert {name: sorted_record(record) for name, record in uses.items()} == records
        assert backend.held_by([]) == {}

    # --- replacing ---

    def test_a_replacement_creates_its_consumer(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        consumer_order = ConsumerOrder.replace(
            "job",
            deltas({here: "VCPU=2"}),
            request=StoredRequest("{}"),
            project="p",
            user="u",
            consumer_type="t",
        )
        record = _only(backend, consumer_order)
        assert (record.state, record.expires_at) == (HELD, None)
        assert (record.request, record.project, record.user) == (StoredRequest("{}"), "p", "u")
        assert backend.held("job") == record

    def test_a_replacement_keeps_the_claim_of_its_consumer(self, backend: Backend) -> None:
        here, destination = two_hosts(backend)
        first = claim(
            backend, "job", {here: "VCPU=2"}, project="p", user="u", request=StoredRequest("[1]")
        )
        order(backend, ConsumerOrder.renew("job", _LATER, CONFIRMED))
        record = _only(
            backend, ConsumerOrder.replace("job", deltas({destination: "VCPU=1"}), user="v")
        )
        assert (record.uuid, record.state, record.expires_at) == (first.uuid, CONFIRMED, _LATER)
        assert (record.project, record.user, record.request) == ("p", "v", None)
        assert backend.held("job") == record
        other = _only(
            backend,
            ConsumerOrder.replace(
                "job", deltas({destination: "VCPU=1"}), request=StoredRequest("[2]")
            ),
        )
        assert (other.request, backend.held("job")) == (StoredRequest("[2]"), other)
        assert adjust(backend, "job", {destination: "VCPU=1"}).state == CONFIRMED

    # --- renewing ---

    def test_a_renewal_changes_expiry_and_state_and_nothing_else(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=2"}, project="p")
        before = ledger_state(backend)
        steps = [(_LATER, HELD), (None, CONFIRMED), (_LATER, CONFIRMED), (None, HELD)]
        for expires_at, state in steps:
            record = _only(backend, ConsumerOrder.renew("job", expires_at, state, uuid=first.uuid))
            assert (record.expires_at, record.state) == (expires_at, state)
            assert (record.uuid, record.held, record.project) == (first.uuid, first.held, "p")
            assert backend.held("job") == record
        assert ledger_state(backend) == before

    def test_a_renewal_releases_nothing(self) -> None:
        with raises_code("InvalidField"):
            ConsumerOrder.renew("job", None, RELEASED)

    # --- several in one write ---

    def test_each_of_several_consumers_has_its_request(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        item, other = StoredRequest('{"n": 1}'), StoredRequest('{"n": 2}')
        requests = {"a": item, "b": None, "c": item, "d": other}
        operation = Operation()
        gang = [
            ConsumerOrder.claim(name, deltas({here: "VCPU=1"}), request=request)
            for name, request in requests.items()
        ]
        first = order(backend, *gang, operation=operation)
        again = order(backend, *gang, operation=operation)
        for records in (first, again, backend.held_by(list(requests)).values()):
            assert {reported.consumer: reported.request for reported in records} == requests

    def test_a_gang_may_be_large(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}", "VCPU=8,DISK_GB=9") for n in range(40)))
        uuids = list(names.values())
        gang = [
            ConsumerOrder.claim(f"job-{n}", deltas({uuids[n % 40]: "VCPU=1,DISK_GB=1"}))
            for n in range(240)
        ]
        records = order(backend, *gang)
        assert [record.consumer for record in records] == [item.consumer for item in gang]
        state = ledger_state(backend)
        assert len(state.allocations) == 480 and state.used("host39", "VCPU") == 6
        uses = backend.held_by([item.consumer for item in gang])
        assert [sorted_record(uses[item.consumer]) for item in gang] == [
            sorted_record(record) for record in records
        ]
        order(backend, *(ConsumerOrder.release(item.consumer) for item in gang))
        assert ledger_state(backend).allocations == {}


# --- repeated operations ---


def _host(backend: Backend) -> str:
    return define(backend, host())["host0"]


class OperationRules(Kit):
    """Repeated operations change nothing and return the first outcome."""

    def test_an_unknown_operation_has_no_outcome(self, backend: Backend) -> None:
        assert backend.outcome(Operation()) is None

    def test_an_outcome_describes_its_operation(self, backend: Backend) -> None:
        here = _host(backend)
        operation = Operation()
        record = backend.claim(operation, ConsumerOrder.claim("job", deltas({here: "VCPU=1"})))
        result = backend.outcome(operation)
        assert result is not None
        assert (result.kind, result.subject, result.claim) == ("claim", "job", record)
        release(backend, "job")
        assert backend.outcome(operation) == result

    def test_a_repeated_write_returns_its_first_outcome_after_later_writes(
        self, backend: Backend
    ) -> None:
        here = _host(backend)
        operation = Operation()
        write = Write(
            operation,
            "gang",
            "gang",
            orders=tuple(
                ConsumerOrder.claim(name, (Use(here, "VCPU", 1, (f"cpu-{name}",)),), project="p")
                for name in ("b", "a", "c")
            ),
        )
        first = backend.commit(write)
        order(
            backend,
            ConsumerOrder.release("b"),
            ConsumerOrder.replace("a", deltas({here: "VCPU=2"})),
        )
        tree = stored_tree(backend, "host0")
        tree.update(name="renamed")
        define(backend, tree)
        again = backend.commit(write)
        assert [item.consumer for item in again] == ["b", "a", "c"]
        assert [_without_names(item) for item in again] == [_without_names(item) for item in first]

    @requires(Requirement.PERSISTENCE)
    def test_operations_outlive_the_backend(self, backend: Backend, url: str) -> None:
        here = _host(backend)
        operation, order = Operation(), ConsumerOrder.claim("job", deltas({here: "VCPU=1"}))
        first = backend.claim(operation, order)
        backend.close()
        again = self.backend_class.open(url)
        try:
            assert again.claim(operation, order) == first
        finally:
            again.close()


def _without_names(record: ConsumerRecord) -> ConsumerRecord:
    """Return a record without the names of providers, which can be former or current ones."""
    uses = tuple(dataclasses.replace(use, provider="") for use in record.held)
    return dataclasses.replace(record, held=uses)


# --- moves of inventories with their allocations ---


def _reshape(
    backend: Backend, changes: DefinitionChanges, *orders: ConsumerOrder
) -> tuple[ConsumerRecord, ...]:
    return backend.commit(Write(Operation(), "reshape", changes.root, changes, orders))


def _with_cells(backend: Backend, cells: int = 2) -> tuple[Provider, dict[str, str]]:
    """Define a host with cells without inventories; return the stored tree and its uuids."""
    root = host("host0", "VCPU=8,MEMORY_MB=64")
    for number in range(cells):
        root.add(f"cell{number}")
    names = define(backend, root)
    return stored_tree(backend, "host0"), names


def _to_cells(tree: Provider) -> Provider:
    """Move the CPUs of the host to its cells; return the tree."""
    tree.update(inventories=Inventories({"MEMORY_MB": 64}))
    for child in tree.children:
        child.update(inventories=Inventories({"VCPU": 4}))
    return tree


class ReshapeRules(Kit):
    """Definitions and orders in one write."""

    @law(2)
    def test_a_reshape_of_a_changed_tree_is_refused(self, backend: Backend) -> None:
        tree, names = _with_cells(backend)
        claim(backend, "job", {names["host0"]: "VCPU=3"})
        old = backend.held("job")
        assert old is not None
        changes = changes_to(backend, _to_cells(tree))
        move = ConsumerOrder.replace(
            "job", deltas({names["cell0"]: "VCPU=3"}), generation=old.generation
        )
        order(backend, ConsumerOrder.adjust("job", deltas({names["host0"]: "VCPU=1"})))
        before = ledger_state(backend)
        with raises_code("StaleConsumer"):
            _reshape(backend, changes, move)
        assert ledger_state(backend) == before
        other = stored_tree(backend, "host0")
        other.find("cell1").update(traits={"CUSTOM_A"})
        define(backend, other)
        before = ledger_state(backend)
        with raises_code("StaleDefinition"):
            _reshape(backend, changes, dataclasses.replace(move, expect=Expect.ANY))
        assert ledger_state(backend) == before

    def test_a_large_reshape_is_one_write(self, backend: Backend) -> None:
        tree, names = _with_cells(backend, cells=20)
        tree.update(inventories=Inventories({"VCPU": 4000, "MEMORY_MB": 64}))
        define(backend, tree)
        gang = [
            ConsumerOrder.claim(f"job-{n}", deltas({names["host0"]: "VCPU=7"})) for n in range(300)
        ]
        order(backend, *gang)
        tree = stored_tree(backend, "host0")
        tree.update(inventories=Inventories({"MEMORY_MB": 64}))
        for child in tree.children:
            child.update(inventories=Inventories({"VCPU": 200}))
        moves = [
            ConsumerOrder.replace(f"job-{n}", deltas({names[f"cell{n % 20}"]: "VCPU=7"}))
            for n in range(300)
        ]
        _reshape(backend, changes_to(backend, tree), *moves)
        state = ledger_state(backend)
        assert len(state.allocations) == 300
        assert {state.used(f"cell{n}", "VCPU") for n in range(20)} == {105}
