"""Resources that a site adds to the hosts of an agent, without a change of its driver.

Nova's specification of an extensible resource tracker let a plug-in account for a resource of its
own, stored it in a JSON column, and logged the exceptions of plug-ins. Here a plug-in only reports
inventories. The ledger claims, limits, searches and explains them like any other class.

A plug-in is a subclass of :class:`HostResource`, or of :class:`PooledResource` for resources that
hosts share. A distribution declares it in the stevedore namespace
``resource_objects.host_resources``, and the agent names it::

    [options.entry_points]
    resource_objects.host_resources =
        entitlement = mylab.hosts:Entitlement
        power = mylab.racks:Power

    ResourceTracker(ledger, ExtendedDriver(driver, ["entitlement", "power"]))

A plug-in that fails is a warning about the host. Its inventories stay as they were, and the rest of
the host is in step. If the driver reports a class of a plug-in for the host itself, the plug-in is
a warning too, and the report of the driver counts.
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
    """Reports the inventories of some classes for each host.

    >>> class Entitlement(HostResource):
    ...     resource_classes = ("CUSTOM_CPU_ENTITLEMENT",)
    ...     def inventories(self, host):
    ...         return "CUSTOM_CPU_ENTITLEMENT=3200:step_size=100"
    >>> print(Inventories(Entitlement().inventories("box")))
    CUSTOM_CPU_ENTITLEMENT=3200:step_size=100
    """

    #: all classes of the plug-in; no other plug-in and no driver of the agent reports them
    resource_classes: Collection[str] = ()

    @abc.abstractmethod
    def inventories(self, host: str) -> Any:
        """Return the inventories of a host as ``Inventories`` accepts them; ``""`` for none."""


class PooledResource(abc.ABC):
    """Reports the inventories of pools, and the pool of each host.

    A pool is tracked like a host: an :class:`ExtendedDriver` names it, and makes its hosts members
    of the aggregate with the name of the pool.

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

    #: all classes of the pools; no other plug-in of the agent reports them
    resource_classes: Collection[str] = ()

    @abc.abstractmethod
    def pools(self) -> Mapping[str, Any]:
        """Return all pools, ``{name: inventories}``; no host has the name of a pool.

        The pools of the agent's hosts are tracked.
        """

    @abc.abstractmethod
    def pool_of(self, host: str) -> str | None:
        """Return the pool of a host, None if it has none."""


@dataclasses.dataclass(frozen=True)
class _Report:
    """The report of the driver about a host, and those of the plug-ins by name.

    ``added`` are the inventories, None of a plug-in that failed. ``pools`` are the pool of the host
    and the names of all pools.
    """

    available: Any
    added: Mapping[str, Inventories | None]
    pools: Mapping[str, tuple[str | None, frozenset[str]]]


def _delegated(
    method: Callable[Concatenate[Driver, _P], _R],
) -> Callable[Concatenate[ExtendedDriver, _P], _R]:
    """Return a method that calls the extended driver; for a pool it calls the default."""

    @functools.wraps(method)
    def call(self: ExtendedDriver, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        host = args[0] if args else kwargs.get("host")
        if isinstance(host, str) and self._is_pool(host):
            return method(self, *args, **kwargs)
        result: _R = getattr(self._driver, method.__name__)(*args, **kwargs)
        return result

    return call


class ExtendedDriver(Driver):
    """A driver, with the resources that plug-ins of a site add to its hosts and to pools.

    :param resources: names of plug-ins, or objects
    :raises PluginError: if there is no plug-in of a name, or it cannot be imported or loaded
    :raises InvalidInput: if two plug-ins report the same class

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
        self._classes: dict[str, tuple[str, ...]] = {}  # by plug-in
        self._resources: dict[str, HostResource] = {}
        self._pools: dict[str, _Pools] = {}
        plugin_of: dict[str, str] = {}
        for name, plugin in map(_load, resources):
            if name in self._classes:
                expected = "each plug-in once, by a name of its own"
                raise InvalidInput("repetition", "host resources", name, expected)
            classes = tuple(map(names.resource_class_name, plugin.resource_classes))
            for resource_class in classes:
                other = plugin_of.setdefault(resource_class, name)
                if other != name or classes.count(resource_class) > 1:
                    expected = f"one of {other} and {name}"
                    raise InvalidInput("repetition", "host resources", resource_class, expected)
            self._classes[name] = classes
            if isinstance(plugin, HostResource):
                self._resources[name] = plugin
            else:
                self._pools[name] = _Pools(name, plugin, functools.partial(self._checked, name))
        self._failed: dict[str, list[PluginError]] = {}  # by host
        self._overruled: dict[str, list[PluginError]] = {}  # by the driver, by host

    def hosts(self) -> Iterable[str]:
        hosts = list(self._driver.hosts())
        for pools in self._pools.values():
            pools.read(hosts)
        tracked = (pool for pools in self._pools.values() for pool in pools.tracked)
        return [*hosts, *dict.fromkeys(tracked)] if self._pools else hosts

    def _is_pool(self, host: str) -> bool:
        if any(not pools.is_read for pools in self._pools.values()):
            self.hosts()
        return any(host in pools.tracked for pools in self._pools.values())

    def get_available_resource(self, host: str) -> Any:
        if self._is_pool(host):
            return self._report(host, None)
        available = self._driver.get_available_resource(host)
        return None if available is None else self._report(host, available)

    def _report(self, host: str, available: Any) -> _Report:
        """Ask all plug-ins, and record the failed ones."""
        added: dict[str, Inventories | None] = {}
        joined: dict[str, tuple[str | None, frozenset[str]]] = {}
        failed: list[PluginError] = []
        is_pool = self._is_pool(host)
        for name, plugin in self._resources.items() if not is_pool else ():
            try:
                added[name] = self._checked(name, plugin.inventories(host))
            except Exception as error:  # a plug-in may fail in any way: a warning names its host
                added[name] = None
                failed.append(_failure(name, error))
        for name, pools in self._pools.items():
            if failure := pools.failure or pools.failures.get(host):
                failed.append(failure)
            if host in pools.tracked:
                added[name] = pools.tracked[host]
            elif host in pools.pool_of and not is_pool:
                joined[name] = pools.pool_of[host], pools.names
        self._failed[host] = failed
        return _Report(available, added, joined)

    def _checked(self, plugin: str, value: Any) -> Inventories:
        """Return the inventories of a plug-in, if all are of its classes."""
        inventories = Inventories(value)
        for name, _ in inventories.by_name():
            if name not in self._classes[plugin]:
                expected = ", ".join(self._classes[plugin]) or "none"
                raise InvalidInput("value", "resource class", name, f"one of its own: {expected}")
        return inventories

    def update_provider_tree(self, tree: Provider, available: Any) -> Iterable[Move] | None:
        report: _Report = self._report(tree.name, None) if available is None else available
        is_pool = self._is_pool(tree.name)
        stored = dict(tree.inventories.by_name())
        reporting = self._pools if is_pool else self._resources
        plugin_of = {name: plugin for plugin in reporting for name in self._classes[plugin]}
        # without the classes of plug-ins, so that the classes after the call are the driver's
        foreign = {name: count for name, count in stored.items() if name not in plugin_of}
        if len(foreign) < len(stored):
            tree.update(inventories=Inventories(foreign))
        moves = None if is_pool else self._driver.update_provider_tree(tree, report.available)
        total: dict[str, Any] = dict(tree.inventories.by_name())
        self._overruled[tree.name] = [
            PluginError(
                NAMESPACE, plugin_of[name], f"the driver reports {name} of {tree.name} itself"
            )
            for name in sorted(plugin_of.keys() & total.keys())
        ]
        for plugin, inventories in report.added.items():
            now = stored if inventories is None else dict(inventories.by_name())
            reported = {name: now[name] for name in self._classes[plugin] if name in now}
            total = {**reported, **total}
        tree.update(inventories=Inventories(total))
        aggregates = set(tree.aggregates or ())
        if is_pool:
            aggregates.add(tree.name)
            tree.update(traits={*tree.traits, SHARES})
        for pool, pool_names in report.pools.values():
            aggregates = (aggregates - pool_names) | ({pool} if pool else set())
        if aggregates != set(tree.aggregates or ()):
            tree.update(aggregates=aggregates)
        return moves

    def warnings(self, host: str) -> Iterator[ResourceObjectsError]:
        if not self._is_pool(host):
            yield from self._driver.warnings(host)
        yield from self._failed.get(host, ())
        yield from self._overruled.get(host, ())

    identity = _delegated(Driver.identity)
    is_renamed = _delegated(Driver.is_renamed)
    invalid_inventories = _delegated(Driver.invalid_inventories)
    overhead = _delegated(Driver.overhead)
    admit = _delegated(Driver.admit)
    consumers = _delegated(Driver.consumers)
    statistics = _delegated(Driver.statistics)


class _Pools:
    """The pools of a plug-in, as it reported them last.

    :param checked: checks the inventories of a pool
    """

    def __init__(
        self, name: str, plugin: PooledResource, checked: Callable[[Any], Inventories]
    ) -> None:
        self._name = name
        self._plugin = plugin
        self._checked = checked
        self.is_read = False
        self.failure: PluginError | None = None
        self.failures: dict[str, PluginError] = {}  #: by host
        self.names = frozenset[str]()  #: all names, also the previous ones, which hosts leave
        #: the inventories of each pool of a host of the agent, None if the plug-in failed
        self.tracked: dict[str, Inventories | None] = {}
        self.pool_of: dict[str, str | None] = {}  #: by host, without failures

    def read(self, hosts: Collection[str]) -> None:
        """Ask for the pools, and for the pool of each host."""
        self.is_read, self.failure, self.pool_of, self.failures = True, None, {}, {}
        try:
            pools = {
                names.provider_name(pool): self._checked(inventories)
                for pool, inventories in self._plugin.pools().items()
            }
            for name in pools.keys() & set(hosts):
                raise InvalidInput("value", "pool", name, "a name that no host of the driver has")
        except Exception as error:  # a plug-in may fail in any way: a warning names each host
            self.failure = _failure(self._name, error)
            self.tracked = dict.fromkeys(self.tracked)
            return
        self.names |= frozenset(pools)
        for host in hosts:
            try:
                pool = self._plugin.pool_of(host)
                if pool is not None and pool not in pools:
                    expected = f"one of its pools: {', '.join(sorted(pools)) or 'none'}"
                    raise InvalidInput("value", "pool", pool, expected)
                self.pool_of[host] = pool
            except Exception as error:  # a plug-in may fail in any way: a warning names the host
                self.failures[host] = _failure(self._name, error)
        used = set(self.pool_of.values())
        self.tracked = {pool: inventories for pool, inventories in pools.items() if pool in used}


def _load(plugin: str | HostResource | PooledResource) -> tuple[str, HostResource | PooledResource]:
    """Return a plug-in with its name in warnings."""
    name = plugin if isinstance(plugin, str) else type(plugin).__name__
    loaded: Any = plugins.load(NAMESPACE, name) if isinstance(plugin, str) else plugin
    if isinstance(loaded, type):
        try:
            loaded = loaded()
        except Exception as error:  # a plug-in may fail in any way: the error names it
            raise _failure(name, error) from error
    if not isinstance(loaded, HostResource | PooledResource):
        expected = "no HostResource or PooledResource"
        raise PluginError(NAMESPACE, name, f"it is a {type(loaded).__name__}, {expected}")
    return name, loaded


def _failure(name: str, error: Exception) -> PluginError:
    return PluginError(NAMESPACE, name, f"{type(error).__name__}: {error}")
