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
    Table,
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

#: The words of outlooks.
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

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
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

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Search and print the explanation."""
        with misused():
            parsed = arguments.parse_request(parsed_args)
            options = {"limit": None, **arguments.parse_search(parsed_args, parsed.limit)}
        with self.open_ledger() as ledger:
            snapshot = ledger.snapshot(parsed_args.at)
            with misused():
                candidates = snapshot.candidates(parsed.request, **options)
                explanation = candidates.explain()
                nearest = explanation.nearest(parsed_args.nearest)
            self._check(candidates, explanation)
            if parsed_args.json:
                answer = {"request": str(candidates.request), **explanation.to_dict()}
                answer["nearest"] = [item.to_dict() for item in nearest]
                answer["helps"] = [str(item) for item in _helps(snapshot, candidates)]
                indent = None if parsed_args.noindent else 2
                return (), Text.of(json.dumps(answer, indent=indent))
            if parsed_args.tree:
                return (), Drawing.of("\n".join(self._drawn(ledger, explanation, nearest)))
            if self.is_brief:
                lines = _brief(explanation, nearest, _helps(snapshot, candidates))
                expired = expired_lines(ledger, explanation.reasons)
                return (), Text.of("\n".join([*lines, *([""] if expired else []), *expired]))
            return self.columns, list(_rows(explanation))

    def _check(self, candidates: Candidates, explanation: Explanation) -> None:
        """Raise an error if the budget was exhausted before the answer of any host was known.

        :raises SearchCutShort: with the partial explanation
        """
        if not candidates.cut_short:
            return
        try:
            bool(candidates)
        except exceptions.SearchLimitReached as error:
            raise SearchCutShort(explanation.answer, str(explanation).splitlines()) from error

    def _drawn(
        self, ledger: Ledger, explanation: Explanation, nearest: Iterable[HostExplanation]
    ) -> Iterator[str]:
        from resource_objects.cli import render

        yield explanation.answer
        for host in nearest:
            yield ""
            usage = ledger.usage(host.host)
            marks = {key: tuple(texts) for key, texts in marks_of(host, usage).items()}
            yield render.usage_tree(usage, self.glyphs, marks)


# --- for people ---------------------------------------------------------------------------------


def _brief(
    explanation: Explanation, nearest: Sequence[HostExplanation], helps: Iterable[Any]
) -> Iterator[str]:
    """Yield the answer, then figures, then what would help."""
    yield explanation.answer
    stages = [item for item in explanation.stages if item.before > item.after]
    if stages:
        yield ""
        yield "conditions that exclude hosts:"
        yield from (f"  {item}" for item in stages)
    if nearest:
        yield ""
        yield "nearest:" if len(nearest) > 1 else "nearest, and the only one left out:"
        yield from (f"  {item} [{_OUTLOOKS[item.outlook.value]}]" for item in nearest)
    told_helps = list(map(str, helps))
    if told_helps:
        yield ""
        yield "what would help:"
        yield from (f"  {item}" for item in told_helps)


def _helps(snapshot: Snapshot, candidates: Candidates) -> Iterable[Any]:
    """Return the smallest changes after which the request fits, if it does not fit now.

    None under limits, which the changes do not consider.
    """
    if candidates or candidates.options.limits:
        return ()
    try:
        return snapshot.relaxations(candidates.request)
    except exceptions.SearchLimitReached:  # the reasons are known, but not what would help
        return ()


def marks_of(host: HostExplanation, usage: Usage) -> dict[tuple[str, str], list[str]]:
    """Return the marks of the providers of a host, by provider and class.

    A reason about one provider is its mark. A reason about several providers marks those without
    free capacity of the class, or else each of them. Other reasons mark the host.
    """
    marks: dict[tuple[str, str], list[str]] = {(host.host, ""): [_OUTLOOKS[host.outlook.value]]}
    for reason in host.reasons:
        for provider, name in _places(host.host, reason, usage):
            marks.setdefault((provider, name), []).append(_remark(reason, name))
    return marks


def _places(host: str, reason: Reason, usage: Usage) -> list[tuple[str, str]]:
    """Return which inventories a reason is about."""
    place = reason.where or host
    uses = [use for use in usage if use.resource_class == reason.resource]
    if reason.cell is not None:
        uses = [use for use in uses if _is_cell(use.provider, reason.cell)]
    at_place = [use for use in uses if use.provider == place]
    if not at_place and place == host:
        at_place = [use for use in uses if use.free <= 0] or uses
    roots = {root.name for root in usage.providers}
    roots.update(use.provider for use in usage)
    at = place if place in roots else host
    return [(use.provider, use.resource_class) for use in at_place] or [(at, "")]


def _is_cell(provider: str, cell: int) -> bool:
    """Return whether a provider is called like the part of a host cell."""
    return provider.rpartition("/")[2] in (f"numa{cell}", f"cell{cell}")


def _remark(reason: Reason, name: str) -> str:
    bare = dataclasses.replace(reason, where=None, holders=())
    return str(bare).removeprefix(f"{name} ") if name else str(bare)


# --- for programs -------------------------------------------------------------------------------


def _rows(explanation: Explanation) -> Iterator[Sequence[Any]]:
    """Yield a row for each reason."""
    outlooks = explanation.outlooks
    for host, reasons in explanation.by_host():
        for reason in reasons:
            yield (
                host,
                outlooks[host].value,
                Maybe(reason.group),
                reason.rule.value,
                Maybe(reason.resource),
                Figure(reason.requested),
                Figure(reason.bound),
                Figure(reason.used),
                Maybe(reason.where),
                Pairs(dict(reason.holders)),
                str(reason),
            )
