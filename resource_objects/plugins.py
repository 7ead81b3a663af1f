"""Loading of plug-ins, the same way for every plug-in point.

A plug-in point is a stevedore namespace under ``resource_objects.``. What the library ships is
declared there too; :data:`BUILT_IN` repeats it for a checkout that is not installed, where entry
points do not exist. A plug-in that fails to load is named with its reason; it does not vanish.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from resource_objects.exceptions import InvalidInput, PluginError

_T = TypeVar("_T")

#: ``{namespace: {name: "module:object"}}`` of what the library ships.
BUILT_IN: dict[str, dict[str, str]] = {
    "resource_objects.backends": {
        "memory": "resource_objects.backends.memory:MemoryBackend",
        "sqlite": "resource_objects.backends.sql.backend:SQLBackend",
        "postgresql": "resource_objects.backends.sql.backend:SQLBackend",
        "mysql": "resource_objects.backends.sql.backend:SQLBackend",
        "mariadb": "resource_objects.backends.sql.backend:SQLBackend",
        "placement": "resource_objects.backends.placement.backend:PlacementBackend",
    },
    "resource_objects.columns": {
        "VCPU": "resource_objects.host.columns:VCPUColumn",
        "MEMORY_MB": "resource_objects.host.columns:MemoryColumn",
        "DISK_GB": "resource_objects.host.columns:DiskColumn",
        "NUMA_TOPOLOGY": "resource_objects.host.nova_columns:NUMAColumn",
        "DEVICES": "resource_objects.host.nova_columns:PCIColumn",
    },
    "resource_objects.discovery": {
        "libvirt": "resource_objects.host.libvirt:read_machine",
        "linux": "resource_objects.host.linux:read_machine",
    },
    "resource_objects.drivers": {
        "baremetal": "resource_objects.host.tracker.drivers.baremetal:BareMetalDriver",
        "libvirt": "resource_objects.host.tracker.drivers.libvirt:LibvirtDriver",
        "machine": "resource_objects.host.tracker.drivers.machine:MachineDriver",
    },
    "resource_objects.resources": {
        "NUMA_TOPOLOGY": "resource_objects.resources.numa:NUMA_TOPOLOGY",
        "DEVICES": "resource_objects.resources.pci:DEVICES",
    },
    "resource_objects.scheduler.filters": {
        "hosts": "resource_objects.scheduler.filters.hosts:NamedHosts",
        "zones": "resource_objects.scheduler.filters.aggregates:Zones",
        "tenants": "resource_objects.scheduler.filters.aggregates:Tenants",
        "isolated": "resource_objects.scheduler.filters.aggregates:Isolated",
        "aggregate_metadata": "resource_objects.scheduler.filters.aggregates:AggregateMetadata",
        "aggregate_ratios": "resource_objects.scheduler.filters.aggregates:AggregateRatios",
        "capabilities": "resource_objects.scheduler.filters.statistics:Capabilities",
        "affinity": "resource_objects.scheduler.filters.hosts:Affinity",
        "statistics": "resource_objects.scheduler.filters.statistics:Statistics",
        "reported": "resource_objects.scheduler.filters.statistics:Reported",
    },
    "resource_objects.scheduler.weighers": {
        "free": "resource_objects.scheduler.weighers.hosts:FreeResources",
        "devices": "resource_objects.scheduler.weighers.hosts:FreeDevices",
        "statistics": "resource_objects.scheduler.weighers.hosts:Statistics",
        "traits": "resource_objects.scheduler.weighers.hosts:PreferredTraits",
        "soft_affinity": "resource_objects.scheduler.weighers.hosts:SoftAffinity",
        "fragmentation": "resource_objects.scheduler.weighers.fragmentation:Fragmentation",
    },
}


def names(namespace: str) -> list[str]:
    """Return the names of the plug-ins of a namespace, without importing them.

    >>> "memory" in names("resource_objects.backends")
    True
    """
    return sorted({*BUILT_IN.get(namespace, {}), *_entry_points(namespace)})


def load(namespace: str, name: str) -> Any:
    """Return the object that the plug-in ``name`` of ``namespace`` declares.

    :raises PluginError: if there is none of that name; if there are several, or its import fails
    """
    found = _entry_points(namespace).get(name, ())
    if len(found) > 1:
        raise PluginError(namespace, name, f"declared by several: {', '.join(sorted(found))}")
    path = found[0] if found else None
    if path is None or path.startswith("resource_objects."):  # metadata may be of an older checkout
        path = BUILT_IN.get(namespace, {}).get(name, path)
    if path is None:
        raise PluginError(
            namespace, name, f"no such plug-in; {offered(namespace, name)}", is_installed=False
        )
    try:
        module, _, attribute = path.partition(":")
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except Exception as error:  # a plug-in may fail in any way: it is named with its reason
        raise PluginError(namespace, name, f"{type(error).__name__}: {error}") from error


def offered(namespace: str, name: str) -> str:
    """Return the names of the plug-ins of a namespace as text, and which of them is close to one.

    >>> offered("resource_objects.backends", "postgres").partition(" installed")[0]
    'did you mean postgresql?'
    """
    known = names(namespace)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}installed: {', '.join(known) or 'none'}"


def make(namespace: str, name: str, kind: type[_T], options: dict[str, Any], *, what: str) -> _T:
    """Return what the plug-in of that name, which can be called, makes with some options.

    :param kind: what it has to return
    :param what: what errors call it, such as ``"discovery driver"``
    :raises PluginError: if there is none of that name; it names those that there are; if it does
        not load, it cannot be called, or what it returns is of no such kind
    :raises InvalidInput: if it takes no such options, naming what it takes

    >>> make("resource_objects.discovery", "linux", int, {"depth": 3}, what="discovery driver")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: options of discovery driver linux: got {'depth': 3}...
    """
    if not isinstance(name, str):
        raise InvalidInput("value", what, name, f"a name: {', '.join(names(namespace))}")
    found = load(namespace, name)
    if not callable(found):
        raise PluginError(namespace, name, f"it is a {type(found).__name__}, not callable")
    _require_options(f"{what} {name}", found, options)
    made = found(**options)
    if not isinstance(made, kind):
        said = f"it returned a {type(made).__name__}, no {kind.__name__}"
        raise PluginError(namespace, name, said)
    return made


def _require_options(what: str, found: Callable[..., Any], options: dict[str, Any]) -> None:
    """Refuse options that a plug-in does not take, before it starts."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # not every callable tells
        return
    try:
        signature.bind(**options)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "none"
        raise InvalidInput("value", f"options of {what}", options, f"{takes}; {error}") from error


@functools.cache
def _entry_points(namespace: str) -> dict[str, tuple[str, ...]]:
    """Return ``{name: paths}`` as installed distributions declare them (nothing is imported)."""
    from stevedore import NamedExtensionManager

    manager: Any = NamedExtensionManager(namespace, names=[])
    found: dict[str, tuple[str, ...]] = {}
    for entry in manager.list_entry_points():
        if entry.value not in found.get(entry.name, ()):
            found[entry.name] = (*found.get(entry.name, ()), entry.value)
    return found


def forget() -> None:
    """Forget what was looked up, for a process that installs plug-ins while it runs."""
    _entry_points.cache_clear()
    from stevedore import ExtensionManager

    ExtensionManager.ENTRY_POINT_CACHE.clear()
