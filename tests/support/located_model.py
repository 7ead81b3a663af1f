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

    def some(self, selected: int) -> tuple[str, Any] | None:
        """Return one that holds some of the kind, None if there is none."""
        having = [
            (name, allocated.amount)
            for name, allocated in self.held.items()
            if allocated.kind == self.kind
        ]
        return having[selected % len(having)] if having else None

    def claim(self, amount: Any) -> None:
        if name := self.new():
            expected = decision(lambda: self.model.fit(amount))
            result = decision(lambda: self.taken(name, amount))
            assert self._plain(result) == self._plain(expected)
            self.note(name, expected)

    def taken(self, name: str, amount: Any) -> Any:
        self.ledger.claim(name, {self.host: {self.kind: amount}})
        return self.ledger.assigned_amounts(name)[self.host][self.kind]

    def note(self, name: str, decided: Any) -> None:
        """Let the model have what is decided, unless it is refused."""
        if not isinstance(decided, tuple):
            self.model.consume(decided)
            self.held[name] = Held(self.host, self.kind, decided)

    def without(self, allocated: Held) -> None:
        """Let the model have what is released."""
        self.model.consume(-allocated.amount)

    def plain(self, reason: Reason) -> Reason:
        """Return a reason without what only a ledger knows: where, and who holds what."""
        return dataclasses.replace(reason, where=None, holders=())

    def _plain(self, decided: Any) -> Any:
        return [*map(self.plain, decided)] if isinstance(decided, tuple) else decided

    @rule(data=st.data())
    def _claim(self, data: st.DataObject) -> None:
        self.claim(data.draw(self.asked)(self.model))

    @rule(selected=_which)
    def _take_what_another_has(self, selected: int) -> None:
        """An assigned amount is taken as it is, or refused."""
        item, name = self.some(selected), self.new()
        if item and name:
            expected = decision(lambda: self.model.fit(item[1]))
            result = decision(lambda: self.taken(name, item[1]))
            assert isinstance(result, tuple) == isinstance(expected, tuple), expected
            assert isinstance(result, tuple) or result == item[1]
            self.note(name, result)

    @rule(selected=_which, data=st.data())
    def _replace(self, selected: int, data: st.DataObject) -> None:
        if not (item := self.some(selected)):
            return
        (name, before), amount = item, data.draw(self.asked)(self.model)
        without = self.model.obj_clone()
        without.consume(-before)
        try:
            stays = without.from_allocations(amount, dict(without.to_allocations(before)))
            target = stays if without.can_provide(stays) else amount
        except exceptions.ForeignAmount:
            target = amount
        expected = decision(lambda: without.fit(target))
        result = decision(lambda: self.ledger.replace(name, {self.host: {self.kind: amount}}))
        if isinstance(expected, tuple):
            assert self._plain(result) == self._plain(expected)
        else:
            assert self.ledger.assigned_amounts(name)[self.host][self.kind] == expected
            self.model = without
            self.note(name, expected)

    @rule(selected=_which)
    def _give_back(self, selected: int) -> None:
        if item := self.some(selected):
            message = self.ledger.assigned_amounts(item[0])[self.host][self.kind]
            self.ledger.adjust(item[0], {self.host: {self.kind: -message}})
            self.model.consume(-message)
            del self.held[item[0]]

    @rule(selected=_which)
    def _release(self, selected: int) -> None:
        if self.held:
            name = list(self.held)[selected % len(self.held)]
            self.ledger.release(name)
            self.without(self.held.pop(name))

    @invariant()
    def the_view_is_what_the_model_is(self) -> None:
        assert self.ledger.inventories(self.host)[self.kind] == self.model

    @invariant()
    def the_ledger_tells_who_has_what(self) -> None:
        for name, allocated in self.held.items():
            assert self.ledger.assigned_amounts(name) == {
                allocated.where: Amounts({allocated.kind: allocated.amount})
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
