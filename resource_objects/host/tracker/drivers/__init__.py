"""Worked drivers: what an agent says of its hosts, ready to use and to read.

A driver is a class, or anything that returns a :class:`~resource_objects.host.tracker.Driver`,
declared in the stevedore namespace ``resource_objects.drivers``::

    [options.entry_points]
    resource_objects.drivers =
        mylab = mylab.agent:LabDriver

The library ships three, each loaded when it is first used:

==================  ===============================================================================
``machine``         MachineDriver: the machine this runs on, or any that discovery reads
``libvirt``         LibvirtDriver: a compute host, as libvirt tells it in XML
``baremetal``       BareMetalDriver: thousands of machines, each given out whole
==================  ===============================================================================

    >>> drivers()
    ['baremetal', 'libvirt', 'machine']
    >>> driver = make_driver("baremetal", nodes=[])
    >>> list(driver.hosts())
    []
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resource_objects import plugins
from resource_objects._lazy import lazily
from resource_objects.host.tracker.driver import Driver

if TYPE_CHECKING:
    from resource_objects.host.tracker.drivers.baremetal import BareMetalDriver as BareMetalDriver
    from resource_objects.host.tracker.drivers.baremetal import BareMetalNode as BareMetalNode
    from resource_objects.host.tracker.drivers.libvirt import LibvirtDriver as LibvirtDriver
    from resource_objects.host.tracker.drivers.machine import MachineDriver as MachineDriver

#: ``{public name: module that defines it}``
_HOME = {
    "BareMetalDriver": "baremetal",
    "BareMetalNode": "baremetal",
    "LibvirtDriver": "libvirt",
    "MachineDriver": "machine",
}

__all__ = [  # noqa: PLE0604  # the first are computed, so that no name is said twice
    *sorted(_HOME),
    "NAMESPACE",
    "drivers",
    "make_driver",
]

NAMESPACE = "resource_objects.drivers"


def drivers() -> list[str]:
    """Return the names of the drivers there are, without loading them."""
    return plugins.names(NAMESPACE)


def make_driver(name: str, /, **options: Any) -> Driver:
    """Return a driver by its name; ``options`` go to it.

    >>> make_driver("baremetal", nodes=[], sockets=2)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: options of driver baremetal: got {'nodes': [], ...

    :raises PluginError: if there is no driver of that name (the known ones are named), it does not
        load, it cannot be called, or what it returns is no driver
    :raises InvalidInput: if it takes no such options
    """
    kind: Any = Driver  # of a type mypy wants one that can be made, not only asked about
    made: Driver = plugins.make(NAMESPACE, name, kind, options, what="driver")
    return made


__getattr__, __dir__ = lazily(globals(), _HOME)
