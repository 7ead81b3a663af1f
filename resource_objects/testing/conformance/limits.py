"""Rules of limits: totals that come with a write, and bind it besides the capacity."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import pytest

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.providers import Backend, Provider
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Totals, Use
from resource_objects.providers.provider import Share
from resource_objects.testing.conformance.races import processes, together
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.conformance.suite import (
    Kit,
    claim,
    define,
    deltas,
    host,
    law,
    order,
    picture,
    two_hosts,
)


def claim_within(
    backend: Backend, consumer: str, uuid: str, amount: int, limits: Totals
) -> ConsumerRecord:
    """Claim some CPUs under limits."""
    [record] = order(
        backend, ConsumerOrder.claim(consumer, (Use(uuid, "VCPU", amount),)), limits=limits
    )
    return record


def claim_all_within(backend: Backend, uuid: str, who: str, limit: int) -> int:
    """Claim one CPU after the other until the limit refuses; return how many were had."""
    number = 0
    while True:
        try:
            claim_within(backend, f"{who}-{number}", uuid, 1, {(uuid, "VCPU"): limit})
        except exceptions.CapacityException as refusal:
            assert {reason.rule for reason in refusal.reasons} == {Rule.LIMIT}
            return number
        number += 1


def claim_all_elsewhere(
    backend_class: type[Backend], url: str, uuid: str, who: str, limit: int
) -> int:
    """Claim under a limit in a process of its own."""
    backend = backend_class.open(url)
    try:
        return claim_all_within(backend, uuid, who, limit)
    finally:
        backend.close()


class LimitRules(Kit):
    """What a write may use in all of some inventories, whatever they have."""

    @law(4, 6)
    def test_a_limit_refuses_what_is_over_it_and_names_it(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        claim(backend, "other", {here: "VCPU=3"})
        limits = {(here, "VCPU"): 5}
        with pytest.raises(exceptions.CapacityException) as refused:
            claim_within(backend, "job", here, 3, limits)
        assert refused.value.reasons == (
            Reason(Rule.LIMIT, 3, 5, 3, "VCPU", "host0", holders=(("other", 3),)),
        )
        assert backend.held("job") is None
        claim_within(backend, "job", here, 2, limits)
        assert picture(backend).used("host0", "VCPU") == 5

    @law(4)
    def test_a_limit_is_of_one_write_alone(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
        claim_within(backend, "first", here, 2, {(here, "VCPU"): 2})
        claim_within(backend, "second", here, 1, {(there, "VCPU"): 0, (here, "MEMORY_MB"): 0})
        claim(backend, "third", {here: "VCPU=5"})
        assert picture(backend).used("host0", "VCPU") == 8

    @law(4, 6)
    def test_the_tighter_of_limit_and_capacity_is_named(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        for limit, rule in ((7, Rule.LIMIT), (8, Rule.CAPACITY), (100, Rule.CAPACITY)):
            with pytest.raises(exceptions.CapacityException) as refused:
                claim_within(backend, "job", here, 9, {(here, "VCPU"): limit})
            [reason] = refused.value.reasons
            assert (reason.rule, reason.bound) == (rule, min(limit, 8))

    @law(4)
    def test_below_what_is_used_a_limit_refuses_more_and_never_less(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        limits = {(here, "VCPU"): 0}
        claim(backend, "job", {here: "VCPU=5,MEMORY_MB=1"})
        for amounts in ({"VCPU": -1}, {"MEMORY_MB": 1}):
            order(backend, ConsumerOrder.adjust("job", deltas({here: amounts})), limits=limits)
        for change in (1, 4):
            uses = deltas({here: {"VCPU": change}})
            with pytest.raises(exceptions.CapacityException) as refused:
                order(backend, ConsumerOrder.adjust("job", uses), limits=limits)
            [reason] = refused.value.reasons
            assert (reason.rule, reason.free) == (Rule.LIMIT, -4)
        fewer = ConsumerOrder.replace("job", (Use(here, "VCPU", 3),))
        order(backend, fewer, limits=limits)
        order(backend, ConsumerOrder.release("job"), limits=limits)
        assert picture(backend).used("host0", "VCPU") == 0

    @law(1, 4)
    def test_a_limit_binds_what_others_share_too(self, backend: Backend) -> None:
        root = host("host0", "VCPU=8")
        for number in range(2):
            share = Share(resource_class="VCPU", of="host0", of_class="VCPU")
            root.add(f"cell{number}", "VCPU=4", shares=[share])
        names = define(backend, root)
        here, (cell0, cell1) = names["host0"], (names["cell0"], names["cell1"])
        limits = {(here, "VCPU"): 5}
        claim_within(backend, "job-0", cell0, 3, limits)
        with pytest.raises(exceptions.CapacityException) as refused:
            claim_within(backend, "job-1", cell1, 3, limits)
        assert refused.value.reasons == (
            Reason(Rule.LIMIT, 3, 5, 3, "VCPU", "host0", holders=(("job-0", 3),)),
        )
        claim_within(backend, "job-1", cell1, 2, limits)
        with pytest.raises(exceptions.CapacityException) as refused:
            claim_within(backend, "job-2", cell1, 2, {(cell1, "VCPU"): 3})
        [reason] = refused.value.reasons
        assert (reason.rule, reason.where, reason.used) == (Rule.LIMIT, "cell1", 2)

    @law(2, 4)
    def test_what_several_take_is_judged_under_one_limit(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
        both = [ConsumerOrder.claim(name, (Use(here, "VCPU", 2),)) for name in ("a", "b")]
        with pytest.raises(exceptions.CapacityException) as refused:
            order(backend, *both, limits={(here, "VCPU"): 3})
        [reason] = refused.value.reasons
        assert (reason.rule, reason.requested, reason.bound) == (Rule.LIMIT, 4, 3)
        assert picture(backend).allocations == {}
        order(backend, *both, limits={(here, "VCPU"): 4})
        claim(backend, "c", {there: "VCPU=2"})
        # who changes places leaves what is used as it is, also over a limit
        swap = [
            ConsumerOrder.replace("a", (Use(there, "VCPU", 2),)),
            ConsumerOrder.replace("c", (Use(here, "VCPU", 2),)),
        ]
        order(backend, *swap, limits={(here, "VCPU"): 1, (there, "VCPU"): 1})
        assert picture(backend).allocations == {
            ("a", "host1", "VCPU"): 2,
            ("b", "host0", "VCPU"): 2,
            ("c", "host0", "VCPU"): 2,
        }

    @law(2)
    def test_a_limit_of_what_is_not_touched_refuses_nothing(self, backend: Backend) -> None:
        here, there = two_hosts(backend)
        claim(backend, "other", {there: "VCPU=4"})
        nobody = "00000000-0000-4000-8000-000000000000"
        limits = {(there, "VCPU"): 1, (here, "DISK_GB"): 0, (nobody, "VCPU"): 0}
        claim_within(backend, "job", here, 8, limits)
        assert picture(backend).used("host0", "VCPU") == 8

    @law(2, 4)
    def test_of_many_inventories_each_has_its_limit(self, backend: Backend) -> None:
        # more than a statement changes at once, where it has a most
        hosts = [host(f"host{number}", "VCPU=8") for number in range(150)]
        names = define(backend, *hosts)
        uses = tuple(Use(names[one.name], "VCPU", 3) for one in hosts)
        limits = {(names["host7"], "VCPU"): 3, (names["host149"], "VCPU"): 3}
        order(backend, ConsumerOrder.claim("a", uses), limits=limits)
        over = {**limits, (names["host30"], "VCPU"): 5, (names["host31"], "VCPU"): 6}
        with pytest.raises(exceptions.CapacityException) as refused:
            order(backend, ConsumerOrder.claim("b", uses), limits=over)
        told = {reason.where: reason.rule for reason in refused.value.reasons}
        assert told == dict.fromkeys(("host7", "host149", "host30"), Rule.LIMIT)
        assert picture(backend, "host31").used("host31", "VCPU") == 3

    @law(4)
    def test_threads_keep_a_limit(self, backend: Backend) -> None:
        [here] = define(backend, Provider("hot", "VCPU=40")).values()
        had = together(lambda n: claim_all_within(backend, here, f"worker{n}", 11))
        assert sum(one for one in had if isinstance(one, int)) == 11
        assert picture(backend).used("hot", "VCPU") == 11

    @law(4)
    @requires(Requirement.PROCESSES)
    def test_processes_keep_a_limit(self, backend: Backend, url: str) -> None:
        [here] = define(backend, Provider("hot", "VCPU=40")).values()
        with ProcessPoolExecutor(1, mp_context=processes()) as pool:
            there = pool.submit(claim_all_elsewhere, self.backend_class, url, here, "elsewhere", 13)
            had = claim_all_within(backend, here, "here", 13)
            assert had + there.result() == 13
        assert picture(backend).used("hot", "VCPU") == 13
