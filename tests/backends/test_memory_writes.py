"""Writes to a ledger in memory: a refusal leaves every row and every index as it was."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from resource_objects.backends.memory import URL, MemoryBackend
from resource_objects.providers import Provider
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.orders import NameAction, NameChange, NameKind, Operation, Write
from resource_objects.providers.provider import Share
from resource_objects.store.rows import Index, Table, UniqueIndex
from resource_objects.testing.conformance.scenarios import run
from resource_objects.testing.conformance.suite import changes_to, define
from resource_objects.testing.refusals import raises_code

CLASS, TRAIT, AGGREGATE = NameKind.RESOURCE_CLASS, NameKind.TRAIT, NameKind.AGGREGATE
VCPU, SLOT = "VCPU", "CUSTOM_SLOT"


@pytest.fixture
def backend() -> Iterator[MemoryBackend]:
    backend = MemoryBackend.open(URL)
    yield backend
    backend.close()


def sharing() -> Provider:
    """Return a host with a cell whose slots are also the host's."""
    host = Provider("host", "CUSTOM_SLOT=8", traits=["CUSTOM_T"], aggregates=["rack"])
    share = Share(resource_class=SLOT, of="host", of_class=SLOT)
    host.add("host/cell", "CUSTOM_SLOT=8", shares=[share])
    return host


def names(backend: MemoryBackend, *changes: NameChange) -> None:
    backend.commit(Write(Operation(), "names", "names", names=changes))


def everything(backend: MemoryBackend) -> Any:
    """Return a copy of all rows, and of the indexes of them."""
    backend.cursor()  # finishes what an interrupt stopped
    return {
        name: copy.deepcopy(
            part.rows
            if isinstance(part, Table)
            else part.keys
            if isinstance(part, Index)
            else part.key
        )
        for name, part in vars(backend._rows).items()
        if isinstance(part, Table | Index | UniqueIndex)
    }


# --- names ---


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (NameChange(CLASS, NameAction.DELETE, VCPU), "StandardName"),
        (NameChange(CLASS, NameAction.RENAME, VCPU, "CUSTOM_A"), "StandardName"),
        (NameChange(TRAIT, NameAction.DELETE, "HW_CPU_X86_AVX2"), "StandardName"),
        (NameChange(CLASS, NameAction.DELETE, "CUSTOM_NO"), "ClassNotFound"),
        (NameChange(TRAIT, NameAction.RENAME, "CUSTOM_NO", "CUSTOM_A"), "TraitNotFound"),
        (NameChange(AGGREGATE, NameAction.SET_LEVEL, "no", "x"), "AggregateNotFound"),
        (NameChange(CLASS, NameAction.SET_LEVEL, SLOT, "x"), "InvalidField"),
        (NameChange(CLASS, NameAction.DELETE, SLOT), "ClassInUse"),
        (NameChange(TRAIT, NameAction.DELETE, "CUSTOM_T"), "TraitInUse"),
        (NameChange(AGGREGATE, NameAction.DELETE, "rack"), "AggregateInUse"),
        (NameChange(CLASS, NameAction.RENAME, SLOT, VCPU), "NameExists"),
        (NameChange(CLASS, NameAction.RENAME, SLOT, "SLOT"), "UnknownResourceClass"),
        (NameChange(CLASS, NameAction.ENSURE, "SLOT"), "UnknownResourceClass"),
        (NameChange(CLASS, NameAction.ENSURE, "CUSTOM_"), "InvalidResourceClass"),
        (NameChange(TRAIT, NameAction.ENSURE, "FAST"), "UnknownTrait"),
        (NameChange(TRAIT, NameAction.RENAME, "CUSTOM_T", "fast"), "InvalidTrait"),
        (NameChange(AGGREGATE, NameAction.RENAME, "rack", " "), "InvalidName"),
    ],
)
def test_a_name_that_cannot_be_changed_is_left_with_all_else_of_the_write(
    backend: MemoryBackend, change: NameChange, error: type[Exception]
) -> None:
    define(backend, sharing())
    before = everything(backend)
    with raises_code(error):
        names(backend, NameChange(AGGREGATE, NameAction.ENSURE, "other"), change)
    assert everything(backend) == before


# --- shares ---


def test_a_share_of_what_is_not_there_is_refused(backend: MemoryBackend) -> None:
    changes = changes_to(backend, sharing())
    [host, cell] = changes.creates
    for wrong in (
        DefinitionChanges("host", (dataclasses.replace(host, inventories=()), cell)),
        DefinitionChanges("host", (host, dataclasses.replace(cell, inventories=()))),
    ):
        with raises_code("StaleDefinition", match="CUSTOM_SLOT does not exist"):
            backend.define(Operation(), wrong)
    assert not backend.read().providers.name


# --- orders ---


# --- the feed and its end ---


# --- orders ---


def test_the_uuid_of_a_claim_passes_to_another_consumer(backend: MemoryBackend) -> None:
    steps = "claim b: host0 VCPU=1 [uuid=first]\n  release a\nallocations\n  b: host0 VCPU=1"
    run(backend, f"define host0: VCPU=8\nclaim a: host0 VCPU=1 [uuid=first]\nwrite\n  {steps}")
