"""The names of a ledger: resource classes, traits and aggregates.

A definition creates the names that it uses. These methods create names in advance, rename and
remove them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from resource_objects import names
from resource_objects.ledger.context import LedgerContext, any_limit, pages_of
from resource_objects.providers import Aggregate, ResourceClass, Trait
from resource_objects.providers.listing import ListedName
from resource_objects.providers.orders import NameAction, NameChange, NameKind, Write
from resource_objects.resources import resource
from resource_objects.resources.traits import checked_traits

_T = TypeVar("_T", ResourceClass, Trait, Aggregate)


class NameList(Generic[_T]):
    """The names of one kind.

    :param to_object: returns the object of a stored name
    :param check_new: checks a name to create
    :param check: checks a name that may be stored, also by a newer library
    """

    def __init__(
        self,
        context: LedgerContext,
        kind: NameKind,
        to_object: Callable[[ListedName], _T],
        check_new: Callable[[str], str],
        check: Callable[[str], str],
    ) -> None:
        self._context = context
        self._kind = kind
        self._to_object: Callable[[ListedName], _T] = to_object
        self._check_new = check_new
        self._check = check

    def list(self, *, limit: int | None = None, after: str | None = None) -> Iterator[_T]:
        """Yield the names, ordered by code points. Cost: one statement per page.

        :param limit: the maximum number of names
        :param after: only those after this name
        """
        pages = pages_of(
            lambda count, last: self._context.backend.list_names(self._kind, count, last),
            lambda listed: listed.name,
            self._context.page,
            any_limit(limit),
            None if after is None else self._check(after),
        )
        return (self._to_object(listed) for page in pages for listed in page)

    def ensure(self, name: str, *, operation: str | None = None) -> None:
        """Create a name unless it exists.

        :raises InvalidInput: if it is neither standard nor custom (nor a plug-in's)
        """
        self._commit(operation, NameChange(self._kind, NameAction.ENSURE, self._check_new(name)))

    def rename(self, name: str, new: str, *, operation: str | None = None) -> None:
        """Rename a custom name everywhere.

        :raises NotFound: if it does not exist
        :raises AlreadyExists: if the new name exists
        :raises NotSupported: if it is a standard name
        :raises InvalidInput: if the new name is invalid
        """
        old, to = self._check(name), self._check_new(new)
        self._commit(operation, NameChange(self._kind, NameAction.RENAME, old, to))

    def remove(self, name: str, *, operation: str | None = None) -> None:
        """Delete a custom name that no inventory or provider uses.

        :raises NotFound: if it does not exist
        :raises InUse: if it is used
        :raises NotSupported: if it is a standard name
        """
        self._commit(operation, NameChange(self._kind, NameAction.DELETE, self._check(name)))

    def _commit(self, operation: str | None, *changes: NameChange) -> None:
        # the kind of an operation has at most 16 characters
        kind = f"{changes[0].action}_{self._kind.removeprefix('resource_')}"
        write = Write(self._context.operation(operation), kind, changes[0].name, names=changes)
        self._context.backend.commit(write)


class AggregateNames(NameList[Aggregate]):
    """The aggregates, each with its level."""

    def ensure(self, name: str, level: str | None = None, *, operation: str | None = None) -> None:
        """Create an aggregate unless it exists, and set its level.

        :param level: the kind of place, such as ``rack``; None leaves the stored level
        """
        aggregate = Aggregate(name=name, level=level)
        changes = [NameChange(self._kind, NameAction.ENSURE, aggregate.name)]
        if level is not None:
            changes.append(NameChange(self._kind, NameAction.SET_LEVEL, aggregate.name, level))
        self._commit(operation, *changes)


class Names:
    """The names of a ledger: ``ledger.names``, a list each of ``classes, traits, aggregates``."""

    def __init__(self, context: LedgerContext) -> None:
        #: resource classes
        self.classes = NameList[ResourceClass](
            context,
            NameKind.RESOURCE_CLASS,
            lambda listed: ResourceClass(name=listed.name),
            lambda name: resource(name).name,
            names.resource_class_name,
        )
        #: traits
        self.traits = NameList[Trait](
            context,
            NameKind.TRAIT,
            lambda listed: Trait(name=listed.name),
            lambda name: next(iter(checked_traits([name]))),
            names.trait_name,
        )
        #: aggregates
        self.aggregates = AggregateNames(
            context,
            NameKind.AGGREGATE,
            lambda listed: Aggregate(name=listed.name, level=listed.level),
            names.aggregate_name,
            names.aggregate_name,
        )
