"""Shares: what an allocation also uses elsewhere, and what it comes to when they change (D2)."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable

from resource_objects import exceptions
from resource_objects.backends.memory.draft import Draft
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.definition import ProviderDefinition
from resource_objects.providers.orders import Key
from resource_objects.providers.sharing import check_shares


def replace(draft: Draft, definitions: Iterable[ProviderDefinition]) -> None:
    """Give providers the shares of their definitions, with what allocations use through them."""
    found = list(definitions)
    for definition in found:
        for name in draft.providers[definition.uuid].classes:
            _set(draft, (definition.uuid, name), ())
    for definition in found:
        for source, wanted in _by_source(definition).items():
            if draft.rows.get(source) is None:
                raise exceptions.StaleDefinition(definition.name, f"{source[1]} is gone")
            _set(draft, source, tuple(wanted))


def check_trees(draft: Draft, roots: Iterable[str]) -> None:
    """Check all shares of some trees (see ``check_shares``). Cost: linear in these trees."""
    root_of = {root: root for root in roots}
    pairs: list[tuple[Key, Key]] = []
    waiting = list(root_of)
    for uuid in waiting:  # grows while it is read
        for child in draft.children.get(uuid):
            root_of[child] = root_of[uuid]
            waiting.append(child)
        for name in draft.providers[uuid].classes:
            pairs += [((uuid, name), of) for of, _ in draft.rows[uuid, name].shares]
    check_shares(pairs, root_of, {uuid: draft.providers[uuid].name for uuid in waiting})


def _by_source(definition: ProviderDefinition) -> dict[Key, list[tuple[Key, int]]]:
    found: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
    for share in definition.shares:
        source = definition.uuid, share.resource_class
        found[source].append(((share.of_uuid, share.of_class), share.factor))
    return found


def _set(draft: Draft, source: Key, wanted: tuple[tuple[Key, int], ...]) -> None:
    row = draft.rows[source]
    for of, factor in row.shares:
        draft.sharers.put(of, source, None)
        _use(draft, source, of, -row.direct * factor)
    for of, factor in wanted:
        draft.sharers.put(of, source, factor)
        _use(draft, source, of, row.direct * factor)
    draft.rows.put(source, dataclasses.replace(draft.rows[source], shares=wanted))


def _use(draft: Draft, source: Key, of: Key, amount: int) -> None:
    row = draft.rows.get(of)
    if row is None:
        raise exceptions.StaleDefinition(draft.providers[source[0]].name, f"{of[1]} is gone")
    if amount:
        used = row.record.used + amount
        if used > MAX_AMOUNT:
            raise exceptions.InvalidAmount("used", used, f"at most {MAX_AMOUNT}")
        record = dataclasses.replace(row.record, used=used)
        draft.rows.put(of, dataclasses.replace(row, record=record))
        draft.touch(of[0])
