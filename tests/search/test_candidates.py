"""A candidate is a value that can be claimed; candidates are an answer that cannot be misread."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.base import ResourceObject
from resource_objects.providers import Allocation, Provider
from resource_objects.providers.definition import diff
from resource_objects.providers.orders import Operation
from resource_objects.requests import Request
from resource_objects.resources import Amounts, IntegerAmount
from resource_objects.search import Candidate, Snapshot
from resource_objects.testing.refusals import raises_code
from tests.search import generated
from tests.support.columns import columns_of
from tests.support.lengths import examples, some


def taken(provider="host0", resource_class="VCPU", amount=2):
    return Allocation(
        provider=provider, resource_class=resource_class, amount=IntegerAmount(amount)
    )


ONE = Candidate(host="host0", allocations=[taken(), taken("host0/gpu0", "PGPU", 1)])


def test_there_and_back():
    assert ResourceObject.obj_from_primitive(ONE.obj_to_primitive()) == ONE
    assert pickle.loads(pickle.dumps(ONE)) == ONE
    assert ONE.obj_to_primitive()["versioned_object.name"] == "resource_objects.Candidate"


def test_what_a_candidate_says():
    assert str(ONE) == "VCPU=2 of host0, PGPU=1 of host0/gpu0"
    assert ONE.amounts == Amounts("VCPU=2,PGPU=1")
    assert ONE.by_provider() == {"host0": Amounts(VCPU=2), "host0/gpu0": Amounts(PGPU=1)}


def test_parts_of_a_class_add_up():
    pair = Candidate(host="h", allocations=[taken("a", "PGPU", 1), taken("b", "PGPU", 2)])
    assert pair.amounts == Amounts(PGPU=3)


@pytest.mark.parametrize(
    ("allocations", "error"),
    [
        ([], "InvalidField"),
        ([taken(amount=0)], "InvalidField"),
        ([taken(amount=-1)], "InvalidField"),
        ([taken(), taken(amount=1)], "DuplicateKey"),
        ([ONE], "InvalidField"),
        (None, "InvalidField"),
    ],
)
def test_a_candidate_that_cannot_be_is_refused(allocations, error):
    with raises_code(error):
        Candidate(host="host0", allocations=allocations)


def test_a_candidate_does_not_change():
    with pytest.raises(exceptions.FrozenValue):
        ONE.host = "host1"


def test_candidates_are_a_sequence():
    hosts = [Provider(f"host{n}", "VCPU=4") for n in range(3)]
    request = Request("VCPU=2")
    found = Snapshot(columns_of(hosts)).candidates(request)
    assert found
    assert len(found) == 3
    assert [one.host for one in found] == ["host0", "host1", "host2"]
    assert [one.host for one in reversed(found)] == ["host2", "host1", "host0"]
    assert (found[0].host, found[-1].host) == ("host0", "host2")
    assert [one.host for one in found[1:]] == ["host1", "host2"]
    assert found[1] in found
    assert found.index(found[2]) == 2
    assert found.request is request
    assert repr(found) == "<Candidates: 3 for VCPU=2>"


# --- law 6: every candidate can be claimed on an unchanged ledger ---------------------------------

texts = st.sampled_from(
    ["PGPU=1", "PGPU=2", "PGPU=4:max_unit=2", "PGPU=4:min_unit=2", "PGPU=6:step_size=2",
     "PGPU=3,CUSTOM_X=1", "CUSTOM_X=1", "VCPU=4,CUSTOM_X=2"]
)  # fmt: skip
tagged = st.sets(st.sampled_from(["CUSTOM_A", "CUSTOM_B"]))


@st.composite
def hosts(draw, name):
    root = Provider(name, draw(st.sampled_from(["VCPU=8", "VCPU=8:allocation_ratio=2", "VCPU=4"])))
    for n in range(draw(st.integers(0, 4))):
        root.add(f"{name}/{n}", draw(texts), traits=draw(tagged))
    return root


@st.composite
def requests(draw):
    amounts = draw(
        st.dictionaries(
            st.sampled_from(["VCPU", "PGPU", "CUSTOM_X"]), st.integers(1, 5), min_size=1
        )
    )
    required = draw(tagged)
    return Request(amounts, required=required, forbidden=draw(tagged) - required)


@pytest.mark.law(6)
@settings(max_examples=examples(100))
@given(st.tuples(hosts("host0"), hosts("host1")), st.lists(requests(), min_size=1, max_size=6))
def test_every_candidate_can_be_claimed_on_an_unchanged_ledger(roots, asked):
    with ro.connect("memory://") as ledger:
        ledger.sync(*roots)
        for number, request in enumerate(asked):
            for candidate in ledger.snapshot().candidates(request):
                claim = ledger.claim("try", candidate)
                assert claim.amounts == request.resources
                ledger.release("try")
            found = ledger.snapshot().candidates(request)
            if found:
                ledger.claim(f"job-{number}", found)


@pytest.mark.law(6)
@pytest.mark.parametrize("make", [generated.mixed, generated.crowded])
@pytest.mark.parametrize("start", some(range(0, 80, 20), 2))
def test_every_candidate_can_be_claimed_where_much_is_shared(make, start):
    for seed in range(start, start + 20):
        with ro.connect("memory://") as ledger:
            for root in make(seed)[0]:  # a ledger refuses what is counted at a pool and a host
                ledger.backend.define(Operation(), diff(None, root))
            for number in range(6):
                request = make(1000 * number + seed)[1]
                found = ledger.snapshot().candidates(request, limit=None)
                for candidate in found:
                    claim = ledger.claim("try", candidate, if_generation=True)
                    assert claim.amounts == request.resources, (seed, number)
                    ledger.release("try")
                if found:
                    ledger.claim(f"job-{number}", found)


def test_generations_go_there_and_back():
    uuid = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
    told = ONE.replace(generations=[(uuid, 3)])
    assert told.generations == ((uuid, 3),)
    assert ResourceObject.obj_from_primitive(told.obj_to_primitive()) == told


@pytest.mark.parametrize("suffix", ["", "1", "_NIC", "-", "a" * 64])
def test_who_gives_which_group_goes_there_and_back(suffix):
    told = ONE.replace(mappings={suffix: ["host0", "host0/gpu0"]})
    assert told.mappings == {suffix: ("host0", "host0/gpu0")}
    assert (
        ResourceObject.obj_from_primitive(json.loads(json.dumps(told.obj_to_primitive()))) == told
    )
    with pytest.raises(exceptions.FrozenValue):
        told.mappings["other"] = ()


@pytest.mark.parametrize(
    "generations", [[("host0", 3)], [("1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33", -1)], [3], "x", None]
)
def test_generations_are_of_uuids(generations):
    with pytest.raises(exceptions.ResourceObjectsError):
        ONE.replace(generations=generations)


def test_a_candidate_tells_the_definitions_it_was_decided_on():
    host = Provider("host0", traits=["CUSTOM_A"])
    host.add("host0/numa0").add("host0/numa0/gpu0", "PGPU=1")
    host.add("host0/numa1", "VCPU=8")
    with ro.connect("memory://") as ledger:
        ledger.sync(host)
        ledger.change("host0", traits=["CUSTOM_A", "CUSTOM_B"])
        (found,) = ledger.snapshot().candidates(Request("PGPU=1", required=["CUSTOM_A"]))
        kept = {one.name: one for one in ledger.provider("host0").walk()}
    above = [kept[name] for name in ("host0/numa0/gpu0", "host0/numa0", "host0")]
    assert found.generations == tuple((one.uuid, one.generation) for one in above)
    assert kept["host0"].generation > 0
