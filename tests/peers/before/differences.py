"""What the version before and this one answer differently, by name; everything else is a fault.

Two answers are compared figure by figure (:func:`differing`); reasons are compared as what one
version tells and the other does not. Each figure that differs has to be one of
:data:`DIFFERENCES`, which says of which questions it may be, and of which answers.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Case = Mapping[str, Any]
#: How a reason is told: its rule, and its text.
Told = list[str]


@dataclasses.dataclass(frozen=True)
class Differing:
    """A figure of two answers; of reasons those alone that the other version does not tell."""

    path: tuple[str | int, ...]
    before: Any
    now: Any

    @property
    def is_reasons(self) -> bool:
        """Whether it is about reasons, which change no decision."""
        return self.path[-1:] == ("reasons",)

    @property
    def rules(self) -> tuple[set[str], set[str]]:
        """The rules that the version before tells alone, and those that this one does."""
        told = (self.before, self.now) if self.is_reasons else ([], [])
        return {rule for rule, _ in told[0]}, {rule for rule, _ in told[1]}


def differing(before: Any, now: Any, path: tuple[str | int, ...] = ()) -> Iterator[Differing]:
    """Yield what differs in two answers.

    >>> told = [["CAPACITY", "host0: VCPU asked 2, free 1 of 1"]]
    >>> for one in differing({"used": 1, "reasons": []}, {"used": 2, "reasons": told}):
    ...     print(one.path, one.before, one.now)
    ('used',) 1 2
    ('reasons',) [] [['CAPACITY', 'host0: VCPU asked 2, free 1 of 1']]
    """
    if before == now:
        return
    if path[-1:] == ("reasons",):
        alone = _more(before, now), _more(now, before)
        for subject in dict.fromkeys(map(_subject, alone[0] + alone[1])):
            some = [[one for one in told if _subject(one) == subject] for told in alone]
            yield Differing(path, *some)
    elif isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        for key in before:
            yield from differing(before[key], now[key], (*path, key))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, pair in enumerate(zip(before, now, strict=True)):
            yield from differing(*pair, (*path, number))
    else:
        yield Differing(path, before, now)


def _subject(told: Told) -> str:
    """Return what a reason is about: a whole topology, traits, or else."""
    if told[0].startswith("TRAIT") or told[0] == "CONDITIONS":
        return "traits"
    return "topology" if "NUMA_TOPOLOGY" in told[1] else ""


def _more(some: Iterable[Told], others: Iterable[Told]) -> list[Told]:
    left = Counter(map(tuple, some))
    left.subtract(map(tuple, others))
    return [[*told] for told in left.elements()]


@dataclasses.dataclass(frozen=True)
class Difference:
    """A repair that has a name, and where it may be seen."""

    name: str
    sentence: str
    explains: Callable[[Case, Differing], bool]


# --- of which questions ---


def _topology(case: Case) -> Mapping[str, Any]:
    """Return the topology that a question asks for; nothing where it asks for none."""
    asked = case.get("topology") or (case.get("amount") if case["kind"] == "cells" else None)
    return {} if asked is None else asked["has"]


def _cells(case: Case) -> list[Mapping[str, Any]]:
    there = case.get("inventory") or case.get("cells")
    return [cell["has"] for cell in there["has"]["cells"]] if isinstance(there, dict) else []


def _is_isolated_beside_emulator(case: Case) -> bool:
    topology = _topology(case)
    return topology.get("thread_policy") == topology.get("emulator_policy") == "isolate"


def _serves_either_way(case: Case) -> bool:
    is_shared = any(guest["has"]["shared"] for guest in _topology(case).get("cells", ()))
    return is_shared and any({*cell["shared"]} & {*cell["dedicated"]} for cell in _cells(case))


def _is_one_guest_of_one_socket(case: Case) -> bool:
    topology = _topology(case)
    return topology.get("one_socket", False) and len(topology["cells"]) == 1


def _pools(case: Case) -> Iterator[str]:
    """Yield the classes that pools of a fleet have."""
    for tree in case.get("trees", ()):
        if "MISC_SHARES_VIA_AGGREGATE" in tree["has"]["traits"]:
            yield from _classes(tree)


def _classes(tree: Mapping[str, Any]) -> Iterator[str]:
    yield from tree["has"]["inventories"]["has"]["by_class"]
    for child in tree["has"]["children"]:
        yield from _classes(child)


# --- of which answers ---


def _takes_less(case: Case, found: Differing) -> bool:
    return _topology(case).get("thread_policy") == "isolate" and not found.is_reasons


def _tells_of_pools(case: Case, found: Differing) -> bool:
    if found.rules[0] != {"NO_INVENTORY"}:
        return False
    pools = {*_pools(case)}
    return all(any(f" {name} asked" in text for name in pools) for _, text in found.before)


def _tells_more(case: Case, found: Differing) -> bool:
    return found.is_reasons and not found.before and case["kind"] in ("search", "claims")


def _tells_of_cells_beside(case: Case, found: Differing) -> bool:
    asked = _topology(case)
    is_picky = any(asked.get(field) for field in ("one_socket", "physnets", "tunneled"))
    told = found.now if found.is_reasons and not found.before else []
    return is_picky and bool(told) and all("cell " in text for _, text in told)


def _tells_of_groups(case: Case, found: Differing) -> bool:
    if not found.is_reasons or case["kind"] not in ("search", "claims"):
        return False
    return all(" group _" in text for _, text in (*found.before, *found.now))


def _says_no_options_of_where(case: Case, found: Differing) -> bool:
    return case["kind"] == "amounts" and found.before == f"{found.now}, on, emulator_cpu"


DIFFERENCES = [
    Difference(
        "emulator_takes_a_core",
        "Beside isolated vCPUs an isolated emulator takes a core as a whole.",
        lambda case, found: _is_isolated_beside_emulator(case),
    ),
    Difference(
        "either_way",
        "Where CPUs serve either way, shared vCPUs run on those that nobody has dedicated, and one "
        "guest has no more of them than such CPUs.",
        lambda case, found: _serves_either_way(case),
    ),
    Difference(
        "one_guest_is_in_one_socket",
        "``one_socket`` of one guest cell is no condition.",
        lambda case, found: _is_one_guest_of_one_socket(case),
    ),
    Difference(
        "one_socket_is_told",
        "A refusal for want of one socket is told as that, with each cell whose socket is not "
        "known.",
        lambda case, found: (
            found.rules[0] <= {"TOGETHER"}
            and "ONE_SOCKET" in found.rules[1] <= {"ONE_SOCKET", "SOCKET_UNKNOWN"}
        ),
    ),
    Difference(
        "cells_beside_are_told",
        "Where cells are to be of one socket, or next to a network, it is told what those lack "
        "that would be.",
        _tells_of_cells_beside,
    ),
    Difference(
        "least_is_drawn",
        "Of the places of an isolated topology the one that takes the fewest CPUs is chosen, "
        "whatever is left.",
        _takes_less,
    ),
    Difference(
        "never_to_be_had",
        "Devices that are spent are not counted among those that are there.",
        lambda case, found: (
            found.rules == ({"CAPACITY"}, {"CAPACITY"}) and "'spent'" in repr(case.get("usage"))
        ),
    ),
    Difference(
        "told_once",
        "What stands against two equal requests for devices is told once.",
        lambda case, found: (
            case["kind"] in ("devices", "both") and found.is_reasons and not found.now
        ),
    ),
    Difference(
        "pools_are_told",
        "A class that linked pools alone have is not told as missing: the pools are told, with "
        "what keeps each out.",
        _tells_of_pools,
    ),
    Difference(
        "conditions_together",
        "Conditions that only exclude everybody together are one reason.",
        lambda case, found: "CONDITIONS" in found.rules[1],
    ),
    Difference(
        "each_condition",
        "Each condition that excludes a host by itself is told, and each count that it lacks.",
        _tells_more,
    ),
    Difference(
        "groups_are_told_of_hosts",
        "What keeps named groups out is told of a host as a whole: the conditions that exclude "
        "everybody, else what all those have together who meet them, and who is there.",
        _tells_of_groups,
    ),
    Difference(
        "had_is_not_missing",
        "A trait that a provider has is not told as missing because it lacks another one.",
        lambda case, found: found.rules[0] == {"TRAIT_MISSING"} and not found.now,
    ),
    Difference(
        "draws_of_each",
        "What is used up through shares is told of each who could give, not of one choice of them.",
        lambda case, found: (
            found.rules == ({"CAPACITY"}, {"CAPACITY"}) and "Share'" in repr(case.get("trees"))
        ),
    ),
    Difference(
        "in_steps",
        "What is free and does not go in steps is told as that.",
        lambda case, found: "IN_STEPS" in found.rules[1] and found.rules[0] <= {"CAPACITY"},
    ),
    Difference(
        "bound_is_told",
        "A number beyond 2**63 - 1 in a text is told its bound.",
        lambda case, found: (
            case["kind"] == "amounts" and "expected a whole number within ±" in str(found.now)
        ),
    ),
    Difference(
        "either_of_two_faults",
        "Of a topology in text that is wrong in two places, either is named.",
        lambda case, found: (
            found.path == ("told",)
            and all(told.startswith("NUMA topology, ") for told in (found.before, found.now))
        ),
    ),
    Difference(
        "where_has_no_text",
        "An assigned topology has no text form, so its options are not offered.",
        _says_no_options_of_where,
    ),
]


def name_of(case: Case, found: Differing) -> str | None:
    """Return the name of what explains a figure that differs, None if nothing does."""
    names = (one.name for one in DIFFERENCES if one.explains(case, found))
    return next(names, None)
