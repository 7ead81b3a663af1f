"""All that Placement and a ledger hold, read past their APIs, in one form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from benchmarks.peer import Placement
from resource_objects import ratio
from resource_objects.ledger import Ledger
from resource_objects.providers.listing import ConsumerFilter, ProviderFilter
from resource_objects.providers.orders import NameKind
from resource_objects.rest import translation
from resource_objects.rest.inventories import to_json

#: ``{kind of thing: its rows}``
State: TypeAlias = dict[str, set[tuple[Any, ...]]]

_THEIRS = {
    "provider": """
        SELECT p.uuid, p.name, p.generation, parent.uuid, root.uuid FROM resource_providers p
        LEFT JOIN resource_providers parent ON parent.id = p.parent_provider_id
        JOIN resource_providers root ON root.id = p.root_provider_id""",
    "inventory": """
        SELECT p.uuid, c.name, i.total, i.reserved, i.min_unit, i.max_unit, i.step_size,
        i.allocation_ratio FROM inventories i
        JOIN resource_providers p ON p.id = i.resource_provider_id
        JOIN resource_classes c ON c.id = i.resource_class_id""",
    "trait": """
        SELECT p.uuid, t.name FROM resource_provider_traits has
        JOIN resource_providers p ON p.id = has.resource_provider_id
        JOIN traits t ON t.id = has.trait_id""",
    "aggregate": """
        SELECT p.uuid, a.uuid FROM resource_provider_aggregates has
        JOIN resource_providers p ON p.id = has.resource_provider_id
        JOIN placement_aggregates a ON a.id = has.aggregate_id""",
    "allocation": """
        SELECT a.consumer_id, p.uuid, c.name, a.used FROM allocations a
        JOIN resource_providers p ON p.id = a.resource_provider_id
        JOIN resource_classes c ON c.id = a.resource_class_id""",
    # of those that hold nothing some stay behind: see the table of differences
    "consumer": """
        SELECT c.uuid, c.generation, p.external_id, u.external_id, t.name FROM consumers c
        JOIN projects p ON p.id = c.project_id JOIN users u ON u.id = c.user_id
        LEFT JOIN consumer_types t ON t.id = c.consumer_type_id
        WHERE c.uuid IN (SELECT consumer_id FROM allocations)""",
    "name": """
        SELECT 'class', name FROM resource_classes WHERE name LIKE 'CUSTOM%'
        UNION ALL SELECT 'trait', name FROM traits WHERE name LIKE 'CUSTOM%'""",
}


def theirs(placement: Placement) -> State:
    """Return the allocations and definitions in Placement."""
    with placement.engine.connect() as connection:
        return {
            kind: {tuple(row) for row in connection.exec_driver_sql(query)}
            for kind, query in _THEIRS.items()
        }


def ours(ledger: Ledger) -> State:
    """Return the allocations and definitions in a ledger."""
    found: State = {kind: set() for kind in _THEIRS}
    for one in ledger.backend.list_providers(ProviderFilter(), 1000):
        uuid, name, generation = one.uuid, translation.client_name(one), translation.generation(one)
        found["provider"].add((uuid, name, generation, one.parent_uuid, one.root_uuid))
        found["inventory"] |= {(uuid, r.resource_class, *to_json(r).values()) for r in one.records}
        found["trait"] |= {(uuid, trait) for trait in one.all_traits}
        found["aggregate"] |= {(uuid, aggregate) for aggregate in one.aggregates}
    for record in ledger.backend.list_consumers(ConsumerFilter(), 1000, None):
        consumer = record.consumer
        owner = (record.project or translation.INCOMPLETE, record.user or translation.INCOMPLETE)
        found["consumer"].add((consumer, record.writes, *owner, record.consumer_type))
        found["allocation"] |= {
            (consumer, use.provider_uuid, use.resource_class, use.amount) for use in record.held
        }
    found["name"] = set(_names(ledger))
    return found


def out_of_service(ledger: Ledger) -> frozenset[str]:
    """Return the uuids of providers that are out of service, themselves or with one above."""
    listed = {one.uuid: one for one in ledger.backend.list_providers(ProviderFilter(), 1000)}

    def is_out(uuid: str | None) -> bool:
        one = listed[uuid] if uuid else None
        return one is not None and (one.disabled is not None or is_out(one.parent_uuid))

    return frozenset(filter(is_out, listed))


def inexact(ledger: Ledger) -> frozenset[tuple[str, str]]:
    """Return ``(provider, class)`` of which a product of floats gives another capacity."""
    return frozenset(
        (one.uuid, record.resource_class)
        for one in ledger.backend.list_providers(ProviderFilter(), 1000)
        for record in one.records
        if int((record.total - record.reserved) * (record.ratio_millionths / ratio.MILLION))
        != record.capacity
    )


def _names(ledger: Ledger) -> Iterator[tuple[str, str]]:
    for kind, said in ((NameKind.RESOURCE_CLASS, "class"), (NameKind.TRAIT, "trait")):
        for one in ledger.backend.list_names(kind, 10_000, None):
            if one.name.startswith("CUSTOM"):
                yield said, one.name


def differing(theirs: State, ours: State) -> Iterable[str]:
    """Yield a line for each row that only one of both holds."""
    for kind in theirs:
        for who, some in (
            ("Placement", theirs[kind] - ours[kind]),
            ("here", ours[kind] - theirs[kind]),
        ):
            for row in sorted(some, key=str):
                yield f"{kind} {row} only {'at ' if who == 'Placement' else ''}{who}"
