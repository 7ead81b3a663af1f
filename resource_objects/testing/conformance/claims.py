"""Rules of claims, adjustments and releases."""

from __future__ import annotations

import datetime
import json
import uuid as uuids

import pytest

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.providers import Backend, Provider
from resource_objects.providers.allocation import HELD, RELEASED
from resource_objects.providers.backend import ClaimOrder, Held, Operation
from resource_objects.providers.decision import MOST_HOLDERS
from resource_objects.testing.conformance.base import (
    Kit,
    adjust,
    claim,
    define,
    deltas,
    host,
    law,
    picture,
    release,
)


def _two_hosts(backend: Backend) -> tuple[str, str]:
    names = define(backend, host("host0"), host("host1"))
    return names["host0"], names["host1"]


class ClaimRules(Kit):
    """What ``claim``, ``adjust`` and ``release`` do."""

    # --- claim ---

    def test_a_claim_is_told_in_full(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        before = datetime.datetime.now(datetime.UTC)
        order = ClaimOrder("job", deltas({here: "VCPU=2,MEMORY_MB=512", there: "VCPU=1"}))
        record = backend.claim(Operation(), order)
        assert (record.id, record.consumer, record.state) == (order.claim_id, "job", HELD)
        assert record.consumer_uuid == str(uuids.UUID(record.consumer_uuid))
        assert before <= record.created_at <= datetime.datetime.now(datetime.UTC)
        assert set(record.held) == {
            Held(here, "host0", "VCPU", 2),
            Held(here, "host0", "MEMORY_MB", 512),
            Held(there, "host1", "VCPU", 1),
        }

    def test_what_is_claimed_is_held(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        record = claim(backend, "job", {there: "VCPU=2", here: "MEMORY_MB=512,VCPU=1"})
        assert backend.held("job") == record
        assert picture(backend).allocations == {
            ("job", "host0", "VCPU"): 1,
            ("job", "host0", "MEMORY_MB"): 512,
            ("job", "host1", "VCPU"): 2,
        }

    def test_nobody_holds_what_was_not_claimed(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        claim(backend, "job", {here: "VCPU=2"})
        assert backend.held("job-2") is None

    def test_the_request_is_kept_with_the_claim(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        request = json.dumps({"said": "Größe 大小 🖥 \\ \" ' % :x ?", "long": "x" * 200_000})
        order = ClaimOrder("job", deltas({here: "VCPU=2"}), request=request)
        assert backend.claim(Operation(), order).request == request
        record = backend.held("job")
        assert record is not None and record.request == request
        assert release(backend, "job").request == request

    @law(4)
    def test_the_last_unit_can_be_had_and_no_more(self, backend: Backend) -> None:
        [here] = define(backend, host("host0", "VCPU=8:reserved=1:allocation_ratio=1.15")).values()
        claim(backend, "first", {here: "VCPU=7"})  # floor(7 * 1.15) is 8
        claim(backend, "second", {here: "VCPU=1"})
        with pytest.raises(exceptions.CapacityException):
            claim(backend, "third", {here: "VCPU=1"})
        assert picture(backend).used("host0", "VCPU") == 8

    @law(2)
    def test_a_refused_claim_changes_nothing(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        claim(backend, "other", {there: "VCPU=8"})
        before = picture(backend)
        with pytest.raises(exceptions.CapacityException):
            claim(backend, "job", {here: "VCPU=1,MEMORY_MB=1", there: "MEMORY_MB=1,VCPU=1"})
        assert picture(backend) == before
        assert backend.held("job") is None

    @law(6)
    def test_a_refusal_names_all_that_stands_against_it(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        claim(backend, "other", {there: "VCPU=6"})
        with pytest.raises(exceptions.CapacityException) as refused:
            claim(backend, "job", {here: "VCPU=1,MEMORY_MB=16385", there: "VCPU=3,DISK_GB=1"})
        assert set(refused.value.reasons) == {
            Reason(Rule.CAPACITY, 16385, 16384, 0, "MEMORY_MB", "host0"),
            Reason(Rule.CAPACITY, 3, 8, 6, "VCPU", "host1", holders=(("other", 6),)),
            Reason(Rule.NO_INVENTORY, 1, 0, 0, "DISK_GB", "host1"),
        }

    @law(6)
    def test_a_refusal_names_the_largest_holders(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        for name, amount in (("b", 1), ("c", 3), ("a", 1), ("d", 2), ("e", 1)):
            claim(backend, name, {here: f"VCPU={amount}"})
        with pytest.raises(exceptions.CapacityException) as refused:
            claim(backend, "job", {here: "VCPU=1"})
        [reason] = refused.value.reasons
        largest = (("c", 3), ("d", 2), ("a", 1), ("b", 1), ("e", 1))
        assert reason.holders == largest[:MOST_HOLDERS]

    @law(6)
    def test_holders_are_those_of_today(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        for name in ("grows", "moves", "goes", "empties", "stays"):
            claim(backend, name, {here: "VCPU=1"})
        adjust(backend, "grows", {here: "VCPU=3"})
        adjust(backend, "moves", {here: "VCPU=-1", there: "VCPU=8"})
        release(backend, "goes")
        adjust(backend, "empties", {here: "VCPU=-1"})
        for _ in range(2):
            with pytest.raises(exceptions.CapacityException) as refused:
                claim(backend, "job", {here: "VCPU=4", there: "VCPU=1"})
            assert {reason.where: reason.holders for reason in refused.value.reasons} == {
                "host0": (("grows", 4), ("stays", 1)),
                "host1": (("moves", 8),),
            }
            define(backend, Provider("host0", "VCPU=8"))  # what holds stays when the rest goes
        assert picture(backend, "host0").allocations == {
            ("grows", "host0", "VCPU"): 4,
            ("stays", "host0", "VCPU"): 1,
        }

    @law(6)
    def test_each_of_many_refusals_names_its_own_holders(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}", "VCPU=2,DISK_GB=2") for n in range(70)))
        for number in range(70):
            amounts = {names[f"host{number}"]: "VCPU=1,DISK_GB=2"}
            claim(backend, f"job-{number}", amounts)
        with pytest.raises(exceptions.CapacityException) as refused:
            claim(backend, "all", dict.fromkeys(names.values(), "VCPU=2,DISK_GB=1"))
        assert {
            (reason.where, reason.resource, reason.holders) for reason in refused.value.reasons
        } == {
            (f"host{number}", resource_class, ((f"job-{number}", amount),))
            for number in range(70)
            for resource_class, amount in (("VCPU", 1), ("DISK_GB", 2))
        }

    @law(5)
    @pytest.mark.parametrize(
        ("asked", "rule", "bound"),
        [(1, Rule.MIN_UNIT, 2), (10, Rule.MAX_UNIT, 6), (3, Rule.STEP_SIZE, 2)],
    )
    def test_unit_rules_bind_a_claim(
        self, backend: Backend, asked: int, rule: Rule, bound: int
    ) -> None:
        figures = "VCPU=8:min_unit=2:max_unit=6:step_size=2"
        [here] = define(backend, host("host0", figures)).values()
        with pytest.raises(exceptions.UnitRuleViolated) as refused:
            claim(backend, "job", {here: f"VCPU={asked}"})
        [reason] = refused.value.reasons
        assert (reason.rule, reason.requested, reason.bound) == (rule, asked, bound)
        assert claim(backend, "job", {here: "VCPU=4"}).held[0].amount == 4

    def test_no_inventory_is_its_own_error(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        for resource_class in ("DISK_GB", "CUSTOM_NEVER_SEEN"):
            with pytest.raises(exceptions.InventoryNotFound):
                claim(backend, "job", {here: f"{resource_class}=1"})

    @law(2)
    def test_an_unknown_provider_refuses_the_whole_claim(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        before = picture(backend)
        nobody = str(uuids.uuid4())
        with pytest.raises(exceptions.ProviderNotFound) as refused:
            claim(backend, "job", {here: "VCPU=1", nobody: "VCPU=1"})
        assert refused.value.subject == nobody
        assert picture(backend) == before

    @law(2)
    @pytest.mark.parametrize("amount", [1, 9])
    def test_who_holds_something_cannot_claim(self, backend: Backend, amount: int) -> None:
        here, there = _two_hosts(backend)
        claim(backend, "job", {here: "VCPU=1"})
        before = picture(backend)
        with pytest.raises(exceptions.ConsumerExists) as refused:
            claim(backend, "job", {there: f"VCPU={amount}"})
        assert refused.value.subject == "job"
        assert picture(backend) == before

    def test_claims_leave_definitions_alone(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        before = picture(backend).providers["host0"].generation
        claim(backend, "job", {here: "VCPU=1"})
        release(backend, "job")
        assert picture(backend).providers["host0"].generation == before

    def test_a_claim_may_be_large(self, backend: Backend) -> None:
        root = Provider("rack")
        for number in range(150):
            root.add(f"host{number}", "VCPU=8,MEMORY_MB=1024")
        names = define(backend, root)
        wanted = {uuid: "VCPU=1,MEMORY_MB=2" for name, uuid in names.items() if name != "rack"}
        claim(backend, "gang", wanted)
        found = picture(backend)
        assert len(found.allocations) == 300
        assert found.used("host149", "MEMORY_MB") == 2
        release(backend, "gang")
        assert picture(backend).allocations == {}

    # --- over-full ---

    @law(4)
    def test_over_full_only_what_makes_it_no_worse_passes(self, backend: Backend) -> None:
        [here] = define(backend, host("host0", "VCPU=8,DISK_GB=9")).values()
        claim(backend, "job", {here: "VCPU=6,DISK_GB=1"})
        define(backend, host("host0", "VCPU=2,DISK_GB=9"))
        for refuse in (claim, adjust):
            with pytest.raises(exceptions.CapacityException) as refused:
                refuse(backend, "other", {here: "VCPU=1"})
            [reason] = refused.value.reasons
            assert (reason.bound, reason.used, reason.free) == (2, 6, -4)
        adjust(backend, "job", {here: "VCPU=-1,DISK_GB=2"})
        assert picture(backend).used("host0", "VCPU") == 5
        release(backend, "job")
        claim(backend, "other", {here: "VCPU=2"})

    # --- adjust ---

    def test_adjusting_makes_a_consumer(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        record = adjust(backend, "job", {here: "VCPU=2"})
        assert backend.held("job") == record
        assert record.held == (Held(here, "host0", "VCPU", 2),)

    def test_adjusting_adds_and_gives_back_in_one(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        claimed = claim(backend, "job", {here: "VCPU=4,MEMORY_MB=512"})
        record = adjust(backend, "job", {here: "VCPU=-4,MEMORY_MB=512", there: "VCPU=4"})
        assert record.state == HELD
        assert picture(backend).allocations == {
            ("job", "host0", "MEMORY_MB"): 1024,
            ("job", "host1", "VCPU"): 4,
        }
        assert backend.held("job") == record
        assert (record.id, record.consumer_uuid) == (claimed.id, claimed.consumer_uuid)
        assert record.created_at == claimed.created_at

    def test_who_gives_back_all_is_forgotten(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        before = picture(backend)
        claim(backend, "job", {here: "VCPU=4,MEMORY_MB=512"})
        record = adjust(backend, "job", {here: "VCPU=-4,MEMORY_MB=-512"})
        assert (record.held, record.state) == ((), RELEASED)
        assert backend.held("job") is None
        assert picture(backend) == before
        with pytest.raises(exceptions.ConsumerNotFound):
            release(backend, "job")
        claim(backend, "job", {here: "VCPU=8"})

    @law(2)
    def test_a_refused_adjustment_changes_nothing(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        claim(backend, "job", {here: "VCPU=4"})
        before = picture(backend)
        with pytest.raises(exceptions.CapacityException):
            adjust(backend, "job", {here: "VCPU=-1", there: "VCPU=9"})
        with pytest.raises(exceptions.ProviderNotFound):
            adjust(backend, "job", {here: "VCPU=-1", str(uuids.uuid4()): "VCPU=1"})
        with pytest.raises(exceptions.CapacityException):
            adjust(backend, "nobody", {here: "VCPU=9"})
        assert picture(backend) == before
        assert backend.held("nobody") is None

    @law(4)
    def test_only_what_adds_is_held_to_the_capacity(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        claim(backend, "other", {here: "VCPU=4"})
        claim(backend, "job", {here: "VCPU=4"})
        with pytest.raises(exceptions.CapacityException) as refused:
            adjust(backend, "job", {here: "VCPU=1"})
        assert refused.value.reasons[0].used == 8
        adjust(backend, "job", {here: "VCPU=-3"})
        adjust(backend, "job", {here: "VCPU=3"})
        assert picture(backend).used("host0", "VCPU") == 8

    @law(6)
    def test_nobody_gives_back_what_others_hold(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        claim(backend, "other", {here: "VCPU=4", there: "VCPU=1"})
        claim(backend, "job", {here: "VCPU=2"})
        before = picture(backend)
        for consumer, uuid, held in (("job", here, 2), ("job", there, 0), ("nobody", here, 0)):
            with pytest.raises(exceptions.CapacityException) as refused:
                adjust(backend, consumer, {uuid: "VCPU=-3"})
            [reason] = refused.value.reasons
            assert (reason.rule, reason.requested) == (Rule.USED_BELOW_ZERO, -3)
            assert (reason.used, reason.resource) == (held, "VCPU")
        assert picture(backend) == before

    def test_unit_rules_do_not_bind_what_is_given_back(self, backend: Backend) -> None:
        figures = "VCPU=8:min_unit=2:max_unit=6:step_size=2"
        [here] = define(backend, host("host0", figures)).values()
        adjust(backend, "job", {here: "VCPU=4"})
        with pytest.raises(exceptions.UnitRuleViolated):
            adjust(backend, "job", {here: "VCPU=1"})
        adjust(backend, "job", {here: "VCPU=-1"})
        assert picture(backend).used("host0", "VCPU") == 3

    # --- release ---

    @law(3)
    def test_there_and_back(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        claim(backend, "other", {here: "VCPU=2", there: "MEMORY_MB=7"})
        before = picture(backend)
        record = claim(backend, "job", {here: "VCPU=1", there: "VCPU=2,MEMORY_MB=512"})
        released = release(backend, "job")
        assert picture(backend) == before
        assert released.state == RELEASED
        assert (released.id, released.held) == (record.id, record.held)
        assert released.consumer_uuid == record.consumer_uuid

    def test_who_released_may_claim_again_as_somebody_new(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=8"})
        release(backend, "job")
        second = claim(backend, "job", {here: "VCPU=8"})
        assert first.consumer_uuid != second.consumer_uuid

    def test_who_holds_nothing_cannot_release(self, backend: Backend) -> None:
        _two_hosts(backend)
        with pytest.raises(exceptions.ConsumerNotFound) as refused:
            release(backend, "job")
        assert refused.value.subject == "job"

    # --- exact ---

    @law(7)
    def test_the_largest_figures_are_exact(self, backend: Backend) -> None:
        most = 2**31 - 1
        figures = f"VCPU={most}:allocation_ratio=4000,DISK_GB={most}:reserved={most - 1}"
        [here] = define(backend, host("host0", figures)).values()
        capacity = most * 4000
        claim(backend, "job", {here: f"VCPU={capacity - 1},DISK_GB=1"})
        with pytest.raises(exceptions.CapacityException) as refused:
            claim(backend, "job-2", {here: "VCPU=2"})
        assert refused.value.reasons[0].free == 1
        claim(backend, "job-2", {here: "VCPU=1"})
        with pytest.raises(exceptions.CapacityException):
            claim(backend, "job-3", {here: f"VCPU={2**63 - 1}"})
        assert picture(backend).used("host0", "VCPU") == capacity

    @law(7)
    @pytest.mark.parametrize(
        ("figures", "capacity"),
        [
            ("VCPU=100:allocation_ratio=1.15", 115),
            ("VCPU=3:allocation_ratio=0.333334", 1),
            ("VCPU=3:allocation_ratio=0.333333", 0),
            ("VCPU=1000003:reserved=2:allocation_ratio=0.000001", 1),
            ("VCPU=7:allocation_ratio=0.142857", 0),
        ],
    )
    def test_ratios_are_exact(self, backend: Backend, figures: str, capacity: int) -> None:
        [here] = define(backend, host("host0", figures)).values()
        assert picture(backend).providers["host0"].inventories["VCPU"].capacity == capacity
        if capacity:
            claim(backend, "job", {here: f"VCPU={capacity}"})
        with pytest.raises(exceptions.CapacityException):
            claim(backend, "other", {here: "VCPU=1"})
