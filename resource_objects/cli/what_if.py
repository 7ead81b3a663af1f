"""The commands that try changes in a copy of the ledger and ask then; and what carries them out."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.cli import request_arguments as arguments
from resource_objects.cli.base import (
    Command,
    Drawing,
    Lines,
    Lister,
    Misused,
    Refused,
    SearchCutShort,
    Table,
    add_actor,
    misused,
    read_input,
)

if TYPE_CHECKING:
    from resource_objects.cli.render import Glyphs
    from resource_objects.ledger import Ledger
    from resource_objects.requests import Request
    from resource_objects.search import Candidates, Explanation, Snapshot
    from resource_objects.search.bundle import Bundle
    from resource_objects.search.drain import Rehearsal
    from resource_objects.search.scenario import Scenario
    from resource_objects.search.script import Change

_COLUMNS = ("#", "allocation", "resource provider")
_RELAXED = ("cost", "kind", "change", "candidate")
#: The number of drawn hosts, the nearest ones.
_DRAWN = 3


# --- changes --------------------------------------------------------------------------------------


def add_changes(parser: argparse.ArgumentParser) -> None:
    """Add the options of changes that are tried in a copy of the ledger first."""
    words = parser.add_argument_group("tried before, in a copy: nothing is written")
    words.add_argument(
        "--change",
        metavar="LINE",
        action="append",
        default=[],
        help="such as 'release job-1' or 'add host9 like host0' (see what-if); may be repeated",
    )
    words.add_argument("--script", metavar="FILE", help="changes, a line each; - reads the input")


def read_changes(parsed_args: argparse.Namespace) -> tuple[Change, ...]:
    """Return the changes of the options, those of the script first.

    :raises InvalidInput: for a malformed change
    """
    if not parsed_args.change and not parsed_args.script:
        return ()
    from resource_objects.search.script import read_script

    lines = read_input(parsed_args.script).decode() if parsed_args.script else ""
    return (*read_script(lines), *read_script(parsed_args.change))


def scenario_of(
    command: Command, ledger: Ledger, changes: Sequence[Change], at: str | None = None
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
            raise Misused(f"change {number}, {change}: {error}") from error
        except exceptions.ResourceObjectsError:
            command.app.stderr.write(f"change {number}, {change}:\n")
            raise
    command.app.stderr.write(f"{scenario.diff()}\n")
    return scenario


def made_for(ledger: Ledger) -> Mapping[str, Request]:
    """Return the requests that consumers were made for. Cost: one read of consumers."""
    return {
        consumer.name: consumer.request
        for consumer in ledger.consumers()
        if consumer.request is not None
    }


# --- the command ----------------------------------------------------------------------------------


class WhatIf(Lister):
    """Try changes in a copy of the ledger, and list the candidates of a request then.

    A change is a line: `release job-1`, `move job-1 host3`, `claim job-2 VCPU=2`, `drain host0`,
    `add host9 like host0`, `add host9/gpu PGPU=1 below host9`, `remove host0`, `resize host0
    VCPU=16`, `reparent gpu0 host1`, `disable host0`, `enable host0`. Changes are made in the order
    of the options, those of --script first. Nothing is written: --plan writes them as a plan for
    `plan apply`. If there is no candidate, prints the reasons of each host (exit status 1); if the
    budget was exhausted before that was known, exits with status 3.
    """

    columns = (*_COLUMNS, *_RELAXED)
    nothing = "nothing was asked"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        arguments.add_request(parser)
        arguments.add_search(parser)
        add_changes(parser)
        add = parser.add_argument
        add("--plan", metavar="FILE", help="write what the changes come to there, as a plan")
        add(
            "--bundle",
            metavar="FILE",
            help="write the question there as a file that gives the same answer: the smallest "
            "picture that does, drawn, the request, the options",
        )
        add(
            "--relax",
            metavar="K",
            type=int,
            help="if there is no candidate, list the K smallest further changes that would help",
        )
        add(
            "--tree",
            action="store_true",
            help="draw the hosts of the candidates, or the nearest hosts with marks at the "
            "failing providers",
        )

    def run(self, parsed_args: argparse.Namespace) -> int:
        """List the candidates. The status of a drawing is 0 if there is a candidate."""
        self._status = 0
        return super().run(parsed_args) or self._status

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Try, and ask."""
        with misused():
            changes = read_changes(parsed_args)
            is_asked = bool(parsed_args.amounts or parsed_args.groups or parsed_args.query)
            parsed = arguments.parse_request(parsed_args) if is_asked else None
            options = arguments.parse_search(parsed_args, None if parsed is None else parsed.limit)
        if not changes and parsed is None:
            raise Misused("specify changes or a request")
        with self.open_ledger() as ledger:
            scenario = scenario_of(self, ledger, changes, parsed_args.at)
        if parsed_args.plan:
            _write(parsed_args.plan, scenario.diff().to_json())
        if parsed is None:
            return _COLUMNS, ()
        snapshot = scenario.snapshot
        with misused():
            candidates = snapshot.candidates(parsed.request, **options)
            if parsed_args.bundle:
                bundle = snapshot.bundle(parsed.request, **options).answered().shrunk()
                _write(parsed_args.bundle, bundle_text(bundle))
        if not _is_some(candidates):
            return self._refused(snapshot, candidates, parsed_args)
        if parsed_args.tree:
            return (), Drawing.of("\n".join(_drawn_candidates(snapshot, candidates, self.glyphs)))
        return _COLUMNS, [
            (number, str(amounts), name)
            for number, candidate in enumerate(candidates, 1)
            for name, amounts in candidate.by_provider().items()
        ]

    def _refused(
        self, snapshot: Snapshot, candidates: Candidates, parsed_args: argparse.Namespace
    ) -> Table:
        """Return the changes that would help, or a drawing of the failures; or raise."""
        if candidates.cut_short:
            reason = f"the budget of {candidates.budget} steps ran out on {candidates.request}"
            raise SearchCutShort(reason, str(candidates.explain()).splitlines())
        if parsed_args.tree:
            self._status = Refused.status
            return (), Drawing.of("\n".join(failing(snapshot, candidates.explain(), self.glyphs)))
        if parsed_args.relax is None:
            reason = f"nobody could give {candidates.request}"
            raise Refused(reason, str(candidates.explain()).splitlines())
        with misused():
            helps = snapshot.relaxations(candidates.request, parsed_args.relax)
        if helps.cut_short:
            self.app.stderr.write(f"cut short after {helps.tries} tries: there may be others\n")
        if not helps:
            raise Refused(
                f"no single change helps {candidates.request}",
                str(candidates.explain()).splitlines(),
            )
        return _RELAXED, [
            (f"{float(change.cost):.3g}", change.kind, change.description, str(change.candidate))
            for change in helps
        ]


class ApplyPlan(Command):
    """Carry out a plan of a file, such as `what-if --plan` writes, in one transaction.

    Nothing is done if something that it was made of changed meanwhile, which is named (exit status
    1): a provider, what a consumer holds, who has the room.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="- reads the input")
        parser.add_argument(
            "--dry-run", action="store_true", help="only say what it is, and whether it could be"
        )
        add_actor(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Carry it out."""
        from resource_objects.providers.plan import Plan

        with misused():
            plan = Plan.from_json(read_input(parsed_args.file))
        with self.open_ledger(parsed_args.actor) as ledger:
            ledger.apply(plan, dry_run=parsed_args.dry_run)
        self.say(str(plan))


def _write(path: str, text: str) -> None:
    """Write a file.

    :raises Misused: if it cannot be written
    """
    try:
        pathlib.Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise Misused(f"{path} cannot be written: {error.strerror or error}") from error


def _is_some(candidates: Candidates) -> bool:
    try:
        return bool(candidates)
    except exceptions.SearchLimitReached:
        return False


# --- drawn ----------------------------------------------------------------------------------------


def failing(
    snapshot: Snapshot, explanation: Explanation, glyphs: Glyphs, most: int = _DRAWN
) -> Iterator[str]:
    """Yield the answer in a line, and the nearest hosts as trees with the failing places marked."""
    from resource_objects.cli import render
    from resource_objects.cli.explain import marks_of

    yield explanation.answer
    for host in explanation.nearest(most):
        yield ""
        usage = snapshot.usage(host.host)
        marks = {key: tuple(texts) for key, texts in marks_of(host, usage).items()}
        yield render.usage_tree(usage, glyphs, marks)


def _drawn_candidates(snapshot: Snapshot, candidates: Candidates, glyphs: Glyphs) -> Iterator[str]:
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
        yield render.usage_tree(snapshot.usage(*roots), glyphs, marks)
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


def rehearsed(command: Command, ledger: Ledger, parsed_args: argparse.Namespace) -> Rehearsal:
    """Return the result of a drain of some providers: the new host of each consumer, or the
    reasons.
    """
    with misused():
        changes = read_changes(parsed_args)
    scenario = scenario_of(command, ledger, changes)
    done: Rehearsal = scenario.rehearse_drain(
        parsed_args.name, *parsed_args.also, requests=made_for(ledger)
    )
    if parsed_args.plan:
        _write(parsed_args.plan, done.scenario.diff(ledger.snapshot()).to_json())
    return done


def rehearsed_rows(done: Rehearsal) -> list[Sequence[Any]]:
    """Return a row for each consumer with its new host, and for each consumer without one."""
    rows: list[Sequence[Any]] = [
        (entry.consumer, entry.allocated, str(entry.candidate), Lines([])) for entry in done.placed
    ]
    return rows + [
        (entry.consumer, entry.allocated, "", Lines(list(entry.why))) for entry in done.stuck
    ]


def rehearsed_trees(done: Rehearsal, glyphs: Glyphs) -> Iterator[str]:
    """Yield the drawings of moves, and of the nearest hosts of each consumer without a new one."""
    yield from map(str, done.placed)
    for entry in done.stuck:
        yield f"{entry.consumer}: {entry.allocated} -> nowhere"
        if entry.explanation is None:
            yield from (f"  {line}" for line in entry.why)
        else:
            yield from failing(entry.snapshot, entry.explanation, glyphs)
        yield ""
