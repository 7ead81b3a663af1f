"""Lists of a ledger in memory: the index of traits, and pages longer than a batch of providers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from resource_objects.backends.memory import URL, MemoryBackend
from resource_objects.providers import Provider
from resource_objects.providers.listing import ProviderFilter
from resource_objects.testing.conformance.scenarios import run
from resource_objects.testing.conformance.suite import define


@pytest.fixture
def backend() -> Iterator[MemoryBackend]:
    backend = MemoryBackend.open(URL)
    yield backend
    backend.close()


def listed(backend: MemoryBackend, limit: int = 1000, **conditions: Any) -> list[str]:
    providers = backend.list_providers(ProviderFilter(**conditions), limit)
    return [provider.name for provider in providers]


def test_the_index_of_traits_follows_renames_changes_and_removals(backend: MemoryBackend) -> None:
    fast, quick = frozenset(["CUSTOM_FAST"]), frozenset(["CUSTOM_QUICK"])
    run(
        backend,
        """
define tree: VCPU=8; traits CUSTOM_FAST
define small: VCPU=1; traits CUSTOM_FAST CUSTOM_OLD
rename trait CUSTOM_FAST: CUSTOM_QUICK
""",
    )
    assert listed(backend, required=fast) == []
    assert listed(backend, required=quick) == ["tree", "small"]
    run(
        backend,
        """
define small: VCPU=1; traits CUSTOM_OLD
define other: VCPU=1; traits CUSTOM_FAST
""",
    )
    assert listed(backend, required=fast) == ["other"]
    assert listed(backend, required=quick) == ["tree"]
    run(backend, "undefine other")
    assert listed(backend, required=fast) == []
    many = [Provider(f"many-{n:03}", "VCPU=1", traits=["CUSTOM_FAST"]) for n in range(300)]
    define(backend, *many)
    assert listed(backend, required=fast) == [provider.name for provider in many]


def test_long_pages_are_filled_across_many_providers(backend: MemoryBackend) -> None:
    define(backend, *(Provider(f"host{number}", f"VCPU={1 + number % 3}") for number in range(600)))
    names = listed(backend, limit=150, room=(("VCPU", 3),))
    assert names == [f"host{number}" for number in range(2, 452, 3)]
