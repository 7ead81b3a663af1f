"""Rules of claims, adjustments and releases, and of units, each of which is one consumer's."""

from __future__ import annotations

import datetime
import json
import uuid as uuids

import pytest

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.providers import Backend, Provider
from resource_objects.providers.allocation import HELD, RELEASED
from resource_objects.providers.decision import MOST_HOLDERS
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Operation,
    StoredRequest,
    Use,
)
from resource_objects.providers.provider import Share
from resource_objects.testing.conformance.suite import (
    Kit,
    adjust,
    claim,
    define,
    deltas,
    host,
    kept,
    law,
    order,
    picture,
    release,
    told,
    two_hosts,
)


class ClaimRules(Kit):
    """What ``claim``, ``adjust`` and ``release`` do."""

    # --- claim ---

    def test_a_claim_is_told_in_full(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
        before = datetime.datetime.now(datetime.UTC)
        wanted = deltas({here: "VCPU=2,MEMORY_MB=512", there: "VCPU=1"})
        order = ConsumerOrder.claim("job", wanted, uuid=str(uuids.uuid4()))
        record = backend.claim(Operation(), order)
        assert (record.uuid, record.consumer, record.state) == (order.uuid, "job", HELD)
        assert record.uuid == str(uuids.UUID(record.uuid))
        assert before <= record.created_at <= datetime.datetime.now(datetime.UTC)
        assert set(record.held) == {
            Use(here, "VCPU", 2, (), "host0"),
            Use(here, "MEMORY_MB", 512, (), "host0"),
            Use(there, "VCPU", 1, (), "host1"),
        }

    def test_what_is_claimed_is_held(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
        record = claim(backend, "job", {there: "VCPU=2", here: "MEMORY_MB=512,VCPU=1"})
        assert backend.held("job") == record
        assert picture(backend).allocations == {
            ("job", "host0", "VCPU"): 1,
            ("job", "host0", "MEMORY_MB"): 512,
            ("job", "host1", "VCPU"): 2,
        }

    def test_nobody_holds_what_was_not_claimed(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        claim(backend, "job", {here: "VCPU=2"})
        assert backend.held("job-2") is None

    def test_the_request_is_kept_with_the_claim(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        text = json.dumps({"said": "Größe 大小 🖥 \\ \" ' % :x ?", "long": "x" * 200_000})
        request = StoredRequest(text)
        order = ConsumerOrder.claim("job", deltas({here: "VCPU=2"}), request=request)
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
        here, there = two_hosts(backend)
        claim(backend, "other", {there: "VCPU=8"})
        before = picture(backend)
        with pytest.raises(exceptions.CapacityException):
            claim(backend, "job", {here: "VCPU=1,MEMORY_MB=1", there: "MEMORY_MB=1,VCPU=1"})
        assert picture(backend) == before
        assert backend.held("job") is None

    @law(6)
    def test_a_refusal_names_all_that_stands_against_it(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
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
        here, _ = two_hosts(backend)
        for name, amount in (("j-10", 1), ("c", 3), ("j-2", 1), ("d", 2), ("j-3", 1)):
            claim(backend, name, {here: f"VCPU={amount}"})
        with pytest.raises(exceptions.CapacityException) as refused:
            claim(backend, "job", {here: "VCPU=1"})
        [reason] = refused.value.reasons
        largest = (("c", 3), ("d", 2), ("j-2", 1), ("j-3", 1), ("j-10", 1))
        assert reason.holders == largest[:MOST_HOLDERS]

    @law(6)
    def test_holders_are_those_of_today(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
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
        here, _ = two_hosts(backend)
        for resource_class in ("DISK_GB", "CUSTOM_NEVER_SEEN"):
            with pytest.raises(exceptions.InventoryNotFound):
                claim(backend, "job", {here: f"{resource_class}=1"})

    @law(2)
    def test_an_unknown_provider_refuses_the_whole_claim(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        before = picture(backend)
        nobody = str(uuids.uuid4())
        with pytest.raises(exceptions.ProviderNotFound) as refused:
            claim(backend, "job", {here: "VCPU=1", nobody: "VCPU=1"})
        assert refused.value.subject == nobody
        assert picture(backend) == before

    @law(2)
    @pytest.mark.parametrize("amount", [1, 9])
    def test_who_holds_something_cannot_claim(self, backend: Backend, amount: int) -> None:
        here, there = two_hosts(backend)
        claim(backend, "job", {here: "VCPU=1"})
        before = picture(backend)
        with pytest.raises(exceptions.ConsumerExists) as refused:
            claim(backend, "job", {there: f"VCPU={amount}"})
        assert refused.value.subject == "job"
        assert picture(backend) == before

    def test_claims_leave_definitions_alone(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
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
        here, _ = two_hosts(backend)
        record = adjust(backend, "job", {here: "VCPU=2"})
        assert backend.held("job") == record
        assert record.held == (Use(here, "VCPU", 2, (), "host0"),)

    def test_adjusting_adds_and_gives_back_in_one(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
        claimed = claim(backend, "job", {here: "VCPU=4,MEMORY_MB=512"})
        record = adjust(backend, "job", {here: "VCPU=-4,MEMORY_MB=512", there: "VCPU=4"})
        assert record.state == HELD
        assert picture(backend).allocations == {
            ("job", "host0", "MEMORY_MB"): 1024,
            ("job", "host1", "VCPU"): 4,
        }
        assert backend.held("job") == record
        assert record.uuid == claimed.uuid
        assert record.created_at == claimed.created_at

    def test_who_gives_back_all_is_forgotten(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
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
        here, there = two_hosts(backend)
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
        here, _ = two_hosts(backend)
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
        here, there = two_hosts(backend)
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

    @law(4)
    def test_what_is_in_use_already_is_adopted_above_the_capacity(self, backend: Backend) -> None:
        tree = host("host0", "VCPU=8:max_unit=2")
        share = Share(resource_class="VCPU", of="host0", of_class="VCPU")
        tree.add("host0/a", "VCPU=4", shares=[share])
        made = define(backend, tree)
        here, part = made["host0"], made["host0/a"]
        claim(backend, "job", {here: "VCPU=2"})
        adjust(backend, "nobody", {here: "VCPU=5", part: "VCPU=5"}, adopts=True, aggregate=True)
        found = picture(backend)
        assert (found.used("host0", "VCPU"), found.used("host0/a", "VCPU")) == (12, 5)
        with pytest.raises(exceptions.CapacityException):
            adjust(backend, "nobody", {here: "VCPU=1"}, aggregate=True)
        with pytest.raises(exceptions.CapacityException):
            adjust(backend, "nobody", {here: "VCPU=-6"}, adopts=True)
        given = ConsumerOrder.adjust("nobody", deltas({here: "VCPU=-5"}), aggregate=True)
        taken = ConsumerOrder.adjust("vm", deltas({here: "VCPU=5"}), adopts=True)
        order(backend, taken, given)
        assert picture(backend).used("host0", "VCPU") == 12
        assert picture(backend).allocations["vm", "host0", "VCPU"] == 5

    # --- release ---

    @law(3)
    def test_there_and_back(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
        claim(backend, "other", {here: "VCPU=2", there: "MEMORY_MB=7"})
        before = picture(backend)
        record = claim(backend, "job", {here: "VCPU=1", there: "VCPU=2,MEMORY_MB=512"})
        released = release(backend, "job")
        assert picture(backend) == before
        assert released.state == RELEASED
        assert (released.uuid, released.held) == (record.uuid, record.held)
        assert released.uuid == record.uuid

    def test_who_released_may_claim_again_as_somebody_new(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=8"})
        release(backend, "job")
        second = claim(backend, "job", {here: "VCPU=8"})
        assert first.uuid != second.uuid

    def test_who_holds_nothing_cannot_release(self, backend: Backend) -> None:
        two_hosts(backend)
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


# --- units: CPUs and devices by name ---


def _host(backend: Backend, inventories: str = "VCPU=8,PCPU=8") -> str:
    return define(backend, host("host0", inventories))["host0"]


def _take(backend: Backend, consumer: str, uuid: str, *units: str) -> ConsumerRecord:
    wanted = Use(uuid, "PCPU", len(units), units)
    [record] = order(backend, ConsumerOrder.claim(consumer, (wanted,)))
    return record


class UnitRules(Kit):
    """What becomes of units."""

    def test_units_are_held_by_name(self, backend: Backend) -> None:
        here = _host(backend)
        record = _take(backend, "job", here, "cpu3", "cpu1")
        [held] = record.held
        assert (held.amount, set(held.units)) == (2, {"cpu1", "cpu3"})
        assert told(backend.held("job")) == told(record)
        assert picture(backend).units == {
            ("host0", "cpu1"): ("PCPU", "job"),
            ("host0", "cpu3"): ("PCPU", "job"),
        }
        assert picture(backend, "host0").units == picture(backend).units

    def test_units_of_other_providers_are_others(self, backend: Backend) -> None:
        names = define(backend, host("host0", "PCPU=8"), host("host1", "PCPU=8"))
        for number, uuid in enumerate(names.values()):
            _take(backend, f"job-{number}", uuid, "cpu0")
        assert set(picture(backend).units) == {("host0", "cpu0"), ("host1", "cpu0")}
        assert set(picture(backend, "host1").units) == {("host1", "cpu0")}

    @law(4, 6)
    def test_a_unit_belongs_to_one_consumer(self, backend: Backend) -> None:
        here = _host(backend)
        _take(backend, "first", here, "cpu0", "cpu1")
        before = picture(backend)
        with pytest.raises(exceptions.UnitTaken) as refused:
            _take(backend, "second", here, "cpu2", "cpu1")
        [reason] = refused.value.reasons
        assert (reason.rule, reason.unit, reason.where) == (Rule.UNIT_TAKEN, "cpu1", "host0")
        assert (reason.resource, reason.holders) == ("PCPU", (("first", 1),))
        assert picture(backend) == before
        with pytest.raises(exceptions.UnitTaken):  # whatever it is counted as
            order(backend, ConsumerOrder.claim("third", (Use(here, "VCPU", 1, ("cpu0",)),)))
        with pytest.raises(exceptions.UnitTaken):
            order(backend, ConsumerOrder.adjust("first", (Use(here, "PCPU", 1, ("cpu0",)),)))
        assert picture(backend) == before

    @law(4)
    def test_two_in_one_write_cannot_take_one_unit(self, backend: Backend) -> None:
        here = _host(backend)
        before = picture(backend)
        with pytest.raises(exceptions.UnitTaken):
            order(
                backend,
                ConsumerOrder.claim("a", (Use(here, "PCPU", 1, ("cpu0",)),)),
                ConsumerOrder.claim("b", (Use(here, "VCPU", 1, ("cpu0",)),)),
            )
        assert picture(backend) == before

    @law(3)
    def test_released_units_can_be_had_again(self, backend: Backend) -> None:
        here = _host(backend)
        before = picture(backend)
        _take(backend, "first", here, "cpu0", "cpu1")
        assert set(release(backend, "first").held[0].units) == {"cpu0", "cpu1"}
        assert picture(backend) == before
        _take(backend, "second", here, "cpu0", "cpu1")

    def test_units_are_given_back_and_taken_one_by_one(self, backend: Backend) -> None:
        here = _host(backend)
        _take(backend, "job", here, "cpu0", "cpu1", "cpu2")
        order(backend, ConsumerOrder.adjust("job", (Use(here, "PCPU", -2, ("cpu0", "cpu2")),)))
        assert _units(backend, "job") == {"cpu1"}
        order(backend, ConsumerOrder.adjust("job", (Use(here, "PCPU", 1, ("cpu7",)),)))
        assert _units(backend, "job") == {"cpu1", "cpu7"}
        assert picture(backend).used("host0", "PCPU") == 2
        _take(backend, "other", here, "cpu0")

    def test_giving_back_everything_gives_back_the_units(self, backend: Backend) -> None:
        here = _host(backend)
        _take(backend, "job", here, "cpu0", "cpu1")
        order(
            backend,
            ConsumerOrder.adjust("job", (Use(here, "PCPU", -2), Use(here, "VCPU", 1))),
        )
        assert picture(backend).units == {}
        _take(backend, "other", here, "cpu0")

    @law(2)
    def test_who_gives_back_some_says_which(self, backend: Backend) -> None:
        here = _host(backend)
        _take(backend, "job", here, "cpu0", "cpu1")
        before = picture(backend)
        with pytest.raises(exceptions.InvalidAmount):
            order(backend, ConsumerOrder.adjust("job", (Use(here, "PCPU", -1),)))
        assert picture(backend) == before

    @law(2)
    def test_nobody_gives_back_a_unit_of_others(self, backend: Backend) -> None:
        here = _host(backend)
        _take(backend, "other", here, "cpu0")
        _take(backend, "job", here, "cpu1")
        before = picture(backend)
        for unit in ("cpu0", "cpu7"):
            with pytest.raises(exceptions.UnitNotHeld) as refused:
                order(backend, ConsumerOrder.adjust("job", (Use(here, "PCPU", -1, (unit,)),)))
            assert refused.value.subject == unit
        with pytest.raises(exceptions.UnitNotHeld):  # it is held as another class
            order(backend, ConsumerOrder.adjust("job", (Use(here, "VCPU", -1, ("cpu1",)),)))
        assert picture(backend) == before

    def test_replacing_keeps_gives_and_takes_units(self, backend: Backend) -> None:
        here = _host(backend)
        _take(backend, "job", here, "cpu0", "cpu1")
        order(backend, ConsumerOrder.replace("job", (Use(here, "PCPU", 2, ("cpu1", "cpu2")),)))
        assert _units(backend, "job") == {"cpu1", "cpu2"}
        order(backend, ConsumerOrder.replace("job", (Use(here, "VCPU", 1, ("cpu2",)),)))
        assert picture(backend).units == {("host0", "cpu2"): ("VCPU", "job")}
        order(backend, ConsumerOrder.replace("job", deltas({here: "VCPU=1"})))
        assert picture(backend).units == {}

    @law(4)
    def test_a_full_place_swaps_its_units(self, backend: Backend) -> None:
        here = _host(backend, "PCPU=2")
        _take(backend, "a", here, "cpu0")
        _take(backend, "b", here, "cpu1")
        order(
            backend,
            ConsumerOrder.replace("a", (Use(here, "PCPU", 1, ("cpu1",)),)),
            ConsumerOrder.replace("b", (Use(here, "PCPU", 1, ("cpu0",)),)),
        )
        assert picture(backend).units == {
            ("host0", "cpu1"): ("PCPU", "a"),
            ("host0", "cpu0"): ("PCPU", "b"),
        }

    def test_a_unit_is_handed_over_within_one_write(self, backend: Backend) -> None:
        here = _host(backend)
        _take(backend, "a", here, "cpu0", "cpu1")
        order(
            backend,
            ConsumerOrder.claim("b", (Use(here, "PCPU", 1, ("cpu0",)),)),
            ConsumerOrder.adjust("a", (Use(here, "PCPU", -1, ("cpu0",)),)),
        )
        assert (_units(backend, "a"), _units(backend, "b")) == ({"cpu1"}, {"cpu0"})
        order(
            backend,
            ConsumerOrder.release("a"),
            ConsumerOrder.adjust("b", (Use(here, "VCPU", 1, ("cpu1",)),)),
        )
        assert picture(backend).units == {
            ("host0", "cpu0"): ("PCPU", "b"),
            ("host0", "cpu1"): ("VCPU", "b"),
        }

    @law(7)
    def test_units_that_look_alike_differ(self, backend: Backend) -> None:
        here = _host(backend, "PCPU=16")
        alike = [
            "0000:0a:00.0",
            "0000:0A:00.0",
            "a",
            "A",
            "ä",
            "a\u0308",
            "大",
            "ß",
            "ss",
            "u" * 255,
        ]
        _take(backend, "job", here, *alike)
        assert _units(backend, "job") == set(alike)
        for unit in alike:
            with pytest.raises(exceptions.UnitTaken):
                _take(backend, "other", here, unit)

    def test_many_units_are_one_write(self, backend: Backend) -> None:
        here = _host(backend, "PCPU=600")
        units = [f"cpu{n}" for n in range(600)]
        _take(backend, "job", here, *units)
        assert _units(backend, "job") == set(units)
        with pytest.raises(exceptions.CapacityException):
            _take(backend, "other", here, *units)
        order(
            backend,
            ConsumerOrder.release("job"),
            *(ConsumerOrder.claim(unit, (Use(here, "PCPU", 1, (unit,)),)) for unit in units),
        )
        assert picture(backend).units == {("host0", unit): ("PCPU", unit) for unit in units}

    def test_units_go_with_a_provider_that_is_renamed_and_moved(self, backend: Backend) -> None:
        tree = host("host0", "VCPU=1")
        tree.add("host0/cell0", "PCPU=4")
        names = define(backend, tree)
        _take(backend, "job", names["host0/cell0"], "cpu0")
        tree = kept(backend, "host0")
        tree.find("host0/cell0").update(name="cell")
        define(backend, tree)
        assert picture(backend).units == {("cell", "cpu0"): ("PCPU", "job")}


def _units(backend: Backend, consumer: str) -> set[str]:
    record = backend.held(consumer)
    assert record is not None
    return {unit for held in record.held for unit in held.units}
