"""Answers about searches: candidates, explanations, gangs, how many."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import library
from forms import figures, outcome, plain, read, rules

Case = Mapping[str, Any]
#: More candidates than so many are not compared.
MOST = 300


@contextmanager
def _snapshot(case: Case) -> Iterator[Any]:
    """Lend a snapshot of the trees of a question, with what is used of them."""
    with library.connect("memory://", actor="admin") as ledger:
        library.call(ledger, "sync", *read(case["trees"]))
        for number, (provider, name, amount) in enumerate(case["used"]):
            used = {provider: {name: amount}}
            outcome(lambda: library.call(ledger, "claim", f"other-{number}", used))  # noqa: B023
        for name in case["disabled"]:
            library.call(ledger, "disable", name, reason="fan")
        yield library.call(ledger, "snapshot")


def search(case: Case) -> Any:
    """Search candidates: all of them as a set, some of them in order."""
    with _snapshot(case) as snapshot:
        request, options = read(case["request"]), case["options"]
        order = options["order"]
        order = library.Order(**order) if isinstance(order, dict) else order
        ordered = {**options, "order": order}
        every = library.call(snapshot, "candidates", request, limit=MOST)
        found = sorted(map(_candidate, every), key=json.dumps)
        return {
            "set": [] if len(found) == MOST else found,
            "order": [
                _candidate(one) for one in library.call(snapshot, "candidates", request, **ordered)
            ],
            "found": outcome(lambda: _first(every)),
        }


def _first(found: Any) -> Any:
    """Return whether there is a candidate; without one, refuse with what the search explains."""
    if found:
        return True
    return {"refused": "NoCandidates", **explained(library.call(found, "explain"))}


def explanations(case: Case) -> Any:
    """Explain a search: the verdict on each host, and the rules of its reasons."""
    with _snapshot(case) as snapshot:
        found = library.call(snapshot, "candidates", read(case["request"]), **case["options"])
        told = explained(library.call(found, "explain"))
        return told if found else {"refused": "NoCandidates", **told}


def explained(explanation: Any) -> dict[str, Any]:
    """Return the verdicts, rules and figures of an explanation."""
    hosts = dict(library.call(explanation, "by_host"))
    data = explanation.to_dict()
    return {
        "verdicts": {host: str(one) for host, one in data["outlooks"].items()},
        "undecided": data["undecided"],
        "rules": {host: rules(reasons) for host, reasons in hosts.items()},
        "figures": {host: figures(reasons) for host, reasons in hosts.items()},
        "nearest": data["nearest"],
    }


def _candidate(one: Any) -> Any:
    """Return a candidate as data: what it allocates where, and which group is given by whom."""
    taken = sorted([a.provider, a.resource_class, str(a.amount)] for a in one.allocations)
    mappings = {suffix: list(one.mappings[suffix]) for suffix in sorted(one.mappings)}
    placed = {str(key): plain(amount) for key, amount in one.located.items()}
    return plain({"allocations": taken, "groups": mappings, "placed": placed})


def gangs(case: Case) -> Any:
    """Place a gang; claim in a scenario what was found."""
    with _snapshot(case) as snapshot:
        gang = library.Gang.from_dict(case["gang"])
        fit = library.call(snapshot, "fit_gang", gang, levels=case["levels"], order=case["order"])
        if not fit:
            return {"refused": "gang", "shortages": len(fit.shortages)}
        found = {name: _candidate(one) for name, one in fit.candidates.items()}
        scenario = library.call(snapshot, "fork")
        library.call(scenario, "claim_all", fit.candidates)
        return {"members": found}


def how_many(case: Case) -> Any:
    """Count how many of a request fit at once."""
    with _snapshot(case) as snapshot:
        found = library.call(snapshot, "how_many", read(case["request"]))
        answer = {
            "total": [found.at_least, found.at_most],
            "by_host": {host: str(count) for host, count in found.by_host.items()},
            "placements": len(found.placements),
        }
        return answer if found.at_most else {"refused": "none", **answer}


ANSWERS: dict[str, Callable[[Case], Any]] = {
    "search": search,
    "explanations": explanations,
    "gangs": gangs,
    "how_many": how_many,
}
