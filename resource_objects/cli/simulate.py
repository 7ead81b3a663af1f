"""The command that replays a trace of jobs on a ledger."""

from __future__ import annotations

import os
import uuid
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from resource_objects.cli import base
from resource_objects.cli.progress import Bar
from resource_objects.cli.schedule import PIPELINE, pipeline_of

if TYPE_CHECKING:
    from resource_objects.scheduler.replay import Trace

_JOBS = "jobs: name, cpu_milli, memory_mib, num_gpu, gpu_milli, creation_time, deletion_time"


@base.table(
    base.argument("--hosts", "CSV", "hosts: sn, cpu_milli, memory_mib, gpu"),
    base.argument("--jobs", "CSV", _JOBS),
    base.argument("--generate", "HOSTS,JOBS", "a random trace in place of the files"),
    base.argument("--seed", None, "the seed of a random trace (0)", type=int, default=0),
    base.argument("--plot", "FILE", "a drawing: .svg, .png or .pdf; needs the extra plot"),
    base.argument(
        "--order", None, "the order of hosts: name, pack, spread or random", default="pack"
    ),
    base.argument(
        "--name", None, "of a replay that was interrupted, to continue it; else a new one"
    ),
    base.section("filters and weighers, before the order", *PIPELINE),
    base.argument("--processes", None, "the number of processes (1)", type=int, default=1),
    columns=("Process", "Placed", "Refused", "Released", "Lost races", "Jobs per second"),
    opens=False,
)
def simulate_replay(command: base.Command, args: Namespace) -> base.Rows:
    """Start and end the jobs of a trace on a ledger, without waiting.

    The hosts of the trace are created first. The allocations of a job are released at its end; a
    job without an end stays.
    """
    from resource_objects.scheduler import replay

    trace, order, processes = _trace(args), args.order, args.processes
    with base.misused():
        pipeline = pipeline_of(args) if args.filter or args.weigh or args.settings else None
    name = args.name or uuid.uuid4().hex
    options: Any = {"order": order, "pipeline": pipeline, "name": name}
    if args.plot and processes > 1:
        raise base.Misused("--plot: only a replay by one process is drawn")
    with command.open_ledger() as ledger, Bar("replay") as bar, base.misused():
        replay.put_hosts(ledger, trace)
        if processes == 1:
            results = [replay.replay(ledger, trace, progress=bar.tell, **options)]
    if processes != 1:
        with base.misused():
            url = base.database_url(command.app.options.database, os.environ)
            results = [*replay.replay_by_processes(url, trace, processes, **options)]
    if args.plot:
        replay.plot_replays({order: results[0]}, trace.gpu_parts, args.plot)
    return [
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


def _trace(args: Namespace) -> Trace:
    from resource_objects.scheduler.replay import Trace

    if args.generate is not None:
        if args.hosts or args.jobs:
            raise base.Misused("say --generate, or --hosts and --jobs, not both")
        hosts, _, jobs = args.generate.partition(",")
        if not (hosts.isdecimal() and jobs.isdecimal()):
            raise base.Misused(f"--generate: got {args.generate!r}, expected HOSTS,JOBS: 100,5000")
        return Trace.generated(hosts=int(hosts), jobs=int(jobs), seed=args.seed)
    if not (args.hosts and args.jobs):
        raise base.Misused("say --hosts and --jobs, or --generate")
    with base.misused():
        return Trace.read(args.hosts, args.jobs)
