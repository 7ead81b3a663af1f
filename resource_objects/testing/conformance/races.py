"""Rules of races: what several want at the same moment, one gets, and nobody waits for ever."""

from __future__ import annotations

import random
from typing import Any

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider
from resource_objects.providers.orders import (
    Adjustment,
    ClaimOrder,
    ClaimRecord,
    Delta,
    NameAction,
    NameChange,
    Operation,
    Release,
    Replacement,
    Write,
)
from resource_objects.providers.provider import Share
from resource_objects.resources import Inventories
from resource_objects.testing.conformance.base import (
    AGGREGATE,
    CLASS,
    Kit,
    change_names,
    changes_to,
    claim,
    define,
    deltas,
    host,
    kept,
    law,
    names_of,
    now,
    order,
    picture,
    release,
    rename,
)
from resource_objects.testing.conformance.concurrency import together

_WORKERS = 6


def _raised(outcomes: list[Any], *kinds: type[Exception]) -> list[Any]:
    """Return what was raised; all of it must be of some kinds."""
    raised = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert all(isinstance(outcome, kinds) for outcome in raised), raised
    return raised


class RaceRules(Kit):
    """Threads that want the same at the same moment."""

    @law(4)
    def test_a_unit_goes_to_one_of_many(self, backend: Backend) -> None:
        [here] = define(backend, host("host0", "PCPU=20")).values()

        def work(number: int) -> list[str]:
            chance, won = random.Random(number), []
            units = chance.sample(range(10), 10)
            for first, second in zip(units[::2], units[1::2], strict=True):
                wanted = Delta(here, "PCPU", 2, (f"cpu{first}", f"cpu{second}"))
                consumer = f"job-{number}-{first}"
                try:
                    order(backend, ClaimOrder(consumer, (wanted,)))
                    won += list(wanted.units)
                except exceptions.UnitTaken:
                    continue
            return won

        outcomes = together(work)
        _raised(outcomes)
        won = [unit for outcome in outcomes for unit in outcome]  # type: ignore[union-attr]
        assert len(won) == len(set(won)) > 0
        found = picture(backend)
        assert {unit for _, unit in found.units} == set(won)
        assert found.used("host0", "PCPU") == len(won)

    @law(1, 4)
    def test_a_shared_target_is_never_over_full(self, backend: Backend) -> None:
        root = Provider("host0", "VCPU=30,MEMORY_MB=9")
        for number in range(_WORKERS):
            share = Share(resource_class="VCPU", of="host0", of_class="VCPU", factor=2)
            root.add(f"cell{number}", "VCPU=20", shares=[share])
        names = define(backend, root)

        def work(number: int) -> int:
            for turn in range(20):
                try:
                    claim(backend, f"job-{number}-{turn}", {names[f"cell{number}"]: "VCPU=1"})
                except exceptions.CapacityException:
                    return turn
                assert picture(backend).used("host0", "VCPU") <= 30
            return 20

        outcomes = together(work)
        _raised(outcomes)
        assert sum(outcomes) == 15  # type: ignore[arg-type]
        assert picture(backend).used("host0", "VCPU") == 30

    @law(4)
    def test_of_those_who_read_the_same_generation_one_writes(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}") for n in range(_WORKERS)))
        first = claim(backend, "job", {names["host0"]: "VCPU=1"})

        def work(number: int) -> ClaimRecord:
            wanted = deltas({names[f"host{number}"]: "VCPU=2"})
            [record] = order(backend, Replacement("job", wanted, generation=first.generation))
            return record

        outcomes = together(work)
        assert len(_raised(outcomes, exceptions.StaleConsumer)) == _WORKERS - 1
        [won] = [outcome for outcome in outcomes if isinstance(outcome, ClaimRecord)]
        assert backend.held("job") == won

    @law(2, 4)
    def test_swaps_in_opposite_orders_do_not_stop_each_other(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}", "VCPU=4") for n in range(3)))
        uuids = list(names.values())
        for number in range(3):
            claim(backend, f"job-{number}", {uuids[number]: "VCPU=4"})

        def work(number: int) -> None:
            chance = random.Random(number)
            for _ in range(8):
                here, there = chance.sample(range(3), 2)
                pair = [f"job-{here}", f"job-{there}"]
                held = backend.held_by(pair)
                moves = [
                    Replacement(
                        one,
                        tuple(Delta(h.provider_uuid, "VCPU", 4) for h in held[other].held),
                        generation=held[one].generation,
                    )
                    for one, other in (pair, pair[::-1])
                ]
                try:
                    order(backend, *moves)
                except exceptions.StaleConsumer:
                    continue

        _raised(together(work))
        found = picture(backend)
        assert {key[1] for key in found.allocations} == {"host0", "host1", "host2"}
        assert {found.used(name, "VCPU") for name in names} == {4}

    @law(2)
    def test_writes_of_many_consumers_meet_in_any_order(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}", "VCPU=99,DISK_GB=99") for n in range(4)))
        uuids = list(names.values())
        jobs = [f"job-{n}" for n in range(6)]

        def work(number: int) -> None:
            chance = random.Random(number)
            for _ in range(6):
                some = chance.sample(jobs, 3)
                wanted = [
                    Adjustment(job, deltas({chance.choice(uuids): "VCPU=1,DISK_GB=1"}))
                    for job in some
                ]
                order(backend, *wanted)

        assert together(work) == [None] * _WORKERS
        held = backend.held_by(jobs)
        counted = sum(one.amount for record in held.values() for one in record.held)
        assert counted == _WORKERS * 6 * 3 * 2
        picture(backend)

    def test_one_name_is_made_by_many(self, backend: Backend) -> None:
        def work(number: int) -> None:
            for turn in range(4):
                name = NameChange(CLASS, NameAction.ENSURE, f"CUSTOM_{turn}")
                if number % 2:
                    change_names(backend, name)
                else:
                    root = Provider(f"host{number}", {f"CUSTOM_{turn}": 1}, aggregates=["rack"])
                    define(backend, root)

        assert together(work) == [None] * _WORKERS
        names = names_of(backend, CLASS)
        assert len(names) == len(set(names))
        assert {f"CUSTOM_{turn}" for turn in range(4)} <= set(names)
        assert names_of(backend, AGGREGATE) == ["rack"]

    @law(2)
    def test_a_class_is_renamed_under_those_who_claim(self, backend: Backend) -> None:
        names = define(backend, Provider("user", {"CUSTOM_A": 999}))
        here = names["user"]

        def work(number: int) -> int:
            if number == 0:
                for turn in range(8):
                    old, new = ("CUSTOM_A", "CUSTOM_B")[:: 1 if turn % 2 == 0 else -1]
                    change_names(backend, rename(CLASS, old, new))
                return 0
            won = 0
            for turn in range(12):
                try:
                    wanted = {here: {("CUSTOM_A", "CUSTOM_B")[turn % 2]: 1}}
                    claim(backend, f"job-{number}-{turn}", wanted)
                    won += 1
                except exceptions.InventoryNotFound:
                    continue
            return won

        outcomes = together(work)
        _raised(outcomes)
        found = picture(backend)
        assert found.used("user", "CUSTOM_A") == sum(outcomes)  # type: ignore[arg-type]

    def test_a_name_is_deleted_under_those_who_use_it(self, backend: Backend) -> None:
        def work(number: int) -> None:
            for _ in range(6):
                if number % 2:
                    define(backend, Provider(f"host{number}", {"CUSTOM_A": 1}, traits=["CUSTOM_A"]))
                    define(backend, Provider(f"host{number}"))
                    continue
                change_names(backend, NameChange(CLASS, NameAction.ENSURE, "CUSTOM_A"))
                try:
                    change_names(backend, NameChange(CLASS, NameAction.DELETE, "CUSTOM_A"))
                except (exceptions.ClassInUse, exceptions.ClassNotFound):
                    continue

        assert together(work) == [None] * _WORKERS
        define(backend, Provider("last", {"CUSTOM_A": 1}))
        assert names_of(backend, CLASS).count("CUSTOM_A") == 1

    @law(1)
    def test_shares_change_under_those_who_claim(self, backend: Backend) -> None:
        root = Provider("host0", "VCPU=9999")
        root.add("cell0", "VCPU=9999")
        names = define(backend, root)

        def work(number: int) -> None:
            if number == 0:
                for turn in range(12):
                    tree = kept(backend, "host0")
                    share = Share(
                        resource_class="VCPU", of="host0", of_class="VCPU", factor=1 + turn % 3
                    )
                    tree.find("cell0").update(shares=(share,) if turn % 4 else ())
                    define(backend, tree)
                return
            for turn in range(12):
                claim(backend, f"job-{number}-{turn}", {names["cell0"]: "VCPU=1"})
                if turn % 3 == 0:
                    release(backend, f"job-{number}-{turn}")
                picture(backend)  # which checks the sums

        assert together(work) == [None] * _WORKERS
        assert picture(backend).used("cell0", "VCPU") == 8 * (_WORKERS - 1)

    @law(1, 2)
    def test_an_inventory_moves_under_those_who_claim(self, backend: Backend) -> None:
        root = Provider("host0", "VCPU=99")
        root.add("cell0")
        names = define(backend, root)
        places = [names["host0"], names["cell0"]]

        def work(number: int) -> int:
            if number == 0:
                return sum(_move_inventory(backend, places) for _ in range(40))
            won = 0
            for turn in range(10):
                for place in places:
                    try:
                        claim(backend, f"job-{number}-{turn}", {place: "VCPU=1"})
                        won += 1
                        break
                    except exceptions.InventoryNotFound:
                        continue
            return won

        outcomes = together(work)
        _raised(outcomes)
        found = picture(backend)
        assert len(found.allocations) == sum(outcomes[1:])  # type: ignore[arg-type]
        assert sum(_move_inventory(backend, places) for _ in range(2)) == 2
        assert len({key[1] for key in found.allocations}) <= 1

    @law(2)
    def test_forgetting_disturbs_nobody(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}", "VCPU=999") for n in range(3)))
        uuids = list(names.values())

        def work(number: int) -> None:
            for turn in range(10):
                if number == 0:
                    backend.prune(now())
                    continue
                operation = Operation()
                wanted = ClaimOrder(f"job-{number}-{turn}", deltas({uuids[number % 3]: "VCPU=1"}))
                backend.claim(operation, wanted)
                assert backend.outcome(operation) is not None  # it is its consumer's last
                if turn % 2:
                    release(backend, wanted.consumer)

        assert together(work) == [None] * _WORKERS
        found = picture(backend)
        assert len(found.allocations) == 5 * (_WORKERS - 1)
        for consumer, _, _ in found.allocations:
            record = backend.held(consumer)
            assert record is not None
            order(backend, Release(consumer, generation=record.generation))


def _move_inventory(backend: Backend, places: list[str]) -> int:
    """Move the CPUs, with all who hold some, from one provider to the other; return 1 if so."""
    columns = backend.read("host0")
    tree = kept(backend, "host0")
    cell = tree.children[0]
    at = [one for one in (tree, cell) if len(one.inventories)]
    if len(at) != 1:
        return 0
    there = places[1] if at[0] is tree else places[0]
    (tree if at[0] is tree else cell).update(inventories=Inventories())
    (cell if at[0] is tree else tree).update(inventories=Inventories("VCPU=99"))
    held = backend.held_by(set(columns.allocations.consumer))
    moves = tuple(
        Replacement(name, (Delta(there, "VCPU", 1),), generation=record.generation)
        for name, record in held.items()
    )
    try:
        changes = changes_to(backend, tree)
        backend.commit(Write(Operation(), "reshape", "host0", changes, moves))
    except (exceptions.InventoryInUse, exceptions.StaleConsumer, exceptions.StaleDefinition):
        return 0  # somebody came in between
    return 1
