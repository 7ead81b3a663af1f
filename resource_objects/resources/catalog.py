"""The catalog: every resource class, with its type, units and description for people.

Standard classes are those of os-resource-classes, including those of a newer release that this
table does not describe. Every ``CUSTOM_*`` name is a class and needs no entry. A plug-in (namespace
``resource_objects.resources``) describes its own classes, or provides another kind of resource;
plug-ins come first for custom names, and are imported when their name is looked up.

:class:`ByResource` is the base of amounts, limits and inventories: a mapping from resources. A key
may be a resource or its name; iteration yields resources. Inside and on the wire the key is the
name.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from typing import Any, TypeVar

import os_resource_classes

from resource_objects import base, names, plugins
from resource_objects.exceptions import InvalidInput, PluginError, show
from resource_objects.resources.abstract import Resource
from resource_objects.resources.integer import IntegerResource

_T = TypeVar("_T")
PLUGIN_NAMESPACE = "resource_objects.resources"

#: The type of resources whose units have an identity.
DEVICE = "device"

#: ``name: (type, units, description)``
_STANDARD: dict[str, tuple[str, str, str]] = {
    "VCPU": ("processor", "CPUs", "CPU time, shared: several VCPUs may run on one CPU"),
    "MEMORY_MB": ("memory", "MiB", "Main memory"),
    "DISK_GB": ("storage", "GiB", "Disk space"),
    "PCI_DEVICE": (DEVICE, "devices", "Whole PCI devices"),
    "SRIOV_NET_VF": (DEVICE, "functions", "Virtual functions of SR-IOV network devices"),
    "NUMA_SOCKET": ("processor", "sockets", "Processor sockets"),
    "NUMA_CORE": ("processor", "cores", "Processor cores"),
    "NUMA_THREAD": ("processor", "threads", "Hardware threads of processor cores"),
    "NUMA_MEMORY_MB": ("memory", "MiB", "Memory local to a NUMA cell"),
    "IPV4_ADDRESS": ("network", "addresses", "IPv4 addresses of a pool"),
    "VGPU": (DEVICE, "GPUs", "Virtual GPUs"),
    "VGPU_DISPLAY_HEAD": (DEVICE, "heads", "Display heads of virtual GPUs"),
    "NET_BW_EGR_KILOBIT_PER_SEC": ("network", "kbit/s", "Outgoing network bandwidth"),
    "NET_BW_IGR_KILOBIT_PER_SEC": ("network", "kbit/s", "Incoming network bandwidth"),
    "PCPU": ("processor", "CPUs", "CPUs dedicated to one consumer each"),
    "MEM_ENCRYPTION_CONTEXT": ("memory", "contexts", "Guests with encrypted memory"),
    "FPGA": (DEVICE, "devices", "Field programmable gate arrays"),
    "PGPU": (DEVICE, "GPUs", "Physical GPUs, whole"),
    "NET_PACKET_RATE_KILOPACKET_PER_SEC": ("network", "kpacket/s", "Packets in both directions"),
    "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC": ("network", "kpacket/s", "Outgoing packets"),
    "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC": ("network", "kpacket/s", "Incoming packets"),
}


def resource(name: str | Resource) -> Resource:
    """Return the resource of a name; a resource returns itself.

    Cost: a dict look-up after the first time.

    :raises InvalidInput: for an invalid name; for a name that is neither standard nor custom nor a
        plug-in's
    :raises PluginError: if the plug-in that describes it cannot be loaded

    >>> resource("MEMORY_MB").units
    'MiB'
    >>> resource("MEMORY")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: resource class: got 'MEMORY', expected a ...
    """
    if isinstance(name, str):  # first: isinstance of an abstract class takes longer
        return _by_name(name)
    return name if isinstance(name, Resource) else _by_name(names.resource_class_name(name))


def standard_resources() -> tuple[Resource, ...]:
    """Return the resources of os-resource-classes, in its order.

    >>> [str(r) for r in standard_resources()[:3]]
    ['VCPU', 'MEMORY_MB', 'DISK_GB']
    """
    return tuple(_by_name(name) for name in os_resource_classes.STANDARDS)


def is_device(name: str) -> bool:
    """Return True if the units of a class have an identity, such as GPUs.

    >>> is_device("PGPU"), is_device("VCPU")
    (True, False)
    """
    return _by_name(name).type == DEVICE


@functools.lru_cache(maxsize=4096)  # bounded, because callers choose the names
def _by_name(name: str) -> Resource:
    name = names.resource_class_name(name)
    if name in os_resource_classes.STANDARDS:
        return IntegerResource(name, *_STANDARD.get(name, ("", "units", "")))
    if name in plugins.names(PLUGIN_NAMESPACE):
        return _from_plugin(name)
    if name.startswith(names.CUSTOM_PREFIX):
        return IntegerResource(name, "custom", "units", "A resource class of this site")
    raise _unknown(name)


def _from_plugin(name: str) -> Resource:
    result = plugins.load(PLUGIN_NAMESPACE, name)
    if not isinstance(result, Resource) or result.name != name:
        offered = result.name if isinstance(result, Resource) else show(result)
        raise PluginError(PLUGIN_NAMESPACE, name, f"it offers {offered}, not the resource {name}")
    return result


def _unknown(name: str) -> InvalidInput:
    custom = f"{names.CUSTOM_PREFIX}{name}"
    candidates = [*os_resource_classes.STANDARDS, *plugins.names(PLUGIN_NAMESPACE), custom]
    close = difflib.get_close_matches(name, candidates, n=2, cutoff=0.5) or [custom]
    expected = names.such_as("a standard or CUSTOM_ class", close)
    return InvalidInput("unknown resource class", "resource class", name, expected)


def forget() -> None:
    """Look plug-ins up again, for a process that installs one while it runs."""
    global _generation
    plugins.forget()
    _by_name.cache_clear()
    _generation += 1


_generation = 0


def generation() -> int:
    """Return the version of the catalog, for keys of caches. :func:`forget` changes it."""
    return _generation


# --- mappings from resources ----------------------------------------------------------------------


def key_name(key: object) -> str | None:
    """Return the name of a key, None for a value that is no key."""
    if isinstance(key, Resource):
        return key.name
    return key if isinstance(key, str) else None


def by_name(
    values: Mapping[Any, Any], make: Callable[[Resource, Any], _T], label: str
) -> dict[str, _T]:
    """Return ``{name: make(resource, value)}``.

    :param label: the name of the argument in the error
    :raises InvalidInput: for an unknown name; for two keys of one class (a resource and its name)
    """
    result: dict[str, _T] = {}
    for key, value in values.items():
        kind = resource(key)
        if kind.name in result:
            raise InvalidInput("repetition", label, kind.name, "each resource once")
        result[kind.name] = make(kind, value)
    return result


def load_kinds(primitive: Mapping[str, Any]) -> None:
    """Import the plug-ins of the resource classes in a wire form.

    A process that receives a plug-in's amount may not have looked up its resource before.
    """
    by_class = primitive[base.ResourceObject._obj_primitive_key("data")].get("by_class")
    for name in by_class if isinstance(by_class, dict) else ():
        resource(name)


class ByResource(Mapping[Resource, _T]):
    """A mapping from resources, stored by name in ``_obj_by_class``."""

    _obj_by_class: Mapping[str, _T]

    def __getitem__(self, key: Resource | str) -> Any:
        name = key_name(key)
        if name is None:
            raise InvalidInput("resource class", "key", key, "a resource or its name")
        return self._obj_by_class[name]

    def __contains__(self, key: object) -> bool:
        return key_name(key) in self._obj_by_class

    def __iter__(self) -> Iterator[Resource]:
        return map(resource, self._obj_by_class)

    def __len__(self) -> int:
        return len(self._obj_by_class)

    def values(self) -> ValuesView[_T]:
        """Return the values, in order."""
        return self._obj_by_class.values()

    def names(self) -> Iterable[str]:
        """Return the names of the resources, in order."""
        return self._obj_by_class.keys()

    def by_name(self) -> Iterable[tuple[str, _T]]:
        """Return the pairs of name and value, in order."""
        return self._obj_by_class.items()
