"""Tests of names of classes, traits and aggregates, and of the characters of all names."""

from __future__ import annotations

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
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.conformance.suite import (
    AGGREGATE,
    CLASS,
    TRAIT,
    Kit,
    change_names,
    claim,
    define,
    law,
    ledger_state,
    names_of,
    release,
    rename,
    stored_tree,
)
from resource_objects.testing.refusals import raises_code

_NOT_FOUND = {
    CLASS: "ClassNotFound",
    TRAIT: "TraitNotFound",
    AGGREGATE: "AggregateNotFound",
}
_IN_USE = {
    CLASS: "ClassInUse",
    TRAIT: "TraitInUse",
    AGGREGATE: "AggregateInUse",
}
_each_kind = pytest.mark.parametrize("kind", list(NameKind))


def _ensure(kind: NameKind, name: str) -> NameChange:
    return NameChange(kind, NameAction.ENSURE, name)


def _delete(kind: NameKind, name: str) -> NameChange:
    return NameChange(kind, NameAction.DELETE, name)


def _user(name: str) -> Provider:
    """Return a provider with a class, a trait and an aggregate of one name."""
    return Provider("user", {name: 8}, traits=[name], aggregates=[name])


class CatalogueRules(Kit):
    """Creation, renaming and deletion of names."""

    def test_a_new_ledger_has_the_standard_names(self, backend: Backend) -> None:
        assert set(names_of(backend, CLASS)) == set(os_resource_classes.STANDARDS)
        assert set(names_of(backend, TRAIT)) == standard_traits()
        assert names_of(backend, AGGREGATE) == []

    @_each_kind
    def test_a_name_is_ensured_once(self, backend: Backend, kind: NameKind) -> None:
        before = names_of(backend, kind)
        change_names(backend, _ensure(kind, "CUSTOM_NEW"))
        after = names_of(backend, kind)
        assert set(after) - set(before) == {"CUSTOM_NEW"} and len(after) == len(before) + 1
        change_names(backend, _ensure(kind, "CUSTOM_NEW"))
        assert names_of(backend, kind) == after

    @pytest.mark.parametrize("kind", [CLASS, TRAIT])
    def test_ensuring_a_standard_name_changes_nothing(
        self, backend: Backend, kind: NameKind
    ) -> None:
        before = names_of(backend, kind)
        change_names(backend, *(_ensure(kind, name) for name in before[:3]))
        assert names_of(backend, kind) == before

    def test_a_definition_creates_the_names_it_uses(self, backend: Backend) -> None:
        define(backend, _user("CUSTOM_NEW"))
        for kind in NameKind:
            assert "CUSTOM_NEW" in names_of(backend, kind)

    def test_names_are_listed_by_their_code_points_in_pages(self, backend: Backend) -> None:
        created = ["b", "B", "Z", "a", "ä", "大", "_", "~", "aa", "🖥"]
        change_names(backend, *(_ensure(AGGREGATE, name) for name in created))
        for limit in (1, 3, 100):
            result: list[str] = []
            while page := backend.list_names(AGGREGATE, limit, result[-1] if result else None):
                assert len(page) <= limit
                result += [listed.name for listed in page]
            assert result == sorted(created)
        assert backend.list_names(AGGREGATE, 100, "🖥") == ()

    @_each_kind
    def test_a_renamed_name_keeps_its_number(self, backend: Backend, kind: NameKind) -> None:
        change_names(backend, _ensure(kind, "CUSTOM_OLD"))
        [old] = [listed for listed in backend.list_names(kind, 1000) if listed.name == "CUSTOM_OLD"]
        change_names(backend, rename(kind, "CUSTOM_OLD", "CUSTOM_NEW"))
        listed = {listed.name: listed for listed in backend.list_names(kind, 1000)}
        assert listed["CUSTOM_NEW"].number == old.number and "CUSTOM_OLD" not in listed

    # --- other users of the same ledger ---

    @requires(Requirement.SHARING)
    def test_another_backend_sees_a_new_name_at_once(self, backend: Backend, url: str) -> None:
        names = define(backend, Provider("user", {"CUSTOM_A": 8}))
        other = self.backend_class.open(url)
        try:
            claim(other, "job", {names["user"]: {"CUSTOM_A": 1}})  # it caches the class
            change_names(backend, rename(CLASS, "CUSTOM_A", "CUSTOM_B"))
            assert ledger_state(other) == ledger_state(backend)
            record = other.held("job")
            assert record is not None and record.held[0].resource_class == "CUSTOM_B"
            claim(other, "job-2", {names["user"]: {"CUSTOM_B": 1}})
            with raises_code("InventoryNotFound"):
                claim(other, "job-3", {names["user"]: {"CUSTOM_A": 1}})
            define(other, Provider("other", {"CUSTOM_A": 3}))
            assert ledger_state(backend).used("user", "CUSTOM_B") == 2
            assert set(ledger_state(backend).providers["other"].inventories) == {"CUSTOM_A"}
        finally:
            other.close()

    @requires(Requirement.SHARING)
    def test_another_backend_sees_that_a_name_was_deleted(self, backend: Backend, url: str) -> None:
        define(backend, _user("CUSTOM_A"))
        other = self.backend_class.open(url)
        try:
            ledger_state(other)
            define(other, Provider("second", {"CUSTOM_A": 1}, traits=["CUSTOM_A"]))
            define(backend, Provider("user"), Provider("second"))
            define(backend, Provider("user", {"CUSTOM_B": 8}, aggregates=[]))
            change_names(backend, *(_delete(kind, "CUSTOM_A") for kind in NameKind))
            for kind in NameKind:
                assert "CUSTOM_A" not in names_of(other, kind)
            names = define(
                other, Provider("second", {"CUSTOM_A": 2}, traits=["CUSTOM_A"], aggregates=["A"])
            )
            claim(other, "job", {names["second"]: {"CUSTOM_A": 2}})
            assert ledger_state(backend) == ledger_state(other)
            assert ledger_state(backend).providers["second"].traits == {"CUSTOM_A"}
        finally:
            other.close()

    @requires(Requirement.SHARING)
    def test_names_exchanged_by_another_backend_are_not_confused(
        self, backend: Backend, url: str
    ) -> None:
        names = define(backend, Provider("user", {"CUSTOM_A": 8, "CUSTOM_B": 9}))
        other = self.backend_class.open(url)
        try:
            claim(other, "job", {names["user"]: {"CUSTOM_A": 1, "CUSTOM_B": 2}})
            change_names(
                backend,
                rename(CLASS, "CUSTOM_A", "CUSTOM_C"),
                rename(CLASS, "CUSTOM_B", "CUSTOM_A"),
                rename(CLASS, "CUSTOM_C", "CUSTOM_B"),
            )
            claim(other, "job-2", {names["user"]: {"CUSTOM_A": 4}})
            state = ledger_state(backend)
            assert (state.used("user", "CUSTOM_A"), state.used("user", "CUSTOM_B")) == (6, 1)
        finally:
            other.close()


# --- valid names are stored unchanged ---


#: Names that are equal in many collations of databases.
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
            assert [(uses.provider, uses.amount) for uses in record.held] == [
                (name, 1 + number % 8)
            ]
        release(backend, "Job")
        assert backend.held("Job") is None and backend.held("job") is not None

    @law(7)
    @pytest.mark.parametrize("letter", ["x", "ö", "大", "🖥"])
    def test_the_longest_names_are_not_truncated(self, backend: Backend, letter: str) -> None:
        name, twin = letter * 200, letter * 199 + "y"
        custom = "CUSTOM_" + "X" * 248
        names = define(
            backend,
            Provider(name, {custom: 8}, traits=[custom]),
            Provider(twin, {custom[:-1]: 8}, traits=[custom[:-1]]),
        )
        claim(backend, letter * 255, {names[name]: {custom: 1}})
        claim(backend, letter * 254 + "y", {names[twin]: {custom[:-1]: 2}})
        assert ledger_state(backend).allocations == {
            (letter * 255, name, custom): 1,
            (letter * 254 + "y", twin, custom[:-1]): 2,
        }
        assert stored_tree(backend, twin).traits == {custom[:-1]}

    @law(7)
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
        resource_class = data.draw(custom_names())
        provider = data.draw(printable_names(names.MAX_PROVIDER_NAME))
        consumer = data.draw(printable_names(names.MAX_CONSUMER_NAME))
        trait = data.draw(custom_names())
        label = data.draw(printable_names(names.MAX_CONSUMER_NAME))
        expected = Provider(provider, {resource_class: 8}, traits=[trait], aggregates=[label])
        uuids = define(backend, expected)
        unit = Use(uuids[provider], resource_class, 3, (label,))
        options: Any = {"project": label, "user": label, "consumer_type": label}
        backend.claim(Operation(), ConsumerOrder.claim(consumer, (unit,), **options))
        state = ledger_state(backend, provider)
        assert state.allocations == {(consumer, provider, resource_class): 3}
        assert state.units == {(provider, label): (resource_class, consumer)}
        assert state.providers[provider].traits == {trait}
        assert state.providers[provider].aggregates == {label}
        record = backend.held(consumer)
        assert record is not None
        assert (record.project, record.user, record.consumer_type) == (label, label, label)
        release(backend, consumer)
