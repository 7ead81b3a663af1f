"""Rules of shares: what is taken in one place is used in others too (D2)."""

from __future__ import annotations

from typing import Any

import pytest

from resource_objects import exceptions
from resource_objects.exceptions import Rule
from resource_objects.providers import Backend, Provider
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
)
from resource_objects.providers.listing import ProviderFilter
from resource_objects.providers.orders import ClaimOrder, Delta, Operation, Release, Replacement
from resource_objects.providers.provider import Share
from resource_objects.resources import Inventories
from resource_objects.testing.conformance.base import (
    Kit,
    adjust,
    changes_to,
    claim,
    define,
    deltas,
    kept,
    law,
    order,
    picture,
    release,
)


def share(name: str, of: str, of_class: str | None = None, factor: int = 1) -> Share:
    """Return the share by which ``name`` uses ``of_class`` (``name``, if not said) elsewhere."""
    return Share(resource_class=name, of=of, of_class=of_class or name, factor=factor)


def _cells(cpus: str = "VCPU=8", cells: int = 2) -> Provider:
    """A host whose cells' CPUs are also its own."""
    root = Provider("host0", f"{cpus},MEMORY_MB=1000")
    for number in range(cells):
        root.add(f"cell{number}", "VCPU=4", shares=[share("VCPU", "host0")])
    return root


def _card() -> Provider:
    """A card with 8 slices; large partitions take 4 of them, small ones 1, all some memory."""
    root = Provider("card", "CUSTOM_SLICE=8,CUSTOM_GB=80")
    for name, slices, memory, count in (("large", 4, 40, 2), ("small", 1, 10, 7)):
        kind = f"CUSTOM_{name.upper()}"
        of = [share(kind, "card", "CUSTOM_SLICE", slices), share(kind, "card", "CUSTOM_GB", memory)]
        root.add(name, {kind: count}, shares=of)
    return root


class ShareRules(Kit):
    """What is used through shares."""

    @law(1, 3)
    def test_what_is_taken_is_used_at_the_target_too(self, backend: Backend) -> None:
        names = define(backend, _cells())
        before = picture(backend)
        assert before.providers["cell0"].shares == {("VCPU", "host0", "VCPU"): 1}
        claim(backend, "job-1", {names["cell0"]: "VCPU=3", names["host0"]: "VCPU=1,MEMORY_MB=5"})
        claim(backend, "job-2", {names["cell0"]: "VCPU=1", names["cell1"]: "VCPU=1"})
        found = picture(backend)  # which checks the sums too
        assert [found.used(name, "VCPU") for name in ("host0", "cell0", "cell1")] == [6, 4, 1]
        adjust(backend, "job-1", {names["cell0"]: "VCPU=-2", names["cell1"]: "VCPU=3"})
        found = picture(backend)
        assert [found.used(name, "VCPU") for name in ("host0", "cell0", "cell1")] == [7, 2, 4]
        release(backend, "job-1")
        release(backend, "job-2")
        assert picture(backend) == before

    @law(4, 6)
    def test_a_full_target_refuses(self, backend: Backend) -> None:
        names = define(backend, _cells("VCPU=5"))
        claim(backend, "here", {names["host0"]: "VCPU=1"})
        claim(backend, "there", {names["cell0"]: "VCPU=2"})
        before = picture(backend)
        with pytest.raises(exceptions.CapacityException) as refused:
            claim(backend, "job", {names["cell1"]: "VCPU=3"})
        [reason] = refused.value.reasons
        assert (reason.rule, reason.where, reason.resource) == (Rule.CAPACITY, "host0", "VCPU")
        assert (reason.requested, reason.bound, reason.used) == (3, 5, 3)
        assert reason.holders == (("there", 2), ("here", 1))
        assert picture(backend) == before
        claim(backend, "job", {names["cell1"]: "VCPU=2"})
        with pytest.raises(exceptions.CapacityException):
            claim(backend, "last", {names["host0"]: "VCPU=1"})

    @law(1, 4)
    def test_a_unit_may_use_several_of_several(self, backend: Backend) -> None:
        names = define(backend, _card())
        claim(backend, "a", {names["large"]: "CUSTOM_LARGE=1", names["small"]: "CUSTOM_SMALL=3"})
        found = picture(backend)
        assert (found.used("card", "CUSTOM_SLICE"), found.used("card", "CUSTOM_GB")) == (7, 70)
        with pytest.raises(exceptions.CapacityException) as refused:
            claim(backend, "b", {names["large"]: "CUSTOM_LARGE=1"})
        said = {(r.resource, r.requested, r.bound, r.holders) for r in refused.value.reasons}
        assert said == {
            ("CUSTOM_SLICE", 4, 8, (("a", 7),)),
            ("CUSTOM_GB", 40, 80, (("a", 70),)),
        }
        claim(backend, "b", {names["small"]: "CUSTOM_SMALL=1"})

    @law(2, 4)
    def test_several_are_judged_together_at_the_target(self, backend: Backend) -> None:
        names = define(backend, _cells("VCPU=6"))
        gang = [ClaimOrder(f"job-{n}", deltas({names[f"cell{n}"]: "VCPU=4"})) for n in range(2)]
        before = picture(backend)
        with pytest.raises(exceptions.CapacityException) as refused:
            order(backend, *gang)
        assert [(r.where, r.requested) for r in refused.value.reasons] == [("host0", 8)]
        assert picture(backend) == before
        claim(backend, "job-0", {names["cell0"]: "VCPU=4"})
        order(  # within one target nothing changes
            backend,
            Release("job-0"),
            ClaimOrder("job-1", deltas({names["cell1"]: "VCPU=4", names["host0"]: "VCPU=2"})),
        )
        assert picture(backend).used("host0", "VCPU") == 6

    def test_unit_rules_of_the_target_bind_only_who_takes_there(self, backend: Backend) -> None:
        names = define(backend, _cells("VCPU=8:min_unit=2:max_unit=4:step_size=2"))
        claim(backend, "job", {names["cell0"]: "VCPU=3", names["cell1"]: "VCPU=4"})
        with pytest.raises(exceptions.UnitRuleViolated):
            claim(backend, "other", {names["host0"]: "VCPU=1"})

    def test_shares_are_flat(self, backend: Backend) -> None:
        root = Provider("host0", "VCPU=8")
        cell = root.add("cell0", "VCPU=4", shares=[share("VCPU", "host0")])
        both = [share("VCPU", "cell0"), share("VCPU", "host0")]
        cell.add("core0", "VCPU=2", shares=both)
        names = define(backend, root)
        claim(backend, "job", {names["core0"]: "VCPU=2"})
        found = picture(backend)
        assert [found.used(name, "VCPU") for name in ("host0", "cell0", "core0")] == [2, 2, 2]

    # --- changes of shares ---

    @law(1)
    def test_what_is_shared_while_it_is_used_counts_at_once(self, backend: Backend) -> None:
        bare = Provider("host0", "VCPU=8,MEMORY_MB=1000")
        bare.add("cell0", "VCPU=4")
        names = define(backend, bare)
        claim(backend, "job", {names["cell0"]: "VCPU=3", names["host0"]: "VCPU=1"})
        for factor, used in ((1, 4), (3, 10), (2, 7), (0, 1)):
            tree = kept(backend, "host0")
            shares = [share("VCPU", "host0", factor=factor)] if factor else []
            tree.find("cell0").update(shares=tuple(shares))
            define(backend, tree)
            assert picture(backend).used("host0", "VCPU") == used
        release(backend, "job")
        assert picture(backend).used("host0", "VCPU") == 0

    @law(4)
    def test_over_full_through_a_share_is_seen_and_may_not_grow(self, backend: Backend) -> None:
        bare = Provider("host0", "VCPU=3,MEMORY_MB=1000")
        bare.add("cell0", "VCPU=4")
        bare.add("cell1", "VCPU=4")
        names = define(backend, bare)
        claim(backend, "a", {names["cell0"]: "VCPU=3"})
        claim(backend, "b", {names["cell1"]: "VCPU=2"})
        define(backend, _cells("VCPU=3"))
        assert picture(backend).used("host0", "VCPU") == 5
        over = backend.list_providers(ProviderFilter(over_capacity=True), 10)
        assert [row.name for row in over] == ["host0"]
        for amounts in ({names["cell0"]: "VCPU=1"}, {names["host0"]: "VCPU=1"}):
            with pytest.raises(exceptions.CapacityException) as refused:
                claim(backend, "c", amounts)
            assert {reason.where for reason in refused.value.reasons} == {"host0"}
        order(  # not worse
            backend,
            Replacement("a", deltas({names["cell0"]: "VCPU=2"})),
            Replacement("b", deltas({names["cell1"]: "VCPU=3"})),
        )
        adjust(backend, "a", {names["cell0"]: "VCPU=-1"})
        assert picture(backend).used("host0", "VCPU") == 4

    @law(1)
    def test_a_new_share_of_what_is_empty_may_use_nothing(self, backend: Backend) -> None:
        names = define(backend, _cells(cells=1))
        tree = kept(backend, "host0")
        tree.add("cell1", "VCPU=4", shares=[share("VCPU", "host0", factor=2)])
        names |= define(backend, tree)
        claim(backend, "job", {names["cell1"]: "VCPU=4"})
        assert picture(backend).used("host0", "VCPU") == 8

    @law(2)
    def test_a_target_in_use_stays(self, backend: Backend) -> None:
        names = define(backend, _cells())
        claim(backend, "job", {names["cell0"]: "VCPU=1"})
        before = picture(backend)
        changes = _without(backend, "host0", "VCPU")
        with pytest.raises(exceptions.InventoryInUse):
            backend.define(Operation(), changes)
        assert picture(backend) == before

    @law(2)
    def test_a_target_that_somebody_shares_stays(self, backend: Backend) -> None:
        tree = Provider("host0", "VCPU=8,MEMORY_MB=1000")
        tree.add("cell0", "VCPU=4")
        define(backend, tree)
        changes = _without(backend, "host0", "VCPU")  # before anybody shared it
        define(backend, _cells(cells=1))
        before = picture(backend)
        with pytest.raises((exceptions.StaleDefinition, exceptions.InventoryInUse)):
            backend.define(Operation(), changes)
        assert picture(backend) == before

    @law(2)
    def test_nobody_shares_what_is_gone(self, backend: Backend) -> None:
        tree = Provider("host0", "VCPU=8,MEMORY_MB=1000")
        tree.add("cell0", "VCPU=4")
        define(backend, tree)
        changes = changes_to(backend, _cells(cells=1))
        define_without = _without(backend, "host0", "VCPU")
        backend.define(Operation(), define_without)
        before = picture(backend)
        with pytest.raises(exceptions.StaleDefinition):
            backend.define(Operation(), changes)
        assert picture(backend) == before

    def test_sharer_and_target_may_go_together(self, backend: Backend) -> None:
        define(backend, _cells())
        define(backend, Provider("host0", "MEMORY_MB=1000"))
        found = picture(backend).providers
        assert set(found) == {"host0"} and set(found["host0"].inventories) == {"MEMORY_MB"}
        define(backend, _card())
        tree = kept(backend, "card")
        tree.update(inventories=Inventories("CUSTOM_GB=80"), children=())
        define(backend, tree)
        assert set(picture(backend, "card").providers["card"].inventories) == {"CUSTOM_GB"}

    @law(4)
    def test_units_and_shares_go_together(self, backend: Backend) -> None:
        names = define(backend, _cells("VCPU=3"))
        wanted = ClaimOrder("job", (Delta(names["cell0"], "VCPU", 2, ("cpu0", "cpu1")),))
        order(backend, wanted)
        with pytest.raises(exceptions.CapacityException):
            order(backend, ClaimOrder("b", (Delta(names["cell1"], "VCPU", 2, ("cpu0", "cpu1")),)))
        found = picture(backend)
        assert found.used("host0", "VCPU") == 2
        assert set(found.units) == {("cell0", "cpu0"), ("cell0", "cpu1")}

    def test_room_is_what_the_targets_have_too(self, backend: Backend) -> None:
        names = define(backend, _card())
        claim(backend, "a", {names["large"]: "CUSTOM_LARGE=1", names["small"]: "CUSTOM_SMALL=1"})

        def with_room(**room: int) -> list[str]:
            wanted = ProviderFilter(room=tuple(room.items()))
            return [row.name for row in backend.list_providers(wanted, 10)]

        assert with_room(CUSTOM_SMALL=3) == ["small"]
        assert with_room(CUSTOM_SMALL=4) == []
        assert with_room(CUSTOM_LARGE=1) == []
        assert with_room(CUSTOM_SLICE=3, CUSTOM_GB=30) == ["card"]


def _without(backend: Backend, name: str, resource_class: str) -> DefinitionChanges:
    """Return the bare change that takes an inventory from a provider, and nothing else."""
    provider: Any = kept(backend, name)
    stays = [
        record.definition()
        for _, inventory in provider.inventories.by_name()
        for record in inventory.to_records()
        if record.resource_class != resource_class
    ]
    nothing = frozenset[str]()
    definition = ProviderDefinition(
        provider.uuid, provider.name, None, tuple(stays), provider.traits, provider.aggregates
    )
    update = ProviderUpdate(
        definition, provider.generation, (), (resource_class,), nothing, nothing
    )
    return DefinitionChanges(name, updates=(update,))
