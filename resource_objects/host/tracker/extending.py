"""Resources that a site adds to the hosts of an agent, without touching its driver.

The extensible-resource-tracking specification of Nova let a plug-in account for a resource of its
own, and kept it as free-form keys of a JSON column, where an exception of one plug-in was logged
and forgotten. Here a plug-in says one thing, how much there is on a host, as inventories like any
others. The rest is there already: what is in the ledger is claimed, limited, searched for, shown
and explained, whatever its name.

A plug-in is a subclass of :class:`HostResource`, or of :class:`PooledResource` for what several
hosts share, declared by a distribution in the stevedore namespace
``resource_objects.host_resources``, and named by the agent::

    [options.entry_points]
    resource_objects.host_resources =
        entitlement = mylab.hosts:Entitlement
        power = mylab.racks:Power

    ResourceTracker(ledger, ExtendedDriver(driver, ["entitlement", "power"]))

A plug-in that fails is named in a finding. What it said last stays as it was; everything else of
the host is kept in step. So is one that says a class that the driver gives the host itself: what
the driver says counts.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from resource_objects import names, plugins
from resource_objects.exceptions import InvalidInput, PluginError, ResourceObjectsError
from resource_objects.host.tracker.driver import Driver
from resource_objects.providers import Provider
from resource_objects.providers.pools import SHARES
from resource_objects.providers.reshape import Move
from resource_objects.resources import Inventories

NAMESPACE = "resource_objects.host_resources"

_P = ParamSpec("_P")
_R = TypeVar("_R")


class HostResource(abc.ABC):
    """How much of some resources there is on each host, configured or discovered.

    >>> class Entitlement(HostResource):
    ...     resource_classes = ("CUSTOM_CPU_ENTITLEMENT",)
    ...     def inventories(self, host):
    ...         return "CUSTOM_CPU_ENTITLEMENT=3200:step_size=100"
    >>> print(Inventories(Entitlement().inventories("box")))
    CUSTOM_CPU_ENTITLEMENT=3200:step_size=100
    """

    #: the classes that it says, all of them; no other plug-in of an agent, nor its driver, says one
    resource_classes: Collection[str] = ()

    @abc.abstractmethod
    def inventories(self, host: str) -> Any:
        """Return what a host has of the classes: what ``Inventories`` takes, such as ``""``."""


class PooledResource(abc.ABC):
    """How much of some resources there is in pools, and which hosts each pool gives to.

    A pool is tracked as a host is: an :class:`ExtendedDriver` names it beside the hosts that it
    gives to, and makes those members of an aggregate that is called like it.

    >>> class Power(PooledResource):
    ...     resource_classes = ("CUSTOM_WATT",)
    ...     def pools(self):
    ...         return {"rack-1": "CUSTOM_WATT=3000:reserved=200"}
    ...     def pool_of(self, host):
    ...         return "rack-1" if host in ("h1", "h2") else None
    >>> class Lab(Driver):
    ...     def hosts(self):
    ...         return ["h1", "h2", "h3"]
    ...     def get_available_resource(self, host):
    ...         return "VCPU=8"
    >>> ExtendedDriver(Lab(), [Power()]).hosts()
    ['h1', 'h2', 'h3', 'rack-1']
    """

    #: the classes that its pools give, all of them; no other plug-in of an agent says one
    resource_classes: Collection[str] = ()

    @abc.abstractmethod
    def pools(self) -> Mapping[str, Any]:
        """Return all pools there are: ``{name: what Inventories takes}``; no host has such a name.

        Of these, those are tracked that give to a host of the agent.
        """

    @abc.abstractmethod
    def pool_of(self, host: str) -> str | None:
        """Return the pool that gives to a host, None if none does."""


@dataclasses.dataclass(frozen=True)
class _Extended:
    """What a driver says of a host, and what each plug-in does; None: it failed.

    ``pools`` says of each plug-in that has pools which one gives to the host, and which it has.
    """

    available: Any
    added: Mapping[str, Inventories | None]
    pools: Mapping[str, tuple[str | None, frozenset[str]]]


def _handed_on(
    method: Callable[Concatenate[Driver, _P], _R],
) -> Callable[Concatenate[ExtendedDriver, _P], _R]:
    """Return a method of a driver that asks the one which is extended; not about a pool."""

    @functools.wraps(method)
    def asked(self: ExtendedDriver, /, *args: _P.args, **said: _P.kwargs) -> _R:
        host = args[0] if args else said.get("host")
        if isinstance(host, str) and self._is_pool(host):
            return method(self, *args, **said)
        answer: _R = getattr(self._driver, method.__name__)(*args, **said)
        return answer

    return asked


class ExtendedDriver(Driver):
    """A driver, and resources that a site adds to the root of each of its hosts, or to pools.

    :param resources: names of plug-ins, or objects
    :raises PluginError: if there is no plug-in of a name, it does not load, or is none
    :raises InvalidInput: if two say the same class

    >>> class Lab(Driver):
    ...     def hosts(self):
    ...         return ["box"]
    ...     def get_available_resource(self, host):
    ...         return "VCPU=8"
    >>> class Watts(HostResource):
    ...     resource_classes = ("CUSTOM_WATT",)
    ...     def inventories(self, host):
    ...         return "CUSTOM_WATT=1200:reserved=150"
    >>> driver, tree = ExtendedDriver(Lab(), [Watts()]), Provider("box")
    >>> driver.update_provider_tree(tree, driver.get_available_resource("box"))
    >>> print(tree)
    box: VCPU=8,CUSTOM_WATT=1200:reserved=150
    """

    def __init__(
        self, driver: Driver, resources: Iterable[str | HostResource | PooledResource]
    ) -> None:
        self._driver = driver
        every: dict[str, HostResource | PooledResource] = {}
        for name, one in map(_loaded, resources):
            if name in every:
                raise InvalidInput(
                    "repetition", "host resources", name, "each plug-in once, by a name of its own"
                )
            every[name] = one
        self._classes: dict[str, tuple[str, ...]] = {}
        owners: dict[str, str] = {}
        for name, one in every.items():
            said = tuple(map(names.resource_class_name, one.resource_classes))
            for kind in said:
                if kind in owners:
                    raise InvalidInput(
                        "repetition", "host resources", kind, f"one of {owners[kind]} and {name}"
                    )
                owners[kind] = name
            self._classes[name] = said
        self._resources = {n: one for n, one in every.items() if isinstance(one, HostResource)}
        self._pools = {
            name: _Pools(name, one, functools.partial(self._said, name))
            for name, one in every.items()
            if isinstance(one, PooledResource)
        }
        self._wrong: dict[str, tuple[PluginError, ...]] = {}  # plug-ins that failed, by host
        self._replaced: dict[str, tuple[PluginError, ...]] = {}  # that said what the driver says

    def hosts(self) -> Iterable[str]:
        found = list(self._driver.hosts())
        for pools in self._pools.values():
            pools.look(found)
        named = (pool for pools in self._pools.values() for pool in pools.given)
        return list(found) if not self._pools else [*found, *dict.fromkeys(named)]

    def _is_pool(self, host: str) -> bool:
        if any(not pools.was_asked for pools in self._pools.values()):
            self.hosts()
        return any(host in pools.given for pools in self._pools.values())

    def get_available_resource(self, host: str) -> Any:
        if self._is_pool(host):
            return self._extended(host, None)
        available = self._driver.get_available_resource(host)
        return None if available is None else self._extended(host, available)

    def _extended(self, host: str, available: Any) -> _Extended:
        """Ask all plug-ins, and keep in mind which of them failed."""
        added: dict[str, Inventories | None] = {}
        joined: dict[str, tuple[str | None, frozenset[str]]] = {}
        wrong: list[PluginError] = []
        is_pool = self._is_pool(host)
        for name, one in self._resources.items() if not is_pool else ():
            try:
                added[name] = self._said(name, one.inventories(host))
            except Exception as error:  # a plug-in may fail in any way: it is told with its host
                added[name] = None
                wrong.append(_failed(name, error))
        for name, pools in self._pools.items():
            wrong += pools.wrong(host)
            if host in pools.given:
                added[name] = pools.given[host]
            elif host in pools.of and not is_pool:
                joined[name] = pools.of[host], pools.every
        self._wrong[host] = tuple(wrong)
        return _Extended(available, added, joined)

    def _said(self, name: str, given: Any) -> Inventories:
        """Return what a plug-in says, of its own classes only."""
        found = Inventories(given)
        for kind, _ in found.by_name():
            if kind not in self._classes[name]:
                expected = ", ".join(self._classes[name]) or "none"
                raise InvalidInput("value", "resource class", kind, f"one of its own: {expected}")
        return found

    def update_provider_tree(self, tree: Provider, available: Any) -> Iterable[Move] | None:
        if available is None:
            available = self._extended(tree.name, None)
        is_pool = self._is_pool(tree.name)
        kept = dict(tree.inventories.by_name())
        there = self._pools if is_pool else self._resources
        own = {kind: name for name in there for kind in self._classes[name]}
        # without what plug-ins said, so that what is there afterwards is the driver's own
        left = {kind: one for kind, one in kept.items() if kind not in own}
        if len(left) < len(kept):
            tree.update(inventories=Inventories(left))
        moves = None
        if not is_pool:
            moves = self._driver.update_provider_tree(tree, available.available)
        found: dict[str, Any] = dict(tree.inventories.by_name())
        self._replaced[tree.name] = tuple(
            PluginError(NAMESPACE, own[kind], f"{kind} is what the driver of {tree.name} says")
            for kind in sorted(own.keys() & found.keys())
        )
        for name, said in available.added.items():
            now = kept if said is None else dict(said.by_name())
            found = {**{kind: now[kind] for kind in self._classes[name] if kind in now}, **found}
        tree.update(inventories=Inventories(found))
        _join(tree, available.pools, is_pool=is_pool)
        return moves

    def warnings(self, host: str) -> Iterator[ResourceObjectsError]:
        if not self._is_pool(host):
            yield from self._driver.warnings(host)
        yield from self._wrong.get(host, ())
        yield from self._replaced.get(host, ())

    # what else a driver says is what the one that is extended says
    identity = _handed_on(Driver.identity)
    is_renamed = _handed_on(Driver.is_renamed)
    invalid_inventories = _handed_on(Driver.invalid_inventories)
    overhead = _handed_on(Driver.overhead)
    admit = _handed_on(Driver.admit)
    consumers = _handed_on(Driver.consumers)
    statistics = _handed_on(Driver.statistics)


class _Pools:
    """What a plug-in says of its pools, as it was asked last."""

    def __init__(
        self, name: str, resource: PooledResource, said: Callable[[Any], Inventories]
    ) -> None:
        """:param said: reads what a pool has"""
        self._name = name
        self._resource = resource
        self._said = said
        self._failed: PluginError | None = None
        self._failed_for: dict[str, PluginError] = {}  # by host
        self.was_asked = False
        #: the names of all its pools, those that it had before too
        self.every: frozenset[str] = frozenset()
        #: what each pool has that gives to a host of the agent; None: nobody could say it
        self.given: dict[str, Inventories | None] = {}
        #: the pool of each host for which that could be said
        self.of: dict[str, str | None] = {}

    def look(self, hosts: Collection[str]) -> None:
        """Ask which pools there are, and to which of some hosts they give."""
        self.was_asked, self._failed, self.of, self._failed_for = True, None, {}, {}
        try:
            found = {
                names.provider_name(pool): self._said(given)
                for pool, given in self._resource.pools().items()
            }
            for name in found.keys() & set(hosts):
                raise InvalidInput("value", "pool", name, "a name that no host of the driver has")
        except Exception as error:  # a plug-in may fail in any way: it is told with each host
            self._failed = _failed(self._name, error)
            self.given = dict.fromkeys(self.given)
            return
        self.every |= frozenset(found)  # hosts leave also those that are named no more
        for host in hosts:
            try:
                self.of[host] = self._pool_of(host, found)
            except Exception as error:  # so here
                self._failed_for[host] = _failed(self._name, error)
        there = set(self.of.values())
        self.given = {pool: one for pool, one in found.items() if pool in there}

    def _pool_of(self, host: str, found: Collection[str]) -> str | None:
        pool = self._resource.pool_of(host)
        if pool is not None and pool not in found:
            expected = f"one of its pools: {', '.join(sorted(found)) or 'none'}"
            raise InvalidInput("value", "pool", pool, expected)
        return pool

    def wrong(self, host: str) -> list[PluginError]:
        """Return why it could not be said what is of a host, or of a pool."""
        failed = self._failed or self._failed_for.get(host)
        return [] if failed is None else [failed]


def _join(
    tree: Provider, pools: Mapping[str, tuple[str | None, frozenset[str]]], *, is_pool: bool
) -> None:
    """Let a pool share what it has, and a host be given it by those that are its own."""
    if is_pool:
        aggregates = {*(tree.aggregates or ()), tree.name}
        tree.update(traits={*tree.traits, SHARES}, aggregates=aggregates)
    for pool, every in pools.values():
        aggregates = set(tree.aggregates or ()) - every | ({pool} if pool else set())
        if aggregates != set(tree.aggregates or ()):
            tree.update(aggregates=aggregates)


def _loaded(
    given: str | HostResource | PooledResource,
) -> tuple[str, HostResource | PooledResource]:
    """Return a plug-in with the name that findings call it by."""
    name = given if isinstance(given, str) else type(given).__name__
    made = plugins.load(NAMESPACE, name) if isinstance(given, str) else given
    if isinstance(made, type):
        try:
            made = made()
        except Exception as error:  # a plug-in may fail in any way: it is named with its reason
            raise _failed(name, error) from error
    if not isinstance(made, HostResource | PooledResource):
        expected = "no HostResource or PooledResource"
        raise PluginError(NAMESPACE, name, f"it is a {type(made).__name__}, {expected}")
    return name, made


def _failed(name: str, error: Exception) -> PluginError:
    return PluginError(NAMESPACE, name, f"{type(error).__name__}: {error}")
