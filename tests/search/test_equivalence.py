"""Equal providers: whoever is named one is told nothing by which of them it is."""

from __future__ import annotations

import random
import threading

import pytest

from resource_objects.providers import Provider
from resource_objects.search import Snapshot
from resource_objects.search.equivalence import Equivalence, equivalence
from resource_objects.search.fleet import Fleet
from tests.search import oracle
from tests.support import enumerator, fleets
from tests.support.columns import columns_of
from tests.support.lengths import examples


def fleet_of(*roots: Provider) -> Fleet:
    return Snapshot(columns_of(roots))._fleet


def equal(fleet: Fleet) -> dict[str, object]:
    return {name: equivalence(fleet).of(fleet, place) for place, name in enumerate(fleet.names)}


def test_equal_are_leaves_below_one_parent_that_differ_in_their_names_alone():
    root = Provider("h", "VCPU=4")
    for cell in ("a", "b"):
        above = root.add(f"h/{cell}", "MEMORY_MB=4")
        for number in range(3):
            above.add(f"h/{cell}/{number}", "PGPU=2", traits=["CUSTOM_A"])
    told = equal(fleet_of(root))
    assert told["h/a/0"] == told["h/a/1"] == told["h/a/2"] != told["h/b/0"]
    assert told["h/b/0"] == told["h/b/2"]
    assert len({told["h"], told["h/a"], told["h/b"], told["h/a/0"]}) == 4


@pytest.mark.parametrize(
    "differs",
    [
        {"inventories": "PGPU=3"},
        {"inventories": "PGPU=2:used=1"},
        {"inventories": "PGPU=2:max_unit=1"},
        {"inventories": "PGPU=2:min_unit=2"},
        {"inventories": "PGPU=2:step_size=2"},
        {"inventories": "PGPU=2,VGPU=1"},
        {"inventories": "VGPU=2"},
        {"inventories": "PGPU=2", "traits": ["CUSTOM_A"]},
        {"inventories": "PGPU=2", "aggregates": ["r"]},
        {"inventories": "PGPU=2", "traits": ["MISC_SHARES_VIA_AGGREGATE"]},
        {"inventories": "PGPU=2", "children": [Provider("h/x/0", "VGPU=1")]},
    ],
    ids=str,
)
def test_whoever_differs_in_anything_is_another(differs):
    root = Provider("h", "VCPU=4", children=[Provider("h/0", "PGPU=2"), Provider("h/1", "PGPU=2")])
    root.update(children=[*root.children, Provider("h/x", **differs)])
    told = equal(fleet_of(root))
    assert told["h/0"] == told["h/1"] != told["h/x"]


@pytest.mark.drawn
@pytest.mark.law(5)
def test_whoever_has_another_of_equal_names_finds_the_same():
    """The names of equal providers are exchanged: the forms of all candidates are the same."""
    exchanged, tries = 0, examples(500)
    for seed in range(tries):
        case = fleets.alike(random.Random(seed), shares=seed % 2 == 0)
        before, request = columns_of(case.roots), case.request
        fleet = Snapshot(before)._fleet
        together: dict[object, list[str]] = {}
        for name, one in equal(fleet).items():
            together.setdefault(one, []).append(name)
        names = {}
        for some in together.values():
            names.update(zip(some, some[1:] + some[:1], strict=True))
            exchanged += len(some) > 1
        given = before.providers
        after = before.__class__(
            given._replace(name=[names[name] for name in given.name]),
            *(getattr(before, field) for field in list(before.__dataclass_fields__)[1:]),
        )
        forms = [
            sorted(map(str, enumerator.forms(columns, request, oracle.listed(columns, request))))
            for columns in (before, after)
        ]
        assert len(forms[0]) == len(forms[1]), seed
    assert exchanged > 2 * tries / 3


def test_all_threads_have_the_same_one(monkeypatch):
    """Its numbers mean nothing to another one, though two threads may have made one each."""
    fleet = fleet_of(Provider("h", "VCPU=4", children=[Provider("h/0", "PGPU=1")]))
    both, found = threading.Barrier(2), []
    made = Equivalence.__init__

    def slowly(self: Equivalence, fleet: Fleet) -> None:
        made(self, fleet)
        both.wait(10)

    monkeypatch.setattr(Equivalence, "__init__", slowly)
    threads = [threading.Thread(target=lambda: found.append(equivalence(fleet))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is equivalence(fleet)
