"""The plug-in point for finding out what a machine is.

A driver is a callable that returns a :class:`~resource_objects.host.facts.Machine`, declared in
the stevedore namespace ``resource_objects.discovery``::

    [options.entry_points]
    resource_objects.discovery =
        mylab = mylab.hosts:read_from_inventory

The library ships ``linux``, :func:`resource_objects.host.linux.read_machine`, and ``libvirt``,
:func:`resource_objects.host.libvirt.read_machine`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from resource_objects import plugins
from resource_objects.exceptions import InvalidInput, PluginError
from resource_objects.host.facts import Machine

__all__ = ["NAMESPACE", "discover", "drivers", "require_options"]

NAMESPACE = "resource_objects.discovery"


def drivers() -> list[str]:
    """Return the names of the drivers there are, without loading them.

    >>> "linux" in drivers()
    True
    """
    return plugins.names(NAMESPACE)


def discover(driver: str = "linux", **options: Any) -> Machine:
    """Return the machine as the driver of that name describes it; ``options`` go to the driver.

    >>> discover("linux", root="/nowhere")
    Traceback (most recent call last):
    resource_objects.exceptions.DiscoveryError: /nowhere cannot be read: expected a directory ...
    >>> discover("solaris")
    Traceback (most recent call last):
    resource_objects.exceptions.PluginError: plug-in 'solaris' of resource_objects.discovery ...

    :raises PluginError: if there is no such driver (the known ones are named), it does not load,
        it cannot be called, or what it returns is no machine
    :raises InvalidInput: if the driver takes no such options
    :raises DiscoveryError: if the machine's own description is missing or cannot be read
    """
    if not isinstance(driver, str):
        raise InvalidInput("discovery driver", driver, f"a name: {', '.join(drivers())}")
    found = plugins.load(NAMESPACE, driver)
    if not callable(found):
        raise PluginError(NAMESPACE, driver, f"it is a {type(found).__name__}, not callable")
    require_options(f"discovery driver {driver}", found, options)
    machine = found(**options)
    if not isinstance(machine, Machine):
        raise PluginError(NAMESPACE, driver, f"it returned a {type(machine).__name__}, no Machine")
    return machine


def require_options(what: str, found: Callable[..., Any], options: dict[str, Any]) -> None:
    """Refuse options that a plug-in does not take, before it starts.

    :raises InvalidInput: naming what it takes
    """
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # not every callable tells
        return
    try:
        signature.bind(**options)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "none"
        raise InvalidInput(f"options of {what}", options, f"{takes}; {error}") from error
