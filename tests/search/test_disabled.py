"""What is out of service is as if a trait that nobody may have were there, over random fleets."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resource_objects.exceptions import Rule
from resource_objects.providers.columns import Columns, TraitColumns
from resource_objects.providers.disabled import Disabled
from resource_objects.requests import Request
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
