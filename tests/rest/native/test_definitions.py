"""``/ro/providers``, ``/ro/trees`` and ``/ro/disabled``."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.site import Site, export_site
from tests.rest.native.conftest import Native, serving
from tests.search import device_fleets
from tests.support import fleets

CARD = "0000:10:00.0"


def gpu_host(name: str = "lab-0") -> ro.Provider:
    """Return a host with cells and devices."""
    host = ro.Provider(name, "PCPU=8,MEMORY_MB=2048", traits=["CUSTOM_FAST"])
    cells = [ro.HostCell(n, dedicated=range(4 * n, 4 * n + 4), memory_mb=1024) for n in (0, 1)]
    host.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory(cells))
    gpu = ro.Device(CARD, "10de", "2330", resource_class="PGPU", numa_node=0)
    host.add_parts("DEVICES", ro.PCIInventory([gpu]))
    return host


def _there_and_back(ledger: ro.Ledger) -> None:
    """Assert that what one service tells of all trees another one makes."""
    site = export_site(ledger)
    told = Native(serving(ledger))
    with ro.connect("memory://") as other:
        made = Native(serving(other))
        for name in site.machine_names:
            tree = told.do("GET", f"/trees/{name}")
            body = {"definition": tree["definition"], "pool": tree["pool"]}
            again = made.do("PUT", f"/trees/{name}", body)
            assert again["definition"] == tree["definition"]
        assert str(export_site(other)) == str(site)


@given(st.integers(0, 2**32))
def test_trees_with_devices_and_topologies_go_there_and_back(seed: int) -> None:
    ledger, _ = device_fleets.fleet(seed)
    with ledger:
        _there_and_back(ledger)


@given(st.integers(0, 2**32))
def test_trees_with_shares_and_pools_go_there_and_back(seed: int) -> None:
    with ro.connect("memory://") as ledger:
        for root in fleets.fleet(random.Random(seed), shares=True):
            try:
                ledger.sync(root)
            except exceptions.Conflict as error:
                if not error.is_about("pool"):
                    raise
                continue
        _there_and_back(ledger)


@given(st.integers(0, 2**32))
def test_a_site_is_plain_data_and_back(seed: int) -> None:
    ledger, _ = device_fleets.fleet(seed)
    with ledger:
        site = export_site(ledger)
    assert Site.from_dict(site.to_dict()) == site


def test_a_tree_is_told_whole(native: Native) -> None:
    native.ledger.sync(gpu_host())
    native.ledger.claim("job", native.ledger.snapshot().candidates("PGPU=1"))
    tree = native.do("GET", f"/trees/lab-0%2F{CARD}")
    assert (tree["name"], tree["pool"], tree["plan"]) == ("lab-0", False, None)
    assert tree["definition"]["traits"] == ["CUSTOM_FAST"]
    assert set(tree["generations"]) == {"lab-0", "lab-0/numa0", "lab-0/numa1", f"lab-0/{CARD}"}
    used = {(one["provider"], one["resource_class"]): one for one in tree["usage"]}
    assert used[f"lab-0/{CARD}", "PGPU"]["holders"] == {"job": 1}
    place = {"provider": f"lab-0/{CARD}", "resource_class": "PGPU"}
    assert tree["units"] == [{**place, "unit": CARD, "consumer": "job"}]
    assert native.refused("GET", "/trees/nobody") == (404, "ProviderNotFound")


def test_nobodys_change_is_lost(native: Native) -> None:
    native.ledger.sync(gpu_host())
    tree = native.do("GET", "/trees/lab-0")
    native.ledger.change(f"lab-0/{CARD}", traits=["CUSTOM_NEW"])
    tree["definition"]["traits"] = []
    body = {key: tree[key] for key in ("definition", "generations")}
    assert native.refused("PUT", "/trees/lab-0", body) == (409, "StaleDefinition")
    assert native.ledger.provider("lab-0").traits == {"CUSTOM_FAST"}
    body["generations"] = {"lab-0": tree["generations"]["lab-0"]}
    done = native.do("PUT", "/trees/lab-0", body)
    assert done["definition"].get("traits") is None
    assert native.ledger.provider(f"lab-0/{CARD}").traits == frozenset()


def test_what_is_not_said_goes_or_is_left_alone(native: Native) -> None:
    native.ledger.sync(gpu_host(), ro.Provider("lab-1", "VCPU=1"))
    left = {"definition": {"traits": ["CUSTOM_B"]}, "prune": False}
    assert len(native.do("PUT", "/trees/lab-0", left)["definition"]["children"]) == 3
    body = {"definition": {"inventories": {"DISK_GB": 9}}}
    plan = native.do("PUT", "/trees/lab-0", {**body, "dry_run": True})["plan"]
    assert f"- lab-0/{CARD}" in plan
    assert len(list(native.ledger.providers())) == 5
    done = native.do("PUT", "/trees/lab-0", body)
    assert done["definition"] == {"inventories": "DISK_GB=9"}
    assert sorted(one.name for one in native.ledger.providers()) == ["lab-0", "lab-1"]


def test_a_tree_is_made_and_removed(native: Native) -> None:
    definition = {
        "inventories": "VCPU=64",
        "children": {"/gpu[0-3]": {"inventories": {"PGPU": 1}, "traits": ["CUSTOM_H100"]}},
    }
    assert native.do("PUT", "/trees/a[0]", {"definition": definition, "dry_run": True})["plan"]
    assert list(native.ledger.providers()) == []
    made = native.do("PUT", "/trees/a[0]", {"definition": definition})
    assert len(made["generations"]) == 5
    assert native.do("DELETE", "/trees/a[0]%2Fgpu3") == {"removed": 1}
    assert native.refused("PUT", "/trees/a[0]%2Fgpu2", {"definition": {}}) == (400, "InvalidTree")
    native.do("POST", "/claims", {"consumer": "job", "request": "PGPU=1"})
    assert native.refused("DELETE", "/trees/a[0]") == (409, "ProviderInUse")
    assert native.refused("PUT", "/trees/a[0]", {"definition": {}}) == (409, "ProviderInUse")
    native.do("DELETE", "/consumers/job")
    assert native.do("DELETE", "/trees/a[0]") == {"removed": 4}


@pytest.mark.parametrize(
    "definition",
    [
        {"inventories": "VCPU"},
        {"inventories": {"VCPU": {"total": "many"}}},
        {"traits": ["no"]},
        {"nothing": 1},
        {"shares": ["VCPU uses 1 VCPU of /"]},
        {"structured": {"DEVICES": {"classes": "PGPU=1", "body": {"version": 7}}}},
        {"children": {"[0-": {}}},
        {"children": {"/x[0-99999999]": {}}},
    ],
)
def test_what_cannot_be_is_refused(native: Native, definition: object) -> None:
    response = native.ask("PUT", "/trees/lab-0", {"definition": definition})
    assert response.status_int == 400, response.text
    assert ", line" not in response.json["errors"][0]["detail"]
    assert list(native.ledger.providers()) == []


def test_providers_are_listed_by_filters_in_pages(native: Native) -> None:
    for number in range(3):
        native.ledger.sync(
            ro.Provider(f"h{number}", f"VCPU={number + 1}", aggregates=["r"], traits=["CUSTOM_A"])
        )
    page = native.do("GET", "/providers?limit=2")
    assert ([one["name"] for one in page["providers"]], page["after"]) == (["h0", "h1"], "h1")
    rest = native.do("GET", "/providers?limit=2&after=h1")
    assert ([one["name"] for one in rest["providers"]], rest["after"]) == (["h2"], None)
    for query, expected in (
        ("room=VCPU%3D2", ["h1", "h2"]),
        ("required=CUSTOM_A&forbidden_aggregates=r", []),
        ("name=h0&name=h2", ["h0", "h2"]),
        ("over_capacity=true", []),
    ):
        found = native.do("GET", f"/providers?{query}")["providers"]
        assert [one["name"] for one in found] == expected, query
    for query in ("limit=0", "limit=x", "room=VCPU", "over_capacity=1", "x=1", "limit=1&limit=2"):
        assert native.ask("GET", f"/providers?{query}").status_int == 400, query


# --- out of service -------------------------------------------------------------------------------


def test_what_is_out_of_service_is_said_listed_and_ended(native: Native) -> None:
    native.ledger.sync(gpu_host(), gpu_host("lab-1"))
    native.ledger.claim("job", native.ledger.snapshot().candidates("PGPU=1"))
    until = "2099-01-01T00:00:00+00:00"
    headers = {"x-auth-token": "ann:lab", "x-roles": "admin"}
    body = {"reason": "fan", "until": until}
    told = native.ask("PUT", "/disabled/lab-0", body, headers=headers).json
    assert (told["consumers"], told["disabled"]["by"]) == (["job"], "ann")
    native.do("PUT", f"/disabled/lab-1%2F{CARD}", {"reason": "link"})
    listed = native.do("GET", "/disabled")["disabled"]
    facts = [(one["provider"], one["reason"], one["until"]) for one in listed]
    assert sorted(facts, key=str) == [
        ("lab-0", "fan", until),
        (f"lab-1/{CARD}", "link", None),
    ]
    assert len(native.do("GET", "/disabled?tree=lab-1")["disabled"]) == 1
    answer = native.do("POST", "/search", {"request": "PGPU=1"})
    assert answer["candidates"] == []
    rules = {
        reason["rule"] for some in answer["explanation"]["refused"].values() for reason in some
    }
    assert "disabled" in rules
    assert native.do("DELETE", "/disabled/lab-0")["disabled"] is None
    assert native.do("DELETE", f"/disabled/lab-1/{CARD}")["disabled"] is None
    assert native.do("GET", "/disabled") == {"disabled": []}


def test_what_cannot_be_disabled_is_refused(native: Native) -> None:
    native.ledger.sync(ro.Provider("host0", "VCPU=8"))
    assert native.refused("PUT", "/disabled/nobody", {"reason": "x"}) == (404, "ProviderNotFound")
    unit = {"reason": "x", "unit": "0000:3b:00.2"}  # a device is disabled as a whole
    for body in ({}, {"reason": ""}, {"reason": "a\nb"}, {"reason": "x", "until": "soon"}, unit):
        assert native.refused("PUT", "/disabled/host0", body)[0] == 400
    past = {"reason": "x", "until": "2020-01-01T00:00:00+00:00"}
    assert native.refused("PUT", "/disabled/host0", past) == (400, "InvalidField")
    assert native.refused("DELETE", "/disabled/nobody") == (404, "ProviderNotFound")
