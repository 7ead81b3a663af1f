"""Rules of orders: consumers, how their claims change, and several of them in one write.

A write that is repeated happens once, and one may change definitions and what is held at once.
"""

from __future__ import annotations

import dataclasses
import datetime
import uuid as uuids
from typing import Any

import pytest

from resource_objects import exceptions
from resource_objects.exceptions import Rule
from resource_objects.providers import Backend, Provider
from resource_objects.providers.allocation import CONFIRMED, HELD, RELEASED
from resource_objects.providers.definition import DefinitionChanges, ProviderRemoval
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Expect,
    NameAction,
    NameChange,
    Operation,
    StoredRequest,
    Use,
    Write,
)
from resource_objects.providers.provider import Share
from resource_objects.resources import Inventories
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.conformance.suite import (
    CLASS,
    Kit,
    adjust,
    changes_to,
    claim,
    define,
    deltas,
    host,
    kept,
    law,
    now,
    order,
    picture,
    release,
    rename,
    told,
    two_hosts,
)

_LATER = datetime.datetime(2100, 2, 28, 23, 59, 59, 123456, tzinfo=datetime.UTC)


def _only(backend: Backend, one: ConsumerOrder) -> ConsumerRecord:
    [record] = order(backend, one)
    return record


class OrderRules(Kit):
    """What the orders of a write do."""

    # --- who consumes ---

    def test_a_consumer_is_told_in_full(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        wanted = ConsumerOrder.claim(
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
        here, _ = two_hosts(backend)
        record = claim(backend, "job", {here: "VCPU=1"})
        said = record.project, record.user, record.consumer_type, record.expires_at, record.request
        assert said == (None,) * 5
        assert backend.held("job") == record

    def test_several_consumers_are_read_at_once(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
        records = {
            name: told(claim(backend, name, {here: "VCPU=1", there: "MEMORY_MB=7"}, project=name))
            for name in ("a", "B", "b")
        }
        held = backend.held_by(["a", "B", "b", "nobody"])
        assert {name: told(record) for name, record in held.items()} == records
        assert backend.held_by([]) == {}

    # --- generations ---

    def test_every_write_of_a_consumer_moves_its_generation(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
        steps: list[ConsumerOrder] = [
            ConsumerOrder.claim("job", deltas({here: "VCPU=1"})),
            ConsumerOrder.adjust("job", deltas({here: "VCPU=1"})),
            ConsumerOrder.replace("job", deltas({there: "VCPU=1"})),
            ConsumerOrder.renew("job", _LATER),
        ]
        generations = []
        for step in steps:
            generations.append(_only(backend, step).generation)
            record = backend.held("job")
            assert record is not None and record.generation == generations[-1]
            claim(backend, f"other-{len(generations)}", {here: "MEMORY_MB=1"})
        assert len(set(generations)) == len(steps)
        assert backend.held("job") == backend.held_by(["job"])["job"]

    @law(4)
    def test_a_generation_is_never_repeated(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        seen = set()
        for _ in range(4):
            seen.add(claim(backend, "job", {here: "VCPU=1"}).generation)
            seen.add(adjust(backend, "job", {here: "VCPU=1"}).generation)
            release(backend, "job")
        assert len(seen) == 8
        record = claim(backend, "job", {here: "VCPU=1"})
        for old in seen:
            with pytest.raises(exceptions.StaleConsumer):
                order(backend, ConsumerOrder.release("job", generation=old))
        assert backend.held("job") == record

    @law(2)
    @pytest.mark.parametrize("kind", ["adjust", "replace", "renew", "release"])
    def test_an_order_at_an_old_generation_is_refused(self, backend: Backend, kind: str) -> None:
        here, there = two_hosts(backend)
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
        here, _ = two_hosts(backend)
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
        here, there = two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=1"})
        before = picture(backend)
        for again in (ConsumerOrder.claim, ConsumerOrder.adjust, ConsumerOrder.replace):
            with pytest.raises(exceptions.OperationConflict) as refused:
                order(backend, again("job-2", deltas({there: "VCPU=1"}), uuid=first.uuid))
            assert refused.value.subject == first.uuid
        assert picture(backend) == before

    @law(2)
    def test_the_id_of_a_claim_that_is_taken_is_not_told_as_anothers_of_the_same_write(
        self, backend: Backend
    ) -> None:
        here, there = two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=1"})
        before, operation = picture(backend), Operation()
        orders = tuple(
            ConsumerOrder.claim(name, deltas({there: "VCPU=1"}), uuid=uuid)
            for name, uuid in (("job-2", str(uuids.uuid4())), ("job-3", first.uuid))
        )
        with pytest.raises(exceptions.OperationConflict) as refused:
            backend.commit(Write(operation, "gang", "gang", orders=orders))
        assert refused.value.subject in (first.uuid, operation.id)
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
        here, there = two_hosts(backend)
        claim(backend, "other", {here: "VCPU=1"})
        claimed = claim(backend, "job", {here: "VCPU=2,MEMORY_MB=512", there: "VCPU=1"})
        record = _only(
            backend, ConsumerOrder.replace("job", deltas({there: "VCPU=3", here: "VCPU=1"}))
        )
        assert set(record.held) == {
            Use(there, "VCPU", 3, (), "host1"),
            Use(here, "VCPU", 1, (), "host0"),
        }
        assert told(backend.held("job")) == told(record)
        assert (record.uuid, record.created_at) == (
            claimed.uuid,
            claimed.created_at,
        )
        found = picture(backend)
        assert found.holds("job") == {("host1", "VCPU"): 3, ("host0", "VCPU"): 1}
        assert found.used("host0", "VCPU") == 2

    def test_replacing_makes_a_consumer(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        wanted = ConsumerOrder.replace(
            "job",
            deltas({here: "VCPU=2"}),
            request=StoredRequest("{}"),
            project="p",
            user="u",
            consumer_type="t",
        )
        record = _only(backend, wanted)
        assert (record.state, record.expires_at) == (HELD, None)
        assert (record.request, record.project, record.user) == (StoredRequest("{}"), "p", "u")
        assert backend.held("job") == record

    def test_a_claim_that_is_replaced_stays_that_claim(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
        first = claim(
            backend, "job", {here: "VCPU=2"}, project="p", user="u", request=StoredRequest("[1]")
        )
        order(backend, ConsumerOrder.renew("job", _LATER, CONFIRMED))
        record = _only(backend, ConsumerOrder.replace("job", deltas({there: "VCPU=1"}), user="v"))
        assert (record.uuid, record.state, record.expires_at) == (first.uuid, CONFIRMED, _LATER)
        assert (record.project, record.user, record.request) == ("p", "v", None)
        assert backend.held("job") == record
        other = _only(
            backend,
            ConsumerOrder.replace("job", deltas({there: "VCPU=1"}), request=StoredRequest("[2]")),
        )
        assert (other.request, backend.held("job")) == (StoredRequest("[2]"), other)
        assert adjust(backend, "job", {there: "VCPU=1"}).state == CONFIRMED

    @law(4, 6)
    def test_replacing_counts_what_is_given_back(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
        claim(backend, "other", {here: "VCPU=4", there: "VCPU=8"})
        claim(backend, "job", {here: "VCPU=4"})
        before = picture(backend)
        for wanted in ({here: "VCPU=5"}, {here: "VCPU=1", there: "VCPU=1"}):
            with pytest.raises(exceptions.CapacityException) as refused:
                order(backend, ConsumerOrder.replace("job", deltas(wanted)))
            assert [reason.rule for reason in refused.value.reasons] == [Rule.CAPACITY]
        assert picture(backend) == before
        order(backend, ConsumerOrder.replace("job", deltas({here: "VCPU=3,MEMORY_MB=5"})))
        order(backend, ConsumerOrder.replace("job", deltas({here: "VCPU=4"})))
        assert picture(backend) == before

    @law(5)
    def test_unit_rules_bind_what_grows(self, backend: Backend) -> None:
        [here] = define(backend, host("host0", "VCPU=8,MEMORY_MB=64")).values()
        claim(backend, "job", {here: "VCPU=5,MEMORY_MB=1"})
        define(backend, host("host0", "VCPU=8:min_unit=4:max_unit=6:step_size=2,MEMORY_MB=64"))
        for wanted in ("VCPU=5,MEMORY_MB=2", "VCPU=3", "VCPU=1"):
            order(backend, ConsumerOrder.replace("job", deltas({here: wanted})))
        for wanted in ("VCPU=2", "VCPU=3", "VCPU=8"):
            with pytest.raises(exceptions.UnitRuleViolated):
                order(backend, ConsumerOrder.replace("job", deltas({here: wanted})))
        order(backend, ConsumerOrder.replace("job", deltas({here: "VCPU=4"})))

    def test_replacing_with_the_same_changes_nothing_but_the_generation(
        self, backend: Backend
    ) -> None:
        here, there = two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=8", there: "VCPU=1"})
        before = picture(backend)
        record = _only(
            backend, ConsumerOrder.replace("job", deltas({there: "VCPU=1", here: "VCPU=8"}))
        )
        assert picture(backend) == before
        assert set(record.held) == set(first.held) and record.generation != first.generation

    # --- renewing ---

    def test_a_renewal_changes_expiry_and_state_and_nothing_else(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=2"}, project="p")
        before = picture(backend)
        steps = [(_LATER, HELD), (None, CONFIRMED), (_LATER, CONFIRMED), (None, HELD)]
        for expires_at, state in steps:
            record = _only(backend, ConsumerOrder.renew("job", expires_at, state, uuid=first.uuid))
            assert (record.expires_at, record.state) == (expires_at, state)
            assert (record.uuid, record.held, record.project) == (first.uuid, first.held, "p")
            assert backend.held("job") == record
        assert picture(backend) == before

    def test_a_renewal_may_demand_a_claim(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        first = claim(backend, "job", {here: "VCPU=2"})
        release(backend, "job")
        second = claim(backend, "job", {here: "VCPU=2"})
        with pytest.raises(exceptions.StaleConsumer) as refused:
            order(backend, ConsumerOrder.renew("job", _LATER, uuid=first.uuid))
        assert refused.value.subject == "job"
        assert backend.held("job") == second

    def test_a_renewal_releases_nothing(self) -> None:
        with pytest.raises(exceptions.InvalidField):
            ConsumerOrder.renew("job", None, RELEASED)

    def test_an_expired_claim_is_held_until_somebody_releases_it(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        past = now() - datetime.timedelta(days=1)
        record = claim(backend, "job", {here: "VCPU=8"}, expires_at=past)
        assert backend.held("job") == record
        with pytest.raises(exceptions.CapacityException):
            claim(backend, "job-2", {here: "VCPU=1"})

    # --- several in one write ---

    @law(2)
    def test_many_consumers_are_written_at_once(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
        claim(backend, "goes", {here: "VCPU=8"})
        claim(backend, "grows", {there: "VCPU=1"})
        claim(backend, "moves", {there: "VCPU=6"})
        claim(backend, "stays", {there: "MEMORY_MB=1"})
        records = order(
            backend,
            ConsumerOrder.claim("comes", deltas({there: "VCPU=4"})),
            ConsumerOrder.release("goes"),
            ConsumerOrder.adjust("grows", deltas({there: "VCPU=2"})),
            ConsumerOrder.replace("moves", deltas({here: "VCPU=7"})),
            ConsumerOrder.renew("stays", _LATER),
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
        here, _ = two_hosts(backend)
        one, other = StoredRequest('{"n": 1}'), StoredRequest('{"n": 2}')
        requests = {"a": one, "b": None, "c": one, "d": other}
        operation = Operation()
        gang = [
            ConsumerOrder.claim(name, deltas({here: "VCPU=1"}), request=request)
            for name, request in requests.items()
        ]
        first = order(backend, *gang, operation=operation)
        again = order(backend, *gang, operation=operation)
        for told_of in (first, again, backend.held_by(list(requests)).values()):
            assert {told.consumer: told.request for told in told_of} == requests

    @law(2)
    @pytest.mark.parametrize("place", range(3))
    def test_one_refused_order_of_many_refuses_all(self, backend: Backend, place: int) -> None:
        here, there = two_hosts(backend)
        claim(backend, "goes", {here: "VCPU=1"})
        old = claim(backend, "changed", {here: "VCPU=1"}).generation
        adjust(backend, "changed", {here: "VCPU=1"})
        before = picture(backend)
        nobody = str(uuids.uuid4())
        refusals: list[tuple[ConsumerOrder, type[Exception]]] = [
            (ConsumerOrder.claim("changed", deltas({here: "VCPU=1"})), exceptions.ConsumerExists),
            (ConsumerOrder.claim("big", deltas({here: "VCPU=9"})), exceptions.CapacityException),
            (ConsumerOrder.claim("lost", deltas({nobody: "VCPU=1"})), exceptions.ProviderNotFound),
            (
                ConsumerOrder.claim("other", deltas({here: "DISK_GB=1"})),
                exceptions.InventoryNotFound,
            ),
            (ConsumerOrder.release("nobody"), exceptions.ConsumerNotFound),
            (ConsumerOrder.renew("nobody", None), exceptions.ConsumerNotFound),
            (ConsumerOrder.release("changed", generation=old), exceptions.StaleConsumer),
            (
                ConsumerOrder.adjust("changed", deltas({there: "VCPU=-1"})),
                exceptions.CapacityException,
            ),
        ]
        for refused, error in refusals:
            good: list[ConsumerOrder] = [
                ConsumerOrder.claim("comes", deltas({there: "VCPU=1"})),
                ConsumerOrder.release("goes"),
            ]
            good.insert(place, refused)
            with pytest.raises(error):
                order(backend, *good)
            assert picture(backend) == before
            assert backend.held_by(["comes", "big", "lost", "other"]) == {}

    @law(4)
    def test_what_several_take_together_is_judged_together(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        claim(backend, "other", {here: "VCPU=2"})
        before = picture(backend)
        gang = [ConsumerOrder.claim(f"job-{n}", deltas({here: "VCPU=3"})) for n in range(3)]
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
        here, there = two_hosts(backend)
        claim(backend, "a", {here: "VCPU=8"})
        claim(backend, "b", {there: "VCPU=8"})
        order(
            backend,
            ConsumerOrder.replace("a", deltas({there: "VCPU=8"})),
            ConsumerOrder.replace("b", deltas({here: "VCPU=8"})),
        )
        assert picture(backend).allocations == {
            ("a", "host1", "VCPU"): 8,
            ("b", "host0", "VCPU"): 8,
        }

    @law(4)
    def test_a_place_may_be_handed_over_and_no_more_than_it(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
        claim(backend, "a", {here: "VCPU=8", there: "VCPU=6"})
        with pytest.raises(exceptions.CapacityException):
            order(
                backend,
                ConsumerOrder.release("a"),
                ConsumerOrder.claim("b", deltas({here: "VCPU=8", there: "VCPU=2"})),
                ConsumerOrder.claim("c", deltas({there: "VCPU=7"})),
            )
        assert backend.held_by(["b", "c"]) == {}
        order(
            backend,
            ConsumerOrder.claim("b", deltas({here: "VCPU=8", there: "VCPU=2"})),
            ConsumerOrder.claim("c", deltas({there: "VCPU=6"})),
            ConsumerOrder.release("a"),
        )
        assert picture(backend).holds("b") == {("host0", "VCPU"): 8, ("host1", "VCPU"): 2}

    @law(4)
    @pytest.mark.parametrize("verb", ["claim", "replace", "adjust"])
    def test_who_takes_has_what_others_release_in_the_same_write(
        self, backend: Backend, verb: str
    ) -> None:
        here, there = two_hosts(backend)
        taken = deltas({here: "VCPU=3"})
        if verb != "claim":
            claim(backend, "job", {there: "VCPU=1"})
        take = {
            "claim": ConsumerOrder.claim("job", taken),
            "replace": ConsumerOrder.replace("job", taken),
            "adjust": ConsumerOrder.adjust("job", taken),
        }[verb]
        claim(backend, "stays", {here: "VCPU=4"})
        first = claim(backend, "goes", {here: "VCPU=4"})
        order(backend, ConsumerOrder.renew("goes", _LATER))
        before = picture(backend)
        stale = ConsumerOrder.release("goes", generation=first.generation)
        with pytest.raises(exceptions.StaleConsumer, match="goes"):
            order(backend, take, stale)
        assert picture(backend) == before
        kept = backend.held("goes")
        assert kept is not None
        done = order(backend, take, ConsumerOrder.release("goes", generation=kept.generation))
        assert {record.consumer for record in done} == {"job", "goes"}
        assert backend.held("goes") is None
        assert picture(backend).holds("job")["host0", "VCPU"] == 3
        assert picture(backend).used("host0", "VCPU") == 7

    @law(5)
    def test_unit_rules_bind_each_of_several(self, backend: Backend) -> None:
        [here] = define(backend, host("host0", "VCPU=8:step_size=2:max_unit=4")).values()
        odd = [ConsumerOrder.claim(f"job-{n}", deltas({here: "VCPU=1"})) for n in range(2)]
        with pytest.raises(exceptions.UnitRuleViolated) as refused:
            order(backend, *odd)
        assert {reason.rule for reason in refused.value.reasons} == {Rule.STEP_SIZE}
        order(
            backend, *(ConsumerOrder.claim(f"job-{n}", deltas({here: "VCPU=4"})) for n in range(2))
        )

    @law(4)
    def test_over_full_several_may_make_it_no_worse(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        claim(backend, "a", {here: "VCPU=4"})
        claim(backend, "b", {here: "VCPU=4"})
        define(backend, host("host0", "VCPU=2,MEMORY_MB=16384"))
        order(
            backend,
            ConsumerOrder.adjust("a", deltas({here: "VCPU=-3"})),
            ConsumerOrder.adjust("b", deltas({here: "VCPU=3"})),
        )
        assert picture(backend).holds("b") == {("host0", "VCPU"): 7}
        with pytest.raises(exceptions.CapacityException):
            order(
                backend,
                ConsumerOrder.adjust("a", deltas({here: "VCPU=2"})),
                ConsumerOrder.adjust("b", deltas({here: "VCPU=-1"})),
            )

    def test_a_gang_may_be_large(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}", "VCPU=8,DISK_GB=9") for n in range(40)))
        uuids = list(names.values())
        gang = [
            ConsumerOrder.claim(f"job-{n}", deltas({uuids[n % 40]: "VCPU=1,DISK_GB=1"}))
            for n in range(240)
        ]
        records = order(backend, *gang)
        assert [record.consumer for record in records] == [one.consumer for one in gang]
        found = picture(backend)
        assert len(found.allocations) == 480 and found.used("host39", "VCPU") == 6
        held = backend.held_by([one.consumer for one in gang])
        assert [told(held[one.consumer]) for one in gang] == [told(record) for record in records]
        order(backend, *(ConsumerOrder.release(one.consumer) for one in gang))
        assert picture(backend).allocations == {}


def _order(kind: str, consumer: str, uuid: str, generation: int | None) -> ConsumerOrder:
    if kind == "adjust":
        return ConsumerOrder.adjust(consumer, deltas({uuid: "VCPU=1"}), generation=generation)
    if kind == "replace":
        return ConsumerOrder.replace(consumer, deltas({uuid: "VCPU=1"}), generation=generation)
    if kind == "renew":
        return ConsumerOrder.renew(consumer, None, generation=generation)
    return ConsumerOrder.release(consumer, generation=generation)


# --- operations: a write that is repeated happens once ---


def _host(backend: Backend) -> str:
    return define(backend, host())["host0"]


class OperationRules(Kit):
    """What a repeated operation does: nothing, and it says what the first one said."""

    def test_a_repeated_claim_returns_the_first_outcome(self, backend: Backend) -> None:
        here = _host(backend)
        operation, order = Operation(), ConsumerOrder.claim("job", deltas({here: "VCPU=8"}))
        first = backend.claim(operation, order)
        before = picture(backend)
        assert backend.claim(operation, order) == first
        assert picture(backend) == before

    def test_a_repeated_claim_may_ask_for_what_a_new_search_found(self, backend: Backend) -> None:
        here = _host(backend)
        operation = Operation()
        first = backend.claim(operation, ConsumerOrder.claim("job", deltas({here: "VCPU=8"})))
        assert (
            backend.claim(operation, ConsumerOrder.claim("job", deltas({here: "MEMORY_MB=1"})))
            == first
        )

    def test_a_claim_repeated_after_its_release_claims_nothing(self, backend: Backend) -> None:
        here = _host(backend)
        operation, order = Operation(), ConsumerOrder.claim("job", deltas({here: "VCPU=8"}))
        first = backend.claim(operation, order)
        release(backend, "job")
        assert backend.claim(operation, order) == first
        assert backend.held("job") is None

    def test_a_repeated_adjustment_returns_the_first_outcome(self, backend: Backend) -> None:
        here = _host(backend)
        claim(backend, "job", {here: "VCPU=1"})
        operation, order = Operation(), ConsumerOrder.adjust("job", deltas({here: "VCPU=3"}))
        first = backend.adjust(operation, order)
        assert backend.adjust(operation, order) == first
        assert picture(backend).used("host0", "VCPU") == 4

    def test_a_repeated_adjustment_to_nothing_returns_the_first_outcome(
        self, backend: Backend
    ) -> None:
        here = _host(backend)
        claim(backend, "job", {here: "VCPU=1"})
        operation, order = Operation(), ConsumerOrder.adjust("job", deltas({here: "VCPU=-1"}))
        first = backend.adjust(operation, order)
        assert backend.adjust(operation, order) == first

    def test_a_repeated_release_returns_the_first_outcome(self, backend: Backend) -> None:
        here = _host(backend)
        claim(backend, "job", {here: "VCPU=1"})
        operation = Operation()
        first = backend.release(operation, "job")
        assert backend.release(operation, "job") == first
        claim(backend, "job", {here: "VCPU=2"})
        assert backend.release(operation, "job") == first
        assert picture(backend).used("host0", "VCPU") == 2

    def test_a_repeated_definition_does_nothing(self, backend: Backend) -> None:
        _host(backend)
        tree = kept(backend, "host0")
        tree.add("host0/gpu0", "PGPU=1")
        changes, operation = changes_to(backend, tree), Operation()
        backend.define(operation, changes)
        before = picture(backend)
        backend.define(operation, changes)
        assert picture(backend) == before

    def test_a_refused_operation_may_be_tried_again(self, backend: Backend) -> None:
        here = _host(backend)
        claim(backend, "other", {here: "VCPU=8"})
        operation, order = Operation(), ConsumerOrder.claim("job", deltas({here: "VCPU=1"}))
        with pytest.raises(exceptions.CapacityException):
            backend.claim(operation, order)
        release(backend, "other")
        assert backend.held("job") is None
        assert backend.claim(operation, order).held[0].amount == 1

    @law(2)
    def test_an_id_stands_for_one_kind_of_write_and_one_subject(self, backend: Backend) -> None:
        here = _host(backend)
        operation, order = Operation(), ConsumerOrder.claim("job", deltas({here: "VCPU=1"}))
        backend.claim(operation, order)
        tree = kept(backend, "host0")
        tree.add("host0/gpu0")
        changes = changes_to(backend, tree)
        before = picture(backend)
        with pytest.raises(exceptions.OperationConflict) as refused:
            backend.claim(operation, ConsumerOrder.claim("job-2", order.uses))
        assert refused.value.subject == operation.id
        with pytest.raises(exceptions.OperationConflict):
            backend.adjust(operation, ConsumerOrder.adjust("job", order.uses))
        with pytest.raises(exceptions.OperationConflict):
            backend.release(operation, "job")
        with pytest.raises(exceptions.OperationConflict):
            backend.define(operation, changes)
        assert picture(backend) == before

    def test_an_operation_that_was_never_done_has_no_outcome(self, backend: Backend) -> None:
        assert backend.outcome(Operation()) is None

    def test_an_outcome_tells_what_the_operation_was(self, backend: Backend) -> None:
        here = _host(backend)
        operation = Operation()
        record = backend.claim(operation, ConsumerOrder.claim("job", deltas({here: "VCPU=1"})))
        found = backend.outcome(operation)
        assert found is not None
        assert (found.kind, found.subject, found.claim) == ("claim", "job", record)
        release(backend, "job")
        assert backend.outcome(operation) == found

    @law(2)
    def test_every_kind_of_write_happens_once(self, backend: Backend) -> None:
        tree = host("host0", "VCPU=8,MEMORY_MB=64")
        tree.add("host0/cell0", "VCPU=4")
        names = define(backend, tree)
        here, cell = names["host0"], names["host0/cell0"]
        claim(backend, "a", {here: "VCPU=2"})
        claim(backend, "b", {cell: "VCPU=4"})
        smaller = host("host0", "VCPU=8,MEMORY_MB=64")
        steps: list[dict[str, Any]] = [
            {"orders": (ConsumerOrder.adjust("a", deltas({here: "VCPU=1"})),)},
            {
                "orders": (
                    ConsumerOrder.replace("a", deltas({cell: "VCPU=4"})),
                    ConsumerOrder.release("b"),
                )
            },
            {
                "orders": (
                    ConsumerOrder.renew("a", None, CONFIRMED),
                    ConsumerOrder.claim("b", deltas({here: "VCPU=3"})),
                )
            },
            {"reported": (here,)},
            {"names": (NameChange(CLASS, NameAction.ENSURE, "CUSTOM_A"),)},
            {"names": (rename(CLASS, "CUSTOM_A", "CUSTOM_B"),)},
            {"names": (NameChange(CLASS, NameAction.DELETE, "CUSTOM_B"),)},
            {
                "orders": (ConsumerOrder.replace("a", deltas({here: "VCPU=4"})),),
                "definitions": smaller,
            },
            {"orders": (ConsumerOrder.release("a"), ConsumerOrder.release("b"))},
        ]
        for number, step in enumerate(steps):
            if "definitions" in step:
                step["definitions"] = changes_to(backend, step["definitions"])
            write = Write(Operation(), "step", f"step-{number}", **step)
            first = backend.commit(write)
            assert len(first) == len(write.orders)
            before, cursor = picture(backend), backend.cursor()
            assert backend.commit(write) == first
            found = backend.outcome(write.operation)
            assert found is not None and found.claims == first
            with pytest.raises(exceptions.OperationConflict):
                backend.commit(dataclasses.replace(write, subject="other"))
            with pytest.raises(exceptions.OperationConflict):
                backend.commit(dataclasses.replace(write, kind="other"))
            assert (picture(backend), backend.cursor()) == (before, cursor)

    def test_a_repeated_write_says_what_it_said_whatever_came_after(self, backend: Backend) -> None:
        here = _host(backend)
        operation = Operation()
        write = Write(
            operation,
            "gang",
            "gang",
            orders=tuple(
                ConsumerOrder.claim(name, (Use(here, "VCPU", 1, (f"cpu-{name}",)),), project="p")
                for name in ("b", "a", "c")
            ),
        )
        first = backend.commit(write)
        order(
            backend,
            ConsumerOrder.release("b"),
            ConsumerOrder.replace("a", deltas({here: "VCPU=2"})),
        )
        tree = kept(backend, "host0")
        tree.update(name="renamed")
        define(backend, tree)
        again = backend.commit(write)
        assert [one.consumer for one in again] == ["b", "a", "c"]
        assert [_without_names(one) for one in again] == [_without_names(one) for one in first]

    @law(2)
    def test_a_repeated_reshape_is_known_before_anything_is_compared(
        self, backend: Backend
    ) -> None:
        """Its definitions are stale by then, through itself."""
        here = _host(backend)
        claim(backend, "job", {here: "VCPU=8"})
        tree = kept(backend, "host0")
        tree.add("host0/cell0", "VCPU=8", uuid=str(uuids.uuid4()))
        tree.update(inventories=Inventories("MEMORY_MB=1"))
        changes = changes_to(backend, tree)
        move = ConsumerOrder.replace("job", deltas({changes.creates[0].uuid: "VCPU=8"}))
        write = Write(Operation(), "reshape", "host0", changes, (move,))
        first = backend.commit(write)
        before = picture(backend)
        assert backend.commit(write) == first
        assert picture(backend) == before

    @requires(Requirement.PERSISTENCE)
    def test_operations_outlive_the_backend(self, backend: Backend, url: str) -> None:
        here = _host(backend)
        operation, order = Operation(), ConsumerOrder.claim("job", deltas({here: "VCPU=1"}))
        first = backend.claim(operation, order)
        backend.close()
        again = self.backend_class.open(url)
        try:
            assert again.claim(operation, order) == first
        finally:
            again.close()


def _without_names(record: ConsumerRecord) -> ConsumerRecord:
    """Return a record without the names of providers, which may be those of then or of today."""
    held = tuple(dataclasses.replace(one, provider="") for one in record.held)
    return dataclasses.replace(record, held=held)


# --- moves of inventories, with what is held of them ---


def _reshape(
    backend: Backend, changes: DefinitionChanges, *orders: ConsumerOrder
) -> tuple[ConsumerRecord, ...]:
    return backend.commit(Write(Operation(), "reshape", changes.root, changes, orders))


def _with_cells(backend: Backend, cells: int = 2) -> tuple[Provider, dict[str, str]]:
    """Return a host that is kept with cells that have nothing, and the uuids of all."""
    root = host("host0", "VCPU=8,MEMORY_MB=64")
    for number in range(cells):
        root.add(f"cell{number}")
    names = define(backend, root)
    return kept(backend, "host0"), names


def _to_cells(tree: Provider) -> Provider:
    """Return the tree with the CPUs of the host moved into its cells."""
    tree.update(inventories=Inventories({"MEMORY_MB": 64}))
    for child in tree.children:
        child.update(inventories=Inventories({"VCPU": 4}))
    return tree


class ReshapeRules(Kit):
    """Definitions and orders in one write."""

    @law(1, 2)
    def test_an_inventory_moves_with_all_who_hold_it(self, backend: Backend) -> None:
        tree, names = _with_cells(backend)
        root = names["host0"]
        for number, amount in enumerate((3, 1, 4)):
            claim(backend, f"job-{number}", {root: f"VCPU={amount},MEMORY_MB=1"})
        changes = changes_to(backend, _to_cells(tree))
        moves: list[ConsumerOrder] = [
            ConsumerOrder.replace("job-0", deltas({names["cell0"]: "VCPU=3", root: "MEMORY_MB=1"})),
            ConsumerOrder.replace("job-1", deltas({names["cell0"]: "VCPU=1", root: "MEMORY_MB=1"})),
            ConsumerOrder.adjust("job-2", deltas({names["cell1"]: "VCPU=4", root: "VCPU=-4"})),
        ]
        records = _reshape(backend, changes, *moves)
        assert [record.consumer for record in records] == ["job-0", "job-1", "job-2"]
        found = picture(backend)
        assert set(found.providers["host0"].inventories) == {"MEMORY_MB"}
        assert found.allocations == {
            ("job-0", "cell0", "VCPU"): 3,
            ("job-1", "cell0", "VCPU"): 1,
            ("job-2", "cell1", "VCPU"): 4,
            **{(f"job-{number}", "host0", "MEMORY_MB"): 1 for number in range(3)},
        }

    @law(2)
    def test_who_is_left_behind_refuses_all(self, backend: Backend) -> None:
        tree, names = _with_cells(backend)
        claim(backend, "job-0", {names["host0"]: "VCPU=3"})
        claim(backend, "job-1", {names["host0"]: "VCPU=1"})
        before = picture(backend)
        changes = changes_to(backend, _to_cells(tree))
        with pytest.raises(exceptions.InventoryInUse) as refused:
            _reshape(
                backend, changes, ConsumerOrder.replace("job-0", deltas({names["cell0"]: "VCPU=3"}))
            )
        assert refused.value.subject == "host0"
        assert picture(backend) == before

    @law(2)
    def test_who_does_not_fit_refuses_all(self, backend: Backend) -> None:
        tree, names = _with_cells(backend)
        claim(backend, "job", {names["host0"]: "VCPU=5"})
        before = picture(backend)
        changes = changes_to(backend, _to_cells(tree))
        with pytest.raises(exceptions.CapacityException) as refused:
            _reshape(
                backend, changes, ConsumerOrder.replace("job", deltas({names["cell0"]: "VCPU=5"}))
            )
        assert {reason.where for reason in refused.value.reasons} == {"cell0"}
        assert picture(backend) == before
        assert backend.held("job") is not None

    @law(2)
    def test_a_reshape_of_what_was_changed_is_refused(self, backend: Backend) -> None:
        tree, names = _with_cells(backend)
        claim(backend, "job", {names["host0"]: "VCPU=3"})
        old = backend.held("job")
        assert old is not None
        changes = changes_to(backend, _to_cells(tree))
        move = ConsumerOrder.replace(
            "job", deltas({names["cell0"]: "VCPU=3"}), generation=old.generation
        )
        order(backend, ConsumerOrder.adjust("job", deltas({names["host0"]: "VCPU=1"})))
        before = picture(backend)
        with pytest.raises(exceptions.StaleConsumer):
            _reshape(backend, changes, move)
        assert picture(backend) == before
        other = kept(backend, "host0")
        other.find("cell1").update(traits={"CUSTOM_A"})
        define(backend, other)
        before = picture(backend)
        with pytest.raises(exceptions.StaleDefinition):
            _reshape(backend, changes, dataclasses.replace(move, expect=Expect.ANY))
        assert picture(backend) == before

    @law(2)
    def test_everything_is_there_while_orders_are_carried_out(self, backend: Backend) -> None:
        """What goes is there until the end, what comes is there from the start."""
        names = define(backend, host("old", "VCPU=8"), host("stays", "VCPU=8"))
        claim(backend, "job", {names["old"]: "VCPU=8"})
        claim(backend, "other", {names["stays"]: "VCPU=8"})
        created = changes_to(backend, Provider("new", "VCPU=16", uuid=str(uuids.uuid4())))
        [old] = backend.read("old").providers.generation
        changes = dataclasses.replace(
            created, removals=(ProviderRemoval(names["old"], "old", old),)
        )
        new = created.creates[0].uuid
        _reshape(
            backend,
            changes,
            ConsumerOrder.replace("job", deltas({new: "VCPU=8"})),
            ConsumerOrder.replace("other", deltas({new: "VCPU=8"})),
        )
        found = picture(backend)
        assert set(found.providers) == {"new", "stays"}
        assert (found.used("new", "VCPU"), found.used("stays", "VCPU")) == (16, 0)

    @law(2)
    def test_a_provider_goes_only_when_nobody_is_left(self, backend: Backend) -> None:
        names = define(backend, host("old", "VCPU=8"), host("new", "VCPU=8"))
        claim(backend, "job", {names["old"]: "VCPU=5"})
        generation = picture(backend).providers["old"].generation
        removal = ProviderRemoval(names["old"], "old", generation)
        changes = DefinitionChanges("old", removals=(removal,))
        before = picture(backend)
        with pytest.raises(exceptions.ProviderInUse):
            move = {names["old"]: "VCPU=-4", names["new"]: "VCPU=4"}
            _reshape(backend, changes, ConsumerOrder.adjust("job", deltas(move)))
        with pytest.raises(exceptions.ProviderInUse):
            _reshape(
                backend,
                changes,
                ConsumerOrder.release("job"),
                ConsumerOrder.claim("late", deltas({names["old"]: "VCPU=1"})),
            )
        assert picture(backend) == before
        _reshape(backend, changes, ConsumerOrder.replace("job", deltas({names["new"]: "VCPU=5"})))
        assert set(picture(backend).providers) == {"new"}

    @law(4)
    def test_units_follow_who_holds_them(self, backend: Backend) -> None:
        root = host("host0", "PCPU=4")
        root.add("cell0")
        root.add("cell1")
        names = define(backend, root)
        here, cells = names["host0"], (names["cell0"], names["cell1"])
        order(
            backend,
            ConsumerOrder.claim("a", (Use(here, "PCPU", 2, ("cpu0", "cpu3")),)),
            ConsumerOrder.claim("b", (Use(here, "PCPU", 1, ("cpu1",)),)),
        )
        tree = kept(backend, "host0")
        tree.update(inventories=Inventories({}))
        for child in tree.children:
            child.update(inventories=Inventories({"PCPU": 2}))
        _reshape(
            backend,
            changes_to(backend, tree),
            ConsumerOrder.replace(
                "a", (Use(cells[0], "PCPU", 1, ("cpu0",)), _unit(cells[1], "cpu3"))
            ),
            ConsumerOrder.replace("b", (_unit(cells[0], "cpu1"),)),
        )
        assert picture(backend).units == {
            ("cell0", "cpu0"): ("PCPU", "a"),
            ("cell1", "cpu3"): ("PCPU", "a"),
            ("cell0", "cpu1"): ("PCPU", "b"),
        }

    @law(1)
    def test_an_inventory_becomes_a_shared_one(self, backend: Backend) -> None:
        """The CPUs of a host go into its cells, and stay its own too."""
        tree, names = _with_cells(backend)
        claim(backend, "a", {names["host0"]: "VCPU=4"})
        claim(backend, "b", {names["host0"]: "VCPU=4"})
        share = Share(resource_class="VCPU", of="host0", of_class="VCPU")
        for child in tree.children:
            child.update(inventories=Inventories({"VCPU": 4}), shares=(share,))
        changes = changes_to(backend, tree)
        moves = [
            ConsumerOrder.replace("a", deltas({names["cell0"]: "VCPU=4"})),
            ConsumerOrder.replace("b", deltas({names["cell1"]: "VCPU=4"})),
        ]
        _reshape(backend, changes, *moves)
        found = picture(backend)
        assert [found.used(name, "VCPU") for name in ("host0", "cell0", "cell1")] == [8, 4, 4]
        back = kept(backend, "host0")
        for child in back.children:
            child.update(inventories=Inventories({}), shares=())
        home = [
            ConsumerOrder.replace(name, deltas({names["host0"]: "VCPU=4"})) for name in ("a", "b")
        ]
        _reshape(backend, changes_to(backend, back), *home)
        found = picture(backend)
        assert found.used("host0", "VCPU") == 8 and not found.providers["cell0"].shares

    @law(1)
    def test_shares_that_change_count_for_what_moves(self, backend: Backend) -> None:
        root = host("host0", "VCPU=8,CUSTOM_X=8")
        root.add("cell0", "CUSTOM_SLICE=4")
        names = define(backend, root)
        claim(backend, "stays", {names["cell0"]: "CUSTOM_SLICE=1"})
        claim(backend, "goes", {names["cell0"]: "CUSTOM_SLICE=1"})
        tree = kept(backend, "host0")
        tree.find("cell0").update(
            shares=(Share(resource_class="CUSTOM_SLICE", of="host0", of_class="VCPU", factor=2),)
        )
        _reshape(
            backend,
            changes_to(backend, tree),
            ConsumerOrder.release("goes"),
            ConsumerOrder.claim("comes", deltas({names["cell0"]: "CUSTOM_SLICE=3"})),
        )
        assert picture(backend).used("host0", "VCPU") == 8
        tree = kept(backend, "host0")
        tree.find("cell0").update(
            shares=(Share(resource_class="CUSTOM_SLICE", of="host0", of_class="CUSTOM_X"),)
        )
        _reshape(backend, changes_to(backend, tree), ConsumerOrder.release("comes"))
        found = picture(backend)
        assert (found.used("host0", "VCPU"), found.used("host0", "CUSTOM_X")) == (0, 1)

    def test_new_figures_bind_at_once(self, backend: Backend) -> None:
        names = define(backend, host("host0", "VCPU=4"))
        grown = changes_to(backend, host("host0", "VCPU=8"))
        _reshape(backend, grown, ConsumerOrder.claim("job", deltas({names["host0"]: "VCPU=8"})))
        shrunk = changes_to(backend, host("host0", "VCPU=4"))
        with pytest.raises(exceptions.CapacityException):
            _reshape(
                backend,
                shrunk,
                ConsumerOrder.release("job"),
                ConsumerOrder.claim("job-2", deltas({names["host0"]: "VCPU=5"})),
                ConsumerOrder.claim("job-3", deltas({names["host0"]: "VCPU=4"})),
            )
        _reshape(
            backend, shrunk, ConsumerOrder.replace("job", deltas({names["host0"]: "VCPU=7"}))
        )  # not worse than it was
        record = picture(backend).providers["host0"].inventories["VCPU"]
        assert (record.capacity, record.used) == (4, 7)

    def test_names_definitions_and_orders_go_together(self, backend: Backend) -> None:
        names = define(backend, Provider("host0", {"CUSTOM_OLD": 4}))
        claim(backend, "job", {names["host0"]: {"CUSTOM_OLD": 4}})
        created = changes_to(backend, Provider("host1", {"CUSTOM_NEW": 4}))
        backend.commit(
            Write(
                Operation(),
                "reshape",
                "host0",
                created,
                (
                    ConsumerOrder.replace(
                        "job", deltas({created.creates[0].uuid: {"CUSTOM_NEW": 4}})
                    ),
                ),
                names=(rename(CLASS, "CUSTOM_OLD", "CUSTOM_NEW"),),
            )
        )
        assert picture(backend).allocations == {("job", "host1", "CUSTOM_NEW"): 4}

    def test_a_large_reshape_is_one_write(self, backend: Backend) -> None:
        tree, names = _with_cells(backend, cells=20)
        tree.update(inventories=Inventories({"VCPU": 4000, "MEMORY_MB": 64}))
        define(backend, tree)
        gang = [
            ConsumerOrder.claim(f"job-{n}", deltas({names["host0"]: "VCPU=7"})) for n in range(300)
        ]
        order(backend, *gang)
        tree = kept(backend, "host0")
        tree.update(inventories=Inventories({"MEMORY_MB": 64}))
        for child in tree.children:
            child.update(inventories=Inventories({"VCPU": 200}))
        moves = [
            ConsumerOrder.replace(f"job-{n}", deltas({names[f"cell{n % 20}"]: "VCPU=7"}))
            for n in range(300)
        ]
        _reshape(backend, changes_to(backend, tree), *moves)
        found = picture(backend)
        assert len(found.allocations) == 300
        assert {found.used(f"cell{n}", "VCPU") for n in range(20)} == {105}


def _unit(uuid: str, unit: str) -> Use:
    return Use(uuid, "PCPU", 1, (unit,))
