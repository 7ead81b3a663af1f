"""How the tests of words ask: a flavor of 4 vCPUs and 2048 MiB, unless something else is said."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from resource_objects.interop.nova import FlavorTopology, flavor_topology
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.resources.numa import NUMATopologyAmount

DEDICATED = {"hw:cpu_policy": "dedicated"}
TRAIT = "trait:HW_CPU_HYPERTHREADING"


def asked(
    specs: dict[str, Any] | None = None,
    image: dict[str, Any] | None = None,
    *,
    vcpus: int = 4,
    memory_mb: int = 2048,
) -> FlavorTopology:
    """Return what a flavor and an image ask."""
    return flavor_topology(vcpus, memory_mb, extra_specs=specs or {}, image=image or {})


def amount(
    specs: dict[str, Any] | None = None, image: dict[str, Any] | None = None, **sizes: int
) -> NUMATopologyAmount:
    """Return the topology they ask; there is one."""
    found = asked(specs, image, **sizes).amount
    assert found is not None
    return found


def refused(
    rule: NovaRule,
    specs: dict[str, Any] | None = None,
    image: dict[str, Any] | None = None,
    **sizes: int,
) -> str:
    """Return the message with which they are refused, as exactly this kind."""
    with pytest.raises(InvalidNovaInput) as caught:
        asked(specs, image, **sizes)
    assert caught.value.rule is rule, caught.value
    return str(caught.value)


@contextlib.contextmanager
def breaks(
    *rules: NovaRule, match: str | None = None
) -> Iterator[pytest.ExceptionInfo[InvalidNovaInput]]:
    """Assert that Nova's words are refused by one of these rules."""
    with pytest.raises(InvalidNovaInput, match=match) as caught:
        yield caught
    assert caught.value.rule in rules, caught.value
