"""The tree of a machine, as its entry says it beside what is kept. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping

from resource_objects import names
from resource_objects.providers import Provider
from resource_objects.providers.pools import SHARES
from resource_objects.providers.provider import Share
from resource_objects.resources import Inventories
from resource_objects.site.parts import (
    PARENT,
    Entry,
    Outage,
    PartInventories,
    SitePart,
    read_share,
)
from resource_objects.site.ranges import expanded


def tree_of(entry: Entry, kept: Provider | None, had: PartInventories, prune: bool) -> Provider:
    """Return the tree of a machine, as an entry says it beside what is kept.

    :param had: what entries have, kept between calls
    :param prune: whether what is not named goes, instead of being left alone
    """
    known = {} if kept is None else {one.name: one for one in kept.walk()}
    said = {entry.name, *(below for below, _ in providers_below(entry.part, entry.name))}
    return _Tree(entry, had, known, said, prune).provider(entry.part, entry.name)


def outages_of(entry: Entry, prune: bool) -> dict[str, Outage]:
    """Return what an entry says of which providers are in service, by name.

    :param prune: whether one of which it says nothing is, instead of being left alone
    """
    return dict(_outages(entry.part, entry.name, Outage() if prune else None))


def _outages(part: SitePart, name: str, otherwise: Outage | None) -> Iterator[tuple[str, Outage]]:
    said = otherwise if part.disabled is None else part.disabled
    if said is not None:
        yield name, said
    for child in part.below:
        for below in expanded(child.name, name):
            yield from _outages(child, below, otherwise)


@dataclasses.dataclass(frozen=True, slots=True)
class _Tree:
    """One machine, being made."""

    entry: Entry
    had: PartInventories
    known: Mapping[str, Provider]
    said: Collection[str]
    prune: bool

    def provider(self, part: SitePart, name: str) -> Provider:
        kept = self.known.get(name)
        base = None if self.prune else kept
        inventories, shares = self._had(part, name, base)
        traits = frozenset(part.traits or ())
        if part.traits is None and base is not None:
            traits = base.traits
        if name == self.entry.name and self.entry.is_pool:
            traits |= {SHARES}
        aggregates: Iterable[str] | None = part.aggregates
        if aggregates is None and self.prune:
            aggregates = ()
        children = [
            self.provider(child, below)
            for child in part.below
            for below in expanded(child.name, name)
        ]
        if base is not None:
            children += [
                _left(one, self.said) for one in base.children if one.name not in self.said
            ]
        return Provider(
            name,
            inventories,
            traits=traits,
            uuid=kept.uuid if kept is not None else name if names.is_uuid(name) else None,
            generation=None if kept is None else kept.generation,
            children=children,
            aggregates=aggregates,
            shares=shares,
        )

    def _had(
        self, part: SitePart, name: str, base: Provider | None
    ) -> tuple[Inventories | None, tuple[Share, ...]]:
        if not part.says_inventories:
            said = tuple(self._share(text, name) for text in part.shares or ())
            if base is None:
                return None, said
            return base.inventories, base.shares if part.shares is None else said
        inventories, made = self.had.of(part)
        shares = [share.replace(of=name) for share in made]
        shares += [self._share(text, name) for text in part.shares or ()]
        return inventories, tuple(shares)

    def _share(self, text: str, name: str) -> Share:
        resource_class, factor, of_class, of = read_share(text)
        if of is None:
            where = name
        elif of == "/":
            where = self.entry.name
        elif of == PARENT:
            where = name.rpartition("/")[0]
        else:
            (where,) = expanded(of, self.entry.name)
        return Share(resource_class=resource_class, of=where, of_class=of_class, factor=factor)


def _left(kept: Provider, said: Collection[str]) -> Provider:
    """Return what is left alone of a kept child: all of it but what is named elsewhere."""
    if not any(one.name in said for one in kept.walk()):
        return kept
    return Provider(
        kept.name,
        kept.inventories,
        traits=kept.traits,
        uuid=kept.uuid,
        generation=kept.generation,
        children=[_left(one, said) for one in kept.children if one.name not in said],
        aggregates=kept.aggregates,
        shares=kept.shares,
    )


def providers_below(part: SitePart, name: str) -> Iterator[tuple[str, SitePart]]:
    """Yield the names of all that an entry makes below a provider, parents before children.

    Each with its own entry.
    """
    for child in part.below:
        for below in expanded(child.name, name):
            yield below, child
            yield from providers_below(child, below)
