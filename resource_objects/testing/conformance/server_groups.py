"""Tests of server groups: members are at one host or at different hosts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resource_objects.providers import Backend
from resource_objects.providers.backend import Capability
from resource_objects.providers.listing import By, ConsumerFilter
from resource_objects.providers.orders import ConsumerOrder, GroupChange, Operation, Write
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.testing.conformance import suite as kit
from resource_objects.testing.conformance.races import ConcurrentKit, unless_refused
from resource_objects.testing.conformance.requirements import requires

#: The number of groups for which two claims compete.
_TURNS = 25
_MEMBERS = ConsumerFilter(groups=frozenset(["db"]))


def make_group(
    backend: Backend, name: str, policy: str = "anti-affinity", max_per_host: int = 1
) -> None:
    """Create a server group if it does not exist."""
    group = ServerGroup(name, policy, (), max_per_host)
    backend.commit(Write(Operation(), "group", name, groups=(GroupChange(name, group),)))


def _members(backend: Backend, name: str) -> frozenset[str]:
    [group] = backend.list_server_groups(1, names=[name])
    return group.members


def claim_in_turn(backend: Backend, uuid: str, resource_class: str, consumer: str) -> list[int]:
    """Claim at a host for a member of each group in turn; return the turns that succeeded."""
    won: list[int] = []
    for turn in range(_TURNS):
        uses = kit.deltas({uuid: {resource_class: 1}})
        item = ConsumerOrder.claim(f"{consumer}-{turn}", uses, group=f"g{turn}")
        if unless_refused("ServerGroupViolated", kit.order, backend, item):
            won.append(turn)
    return won


@requires(Capability.SERVER_GROUPS)
class ServerGroupRules(ConcurrentKit):
    """Server groups and their policies."""

    def test_groups_are_listed_by_name(self, backend: Backend) -> None:
        make_group(backend, "web", "soft-affinity")
        make_group(backend, "db", max_per_host=2)
        listed = backend.list_server_groups(10)
        assert [(group.name, group.policy, group.max_per_host) for group in listed] == [
            ("db", "anti-affinity", 2),
            ("web", "soft-affinity", 1),
        ]
        assert all(group.uuid and group.generation for group in listed)
        assert [group.name for group in backend.list_server_groups(1, "db")] == ["web"]
        assert backend.list_server_groups(9, names=["nobody"]) == ()

    def test_the_group_of_a_consumer_is_in_every_record(self, backend: Backend) -> None:
        here, destination = kit.two_hosts(backend)
        make_group(backend, "db", "affinity")
        item = ConsumerOrder.claim("db-1", kit.deltas({here: "VCPU=1"}), group="db")
        operation = Operation()
        kit.claim(backend, "alone", {destination: "VCPU=3"})
        created, repeated = backend.claim(operation, item), backend.claim(operation, item)
        outcome = backend.outcome(operation)
        assert outcome is not None
        listed = backend.list_consumers(_MEMBERS, 9)
        for record in (created, repeated, outcome.claim, backend.consumer("db-1"), *listed):
            assert record is not None and (record.consumer, record.group) == ("db-1", "db")
        assert len(listed) == 1
        [ungrouped] = backend.list_consumers(ConsumerFilter(groups=frozenset([None])), 9)
        assert (ungrouped.consumer, ungrouped.group) == ("alone", None)
        assert _members(backend, "db") == {"db-1"}
        totals = {(total.group, total.used) for total in backend.totals(ConsumerFilter(), By.GROUP)}
        assert totals == {("db", 1), (None, 3)}
        assert [total.used for total in backend.totals(_MEMBERS, By.RESOURCE_CLASS)] == [1]

    @kit.law(4)
    @pytest.mark.parametrize("policy", ["anti-affinity", "affinity"])
    def test_one_of_two_claims_at_once_for_a_group_succeeds(
        self, backend: Backend, policy: str, at_once: Callable[..., list[list[int]]]
    ) -> None:
        """The group is the only row that both claims lock."""
        names = kit.define(
            backend, *(kit.host(f"host{n}", "VCPU=64,MEMORY_MB=64") for n in range(2))
        )
        for turn in range(_TURNS):
            make_group(backend, f"g{turn}", policy)
        other = names["host0" if policy == "anti-affinity" else "host1"]
        calls = [(names["host0"], "MEMORY_MB", "first"), (other, "VCPU", "second")]
        first, second = at_once(claim_in_turn, *calls)
        assert sorted(first + second) == list(range(_TURNS))
        assert all(len(_members(backend, f"g{turn}")) == 1 for turn in range(_TURNS))
