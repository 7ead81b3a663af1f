"""The commands about names: resource classes, traits, aggregates."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from resource_objects.cli.base import Command, Lister, Maybe


class _Named(Command):
    """Base of the commands that do something to one name."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="NAME")
        return parser

    def tell(self, method: str, *given: Any, **named: Any) -> None:
        """Call a method of the ledger."""
        with self.open_ledger() as ledger:
            call: Callable[..., object] = getattr(ledger, method)
            call(*given, **named)


class _Renamed(_Named):
    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--name", dest="new", metavar="NEW", required=True, help="its new name")
        return parser


class _ListNames(Lister):
    custom: ClassVar[bool] = True
    method: ClassVar[str]

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--custom", action="store_true", help="leave the standard ones out")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read them, page by page."""
        with self.open_ledger() as ledger:
            found = list(getattr(ledger, self.method)())
        return ("name",), [(one.name,) for one in found if one.is_custom or not parsed_args.custom]


class ListClasses(_ListNames):
    """List the resource classes."""

    method = "classes"


class ListTraits(_ListNames):
    """List the traits."""

    method = "traits"


class ListAggregates(Lister):
    """List the aggregates."""

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read them, page by page."""
        with self.open_ledger() as ledger:
            found = list(ledger.aggregates())
        return ("name", "level"), [(one.name, Maybe(one.level)) for one in found]


class CreateClass(_Named):
    """Create a custom resource class, unless it is there."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Create it."""
        self.tell("ensure_class", parsed_args.name)


class SetClass(_Renamed):
    """Give a custom resource class another name."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Rename it."""
        self.tell("rename_class", parsed_args.name, parsed_args.new)


class DeleteClass(_Named):
    """Remove a custom resource class that nobody has."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove it."""
        self.tell("remove_class", parsed_args.name)


class CreateTrait(_Named):
    """Create a custom trait, unless it is there."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Create it."""
        self.tell("ensure_trait", parsed_args.name)


class SetTrait(_Renamed):
    """Give a custom trait another name."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Rename it."""
        self.tell("rename_trait", parsed_args.name, parsed_args.new)


class DeleteTrait(_Named):
    """Remove a custom trait that nobody has."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove it."""
        self.tell("remove_trait", parsed_args.name)


class CreateAggregate(_Named):
    """Create an aggregate, unless it is there."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--level", metavar="LEVEL", help="what it is, such as rack or room")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Create it."""
        self.tell("ensure_aggregate", parsed_args.name, level=parsed_args.level)


class SetAggregate(_Renamed):
    """Give an aggregate another name."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Rename it."""
        self.tell("rename_aggregate", parsed_args.name, parsed_args.new)


class DeleteAggregate(_Named):
    """Remove an aggregate without members."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove it."""
        self.tell("remove_aggregate", parsed_args.name)
