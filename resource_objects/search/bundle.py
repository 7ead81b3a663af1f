"""A repro bundle: a picture, what was asked of it, and how; a file that answers the same again.

Who reports a strange answer sends one. :meth:`Bundle.shrunk` leaves out whatever the answer does
not need: whole trees first, then consumers, single providers, and what these have, until nothing
more can go.

The JSON form is an object with ``"version": 1``, the tables of
:class:`~resource_objects.providers.columns.Columns` column by column, the request in its wire form,
the options of the search, and the answer. Lines that begin with ``#`` before it are for people: the
command draws the picture there.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.fields import FrozenDict
from resource_objects.providers import columns as tables
from resource_objects.providers import serialization
from resource_objects.providers.arguments import limits
from resource_objects.providers.columns import TIMES, Columns
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.dry_run import without_consumers
from resource_objects.requests import Request
from resource_objects.search.candidates import Candidates
from resource_objects.search.order import Order
from resource_objects.search.snapshot import Snapshot

#: Version of the JSON form.
VERSION = 1
#: What may be said of a search in a file, with the type of each.
OPTIONS = {
    "limit": int,
    "per_host": int,
    "order": str | Mapping,
    "seed": int,
    "budget": int,
    "limits": Mapping,
}
_KEYS = ("tables", "request", "options", "at", "now", "answer")
#: What an order may say in a file.
_ORDER = ("by", "weights", "preferred", "among")

_T = TypeVar("_T")

_TABLES: Mapping[str, Any] = {
    "providers": tables.ProviderColumns,
    "inventories": tables.InventoryColumns,
    "traits": tables.TraitColumns,
    "allocations": tables.AllocationColumns,
    "aggregates": tables.AggregateColumns,
    "shares": tables.ShareColumns,
    "kinds": tables.KindColumns,
    "units": tables.UnitColumns,
}
#: A table of older bundles, which are read if it is empty: single units are not disabled any more.
_FORMER = "disabled_units"
#: Columns of text; of the others that are not named below each value is an integer.
_TEXT = {
    *("uuid", "name", "resource_class", "trait", "aggregate", "of_class", "body", "unit"),
    "consumer",
}
_MAYBE = {"parent_id", "max_unit", *TIMES, "disabled"}


@dataclasses.dataclass(frozen=True, slots=True)
class Bundle:
    """What it takes to ask a question again.

    :param columns: the picture
    :param options: of the search: those of :data:`OPTIONS`
    :param at: the provider that the picture is confined to
    :param answer: what it is known to answer, as :func:`answer_of` says it; None: nobody said
    """

    columns: Columns
    request: Request
    options: Mapping[str, Any]
    at: str | None
    answer: Any = None

    def ask(self) -> Candidates:
        """Ask again: who could hold the request."""
        found: Candidates = self.picture().candidates(self.request, **self._asked())
        return found

    def picture(self) -> Snapshot:
        """Return what is asked: a snapshot."""
        return Snapshot(self.columns, at=self.at)

    def _asked(self) -> dict[str, Any]:
        """Return the options of the search, with limits of those alone that are there."""
        found = dict(self.options)
        if isinstance(order := found.get("order"), Mapping):
            found["order"] = Order(**order)
        if limits := found.get("limits"):
            there = {*self.columns.providers.name, *self.columns.providers.uuid}
            found["limits"] = {key: one for key, one in limits.items() if key in there}
        return found

    def answered(self) -> Bundle:
        """Return the bundle with the answer that it gives."""
        return dataclasses.replace(self, answer=answer_of(self.ask()))

    def holds(self) -> bool:
        """Return whether it gives the answer still that it is known to give."""
        return bool(self.answer == answer_of(self.ask()))

    # --- shrinking ---

    def shrunk(self, keeps: Callable[[Candidates], Hashable] | None = None) -> Bundle:
        """Return the smallest bundle that still shows the answer: nothing more can be left out.

        Cost: a search for each thing that is tried, of ever smaller pictures: for a fleet some
        searches for each power of two of its trees, then a few for each thing that stays.

        :param keeps: what of an answer is to stay as it is; None: whether there is one, the first
            candidate, or if there is none by which rules and of which classes hosts are refused:
            of those that are refused alike one stays
        """
        shows = shown if keeps is None else keeps
        wanted = shows(self.ask())

        def is_kept(columns: Columns) -> bool:
            try:
                return shows(dataclasses.replace(self, columns=columns).ask()) == wanted
            except exceptions.ResourceObjectsError:  # what it names is gone, or it is no picture
                return False

        before, columns = None, self.columns
        while columns != before:  # what goes last may have been what something else was there for
            before = columns
            for things, without in PARTS:
                columns = _least(columns, things, without, is_kept)
        small = dataclasses.replace(self, columns=columns)
        return small if self.answer is None else small.answered()

    # --- plain data ---

    def to_json(self, indent: int | None = 1) -> str:
        """Return the bundle as JSON text, which :meth:`from_json` reads back."""
        found = {
            "version": VERSION,
            "request": self.request.obj_to_primitive(),
            "options": dict(self.options),
            "at": self.at,
            "now": None if self.columns.now is None else self.columns.now.isoformat(),
            **({} if self.answer is None else {"answer": self.answer}),
            "tables": {name: _said(getattr(self.columns, name)) for name in _TABLES},
        }
        return json.dumps(found, indent=indent, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the bundle that JSON text says.

        :raises InvalidInput: if it is no JSON, or not what a bundle says
        :raises UnsupportedVersion: if it is of another version
        :raises InvalidInput, InvalidTree: if the tables do not belong together
        """
        given = serialization.versioned(
            serialization.from_json(_without_head(text), "bundle"), "bundle", VERSION
        )
        for key in given:
            if key not in _KEYS:
                raise exceptions.InvalidInput(
                    "field name", "bundle", key, f"one of {', '.join(_KEYS)}"
                )
        listed = given.get("tables")
        if isinstance(listed, Mapping) and listed.get(_FORMER) == {}:
            listed = {name: table for name, table in listed.items() if name != _FORMER}
        if not isinstance(listed, Mapping) or set(listed) != set(_TABLES):
            raise exceptions.InvalidInput(
                "text", "bundle.tables", listed, f"tables {', '.join(_TABLES)}"
            )
        columns = Columns(
            **{name: _read_table(name, listed[name]) for name in _TABLES},
            now=_moment(given.get("now")),
        )
        try:
            request = Request.obj_from_primitive(given.get("request"))
        except (ValueError, TypeError, AttributeError) as error:
            raise exceptions.InvalidInput(
                "text", "bundle.request", given.get("request"), "the wire form of a request"
            ) from error
        options = _options(given.get("options"))
        found = cls(columns, request, options, given.get("at"), given.get("answer"))
        found.picture()  # what cannot be a picture is refused here, not when it is asked
        return found


def answer_of(found: Candidates) -> dict[str, Any]:
    """Return an answer as plain data: who could, or of which hosts which rules are not met."""
    try:
        some = [str(one) for one in found]
    except SearchLimitReached:
        return {"cut_short": True}
    if some:
        return {"candidates": some, "cut_short": found.cut_short}
    refused = found.explain().by_host()
    return {
        "refused": {
            host: sorted({f"{one.rule} of {one.resource}" for one in reasons})
            for host, reasons in refused
        }
    }


def shown(found: Candidates) -> Hashable:
    """Return what of an answer is to stay: yes or no, with whom, or by which rules not.

    Hosts that are refused alike are one.
    """
    try:
        if found:
            return "found", str(found[0])
    except SearchLimitReached:
        return ("cut short",)
    return "none", frozenset(
        frozenset((one.rule, str(one.resource)) for one in reasons)
        for _, reasons in found.explain().by_host()
    )


# --- what is left out -----------------------------------------------------------------------------


def _least(
    columns: Columns,
    things: Callable[[Columns], Sequence[Any]],
    without: Callable[[Columns, Collection[Any]], Columns],
    is_kept: Callable[[Columns], bool],
) -> Columns:
    """Leave out as many things as can be: by halves, then by smaller parts, then one by one.

    Delta debugging (Zeller and Hildebrandt, TSE 2002), by complements.
    """
    left = list(things(columns))
    size = max(1, len(left) // 2)
    while left:
        start, some = 0, False
        while start < len(left):
            gone = left[start : start + size]
            fewer = without(columns, gone)
            if is_kept(fewer):
                columns, some = fewer, True
                del left[start : start + size]
            else:
                start += size
        if size == 1 and not some:
            break
        size = max(1, size // 2)
    return columns


def _trees(columns: Columns) -> list[int]:
    return list(dict.fromkeys(columns.providers.root_id))


def _without_trees(columns: Columns, gone: Collection[int]) -> Columns:
    given, out = columns.providers, frozenset(gone)
    rows = zip(given.provider_id, given.root_id, strict=True)
    return _of_providers(columns, {number for number, root in rows if root not in out})


def _consumers(columns: Columns) -> list[str]:
    return sorted(set(columns.allocations.consumer))


def _without_consumers(columns: Columns, gone: Collection[str]) -> Columns:
    return without_consumers(columns, *gone)


#: What is left out of a row of a provider, by the first two columns of its table.
_ROWS = ("inventories", "traits", "aggregates")


def _rows(columns: Columns) -> list[tuple[str, int, str]]:
    """Return rows of providers, but for figures of what is kept as one: a topology, devices."""
    kinds = zip(columns.kinds.provider_id, columns.kinds.classes, strict=True)
    whole = {(number, name) for number, classes in kinds for name in classes}
    return [
        (name, *row[:2])
        for name in _ROWS
        for row in zip(*getattr(columns, name), strict=True)
        if name != "inventories" or row[:2] not in whole
    ]


def _without_rows(columns: Columns, gone: Collection[tuple[str, int, str]]) -> Columns:
    """Return columns without some rows; what is held of an inventory goes with it."""
    out = frozenset(gone)
    held = {row[1:] for row in out if row[0] == "inventories"}
    return _chosen(
        columns,
        lambda name, row: (
            (name, *row[:2]) not in out
            and not (name == "allocations" and row[:2] in held)
            and not (name == "units" and (row[0], row[2]) in held)
            and not (name == "shares" and (row[:2] in held or row[2:4] in held))
        ),
    )


def _leaves(columns: Columns) -> list[int]:
    """Return providers, the lowest first, so that one goes before what it is below."""
    return list(columns.providers.provider_id)[::-1]


def _without_leaf(columns: Columns, gone: Collection[int]) -> Columns:
    return _of_providers(columns, set(columns.providers.provider_id) - set(gone))


def _of_providers(columns: Columns, kept: Collection[int]) -> Columns:
    """Return the rows of some providers; a share with one that goes, goes."""
    return _chosen(
        columns, lambda name, row: row[0] in kept and (name != "shares" or row[2] in kept)
    )


def _chosen(columns: Columns, keeps: Callable[[str, tuple[Any, ...]], bool]) -> Columns:
    """Return the rows that are to be kept, by the names of their tables."""
    found: dict[str, Any] = {}
    for name, kind in _TABLES.items():
        rows = [row for row in zip(*_full(getattr(columns, name)), strict=True) if keeps(name, row)]
        found[name] = kind(*zip(*rows, strict=True)) if rows else kind()
    return Columns(**found, now=columns.now)


#: What is left out, the larger things first, and how.
PARTS: Sequence[tuple[Callable[[Columns], Sequence[Any]], Callable[..., Columns]]] = (
    (_trees, _without_trees),
    (_consumers, _without_consumers),
    (_leaves, _without_leaf),
    (_rows, _without_rows),
)


def _full(table: Any) -> Iterator[Sequence[Any]]:
    """Yield the columns of a table; those of which nothing is known say None."""
    for column in table:
        yield column if column or not table[0] else [None] * len(table[0])


# --- as plain data --------------------------------------------------------------------------------


def _without_head(text: str | bytes) -> str | bytes:
    """Return text without the lines for people that it begins with."""
    mark: Any = b"#" if isinstance(text, bytes) else "#"
    while isinstance(text, str | bytes) and text.startswith(mark):
        text = text.partition(b"\n" if isinstance(text, bytes) else "\n")[2]  # type: ignore[arg-type]
    return text


def _said(table: Any) -> dict[str, Any]:
    columns = zip(table._fields, _full(table), strict=True)
    return {name: [_plain(value) for value in column] for name, column in columns if column}


def _plain(value: Any) -> Any:
    if isinstance(value, Disabled):
        return value.obj_to_primitive()
    if isinstance(value, datetime.datetime):
        return None
    return list(value) if isinstance(value, tuple) else value


def _read_table(name: str, data: Any) -> Any:
    kind = _TABLES[name]
    if not isinstance(data, Mapping) or not set(data) <= set(kind._fields):
        said = ", ".join(kind._fields)
        raise exceptions.InvalidInput(
            "text", f"bundle.{name}", data, f"an object of columns {said}"
        )
    found: dict[str, Sequence[Any]] = {}
    for column, values in data.items():
        where = f"bundle.{name}.{column}"
        if not isinstance(values, list):
            raise exceptions.InvalidInput("text", where, values, "a list")
        found[column] = [_value(where, column, value) for value in values]
    return kind(**found)


def _value(where: str, column: str, value: Any) -> Any:
    if column in TIMES or (value is None and column in _MAYBE):
        return None
    if column == "disabled":
        return _object(where, value)
    if column == "classes":
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return tuple(value)
    elif column in _TEXT:
        if isinstance(value, str):
            return value
    elif type(value) is int and abs(value) < 2**63:
        return value
    raise exceptions.InvalidInput("text", where, value, "text" if column in _TEXT else "an integer")


def _object(where: str, value: Any) -> Disabled:
    try:
        found: Disabled = Disabled.obj_from_primitive(value)
    except (ValueError, TypeError, AttributeError) as error:
        raise exceptions.InvalidInput(
            "text", where, value, "why something is out of service"
        ) from error
    return found


def _moment(value: Any) -> datetime.datetime | None:
    if value is None:
        return None
    try:
        return datetime.datetime.fromisoformat(value).astimezone(datetime.UTC)
    except (ValueError, TypeError) as error:
        raise exceptions.InvalidInput("text", "bundle.now", value, "a moment") from error


def _options(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise exceptions.InvalidInput("text", "bundle.options", data, "an object")
    return checked_options(data)


def checked_options(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options of a search that a file may say.

    :raises InvalidInput: for another one
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        kind = OPTIONS.get(name)
        is_right = kind is not None and isinstance(value, kind) and not isinstance(value, bool)
        if name == "order" and isinstance(value, Order):
            value = _told_order(value)
        elif value is not None and not is_right:
            raise exceptions.InvalidInput(
                "text", f"bundle.{name}", value, f"options {', '.join(OPTIONS)}"
            )
        elif name == "order" and isinstance(value, Mapping):
            value = _told_order(_order(value))
        elif name == "limits" and value is not None:
            value = _limits(value)
        found[name] = value
    return FrozenDict(found)


def _order(given: Mapping[str, Any]) -> Order:
    unknown = [key for key in given if key not in _ORDER]
    if unknown:
        raise exceptions.InvalidInput(
            "field name", "bundle.order", unknown[0], f"one of {', '.join(_ORDER)}"
        )
    return Order(**given)


def _told_order(order: Order) -> str | dict[str, Any]:
    """Return an order as plain data: its name, if that says all."""
    if order.weigh is not None:
        raise exceptions.InvalidInput("text", "bundle.order", order, "an order that a file can say")
    if order == Order(order.by):
        return order.by
    said = {name: getattr(order, name) for name in _ORDER}
    return {k: dict(v) if isinstance(v, Mapping) else v for k, v in said.items() if v}


def _limits(given: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (provider, name), most in limits(given).items():
        found.setdefault(provider, {})[name] = most
    return found
