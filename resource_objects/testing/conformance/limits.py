"""Tests of limits: totals that bound the use after a write, in addition to the capacity."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Totals, Use
from resource_objects.reasons import Rule
from resource_objects.testing.conformance.races import processes, together
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.conformance.suite import (
    Kit,
    define,
    host,
    law,
    ledger_state,
    order,
)


def claim_within(
    backend: Backend, consumer: str, uuid: str, amount: int, limits: Totals
) -> ConsumerRecord:
    """Claim some CPUs under limits."""
    [record] = order(
        backend, ConsumerOrder.claim(consumer, (Use(uuid, "VCPU", amount),)), limits=limits
    )
    return record


def claim_all_within(backend: Backend, uuid: str, consumer: str, limit: int) -> int:
    """Claim single CPUs until the limit refuses one; return the number of claimed CPUs."""
    number = 0
    while True:
        try:
            claim_within(backend, f"{consumer}-{number}", uuid, 1, {(uuid, "VCPU"): limit})
        except exceptions.CapacityException as refusal:
            assert {reason.rule for reason in refusal.reasons} == {Rule.LIMIT}
            return number
        number += 1


def claim_all_elsewhere(
    backend_class: type[Backend], url: str, uuid: str, consumer: str, limit: int
) -> int:
    """Run :func:`claim_all_within` in another process."""
    backend = backend_class.open(url)
    try:
        return claim_all_within(backend, uuid, consumer, limit)
    finally:
        backend.close()


class LimitRules(Kit):
    """Limits of writes."""

    @law(2, 4)
    def test_of_many_inventories_each_has_its_limit(self, backend: Backend) -> None:
        # more inventories than one statement changes
        hosts = [host(f"host{number}", "VCPU=8") for number in range(150)]
        names = define(backend, *hosts)
        uses = tuple(Use(names[item.name], "VCPU", 3) for item in hosts)
        limits = {(names["host7"], "VCPU"): 3, (names["host149"], "VCPU"): 3}
        order(backend, ConsumerOrder.claim("a", uses), limits=limits)
        over = {**limits, (names["host30"], "VCPU"): 5, (names["host31"], "VCPU"): 6}
        with pytest.raises(exceptions.CapacityException) as refused:
            order(backend, ConsumerOrder.claim("b", uses), limits=over)
        reported = {reason.where: reason.rule for reason in refused.value.reasons}
        assert reported == dict.fromkeys(("host7", "host149", "host30"), Rule.LIMIT)
        assert ledger_state(backend, "host31").used("host31", "VCPU") == 3

    @law(4)
    def test_threads_keep_a_limit(self, backend: Backend) -> None:
        [here] = define(backend, Provider("hot", "VCPU=40")).values()
        claimed = together(lambda n: claim_all_within(backend, here, f"worker{n}", 11))
        assert sum(item for item in claimed if isinstance(item, int)) == 11
        assert ledger_state(backend).used("hot", "VCPU") == 11

    @law(4)
    @requires(Requirement.PROCESSES)
    def test_processes_keep_a_limit(self, backend: Backend, url: str) -> None:
        [here] = define(backend, Provider("hot", "VCPU=40")).values()
        with ProcessPoolExecutor(1, mp_context=processes()) as pool:
            destination = pool.submit(
                claim_all_elsewhere, self.backend_class, url, here, "elsewhere", 13
            )
            claimed = claim_all_within(backend, here, "here", 13)
            assert claimed + destination.result() == 13
        assert ledger_state(backend).used("hot", "VCPU") == 13
