"""One line of a drawing, without the branches: a provider, what it has, and who holds what of it.

The words are those of people, and every figure an inventory has can be said::

    gpu0   VGPU 8 reserved 1 min 1 max 4 step 2 used 4 by job-1   traits: CUSTOM_A   aggregates: b

Names of plain characters stand as they are, others between quotation marks, as in JSON.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from resource_objects import exceptions
from resource_objects.names import resource_class_order
from resource_objects.providers import Provider
from resource_objects.providers.provider import Share
from resource_objects.resources import IntegerInventory, resource

#: The trait of a pool, for which a drawing says ``pool``.
SHARING = "MISC_SHARES_VIA_AGGREGATE"
#: Who holds what is used by nobody who is named.
SOMEBODY = "somebody"

#: What a drawing calls the figures of an inventory.
_FIGURES = {
    "reserved": "reserved",
    "ratio": "allocation_ratio",
    "min": "min_unit",
    "max": "max_unit",
    "step": "step_size",
}
_DEFAULTS = {"reserved": 0, "min_unit": 1, "max_unit": None, "step_size": 1}
_PLAIN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:/@+-]*[A-Za-z0-9_.@/+-])?\Z", re.ASCII)
_WORD = re.compile(r'\s*("(?:[^"\\]|\\.)*"|,|[^\s,"]+)')
_SECTIONS = ("traits:", "aggregates:")


class Held(NamedTuple):
    """What a consumer holds of one provider; kept as it is drawn, ``amount`` is above 0."""

    consumer: str
    provider: str
    resource_class: str
    amount: int


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A line that is read. The name is as it stands there: it may stand for several."""

    name: str
    quoted: bool  #: whether the name is to be taken as it is
    provider: dict[str, Any]  #: what a Provider is made from, but for the name
    held: tuple[tuple[str, str, int], ...]  #: (consumer, resource class, amount)


class Words:
    """The words of a line, taken one after the other."""

    def __init__(self, text: str, where: str) -> None:
        self.where = where
        self._words = list(self._split(text))

    def _split(self, text: str) -> Iterator[tuple[str, bool]]:
        place = 0
        text = text.rstrip()
        while place < len(text):
            match = _WORD.match(text, place)
            if match is None:
                raise self.wrong(text[place:].strip(), "quotation marks in pairs")
            word, place = match[1], match.end()
            quoted = word.startswith('"')
            try:
                yield (json.loads(word) if quoted else word), quoted
            except ValueError as error:
                raise self.wrong(word, "what JSON has between quotation marks") from error

    def wrong(self, value: object, expected: str) -> exceptions.InvalidText:
        """Return the error of this line."""
        return exceptions.InvalidText(self.where, value, expected)

    def __bool__(self) -> bool:
        return bool(self._words)

    def next_is(self, *wanted: str) -> bool:
        """Return whether the next word is one of these, without quotation marks."""
        return bool(self._words) and self._words[0] in [(word, False) for word in wanted]

    def skip(self, wanted: str) -> bool:
        """Pass by a word if it is the next."""
        found = self.next_is(wanted)
        if found:
            del self._words[0]
        return found

    def take(self, expected: str) -> tuple[str, bool]:
        """Return the next word, and whether it has quotation marks."""
        if not self._words or self._words[0] == (",", False):
            raise self.wrong(self._words[0][0] if self._words else "the end of the line", expected)
        return self._words.pop(0)

    def name(self, expected: str) -> str:
        """Return the next word, a name."""
        return self.take(expected)[0]

    def number(self, expected: str) -> int:
        """Return the next word as a whole number."""
        word = self.name(expected)
        if not re.fullmatch(r"[0-9]{1,19}", word, re.ASCII):
            raise self.wrong(word, expected)
        return int(word)


def read_line(text: str, where: str) -> Line:
    """Return what a line without its branches says.

    :param where: what is read, for errors
    :raises InvalidText: if it is no such line
    :raises InvalidInput: for a value that cannot be, such as an unknown class or trait
    """
    words = Words(text, where)
    name, quoted = words.take("a provider's name")
    inventories: dict[str, IntegerInventory] = {}
    shares: list[Share] = []
    held: list[tuple[str, str, int]] = []
    traits: list[str] = []
    while words and not words.next_is(*_SECTIONS):
        if words.skip("pool"):
            traits.append(SHARING)
        else:
            _read_inventory(words, inventories, shares, held)
        if not words.skip(",") and words and not words.next_is(*_SECTIONS):
            raise words.wrong(words.name(""), "a comma, or a figure of the inventory")
    named = _read_sections(words)
    provider = {
        "inventories": inventories,
        "traits": [*traits, *named.get("traits:", ())],
        "aggregates": named.get("aggregates:", []),
        "shares": shares,
    }
    return Line(name, quoted, provider, tuple(held))


def _read_inventory(
    words: Words,
    inventories: dict[str, IntegerInventory],
    shares: list[Share],
    held: list[tuple[str, str, int]],
) -> None:
    kind = words.name("a resource class")
    if kind in inventories:
        raise words.wrong(kind, "each resource class once")
    if not issubclass(resource(kind).inventory_kind, IntegerInventory):
        raise words.wrong(kind, "a class that is counted")
    figures: dict[str, Any] = {"total": words.number(f"how much there is of {kind}")}
    while words and not words.next_is(",", *_SECTIONS):
        figure = words.name("a figure")
        if figure == "used":
            held.append(_read_held(words, kind, [who for who, what, _ in held if what == kind]))
        elif figure == "uses":
            shares.append(_read_share(words, kind))
        elif figure not in _FIGURES or _FIGURES[figure] in figures:
            known = ", ".join([*_FIGURES, "used", "uses"])
            raise words.wrong(figure, f"one of {known}, or a comma; each figure once")
        elif figure == "ratio":
            figures["allocation_ratio"] = words.name("a ratio")
        else:
            figures[_FIGURES[figure]] = words.number(f"a whole number after {figure}")
    inventories[kind] = IntegerInventory(**figures, resource_class=kind)


def _read_held(words: Words, kind: str, known: list[str]) -> tuple[str, str, int]:
    amount = words.number("how much is used")
    consumer = words.name("a consumer's name") if words.skip("by") else SOMEBODY
    if amount < 1 or consumer in known:
        raise words.wrong(f"used {amount} by {consumer}", "1 or more, and each consumer once")
    return consumer, kind, amount


def _read_share(words: Words, kind: str) -> Share:
    factor = words.number("how many each one uses")
    of_class = words.name("a resource class")
    if not words.skip("of"):
        raise words.wrong(f"uses {factor} {of_class}", "of, and a provider's name")
    of = words.name("a provider's name")
    return Share(resource_class=kind, of=of, of_class=of_class, factor=factor)


def _read_sections(words: Words) -> dict[str, list[str]]:
    """Read the lists of names at the end of a line."""
    found: dict[str, list[str]] = {}
    while words:
        section = words.name("traits: or aggregates:")
        if section in found:
            raise words.wrong(section, "each list once")
        found[section] = [words.name("a name")]
        while words and not words.next_is(*_SECTIONS):
            words.skip(",")
            name = words.name("a name")
            if name in found[section]:
                raise words.wrong(name, "each name once")
            found[section].append(name)
    return found


# --- and back ---


def plain(name: str) -> str:
    """Return a name as it is drawn: between quotation marks if it could be taken for more.

    >>> print(plain("host0/gpu1"), plain("my host"))
    host0/gpu1 "my host"
    """
    return name if _PLAIN.match(name) else json.dumps(name, ensure_ascii=False)


def written(provider: Provider, held: list[Held]) -> str:
    """Return what a provider has as it stands behind its name.

    :raises InvalidInventory: if it has one that is no count: a drawing cannot say it
    """
    traits = sorted(provider.traits - {SHARING})
    items = ["pool"] if SHARING in provider.traits else []
    items += [
        _inventory(name, inventory, provider, held)
        for name, inventory in sorted(
            provider.inventories.by_name(), key=lambda pair: resource_class_order(pair[0])
        )
    ]
    parts = [", ".join(items)] if items else []
    parts += [f"traits: {', '.join(traits)}"] if traits else []
    aggregates = sorted(plain(one) for one in provider.aggregates or ())
    parts += [f"aggregates: {', '.join(aggregates)}"] if aggregates else []
    return "  ".join(parts)


def _inventory(name: str, inventory: Any, provider: Provider, held: list[Held]) -> str:
    if not isinstance(inventory, IntegerInventory):
        raise exceptions.InvalidInventory(
            f"drawing of {provider.name}", name, "inventories that are counts"
        )
    text = f"{name} {inventory.total}"
    for word, field in _FIGURES.items():
        value = getattr(inventory, field)
        if value != _DEFAULTS.get(field, 1):
            text += f" {word} {value}"
    for one in held:
        if one.resource_class == name:
            by = "" if one.consumer == SOMEBODY else f" by {plain(one.consumer)}"
            text += f" used {one.amount}{by}"
    for share in provider.shares:
        if share.resource_class == name:
            text += f" uses {share.factor} {share.of_class} of {plain(share.of)}"
    return text
