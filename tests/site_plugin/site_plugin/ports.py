"""A kind of its own: port numbers, each of which has an identity.

Who asks says how many; the inventory assigns which ones, lowest first; only what was assigned can
be given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resource_objects import base, exceptions, fields
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import Amount, Inventory, Resource
from resource_objects.resources.abstract import on_class_or_instance
from resource_objects.resources.context import ANYWHERE, Context
from resource_objects.resources.records import AmountRecord, InventoryRecord
from resource_objects.resources.text import integer

WIRE_PREFIX = "site_plugin"


def _ports(**kwargs: Any) -> Any:
    return fields.Field(fields.TupleOf(fields.StrictInteger(1, 65535)), **kwargs)


@base.register
class PortsAmount(Amount):
    """A number of ports, and, once assigned, which."""

    WIRE_PREFIX = WIRE_PREFIX
    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {"count": fields.integer(-65535, 65535), "ports": _ports(default=())}

    @property
    def is_zero(self) -> bool:
        return self.count == 0

    @property
    def is_negative(self) -> bool:
        return self.count < 0

    def __neg__(self) -> PortsAmount:
        return self.replace(count=-self.count)

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        return (AmountRecord(resource_class, self.count),)


@base.register
class PortsInventory(Inventory):
    """The ports from ``first`` to ``last``, and those that are taken."""

    WIRE_PREFIX = WIRE_PREFIX
    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "first": fields.integer(1, 65535),
        "last": fields.integer(1, 65535),
        "taken": _ports(default=()),
    }

    def _validate(self) -> None:
        if self.first > self.last:
            raise exceptions.InvalidInventory("first", self.first, f"at most {self.last}")

    def fit(
        self, amount: Amount, limit: Amount | None = None, context: Context = ANYWHERE
    ) -> Amount:
        if not isinstance(amount, PortsAmount) or not isinstance(limit, PortsAmount | None):
            raise exceptions.InvalidInput("kind of amount", "amount", amount, "PortsAmount")
        if amount.count <= 0:
            if not set(amount.ports) <= set(self.taken) or len(amount.ports) != -amount.count:
                self._refuse(Rule.USED_BELOW_ZERO, amount, 0)
            return amount
        capacity = self.last - self.first + 1
        free = [n for n in range(self.first, self.last + 1) if n not in self.taken]
        if len(free) < amount.count:
            self._refuse(Rule.CAPACITY, amount, capacity)
        if limit is not None and len(self.taken) + amount.count > limit.count:
            self._refuse(Rule.LIMIT, amount, limit.count)
        return PortsAmount(count=amount.count, ports=tuple(free[: amount.count]))

    def _refuse(self, rule: Rule, amount: Any, bound: int) -> None:
        used = len(self.taken)
        reason = Reason(rule, amount.count, bound, used, self.resource_class)
        raise exceptions.CapacityException([reason])

    def apply(self, assigned: Any) -> None:
        given = set(assigned.ports)
        kept = set(self.taken) | given if assigned.count > 0 else set(self.taken) - given
        self.taken = tuple(sorted(kept))

    def to_records(self) -> tuple[InventoryRecord, ...]:
        total, used = self.last - self.first + 1, len(self.taken)
        figures = (total, 0, 1, None, 1, 1_000_000, total, used)
        return (InventoryRecord(self.resource_class, *figures),)


@base.register
class PortsResource(Resource):
    """A resource whose units are ports."""

    WIRE_PREFIX = WIRE_PREFIX
    # Version 1.0: Initial version
    VERSION = "1.0"

    amount_kind = PortsAmount
    inventory_kind = PortsInventory

    @on_class_or_instance
    def make_amount(this: Any, /, count: int) -> PortsAmount:  # noqa: N805
        return PortsAmount(count=count)

    @on_class_or_instance
    def make_inventory(this: Any, /, first: int, last: int = 65535) -> PortsInventory:  # noqa: N805
        label = None if isinstance(this, type) else this.name
        return PortsInventory(first=first, last=last, resource_class=label)

    def inventory_from_records(self, records: Sequence[InventoryRecord]) -> PortsInventory:
        (record,) = records
        return self.make_inventory(1, record.total)

    def parse_amount(self, text: str) -> PortsAmount:
        return self.make_amount(integer(text, self.name))

    def format_amount(self, amount: Any) -> str:
        return str(amount.count)

    def parse_inventory(self, text: str) -> PortsInventory:
        first, _, last = text.partition("-")
        return self.make_inventory(integer(first, self.name), integer(last, self.name))

    def format_inventory(self, inventory: Any) -> str:
        return f"{inventory.first}-{inventory.last}"


PORTS = PortsResource("CUSTOM_SITE_PORTS", "network", "ports", "TCP ports of the site's hosts")
