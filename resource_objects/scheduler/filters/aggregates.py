"""What aggregates say of the hosts in them: zones, whose they are, what they are kept for.

Aggregates of a ledger have names and nothing else. What a site means by one is a setting of the
filter that asks: ``{aggregate: ...}``. A host is in an aggregate if it, or a provider below it, is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import MAX_AMOUNT
from resource_objects.ratio import MILLION, to_millionths, to_ratio
from resource_objects.resources.traits import known_traits
from resource_objects.scheduler.filters.operators import ValueCondition, conditions_of
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Booleans, Integers


class Zones:
    """Passes the hosts of the availability zone that is asked for.

    :param zones: ``{zone: aggregates}``; a zone that is not in it is the aggregate of its name
    :param default: the zone of hosts that are in none of these
    """

    def __init__(
        self, zones: Mapping[str, Iterable[str]] | None = None, default: str | None = None
    ) -> None:
        self._zones = _sets("zones", zones)
        self._default = default

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return that a host is of another zone."""
        if spec.zone is None or not host.aggregates.isdisjoint(self._aggregates(spec.zone)):
            return None
        if spec.zone == self._default and host.aggregates.isdisjoint(self._every()):
            return None
        return f"is not in zone {spec.zone}"

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts are of the zone."""
        if spec.zone is None:
            return hosts.all()
        result = hosts.members(*self._aggregates(spec.zone))
        if spec.zone == self._default:
            result |= ~hosts.members(*self._every())
        return result

    def _aggregates(self, zone: str) -> frozenset[str]:
        return self._zones.get(zone, frozenset([zone]))

    def _every(self) -> frozenset[str]:
        return frozenset[str]().union(*self._zones.values())


class Tenants:
    """Passes hosts of aggregates that are kept for projects to these alone.

    A host in several such aggregates takes the projects of all of them.

    :param tenants: ``{aggregate: projects}``
    :param confined: whether these projects go nowhere else
    """

    def __init__(
        self, tenants: Mapping[str, Iterable[str]] | None = None, confined: bool = False
    ) -> None:
        self._tenants = _sets("tenants", tenants)
        self._confined = confined

    @property
    def is_idle(self) -> bool:
        """Whether no aggregate is kept for anybody."""
        return not self._tenants

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return for whom a host is kept, or that a project has hosts of its own."""
        theirs, project = host.aggregates & self._tenants.keys(), spec.project
        if any(project in self._tenants[name] for name in theirs):
            return None
        if theirs:
            return f"is kept for the projects of {', '.join(sorted(theirs))}"
        if self._confined and self._of(project):
            return f"is not of {', '.join(sorted(self._of(project)))}, where {project} has to be"
        return None

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts take the project."""
        own = self._of(spec.project)
        result = ~hosts.members(*self._tenants)
        if self._confined and own:
            result[:] = False
        return result | hosts.members(*own)

    def _of(self, project: str | None) -> frozenset[str]:
        return frozenset(name for name, some in self._tenants.items() if project in some)


class Isolated:
    """Passes hosts of aggregates that are kept for traits to who asks for all of these.

    So hosts with a licence serve only who needs it.

    :param traits: ``{aggregate: traits}``
    """

    def __init__(self, traits: Mapping[str, Iterable[str]] | None = None) -> None:
        given = _sets("traits", traits)
        self._traits = {name: known_traits(some) for name, some in given.items()}

    @property
    def is_idle(self) -> bool:
        """Whether no aggregate is reserved for requests with certain traits."""
        return not any(self._traits.values())

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return the traits that a host is reserved for."""
        kept = [name for name in sorted(self._out(spec)) if name in host.aggregates]
        return f"is kept for who asks for the traits of {', '.join(kept)}" if kept else None

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts are not kept for others."""
        return ~hosts.members(*self._out(spec))

    def _out(self, spec: RequestSpec) -> list[str]:
        request = spec.wanted
        asked = request.root_required.union(*(one.required for one in request.groups))
        return [name for name, traits in self._traits.items() if not traits <= asked]


#: Where extra specs are about aggregates.
_SCOPE = "aggregate_instance_extra_specs:"


class AggregateMetadata:
    """Passes hosts whose aggregates say what the extra specs ask for.

    Keys with ``aggregate_instance_extra_specs:`` are meant, and those without a scope. For each key
    one of the values of a host's aggregates has to meet the condition; a host whose aggregates do
    not say the key is refused (Nova's AggregateInstanceExtraSpecsFilter).

    :param metadata: ``{aggregate: {key: value}}``
    """

    def __init__(self, metadata: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._metadata: dict[str, dict[str, str]] = {}
        for name, said in _mapping("metadata", metadata).items():
            values = _mapping(f"metadata of {name}", said)
            self._metadata[names.aggregate_name(name)] = {k: str(v) for k, v in values.items()}

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return which condition no aggregate of a host meets."""
        for key, condition, _ in conditions_of(spec.extra_specs, _SCOPE):
            if host.aggregates.isdisjoint(self._meeting(key, condition)):
                said = sorted(
                    self._metadata[name][key]
                    for name in host.aggregates & self._metadata.keys()
                    if key in self._metadata[name]
                )
                have = f"say {', '.join(said)}" if said else "do not say it"
                return f"requested {key} {condition}, its aggregates {have}"
        return None

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts meet every condition."""
        result = hosts.all()
        for key, condition, _ in conditions_of(spec.extra_specs, _SCOPE):
            result &= hosts.members(*self._meeting(key, condition))
        return result

    def _meeting(self, key: str, condition: ValueCondition) -> list[str]:
        said = self._metadata.items()
        return [name for name, one in said if key in one and condition.is_met(one[key])]


class AggregateRatios:
    """Bounds what is given of hosts by the ratios of their aggregates; refuses nobody by itself.

    The smallest ratio of a host's aggregates bounds how much of a class may be used there in all:
    ``(total - reserved) * ratio``, whatever the inventory's own ratio allows beyond. It goes with
    the claim as a limit (:doc:`/explanation/limits`).

    :param ratios: ``{aggregate: {resource class: ratio}}``
    :raises InvalidInput: for a ratio that is none
    """

    def __init__(self, ratios: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._ratios: dict[str, dict[str, int]] = {}
        for name, said in _mapping("ratios", ratios).items():
            by_class = _mapping(f"ratios of {name}", said)
            self._ratios[names.aggregate_name(name)] = {
                names.resource_class_name(kind): to_millionths(to_ratio(ratio))
                for kind, ratio in by_class.items()
            }

    @property
    def is_idle(self) -> bool:
        """Whether no ratio is said."""
        return not any(self._ratios.values())

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return None: what does not fit under a limit the search refuses."""
        return None

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return all hosts."""
        return hosts.all()

    def limits(self, hosts: HostStates, spec: RequestSpec) -> dict[str, Integers]:
        """Return by resource class the most that may be used of each host."""
        result: dict[str, Integers] = {}
        for name, said in self._ratios.items():
            inside = hosts.members(name)
            for kind, ratio in said.items():
                if kind not in result:
                    result[kind] = np.full(len(hosts), MAX_AMOUNT)
                most = hosts.physical(kind) * ratio // MILLION
                result[kind][inside] = np.minimum(result[kind], most)[inside]
        return result


def _mapping(what: str, given: Any) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidInput("field", what, given, "a mapping")
    return given


def _sets(what: str, given: Any) -> dict[str, frozenset[str]]:
    """Return names with sets of names, as settings give them."""
    result: dict[str, frozenset[str]] = {}
    for name, some in _mapping(what, given).items():
        if isinstance(some, str) or not isinstance(some, Iterable):
            raise InvalidInput("field", f"{what} of {name}", some, "a list of names")
        result[str(name)] = frozenset(map(str, some))
    return result
