"""The pipeline: which filters and weighers are installed, and their order. Read this list first.

The conditions of the search itself come before the filters (disabled hosts, traits and trees of the
host) and after them (amounts, topologies, devices, groups). Names are those of entry points, so
filters of plug-ins are named like ours.
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
from resource_objects.scheduler.filters import POLICIES, Filter, FilterCondition, NamedFilter
from resource_objects.scheduler.filters.hosts import Affinity
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostStates, Reports
from resource_objects.scheduler.weighers import NamedWeigher, Weigher, weigh
from resource_objects.search.arrays import Integers
from resource_objects.search.findings import FilterFactory, HostFilter
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import Order

_invalid_field = functools.partial(InvalidInput, "field")

FILTERS = "resource_objects.scheduler.filters"
WEIGHERS = "resource_objects.scheduler.weighers"

#: The filters of every request, also of one with forced hosts: access of requests to hosts. Without
#: settings that give aggregates a meaning, they ignore aggregates.
ALWAYS = ("hosts", "zones", "tenants", "isolated", "affinity")
#: The default of the further filters.
DEFAULT_FILTERS: tuple[str, ...] = ("capabilities",)
#: The default of the weighers.
DEFAULT_WEIGHERS: tuple[str, ...] = ("soft_affinity",)

#: Filters in order: names, objects, or ``{name: settings}``.
Filters: TypeAlias = "Iterable[Any] | Mapping[str, Any]"
#: Weighers: names, objects, or ``{name: multiplier or settings}``.
Weighers: TypeAlias = "Iterable[Any] | Mapping[str, Any]"


@dataclasses.dataclass(frozen=True, slots=True)
class Pipeline:
    """Filters and weighers in order, and the policy for a filter that fails.

    >>> [named.name for named in Pipeline.of().filters]
    ['hosts', 'zones', 'tenants', 'isolated', 'affinity', 'capabilities']
    >>> Pipeline.of(filters=["no_such_filter"])
    Traceback (most recent call last):
    resource_objects.exceptions.PluginError: plug-in 'no_such_filter' of resource_objects...
    """

    filters: tuple[NamedFilter, ...]
    weighers: tuple[NamedWeigher, ...] = ()
    on_error: str = "fail"
    #: why filters and weighers have no effect with their present settings, by name
    idle: Mapping[str, str] = FrozenDict()

    @classmethod
    def of(
        cls,
        filters: Filters = DEFAULT_FILTERS,
        weighers: Weighers = DEFAULT_WEIGHERS,
        *,
        on_error: str = "fail",
    ) -> Pipeline:
        """Return a pipeline of installed filters and weighers.

        :param filters: the filters after :data:`ALWAYS`: names, objects with a method ``refuses``,
            or ``{name: settings}`` with the arguments of the filter. A name of :data:`ALWAYS`
            replaces its settings
        :param weighers: names, objects with a method ``weigh``, or ``{name: settings}``; settings
            can be the multiplier, or contain it as ``multiplier``
        :param on_error: ``fail``: a filter that fails fails the request; ``skip``: the request
            continues without it, and the answer reports it
        :raises InvalidInput: for two filters of one name, for invalid settings, or another policy
        :raises PluginError: for a name that is not installed; for a plug-in that does not load
        """
        if on_error not in POLICIES:
            raise _invalid_field("on_error", on_error, f"one of {', '.join(POLICIES)}")
        by_name: dict[str, NamedFilter] = {}
        for named in map(_filter, _entries(filters)):
            if named.name in by_name:
                expected = "each name once; NamedFilter(name, filter) gives one another name"
                raise InvalidInput("repetition", "filters", named.name, expected)
            by_name[named.name] = named
        weighing = tuple(map(_weigher, _entries(weighers)))
        idle = {name: IDLE_FILTER for name, named in by_name.items() if is_idle(named.filter)}
        idle |= {named.name: IDLE_WEIGHER for named in weighing if is_idle(named.weigher)}
        always = [by_name.get(name) or _filter((name, {})) for name in ALWAYS]
        further = [named for name, named in by_name.items() if name not in ALWAYS]
        return cls((*always, *further), weighing, on_error, FrozenDict(idle))


#: The reasons in :attr:`Pipeline.idle`.
IDLE_FILTER, IDLE_WEIGHER = "asks nothing as it is set", "weighs all hosts alike as it is set"


def is_idle(plugin: Filter | Weigher) -> bool:
    """Return True if a filter or weigher has no effect with its present settings."""
    return getattr(plugin, "is_idle", False) is True


def _entries(plugins: Filters) -> Iterable[tuple[Any, Any]]:
    """Return names or objects with their settings."""
    if isinstance(plugins, Mapping):
        return list(plugins.items())
    if isinstance(plugins, str) or not isinstance(plugins, Iterable):
        raise _invalid_field("filters or weighers", plugins, "a list of names, or a mapping")
    return [item if isinstance(item, tuple) and len(item) == 2 else (item, {}) for item in plugins]


def _filter(entry: tuple[Any, Any]) -> NamedFilter:
    plugin, settings = entry
    if isinstance(plugin, NamedFilter):
        return plugin
    return NamedFilter(*_load(FILTERS, Filter, "refuses", plugin, settings))


def _weigher(entry: tuple[Any, Any]) -> NamedWeigher:
    plugin, settings = entry
    if isinstance(plugin, NamedWeigher):
        return plugin
    is_multiplier = isinstance(settings, int | float) and not isinstance(settings, bool)
    options = {"multiplier": settings} if is_multiplier else _options(plugin, settings)
    multiplier = options.pop("multiplier", 1.0)
    return NamedWeigher(*_load(WEIGHERS, Weigher, "weigh", plugin, options), multiplier)


def _load(
    namespace: str, kind: type[Any], method: str, plugin: Any, settings: Any
) -> tuple[str, Any]:
    """Return the name and object of an installed filter or weigher, or of the caller's object."""
    if isinstance(plugin, str):
        options = _options(plugin, settings)
        name_of_kind = kind.__name__.lower()
        return plugin, plugins.make(namespace, plugin, kind, options, noun=name_of_kind)
    if isinstance(plugin, type) or not callable(getattr(plugin, method, None)):
        raise _invalid_field("filter or weigher", plugin, f"an object with {method}()")
    return type(plugin).__name__, plugin


def _options(plugin: object, settings: Any) -> dict[str, Any]:
    if not isinstance(settings, Mapping | None):
        raise _invalid_field(f"settings of {plugin}", settings, "a mapping")
    return dict(settings or {})


# --- one request ----------------------------------------------------------------------------------


class PipelineRun:
    """A pipeline for one request: filters as conditions of the search, weighers as an order.

    The view of the hosts is made once for each snapshot that is searched.

    :param refresh: returns the present specification, for a search that the ledger repeats after a
        lost race: its server group may have new members. None: it never changes
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spec: RequestSpec,
        reports: Reports,
        refresh: Callable[[], RequestSpec] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._spec = spec
        self._refresh = refresh
        self._reports = reports
        self._hosts: HostStates | None = None
        #: why filters were skipped, by name
        self.skipped: dict[str, str] = {}

    def filters(self) -> tuple[FilterFactory, ...]:
        """Return the filters for one search; only :data:`ALWAYS` for forced hosts."""
        compiled: set[str] = set()
        return tuple(
            functools.partial(self._compile, named, compiled)
            for named in self._pipeline.filters
            if not self._spec.forced or named.name in ALWAYS
        )

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle and a copy: they would read the ledger in another process."""
        raise TypeError("filters and weighers of a scheduler cannot be pickled or copied")

    def limits(self, fleet: Fleet) -> dict[str, dict[str, int]]:
        """Return the maximum usage of hosts by uuid and class, where a filter bounds it."""
        hosts, rows = self.hosts(fleet), fleet.inventories
        limits: dict[str, dict[str, int]] = {}
        for named in self._pipeline.filters:
            if hasattr(named.filter, "limits"):
                for name, by_tree in self._limits_of(named, hosts).items():
                    of_class = fleet.rows(name)
                    of_root = np.flatnonzero(fleet.parent[of_class.provider] == of_class.provider)
                    bounds = by_tree[of_class.tree[of_root]]
                    is_less = bounds < rows.capacity[of_root + of_class.first]
                    providers = of_class.provider[of_root][is_less].tolist()
                    for provider, bound in zip(providers, bounds[is_less].tolist(), strict=True):
                        by_class = limits.setdefault(fleet.uuids[provider], {})
                        by_class[name] = min(bound, by_class.get(name, bound))
        return limits

    def _limits_of(self, named: NamedFilter, hosts: HostStates) -> Mapping[str, Integers]:
        filter_: Any = named.filter
        try:
            limits = {
                resource_class: np.asarray(bound, dtype=np.int64)
                for resource_class, bound in filter_.limits(hosts, self._spec).items()
            }
            for resource_class, bound in limits.items():
                if bound.shape != (len(hosts),):
                    expected = f"{len(hosts)} numbers"
                    raise _invalid_field(f"limits of {resource_class}", bound.shape, expected)
            return limits
        except Exception as error:  # an unknown limit is not the absence of one
            raise FilterFailed(named.name, None, error) from error

    def order(self, order: Order) -> Order:
        """Return an order with the weighers."""
        weighers = self._pipeline.weighers
        if not weighers:
            return order
        return dataclasses.replace(order, weigh=weigh(weighers, self.hosts, lambda: self._spec))

    def hosts(self, fleet: Fleet) -> HostStates:
        """Return the view that filters and weighers have of a fleet."""
        if self._hosts is None or self._hosts.fleet is not fleet:
            self._hosts = HostStates(fleet, self._reports)
        return self._hosts

    def _compile(
        self, named: NamedFilter, compiled: set[str], fleet: Fleet, request: Request
    ) -> HostFilter:
        """Return a filter as a condition on a fleet.

        :param compiled: the names of the filters that one search has compiled. A search compiles
            each once, so a filter that is compiled again begins a repeated search
        """
        failures = self.skipped if self._pipeline.on_error == "skip" else None
        if self._refresh is not None and named.name in compiled:
            compiled.clear()
            self._spec = self._refresh()
        compiled.add(named.name)
        return FilterCondition(named, self.hosts(fleet), self._spec, failures)


def with_members(ledger: Ledger, spec: RequestSpec, members: Iterable[str] = ()) -> RequestSpec:
    """Return a specification with further members in its server group.

    The policy and members of a group that is stored in the ledger are read. Cost: then one query.

    :raises NotFound: if the ledger has no such group
    """
    group = ledger.groups.get(spec.group) if isinstance(spec.group, str) else spec.group
    if group is None:
        return spec
    return spec.replace(group=dataclasses.replace(group, members=group.members.union(members)))


def group_filters(
    ledger: Ledger, group: str, request: Request, consumer: str
) -> tuple[FilterFactory, ...]:
    """Return the conditions of a stored server group on hosts, for ``snapshot.candidates``.

    For a search without a scheduler whose candidates are claimed by ``ledger.claim(..., group=)``.
    The members are read now, and again whenever the search is repeated after a lost race.

    :param consumer: the consumer of the request; its present allocations do not count
    :raises NotFound: if the ledger has no such group
    """

    def spec() -> RequestSpec:
        stored = ledger.groups.get(group)
        group_ = dataclasses.replace(stored, members=stored.members - {consumer})
        return RequestSpec(request, group=group_)

    affinity = NamedFilter("affinity", Affinity())
    return PipelineRun(Pipeline((affinity,)), spec(), Reports(ledger), spec).filters()
