"""Plans on a ledger: what a sync would do, doing it later, and looking without writing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import new_operation
from resource_objects.providers import DefinitionChanges, Provider
from resource_objects.providers.definition import ProviderDefinition
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.orders import ConsumerOrder, Use
from resource_objects.providers.plan import Plan
from resource_objects.testing.refusals import raises_code


def tree(name: str = "host0", inventories: str = "VCPU=8", gpus: int = 2) -> Provider:
    host = Provider(name, inventories)
    for number in range(gpus):
        host.add(f"{name}/gpu{number}", "PGPU=1", traits=["CUSTOM_H100"])
    return host


@pytest.mark.law(11)
def test_a_diff_tells_what_a_sync_would_do_and_writes_nothing(ledger: ro.Ledger) -> None:
    ledger.sync(tree(), tree("host1"))
    at = ledger.backend.cursor()
    wanted = [tree(inventories="VCPU=16", gpus=1), tree("host1"), tree("host2", gpus=0)]
    plan = ledger.diff(*wanted)
    assert ledger.backend.cursor() == at
    assert str(plan).splitlines() == ["+ host2: VCPU=8", "~ host0: VCPU=16", "- host0/gpu1"]
    assert not ledger.diff(tree(), tree("host1"))
    result = ledger.sync(*wanted)
    assert (result.created, result.updated, result.removed) == (1, 1, 1)
    assert not ledger.diff(*wanted)


def test_a_diff_is_applied_from_a_file(ledger: ro.Ledger) -> None:
    ledger.sync(tree())
    kept = ledger.diff(tree(inventories="VCPU=16", gpus=3)).to_json()
    assert ledger.apply(Plan.from_json(kept)) == ()
    assert str(ledger.provider("host0").inventories) == "VCPU=16"
    assert ledger.provider("host0/gpu2").traits == {"CUSTOM_H100"}


def test_a_plan_is_refused_if_the_ledger_moved_on(ledger: ro.Ledger) -> None:
    ledger.sync(tree())
    plan = ledger.diff(tree(inventories="VCPU=16", gpus=3))
    ledger.sync(tree(inventories="VCPU=16", gpus=3))  # names to create exist by now, too
    for dry_run in (True, False):
        with raises_code("StaleDefinition", match="host0"):
            ledger.apply(plan, dry_run=dry_run)
    ledger.remove("host0")
    for dry_run in (True, False):
        with raises_code("StaleDefinition", match="host0"):
            ledger.apply(plan, dry_run=dry_run)


@pytest.mark.parametrize("bad", [[], [tree(), tree()], [None]])
def test_a_diff_is_of_trees(ledger: ro.Ledger, bad: list[Provider]) -> None:
    if not bad:
        assert not ledger.diff()
        return
    with pytest.raises(exceptions.InvalidTree):
        ledger.diff(*bad)


def test_a_class_that_a_pool_gives_is_not_planned_at_a_host(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("host0", "VCPU=1"), Provider("nfs", "DISK_GB=9"))
    ledger.pools.share("nfs", hosts=["host0"])
    with raises_code("CountedTwice"):
        ledger.diff(Provider("host0", "VCPU=1,DISK_GB=9"))


# --- plans that somebody edited ---

NEW = "5fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"


def edited(ledger: ro.Ledger) -> dict[str, Any]:
    """Return the plain data of a plan: a cell is made, another one is changed."""
    host = Provider("host0", "VCPU=8,MEMORY_MB=8")
    host.add("host0/a", "VCPU=4", shares=[vcpu("host0")])
    host.add("host0/b", "VCPU=4")
    ledger.sync(host, Provider("host1", "VCPU=8"))
    host.find("host0/b").update(shares=[vcpu("host0")], traits=["CUSTOM_B"])
    host.add("host0/c", "VCPU=2", uuid=NEW, shares=[vcpu("host0")])
    data: dict[str, Any] = json.loads(ledger.diff(host).to_json())
    ledger.apply(Plan.from_dict(data), dry_run=True)
    return data


def vcpu(of: str, factor: int = 1) -> ro.Share:
    return ro.Share(resource_class="VCPU", of=of, of_class="VCPU", factor=factor)


def made(data: dict[str, Any]) -> Any:
    return data["definitions"]["creates"][0]


def changed(data: dict[str, Any], name: str) -> Any:
    (found,) = (one for one in data["definitions"]["updates"] if one["definition"]["name"] == name)
    return found


def share(data: dict[str, Any], **fields: Any) -> None:
    """Let the new cell share something else too."""
    kept = made(data)["shares"][0]
    made(data)["shares"].append({**kept, **fields})


@pytest.mark.law(2, 4)
@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda d, at: share(d, of_uuid=at["host1"]), "the same tree"),
        (lambda d, at: share(d, of_uuid=NEW), "other inventories"),
        (lambda d, at: share(d, factor=2), "each once"),
        (
            lambda d, at: share(d, of_uuid=at["host0/a"]) or made(d)["shares"].pop(0),
            "the shares of each",
        ),
        (lambda d, at: share(d, of_class="DISK_GB"), "DISK_GB as well"),
        (lambda d, at: share(d, resource_class="PGPU"), "PGPU is not counted there"),
        (lambda d, at: made(d).update(parent_uuid=at["host1"]), "the same tree"),
        (lambda d, at: made(d).update(parent_uuid=None), "the same tree"),
        (lambda d, at: made(d).update(parent_uuid=NEW), "below itself"),
        (
            lambda d, at: changed(d, "host0/b")["definition"].update(parent_uuid=at["host1"]),
            "the same tree",
        ),
        (
            lambda d, at: changed(d, "host0/b")["definition"].update(parent_uuid=at["host0/b"]),
            "below itself",
        ),
        (
            lambda d, at: changed(d, "host0")["definition"]["inventories"].pop(1),
            "VCPU as well",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    ledger: ro.Ledger, edit: Callable[[Any, Any], Any], said: str, dry_run: bool
) -> None:
    data = edited(ledger)
    before, told = list(ledger.trees()), ledger.feed.cursor()
    edit(data, {one.name: one.uuid for one in ledger.providers()})
    plan = Plan.from_dict(data)
    with pytest.raises(exceptions.InvalidPlan, match=said):
        ledger.apply(plan, dry_run=dry_run)
    assert list(ledger.trees()) == before
    assert ledger.feed.cursor() == told


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_plan_does_not_make_a_ring_of_two_or_too_deep_a_tree(
    ledger: ro.Ledger, dry_run: bool
) -> None:
    data = edited(ledger)
    ring = {**made(data), "uuid": NEW.replace("5", "6", 1), "name": "ring", "parent_uuid": NEW}
    made(data)["parent_uuid"] = ring["uuid"]
    data["definitions"]["creates"].append(ring)
    with pytest.raises(exceptions.InvalidPlan, match="below itself"):
        ledger.apply(Plan.from_dict(data), dry_run=dry_run)
    chain, above = [], None
    for number in range(102):
        uuid = f"{number:08x}{NEW[8:]}"
        chain.append(ProviderDefinition(uuid, f"deep{number}", above, (), frozenset()))
        above = uuid
    ledger.apply(Plan(DefinitionChanges("deep", tuple(chain[:101]))), dry_run=True)
    with pytest.raises(exceptions.InvalidPlan, match=r"101 levels deep.*at most 100"):
        ledger.apply(Plan(DefinitionChanges("deep", tuple(chain))), dry_run=dry_run)


@pytest.mark.law(2)
@pytest.mark.parametrize("dry_run", [True, False])
def test_only_what_is_there_is_adopted_or_disabled(ledger: ro.Ledger, dry_run: bool) -> None:
    ledger.sync(tree())
    for plan in (Plan(adopted=(NEW,)), Plan(disabling=(DisableOrder(NEW, "fan"),))):
        with raises_code("ProviderNotFound", match=NEW):
            ledger.apply(plan, dry_run=dry_run)
    made = ledger.diff(Provider("host1", uuid=NEW))
    ledger.apply(dataclasses.replace(made, adopted=(NEW,)), dry_run=dry_run)
    adopted = [one.name for one in ledger.providers() if one.adopted_at]
    assert adopted == ([] if dry_run else ["host1"])
    gpu = ledger.provider("host0").children[1].uuid or ""  # what goes is still there when it is
    going = ledger.diff(tree(gpus=1))
    ledger.apply(dataclasses.replace(going, adopted=(gpu,)), dry_run=dry_run)
    if not dry_run:
        ledger.sync(tree())
        gpu = ledger.provider("host0").children[1].uuid or ""
    out = (DisableOrder(gpu, "fan"),)
    ledger.apply(dataclasses.replace(ledger.diff(tree(gpus=1)), disabling=out), dry_run=dry_run)
    assert len(ledger.provider("host0").children) == (2 if dry_run else 1)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_plan_is_in_the_order_in_which_it_can_be_done(ledger: ro.Ledger, dry_run: bool) -> None:
    below = Provider("host0", children=[Provider("host0/a", children=[Provider("host0/b")])])
    plan = ledger.diff(below)
    assert plan.definitions is not None
    upside_down = DefinitionChanges("host0", creates=plan.definitions.creates[::-1])
    with pytest.raises(exceptions.InvalidPlan, match=r"host0/b .*its parent is created after it"):
        ledger.apply(Plan(upside_down), dry_run=dry_run)
    ledger.apply(plan)
    found = ledger.diff(Provider("host0")).definitions
    assert found is not None
    upside_down = dataclasses.replace(found, removals=found.removals[::-1])
    with pytest.raises(exceptions.InvalidPlan, match=r"host0/b .*its parent is removed before it"):
        ledger.apply(Plan(upside_down), dry_run=dry_run)
    ledger.apply(Plan(found))
    assert [one.name for one in ledger.providers()] == ["host0"]


def test_a_share_that_leads_to_what_a_plan_takes_away_is_refused(ledger: ro.Ledger) -> None:
    data = edited(ledger)
    changes = data["definitions"]
    (gone,) = (one for one in changes["updates"] if one["definition"]["name"] == "host0")
    gone["children_changed"] = False
    kept = gone["definition"]["inventories"]
    gone["definition"]["inventories"] = [r for r in kept if r["resource_class"] != "VCPU"]
    with pytest.raises(exceptions.InvalidPlan, match=r"VCPU as well.*host0/"):
        ledger.apply(Plan.from_dict(data))


def order(ledger: ro.Ledger, consumer: str, provider: str, amount: int) -> ConsumerOrder:
    return ConsumerOrder.claim(
        consumer, (Use(ledger.provider(provider).uuid or "", "VCPU", amount),)
    )


@pytest.mark.law(2)
def test_orders_of_a_plan_happen_together(ledger: ro.Ledger) -> None:
    ledger.sync(tree(gpus=0))
    ledger.claim("a", {"host0": "VCPU=8"})
    uuid = ledger.provider("host0").uuid or ""
    plan = Plan(
        orders=(
            ConsumerOrder.replace(
                "a", (Use(uuid, "VCPU", 3),), generation=ledger.get_claim("a").generation
            ),
            order(ledger, "b", "host0", 5),
        )
    )
    ledger.apply(plan, dry_run=True)
    claims = ledger.apply(plan)
    assert [str(claim) for claim in claims] == [
        "a holds VCPU=3 of host0",
        "b holds VCPU=5 of host0",
    ]
    with raises_code("StaleConsumer"):
        ledger.apply(plan)


@pytest.mark.law(2, 5, 11)
@pytest.mark.parametrize("dry_run", [True, False])
def test_what_does_not_fit_is_refused_the_same_without_writing(
    ledger: ro.Ledger, dry_run: bool
) -> None:
    ledger.sync(tree())
    ledger.claim("a", {"host0": "VCPU=6", "host0/gpu0": "PGPU=1"})
    before = ledger.usage()
    with pytest.raises(exceptions.CapacityException, match="a holds 6"):
        ledger.apply(Plan(orders=(order(ledger, "b", "host0", 3),)), dry_run=dry_run)
    with raises_code("ConsumerExists"):
        ledger.apply(Plan(orders=(order(ledger, "a", "host0", 1),)), dry_run=dry_run)
    with raises_code("ConsumerNotFound"):
        ledger.apply(Plan(orders=(ConsumerOrder.release("z"),)), dry_run=dry_run)
    with raises_code("ProviderInUse"):
        ledger.apply(ledger.diff(tree(gpus=0)), dry_run=dry_run)
    with raises_code("InventoryInUse"):
        ledger.apply(ledger.diff(tree(inventories="FPGA=1")), dry_run=dry_run)
    plan = ledger.diff(Provider("host1", "VCPU=1"))
    ledger.sync(Provider("host1", "VCPU=1"))
    with raises_code("ProviderExists"):
        ledger.apply(plan, dry_run=dry_run)
    ledger.remove("host1")
    assert ledger.usage() == before


@pytest.mark.law(2, 5, 11)
@pytest.mark.parametrize("dry_run", [True, False])
def test_units_and_shares_are_looked_at_too(ledger: ro.Ledger, dry_run: bool) -> None:
    host = Provider("host0", "VCPU=4,PGPU=2")
    share = ro.Share(resource_class="VCPU", of="host0", of_class="VCPU", factor=2)
    host.add("host0/cell", "VCPU=4", shares=[share])
    ledger.sync(host)
    gpu = ro.Allocation(
        provider="host0", resource_class="PGPU", amount=ro.IntegerAmount(1), units=("gpu0",)
    )
    ledger.claim("a", [gpu])
    ledger.claim("b", {"host0/cell": "VCPU=1"})
    uuid = ledger.provider("host0").uuid or ""
    plan = Plan(orders=(ConsumerOrder.claim("c", (Use(uuid, "PGPU", 1, ("gpu0",)),)),))
    with raises_code("UnitTaken", match="gpu0, which is allocated"):
        ledger.apply(plan, dry_run=dry_run)
    with pytest.raises(exceptions.CapacityException, match=r"host0: VCPU .*b holds 2"):
        ledger.apply(Plan(orders=(order(ledger, "c", "host0/cell", 2),)), dry_run=dry_run)
    with raises_code("ProviderNotFound"):
        unknown = Use("1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33", "VCPU", 1)
        ledger.apply(Plan(orders=(ConsumerOrder.claim("c", (unknown,)),)), dry_run=dry_run)
    with raises_code("InventoryInUse"):  # what is used there is used through the share
        wanted = ledger.provider("host0")
        wanted.children[0].update(shares=[])
        del wanted.inventories["VCPU"]
        plan = ledger.diff(wanted)
        ledger.claim("d", {"host0": "VCPU=1"})
        ledger.apply(plan, dry_run=dry_run)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_parent_that_is_gone_is_noticed(ledger: ro.Ledger, dry_run: bool) -> None:
    ledger.sync(tree())
    kept = ledger.diff(tree(gpus=3))
    changes = kept.definitions
    assert changes is not None
    ledger.remove("host0")
    orphan = DefinitionChanges("host0", creates=changes.creates)
    with raises_code("StaleDefinition", match="parent does not exist"):
        ledger.apply(Plan(orphan), dry_run=dry_run)


def test_a_repeated_operation_applies_once(ledger: ro.Ledger) -> None:
    ledger.sync(tree())
    plan = Plan(orders=(order(ledger, "b", "host0", 3),))
    operation = new_operation()
    first = ledger.apply(plan, operation=operation)
    assert ledger.apply(Plan.from_json(plan.to_json()), operation=operation) == first
    assert ledger.usage()["host0", "VCPU"].used == 3
    with raises_code("OperationConflict"):
        ledger.apply(Plan(orders=(ConsumerOrder.release("b"),)), operation=operation)


def test_a_plan_of_nothing_does_nothing(ledger: ro.Ledger) -> None:
    at = ledger.backend.cursor()
    assert ledger.apply(Plan()) == ()
    assert ledger.backend.cursor() == at
    with raises_code("InvalidField", match="a Plan"):
        ledger.apply("plan.json")  # type: ignore[arg-type]
