"""What a writer does with amounts that say where they are: fitted on what is read, then taken.

Between the two anything may happen: somebody else takes one of the units, or what there is changes.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import ClassVar

from resource_objects import exceptions
from resource_objects.providers import Backend
from resource_objects.providers.columns import Columns
from resource_objects.providers.located import Located, LocatedViews
from resource_objects.providers.orders import (
    Adjustment,
    ClaimOrder,
    ClaimRecord,
    Delta,
    Release,
    Replacement,
)
from resource_objects.providers.supposing import without
from resource_objects.resources import Amount
from resource_objects.testing.kill.diary import Diary
from resource_objects.testing.kill.writers import Task, Writer


class LocatedWriter(Writer, abc.ABC):
    """A writer of amounts of one kind, on hosts of its own."""

    hosts: ClassVar[tuple[str, ...]]
    kind: ClassVar[str]

    def __init__(self, task: Task, backend: Backend, diary: Diary) -> None:
        super().__init__(task, backend, diary)
        self._steps: list[tuple[int, Callable[[], None]]] = [
            (32, self._place),
            (16, self._release),
            (10, self._replace),
            (10, self._give_back),
            (10, self._steal),
            (10, self._exchange),
            (5, self._switch),
        ]

    def _look(self) -> None:
        """Find nothing: what is where is read before each decision."""
        self._disk["read"] = "each time"

    # --- what differs ---

    @abc.abstractmethod
    def _amount(self) -> Amount:
        """Return something to ask for."""

    @abc.abstractmethod
    def _units(self, located: Located) -> Delta:
        """Return a change that takes units by name, be they free or not."""

    @abc.abstractmethod
    def _switch(self) -> None:
        """Change what there is, be it taken or not."""

    # --- what is asked ---

    def _fitted(self, columns: Columns) -> tuple[Delta, ...]:
        """Return what some amount would take, nothing if it does not fit."""
        located = self._view(columns)
        try:
            return located.deltas(located.fit(self._amount()))
        except exceptions.CapacityException:
            return ()

    def _read(self) -> Columns:
        return self._backend.read(self._chance.choice(self.hosts))

    def _view(self, columns: Columns) -> Located:
        views = LocatedViews(columns)
        [root] = views.trees(self.kind)
        located = views.of_tree(root, self.kind)
        assert located is not None, "every host has some"
        return located

    # --- what is done ---

    def _place(self) -> None:
        """Take an amount; many units of several providers in one write."""
        deltas = self._fitted(self._read()) if len(self._own) < 8 else ()
        if deltas:
            self._write("place", [ClaimOrder(self._new_name(), deltas)])
        else:
            self._release()

    def _release(self) -> None:
        names = self._some_own(self._chance.choice([1, 1, 2]))
        if names:
            self._write("free", [Release(name) for name in names])

    def _replace(self) -> None:
        """Exchange an amount for another one, on whichever host, within what it gives back."""
        for name in self._some_own(1):
            deltas = self._fitted(without(self._read(), name))
            if deltas:
                self._write("replace", [Replacement(name, deltas)])

    def _give_back(self) -> None:
        """Give back all of one, unit by unit, as a negative amount does."""
        for name in self._some_own(1):
            held = self._own[name].held
            deltas = tuple(Delta(*one.key, -one.amount, one.units) for one in held)
            self._write("give back", [Adjustment(name, deltas)])

    def _steal(self) -> None:
        """Ask for units by name that somebody may have."""
        delta = self._units(self._view(self._read()))
        self._write("take by name", [ClaimOrder(self._new_name(), (delta,))])

    def _exchange(self) -> None:
        """Let two change places, also on full hosts."""
        names = self._some_own(2)
        if len(names) == 2:
            first, second = (_deltas(self._own[name]) for name in names)
            orders = [Replacement(names[0], second), Replacement(names[1], first)]
            self._write("exchange", orders)


def _deltas(record: ClaimRecord) -> tuple[Delta, ...]:
    return tuple(Delta(*one.key, one.amount, one.units) for one in record.held)
