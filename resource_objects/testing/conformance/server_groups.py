"""Tests of server groups: members are at one host or at different hosts."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend
from resource_objects.providers.listing import By, ConsumerFilter
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    GroupChange,
    Operation,
    Use,
    Write,
)
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.reasons import Rule
from resource_objects.testing.conformance.races import processes, together
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.conformance.suite import (
    Kit,
    claim,
    define,
    deltas,
    host,
    law,
    ledger_state,
    order,
    release,
    two_hosts,
)
from resource_objects.testing.refusals import is_one_of, raises_code


def make_group(
    backend: Backend, name: str, policy: str = "anti-affinity", max_per_host: int = 1
) -> None:
    """Create a server group if it does not exist."""
    change_group(backend, name, ServerGroup(name, policy, (), max_per_host))


def change_group(backend: Backend, name: str, expected: ServerGroup | None) -> None:
    """Create or remove a server group."""
    backend.commit(Write(Operation(), "group", name, groups=(GroupChange(name, expected),)))


def group_of(backend: Backend, name: str) -> ServerGroup:
    """Return a stored server group."""
    [result] = backend.list_server_groups(1, names=[name])
    return result


def replace(
    backend: Backend, consumer: str, amounts: dict[str, Any], **options: Any
) -> ConsumerRecord:
    """Replace the allocations of a consumer."""
    [record] = order(backend, ConsumerOrder.replace(consumer, deltas(amounts), **options))
    return record


def refusal(work: Callable[[], object]) -> list[tuple[str | None, str | None, list[str]]]:
    """Return (host, group, blocking members) of each reason of a refusal."""
    with raises_code("ServerGroupViolated") as refused:
        work()
    assert {reason.rule for reason in refused.value.reasons} == {Rule.SERVER_GROUP}
    return [
        (reason.where, reason.group, [n for n, _ in reason.holders])
        for reason in refused.value.reasons
    ]


def claim_in_turn(backend: Backend, uuid: str, change: str, consumer: str, turns: int) -> list[int]:
    """Claim at a host for a member of each group in turn; return the turns that succeeded."""
    won: list[int] = []
    for turn in range(turns):
        try:
            claim(backend, f"{consumer}-{turn}", {uuid: {change: 1}}, group=f"g{turn}")
        except exceptions.CapacityException as error:
            if error.code != "ServerGroupViolated":
                raise
            continue
        won.append(turn)
    return won


def claim_elsewhere_in_turn(
    backend_class: type[Backend], url: str, uuid: str, change: str, consumer: str, turns: int
) -> list[int]:
    """Run :func:`claim_in_turn` in another process."""
    backend = backend_class.open(url)
    try:
        return claim_in_turn(backend, uuid, change, consumer, turns)
    finally:
        backend.close()


#: The number of groups for which two processes compete.
_TURNS = 25


class ServerGroupRules(Kit):
    """Server groups and their policies."""

    # --- records ---

    def test_groups_are_created_once_listed_by_name_and_removed(self, backend: Backend) -> None:
        for name, policy, most in (("web", "soft-affinity", 1), ("db", "anti-affinity", 2)):
            make_group(backend, name, policy, most)
            make_group(backend, name, policy, most)
        result = backend.list_server_groups(10)
        assert [(row.name, row.policy, row.max_per_host) for row in result] == [
            ("db", "anti-affinity", 2),
            ("web", "soft-affinity", 1),
        ]
        assert all(row.uuid and row.generation for row in result)
        assert [group.name for group in backend.list_server_groups(1, "db")] == ["web"]
        assert backend.list_server_groups(9, names=["nobody"]) == ()
        change_group(backend, "db", None)
        assert [group.name for group in backend.list_server_groups(10)] == ["web"]

    def test_the_group_of_a_consumer_is_in_every_record(self, backend: Backend) -> None:
        here, destination = two_hosts(backend)
        make_group(backend, "db", "affinity")
        created = claim(backend, "db-1", {here: "VCPU=1"}, group="db")
        claim(backend, "alone", {destination: "VCPU=3"})
        assert created.group == "db"
        for record in (backend.held("db-1"), *backend.list_consumers(_MEMBERS, 9)):
            assert record is not None and (record.consumer, record.group) == ("db-1", "db")
        [ungrouped] = backend.list_consumers(ConsumerFilter(groups=frozenset([None])), 9)
        assert (ungrouped.consumer, ungrouped.group) == ("alone", None)
        assert group_of(backend, "db").members == {"db-1"}
        totals = {(total.group, total.used) for total in backend.totals(ConsumerFilter(), By.GROUP)}
        assert totals == {("db", 1), (None, 3)}
        assert [total.used for total in backend.totals(_MEMBERS, By.RESOURCE_CLASS)] == [1]

    def test_a_repeated_claim_returns_the_group(self, backend: Backend) -> None:
        here, _ = two_hosts(backend)
        make_group(backend, "db")
        doing = Operation()
        consumer_order = ConsumerOrder.claim("db-1", deltas({here: "VCPU=1"}), group="db")
        assert backend.claim(doing, consumer_order).group == "db"
        again = backend.claim(doing, consumer_order)
        assert (again.group, again.consumer) == ("db", "db-1")
        outcome = backend.outcome(doing)
        assert outcome is not None and outcome.claims[0].group == "db"

    # --- policies ---

    @law(6)
    def test_the_error_text_names_the_group_and_its_members(self, backend: Backend) -> None:
        here, destination = two_hosts(backend)
        make_group(backend, "db", "anti-affinity", 4)
        make_group(backend, "web", "affinity")
        for number in (10, 9, 2, 1):
            claim(backend, f"db-{number}", {here: "VCPU=1"}, group="db")
        claim(backend, "web-1", {here: "VCPU=1"}, group="web")
        reported: dict[str, Callable[[], object]] = {
            "host0: group db: at most 4 of it on a host, db-1, db-2, db-9 and 1 more are there": (
                lambda: claim(backend, "db-5", {here: "VCPU=1"}, group="db")
            ),
            "host1: group web: all of it on one host, web-1 is on host0": (
                lambda: claim(backend, "web-2", {destination: "VCPU=1"}, group="web")
            ),
        }
        for words, work in reported.items():
            with raises_code("ServerGroupViolated") as refused:
                work()
            assert str(refused.value) == words
            assert refused.value.reasons[0].to_dict()["rule"] == "server_group"

    @law(4)
    @pytest.mark.parametrize("seed", range(4))
    def test_random_steps_agree_with_a_simple_model(self, backend: Backend, seed: int) -> None:
        chance = random.Random(seed)
        names = define(backend, *(host(f"host{n}", "VCPU=100") for n in range(3)))
        kinds = {
            "near": ("affinity", 1),
            "apart": ("anti-affinity", 1),
            "few": ("anti-affinity", 2),
        }
        for kind, (policy, most) in kinds.items():
            make_group(backend, kind, policy, most)
        member: dict[str, str | None] = {}
        places: dict[str, set[str]] = {}
        refused = 0
        for _ in range(80):
            name = f"c{chance.randint(0, 7)}"
            hosts = set(chance.sample(sorted(names), chance.choice([1, 1, 1, 2])))
            group: str | None = chance.choice([*kinds, None])
            if name in places and chance.random() < 0.3:
                release(backend, name)
                del places[name], member[name]
                continue
            into = group or member.get(name)
            stays = places.get(name, set()) if into == member.get(name) else set()
            other_names = {
                place: places[place] for place in places if place != name and member[place] == into
            }
            is_allowed = into is None or _allowed(kinds[into], hosts - stays, other_names)
            uses = tuple(Use(names[item], "VCPU", 1) for item in sorted(hosts))
            try:
                order(backend, ConsumerOrder.replace(name, uses, group=group))
            except exceptions.CapacityException as error:
                if error.code != "ServerGroupViolated":
                    raise
                assert not is_allowed
                refused += 1
                continue
            assert is_allowed
            places[name], member[name] = hosts, into
            for item in kinds:
                assert group_of(backend, item).members == {
                    consumer for consumer, its in member.items() if its == item
                }
        assert refused > 5
        holds = {
            (consumer, destination)
            for consumer, destination, _ in ledger_state(backend).allocations
        }
        assert holds == {
            (consumer, destination) for consumer, its in places.items() for destination in its
        }

    # --- concurrent claims ---

    @law(4)
    @pytest.mark.parametrize("policy", ["anti-affinity", "affinity"])
    def test_one_of_the_threads_that_claim_for_a_group_succeeds(
        self, backend: Backend, policy: str
    ) -> None:
        hosts = define(backend, *(host(f"host{n}") for n in range(3)))
        make_group(backend, "db", policy)
        separate = policy == "anti-affinity"

        def work(number: int) -> object:
            uuid = hosts["host0"] if separate else hosts[f"host{number}"]
            return claim(backend, f"db-{number}", {uuid: "VCPU=1"}, group="db")

        came = together(work, 3)
        assert sum(is_one_of(item, "ServerGroupViolated") for item in came) == 2
        assert len(ledger_state(backend).allocations) == 1

    @law(4)
    @requires(Requirement.PROCESSES)
    @pytest.mark.parametrize("policy", ["anti-affinity", "affinity"])
    def test_one_of_two_processes_that_claim_for_a_group_succeeds(
        self, backend: Backend, url: str, policy: str
    ) -> None:
        """The group is the only row that both processes lock."""
        names = define(backend, *(host(f"host{n}", "VCPU=64,MEMORY_MB=64") for n in range(2)))
        here, destination = names["host0"], names["host1"]
        for turn in range(_TURNS):
            make_group(backend, f"g{turn}", policy)
        place = here if policy == "anti-affinity" else destination
        with ProcessPoolExecutor(1, mp_context=processes()) as pool:
            other = pool.submit(
                claim_elsewhere_in_turn, self.backend_class, url, place, "VCPU", "other", _TURNS
            )
            won = claim_in_turn(backend, here, "MEMORY_MB", "mine", _TURNS)
            assert sorted(won + other.result()) == list(range(_TURNS))
        for turn in range(_TURNS):
            assert len(group_of(backend, f"g{turn}").members) == 1


_MEMBERS = ConsumerFilter(groups=frozenset(["db"]))


def _allowed(
    kind: tuple[str, int], new: Collection[str], other_names: Mapping[str, Collection[str]]
) -> bool:
    """Return True if the policy allows a member at the new hosts."""
    policy, most = kind
    if policy == "anti-affinity":
        return all(sum(item in its for its in other_names.values()) < most for item in new)
    destination = {item for its in other_names.values() for item in its}
    return not destination or destination.issuperset(new)
