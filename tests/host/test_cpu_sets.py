"""Which CPUs serve what: shared, dedicated, the host's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.host.machine import Core, Machine
from resource_objects.host.settings import HostSettings
from resource_objects.testing.refusals import raises_code

MACHINE = Machine(
    cpus=(0, 1, 2, 3, 5),
    offline_cpus=(4,),
    cores=tuple(Core(0, cpu, (cpu,)) for cpu in (0, 1, 2, 3, 5)),
    memory_bytes=0,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, ((0, 1, 2, 3, 5), ())),
        ({"dedicated": "2-3"}, ((), (2, 3))),
        ({"shared": "2-3"}, ((2, 3), ())),
        ({"shared": "0-3,^1", "dedicated": "5"}, ((0, 2, 3), (5,))),
        ({"shared": [3, 0, 0], "dedicated": range(1, 3)}, ((0, 3), (1, 2))),
        ({"dedicated": {5, 3}}, ((), (3, 5))),
    ],
    ids=["neither", "dedicated", "shared", "both", "numbers", "a set"],
)
def test_cpus_serve_what_the_sets_say_and_all_are_shared_if_there_are_none(value, expected):
    assert HostSettings(**value).cpu_sets(MACHINE) == expected


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (
            {"dedicated": "3-4"},
            exceptions.InvalidInventory,
            "dedicated CPUs: got '4', expected CPUs that are online: 0-3,5",
        ),
        ({"shared": "6-9"}, exceptions.InvalidInventory, "shared CPUs: got '6-9', expected CPUs"),
        (
            {"shared": "0-2", "dedicated": "1-3"},
            exceptions.InvalidInventory,
            "dedicated CPUs: got '1-2', expected CPUs that are not shared too",
        ),
        ({"dedicated": ""}, "InvalidText", "dedicated CPUs: got ''"),
        ({"shared": "0-3,^0-3"}, "InvalidText", "shared CPUs: got '0-3,^0-3'"),
        ({"shared": "3-1"}, "InvalidText", "shared CPUs: got '3-1'"),
        ({"dedicated": []}, exceptions.InvalidInput, "dedicated CPUs: got []"),
        ({"dedicated": [True]}, exceptions.InvalidInput, "dedicated CPUs: got [True]"),
        ({"dedicated": [-1]}, exceptions.InvalidInput, "dedicated CPUs: got [-1]"),
        ({"dedicated": b"\x01"}, exceptions.InvalidInput, r"dedicated CPUs: got b'\x01'"),
        ({"shared": 3}, exceptions.InvalidInput, "shared CPUs: got 3"),
    ],
)
def test_what_is_no_set_of_online_cpus_is_refused_by_name(value, error, message):
    with raises_code(error) as refused:
        HostSettings(**value).cpu_sets(MACHINE)
    assert message in str(refused.value)


@given(
    shared=st.frozensets(st.sampled_from(MACHINE.cpus)),
    dedicated=st.frozensets(st.sampled_from(MACHINE.cpus)),
)
def test_no_cpu_is_shared_and_dedicated(shared, dedicated):
    settings = HostSettings(shared=shared or None, dedicated=dedicated or None)
    try:
        result = settings.cpu_sets(MACHINE)
    except exceptions.InvalidInventory:
        assert shared & dedicated
    else:
        assert not set(result[0]).intersection(result[1])
        assert set(result[1]) == dedicated
        assert set(result[0]) == (shared if shared or dedicated else set(MACHINE.cpus))
