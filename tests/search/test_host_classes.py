"""Hosts in the same state stand for each other: what one can give, the other one can, as often."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.requests import Request, RequestGroup
from resource_objects.search.answer import HostClasses
from resource_objects.search.problem import compile_request
from resource_objects.search.script import clone
from tests.search.doors import WORLDS
from tests.support.lengths import examples


def states_of(snapshot, asked):
    """Return the states of hosts, by name."""
    fleet = snapshot.fleet
    states = HostClasses([compile_request(asked, fleet)])
    return states, {name: states.of(fleet.hosts.index(name)) for name in snapshot.hosts}


def gpus(name, free, *taken):
    """Return a host with CPUs and GPUs, and who takes which of them."""
    host = ro.Provider(name, f"VCPU={free}")
    for number in range(3):
        host.add(f"{name}/gpu{number}", "PGPU=1")
    return host, {f"{name}/gpu{number}": "PGPU=1" for number in taken}


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        ((8, 0), (8, 2), True),  # which GPU is taken is all the same
        ((8, 0), (8, 0, 1), False),
        ((9,), (8,), True),  # two fours, either way
        ((8,), (7,), False),
    ],
)
def test_what_the_search_cannot_tell_apart_is_one_state(one, other, are_alike):
    with ro.connect("memory://") as ledger:
        for number, (free, *taken) in enumerate((one, other)):
            host, held = gpus(f"h{number}", free, *taken)
            ledger.sync(host)
            if held:
                ledger.claim(f"job-{number}", held)
        group = RequestGroup("PGPU=1", suffix="_g")
        asked = Request("VCPU=4", groups=[group], group_policy="none")
        _, found = states_of(ledger.snapshot(), asked)
    assert (found["h0"] == found["h1"]) is are_alike


@given(st.sampled_from(WORLDS), st.integers(0, 2**20))
@settings(max_examples=examples(200))
def test_a_candidate_of_one_host_is_one_of_all_in_its_state(fleets, seed):
    made = fleets(seed)
    assume(made is not None)
    ledger, asked = made
    chance = random.Random(seed)
    with ledger:
        for number, root in enumerate(list(ledger.trees(*ledger.snapshot().hosts[:1]))):
            with contextlib.suppress(exceptions.ResourceObjectsError):  # a pool beside another
                ledger.sync(clone(root, f"like-{number}"))
        for number in range(chance.choice([0, 1, 3])):
            some = list(ledger.snapshot().candidates(asked, limit=8, per_host=4))
            if some:
                ledger.claim(f"new-{number}", chance.choice(some))
        snapshot = ledger.snapshot()
    try:
        states, found = states_of(snapshot, asked)
    except exceptions.InvalidInput:
        assume(False)
    fleet = snapshot.fleet
    hosts = fleet.hosts
    for one in snapshot.candidates(asked, limit=None, per_host=4):
        if one.host not in found:  # a pool
            continue
        for other, state in found.items():
            if other != one.host and state == found[one.host]:
                moved = states.transfer(one, hosts.index(one.host), hosts.index(other))
                scenario = snapshot.fork()
                scenario.claim("moved", moved)
                places = [fleet.place_by_key[a.provider] for a in moved.allocations]
                assert {hosts[fleet.tree[place]] for place in places} == {other}
                event("moved")
