"""Another name for a resource class: everything counted in it is kept by the new name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from resource_objects.backends.memory.draft import Draft
from resource_objects.backends.memory.state import Kept, Taken
from resource_objects.providers.orders import ClaimRecord, Key
from resource_objects.resources.records import KindRecord


def rename_class(draft: Draft, old: str, new: str) -> None:
    """Keep everything that is counted in ``old`` as ``new``. Cost: linear in the ledger."""
    moved = [uuid for uuid, kept in draft.providers.items() if old in _said(draft, kept)]
    for uuid in moved:
        kept = draft.providers[uuid]
        classes = tuple(new if name == old else name for name in kept.classes)
        kinds = tuple(_kind(kind, old, new) for kind in kept.kinds)
        draft.rename(dataclasses.replace(kept, classes=classes, kinds=kinds))
        if old in kept.classes:
            _move_row(draft, (uuid, old), (uuid, new))
    _rename_shares(draft, old, new)


def _said(draft: Draft, kept: Kept) -> Iterator[str]:
    """Yield every class that the definition of a provider names."""
    yield from kept.classes
    for kind in kept.kinds:
        yield kind.resource_class
        yield from kind.classes
    for name in kept.classes:
        for of, _ in draft.rows[kept.uuid, name].shares:
            yield of[1]


def _kind(kind: KindRecord, old: str, new: str) -> KindRecord:
    name = new if kind.resource_class == old else kind.resource_class
    classes = tuple(new if found == old else found for found in kind.classes)
    return dataclasses.replace(kind, resource_class=name, classes=classes)


def _move_row(draft: Draft, old: Key, new: Key) -> None:
    row = draft.rows[old]
    record = dataclasses.replace(row.record, resource_class=new[1])
    draft.rows.put(old, None)
    draft.rows.put(new, dataclasses.replace(row, record=record))
    for consumer, amount in draft.holders.get(old).items():
        draft.holders.put(old, consumer, None)
        draft.holders.put(new, consumer, amount)
        draft.claims.put(consumer, _claim(draft.claims[consumer], old, new))
    for unit, taken in draft.units.get(old[0]).items():
        if taken.resource_class == old[1]:
            draft.units.put(old[0], unit, Taken(taken.consumer, new[1]))


def _claim(claim: ClaimRecord, old: Key, new: Key) -> ClaimRecord:
    held = tuple(
        dataclasses.replace(one, resource_class=new[1]) if one.key == old else one
        for one in claim.held
    )
    return dataclasses.replace(claim, held=held)


def _rename_shares(draft: Draft, old: str, new: str) -> None:
    def key(found: Key) -> Key:
        return (found[0], new) if found[1] == old else found

    for source, row in list(draft.rows.items()):
        if row.shares and (source[1] == new or any(of[1] == old for of, _ in row.shares)):
            before = (source[0], old) if source[1] == new else source
            for of, factor in row.shares:
                draft.sharers.put(of, before, None)
                draft.sharers.put(key(of), source, factor)
            shares = tuple((key(of), factor) for of, factor in row.shares)
            draft.rows.put(source, dataclasses.replace(row, shares=shares))
