"""Resources that a site adds to the hosts of an agent, without touching its driver.

The extensible-resource-tracking specification of Nova let a plug-in account for a resource of its
own, and kept it as free-form keys of a JSON column, where an exception of one plug-in was logged
and forgotten. Here a plug-in says one thing, how much there is on a host, as inventories like any
others. The rest is there already: what is in the ledger is claimed, limited, searched for, shown
and explained, whatever its name.

A plug-in is a subclass of :class:`HostResource`, declared by a distribution in the stevedore
namespace ``resource_objects.host_resources``, and named by the agent::

    [options.entry_points]
    resource_objects.host_resources =
        power = mylab.power:PowerBudget

    ResourceTracker(ledger, ExtendedDriver(driver, ["power"]))

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
from resource_objects.exceptions import (
    DuplicateKey,
    InvalidInput,
    PluginError,
    ResourceObjectsError,
)
from resource_objects.host.tracker.driver import Driver
from resource_objects.providers import Provider
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


@dataclasses.dataclass(frozen=True)
class _Extended:
    """What a driver says of a host, and what each plug-in does; None: it failed."""

    available: Any
    added: Mapping[str, Inventories | None]


def _handed_on(
    method: Callable[Concatenate[Driver, _P], _R],
) -> Callable[Concatenate[ExtendedDriver, _P], _R]:
    """Return a method of a driver that asks the one which is extended."""

    @functools.wraps(method)
    def asked(self: ExtendedDriver, /, *args: _P.args, **said: _P.kwargs) -> _R:
        answer: _R = getattr(self._driver, method.__name__)(*args, **said)
        return answer

    return asked


class ExtendedDriver(Driver):
    """A driver, and resources that a site adds to the root of each of its hosts.

    :param resources: names of plug-ins, or objects
    :raises PluginError: if there is no plug-in of a name, it does not load, or is none
    :raises DuplicateKey: if two say the same class

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

    def __init__(self, driver: Driver, resources: Iterable[str | HostResource]) -> None:
        self._driver = driver
        self._resources: dict[str, HostResource] = {}
        for name, one in map(_loaded, resources):
            if name in self._resources:
                raise DuplicateKey(
                    "host resources", name, "each plug-in once, by a name of its own"
                )
            self._resources[name] = one
        self._classes: dict[str, tuple[str, ...]] = {}
        owners: dict[str, str] = {}
        for name, one in self._resources.items():
            said = tuple(map(names.resource_class_name, one.resource_classes))
            for kind in said:
                if kind in owners:
                    raise DuplicateKey("host resources", kind, f"one of {owners[kind]} and {name}")
                owners[kind] = name
            self._classes[name] = said
        self._wrong: dict[str, tuple[PluginError, ...]] = {}  # plug-ins that failed, by host
        self._replaced: dict[str, tuple[PluginError, ...]] = {}  # that said what the driver says

    def hosts(self) -> Iterable[str]:
        return self._driver.hosts()

    def get_available_resource(self, host: str) -> Any:
        available = self._driver.get_available_resource(host)
        return None if available is None else _Extended(available, self._added(host))

    def _added(self, host: str) -> Mapping[str, Inventories | None]:
        """Ask all plug-ins, and keep in mind which of them failed."""
        added: dict[str, Inventories | None] = {}
        wrong: list[PluginError] = []
        for name, one in self._resources.items():
            try:
                added[name] = self._said(name, one.inventories(host))
            except Exception as error:  # a plug-in may fail in any way: it is told with its host
                added[name] = None
                wrong.append(_failed(name, error))
        self._wrong[host] = tuple(wrong)
        return added

    def _said(self, name: str, given: Any) -> Inventories:
        """Return what a plug-in says, of its own classes only."""
        found = Inventories(given)
        for kind, _ in found.by_name():
            if kind not in self._classes[name]:
                expected = ", ".join(self._classes[name]) or "none"
                raise InvalidInput("resource class", kind, f"one of its own: {expected}")
        return found

    def update_provider_tree(self, tree: Provider, available: Any) -> Iterable[Move] | None:
        if available is None:
            available = _Extended(None, self._added(tree.name))
        kept = dict(tree.inventories.by_name())
        own = {kind: name for name, kinds in self._classes.items() for kind in kinds}
        # without what plug-ins said, so that what is there afterwards is the driver's own
        left = {kind: one for kind, one in kept.items() if kind not in own}
        if len(left) < len(kept):
            tree.update(inventories=Inventories(left))
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
        return moves

    def remarks(self, host: str) -> Iterator[ResourceObjectsError]:
        yield from self._driver.remarks(host)
        yield from self._wrong.get(host, ())
        yield from self._replaced.get(host, ())

    # what else a driver says is what the one that is extended says
    identity = _handed_on(Driver.identity)
    is_renamed = _handed_on(Driver.is_renamed)
    overhead = _handed_on(Driver.overhead)
    accept = _handed_on(Driver.accept)
    consumers = _handed_on(Driver.consumers)
    statistics = _handed_on(Driver.statistics)


def _loaded(given: str | HostResource) -> tuple[str, HostResource]:
    """Return a plug-in with the name that findings call it by."""
    name = given if isinstance(given, str) else type(given).__name__
    made = plugins.load(NAMESPACE, name) if isinstance(given, str) else given
    if isinstance(made, type):
        try:
            made = made()
        except Exception as error:  # a plug-in may fail in any way: it is named with its reason
            raise _failed(name, error) from error
    if not isinstance(made, HostResource):
        raise PluginError(NAMESPACE, name, f"it is a {type(made).__name__}, no HostResource")
    return name, made


def _failed(name: str, error: Exception) -> PluginError:
    return PluginError(NAMESPACE, name, f"{type(error).__name__}: {error}")
