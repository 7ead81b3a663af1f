"""Machines of an entry are equal but for their names: the first is worked out, others are named.

Working out a tree makes objects and checks them, which takes most of the time of applying a file.
What comes of it are records. Those of the next machine of the same entry are the same, with other
names and uuids; beside what is kept of it, each provider has what its entry says, and for the rest
what it had. Where more than that has to be looked at (a provider that moves, a structure that
changes, shares that may lead nowhere, names that are uuids), the tree is worked out.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Self

from resource_objects import exceptions, names
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ShareRecord,
    StoredDefinition,
    changes_between,
    check_definition_shares,
    diff,
)
from resource_objects.site.parts import Entry, PartInventories, SitePart
from resource_objects.site.trees import providers_below, tree_of

#: Providers that are kept, by name.
Kept = Mapping[str, StoredDefinition]

#: What a machine is called while its entry is looked at: nobody is.
_MACHINE = "\0"


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """A provider of a pattern. Others of it are known by their places among its names.

    ``shares`` are ``(class, place, class there, factor)``.
    """

    made: ProviderDefinition
    part: SitePart
    place: int
    above: int | None
    shares: tuple[tuple[str, int, str, int], ...]

    def definition(self, called: Sequence[str], uuid: Sequence[str]) -> ProviderDefinition:
        """Return what makes it under another name."""
        made = self.made
        return ProviderDefinition(
            uuid[self.place],
            called[self.place],
            None if self.above is None else uuid[self.above],
            made.inventories,
            made.traits,
            made.aggregates,
            self.shares_of(uuid),
            made.kinds,
        )

    def shares_of(self, uuid: Sequence[str]) -> tuple[ShareRecord, ...]:
        found = [ShareRecord(name, uuid[at], of, factor) for name, at, of, factor in self.shares]
        return tuple(sorted(found) if len(found) > 1 else found)

    def beside(self, kept: ProviderDefinition, uuid: Sequence[str], prune: bool) -> _Beside:
        """Return what it is beside what is kept of it; that itself if it is so already."""
        made, part = self.made, self.part
        inventories, shares = kept.inventories, kept.shares
        says_inventories = prune or part.says_inventories
        if says_inventories:
            shares = self.shares_of(uuid)
            if not _alike(made.kinds, kept.kinds):
                return None, True
            if not _alike(made.inventories, inventories):
                inventories = made.inventories
        traits = made.traits
        if part.traits is None and not prune:
            traits |= kept.traits
        aggregates = kept.aggregates if made.aggregates is None else made.aggregates
        had = (kept.inventories, kept.traits, kept.aggregates, kept.shares)
        if (inventories, traits, aggregates, shares) == had:
            return kept, not says_inventories
        own = (kept.uuid, kept.name, kept.parent_uuid)
        found = ProviderDefinition(*own, inventories, traits, aggregates, shares, kept.kinds)
        return found, not says_inventories


#: A provider, None where it has to be worked out; and whether its shares are those that were kept.
_Beside = tuple[ProviderDefinition | None, bool]


def _alike(some: Sequence[object], others: Sequence[object]) -> bool:
    """Return whether both are the same few records, in whichever order."""
    if some == others:
        return True
    return len(some) == len(others) and all(one in others for one in some)


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """The providers of a machine, parents before children.

    ``below`` are the names of those below it: whether it begins with that of the machine, and what
    follows, which is a slash and more; ``others`` those that do not; ``longest`` is how long the
    longest of what follows is.
    """

    pieces: tuple[Piece, ...]
    below: tuple[tuple[bool, str], ...]
    others: tuple[str, ...]
    longest: int

    @classmethod
    def of(cls, made: DefinitionChanges, entry: Entry) -> Self:
        """Return the pattern of an entry, given what makes a machine of it."""
        told = [(entry.name, entry.part), *providers_below(entry.part, entry.name)]
        place = {name: number for number, (name, _) in enumerate(told)}
        at = {one.uuid: place[one.name] for one in made.creates}
        pieces = (
            Piece(
                one,
                told[at[one.uuid]][1],
                at[one.uuid],
                None if one.parent_uuid is None else at[one.parent_uuid],
                tuple((s.resource_class, at[s.of_uuid], s.of_class, s.factor) for s in one.shares),
            )
            for one in made.creates
        )
        below = [name for name, _ in providers_below(entry.part, _MACHINE)]
        return cls(
            tuple(pieces),
            tuple((name[:1] == _MACHINE, name.removeprefix(_MACHINE)) for name in below),
            tuple(name for name in below if name[:1] != _MACHINE),
            max((len(name) - 1 for name in below if name[:1] == _MACHINE), default=0),
        )

    def called(self, machine: str) -> tuple[str, ...]:
        """Return the names of the providers of a machine, by their places."""
        return machine, *(machine + name if is_its else name for is_its, name in self.below)

    def made(self, called: Sequence[str]) -> DefinitionChanges:
        """Return what makes a machine of it."""
        new = _new_uuids(len(called))
        made = (piece.definition(called, new) for piece in self.pieces)
        return DefinitionChanges(called[0], tuple(made))

    def changed(self, called: Sequence[str], kept: Kept, prune: bool) -> DefinitionChanges | None:
        """Return what a machine that is kept is to be changed by, None if it must be worked out."""
        new = iter(_new_uuids(sum(name not in kept for name in called)))
        uuid = [kept[name].definition.uuid if name in kept else next(new) for name in called]
        wanted: list[ProviderDefinition] = []
        found = changed = 0
        keeps_shares = False
        for piece in self.pieces:
            had = kept.get(called[piece.place])
            if had is None:
                wanted.append(piece.definition(called, uuid))
                changed += 1
                continue
            found += 1
            if had.definition.parent_uuid != (None if piece.above is None else uuid[piece.above]):
                return None
            one, is_of_kept = piece.beside(had.definition, uuid, prune)
            if one is None:
                return None
            wanted.append(one)
            changed += one is not had.definition
            keeps_shares = keeps_shares or (is_of_kept and bool(one.shares))
        goes = len(kept) - found if prune else 0
        if not changed and not goes:
            return DefinitionChanges(called[0])
        if found < len(kept) and not prune:
            said = frozenset(called)
            left = [one.definition for name, one in kept.items() if name not in said]
            wanted += left
            keeps_shares = keeps_shares or any(one.shares for one in left)
        if keeps_shares:
            try:
                check_definition_shares(wanted)
            except exceptions.InvalidTree:
                return None
        by_uuid = {one.definition.uuid: one for one in kept.values()}
        return changes_between(called[0], by_uuid, wanted)


def _new_uuids(count: int) -> list[str]:
    """Return so many random uuids (version 4 of RFC 9562), as the ledger spells them.

    Cost: some 0.6 microseconds each, where ``str(uuid.uuid4())`` takes four.

    >>> import uuid
    >>> [uuid.UUID(one).version for one in _new_uuids(2)]
    [4, 4]
    """
    digits = os.urandom(16 * count).hex()
    every = (digits[place : place + 32] for place in range(0, len(digits), 32))
    return [
        f"{one[:8]}-{one[8:12]}-4{one[13:16]}-{_VARIANTS[int(one[16], 16)]}{one[17:20]}-{one[20:]}"
        for one in every
    ]


#: The first digit of the fourth group: its upper two bits are 10.
_VARIANTS = "89ab" * 4


class Patterns:
    """The patterns of entries, each worked out once; ``prune`` as :func:`tree_of` has it."""

    def __init__(self, had: PartInventories, prune: bool) -> None:
        self._had = had
        self._prune = prune
        self._found: dict[tuple[int, bool], tuple[SitePart, Pattern | None]] = {}

    def changes(
        self, entry: Entry, kept: Kept | None, taken: frozenset[str]
    ) -> DefinitionChanges | None:
        """Return what a machine is to be changed by, None where that has to be worked out.

        :param kept: the providers of its tree, None if it is not kept
        :param taken: the names of all providers that were read
        """
        pattern = self._pattern(entry)
        if pattern is None:
            return None
        called = pattern.called(entry.name)
        new = called if kept is None else [name for name in called if name not in kept]
        if len(set(called)) != len(called) or not taken.isdisjoint(new):
            return None
        # what follows on the name of a machine was checked with the first one, and is no uuid
        if len(entry.name) + pattern.longest > names.MAX_PROVIDER_NAME:
            return None
        alone = (name for name in (entry.name, *pattern.others) if kept is None or name not in kept)
        if any(names.is_uuid(names.provider_name(name)) for name in alone):
            return None
        if kept is None:
            return pattern.made(called)
        return pattern.changed(called, kept, self._prune)

    def _pattern(self, entry: Entry) -> Pattern | None:
        key = id(entry.part), entry.is_pool
        found = self._found.get(key)
        if found is None:  # with the entry itself, whose id is used again if it goes
            found = self._found[key] = entry.part, self._worked_out(entry)
        return found[1]

    def _worked_out(self, entry: Entry) -> Pattern | None:
        """Return the pattern of an entry, None if it can be nothing by itself."""
        try:
            return Pattern.of(diff(None, tree_of(entry, None, self._had, self._prune)), entry)
        except exceptions.InvalidInput:
            return None
