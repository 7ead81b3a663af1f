"""The commands of the scheduler: selection of hosts, and the installed filters and weighers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions, plugins
from resource_objects.cli import request_arguments as arguments
from resource_objects.cli.base import (
    Lister,
    Many,
    Misused,
    Refused,
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

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
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
        for name, metavar, told in (
            ("--project", "PROJECT", "whose it is"),
            ("--user", "USER", "whose it is"),
            ("--zone", "ZONE", "the availability zone"),
            ("--server-group", "GROUP", "the server group that it is a member of"),
            ("--policy", "POLICY", "of --members: affinity, anti-affinity, soft-affinity or "
                "soft-anti-affinity"),
        ):  # fmt: skip
            words.add_argument(name, metavar=metavar, help=told)
        for name, metavar, told in (
            ("--only", "HOST", "a permitted host"),
            ("--force", "HOST", "a forced host, regardless of filters"),
            ("--ignore", "HOST", "a forbidden host"),
            ("--image-trait", "TRAIT", "a trait that the image requires"),
            ("--extra-spec", "KEY=CONDITION", "such as capabilities:load='<= 3'"),
            ("--members", "CONSUMER", "the members of its group"),
        ):
            help_ = f"{told}; may be repeated"
            words.add_argument(name, metavar=metavar, action="append", default=[], help=help_)
        words = parser.add_argument_group("filters, weighers and the order")
        add_pipeline(words)
        arguments.add_order(words)
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Select hosts, and claim them with --claim."""
        from resource_objects.scheduler import Scheduler

        said = parsed_args
        if said.gang is not None:
            return self.columns, self._gang(said)
        with misused():
            spec, order = _spec(said), arguments.parse_order(said)
            pipeline = pipeline_of(said)
            consumers = _consumers(said)
        with self.open_ledger() as ledger:
            scheduler = Scheduler(ledger, pipeline=pipeline, order=order)
            try:
                with misused():
                    found = scheduler.select_destinations(
                        spec,
                        None if consumers else said.count,
                        consumers=consumers,
                        alternates=said.alternates,
                        at_least=said.at_least,
                        seed=said.seed,
                    )
            except exceptions.NoCandidates as refusal:
                answer, *reasons = str(refusal).splitlines()
                what, _, first = answer.partition(": ")
                reasons += expired_lines(ledger, refusal.reasons)
                raise Refused(what, [first, *reasons]) from refusal
        for consumer in found.missing:
            self.app.stderr.write(f"no host for {consumer}\n")
        for name, why in found.skipped.items():
            self.app.stderr.write(f"{name}: {why}\n")
        return self.columns, [_row(one) for one in found]

    def _gang(self, said: argparse.Namespace) -> list[tuple[Any, ...]]:
        """Place a gang; a row for each member."""
        from resource_objects.scheduler import Scheduler

        for word in ("--count", "--at-least", "--alternates"):
            if getattr(said, word.strip("-").replace("-", "_")):
                raise Misused(f"{word} has no effect with --gang: members have their own requests")
        with misused():
            arguments.refuse_words(said, "--gang")
            gangs, order = read_gangs(said.gang), arguments.parse_order(said)
            pipeline = pipeline_of(said)
            words = _words(said)
        with self.open_ledger() as ledger:
            scheduler = Scheduler(ledger, pipeline=pipeline, order=order)
            try:
                with misused():
                    placed = scheduler.place_gang(gangs, said.claim, seed=said.seed, **words)
            except exceptions.NoCandidates as refusal:
                what, *reasons = str(refusal).splitlines()
                reasons += expired_lines(ledger, refusal.reasons)
                raise Refused(what.removesuffix(":"), reasons) from refusal
        prefix = "" if said.claim is None else f"{said.claim}/"
        return [
            (f"{prefix}{name}", one.host, ", ".join(map(str, one.allocations)), Many([]))
            for name, one in placed.fit.candidates.items()
        ]


def _row(one: Destination) -> tuple[Any, ...]:
    others = Many([other.host for other in one.alternates])
    return one.consumer, one.host, ", ".join(map(str, one.allocations)), others


def _spec(said: argparse.Namespace) -> RequestSpec:
    from resource_objects.scheduler import RequestSpec

    return RequestSpec(arguments.parse_request(said).request, **_words(said))


def _words(said: argparse.Namespace) -> dict[str, Any]:
    """Return the conditions of a request specification."""
    return {
        "project": said.project,
        "user": said.user,
        "zone": said.zone,
        "only": said.only or None,
        "forced": said.force,
        "ignored": said.ignore,
        "image_traits": said.image_trait,
        "extra_specs": dict(_pair("--extra-spec", text) for text in said.extra_spec),
        "group": _group(said),
    }


def read_gangs(name: str) -> list[Gang]:
    """Return the gangs of a file, in the order of preference."""
    nodes, top = _read(name)
    if top.id == "mapping" and [key.value for key, _ in top.value] == ["alternatives"]:
        top = top.value[0][1]
    return [_gang_of(nodes, one) for one in (top.value if top.id == "sequence" else [top])]


def _gang_of(nodes: NodeReader, node: Node) -> Gang:
    """Return one gang; an error of a member names its line."""
    from resource_objects.requests import Gang

    for key, value in nodes.pairs(node, "a gang: members, together, at_most"):
        if key.value == "members":
            for name, asked in nodes.pairs(value, "{name: its request}"):
                alone = {"members": {name.value: nodes.data(asked)}}
                nodes.checked("", name, lambda _, alone=alone: Gang.from_dict(alone))  # type: ignore[misc]
    return nodes.checked("", node, lambda _: Gang.from_dict(nodes.data(node)))


def _group(said: argparse.Namespace) -> ServerGroup | str | None:
    from resource_objects.providers import ServerGroup

    if said.server_group is not None:
        if said.policy is not None or said.members:
            raise Misused("--server-group: its --policy and --members are known")
        group: str = said.server_group
        return group
    if said.policy is None:
        if said.members:
            raise Misused("--members: say their --policy, too")
        return None
    return ServerGroup("--members", said.policy, said.members)


def _consumers(said: argparse.Namespace) -> tuple[str, ...]:
    if said.claim is None or said.count is None or said.count == 1:
        return () if said.claim is None else (said.claim,)
    if said.count < 1:
        raise exceptions.InvalidInput("field", "--count", said.count, "an integer of 1 or more")
    return tuple(f"{said.claim}-{number}" for number in range(1, said.count + 1))


def _pair(what: str, text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise exceptions.InvalidInput("text", what, text, "KEY=VALUE")
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


def pipeline_of(said: argparse.Namespace) -> Pipeline:
    """Return the pipeline of a file and of further options."""
    from resource_objects.scheduler.pipeline import DEFAULT_FILTERS, DEFAULT_WEIGHERS, Pipeline

    settings: dict[str, Any] = {} if said.settings is None else _settings(said.settings)
    filters = settings.get("filters", dict.fromkeys(DEFAULT_FILTERS))
    weighers = settings.get("weighers", dict.fromkeys(DEFAULT_WEIGHERS))
    for name in said.filter or ():
        filters.setdefault(name, None)
    for text in said.weigh or ():
        name, _, multiplier = text.partition("=")
        had = weighers.get(name)  # settings, or a multiplier alone
        had = had if isinstance(had, dict) else {}
        weighers[name] = {**had, "multiplier": _figure(text, multiplier)}
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
    said: dict[str, Any] = {}
    for key, value in nodes.pairs(top, "filters, weighers and on_error"):
        if key.value == "on_error":
            said["on_error"] = nodes.text(value)
            nodes.checked("", value, lambda _: Pipeline.of((), (), on_error=said["on_error"]))
        elif key.value in ("filters", "weighers"):
            said[key.value] = entries = {}
            for entry, below in nodes.pairs(value, "names with settings below them"):
                entries[entry.value] = alone = nodes.data(below)
                one = {"filters": (), "weighers": (), key.value: {entry.value: alone}}
                nodes.checked("", entry, lambda _, one=one: Pipeline.of(**one))  # type: ignore[misc]
        else:
            raise nodes.fault(key, "key", key.value, "one of filters, weighers, on_error")
    return said


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

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Load each filter individually."""
        from resource_objects.scheduler import pipeline

        asked = dict.fromkeys(pipeline.DEFAULT_FILTERS, "default")
        asked.update(dict.fromkeys(pipeline.ALWAYS, "always"))
        return self.columns, _installed(pipeline.FILTERS, asked)


class ListWeighers(Lister):
    """List the installed weighers, and why one cannot be used.

    Weighers that have no effect without settings, or require settings, are marked.
    """

    columns = ("name", "asked", "description", "without_settings", "problem")

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Load each weigher individually."""
        from resource_objects.scheduler import pipeline

        asked = dict.fromkeys(pipeline.DEFAULT_WEIGHERS, "default")
        return self.columns, _installed(pipeline.WEIGHERS, asked)


def _installed(namespace: str, asked: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    for name in plugins.names(namespace):
        told = without = problem = ""
        try:
            kind = plugins.load(namespace, name)
            told = (kind.__doc__ or "").strip().partition("\n")[0]
            without = _without_settings(namespace, name)
        except exceptions.PluginError as error:
            problem = error.reason
        yield name, asked.get(name, ""), told, without, problem


def _without_settings(namespace: str, name: str) -> str:
    """Return the effect of a filter or weigher without settings."""
    from resource_objects.scheduler.pipeline import FILTERS, Pipeline

    try:
        made = Pipeline.of([name], ()) if namespace == FILTERS else Pipeline.of((), [name])
    except exceptions.InvalidInput:
        return "cannot be made"
    return made.idle.get(name, "")
