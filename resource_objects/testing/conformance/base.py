"""What the rules are told with: fixtures, short ways to say things, and pictures to compare."""

from __future__ import annotations

import dataclasses
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

import pytest

from resource_objects.providers import Backend, Provider, diff
from resource_objects.providers.backend import Adjustment, ClaimOrder, ClaimRecord, Delta, Operation
from resource_objects.providers.columns import Columns, trees
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.resources import Amounts
from resource_objects.resources.records import InventoryRecord

_F = TypeVar("_F", bound=Callable[..., Any])


class Kit:
    """What a subclass says about its backend.

    ``backend_class``
        the class, whose ``open`` is given the URLs
    ``backend_name``
        its column in the published table of laws
    ``persistent``
        whether a ledger outlives the backend object: opening the same URL again, also while it is
        open, finds it
    ``multi_process``
        whether several processes may use one URL at a time (needs ``persistent``)
    """

    backend_class: ClassVar[type[Backend]]
    backend_name: ClassVar[str]
    persistent: ClassVar[bool] = True
    multi_process: ClassVar[bool] = True

    @pytest.fixture
    def url(self) -> str:
        """Return the URL of an empty ledger."""
        raise NotImplementedError("override the fixture `url`")

    @pytest.fixture
    def another_url(self) -> str:
        """Return the URL of another empty ledger."""
        raise NotImplementedError("override the fixture `another_url`")

    @pytest.fixture
    def new_url(self, another_url: str) -> str:
        """Return the URL of a ledger that the first ``open`` makes, where it makes one."""
        return another_url

    @pytest.fixture
    def backend(self, url: str) -> Iterator[Backend]:
        """The backend under test, open on an empty ledger."""
        opened = self.backend_class.open(url)
        yield opened
        opened.close()

    def need(self, capability: str) -> None:
        """Skip a test that needs what the backend says it cannot do."""
        if not getattr(self, capability):
            pytest.skip(f"{self.backend_name} is not {capability}")


def law(*numbers: int) -> Callable[[_F], _F]:
    """Mark a test with the laws it holds the code to, where the plug-in that knows them is loaded.

    The kit can be imported without :mod:`resource_objects.testing.laws`, also under
    ``--strict-markers``, which makes an error of a mark that nobody declared.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pytest.PytestUnknownMarkWarning)
            return pytest.mark.law(*numbers)
    except pytest.fail.Exception:
        return lambda test: test


# --- short ways to say things ---


def host(name: str = "host0", inventories: Any = "VCPU=8,MEMORY_MB=16384") -> Provider:
    """Return a provider to define."""
    return Provider(name, inventories)


def changes_to(backend: Backend, wanted: Provider) -> DefinitionChanges:
    """Return what turns the kept tree of a provider into the wanted one."""
    kept = trees(backend.read(wanted.uuid or wanted.name))
    return diff(kept[0] if kept else None, wanted)


def define(backend: Backend, *roots: Provider) -> dict[str, str]:
    """Make kept trees look like ``roots``; return ``{name: uuid}`` of their providers."""
    for root in roots:
        changes = changes_to(backend, root)
        if changes:
            backend.define(Operation(), changes)
    return backend.uuids([provider.name for root in roots for provider in root.walk()])


def kept(backend: Backend, name: str) -> Provider:
    """Return the tree that a provider belongs to, as kept."""
    [root] = trees(backend.read(name))
    return root


def deltas(amounts: dict[str, Any]) -> tuple[Delta, ...]:
    """Return the deltas of ``{provider uuid: amounts}``."""
    return tuple(
        Delta(uuid, record.resource_class, record.amount)
        for uuid, given in amounts.items()
        for kind, amount in Amounts.of(given).by_name()
        for record in amount.to_records(kind)
    )


def claim(backend: Backend, consumer: str, amounts: dict[str, Any]) -> ClaimRecord:
    """Claim ``{provider uuid: amounts}``."""
    return backend.claim(Operation(), ClaimOrder(consumer, deltas(amounts)))


def adjust(backend: Backend, consumer: str, amounts: dict[str, Any]) -> ClaimRecord:
    """Adjust what a consumer holds by ``{provider uuid: amounts}``."""
    return backend.adjust(Operation(), Adjustment(consumer, deltas(amounts)))


def release(backend: Backend, consumer: str) -> ClaimRecord:
    """Release what a consumer holds."""
    return backend.release(Operation(), consumer)


# --- pictures to compare ---


@dataclasses.dataclass(frozen=True)
class Kept:
    """One provider of a :class:`Picture`."""

    uuid: str
    parent: str | None
    root: str
    generation: int
    inventories: dict[str, InventoryRecord]
    traits: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Picture:
    """Everything a ledger holds, by name: equal for logically identical states."""

    providers: dict[str, Kept]
    allocations: dict[tuple[str, str, str], int]  #: (consumer, provider, class): amount

    def used(self, provider: str, resource_class: str) -> int:
        """Return what is used of one inventory."""
        return self.providers[provider].inventories[resource_class].used


def picture(backend: Backend, tree: str | None = None) -> Picture:
    """Return what a ledger holds, having checked that it agrees with itself."""
    return picture_of(backend.read(tree))


def picture_of(columns: Columns) -> Picture:
    """Return columns as a picture, having checked that they agree with themselves."""
    name_of = dict(zip(columns.providers.provider_id, columns.providers.name, strict=True))
    inventories: dict[str, dict[str, InventoryRecord]] = defaultdict(dict)
    for provider_id, *figures in zip(*columns.inventories, strict=True):
        record = InventoryRecord(*figures)
        assert record.resource_class not in inventories[name_of[provider_id]]
        inventories[name_of[provider_id]][record.resource_class] = record
    traits: dict[str, set[str]] = defaultdict(set)
    for provider_id, trait in zip(*columns.traits, strict=True):
        traits[name_of[provider_id]].add(trait)
    providers = {
        name: Kept(
            uuid,
            None if parent_id is None else name_of[parent_id],
            name_of[root_id],
            generation,
            inventories[name],
            frozenset(traits[name]),
        )
        for provider_id, uuid, name, parent_id, root_id, generation in zip(
            *columns.providers, strict=True
        )
    }
    allocations = {
        (consumer, name_of[provider_id], resource_class): amount
        for provider_id, resource_class, consumer, amount in zip(*columns.allocations, strict=True)
    }
    assert len(providers) == len(columns.providers.name)
    assert len(allocations) == len(columns.allocations.consumer)
    found = Picture(providers, allocations)
    _check(found)
    return found


def _check(found: Picture) -> None:
    """Check law 1: what is used is the sum of the allocations; and that the tree is one."""
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for (_, provider, resource_class), amount in found.allocations.items():
        assert amount > 0
        sums[provider, resource_class] += amount
    seen: set[str] = set()
    for name, provider_kept in found.providers.items():
        parent = provider_kept.parent
        assert parent is None or parent in seen, "parents come before children"
        seen.add(name)
        top = name if parent is None else found.providers[parent].root
        assert provider_kept.root == top
        for resource_class, record in provider_kept.inventories.items():
            assert record.used == sums.pop((name, resource_class), 0)
            millionths = (record.total - record.reserved) * record.ratio_millionths
            assert record.capacity == millionths // 1_000_000
    assert not sums, "allocations without an inventory"
