"""Loading of plug-ins, in one way for every plug-in point.

A plug-in point is a stevedore namespace under ``resource_objects.``. The plug-ins of the library
are entry points too; :data:`BUILT_IN` repeats them for a checkout that is not installed, which has
no entry points. A plug-in that fails to load is reported with its cause.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
from typing import Any, TypeVar

from resource_objects.exceptions import InvalidInput, PluginError

_T = TypeVar("_T")

#: The plug-ins of the library, ``{namespace: {name: "module:object"}}``.
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
    """Return the object of the plug-in ``name`` of ``namespace``.

    :raises PluginError: if no plug-in has the name, several have it, or its import fails
    """
    paths = _entry_points(namespace).get(name, ())
    if len(paths) > 1:
        raise PluginError(namespace, name, f"declared by several: {', '.join(sorted(paths))}")
    path = paths[0] if paths else None
    if path is None or path.startswith("resource_objects."):  # metadata may be of an older checkout
        path = BUILT_IN.get(namespace, {}).get(name, path)
    if path is None:
        raise PluginError(
            namespace, name, f"no such plug-in; {offered(namespace, name)}", is_installed=False
        )
    try:
        module, _, attribute = path.partition(":")
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except Exception as error:  # a plug-in may fail in any way
        raise PluginError(namespace, name, f"{type(error).__name__}: {error}") from error


def offered(namespace: str, name: str) -> str:
    """Return the names of the plug-ins of a namespace as text, with a similar one if there is one.

    >>> offered("resource_objects.backends", "postgres").partition(" installed")[0]
    'did you mean postgresql?'
    """
    installed = names(namespace)
    close = difflib.get_close_matches(name, installed, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}installed: {', '.join(installed) or 'none'}"


def make(namespace: str, name: str, kind: type[_T], options: dict[str, Any], *, noun: str) -> _T:
    """Call the plug-in of a name with some options and return the result.

    :param kind: the type of the result
    :param noun: the plug-in in error messages, such as ``"discovery driver"``
    :raises PluginError: if no plug-in has the name (the message lists the installed ones), if it
        does not load or cannot be called, or if the result has another type
    :raises InvalidInput: if it does not accept the options

    >>> make("resource_objects.discovery", "linux", int, {"depth": 3}, noun="discovery driver")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: options of discovery driver linux: got {'depth': 3}...
    """
    if not isinstance(name, str):
        raise InvalidInput("value", noun, name, f"a name: {', '.join(names(namespace))}")
    factory = load(namespace, name)
    if not callable(factory):
        raise PluginError(namespace, name, f"it is a {type(factory).__name__}, not callable")
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some callables of C have none
        signature = None
    if signature is not None:
        try:
            signature.bind(**options)
        except TypeError as error:
            expected = f"{', '.join(signature.parameters) or 'none'}; {error}"
            subject = f"options of {noun} {name}"
            raise InvalidInput("value", subject, options, expected) from error
    result = factory(**options)
    if not isinstance(result, kind):
        cause = f"it returned a {type(result).__name__}, no {kind.__name__}"
        raise PluginError(namespace, name, cause)
    return result


@functools.cache
def _entry_points(namespace: str) -> dict[str, tuple[str, ...]]:
    """Return ``{name: paths}`` of the installed distributions; nothing is imported."""
    from stevedore import NamedExtensionManager

    manager: Any = NamedExtensionManager(namespace, names=[])
    paths: dict[str, tuple[str, ...]] = {}
    for entry in manager.list_entry_points():
        if entry.value not in paths.get(entry.name, ()):
            paths[entry.name] = (*paths.get(entry.name, ()), entry.value)
    return paths


def forget() -> None:
    """Clear the cache of entry points, for a process that installs plug-ins while it runs."""
    _entry_points.cache_clear()
    from stevedore import ExtensionManager

    ExtensionManager.ENTRY_POINT_CACHE.clear()
