"""Filters: conditions on hosts that a site sets, by topic.

==================  ===============================================================================
``hosts``           hosts that the request names; members of a server group together or apart
``aggregates``      availability zones, tenants, reserved hosts, metadata, ratios
``statistics``      capabilities and statistics that agents report, and when they reported
``operators``       the conditions on values that extra specs use
==================  ===============================================================================

A filter is an object with one method, ``refuses(host, spec)``, which returns the reason for which a
host is refused, as text, or None. :class:`ArrayFilter` decides all hosts at once. No filter checks
capacity: the search itself decides counts, NUMA topologies, devices and resources of plug-ins.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from resource_objects.exceptions import FilterFailed, InvalidInput
from resource_objects.reasons import Reason, Rule
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.base import Check, HostFilter
from resource_objects.search.findings import Findings

T = TypeVar("T")

#: What happens to a request when a filter raises: the request fails, or the filter is skipped and
#: reported as skipped.
POLICIES = ("fail", "skip")


@runtime_checkable
class Filter(Protocol):
    """A condition on hosts. It has no side effects, and equal arguments have equal results.

    A filter that refuses no host with its present settings may have the property ``is_idle``; the
    scheduler then reports it as skipped.
    """

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return the reason for which a host is refused, or None; it follows the filter's name."""


@runtime_checkable
class ColumnarFilter(Protocol):
    """A filter that also decides all hosts at once, for fleets of thousands."""

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts pass, in the order of ``hosts.hosts``."""


class ArrayFilter(abc.ABC):
    """A filter that decides by a mask of all hosts; the reason of one host is only a text."""

    @abc.abstractmethod
    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts pass, in the order of ``hosts.hosts``."""

    @abc.abstractmethod
    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return the reason for which a host is refused that the mask excludes."""

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return the reason for which a host is refused, or None. Cost: a mask of all hosts."""
        return None if self.passing(host.hosts, spec)[host.tree] else self.reason(host, spec)


@runtime_checkable
class NamingFilter(Protocol):
    """A filter that names the consumers because of which a host is refused."""

    def holders(self, host: HostState, spec: RequestSpec) -> tuple[tuple[str, int], ...]:
        """Return the blocking consumers of a refused host, each with its amount."""


@runtime_checkable
class LimitingFilter(Protocol):
    """A filter that bounds the usage of hosts, such as by another ratio."""

    def limits(self, hosts: HostStates, spec: RequestSpec) -> Mapping[str, Integers]:
        """Return by resource class the maximum usage of each host, by all consumers.

        Parallel to ``hosts.hosts``; ``fields.MAX_AMOUNT`` where there is no bound. It bounds the
        inventories of the host itself, and the claim is made under it.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class NamedFilter:
    """A filter with the name that refusals and errors report."""

    name: str
    filter: Filter


class FilterCondition(HostFilter):
    """A filter as a condition of the search, for one request over one fleet.

    A filter that fails on any host and may be skipped passes all hosts, also those that it refused.
    """

    rule = Rule.FILTER

    def __init__(
        self,
        named: NamedFilter,
        hosts: HostStates,
        spec: RequestSpec,
        failures: dict[str, str] | None,
    ) -> None:
        """:param failures: records by name why filters were skipped; a filter that is in it
        already is skipped. None: a filter that fails raises"""
        self.name = named.name
        self._filter = named.filter
        self._hosts = hosts
        self._spec = spec
        self._failures = failures
        self._refusals: dict[int, str | None] = {}
        self._mask: Booleans | None = None
        if failures is not None and named.name in failures:
            self._mask = hosts.all()
        elif isinstance(named.filter, ColumnarFilter):
            passing = named.filter.passing
            self._mask = self._call(None, lambda: self._checked(passing(hosts, spec)), hosts.all())

    def mask(self) -> Booleans:
        """Return which hosts pass; all hosts, if the filter decides host by host."""
        return self._hosts.all() if self._mask is None else self._mask

    def among(self, trees: Integers) -> Booleans:
        """Return which of some hosts pass."""
        if self._mask is None:
            passing = np.array([self.holds(tree) for tree in trees.tolist()], dtype=np.bool_)
            if self._mask is None:  # the filter failed on none of them
                return passing
        return self._mask[trees]

    def checks(self) -> Iterator[Check]:
        """Yield one cut."""
        yield Check(self.among(np.arange(len(self._hosts))), self.rule, label=self.name)

    def holds(self, tree: int) -> bool:
        """Return True if a host passes."""
        return self._refusal(tree) is None if self._mask is None else bool(self._mask[tree])

    def find(self, findings: Findings, hosts: Booleans) -> None:
        """Add the reasons of the hosts that are refused.

        Cost: a filter that may be skipped, and decides host by host, is called for all hosts.
        """
        if self._failures is not None:  # it refuses no host if it fails on any
            self.among(np.arange(len(self._hosts)))
        trees = findings.hosts.trees.tolist()
        findings.add_known(self, hosts, lambda host: self._reasons(trees[host]))

    def _reasons(self, tree: int) -> list[Reason]:
        if self.holds(tree):
            return []
        name, why = self._hosts.hosts[tree], self._refusal(tree)
        if why is None and self._failures is None:
            expected = "it passes the host, but not where it decides all hosts at once"
            raise FilterFailed(self.name, name, expected)
        if why is None:
            why = "is refused, and it failed to say why"
        holders = self._holders(tree)
        return [Reason(self.rule, 1, 0, 0, where=name, holders=holders, unit=why, filter=self.name)]

    def _holders(self, tree: int) -> tuple[tuple[str, int], ...]:
        if not isinstance(self._filter, NamingFilter):
            return ()
        host, holders = self._hosts.at(tree), self._filter.holders
        return self._call(host.name, lambda: tuple(holders(host, self._spec)), ())

    def _refusal(self, tree: int) -> str | None:
        if tree not in self._refusals:
            host, filter_ = self._hosts.at(tree), self._filter
            # the mask of an ArrayFilter has decided already
            ask = filter_.reason if isinstance(filter_, ArrayFilter) else filter_.refuses

            def refusal() -> str | None:
                why = ask(host, self._spec)
                if why is not None and (not isinstance(why, str) or not why):
                    raise InvalidInput("field", "refuses", why, "why, as text, or None")
                return why

            self._refusals[tree] = self._call(host.name, refusal, None)
        return self._refusals[tree]

    def _checked(self, mask: Any) -> Booleans:
        is_mask = isinstance(mask, np.ndarray) and mask.dtype == np.bool_
        if not is_mask or mask.shape != (len(self._hosts),):
            expected = f"an array of {len(self._hosts)} booleans"
            raise InvalidInput("field", "passing", mask, expected)
        result: Booleans = mask
        return result

    def _call(self, host: str | None, action: Callable[[], T], default: T) -> T:
        """Return the result of an action of the filter; it never passes in silence if it fails."""
        try:
            return action()
        except Exception as error:
            failed = FilterFailed(self.name, host, error)
            if self._failures is None:
                raise failed from error
            self._failures.setdefault(self.name, str(failed))
            if self._mask is None:
                self._mask = self._hosts.all()
            return default
