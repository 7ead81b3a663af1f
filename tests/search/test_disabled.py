"""What is out of service is as if a trait that nobody may have were there, over random fleets."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects.providers import Provider
from resource_objects.providers.columns import Columns, TraitColumns
from resource_objects.providers.disabled import Disabled
from resource_objects.reasons import Rule
from resource_objects.requests import Gang, Member, Request, RequestGroup
from resource_objects.search import Snapshot
from tests.search.test_against_reference import fleets, requests
from tests.support.lengths import examples

SINCE = datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)
FAN = Disabled(reason="fan", by="admin", since=SINCE)
OUT = "CUSTOM_OUT"


def _below(columns: Columns, some: set[int]) -> set[int]:
    """Return some providers and all below them."""
    found = set(some)
    for number, parent in zip(
        columns.providers.provider_id, columns.providers.parent_id, strict=True
    ):
        if parent in found:  # parents come first
            found.add(number)
    return found


@st.composite
def disabled_fleets(draw: st.DrawFn) -> tuple[Columns, Columns, set[str]]:
    """Return a fleet with something disabled, the same with a trait, and the hosts that are out."""
    columns = draw(fleets())
    given_ = columns.providers
    numbers = list(given_.provider_id)
    some = draw(st.sets(st.sampled_from(numbers), max_size=3)) if numbers else set()
    facts = [FAN if number in some else None for number in numbers]
    out = _below(columns, some)
    traits = TraitColumns(
        [*columns.traits.provider_id, *sorted(out)], [*columns.traits.trait, *[OUT] * len(out)]
    )
    roots = {n for n, p in zip(numbers, given_.parent_id, strict=True) if p is None}
    hosts = {name for n, name in zip(numbers, given_.name, strict=True) if n in some & roots}
    return (
        dataclasses.replace(columns, providers=given_._replace(disabled=facts)),
        dataclasses.replace(columns, traits=traits),
        hosts,
    )


@pytest.mark.law(5)
@pytest.mark.parametrize("compatibility", [None, "placement"])
def test_it_gives_nothing_and_leaves_all_else(compatibility: str | None) -> None:
    @settings(max_examples=examples(100), deadline=None)
    @given(disabled_fleets(), requests())
    def check(fleet: tuple[Columns, Columns, set[str]], asked: Any) -> None:
        disabled, traited, hosts = fleet
        group = asked.unnamed
        request = Request(
            group.resources,
            required=group.required,
            forbidden=group.forbidden,
            compatibility=compatibility,
        )
        without = Request(
            group.resources,
            required=group.required,
            forbidden={*group.forbidden, OUT},
            compatibility=compatibility,
        )
        found = Snapshot(disabled).candidates(request, limit=None)
        expected = Snapshot(traited).candidates(without, limit=None)
        assert [str(one) for one in found] == [
            str(one) for one in expected if one.host not in hosts
        ]
        for host, reasons in found.explain().by_host():
            if host in hosts:
                assert {reason.rule for reason in reasons} == {Rule.DISABLED}

    check()


# --- what is disabled is not free -----------------------------------------------------------------


@pytest.fixture
def broken():
    """A host with the GPUs ``h/g0`` and ``h/g1``, of which the second is disabled."""
    with ro.connect("memory://") as ledger:
        host = Provider("h", "VCPU=8")
        for number in range(2):
            host.add(f"h/g{number}", "PGPU=1")
        ledger.sync(host)
        ledger.disable("h/g1", reason="broken")
        yield ledger


@pytest.mark.parametrize(
    ("resources", "groups", "figures"),
    [
        ("VCPU=1", 3, (3, 1, 0)),
        ("PGPU=1", 1, (2, 1, 0)),
        ("PGPU=2", 0, (2, 1, 0)),
    ],
)
def test_a_disabled_device_is_not_free_in_a_reason(broken, resources, groups, figures):
    named = [RequestGroup("PGPU=1", suffix=f"_{number}") for number in range(groups)]
    request = Request(resources, groups=named, group_policy="none")
    short, disabled = broken.snapshot().candidates(request).explain().reasons
    assert (short.requested, short.bound, short.used) == figures
    assert (disabled.rule, disabled.where) == (Rule.DISABLED, "h/g1")


def test_a_disabled_device_or_pool_is_not_free_for_a_gang(broken):
    members = Member("worker", "PGPU=1", count=3)
    told = "worker requested 3, fits 1 (PGPU requested 3, free 1)"
    assert str(broken.snapshot().fit_gang(Gang([members]))) == told
    group = Request(groups=[RequestGroup("PGPU=1", suffix="_A")])
    assert str(broken.snapshot().fit_gang(Gang([Member("worker", group, count=3)]))) == told
    shared = {"traits": ["MISC_SHARES_VIA_AGGREGATE"], "aggregates": ["agg"]}
    broken.sync(
        Provider("h", "VCPU=8", aggregates=["agg"]),
        *(Provider(f"pool{number}", "DISK_GB=100", **shared) for number in range(2)),
    )
    broken.disable("pool1", reason="broken")
    members = Member("worker", "VCPU=1,DISK_GB=60", count=3)
    told = "worker requested 3, fits 1 (DISK_GB requested 180, free 100)"
    assert str(broken.snapshot().fit_gang(Gang([members]))) == told
    assert broken.snapshot().fit_gang(Gang([Member("worker", "VCPU=1,DISK_GB=60")]))
