"""Resource classes, traits and aggregates: made, renamed, given a level, removed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import os_resource_classes

from resource_objects import exceptions
from resource_objects import names as shapes
from resource_objects.backends.memory.draft import Draft
from resource_objects.backends.memory.rename import rename_class
from resource_objects.backends.memory.state import State
from resource_objects.providers.listing import ListedName
from resource_objects.providers.orders import NameAction, NameChange, NameKind
from resource_objects.resources import resource
from resource_objects.resources.traits import known_traits, standard_traits

CLASS, TRAIT, AGGREGATE = NameKind.RESOURCE_CLASS, NameKind.TRAIT, NameKind.AGGREGATE

_NOT_FOUND: dict[NameKind, type[exceptions.LedgerError]] = {
    CLASS: exceptions.ClassNotFound,
    TRAIT: exceptions.TraitNotFound,
    AGGREGATE: exceptions.AggregateNotFound,
}
_IN_USE: dict[NameKind, type[exceptions.LedgerError]] = {
    CLASS: exceptions.ClassInUse,
    TRAIT: exceptions.TraitInUse,
    AGGREGATE: exceptions.AggregateInUse,
}
#: Raise for a name that none of the kind can have.
_CHECKS: dict[NameKind, Callable[[str], object]] = {
    CLASS: resource,
    TRAIT: lambda name: known_traits([name]),
    AGGREGATE: shapes.aggregate_name,
}


def add_standard(state: State) -> None:
    """Put the names there that every ledger has from the start."""
    found = [(CLASS, name) for name in os_resource_classes.STANDARDS]
    found += [(TRAIT, name) for name in sorted(standard_traits())]
    state.names.update((key, ListedName(next(state.name_numbers), key[1])) for key in found)


def ensure(draft: Draft, kind: NameKind, name: str) -> None:
    """Make a name, if it is not there."""
    if draft.names.get((kind, name)) is None:
        draft.names.put((kind, name), ListedName(next(draft.state.name_numbers), name))


def change(draft: Draft, wanted: NameChange) -> None:
    """Carry out one change of a name."""
    _ACTIONS[wanted.action](draft, wanted)


def _ensure(draft: Draft, wanted: NameChange) -> None:
    _CHECKS[wanted.kind](wanted.name)
    ensure(draft, wanted.kind, wanted.name)


def _find(draft: Draft, wanted: NameChange) -> ListedName:
    found = draft.names.get((wanted.kind, wanted.name))
    if found is None:
        raise _NOT_FOUND[wanted.kind](wanted.name)
    return found


def _refuse_standard(wanted: NameChange) -> None:
    names = {CLASS: os_resource_classes.STANDARDS, TRAIT: standard_traits(), AGGREGATE: ()}
    if wanted.name in names[wanted.kind]:
        raise exceptions.StandardName(wanted.name)


def _rename(draft: Draft, wanted: NameChange) -> None:
    _refuse_standard(wanted)
    found = _find(draft, wanted)
    to = wanted.to or ""
    if to == found.name:
        return
    _CHECKS[wanted.kind](to)
    if draft.names.get((wanted.kind, to)) is not None:
        raise exceptions.NameExists(to)
    draft.names.put((wanted.kind, found.name), None)
    draft.names.put((wanted.kind, to), dataclasses.replace(found, name=to))
    if wanted.kind is CLASS:
        rename_class(draft, found.name, to)
        return
    for uuid in list(_users(draft, wanted)):
        kept = draft.providers[uuid]
        traits, aggregates = kept.traits, kept.aggregates
        if wanted.kind is TRAIT:
            traits = traits - {found.name} | {to}
        else:
            aggregates = aggregates - {found.name} | {to}
        draft.rename(dataclasses.replace(kept, traits=traits, aggregates=aggregates))


def _users(draft: Draft, wanted: NameChange) -> Iterator[str]:
    """Yield the providers that have a name."""
    for uuid, kept in draft.providers.items():
        has = {CLASS: kept.classes, TRAIT: kept.traits, AGGREGATE: kept.aggregates}
        if wanted.name in has[wanted.kind]:
            yield uuid


def _delete(draft: Draft, wanted: NameChange) -> None:
    _refuse_standard(wanted)
    _find(draft, wanted)
    if next(_users(draft, wanted), None) is not None:
        raise _IN_USE[wanted.kind](wanted.name)
    draft.names.put((wanted.kind, wanted.name), None)


def _set_level(draft: Draft, wanted: NameChange) -> None:
    if wanted.kind is not AGGREGATE:
        raise exceptions.InvalidField("kind", wanted.kind, "an aggregate: only those have levels")
    if wanted.to is not None:
        shapes.label(wanted.to, "level")
    found = dataclasses.replace(_find(draft, wanted), level=wanted.to)
    draft.names.put((wanted.kind, wanted.name), found)


_ACTIONS: dict[NameAction, Callable[[Draft, NameChange], None]] = {
    NameAction.ENSURE: _ensure,
    NameAction.RENAME: _rename,
    NameAction.DELETE: _delete,
    NameAction.SET_LEVEL: _set_level,
}
