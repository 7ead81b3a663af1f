"""Units that were removed from their host while they were allocated."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from resource_objects.providers.columns import Columns
from resource_objects.providers.disabled import RemovedUnit
from resource_objects.providers.tree_shape import Exclusions
from resource_objects.resources import resource
from resource_objects.resources.located import Identified


def removed_units(kinds: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the class of each unit of one provider that was removed while it was allocated.

    Such a unit counts as used while it is allocated. After its release it is not allocatable, and
    no part of the capacity.

    :param kinds: the structured resources of the provider, each with its description
    """
    removed: dict[str, str] = {}
    for kind, body in kinds:
        inventory_kind = resource(kind).inventory_kind
        if body and issubclass(inventory_kind, Identified):
            removed.update(inventory_kind.removed_of_description(body))
    return removed


def removed_of(
    kinds: Iterable[tuple[str, str]], allocated: Collection[str]
) -> tuple[RemovedUnit, ...]:
    """Return the units of one provider that were removed while they were allocated.

    :param kinds: the structured resources of the provider, each with its description
    :param allocated: the units of the provider that are allocated
    """
    return tuple(
        RemovedUnit(unit, resource_class, unit not in allocated)
        for unit, resource_class in sorted(removed_units(kinds).items())
    )


def removed_by_provider(columns: Columns) -> dict[int, tuple[RemovedUnit, ...]]:
    """Return the units that were removed while they were allocated, by provider.

    Cost: a look at each description; where there are such units, linear in the rows.
    """
    kinds = {*columns.kinds.resource_class}
    identified = {kind for kind in kinds if issubclass(resource(kind).inventory_kind, Identified)}
    described: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for number, kind, _, body in zip(*columns.kinds, strict=True):
        if kind in identified and removed_units([(kind, body)]):
            described[number].append((kind, body))
    units = columns.index.units if described else {}
    return {
        number: removed_of(descriptions, {unit for unit, *_ in units.get(number, ())})
        for number, descriptions in described.items()
    }


def free_removed_units(columns: Columns) -> Exclusions:
    """Return the free units that were removed while they were allocated, and their amounts."""
    amounts: Counter[tuple[int, str]] = Counter()
    units: dict[int, set[str]] = defaultdict(set)
    for number, removed in removed_by_provider(columns).items():
        for unit in removed:
            if unit.is_free:
                amounts[number, unit.resource_class] += 1
                units[number].add(unit.unit)
    return Exclusions(amounts, units)
