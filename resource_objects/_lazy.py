"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazily(
    package: dict[str, Any], home: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    :param package: its ``globals()``
    :param home: ``{public name: module of the package that defines it}``

    >>> package = {"__name__": "resource_objects.host", "__all__": ["Machine"]}
    >>> load, names = lazily(package, {"Machine": "machine"})
    >>> load("Machine").__name__, "Machine" in package, names()
    ('Machine', True, ['Machine', '__all__', '__name__'])
    >>> load("Machines")
    Traceback (most recent call last):
    AttributeError: module 'resource_objects.host' has no attribute 'Machines'
    """
    own = package["__name__"]

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {own!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{own}.{home[name]}"), name)
        package[name] = value
        return value

    def names() -> list[str]:
        return sorted({*package, *package["__all__"]})

    return load, names
