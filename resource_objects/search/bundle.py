"""A repro bundle: a snapshot, a request and the options of a search in a file.

A bundle gives the same answer wherever it is loaded. :meth:`Bundle.shrunk` removes what the answer
does not need: whole trees first, then consumers, single providers and their rows.

The JSON form is an object with ``"version": 1``, the tables of
:class:`~resource_objects.providers.columns.Columns` column by column, the request in its wire form,
the options of the search, and the answer. Lines that begin with ``#`` before it are for readers:
the command draws the snapshot there.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import types
import typing
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.fields import FrozenDict
from resource_objects.providers import serialization
from resource_objects.providers.arguments import limits
from resource_objects.providers.columns import Columns
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.dry_run import without_consumers
from resource_objects.requests import Request
from resource_objects.search.candidates import Candidates
from resource_objects.search.order import Order
from resource_objects.search.scenario import State

#: Version of the JSON form.
VERSION = 1
#: The options of a search that a bundle may have, with the type of each.
OPTIONS = {
    "limit": int,
    "per_host": int,
    "order": str | Mapping | Order,
    "seed": int,
    "budget": int,
    "limits": Mapping,
}
_KEYS = ("tables", "request", "options", "at", "now", "answer")
#: The fields of an order that a file can express.
_ORDER = ("by", "weights", "preferred", "among")
#: The tables, in the order of the file.
_TABLES = tuple(
    field.name for field in dataclasses.fields(Columns) if field.name not in ("cursor", "now")
)
#: A table of older bundles, which are read if it is empty.
_FORMER_TABLE = "disabled_units"


S = TypeVar("S", bound=State)


@dataclasses.dataclass(frozen=True, slots=True)
class Bundle(Generic[S]):
    """A search that can be repeated: the rows of a snapshot, a request and options.

    :param columns: the rows of the snapshot
    :param options: of the search: those of :data:`OPTIONS`
    :param at: the provider that the snapshot is confined to
    :param answer: the known answer in the form of :func:`answer_of`, None if it is not known
    :param open_snapshot: makes the snapshot of the columns
    """

    columns: Columns
    request: Request
    options: Mapping[str, Any]
    at: str | None
    answer: Any = None
    open_snapshot: Callable[..., S] = dataclasses.field(kw_only=True, repr=False, compare=False)

    def ask(self) -> Candidates:
        """Return the candidates of the request."""
        options = dict(self.options)
        if isinstance(order := options.get("order"), Mapping):
            options["order"] = Order(**order)
        if bounds := options.get("limits"):  # a smaller bundle may lack some of the providers
            existing = {*self.columns.providers.name, *self.columns.providers.uuid}
            options["limits"] = {key: bounds[key] for key in bounds if key in existing}
        return self.snapshot().candidates(self.request, **options)

    def snapshot(self) -> S:
        """Return the snapshot."""
        return self.open_snapshot(self.columns, at=self.at)

    def answered(self) -> Bundle[S]:
        """Return the bundle with its present answer."""
        return dataclasses.replace(self, answer=answer_of(self.ask()))

    def holds(self) -> bool:
        """Return True if the answer is still the known one."""
        return bool(self.answer == answer_of(self.ask()))

    def shrunk(self, outcome: Callable[[Candidates], Hashable] | None = None) -> Bundle[S]:
        """Return a smallest bundle with the same outcome: no single thing more can be removed.

        Cost: a search of ever smaller snapshots for each trial: for a fleet some searches for each
        power of two of its trees, then a few for each thing that remains.

        :param outcome: the part of an answer that must remain; None for :func:`outcome_of`
        """
        outcome = outcome_of if outcome is None else outcome
        expected = outcome(self.ask())

        def is_enough(columns: Columns) -> bool:
            try:
                return outcome(dataclasses.replace(self, columns=columns).ask()) == expected
            except exceptions.ResourceObjectsError:  # a named provider is missing, or the rows
                return False  # are inconsistent

        before, columns = None, self.columns
        while columns != before:  # the last removal may have been the reason for another thing
            before = columns
            for list_all, remove in PARTS:
                columns = _reduced(columns, list_all, remove, is_enough)
        small = dataclasses.replace(self, columns=columns)
        return small if self.answer is None else small.answered()

    def to_json(self, indent: int | None = 1) -> str:
        """Return the bundle as JSON text, which :meth:`from_json` reads back."""
        tables = {name: getattr(self.columns, name) for name in _TABLES}
        data = {
            "version": VERSION,
            "request": self.request.obj_to_primitive(),
            "options": dict(self.options),
            "at": self.at,
            "now": None if self.columns.now is None else self.columns.now.isoformat(),
            **({} if self.answer is None else {"answer": self.answer}),
            "tables": {
                name: {
                    column: values
                    for column, values in zip(table._fields, _padded(table), strict=True)
                    if values
                }
                for name, table in tables.items()
            },
        }
        return json.dumps(data, indent=indent, ensure_ascii=False, default=_plain)

    @classmethod
    def from_json(cls, text: str | bytes, open_snapshot: Callable[..., S]) -> Bundle[S]:
        """Return the bundle of a JSON text.

        :raises InvalidInput: if it is not the JSON text of a bundle
        :raises UnsupportedVersion: if it is of another version
        :raises InvalidInput, InvalidTree: if the tables are inconsistent
        """
        data = serialization.from_json(_without_head(text), "bundle")
        data = serialization.versioned(data, "bundle", VERSION)
        for key in data:
            if key not in _KEYS:
                expected = f"one of {', '.join(_KEYS)}"
                raise exceptions.InvalidInput("field name", "bundle", key, expected)
        tables, request, options = (data.get(key) for key in ("tables", "request", "options"))
        if isinstance(tables, Mapping) and tables.get(_FORMER_TABLE) == {}:
            tables = {name: table for name, table in tables.items() if name != _FORMER_TABLE}
        if not isinstance(tables, Mapping) or set(tables) != set(_TABLES):
            expected = f"tables {', '.join(_TABLES)}"
            raise exceptions.InvalidInput("text", "bundle.tables", tables, expected)
        if not isinstance(options, Mapping):
            raise exceptions.InvalidInput("text", "bundle.options", options, "an object")
        bundle = Bundle(
            Columns(
                **{name: _read_table(name, tables[name]) for name in _TABLES},
                now=_read("bundle.now", data.get("now"), "a moment", _moment),
            ),
            _read("bundle.request", request, "the wire form", Request.obj_from_primitive),
            checked_options(options),
            data.get("at"),
            data.get("answer"),
            open_snapshot=open_snapshot,
        )
        bundle.snapshot()  # inconsistent tables are refused here
        return bundle


def answer_of(candidates: Candidates) -> dict[str, Any]:
    """Return an answer as plain data: the candidates, or the failed rules of each host."""
    try:
        texts = [str(candidate) for candidate in candidates]
    except SearchLimitReached:
        return {"cut_short": True}
    if texts:
        return {"candidates": texts, "cut_short": candidates.cut_short}
    return {
        "refused": {
            host: sorted({f"{reason.rule} of {reason.resource}" for reason in reasons})
            for host, reasons in candidates.explain().by_host()
        }
    }


def outcome_of(candidates: Candidates) -> Hashable:
    """Return the first candidate; or the different sets of rules and classes that hosts fail."""
    try:
        if candidates:
            return "found", str(candidates[0])
    except SearchLimitReached:
        return ("cut short",)
    return "none", frozenset(
        frozenset((reason.rule, str(reason.resource)) for reason in reasons)
        for _, reasons in candidates.explain().by_host()
    )


# --- what a smaller bundle lacks ------------------------------------------------------------------


def _reduced(
    columns: Columns,
    list_all: Callable[[Columns], Iterable[Any]],
    remove: Callable[[Columns, Collection[Any]], Columns],
    is_enough: Callable[[Columns], bool],
) -> Columns:
    """Return columns without as many things as possible: halves, then smaller parts, then each.

    Delta debugging by complements (Zeller and Hildebrandt, TSE 2002).
    """
    things = list(list_all(columns))
    size = max(1, len(things) // 2)
    while things:
        start, is_smaller = 0, False
        while start < len(things):
            fewer = remove(columns, things[start : start + size])
            if is_enough(fewer):
                columns, is_smaller = fewer, True
                del things[start : start + size]
            else:
                start += size
        if size == 1 and not is_smaller:
            break
        size = max(1, size // 2)
    return columns


def _without_trees(columns: Columns, roots: Collection[int]) -> Columns:
    removed = frozenset(roots)
    rows = zip(columns.providers.provider_id, columns.providers.root_id, strict=True)
    return _without_providers(columns, {number for number, root in rows if root in removed})


def _without_providers(columns: Columns, numbers: Collection[int]) -> Columns:
    removed = frozenset(numbers)
    return _selected(
        columns,
        lambda name, row: row[0] not in removed and (name != "shares" or row[2] not in removed),
    )


def _rows(columns: Columns) -> list[tuple[str, int, str]]:
    """Return (table, provider, name) of rows, except for the records of placed resources."""
    kinds = zip(columns.kinds.provider_id, columns.kinds.classes, strict=True)
    placed = {(number, name) for number, classes in kinds for name in classes}
    return [
        (table, *row[:2])
        for table in ("inventories", "traits", "aggregates")
        for row in zip(*getattr(columns, table), strict=True)
        if table != "inventories" or row[:2] not in placed
    ]


def _without_rows(columns: Columns, rows: Collection[tuple[str, int, str]]) -> Columns:
    """Return columns without some rows, and without allocations and shares of the inventories."""
    removed = frozenset(rows)
    inventories = {row[1:] for row in removed if row[0] == "inventories"}
    #: the columns with an inventory that a row of these tables is about
    keys = {"allocations": ((0, 1),), "units": ((0, 2),), "shares": ((0, 1), (2, 3))}
    return _selected(
        columns,
        lambda name, row: (
            (name, *row[:2]) not in removed
            and not any((row[a], row[b]) in inventories for a, b in keys.get(name, ()))
        ),
    )


def _selected(columns: Columns, is_kept: Callable[[str, tuple[Any, ...]], bool]) -> Columns:
    """Return the rows for which a predicate of the table and the row is true."""
    tables: dict[str, Any] = {}
    for name in _TABLES:
        table = getattr(columns, name)
        rows = [row for row in zip(*_padded(table), strict=True) if is_kept(name, row)]
        tables[name] = type(table)(*zip(*rows, strict=True)) if rows else type(table)()
    return Columns(**tables, now=columns.now)


#: The things that are removed, the largest first.
PARTS: Sequence[tuple[Callable[..., Iterable[Any]], Callable[..., Columns]]] = (
    (lambda columns: dict.fromkeys(columns.providers.root_id), _without_trees),
    (
        lambda columns: sorted(set(columns.allocations.consumer)),
        lambda columns, consumers: without_consumers(columns, *consumers),
    ),
    (lambda columns: columns.providers.provider_id[::-1], _without_providers),  # lowest first
    (_rows, _without_rows),
)


def _padded(table: Any) -> Iterator[Sequence[Any]]:
    """Yield the columns of a table; an empty column of a table with rows has None in each."""
    for column in table:
        yield column if column or not table[0] else [None] * len(table[0])


# --- plain data -----------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Return a value for JSON; times of reports are not recorded."""
    return value.obj_to_primitive() if isinstance(value, Disabled) else None


def _without_head(text: str | bytes) -> str | bytes:
    """Return text without its first lines that begin with ``#``."""
    mark: Any = b"#" if isinstance(text, bytes) else "#"
    end: Any = b"\n" if isinstance(text, bytes) else "\n"
    while isinstance(text, str | bytes) and text.startswith(mark):
        text = text.partition(end)[2]
    return text


def _read_table(name: str, data: Any) -> Any:
    kind = type(getattr(Columns(), name))
    hints, checks = {}, {}
    for column, hint in typing.get_type_hints(kind).items():
        (member,) = typing.get_args(hint)
        hints[column] = types.GenericAlias(tuple, (member, ...))
        if member in (int, int | None):
            checks[column] = _small
    readers: dict[Any, Any] = {datetime.datetime: lambda *_: None, Disabled: _disabled}
    path = f"bundle.{name}"
    try:
        return kind(**serialization.read_fields(hints, data, path, checks, readers, ()))
    except exceptions.InvalidInput as error:
        raise exceptions.InvalidInput("text", error.what, error.value, error.expected) from error


def _small(value: int) -> int:
    if abs(value) >= 2**63:
        raise exceptions.InvalidInput("text", "integer", value, "an integer of 64 bits")
    return value


def _disabled(value: Any, path: str) -> Any:
    return _read(path, value, "the wire form of a disabled provider", Disabled.obj_from_primitive)


def _moment(value: Any) -> datetime.datetime | None:
    if value is None:
        return None
    return datetime.datetime.fromisoformat(value).astimezone(datetime.UTC)


def _read(path: str, value: Any, expected: str, reader: Callable[[Any], Any]) -> Any:
    try:
        return reader(value)
    except (ValueError, TypeError, AttributeError) as error:
        raise exceptions.InvalidInput("text", path, value, expected) from error


def checked_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options of a search as plain data.

    :raises InvalidInput: for an option that a file cannot express
    """
    plain: dict[str, Any] = {}
    for name, value in options.items():
        kind = OPTIONS.get(name)
        is_valid = kind is not None and (value is None or isinstance(value, kind))
        if not is_valid or isinstance(value, bool):
            expected = f"options {', '.join(OPTIONS)}"
            raise exceptions.InvalidInput("text", f"bundle.{name}", value, expected)
        if name == "order" and isinstance(value, Order | Mapping):
            value = _plain_order(value)
        elif name == "limits" and value is not None:
            by_provider: dict[str, dict[str, int]] = {}
            for (provider, resource_class), most in limits(value).items():
                by_provider.setdefault(provider, {})[resource_class] = most
            value = by_provider
        plain[name] = value
    return FrozenDict(plain)


def _plain_order(value: Order | Mapping[str, Any]) -> str | dict[str, Any]:
    """Return an order as plain data: its name, if it has no other fields."""
    if isinstance(value, Mapping):
        for key in value:
            if key not in _ORDER:
                expected = f"one of {', '.join(_ORDER)}"
                raise exceptions.InvalidInput("field name", "bundle.order", key, expected)
        value = Order(**value)
    if value.weigh is not None:
        expected = "an order that a file can say"
        raise exceptions.InvalidInput("text", "bundle.order", value, expected)
    if value == Order(value.by):
        return value.by
    fields = {name: getattr(value, name) for name in _ORDER}
    return {k: dict(v) if isinstance(v, Mapping) else v for k, v in fields.items() if v}
