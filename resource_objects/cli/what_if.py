"""The commands that try changes in a copy of the ledger and ask then; and what carries them out."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def read_changes(said: argparse.Namespace) -> tuple[Change, ...]:
    """Return the changes of the options, those of the script first.

    :raises InvalidInput: for a malformed change
    """
    if not said.change and not said.script:
        return ()
    from resource_objects.search.script import read_script

    lines = read_input(said.script).decode() if said.script else ""
    return (*read_script(lines), *read_script(said.change))


def tried(
    command: Command, ledger: Ledger, changes: Sequence[Change], at: str | None = None
) -> Scenario[Snapshot]:
    """Return a scenario in which changes are made; what they come to is told where errors go.

    :param at: the provider that the picture is confined to
    :raises Misused: for a change whose words are wrong
    :raises ResourceObjectsError: for one that cannot be, which is told
    """
    scenario = ledger.snapshot(at).fork()
    if not changes:
        return scenario
    from resource_objects.search.script import MOVING

    requests = made_for(ledger) if any(one.verb in MOVING for one in changes) else {}
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
    return {one.name: one.request for one in ledger.consumers() if one.request is not None}


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

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
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
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """List the candidates. The status of a drawing is 0 if there is a candidate."""
        self._status = 0
        return super().run(parsed_args) or self._status

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Try, and ask."""
        said = parsed_args
        with misused():
            changes = read_changes(said)
            is_asked = bool(said.amounts or said.groups or said.query)
            parsed = arguments.parse_request(said) if is_asked else None
            options = arguments.parse_search(said, None if parsed is None else parsed.limit)
        if not changes and parsed is None:
            raise Misused("specify changes or a request")
        with self.open_ledger() as ledger:
            scenario = tried(self, ledger, changes, said.at)
        if said.plan:
            _write(said.plan, scenario.diff().to_json())
        if parsed is None:
            return _COLUMNS, ()
        snapshot = scenario.snapshot
        with misused():
            found = snapshot.candidates(parsed.request, **options)
            if said.bundle:
                bundle = snapshot.bundle(parsed.request, **options).answered().shrunk()
                _write(said.bundle, bundle_text(bundle))
        if not _is_some(found):
            return self._refused(snapshot, found, said)
        if said.tree:
            return (), Drawing.of("\n".join(_given(snapshot, found, self.glyphs)))
        return _COLUMNS, [
            (number, str(amounts), name)
            for number, one in enumerate(found, 1)
            for name, amounts in one.by_provider().items()
        ]

    def _refused(
        self, snapshot: Snapshot, found: Candidates, said: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Return the changes that would help, or a drawing of the failures; or raise."""
        if found.cut_short:
            told = f"the budget of {found.budget} steps ran out on {found.request}"
            raise SearchCutShort(told, str(found.explain()).splitlines())
        if said.tree:
            self._status = Refused.status
            return (), Drawing.of("\n".join(failing(snapshot, found.explain(), self.glyphs)))
        if said.relax is None:
            told = f"nobody could give {found.request}"
            raise Refused(told, str(found.explain()).splitlines())
        with misused():
            helps = snapshot.relaxations(found.request, said.relax)
        if helps.cut_short:
            self.app.stderr.write(f"cut short after {helps.tries} tries: there may be others\n")
        if not helps:
            raise Refused(
                f"no single change helps {found.request}",
                str(found.explain()).splitlines(),
            )
        return _RELAXED, [
            (f"{float(one.cost):.3g}", one.kind, one.description, str(one.candidate))
            for one in helps
        ]


class ApplyPlan(Command):
    """Carry out a plan of a file, such as `what-if --plan` writes, in one transaction.

    Nothing is done if something that it was made of changed meanwhile, which is named (exit status
    1): a provider, what a consumer holds, who has the room.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("file", metavar="FILE", help="- reads the input")
        parser.add_argument(
            "--dry-run", action="store_true", help="only say what it is, and whether it could be"
        )
        return add_actor(parser)

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


def _is_some(found: Candidates) -> bool:
    try:
        return bool(found)
    except exceptions.SearchLimitReached:
        return False


# --- drawn ----------------------------------------------------------------------------------------


def failing(
    snapshot: Snapshot, told: Explanation, glyphs: Glyphs, most: int = _DRAWN
) -> Iterator[str]:
    """Yield the answer in a line, and the nearest hosts as trees with the failing places marked."""
    from resource_objects.cli import render
    from resource_objects.cli.explain import marks_of

    yield told.answer
    for one in told.nearest(most):
        yield ""
        usage = snapshot.usage(one.host)
        marks = {key: tuple(some) for key, some in marks_of(one, usage).items()}
        yield render.usage_tree(usage, glyphs, marks)


def _given(snapshot: Snapshot, found: Candidates, glyphs: Glyphs) -> Iterator[str]:
    """Yield the hosts of candidates as trees, with the amounts of each candidate."""
    from resource_objects.cli import render

    fleet = snapshot.fleet
    for number, one in enumerate(found, 1):
        marks: dict[tuple[str, str], tuple[str, ...]] = {}
        roots: dict[str, None] = {}
        for part in one.allocations:
            units = f" ({', '.join(part.units)})" if part.units else ""
            marks[part.provider, part.resource_class] = (f"gives {part.amount}{units}",)
            tree = int(fleet.tree[fleet.place_by_key[part.provider]])
            roots[fleet.hosts[tree]] = None
        yield f"{number}: {one}"
        yield render.usage_tree(snapshot.usage(*roots), glyphs, marks)
        yield ""


def bundle_text(bundle: Bundle[Snapshot]) -> str:
    """Return a bundle as the text of a file, which begins with a drawing."""
    from resource_objects.cli import render

    found = bundle.ask()
    answer = [str(one) for one in found] if found else str(found.explain()).splitlines()
    drawn = render.usage_tree(bundle.snapshot().usage(), render.UNICODE)
    said = ", ".join(f"{name} {value}" for name, value in sorted(bundle.options.items()))
    asked = f"asked: {bundle.request}" + (f" ({said})" if said else "")
    head = [asked, *(f"  {line}" for line in answer), "", *drawn.splitlines()]
    return "\n".join([*(f"# {line}".rstrip() for line in head), bundle.to_json()])


# --- a drain that is rehearsed --------------------------------------------------------------------

REHEARSED = ("consumer", "holds", "goes to", "why not")


def rehearsed(command: Command, ledger: Ledger, said: argparse.Namespace) -> Rehearsal:
    """Return the result of a drain of some providers: the new host of each consumer, or the
    reasons.
    """
    with misused():
        changes = read_changes(said)
    scenario = tried(command, ledger, changes)
    done: Rehearsal = scenario.rehearse_drain(said.name, *said.also, requests=made_for(ledger))
    if said.plan:
        _write(said.plan, done.scenario.diff(ledger.snapshot()).to_json())
    return done


def rehearsed_rows(done: Rehearsal) -> list[Sequence[Any]]:
    """Return a row for each consumer with its new host, and for each consumer without one."""
    rows: list[Sequence[Any]] = [
        (one.consumer, one.allocated, str(one.candidate), Lines([])) for one in done.placed
    ]
    return rows + [(one.consumer, one.allocated, "", Lines(list(one.why))) for one in done.stuck]


def rehearsed_trees(done: Rehearsal, glyphs: Glyphs) -> Iterator[str]:
    """Yield the drawings of moves, and of the nearest hosts of each consumer without a new one."""
    yield from map(str, done.placed)
    for one in done.stuck:
        yield f"{one.consumer}: {one.allocated} -> nowhere"
        if one.explanation is None:
            yield from (f"  {line}" for line in one.why)
        else:
            yield from failing(one.snapshot, one.explanation, glyphs)
        yield ""
