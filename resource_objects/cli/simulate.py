"""The commands that simulate: how a trace of jobs packs, and what it does to a ledger."""

from __future__ import annotations

import argparse
import os
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from resource_objects.cli.base import Lister, Misused, database_url, misused
from resource_objects.cli.schedule import add_pipeline, pipeline_of
from resource_objects.cli.site import Bar

if TYPE_CHECKING:
    from resource_objects.scheduler.simulation import Trace

#: A packing goes on until so much of all GPUs was asked for.
_LOAD = 1.3


def add_trace(parser: argparse.ArgumentParser) -> None:
    """Add the options that say a trace."""
    add = parser.add_argument
    add("--hosts", metavar="CSV", help="hosts: sn, cpu_milli, memory_mib, gpu")
    add(
        "--jobs",
        metavar="CSV",
        help="jobs: name, cpu_milli, memory_mib, num_gpu, gpu_milli, creation_time, deletion_time",
    )
    add("--generate", metavar="HOSTS,JOBS", help="make a trace of so many instead of reading one")
    add("--seed", type=int, default=0, help="what chance begins with (0)")
    add("--plot", metavar="FILE", help="draw it: .svg, .png or .pdf; needs the extra plot")


def trace_of(parsed_args: argparse.Namespace) -> Trace:
    """Return the trace that the options say."""
    from resource_objects.scheduler.simulation import Trace

    if parsed_args.generate is not None:
        if parsed_args.hosts or parsed_args.jobs:
            raise Misused("say --generate, or --hosts and --jobs, not both")
        hosts, _, jobs = parsed_args.generate.partition(",")
        if not (hosts.isdecimal() and jobs.isdecimal()):
            raise Misused(
                f"--generate: got {parsed_args.generate!r}, expected HOSTS,JOBS: 100,5000"
            )
        return Trace.generated(hosts=int(hosts), jobs=int(jobs), seed=parsed_args.seed)
    if not (parsed_args.hosts and parsed_args.jobs):
        raise Misused("say --hosts and --jobs, or --generate")
    with misused():
        return Trace.read(parsed_args.hosts, parsed_args.jobs)


class Simulate(Lister):
    """Place the jobs of a trace by some policies, and say how well each packs GPUs.

    Without a ledger: jobs are drawn at random until they asked for more GPUs than there are.
    """

    columns = ("Policy", "Seed", "Allocated %", "Fragmented %", "Jobs", "Placed")

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        add_trace(parser)
        add = parser.add_argument
        add("--policy", action="append", help="random, best-fit or fgd; several times; else all")
        add("--runs", type=int, default=1, metavar="N", help="so many of each, with further seeds")
        add("--load", type=float, default=_LOAD, help=f"jobs for so much of all GPUs ({_LOAD})")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], Iterable[Any]]:
        """Pack, and draw it."""
        from resource_objects.scheduler.simulation import POLICIES, pack, plots

        trace = trace_of(parsed_args)
        packings = []
        with misused(), Bar("simulate") as bar:
            for policy in parsed_args.policy or POLICIES:
                for run in range(parsed_args.runs):
                    seed = parsed_args.seed + run
                    load = parsed_args.load
                    found = pack(trace, policy, seed=seed, load=load, progress=bar.tell)
                    packings.append(found)
        if parsed_args.plot:
            plots.plot_packings(packings, parsed_args.plot)
        return self.columns, [
            (
                one.policy,
                one.seed,
                f"{100 * one.allocated[-1]:.2f}",
                f"{100 * one.fragmented[-1]:.2f}",
                len(one.arrived),
                one.placed,
            )
            for one in packings
        ]


class SimulateReplay(Lister):
    """Let the jobs of a trace come and go on a ledger, as fast as it can.

    Its hosts are written first. A job that ends gives back what it held; one without an end keeps
    it.
    """

    columns = ("Process", "Placed", "Refused", "Released", "Lost races", "Jobs per second")

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        add_trace(parser)
        add = parser.add_argument
        add("--order", default="pack", help="hosts taken first: name, pack, spread or random")
        add("--name", help="of a replay that was ended, to go on with it; else a new one")
        add_pipeline(parser.add_argument_group("filters and weighers, before the order"))
        add("--processes", type=int, default=1, help="so many share the jobs (1)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], Iterable[Any]]:
        """Replay, and draw it."""
        from resource_objects.scheduler import simulation
        from resource_objects.scheduler.simulation import plots

        trace, order = trace_of(parsed_args), parsed_args.order
        with misused():
            asked = parsed_args.filter or parsed_args.weigh or parsed_args.settings
            pipeline = pipeline_of(parsed_args) if asked else None
        name = parsed_args.name or uuid.uuid4().hex
        said: Any = {"order": order, "pipeline": pipeline, "name": name}
        if parsed_args.plot and parsed_args.processes > 1:
            raise Misused("--plot: what several processes hold is not drawn; say one")
        with self.open_ledger() as ledger, Bar("replay") as bar, misused():
            simulation.put_hosts(ledger, trace)
            if parsed_args.processes == 1:
                done = [simulation.replay(ledger, trace, progress=bar.tell, **said)]
        if parsed_args.processes != 1:
            with misused():
                url = database_url(self.app.options.database, os.environ)
                processes = parsed_args.processes
                done = list(simulation.replay_by_processes(url, trace, processes, **said))
        if parsed_args.plot:
            plots.plot_replays({order: done[0]}, trace.gpu_parts, parsed_args.plot)
        return self.columns, [
            (number, one.placed, one.refused, one.released, one.lost_races, f"{one.rate:.0f}")
            for number, one in enumerate(done)
        ]
