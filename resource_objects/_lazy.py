"""Attributes of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_attributes(
    package: dict[str, Any], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    :param package: its ``globals()``
    :param modules: ``{public name: module of the package that defines it}``

    >>> package = {"__name__": "resource_objects.host", "__all__": ["Machine"]}
    >>> load, names = lazy_attributes(package, {"Machine": "machine"})
    >>> load("Machine").__name__, "Machine" in package, names()
    ('Machine', True, ['Machine', '__all__', '__name__'])
    >>> load("Machines")
    Traceback (most recent call last):
    AttributeError: module 'resource_objects.host' has no attribute 'Machines'
    """
    package_name = package["__name__"]

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package_name!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package_name}.{modules[name]}"), name)
        package[name] = value
        return value

    def names() -> list[str]:
        return sorted({*package, *package["__all__"]})

    return load, names
