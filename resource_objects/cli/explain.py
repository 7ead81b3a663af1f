"""The command that explains why a request has no candidate."""

from __future__ import annotations

import dataclasses
import json
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.cli import base
from resource_objects.cli.request_arguments import REQUEST, SEARCH, parse_request_and_search

if TYPE_CHECKING:
    from resource_objects.providers.usage import Usage
    from resource_objects.reasons import Reason
    from resource_objects.search import Candidates, Explanation, Snapshot
    from resource_objects.search.explain import HostExplanation

#: The words of outlooks.
_OUTLOOKS = {"not_now": "not now", "never": "never", "unknown": "not known"}


@base.table(
    *REQUEST,
    SEARCH,
    base.argument("--nearest", "N", "the number of hosts (default: 3)", type=int, default=3),
    base.flag("--tree", "draw the nearest hosts, the failing places marked"),
    base.flag("--json", "the whole answer as one document, for programs"),
    columns=(
        *("host", "outlook", "group", "rule", "resource"),
        *("asked", "bound", "used", "where", "holders", "reason"),
    ),
    brief=True,
    empty="no host was left out",
    reads=True,
    opens=False,
)
def explain(command: base.Command, args: Namespace) -> base.Answer:
    """Explain why hosts cannot satisfy a request: a summary, the nearest hosts, and what helps.

    The options are those of `candidates`. Nothing is allocated. For each of the nearest hosts the
    output lists the missing amounts and their consumers, and whether the host would fit if it were
    empty (not now) or not even then (never). With a format or --columns, every reason of every host
    is a row. If the budget was exhausted before the answer was known, exits with status 3.
    """
    request, options = parse_request_and_search(args)
    with command.open_ledger() as ledger:
        snapshot = ledger.snapshot(args.at)
        with base.misused():
            candidates = snapshot.candidates(request, **{"limit": None, **options})
            explanation = candidates.explain()
            nearest = explanation.nearest(args.nearest)
        if candidates.cut_short:
            try:
                bool(candidates)
            except exceptions.SearchLimitReached as error:
                raise base.SearchCutShort(
                    explanation.answer, str(explanation).splitlines()
                ) from error
        if args.json:
            document = {"request": str(candidates.request), **explanation.to_dict()}
            document["nearest"] = [item.to_dict() for item in nearest]
            document["helps"] = _helps(snapshot, candidates)
            return base.Answer(text=json.dumps(document, indent=None if args.noindent else 2))
        if args.tree:
            return base.drawing(failing(explanation, nearest, ledger.usage))
        if args.is_brief:
            lines = _brief(explanation, nearest, _helps(snapshot, candidates))
            expired = base.expired_lines(ledger, explanation.reasons)
            return base.Answer(text="\n".join([*lines, *([""] if expired else []), *expired]))
        return base.Answer(_rows(explanation))


def failing(
    explanation: Explanation,
    nearest: Iterable[HostExplanation],
    usage_of: Callable[[str], Usage],
) -> Iterator[str]:
    """Yield the answer in a line, and the nearest hosts as trees with the failing places marked."""
    from resource_objects.cli import render

    yield explanation.answer
    for host in nearest:
        yield ""
        usage = usage_of(host.host)
        marks = {key: tuple(texts) for key, texts in marks_of(host, usage).items()}
        yield render.usage_tree(usage, base.glyphs(), marks)


# --- for people ---------------------------------------------------------------------------------


def _brief(
    explanation: Explanation, nearest: Sequence[HostExplanation], helps: Sequence[str]
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
    if helps:
        yield ""
        yield "what would help:"
        yield from (f"  {item}" for item in helps)


def _helps(snapshot: Snapshot, candidates: Candidates) -> list[str]:
    """Return the smallest changes after which the request fits, if it does not fit now.

    None under limits, which the changes do not consider.
    """
    if candidates or candidates.options.limits:
        return []
    try:
        return list(map(str, snapshot.relaxations(candidates.request)))
    except exceptions.SearchLimitReached:  # the reasons are known, but not what would help
        return []


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
                base.optional(reason.group),
                reason.rule.value,
                base.optional(reason.resource),
                base.figure(reason.requested),
                base.figure(reason.bound),
                base.figure(reason.used),
                base.optional(reason.where),
                base.pairs(dict(reason.holders)),
                str(reason),
            )
