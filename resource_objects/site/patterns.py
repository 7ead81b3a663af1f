"""Pattern: the definitions of the machines of one entry, which differ in names and uuids only."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from resource_objects import names
from resource_objects.exceptions import InvalidInput, InvalidTree
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ShareRecord,
    StoredDefinition,
    changes_between,
    check_readable,
    check_trees,
)
from resource_objects.providers.pools import SHARES
from resource_objects.site.parts import ITSELF, MACHINE, PARENT, Outage, SitePart
from resource_objects.site.ranges import expand

#: The stored providers of the tree of a machine by name, parents before children.
StoredTree = Mapping[str, StoredDefinition]

#: Stands for the name of the machine in a pattern; no provider has this name.
_NAME = "\0"


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """A provider of a pattern.

    :ivar definition: the definition of its entry, whose ``name`` is that in the pattern
    :ivar parent: the place of its parent
    :ivar shares: ``(class, name of the target in the pattern, class of the target, factor)``
    """

    part: SitePart
    definition: ProviderDefinition
    parent: int | None
    shares: tuple[tuple[str, str, str, int], ...]


class Pattern:
    """The providers of the machines of one entry, parents before children.

    Everything that the machines have in common is computed once.
    """

    def __init__(self, part: SitePart, is_pool: bool) -> None:
        self._places: list[_Place] = []
        self._is_tried = self._is_checked = False
        self._add(part, _NAME, None, frozenset({SHARES} if is_pool else ()))
        self._names = [
            (name[0] == _NAME, name.removeprefix(_NAME))
            for name in (place.definition.name for place in self._places)
        ]
        #: The names that do not begin with the name of the machine.
        self.fixed_names = [name for is_below, name in self._names if not is_below]

    def _add(
        self, part: SitePart, name: str, parent: int | None, traits: frozenset[str] = frozenset()
    ) -> None:
        definition = part.definition()
        targets = {ITSELF: name, MACHINE: _NAME}
        if parent is not None:
            targets[PARENT] = self._places[parent].definition.name
        shares = tuple(
            (
                share.resource_class,
                targets.get(share.of_uuid) or next(expand(share.of_uuid, _NAME)),
                share.of_class,
                share.factor,
            )
            for share in definition.shares
        )
        traits |= definition.traits
        definition = dataclasses.replace(definition, name=name, traits=traits)
        here = len(self._places)
        self._places.append(_Place(part, definition, parent, shares))
        for child in part.providers_below:
            for below in expand(child.name, name):
                self._add(child, below, here)

    def names(self, machine: str) -> list[str]:
        """Return the names of the providers of a machine."""
        return [machine + name if is_below else name for is_below, name in self._names]

    def outages(self, machine: str, prune: bool) -> Iterator[tuple[str, Outage]]:
        """Yield the specified states of the providers of a machine.

        :param prune: whether a provider without a specified state is enabled, instead of unchanged
        """
        for place, name in zip(self._places, self.names(machine), strict=True):
            disabled = place.part.disabled
            if disabled is not None or prune:
                yield name, disabled or Outage()

    def changes(self, machine: str, stored: StoredTree, prune: bool) -> DefinitionChanges:
        """Return the changes of a machine and the providers below it.

        Of a stored provider, keys that its entry lacks are unchanged, and so are other providers of
        the tree.

        :param prune: whether providers that the entry does not name are removed, and values of
            missing keys too
        :raises InvalidInput: if the result is no tree or breaks a rule
        """
        called = self.names(machine)
        uuid_of = {name: entry.definition.uuid for name, entry in stored.items()}
        new = [name for name in called if name not in uuid_of]
        if new:
            uuid_of.update(zip(new, _new_uuids(len(new)), strict=True))
            for name in (machine, *self.fixed_names):
                if names.is_uuid(name) and name not in stored:
                    uuid_of[name] = names.uuid_text(name)
        target = [
            _definition(place, name, called, uuid_of, stored.get(name), prune)
            for place, name in zip(self._places, called, strict=True)
        ]
        if not stored:
            if not self._is_checked:  # of the next machines only the names differ
                _check(target, target)
                self._is_checked = True
            return DefinitionChanges(machine, tuple(target))
        self._check_alone(machine)
        changed = [
            definition
            for name, definition in zip(called, target, strict=True)
            if name not in stored or definition is not stored[name].definition
        ]
        unnamed: list[ProviderDefinition] = []
        if len(stored) + len(new) > len(called):
            named = frozenset(called)
            unnamed = [entry.definition for name, entry in stored.items() if name not in named]
        if not changed and not (unnamed and prune):
            return DefinitionChanges(machine)
        keeps_shares = not prune and any(
            definition.shares and not place.part.has_inventories
            for place, definition in zip(self._places, target, strict=True)
        )
        is_moved = bool(new) or any(
            stored[definition.name].definition.parent_uuid != definition.parent_uuid
            for definition in changed
        )
        if not prune:
            target += unnamed
            keeps_shares = keeps_shares or any(definition.shares for definition in unnamed)
        if is_moved or keeps_shares or not self._is_checked:
            _check(changed, target)
        by_uuid = {entry.definition.uuid: entry for entry in stored.values()}
        return changes_between(machine, by_uuid, target)

    def _check_alone(self, machine: str) -> None:
        """Check the pattern as a new machine, once.

        If that is valid, only values that a stored machine keeps can break a rule.
        """
        if not self._is_tried:
            self._is_tried = True
            with contextlib.suppress(InvalidInput):
                self.changes(machine, {}, False)


def _definition(
    place: _Place,
    name: str,
    called: Sequence[str],
    uuid_of: Mapping[str, str],
    entry: StoredDefinition | None,
    prune: bool,
) -> ProviderDefinition:
    """Return the definition of a provider of a machine; the stored one if nothing differs."""
    part = place.part
    parent_uuid = None if place.parent is None else uuid_of[called[place.parent]]
    inventories, kinds = place.definition.inventories, place.definition.kinds
    traits, aggregates = place.definition.traits, place.definition.aggregates
    shares = _shares(place, called[0], uuid_of) if place.shares else ()
    if entry is not None:
        stored = entry.definition
        if not prune and not part.has_inventories:
            inventories, kinds = stored.inventories, stored.kinds
            shares = stored.shares if part.shares is None else shares
        if not prune and part.traits is None:
            traits |= stored.traits
        if aggregates is None:
            aggregates = frozenset() if prune else stored.aggregates
        if (
            (parent_uuid, traits, aggregates, shares)
            == (stored.parent_uuid, stored.traits, stored.aggregates, stored.shares)
            and _have_equal_records(inventories, stored.inventories)
            and _have_equal_records(kinds, stored.kinds)
        ):
            return stored
    return ProviderDefinition(
        uuid_of[name], name, parent_uuid, inventories, traits, aggregates, shares, kinds
    )


def _shares(place: _Place, machine: str, uuid_of: Mapping[str, str]) -> tuple[ShareRecord, ...]:
    """Return the shares of a provider; a target that does not exist keeps its name."""
    shares = []
    for resource_class, target, of_class, factor in place.shares:
        name = machine + target[1:] if target[0] == _NAME else target
        shares.append(ShareRecord(resource_class, uuid_of.get(name, name), of_class, factor))
    return tuple(sorted(shares) if len(shares) > 1 else shares)


def _check(changed: Iterable[ProviderDefinition], tree: Collection[ProviderDefinition]) -> None:
    uuids: set[str] = set()
    for definition in tree:
        if definition.uuid in uuids:
            raise InvalidTree("tree", definition.name, "each provider once")
        uuids.add(definition.uuid)
    for definition in changed:
        check_readable(definition)
    check_trees(tree)


def _have_equal_records(records: Sequence[object], stored: Sequence[object]) -> bool:
    """Return True if both have the same few records in any order."""
    if records == stored:
        return True
    return len(records) == len(stored) and all(record in stored for record in records)


def _new_uuids(count: int) -> list[str]:
    """Return random uuids (version 4 of RFC 9562), as the ledger writes them.

    Cost: some 0.6 microseconds each, where ``str(uuid.uuid4())`` takes four.

    >>> import uuid
    >>> [uuid.UUID(text).version for text in _new_uuids(2)]
    [4, 4]
    """
    digits = os.urandom(16 * count).hex()
    texts = (digits[start : start + 32] for start in range(0, len(digits), 32))
    return [
        f"{t[:8]}-{t[8:12]}-4{t[13:16]}-{_VARIANTS[int(t[16], 16)]}{t[17:20]}-{t[20:]}"
        for t in texts
    ]


#: The first digit of the fourth group, whose upper two bits are 10.
_VARIANTS = "89ab" * 4
