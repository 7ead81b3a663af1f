"""The commands about names: resource classes, traits, aggregates."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from resource_objects.cli import base

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

_CUSTOM = base.flag("--custom", "leave the standard ones out")
_METAVARS = {"classes": "CLASS", "traits": "TRAIT", "aggregates": "AGGREGATE"}


@base.table(_CUSTOM, columns=("name",), empty="there are none", reads=True)
def list_classes(ledger: Ledger, args: Namespace) -> base.Rows:
    """List the resource classes."""
    return _named(ledger.names.classes.list(), args)


@base.table(_CUSTOM, columns=("name",), empty="there are none", reads=True)
def list_traits(ledger: Ledger, args: Namespace) -> base.Rows:
    """List the traits."""
    return _named(ledger.names.traits.list(), args)


def _named(entries: Iterable[Any], args: Namespace) -> base.Rows:
    return [(entry.name,) for entry in entries if entry.is_custom or not args.custom]


@base.table(columns=("name", "level"), empty="there are no aggregates", reads=True)
def list_aggregates(ledger: Ledger, args: Namespace) -> base.Rows:
    """List the aggregates."""
    return [(item.name, base.optional(item.level)) for item in ledger.names.aggregates.list()]


def _create(kind: str, text: str) -> type[base.Command]:
    def create(ledger: Ledger, args: Namespace) -> None:
        getattr(ledger.names, kind).ensure(args.name)

    return base.command(base.argument("name", _METAVARS[kind], "its name"))(create, text)


def _rename(kind: str, text: str) -> type[base.Command]:
    def rename(ledger: Ledger, args: Namespace) -> None:
        getattr(ledger.names, kind).rename(args.name, args.new)

    name = base.argument("name", _METAVARS[kind], "its name")
    return base.command(
        name, base.argument("--name", "NEW", "its new name", dest="new", required=True)
    )(rename, text)


def _remove(kind: str, text: str) -> type[base.Command]:
    def remove(ledger: Ledger, args: Namespace) -> None:
        getattr(ledger.names, kind).remove(args.name)

    return base.command(base.argument("name", _METAVARS[kind], "its name"))(remove, text)


create_class = _create("classes", "Create a custom resource class, unless it is there.")
set_class = _rename("classes", "Give a custom resource class another name.")
delete_class = _remove("classes", "Remove an unused custom resource class.")
create_trait = _create("traits", "Create a custom trait, unless it is there.")
set_trait = _rename("traits", "Give a custom trait another name.")
delete_trait = _remove("traits", "Remove an unused custom trait.")
set_aggregate = _rename("aggregates", "Give an aggregate another name.")
delete_aggregate = _remove("aggregates", "Remove an aggregate without members.")


@base.command(
    base.argument("name", "AGGREGATE", "its name"),
    base.argument("--level", "LEVEL", "the level, such as rack or room"),
)
def create_aggregate(ledger: Ledger, args: Namespace) -> None:
    """Create an aggregate, unless it is there."""
    ledger.names.aggregates.ensure(args.name, level=args.level)
