"""Machines of an entry are equal but for their names: the first is worked out, others are named.

Working out a tree makes objects and checks them, which takes most of the time of applying a file.
What comes of it are records. Those of the next machine of the same entry are the same, with other
names and uuids; and a machine that is kept as these records say is as the file says.
"""

from __future__ import annotations

import dataclasses
import uuid as uuids
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from resource_objects import exceptions, names
from resource_objects.host.site.parts import Entry, PartInventories, SitePart
from resource_objects.host.site.trees import names_below, tree_of
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ShareRecord,
    diff,
)

#: The providers of a tree that is kept, by name.
Kept = Mapping[str, ProviderDefinition]


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """The providers of a machine, parents before children.

    ``place`` is where each, known by its uuid, stands in a list of their names.
    """

    providers: tuple[ProviderDefinition, ...]
    place: Mapping[str, int]

    @classmethod
    def of(cls, made: DefinitionChanges, called: Sequence[str]) -> Self:
        """Return the pattern of a machine that would be made, whose providers are called so."""
        place = {name: number for number, name in enumerate(called)}
        return cls(made.creates, {one.uuid: place[one.name] for one in made.creates})

    def named(self, called: Sequence[str], uuid: Sequence[str]) -> Iterator[ProviderDefinition]:
        """Yield the providers under other names and uuids."""
        for one in self.providers:
            at = self.place[one.uuid]
            above = None if one.parent_uuid is None else uuid[self.place[one.parent_uuid]]
            yield ProviderDefinition(
                uuid[at],
                called[at],
                above,
                one.inventories,
                one.traits,
                one.aggregates,
                tuple(sorted(self._share(share, uuid) for share in one.shares)),
                one.kinds,
            )

    def _share(self, share: ShareRecord, uuid: Sequence[str]) -> ShareRecord:
        of_uuid = uuid[self.place[share.of_uuid]]
        return ShareRecord(share.resource_class, of_uuid, share.of_class, share.factor)

    def made(self, root: str, called: Sequence[str]) -> DefinitionChanges:
        """Return what makes a machine of it."""
        new = [str(uuids.uuid4()) for _ in called]
        return DefinitionChanges(root, tuple(self.named(called, new)))

    def is_kept(self, called: Sequence[str], kept: Kept) -> bool:
        """Return whether a tree is kept as this says."""
        if len(kept) != len(called) or not all(name in kept for name in called):
            return False
        found = self.named(called, [kept[name].uuid for name in called])
        return all(_is_same(one, kept[one.name]) for one in found)


def _is_same(wanted: ProviderDefinition, kept: ProviderDefinition) -> bool:
    return (
        wanted.parent_uuid == kept.parent_uuid
        and wanted.traits == kept.traits
        and wanted.aggregates in (None, kept.aggregates)
        and wanted.shares == kept.shares
        and len(wanted.inventories) == len(kept.inventories)
        and all(one in kept.inventories for one in wanted.inventories)
        and len(wanted.kinds) == len(kept.kinds)
        and all(one in kept.kinds for one in wanted.kinds)
    )


class Patterns:
    """The patterns of entries, each worked out once; ``prune`` as :func:`tree_of` has it."""

    def __init__(self, had: PartInventories, prune: bool) -> None:
        self._had = had
        self._prune = prune
        self._found: dict[tuple[int, bool], tuple[SitePart, Pattern | None]] = {}

    def changes(self, entry: Entry, kept: Kept | None, others: Kept) -> DefinitionChanges | None:
        """Return what a machine is to be changed by, None where that has to be worked out.

        :param kept: the providers of its tree, None if it is not kept
        :param others: those of all trees that were read
        """
        pattern = self._pattern(entry)
        if pattern is None:
            return None
        called = _called(entry)
        if kept is not None:
            return DefinitionChanges(entry.name) if pattern.is_kept(called, kept) else None
        if len(set(called)) != len(called) or not others.keys().isdisjoint(called):
            return None
        if any(names.is_uuid(names.provider_name(name)) for name in called):
            return None
        return pattern.made(entry.name, called)

    def _pattern(self, entry: Entry) -> Pattern | None:
        key = id(entry.part), entry.is_pool
        found = self._found.get(key)
        if found is None:  # with the entry itself, whose id is used again if it goes
            found = self._found[key] = entry.part, self._worked_out(entry)
        return found[1]

    def _worked_out(self, entry: Entry) -> Pattern | None:
        """Return the pattern of an entry, None if it can be nothing by itself."""
        try:
            made = diff(None, tree_of(entry, None, self._had, self._prune))
            return Pattern.of(made, _called(entry))
        except exceptions.InvalidInput:
            return None


def _called(entry: Entry) -> tuple[str, ...]:
    """Return the names of all that an entry makes, always in one order."""
    return (entry.name, *names_below(entry.part, entry.name))
