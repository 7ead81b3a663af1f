"""Answers about hosts: rows of compute nodes, saves, adoption, discovery."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import library
from forms import outcome, plain, read
from ledgers import DO, held_of, ledgers, state

Case = Mapping[str, Any]


# --- compute nodes ---


def rows(case: Case) -> Any:
    """Read a row, take of its inventories, and write the row again."""
    node = library.ComputeNode.from_row(case["row"], **case["settings"])

    def take() -> Any:
        for key, amount in read(case["amounts"]).items():
            if node.inventories[key].can_provide(amount):
                node.inventories[key].consume(amount)
        return node.inventories

    return {
        "read": outcome(lambda: node.inventories),
        "back": outcome(node.to_row),
        "reserved": outcome(lambda: str(node.reserved)),
        "ratios": outcome(lambda: dict(node.ratios)),
        "taken": outcome(take),
        "changes": outcome(node.changes),
        "row": outcome(node.to_row),
        "free": outcome(lambda: [node.free_ram_mb, node.free_disk_gb]),
    }


def saves(case: Case) -> Any:
    """Bind a node to a ledger and save it, step by step."""
    return {name: list(_saved(ledger, case)) for name, ledger in ledgers()}


def _saved(ledger: Any, case: Case) -> Iterator[Any]:
    library.call(ledger, "sync", *read(case["trees"]))
    for name, amounts in case["held"].items():
        yield {"step": outcome(lambda: held_of(library.call(ledger, "claim", name, read(amounts))))}  # noqa: B023
    node = library.ComputeNode.from_row(case["row"])
    bound = outcome(lambda: library.call(node, "bind", ledger) and None)
    yield {"step": bound}
    if "done" not in bound:
        return
    for step in case["steps"]:
        came = outcome(lambda: _node_step(ledger, node, step))  # noqa: B023
        pending = outcome(lambda: [str(node.pending), library.get(node, "pending_located")])
        drift = outcome(lambda: node.drift)
        yield {"step": came, "pending": pending, "drift": drift, **plain(state(ledger))}


def _node_step(ledger: Any, node: Any, step: Mapping[str, Any]) -> Any:
    if step["do"] in ("consume", "give_back"):
        key, amount = step["key"], read(step["amount"])
        given = node.inventories[key].fit(amount) if step.get("fits") else amount
        node.inventories[key].consume(-given if step["do"] == "give_back" else given)
        return None
    if step["do"] == "update":
        return node.update_inventories(read(step["inventories"]))
    if step["do"] in ("check_save", "reload"):
        return library.call(node, step["do"])
    if step["do"] == "save":
        done = library.call(node, "save")
        return [held_of(done.claim), bool(done.definition), held_of(done.adopted)]
    return DO[step["do"]](ledger, step)


# --- discovery ---


def discovery(case: Case) -> Any:
    """Read a machine, and make of it cells, devices and a tree that a ledger stores."""
    if "capabilities" in case:
        machine = library.parse_libvirt(case["capabilities"], case["devices"], hostname="box")
    else:
        machine = library.read_machine(Path(case["root"]), strict=case["strict"])
    facts = machine.to_dict()
    facts["findings"] = sorted(one["subject"] for one in facts["findings"])
    return {
        "facts": facts,
        "cells": outcome(lambda: library.numa_inventory(machine)),
        "devices": outcome(lambda: _devices(machine, case["rules"])),
        "tree": outcome(lambda: _tree(machine, rules=case["rules"], **case["tree"])),
        "stored": outcome(lambda: _stored(machine, case)),
    }


def _devices(machine: Any, rules: Any) -> Any:
    found = library.machine_devices(machine, rules)
    return [list(found.devices), len(found.skipped)]


def _tree(machine: Any, **options: Any) -> Any:
    settings, others = library.settings_of(**options)
    return library.provider_tree(machine, *settings, **others)


def _stored(machine: Any, case: Case) -> Any:
    tree = _tree(machine, rules=case["rules"], name="box", numa=True)
    with library.connect("memory://") as ledger:
        library.call(ledger, "sync", tree)
        again = bool(library.call(ledger, "sync", tree))
        return {"changed again": again, "inventories": library.call(ledger, "inventories", "box")}


ANSWERS: dict[str, Callable[[Case], Any]] = {
    "rows": rows,
    "saves": saves,
    "adoption": saves,
    "discovery": discovery,
}
