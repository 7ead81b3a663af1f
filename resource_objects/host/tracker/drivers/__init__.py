"""Drivers that are ready to use, and by name.

A driver is a subclass of :class:`~resource_objects.host.tracker.Driver`, or a callable that returns
one, declared in the stevedore namespace ``resource_objects.drivers``::

    [options.entry_points]
    resource_objects.drivers =
        mylab = mylab.agent:LabDriver

The library has three, each imported at its first use:

==================  ===============================================================================
``machine``         MachineDriver: this machine, or any other that discovery reads
``libvirt``         LibvirtDriver: a compute host, described by the XML of libvirt
``baremetal``       BareMetalDriver: thousands of machines, each allocated as a whole
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
from resource_objects._lazy import lazy_attributes
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

__all__ = [  # noqa: PLE0604  # the first are computed, so that no name is repeated
    *sorted(_HOME),
    "NAMESPACE",
    "drivers",
    "make_driver",
]

NAMESPACE = "resource_objects.drivers"


def drivers() -> list[str]:
    """Return the names of the declared drivers, without importing them."""
    return plugins.names(NAMESPACE)


def make_driver(name: str, /, **options: Any) -> Driver:
    """Return a driver by its name.

    >>> make_driver("baremetal", nodes=[], sockets=2)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: options of driver baremetal: got {'nodes': [], ...

    :param options: the options of the driver
    :raises PluginError: if there is no driver of that name, with the known names; if it cannot be
        imported or called, or returns no driver
    :raises InvalidInput: for options that the driver does not have
    """
    kind: Any = Driver  # the parameter of plugins.make is a type that can be called
    driver: Driver = plugins.make(NAMESPACE, name, kind, options, noun="driver")
    return driver


__getattr__, __dir__ = lazy_attributes(globals(), _HOME)
