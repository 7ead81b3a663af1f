"""The names that a ledger keeps by themselves: resource classes, traits, aggregates."""

from __future__ import annotations

from collections.abc import Iterator

from resource_objects import names
from resource_objects.ledger.base import LedgerBase
from resource_objects.providers import Aggregate, ResourceClass, Trait
from resource_objects.providers.listing import ListedName, check_limit
from resource_objects.providers.orders import NameAction, NameChange, NameKind, Write
from resource_objects.resources import resource
from resource_objects.resources.traits import known_traits


class NameMethods(LedgerBase):
    """The methods of a ledger about resource classes, traits and aggregates.

    Definitions make the names they mention; these methods are for whoever wants them before, or
    under another name, or gone.
    """

    def classes(self, *, page: int = 500) -> Iterator[ResourceClass]:
        """Yield the resource classes, by name (code points)."""
        listed = self._names(NameKind.RESOURCE_CLASS, check_limit(page))
        return (ResourceClass(name=one.name) for one in listed)

    def traits(self, *, page: int = 500) -> Iterator[Trait]:
        """Yield the traits, by name (code points)."""
        return (Trait(name=one.name) for one in self._names(NameKind.TRAIT, check_limit(page)))

    def aggregates(self, *, page: int = 500) -> Iterator[Aggregate]:
        """Yield the aggregates, by name (code points)."""
        listed = self._names(NameKind.AGGREGATE, check_limit(page))
        return (Aggregate(name=one.name, level=one.level) for one in listed)

    def _names(self, kind: NameKind, page: int) -> Iterator[ListedName]:
        after: str | None = None
        while True:
            found = self.backend.list_names(kind, page, after)
            yield from found
            if len(found) < page:
                return
            after = found[-1].name

    # --- resource classes ---

    def ensure_class(self, name: str, *, operation: str | None = None) -> None:
        """Make a resource class, or find that it is there.

        :raises UnknownResourceClass: if it is neither standard, custom nor a plug-in's
        """
        found = resource(name).name
        self._change(NameKind.RESOURCE_CLASS, NameAction.ENSURE, found, operation=operation)

    def rename_class(self, name: str, new: str, *, operation: str | None = None) -> None:
        """Give a custom resource class another name, wherever it is counted.

        :raises ClassNotFound: if it is not there
        :raises NameExists: if the new name is
        :raises StandardName: if it is a standard one
        :raises UnknownResourceClass: if no class may be called so
        """
        old, to = names.resource_class_name(name), resource(new).name
        self._change(NameKind.RESOURCE_CLASS, NameAction.RENAME, old, to, operation=operation)

    def remove_class(self, name: str, *, operation: str | None = None) -> None:
        """Forget a custom resource class in which nothing is counted.

        :raises ClassNotFound: if it is not there
        :raises ClassInUse: if some provider has an inventory of it
        :raises StandardName: if it is a standard one
        """
        found = names.resource_class_name(name)
        self._change(NameKind.RESOURCE_CLASS, NameAction.DELETE, found, operation=operation)

    # --- traits ---

    def ensure_trait(self, name: str, *, operation: str | None = None) -> None:
        """Make a trait, or find that it is there.

        :raises UnknownTrait: if it is neither standard nor custom
        """
        (found,) = known_traits([name])
        self._change(NameKind.TRAIT, NameAction.ENSURE, found, operation=operation)

    def rename_trait(self, name: str, new: str, *, operation: str | None = None) -> None:
        """Give a custom trait another name, at every provider that has it.

        :raises TraitNotFound: if it is not there
        :raises NameExists: if the new name is
        :raises StandardName: if it is a standard one
        :raises UnknownTrait: if no trait may be called so
        """
        (to,) = known_traits([new])
        old = names.trait_name(name)
        self._change(NameKind.TRAIT, NameAction.RENAME, old, to, operation=operation)

    def remove_trait(self, name: str, *, operation: str | None = None) -> None:
        """Forget a custom trait that no provider has.

        :raises TraitNotFound: if it is not there
        :raises TraitInUse: if some provider has it
        :raises StandardName: if it is a standard one
        """
        found = names.trait_name(name)
        self._change(NameKind.TRAIT, NameAction.DELETE, found, operation=operation)

    # --- aggregates ---

    def ensure_aggregate(
        self, name: str, level: str | None = None, *, operation: str | None = None
    ) -> None:
        """Make an aggregate, or find that it is there; give it a level, where one is given.

        :param level: what kind of place it is, such as ``rack``; None leaves what is kept
        """
        aggregate = Aggregate(name=name, level=level)
        changes = [NameChange(NameKind.AGGREGATE, NameAction.ENSURE, aggregate.name)]
        if level is not None:
            changes.append(
                NameChange(NameKind.AGGREGATE, NameAction.SET_LEVEL, aggregate.name, level)
            )
        self._commit_names("ensure_aggregate", tuple(changes), operation)

    def rename_aggregate(self, name: str, new: str, *, operation: str | None = None) -> None:
        """Give an aggregate another name; its members and its level stay.

        :raises AggregateNotFound: if it is not there
        :raises NameExists: if the new name is
        """
        old, to = names.aggregate_name(name), names.aggregate_name(new)
        self._change(NameKind.AGGREGATE, NameAction.RENAME, old, to, operation=operation)

    def remove_aggregate(self, name: str, *, operation: str | None = None) -> None:
        """Forget an aggregate that has no members.

        :raises AggregateNotFound: if it is not there
        :raises AggregateInUse: if it has members
        """
        found = names.aggregate_name(name)
        self._change(NameKind.AGGREGATE, NameAction.DELETE, found, operation=operation)

    # --- all ---

    def _change(
        self,
        kind: NameKind,
        action: NameAction,
        name: str,
        to: str | None = None,
        *,
        operation: str | None,
    ) -> None:
        said = f"{action}_{_SAID[kind]}"
        self._commit_names(said, (NameChange(kind, action, name, to),), operation)

    def _commit_names(
        self, kind: str, changes: tuple[NameChange, ...], operation: str | None
    ) -> None:
        subject = changes[0].name
        doing, done = self._begin(operation, kind, subject)
        if done is None:
            self.backend.commit(Write(doing, kind, subject, names=changes))


#: What a change feed calls each kind of name; an operation's kind has at most 16 characters.
_SAID = {
    NameKind.RESOURCE_CLASS: "class",
    NameKind.TRAIT: "trait",
    NameKind.AGGREGATE: "aggregate",
}
