"""How it is searched, in words of the command line: where, how many, in which order."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resource_objects.search.order import Order


def add_search(parser: argparse.ArgumentParser) -> None:
    """Add the words that say how it is searched."""
    words = parser.add_argument_group("the search")
    add = words.add_argument
    add("--at", metavar="PROVIDER", help="only at this provider and what is below it")
    add("--limit", metavar="N", type=int, help="at most so many candidates (default: 10)")
    add("--per-host", metavar="N", type=int, help="at most so many of one host (default: 1; "
        "by Placement's rules all)")  # fmt: skip
    add("--order", choices=("name", "pack", "spread", "random"), default="name",
        help="pack: the fullest host first; spread: the emptiest")  # fmt: skip
    for name, metavar, told in (
        ("--weight", "CLASS=NUMBER", "how much its fullness counts (default: 1)"),
        ("--prefer", "TRAIT[=NUMBER]", "hosts with it come first; below 0: last"),
    ):
        add(name, metavar=metavar, action="append", default=[], help=f"{told}; may be repeated")
    add("--among", metavar="N", type=int, help="with a seed: so many of the best are shuffled")
    add("--seed", metavar="N", type=int, help="the same seed gives the same order")
    add("--budget", metavar="STEPS", type=int, help="cut the search short after so many steps")


def read_order(said: argparse.Namespace) -> Order:
    """Return in which order hosts are looked at.

    :raises InvalidInput: naming the word, what was said and what was expected
    """
    from resource_objects.search.order import Order

    return Order(
        said.order,
        weights=_figures("--weight", said.weight, None),
        preferred=_figures("--prefer", said.prefer, 1.0),
        among=said.among,
    )


def _figures(word: str, said: Iterable[str], unsaid: float | None) -> dict[str, float]:
    """Return numbers by name; ``unsaid`` is that of a name without one, None if it must have it."""
    from resource_objects import exceptions

    found: dict[str, float] = {}
    for text in said:
        name, equals, number = text.partition("=")
        try:
            value = float(number) if equals else unsaid
        except ValueError:
            value = None
        if value is None or not name:
            expected = f"{'CLASS' if unsaid is None else 'TRAIT'}=NUMBER"
            raise exceptions.InvalidRequest(word, text, expected)
        if name in found:
            raise exceptions.DuplicateKey(word, name, "each name once")
        found[name] = value
    return found
