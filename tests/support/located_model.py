"""A ledger's view of a located kind against an inventory in memory that consumes the same."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from resource_objects import exceptions
from resource_objects.ledger import Ledger
from resource_objects.reasons import Reason
from resource_objects.resources import Amounts

_NAMES = itertools.count()
#: Consumers at a time: few, so that hosts are full and are emptied again.
_MOST = 4
_which = st.integers(0, _MOST - 1)


class Held(NamedTuple):
    """What one consumer holds."""

    where: str
    kind: str
    amount: Any


class LocatedMachine(RuleBasedStateMachine):
    """Random claims and releases of one host; after each, the view is what the model is."""

    fresh: ClassVar[Callable[[], Ledger]]
    kind: ClassVar[str]
    #: Functions that return what to ask of an inventory.
    asked: ClassVar[st.SearchStrategy[Callable[[Any], Any]]]
    model: Any

    def open(self) -> None:
        self.ledger = type(self).fresh()
        self.host = f"host{next(_NAMES)}"  # several examples may share a ledger
        self.count = 0
        self.held: dict[str, Held] = {}

    def new(self) -> str | None:
        """Return the name of a consumer that holds nothing, None if there are enough."""
        self.count += 1
        return f"{self.host}-{self.count}" if len(self.held) < _MOST else None

    def some(self, which: int) -> tuple[str, Any] | None:
        """Return one that holds some of the kind, None if there is none."""
        having = [(name, held.amount) for name, held in self.held.items() if held.kind == self.kind]
        return having[which % len(having)] if having else None

    def claim(self, amount: Any) -> None:
        if name := self.new():
            expected = decision(lambda: self.model.fit(amount))
            found = decision(lambda: self.taken(name, amount))
            assert self._plain(found) == self._plain(expected)
            self.note(name, expected)

    def taken(self, name: str, amount: Any) -> Any:
        self.ledger.claim(name, {self.host: {self.kind: amount}})
        return self.ledger.assigned_amounts(name)[self.host][self.kind]

    def note(self, name: str, decided: Any) -> None:
        """Let the model have what is decided, unless it is refused."""
        if not isinstance(decided, tuple):
            self.model.consume(decided)
            self.held[name] = Held(self.host, self.kind, decided)

    def without(self, held: Held) -> None:
        """Let the model have what is released."""
        self.model.consume(-held.amount)

    def plain(self, reason: Reason) -> Reason:
        """Return a reason without what only a ledger knows: where, and who holds what."""
        return dataclasses.replace(reason, where=None, holders=())

    def _plain(self, decided: Any) -> Any:
        return [*map(self.plain, decided)] if isinstance(decided, tuple) else decided

    @rule(data=st.data())
    def _claim(self, data: st.DataObject) -> None:
        self.claim(data.draw(self.asked)(self.model))

    @rule(which=_which)
    def _take_what_another_has(self, which: int) -> None:
        """An assigned amount is taken as it is, or refused."""
        one, name = self.some(which), self.new()
        if one and name:
            expected = decision(lambda: self.model.fit(one[1]))
            found = decision(lambda: self.taken(name, one[1]))
            assert isinstance(found, tuple) == isinstance(expected, tuple), expected
            assert isinstance(found, tuple) or found == one[1]
            self.note(name, found)

    @rule(which=_which, data=st.data())
    def _replace(self, which: int, data: st.DataObject) -> None:
        if not (one := self.some(which)):
            return
        (name, before), amount = one, data.draw(self.asked)(self.model)
        without = self.model.obj_clone()
        without.consume(-before)
        try:
            stays = without.from_allocations(amount, dict(without.to_allocations(before)))
            wanted = stays if without.can_provide(stays) else amount
        except exceptions.ForeignAmount:
            wanted = amount
        expected = decision(lambda: without.fit(wanted))
        found = decision(lambda: self.ledger.replace(name, {self.host: {self.kind: amount}}))
        if isinstance(expected, tuple):
            assert self._plain(found) == self._plain(expected)
        else:
            assert self.ledger.assigned_amounts(name)[self.host][self.kind] == expected
            self.model = without
            self.note(name, expected)

    @rule(which=_which)
    def _give_back(self, which: int) -> None:
        if one := self.some(which):
            told = self.ledger.assigned_amounts(one[0])[self.host][self.kind]
            self.ledger.adjust(one[0], {self.host: {self.kind: -told}})
            self.model.consume(-told)
            del self.held[one[0]]

    @rule(which=_which)
    def _release(self, which: int) -> None:
        if self.held:
            name = list(self.held)[which % len(self.held)]
            self.ledger.release(name)
            self.without(self.held.pop(name))

    @invariant()
    def the_view_is_what_the_model_is(self) -> None:
        assert self.ledger.inventories(self.host)[self.kind] == self.model

    @invariant()
    def the_ledger_tells_who_has_what(self) -> None:
        for name, held in self.held.items():
            assert self.ledger.assigned_amounts(name) == {
                held.where: Amounts({held.kind: held.amount})
            }

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            for name in self.held:
                self.ledger.release(name)
            self.ledger.remove(self.host)
            self.ledger.close()


def decision(decide: Callable[[], Any]) -> Any:
    """Return what is decided; of a refusal its reasons."""
    try:
        return decide()
    except exceptions.CapacityException as refusal:
        return refusal.reasons
