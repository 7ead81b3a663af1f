"""The commands that try changes in a copy of the ledger and ask then; and what carries them out."""

from __future__ import annotations

import pathlib
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from resource_objects import exceptions
from resource_objects.cli import base
from resource_objects.cli.candidates import candidates_of
from resource_objects.cli.explain import failing
from resource_objects.cli.request_arguments import REQUEST, SEARCH, parse_request, parse_search

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.requests import Request
    from resource_objects.search import Candidate, Candidates, Snapshot
    from resource_objects.search.bundle import Bundle
    from resource_objects.search.drain import Rehearsal
    from resource_objects.search.scenario import Scenario
    from resource_objects.search.script import Change

_COLUMNS = ("#", "allocation", "resource provider")
_RELAXED = ("cost", "kind", "change", "candidate")
#: The number of drawn hosts, the nearest ones.
_DRAWN = 3


# --- changes --------------------------------------------------------------------------------------


#: The options of changes that are tried in a copy of the ledger first.
CHANGES = base.section(
    "tried before, in a copy: nothing is written",
    base.repeated(
        "--change",
        "LINE",
        "such as 'release job-1' or 'add host9 like host0' (see what-if); may be repeated",
    ),
    base.argument("--script", "FILE", "changes, a line each; - reads the input"),
)


def read_changes(args: Namespace) -> tuple[Change, ...]:
    """Return the changes of the options, those of the script first.

    :raises InvalidInput: for a malformed change
    """
    if not args.change and not args.script:
        return ()
    from resource_objects.search.script import read_script

    lines = base.read_input(args.script).decode() if args.script else ""
    return (*read_script(lines), *read_script(args.change))


def scenario_of(
    ledger: Ledger, changes: Sequence[Change], at: str | None = None
) -> Scenario[Snapshot]:
    """Return a scenario after changes; their effects are printed on the standard error output.

    :param at: the provider that the snapshot is limited to
    :raises Misused: for a malformed change
    :raises ResourceObjectsError: for an impossible one, which is printed
    """
    scenario = ledger.snapshot(at).fork()
    if not changes:
        return scenario
    from resource_objects.search.script import MOVING

    requests = made_for(ledger) if any(change.verb in MOVING for change in changes) else {}
    for number, change in enumerate(changes, 1):
        try:
            change.apply(scenario, requests)
        except exceptions.InvalidInput as error:
            raise base.Misused(f"change {number}, {change}: {error}") from error
        except exceptions.ResourceObjectsError:
            base.note(f"change {number}, {change}:")
            raise
    base.note(str(scenario.diff()))
    return scenario


def made_for(ledger: Ledger) -> Mapping[str, Request]:
    """Return the requests that consumers were made for. Cost: one read of consumers."""
    return {
        consumer.name: consumer.request
        for consumer in ledger.consumers()
        if consumer.request is not None
    }


# --- the command ----------------------------------------------------------------------------------


@base.table(
    *REQUEST,
    SEARCH,
    CHANGES,
    base.argument("--plan", "FILE", "write what the changes come to there, as a plan"),
    base.argument(
        "--bundle",
        "FILE",
        "write the question there as a file that gives the same answer: the smallest picture that "
        "does, drawn, the request, the options",
    ),
    base.argument(
        "--relax",
        "K",
        "if there is no candidate, list the K smallest further changes that would help",
        type=int,
    ),
    base.flag(
        "--tree",
        "draw the hosts of the candidates, or the nearest hosts with marks at the failing "
        "providers",
    ),
    columns=(*_COLUMNS, *_RELAXED),
    empty="nothing was asked",
    reads=True,
    opens=False,
)
def what_if(command: base.Command, args: Namespace) -> base.Answer:
    """Try changes in a copy of the ledger, and list the candidates of a request then.

    A change is a line: `release job-1`, `move job-1 host3`, `claim job-2 VCPU=2`, `drain host0`,
    `add host9 like host0`, `add host9/gpu PGPU=1 below host9`, `remove host0`, `resize host0
    VCPU=16`, `reparent gpu0 host1`, `disable host0`, `enable host0`. Changes are made in the order
    of the options, those of --script first. Nothing is written: --plan writes them as a plan for
    `plan apply`. If there is no candidate, prints the reasons of each host (exit status 1); if the
    budget was exhausted before that was known, exits with status 3.
    """
    with base.misused():
        changes = read_changes(args)
        has_request = bool(args.amounts or args.groups or args.query)
        parsed = parse_request(args) if has_request else None
        options = parse_search(args, None if parsed is None else parsed.limit)
    if not changes and parsed is None:
        raise base.Misused("specify changes or a request")
    with command.open_ledger() as ledger:
        scenario = scenario_of(ledger, changes, args.at)
    if args.plan:
        _write(args.plan, scenario.diff().to_json())
    if parsed is None:
        return base.Answer((), _COLUMNS)
    snapshot = scenario.snapshot
    with base.misused():
        candidates = snapshot.candidates(parsed.request, **options)
        if args.bundle:
            bundle = snapshot.bundle(parsed.request, **options).answered().shrunk()
            _write(args.bundle, bundle_text(bundle))
    listed = candidates_of(candidates)
    if not listed:
        return _without_candidates(snapshot, candidates, args)
    if args.tree:
        return base.drawing(_drawn_candidates(snapshot, listed))
    rows = [
        (number, str(amounts), name)
        for number, candidate in enumerate(listed, 1)
        for name, amounts in candidate.by_provider().items()
    ]
    return base.Answer(rows, _COLUMNS)


def _without_candidates(snapshot: Snapshot, candidates: Candidates, args: Namespace) -> base.Answer:
    """Return the changes that would help, or a drawing of the failures.

    :raises Refused: with the reasons, if neither is requested or no change helps
    :raises SearchCutShort: if the budget was exhausted
    """
    explanation = candidates.explain()
    reasons = str(explanation).splitlines()
    if candidates.cut_short:
        reason = f"the budget of {candidates.budget} steps ran out on {candidates.request}"
        raise base.SearchCutShort(reason, reasons)
    if args.tree:
        trees = failing(explanation, explanation.nearest(_DRAWN), snapshot.usage)
        return base.drawing(trees, status=base.Refused.status)
    if args.relax is None:
        raise base.Refused(f"nobody could give {candidates.request}", reasons)
    with base.misused():
        helps = snapshot.relaxations(candidates.request, args.relax)
    if helps.cut_short:
        base.note(f"cut short after {helps.tries} tries: there may be others")
    if not helps:
        raise base.Refused(f"no single change helps {candidates.request}", reasons)
    rows = [
        (f"{float(change.cost):.3g}", change.kind, change.description, str(change.candidate))
        for change in helps
    ]
    return base.Answer(rows, _RELAXED)


@base.command(
    base.argument("file", "FILE", "- reads the input"),
    base.flag("--dry-run", "only say what it is, and whether it could be"),
    base.actor,
    opens=False,
)
def apply_plan(command: base.Command, args: Namespace) -> str:
    """Carry out a plan of a file, such as `what-if --plan` writes, in one transaction.

    Nothing is done if something that it was made of changed meanwhile, which is named (exit status
    1): a provider, what a consumer holds, who has the room.
    """
    from resource_objects.providers.plan import Plan

    with base.misused():
        plan = Plan.from_json(base.read_input(args.file))
    with command.open_ledger(args.actor) as ledger:
        ledger.apply(plan, dry_run=args.dry_run)
    return str(plan)


def _write(path: str, text: str) -> None:
    """Write a file.

    :raises Misused: if it cannot be written
    """
    try:
        pathlib.Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise base.Misused(f"{path} cannot be written: {error.strerror or error}") from error


# --- drawn ----------------------------------------------------------------------------------------


def _drawn_candidates(snapshot: Snapshot, candidates: Iterable[Candidate]) -> Iterator[str]:
    """Yield the hosts of candidates as trees, with the amounts of each candidate."""
    from resource_objects.cli import render

    fleet = snapshot.fleet
    for number, candidate in enumerate(candidates, 1):
        marks: dict[tuple[str, str], tuple[str, ...]] = {}
        roots: dict[str, None] = {}
        for part in candidate.allocations:
            units = f" ({', '.join(part.units)})" if part.units else ""
            marks[part.provider, part.resource_class] = (f"gives {part.amount}{units}",)
            tree = int(fleet.tree[fleet.place_by_key[part.provider]])
            roots[fleet.hosts[tree]] = None
        yield f"{number}: {candidate}"
        yield render.usage_tree(snapshot.usage(*roots), base.glyphs(), marks)
        yield ""


def bundle_text(bundle: Bundle[Snapshot]) -> str:
    """Return a bundle as the text of a file, which begins with a drawing."""
    from resource_objects.cli import render

    candidates = bundle.ask()
    answer = (
        [str(item) for item in candidates] if candidates else str(candidates.explain()).splitlines()
    )
    drawn = render.usage_tree(bundle.snapshot().usage(), render.UNICODE)
    options = ", ".join(f"{name} {value}" for name, value in sorted(bundle.options.items()))
    question = f"asked: {bundle.request}" + (f" ({options})" if options else "")
    head = [question, *(f"  {line}" for line in answer), "", *drawn.splitlines()]
    return "\n".join([*(f"# {line}".rstrip() for line in head), bundle.to_json()])


# --- a drain that is rehearsed --------------------------------------------------------------------

REHEARSED = ("consumer", "holds", "goes to", "why not")


def rehearse(ledger: Ledger, args: Namespace) -> Rehearsal:
    """Return the result of a drain of some providers: the new host of each consumer, or the
    reasons.
    """
    with base.misused():
        changes = read_changes(args)
    scenario = scenario_of(ledger, changes)
    rehearsal: Rehearsal = scenario.rehearse_drain(args.name, *args.also, requests=made_for(ledger))
    if args.plan:
        _write(args.plan, rehearsal.scenario.diff(ledger.snapshot()).to_json())
    return rehearsal


def rehearsed_rows(rehearsal: Rehearsal) -> base.Rows:
    """Yield a row for each consumer with its new host, and for each consumer without one."""
    for move in rehearsal.placed:
        yield move.consumer, move.allocated, str(move.candidate), base.lines([])
    for entry in rehearsal.stuck:
        yield entry.consumer, entry.allocated, "", base.lines(entry.why)


def rehearsed_trees(rehearsal: Rehearsal) -> Iterator[str]:
    """Yield the drawings of moves, and of the nearest hosts of each consumer without a new one."""
    yield from map(str, rehearsal.placed)
    for entry in rehearsal.stuck:
        yield f"{entry.consumer}: {entry.allocated} -> nowhere"
        if entry.explanation is None:
            yield from (f"  {line}" for line in entry.why)
        else:
            nearest = entry.explanation.nearest(_DRAWN)
            yield from failing(entry.explanation, nearest, entry.snapshot.usage)
        yield ""
