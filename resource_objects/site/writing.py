"""From definitions of providers to the entries of a site, and from entries to text."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from resource_objects.exceptions import InvalidInput
from resource_objects.host.partitions import MIG_CARDS, mig_placements, mig_slices
from resource_objects.names import natural_order, resource_class_order
from resource_objects.providers.definition import ProviderDefinition, ShareRecord, to_records
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.pools import SHARES
from resource_objects.resources import Inventories, resource
from resource_objects.resources.records import InventoryRecord, KindRecord
from resource_objects.site.parts import Outage, SitePart, read_share
from resource_objects.site.ranges import relative_key

#: Cards whose placements are providers, by the partitioning of the card itself.
_CARDS = {
    f"partitions={'+'.join(f'{name}*{n}' for name, n in sorted(mig_slices(card).items()))}": card
    for card in MIG_CARDS
}
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})", re.DOTALL)
#: The values of an entry that its own records determine: inventories, split, shares, structured.
_Body = tuple[str | None, str | None, tuple[str, ...] | None, tuple[tuple[str, str, str], ...]]


class Writer:
    """Makes entries of definitions; equal records are converted once.

    :param disabled: the disabled providers by uuid
    """

    def __init__(
        self, definitions: Iterable[ProviderDefinition], disabled: Mapping[str, Disabled]
    ) -> None:
        self._names: dict[str, str] = {}
        self._children: dict[str | None, list[ProviderDefinition]] = defaultdict(list)
        for definition in definitions:
            self._names[definition.uuid] = definition.name
            self._children[definition.parent_uuid].append(definition)
        self._disabled = disabled
        self._texts: dict[InventoryRecord, str] = {}
        self._bodies: dict[Any, _Body] = {}

    @property
    def roots(self) -> list[ProviderDefinition]:
        """The roots of the trees."""
        return self._children[None]

    def part(
        self, provider: ProviderDefinition, root: ProviderDefinition, parent: str | None = None
    ) -> SitePart:
        """Return the entry of a provider of the tree of a root."""
        order = sorted(
            provider.inventories, key=lambda record: resource_class_order(record.resource_class)
        )
        records = tuple(order)
        shares = tuple(sorted(self._share(share, provider, root) for share in provider.shares))
        key = (records, provider.kinds, shares)
        if key not in self._bodies:
            self._bodies[key] = self._body(*key)
        inventories, split, stated_shares, structured = self._bodies[key]
        children = self._children.get(provider.uuid, [])
        if split in _CARDS:
            split, children = self._card(provider, split, children)
        traits = provider.traits - {SHARES} if provider is root else provider.traits
        disabled = self._disabled.get(provider.uuid)
        return SitePart(
            relative_key(provider.name, parent),
            inventories,
            tuple(sorted(traits)) or None,
            tuple(sorted(provider.aggregates or ())) or None,
            split,
            stated_shares,
            structured,
            None if disabled is None else Outage.of(disabled),
            join(self.part(child, root, provider.name) for child in children) if children else (),
        )

    def _card(
        self, card: ProviderDefinition, split: str, children: list[ProviderDefinition]
    ) -> tuple[str, list[ProviderDefinition]]:
        """Return the word of a card and its further children, if it has all its placements."""
        placements = {
            f"{card.name}/{place}": (
                *to_records(Inventories({name: 1})),
                {ShareRecord(name, card.uuid, part, count) for part, count in uses.items()},
            )
            for place, (name, uses) in mig_placements(_CARDS[split]).items()
        }
        plain = {
            child.name: (child.inventories, child.kinds, set(child.shares))
            for child in children
            if not (child.traits or child.aggregates or child.uuid in self._children)
            and child.uuid not in self._disabled
        }
        if not placements.items() <= plain.items():
            return split, children
        return _CARDS[split], [child for child in children if child.name not in placements]

    def _share(
        self, share: ShareRecord, provider: ProviderDefinition, root: ProviderDefinition
    ) -> str:
        text = f"{share.resource_class} uses {share.factor} {share.of_class}"
        if share.of_uuid == provider.uuid:
            return text
        name = self._names[share.of_uuid]
        return f"{text} of {'/' if share.of_uuid == root.uuid else relative_key(name, root.name)}"

    def _body(
        self,
        records: Sequence[InventoryRecord],
        kinds: Sequence[KindRecord],
        shares: tuple[str, ...],
    ) -> _Body:
        if shares and (body := self._partitioned(records, kinds, shares)):
            return body
        by_class = {record.resource_class: record for record in records}
        structured = tuple(
            (kind.resource_class, self._text([by_class[name] for name in kind.classes]), kind.body)
            for kind in kinds
        )
        within = {name for kind in kinds for name in kind.classes}
        counted = [record for record in records if record.resource_class not in within]
        return self._text(counted) or None, None, shares or None, structured

    def _partitioned(
        self,
        records: Sequence[InventoryRecord],
        kinds: Sequence[KindRecord],
        shares: tuple[str, ...],
    ) -> _Body | None:
        """Return the values with the word of a partitioning that results in these records."""
        uses: dict[str, dict[str, int]] = {}
        for text in shares:
            name, factor, of_class, of = read_share(text)
            if of is not None:
                return None
            uses.setdefault(name, {})[of_class] = factor
        within = {name for kind in kinds for name in kind.classes}
        for device_class, slices in uses.items():
            parts = {*slices, *uses} - {device_class}
            if parts & within:
                continue  # functions of one card
            counted = [record for record in records if record.resource_class not in parts]
            inventories, _, _, structured = self._body(counted, kinds, ())
            for word in _words(device_class, slices, uses):
                part = SitePart("device", inventories, split=word, structured=structured)
                try:
                    definition = part.definition()
                except InvalidInput:
                    continue
                texts = (
                    f"{share.resource_class} uses {share.factor} {share.of_class}"
                    for share in definition.shares
                )
                if (
                    sorted(texts) == list(shares)
                    and set(definition.inventories) == set(records)
                    and set(definition.kinds) == set(kinds)
                ):
                    return inventories, word, None, structured
        return None

    def _text(self, records: Iterable[InventoryRecord]) -> str:
        for record in records:
            if record not in self._texts:
                kind = resource(record.resource_class)
                figures = kind.format_inventory(kind.inventory_from_records([record]))
                self._texts[record] = f"{record.resource_class}={figures}"
        return ",".join(self._texts[record] for record in records)


def _words(
    device_class: str, slices: Mapping[str, int], uses: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """Yield the words that may describe how a device is partitioned."""
    yield from ("halves", "thousandths")
    order = sorted(slices)
    parts = [
        f"/{name}*{'+'.join(str(uses[name].get(part, 0)) for part in order)}"
        for name in sorted(uses)
        if name != device_class
    ]
    yield f"partitions={'+'.join(f'{name}*{slices[name]}' for name in order)}{''.join(parts)}"


def join(parts: Iterable[SitePart]) -> tuple[SitePart, ...]:
    """Return entries in natural order; those that differ only in a last number become a range."""
    joined: list[SitePart] = []
    runs: dict[SitePart, tuple[int, str, str]] = {}  # (place in joined, first number, last number)
    for part in sorted(parts, key=lambda part: natural_order(part.name)):
        match = _NUMBERED.fullmatch(part.name)
        if match is None:
            joined.append(part)
            continue
        body = dataclasses.replace(part, name=match[1])
        place, first, last = runs.get(body, (-1, "", ""))
        width = len(first) if first[:1] == "0" else 0
        if place >= 0 and match[2] == str(int(last) + 1).zfill(width):
            runs[body] = place, first, match[2]
            joined[place] = dataclasses.replace(part, name=f"{match[1]}[{first}-{match[2]}]")
        else:
            runs[body] = len(joined), match[2], match[2]
            joined.append(part)
    return tuple(joined)
