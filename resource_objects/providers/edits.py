"""Changes of single providers of a kept tree: the tree as it is wanted, or the changes. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from resource_objects import exceptions
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderUpdate,
    definition_of,
)
from resource_objects.providers.provider import MAX_DEPTH, Provider, Share

_NOTHING = frozenset[str]()


def edited(root: Provider, edits: Mapping[str, Mapping[str, Any]]) -> Provider:
    """Return a tree like a kept one, with other fields at some providers; it is not changed.

    Shares follow a provider that gets another name. Cost: linear in the tree.

    :param edits: ``{uuid: {field: value}}``

    >>> host = Provider("host0", "VCPU=8", uuid="1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33")
    >>> print(edited(host, {host.uuid: {"inventories": "VCPU=16"}}))
    host0: VCPU=16
    """
    renamed = {
        provider.name: changes["name"]
        for provider in root.walk()
        if "name" in (changes := edits.get(provider.uuid or "", {}))
    }
    made: dict[int, Provider] = {}
    for provider in reversed(list(root.walk())):  # children before parents
        children = [made.pop(id(child)) for child in provider.children]
        made[id(provider)] = _rebuilt(
            provider, children, edits.get(provider.uuid or "", {}), renamed
        )
    return made[id(root)]


def _rebuilt(
    provider: Provider,
    children: list[Provider],
    changes: Mapping[str, Any],
    renamed: Mapping[str, str],
) -> Provider:
    """Return a provider with changes, or the one given where nothing of it changes."""
    shares = [_renamed(share, renamed) for share in provider.shares]
    same = all(now is before for now, before in zip(children, provider.children, strict=True))
    if same and not changes and all(s is b for s, b in zip(shares, provider.shares, strict=True)):
        return provider
    fields = {
        name: getattr(provider, name)
        for name in ("name", "inventories", "traits", "uuid", "generation", "aggregates")
    }
    return Provider(**{**fields, "children": children, "shares": shares, **changes})


def _renamed(share: Share, renamed: Mapping[str, str]) -> Share:
    return share.replace(of=renamed[share.of]) if share.of in renamed else share


def without(root: Provider, gone: Provider) -> Provider:
    """Return a tree like a kept one without one provider (not the root) and all below it."""
    for provider in root.walk():
        if any(child is gone for child in provider.children):
            left = [child for child in provider.children if child is not gone]
            return edited(root, {provider.uuid or "": {"children": left}})
    return root


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """What moves a provider: the changes, and what must not have changed meanwhile."""

    changes: DefinitionChanges
    unchanged: tuple[tuple[str, int], ...] = ()


def moved(roots: Iterable[Provider], provider: Provider, parent: Provider | None) -> Moved:
    """Return what makes a provider of some kept trees a child of another one, or a root.

    Everything below goes with it, and so its generation rises too where the tree is another one.
    Of those above the new parent nobody may move meanwhile, or the way up would have no end.

    :raises InvalidTree: if the parent is the provider or below it, a share would cross trees, or
        the tree would be too deep
    """
    above = {id(one): up for root in roots for one, up in root.parents()}
    before = above[id(provider)]
    if parent is before:
        return Moved(DefinitionChanges(provider.name))
    way, way_before = list(_upwards(parent, above)), list(_upwards(provider, above))
    if any(one is provider for one in way):
        raise exceptions.InvalidTree(
            f"parent of {provider.name}", parent and parent.name, "a provider not below it"
        )
    _check_depth(provider, len(way))
    is_other_tree = not way or way[-1] is not way_before[-1]
    if is_other_tree:
        _check_shares(way_before[-1], provider)
    below = [one for one in provider.walk() if one is not provider] if is_other_tree else []
    touched = [*below, *(one for one in (before, parent) if one is not None)]
    uuids = {one.name: one.uuid or "" for root in roots for one in root.walk()}
    updates = [_update(provider, parent, uuids)]
    updates += [_update(one, above[id(one)], uuids, only_children=True) for one in touched]
    guarded = {update.definition.uuid for update in updates}
    return Moved(
        DefinitionChanges(provider.name, updates=tuple(updates)),
        tuple((one.uuid or "", one.generation or 0) for one in way if one.uuid not in guarded),
    )


def _upwards(provider: Provider | None, above: Mapping[int, Provider | None]) -> Iterator[Provider]:
    while provider is not None:
        yield provider
        provider = above[id(provider)]


def _update(
    provider: Provider,
    parent: Provider | None,
    uuids: Mapping[str, str],
    *,
    only_children: bool = False,
) -> ProviderUpdate:
    above = None if parent is None else parent.uuid
    definition = definition_of(provider, provider.uuid or "", above, uuids)
    return ProviderUpdate(
        definition, provider.generation or 0, (), (), _NOTHING, _NOTHING, only_children
    )


def _check_shares(root: Provider, leaving: Provider) -> None:
    """Raise if a share of a tree would lead out of what leaves it, or into that."""
    names = {one.name for one in leaving.walk()}
    for one in root.walk():
        for share in one.shares:
            if (one.name in names) != (share.of in names):
                raise exceptions.InvalidTree(
                    f"shares of {one.name}", str(share), f"none across the move of {leaving.name}"
                )


def _check_depth(provider: Provider, above: int) -> None:
    """Raise if a subtree would be too deep below so many providers."""
    level, depth = [provider], above - 1
    while level:
        level, depth = [child for one in level for child in one.children], depth + 1
    if depth > MAX_DEPTH:
        raise exceptions.InvalidTree(
            f"place of {provider.name}", f"{depth} levels deep", f"at most {MAX_DEPTH} levels"
        )
