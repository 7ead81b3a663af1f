"""The names of a ledger: resource classes, traits and aggregates.

A definition creates the names that it uses. These methods create names in advance, rename and
remove them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from resource_objects import names
from resource_objects.ledger.context import Store, any_limit, pages_of
from resource_objects.providers import Aggregate, ResourceClass, Trait
from resource_objects.providers.listing import ListedName
from resource_objects.providers.orders import NameAction, NameChange, NameKind, Write
from resource_objects.resources import resource
from resource_objects.resources.traits import known_traits

_T = TypeVar("_T", ResourceClass, Trait, Aggregate)


class NameList(Generic[_T]):
    """The names of one kind."""

    def __init__(
        self,
        store: Store,
        kind: NameKind,
        made: Callable[[ListedName], _T],
        new: Callable[[str], str],
        kept: Callable[[str], str],
    ) -> None:
        self._store = store
        self._kind = kind
        self._made: Callable[[ListedName], _T] = made
        self._new = new  # checks a name that is to be kept
        self._kept = kept  # checks one that may be kept already, also by a newer library

    def list(self, *, limit: int | None = None, after: str | None = None) -> Iterator[_T]:
        """Yield the names in order (by code points).

        Cost: one statement per page.

        :param limit: at most so many
        :param after: only those after this name
        """
        pages = pages_of(
            lambda count, last: self._store.backend.list_names(self._kind, count, last),
            lambda listed: listed.name,
            self._store.page,
            any_limit(limit),
            None if after is None else self._kept(after),
        )
        return (self._made(one) for found in pages for one in found)

    def ensure(self, name: str, *, operation: str | None = None) -> None:
        """Make a name, or find that it is there.

        :raises InvalidInput: if it is neither standard nor custom (nor a plug-in's)
        """
        self._change(NameAction.ENSURE, self._new(name), None, operation)

    def rename(self, name: str, new: str, *, operation: str | None = None) -> None:
        """Give a custom name's bearer another name, wherever it is mentioned.

        :raises NotFound: if it is not there
        :raises AlreadyExists: if the new name is
        :raises NotSupported: if it is a standard one
        :raises InvalidInput: if nothing may be called so
        """
        self._change(NameAction.RENAME, self._kept(name), self._new(new), operation)

    def remove(self, name: str, *, operation: str | None = None) -> None:
        """Forget a custom name that nothing mentions: no inventory, no provider, no member.

        :raises NotFound: if it is not there
        :raises InUse: if something mentions it
        :raises NotSupported: if it is a standard one
        """
        self._change(NameAction.DELETE, self._kept(name), None, operation)

    def _change(self, action: NameAction, name: str, to: str | None, operation: str | None) -> None:
        kind = f"{action}_{_SHORT[self._kind]}"
        self._commit(kind, (NameChange(self._kind, action, name, to),), operation)

    def _commit(self, kind: str, changes: tuple[NameChange, ...], operation: str | None) -> None:
        subject = changes[0].name
        doing, done = self._store.begin(operation, kind, subject)
        if done is None:
            self._store.backend.commit(Write(doing, kind, subject, names=changes))


class AggregateNames(NameList[Aggregate]):
    """The aggregates: their names, and what kind of place each is."""

    def ensure(self, name: str, level: str | None = None, *, operation: str | None = None) -> None:
        """Create an aggregate unless it exists, and set its level.

        :param level: the kind of place, such as ``rack``; None leaves the stored level
        """
        aggregate = Aggregate(name=name, level=level)
        changes = [NameChange(self._kind, NameAction.ENSURE, aggregate.name)]
        if level is not None:
            changes.append(NameChange(self._kind, NameAction.SET_LEVEL, aggregate.name, level))
        self._commit("ensure_aggregate", tuple(changes), operation)


class Names:
    """The names of a ledger: ``ledger.names``, a list each of ``classes, traits, aggregates``."""

    def __init__(self, store: Store) -> None:
        #: resource classes
        self.classes = NameList[ResourceClass](
            store,
            NameKind.RESOURCE_CLASS,
            lambda one: ResourceClass(name=one.name),
            lambda name: resource(name).name,
            names.resource_class_name,
        )
        #: traits
        self.traits = NameList[Trait](
            store, NameKind.TRAIT, lambda one: Trait(name=one.name), _trait, names.trait_name
        )
        #: aggregates
        self.aggregates = AggregateNames(
            store,
            NameKind.AGGREGATE,
            lambda one: Aggregate(name=one.name, level=one.level),
            names.aggregate_name,
            names.aggregate_name,
        )


def _trait(name: str) -> str:
    (found,) = known_traits([name])
    return found


#: The kinds of names in the change feed; the kind of an operation has at most 16 characters.
_SHORT = {
    NameKind.RESOURCE_CLASS: "class",
    NameKind.TRAIT: "trait",
    NameKind.AGGREGATE: "aggregate",
}
