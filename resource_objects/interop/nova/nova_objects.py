"""``Flavor`` and ``ImageMeta`` of Nova, as the keys that readers of flavors and images know.

Nova keeps a flavor as an object (in ``instance_extra.flavor`` three of them: as it is, and before
and after a resize), and makes an object of an image's properties. Of an object that is read with
fewer fields than it has (``extra_specs`` not loaded) nobody knows what it asks, so it is refused.

Properties of an image come back as the keys that they were made of:

=============================  ====================================================================
``hw_numa_cpus``               a list: ``hw_numa_cpus.0``, ``hw_numa_cpus.1``, ...
``hw_numa_mem``                the same
``traits_required``            ``trait:NAME=required``
yes and no, numbers            text
lists of anything else         JSON, for no reader of resources looks into them
a name from before             the name of today: ``vm_mode`` is ``hw_vm_mode``, as Nova has it
=============================  ====================================================================
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import primitive
from resource_objects.interop.nova.cpus import format_cpu_spec
from resource_objects.interop.nova.primitive import FLAVOR, IMAGE, PROPERTIES, Document
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule

_invalid_primitive = functools.partial(InvalidInput, "primitive")

__all__ = ["extra_specs_of", "flavor_fields", "image_properties"]

_FLAVOR, _IMAGE = "flavor", "image"
#: Of an object of Nova's, under the names that they have here.
_SIZES: Final = {
    "vcpus": "vcpus",
    "memory_mb": "memory_mb",
    "root_gb": "root_gb",
    "ephemeral_gb": "ephemeral_gb",
    "swap": "swap_mb",
}
_EXTRA_SPECS: Final = "extra_specs"
#: The flavor that a server has, of the three that ``instance_extra.flavor`` holds.
_CURRENT: Final = "cur"
_CELLS_CPUS, _CELLS_MEMORY, _TRAITS = "hw_numa_cpus", "hw_numa_mem", "traits_required"


def flavor_fields(source: Document) -> dict[str, Any]:
    """Return what a flavor of Nova's says: vcpus, memory_mb, root_gb, ephemeral_gb, swap_mb (MiB).

    And its extra specs, as ``extra_specs``.

    :param source: JSON text as in ``instance_extra.flavor`` (what is there as ``cur``) or of one
        flavor, what it stands for, or Nova's own ``Flavor``
    :raises InvalidNovaInput: ``NOT_WORDS`` if it is no such flavor, or its extra specs were not
        loaded
    """
    with _not_words():
        data = _data_of(source)
        if data is None:
            raise _invalid_primitive(_FLAVOR, source, "a Flavor, or one of Nova's")
        found = {}
        for name, ours in _SIZES.items():
            if name not in data:
                raise _invalid_primitive(f"{_FLAVOR}.{name}", None, "a whole number")
            found[ours] = data[name]
        return {**found, _EXTRA_SPECS: _loaded(data)}


def extra_specs_of(source: Any) -> Any:
    """Return the extra specs of a flavor of Nova's; a mapping of them is returned as it is.

    :raises InvalidNovaInput: ``NOT_WORDS`` if it is a flavor, and they were not loaded

    >>> extra_specs_of({"hw:numa_nodes": "2"})
    {'hw:numa_nodes': '2'}
    """
    with _not_words():
        data = _data_of(source)
        return source if data is None else _loaded(data)


def image_properties(source: Any) -> Any:
    """Return the properties of an image of Nova's, text by key; a mapping of them as it is.

    :param source: ``ImageMeta`` or ``ImageMetaProps`` of Nova's, its primitive, JSON text of
        either; or properties by key
    :raises InvalidNovaInput: ``NOT_WORDS`` if an object cannot be read

    >>> image_properties({"hw_numa_nodes": "2"})
    {'hw_numa_nodes': '2'}
    """
    with _not_words():
        given = _parsed(source, _IMAGE)
        if not isinstance(given, Mapping) or not primitive.is_enveloped(given):
            return given
        return _properties_of(given)


def _properties_of(given: Any) -> dict[str, str | None]:
    where = _IMAGE
    if primitive.name_of(given) != PROPERTIES:
        data, where = primitive.opened(given, _IMAGE, IMAGE)[0], f"{_IMAGE}.properties"
        given = data.get("properties")
        if given is None:
            raise _invalid_primitive(where, None, "an object: the image's properties")
    data = primitive.opened(given, where, PROPERTIES)[0]
    return {
        key: text
        for name, value in data.items()
        for key, text in _keys_of(name, value, f"{where}.{name}")
    }


@contextlib.contextmanager
def _not_words() -> Iterator[None]:
    """Raise what is wrong with an object as an error of words, as readers of words raise it."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidNovaInput(
            NovaRule.NOT_WORDS, error.what, error.value, error.expected
        ) from None


def _parsed(source: Any, what: str) -> Any:
    is_words = isinstance(source, str) and not source.lstrip().startswith("{")
    return source if is_words else primitive.parsed(source, what)


def _data_of(source: Any) -> Mapping[Any, Any] | None:
    """Return the fields of a flavor of Nova's, None if it is none."""
    given = _parsed(source, _FLAVOR)
    if isinstance(given, Mapping) and isinstance(given.get(_CURRENT), Mapping):
        given = given[_CURRENT]
    if not isinstance(given, Mapping) or not primitive.is_enveloped(given):
        return None
    return primitive.opened(given, _FLAVOR, FLAVOR)[0]


def _loaded(data: Mapping[Any, Any]) -> dict[Any, Any]:
    if _EXTRA_SPECS not in data:
        expected = "the extra specs: they were not loaded, so nobody knows what it asks"
        raise _invalid_primitive(f"{_FLAVOR}.{_EXTRA_SPECS}", None, expected)
    return primitive.mapping(data[_EXTRA_SPECS], f"{_FLAVOR}.{_EXTRA_SPECS}")


def _keys_of(name: str, value: Any, what: str) -> Iterator[tuple[str, str | None]]:
    """Yield the keys that a field was made of, with their text."""
    if name == _CELLS_CPUS:
        for cell, cpus in enumerate(primitive.sequence(value, what)):
            yield f"{name}.{cell}", format_cpu_spec(primitive.ids(cpus, f"{what}[{cell}]"))
    elif name == _CELLS_MEMORY:
        for cell, size in enumerate(primitive.sequence(value, what)):
            yield f"{name}.{cell}", primitive.text(size, f"{what}[{cell}]")
    elif name == _TRAITS:
        for trait in primitive.sequence(value, what):
            yield f"trait:{trait}", "required"
    elif isinstance(value, bool):
        yield name, primitive.flag_text(value)
    elif isinstance(value, list | tuple | dict):
        yield name, json.dumps(value, default=str)
    else:
        yield name, primitive.text(value, what)
