"""The plug-in point of readers of a machine.

A driver is a callable that returns a :class:`~resource_objects.host.machine.Machine`, declared in
the stevedore namespace ``resource_objects.discovery``::

    [options.entry_points]
    resource_objects.discovery =
        mylab = mylab.hosts:read_from_inventory

The library ships ``linux``, :func:`resource_objects.host.linux.read_machine`, and ``libvirt``,
:func:`resource_objects.host.libvirt.read_machine`.
"""

from __future__ import annotations

from typing import Any

from resource_objects import plugins
from resource_objects.host.machine import Machine

__all__ = ["NAMESPACE", "discover", "drivers"]

NAMESPACE = "resource_objects.discovery"


def drivers() -> list[str]:
    """Return the names of the installed drivers, without loading them.

    >>> "linux" in drivers()
    True
    """
    return plugins.names(NAMESPACE)


def discover(driver: str = "linux", **options: Any) -> Machine:
    """Return the machine that a driver reads; ``options`` are its arguments.

    >>> discover("linux", root="/nowhere")
    Traceback (most recent call last):
    resource_objects.exceptions.DiscoveryError: /nowhere cannot be read: expected a directory ...
    >>> discover("solaris")
    Traceback (most recent call last):
    resource_objects.exceptions.PluginError: plug-in 'solaris' of resource_objects.discovery ...

    :raises PluginError: if there is no such driver; it names those that there are; if it does not
        load, it cannot be called, or what it returns is no machine
    :raises InvalidInput: if the driver takes no such options
    :raises DiscoveryError: if the machine's own description is missing or cannot be read
    """
    return plugins.make(NAMESPACE, driver, Machine, options, noun="discovery driver")
