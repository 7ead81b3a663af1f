"""Rules of units: CPUs and devices by name, each of which belongs to one consumer."""

from __future__ import annotations

import pytest

from resource_objects import exceptions
from resource_objects.exceptions import Rule
from resource_objects.providers import Backend
from resource_objects.providers.orders import (
    Adjustment,
    ClaimOrder,
    ClaimRecord,
    Delta,
    Release,
    Replacement,
)
from resource_objects.testing.conformance.base import (
    Kit,
    define,
    deltas,
    host,
    kept,
    law,
    order,
    picture,
    release,
    told,
)


def _host(backend: Backend, inventories: str = "VCPU=8,PCPU=8") -> str:
    return define(backend, host("host0", inventories))["host0"]


def _take(backend: Backend, consumer: str, uuid: str, *units: str) -> ClaimRecord:
    wanted = Delta(uuid, "PCPU", len(units), units)
    [record] = order(backend, ClaimOrder(consumer, (wanted,)))
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
            order(backend, ClaimOrder("third", (Delta(here, "VCPU", 1, ("cpu0",)),)))
        with pytest.raises(exceptions.UnitTaken):
            order(backend, Adjustment("first", (Delta(here, "PCPU", 1, ("cpu0",)),)))
        assert picture(backend) == before

    @law(4)
    def test_two_in_one_write_cannot_take_one_unit(self, backend: Backend) -> None:
        here = _host(backend)
        before = picture(backend)
        with pytest.raises(exceptions.UnitTaken):
            order(
                backend,
                ClaimOrder("a", (Delta(here, "PCPU", 1, ("cpu0",)),)),
                ClaimOrder("b", (Delta(here, "VCPU", 1, ("cpu0",)),)),
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
        order(backend, Adjustment("job", (Delta(here, "PCPU", -2, ("cpu0", "cpu2")),)))
        assert _units(backend, "job") == {"cpu1"}
        order(backend, Adjustment("job", (Delta(here, "PCPU", 1, ("cpu7",)),)))
        assert _units(backend, "job") == {"cpu1", "cpu7"}
        assert picture(backend).used("host0", "PCPU") == 2
        _take(backend, "other", here, "cpu0")

    def test_giving_back_everything_gives_back_the_units(self, backend: Backend) -> None:
        here = _host(backend)
        _take(backend, "job", here, "cpu0", "cpu1")
        order(
            backend,
            Adjustment("job", (Delta(here, "PCPU", -2), Delta(here, "VCPU", 1))),
        )
        assert picture(backend).units == {}
        _take(backend, "other", here, "cpu0")

    @law(2)
    def test_who_gives_back_some_says_which(self, backend: Backend) -> None:
        here = _host(backend)
        _take(backend, "job", here, "cpu0", "cpu1")
        before = picture(backend)
        with pytest.raises(exceptions.InvalidAmount):
            order(backend, Adjustment("job", (Delta(here, "PCPU", -1),)))
        assert picture(backend) == before

    @law(2)
    def test_nobody_gives_back_a_unit_of_others(self, backend: Backend) -> None:
        here = _host(backend)
        _take(backend, "other", here, "cpu0")
        _take(backend, "job", here, "cpu1")
        before = picture(backend)
        for unit in ("cpu0", "cpu7"):
            with pytest.raises(exceptions.UnitNotHeld) as refused:
                order(backend, Adjustment("job", (Delta(here, "PCPU", -1, (unit,)),)))
            assert refused.value.subject == unit
        with pytest.raises(exceptions.UnitNotHeld):  # it is held as another class
            order(backend, Adjustment("job", (Delta(here, "VCPU", -1, ("cpu1",)),)))
        assert picture(backend) == before

    def test_replacing_keeps_gives_and_takes_units(self, backend: Backend) -> None:
        here = _host(backend)
        _take(backend, "job", here, "cpu0", "cpu1")
        order(backend, Replacement("job", (Delta(here, "PCPU", 2, ("cpu1", "cpu2")),)))
        assert _units(backend, "job") == {"cpu1", "cpu2"}
        order(backend, Replacement("job", (Delta(here, "VCPU", 1, ("cpu2",)),)))
        assert picture(backend).units == {("host0", "cpu2"): ("VCPU", "job")}
        order(backend, Replacement("job", deltas({here: "VCPU=1"})))
        assert picture(backend).units == {}

    @law(4)
    def test_a_full_place_swaps_its_units(self, backend: Backend) -> None:
        here = _host(backend, "PCPU=2")
        _take(backend, "a", here, "cpu0")
        _take(backend, "b", here, "cpu1")
        order(
            backend,
            Replacement("a", (Delta(here, "PCPU", 1, ("cpu1",)),)),
            Replacement("b", (Delta(here, "PCPU", 1, ("cpu0",)),)),
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
            ClaimOrder("b", (Delta(here, "PCPU", 1, ("cpu0",)),)),
            Adjustment("a", (Delta(here, "PCPU", -1, ("cpu0",)),)),
        )
        assert (_units(backend, "a"), _units(backend, "b")) == ({"cpu1"}, {"cpu0"})
        order(backend, Release("a"), Adjustment("b", (Delta(here, "VCPU", 1, ("cpu1",)),)))
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
            Release("job"),
            *(ClaimOrder(unit, (Delta(here, "PCPU", 1, (unit,)),)) for unit in units),
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
