"""What is told of many hosts at once is what is told of each by itself, and costs little."""

from __future__ import annotations

import dataclasses
import pickle
import random
from collections import Counter

import numpy as np
import pytest

from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request
from resource_objects.search import Snapshot
from resource_objects.search.explain import Explanation, HostReasons, find_reasons, label
from resource_objects.search.findings import Check
from tests.search.worlds import case, held_by
from tests.support import fleets
from tests.support.columns import columns_of
from tests.support.lengths import some


def limits_of(chance, roots):
    """Return limits of one provider, or none."""
    every = [one for root in roots for one in root.walk() if one.inventories]
    if not every or chance.random() < 0.7:
        return None
    one = chance.choice(every)
    return {one.name: {str(name): chance.choice([1, 2]) for name in one.inventories}}


@pytest.mark.parametrize("start", some(range(0, 12_000, 100)))
def test_many_at_once_are_told_what_each_is_told(start):
    at_once = 0
    for seed in range(start, start + 100):
        roots, request = case(seed)
        chance = random.Random(seed)
        held = {(row[0], *row[1:3]): row for row in held_by(chance, roots)}
        snapshot = Snapshot(columns_of(roots, held.values()))
        limits = limits_of(chance, roots)
        told = snapshot.candidates(request, limit=None, limits=limits).explain()
        problem, refused = told._problem, told._outcome.refused
        many = HostReasons(problem, refused)
        each = {
            tree: find_reasons(problem, np.array([tree])).by_tree().get(tree, ())
            for tree in refused.tolist()
        }
        found = many.by_tree()
        assert {tree: found[tree] for tree in each} == each, seed
        counts = Counter(name for reasons in each.values() for name in set(map(label, reasons)))
        assert many.labels(refused) == counts, seed
        assert many.count() == sum(map(len, each.values())), seed
        at_once += len(each) - len(set(many.open.tolist()) & each.keys())
    assert at_once > 20


class Odd:
    """Refuses every second host, as a scheduler's filter does."""

    rule = Rule.FILTER

    def __init__(self, fleet):
        self.fleet = fleet

    def mask(self):
        return np.arange(len(self.fleet.hosts)) % 2 == 0

    def among(self, trees):
        return trees % 2 == 0

    def checks(self):
        yield Check(self.mask(), self.rule)

    def holds(self, tree):
        return tree % 2 == 0

    def find(self, findings, hosts):
        failing = hosts & ~self.among(findings.hosts.trees)
        findings.add(self, self.rule, np.flatnonzero(failing), 1, unit="it is odd", filter="odd")


def test_who_a_filter_refuses_is_told_so_and_nothing_else():
    roots = [fleets.Provider(f"host{number}", "VCPU=8") for number in range(6)]
    snapshot = Snapshot(columns_of(roots))
    filters = [lambda fleet, request: Odd(fleet)]
    told = snapshot.candidates("VCPU=9", limit=None, filters=filters).explain()
    rules = {host: [reason.rule for reason in reasons] for host, reasons in told.by_host()}
    assert rules == {f"host{n}": [Rule.FILTER if n % 2 else Rule.CAPACITY] for n in range(6)}


def explained(count: int, request: Request) -> Explanation:
    roots = [fleets.Provider(f"host{number:04}", "VCPU=8") for number in range(count)]
    return Snapshot(columns_of(roots)).candidates(request, limit=None).explain()


def test_arrays_tell_of_a_fleet_without_a_decision():
    """All of them are told at once: nothing is asked of one host."""
    told = explained(200, Request("VCPU=9"))
    assert not len(told._of_refused.open)
    assert len(told.reasons) == 200


def test_reasons_from_arrays_are_reasons_like_all_others():
    (reason, *_) = explained(2, Request("VCPU=9")).reasons
    equal = Reason(Rule.CAPACITY, 9, 8, 0, "VCPU", "host0000")
    assert type(reason) is Reason
    assert (reason, hash(reason), str(reason)) == (equal, hash(equal), str(equal))
    assert pickle.loads(pickle.dumps(reason)) == equal
    with pytest.raises(dataclasses.FrozenInstanceError):
        reason.bound = 9
