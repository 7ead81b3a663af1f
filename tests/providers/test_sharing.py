"""What holds of all shares of a tree, and that a rehearsal refuses what a write would."""

from __future__ import annotations

import dataclasses

import pytest

from resource_objects import exceptions
from resource_objects.backends.memory import MemoryBackend
from resource_objects.providers import Provider, Share
from resource_objects.providers.definition import DefinitionChanges, ShareRecord, diff
from resource_objects.providers.orders import Operation
from resource_objects.providers.plan import Plan
from resource_objects.providers.provider import broken_share
from resource_objects.store.columns import rehearse

ROOTS = {"a": 1, "b": 1, "c": 1, "d": 2}


def check(*shares: str) -> str | None:
    """Return the rule that is broken."""
    pairs = [((share[0], "VCPU"), (share[1], "VCPU")) for share in shares]
    broken = broken_share(pairs, ROOTS)
    return None if broken is None else broken[2]


@pytest.mark.parametrize("shares", [(), ("ab",), ("ab", "cb"), ("ab", "bc", "ac"), ("ab", "ac")])
def test_flat_shares_within_a_tree_will_do(shares: tuple[str, ...]) -> None:
    assert check(*shares) is None


@pytest.mark.parametrize(
    ("shares", "why"),
    [
        (("ad",), "the same tree"),
        (("da",), "the same tree"),
        (("ax",), "the same tree"),
        (("aa",), "other inventories"),
        (("ab", "ab"), "each once"),
        (("ab", "bc"), "the shares of each"),
        (("ab", "ba"), "the shares of each"),
        (("ab", "bc", "ca"), "the shares of each"),
        (("ab", "ac", "bc", "ba", "ca", "cb"), "the shares of each"),
    ],
)
def test_others_will_not(shares: tuple[str, ...], why: str) -> None:
    assert why in str(check(*shares))


@pytest.mark.parametrize("target", ["other", "new"])
def test_a_rehearsal_refuses_such_shares(target: str) -> None:
    backend = MemoryBackend.open("memory://")
    backend.define(Operation(), diff(None, Provider("other", "VCPU=1")))
    [created] = diff(None, Provider("new", "VCPU=1")).creates
    uuid = {**backend.uuids(["other"]), "new": created.uuid}[target]
    shares = (ShareRecord("VCPU", uuid, "VCPU", 1),)
    definition = dataclasses.replace(created, shares=shares)
    plan = Plan(DefinitionChanges("new", (definition,)))
    with pytest.raises(exceptions.InvalidPlan, match="new"):
        rehearse(plan, backend.read(), {}, backend.now())
    rehearse(Plan(DefinitionChanges("new", (created,))), backend.read(), {}, backend.now())


def test_a_rehearsal_refuses_who_is_moved_below_itself() -> None:
    backend = MemoryBackend.open("memory://")
    made = [diff(None, Provider(name, "VCPU=1")).creates[0] for name in ("a", "b")]
    a, b = made
    looped = (
        dataclasses.replace(a, parent_uuid=b.uuid),
        dataclasses.replace(b, parent_uuid=a.uuid),
    )
    with pytest.raises(exceptions.InvalidPlan, match="below itself"):
        rehearse(Plan(DefinitionChanges("a", looped)), backend.read(), {}, backend.now())


def test_a_share_of_several_inventories_states_what_each_of_them_uses_in_turn() -> None:
    root = Provider("host0", {f"CUSTOM_{number}": 1 for number in range(9)})
    further = Share(resource_class="PGPU", of="host0", of_class="CUSTOM_0")
    root.add("host0/gpu", "PGPU=1", shares=[further])
    several = [Share(resource_class="VGPU", of="host0/gpu", of_class="PGPU")]
    several += [
        Share(resource_class="VGPU", of="host0", of_class=f"CUSTOM_{number}")
        for number in range(1, 9)
    ]
    part = root.add("host0/part", "VGPU=1", shares=several)
    with pytest.raises(exceptions.InvalidTree, match="got 'VGPU uses CUSTOM_0 of host0'"):
        diff(None, root)
    stated = Share(resource_class="VGPU", of="host0", of_class="CUSTOM_0")
    part.update(shares=(*several, stated))
    diff(None, root)
