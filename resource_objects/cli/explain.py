"""The command that explains why a request has no candidate."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.cli import request_arguments as arguments
from resource_objects.cli.base import (
    Drawing,
    Figure,
    Lister,
    Maybe,
    Pairs,
    SearchCutShort,
    Text,
    expired_lines,
    misused,
)

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.providers.usage import Usage
    from resource_objects.reasons import Reason
    from resource_objects.search import Candidates, Explanation, Snapshot
    from resource_objects.search.explain import HostExplanation

#: What an outlook is called.
_OUTLOOKS = {"not_now": "not now", "never": "never", "unknown": "not known"}


class Explain(Lister):
    """Explain why hosts cannot satisfy a request: a summary, the nearest hosts, and what helps.

    The options are those of `candidates`. Nothing is allocated. For each of the nearest hosts the
    output lists the missing amounts and their consumers, and whether the host would fit if it were
    empty (not now) or not even then (never). With a format or --columns, every reason of every host
    is a row. If the budget was exhausted before the answer was known, exits with status 3.
    """

    columns = (
        *("host", "outlook", "group", "rule", "resource"),
        *("asked", "bound", "used", "where", "holders", "reason"),
    )
    in_brief = True
    nothing = "no host was left out"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        arguments.add_request(parser)
        arguments.add_search(parser)
        parser.add_argument(
            "--nearest", metavar="N", type=int, default=3, help="the number of hosts (default: 3)"
        )
        parser.add_argument(
            "--tree", action="store_true", help="draw the nearest hosts, the failing places marked"
        )
        parser.add_argument(
            "--json", action="store_true", help="the whole answer as one document, for programs"
        )
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Search and print the explanation."""
        with misused():
            parsed = arguments.parse_request(parsed_args)
            options = {"limit": None, **arguments.parse_search(parsed_args, parsed.limit)}
        with self.open_ledger() as ledger:
            snapshot = ledger.snapshot(parsed_args.at)
            with misused():
                found = snapshot.candidates(parsed.request, **options)
                told = found.explain()
                nearest = told.nearest(parsed_args.nearest)
            self._check(found, told)
            if parsed_args.json:
                answer = {"request": str(found.request), **told.to_dict()}
                answer["nearest"] = [one.to_dict() for one in nearest]
                answer["helps"] = [str(one) for one in _helps(snapshot, found)]
                indent = None if parsed_args.noindent else 2
                return (), Text.of(json.dumps(answer, indent=indent))
            if parsed_args.tree:
                return (), Drawing.of("\n".join(self._drawn(ledger, told, nearest)))
            if self.is_brief:
                lines = _brief(told, nearest, _helps(snapshot, found))
                expired = expired_lines(ledger, told.reasons)
                return (), Text.of("\n".join([*lines, *([""] if expired else []), *expired]))
            return self.columns, list(_rows(told))

    def _check(self, found: Candidates, told: Explanation) -> None:
        """Raise if nothing is known: the budget ran out, and of no host the answer is yes.

        :raises SearchCutShort: with what is known so far
        """
        if not found.cut_short:
            return
        try:
            bool(found)
        except exceptions.SearchLimitReached as error:
            raise SearchCutShort(told.answer, str(told).splitlines()) from error

    def _drawn(
        self, ledger: Ledger, told: Explanation, nearest: Iterable[HostExplanation]
    ) -> Iterator[str]:
        from resource_objects.cli import render

        yield told.answer
        for one in nearest:
            yield ""
            usage = ledger.usage(one.host)
            marks = {key: tuple(some) for key, some in marks_of(one, usage).items()}
            yield render.usage_tree(usage, self.glyphs, marks)


# --- for people ---------------------------------------------------------------------------------


def _brief(
    told: Explanation, nearest: Sequence[HostExplanation], helps: Iterable[Any]
) -> Iterator[str]:
    """Yield the answer, then figures, then what would help."""
    yield told.answer
    stages = [one for one in told.stages if one.before > one.after]
    if stages:
        yield ""
        yield "conditions that exclude hosts:"
        yield from (f"  {one}" for one in stages)
    if nearest:
        yield ""
        yield "nearest:" if len(nearest) > 1 else "nearest, and the only one left out:"
        yield from (f"  {one} [{_OUTLOOKS[one.outlook.value]}]" for one in nearest)
    told_helps = list(map(str, helps))
    if told_helps:
        yield ""
        yield "what would help:"
        yield from (f"  {one}" for one in told_helps)


def _helps(snapshot: Snapshot, found: Candidates) -> Iterable[Any]:
    """Return the smallest changes after which the request fits, if it does not fit now.

    None under limits, which the changes do not consider.
    """
    if found or found.options.limits:
        return ()
    try:
        return snapshot.relaxations(found.request)
    except exceptions.SearchLimitReached:  # the reasons are known, but not what would help
        return ()


def marks_of(one: HostExplanation, usage: Usage) -> dict[tuple[str, str], list[str]]:
    """Return the marks of the providers of a host, by provider and class.

    A reason about one provider is its mark. A reason about several providers marks those without
    free capacity of the class, or else each of them. Other reasons mark the host.
    """
    found: dict[tuple[str, str], list[str]] = {(one.host, ""): [_OUTLOOKS[one.outlook.value]]}
    for reason in one.reasons:
        for provider, name in _places(one.host, reason, usage):
            found.setdefault((provider, name), []).append(_remark(reason, name))
    return found


def _places(host: str, reason: Reason, usage: Usage) -> list[tuple[str, str]]:
    """Return which inventories a reason is about."""
    where = reason.where or host
    every = [use for use in usage if use.resource_class == reason.resource]
    if reason.cell is not None:
        every = [use for use in every if _is_cell(use.provider, reason.cell)]
    there = [use for use in every if use.provider == where]
    if not there and where == host:
        there = [use for use in every if use.free <= 0] or every
    known = {root.name for root in usage.providers}
    known.update(use.provider for use in usage)
    at = where if where in known else host
    return [(use.provider, use.resource_class) for use in there] or [(at, "")]


def _is_cell(provider: str, cell: int) -> bool:
    """Return whether a provider is called like the part of a host cell."""
    return provider.rpartition("/")[2] in (f"numa{cell}", f"cell{cell}")


def _remark(reason: Reason, name: str) -> str:
    bare = dataclasses.replace(reason, where=None, holders=())
    return str(bare).removeprefix(f"{name} ") if name else str(bare)


# --- for programs -------------------------------------------------------------------------------


def _rows(told: Explanation) -> Iterator[Sequence[Any]]:
    """Yield a row for each reason."""
    outlooks = told.outlooks
    for host, reasons in told.by_host():
        for one in reasons:
            yield (
                host,
                outlooks[host].value,
                Maybe(one.group),
                one.rule.value,
                Maybe(one.resource),
                Figure(one.requested),
                Figure(one.bound),
                Figure(one.used),
                Maybe(one.where),
                Pairs(dict(one.holders)),
                str(one),
            )
