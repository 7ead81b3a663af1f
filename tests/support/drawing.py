"""Drawn trees: read, built in a ledger, and drawn again.

A drawing is both what people look at and what a test is built from, so that the two never differ::

    host0             VCPU 8 ratio 1.5 used 2 by job-1   aggregates: rack1
    ├── host0/gpu0    PGPU 1   traits: CUSTOM_H100
    └── host0/gpu1    PGPU 1   traits: CUSTOM_H100

    host1             VCPU 8   aggregates: rack1
    └── /gpu[0-7]     PGPU 1
    nfs               pool, DISK_GB 1000   aggregates: rack1

===================================  ============================================================
``VCPU 8``                           an inventory: its class and its total; several have commas
``reserved 1 ratio 1.5``             its figures: also ``min``, ``max``, ``step`` (of what is
                                     asked for at once)
``used 2 by job-1``                  what is held, and by whom; without a name by somebody
``uses 2 CUSTOM_SLICE of gpu0``      a share: what one of these uses of another inventory
``pool``                             the trait ``MISC_SHARES_VIA_AGGREGATE``
``traits: ...``                      names, with commas
``aggregates: ...``                  names, with commas
``/gpu0``                            a name that goes on from that of the provider above
``gpu[0-7]``                         eight providers, each with all that is drawn below it
``"my host"``                        a name of other characters than letters, digits and ``_.:/@+-``
===================================  ============================================================

Each level is four columns wide. ASCII does too: ``+--`` for the branches, ``|`` beside them. There
are no empty lines in a drawing. Rejected: YAML and JSON, which say as much and show no tree.

>>> drawing = Drawing.parse('''
... host0          VCPU 8 used 2 by job-1
... └── /gpu[0-1]  PGPU 1   traits: CUSTOM_H100
... ''')
>>> print(drawing)
host0           VCPU 8 used 2 by job-1
├── host0/gpu0  PGPU 1  traits: CUSTOM_H100
└── host0/gpu1  PGPU 1  traits: CUSTOM_H100
>>> Drawing.parse(str(drawing)) == drawing
True
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from resource_objects import exceptions
from resource_objects.fields import MAX_FIGURE
from resource_objects.names import resource_class_order
from resource_objects.providers import Provider, diff
from resource_objects.providers.columns import Columns, trees
from resource_objects.providers.definition import merge_changes
from resource_objects.providers.orders import Operation, Write
from resource_objects.providers.provider import MAX_DEPTH, Share
from resource_objects.resources import IntegerInventory, Inventories, Inventory, resource
from resource_objects.testing.refusals import is_one_of

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

__all__ = [
    "Drawing",
    "Held",
    "draw",
]


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

    def wrong(self, value: object, expected: str) -> exceptions.InvalidInput:
        """Return the error of this line."""
        return exceptions.InvalidInput("text", self.where, value, expected)

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
    :raises InvalidInput: if it is no such line
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


# --- the branches of a drawing ---
# Which line is below which, and that they are drawn as they are. Each level is four columns wide.
# The text before a name is compared with what the tree, once read, would be drawn with, so that a
# branch that leads nowhere is an error and not a guess.


MIDDLE, LAST, PAST, NOTHING = "├── ", "└── ", "│   ", "    "
#: How each may be written: in ASCII a branch does not say whether another one follows.
_WRITTEN = {
    MIDDLE: (MIDDLE, "+-- ", "|-- "),
    LAST: (LAST, "+-- ", "`-- "),
    PAST: (PAST, "|   "),
    NOTHING: (NOTHING,),
}
_STARTS = {written[0] for forms in _WRITTEN.values() for written in forms}
_RANGE = re.compile(r"(.*)\[([0-9]{1,9})-([0-9]{1,9})\](.*)\Z", re.ASCII)
#: No name in a drawing stands for more providers.
MAX_RANGE = 1000


@dataclasses.dataclass
class _Node:
    """A line with its place: it may still stand for several providers."""

    line: Line
    where: str
    prefix: str
    children: list[_Node] = dataclasses.field(default_factory=list)


def read(text: str, source: str, first_line: int) -> tuple[tuple[Provider, ...], tuple[Held, ...]]:
    """Return the roots that are drawn, and what is held of them.

    :raises InvalidInput: naming the line
    """
    tops = _tops(text, source, first_line)
    for node in tops:
        _check(node)
    making = _Making()
    roots = tuple(root for node in tops for root in making.all_of(node, None))
    try:
        for root in roots:
            diff(None, root)
    except exceptions.InvalidTree as error:
        raise exceptions.InvalidInput("text", source, error.value, error.expected) from error
    return roots, tuple(making.held)


def _tops(text: str, source: str, first_line: int) -> list[_Node]:
    """Return the lines without a branch, each with those below it."""
    tops: list[_Node] = []
    above: list[_Node] = []
    for number, written in enumerate(text.splitlines(), first_line):
        if not written.strip():
            continue
        where = f"{source}, line {number}"
        prefix, depth, rest = _branches(written.rstrip(), where)
        if depth > len(above):
            raise exceptions.InvalidInput("text", where, rest, "a line above it that it belongs to")
        if depth > MAX_DEPTH:
            raise exceptions.InvalidInput("text", where, depth, f"at most {MAX_DEPTH} levels")
        node = _Node(_line(rest, where), where, prefix)
        (above[depth - 1].children if depth else tops).append(node)
        above[depth:] = [node]
    return tops


def _branches(written: str, where: str) -> tuple[str, int, str]:
    """Return what is before a name, how deep that is, and the rest."""
    at = 0
    while written[at : at + 1] in _STARTS:
        if not any(written[at : at + 4] in forms for forms in _WRITTEN.values()):
            raise exceptions.InvalidInput(
                "text", where, written, "branches of four columns each, such as '├── ' or '+-- '"
            )
        at += 4
    if at and written[at - 4 : at] in (*_WRITTEN[PAST], NOTHING):
        raise exceptions.InvalidInput(
            "text", where, written, "a branch before the name, or no space"
        )
    return written[:at], at // 4, written[at:]


def _line(rest: str, where: str) -> Line:
    try:
        return read_line(rest, where)
    except exceptions.InvalidInput as error:
        if is_one_of(error, "InvalidText") and error.what == where:
            raise
        raise exceptions.InvalidInput("text", where, error.value, error.expected) from error


def _check(node: _Node, before: str = "", expected: str = "") -> None:
    """Raise unless the branches are those that the tree would be drawn with."""
    parts = [expected[at : at + 4] for at in range(0, len(expected), 4)]
    for place, part in enumerate(parts):
        if node.prefix[4 * place : 4 * place + 4] not in _WRITTEN[part]:
            raise exceptions.InvalidInput(
                "text", node.where, node.prefix, f"the branches {expected!r}"
            )
    for child in node.children:
        is_last = child is node.children[-1]
        below, branch = (NOTHING, LAST) if is_last else (PAST, MIDDLE)
        _check(child, before + below, before + branch)


class _Making:
    """Providers from lines, each name once."""

    def __init__(self) -> None:
        self.held: list[Held] = []
        self._names: set[str] = set()

    def all_of(self, node: _Node, parent: str | None) -> Iterator[Provider]:
        """Yield the providers that a line stands for, each with all below it."""
        for name in _names(node, parent):
            if name in self._names:
                raise exceptions.InvalidInput("text", node.where, name, "each provider once")
            self._names.add(name)
            provider = self._made(node, name)
            below = [one for child in node.children for one in self.all_of(child, name)]
            provider.update(children=tuple(below))
            yield provider

    def _made(self, node: _Node, name: str) -> Provider:
        made: dict[str, Any] = node.line.provider
        self.held += [Held(who, name, kind, n) for who, kind, n in node.line.held]
        try:
            return Provider(name, **made)
        except exceptions.InvalidInput as error:
            raise exceptions.InvalidInput(
                "text", node.where, error.value, error.expected
            ) from error


def _names(node: _Node, parent: str | None) -> Iterator[str]:
    """Yield the names that a line stands for."""
    name = node.line.name
    if node.line.quoted:
        yield name
        return
    if name.startswith("/"):
        if parent is None:
            raise exceptions.InvalidInput(
                "text", node.where, name, "a name: there is no provider above"
            )
        name = parent + name
    match = _RANGE.match(name)
    if match is None:
        yield name
        return
    before, low, high, after = match.groups()
    if not 0 <= int(high) - int(low) < MAX_RANGE:
        raise exceptions.InvalidInput(
            "text", node.where, name, f"a range upwards, of at most {MAX_RANGE} names"
        )
    for number in range(int(low), int(high) + 1):
        yield f"{before}{number:0{len(low)}}{after}"


# --- made in a ledger ---
# Whatever the ledger would refuse to have come about. Two things can be in a ledger and not be
# asked of it in one step: more held than there is (after a shrink), and a class that is counted in
# a tree and by a pool it is linked to (by two writes at the same moment).


def build(ledger: Ledger, roots: Iterable[Provider], held: Iterable[Held]) -> None:
    """Make trees, and let consumers hold what they hold."""
    wanted = list(roots)
    uses = list(held)
    if not wanted:
        return
    roomy = [_roomy(root) for root in wanted] if uses else wanted
    _sync(ledger, roomy)
    by_consumer: dict[str, dict[str, dict[str, int]]] = {}
    for one in uses:
        taken = by_consumer.setdefault(one.consumer, {}).setdefault(one.provider, {})
        taken[one.resource_class] = taken.get(one.resource_class, 0) + one.amount
    for consumer, amounts in by_consumer.items():
        ledger.claim(consumer, amounts)
    if roomy != wanted:
        _sync(ledger, wanted)


def _sync(ledger: Ledger, roots: list[Provider]) -> None:
    try:
        ledger.sync(*roots)
    except exceptions.Conflict as error:
        if not error.is_about("pool"):
            raise
        kept = {
            root.name: root for root in trees(ledger.backend.read(*(one.name for one in roots)))
        }
        changes = merge_changes("drawing", (diff(kept.get(one.name), one) for one in roots))
        ledger.backend.commit(Write(Operation(), "define", "drawing", changes))


def _roomy(provider: Provider) -> Provider:
    """Return a tree like this one of which anything may be claimed."""
    copied = provider.obj_clone()
    copied.update(
        inventories=Inventories({n: _most(one) for n, one in provider.inventories.by_name()}),
        children=[_roomy(one) for one in provider.children],
    )
    return copied


def _most(inventory: Inventory) -> Inventory:
    if not isinstance(inventory, IntegerInventory):
        return inventory
    return IntegerInventory(MAX_FIGURE, resource_class=inventory.resource_class)


# --- drawn trees ---


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Trees, and what is held of them; equal if they look the same.

    Reading: :meth:`parse`, :meth:`of` a ledger. Drawing: :func:`str`. Building: :meth:`build`.

    ``roots`` have no uuid, no generation and nothing used: what is used is ``held``.
    """

    roots: tuple[Provider, ...]
    held: tuple[Held, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "roots", tuple(_bare(root) for root in self.roots))
        places = {provider.name: place for place, provider in enumerate(self.walk())}
        for one in self.held:
            if one.provider not in places or one.amount < 1:
                raise exceptions.InvalidInput(
                    "text", "drawing", one, "above 0, of a provider of the trees"
                )
        order = sorted(
            self.held,
            key=lambda one: (
                places[one.provider],
                resource_class_order(one.resource_class),
                one.consumer,
            ),
        )
        object.__setattr__(self, "held", tuple(order))

    @classmethod
    def parse(cls, text: str, *, source: str = "drawing", first_line: int = 1) -> Drawing:
        """Return what is drawn.

        :param source: where the text is from, and ``first_line`` the number of its first line, for
            errors
        :raises InvalidInput: if it is no drawing; names the line and what was expected there
        """
        roots, held = read(text, source, first_line)
        return cls(roots, held)

    @classmethod
    def of(cls, kept: Ledger | Columns) -> Drawing:
        """Return what a ledger, or the columns of one, keeps: by name.

        :raises InvalidInventory: if something in it is no count, such as a NUMA topology
        """
        columns = kept if isinstance(kept, Columns) else kept.backend.read()
        names = dict(zip(columns.providers.provider_id, columns.providers.name, strict=True))
        held = (
            Held(consumer, names[number], kind, amount)
            for number, kind, consumer, amount in zip(*columns.allocations, strict=True)
        )
        return cls(tuple(trees(columns)), tuple(held))

    def build(self, ledger: Ledger) -> None:
        """Make the trees in a ledger, and let the consumers hold what they hold.

        What is held may be more than there is, as after a shrink.

        :raises AlreadyExists, InvalidTree: as ``ledger.sync``
        """
        build(ledger, self.roots, self.held)

    def walk(self) -> Iterator[Provider]:
        """Yield all providers, parents before children."""
        for root in self.roots:
            yield from root.walk()

    def by_name(self) -> Drawing:
        """Return the same with the roots, and all children, in the order of their names."""
        return Drawing(tuple(_sorted(self.roots)), self.held)

    def __str__(self) -> str:
        lines = [line for root in self.roots for line in _lines(root, "", "")]
        held: dict[str, list[Held]] = {}
        for one in self.held:
            held.setdefault(one.provider, []).append(one)
        width = max((len(line) for line, _ in lines), default=0)
        return "\n".join(
            f"{line:{width}}  {written(provider, held.get(provider.name, []))}".rstrip()
            for line, provider in lines
        )


def draw(kept: Ledger | Columns | Drawing) -> str:
    """Return the trees of a ledger as :meth:`Drawing.parse` reads them.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     gpu = ro.Provider("gpu", "PGPU=1")
    ...     done = ledger.sync(ro.Provider("lab", "VCPU=8", children=[gpu]))
    ...     print(draw(ledger))
    lab      VCPU 8
    └── gpu  PGPU 1
    """
    return str(kept if isinstance(kept, Drawing) else Drawing.of(kept))


def _lines(provider: Provider, branch: str, below: str) -> Iterator[tuple[str, Provider]]:
    """Yield the lines of a tree, names and branches only."""
    yield branch + plain(provider.name), provider
    for number, child in enumerate(provider.children, 1):
        is_last = number == len(provider.children)
        yield from _lines(
            child, below + (LAST if is_last else MIDDLE), below + (NOTHING if is_last else PAST)
        )


def _bare(provider: Provider) -> Provider:
    """Return a copy without what a ledger adds."""
    return Provider(
        provider.name,
        Inventories({name: _unused(one) for name, one in provider.inventories.by_name()}),
        traits=provider.traits,
        aggregates=provider.aggregates or frozenset(),
        shares=sorted(provider.shares, key=lambda s: (s.resource_class, s.of, s.of_class)),
        children=[_bare(child) for child in provider.children],
    )


def _unused(inventory: object) -> object:
    if not isinstance(inventory, IntegerInventory):
        return inventory
    copied = inventory.obj_clone()
    copied.used = 0
    return copied


def _sorted(providers: Iterable[Provider]) -> Iterator[Provider]:
    for provider in sorted(providers, key=lambda one: one.name):
        copied = provider.obj_clone()
        copied.update(children=tuple(_sorted(provider.children)))
        yield copied
