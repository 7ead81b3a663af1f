"""A backend against a naive model: dicts, loops, and the rules written down once more."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from resource_objects import exceptions
from resource_objects.exceptions import ResourceObjectsError
from resource_objects.providers import Backend, Provider
from resource_objects.providers.backend import Adjustment, ClaimOrder, Operation
from resource_objects.resources import IntegerInventory
from resource_objects.testing.conformance.base import (
    changes_to,
    define,
    deltas,
    kept,
    picture,
)

_HOSTS = ("host0", "host1")
_CLASSES = ("VCPU", "MEMORY_MB", "CUSTOM_X")
_CONSUMERS = ("job-1", "job-2", "job-3")


@st.composite
def _figures(draw: st.DrawFn) -> dict[str, Any]:
    total = draw(st.integers(1, 12))
    return {
        "total": total,
        "reserved": draw(st.just(0) | st.integers(0, total)),
        "allocation_ratio": draw(st.sampled_from(["1", "0.5", "1.5", "3"])),
        "step_size": draw(st.integers(1, 2)),
    }


_inventories = st.dictionaries(st.sampled_from(_CLASSES), _figures(), max_size=3)
_amounts = st.dictionaries(
    st.sampled_from(_HOSTS),
    st.dictionaries(st.sampled_from(_CLASSES), st.integers(1, 5), min_size=1, max_size=2),
    min_size=1,
    max_size=2,
)
_changes = st.dictionaries(
    st.sampled_from(_HOSTS),
    st.dictionaries(
        st.sampled_from(_CLASSES),
        st.integers(-5, 5).filter(bool),
        min_size=1,
        max_size=2,
    ),
    min_size=1,
    max_size=2,
)

_Key = tuple[str, str]


class Model:
    """What a ledger should hold: ``{host: {class: figures}}`` and ``{consumer: {key: amount}}``."""

    def __init__(self) -> None:
        self.hosts: dict[str, dict[str, dict[str, Any]]] = {}
        self.holds: dict[str, dict[_Key, int]] = {}

    def used(self, key: _Key) -> int:
        return sum(holds.get(key, 0) for holds in self.holds.values())

    def capacity(self, key: _Key) -> int:
        figures = self.hosts[key[0]][key[1]]
        left: int = figures["total"] - figures["reserved"]
        return math.floor(left * Fraction(figures["allocation_ratio"]))

    def allows(self, consumer: str, key: _Key, amount: int) -> bool:
        """Return whether a change by ``amount`` is allowed."""
        if amount < 0:
            return self.holds.get(consumer, {}).get(key, 0) + amount >= 0
        if key[1] not in self.hosts[key[0]]:
            return False
        will_hold = self.holds.get(consumer, {}).get(key, 0) + amount
        whole = will_hold % self.hosts[key[0]][key[1]]["step_size"] == 0
        return bool(whole and self.used(key) + amount <= self.capacity(key))

    def change(self, consumer: str, changes: dict[_Key, int]) -> None:
        holds = self.holds.setdefault(consumer, {})
        for key, amount in changes.items():
            holds[key] = holds.get(key, 0) + amount
        self.holds[consumer] = {key: amount for key, amount in holds.items() if amount}
        if not self.holds[consumer]:
            del self.holds[consumer]

    def allocations(self) -> dict[tuple[str, str, str], int]:
        return {
            (consumer, *key): amount
            for consumer, holds in self.holds.items()
            for key, amount in holds.items()
        }


def _flat(given: dict[str, dict[str, int]]) -> dict[_Key, int]:
    return {(host, name): amount for host, by in given.items() for name, amount in by.items()}


class LedgerMachine(RuleBasedStateMachine):
    """Random steps on a backend and on the model; after each, both hold the same."""

    fresh: ClassVar[Callable[[], Backend]]

    @initialize(first=_inventories, second=_inventories)
    def _open(self, first: dict[str, Any], second: dict[str, Any]) -> None:
        self.backend = type(self).fresh()
        self.model = Model()
        self.uuids: dict[str, str] = {}
        self.last: tuple[Operation, Any, Any] | None = None
        for name, inventories in zip(_HOSTS, (first, second), strict=True):
            self._define(name, inventories)

    def teardown(self) -> None:
        if hasattr(self, "backend"):
            self.backend.close()

    def _define(self, name: str, inventories: dict[str, Any]) -> None:
        made = {
            resource_class: IntegerInventory(**figures)
            for resource_class, figures in inventories.items()
        }
        self.uuids |= define(self.backend, Provider(name, made))
        self.model.hosts[name] = inventories

    def _by_uuid(self, amounts: dict[str, Any]) -> dict[str, Any]:
        return {self.uuids[name]: by_class for name, by_class in amounts.items()}

    @rule(name=st.sampled_from(_HOSTS), inventories=_inventories)
    def define(self, name: str, inventories: dict[str, Any]) -> None:
        gone = set(self.model.hosts[name]) - set(inventories)
        in_use = any(self.model.used((name, resource_class)) for resource_class in gone)
        try:
            self._define(name, inventories)
            assert not in_use
        except exceptions.InventoryInUse:
            assert in_use

    @rule(consumer=st.sampled_from(_CONSUMERS), amounts=_amounts)
    def claim(self, consumer: str, amounts: dict[str, Any]) -> None:
        wanted = _flat(amounts)
        fits = all(self.model.allows(consumer, *item) for item in wanted.items())
        operation = Operation()
        order = ClaimOrder(consumer, deltas(self._by_uuid(amounts)))
        try:
            outcome = self.backend.claim(operation, order)
        except exceptions.ConsumerExists:
            assert consumer in self.model.holds
        except exceptions.CapacityException as refused:
            assert consumer not in self.model.holds and not fits
            self._check_reasons(refused, consumer, wanted)
        else:
            assert fits and consumer not in self.model.holds
            self.model.change(consumer, wanted)
            self.last = operation, order, outcome

    @rule(consumer=st.sampled_from(_CONSUMERS), amounts=_changes)
    def adjust(self, consumer: str, amounts: dict[str, Any]) -> None:
        wanted = _flat(amounts)
        fits = all(self.model.allows(consumer, *item) for item in wanted.items())
        order = Adjustment(consumer, deltas(self._by_uuid(amounts)))
        try:
            self.backend.adjust(Operation(), order)
        except exceptions.CapacityException as refused:
            assert not fits
            self._check_reasons(refused, consumer, wanted)
        else:
            assert fits
            self.model.change(consumer, wanted)

    @rule(consumer=st.sampled_from(_CONSUMERS))
    def release(self, consumer: str) -> None:
        holds = self.model.holds.pop(consumer, None)
        try:
            outcome = self.backend.release(Operation(), consumer)
        except exceptions.ConsumerNotFound:
            assert holds is None
        else:
            assert holds == {(h.provider, h.resource_class): h.amount for h in outcome.held}

    @rule()
    def repeat(self) -> None:
        if self.last is not None:
            operation, order, outcome = self.last
            assert self.backend.claim(operation, order) == outcome

    @rule()
    def a_stale_change_is_refused(self) -> None:
        tree = kept(self.backend, _HOSTS[0])
        tree.update(traits=tree.traits ^ {"CUSTOM_A"})
        stale = changes_to(self.backend, tree)
        newer = kept(self.backend, _HOSTS[0])
        newer.update(traits=newer.traits ^ {"CUSTOM_B"})
        define(self.backend, newer)
        try:
            self.backend.define(Operation(), stale)
        except exceptions.StaleDefinition:
            return
        raise AssertionError("a stale change was applied")

    def _check_reasons(
        self, refused: ResourceObjectsError, consumer: str, wanted: dict[_Key, int]
    ) -> None:
        """Check that exactly what does not fit is named, with its figures."""
        assert isinstance(refused, exceptions.CapacityException)
        named = {(reason.where, reason.resource): reason for reason in refused.reasons}
        culprits = {
            key for key, amount in wanted.items() if not self.model.allows(consumer, key, amount)
        }
        assert set(named) == culprits
        for key in culprits:
            held = self.model.holds.get(consumer, {}).get(key, 0)
            unit_rule = named[key].rule in exceptions.UNIT_RULES
            assert named[key].requested == wanted[key] + (held if unit_rule else 0)

    @invariant()
    def the_ledger_is_as_the_model_says(self) -> None:
        found = picture(self.backend)
        assert found.allocations == self.model.allocations()
        for name, inventories in self.model.hosts.items():
            records = found.providers[name].inventories
            assert set(records) == set(inventories)
            for resource_class, record in records.items():
                key = name, resource_class
                assert record.used == self.model.used(key)
                assert record.capacity == self.model.capacity(key)
        for consumer in _CONSUMERS:
            assert (self.backend.held(consumer) is None) == (consumer not in self.model.holds)


def state_machine(fresh: Callable[[], Backend]) -> type[LedgerMachine]:
    """Return a Hypothesis state machine that compares backends with the model.

    Its ``TestCase`` is what a test module collects.

    :param fresh: opens a backend on an empty ledger, once per example; the machine closes it
    """
    return type("Machine", (LedgerMachine,), {"fresh": staticmethod(fresh)})
