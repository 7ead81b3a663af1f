"""Plans: typed lists of changes that can be printed, stored in a file and applied in one write.

A plan lists changes of definitions (providers and their inventories) and of consumers (their
allocations). A comparison, a reshape or a repair produces it. It is applied in one transaction, and
only if its premises still hold: each definition has the generation that was compared, and so has
each consumer whose order states one.

The JSON form is an object with ``"version": 2`` and the fields of the classes, by
:mod:`~resource_objects.providers.serialization`. The key ``"order"`` of an order is ``claim``,
``adjust``, ``replace`` or ``release``, and it has the keys of ``ConsumerOrder`` that such an order
may state. Version 1 is read too: its updates listed the differences in place of the previous
definition.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeAlias

from resource_objects import exceptions, names
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.providers import arguments, serialization
from resource_objects.providers.columns import Columns, stored_definitions
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    StoredDefinitions,
    changes_between,
    check_readable,
    check_trees,
    inventories_of,
    to_records,
)
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Key,
    Mode,
    Operation,
    StoredRequest,
    Use,
    Write,
    check_unique,
    subject_of,
)
from resource_objects.requests import Request

#: Version of the JSON form.
VERSION = 2
_Holdings: TypeAlias = Mapping[str, Mapping[Key, Use]]


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Changes of definitions and allocations. False if empty.

    ``names`` maps the uuids of providers to their names; it only makes the plan readable. ``str()``
    prints a line per change: ``+`` for a creation, ``~`` for a change, ``-`` for a removal.
    ``adopted`` lists the uuids of hosts whose previous use is allocated completely by the plan.

    A plan of snapshots knows no generations of consumers. Its ``held`` maps consumers to their
    allocations in the snapshot, and the plan is applied only if they are unchanged. ``ledger`` is
    the number of the ledger of the snapshots, 0 if unknown.

    :raises InvalidInput: if a value has another type; if a consumer or a provider is changed twice

    >>> from resource_objects.providers import Provider, diff
    >>> host = Provider("host0", "VCPU=8", traits=["CUSTOM_SSD"])
    >>> plan = Plan(diff(None, host))
    >>> print(plan)
    + host0: VCPU=8 CUSTOM_SSD
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    definitions: DefinitionChanges | None = None
    # the default factories let a file contain both keys even if they are empty
    orders: tuple[ConsumerOrder, ...] = dataclasses.field(default_factory=tuple)
    names: Mapping[str, str] = dataclasses.field(default_factory=FrozenDict)
    disabling: tuple[DisableOrder, ...] = ()
    adopted: tuple[str, ...] = ()
    held: Mapping[str, tuple[Use, ...]] = dataclasses.field(default=FrozenDict(), repr=False)
    ledger: int = dataclasses.field(default=0, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.definitions, DefinitionChanges | None):
            raise exceptions.InvalidInput("field", "plan.definitions", self.definitions, "changes")
        for name, kind in (("orders", ConsumerOrder), ("disabling", DisableOrder)):
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            for value in values:
                if not isinstance(value, kind):
                    expected = f"a {kind.__name__}"
                    raise exceptions.InvalidInput("field", f"plan.{name}", value, expected)
        object.__setattr__(self, "adopted", tuple(map(names.uuid_text, self.adopted)))
        object.__setattr__(self, "names", FrozenDict(self.names))
        object.__setattr__(self, "held", FrozenDict(self.held))
        without_order = sorted(self.held.keys() - set(self.consumers))
        if without_order:
            raise exceptions.InvalidInput(
                "field", "plan.held", without_order, "consumers of its orders"
            )
        if type(self.ledger) is not int or not 0 <= self.ledger <= MAX_AMOUNT:
            raise exceptions.InvalidInput(
                "field", "plan.ledger", self.ledger, "the number of a ledger"
            )
        check_unique("plan.orders", self.consumers, "each consumer once")
        check_unique("plan.definitions", self._changed(), "each provider once")
        check_unique("plan.adopted", self.adopted, "each provider once")
        uuids = [order.provider_uuid for order in self.disabling]
        check_unique("plan.disabling", uuids, "each provider once")

    def __bool__(self) -> bool:
        return bool(self.definitions or self.orders or self.disabling or self.adopted)

    def __str__(self) -> str:
        return "\n".join(_lines(self)) or "nothing changed"

    @property
    def consumers(self) -> tuple[str, ...]:
        """The names of the consumers whose allocations change."""
        return tuple(order.consumer for order in self.orders)

    @property
    def places(self) -> tuple[str, ...]:
        """The uuids of all providers that the plan mentions, also of those to be created."""
        uuids = list(self._changed())
        for definition in () if self.definitions is None else self.definitions.definitions:
            if definition.parent_uuid is not None:
                uuids.append(definition.parent_uuid)
            uuids += [share.of_uuid for share in definition.shares]
        for order in self.orders:
            uuids += [use.provider_uuid for use in order.uses]
        uuids += [order.provider_uuid for order in self.disabling]
        return tuple(dict.fromkeys((*uuids, *self.adopted)))

    def as_held(self, now: Mapping[str, ConsumerRecord]) -> Self:
        """Return the plan with the generations of consumers whose allocations are as in ``held``.

        An order without a request retains the stored one.

        :param now: the stored consumers of the plan, by name
        :raises Stale: with the expected and the present allocations of a consumer
        """
        orders: list[ConsumerOrder] = []
        for order in self.orders:
            if order.consumer in self.held:
                expected, record = self.held[order.consumer], now.get(order.consumer)
                present = () if record is None else record.held
                if _by_key(present) != _by_key(expected):
                    was, now_is = (
                        ", ".join(_use_text(use, self.names) for use in uses) or "nothing"
                        for uses in (expected, present)
                    )
                    raise exceptions.Stale(
                        "consumer", order.consumer, f"{was} was allocated to it, now {now_is}"
                    )
                if record is not None:
                    request = None if order.is_release else order.request or record.request
                    order = dataclasses.replace(order, expect=record.generation, request=request)
            orders.append(order)
        return dataclasses.replace(self, orders=tuple(orders), held={})

    def compared_with(self, stored: StoredDefinitions) -> Self:
        """Return the plan with each update compared with the stored definition.

        A file may state another previous definition, or none. An update of a provider that is not
        in ``stored`` is returned unchanged; the write refuses it.
        """
        if self.definitions is None or not self.definitions.updates:
            return self
        updates = tuple(
            dataclasses.replace(update, before=stored[update.definition.uuid].definition)
            if update.definition.uuid in stored
            else update
            for update in self.definitions.updates
        )
        changes = dataclasses.replace(self.definitions, updates=updates)
        return dataclasses.replace(self, definitions=changes)

    def naming(self, stored: StoredDefinitions, names: Mapping[str, str] = FrozenDict()) -> Self:
        """Return the plan with the names of its providers, as they are stored or in ``names``."""
        by_uuid = {uuid: entry.definition.name for uuid, entry in stored.items()} | dict(names)
        return dataclasses.replace(
            self, names={uuid: by_uuid[uuid] for uuid in self.places if uuid in by_uuid}
        )

    def _changed(self) -> Iterator[str]:
        if self.definitions is not None:
            yield from (definition.uuid for definition in self.definitions.definitions)
            yield from (removal.uuid for removal in self.definitions.removals)

    @property
    def subject(self) -> str:
        """A digest of the plan, by which the write of a repeated operation is recognised."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return f"plan {hashlib.sha256(text.encode()).hexdigest()[:32]}"

    def write(
        self,
        operation: Operation,
        kind: str = "apply",
        subject: str | None = None,
        *,
        unchanged: Iterable[tuple[str, int]] = (),
    ) -> Write:
        """Return the write of this plan; ``unchanged`` as in :class:`Write`."""
        return Write(
            operation,
            kind,
            subject or self.subject,
            self.definitions,
            self.orders,
            unchanged=tuple(unchanged),
            adopted=self.adopted,
            disabling=self.disabling,
        )

    # --- plain data ---

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"version": VERSION, **serialization.to_plain(self, _WRITERS)}

    def to_json(self, indent: int | None = 2) -> str:
        """Return the plan as JSON text, which :meth:`from_json` reads back."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the plan of plain data.

        :raises InvalidInput: if a value has the wrong type or is missing, or a key is unknown
        :raises UnsupportedVersion: if it has an unsupported version
        :raises InvalidInventory: if figures of an inventory contradict each other
        """
        fields = serialization.versioned(data, "plan", VERSION, oldest=1)
        if data["version"] == 1:
            fields["definitions"] = _from_version_1(fields.get("definitions"))
        plan = serialization.from_plain(cls, fields, "plan", _CHECKS, _READERS)
        for definition in () if plan.definitions is None else plan.definitions.definitions:
            _check_definition(definition)
        by_uuid = {names.uuid_text(uuid): names.provider_name(n) for uuid, n in plan.names.items()}
        return dataclasses.replace(plan, names=by_uuid)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the plan of a JSON text; raises as :meth:`from_dict`.

        :raises InvalidInput: if the text is not JSON
        """
        return cls.from_dict(serialization.from_json(text, "plan"))


# --- text -----------------------------------------------------------------------------------------


def _lines(plan: Plan) -> Iterator[str]:
    changes = plan.definitions or DefinitionChanges("")
    names_by_uuid = {
        **plan.names,
        **{removal.uuid: removal.name for removal in changes.removals},
        **{definition.uuid: definition.name for definition in changes.definitions},
    }
    for definition in changes.creates:
        yield _creation_text(definition, names_by_uuid)
    for update in changes.updates:
        if not update.children_changed:
            yield str(DefinitionChanges("", updates=(update,)))
    for order in plan.orders:
        yield _order_text(order, names_by_uuid)
    for disabling in plan.disabling:
        uuid = disabling.provider_uuid
        yield f"~ {names_by_uuid.get(uuid, uuid)}: {disabling}"
    for uuid in plan.adopted:
        yield f"~ {names_by_uuid.get(uuid, uuid)}: adopted"
    for removal in changes.removals:
        yield f"- {removal.name}"


def _creation_text(definition: ProviderDefinition, names_by_uuid: Mapping[str, str]) -> str:
    parts = [
        str(inventories_of(definition.inventories, definition.kinds)),
        *sorted(definition.traits),
        *(f"aggregate {name}" for name in sorted(definition.aggregates or ())),
        *(
            f"{share.resource_class} uses {share.factor} {share.of_class} of "
            f"{names_by_uuid.get(share.of_uuid, share.of_uuid)}"
            for share in definition.shares
        ),
    ]
    parent = definition.parent_uuid
    below = "" if parent is None else f" below {names_by_uuid.get(parent, parent)}"
    text = " ".join(filter(None, parts))
    return f"+ {definition.name}{below}{': ' if text else ''}{text}"


def _by_key(uses: Iterable[Use]) -> dict[Key, tuple[int, frozenset[str]]]:
    return {use.key: (use.amount, frozenset(use.units)) for use in uses}


def _order_text(order: ConsumerOrder, names_by_uuid: Mapping[str, str]) -> str:
    if order.is_release:
        return f"- {order.consumer} releases everything"
    uses = ", ".join(_use_text(use, names_by_uuid) for use in order.uses)
    if order.is_claim:
        return f"+ {order.consumer} allocates {uses}"
    verb = "changes by" if order.mode is Mode.ADD else "is allocated"
    return f"~ {order.consumer} {verb} {uses}"


def _use_text(use: Use, names_by_uuid: Mapping[str, str]) -> str:
    units = f" ({' '.join(use.units)})" if use.units else ""
    provider = names_by_uuid.get(use.provider_uuid, use.provider or use.provider_uuid)
    return f"{use.resource_class}={use.amount}{units} of {provider}"


# --- from plain data ------------------------------------------------------------------------------
#
# People edit the files of plans, so each key and value that is read is checked like a computed one.


#: The fields of each kind of order in a file.
_CLAIM_FIELDS = ("uses", "uuid", "request", "project", "user", "consumer_type", "group")
_ORDERS: dict[str, tuple[str, ...]] = {
    "claim": (*_CLAIM_FIELDS, "expires_at", "aggregate", "adopts", "overrides_disabled"),
    "adjust": ("uses", "uuid", "request", "aggregate", "adopts", "generation"),
    "replace": (*_CLAIM_FIELDS, "aggregate", "overrides_disabled", "generation"),
    "release": ("generation",),
}


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "uuid": names.uuid_text,
    "parent_uuid": names.uuid_text,
    "of_uuid": names.uuid_text,
    "provider_uuid": names.uuid_text,
    "name": names.provider_name,
    "root": names.label,
    "resource_class": names.resource_class_name,
    "of_class": names.resource_class_name,
    "classes": names.resource_class_name,
    "traits": names.trait_name,
    "aggregates": names.aggregate_name,
    "units": names.label,
    "consumer": names.consumer_name,
    "project": names.label,
    "user": names.label,
    "consumer_type": names.label,
    "group": names.label,
    "generation": arguments.generation,
}


#: The keys of an update in version 1: renamed keys, and keys replaced by the definitions.
_RENAMED_KEYS = {"only_children": "children_changed", "used": "expected_use"}
_DROPPED_KEYS = {
    *("changed", "removed", "traits_added", "traits_removed", "aggregates_added"),
    *("aggregates_removed", "shares_changed", "kinds_changed"),
}


def _from_version_1(changes: Any) -> Any:
    """Return the plain data of changes in the form of version 2; leave invalid data unchanged."""
    updates = changes.get("updates") if isinstance(changes, Mapping) else None
    if not isinstance(updates, list | tuple) or not all(isinstance(u, Mapping) for u in updates):
        return changes
    return {
        **changes,
        "updates": [
            {
                _RENAMED_KEYS.get(key, key): value
                for key, value in update.items()
                if key not in _DROPPED_KEYS
            }
            for update in updates
        ],
    }


def _order_to_plain(order: ConsumerOrder) -> dict[str, Any]:
    """Return an order as plain data. Plans have no renewals."""
    kind = "claim" if order.is_claim else "release" if order.is_release else "replace"
    data: dict[str, Any] = {"order": "adjust" if order.mode is Mode.ADD else kind}
    for name in ("consumer", *_ORDERS[data["order"]]):
        value = getattr(order, name)
        if value or (name == "generation" and value is not None):
            data[name] = serialization.to_plain(value, _WRITERS)
    return data


def _read_order(data: Any, path: str) -> ConsumerOrder:
    kind = data.get("order") if isinstance(data, Mapping) else None
    if not isinstance(kind, str) or kind not in _ORDERS:
        raise exceptions.InvalidInput(
            "field", f"{path}.order", kind, f"an object whose order is one of {', '.join(_ORDERS)}"
        )
    hints = {name: _ORDER_TYPES[name] for name in ("consumer", *_ORDERS[kind])}
    values = {key: value for key, value in data.items() if key != "order"}
    fields = serialization.read_fields(hints, values, path, _CHECKS, _READERS, {"consumer"})
    if "uses" in hints:
        fields.setdefault("uses", ())
    make: Callable[..., ConsumerOrder] = getattr(ConsumerOrder, kind)
    return make(**fields)


def _read_request(data: Any, path: str) -> StoredRequest:
    try:
        Request.obj_from_primitive(json.loads(data))
    except (TypeError, ValueError) as error:
        raise exceptions.InvalidInput("field", path, data, "the wire form of a request") from error
    return StoredRequest(data)


#: The types of the keys of orders.
_ORDER_TYPES = {**typing.get_type_hints(ConsumerOrder), "generation": int | None}
_READERS: serialization.Readers = {ConsumerOrder: _read_order, StoredRequest: _read_request}
_WRITERS: serialization.Writers = {
    ConsumerOrder: _order_to_plain,
    StoredRequest: lambda request: request.text,
}


def _check_definition(definition: ProviderDefinition) -> None:
    """Raise unless the figures and kinds are the stored form of inventories."""
    check_readable(definition)
    by_class = {record.resource_class: record for record in definition.inventories}
    if len(by_class) != len(definition.inventories):
        raise exceptions.InvalidInput(
            "repetition", definition.name, sorted(by_class), "each resource class once"
        )
    records, kinds = to_records(inventories_of(definition.inventories, definition.kinds))
    for record in records:
        if by_class.get(record.resource_class) != record:
            raise exceptions.InvalidInventory(
                f"{definition.name}: {record.resource_class}",
                by_class.get(record.resource_class),
                str(record),
            )
    if len(records) != len(by_class) or set(kinds) != set(definition.kinds):
        raise exceptions.InvalidInventory(
            definition.name, definition.kinds, "inventories that are stored as these figures"
        )


# --- checks against the stored definitions -------------------------------------------------------


#: Definitions by uuid, of whole trees.
Definitions: TypeAlias = Mapping[str, ProviderDefinition]


def check_plan(changes: DefinitionChanges, before: Definitions, after: Definitions) -> None:
    """Raise unless changes lead to valid trees. Cost: linear in the trees.

    A computed plan is valid; a plan from an edited file may not be.

    :param before: the stored definitions of the trees concerned
    :param after: their definitions after the changes, each parent included
    :raises InvalidPlan: with the reason
    :raises InvalidInput: as :func:`check_readable`
    """
    for definition in changes.definitions:
        check_readable(definition)
    try:
        check_trees(after.values())
    except exceptions.InvalidTree as error:
        raise exceptions.InvalidPlan(changes.root or "plan", str(error)) from error
    created = {definition.uuid for definition in changes.creates}
    for definition in changes.creates:
        if definition.parent_uuid in created:
            raise exceptions.InvalidPlan(definition.name, "its parent is created after it")
        created.discard(definition.uuid)
    removed: set[str | None] = set()
    for removal in changes.removals:
        if before[removal.uuid].parent_uuid in removed:
            raise exceptions.InvalidPlan(removal.name, "its parent is removed before it")
        removed.add(removal.uuid)


# --- the difference of two snapshots --------------------------------------------------------------


def holdings(columns: Columns) -> dict[str, dict[Key, Use]]:
    """Return the allocations of each consumer, as ``{consumer: {(uuid, class): use}}``."""
    uuids = columns.index.uuids
    units: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for number, unit, resource_class, consumer in zip(*columns.units, strict=True):
        units[number, resource_class, consumer].append(unit)
    allocated: dict[str, dict[Key, Use]] = defaultdict(dict)
    for number, resource_class, consumer, amount in zip(*columns.allocations, strict=True):
        use = Use(
            uuids[number],
            resource_class,
            amount,
            tuple(sorted(units[number, resource_class, consumer])),
        )
        allocated[consumer][use.key] = use
    return dict(allocated)


def diff_rows(before: Columns, after: Columns) -> Plan:
    """Return the plan that turns the state ``before`` into the state ``after``; linear in the rows.

    Definitions correspond by uuid, consumers by name. The times of reports and the other fields of
    consumers (project, user, ...) are not compared. A state ``after`` that uses more than a
    capacity cannot be reached: the plan is then refused.

    >>> diff_rows(Columns(), Columns())
    Plan(definitions=None, orders=(), names={}, disabling=(), adopted=())
    """
    stored, target = stored_definitions(before), stored_definitions(after)
    changes = changes_between("", stored, (entry.definition for entry in target.values()))
    trees = {_root_name(target, definition.uuid) for definition in changes.definitions}
    trees |= {_root_name(stored, removal.uuid) for removal in changes.removals}
    root = trees.pop() if len(trees) == 1 else subject_of(trees).replace("consumers", "trees")
    plan = Plan(
        dataclasses.replace(changes, root=root) if changes else None,
        tuple(_orders(holdings(before), holdings(after))),
    )
    return plan.naming({**stored, **target})


def _root_name(stored: StoredDefinitions, uuid: str) -> str:
    return stored[stored[uuid].root_uuid].definition.name


def _orders(before: _Holdings, after: _Holdings) -> Iterator[ConsumerOrder]:
    for consumer in sorted({*before, *after}):
        target = after.get(consumer, {})
        if before.get(consumer) == target:
            continue
        uses = tuple(target.values())
        if not uses:
            yield ConsumerOrder.release(consumer)
        elif consumer in before:
            yield ConsumerOrder.replace(consumer, uses)
        else:
            yield ConsumerOrder.claim(consumer, uses)
