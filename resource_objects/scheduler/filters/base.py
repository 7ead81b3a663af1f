"""The contract of filters, and how a filter becomes a condition of the search."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from resource_objects import exceptions
from resource_objects.exceptions import FilterFailed
from resource_objects.reasons import Reason, Rule
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.base import Cut, Partial

#: What becomes of a request when a filter fails: it fails too, or goes on without the filter, and
#: says so.
POLICIES = ("fail", "skip")


@runtime_checkable
class Filter(Protocol):
    """What hosts have to meet. It changes nothing, and says the same of the same.

    One that asks nothing as it is set may say so, by ``is_idle``: who names it is then told.
    """

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return why a host is refused, in words that follow its name; None if it is not."""


@runtime_checkable
class ColumnarFilter(Protocol):
    """A filter that says it of all hosts at once, too: for fleets of thousands."""

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts are not refused, in the order of ``hosts.hosts``."""


@runtime_checkable
class NamingFilter(Protocol):
    """A filter that can name who keeps a request from a host: for explanations, as data."""

    def holders(self, host: HostState, spec: RequestSpec) -> tuple[tuple[str, int], ...]:
        """Return who stands in the way at a host that is refused, each with how much of it."""


@runtime_checkable
class LimitingFilter(Protocol):
    """A filter that bounds how much may be used of hosts, such as by another ratio."""

    def limits(self, hosts: HostStates, spec: RequestSpec) -> Mapping[str, Integers]:
        """Return by resource class the most that may be used of each host, by all consumers.

        Parallel to ``hosts.hosts``; ``fields.MAX_AMOUNT`` where there is no such bound. It binds
        what the host itself keeps, and goes with what is found to the claim.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class NamedFilter:
    """A filter with the name by which refusals and errors tell of it."""

    name: str
    filter: Filter


class FilterCondition:
    """A filter as a condition of the search, for one request over one fleet.

    One that fails on some host, where that lets it be skipped, passes all hosts: none of what it
    refused before stands.
    """

    rule = Rule.FILTER

    def __init__(
        self,
        named: NamedFilter,
        hosts: HostStates,
        spec: RequestSpec,
        failures: dict[str, str] | None,
    ) -> None:
        """:param failures: notes why filters were skipped; None: a filter that fails raises. One
        that is in it already is skipped"""
        self.name = named.name
        self._filter = named.filter
        self._hosts = hosts
        self._spec = spec
        self._failures = failures
        self._told: dict[int, str | None] = {}
        self._passing: Booleans | None = None
        if failures is not None and named.name in failures:
            self._passing = hosts.all()
        elif isinstance(named.filter, ColumnarFilter):
            self._passing = self._asked(named.filter)

    def mask(self) -> Booleans:
        """Return which hosts it passes; all, where it is only asked host by host."""
        return self._hosts.all() if self._passing is None else self._passing

    def among(self, trees: Integers) -> Booleans:
        """Return which of some hosts it passes."""
        if self._passing is None:
            passing = np.array([self._why(tree) is None for tree in trees.tolist()], dtype=np.bool_)
            if self._passing is None:  # else it failed on one of them
                return passing
        return self._passing[trees]

    def cuts(self) -> Iterator[Cut]:
        """Yield one cut."""
        yield Cut(self.among(np.arange(len(self._hosts))), self.rule, label=self.name)

    def holds(self, tree: int) -> bool:
        """Return whether it passes a host."""
        return bool(self._passing[tree]) if self._passing is not None else self._why(tree) is None

    def reasons(self, host: Partial) -> list[Reason]:
        """Return why it does not.

        Cost: where it may be skipped, and is only asked host by host, it is asked of all hosts.
        """
        if self._failures is not None:  # on whichever host it fails, it refuses none
            self.among(np.arange(len(self._hosts)))
        if self.holds(host.tree):
            return []
        where, why = self._hosts.hosts[host.tree], self._why(host.tree)
        if why is None and self._failures is None:
            told = "it passes the host, but not where it is asked of all hosts at once"
            raise FilterFailed(self.name, where, told)
        if why is None:
            why = "is refused, and it failed to say why"
        holders = self._holders(host.tree)
        return [
            Reason(self.rule, 1, 0, 0, where=where, holders=holders, unit=why, filter=self.name)
        ]

    def _holders(self, tree: int) -> tuple[tuple[str, int], ...]:
        if not isinstance(self._filter, NamingFilter):
            return ()
        host = self._hosts.at(tree)
        try:
            return tuple(self._filter.holders(host, self._spec))
        except Exception as error:  # whatever it is: it is named
            self._failed(host.name, error)
            return ()

    def _why(self, tree: int) -> str | None:
        if tree not in self._told:
            self._told[tree] = self._asked_of(self._hosts.at(tree))
        return self._told[tree]

    def _asked_of(self, host: HostState) -> str | None:
        try:
            why = self._filter.refuses(host, self._spec)
        except Exception as error:  # whatever it is: it is named, and never a pass in silence
            self._failed(host.name, error)
            return None
        if why is not None and (not isinstance(why, str) or not why):
            wrong = exceptions.InvalidInput("field", "refuses", why, "why, as text, or None")
            self._failed(host.name, wrong)
            return None
        return why

    def _asked(self, columnar: ColumnarFilter) -> Booleans:
        try:
            result: Any = columnar.passing(self._hosts, self._spec)
        except Exception as error:
            self._failed(None, error)
            return self._hosts.all()
        is_mask = isinstance(result, np.ndarray) and result.dtype == np.bool_
        if not is_mask or result.shape != (len(self._hosts),):
            expected = f"an array of {len(self._hosts)} booleans"
            self._failed(None, exceptions.InvalidInput("field", "passing", result, expected))
            return self._hosts.all()
        passing: Booleans = result
        return passing

    def _failed(self, host: str | None, error: Exception) -> None:
        failed = FilterFailed(self.name, host, error)
        if self._failures is None:
            raise failed from error
        self._failures.setdefault(self.name, str(failed))
        if self._passing is None:
            self._passing = self._hosts.all()
