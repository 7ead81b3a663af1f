"""Calls with the settings of a host and other arguments in one mapping, for tables of cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from resource_objects.host.machine import Machine
from resource_objects.host.settings import HostSettings

_FIELDS = {field.name for field in dataclasses.fields(HostSettings)}


def configured(make: Callable[..., Any], machine: Machine, **arguments: Any) -> Any:
    """Return ``make(machine, HostSettings(...), ...)``."""
    settings = {name: value for name, value in arguments.items() if name in _FIELDS}
    others = {name: value for name, value in arguments.items() if name not in _FIELDS}
    return make(machine, HostSettings(**settings), **others)
