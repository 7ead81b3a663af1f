"""Rules of orders: consumers, how their claims change, and several of them in one write."""

from __future__ import annotations

import datetime
import uuid as uuids

import pytest

from resource_objects import exceptions
from resource_objects.exceptions import Rule
from resource_objects.providers import Backend
from resource_objects.providers.allocation import CONFIRMED, HELD, RELEASED
from resource_objects.providers.orders import (
    Adjustment,
    ClaimOrder,
    ClaimRecord,
    Held,
    Operation,
    Order,
    Release,
    Renewal,
    Replacement,
)
from resource_objects.testing.conformance.base import (
    Kit,
    adjust,
    claim,
    define,
    deltas,
    host,
    law,
    now,
    order,
    picture,
    release,
    told,
)

_LATER = datetime.datetime(2100, 2, 28, 23, 59, 59, 123456, tzinfo=datetime.UTC)


def _two_hosts(backend: Backend) -> tuple[str, str]:
    names = define(backend, host("host0"), host("host1"))
    return names["host0"], names["host1"]


def _only(backend: Backend, one: Order) -> ClaimRecord:
    [record] = order(backend, one)
    return record


class OrderRules(Kit):
    """What the orders of a write do."""

    # --- who consumes ---

    def test_a_consumer_is_told_in_full(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        wanted = ClaimOrder(
            "job",
            deltas({here: "VCPU=1"}),
            project="Größe",
            user="大",
            consumer_type="INSTANCE",
            expires_at=_LATER,
        )
        record = backend.claim(Operation(), wanted)
        said = record.project, record.user, record.consumer_type, record.expires_at
        assert said == ("Größe", "大", "INSTANCE", _LATER)
        assert backend.held("job") == record

    def test_what_is_not_said_is_none(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        record = claim(backend, "job", {here: "VCPU=1"})
        said = record.project, record.user, record.consumer_type, record.expires_at, record.request
        assert said == (None,) * 5
        assert backend.held("job") == record

    def test_several_consumers_are_read_at_once(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        records = {
            name: told(claim(backend, name, {here: "VCPU=1", there: "MEMORY_MB=7"}, project=name))
            for name in ("a", "B", "b")
        }
        held = backend.held_by(["a", "B", "b", "nobody"])
        assert {name: told(record) for name, record in held.items()} == records
        assert backend.held_by([]) == {}

    # --- generations ---

    def test_every_write_of_a_consumer_moves_its_generation(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        steps: list[Order] = [
            ClaimOrder("job", deltas({here: "VCPU=1"})),
            Adjustment("job", deltas({here: "VCPU=1"})),
            Replacement("job", deltas({there: "VCPU=1"})),
            Renewal("job", _LATER),
        ]
        generations = []
        for step in steps:
            generations.append(_only(backend, step).generation)
            record = backend.held("job")
            assert record is not None and record.generation == generations[-1]
            claim(backend, f"other-{len(generations)}", {here: "MEMORY_MB=1"})
        assert generations == sorted(set(generations))
        assert backend.held("job") == backend.held_by(["job"])["job"]

    @law(4)
    def test_a_generation_is_never_repeated(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        seen = set()
        for _ in range(4):
            seen.add(claim(backend, "job", {here: "VCPU=1"}).generation)
            seen.add(adjust(backend, "job", {here: "VCPU=1"}).generation)
            release(backend, "job")
        assert len(seen) == 8
        record = claim(backend, "job", {here: "VCPU=1"})
        for old in seen:
            with pytest.raises(exceptions.StaleConsumer):
                order(backend, Release("job", generation=old))
        assert backend.held("job") == record

    @law(2)
    @pytest.mark.parametrize("kind", ["adjust", "replace", "renew", "release"])
    def test_an_order_at_an_old_generation_is_refused(self, backend: Backend, kind: str) -> None:
        here, there = _two_hosts(backend)
        old = claim(backend, "job", {here: "VCPU=1"}).generation
        new = adjust(backend, "job", {here: "VCPU=1"}).generation
        before, record = picture(backend), backend.held("job")
        with pytest.raises(exceptions.StaleConsumer) as refused:
            order(backend, _order(kind, "job", there, old))
        assert refused.value.subject == "job" and str(new) in str(refused.value)
        assert (picture(backend), backend.held("job")) == (before, record)
        order(backend, _order(kind, "job", there, new))

    @pytest.mark.parametrize("kind", ["adjust", "replace"])
    def test_a_consumer_that_holds_nothing_is_at_no_generation(
        self, backend: Backend, kind: str
    ) -> None:
        here, _ = _two_hosts(backend)
        with pytest.raises(exceptions.StaleConsumer):
            order(backend, _order(kind, "job", here, 1))
        assert backend.held("job") is None
        assert _only(backend, _order(kind, "job", here, None)) == backend.held("job")

    @pytest.mark.parametrize("kind", ["renew", "release"])
    def test_who_holds_nothing_has_nothing_to_renew_or_release(
        self, backend: Backend, kind: str
    ) -> None:
        for generation in (None, 1):
            with pytest.raises(exceptions.ConsumerNotFound) as refused:
                order(backend, _order(kind, "job", str(uuids.uuid4()), generation))
            assert refused.value.subject == "job"

    @law(2)
    def test_the_id_of_a_claim_is_one_claims(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=1"})
        before = picture(backend)
        for again in (ClaimOrder, Replacement, Adjustment):
            with pytest.raises(exceptions.OperationConflict) as refused:
                order(backend, again("job-2", deltas({there: "VCPU=1"}), claim_id=first.id))
            assert refused.value.subject == first.id
        assert picture(backend) == before

    # --- adjusting for many ---

    def test_unit_rules_do_not_bind_who_stands_for_many(self, backend: Backend) -> None:
        [here] = define(backend, host("host0", "VCPU=8:min_unit=4:max_unit=4:step_size=4")).values()
        for amount in (1, 5, -2):
            adjust(backend, "many", {here: f"VCPU={amount}"}, aggregate=True)
        assert picture(backend).used("host0", "VCPU") == 4
        with pytest.raises(exceptions.CapacityException):
            adjust(backend, "many", {here: "VCPU=5"}, aggregate=True)
        with pytest.raises(exceptions.UnitRuleViolated):
            adjust(backend, "one", {here: "VCPU=1"})

    # --- replacing ---

    def test_replacing_leaves_just_what_is_said(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        claim(backend, "other", {here: "VCPU=1"})
        claimed = claim(backend, "job", {here: "VCPU=2,MEMORY_MB=512", there: "VCPU=1"})
        record = _only(backend, Replacement("job", deltas({there: "VCPU=3", here: "VCPU=1"})))
        assert set(record.held) == {Held(there, "host1", "VCPU", 3), Held(here, "host0", "VCPU", 1)}
        assert told(backend.held("job")) == told(record)
        assert (record.consumer_uuid, record.created_at) == (
            claimed.consumer_uuid,
            claimed.created_at,
        )
        found = picture(backend)
        assert found.holds("job") == {("host1", "VCPU"): 3, ("host0", "VCPU"): 1}
        assert found.used("host0", "VCPU") == 2

    def test_replacing_makes_a_consumer(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        wanted = Replacement(
            "job", deltas({here: "VCPU=2"}), request="{}", project="p", user="u", consumer_type="t"
        )
        record = _only(backend, wanted)
        assert (record.id, record.state, record.expires_at) == (wanted.claim_id, HELD, None)
        assert (record.request, record.project, record.user) == ("{}", "p", "u")
        assert backend.held("job") == record

    def test_a_claim_that_is_replaced_stays_that_claim(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=2"}, project="p", user="u", request="[1]")
        order(backend, Renewal("job", _LATER, CONFIRMED))
        record = _only(backend, Replacement("job", deltas({there: "VCPU=1"}), user="v"))
        assert (record.id, record.state, record.expires_at) == (first.id, CONFIRMED, _LATER)
        assert (record.project, record.user, record.request) == ("p", "v", None)
        assert backend.held("job") == record
        other = _only(backend, Replacement("job", deltas({there: "VCPU=1"}), request="[2]"))
        assert (other.request, backend.held("job")) == ("[2]", other)
        assert adjust(backend, "job", {there: "VCPU=1"}).state == CONFIRMED

    @law(4, 6)
    def test_replacing_counts_what_is_given_back(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        claim(backend, "other", {here: "VCPU=4", there: "VCPU=8"})
        claim(backend, "job", {here: "VCPU=4"})
        before = picture(backend)
        for wanted in ({here: "VCPU=5"}, {here: "VCPU=1", there: "VCPU=1"}):
            with pytest.raises(exceptions.CapacityException) as refused:
                order(backend, Replacement("job", deltas(wanted)))
            assert [reason.rule for reason in refused.value.reasons] == [Rule.CAPACITY]
        assert picture(backend) == before
        order(backend, Replacement("job", deltas({here: "VCPU=3,MEMORY_MB=5"})))
        order(backend, Replacement("job", deltas({here: "VCPU=4"})))
        assert picture(backend) == before

    @law(5)
    def test_unit_rules_bind_what_grows(self, backend: Backend) -> None:
        [here] = define(backend, host("host0", "VCPU=8,MEMORY_MB=64")).values()
        claim(backend, "job", {here: "VCPU=5,MEMORY_MB=1"})
        define(backend, host("host0", "VCPU=8:min_unit=4:max_unit=6:step_size=2,MEMORY_MB=64"))
        for wanted in ("VCPU=5,MEMORY_MB=2", "VCPU=3", "VCPU=1"):
            order(backend, Replacement("job", deltas({here: wanted})))
        for wanted in ("VCPU=2", "VCPU=3", "VCPU=8"):
            with pytest.raises(exceptions.UnitRuleViolated):
                order(backend, Replacement("job", deltas({here: wanted})))
        order(backend, Replacement("job", deltas({here: "VCPU=4"})))

    def test_replacing_with_the_same_changes_nothing_but_the_generation(
        self, backend: Backend
    ) -> None:
        here, there = _two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=8", there: "VCPU=1"})
        before = picture(backend)
        record = _only(backend, Replacement("job", deltas({there: "VCPU=1", here: "VCPU=8"})))
        assert picture(backend) == before
        assert set(record.held) == set(first.held) and record.generation > first.generation

    # --- renewing ---

    def test_a_renewal_changes_expiry_and_state_and_nothing_else(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=2"}, project="p")
        before = picture(backend)
        steps = [(_LATER, HELD), (None, CONFIRMED), (_LATER, CONFIRMED), (None, HELD)]
        for expires_at, state in steps:
            record = _only(backend, Renewal("job", expires_at, state, first.id))
            assert (record.expires_at, record.state) == (expires_at, state)
            assert (record.id, record.held, record.project) == (first.id, first.held, "p")
            assert backend.held("job") == record
        assert picture(backend) == before

    def test_a_renewal_may_demand_a_claim(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=2"})
        release(backend, "job")
        second = claim(backend, "job", {here: "VCPU=2"})
        with pytest.raises(exceptions.StaleConsumer) as refused:
            order(backend, Renewal("job", _LATER, claim_id=first.id))
        assert refused.value.subject == "job"
        assert backend.held("job") == second

    def test_a_renewal_releases_nothing(self) -> None:
        with pytest.raises(exceptions.InvalidField):
            Renewal("job", None, RELEASED)

    def test_an_expired_claim_is_held_until_somebody_releases_it(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        past = now() - datetime.timedelta(days=1)
        record = claim(backend, "job", {here: "VCPU=8"}, expires_at=past)
        assert backend.held("job") == record
        with pytest.raises(exceptions.CapacityException):
            claim(backend, "job-2", {here: "VCPU=1"})

    # --- several in one write ---

    @law(2)
    def test_many_consumers_are_written_at_once(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        claim(backend, "goes", {here: "VCPU=8"})
        claim(backend, "grows", {there: "VCPU=1"})
        claim(backend, "moves", {there: "VCPU=6"})
        claim(backend, "stays", {there: "MEMORY_MB=1"})
        records = order(
            backend,
            ClaimOrder("comes", deltas({there: "VCPU=4"})),
            Release("goes"),
            Adjustment("grows", deltas({there: "VCPU=2"})),
            Replacement("moves", deltas({here: "VCPU=7"})),
            Renewal("stays", _LATER),
        )
        assert [record.consumer for record in records] == [
            "comes",
            "goes",
            "grows",
            "moves",
            "stays",
        ]
        assert len({record.generation for record in records}) == 1
        assert (records[1].state, records[1].held[0].amount) == (RELEASED, 8)
        assert backend.held_by(["comes", "goes", "grows", "moves", "stays"]) == {
            record.consumer: record for record in records if record.consumer != "goes"
        }
        assert picture(backend).allocations == {
            ("comes", "host1", "VCPU"): 4,
            ("grows", "host1", "VCPU"): 3,
            ("moves", "host0", "VCPU"): 7,
            ("stays", "host1", "MEMORY_MB"): 1,
        }

    def test_each_of_several_keeps_its_request(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        requests = {"a": '{"n": 1}', "b": None, "c": '{"n": 1}', "d": '{"n": 2}', "e": ""}
        operation = Operation()
        gang = [
            ClaimOrder(name, deltas({here: "VCPU=1"}), request=request)
            for name, request in requests.items()
        ]
        first = order(backend, *gang, operation=operation)
        again = order(backend, *gang, operation=operation)
        for told_of in (first, again, backend.held_by(list(requests)).values()):
            assert {one.consumer: one.request for one in told_of} == requests

    @law(2)
    @pytest.mark.parametrize("place", range(3))
    def test_one_refused_order_of_many_refuses_all(self, backend: Backend, place: int) -> None:
        here, there = _two_hosts(backend)
        claim(backend, "goes", {here: "VCPU=1"})
        old = claim(backend, "changed", {here: "VCPU=1"}).generation
        adjust(backend, "changed", {here: "VCPU=1"})
        before = picture(backend)
        nobody = str(uuids.uuid4())
        refusals: list[tuple[Order, type[Exception]]] = [
            (ClaimOrder("changed", deltas({here: "VCPU=1"})), exceptions.ConsumerExists),
            (ClaimOrder("big", deltas({here: "VCPU=9"})), exceptions.CapacityException),
            (ClaimOrder("lost", deltas({nobody: "VCPU=1"})), exceptions.ProviderNotFound),
            (ClaimOrder("other", deltas({here: "DISK_GB=1"})), exceptions.InventoryNotFound),
            (Release("nobody"), exceptions.ConsumerNotFound),
            (Renewal("nobody", None), exceptions.ConsumerNotFound),
            (Release("changed", generation=old), exceptions.StaleConsumer),
            (Adjustment("changed", deltas({there: "VCPU=-1"})), exceptions.CapacityException),
        ]
        for refused, error in refusals:
            good: list[Order] = [
                ClaimOrder("comes", deltas({there: "VCPU=1"})),
                Release("goes"),
            ]
            good.insert(place, refused)
            with pytest.raises(error):
                order(backend, *good)
            assert picture(backend) == before
            assert backend.held_by(["comes", "big", "lost", "other"]) == {}

    @law(4)
    def test_what_several_take_together_is_judged_together(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        claim(backend, "other", {here: "VCPU=2"})
        before = picture(backend)
        gang = [ClaimOrder(f"job-{n}", deltas({here: "VCPU=3"})) for n in range(3)]
        with pytest.raises(exceptions.CapacityException) as refused:
            order(backend, *gang)
        [reason] = refused.value.reasons
        assert (reason.rule, reason.requested, reason.bound) == (Rule.CAPACITY, 9, 8)
        assert (reason.used, reason.holders) == (2, (("other", 2),))
        assert picture(backend) == before
        order(backend, *gang[:2])
        assert picture(backend).used("host0", "VCPU") == 8

    @law(4)
    def test_two_may_swap_full_places(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        claim(backend, "a", {here: "VCPU=8"})
        claim(backend, "b", {there: "VCPU=8"})
        order(
            backend,
            Replacement("a", deltas({there: "VCPU=8"})),
            Replacement("b", deltas({here: "VCPU=8"})),
        )
        assert picture(backend).allocations == {
            ("a", "host1", "VCPU"): 8,
            ("b", "host0", "VCPU"): 8,
        }

    @law(4)
    def test_a_place_may_be_handed_over_and_no_more_than_it(self, backend: Backend) -> None:
        here, there = _two_hosts(backend)
        claim(backend, "a", {here: "VCPU=8", there: "VCPU=6"})
        with pytest.raises(exceptions.CapacityException):
            order(
                backend,
                Release("a"),
                ClaimOrder("b", deltas({here: "VCPU=8", there: "VCPU=2"})),
                ClaimOrder("c", deltas({there: "VCPU=7"})),
            )
        assert backend.held_by(["b", "c"]) == {}
        order(
            backend,
            ClaimOrder("b", deltas({here: "VCPU=8", there: "VCPU=2"})),
            ClaimOrder("c", deltas({there: "VCPU=6"})),
            Release("a"),
        )
        assert picture(backend).holds("b") == {("host0", "VCPU"): 8, ("host1", "VCPU"): 2}

    @law(5)
    def test_unit_rules_bind_each_of_several(self, backend: Backend) -> None:
        [here] = define(backend, host("host0", "VCPU=8:step_size=2:max_unit=4")).values()
        odd = [ClaimOrder(f"job-{n}", deltas({here: "VCPU=1"})) for n in range(2)]
        with pytest.raises(exceptions.UnitRuleViolated) as refused:
            order(backend, *odd)
        assert {reason.rule for reason in refused.value.reasons} == {Rule.STEP_SIZE}
        order(backend, *(ClaimOrder(f"job-{n}", deltas({here: "VCPU=4"})) for n in range(2)))

    @law(4)
    def test_over_full_several_may_make_it_no_worse(self, backend: Backend) -> None:
        here, _ = _two_hosts(backend)
        claim(backend, "a", {here: "VCPU=4"})
        claim(backend, "b", {here: "VCPU=4"})
        define(backend, host("host0", "VCPU=2,MEMORY_MB=16384"))
        order(
            backend,
            Adjustment("a", deltas({here: "VCPU=-3"})),
            Adjustment("b", deltas({here: "VCPU=3"})),
        )
        assert picture(backend).holds("b") == {("host0", "VCPU"): 7}
        with pytest.raises(exceptions.CapacityException):
            order(
                backend,
                Adjustment("a", deltas({here: "VCPU=2"})),
                Adjustment("b", deltas({here: "VCPU=-1"})),
            )

    def test_a_gang_may_be_large(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}", "VCPU=8,DISK_GB=9") for n in range(40)))
        uuids = list(names.values())
        gang = [
            ClaimOrder(f"job-{n}", deltas({uuids[n % 40]: "VCPU=1,DISK_GB=1"})) for n in range(240)
        ]
        records = order(backend, *gang)
        assert [record.consumer for record in records] == [one.consumer for one in gang]
        found = picture(backend)
        assert len(found.allocations) == 480 and found.used("host39", "VCPU") == 6
        held = backend.held_by([one.consumer for one in gang])
        assert [told(held[one.consumer]) for one in gang] == [told(record) for record in records]
        order(backend, *(Release(one.consumer) for one in gang))
        assert picture(backend).allocations == {}


def _order(kind: str, consumer: str, uuid: str, generation: int | None) -> Order:
    if kind == "adjust":
        return Adjustment(consumer, deltas({uuid: "VCPU=1"}), generation=generation)
    if kind == "replace":
        return Replacement(consumer, deltas({uuid: "VCPU=1"}), generation=generation)
    if kind == "renew":
        return Renewal(consumer, None, generation=generation)
    return Release(consumer, generation=generation)
