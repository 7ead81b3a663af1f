"""YAML from untrusted sources, as the nodes of PyYAML, which have their lines.

Nodes are not converted to Python objects, so ``no`` and ``007`` stay text where text is expected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import yaml

from resource_objects.exceptions import InvalidInput
from resource_objects.providers.provider import MAX_DEPTH
from resource_objects.providers.serialization import MAX_LENGTH

__all__ = ["Node", "NodeReader", "fault_at", "is_empty", "is_plain", "read_data", "read_nodes"]

_T = TypeVar("_T")

#: A ``yaml.Node``: a scalar, a sequence or a mapping (``node.id``).
Node: TypeAlias = Any

#: The characters that YAML allows (section 5.1 of its specification).
_CHARACTER = re.compile(
    "[\\t\\n\\r\\x20-\\x7e\\x85\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]"
)
#: Maximum depth of nested values: each level of a provider tree is a mapping in a mapping.
MAX_NESTED = 2 * MAX_DEPTH + 20
_NULL = "tag:yaml.org,2002:null"
#: The tags of values that have none in the text.
_IMPLICIT_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ["bool", "float", "int", "map", "merge", "null", "seq", "str", "timestamp", "value"]
)


def read_nodes(text: str | bytes, file: str, kind: str = "site file") -> Node:
    """Return the root node of YAML text; aliases and tags are rejected. Cost: linear in the text.

    :param file: the name of the file in error messages
    :param kind: the kind of value that errors are about; see :class:`InvalidInput`
    """
    try:
        root = _compose(text)
        if root is None:
            mark: Any = yaml.Mark(file, 0, 0, 0, None, None)  # type: ignore[no-untyped-call]
            root = yaml.ScalarNode(_NULL, "", mark, mark, "")  # type: ignore[no-untyped-call]
        _check_nodes(root)
    except _InvalidYAML as error:
        line, value, expected = error.args
        location = file if line is None else f"{file}, line {line}"
        raise InvalidInput(kind, location, value, expected) from None
    return root


class _InvalidYAML(Exception):
    """Text that is refused: its line (or None), the value and what is expected."""


def _compose(text: Any) -> Node | None:
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            line = text.count(b"\n", 0, error.start) + 1
            raise _InvalidYAML(line, text[error.start : error.end], "UTF-8") from None
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise _InvalidYAML(None, text, f"text of at most {MAX_LENGTH} characters")
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return yaml.compose(text, Loader=loader)  # type: ignore[no-untyped-call]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        last = text.rstrip().count("\n") + 1  # libyaml also names the line after the end
        line = None if mark is None else min(mark.line + 1, last)
        if "another document" in str(error.problem):
            raise _InvalidYAML(line, "---", "one document") from None
        raise _InvalidYAML(line, error.problem or "no YAML", "YAML") from None
    except (yaml.reader.ReaderError, UnicodeEncodeError):
        invalid = (place for place, c in enumerate(text) if not _CHARACTER.fullmatch(c))
        place = next(invalid, 0)
        line = text.count("\n", 0, place) + 1
        raise _InvalidYAML(line, text[place : place + 1], "a character of YAML") from None
    except RecursionError:  # of the parser in Python, where PyYAML is without libyaml
        raise _InvalidYAML(None, "nested values", f"at most {MAX_NESTED} levels") from None


def _check_nodes(root: Node) -> None:
    """Raise for aliases, tags and values that are nested too deeply."""
    seen: set[Node] = set()
    level: list[Node] = [root]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_NESTED:
            line = level[0].start_mark.line + 1
            raise _InvalidYAML(line, depth, f"at most {MAX_NESTED} levels")
        below: list[Node] = []
        for node in level:
            if node in seen:
                line = node.start_mark.line + 1
                raise _InvalidYAML(line, "an alias", "no anchor: values are not referenced")
            if node.tag not in _IMPLICIT_TAGS:
                line = node.start_mark.line + 1
                raise _InvalidYAML(line, node.tag, "no tag: values are text, lists and mappings")
            seen.add(node)
            if isinstance(node, yaml.MappingNode):
                below += [child for pair in node.value for child in pair]
            elif isinstance(node, yaml.SequenceNode):
                below += node.value
        level = below


def read_data(text: str | bytes, file: str, kind: str = "text") -> Any:
    """Return YAML text as plain data of the types of JSON; each key of a mapping is unique.

    :param kind: the kind of value that errors are about

    >>> read_data("moves: [{from: box, fill: true}]", "moves.yaml")
    {'moves': [{'from': 'box', 'fill': True}]}
    """
    return NodeReader(file, kind).data(read_nodes(text, file, kind))


def is_plain(node: Node) -> bool:
    """Return True for text without quotes."""
    return isinstance(node, yaml.ScalarNode) and not node.style


def is_empty(node: Node) -> bool:
    """Return True for a value that is absent or null."""
    return is_plain(node) and node.value in ("", "~", "null")


# --- from nodes to values -------------------------------------------------------------------------

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NAMES = {"scalar": "text", "sequence": "a list", "mapping": "a mapping"}
_FIGURES = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


class NodeReader:
    """Reads values from nodes; errors name the file and the line.

    :param file: the name of the file in error messages
    :param kind: the kind of value that errors are about
    """

    def __init__(self, file: str, kind: str = "site file") -> None:
        self._file = file
        self._kind = kind

    def text(self, node: Node) -> str:
        """Return the text of a scalar."""
        if not isinstance(node, yaml.ScalarNode):
            raise self.fault(node, "value", _NAMES[node.id], "text")
        return str(node.value)

    def pairs(self, node: Node, expected: str) -> list[tuple[Node, Node]]:
        """Return the keys and values of a mapping with unique keys, [] for an empty value."""
        if is_empty(node):
            return []
        if not isinstance(node, yaml.MappingNode):
            value = node.value if isinstance(node, yaml.ScalarNode) else _NAMES[node.id]
            raise self.fault(node, "value", value, f"a mapping, {expected}")
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if self.text(key) in lines:
                first = lines[key.value]
                raise self.fault(key, "key", key.value, f"each once: line {first} has it")
            lines[key.value] = key.start_mark.line + 1
        return list(node.value)

    def items(self, node: Node, subject: str, expected: str) -> list[Node]:
        """Return the nodes of a list, [] for an empty value."""
        if is_empty(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            value = node.value if isinstance(node, yaml.ScalarNode) else _NAMES[node.id]
            raise self.fault(node, subject, value, expected)
        return list(node.value)

    def words(
        self,
        node: Node,
        subject: str,
        example: str,
        check: Callable[[str], object],
        *,
        is_once: bool = True,
    ) -> tuple[str, ...]:
        """Return the checked texts of a list, sorted.

        :param example: an example of such a text, for the error about a value that is no list
        :param is_once: whether a repeated text is rejected
        """
        texts: list[str] = []
        for item in self.items(node, subject, f"a list, such as [{example}]"):
            text = self.text(item)
            self.checked(subject, item, lambda _, text=text: check(text))  # type: ignore[misc]
            if is_once and text in texts:
                raise self.fault(item, subject, text, "each once")
            texts.append(text)
        return tuple(sorted(set(texts)))

    def data(self, node: Node) -> Any:
        """Return plain data of the types of JSON; a quoted scalar is text."""
        if isinstance(node, yaml.SequenceNode):
            return [self.data(item) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            return {key.value: self.data(item) for key, item in self.pairs(node, "a mapping")}
        words = {"true": True, "false": False, "null": None, "": None, "~": None}
        if node.tag == "tag:yaml.org,2002:str":
            return node.value
        if node.value in words:
            return words[node.value]
        if not _NUMBER.fullmatch(node.value):
            return node.value
        try:
            return json.loads(node.value)
        except ValueError:  # Python limits the digits of an integer
            raise self.fault(node, "number", node.value, "fewer digits") from None

    def figures(self, node: Node, read: Callable[[Node], str] | None = None) -> str:
        """Return the figures of an inventory as text: ``64:reserved=2``.

        :param read: returns one figure as text; by default the text of the node
        """
        if isinstance(node, yaml.ScalarNode) and not is_empty(node):
            return str(node.value)
        figures = {}
        for key, value in self.pairs(node, "figures of an inventory"):
            if key.value not in _FIGURES:
                raise self.fault(key, "figure", key.value, f"one of {', '.join(_FIGURES)}")
            figures[key.value] = "none" if is_empty(value) else (read or self.text)(value)
        if "total" not in figures:
            raise self.fault(node, "inventory", figures, "a total")
        return ":".join([figures.pop("total"), *(f"{k}={text}" for k, text in figures.items())])

    def checked(self, word: str, node: Node, read: Callable[[Node], _T]) -> _T:
        """Return ``read(node)``; its error is raised again with the file and the line.

        An error that already names a line of this file is not changed.

        :param word: the name of the value in the message
        """
        try:
            return read(node)
        except InvalidInput as error:
            if error.is_about(self._kind) and error.what.startswith(f"{self._file}, line "):
                raise
            line = node.start_mark.line + 1
            raise fault_at(self._file, line, error, word, self._kind) from error

    def fault(self, node: Node, subject: str, value: object, expected: str) -> InvalidInput:
        """Return the error about a value."""
        line = node.start_mark.line + 1
        return InvalidInput(self._kind, f"{self._file}, line {line}, {subject}", value, expected)


def fault_at(
    file: str,
    line: int,
    error: InvalidInput,
    location: str = "",
    kind: str = "site file",
) -> InvalidInput:
    """Return an error with the file and the line that it is about."""
    subject = f"{file}, line {line}{', ' if location else ''}{location}"
    if location != error.what:
        subject += f", {error.what}"
    return InvalidInput(kind, subject, error.value, error.expected)
