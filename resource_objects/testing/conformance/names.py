"""Rules of names: every name that the library admits is kept as it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resource_objects.providers import Backend, Provider
from resource_objects.providers.orders import ClaimOrder, Delta, Operation
from resource_objects.testing import strategies
from resource_objects.testing.conformance.base import (
    Kit,
    claim,
    define,
    kept,
    law,
    picture,
    release,
)

#: Names that a database with a comfortable collation would take for one another.
_ALIKE = [
    "job",
    "Job",
    "JOB",
    "jöb",
    "jo\u0308b",
    "\uff4a\uff4f\uff42",
    "jobß",
    "jobss",
    "job.",
    "j ob",
]


class NameRules(Kit):
    """Names of providers, consumers, resource classes and traits."""

    @law(7)
    def test_names_that_look_alike_differ(self, backend: Backend) -> None:
        names = define(backend, *(Provider(name, "VCPU=8") for name in _ALIKE))
        assert len(set(names.values())) == len(_ALIKE)
        for number, name in enumerate(_ALIKE):
            claim(backend, name, {names[name]: f"VCPU={1 + number % 8}"})
        for number, name in enumerate(_ALIKE):
            record = backend.held(name)
            assert record is not None and record.consumer == name
            assert [(held.provider, held.amount) for held in record.held] == [
                (name, 1 + number % 8)
            ]
        release(backend, "Job")
        assert backend.held("Job") is None and backend.held("job") is not None

    @law(7)
    @pytest.mark.parametrize("letter", ["x", "ö", "大", "🖥"])
    def test_the_longest_names_are_kept_whole(self, backend: Backend, letter: str) -> None:
        name, twin = letter * 200, letter * 199 + "y"
        custom = "CUSTOM_" + "X" * 248
        names = define(
            backend,
            Provider(name, {custom: 8}, traits=[custom]),
            Provider(twin, {custom[:-1]: 8}, traits=[custom[:-1]]),
        )
        claim(backend, letter * 255, {names[name]: {custom: 1}})
        claim(backend, letter * 254 + "y", {names[twin]: {custom[:-1]: 2}})
        assert picture(backend).allocations == {
            (letter * 255, name, custom): 1,
            (letter * 254 + "y", twin, custom[:-1]): 2,
        }
        assert kept(backend, twin).traits == {custom[:-1]}

    @law(7)
    @settings(
        max_examples=25,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,  # one ledger for all examples will do
            HealthCheck.differing_executors,  # every backend inherits this test
            HealthCheck.too_slow,
        ],
    )
    @given(data=st.data())
    def test_any_admitted_name_is_kept(self, backend: Backend, data: st.DataObject) -> None:
        resource_class = data.draw(strategies.custom_resource_classes())
        provider = data.draw(strategies.provider_names())
        consumer = data.draw(strategies.consumer_names())
        trait = data.draw(strategies.trait_names())
        label = data.draw(strategies.labels())
        wanted = Provider(provider, {resource_class: 8}, traits=[trait], aggregates=[label])
        names = define(backend, wanted)
        unit = Delta(names[provider], resource_class, 3, (label,))
        said: Any = {"project": label, "user": label, "consumer_type": label}
        backend.claim(Operation(), ClaimOrder(consumer, (unit,), **said))
        found = picture(backend, provider)
        assert found.allocations == {(consumer, provider, resource_class): 3}
        assert found.units == {(provider, label): (resource_class, consumer)}
        assert found.providers[provider].traits == {trait}
        assert found.providers[provider].aggregates == {label}
        record = backend.held(consumer)
        assert record is not None
        assert (record.project, record.user, record.consumer_type) == (label, label, label)
        release(backend, consumer)
