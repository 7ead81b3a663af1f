"""Drawn trees of providers: parse a drawing, build it in a ledger, and draw a ledger.

A drawing has one provider per line, the children below their parent::

    host0             VCPU 8 ratio 1.5 used 2 by job-1   aggregates: rack1
    ├── host0/gpu0    PGPU 1   traits: CUSTOM_H100
    └── host0/gpu1    PGPU 1   traits: CUSTOM_H100

    host1             VCPU 8   aggregates: rack1
    └── /gpu[0-7]     PGPU 1
    nfs               pool, DISK_GB 1000   aggregates: rack1

===================================  ============================================================
``VCPU 8``                           an inventory: its class and its total; a comma separates two
``reserved 1 ratio 1.5``             its figures; also ``min``, ``max`` and ``step`` for
                                     ``min_unit``, ``max_unit`` and ``step_size``
``used 2 by job-1``                  an allocation; without a name its consumer is ``unnamed``
``uses 2 CUSTOM_SLICE of gpu0``      a share: each unit uses two of another inventory
``pool``                             the trait ``MISC_SHARES_VIA_AGGREGATE``
``traits: ...``                      names, with commas
``aggregates: ...``                  names, with commas
``/gpu0``                            a name that is appended to the name of the parent
``gpu[0-7]``                         eight providers, each with its own copy of the children
``"my host"``                        a name with characters other than letters, digits, ``_.:/@+-``
===================================  ============================================================

Each level is four columns wide. ASCII branches are ``+--`` with ``|`` on the left of them.

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
from resource_objects.resources import IntegerInventory, Inventories, resource

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

__all__ = ["Drawing", "DrawnUse", "draw"]

#: The trait of a pool.
SHARING = "MISC_SHARES_VIA_AGGREGATE"
#: The consumer of an allocation that is drawn without a name.
DEFAULT_CONSUMER = "unnamed"
#: The maximum number of providers of one line.
MAX_RANGE = 1000


class DrawnUse(NamedTuple):
    """An allocation of a drawing; ``amount`` is above 0."""

    consumer: str
    provider: str
    resource_class: str
    amount: int


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Trees of providers and the allocations from them; equal if their drawings are equal.

    :param roots: the trees; their uuids, generations and used amounts are ignored
    :param uses: the allocations
    :raises InvalidInput: for an allocation from a provider that is not in the trees
    """

    roots: tuple[Provider, ...]
    uses: tuple[DrawnUse, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "roots", tuple(_definition(root) for root in self.roots))
        positions = {provider.name: position for position, provider in enumerate(self.walk())}
        for use in self.uses:
            if use.provider not in positions or use.amount < 1:
                raise _invalid("drawing", use, "above 0, of a provider of the trees")
        ordered = sorted(
            self.uses,
            key=lambda use: (
                positions[use.provider],
                resource_class_order(use.resource_class),
                use.consumer,
            ),
        )
        object.__setattr__(self, "uses", tuple(ordered))

    @classmethod
    def parse(cls, text: str, *, source: str = "drawing", first_line: int = 1) -> Drawing:
        """Return the parsed drawing.

        :param source: the name of the text, for errors
        :param first_line: the number of its first line, for errors
        :raises InvalidInput: if the text is not a drawing; it names the line
        """
        lines = _parse_lines(text, source, first_line)
        for line in lines:
            _check_branches(line)
        builder = _TreeBuilder()
        roots = [root for line in lines for root in builder.providers(line, None)]
        try:
            for root in roots:
                diff(None, root)
        except exceptions.InvalidTree as error:
            raise _invalid(source, error.value, error.expected) from error
        return cls(tuple(roots), tuple(builder.uses))

    @classmethod
    def of(cls, ledger: Ledger | Columns) -> Drawing:
        """Return the drawing of a ledger, or of columns that were read from it, by name."""
        columns = ledger if isinstance(ledger, Columns) else ledger.backend.read()
        names = dict(zip(columns.providers.provider_id, columns.providers.name, strict=True))
        uses = (
            DrawnUse(consumer, names[number], name, amount)
            for number, name, consumer, amount in zip(*columns.allocations, strict=True)
        )
        return cls(tuple(trees(columns)), tuple(uses))

    def build(self, ledger: Ledger) -> None:
        """Write the trees and the allocations into a ledger.

        An allocation may exceed the capacity, as after a reduction of the total. A class may be
        provided by a tree and by a pool of one of its aggregates, as after two concurrent writes.

        :raises AlreadyExists, InvalidTree: as ``ledger.sync``
        """
        if not self.roots:
            return
        unbounded = [_unbounded(root) for root in self.roots] if self.uses else [*self.roots]
        _sync(ledger, unbounded)
        claims: dict[str, dict[str, dict[str, int]]] = {}
        for use in self.uses:
            amounts = claims.setdefault(use.consumer, {}).setdefault(use.provider, {})
            amounts[use.resource_class] = amounts.get(use.resource_class, 0) + use.amount
        for consumer, allocations in claims.items():
            ledger.claim(consumer, allocations)
        if self.uses:
            _sync(ledger, self.roots)

    def walk(self) -> Iterator[Provider]:
        """Yield all providers, parents before children."""
        for root in self.roots:
            yield from root.walk()

    def by_name(self) -> Drawing:
        """Return the drawing with the roots, and the children of each provider, sorted by name."""
        return Drawing(tuple(_sorted_by_name(self.roots)), self.uses)

    def __str__(self) -> str:
        """Return the text of the drawing.

        :raises InvalidInventory: if an inventory is not a count, such as a NUMA topology
        """
        lines = [line for root in self.roots for line in _branches_and_names(root, "", "")]
        uses: dict[str, list[DrawnUse]] = {}
        for use in self.uses:
            uses.setdefault(use.provider, []).append(use)
        width = max((len(line) for line, _ in lines), default=0)
        return "\n".join(
            f"{line:{width}}  {_properties(provider, uses.get(provider.name, []))}".rstrip()
            for line, provider in lines
        )


def draw(ledger: Ledger | Columns | Drawing) -> str:
    """Return the drawing of a ledger as text, which :meth:`Drawing.parse` can read.

    :raises InvalidInventory: if an inventory is not a count, such as a NUMA topology

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     gpu = ro.Provider("gpu", "PGPU=1")
    ...     done = ledger.sync(ro.Provider("lab", "VCPU=8", children=[gpu]))
    ...     print(draw(ledger))
    lab      VCPU 8
    └── gpu  PGPU 1
    """
    return str(ledger if isinstance(ledger, Drawing) else Drawing.of(ledger))


def _invalid(location: str, value: object, expected: str) -> exceptions.InvalidInput:
    return exceptions.InvalidInput("text", location, value, expected)


# --- drawing ------------------------------------------------------------------------------------

MIDDLE, LAST, PAST, EMPTY = "├── ", "└── ", "│   ", "    "
_FIGURES = {
    "reserved": "reserved",
    "ratio": "allocation_ratio",
    "min": "min_unit",
    "max": "max_unit",
    "step": "step_size",
}
_DEFAULTS = {"reserved": 0, "min_unit": 1, "max_unit": None, "step_size": 1, "allocation_ratio": 1}
_UNQUOTED = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:/@+-]*[A-Za-z0-9_.@/+-])?\Z", re.ASCII)


def _branches_and_names(
    provider: Provider, branch: str, below: str
) -> Iterator[tuple[str, Provider]]:
    yield branch + _quoted(provider.name), provider
    for number, child in enumerate(provider.children, 1):
        mark, space = (LAST, EMPTY) if number == len(provider.children) else (MIDDLE, PAST)
        yield from _branches_and_names(child, below + mark, below + space)


def _properties(provider: Provider, uses: list[DrawnUse]) -> str:
    traits = sorted(provider.traits - {SHARING})
    inventories = sorted(
        provider.inventories.by_name(), key=lambda pair: resource_class_order(pair[0])
    )
    items = ["pool"] if SHARING in provider.traits else []
    items += [_inventory(name, inventory, provider, uses) for name, inventory in inventories]
    sections = [", ".join(items)] if items else []
    if traits:
        sections.append(f"traits: {', '.join(traits)}")
    if provider.aggregates:
        aggregates = sorted(_quoted(name) for name in provider.aggregates)
        sections.append(f"aggregates: {', '.join(aggregates)}")
    return "  ".join(sections)


def _inventory(name: str, inventory: Any, provider: Provider, uses: list[DrawnUse]) -> str:
    if not isinstance(inventory, IntegerInventory):
        raise exceptions.InvalidInventory(f"drawing of {provider.name}", name, "a count")
    text = f"{name} {inventory.total}"
    for word, field in _FIGURES.items():
        value = getattr(inventory, field)
        if value != _DEFAULTS[field]:
            text += f" {word} {value}"
    for use in uses:
        if use.resource_class == name:
            by = "" if use.consumer == DEFAULT_CONSUMER else f" by {_quoted(use.consumer)}"
            text += f" used {use.amount}{by}"
    for share in provider.shares:
        if share.resource_class == name:
            text += f" uses {share.factor} {share.of_class} of {_quoted(share.of)}"
    return text


def _quoted(name: str) -> str:
    return name if _UNQUOTED.match(name) else json.dumps(name, ensure_ascii=False)


# --- parsing the branches -----------------------------------------------------------------------
# The columns before a name are compared with those of the parsed tree as it would be drawn, so a
# branch without a parent or sibling is an error.

#: The accepted forms of each branch: an ASCII branch does not show whether another one follows.
_FORMS = {
    MIDDLE: (MIDDLE, "+-- ", "|-- "),
    LAST: (LAST, "+-- ", "`-- "),
    PAST: (PAST, "|   "),
    EMPTY: (EMPTY,),
}
_ALL_FORMS = {form for forms in _FORMS.values() for form in forms}


@dataclasses.dataclass
class _Line:
    """A parsed line with its children. The name may stand for several providers."""

    location: str
    branches: str
    name: str
    is_quoted: bool
    fields: dict[str, Any]  #: the arguments of Provider, without the name
    uses: tuple[tuple[str, str, int], ...]  #: (consumer, resource class, amount)
    children: list[_Line] = dataclasses.field(default_factory=list)


def _parse_lines(text: str, source: str, first_line: int) -> list[_Line]:
    """Return the lines of the roots, each with its children."""
    roots: list[_Line] = []
    path: list[_Line] = []
    for number, written in enumerate(text.splitlines(), first_line):
        if not written.strip():
            continue
        location = f"{source}, line {number}"
        branches, content = _split_branches(written.rstrip(), location)
        depth = len(branches) // 4
        if depth > len(path):
            raise _invalid(location, content, "a line above it that it belongs to")
        if depth > MAX_DEPTH:
            raise _invalid(location, depth, f"at most {MAX_DEPTH} levels")
        line = _parse_line(content, location, branches)
        (path[depth - 1].children if depth else roots).append(line)
        path[depth:] = [line]
    return roots


def _split_branches(written: str, location: str) -> tuple[str, str]:
    """Return the branches before the name, and the rest of the line."""
    end = 0
    while any(form[0] == written[end : end + 1] for form in _ALL_FORMS):
        if written[end : end + 4] not in _ALL_FORMS:
            raise _invalid(
                location, written, "branches of four columns each, such as '├── ' or '+-- '"
            )
        end += 4
    if end and written[end - 4 : end] in (*_FORMS[PAST], EMPTY):
        raise _invalid(location, written, "a branch before the name, or no space")
    return written[:end], written[end:]


def _check_branches(line: _Line, below: str = "", expected: str = "") -> None:
    """Raise ``InvalidInput`` unless the branches are those of the drawn tree."""
    for start in range(0, len(expected), 4):
        if line.branches[start : start + 4] not in _FORMS[expected[start : start + 4]]:
            raise _invalid(line.location, line.branches, f"the branches {expected!r}")
    for child in line.children:
        mark, space = (LAST, EMPTY) if child is line.children[-1] else (MIDDLE, PAST)
        _check_branches(child, below + space, below + mark)


# --- parsing a line -----------------------------------------------------------------------------

_WORD = re.compile(r'\s*("(?:[^"\\]|\\.)*"|,|[^\s,"]+)')
_SECTIONS = ("traits:", "aggregates:")


class _Words:
    """The words of a line, read from left to right."""

    def __init__(self, text: str, location: str) -> None:
        self._location = location
        self._words = list(self._split(text.rstrip()))

    def _split(self, text: str) -> Iterator[tuple[str, bool]]:
        position = 0
        while position < len(text):
            match = _WORD.match(text, position)
            if match is None:
                raise self.invalid(text[position:].strip(), "quotation marks in pairs")
            word, position = match[1], match.end()
            is_quoted = word.startswith('"')
            try:
                yield (json.loads(word) if is_quoted else word), is_quoted
            except ValueError as error:
                raise self.invalid(word, "a JSON string between quotation marks") from error

    def invalid(self, value: object, expected: str) -> exceptions.InvalidInput:
        return _invalid(self._location, value, expected)

    def __bool__(self) -> bool:
        return bool(self._words)

    def next_is(self, *words: str) -> bool:
        return bool(self._words) and self._words[0] in [(word, False) for word in words]

    def skip(self, word: str) -> bool:
        """Remove the next word if it is this one, and return whether it is."""
        matches = self.next_is(word)
        if matches:
            del self._words[0]
        return matches

    def pop(self, expected: str) -> tuple[str, bool]:
        """Remove the next word; return it, and whether it has quotation marks."""
        if not self._words or self._words[0] == (",", False):
            value = self._words[0][0] if self._words else "the end of the line"
            raise self.invalid(value, expected)
        return self._words.pop(0)

    def word(self, expected: str) -> str:
        return self.pop(expected)[0]

    def number(self, expected: str) -> int:
        word = self.word(expected)
        if not re.fullmatch(r"[0-9]{1,19}", word, re.ASCII):
            raise self.invalid(word, expected)
        return int(word)


def _parse_line(text: str, location: str, branches: str) -> _Line:
    """Return the parsed text after the branches.

    :raises InvalidInput: if it is not a provider of a drawing
    """
    try:
        words = _Words(text, location)
        name, is_quoted = words.pop("a provider's name")
        fields: dict[str, Any] = {"inventories": {}, "traits": [], "shares": []}
        uses: list[tuple[str, str, int]] = []
        while words and not words.next_is(*_SECTIONS):
            if words.skip("pool"):
                fields["traits"].append(SHARING)
            else:
                _parse_inventory(words, fields, uses)
            if not words.skip(",") and words and not words.next_is(*_SECTIONS):
                raise words.invalid(words.word(""), "a comma, or a figure of the inventory")
        sections = _parse_sections(words)
        fields["traits"] += sections.get("traits:", [])
        fields["aggregates"] = sections.get("aggregates:", [])
    except exceptions.InvalidInput as error:
        if error.matches("InvalidText") and error.what == location:
            raise
        raise _invalid(location, error.value, error.expected) from error
    return _Line(location, branches, name, is_quoted, fields, tuple(uses))


def _parse_inventory(
    words: _Words, fields: dict[str, Any], uses: list[tuple[str, str, int]]
) -> None:
    name = words.word("a resource class")
    if name in fields["inventories"]:
        raise words.invalid(name, "each resource class once")
    if not issubclass(resource(name).inventory_kind, IntegerInventory):
        raise words.invalid(name, "a class that is counted")
    figures: dict[str, Any] = {"total": words.number(f"the total of {name}")}
    while words and not words.next_is(",", *_SECTIONS):
        word = words.word("a figure")
        if word == "used":
            consumers = [consumer for consumer, of, _ in uses if of == name]
            uses.append(_parse_use(words, name, consumers))
        elif word == "uses":
            fields["shares"].append(_parse_share(words, name))
        elif word not in _FIGURES or _FIGURES[word] in figures:
            figure_words = ", ".join([*_FIGURES, "used", "uses"])
            raise words.invalid(word, f"one of {figure_words}, or a comma; each figure once")
        elif word == "ratio":
            figures["allocation_ratio"] = words.word("a ratio")
        else:
            figures[_FIGURES[word]] = words.number(f"an integer after {word}")
    fields["inventories"][name] = IntegerInventory(**figures, resource_class=name)


def _parse_use(words: _Words, name: str, consumers: list[str]) -> tuple[str, str, int]:
    amount = words.number("the used amount")
    consumer = words.word("a consumer's name") if words.skip("by") else DEFAULT_CONSUMER
    if amount < 1 or consumer in consumers:
        raise words.invalid(f"used {amount} by {consumer}", "1 or more, and each consumer once")
    return consumer, name, amount


def _parse_share(words: _Words, name: str) -> Share:
    factor = words.number("the factor of the share")
    of_class = words.word("a resource class")
    if not words.skip("of"):
        raise words.invalid(f"uses {factor} {of_class}", "of, and a provider's name")
    of = words.word("a provider's name")
    return Share(resource_class=name, of=of, of_class=of_class, factor=factor)


def _parse_sections(words: _Words) -> dict[str, list[str]]:
    """Return the traits and aggregates at the end of a line, by section."""
    sections: dict[str, list[str]] = {}
    while words:
        section = words.word("traits: or aggregates:")
        if section in sections:
            raise words.invalid(section, "each list once")
        names = sections[section] = [words.word("a name")]
        while words and not words.next_is(*_SECTIONS):
            words.skip(",")
            name = words.word("a name")
            if name in names:
                raise words.invalid(name, "each name once")
            names.append(name)
    return sections


# --- providers ----------------------------------------------------------------------------------

_RANGE = re.compile(r"(.*)\[([0-9]{1,9})-([0-9]{1,9})\](.*)\Z", re.ASCII)


class _TreeBuilder:
    """Makes the providers of lines; each name may occur once."""

    def __init__(self) -> None:
        self.uses: list[DrawnUse] = []
        self._names: set[str] = set()

    def providers(self, line: _Line, parent: str | None) -> Iterator[Provider]:
        """Yield the providers of a line, each with its descendants."""
        for name in _expand_name(line, parent):
            if name in self._names:
                raise _invalid(line.location, name, "each provider once")
            self._names.add(name)
            self.uses += [DrawnUse(consumer, name, of, n) for consumer, of, n in line.uses]
            try:
                provider = Provider(name, **line.fields)
            except exceptions.InvalidInput as error:
                raise _invalid(line.location, error.value, error.expected) from error
            children = [p for child in line.children for p in self.providers(child, name)]
            provider.update(children=tuple(children))
            yield provider


def _expand_name(line: _Line, parent: str | None) -> Iterator[str]:
    name = line.name
    if line.is_quoted:
        yield name
        return
    if name.startswith("/"):
        if parent is None:
            raise _invalid(line.location, name, "a name: there is no provider above")
        name = parent + name
    match = _RANGE.match(name)
    if match is None:
        yield name
        return
    prefix, first, last, suffix = match.groups()
    if not 0 <= int(last) - int(first) < MAX_RANGE:
        raise _invalid(line.location, name, f"an ascending range, of at most {MAX_RANGE} names")
    for number in range(int(first), int(last) + 1):
        yield f"{prefix}{number:0{len(first)}}{suffix}"


def _definition(provider: Provider) -> Provider:
    """Return a copy without uuids, generations and used amounts."""
    inventories = {
        name: inventory.obj_clone() for name, inventory in provider.inventories.by_name()
    }
    for inventory in inventories.values():
        if isinstance(inventory, IntegerInventory):
            inventory.used = 0
    return Provider(
        provider.name,
        Inventories(inventories),
        traits=provider.traits,
        aggregates=provider.aggregates or frozenset(),
        shares=sorted(provider.shares, key=lambda s: (s.resource_class, s.of, s.of_class)),
        children=[_definition(child) for child in provider.children],
    )


def _sorted_by_name(providers: Iterable[Provider]) -> Iterator[Provider]:
    for provider in sorted(providers, key=lambda provider: provider.name):
        copy = provider.obj_clone()
        copy.update(children=tuple(_sorted_by_name(provider.children)))
        yield copy


def _unbounded(provider: Provider) -> Provider:
    """Return a copy of a tree of which any amount can be claimed."""
    inventories = {
        name: IntegerInventory(MAX_FIGURE, resource_class=name)
        if isinstance(inventory, IntegerInventory)
        else inventory
        for name, inventory in provider.inventories.by_name()
    }
    copy = provider.obj_clone()
    copy.update(
        inventories=Inventories(inventories),
        children=[_unbounded(child) for child in provider.children],
    )
    return copy


def _sync(ledger: Ledger, roots: Iterable[Provider]) -> None:
    """Write the trees, also if a tree and its pool provide the same class."""
    roots = list(roots)
    try:
        ledger.sync(*roots)
    except exceptions.Conflict as error:
        if not error.is_about("pool"):
            raise
        columns = ledger.backend.read(*(root.name for root in roots))
        stored = {root.name: root for root in trees(columns)}
        changes = merge_changes("drawing", (diff(stored.get(root.name), root) for root in roots))
        ledger.backend.commit(Write(Operation(), "define", "drawing", changes))
