"""YAML of a stranger as text, lists and pairs, each with its line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import yaml

from resource_objects.exceptions import InvalidInput
from resource_objects.providers.provider import MAX_DEPTH
from resource_objects.providers.serialization import MAX_LENGTH

_T = TypeVar("_T")

#: What may stand in YAML (5.1 of its specification).
_CHARACTER = re.compile(
    "[\\t\\n\\r\\x20-\\x7e\\x85\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]"
)
#: Values within values: each level of a tree takes two.
MAX_NESTED = 2 * MAX_DEPTH + 20


class Node:
    """A value of the file and its line: text, a list, or a list of pairs."""

    __slots__ = ("is_plain", "kind", "line", "value")

    def __init__(self, kind: str, value: Any, line: int, is_plain: bool = False) -> None:
        self.kind = kind
        self.value = value
        self.line = line
        self.is_plain = is_plain

    @property
    def is_nothing(self) -> bool:
        """Whether nothing stands there."""
        return self.kind == "text" and self.is_plain and self.value in ("", "~", "null")


def read_nodes(text: str | bytes, file: str, kind: str = "site file") -> Node:
    """Return the values of YAML text, with their lines, by the events of its parser.

    Values are not resolved and aliases not followed, so no text makes more than it has.

    :param kind: the kind of value that errors are about; see :class:`InvalidInput`
    """
    try:
        return _read(text, file)
    except _NoYAML as error:
        raise InvalidInput(kind, error.what, error.value, error.expected) from None


class _NoYAML(InvalidInput):
    """Text that cannot be read. :func:`read_nodes` raises it as of the kind of its caller."""

    def __init__(self, what: str, value: object, expected: str) -> None:
        super().__init__("YAML", what, value, expected)
        self.args = what, value, expected


def _read(text: str | bytes, file: str) -> Node:
    if isinstance(text, bytes):
        text = _decoded(text, file)
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise _NoYAML(file, text, f"text of at most {MAX_LENGTH} characters")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    top = Node("list", [], 1)
    try:
        _fill(top, yaml.parse(text, Loader=loader), file)  # type: ignore[no-untyped-call]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        last = text.rstrip().count("\n") + 1  # libyaml names the line after the end, too
        where = file if mark is None else f"{file}, line {min(mark.line + 1, last)}"
        raise _NoYAML(where, error.problem or "no YAML", "YAML") from None
    except (yaml.reader.ReaderError, UnicodeEncodeError):
        places = (n for n, letter in enumerate(text) if not _CHARACTER.fullmatch(letter))
        place = next(places, 0)
        line = text.count("\n", 0, place) + 1
        letter = text[place : place + 1]
        raise _NoYAML(f"{file}, line {line}", letter, "a character of YAML") from None
    if len(top.value) > 1:
        raise _NoYAML(f"{file}, line {top.value[1].line}", "---", "one document")
    return top.value[0] if top.value else Node("text", "", 1, True)


def _decoded(text: bytes, file: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        byte = text[error.start : error.end]
        raise _NoYAML(f"{file}, line {line}", byte, "UTF-8") from None


def _fill(top: Node, events: Iterable[Any], file: str) -> None:
    open_nodes = [top]
    for event in events:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            node = Node("text", event.value, event.start_mark.line + 1, event.implicit[0])
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            word = "map" if kind is yaml.MappingStartEvent else "list"
            node = Node(word, [], event.start_mark.line + 1)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            open_nodes.pop()
            continue
        elif kind is yaml.AliasEvent:
            where = f"{file}, line {event.start_mark.line + 1}"
            raise _NoYAML(where, f"*{event.anchor}", "no alias: nothing is said by reference")
        else:
            continue
        where = f"{file}, line {node.line}"
        if event.anchor is not None:
            raise _NoYAML(where, f"&{event.anchor}", "no anchor: nothing is said by reference")
        if event.tag is not None:
            raise _NoYAML(where, event.tag, "no tag: values are text, lists and mappings")
        open_nodes[-1].value.append(node)
        if node.kind != "text":
            open_nodes.append(node)
            if len(open_nodes) > MAX_NESTED:
                raise _NoYAML(where, len(open_nodes), f"at most {MAX_NESTED} levels")


def read_data(text: str | bytes, file: str, kind: str = "text") -> Any:
    """Return YAML text as plain data: what JSON can say, each key of a mapping once.

    :param kind: the kind of value that errors are about

    >>> read_data("moves: [{from: box, fill: true}]", "moves.yaml")
    {'moves': [{'from': 'box', 'fill': True}]}
    """
    return NodeReader(file, kind).data(read_nodes(text, file, kind))


# --- from values to what they mean ----------------------------------------------------------------

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_KINDS = {"text": "text", "list": "list", "map": "mapping"}
_FIGURES = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


class NodeReader:
    """Takes values apart, every fault with the file and its line.

    :param kind: the kind of value that errors are about
    """

    def __init__(self, file: str, kind: str = "site file") -> None:
        self._file = file
        self._kind = kind

    def text(self, node: Node) -> str:
        """Return a text."""
        if node.kind != "text":
            raise self.fault(node, "value", f"a {_KINDS[node.kind]}", "text")
        return str(node.value)

    def pairs(self, node: Node, expected: str) -> list[tuple[Node, Node]]:
        """Return the keys and values of a mapping, each key once; none where nothing stands."""
        if node.is_nothing:
            return []
        if node.kind != "map":
            found = node.value if node.kind == "text" else f"a {_KINDS[node.kind]}"
            raise self.fault(node, "value", found, f"a mapping, {expected}")
        pairs = list(zip(node.value[::2], node.value[1::2], strict=True))
        seen: dict[str, int] = {}
        for key, _ in pairs:
            if self.text(key) in seen:
                first = seen[key.value]
                raise self.fault(key, "key", key.value, f"each once: line {first} has it")
            seen[key.value] = key.line
        return pairs

    def items(self, node: Node, what: str, expected: str) -> list[Node]:
        """Return the values of a list; none where nothing stands."""
        if node.is_nothing:
            return []
        if node.kind != "list":
            raise self.fault(node, what, node.value, expected)
        return list(node.value)

    def words(
        self,
        node: Node,
        what: str,
        such: str,
        check: Callable[[str], object],
        *,
        is_once: bool = True,
    ) -> tuple[str, ...]:
        """Return the texts of a list, in order, each once and checked.

        :param such: an example of such a text, for the error about a value that is no list
        :param is_once: whether a text that the list has twice is refused
        """
        found: list[str] = []
        for one in self.items(node, what, f"a list, such as [{such}]"):
            text = self.text(one)
            self.checked(what, one, lambda _, text=text: check(text))  # type: ignore[misc]
            if is_once and text in found:
                raise self.fault(one, what, text, "each once")
            found.append(text)
        return tuple(sorted(set(found)))

    def data(self, node: Node) -> Any:
        """Return plain data as JSON has it: what is quoted is text."""
        if node.kind == "list":
            return [self.data(one) for one in node.value]
        if node.kind == "map":
            return {key.value: self.data(one) for key, one in self.pairs(node, "a mapping")}
        if not node.is_plain:
            return node.value
        words = {"true": True, "false": False, "null": None, "": None, "~": None}
        if node.value in words:
            return words[node.value]
        if not _NUMBER.fullmatch(node.value):
            return node.value
        try:
            return json.loads(node.value)
        except ValueError:  # Python reads no integer of more than some thousand digits
            raise self.fault(node, "number", node.value, "fewer digits") from None

    def figures(self, node: Node, read: Callable[[Node], str] | None = None) -> str:
        """Return the figures of an inventory as text: ``64:reserved=2``.

        :param read: reads one figure; None: as its text
        """
        if node.kind == "text" and not node.is_nothing:
            return str(node.value)
        said = {}
        for key, value in self.pairs(node, "figures of an inventory"):
            if key.value not in _FIGURES:
                raise self.fault(key, "figure", key.value, f"one of {', '.join(_FIGURES)}")
            said[key.value] = "none" if value.is_nothing else (read or self.text)(value)
        if "total" not in said:
            raise self.fault(node, "inventory", said, "a total")
        return ":".join([said.pop("total"), *(f"{key}={text}" for key, text in said.items())])

    def checked(self, word: str, node: Node, read: Callable[[Node], _T]) -> _T:
        """Return ``read(node)``; an error of it is raised again with the file and the line.

        An error that names a line of this file already is not changed.

        :param word: the name of the value in the message
        """
        try:
            return read(node)
        except InvalidInput as error:
            if error.is_about(self._kind) and error.what.startswith(f"{self._file}, line "):
                raise
            raise fault_at(self._file, node.line, error, word, self._kind) from error

    def fault(self, node: Node, what: str, value: object, expected: str) -> InvalidInput:
        """Return the refusal of a value."""
        return InvalidInput(self._kind, f"{self._file}, line {node.line}, {what}", value, expected)


def fault_at(
    file: str,
    line: int,
    error: InvalidInput,
    where: str = "",
    kind: str = "site file",
) -> InvalidInput:
    """Return what was refused, with the line that it is about."""
    said = f"{file}, line {line}{', ' if where else ''}{where}"
    if where != error.what:
        said += f", {error.what}"
    return InvalidInput(kind, said, error.value, error.expected)
