"""Filters by the aggregates of hosts: zones, tenants, reserved hosts, metadata and ratios.

Aggregates of a ledger have names and nothing else. Their meaning is a setting of the filter:
``{aggregate: ...}``. A host is in an aggregate if it, or a provider below it, is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import MAX_AMOUNT
from resource_objects.ratio import MILLION, to_millionths, to_ratio
from resource_objects.resources.traits import checked_traits
from resource_objects.scheduler.filters import ArrayFilter
from resource_objects.scheduler.filters.operators import ValueCondition, conditions_of
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Booleans, Integers


class Zones(ArrayFilter):
    """Passes the hosts of the requested availability zone.

    :param zones: ``{zone: aggregates}``; any other zone is the aggregate of its name
    :param default: the zone of hosts that are in none of these
    """

    def __init__(
        self, zones: Mapping[str, Iterable[str]] | None = None, default: str | None = None
    ) -> None:
        self._zones = _sets("zones", zones)
        self._default = default

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts are in the zone."""
        if spec.zone is None:
            return hosts.all()
        mask = hosts.members(*self._zones.get(spec.zone, (spec.zone,)))
        if spec.zone == self._default:
            mask |= ~hosts.members(*frozenset[str]().union(*self._zones.values()))
        return mask

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return the reason of a refusal: the host is in another zone."""
        return f"is not in zone {spec.zone}"


class Tenants(ArrayFilter):
    """Passes the hosts of reserved aggregates for the projects that they are reserved for.

    A host in several such aggregates accepts the projects of all of them.

    :param tenants: ``{aggregate: projects}``
    :param confined: whether these projects are refused by all other hosts
    """

    def __init__(
        self, tenants: Mapping[str, Iterable[str]] | None = None, confined: bool = False
    ) -> None:
        self._tenants = _sets("tenants", tenants)
        self._confined = confined

    @property
    def is_idle(self) -> bool:
        """Whether no aggregate is reserved for projects."""
        return not self._tenants

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts accept the project."""
        reserved = self._reserved_for(spec.project)
        if self._confined and reserved:
            return hosts.members(*reserved)
        return ~hosts.members(*self._tenants) | hosts.members(*reserved)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return the aggregates that are reserved for others, or for the project."""
        reserving = host.aggregates & self._tenants.keys()
        if reserving:
            return f"is reserved for the projects of {', '.join(sorted(reserving))}"
        reserved = ", ".join(sorted(self._reserved_for(spec.project)))
        return f"is not of {reserved}, where {spec.project} has to be"

    def _reserved_for(self, project: str | None) -> list[str]:
        return [name for name, projects in self._tenants.items() if project in projects]


class Isolated(ArrayFilter):
    """Passes the hosts of reserved aggregates only for requests that require their traits.

    So hosts with a licence are free for requests that need it.

    :param traits: ``{aggregate: traits}``
    """

    def __init__(self, traits: Mapping[str, Iterable[str]] | None = None) -> None:
        self._traits = {
            name: checked_traits(required) for name, required in _sets("traits", traits).items()
        }

    @property
    def is_idle(self) -> bool:
        """Whether no aggregate is reserved for requests with certain traits."""
        return not any(self._traits.values())

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts are not reserved for other requests."""
        return ~hosts.members(*self._reserved_for_others(spec))

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return the aggregates of a host whose traits the request does not require."""
        reserved = sorted(host.aggregates.intersection(self._reserved_for_others(spec)))
        return f"is reserved for requests with the traits of {', '.join(reserved)}"

    def _reserved_for_others(self, spec: RequestSpec) -> list[str]:
        request = spec.full_request
        required = request.root_required.union(*(group.required for group in request.groups))
        return [name for name, traits in self._traits.items() if not traits <= required]


#: The scope of extra specs about aggregates.
_SCOPE = "aggregate_instance_extra_specs:"


class AggregateMetadata(ArrayFilter):
    """Passes hosts whose aggregates have the metadata that the extra specs request.

    Keys of the scope ``aggregate_instance_extra_specs:``, and keys without a scope, are conditions:
    for each, a value of one of the host's aggregates has to meet it. A host without a value for the
    key is refused (Nova's AggregateInstanceExtraSpecsFilter).

    :param metadata: ``{aggregate: {key: value}}``
    """

    def __init__(self, metadata: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._metadata = {
            names.aggregate_name(name): {
                key: str(value) for key, value in _mapping(f"metadata of {name}", values).items()
            }
            for name, values in _mapping("metadata", metadata).items()
        }

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts meet every condition."""
        mask = hosts.all()
        for key, condition, _ in conditions_of(spec.extra_specs, _SCOPE):
            mask &= hosts.members(*self._meeting(key, condition))
        return mask

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return the first condition that no aggregate of a host meets."""
        for key, condition, _ in conditions_of(spec.extra_specs, _SCOPE):
            if host.aggregates.isdisjoint(self._meeting(key, condition)):
                metadata = [self._metadata.get(name, {}) for name in host.aggregates]
                values = sorted(values[key] for values in metadata if key in values)
                have = f"have {', '.join(values)}" if values else "do not have it"
                return f"requested {key} {condition}, its aggregates {have}"
        raise AssertionError(f"{host.name} meets all conditions")

    def _meeting(self, key: str, condition: ValueCondition) -> list[str]:
        return [
            name
            for name, values in self._metadata.items()
            if key in values and condition.is_met(values[key])
        ]


class AggregateRatios(ArrayFilter):
    """Limits the usage of hosts by allocation ratios of their aggregates; it refuses no host.

    The smallest ratio of a host's aggregates limits the total usage of a class at the host to
    ``(total - reserved) * ratio``, whatever the inventory's ratio allows. The claim is made under
    this limit (:doc:`/explanation/limits`).

    :param ratios: ``{aggregate: {resource class: ratio}}``
    :raises InvalidInput: for an invalid ratio
    """

    def __init__(self, ratios: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._ratios = {
            names.aggregate_name(name): {
                names.resource_class_name(resource_class): to_millionths(to_ratio(ratio))
                for resource_class, ratio in _mapping(f"ratios of {name}", by_class).items()
            }
            for name, by_class in _mapping("ratios", ratios).items()
        }

    @property
    def is_idle(self) -> bool:
        """Whether there is no ratio."""
        return not any(self._ratios.values())

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return all hosts: the search refuses what exceeds a limit."""
        return hosts.all()

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Fail: no host is refused."""
        raise AssertionError(f"{host.name} is not refused")

    def limits(self, hosts: HostStates, spec: RequestSpec) -> dict[str, Integers]:
        """Return the maximum usage of each host by resource class."""
        limits: dict[str, Integers] = {}
        for name, by_class in self._ratios.items():
            members = hosts.members(name)
            for resource_class, ratio in by_class.items():
                limit = limits.setdefault(resource_class, np.full(len(hosts), MAX_AMOUNT))
                capacity = hosts.physical(resource_class) * ratio // MILLION
                limit[members] = np.minimum(limit, capacity)[members]
        return limits


def _mapping(name: str, setting: Any) -> Mapping[str, Any]:
    if setting is None:
        return {}
    if not isinstance(setting, Mapping):
        raise InvalidInput("field", name, setting, "a mapping")
    return setting


def _sets(setting_name: str, setting: Any) -> dict[str, frozenset[str]]:
    """Return a setting that maps names to lists of names."""
    sets: dict[str, frozenset[str]] = {}
    for name, values in _mapping(setting_name, setting).items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InvalidInput("field", f"{setting_name} of {name}", values, "a list of names")
        sets[str(name)] = frozenset(map(str, values))
    return sets
