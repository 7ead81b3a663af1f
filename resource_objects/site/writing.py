"""From trees of providers to the entries of a site, and from entries to text."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from resource_objects import exceptions
from resource_objects.host.partitions import MIG_CARDS, mig_placements, mig_slices
from resource_objects.names import natural_order, resource_class_order
from resource_objects.providers.definition import ProviderDefinition, ShareRecord, to_records
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.pools import SHARES
from resource_objects.resources import Inventories, resource
from resource_objects.resources.records import InventoryRecord, KindRecord
from resource_objects.site.parts import (
    ITSELF,
    Outage,
    SitePart,
    inventories_of_part,
    read_share,
)
from resource_objects.site.ranges import key_below

#: Cards of which each placement is a provider, by how they themselves are split.
_CARDS = {
    f"partitions={'+'.join(f'{name}*{n}' for name, n in sorted(mig_slices(card).items()))}": card
    for card in MIG_CARDS
}

_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})", re.DOTALL)


class Writer:
    """Makes entries of trees of definitions; what is equal is worked out once.

    :param out: what of them is out of service, by uuid
    """

    def __init__(
        self,
        definitions: Iterable[ProviderDefinition],
        out: Mapping[str, Disabled],
    ) -> None:
        self._names: dict[str, str] = {}
        self._below: dict[str | None, list[ProviderDefinition]] = defaultdict(list)
        for one in definitions:
            self._names[one.uuid] = one.name
            self._below[one.parent_uuid].append(one)
        self._out = out
        self._texts: dict[InventoryRecord, str] = {}
        self._bodies: dict[Any, tuple[Any, ...]] = {}

    @property
    def roots(self) -> list[ProviderDefinition]:
        """The roots of the trees."""
        return self._below[None]

    def part(
        self, one: ProviderDefinition, root: ProviderDefinition, parent: str | None = None
    ) -> SitePart:
        """Return the entry of a provider of the tree of a root."""
        records = tuple(sorted(one.inventories, key=_in_order))
        shares = tuple(sorted(self._share(share, one, root) for share in one.shares))
        key = (records, one.kinds, shares)
        body = self._bodies.get(key)
        if body is None:
            body = self._bodies[key] = self._body(records, one.kinds, shares)
        inventories, split, shares, structured = body
        below = self._below.get(one.uuid, [])
        if split in _CARDS:
            split, below = self._card(one, split, below)
        traits = one.traits - {SHARES} if one is root else one.traits
        return SitePart(
            key_below(one.name, parent),
            inventories,
            tuple(sorted(traits)) or None,
            tuple(sorted(one.aggregates or ())) or None,
            split,
            shares,
            structured,
            Outage.of(self._out[one.uuid]) if one.uuid in self._out else None,
            joined(self.part(each, root, one.name) for each in below) if below else (),
        )

    def _card(
        self, one: ProviderDefinition, split: str, below: list[ProviderDefinition]
    ) -> tuple[str, list[ProviderDefinition]]:
        """Return how a card is split, and what else is below it if it has all its placements."""
        made = {
            child.name.removeprefix(f"{one.name}/"): _placed(child, one)
            for child in below
            if not (child.traits or child.aggregates or child.uuid in self._below)
            and child.uuid not in self._out
        }
        wanted = {
            place: (to_records(Inventories({name: 1})), {(name, *use) for use in uses.items()})
            for place, (name, uses) in mig_placements(_CARDS[split]).items()
        }
        if not wanted.items() <= made.items():
            return split, below
        own = {f"{one.name}/{place}" for place in wanted}
        return _CARDS[split], [child for child in below if child.name not in own]

    def _share(self, share: ShareRecord, one: ProviderDefinition, root: ProviderDefinition) -> str:
        said = f"{share.resource_class} uses {share.factor} {share.of_class}"
        if share.of_uuid == one.uuid:
            return said
        name = self._names[share.of_uuid]
        return f"{said} of {'/' if share.of_uuid == root.uuid else key_below(name, root.name)}"

    def _body(
        self,
        records: Sequence[InventoryRecord],
        kinds: Sequence[KindRecord],
        shares: tuple[str, ...],
    ) -> tuple[Any, ...]:
        if shares:
            split = self._split(records, kinds, shares)
            if split is not None:
                return split
        within = {name for kind in kinds for name in kind.classes}
        own = [record for record in records if record.resource_class not in within]
        by_class = {record.resource_class: record for record in records}
        structured = tuple(
            (kind.resource_class, self._text([by_class[one] for one in kind.classes]), kind.body)
            for kind in kinds
        )
        return self._text(own) or None, None, shares or None, structured

    def _split(
        self,
        records: Sequence[InventoryRecord],
        kinds: Sequence[KindRecord],
        shares: tuple[str, ...],
    ) -> tuple[Any, ...] | None:
        """Return the body with the word that says how a device is split, if there is one."""
        uses: dict[str, dict[str, int]] = {}
        for text in shares:
            name, factor, of_class, of = read_share(text)
            if of is not None:
                return None
            uses.setdefault(name, {})[of_class] = factor
        for whole, slices in uses.items():
            made = {*slices, *uses} - {whole}
            if made.intersection(name for kind in kinds for name in kind.classes):
                continue  # functions of one card
            base = [record for record in records if record.resource_class not in made]
            inventories, _, _, structured = self._body(base, kinds, ())
            for word in _words(whole, slices, uses):
                part = SitePart(ITSELF, inventories, split=word, structured=structured)
                try:
                    found, of_split = inventories_of_part(part)
                except exceptions.InvalidInput:
                    continue
                again = sorted(str(share).removesuffix(f" of {ITSELF}") for share in of_split)
                if again == list(shares) and _alike(to_records(found), (records, kinds)):
                    return inventories, word, None, structured
        return None

    def _text(self, records: Iterable[InventoryRecord]) -> str:
        return ",".join(map(self._figure, records))

    def _figure(self, record: InventoryRecord) -> str:
        found = self._texts.get(record)
        if found is None:
            kind = resource(record.resource_class)
            figures = kind.format_inventory(kind.inventory_from_records([record]))
            found = self._texts[record] = f"{record.resource_class}={figures}"
        return found


def _placed(child: ProviderDefinition, card: ProviderDefinition) -> Any:
    """Return the inventories of a provider below a card, and what it uses of the card."""
    shares = child.shares
    if any(share.of_uuid != card.uuid for share in shares):
        return None
    uses = {(share.resource_class, share.of_class, share.factor) for share in shares}
    return (tuple(child.inventories), tuple(child.kinds)), uses


def joined(parts: Iterable[SitePart]) -> tuple[SitePart, ...]:
    """Return entries in natural order, those that are equal but for a last number as one."""
    ordered = sorted(parts, key=lambda part: natural_order(part.name))
    found: list[SitePart] = []
    runs: dict[SitePart, tuple[int, str, str]] = {}  # body: (place, first number, last number)
    for part in ordered:
        match = _NUMBERED.fullmatch(part.name)
        if match is None:
            found.append(part)
            continue
        body = dataclasses.replace(part, name=match[1])
        place, first, last = runs.get(body, (-1, "", ""))
        width = len(first) if first[:1] == "0" else 0
        if place >= 0 and match[2] == str(int(last) + 1).zfill(width):
            runs[body] = place, first, match[2]
            found[place] = dataclasses.replace(part, name=f"{match[1]}[{first}-{match[2]}]")
        else:
            runs[body] = len(found), match[2], match[2]
            found.append(part)
    return tuple(found)


def _words(
    whole: str, slices: Mapping[str, int], uses: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """Yield the words that may say how a device is split."""
    yield from ("halves", "thousandths")
    order = sorted(slices)
    of_parts = [(name, uses[name]) for name in sorted(uses) if name != whole]
    parts = [f"/{name}*{'+'.join(str(used.get(s, 0)) for s in order)}" for name, used in of_parts]
    yield f"partitions={'+'.join(f'{s}*{slices[s]}' for s in order)}{''.join(parts)}"


def _in_order(record: InventoryRecord) -> tuple[int, str]:
    return resource_class_order(record.resource_class)


def _alike(one: tuple[Iterable[Any], ...], other: tuple[Iterable[Any], ...]) -> bool:
    """Return whether both are the same records, in whichever order."""
    return [*map(frozenset, one)] == [*map(frozenset, other)]


# --- text ---


_PLAIN = re.compile(r"[A-Za-z0-9_/.][A-Za-z0-9_/.=,:+*@\[\]\\-]*(?<!:)")
_IN_LIST = re.compile(r"[A-Za-z0-9_/.][A-Za-z0-9_/.=+*@-]*")

#: Words that stand for themselves where a reason does, and for nothing else (YAML 1.1).
_REASON = re.compile(r"(?i)(?!(?:true|false|yes|no|on|off|null)\Z)[a-z_][a-z0-9_-]*")


def entry_lines(part: SitePart, indent: str) -> Iterator[str]:
    """Yield the lines of an entry."""
    inner = f"{indent}  "
    said = list(_values(part))
    if not said and not part.structured and not part.children:
        yield f"{indent}{_scalar(part.name)}: {{}}"
        return
    yield f"{indent}{_scalar(part.name)}:"
    yield from (f"{inner}{line}" for line in said)
    if part.structured:
        yield f"{inner}structured:"
        for name, classes, body in part.structured:
            yield f"{inner}  {name}:"
            yield f"{inner}    classes: {_scalar(classes)}"
            yield f"{inner}    body: {_ascii(body)}"
    if part.children:
        yield f"{inner}children:"
        for child in part.children:
            yield from entry_lines(child, f"{inner}  ")


def _values(part: SitePart) -> Iterator[str]:
    if part.inventories is not None:
        yield f"inventories: {_scalar(part.inventories)}"
    if part.split is not None:
        yield f"split: {_scalar(part.split)}"
    if part.disabled is not None:
        yield f"disabled: {_outage(part.disabled)}"
    for word in ("traits", "aggregates", "shares"):
        given = getattr(part, word)
        if given is not None:
            yield f"{word}: [{', '.join(_scalar(one, _IN_LIST) for one in given)}]"


def _outage(outage: Outage) -> str:
    if outage.reason is None:
        return "false"
    if outage.until is None:
        return _scalar(outage.reason, _REASON)
    said = (outage.reason, outage.until.isoformat())
    reason, until = (_scalar(one, _IN_LIST) for one in said)
    return f"{{reason: {reason}, until: {until}}}"


def _scalar(text: str, plain: re.Pattern[str] = _PLAIN) -> str:
    """Return text as a YAML scalar: plain where it can be, else in double quotes."""
    if plain.fullmatch(text):
        return text
    return '"' + "".join(map(_quoted, text)) + '"'


def _quoted(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def _ascii(body: str) -> str:
    """Return JSON as YAML of one line, in which nothing needs two escapes."""
    return _flow(json.loads(body)) if body else '""'


def _flow(value: Any) -> str:
    if isinstance(value, str):
        return '"' + "".join(map(_quoted, value)) + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_flow(key)}: {_flow(one)}' for key, one in value.items())}}}"
    return json.dumps(value)
