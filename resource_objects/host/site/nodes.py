"""YAML of a stranger as text, lists and pairs, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

from resource_objects.exceptions import InvalidSite
from resource_objects.providers.plain import MAX_LENGTH
from resource_objects.providers.provider import MAX_DEPTH

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


def read_nodes(text: str | bytes, file: str) -> Node:
    """Return the values of YAML text, with their lines, by the events of its parser.

    Values are not resolved and aliases not followed, so no text makes more than it has.
    """
    if isinstance(text, bytes):
        text = _decoded(text, file)
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise InvalidSite(file, text, f"text of at most {MAX_LENGTH} characters")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    top = Node("list", [], 1)
    try:
        _fill(top, yaml.parse(text, Loader=loader), file)  # type: ignore[no-untyped-call]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        last = text.rstrip().count("\n") + 1  # libyaml names the line after the end, too
        where = file if mark is None else f"{file}, line {min(mark.line + 1, last)}"
        raise InvalidSite(where, error.problem or "no YAML", "YAML") from None
    except (yaml.reader.ReaderError, UnicodeEncodeError):
        places = (n for n, letter in enumerate(text) if not _CHARACTER.fullmatch(letter))
        place = next(places, 0)
        line = text.count("\n", 0, place) + 1
        letter = text[place : place + 1]
        raise InvalidSite(f"{file}, line {line}", letter, "a character of YAML") from None
    if len(top.value) > 1:
        raise InvalidSite(f"{file}, line {top.value[1].line}", "---", "one document")
    return top.value[0] if top.value else Node("text", "", 1, True)


def _decoded(text: bytes, file: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        byte = text[error.start : error.end]
        raise InvalidSite(f"{file}, line {line}", byte, "UTF-8") from None


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
            raise InvalidSite(where, f"*{event.anchor}", "no alias: a range says what is equal")
        else:
            continue
        where = f"{file}, line {node.line}"
        if event.anchor is not None:
            raise InvalidSite(where, f"&{event.anchor}", "no anchor: a range says what is equal")
        if event.tag is not None:
            raise InvalidSite(where, event.tag, "no tag: values are text, lists and mappings")
        open_nodes[-1].value.append(node)
        if node.kind != "text":
            open_nodes.append(node)
            if len(open_nodes) > MAX_NESTED:
                raise InvalidSite(where, len(open_nodes), f"at most {MAX_NESTED} levels")
