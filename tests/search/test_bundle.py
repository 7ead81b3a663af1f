"""A question as a file: the same answer after loading, and as small as it can be."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import re

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.cli.what_if import bundle_text
from resource_objects.search import Order, Snapshot
from resource_objects.search.bundle import PARTS, answer_of, outcome_of
from resource_objects.testing.refusals import raises_code
from tests.search.doors import WORLDS, Doors
from tests.support.drawn_bundles import drawn
from tests.support.drawn_cases import DrawnCase
from tests.support.lengths import examples

BUNDLES = pathlib.Path(__file__).parents[1] / "bundles"


def said(found):
    return [str(one) for one in found], str(found.explain())


@pytest.mark.law(5, 9)
@settings(max_examples=examples(200))
@given(st.sampled_from(WORLDS), st.integers(0, 2**20))
def test_a_saved_question_gives_the_same_answer_after_loading(fleets, seed):
    """Of any fleet: with shares, pools, topologies, devices, things out of service, and limits."""
    made = fleets(seed)
    assume(made is not None)
    ledger, request = made
    chance = random.Random(seed)
    with ledger:
        scenario = ledger.snapshot().fork()
    doors = Doors(chance, request)
    for _ in range(chance.choice([0, 3, 6])):
        doors.step(scenario)
    options = asked(chance, scenario.snapshot)
    bundle = scenario.snapshot.bundle(request, **options).answered()
    found = scenario.candidates(request, **options)
    again = Snapshot.load(bundle.to_json())
    assert said(again.ask()) == said(bundle.ask()) == said(found)
    assert again.holds()
    small = Snapshot.load(again.shrunk().to_json())
    assert small.holds() and outcome_of(small.ask()) == outcome_of(found)
    check_smallest(small)
    event(f"{fleets.__name__}, {'some' if found else 'none'}")


def asked(chance, snapshot):
    """Return options of a search."""
    fleet = snapshot.fleet
    limits = {
        name: {snapshot.classes[0]: chance.randint(0, 4)}
        for name in chance.sample(fleet.names, min(2, len(fleet.names)))
        if snapshot.classes
    }
    weighted = Order("pack", weights={"VCPU": 2}, preferred={"CUSTOM_A": 1}, among=3)
    order = chance.choice(["name", "spread", Order("spread"), weighted])
    return {
        "limit": chance.choice([1, 5, None]),
        "seed": chance.choice([None, chance.randrange(99)]),
        "order": order,
        "limits": chance.choice([None, limits]),
    }


def check_smallest(bundle):
    """Leave out each thing alone: the answer is another one then, or the picture none."""
    wanted = outcome_of(bundle.ask())
    for list_all, remove in PARTS:
        for one in list_all(bundle.columns):
            fewer = dataclasses.replace(bundle, columns=remove(bundle.columns, [one]))
            try:
                found = outcome_of(fewer.ask())
            except exceptions.ResourceObjectsError:
                continue
            assert found != wanted, (one, wanted)


def lab():
    ledger = ro.connect("memory://")
    for n in range(6):
        host = ro.Provider(f"host{n}", "VCPU=8,DISK_GB=100", traits=["CUSTOM_SSD"] if n else [])
        host.add(f"host{n}/gpu", "PGPU=2")
        ledger.sync(host)
        ledger.claim(f"job-{n}", {f"host{n}": "VCPU=6", f"host{n}/gpu": "PGPU=1"})
    return ledger


def test_what_the_answer_does_not_need_is_left_out_and_no_more():
    request = ro.Request("VCPU=4", required=["CUSTOM_SSD"])
    with lab() as ledger:
        bundle = ledger.snapshot().bundle(request)
    small = bundle.shrunk()
    left = small.columns
    assert left.providers.name == ("host0", "host2")  # all others are refused as host2 is
    assert left.traits.trait == ("CUSTOM_SSD",) and not left.units.unit
    assert left.inventories.resource_class == ("VCPU", "VCPU")
    assert left.allocations.consumer == ("job-0", "job-2")
    assert str(small.ask().explain()).count("free 2 of 8") == 2


def test_what_is_to_stay_may_be_said():
    with lab() as ledger:
        bundle = ledger.snapshot().bundle("VCPU=2", limit=None)
    small = bundle.shrunk(lambda found: len(found) >= 3)
    assert len(small.ask()) == 3
    assert len(small.columns.providers.name) == 3


def test_a_bundle_of_counts_is_drawn_as_a_scenario_file_that_holds(tmp_path):
    with lab() as ledger:
        for request in (ro.Request("VCPU=4", required=["CUSTOM_SSD"]), ro.Request("PGPU=1")):
            text = drawn(ledger.snapshot().bundle(request, limit=2).shrunk(), "it was reported")
            path = tmp_path / "reported.txt"
            path.write_text(text)
            DrawnCase.read(path).run()
    assert text.startswith("host")


@pytest.mark.law(5, 9)
@pytest.mark.parametrize("path", sorted(BUNDLES.glob("*.txt")), ids=lambda path: path.stem)
def test_a_file_that_was_reported_gives_its_answer_still(path):
    """Such as ``what-if --bundle FILE`` writes: drawn, and with the answer.

    Where an answer was wrong, and is another one since, ``bundle_text(loaded.answered())`` is what
    the file says from then on.
    """
    text = path.read_text(encoding="utf-8")
    bundle = Snapshot.load(text)
    assert bundle.holds(), answer_of(bundle.ask())
    head, body = parts_of(text)
    assert body["tables"].pop("disabled_units", {}) == {}, "a table of older files, still read"
    assert (head, body) == parts_of(bundle_text(bundle)), "what is drawn is so"
    assert not dataclasses.replace(bundle, answer={"candidates": ["host9"]}).holds()


def parts_of(text):
    """Return the drawing in the head of a file, without its sentences, and the data below it."""
    lines = text.splitlines()
    head = [line for line in lines if line.startswith("#")]
    drawn_lines = [line for line in head if not re.match(r"#   [^ │├└]", line)]
    return drawn_lines, json.loads("\n".join(lines[len(head) :]))


def test_an_order_and_limits_are_said_in_a_file():
    with lab() as ledger:
        order = Order("pack", weights={"VCPU": 2}, preferred={"CUSTOM_SSD": 1}, among=2)
        options = {"order": order, "seed": 3, "limits": {"host3": "VCPU=7", "host1": {"VCPU": 6}}}
        snapshot = ledger.snapshot()
        again = Snapshot.load(snapshot.bundle("VCPU=2", **options).to_json())
        assert said(again.ask()) == said(snapshot.candidates("VCPU=2", **options))
        assert "under the limit of 6 (job-1 holds 6)" in str(again.ask().explain())
        weighed = Order(weigh=lambda fleet, request, trees: trees)
        with raises_code("InvalidText", match="an order that a file can say"):
            snapshot.bundle("VCPU=2", order=weighed)


def test_a_confined_picture_is_confined_again():
    with lab() as ledger:
        bundle = ledger.snapshot("host1/gpu").bundle("PGPU=1")
    assert [str(one) for one in Snapshot.load(bundle.to_json()).ask()] == ["PGPU=1 of host1/gpu"]


def _changed(data, *way, to):
    *first, last = way
    at = data
    for key in first:
        at = at[key]
    at[last] = to


@pytest.mark.parametrize(
    ("way", "to", "error"),
    [
        (["version"], 2, exceptions.UnsupportedVersion),
        (["more"], 2, "UnknownField"),
        (["tables"], {}, "InvalidText"),
        (["tables", "providers", "name"], "host0", "InvalidText"),
        (["tables", "providers", "name"], [], "InvalidRow"),
        (["tables", "inventories", "total", 0], "8", "InvalidText"),
        (["tables", "inventories", "total", 0], 2**70, "InvalidText"),
        (["tables", "inventories", "provider_id", 0], 99, "InvalidRow"),
        (["tables", "traits", "trait", 0], 8, "InvalidText"),
        (["tables", "traits", "colour"], [], "InvalidText"),
        (["request"], "VCPU=1", exceptions.InvalidInput),
        (["options", "budget"], "many", "InvalidText"),
        (["options", "limit"], True, "InvalidText"),
        (["options", "order"], 3, "InvalidText"),
        (["options", "order"], {"by": "best"}, "InvalidRequest"),
        (["options", "order"], {"colour": "red"}, "UnknownField"),
        (["options", "limits"], ["host0"], "InvalidText"),
        (["options", "limits"], {"host0": {"VCPU": -1}}, exceptions.InvalidInput),
        (["options"], [], "InvalidText"),
        (["now"], "yesterday", "InvalidText"),
        (["at"], "nobody", "ProviderNotFound"),
    ],
)
def test_a_file_that_somebody_edited_is_refused_by_what_is_wrong(way, to, error):
    with lab() as ledger:
        data = json.loads(ledger.snapshot().bundle("VCPU=1").to_json())
    _changed(data, *way, to=to)
    with raises_code(error):
        Snapshot.load(json.dumps(data))


def test_what_no_search_takes_is_no_option():
    with lab() as ledger, raises_code("InvalidText", match="colour"):
        ledger.snapshot().bundle("VCPU=1", colour="red")
