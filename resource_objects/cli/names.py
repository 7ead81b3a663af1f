"""The commands about names: resource classes, traits, aggregates."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, ClassVar

from resource_objects.cli.base import Command, Lister, Maybe, Table

# --- lists --------------------------------------------------------------------------------------


class ListClasses(Lister):
    """List the resource classes."""

    columns = ("name",)
    nothing = "there are none"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_custom(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read them, page by page."""
        with self.open_ledger() as ledger:
            return _listed(ledger.names.classes.list(), parsed_args)


class ListTraits(Lister):
    """List the traits."""

    columns = ("name",)
    nothing = "there are none"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_custom(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read them, page by page."""
        with self.open_ledger() as ledger:
            return _listed(ledger.names.traits.list(), parsed_args)


class ListAggregates(Lister):
    """List the aggregates."""

    columns = ("name", "level")
    nothing = "there are no aggregates"

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read them, page by page."""
        with self.open_ledger() as ledger:
            aggregates = list(ledger.names.aggregates.list())
        return self.columns, [(aggregate.name, Maybe(aggregate.level)) for aggregate in aggregates]


def _add_custom(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--custom", action="store_true", help="leave the standard ones out")
    return parser


def _listed(entries: Iterable[Any], parsed_args: argparse.Namespace) -> Table:
    return ("name",), [
        (entry.name,) for entry in entries if entry.is_custom or not parsed_args.custom
    ]


# --- one name -----------------------------------------------------------------------------------


class _Create(Command):
    """Base of the commands that create a name."""

    kind: ClassVar[str]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_name(parser, self.kind)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Create it."""
        with self.open_ledger() as ledger:
            getattr(ledger.names, self.kind).ensure(parsed_args.name)


class _Rename(Command):
    """Base of the commands that give something another name."""

    kind: ClassVar[str]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_name(parser, self.kind)
        parser.add_argument("--name", dest="new", metavar="NEW", required=True, help="its new name")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Rename it."""
        with self.open_ledger() as ledger:
            getattr(ledger.names, self.kind).rename(parsed_args.name, parsed_args.new)


class _Delete(Command):
    """Base of the commands that remove a name."""

    kind: ClassVar[str]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_name(parser, self.kind)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove it."""
        with self.open_ledger() as ledger:
            getattr(ledger.names, self.kind).remove(parsed_args.name)


_CALLED = {"classes": "CLASS", "traits": "TRAIT", "aggregates": "AGGREGATE"}


def _add_name(parser: argparse.ArgumentParser, kind: str) -> argparse.ArgumentParser:
    parser.add_argument("name", metavar=_CALLED[kind], help="its name")
    return parser


class CreateClass(_Create):
    """Create a custom resource class, unless it is there."""

    kind = "classes"


class SetClass(_Rename):
    """Give a custom resource class another name."""

    kind = "classes"


class DeleteClass(_Delete):
    """Remove an unused custom resource class."""

    kind = "classes"


class CreateTrait(_Create):
    """Create a custom trait, unless it is there."""

    kind = "traits"


class SetTrait(_Rename):
    """Give a custom trait another name."""

    kind = "traits"


class DeleteTrait(_Delete):
    """Remove an unused custom trait."""

    kind = "traits"


class CreateAggregate(Command):
    """Create an aggregate, unless it is there."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_name(parser, "aggregates")
        parser.add_argument("--level", metavar="LEVEL", help="the level, such as rack or room")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Create it."""
        with self.open_ledger() as ledger:
            ledger.names.aggregates.ensure(parsed_args.name, level=parsed_args.level)


class SetAggregate(_Rename):
    """Give an aggregate another name."""

    kind = "aggregates"


class DeleteAggregate(_Delete):
    """Remove an aggregate without members."""

    kind = "aggregates"
