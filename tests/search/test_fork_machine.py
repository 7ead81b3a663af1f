"""Forks of forks, in any order: each is what was tried in it, and nobody else's."""

from __future__ import annotations

import contextlib
import datetime
import random

import hypothesis
import hypothesis.strategies as st
import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from resource_objects import exceptions
from resource_objects.requests import Gang, Member
from resource_objects.search import Snapshot
from resource_objects.testing.refusals import raises_code
from tests.search import device_fleets, numa_fleets
from tests.search.doors import Blind, Doors, counted, told

#: Worlds in which something fits, of each kind: shares and pools, topologies, devices.
FITTING = [
    *((counted, seed) for seed in (9, 30, 37, 103)),
    *((numa_fleets.fleet, seed) for seed in (13, 18, 122)),
    *((device_fleets.fleet, seed) for seed in (19, 48, 74)),
]
#: All that can be asked of a picture.
QUESTIONS = [
    lambda snapshot, request: list(snapshot.candidates(request)),
    lambda snapshot, request: str(snapshot.candidates(request).explain()),
    lambda snapshot, request: snapshot.how_many(request).placements,
    lambda snapshot, request: bool(snapshot.fit_gang(Gang([Member("m", request, 2)]))),
    lambda snapshot, request: snapshot.report(request).to_dict(),
    lambda snapshot, request: str(snapshot.when(request, _ends(snapshot))),
    lambda snapshot, request: list(snapshot.relaxations(request, 2)),
    lambda snapshot, request: str(snapshot.rehearse_drain(*snapshot.hosts[:1])),
    lambda snapshot, request: Snapshot.load(snapshot.bundle(request).to_json()).shrunk(),
]
_which = st.integers(0, 30)


def _ends(snapshot):
    """Let everybody's claim end some day."""
    end = datetime.datetime(2080, 1, 1, tzinfo=datetime.UTC)
    return {name: end for name, _ in snapshot.fleet.places_of_holders.items()}


class Forks(RuleBasedStateMachine):
    """A family of scenarios of one snapshot, each with what it showed after its changes.

    ``pictures`` are those by the number of changes; a change that counts as several shows none in
    between.
    """

    @initialize(world=st.sampled_from(FITTING))
    def begin(self, world):
        self.ledger, self.request = world[0](world[1])
        self.snapshot = self.ledger.snapshot()
        self.origin = told(self.snapshot)
        self.family = [(self.snapshot.fork(), {0: self.origin})]

    def _one(self, which):
        return self.family[which % len(self.family)]

    @rule(which=_which)
    def fork(self, which):
        scenario, pictures = self._one(which)
        self.family.append((scenario.fork(), {0: pictures[len(scenario)]}))

    @rule(which=_which, seed=st.integers(0, 2**16))
    def change(self, which, seed):
        scenario, pictures = self._one(which)
        Doors(random.Random(seed), self.request).step(scenario)
        pictures[len(scenario)] = told(scenario.snapshot)

    @rule(which=_which, seed=st.integers(0, 2**16))
    def change_unseen(self, which, seed):
        """Make changes between which nobody looks: some write where those before them did."""
        scenario, pictures = self._one(which)
        doors = Blind(random.Random(seed), self.request, self.snapshot)
        for _ in range(4):
            doors.step(scenario)
        pictures[len(scenario)] = told(scenario.snapshot)

    @rule(which=_which, back=st.integers(0, 4))
    def undo(self, which, back):
        scenario, pictures = self._one(which)
        if not back or not len(scenario):
            if not len(scenario):
                with raises_code("InvalidField"):
                    scenario.undo()
            return
        for number in [number for number in pictures if number > max(0, len(scenario) - back)]:
            del pictures[number]
        scenario.undo(max(pictures))

    @rule(which=_which, number=st.integers(0, len(QUESTIONS) - 1))
    def ask(self, which, number):
        """Ask something: no question changes anything."""
        scenario, _ = self._one(which)
        with contextlib.suppress(exceptions.InvalidInput, exceptions.SearchLimitReached):
            QUESTIONS[number](scenario.snapshot, self.request)

    @precondition(lambda self: len(self.family) > 1)
    @rule(which=_which, other=_which)
    def differ(self, which, other):
        (one, _), (two, _) = self._one(which), self._one(other)
        assert bool(one.diff(two)) is (told(one.snapshot) != told(two.snapshot))
        assert bool(one.diff()) is (told(one.snapshot) != self._begun(one))

    def _begun(self, one):
        return next(pictures[0] for scenario, pictures in self.family if scenario is one)

    @rule()
    def look(self):
        for scenario, pictures in self.family:
            assert told(scenario.snapshot) == pictures[len(scenario)]
        assert told(self.snapshot) == self.origin

    def teardown(self):
        if hasattr(self, "ledger"):
            self.look()
            assert told(self.ledger.snapshot()) == self.origin
            self.ledger.close()


@pytest.mark.law(2)
@pytest.mark.drawn
def test_no_fork_touches_another_whatever_is_tried_in_it():
    few = hypothesis.settings(hypothesis.settings.default, stateful_step_count=15)
    run_state_machine_as_test(Forks, settings=few)
