"""A ledger's view of devices against an inventory in memory that consumes the same amounts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from resource_objects import exceptions
from resource_objects.ledger import Ledger
from resource_objects.providers import Provider
from resource_objects.resources import Amounts
from resource_objects.resources.pci import Device, PCIAmount, PCIInventory, devices
from tests.support.pci_strategies import pci_amounts, question_of

DEVICES = "DEVICES"
_NAMES = itertools.count()
#: Consumers at a time: few, so that hosts are full and are emptied again.
_MOST = 4
_which = st.integers(0, _MOST - 1)


def _lab_of(seed: int) -> PCIInventory:
    """Return devices of any kind, the same for a seed, in the order in which they are kept.

    None is for one use: that it is spent, only an inventory in memory knows.
    """
    for number in itertools.count(seed):
        found = [one.replace(one_time_use=False) for one in question_of(number).devices]
        if found:
            return PCIInventory(sorted(found, key=_order), resource_class=DEVICES)
    raise AssertionError("there are such devices")


def _order(device: Device) -> str:
    return device.parent or device.address


@st.composite
def _asked(draw: st.DrawFn) -> Callable[[PCIInventory], PCIAmount]:
    """Draw an amount, or one that has a chance where it is asked."""
    if draw(st.sampled_from([False, False, True])):
        amount = draw(pci_amounts(max_requests=2))
        return lambda lab: amount
    places, counts = draw(st.lists(st.integers(0, 99), min_size=1, max_size=2)), st.integers(1, 2)
    count = draw(counts)

    def asked(lab: PCIInventory) -> PCIAmount:
        classes = [lab.devices[place % len(lab.devices)].resource_class for place in places]
        return sum((devices(kind) for kind in classes[1:]), devices(classes[0], count))

    return asked


class DeviceMachine(RuleBasedStateMachine):
    """Random claims and releases of the devices of one host; the view is what the model is."""

    fresh: ClassVar[Callable[[], Ledger]]

    @initialize(like=st.integers(0, 2**20).map(_lab_of))
    def _open(self, like: PCIInventory) -> None:
        self.ledger = type(self).fresh()
        self.host = f"host{next(_NAMES)}"  # several examples may share a ledger
        self.count = 0
        self.model = like
        tree = Provider(self.host, "VCPU=4")
        tree.add_parts(DEVICES, like)
        self.ledger.sync(tree)
        self.held: dict[str, PCIAmount] = {}

    def _new(self) -> str | None:
        """Return the name of a consumer that holds nothing, None if there are enough."""
        self.count += 1
        return f"{self.host}-{self.count}" if len(self.held) < _MOST else None

    def _some(self, which: int) -> tuple[str, PCIAmount] | None:
        having = list(self.held.items())
        return having[which % len(having)] if having else None

    @rule(asked=_asked())
    def _claim(self, asked: Callable[[PCIInventory], PCIAmount]) -> None:
        amount = asked(self.model)
        if name := self._new():
            expected = _decision(lambda: self.model.fit(amount))
            assert _plain(_decision(lambda: self._taken(name, amount))) == _plain(expected)
            self._note(name, expected)

    def _taken(self, name: str, amount: PCIAmount) -> Any:
        self.ledger.claim(name, {self.host: {DEVICES: amount}})
        return self.ledger.assigned(name)[self.host][DEVICES]

    def _note(self, name: str, decided: Any) -> None:
        if isinstance(decided, PCIAmount):
            self.model.consume(decided)
            self.model.allocate(decided)
            self.held[name] = decided

    @rule(which=_which)
    def _take_what_another_has(self, which: int) -> None:
        """An assigned amount is taken as it is, or refused."""
        one, name = self._some(which), self._new()
        if one and name:
            found = _decision(lambda: self._taken(name, one[1]))
            assert isinstance(found, tuple)

    @rule(which=_which, asked=_asked())
    def _replace(self, which: int, asked: Callable[[PCIInventory], PCIAmount]) -> None:
        """What is held is given back first; what is held already stays where it is."""
        if not (one := self._some(which)):
            return
        (name, before), amount = one, asked(self.model)
        without = self.model.obj_clone()
        without.consume(-before)
        try:
            stays = without.from_allocations(amount, dict(without.to_allocations(before)))
            wanted = stays if without.can_provide(stays) else amount
        except exceptions.ForeignAmount:
            wanted = amount
        expected = _decision(lambda: without.fit(wanted))
        found = _decision(lambda: self.ledger.replace(name, {self.host: {DEVICES: amount}}))
        if isinstance(expected, tuple):
            assert _plain(found) == _plain(expected)
        else:
            assert self.ledger.assigned(name)[self.host][DEVICES] == expected
            self.model = without
            self._note(name, expected)

    @rule(which=_which)
    def _give_back(self, which: int) -> None:
        """What is held is given back as what it was assigned."""
        if one := self._some(which):
            told = self.ledger.assigned(one[0])[self.host][DEVICES]
            self.ledger.adjust(one[0], {self.host: {DEVICES: -told}})
            self.model.consume(-told)
            del self.held[one[0]]

    @rule(which=_which)
    def _release(self, which: int) -> None:
        if one := self._some(which):
            self.ledger.release(one[0])
            self.model.consume(-self.held.pop(one[0]))

    @invariant()
    def the_view_is_what_the_model_is(self) -> None:
        assert self.ledger.inventories(self.host)[DEVICES] == self.model

    @invariant()
    def the_ledger_tells_who_has_which(self) -> None:
        for name, held in self.held.items():
            assert self.ledger.assigned(name) == {self.host: Amounts({DEVICES: held})}

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            for name in self.held:
                self.ledger.release(name)
            self.ledger.remove(self.host)
            self.ledger.close()


def _decision(decide: Callable[[], Any]) -> Any:
    """Return what is decided; of a refusal its reasons."""
    try:
        return decide()
    except exceptions.CapacityException as refusal:
        return refusal.reasons


def _plain(decided: Any) -> Any:
    """Return reasons without what only a ledger knows: where, and who holds what."""
    if not isinstance(decided, tuple):
        return decided
    return [dataclasses.replace(reason, where=None, holders=()) for reason in decided]


def device_machine(fresh: Callable[[], Ledger]) -> type[DeviceMachine]:
    """Return a Hypothesis state machine that compares ledgers with inventories in memory.

    :param fresh: opens a ledger, once per example; the machine clears and closes it
    """
    return type("Machine", (DeviceMachine,), {"fresh": staticmethod(fresh)})
