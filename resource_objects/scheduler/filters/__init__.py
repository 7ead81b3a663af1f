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
import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from resource_objects.exceptions import FilterFailed, InvalidInput
from resource_objects.reasons import Reason, Rule
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.findings import Check, Findings, HostFilter

T = TypeVar("T")

#: What happens to a request when a filter raises: the request fails, or the filter is skipped and
#: reported as skipped.
POLICIES = ("fail", "skip")


@runtime_checkable
class Filter(Protocol):
    """A condition on hosts. It has no side effects, and equal arguments have equal results.

    A filter may have further methods and properties:

    ``passing(hosts, spec)``
        returns which hosts pass, as an array in the order of ``hosts.hosts``: for large fleets
    ``holders(host, spec)``
        returns the consumers because of which a host is refused, as pairs of a name and an amount
    ``limits(hosts, spec)``
        returns by resource class the maximum usage of each host by all consumers, as arrays in the
        order of ``hosts.hosts``; ``fields.MAX_AMOUNT`` where there is no bound. It bounds the
        inventories of the host itself, and the claim is made under it
    ``is_idle``
        is True if it refuses no host with its present settings; it is then reported as skipped
    """

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return the reason for which a host is refused, or None; it follows the filter's name."""


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


@dataclasses.dataclass(frozen=True, slots=True)
class NamedFilter:
    """A filter with the name that refusals and errors report."""

    name: str
    filter: Filter


class FilterCondition(HostFilter):
    """A filter as a condition of the search, for one request over one fleet.

    A filter that fails on any host and may be skipped passes all hosts, also those that it refused.

    :param failures: records by name why filters were skipped; a filter that is in it already is
        skipped. None: a filter that fails raises
    """

    rule = Rule.FILTER

    def __init__(
        self,
        named: NamedFilter,
        hosts: HostStates,
        spec: RequestSpec,
        failures: dict[str, str] | None,
    ) -> None:
        plugin: Any = named.filter
        self.name = named.name
        self._filter = plugin
        # the mask of an ArrayFilter has decided
        self._ask = plugin.reason if isinstance(plugin, ArrayFilter) else plugin.refuses
        self._hosts = hosts
        self._spec = spec
        self._failures = failures
        self._reason_by_tree: dict[int, str | None] = {}
        self._mask: Booleans | None = None  #: None: the filter decides host by host
        if failures is not None and self.name in failures:
            self._mask = hosts.all()
        elif hasattr(plugin, "passing"):
            self._mask = self._call(None, hosts.all(), self._passing)

    def mask(self) -> Booleans:
        """Return which hosts pass; all hosts, if the filter decides host by host."""
        return self._hosts.all() if self._mask is None else self._mask

    def among(self, trees: Integers) -> Booleans:
        """Return which of some hosts pass."""
        if self._mask is None:
            passing = np.array([self.holds(tree) for tree in trees.tolist()], dtype=np.bool_)
            if self._mask is None:  # the filter failed on none of them
                return passing
        return np.ones(len(trees), dtype=np.bool_) if self._passes_all else self._mask[trees]

    @functools.cached_property
    def _passes_all(self) -> bool:
        return bool(self.mask().all())

    def holds(self, tree: int) -> bool:
        """Return True if a host passes."""
        return self._reason(tree) is None if self._mask is None else bool(self._mask[tree])

    def checks(self) -> Iterator[Check]:
        """Yield one check."""
        yield Check(self.among(np.arange(len(self._hosts))), self.rule, label=self.name)

    def find(self, findings: Findings, among: Booleans) -> None:
        """Add the reasons of the hosts that are refused.

        Cost: a filter that may be skipped, and decides host by host, is called for all hosts.
        """
        if self._failures is not None:  # it refuses no host if it fails on any
            self.among(np.arange(len(self._hosts)))
        trees = findings.hosts.trees.tolist()
        findings.add_known(self, among, lambda host: self._reasons(trees[host]))

    def _reasons(self, tree: int) -> list[Reason]:
        if self.holds(tree):
            return []
        host, why = self._hosts.at(tree), self._reason(tree)
        if why is None and self._failures is None:
            expected = "it passes the host, but not where it decides all hosts at once"
            raise FilterFailed(self.name, host.name, expected)
        unit = why or "is refused, and it failed to say why"
        holders: tuple[tuple[str, int], ...] = ()
        if hasattr(self._filter, "holders"):
            holders = self._call(
                host.name, (), lambda: tuple(self._filter.holders(host, self._spec))
            )
        return [
            Reason(
                self.rule, 1, 0, 0, where=host.name, holders=holders, unit=unit, filter=self.name
            )
        ]

    def _reason(self, tree: int) -> str | None:
        if tree not in self._reason_by_tree:
            host = self._hosts.at(tree)
            reason = self._call(host.name, None, lambda: self._refuses(host))
            self._reason_by_tree[tree] = reason
        return self._reason_by_tree[tree]

    def _refuses(self, host: HostState) -> str | None:
        why: str | None = self._ask(host, self._spec)
        if why is not None and (not isinstance(why, str) or not why):
            raise InvalidInput("field", "refuses", why, "why, as text, or None")
        return why

    def _passing(self) -> Booleans:
        mask: Any = self._filter.passing(self._hosts, self._spec)
        is_mask = isinstance(mask, np.ndarray) and mask.dtype == np.bool_
        if not is_mask or mask.shape != (len(self._hosts),):
            expected = f"an array of {len(self._hosts)} booleans"
            raise InvalidInput("field", "passing", mask, expected)
        result: Booleans = mask
        return result

    def _call(self, host: str | None, default: T, method: Callable[[], T]) -> T:
        """Return the result of a method that calls the filter.

        If the filter fails, this raises, or records that it is skipped and returns the default.
        """
        try:
            return method()
        except Exception as error:
            failed = FilterFailed(self.name, host, error)
            if self._failures is None:
                raise failed from error
            self._failures.setdefault(self.name, str(failed))
            if self._mask is None:
                self._mask = self._hosts.all()
            return default
