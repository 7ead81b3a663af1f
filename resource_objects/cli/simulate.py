"""The command that replays a trace of jobs on a ledger."""

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
    from resource_objects.scheduler.replay import Trace

_JOBS = "jobs: name, cpu_milli, memory_mib, num_gpu, gpu_milli, creation_time, deletion_time"


class SimulateReplay(Lister):
    """Start and end the jobs of a trace on a ledger, without waiting.

    The hosts of the trace are created first. The allocations of a job are released at its end; a
    job without an end stays.
    """

    columns = ("Process", "Placed", "Refused", "Released", "Lost races", "Jobs per second")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--hosts", metavar="CSV", help="hosts: sn, cpu_milli, memory_mib, gpu")
        add("--jobs", metavar="CSV", help=_JOBS)
        add("--generate", metavar="HOSTS,JOBS", help="a random trace in place of the files")
        add("--seed", type=int, default=0, help="the seed of a random trace (0)")
        add("--plot", metavar="FILE", help="a drawing: .svg, .png or .pdf; needs the extra plot")
        add("--order", default="pack", help="the order of hosts: name, pack, spread or random")
        add("--name", help="of a replay that was interrupted, to continue it; else a new one")
        add_pipeline(parser.add_argument_group("filters and weighers, before the order"))
        add("--processes", type=int, default=1, help="the number of processes (1)")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], Iterable[Any]]:
        """Replay the trace, and draw it."""
        from resource_objects.scheduler import replay

        trace, order, processes = _trace(parsed_args), parsed_args.order, parsed_args.processes
        with misused():
            has_pipeline = parsed_args.filter or parsed_args.weigh or parsed_args.settings
            pipeline = pipeline_of(parsed_args) if has_pipeline else None
        name = parsed_args.name or uuid.uuid4().hex
        options: Any = {"order": order, "pipeline": pipeline, "name": name}
        if parsed_args.plot and processes > 1:
            raise Misused("--plot: only a replay by one process is drawn")
        with self.open_ledger() as ledger, Bar("replay") as bar, misused():
            replay.put_hosts(ledger, trace)
            if processes == 1:
                results = [replay.replay(ledger, trace, progress=bar.tell, **options)]
        if processes != 1:
            with misused():
                url = database_url(self.app.options.database, os.environ)
                results = [*replay.replay_by_processes(url, trace, processes, **options)]
        if parsed_args.plot:
            replay.plot_replays({order: results[0]}, trace.gpu_parts, parsed_args.plot)
        return self.columns, [
            (
                number,
                result.placed,
                result.refused,
                result.released,
                result.lost_races,
                f"{result.rate:.0f}",
            )
            for number, result in enumerate(results)
        ]


def _trace(parsed_args: argparse.Namespace) -> Trace:
    from resource_objects.scheduler.replay import Trace

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
