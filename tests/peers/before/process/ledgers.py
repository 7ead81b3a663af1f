"""Answers of ledgers, step by step, in memory and on SQLite: claims, moves, changes of definitions.

Each question has trees and steps. After each step the answer has what came of it, what is used,
and what each consumer has allocated.
"""

from __future__ import annotations

import atexit
import datetime
import functools
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import library
from forms import outcome, plain, read

Case = Mapping[str, Any]
Step = Mapping[str, Any]
_NUMBERS = itertools.count()


# --- ledgers ---


@functools.cache
def _folder() -> str:
    """Return a folder for the files of this process, in memory where there is some."""
    there = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="before-", dir=there)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def _empty() -> str:
    """Return a file with the tables of this version, which is copied for each question."""
    path = os.path.join(_folder(), "empty.db")
    library.call(library.SQLBackend, "upgrade_database", f"sqlite:///{path}")
    return path


def ledgers() -> Iterator[tuple[str, Any]]:
    """Yield an empty ledger in memory, and one on SQLite."""
    with library.connect("memory://", actor="admin") as ledger:
        yield "memory", ledger
    path = os.path.join(_folder(), f"{next(_NUMBERS)}.db")
    shutil.copyfile(_empty(), path)
    try:
        with library.connect(f"sqlite:///{path}", actor="admin") as ledger:
            yield "sqlite", ledger
    finally:
        for end in ("", "-wal", "-shm"):
            if os.path.exists(path + end):
                os.remove(path + end)


def state(ledger: Any) -> dict[str, Any]:
    """Return what is used of a ledger, what its consumers hold, and what is disabled."""
    usage = library.call(ledger, "usage")
    used = {f"{one.provider} {one.resource_class}": one.used for one in usage if one.used}
    held = {one.name: held_of(one.claim) for one in library.call(ledger, "consumers")}
    out = [one.name for one in library.call(ledger, "providers") if one.disabled is not None]
    return {"used": used, "held": held, "disabled": sorted(out)}


def held_of(claim: Any) -> Any:
    """Return what a claim has allocated, and its state."""
    if claim is None:
        return None
    allocated = sorted(
        [one.provider, one.resource_class, str(one.amount), sorted(one.units)]
        for one in claim.allocations
    )
    return [claim.state, allocated]


# --- steps ---


def steps(case: Case) -> Any:
    """Do the steps of a question on each backend."""
    return {name: list(_done(ledger, case)) for name, ledger in ledgers()}


def _done(ledger: Any, case: Case) -> Iterator[Any]:
    library.call(ledger, "sync", *read(case["trees"]))
    for group in case.get("groups", ()):
        yield {"step": outcome(lambda: library.call(ledger.groups, "ensure", **group) and None)}  # noqa: B023
    for step in case["steps"]:
        came = outcome(lambda: DO[step["do"]](ledger, step))  # noqa: B023
        yield {"step": came, **plain(state(ledger))}


def _found(ledger: Any, step: Step) -> Any:
    """Return what a step allocates: what a search finds, or amounts by provider."""
    if step.get("is_request"):
        picture = library.call(ledger, "snapshot")
        return library.call(picture, "candidates", read(step["what"]))
    return read(step["what"])


def _options(step: Step) -> dict[str, Any]:
    found = dict(step.get("options", {}))
    if "expires_in" in found:
        found["expires_in"] = datetime.timedelta(seconds=found["expires_in"])
    return found


def _taking(verb: str) -> Callable[[Any, Step], Any]:
    def do(ledger: Any, step: Step) -> Any:
        found = _found(ledger, step)
        return held_of(library.call(ledger, verb, step["consumer"], found, **_options(step)))

    return do


def _plainly(verb: str) -> Callable[[Any, Step], Any]:
    def do(ledger: Any, step: Step) -> Any:
        done = library.call(
            ledger, verb, step["consumer"], *step.get("other", ()), **_options(step)
        )
        return [held_of(one) for one in done] if isinstance(done, tuple) else held_of(done)

    return do


def _claim_all(ledger: Any, step: Step) -> Any:
    found = {name: _found(ledger, one) for name, one in step["claims"].items()}
    return [held_of(one) for one in library.call(ledger, "claim_all", found)]


def _out(verb: str) -> Callable[[Any, Step], Any]:
    def do(ledger: Any, step: Step) -> Any:
        done = library.call(ledger, verb, step["provider"], **step["options"])
        return [done.name, done.disabled is None]

    return do


def _drain(ledger: Any, step: Step) -> Any:
    done = library.call(ledger, "drain", step["provider"], **step["options"])
    return [one.name for one in done]


def _sync(ledger: Any, step: Step) -> Any:
    return bool(library.call(ledger, "sync", *read(step["trees"])))


def _remove(ledger: Any, step: Step) -> Any:
    return library.call(ledger, "remove", step["provider"]).removed


def _assigned(ledger: Any, step: Step) -> Any:
    return library.call(ledger, "assigned", step["consumer"])


def _group(ledger: Any, step: Step) -> Any:
    found = getattr(ledger.groups, step["verb"])(step["name"])
    return None if found is None else [found.policy, found.members, found.max_per_host]


def _reshape(ledger: Any, step: Step) -> Any:
    reshape = library.Reshape.from_dict(step["reshape"])
    tried = outcome(lambda: library.call(ledger, "reshape", reshape, dry_run=True) and None)
    plan = library.call(ledger, "reshape", reshape)
    return {"dry run": tried, "consumers": sorted(plan.consumers), "tree": _trees(ledger)}


def _plan(ledger: Any, step: Step) -> Any:
    """Plan what a sync would do, apply it dry, do something else if that is asked, and apply it."""
    plan = library.call(ledger, "diff", *read(step["trees"]))
    tried = outcome(lambda: library.call(ledger, "apply", plan, dry_run=True) and None)
    if "between" in step:
        DO[step["between"]["do"]](ledger, step["between"])
    library.call(ledger, "apply", plan)
    return {"dry run": tried, "changes": bool(plan), "trees": _trees(ledger)}


def _scenario(ledger: Any, step: Step) -> Any:
    """Try steps in a scenario, and apply the plan of what was changed there."""
    picture = library.call(ledger, "snapshot")
    scenario = library.call(picture, "fork")
    tried = [outcome(lambda: _tried(scenario, one)) for one in step["tried"]]  # noqa: B023
    plan = library.call(picture, "diff", scenario)
    applied = [held_of(one) for one in library.call(ledger, "apply", plan)]
    return {"tried": tried, "applied": applied}


def _tried(scenario: Any, step: Step) -> Any:
    if step["do"] == "release":
        done = library.call(scenario, "release", step["consumer"])
    elif step["do"] in ("disable", "enable"):
        return library.call(scenario, step["do"], step["provider"], **step["options"])
    else:
        found = library.call(scenario, "candidates", read(step["what"]))
        done = library.call(scenario, step["do"], step["consumer"], found)
    return sorted([one.provider, one.resource_class, str(one.amount)] for one in done)


def _trees(ledger: Any) -> Any:
    """Return the trees of a ledger by name: inventories, traits and parents."""
    found = {}
    for one in library.call(ledger, "providers"):
        found[one.name] = [one.inventories, sorted(one.traits), one.parent]
    return found


DO: dict[str, Callable[[Any, Step], Any]] = {
    **{verb: _taking(verb) for verb in ("claim", "replace", "adjust", "move")},
    **{verb: _plainly(verb) for verb in ("release", "swap", "confirm", "renew")},
    "claim_all": _claim_all,
    "disable": _out("disable"),
    "enable": _out("enable"),
    "drain": _drain,
    "sync": _sync,
    "remove": _remove,
    "assigned": _assigned,
    "group": _group,
    "reshape": _reshape,
    "plan": _plan,
    "scenario": _scenario,
}
ANSWERS: dict[str, Callable[[Case], Any]] = dict.fromkeys(
    ("claims", "disabled", "server_groups", "reshapes", "plans"), steps
)
