"""Which filters and weighers there are, and in which order they are asked: the list to read first.

What the search asks by itself stands before them (hosts in service, traits and trees of the host)
and after them (amounts, topologies, devices, groups). The names are those of entry points, so a
filter of a plug-in is named here like ours.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np

from resource_objects import plugins
from resource_objects.exceptions import FilterFailed, InvalidInput
from resource_objects.fields import FrozenDict
from resource_objects.ledger import Ledger
from resource_objects.requests import Request
from resource_objects.scheduler.filters import (
    POLICIES,
    Filter,
    FilterCondition,
    LimitingFilter,
    NamedFilter,
)
from resource_objects.scheduler.filters.affinity import Affinity
from resource_objects.scheduler.reports import Reports
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostStates
from resource_objects.scheduler.weighers import NamedWeigher, Weigher, weigh
from resource_objects.search.arrays import Integers
from resource_objects.search.conditions.base import HostFilter, LaysFilter
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import Order

_invalid_field = functools.partial(InvalidInput, "field")

FILTERS = "resource_objects.scheduler.filters"
WEIGHERS = "resource_objects.scheduler.weighers"

#: Asked of every request before any other filter, also where hosts are forced: who is let in where.
#: What aggregates mean is in their settings, so without any these ask nothing of aggregates.
ALWAYS = (
    "hosts",
    "zones",
    "tenants",
    "isolated",
    "affinity",
)
#: Asked besides, unless told otherwise.
DEFAULT_FILTERS: tuple[str, ...] = ("capabilities",)
#: What hosts are weighed by, unless told otherwise.
DEFAULT_WEIGHERS: tuple[str, ...] = ("soft_affinity",)

#: Filters in order: by name, with settings by name, or as they are.
Filters: TypeAlias = "Iterable[Any] | Mapping[str, Any]"
#: Weighers: by name with a multiplier or settings.
Weighers: TypeAlias = "Iterable[Any] | Mapping[str, Any]"


@dataclasses.dataclass(frozen=True, slots=True)
class Pipeline:
    """Filters and weighers, in order, and what becomes of a request when a filter fails.

    >>> [one.name for one in Pipeline.of().filters]
    ['hosts', 'zones', 'tenants', 'isolated', 'affinity', 'capabilities']
    >>> Pipeline.of(filters=["no_such_filter"])
    Traceback (most recent call last):
    resource_objects.exceptions.PluginError: plug-in 'no_such_filter' of resource_objects...
    """

    filters: tuple[NamedFilter, ...]
    weighers: tuple[NamedWeigher, ...] = ()
    on_error: str = "fail"
    #: why some that were named do nothing, by their names: as they are set, they ask nothing
    idle: Mapping[str, str] = FrozenDict()

    @classmethod
    def of(
        cls,
        filters: Filters = DEFAULT_FILTERS,
        weighers: Weighers = DEFAULT_WEIGHERS,
        *,
        on_error: str = "fail",
    ) -> Pipeline:
        """Return a pipeline of what is installed.

        :param filters: asked after :data:`ALWAYS`: names, objects that have ``refuses``, or
            ``{name: settings}``, where settings are the arguments by which it is made. What is
            named twice is asked once, by the last settings
        :param weighers: objects that have ``weigh``, names, or ``{name: settings}``, where settings
            may be a multiplier alone, and have one as ``multiplier``
        :param on_error: ``fail``: a filter that fails fails the request; ``skip``: the request goes
            on without it, and the answer says so
        :raises InvalidInput: for two filters of one name; for settings that it does not take, or
            another policy
        :raises PluginError: for a name that is not installed; for one that cannot be used
        """
        if on_error not in POLICIES:
            raise _invalid_field("on_error", on_error, f"one of {', '.join(POLICIES)}")
        given: dict[str, NamedFilter] = {}
        for one in map(_filter, _entries(filters)):
            if one.name in given:
                expected = "each name once; NamedFilter(name, filter) gives one another name"
                raise InvalidInput("repetition", "filters", one.name, expected)
            given[one.name] = one
        weighing = tuple(map(_weigher, _entries(weighers)))
        idle = {one.name: IDLE_FILTER for one in given.values() if is_idle(one.filter)}
        idle |= {one.name: IDLE_WEIGHER for one in weighing if is_idle(one.weigher)}
        always = [given.get(name) or _filter((name, {})) for name in ALWAYS]
        made = (*always, *(one for name, one in given.items() if name not in ALWAYS))
        return cls(made, weighing, on_error, FrozenDict(idle))


#: What is said of those that do nothing as they are set.
IDLE_FILTER, IDLE_WEIGHER = "asks nothing as it is set", "weighs all hosts alike as it is set"


def is_idle(one: Filter | Weigher) -> bool:
    """Return whether a filter or weigher says that it does nothing as it is set."""
    return getattr(one, "is_idle", False) is True


def _entries(given: Filters) -> Iterable[tuple[Any, Any]]:
    if isinstance(given, Mapping):
        return list(given.items())
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise _invalid_field("filters or weighers", given, "a list of names, or a mapping")
    return [one if isinstance(one, tuple) and len(one) == 2 else (one, {}) for one in given]


def _filter(entry: tuple[Any, Any]) -> NamedFilter:
    what, settings = entry
    if isinstance(what, NamedFilter):
        return what
    if isinstance(what, str):
        return NamedFilter(what, _made(FILTERS, what, settings, Filter))
    _require(what, "refuses")
    return NamedFilter(type(what).__name__, what)


def _weigher(entry: tuple[Any, Any]) -> NamedWeigher:
    what, settings = entry
    if isinstance(what, NamedWeigher):
        return what
    is_multiplier = isinstance(settings, int | float) and not isinstance(settings, bool)
    said = {"multiplier": settings} if is_multiplier else dict(_mapping(what, settings))
    multiplier = said.pop("multiplier", 1.0)
    if isinstance(what, str):
        return NamedWeigher(what, _made(WEIGHERS, what, said, Weigher), multiplier)
    _require(what, "weigh")
    return NamedWeigher(type(what).__name__, what, multiplier)


def _made(namespace: str, name: str, settings: Any, kind: type[Any]) -> Any:
    """Return the filter or weigher of a name, made with settings."""
    what = kind.__name__.lower()
    return plugins.make(namespace, name, kind, dict(_mapping(name, settings)), what=what)


def _mapping(name: object, settings: Any) -> Mapping[str, Any]:
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise _invalid_field(f"settings of {name}", settings, "a mapping")
    return settings


def _require(what: Any, method: str) -> None:
    if isinstance(what, type) or not callable(getattr(what, method, None)):
        raise _invalid_field("filter or weigher", what, f"an object with {method}()")


def group_filters(
    ledger: Ledger, group: str, request: Request, consumer: str
) -> tuple[LaysFilter, ...]:
    """Return what a server group that the ledger keeps asks of hosts, for ``snapshot.candidates``.

    For who searches without a scheduler, and claims by ``ledger.claim(..., group=)``. Who is in it
    is read now, and again with each search that is done again after a lost race.

    :param consumer: for whom is searched: where it is already does not count
    :raises NotFound: if it is not there
    """

    def known() -> RequestSpec:
        kept = ledger.groups.get(group)
        others = dataclasses.replace(kept, members=kept.members - {consumer})
        return RequestSpec(request, group=others)

    affinity = NamedFilter("affinity", Affinity())
    return Asked(Pipeline((affinity,)), known(), Reports(ledger), known).filters()


class Asked:
    """A pipeline asked for one request: filters as conditions, weighers as an order.

    Hosts are viewed once for each picture that is searched, and what agents told is read once, if
    anything looks at it.

    :param again: returns the specification as it is now, for a search that is done again after a
        lost race: who else is in its server group meanwhile; None: it never changes
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spec: RequestSpec,
        reports: Reports,
        again: Callable[[], RequestSpec] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._spec = spec
        self._again = again
        self._reports = reports
        self._hosts: HostStates | None = None
        #: why filters were skipped, by their names
        self.skipped: dict[str, str] = {}

    def filters(self) -> tuple[LaysFilter, ...]:
        """Return the filters as the search takes them.

        Who forces hosts is asked by :data:`ALWAYS` alone.
        """
        every = self._pipeline.filters
        if self._spec.forced:
            every = tuple(one for one in every if one.name in ALWAYS)
        laid: set[str] = set()
        return tuple(functools.partial(self._lay, one, laid) for one in every)

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle and a copy, which would read the ledger in another process."""
        raise TypeError("filters and weighers of a scheduler cannot be pickled or copied")

    def limits(self, fleet: Fleet) -> dict[str, dict[str, int]]:
        """Return the most that may be used of hosts, by uuid, where filters bound it."""
        hosts, rows = self.hosts(fleet), fleet.inventories
        found: dict[str, dict[str, int]] = {}
        for one in self._pipeline.filters:
            if isinstance(one.filter, LimitingFilter):
                for name, most in self._limits_of(one.name, one.filter, hosts).items():
                    of_class = fleet.rows(name)
                    own = np.flatnonzero(fleet.parent[of_class.provider] == of_class.provider)
                    bound = most[of_class.tree[own]]
                    is_less = bound < rows.capacity[own + of_class.first]
                    places = of_class.provider[own][is_less].tolist()
                    for place, total in zip(places, bound[is_less].tolist(), strict=True):
                        there = found.setdefault(fleet.uuids[place], {})
                        there[name] = min(total, there.get(name, total))
        return found

    def _limits_of(
        self, name: str, filter_: LimitingFilter, hosts: HostStates
    ) -> Mapping[str, Integers]:
        try:
            found = filter_.limits(hosts, self._spec)
            most = {kind: np.asarray(bound, dtype=np.int64) for kind, bound in found.items()}
            for kind, bound in most.items():
                if bound.shape != (len(hosts),):
                    expected = f"{len(hosts)} numbers"
                    raise _invalid_field(f"limits of {kind}", bound.shape, expected)
            return most
        except Exception as error:  # a bound that is not known must not be none
            raise FilterFailed(name, None, error) from error

    def order(self, order: Order) -> Order:
        """Return an order with the weighers besides."""
        weighers = self._pipeline.weighers
        if not weighers:
            return order
        return dataclasses.replace(order, weigh=weigh(weighers, self.hosts, lambda: self._spec))

    def hosts(self, fleet: Fleet) -> HostStates:
        """Return the hosts of a picture as filters and weighers see them."""
        if self._hosts is None or self._hosts.fleet is not fleet:
            self._hosts = HostStates(fleet, self._reports)
        return self._hosts

    def _lay(self, one: NamedFilter, laid: set[str], fleet: Fleet, request: Request) -> HostFilter:
        """Lay a filter over a fleet.

        :param laid: the names of those that were laid for one search, which each is once: who is
            laid twice is so for another search
        """
        failures = self.skipped if self._pipeline.on_error == "skip" else None
        if self._again is not None and one.name in laid:
            laid.clear()
            self._spec = self._again()
        laid.add(one.name)
        return FilterCondition(one, self.hosts(fleet), self._spec, failures)
