"""A ledger is led from one picture to another one, whole or not at all, on every backend."""

from __future__ import annotations

import dataclasses
import datetime
import random
import re

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers.columns import stored_definitions
from resource_objects.providers.disabled import ServiceState
from resource_objects.providers.orders import Use
from resource_objects.providers.plan import Plan, holdings
from resource_objects.rest import application
from resource_objects.search import Snapshot
from resource_objects.testing.refusals import raises_code
from tests.search.doors import WORLDS, Doors, counted, kept, told
from tests.support.lengths import examples
from tests.support.wsgi_transport import WSGITransport, session_for

#: Each example begins where the one before left the ledger: from any picture to any other.
_ONE_LEDGER = [HealthCheck.function_scoped_fixture]
_fleets, _seeds = st.sampled_from(WORLDS), st.integers(0, 2**20)


def picture(fleets, seed):
    """Return a picture of a small fleet after changes by chance, of no ledger, and a request.

    None, if there is no such fleet. What takes several steps, more taken of a place before it was
    made too small for it, is undone: no plan leads there at once.
    """
    made = fleets(seed)
    if made is None:
        return None
    ledger, request = made
    with ledger:
        columns = dataclasses.replace(ledger.backend.read(), cursor=None)
    scenario, chance = Snapshot(columns).fork(), random.Random(seed)
    doors = Doors(chance, request)
    for _ in range(chance.choice([0, 4, 8, 12])):
        before = len(scenario)
        doors.step(scenario)
        if (scenario.snapshot.fleet.inventories.free < 0).any():
            scenario.undo(before)
    return scenario.snapshot, request


@pytest.mark.law(2)
@settings(max_examples=examples(60), suppress_health_check=_ONE_LEDGER)
@given(_fleets, _seeds)
def test_the_difference_applied_gives_the_other_picture_exactly(everywhere, fleets, seed):
    made = picture(fleets, seed)
    if made is None:
        return
    wanted, _ = made
    before = everywhere.snapshot()
    plan = Plan.from_json(before.diff(wanted).to_json())
    assert bool(plan) is (told(before) != told(wanted))
    everywhere.apply(plan, dry_run=True)
    assert kept(everywhere) == told(before)
    everywhere.apply(plan)
    assert kept(everywhere) == told(wanted)
    assert not everywhere.snapshot().diff(wanted)


# --- when somebody writes in between --------------------------------------------------------------


def kept_facts(ledger):
    return facts(Snapshot(ledger.backend.read()))


def facts(snapshot):
    """Return each thing in a picture: definitions, what is out of service, what consumers hold."""
    columns = snapshot.bundle("VCPU=1").columns
    given = columns.providers
    uuid = dict(zip(given.provider_id, given.uuid, strict=True))
    found = {("provider", u): one.definition for u, one in stored_definitions(columns).items()}
    found |= {("consumer", name): held for name, held in holdings(columns).items()}
    for number, one in columns.disabled.items():
        found["service", uuid[number]] = ServiceState.of(one)
    return found


def mentioned(plan):
    """Return the keys of the facts that a plan changes."""
    found = {("consumer", name) for name in plan.consumers}
    found |= {("service", order.provider_uuid) for order in plan.disabling}
    changes = plan.definitions
    if changes is not None:
        found |= {("provider", one.uuid) for one in (*changes.creates, *changes.removals)}
        for one in changes.updates:
            found |= set() if one.children_changed else {("provider", one.definition.uuid)}
    return found


@pytest.mark.law(2)
@settings(max_examples=examples(60), suppress_health_check=_ONE_LEDGER)
@given(_fleets, _seeds)
def test_what_somebody_wrote_meanwhile_is_never_lost(everywhere, fleets, seed):
    """A plan that is late is refused, or carried out beside what it does not mention."""
    made = picture(fleets, seed)
    if made is None:
        return
    begun, request = made
    everywhere.apply(everywhere.snapshot().diff(begun))
    scenario, doors = everywhere.snapshot().fork(), Doors(random.Random(seed), request)
    for _ in range(4):
        doors.step(scenario)
    plan, before = scenario.diff(), kept_facts(everywhere)
    doors.step(everywhere.snapshot().fork(), everywhere)  # somebody else
    now = kept_facts(everywhere)
    written = {key for key in {*before, *now} if before.get(key) != now.get(key)}
    try:
        everywhere.apply(plan)
    except exceptions.ResourceObjectsError as error:
        assert kept_facts(everywhere) == now, error
        event(f"refused: {error.code}{'' if written else ', nobody wrote'}")
        return
    changed = mentioned(plan)
    assert written.isdisjoint(changed)
    after, wanted = kept_facts(everywhere), facts(scenario.snapshot)
    for key in {*after, *wanted, *now}:
        if key[0] != "service" or ("provider", key[1]) in after:  # else it went with its provider
            assert after.get(key) == (wanted if key in changed else now).get(key), key
    event("carried out beside it" if written else "carried out")


def build(ledger):
    """Two hosts, the first with a GPU and a job that was made for 6 CPUs."""
    host = ro.Provider("host0", "VCPU=8", traits=["CUSTOM_A"])
    host.add("host0/gpu0", "PGPU=1")
    ledger.sync(host, ro.Provider("host1", "VCPU=4"))
    ledger.claim("job-1", ledger.snapshot().candidates("VCPU=6"))


@pytest.fixture
def lab(everywhere_with):
    return everywhere_with(build)


def test_an_applied_difference_keeps_what_a_consumer_was_made_for(lab):
    scenario = lab.snapshot().fork()
    scenario.resize("host1", "VCPU=16")
    scenario.move("job-1", scenario.candidates("VCPU=6")[0])
    scenario.claim("job-2", scenario.candidates("VCPU=8,PGPU=1"))
    plan = scenario.diff()
    assert str(plan).splitlines() == [
        "~ host1: VCPU=16",
        "~ job-1 is allocated VCPU=6 of host1",
        "+ job-2 allocates VCPU=8 of host0, PGPU=1 of host0/gpu0",
    ]
    lab.apply(plan)
    requests = {one.name: str(one.request) for one in lab.consumers()}
    assert requests == {"job-1": "VCPU=6", "job-2": "VCPU=8,PGPU=1"}


@pytest.mark.law(2, 6)
def test_apply_names_what_changed_meanwhile_and_changes_nothing(lab):
    scenario = lab.snapshot().fork()
    scenario.release("job-1")
    scenario.resize("host1", "VCPU=2")
    scenario.disable("host0/gpu0", reason="fan")
    plans = {"definition": scenario.diff()}
    for verb in ("release", "disable"):
        one = lab.snapshot().fork()
        getattr(one, verb)(*(["job-1"] if verb == "release" else ["host0/gpu0"]))
        plans[verb] = one.diff()
    claimed = lab.snapshot().fork()
    claimed.claim("job-2", claimed.candidates("VCPU=4"))
    plans["claim"] = claimed.diff()

    lab.change("host1", traits=["CUSTOM_B"])
    lab.adjust("job-1", {"host0": "VCPU=-2"})
    lab.disable("host0/gpu0", reason="smoke")
    lab.claim("fast", {"host1": "VCPU=3"})
    now = kept(lab)
    for verb, error, told_of in (
        ("definition", exceptions.LedgerError, "host1 was changed|job-1 was changed"),
        ("release", "StaleConsumer", "VCPU=6 of host0 was allocated to it, now VCPU=4 of host0"),
        ("disable", "StaleDefinition", "host0/gpu0.*was in service, now disabled: smoke"),
        ("claim", exceptions.CapacityException, "fast holds 3"),
    ):
        for dry_run in (True, False):
            with raises_code(error, match=told_of):
                lab.apply(plans[verb], dry_run=dry_run)
        assert kept(lab) == now, verb


def test_who_is_gone_or_came_meanwhile_is_named(lab):
    scenario = lab.snapshot().fork()
    scenario.release("job-1")
    lab.release("job-1")
    with raises_code("StaleConsumer", match="now nothing"):
        lab.apply(scenario.diff())
    other = lab.snapshot().fork()
    other.claim("job-2", other.candidates("VCPU=1"))
    lab.claim("job-2", {"host1": "VCPU=1"})
    with raises_code("ConsumerExists", match="job-2"):
        lab.apply(other.diff())


def test_a_picture_may_be_older_than_the_feed_remembers(lab):
    """What changed is told by generations and by what is held, not by the feed."""
    early, late = lab.snapshot().fork(), lab.snapshot().fork()
    early.resize("host1", "VCPU=16")
    late.release("job-1")
    lab.claim("job-2", {"host1": "VCPU=1"})
    lab.backend.prune(lab.now() + datetime.timedelta(days=1))
    lab.apply(early.diff())
    assert lab.provider("host1").inventories["VCPU"].total == 16
    lab.adjust("job-1", {"host0": "VCPU=-2"})
    lab.backend.prune(lab.now() + datetime.timedelta(days=1))
    with raises_code("StaleConsumer", match="job-1"):
        lab.apply(late.diff())


def test_pictures_and_plans_of_another_ledger_are_refused(lab):
    new, known = lab.snapshot().fork(), lab.snapshot().fork()
    new.add(ro.Provider("host9", "VCPU=8"))
    known.claim("job-2", known.candidates("VCPU=1"))
    with ro.connect("memory://") as other:
        plans = [new.diff(), known.diff(), Plan.from_json(new.diff().to_json())]
        for _ in range(2):  # also where nobody wrote anything yet
            for plan in plans:
                for dry_run in (True, False):
                    with pytest.raises(exceptions.InvalidPlan, match="of another ledger"):
                        other.apply(plan, dry_run=dry_run)
            assert "host9" not in [one.name for one in other.providers()]
            other.sync(ro.Provider("host0", "VCPU=8"), ro.Provider("host1", "VCPU=4"))
        for picture_of_both in (new.diff, lab.snapshot().diff):
            with raises_code("InvalidField", match="a snapshot of the same ledger"):
                picture_of_both(other.snapshot())
        found = other.snapshot().candidates("VCPU=1")
        with raises_code("ProviderNotFound"):
            new.claim("job-3", found)
        # who says nothing of a ledger is known by the uuids
        with raises_code("ProviderNotFound"):
            other.apply(dataclasses.replace(known.diff(), ledger=0))


def test_what_is_taken_and_then_put_out_of_service_is_so_in_the_ledger_too(lab):
    scenario = lab.snapshot().fork()
    scenario.claim("job-2", scenario.candidates("VCPU=2"))
    scenario.disable("host0", reason="fan")
    lab.apply(scenario.diff())
    assert kept(lab) == told(scenario.snapshot)
    assert not lab.snapshot().candidates("PGPU=1")


def test_one_that_comes_and_is_out_of_service_is_named_in_the_plan(lab):
    scenario = lab.snapshot().fork()
    scenario.add(ro.Provider("host9", "VCPU=8"))
    scenario.disable("host9", reason="to be checked")
    plan = Plan.from_json(scenario.diff().to_json())
    assert "~ host9: disabled: to be checked" in str(plan)
    lab.apply(plan)
    assert kept(lab) == told(scenario.snapshot)


@pytest.mark.parametrize("is_over", [False, True])
def test_what_is_taken_is_judged_by_what_is_in_service_in_the_end(lab, is_over):
    lab.disable("host1", reason="fan")
    scenario = lab.snapshot().fork()
    scenario.enable("host1")
    scenario.claim("job-2", scenario.candidates("VCPU=4"))
    scenario.disable("host0")
    plan = scenario.diff()
    if is_over:
        (job,) = plan.orders
        plan = dataclasses.replace(plan, orders=[dataclasses.replace(job, uses=_of_host0(lab))])
        for dry_run in (True, False):
            with raises_code("ProviderDisabled", match="host0: disabled since"):
                lab.apply(plan, dry_run=dry_run)
    else:
        lab.apply(plan, dry_run=True)
        lab.apply(plan)
        assert kept(lab) == told(scenario.snapshot)


def _of_host0(ledger):
    return (Use(ledger.provider("host0").uuid, "VCPU", 1),)


@pytest.mark.parametrize("verb", ["release", "move"])
def test_a_name_goes_to_another_while_its_holder_leaves(lab, verb):
    scenario = lab.snapshot().fork()
    scenario.add(ro.Provider("host9", "VCPU=16"))
    if verb == "release":
        scenario.release("job-1")
    else:
        scenario.move("job-1", scenario.candidates(ro.Request("VCPU=6", in_tree="host9")))
    scenario.remove("host0")
    scenario.change("host9", name="host0")
    plan = scenario.diff()
    lab.apply(plan, dry_run=True)
    (claim,) = lab.apply(plan)
    assert [one.provider for one in claim.allocations] == ["host0"]
    assert kept(lab) == told(scenario.snapshot)


def test_what_took_several_steps_is_refused_at_once(lab):
    scenario = lab.snapshot().fork()
    scenario.claim("job-2", scenario.candidates("VCPU=4"))
    scenario.resize("host1", "VCPU=2")
    with pytest.raises(exceptions.CapacityException, match="host1: VCPU requested 4, free 2 of 2"):
        lab.apply(scenario.diff())


def test_a_difference_says_what_it_was_made_of_and_takes_no_more(lab):
    scenario = lab.snapshot().fork()
    scenario.release("job-1")
    scenario.disable("host1", reason="fan")
    data = scenario.diff().to_dict()
    assert data["held"]["job-1"][0]["amount"] == 6
    assert data["disabling"][0]["was"] == {}
    assert Plan.from_dict(data) == scenario.diff()
    for wrong in (
        {"held": {**data["held"], "nobody": []}},
        {"held": []},
        {"ledger": "lab"},
        {"ledger": -1},
        {"disabling": [{**data["disabling"][0], "was": "in service"}]},
        {"disabling": [{**data["disabling"][0], "was": {"colour": "red"}}]},
    ):
        with pytest.raises(exceptions.InvalidInput):
            Plan.from_dict({**data, **wrong})


# --- over a remote Placement --------------------------------------------------------------------


@pytest.fixture
def remote():
    """A ledger kept in a Placement: the service, over an empty ledger of this process."""
    service = application("memory://", auth="noauth2", policy="open")
    session = session_for(WSGITransport(service))
    with ro.connect("placement://?workers=1", session=session) as opened:
        yield opened
    service.close()


@settings(max_examples=examples(100), suppress_health_check=_ONE_LEDGER)
@given(_seeds)
def test_a_placement_is_led_there_too_or_says_what_it_lacks(remote, seed):
    made = picture(counted, seed)
    if made is None:
        return
    wanted, _ = made
    before = remote.snapshot()
    plan = before.diff(wanted)
    try:
        remote.apply(plan, dry_run=True)
    except exceptions.NotSupported as refusal:
        with pytest.raises(
            exceptions.NotSupported, match=re.escape(str(refusal).partition(" (")[0])
        ):
            remote.apply(plan)
        assert told(remote.snapshot()) == told(before)
        event("lacks something")
        return
    remote.apply(plan)
    assert told(remote.snapshot()) == told(wanted)
    event("there" if plan else "was there")


def test_a_placement_names_what_changed_meanwhile(remote):
    build(remote)
    scenario, late = remote.snapshot().fork(), remote.snapshot().fork()
    scenario.resize("host1", "VCPU=2")
    late.release("job-1")
    remote.change("host1", traits=["CUSTOM_B"])
    remote.adjust("job-1", {"host0": "VCPU=-2"})
    now = told(remote.snapshot())
    for plan, error in (
        (scenario.diff(), "StaleDefinition"),
        (late.diff(), "StaleConsumer"),
    ):
        with raises_code(error):
            remote.apply(plan)
        assert told(remote.snapshot()) == now
