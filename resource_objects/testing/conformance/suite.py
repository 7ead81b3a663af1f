"""Helpers of the conformance tests: fixtures, writes, and comparable states of ledgers."""

from __future__ import annotations

import dataclasses
import datetime
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import pytest

from resource_objects.providers import Backend, Provider, diff
from resource_objects.providers.columns import TIMES, Columns, trees
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderRemoval,
    ProviderUpdate,
    merge_changes,
)
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.feed import SHARDS
from resource_objects.providers.listing import ListedProvider, ProviderFilter
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    NameAction,
    NameChange,
    NameKind,
    Operation,
    Use,
    Write,
    subject_of,
)
from resource_objects.providers.provider import Share
from resource_objects.resources import Amounts, IntegerInventory
from resource_objects.resources.numa import NUMATopologyInventory
from resource_objects.resources.pci import Device
from resource_objects.resources.records import InventoryRecord, KindRecord
from resource_objects.testing.conformance.requirements import Requirement, lacking

_F = TypeVar("_F", bound=Callable[..., Any])
_K = TypeVar("_K")
_T = TypeVar("_T")


class Kit:
    """The fixtures of the conformance tests, and the attributes that a subclass sets.

    ``backend_class``
        the backend class; tests call its ``open`` with the URLs
    ``backend_name``
        the column of the backend in the published table of invariants
    ``lacks``
        the optional abilities that the backend has not: tests that require them are skipped
    """

    backend_class: ClassVar[type[Backend]]
    backend_name: ClassVar[str]
    lacks: ClassVar[frozenset[Requirement]] = frozenset()

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
        """Return the URL of a ledger that does not exist yet if ``open`` can create one."""
        return another_url

    @pytest.fixture
    def backend(self, url: str) -> Iterator[Backend]:
        """Yield the backend under test, open on an empty ledger."""
        opened = self.backend_class.open(url)
        yield opened
        opened.close()

    @pytest.fixture(autouse=True)
    def required(self, request: pytest.FixtureRequest) -> None:
        """Skip a test that requires a missing ability, before a ledger is opened."""
        self.skip_unless_supported(request.function)

    def skip_unless_supported(self, function: Callable[..., Any]) -> None:
        """Skip a test that calls a function, if the backend lacks a requirement of it."""
        for requirement in lacking(function, self.lacks | self.backend_class.unsupported):
            pytest.skip(
                f"{self.backend_name} lacks {requirement.name.lower()}: {requirement.value}"
            )


def law(*numbers: int) -> Callable[[_F], _F]:
    """Mark a test with the numbers of the invariants that it checks, if the plug-in is loaded.

    The kit can be imported without :mod:`resource_objects.testing.laws`, also under
    ``--strict-markers``, which makes an error of an undeclared mark.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pytest.PytestUnknownMarkWarning)
            return pytest.mark.law(*numbers)
    except pytest.fail.Exception:
        return lambda test: test


# --- short forms of writes ---

#: Names that are equal in many collations of databases.
ALIKE = (
    *("job", "Job", "JOB", "jöb", "jo\u0308b", "\uff4a\uff4f\uff42"),
    *("jobß", "jobss", "job.", "j ob"),
)

CLASS, TRAIT, AGGREGATE = NameKind.RESOURCE_CLASS, NameKind.TRAIT, NameKind.AGGREGATE


def host(name: str = "host0", inventories: Any = "VCPU=8,MEMORY_MB=16384") -> Provider:
    """Return a provider to define."""
    return Provider(name, inventories)


def changes_to(backend: Backend, *expected: Provider) -> DefinitionChanges:
    """Return the differences between the stored trees of some roots and the specified ones."""
    parts = []
    for root in expected:
        stored = trees(backend.read(root.uuid or root.name))
        parts.append(diff(stored[0] if stored else None, root))
    return parts[0] if len(parts) == 1 else merge_changes(expected[0].name, parts)


def define(backend: Backend, *roots: Provider) -> dict[str, str]:
    """Define trees as ``roots``; return ``{name: uuid}`` of their providers, in order."""
    for root in roots:
        changes = changes_to(backend, root)
        if changes:
            backend.define(Operation(), changes)
    names = [provider.name for root in roots for provider in root.walk()]
    result = backend.uuids(names)
    return {name: result[name] for name in names}


def listed_provider(backend: Backend, name: str) -> ListedProvider:
    """Return the row of a provider in the list of providers."""
    [listed] = backend.list_providers(ProviderFilter(names=frozenset({name})), 2)
    return listed


def updated(backend: Backend, name: str, **fields: Any) -> ProviderUpdate:
    """Return an update of some fields of a provider, at its current generation."""
    listed = listed_provider(backend, name)
    before = listed.definition()
    return ProviderUpdate(dataclasses.replace(before, **fields), listed.generation, before)


def removal_of(backend: Backend, name: str) -> DefinitionChanges:
    """Return the changes that remove the tree of a root without allocations."""
    removals = tuple(
        ProviderRemoval(provider.uuid or "", provider.name, provider.generation or 0)
        for provider in reversed(list(stored_tree(backend, name).walk()))
    )
    return DefinitionChanges(name, removals=removals)


def share(name: str, of: str, of_class: str | None = None, factor: int = 1) -> Share:
    """Return the share by which ``name`` uses ``of_class`` (default ``name``) at ``of``."""
    return Share(resource_class=name, of=of, of_class=of_class or name, factor=factor)


def two_hosts(backend: Backend) -> tuple[str, str]:
    """Define two hosts that are alike; return their uuids."""
    names = define(backend, host("host0"), host("host1"))
    return names["host0"], names["host1"]


def stored_tree(backend: Backend, name: str) -> Provider:
    """Return the stored tree that contains a provider."""
    [root] = trees(backend.read(name))
    return root


def deltas(amounts: dict[str, Any]) -> tuple[Use, ...]:
    """Return the deltas of ``{provider uuid: amounts}``."""
    return tuple(
        Use(uuid, record.resource_class, record.amount, record.units)
        for uuid, values in amounts.items()
        for kind, amount in Amounts.from_value(values).by_name()
        for record in amount.to_records(kind)
    )


def claim(
    backend: Backend, consumer: str, amounts: dict[str, Any], **options: Any
) -> ConsumerRecord:
    """Claim ``{provider uuid: amounts}``."""
    return backend.claim(Operation(), ConsumerOrder.claim(consumer, deltas(amounts), **options))


def adjust(
    backend: Backend, consumer: str, amounts: dict[str, Any], **options: Any
) -> ConsumerRecord:
    """Adjust the allocations of a consumer by ``{provider uuid: amounts}``."""
    return backend.adjust(Operation(), ConsumerOrder.adjust(consumer, deltas(amounts), **options))


def release(backend: Backend, consumer: str) -> ConsumerRecord:
    """Release the allocations of a consumer."""
    return backend.release(Operation(), consumer)


def order(backend: Backend, *orders: ConsumerOrder, **options: Any) -> tuple[ConsumerRecord, ...]:
    """Carry out some orders in one write."""
    return backend.commit(write_of(*orders, **options))


def write_of(*orders: ConsumerOrder, operation: Operation | None = None, **options: Any) -> Write:
    """Return a write of some orders and of the other fields of :class:`Write`."""
    subject = subject_of(item.consumer for item in orders) if orders else "host0"
    return Write(operation or Operation(), "orders", subject, orders=orders, **options)


def rename(kind: NameKind, name: str, to: str) -> NameChange:
    """Return the change that renames a class, trait or aggregate."""
    return NameChange(kind, NameAction.RENAME, name, to)


def change_names(backend: Backend, *changes: NameChange) -> None:
    """Carry out some changes of names in one write."""
    backend.commit(Write(Operation(), "names", changes[0].name, names=changes))


def names_of(backend: Backend, kind: NameKind) -> list[str]:
    """Return all names of a kind, read page by page."""
    result: list[str] = []
    while page := backend.list_names(kind, 100, result[-1] if result else None):
        result += [listed.name for listed in page]
    return result


def sorted_record(record: ConsumerRecord | None) -> ConsumerRecord | None:
    """Return a record with sorted allocations and units, to compare."""
    if record is None:
        return None
    uses = sorted(record.held, key=lambda item: item.key)
    sorted_units = (dataclasses.replace(use, units=tuple(sorted(use.units))) for use in uses)
    return dataclasses.replace(record, held=tuple(sorted_units))


def now() -> datetime.datetime:
    """Return the current time in UTC."""
    return datetime.datetime.now(datetime.UTC)


def later_moment() -> datetime.datetime:
    """Return a moment after all earlier writes, also if the clock has coarse ticks."""
    began = now()
    while (moment := now()) <= began:
        pass
    return moment


# --- comparable states of a ledger ---


@dataclasses.dataclass(frozen=True)
class ProviderState:
    """One provider of a :class:`LedgerState`."""

    uuid: str
    parent: str | None
    root: str
    generation: int
    inventories: dict[str, InventoryRecord]
    traits: frozenset[str]
    aggregates: frozenset[str]
    shares: dict[tuple[str, str, str], int]  #: (class, of provider, of class): factor
    kinds: frozenset[KindRecord]
    reported_at: datetime.datetime | None
    adopted_at: datetime.datetime | None
    disabled: Disabled | None = None


@dataclasses.dataclass(frozen=True)
class LedgerState:
    """The providers and allocations of a ledger, by name: equal for logically identical ledgers."""

    providers: dict[str, ProviderState]
    allocations: dict[tuple[str, str, str], int]  #: (consumer, provider, class): amount
    units: dict[tuple[str, str], tuple[str, str]]  #: (provider, unit): (class, consumer)

    def used(self, provider: str, resource_class: str) -> int:
        """Return the used amount of an inventory."""
        return self.providers[provider].inventories[resource_class].used

    def holds(self, consumer: str) -> dict[tuple[str, str], int]:
        """Return ``{(provider, class): amount}`` of one consumer."""
        return {key[1:]: amount for key, amount in self.allocations.items() if key[0] == consumer}


def ledger_state(backend: Backend, *trees: str) -> LedgerState:
    """Return the state of a ledger, or of some trees; check that it is consistent."""
    return state_of_columns(backend.read(*trees))


def state_of_columns(columns: Columns) -> LedgerState:
    """Return the state that columns describe; check that it is consistent."""
    name_of = columns.index.names
    inventories = _by_name(columns.inventories, name_of, InventoryRecord)
    traits = _by_name(columns.traits, name_of, str)
    aggregates = _by_name(columns.aggregates, name_of, str)
    kinds = _by_name(columns.kinds, name_of, KindRecord)
    shares = _by_name(
        columns.shares, name_of, lambda *row: ((row[0], name_of[row[1]], row[2]), row[3])
    )
    providers = {
        name: ProviderState(
            uuid,
            None if parent_id is None else name_of[parent_id],
            name_of[root_id],
            generation,
            _mapping((record.resource_class, record) for record in inventories[name]),
            frozenset(traits[name]),
            frozenset(aggregates[name]),
            _mapping(shares[name]),
            frozenset(kinds[name]),
            disabled=columns.disabled.get(row[0]),
            **dict(zip(TIMES, row[6:], strict=True)),
        )
        for row in zip(*columns.providers[: 6 + len(TIMES)], strict=True)
        for _, uuid, name, parent_id, root_id, generation in [row[:6]]
    }
    allocations = _mapping(
        ((consumer, name_of[provider_id], resource_class), amount)
        for provider_id, resource_class, consumer, amount in zip(*columns.allocations, strict=True)
    )
    units = _mapping(
        ((name_of[provider_id], unit), (resource_class, consumer))
        for provider_id, unit, resource_class, consumer in zip(*columns.units, strict=True)
    )
    assert len(providers) == len(columns.providers.name)
    assert columns.cursor is not None and len(columns.cursor.heads) == SHARDS
    result = LedgerState(providers, allocations, units)
    _check_trees(result)
    _check_sums(result)
    return result


def _by_name(
    table: Any, name_of: Mapping[int, str], make: Callable[..., _T]
) -> defaultdict[str, list[_T]]:
    """Return ``make(*values)`` of each row of a table, by the name of the provider."""
    result: defaultdict[str, list[_T]] = defaultdict(list)
    for provider_id, *values in zip(*table, strict=True):
        created = make(*values)
        assert created not in result[name_of[provider_id]], "each row once"
        result[name_of[provider_id]].append(created)
    return result


def _mapping(pairs: Iterable[tuple[_K, _T]]) -> dict[_K, _T]:
    result: dict[_K, _T] = {}
    for key, value in pairs:
        assert key not in result, f"{key} occurs twice"
        result[key] = value
    return result


def _check_trees(result: LedgerState) -> None:
    """Check that parents precede their children and that roots are consistent."""
    seen: set[str] = set()
    for name, provider in result.providers.items():
        parent = provider.parent
        assert parent is None or parent in seen, "parents come before children"
        seen.add(name)
        top = name if parent is None else result.providers[parent].root
        assert provider.root == top


def _check_sums(result: LedgerState) -> None:
    """Check invariant 1: the use is the sum of direct and shared allocations."""
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for (_, place, resource_class), amount in result.allocations.items():
        assert amount > 0
        sums[place, resource_class] += amount
        for (of, *target), factor in result.providers[place].shares.items():
            if of == resource_class:
                sums[target[0], target[1]] += amount * factor
    for name, provider in result.providers.items():
        for resource_class, record in provider.inventories.items():
            assert record.used == sums.pop((name, resource_class), 0)
            millionths = (record.total - record.reserved) * record.ratio_millionths
            assert record.capacity == millionths // 1_000_000
    assert not sums, "allocations without an inventory"
    for (place, unit), (resource_class, consumer) in result.units.items():
        assert (consumer, place, resource_class) in result.allocations, f"{unit} has no consumer"


# --- hosts with placed resources ---

TOPOLOGY, DEVICES = "NUMA_TOPOLOGY", "DEVICES"
#: The classes of a whole card and of a virtual function of one.
CARD, FUNCTION = "CUSTOM_CARD", "SRIOV_NET_VF"


def host_of(name: str, inventory: NUMATopologyInventory, **more: int) -> Provider:
    """Return a host with the cells of an inventory, and with the sums of their inventories.

    :param more: totals of further resource classes
    """
    cells = inventory.cells
    huge_mb = sum(cell.memory_mb - cell.ordinary_mb for cell in cells)
    figures: dict[str, dict[str, Any]] = {
        "VCPU": {
            "total": sum(len(cell.shared) for cell in cells),
            "allocation_ratio": inventory.cpu_ratio,
        },
        "PCPU": {"total": sum(len(cell.dedicated) for cell in cells)},
        "MEMORY_MB": {
            "total": sum(cell.memory_mb for cell in cells),
            "allocation_ratio": inventory.memory_ratio,
            "reserved": huge_mb,
        },
    }
    inventories = {
        kind: IntegerInventory(**item) for kind, item in figures.items() if item["total"]
    }
    host = Provider(name, {**inventories, **more})
    host.add_parts(TOPOLOGY, inventory)
    return host


def card(bus: int, count: int = 3, node: int | None = None, **fields: Any) -> Iterator[Device]:
    """Yield a network card with some fields, and its virtual functions."""
    address = f"0000:{bus:02x}:00.0"
    yield Device(address, "8086", "1572", "type-PF", resource_class=CARD, numa_node=node, **fields)
    for number in range(count):
        yield Device(
            f"0000:{bus:02x}:02.{number}",
            "8086",
            "154c",
            "type-VF",
            resource_class=FUNCTION,
            parent=address,
            numa_node=node,
        )
