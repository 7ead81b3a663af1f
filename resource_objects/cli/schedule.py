"""The commands of the scheduler: selection of hosts, and the installed filters and weighers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions, plugins
from resource_objects.cli import request_arguments as arguments
from resource_objects.cli.base import (
    Lister,
    Many,
    Misused,
    Refused,
    Table,
    expired_lines,
    misused,
    read_input,
)

if TYPE_CHECKING:
    from resource_objects.providers import ServerGroup
    from resource_objects.requests import Gang
    from resource_objects.scheduler import Destination, Pipeline, RequestSpec
    from resource_objects.yaml_nodes import Node, NodeReader


class Schedule(Lister):
    """Select hosts for a request by the scheduler's filters and weighers.

    Nothing is allocated, unless --claim names a consumer. All instances are placed or none, unless
    --at-least allows fewer. If there are too few hosts, prints the reasons of each host (exit
    status 1).
    """

    columns = ("consumer", "host", "allocation", "alternates")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        arguments.add_request(parser)
        add = parser.add_argument
        add(
            "--gang",
            metavar="FILE",
            help="members that are placed at once, or alternatives of them, in YAML, instead of a "
            "request; - is standard input. With --claim for CONSUMER/MEMBER",
        )
        add("--count", metavar="N", type=int, help="the number of instances (default: 1)")
        add(
            "--claim",
            metavar="CONSUMER",
            help="take it for this consumer; with --count for CONSUMER-1, CONSUMER-2, ...",
        )
        add(
            "--at-least",
            metavar="N",
            type=int,
            help="the minimum number; as many as possible are placed",
        )
        add(
            "--alternates",
            metavar="N",
            type=int,
            default=0,
            help="the number of alternates of each",
        )
        words = parser.add_argument_group("the requester and its destination")
        for name, metavar, text in (
            ("--project", "PROJECT", "whose it is"),
            ("--user", "USER", "whose it is"),
            ("--zone", "ZONE", "the availability zone"),
            ("--server-group", "GROUP", "the server group that it is a member of"),
            ("--policy", "POLICY", "of --members: affinity, anti-affinity, soft-affinity or "
                "soft-anti-affinity"),
        ):  # fmt: skip
            words.add_argument(name, metavar=metavar, help=text)
        for name, metavar, text in (
            ("--only", "HOST", "a permitted host"),
            ("--force", "HOST", "a forced host, regardless of filters"),
            ("--ignore", "HOST", "a forbidden host"),
            ("--image-trait", "TRAIT", "a trait that the image requires"),
            ("--extra-spec", "KEY=CONDITION", "such as capabilities:load='<= 3'"),
            ("--members", "CONSUMER", "the members of its group"),
        ):
            help_ = f"{text}; may be repeated"
            words.add_argument(name, metavar=metavar, action="append", default=[], help=help_)
        words = parser.add_argument_group("filters, weighers and the order")
        add_pipeline(words)
        arguments.add_order(words)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Select hosts, and claim them with --claim."""
        from resource_objects.scheduler import Scheduler

        if parsed_args.gang is not None:
            return self.columns, self._gang(parsed_args)
        with misused():
            spec, order = _spec(parsed_args), arguments.parse_order(parsed_args)
            pipeline = pipeline_of(parsed_args)
            consumers = _consumers(parsed_args)
        with self.open_ledger() as ledger:
            scheduler = Scheduler(ledger, pipeline=pipeline, order=order)
            try:
                with misused():
                    destinations = scheduler.select_destinations(
                        spec,
                        None if consumers else parsed_args.count,
                        consumers=consumers,
                        alternates=parsed_args.alternates,
                        at_least=parsed_args.at_least,
                        seed=parsed_args.seed,
                    )
            except exceptions.NoCandidates as refusal:
                answer, *reasons = str(refusal).splitlines()
                subject, _, first = answer.partition(": ")
                reasons += expired_lines(ledger, refusal.reasons)
                raise Refused(subject, [first, *reasons]) from refusal
        for consumer in destinations.missing:
            self.app.stderr.write(f"no host for {consumer}\n")
        for name, why in destinations.skipped.items():
            self.app.stderr.write(f"{name}: {why}\n")
        return self.columns, [_row(destination) for destination in destinations]

    def _gang(self, parsed_args: argparse.Namespace) -> list[tuple[Any, ...]]:
        """Place a gang; a row for each member."""
        from resource_objects.scheduler import Scheduler

        for word in ("--count", "--at-least", "--alternates"):
            if getattr(parsed_args, word.strip("-").replace("-", "_")):
                raise Misused(f"{word} has no effect with --gang: members have their own requests")
        with misused():
            arguments.refuse_words(parsed_args, "--gang")
            gangs, order = read_gangs(parsed_args.gang), arguments.parse_order(parsed_args)
            pipeline = pipeline_of(parsed_args)
            words = _words(parsed_args)
        with self.open_ledger() as ledger:
            scheduler = Scheduler(ledger, pipeline=pipeline, order=order)
            try:
                with misused():
                    placed = scheduler.place_gang(
                        gangs, parsed_args.claim, seed=parsed_args.seed, **words
                    )
            except exceptions.NoCandidates as refusal:
                subject, *reasons = str(refusal).splitlines()
                reasons += expired_lines(ledger, refusal.reasons)
                raise Refused(subject.removesuffix(":"), reasons) from refusal
        prefix = "" if parsed_args.claim is None else f"{parsed_args.claim}/"
        return [
            (
                f"{prefix}{name}",
                candidate.host,
                ", ".join(map(str, candidate.allocations)),
                Many([]),
            )
            for name, candidate in placed.fit.candidates.items()
        ]


def _row(destination: Destination) -> tuple[Any, ...]:
    alternates = Many([other.host for other in destination.alternates])
    return (
        destination.consumer,
        destination.host,
        ", ".join(map(str, destination.allocations)),
        alternates,
    )


def _spec(parsed_args: argparse.Namespace) -> RequestSpec:
    from resource_objects.scheduler import RequestSpec

    return RequestSpec(arguments.parse_request(parsed_args).request, **_words(parsed_args))


def _words(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return the conditions of a request specification."""
    return {
        "project": parsed_args.project,
        "user": parsed_args.user,
        "zone": parsed_args.zone,
        "only": parsed_args.only or None,
        "forced": parsed_args.force,
        "ignored": parsed_args.ignore,
        "image_traits": parsed_args.image_trait,
        "extra_specs": dict(_pair("--extra-spec", text) for text in parsed_args.extra_spec),
        "group": _group(parsed_args),
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


def _group(parsed_args: argparse.Namespace) -> ServerGroup | str | None:
    from resource_objects.providers import ServerGroup

    if parsed_args.server_group is not None:
        if parsed_args.policy is not None or parsed_args.members:
            raise Misused("--server-group: its --policy and --members are known")
        group: str = parsed_args.server_group
        return group
    if parsed_args.policy is None:
        if parsed_args.members:
            raise Misused("--members: say their --policy, too")
        return None
    return ServerGroup("--members", parsed_args.policy, parsed_args.members)


def _consumers(parsed_args: argparse.Namespace) -> tuple[str, ...]:
    if parsed_args.claim is None or parsed_args.count is None or parsed_args.count == 1:
        return () if parsed_args.claim is None else (parsed_args.claim,)
    if parsed_args.count < 1:
        raise exceptions.InvalidInput(
            "field", "--count", parsed_args.count, "an integer of 1 or more"
        )
    return tuple(f"{parsed_args.claim}-{number}" for number in range(1, parsed_args.count + 1))


def _pair(option: str, text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise exceptions.InvalidInput("text", option, text, "KEY=VALUE")
    return key, value


def add_pipeline(words: Any) -> None:
    """Add the options for filters and weighers to a parser, or a group of one."""
    words.add_argument(
        "--filter",
        metavar="NAME",
        action="append",
        help="further requested amounts; may be repeated",
    )
    words.add_argument(
        "--weigh",
        metavar="NAME[=MULTIPLIER]",
        action="append",
        help="a weigher, and how much it counts (default: 1); may be repeated",
    )
    words.add_argument(
        "--settings",
        metavar="FILE",
        help="filters and weighers with their settings, in YAML; - is standard input",
    )


def pipeline_of(parsed_args: argparse.Namespace) -> Pipeline:
    """Return the pipeline of a file and of further options."""
    from resource_objects.scheduler.pipeline import DEFAULT_FILTERS, DEFAULT_WEIGHERS, Pipeline

    settings: dict[str, Any] = (
        {} if parsed_args.settings is None else _settings(parsed_args.settings)
    )
    filters = settings.get("filters", dict.fromkeys(DEFAULT_FILTERS))
    weighers = settings.get("weighers", dict.fromkeys(DEFAULT_WEIGHERS))
    for name in parsed_args.filter or ():
        filters.setdefault(name, None)
    for text in parsed_args.weigh or ():
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
    text = read_input(name)
    return NodeReader(file, "text"), read_nodes(text, file, "text")


class ListFilters(Lister):
    """List the installed filters, and why one cannot be used.

    Filters that have no effect without settings, or require settings, are marked.
    """

    columns = ("name", "asked", "description", "without_settings", "problem")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Load each filter individually."""
        from resource_objects.scheduler import pipeline

        names = dict.fromkeys(pipeline.DEFAULT_FILTERS, "default")
        names.update(dict.fromkeys(pipeline.ALWAYS, "always"))
        return self.columns, _installed(pipeline.FILTERS, names)


class ListWeighers(Lister):
    """List the installed weighers, and why one cannot be used.

    Weighers that have no effect without settings, or require settings, are marked.
    """

    columns = ("name", "asked", "description", "without_settings", "problem")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Load each weigher individually."""
        from resource_objects.scheduler import pipeline

        names = dict.fromkeys(pipeline.DEFAULT_WEIGHERS, "default")
        return self.columns, _installed(pipeline.WEIGHERS, names)


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
