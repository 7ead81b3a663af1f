"""What the version before and this one answer differently, by name; everything else is a fault.

Answers are compared figure by figure (:func:`differing`), and each figure that differs has to be
explained by one of :data:`DIFFERENCES`.

To add a difference, add one row to :data:`DIFFERENCES`:

* a name, for the output;
* a sentence, which the documentation has: the behaviour of this version, and of the one before;
* a function of the question (as :mod:`.subjects` draws it) and of a figure that differs. It returns
  True where the difference explains the figure. Say as exactly as can be of which questions and
  which figures: what is explained too widely hides faults. ``case["kind"]`` is the subject;
  ``found.path`` is where the figure is in the answer, such as ``("done", "sqlite", 3, "used")``;
  ``found.has("figures")`` is True where a part of the path has that name. Where a step of a ledger
  differs, so do the steps after it: a row about ledgers explains these too.

Then write the page with ``python -m tests.peers.before.compare --page``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

Case = Mapping[str, Any]


#: Fields that were removed with a feature, each with the value that it has without that.
REMOVED = {"pools": [], "then": None, "absent": []}


@dataclasses.dataclass(frozen=True)
class Differing:
    """A figure of two answers, by its path in them."""

    path: tuple[str | int, ...]
    before: Any
    now: Any

    def has(self, *names: str) -> bool:
        """Return whether one of some names is a part of the path."""
        return not {*names}.isdisjoint(self.path)


def differing(before: Any, now: Any, path: tuple[str | int, ...] = ()) -> Iterator[Differing]:
    """Yield the figures in which two answers differ.

    >>> for one in differing({"used": 1, "rules": ["CAPACITY"]}, {"used": 2, "rules": []}):
    ...     print(one.path, one.before, one.now)
    ('used',) 1 2
    ('rules',) ['CAPACITY'] []
    """
    if before == now and type(before) is type(now):
        return
    if isinstance(before, dict) and isinstance(now, dict):
        removed = {key for key in before.keys() - now.keys() if before[key] == REMOVED.get(key, "")}
        before = {key: value for key, value in before.items() if key not in removed}
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        for key in before:
            yield from differing(before[key], now[key], (*path, key))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, pair in enumerate(zip(before, now, strict=True)):
            yield from differing(*pair, (*path, number))
    else:
        yield Differing(path, before, now)


@dataclasses.dataclass(frozen=True)
class Difference:
    """A difference that has a name, and the figures that it explains."""

    name: str
    sentence: str
    explains: Callable[[Case, Differing], bool]


def _data(wire: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a wire form."""
    found: Mapping[str, Any] = wire["versioned_object.data"]
    return found


def _is_sum(case: Case, found: Differing) -> bool:
    before, now = found.before, found.now
    if not (found.has("figures") and isinstance(before, dict) and isinstance(now, dict)):
        return False
    named = before.get("group", "").split(", ")
    return (
        {*now.get("demands", ())} - {""} == {*named}
        and "group" not in now
        and {**before, "group": "", "demands": []} == {**now, "group": "", "demands": []}
    )


def _has_few_cells(case: Case, found: Differing) -> bool:
    before, now = found.before, found.now
    if not (isinstance(before, list) and isinstance(now, list)):
        return False
    more = [one for one in now if one not in before]
    is_more = len(now) == len(before) + len(more)
    if found.has("rules"):
        return is_more and "HOST_CELLS" in before
    rules = [one["rule"] for one in before if isinstance(one, dict)]
    return (
        is_more
        and found.has("figures")
        and "host_cells" in rules
        and all("cell" in one for one in more)
    )


def _has_closer_cells(case: Case, found: Differing) -> bool:
    if case["kind"] not in ("cells", "joint") or not found.has("assigned", "used"):
        return False
    alone = case["kind"] == "cells"
    inventory, amount = (
        case[one] for one in (("inventory", "amount") if alone else ("cells", "topology"))
    )
    cells = [_data(one) for one in _data(inventory)["cells"]]
    distances = {
        distance for one in cells for other, distance in one["distances"] if other != one["id"]
    }
    return len(distances) > 1 and len(_data(amount)["cells"]) > 1


def _has_other_nearest(case: Case, found: Differing) -> bool:
    if not found.has("nearest") or not isinstance(found.before, str):
        return False
    request = _data(case["request"])
    amounts = [_data(_data(group)["resources"])["by_class"] for group in request["groups"]]
    is_placed = any({"NUMA_TOPOLOGY", "DEVICES"} & one.keys() for one in amounts)
    return bool(case["disabled"]) or request["group_policy"] == "isolate" or is_placed


def _is_level_of_a_member(case: Case, found: Differing) -> bool:
    if case["kind"] != "gangs" or "rack" in case["gang"].get("at_most", {}):
        return False
    has_own = any("rack" in one.get("at_most", {}) for one in case["gang"]["members"].values())
    is_outside = any(not _data(root)["aggregates"] for root in case["trees"])
    fits = found.has("members") or (isinstance(found.now, dict) and "members" in found.now)
    has_fewer = found.has("shortages") and found.now < found.before
    return has_own and is_outside and (fits or has_fewer)


def _is_of_pools(case: Case, found: Differing) -> bool:
    """Return whether a figure is of devices that were counted, and are not known."""
    if case["kind"] == "wire":
        if found.has("fields"):
            return {*found.before} - {*found.now} <= REMOVED.keys()
        return found.before == {"refused": "InvalidPrimitive"}
    if case["kind"] not in ("rows", "saves", "adoption"):
        return False
    return "pci_stats" in json.dumps(case)


def _is_of_slots(case: Case, found: Differing) -> bool:
    """Return whether the classes of wire forms differ by ``SlotResource`` alone."""
    if case["kind"] != "wire" or not isinstance(found.before, dict):
        return False
    name = "resource_objects.SlotResource"
    if name not in found.before or name in found.now:
        return False
    before = {key: value for key, value in found.before.items() if key != name}
    return all(_is_of_pools(case, one) for one in differing(before, found.now))


def _is_rule_first(case: Case, found: Differing) -> bool:
    refused = ("InvalidName", "InvalidInventory")
    return found.has("tree") and found.before in refused and found.now == "InvalidRule"


def _is_of_one_save(case: Case, found: Differing) -> bool:
    """Return whether a figure is of a dry run, or of an adoption that a refused save wrote."""
    if case["kind"] not in ("saves", "adoption") or len(found.path) < 4:
        return False
    steps, number = case["steps"], found.path[2]
    assert isinstance(number, int)
    number -= len(case["held"]) + 1  # answers to the claims and to bind() are before the steps
    if steps[number]["do"] == "check_save" and found.path[3] == "step":
        return {"done": None} in (found.before, found.now)
    if not any(step["do"] == "save" for step in steps[: number + 1]):
        return False
    before, now = found.before, found.now
    if found.path[3] == "used":
        before, now = (one if isinstance(one, dict) else {"": one} for one in (before, now))
        return all(now[name] <= before.get(name, 0) for name in now)
    return found.path[3:] == ("held",) and now == {
        name: value for name, value in before.items() if name != "host0/unattributed"
    }


def _is_unprefixed_name(case: Case, found: Differing) -> bool:
    if "capabilities" not in case or found.now != {"refused": "DiscoveryError"}:
        return False
    try:
        ElementTree.fromstring(case["capabilities"])
    except ElementTree.ParseError as error:
        return "unbound prefix" in str(error)
    return False


DIFFERENCES: list[Difference] = [
    Difference(
        "pools-of-devices",
        "``pci_stats`` of a row is carried as text, also if it cannot be read: it makes no "
        "inventory, nothing is allocated from it, and what it does not count is not adopted; "
        "before, its pools were an inventory of devices.",
        _is_of_pools,
    ),
    Difference(
        "slots",
        "a resource of slots is an ``IntegerResource``; before, it was a ``SlotResource``.",
        _is_of_slots,
    ),
    Difference(
        "reasons-of-sums",
        "a reason whose figures are the sum of the request and of groups names all of them as "
        "``demands``; before, it named the groups alone as ``group``.",
        _is_sum,
    ),
    Difference(
        "too-few-host-cells",
        "a topology of more guest cells than the host has cells is refused for guest cells too "
        "that fit on none of them; before, for the number of cells alone.",
        _has_few_cells,
    ),
    Difference(
        "closest-cells",
        "a topology of several guest cells is on the host cells closest to each other, where their "
        "distances differ; before, distances did not matter.",
        _has_closer_cells,
    ),
    Difference(
        "nearest-hosts",
        "``nearest`` counts what is disabled only where nothing else is missing, and compares "
        "reasons about isolated groups, affinity and numbers of cells by how much is missing; "
        "before, each such reason counted the same.",
        _has_other_nearest,
    ),
    Difference(
        "levels-of-members",
        "a limit of a member by places leaves out hosts in no such place for this member alone; "
        "before, for all members of the gang.",
        _is_level_of_a_member,
    ),
    Difference(
        "rules-before-the-machine",
        "an invalid device rule is refused when the settings of a host are constructed; before, a "
        "machine without a host name, or without the configured CPUs, was refused first.",
        _is_rule_first,
    ),
    Difference(
        "saves-in-one-plan",
        "``check_save`` is a dry run of ``save``, and a save whose usage does not fit adopts "
        "nothing; before, ``check_save`` did not check a host that the save creates, and refused "
        "releases of usage that the save adopts; adoption was a write of its own, which stayed.",
        _is_of_one_save,
    ),
    Difference(
        "namespaces-of-libvirt",
        "libvirt's XML with an undeclared namespace prefix is refused, as by other XML parsers; "
        "before, the prefix was a part of the name.",
        _is_unprefixed_name,
    ),
]


def name_of(case: Case, found: Differing) -> str | None:
    """Return the name of the difference that explains a figure, None if there is none."""
    names = (one.name for one in DIFFERENCES if one.explains(case, found))
    return next(names, None)
