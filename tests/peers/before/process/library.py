"""The names of the library that the comparison uses, in one place: the adapter of both versions.

The questions are answered by two versions of the library. Where a name differs between them, this
module alone knows it: :func:`named` returns the first of several names that a version has, and
:data:`METHODS` has other names of methods. So a rename of a public name is a change of one line
here: write the new name in front of the old one.

Imported by its neighbours, which run in a process of each version.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

import resource_objects as ro
from resource_objects import exceptions


def named(*places: str) -> Any:
    """Return the first of some names that this version has, each ``module:name``.

    :raises AttributeError: if this version has none of them
    """
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(f"resource_objects.{module}".rstrip(".")), name)
        except (ImportError, AttributeError):
            continue
    raise AttributeError(f"this version has none of {', '.join(places)}")


#: Other names of methods and properties, by the name that is used here; the first one is taken
#: that the object has.
METHODS: dict[str, tuple[str, ...]] = {
    "held": ("get_claim",),
    "assigned": ("assigned_amounts",),
    "acting": ("with_actor",),
    "keep": ("set_retention",),
    "unread": ("ignored_keys",),
    "pending_located": ("pending_placed",),
}

#: Other names of keyword arguments, by the name that is used here.
OPTIONS: dict[str, str] = {
    "leaving": "source_consumer",
    "override_disabled": "ignore_maintenance",
    "refuse_unread": "refuse_ignored",
}


def call(subject: Any, method: str, *arguments: Any, **options: Any) -> Any:
    """Call a method of an object by its name, and by those of its arguments, in this version."""
    called = get(subject, method)
    if not OPTIONS.keys().isdisjoint(options):
        known = inspect.signature(called).parameters
        options = {
            other if (other := OPTIONS.get(name, name)) in known else name: value
            for name, value in options.items()
        }
    return called(*arguments, **options)


def get(subject: Any, name: str) -> Any:
    """Return an attribute of an object by its name in this version."""
    every = (*METHODS.get(name, ()), name)
    return getattr(subject, next(one for one in every if hasattr(subject, one)))


# --- values ---

connect = named(":connect")
SQLBackend = named("backends.sql.backend:SQLBackend")
ResourceObject = named("base:ResourceObject")
Amounts = named(":Amounts")
Inventories = named(":Inventories")
PCIInventory = named(":PCIInventory")
Provider = named(":Provider")
Request = named(":Request")
Allocation = named(":Allocation")
resource = named(":resource")
query_parse = named("requests.query:parse")
query_format = named("requests.query:format")
Order = named(":Order")
Gang = named("requests.gang:Gang")
Reshape = named("providers.reshape:Reshape")
ComputeNode = named(":ComputeNode")

# --- hosts ---

read_machine = named("host:read_machine")
parse_libvirt = named("host.libvirt:parse_machine")
provider_tree = named("host:provider_tree")
numa_inventory = named("host:numa_inventory")
machine_devices = named("host:machine_devices")


def settings_of(**options: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the settings of a host as arguments of this version, by position and by name."""
    try:
        kind = named("host.settings:HostSettings")
    except AttributeError:
        return (), options
    own = ("shared", "dedicated", "reserved", "ratios", "reserved_pages")
    values = {name: options.pop(name) for name in own if name in options}
    return (kind(**values, device_rules=options.pop("rules", ())),), options


# --- Nova's formats ---

Flavor = named("interop.nova:Flavor")
nova = importlib.import_module("resource_objects.interop.nova")
flavor_topology = named("interop.nova:flavor_topology")
parse_device_spec = named("interop.nova:parse_device_spec")
tagged_device = named("interop.nova:tagged_device")
parse_alias = named("interop.nova:parse_alias")
flavor_devices = named("interop.nova:flavor_devices")

# --- errors ---

REFUSALS = (exceptions.ResourceObjectsError, ValueError)


def code_of(error: Exception) -> str:
    """Return the code of an error: that of its type, until errors have codes of their own."""
    return str(getattr(error, "code", type(error).__name__))


def rule_of(error: Exception) -> str | None:
    """Return the rule of Nova's words that an error names."""
    rule = getattr(error, "rule", None)
    return None if rule is None else str(rule.name)


def reasons_of(error: Any) -> list[Any]:
    """Return the reasons of a refusal for want of capacity; of another error none."""
    return [*getattr(error, "reasons", ())]


# --- what has no public name of its own ---


def near(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a fit of devices near the chosen cells of a question.

    Without chosen cells there are none: the devices may be anywhere.
    """
    if case["chosen"] is None:
        return {}
    from resource_objects.resources.context import CellMap, ChosenCells, Context

    distances: dict[int, dict[int, int]] = {}
    for one, other, distance in case["distances"]:
        distances.setdefault(one, {})[other] = distance
    cells = CellMap(dict(case["sockets"]), distances)
    return {"context": Context(chosen=ChosenCells(cells, case["chosen"]))}


def wired() -> dict[str, Any]:
    """Return the registered classes of the library by the name of their wire form."""
    from oslo_versionedobjects.base import VersionedObjectRegistry

    every = VersionedObjectRegistry.obj_classes()
    own = {name: kinds[0] for name, kinds in every.items()}
    return {n: k for n, k in own.items() if k.__module__.startswith("resource_objects.")}


def import_everything() -> None:
    """Import every module of the library, so that all of its classes are registered."""
    for name in _modules():
        importlib.import_module(name)


def _modules() -> Iterator[str]:
    for one in pkgutil.walk_packages(ro.__path__, "resource_objects."):
        skipped = (".testing", ".migrations", ".worker", "_connection", "__main__")
        if not any(part in one.name for part in skipped):
            yield one.name
