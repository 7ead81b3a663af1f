"""Answers about values: text, fits on one host, Nova's words, wire forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import library
from forms import outcome, plain, read

Case = Mapping[str, Any]


# --- text ---


def query(case: Case) -> Any:
    """Read a query string of Placement, and write it again."""
    parsed = library.query_parse(case["text"])
    text = library.query_format(parsed.request, parsed.limit)
    return {"query": text, "object": parsed.request}


def amounts(case: Case) -> Any:
    """Read amounts as text, and write them again."""
    found = library.Amounts.parse(case["text"])
    return {"text": str(found), "object": found}


# --- one host ---


def cells(case: Case) -> Any:
    """Fit a topology on the cells of a host, allocate it and release it."""
    inventory, amount, limit = (read(case[word]) for word in ("inventory", "amount", "limit"))
    return _fitted(inventory, inventory.fit(amount, limit))


def devices(case: Case) -> Any:
    """Fit devices, near some host cells or anywhere, allocate and release them."""
    inventory = library.PCIInventory(read(case["devices"]), usage=read(case["usage"]))
    return _fitted(inventory, inventory.fit(read(case["amount"]), **library.near(case)))


def joint(case: Case) -> Any:
    """Fit a topology and devices together, allocate and release them."""
    devices = library.PCIInventory(read(case["devices"]), usage=read(case["usage"]))
    host = library.Inventories({"NUMA_TOPOLOGY": read(case["cells"]), "DEVICES": devices})
    asked = {"NUMA_TOPOLOGY": read(case["topology"]), "DEVICES": read(case["amount"])}
    return {"assigned": host.fit(library.Amounts(asked)), "fits": host.can_provide(asked)}


def _fitted(inventory: Any, assigned: Any) -> Any:
    inventory.consume(assigned)
    used = plain(inventory)
    return {
        "assigned": assigned,
        "used": used,
        "released": outcome(lambda: _release(inventory, assigned)),
    }


def _release(inventory: Any, assigned: Any) -> Any:
    inventory.consume(-assigned)
    return inventory


# --- Nova's words ---


def flavors(case: Case) -> Any:
    """Read a flavor and its image as a request, and as a topology."""
    aliases = library.parse_alias(case["aliases"])
    flavor = library.Flavor(**case["flavor"])
    words = {"extra_specs": case["flavor"]["extra_specs"], "image": case["image"]}
    sizes = flavor.vcpus, flavor.memory_mb

    def request() -> Any:
        options = {"aliases": aliases, "refuse_unread": case["refuse_unread"]}
        found = library.call(library.nova, "request", flavor, case["image"], **options)
        return {"request": found.request, "unread": library.get(found, "unread")}

    def devices() -> Any:
        return library.flavor_devices(aliases, words["extra_specs"], words["image"])

    return {
        "request": outcome(request),
        "topology": outcome(lambda: library.flavor_topology(*sizes, **words)),
        "devices": outcome(devices),
    }


def pci_specs(case: Case) -> Any:
    """Read ``device_spec``, and describe devices by it."""
    entries = library.parse_device_spec(case["specs"])
    return {
        "entries": len(entries),
        "devices": [
            outcome(lambda: library.tagged_device(read(one), entries))  # noqa: B023
            for one in case["devices"]
        ],
    }


# --- wire forms ---


def wire(case: Case) -> Any:
    """Read a wire form, write it again, and in each older version that is asked for."""
    made = read(case["wire"])
    older = case.get("target")
    return {
        "again": made,
        "equal": made == read(case["wire"]),
        "older": None if older is None else outcome(lambda: made.obj_to_primitive(older)),
    }


def registered(case: Case) -> Any:
    """Return every registered class with its version and its fields."""
    library.import_everything()
    return {
        name: {"version": kind.VERSION, "fields": sorted(kind.fields)}
        for name, kind in library.wired().items()
    }


ANSWERS: dict[str, Callable[[Case], Any]] = {
    "query": query,
    "amounts": amounts,
    "cells": cells,
    "devices": devices,
    "joint": joint,
    "flavors": flavors,
    "pci_specs": pci_specs,
    "wire": lambda case: registered(case) if "registered" in case else wire(case),
}
