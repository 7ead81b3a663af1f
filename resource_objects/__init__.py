"""Versioned objects that model, place and claim any consumable resource.

    >>> import resource_objects as ro
    >>> host = ro.Inventories("VCPU=8,MEMORY_MB=16384")
    >>> host.can_provide("VCPU=2,MEMORY_MB=4096")
    True

The public names are imported when they are first used: importing this package costs next to
nothing, and whoever only counts never loads a database driver.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from resource_objects._version import __version__

if TYPE_CHECKING:
    from resource_objects.exceptions import CapacityException as CapacityException
    from resource_objects.exceptions import ResourceObjectsError as ResourceObjectsError
    from resource_objects.resources import Amount as Amount
    from resource_objects.resources import Amounts as Amounts
    from resource_objects.resources import IntegerAmount as IntegerAmount
    from resource_objects.resources import IntegerInventory as IntegerInventory
    from resource_objects.resources import IntegerResource as IntegerResource
    from resource_objects.resources import Inventories as Inventories
    from resource_objects.resources import Inventory as Inventory
    from resource_objects.resources import Limits as Limits
    from resource_objects.resources import Resource as Resource
    from resource_objects.resources import resource as resource

#: ``{public name: module that defines it}``
_HOME = {
    "Amount": "resources",
    "Amounts": "resources",
    "CapacityException": "exceptions",
    "IntegerAmount": "resources",
    "IntegerInventory": "resources",
    "IntegerResource": "resources",
    "Inventories": "resources",
    "Inventory": "resources",
    "Limits": "resources",
    "Resource": "resources",
    "ResourceObjectsError": "exceptions",
    "resource": "resources",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
