"""The branches of a drawing: which line is below which, and that they are drawn as they are.

Each level is four columns wide. The text before a name is compared with what the tree, once read,
would be drawn with, so that a branch that leads nowhere is an error and not a guess.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from resource_objects import exceptions
from resource_objects.providers import Provider
from resource_objects.providers.provider import MAX_DEPTH
from resource_objects.testing.drawing_words import Held, Line, read_line

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

    :raises InvalidText: naming the line
    """
    tops = _tops(text, source, first_line)
    for node in tops:
        _check(node)
    making = _Making()
    roots = tuple(root for node in tops for root in making.all_of(node, None))
    try:
        for root in roots:
            root.check_shares()
    except exceptions.InvalidTree as error:
        raise exceptions.InvalidText(source, error.value, error.expected) from error
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
            raise exceptions.InvalidText(where, rest, "a line above it that it belongs to")
        if depth > MAX_DEPTH:
            raise exceptions.InvalidText(where, depth, f"at most {MAX_DEPTH} levels")
        node = _Node(_line(rest, where), where, prefix)
        (above[depth - 1].children if depth else tops).append(node)
        above[depth:] = [node]
    return tops


def _branches(written: str, where: str) -> tuple[str, int, str]:
    """Return what is before a name, how deep that is, and the rest."""
    at = 0
    while written[at : at + 1] in _STARTS:
        if not any(written[at : at + 4] in forms for forms in _WRITTEN.values()):
            raise exceptions.InvalidText(
                where, written, "branches of four columns each, such as '├── ' or '+-- '"
            )
        at += 4
    if at and written[at - 4 : at] in (*_WRITTEN[PAST], NOTHING):
        raise exceptions.InvalidText(where, written, "a branch before the name, or no space")
    return written[:at], at // 4, written[at:]


def _line(rest: str, where: str) -> Line:
    try:
        return read_line(rest, where)
    except exceptions.InvalidInput as error:
        if isinstance(error, exceptions.InvalidText) and error.what == where:
            raise
        raise exceptions.InvalidText(where, error.value, error.expected) from error


def _check(node: _Node, before: str = "", expected: str = "") -> None:
    """Raise unless the branches are those that the tree would be drawn with."""
    parts = [expected[at : at + 4] for at in range(0, len(expected), 4)]
    for place, part in enumerate(parts):
        if node.prefix[4 * place : 4 * place + 4] not in _WRITTEN[part]:
            raise exceptions.InvalidText(node.where, node.prefix, f"the branches {expected!r}")
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
                raise exceptions.InvalidText(node.where, name, "each provider once")
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
            raise exceptions.InvalidText(node.where, error.value, error.expected) from error


def _names(node: _Node, parent: str | None) -> Iterator[str]:
    """Yield the names that a line stands for."""
    name = node.line.name
    if node.line.quoted:
        yield name
        return
    if name.startswith("/"):
        if parent is None:
            raise exceptions.InvalidText(node.where, name, "a name: there is no provider above")
        name = parent + name
    match = _RANGE.match(name)
    if match is None:
        yield name
        return
    before, low, high, after = match.groups()
    if not 0 <= int(high) - int(low) < MAX_RANGE:
        raise exceptions.InvalidText(
            node.where, name, f"a range upwards, of at most {MAX_RANGE} names"
        )
    for number in range(int(low), int(high) + 1):
        yield f"{before}{number:0{len(low)}}{after}"
