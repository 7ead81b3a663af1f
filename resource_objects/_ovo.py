"""Import of oslo.versionedobjects without warnings and without its message bus.

``oslo_versionedobjects.base`` imports all of oslo.messaging for one class: ``NoOpSerializer``, the
base of a serializer. That imports eventlet, oslo.service, psutil and dnspython, which takes 0.3
seconds of CPU, prints warnings, and makes ``os.fork()`` of the whole program warn about eventlet.
So unless the program has imported oslo.messaging already, only the module of that class is imported
here.

A program that imports oslo.messaging later imports it whole, at that moment and in that thread,
with the same module and class. (A module that loads oslo.messaging when it is used would not do,
because eventlet must be imported in the main thread.)

No other module of the package imports oslo.versionedobjects directly.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
import types
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from typing import Any

_MESSAGING = "oslo_messaging"
_SERIALIZER = "oslo_messaging.serializer"


class _Substitute(types.ModuleType):
    """The package oslo.messaging while oslo.versionedobjects is imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system reads some
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.remove()
        return getattr(importlib.import_module(_MESSAGING), name)

    def remove(self) -> None:
        if sys.modules.get(_MESSAGING) is self:
            sys.modules.pop(_MESSAGING, None)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds oslo.messaging for a later import, and adds the submodule that is already loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MESSAGING:
            return None
        finders = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in finders)
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                # the import system sets this attribute only when it imports the submodule
                module.serializer = sys.modules[_SERIALIZER]  # type: ignore[attr-defined]
                execute(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _substitute_messaging() -> _Substitute | None:
    """Put a substitute for oslo.messaging in place; None if the real package is loaded."""
    spec = None if _MESSAGING in sys.modules else importlib.util.find_spec(_MESSAGING)
    if spec is None:
        return None
    package = _Substitute(_MESSAGING)
    package.__dict__.update(importlib.util.module_from_spec(spec).__dict__)
    sys.modules[_MESSAGING] = package
    try:
        serializer = importlib.import_module(_SERIALIZER)
    except ImportError:  # a release with the class in another module: import the whole package
        package.remove()
        return None
    package.NoOpSerializer = serializer.NoOpSerializer  # type: ignore[attr-defined]
    sys.meta_path.insert(0, _Finder())
    return package


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _package = _substitute_messaging()
    try:
        from oslo_versionedobjects import base, exception, fields
    finally:
        if _package is not None:
            _package.remove()

__all__ = ["base", "exception", "fields"]
