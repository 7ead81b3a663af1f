"""What a remote Placement cannot keep: all of it refused by name, and nothing sent of it."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.backends.placement.unsupported import REASONS, UNSUPPORTED
from resource_objects.providers.allocation import HELD
from resource_objects.providers.backend import Capability
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
    ShareRecord,
)
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.orders import (
    ConsumerOrder,
    Expect,
    GroupChange,
    Mode,
    NameAction,
    NameChange,
    NameKind,
    Operation,
    Use,
    Write,
)
from resource_objects.resources.records import KindRecord
from resource_objects.rest import application
from resource_objects.testing.conformance import BackendConformance
from resource_objects.testing.conformance.suite import host_of
from tests.ledger.numa_hosts import cells
from tests.support import remote_kit
from tests.support.remote_rules import CANNOT, NOT_RUN
from tests.support.wsgi_transport import WSGITransport, ledger_on

PAGES = pathlib.Path(__file__).parents[2] / "doc/source/howto"
HERE, JOB = str(uuid.uuid4()), str(uuid.uuid4())
USE = Use(HERE, "VCPU", 1)
AGGREGATE = NameKind.AGGREGATE
LEVEL = NameChange(AGGREGATE, NameAction.SET_LEVEL, "rack-1", "rack")


@pytest.fixture
def transport() -> Iterator[WSGITransport]:
    """A transport to a service that has a host."""
    service = application("memory://", auth="noauth2", policy="open")
    service.ledger.sync(ro.Provider("host0", "VCPU=8", traits=["CUSTOM_H100"], uuid=HERE))
    yield WSGITransport(service)
    service.close()


@pytest.fixture
def ledger(transport: WSGITransport) -> Iterator[ro.Ledger]:
    """A ledger kept there."""
    with ledger_on(transport) as found:
        yield found


# --- by ability ---


#: How each ability is asked for at the front door, or of the backend where that has no word for it.
REFUSED: dict[Capability, Callable[[ro.Ledger], object]] = {
    Capability.UNITS: lambda ledger: ledger.backend.claim(
        Operation(), ConsumerOrder.claim(JOB, (Use(HERE, "VCPU", 1, ("cpu0",)),))
    ),
    Capability.EXPIRY: lambda ledger: ledger.claim(
        JOB, {"host0": "VCPU=1"}, expires_in=datetime.timedelta(hours=1)
    ),
    Capability.LIMITS: lambda ledger: ledger.claim(
        JOB, {"host0": "VCPU=1"}, limits={"host0": {"VCPU": 2}}
    ),
    Capability.UNCHANGED: lambda ledger: ledger.claim(
        JOB, {"host0": "VCPU=1"}, if_generation={"host0": 1}
    ),
    Capability.SERVER_GROUPS: lambda ledger: ledger.claim(JOB, {"host0": "VCPU=1"}, group="db"),
    Capability.CONSUMER_TYPES: lambda ledger: ledger.claim(
        JOB, {"host0": "VCPU=1"}, consumer_type="instance"
    ),
    Capability.CLAIM_IDS: lambda ledger: ledger.backend.claim(
        Operation(), ConsumerOrder.claim(JOB, (Use(HERE, "VCPU", 1),), uuid=str(uuid.uuid4()))
    ),
    Capability.DISABLING: lambda ledger: ledger.disable("host0", reason="fan"),
    Capability.ADOPTING: lambda ledger: ledger.adjust(JOB, {"host0": "VCPU=1"}, aggregate=True),
    Capability.CONFIRMING: lambda ledger: ledger.confirm(JOB),
    Capability.SHARES: lambda ledger: ledger.sync(
        ro.Provider(
            "host9",
            "VCPU=8,PCPU=8",
            shares=[ro.Share(resource_class="PCPU", of="host9", of_class="VCPU")],
        )
    ),
    Capability.TOPOLOGIES: lambda ledger: ledger.sync(host_of("host9", cells())),
    Capability.LEVELS: lambda ledger: ledger.backend.commit(
        Write(Operation(), "names", "rack-1", names=(LEVEL,))
    ),
    Capability.AGGREGATES_ALONE: lambda ledger: ledger.names.aggregates.ensure("rack-1"),
    Capability.RENAMED_TRAITS: lambda ledger: ledger.names.traits.rename("CUSTOM_H100", "CUSTOM_B"),
    Capability.REPORTS: lambda ledger: ledger.backend.commit(
        Write(Operation(), "report", "host0", reported=(HERE,))
    ),
    Capability.FEED: lambda ledger: ledger.feed.set_retention(datetime.timedelta(days=1)),
    Capability.WAITING: lambda ledger: list(ledger.queue()),
    Capability.STATISTICS: lambda ledger: ledger.statistics.read(),
    Capability.USE_OVER_TIME: lambda ledger: ledger.use_over_time.between(
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    ),
}


@pytest.mark.parametrize("ability", REFUSED, ids=lambda one: one.name)
def test_what_cannot_be_kept_is_refused_by_name_and_nothing_is_sent(
    ledger: ro.Ledger, transport: WSGITransport, ability: Capability
) -> None:
    with pytest.raises(exceptions.NotSupported) as refused:
        REFUSED[ability](ledger)
    assert refused.value.name == ability.value
    assert ability in ledger.backend.unsupported
    assert not [one for one in transport.asked if one[0] != "GET"]


def test_all_that_it_lacks_is_refused_but_the_request_of_a_claim(ledger: ro.Ledger) -> None:
    """Each claim of a search has a request, so that one is told as absent, and nothing refused."""
    assert ledger.backend.unsupported == UNSUPPORTED == REFUSED.keys() | {Capability.REQUESTS}
    claim = ledger.claim(JOB, ledger.snapshot().candidates("VCPU=1"))
    assert claim.request is None and ledger.get_claim(JOB).request is None


def test_an_older_placement_moves_nobody_who_has_a_parent(transport: WSGITransport) -> None:
    """It is refused before the children of the same tree are made."""
    with ledger_on(transport, "workers=1&microversion=1.36") as ledger:
        ledger.sync(ro.Provider("host1", "VCPU=8"))
        ledger.change("host1", parent="host0")  # who had none
        assert ledger.backend.unsupported == UNSUPPORTED | {Capability.REPARENTING}
        [tree] = ledger.trees()
        child = tree.find("host1")
        moved = ro.Provider("new", children=[ro.Provider("host1", "VCPU=8", uuid=child.uuid)])
        del transport.asked[:]
        with pytest.raises(exceptions.NotSupported, match="providers that are moved"):
            ledger.sync(ro.Provider("host0", "VCPU=8", uuid=HERE, children=[moved]))
        with pytest.raises(exceptions.NotSupported, match="providers that are moved"):
            ledger.change("host1", parent=None)
        assert not [one for one in transport.asked if one[0] != "GET"]


# --- by field: one that is new has to be kept, or refused ---


def order(**said: Any) -> Write:
    """Return a claim, or what is said instead."""
    return Write(Operation(), "claim", JOB, orders=(an_order(**said),))


def an_order(**said: Any) -> ConsumerOrder:
    given = {"consumer": JOB, "expect": Expect.ABSENT, "mode": Mode.SET, "uses": (USE,), **said}
    return ConsumerOrder(**given)


def definition(**said: Any) -> Write:
    """Return the creation of a provider."""
    made = ProviderDefinition(str(uuid.uuid4()), "host9", None, (), frozenset())
    changes = DefinitionChanges("host9", creates=(dataclasses.replace(made, **said),))
    return Write(Operation(), "define", "host9", changes)


def update(**said: Any) -> Write:
    """Return an update of the host, at its generation."""
    kept = ProviderDefinition(HERE, "host0", None, (), frozenset(["CUSTOM_H100"]))
    one = ProviderUpdate(kept, 1, kept)
    changes = DefinitionChanges("host0", updates=(dataclasses.replace(one, **said),))
    return Write(Operation(), "define", "host0", changes)


def write(**said: Any) -> Write:
    return dataclasses.replace(order(), **said)


NOW = datetime.datetime.now(datetime.UTC)
SHARE = ShareRecord("VCPU", HERE, "VCPU", 1)

#: An order that allocates no unit, and releases one.
EXCHANGE: dict[str, Any] = {
    "expect": Expect.PRESENT,
    "mode": Mode.ADD,
    "uses": (dataclasses.replace(USE, amount=-1, released=("cpu0",)),),
}

#: Of each type of what is written: fields that are kept, or say how it is to be written; fields of
#: which nothing is to be kept, and why; and writes of what is refused.
FIELDS: dict[type, tuple[set[str], dict[str, str], dict[str, tuple[Capability, Write]]]] = {
    Write: (
        {"operation", "kind", "subject", "definitions", "orders", "names"},
        {},
        {
            "unchanged": (Capability.UNCHANGED, write(unchanged=((HERE, 1),))),
            "reported": (Capability.REPORTS, write(reported=(HERE,))),
            "adopted": (Capability.ADOPTING, write(adopted=(HERE,))),
            "disabling": (Capability.DISABLING, write(disabling=(DisableOrder(HERE, "fan"),))),
            "limits": (Capability.LIMITS, write(limits={(HERE, "VCPU"): 2})),
            "groups": (Capability.SERVER_GROUPS, write(groups=(GroupChange("db", None),))),
        },
    ),
    ConsumerOrder: (
        {"consumer", "expect", "uses", "project", "user"},
        {
            "request": "told as absent",
            "state": "only a renewal has one",
            "overrides_disabled": "no claim is bound by it there",
            "counted": "its generation counts every write but a release",
        },
        {
            "mode": (
                Capability.CONFIRMING,
                order(expect=Expect.PRESENT, mode=Mode.KEEP, state=HELD),
            ),
            "uuid": (Capability.CLAIM_IDS, order(uuid=str(uuid.uuid4()))),
            "consumer_type": (Capability.CONSUMER_TYPES, order(consumer_type="job")),
            "expires_at": (Capability.EXPIRY, order(expires_at=NOW)),
            "expires_in": (Capability.EXPIRY, order(expires_in=datetime.timedelta(hours=1))),
            "aggregate": (Capability.ADOPTING, order(aggregate=True)),
            "adopts": (Capability.ADOPTING, order(adopts=True)),
            "group": (Capability.SERVER_GROUPS, order(group="db")),
        },
    ),
    Use: (
        {"provider_uuid", "resource_class", "amount", "provider"},
        {},
        {
            "units": (Capability.UNITS, order(uses=(dataclasses.replace(USE, units=("cpu0",)),))),
            "released": (Capability.UNITS, order(**EXCHANGE)),
        },
    ),
    ProviderDefinition: (
        {"uuid", "name", "parent_uuid", "inventories", "traits", "aggregates"},
        {},
        {
            "shares": (Capability.SHARES, definition(shares=(SHARE,))),
            "kinds": (Capability.TOPOLOGIES, definition(kinds=(KindRecord("X", ("X",), "{}"),))),
        },
    ),
    ProviderUpdate: (
        {"definition", "generation", "before", "expected_use"},
        {
            "children_changed": "its parent's generation is no matter of Placement's",
            "counts": "its generation counts every request",
        },
        {},
    ),
    DefinitionChanges: ({"root", "creates", "updates", "removals"}, {}, {}),
    NameChange: (
        {"kind", "name", "to"},
        {},
        {"action": (Capability.LEVELS, write(names=(LEVEL,)))},
    ),
}


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_write_is_kept_or_refused(
    ledger: ro.Ledger, transport: WSGITransport, kind: type
) -> None:
    kept, untold, refused = FIELDS[kind]
    assert kept | untold.keys() | refused.keys() == {one.name for one in dataclasses.fields(kind)}
    for name, (ability, wanted) in refused.items():
        with pytest.raises(exceptions.NotSupported) as error:
            ledger.backend.commit(wanted)
        assert error.value.name == ability.value, name
    assert not [one for one in transport.asked if one[0] != "GET"]


@pytest.mark.parametrize("kind", NameKind)
@pytest.mark.parametrize("action", NameAction)
def test_every_change_of_a_name_is_made_or_refused(
    ledger: ro.Ledger, kind: NameKind, action: NameAction
) -> None:
    ledger.names.traits.ensure("CUSTOM_A")
    ledger.names.classes.ensure("CUSTOM_A")
    change = NameChange(kind, action, "CUSTOM_A", "CUSTOM_B")
    asked = Write(Operation(), "names", "CUSTOM_A", names=(change,))
    if kind is AGGREGATE or action is NameAction.SET_LEVEL:
        with pytest.raises(exceptions.NotSupported):
            ledger.backend.commit(asked)
    elif (kind, action) == (NameKind.TRAIT, NameAction.RENAME):
        with pytest.raises(exceptions.NotSupported, match=Capability.RENAMED_TRAITS.value):
            ledger.backend.commit(asked)
    else:
        ledger.backend.commit(asked)
        names = {one.name for one in ledger.backend.list_names(kind, 1000) if "CUSTOM" in one.name}
        assert (
            names - {"CUSTOM_H100"}
            == {
                NameAction.ENSURE: {"CUSTOM_A"},
                NameAction.RENAME: {"CUSTOM_B"},
                NameAction.DELETE: set(),
            }[action]
        )


# --- what the documentation tells ---


def test_the_page_tells_what_is_absent_and_why() -> None:
    width = max(len(one.value) for one in REASONS)
    table = "".join(f"{one.value:<{width}}  {why}\n" for one, why in REASONS.items())
    assert (PAGES / "remote_placement_absent.txt").read_text(encoding="utf-8") == table


def test_the_page_tells_which_rules_of_the_kit_cannot_be_kept() -> None:
    told = (PAGES / "remote_placement_laws.txt").read_text(encoding="utf-8")
    assert told == remote_kit.table()
    rules = {name for name in dir(BackendConformance) if name.startswith("test_")}
    listed = {name.partition("[")[0] for names in CANNOT.values() for name in names}
    assert listed | NOT_RUN.keys() <= rules
