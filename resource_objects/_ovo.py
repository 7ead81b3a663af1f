"""The one place that imports oslo.versionedobjects, and does so silently and lightly.

``oslo_versionedobjects.base`` imports all of oslo.messaging, for one class: ``NoOpSerializer``, the
base of a serializer. That brings eventlet, oslo.service, psutil and dnspython, a third of a second
of CPU; prints warnings; and makes ``os.fork()`` of the whole program warn about eventlet. So unless
the program imported oslo.messaging before us, it is only that class's own module that we load.

A program that imports oslo.messaging later imports it whole, at that moment and in that thread
(eventlet must be imported in the main thread, so a lazy module that loads when it is used would not
do), and finds in it the very module and class that we have loaded.

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


class _StandIn(types.ModuleType):
    """Stands for oslo.messaging while oslo.versionedobjects is imported, and within it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks for some
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self._step_aside()
        return getattr(importlib.import_module(_MESSAGING), name)

    def _step_aside(self) -> None:
        if sys.modules.get(_MESSAGING) is self:
            sys.modules.pop(_MESSAGING, None)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds oslo.messaging for those who import it after us, and puts in what we have loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders find, made to begin with our module."""
        if fullname != _MESSAGING:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                # the import system sets it only for whoever loads the submodule
                module.serializer = sys.modules[_SERIALIZER]  # type: ignore[attr-defined]
                execute(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _stand_in() -> _StandIn | None:
    """Put what oslo.versionedobjects needs of oslo.messaging in its place; None if all is there."""
    spec = None if _MESSAGING in sys.modules else importlib.util.find_spec(_MESSAGING)
    if spec is None:
        return None
    package = _StandIn(_MESSAGING)
    package.__dict__.update(importlib.util.module_from_spec(spec).__dict__)
    sys.modules[_MESSAGING] = package
    try:
        serializer = importlib.import_module(_SERIALIZER)
    except ImportError:  # a release that keeps it elsewhere: all is loaded, as it was made to be
        package._step_aside()
        return None
    package.NoOpSerializer = serializer.NoOpSerializer  # type: ignore[attr-defined]
    sys.meta_path.insert(0, _Finder())
    return package


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _package = _stand_in()
    try:
        from oslo_versionedobjects import base, exception, fields
    finally:
        if _package is not None:
            _package._step_aside()

__all__ = ["base", "exception", "fields"]
