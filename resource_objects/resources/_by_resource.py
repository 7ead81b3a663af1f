"""What Amounts, Limits and Inventories share: a mapping from resources, kept by name.

Keys may be given as resources or as their names, and come out as resources. Inside, and on the
wire, the key is the name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from resource_objects import base, exceptions
from resource_objects.resources import catalog
from resource_objects.resources.abstract import Resource

_T = TypeVar("_T")


def key_name(key: object) -> str | None:
    """Return the name a key stands for, None if it is no key at all."""
    if isinstance(key, Resource):
        return key.name
    return key if isinstance(key, str) else None


def by_name(
    given: Mapping[Any, Any], make: Callable[[Resource, Any], _T], what: str
) -> dict[str, _T]:
    """Return ``{name: make(resource, value)}``, each class once.

    :raises UnknownResourceClass: for a name the catalog does not know
    :raises DuplicateKey: if a resource and its name are both given
    """
    found: dict[str, _T] = {}
    for key, value in given.items():
        resource = catalog.resource(key)
        if resource.name in found:
            raise exceptions.DuplicateKey(what, resource.name, "each resource once")
        found[resource.name] = make(resource, value)
    return found


def load_kinds(primitive: Mapping[str, Any]) -> None:
    """Import the plug-ins that bring the kinds of the resource classes in a wire form.

    A process that receives a plug-in's amount has perhaps never named its resource before.
    """
    by_class = primitive[base.ResourceObject._obj_primitive_key("data")].get("by_class")
    for name in by_class if isinstance(by_class, dict) else ():
        catalog.resource(name)


class ByResource(Mapping[Resource, _T]):
    """A mapping whose storage is ``_obj_by_class``; iteration gives resources."""

    _obj_by_class: Mapping[str, _T]

    def __getitem__(self, key: Resource | str) -> _T:
        name = key_name(key)
        if name is None:
            raise exceptions.InvalidResourceClass("key", key, "a resource or its name")
        return self._obj_by_class[name]

    def __contains__(self, key: object) -> bool:
        return key_name(key) in self._obj_by_class

    def __iter__(self) -> Iterator[Resource]:
        return map(catalog.resource, self._obj_by_class)

    def __len__(self) -> int:
        return len(self._obj_by_class)

    def names(self) -> Iterable[str]:
        """Return the names of the resources, in order."""
        return self._obj_by_class.keys()

    def by_name(self) -> Iterable[tuple[str, _T]]:
        """Return the pairs of name and value, in order."""
        return self._obj_by_class.items()
