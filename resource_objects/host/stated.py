"""What somebody states of a compute node: inventories, and figures for a ledger. Pure.

What is stated is a fact, whatever the capacity says, but only what the columns of the record can
say may be stated: a resource that has a column, no unit rules, and dedicated CPUs as many as the
cells have. Where cells and devices are a ledger's, a sync of the host changes them, and nobody
states others here. The same is checked of inventories that were edited by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from resource_objects import exceptions, fields
from resource_objects.host.columns import (
    COUNTS,
    Column,
    Settings,
    aside_of,
    beside_of,
    column_of,
    columns,
    count_of,
    members,
    reserved_of,
    stated_ratio,
    units,
)
from resource_objects.resources import Amounts, IntegerInventory, Inventories, Inventory, resource
from resource_objects.resources.integer import follow_total


def by_resource(inventories: Mapping[Any, Inventory | None]) -> dict[str, Inventory | None]:
    """Return copies of inventories that somebody states, by name.

    :raises InvalidInventory: for a resource that no column says, or another kind of inventory
    :raises InvalidInput: for a resource that is named twice; for a resource that nobody knows
    """
    wanted: dict[str, Inventory | None] = {}
    for key, given in inventories.items():
        name = resource(key).name
        if name in wanted:
            raise exceptions.InvalidInput("repetition", "inventories", name, "each resource once")
        wanted[name] = _labelled(name, given)
    return wanted


def take_over(
    wanted: Mapping[str, Inventory | None],
    saved: Mapping[str, Any],
    now: Mapping[str, Any],
    row: Mapping[str, Any] | None,
    settings: Settings,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the inventories of a node, saved and now, with what is stated taken over.

    :param wanted: as of :func:`by_resource`; None for a resource that the node does not have
    :param row: the record that the node was read from, None if its inventories are a ledger's
    :raises InvalidInventory: for what no column says, or a ledger does not
    """
    before, saved, now = now, dict(saved), dict(now)
    for name in sorted(wanted, key=_order):
        given = wanted[name]
        column = column_of(name)
        if name in COUNTS:
            _state_count(now, saved, name, given, recorded(row, settings, name))
        elif column is None:
            _state_implied(now, name, given)
        elif row is None:
            _refuse_other(column, given, before)
        else:
            _state_located(column, given, now, saved)
    return saved, now


def recorded(row: Mapping[str, Any] | None, settings: Settings, name: str) -> int | None:
    """Return how much of a count a record says is used, whether or not there is any."""
    used = None if row is None else row.get(COUNTS[name].used)
    return None if used is None else max(0, used - reserved_of(settings, name))


def figures(
    row: Mapping[str, Any], reserved: Amounts | None, ratios: Mapping[str, Decimal]
) -> dict[str, dict[str, Any]]:
    """Return ``{count: {figure: value}}`` of what a node states and does not only assume.

    :param row: its columns
    :param reserved: what the host keeps for itself, None if that is unknown
    :param ratios: the ratios that were given
    """
    found: dict[str, dict[str, Any]] = {name: {} for name in COUNTS}
    for name, column in COUNTS.items():
        if column.total in row:
            found[name]["total"] = row[column.total]
        if reserved is not None:
            found[name]["reserved"] = units(reserved, name)
        if name in ratios or stated_ratio(column.ratio, row.get(column.ratio)):
            found[name]["allocation_ratio"] = column.ratio_of(row, Settings(None, ratios))
    return found


def check_kinds(inventories: Inventories, saved: Inventories) -> None:
    """Refuse inventories that no column can say.

    :raises InvalidInventory: for a resource that has no column, more used than a figure can be, or
        other dedicated CPUs than the cells have
    """
    implied = {name for column in columns() for name in column.counts}
    before = members(saved)
    for name in COUNTS:
        count = count_of(inventories, name)
        if count is not None and count.used + count.reserved > fields.MAX_AMOUNT:
            raise exceptions.InvalidInventory(
                f"{name} used", count.used, f"with the reserved at most {fields.MAX_AMOUNT}"
            )
    for name, inventory in members(inventories).items():
        if name not in implied and column_of(name) is None:
            raise exceptions.InvalidInventory(
                "inventories of a compute node", name, "a resource that a column says"
            )
        if name in implied:
            _refuse_figures(name, inventory, before.get(name))


# --- one resource ---------------------------------------------------------------------------------


def _order(name: str) -> int:
    """Sort what is located first: counts depend on it, and most those that only it says."""
    return 1 if name in COUNTS else 0 if column_of(name) is not None else 2


def _labelled(name: str, given: Any) -> Inventory | None:
    """Return a copy of an inventory that somebody states, checked to be of its resource."""
    implied = {one for column in columns() for one in column.counts}
    if name not in implied and column_of(name) is None:
        known = ", ".join(dict.fromkeys((*COUNTS, *(one.resource for one in columns()))))
        expected = f"a resource that a compute node has columns for: {known}"
        raise exceptions.InvalidInventory("inventories of a compute node", name, expected)
    if given is None:
        return None
    kind = resource(name).inventory_kind
    if not isinstance(given, kind):
        raise exceptions.InvalidInventory(name, given, f"{kind.__name__}, or None")
    found: Inventory | None = Inventories({name: given}).get(name)
    return found


def _state_count(
    now: dict[str, Any],
    saved: dict[str, Any],
    name: str,
    given: Inventory | None,
    recorded: int | None,
) -> None:
    """Take over the figures of a count; unit rules, which no column says, stay.

    :param recorded: what a column says is used, None if none does
    """
    before = now.pop(name, None)
    if given is None:
        was = count_of(saved, name)
        if before is not None and before.used != (0 if was is None else was.used):
            expected = "nothing pending of it: save it or give it back first"
            raise exceptions.InvalidInventory(name, f"{before.used} used", expected)
        return
    stated = COUNTS[name].stated(given, now)[name]
    assert isinstance(stated, IntegerInventory)
    total = stated.total
    rules: dict[str, Any] = {"min_unit": 1, "max_unit": total, "step_size": 1}
    former = count_of(saved, name) if before is None else before
    if former is not None:
        most = follow_total(former.max_unit, former.total, total)
        rules = {"min_unit": former.min_unit, "max_unit": most, "step_size": former.step_size}
    plain = {"min_unit": 1, "max_unit": None, "step_size": 1}
    for rule, value in rules.items():
        said = getattr(stated, rule)
        if said not in (value, plain[rule]):
            raise exceptions.InvalidInventory(
                f"{name} {rule}", said, f"{value}: no column says another"
            )
    stated.update(**rules)
    now[name] = stated
    if name not in saved and recorded is not None:
        # a record that says what is used without saying of how much
        saved[name] = stated.obj_clone()
        saved[name].update(used=recorded)


def _state_implied(now: dict[str, Any], name: str, given: Inventory | None) -> None:
    """Take over how much is used of a count that only something located says, such as PCPU."""
    there = now.get(name)
    if given is None and there is None:
        return
    if not isinstance(given, IntegerInventory) or not isinstance(there, IntegerInventory):
        total = there.total if isinstance(there, IntegerInventory) else 0
        expected = f"an IntegerInventory of the {total} of the cells"
        raise exceptions.InvalidInventory(name, given, expected)
    _refuse_figures(name, given, there)
    changed = there.obj_clone()
    changed.update(used=given.used)
    now[name] = changed


def _refuse_figures(name: str, given: Any, there: Any) -> None:
    for figure in ("total", "reserved", "allocation_ratio"):
        if getattr(given, figure) != getattr(there, figure, None):
            raise exceptions.InvalidInventory(
                f"{name} {figure}", getattr(given, figure), str(getattr(there, figure, None))
            )


def _state_located(
    column: Column, given: Inventory | None, now: dict[str, Any], saved: dict[str, Any]
) -> None:
    """Write what is located, as a fact that is nobody's and not pending."""
    found = {} if given is None else dict(column.stated(given, now))
    if column.resource in now and now[column.resource] == found.get(column.resource):
        return
    for state in (now, saved):
        before = dict(state)
        for name in (column.resource, *column.counts):
            state.pop(name, None)
        state.update({name: one.obj_clone() for name, one in found.items()})
        for name in COUNTS:
            _shift(state, name, before)


def _refuse_other(column: Column, given: Inventory | None, before: Mapping[str, Any]) -> None:
    """Refuse other cells or devices than there are where they are a ledger's."""
    name, there = column.resource, before.get(column.resource)
    same = given is None if there is None else given == there
    if given is not None and there is not None and not same:
        same = column.stated(given, before).get(name) == there
    if not same and there is None:
        expected = "none, as the host in the ledger: a sync of the host adds them"
        raise exceptions.InvalidInventory(name, given, expected)
    if not same:
        expected = "what the ledger has: a sync of the host changes them"
        raise exceptions.InvalidInventory(name, given, expected)


def _shift(state: dict[str, Any], name: str, before: Mapping[str, Any]) -> None:
    """Let a count follow what is set aside of it, or used beside it, now: its column stays."""
    count = state.get(name)
    if not isinstance(count, IntegerInventory):
        return
    own = count.reserved - aside_of(name, before)
    aside = sum(column.aside(name, state) for column in columns())
    beside = beside_of(name, state, False) - beside_of(name, before, False)
    reserved, used = min(count.total, own + aside), max(0, count.used - beside)
    if (reserved, used) != (count.reserved, count.used):
        state[name] = count.obj_clone()
        state[name].update(reserved=reserved, used=used)
