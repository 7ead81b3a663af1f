"""The commands of the scheduler: selection of hosts, and the installed filters and weighers."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions, plugins
from resource_objects.cli import base
from resource_objects.cli.request_arguments import (
    ORDER,
    REQUEST,
    parse_order,
    parse_request,
    refuse_words,
)

if TYPE_CHECKING:
    from resource_objects.providers import ServerGroup
    from resource_objects.requests import Gang
    from resource_objects.scheduler import Pipeline
    from resource_objects.yaml_nodes import Node, NodeReader


#: The options for filters and weighers.
PIPELINE = (
    base.repeated("--filter", "NAME", "a filter of hosts; may be repeated", default=None),
    base.repeated(
        "--weigh",
        "NAME[=MULTIPLIER]",
        "a weigher, and how much it counts (default: 1); may be repeated",
        default=None,
    ),
    base.argument(
        "--settings",
        "FILE",
        "filters and weighers with their settings, in YAML; - is standard input",
    ),
)


def _several(*options: tuple[str, str, str]) -> list[base.Argument]:
    return [
        base.repeated(name, metavar, f"{text}; may be repeated") for name, metavar, text in options
    ]


@base.table(
    *REQUEST,
    base.argument(
        "--gang",
        "FILE",
        "members that are placed at once, or alternatives of them, in YAML, instead of a request; "
        "- is standard input. With --claim for CONSUMER/MEMBER",
    ),
    base.argument("--count", "N", "the number of instances (default: 1)", type=int),
    base.argument(
        "--claim",
        "CONSUMER",
        "take it for this consumer; with --count for CONSUMER-1, CONSUMER-2, ...",
    ),
    base.argument(
        "--at-least", "N", "the minimum number; as many as possible are placed", type=int
    ),
    base.argument("--alternates", "N", "the number of alternates of each", type=int, default=0),
    base.section(
        "the requester and its destination",
        base.argument("--project", "PROJECT", "whose it is"),
        base.argument("--user", "USER", "whose it is"),
        base.argument("--zone", "ZONE", "the availability zone"),
        base.argument("--server-group", "GROUP", "the server group that it is a member of"),
        base.argument(
            "--policy",
            "POLICY",
            "of --members: affinity, anti-affinity, soft-affinity or soft-anti-affinity",
        ),
        *_several(
            ("--only", "HOST", "a permitted host"),
            ("--force", "HOST", "a forced host, regardless of filters"),
            ("--ignore", "HOST", "a forbidden host"),
            ("--image-trait", "TRAIT", "a trait that the image requires"),
            ("--extra-spec", "KEY=CONDITION", "such as capabilities:load='<= 3'"),
            ("--members", "CONSUMER", "the members of its group"),
        ),
    ),
    base.section("filters, weighers and the order", *PIPELINE, *ORDER),
    columns=("consumer", "host", "allocation", "alternates"),
    reads=True,
    opens=False,
)
def schedule(command: base.Command, args: Namespace) -> base.Rows:
    """Select hosts for a request by the scheduler's filters and weighers.

    Nothing is allocated, unless --claim names a consumer. All instances are placed or none, unless
    --at-least allows fewer. If there are too few hosts, prints the reasons of each host (exit
    status 1).
    """
    from resource_objects.scheduler import RequestSpec, Scheduler

    if args.gang is not None:
        return _place_gang(command, args)
    with base.misused():
        spec = RequestSpec(parse_request(args).request, **_conditions(args))
        order, pipeline = parse_order(args), pipeline_of(args)
        consumers = _consumers(args)
    with command.open_ledger() as ledger:
        scheduler = Scheduler(ledger, pipeline=pipeline, order=order)
        try:
            with base.misused():
                destinations = scheduler.select_destinations(
                    spec,
                    None if consumers else args.count,
                    consumers=consumers,
                    alternates=args.alternates,
                    at_least=args.at_least,
                    seed=args.seed,
                )
        except exceptions.NoCandidates as refusal:
            answer, *reasons = str(refusal).splitlines()
            subject, _, first = answer.partition(": ")
            reasons += base.expired_lines(ledger, refusal.reasons)
            raise base.Refused(subject, [first, *reasons]) from refusal
    for consumer in destinations.missing:
        base.note(f"no host for {consumer}")
    for name, why in destinations.skipped.items():
        base.note(f"{name}: {why}")
    return [
        (
            destination.consumer,
            destination.host,
            ", ".join(map(str, destination.allocations)),
            base.listed(other.host for other in destination.alternates),
        )
        for destination in destinations
    ]


def _place_gang(command: base.Command, args: Namespace) -> base.Rows:
    """Place a gang; return a row for each member."""
    from resource_objects.scheduler import Scheduler

    for option in ("--count", "--at-least", "--alternates"):
        if getattr(args, option.strip("-").replace("-", "_")):
            raise base.Misused(
                f"{option} has no effect with --gang: members have their own requests"
            )
    with base.misused():
        refuse_words(args, "--gang")
        gangs, order = read_gangs(args.gang), parse_order(args)
        pipeline, conditions = pipeline_of(args), _conditions(args)
    with command.open_ledger() as ledger:
        scheduler = Scheduler(ledger, pipeline=pipeline, order=order)
        try:
            with base.misused():
                placed = scheduler.place_gang(gangs, args.claim, seed=args.seed, **conditions)
        except exceptions.NoCandidates as refusal:
            subject, *reasons = str(refusal).splitlines()
            reasons += base.expired_lines(ledger, refusal.reasons)
            raise base.Refused(subject.removesuffix(":"), reasons) from refusal
    prefix = "" if args.claim is None else f"{args.claim}/"
    return [
        (
            f"{prefix}{name}",
            candidate.host,
            ", ".join(map(str, candidate.allocations)),
            base.listed([]),
        )
        for name, candidate in placed.fit.candidates.items()
    ]


def _conditions(args: Namespace) -> dict[str, Any]:
    """Return the conditions of a request specification."""
    return {
        "project": args.project,
        "user": args.user,
        "zone": args.zone,
        "only": args.only or None,
        "forced": args.force,
        "ignored": args.ignore,
        "image_traits": args.image_trait,
        "extra_specs": dict(_pair("--extra-spec", text) for text in args.extra_spec),
        "group": _group(args),
    }


def read_gangs(name: str) -> list[Gang]:
    """Return the gangs of a file, in the order of preference."""
    nodes, top = _read(name)
    if top.id == "mapping" and [key.value for key, _ in top.value] == ["alternatives"]:
        top = top.value[0][1]
    return [_gang_of(nodes, node) for node in (top.value if top.id == "sequence" else [top])]


def _gang_of(nodes: NodeReader, node: Node) -> Gang:
    """Return one gang; an error of a member names its line."""
    from resource_objects.requests import Gang

    for key, value in nodes.pairs(node, "a gang: members, together, at_most"):
        if key.value == "members":
            for name, request in nodes.pairs(value, "{name: its request}"):
                gang = {"members": {name.value: nodes.data(request)}}
                nodes.checked("", name, lambda _, gang=gang: Gang.from_dict(gang))  # type: ignore[misc]
    return nodes.checked("", node, lambda _: Gang.from_dict(nodes.data(node)))


def _group(args: Namespace) -> ServerGroup | str | None:
    from resource_objects.providers import ServerGroup

    if args.server_group is not None:
        if args.policy is not None or args.members:
            raise base.Misused("--server-group: its --policy and --members are known")
        group: str = args.server_group
        return group
    if args.policy is None:
        if args.members:
            raise base.Misused("--members: say their --policy, too")
        return None
    return ServerGroup("--members", args.policy, args.members)


def _consumers(args: Namespace) -> tuple[str, ...]:
    if args.claim is None or args.count is None or args.count == 1:
        return () if args.claim is None else (args.claim,)
    if args.count < 1:
        raise exceptions.InvalidInput("field", "--count", args.count, "an integer of 1 or more")
    return tuple(f"{args.claim}-{number}" for number in range(1, args.count + 1))


def _pair(option: str, text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise exceptions.InvalidInput("text", option, text, "KEY=VALUE")
    return key, value


def pipeline_of(args: Namespace) -> Pipeline:
    """Return the pipeline of a file and of further options."""
    from resource_objects.scheduler.pipeline import DEFAULT_FILTERS, DEFAULT_WEIGHERS, Pipeline

    settings: dict[str, Any] = {} if args.settings is None else _settings(args.settings)
    filters = settings.get("filters", dict.fromkeys(DEFAULT_FILTERS))
    weighers = settings.get("weighers", dict.fromkeys(DEFAULT_WEIGHERS))
    for name in args.filter or ():
        filters.setdefault(name, None)
    for text in args.weigh or ():
        name, _, multiplier = text.partition("=")
        weigher = weighers.get(name)  # settings, or only a multiplier
        weigher = weigher if isinstance(weigher, dict) else {}
        weighers[name] = {**weigher, "multiplier": _figure(text, multiplier)}
    return Pipeline.of(filters, weighers, on_error=settings.get("on_error", "fail"))


def _figure(text: str, multiplier: str) -> float:
    try:
        return float(multiplier or 1)
    except ValueError:
        raise exceptions.InvalidInput("text", "--weigh", text, "NAME or NAME=MULTIPLIER") from None


def _settings(name: str) -> dict[str, Any]:
    """Return the filters, weighers and policy of a file; an error names its line."""
    from resource_objects.scheduler.pipeline import Pipeline

    nodes, top = _read(name)
    settings: dict[str, Any] = {}
    for key, value in nodes.pairs(top, "filters, weighers and on_error"):
        if key.value == "on_error":
            settings["on_error"] = nodes.text(value)
            nodes.checked("", value, lambda _: Pipeline.of((), (), on_error=settings["on_error"]))
        elif key.value in ("filters", "weighers"):
            settings[key.value] = entries = {}
            for entry, below in nodes.pairs(value, "names with settings below them"):
                entries[entry.value] = data = nodes.data(below)
                single = {"filters": (), "weighers": (), key.value: {entry.value: data}}
                nodes.checked("", entry, lambda _, single=single: Pipeline.of(**single))  # type: ignore[misc]
        else:
            raise nodes.fault(key, "key", key.value, "one of filters, weighers, on_error")
    return settings


def _read(name: str) -> tuple[NodeReader, Node]:
    """Return the values of a file in YAML, with their reader."""
    from resource_objects.yaml_nodes import NodeReader, read_nodes

    file = "standard input" if name == "-" else name
    text = base.read_input(name)
    return NodeReader(file, "text"), read_nodes(text, file, "text")


_COLUMNS = ("name", "asked", "description", "without_settings", "problem")


@base.table(columns=_COLUMNS, opens=False)
def list_filters(command: base.Command, args: Namespace) -> base.Rows:
    """List the installed filters, and why one cannot be used.

    Filters that have no effect without settings, or require settings, are marked.
    """
    from resource_objects.scheduler import pipeline

    names = dict.fromkeys(pipeline.DEFAULT_FILTERS, "default")
    return _installed(pipeline.FILTERS, {**names, **dict.fromkeys(pipeline.ALWAYS, "always")})


@base.table(columns=_COLUMNS, opens=False)
def list_weighers(command: base.Command, args: Namespace) -> base.Rows:
    """List the installed weighers, and why one cannot be used.

    Weighers that have no effect without settings, or require settings, are marked.
    """
    from resource_objects.scheduler import pipeline

    return _installed(pipeline.WEIGHERS, dict.fromkeys(pipeline.DEFAULT_WEIGHERS, "default"))


def _installed(namespace: str, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    for name in plugins.names(namespace):
        summary = without = problem = ""
        try:
            kind = plugins.load(namespace, name)
            summary = (kind.__doc__ or "").strip().partition("\n")[0]
            without = _without_settings(namespace, name)
        except exceptions.PluginError as error:
            problem = error.reason
        yield name, names.get(name, ""), summary, without, problem


def _without_settings(namespace: str, name: str) -> str:
    """Return the effect of a filter or weigher without settings."""
    from resource_objects.scheduler.pipeline import FILTERS, Pipeline

    try:
        pipeline = Pipeline.of([name], ()) if namespace == FILTERS else Pipeline.of((), [name])
    except exceptions.InvalidInput:
        return "cannot be made"
    return pipeline.idle.get(name, "")
