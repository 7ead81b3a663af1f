"""Tests of names of classes, traits and aggregates, and of the characters of all names."""

from __future__ import annotations

import contextlib
import string
from typing import Any

import os_resource_classes
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resource_objects import names
from resource_objects.providers import Backend, Provider
from resource_objects.providers.orders import (
    ConsumerOrder,
    NameAction,
    NameChange,
    NameKind,
    Operation,
    Use,
)
from resource_objects.resources.traits import standard_traits
from resource_objects.testing.conformance import suite as kit
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.refusals import raises_code


def _ensure(kind: NameKind, name: str) -> NameChange:
    return NameChange(kind, NameAction.ENSURE, name)


class CatalogueRules(kit.Kit):
    """Creation, renaming and deletion of names."""

    def test_a_new_ledger_has_the_standard_names(self, backend: Backend) -> None:
        standard = {
            kit.CLASS: sorted(os_resource_classes.STANDARDS),
            kit.TRAIT: sorted(standard_traits()),
        }
        for kind, expected in standard.items():
            assert kit.names_of(backend, kind) == expected
            kit.change_names(backend, *(_ensure(kind, name) for name in expected[:3]))
            assert kit.names_of(backend, kind) == expected
        assert kit.names_of(backend, kit.AGGREGATE) == []

    def test_names_are_listed_by_their_code_points_in_pages(self, backend: Backend) -> None:
        created = ["b", "B", "Z", "a", "ä", "大", "_", "~", "aa", "🖥"]
        kit.change_names(backend, *(_ensure(kit.AGGREGATE, name) for name in created))
        for limit in (1, 3, 100):
            result: list[str] = []
            while page := backend.list_names(kit.AGGREGATE, limit, result[-1] if result else None):
                assert len(page) <= limit
                result += [listed.name for listed in page]
            assert result == sorted(created)
        assert backend.list_names(kit.AGGREGATE, 100, "🖥") == ()

    @pytest.mark.parametrize("kind", list(NameKind))
    def test_a_renamed_name_keeps_its_number(self, backend: Backend, kind: NameKind) -> None:
        kit.change_names(backend, _ensure(kind, "CUSTOM_OLD"))
        before = {listed.name: listed.number for listed in backend.list_names(kind, 1000)}
        kit.change_names(backend, kit.rename(kind, "CUSTOM_OLD", "CUSTOM_NEW"))
        before["CUSTOM_NEW"] = before.pop("CUSTOM_OLD")
        after = {listed.name: listed.number for listed in backend.list_names(kind, 1000)}
        assert after == before

    # --- other users of the same ledger ---

    @requires(Requirement.SHARING)
    def test_another_backend_sees_that_a_name_was_deleted(self, backend: Backend, url: str) -> None:
        user = Provider("user", {"CUSTOM_A": 8}, traits=["CUSTOM_A"], aggregates=["CUSTOM_A"])
        kit.define(backend, user)
        with contextlib.closing(self.backend_class.open(url)) as other:
            kit.ledger_state(other)
            kit.define(other, Provider("second", {"CUSTOM_A": 1}, traits=["CUSTOM_A"]))
            kit.define(backend, Provider("user", aggregates=[]), Provider("second"))
            deletions = (NameChange(kind, NameAction.DELETE, "CUSTOM_A") for kind in NameKind)
            kit.change_names(backend, *deletions)
            assert not any("CUSTOM_A" in kit.names_of(other, kind) for kind in NameKind)
            again = Provider("second", {"CUSTOM_A": 2}, traits=["CUSTOM_A"], aggregates=["A"])
            kit.claim(other, "job", {kit.define(other, again)["second"]: {"CUSTOM_A": 2}})
            assert kit.ledger_state(backend) == kit.ledger_state(other)
            assert kit.ledger_state(backend).providers["second"].traits == {"CUSTOM_A"}

    @requires(Requirement.SHARING)
    def test_names_exchanged_by_another_backend_are_not_confused(
        self, backend: Backend, url: str
    ) -> None:
        [uuid] = kit.define(backend, Provider("user", {"CUSTOM_A": 8, "CUSTOM_B": 9})).values()
        with contextlib.closing(self.backend_class.open(url)) as other:
            kit.claim(other, "job", {uuid: {"CUSTOM_A": 1, "CUSTOM_B": 2}})
            pairs = (("A", "C"), ("B", "A"), ("C", "B"))
            changes = (
                kit.rename(kit.CLASS, f"CUSTOM_{old}", f"CUSTOM_{new}") for old, new in pairs
            )
            kit.change_names(backend, *changes)  # the other one has cached both names
            kit.claim(other, "job-2", {uuid: {"CUSTOM_A": 4}})
            kit.define(other, Provider("other", {"CUSTOM_C": 3}))
            state = kit.ledger_state(backend)
            assert (state.used("user", "CUSTOM_A"), state.used("user", "CUSTOM_B")) == (6, 1)
            assert kit.ledger_state(other) == state


# --- valid names are stored unchanged ---


def custom_names() -> st.SearchStrategy[str]:
    """Return names of site-made resource classes and traits, ``CUSTOM_...``."""
    symbols = string.ascii_uppercase + string.digits + "_"
    tails = st.text(symbols, min_size=1, max_size=255 - len(names.CUSTOM_PREFIX))
    return st.builds(names.CUSTOM_PREFIX.__add__, tails)


def printable_names(longest: int) -> st.SearchStrategy[str]:
    """Return valid names: short ones of plain letters, or any printable ones."""
    everyday = st.from_regex(r"[a-z][a-z0-9]{0,8}(/[a-z0-9]{1,8})?", fullmatch=True)
    letters = st.characters(exclude_categories=["C", "Z"])
    inner = st.text(letters | st.just(" "), min_size=1, max_size=longest)
    return everyday | inner.filter(lambda name: name == name.strip())


class NameRules(kit.Kit):
    """Names of providers, consumers, resource classes, traits and aggregates."""

    @kit.law(7)
    def test_names_that_look_alike_differ(self, backend: Backend) -> None:
        """Names of providers, aggregates and consumers."""
        alike = [*kit.ALIKE, "r" * 199, "r" * 200]
        hosts = [Provider(name, "VCPU=99", aggregates=alike[n:]) for n, name in enumerate(alike)]
        uuids = kit.define(backend, *hosts)
        assert len(set(uuids.values())) == len(alike)
        for number, name in enumerate(alike, 1):
            kit.claim(backend, name, {uuids[name]: f"VCPU={number}"})
        state = kit.ledger_state(backend)
        assert state.allocations == {(name, name, "VCPU"): n for n, name in enumerate(alike, 1)}
        for number, name in enumerate(alike):
            assert state.providers[name].aggregates == set(alike[number:])
            record = backend.consumer(name)
            assert record is not None and record.consumer == name
            assert [use.provider for use in record.held] == [name]
        kit.release(backend, "Job")
        assert backend.consumer("Job") is None and backend.consumer("job") is not None
        assert kit.names_of(backend, kit.AGGREGATE) == sorted(alike)

    @kit.law(7)
    def test_units_that_look_alike_differ(self, backend: Backend) -> None:
        alike = (*kit.ALIKE, "0000:0a:00.0", "0000:0A:00.0", "u" * 255)
        [here] = kit.define(backend, Provider("host0", "PCPU=99")).values()
        use = Use(here, "PCPU", len(alike), alike)
        kit.order(backend, ConsumerOrder.claim("job", (use,)))
        stored = {("host0", unit): ("PCPU", "job") for unit in alike}
        assert kit.ledger_state(backend).units == stored
        for unit in alike:
            with raises_code("UnitTaken"):
                kit.order(backend, ConsumerOrder.claim("other", (Use(here, "PCPU", 1, (unit,)),)))

    @kit.law(7)
    @pytest.mark.parametrize("letter", ["x", "ö", "大", "🖥"])
    def test_the_longest_names_are_not_truncated(self, backend: Backend, letter: str) -> None:
        stored = {}
        for end in (letter, "y"):
            provider, consumer = letter * 199 + end, letter * 254 + end
            custom = "CUSTOM_" + "X" * (248 if end == letter else 247)
            [uuid] = kit.define(backend, Provider(provider, {custom: 8}, traits=[custom])).values()
            kit.claim(backend, consumer, {uuid: {custom: 2}})
            stored[consumer, provider, custom] = 2
        assert kit.ledger_state(backend).allocations == stored
        for _, provider, custom in stored:
            assert kit.stored_tree(backend, provider).traits == {custom}

    @kit.law(7)
    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,  # all examples use one ledger
            HealthCheck.differing_executors,  # every backend inherits this test
            HealthCheck.too_slow,
        ],
    )
    @given(data=st.data())
    def test_any_valid_name_is_stored(self, backend: Backend, data: st.DataObject) -> None:
        resource_class, trait = data.draw(custom_names()), data.draw(custom_names())
        provider = data.draw(printable_names(names.MAX_PROVIDER_NAME))
        consumer = data.draw(printable_names(names.MAX_CONSUMER_NAME))
        label = data.draw(printable_names(names.MAX_CONSUMER_NAME))
        expected = Provider(provider, {resource_class: 8}, traits=[trait], aggregates=[label])
        unit = Use(kit.define(backend, expected)[provider], resource_class, 3, (label,))
        options: Any = {"project": label, "user": label, "consumer_type": label}
        backend.claim(Operation(), ConsumerOrder.claim(consumer, (unit,), **options))
        state = kit.ledger_state(backend, provider)
        assert state.allocations == {(consumer, provider, resource_class): 3}
        assert state.units == {(provider, label): (resource_class, consumer)}
        assert state.providers[provider].traits == {trait}
        assert state.providers[provider].aggregates == {label}
        record = backend.consumer(consumer)
        assert record is not None
        assert (record.project, record.user, record.consumer_type) == (label, label, label)
        kit.release(backend, consumer)
