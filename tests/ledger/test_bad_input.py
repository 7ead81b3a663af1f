"""Every public method, called with what cannot be: refused in our own words, and nothing changed.

Only our errors may come out. A ``TypeError`` is one of Python for a call that no method answers;
a value of the wrong type is refused like every other wrong value.
"""

from __future__ import annotations

import datetime
import functools
import inspect
import itertools
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger.feed import Feed
from resource_objects.ledger.names import AggregateNames, NameList
from resource_objects.ledger.pools import Pools
from resource_objects.ledger.queries import UseOverTime
from resource_objects.ledger.statistics import Statistics
from resource_objects.providers.plan import Plan
from resource_objects.providers.reshape import Reshape
from resource_objects.providers.statistics import Statistic
from resource_objects.testing.refusals import raises_code

HOUR = datetime.timedelta(hours=1)
LOAD = functools.partial(Statistic, "cpu.percent")
LATE = datetime.datetime.max.replace(tzinfo=datetime.timezone(-5 * HOUR))
EARLY = datetime.datetime.min.replace(tzinfo=datetime.timezone(5 * HOUR))


class Odd:
    """Like nothing that anybody means."""

    def __repr__(self) -> str:
        raise ValueError("this one cannot even be shown")


#: Values that hardly any parameter takes. Where one does, the call is simply not refused.
WRONG: list[Any] = [
    "",
    " x",
    "a\0b",
    "\ud800",
    "x" * 300,
    b"bytes",
    0,
    -1,
    True,
    2**63,
    10**400,
    1.5,
    float("nan"),
    [],
    {},
    (),
    set(),
    [None],
    [[]],
    [Odd()],
    {"": None},
    {None: None},
    {"host0": None},
    {"host0": {}},
    {"host0": {"VCPU": 2**64}},
    {"host0": {"VCPU": 1.5}},
    {"host0": {"VCPU": -1}},
    {"nobody": {"VCPU": 1}},
    {"VCPU": None},
    {"job": None},
    {"other": [None]},
    {"other": {"host0": "VCPU=99"}},
    "VCPU=x",
    "VCPU=99999999999999999999",
    Odd(),
    Odd,
    datetime.timedelta.max,
    datetime.timedelta.min,
    datetime.timedelta(days=365 * 3000),
    datetime.datetime(2030, 1, 1),
    LATE,
    EARLY,
    ro.Provider("spare", "VCPU=1", generation=7),
    ro.Request("VCPU=99"),
    None,
]

#: A call of each method that would do: what it is given beside the value that is wrong.
GOOD: dict[str, dict[str, Any]] = {
    "sync": {"roots": [ro.Provider("host0", "VCPU=9")]},
    "diff": {"roots": [ro.Provider("host0", "VCPU=9")]},
    "apply": {"plan": Plan()},
    "remove": {"provider": "host1"},
    "change": {"provider": "host0", "inventories": "VCPU=9"},
    "names.classes.list": {},
    "names.traits.list": {},
    "names.aggregates.list": {},
    "names.classes.ensure": {"name": "CUSTOM_B"},
    "names.classes.rename": {"name": "CUSTOM_KEPT", "new": "CUSTOM_B"},
    "names.classes.remove": {"name": "CUSTOM_KEPT"},
    "names.traits.ensure": {"name": "CUSTOM_B"},
    "names.traits.rename": {"name": "CUSTOM_KEPT", "new": "CUSTOM_B"},
    "names.traits.remove": {"name": "CUSTOM_KEPT"},
    "names.aggregates.ensure": {"name": "r2", "level": "rack"},
    "names.aggregates.rename": {"name": "kept", "new": "r2"},
    "names.aggregates.remove": {"name": "kept"},
    "pools.share": {"pool": "nfs", "hosts": ["host0"]},
    "pools.unshare": {"pool": "nfs", "hosts": ["host0"]},
    "pools.report": {"pool": "nfs", "inventories": "DISK_GB=9"},
    "pools.list": {},
    "provider": {"name": "host0"},
    "inventories": {"name": "host0"},
    "assigned_amounts": {"consumer": "job"},
    "trees": {"providers": ["host0"]},
    "providers": {},
    "consumers": {},
    "get_claim": {"consumer": "job"},
    "usage": {},
    "totals": {},
    "now": {},
    "use_over_time.between": {"since": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)},
    "audit": {},
    "snapshot": {},
    "claim": {"consumer": "new", "candidates": {"host0": "VCPU=1"}},
    "claim_all": {"candidates": {"new": {"host0": "VCPU=1"}}},
    "adjust": {"consumer": "job", "changes": {"host0": "VCPU=1"}},
    "attribute": {"host": "host2", "consumer": "new"},
    "replace": {"consumer": "job", "candidates": {"host0": "VCPU=1"}},
    "move": {"consumer": "job", "candidates": {"host1": "VCPU=1"}},
    "swap": {"consumer": "job", "other": "job2"},
    "confirm": {"consumer": "job"},
    "renew": {"consumer": "job", "expires_in": HOUR},
    "release": {"consumer": "job"},
    "disable": {"provider": "host0", "reason": "fan"},
    "enable": {"provider": "host0"},
    "drain": {"provider": "host0", "reason": "fan"},
    "release_all": {"consumers": ["job"]},
    "queue": {},
    "is_satisfiable": {"candidates": ...},
    "earliest_start": {"request": "VCPU=9"},
    "with_actor": {"actor": "ann"},
    "expired": {},
    "release_expired": {},
    "reshape": {"reshape": Reshape()},
    "feed.cursor": {},
    "feed.changes": {"after": "0x64"},
    "feed.is_fresh": {},
    "feed.set_retention": {"age": datetime.timedelta(days=9)},
    "statistics.put": {"values": {"host0": [LOAD(2)]}},
    "statistics.read": {"hosts": ["host0"]},
    "statistics.forget": {"hosts": ["host0"]},
}
#: What takes or gives no value.
OTHERS = {"close", "backend", "actor", "retries"}
#: What a ledger keeps behind a name of its own.
MEMBERS: dict[str, type] = {
    "": ro.Ledger,
    "pools.": Pools,
    "feed.": Feed,
    "statistics.": Statistics,
    "names.classes.": NameList,
    "names.traits.": NameList,
    "names.aggregates.": AggregateNames,
    "use_over_time.": UseOverTime,
}

METHODS = {
    f"{member}{name}": function
    for member, kind in MEMBERS.items()
    for name, function in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_") and name not in OTHERS
}


@pytest.fixture
def kept(ledger_with: Callable[[Callable[[ro.Ledger], object]], ro.Ledger]) -> ro.Ledger:
    return ledger_with(build)


def build(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0", "VCPU=8", children=[ro.Provider("host0/gpu", "PGPU=1")])
    ledger.sync(host, ro.Provider("host1", "VCPU=8"), ro.Provider("nfs", "DISK_GB=9"))
    ledger.claim("job", {"host0": "VCPU=1"})
    ledger.claim("job2", {"host1": "VCPU=1"})
    used = {"hypervisor_hostname": "host2", "vcpus": 8, "vcpus_used": 6}
    ro.ComputeNode.from_row(used).bind(ledger).save()
    ledger.names.classes.ensure("CUSTOM_KEPT")
    ledger.names.traits.ensure("CUSTOM_KEPT")
    ledger.names.aggregates.ensure("kept")
    ledger.statistics.put({"host0": [LOAD(1)]})


def call(ledger: ro.Ledger, method: str, parameter: str, value: Any) -> Any:
    """Call a method with one value in place of a good one, and read what it gives."""
    asked = operator.attrgetter(method)(ledger)
    given = {**GOOD[method], parameter: value}
    if method == "feed.is_fresh" and parameter != "snapshot":
        given["snapshot"] = ledger.snapshot()
    if method == "is_satisfiable" and parameter != "candidates":
        given["candidates"] = ledger.snapshot().candidates("VCPU=9")
    kinds = inspect.signature(asked).parameters
    rest: list[Any] = []
    for name in list(given):
        if kinds[name].kind is inspect.Parameter.VAR_POSITIONAL:
            several = given.pop(name)
            rest = several if name != parameter and isinstance(several, list) else [several]
    found = asked(*rest, **given)
    return list(found) if isinstance(found, Iterator) else found


def state(ledger: ro.Ledger) -> Any:
    """Return all that can be read."""
    names = itertools.chain(
        ledger.names.classes.list(), ledger.names.traits.list(), ledger.names.aggregates.list()
    )
    told = ledger.statistics.read()
    return list(ledger.trees()), list(ledger.consumers()), list(names), ledger.feed.cursor(), told


def test_every_public_method_is_called() -> None:
    assert set(METHODS) == set(GOOD)


@pytest.mark.law(2, 8)
@pytest.mark.parametrize("method", METHODS)
def test_what_cannot_be_is_refused_and_changes_nothing(kept: ro.Ledger, method: str) -> None:
    before, told, done = state(kept), kept.feed.cursor(), 0
    parameters = list(inspect.signature(operator.attrgetter(method)(kept)).parameters)
    for parameter, value in itertools.product(parameters, WRONG):
        try:
            call(kept, method, parameter, value)
        except exceptions.ResourceObjectsError as refused:
            assert str(refused)
            assert kept.feed.cursor() == told
        else:  # it was a value that does
            done, told = done + 1, kept.feed.cursor()
    assert done or state(kept) == before


@pytest.mark.parametrize(
    "ask",
    [
        lambda ledger: ledger.consumers(older_than=datetime.timedelta.max),
        lambda ledger: ledger.consumers(younger_than=datetime.timedelta.max),
        lambda ledger: ledger.consumers(state="released"),
        lambda ledger: ledger.audit(older_than=datetime.timedelta.max),
        lambda ledger: ledger.pools.list(older_than=datetime.timedelta.max),
        lambda ledger: ledger.claim("new", {"host0": "VCPU=1"}, expires_at=LATE),
        lambda ledger: ledger.expired(EARLY),
        lambda ledger: ledger.expired(reasons="no room"),
        lambda ledger: ledger.expired(reasons=3),
        lambda ledger: ledger.feed.is_fresh(None),
        lambda ledger: ledger.pools.share("nfs", hosts=[]),
    ],
)
def test_the_error_names_the_value(kept: ro.Ledger, ask: Callable[[ro.Ledger], Any]) -> None:
    with raises_code("InvalidField", match=r"got .*, expected "):
        ask(kept)


@pytest.mark.parametrize("room", ["VCPU=-1", {"VCPU": -1}, {"VCPU": 1, "MEMORY_MB": -1}])
def test_room_is_not_less_than_nothing(kept: ro.Ledger, room: Any) -> None:
    with raises_code("NegativeAmount", match="-1"):
        kept.providers(room=room)


@pytest.mark.parametrize(
    "method",
    [
        name
        for name, function in METHODS.items()
        if "generation" in inspect.signature(function).parameters
    ],
)
def test_a_generation_is_a_whole_number(kept: ro.Ledger, method: str) -> None:
    before = state(kept)
    for wrong in (-1, True, False, 1.0, "1", 2**63, [1]):
        got = rf"got {re.escape(repr(wrong))}.*from 0 to"
        with raises_code("InvalidField", match=f"generation: {got}"):
            call(kept, method, "generation", wrong)
        with raises_code("InvalidField", match=f"if_generation: {got}"):
            kept.claim("new", {"host0": "VCPU=1"}, if_generation={"host0": wrong})
    assert state(kept) == before
