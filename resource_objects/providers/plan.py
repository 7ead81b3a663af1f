"""Plans: typed lists of changes that can be printed, stored in a file and applied in one write.

A plan lists changes of definitions (providers and their inventories) and of consumers (their
allocations). A comparison, a reshape or a repair produces it. It is printable and converts to JSON
and back without loss. It is applied in one transaction, and only if its premises still hold: each
definition has the generation that was compared, and so has each consumer whose order states one.

The JSON form is an object with ``"version": 2`` and the keys ``definitions``, ``orders``,
``names``, ``disabling`` (providers to disable or enable), ``adopted``, and for a plan of snapshots
``held`` and ``ledger``. The key ``"order"`` of an order is ``claim``, ``adjust``, ``replace`` or
``release``. The other keys are the fields of the classes, without fields at their default.
Version 1 is read too: its updates listed the differences in place of the previous definition.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeAlias

from resource_objects import exceptions, names
from resource_objects.fields import MAX_AMOUNT, MAX_FIGURE, FrozenDict
from resource_objects.providers import arguments, serialization
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    StoredDefinitions,
    check_readable,
    inventories_of,
    share_problem,
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
)
from resource_objects.providers.provider import MAX_DEPTH
from resource_objects.requests import Request

#: Version of the JSON form.
VERSION = 2
_KEYS = ("definitions", "orders", "names", "disabling", "adopted", "held", "ledger")


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
    orders: tuple[ConsumerOrder, ...] = ()
    names: Mapping[str, str] = dataclasses.field(default_factory=FrozenDict)
    disabling: tuple[DisableOrder, ...] = ()
    adopted: tuple[str, ...] = ()
    held: Mapping[str, tuple[Use, ...]] = dataclasses.field(default_factory=FrozenDict, repr=False)
    ledger: int = dataclasses.field(default=0, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", tuple(self.orders))
        object.__setattr__(self, "disabling", tuple(self.disabling))
        object.__setattr__(self, "adopted", tuple(map(names.uuid_text, self.adopted)))
        object.__setattr__(self, "names", FrozenDict(self.names))
        object.__setattr__(self, "held", FrozenDict(self.held))
        if not isinstance(self.definitions, DefinitionChanges | None):
            raise exceptions.InvalidInput("field", "plan.definitions", self.definitions, "changes")
        for order in self.orders:
            if not isinstance(order, ConsumerOrder):
                raise exceptions.InvalidInput("field", "plan.orders", order, "a ConsumerOrder")
        _once("plan.orders", (order.consumer for order in self.orders))
        for disabling in self.disabling:
            if not isinstance(disabling, DisableOrder):
                raise exceptions.InvalidInput(
                    "field", "plan.disabling", disabling, "a DisableOrder"
                )
        without_order = sorted(self.held.keys() - set(self.consumers))
        if without_order:
            raise exceptions.InvalidInput(
                "field", "plan.held", without_order, "consumers of its orders"
            )
        if type(self.ledger) is not int or not 0 <= self.ledger <= MAX_AMOUNT:
            raise exceptions.InvalidInput(
                "field", "plan.ledger", self.ledger, "the number of a ledger"
            )
        _once("plan.definitions", self._changed())
        _once("plan.adopted", self.adopted)
        _once("plan.disabling", (order.provider_uuid for order in self.disabling))

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
        return tuple(dict.fromkeys(self._mentioned()))

    def as_held(self, now: Mapping[str, ConsumerRecord]) -> Self:
        """Return the plan with the generations of consumers whose allocations are as in ``held``.

        Each order also retains the stored request of its consumer unless the order states one.

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
                        ", ".join(_use_text(use, self._names_for(use)) for use in uses) or "nothing"
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

    def _names_for(self, use: Use) -> Mapping[str, str]:
        return {use.provider_uuid: use.provider, **self.names} if use.provider else self.names

    def _changed(self) -> Iterator[str]:
        if self.definitions is not None:
            yield from (definition.uuid for definition in self.definitions.definitions)
            yield from (removal.uuid for removal in self.definitions.removals)

    def _mentioned(self) -> Iterator[str]:
        yield from self._changed()
        for definition in () if self.definitions is None else self.definitions.definitions:
            if definition.parent_uuid is not None:
                yield definition.parent_uuid
            yield from (share.of_uuid for share in definition.shares)
        for order in self.orders:
            yield from (use.provider_uuid for use in order.uses)
        yield from (order.provider_uuid for order in self.disabling)
        yield from self.adopted

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
        data: dict[str, Any] = {"version": VERSION}
        if self.definitions is not None:
            data["definitions"] = serialization.to_plain(self.definitions)
        data["orders"] = [order_to_dict(order) for order in self.orders]
        data["names"] = dict(self.names)
        for name in ("disabling", "adopted", "held", "ledger"):
            if value := getattr(self, name):
                data[name] = serialization.to_plain(value)
        return data

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
        for key in fields:
            if key not in _KEYS:
                raise exceptions.InvalidInput(
                    "field name", "plan", key, f"one of {', '.join(_KEYS)}"
                )
        lists = {name: fields.get(name, []) for name in ("orders", "disabling", "adopted")}
        for name, items in lists.items():
            if not isinstance(items, list | tuple):
                raise exceptions.InvalidInput("field", f"plan.{name}", items, "a list")
        definitions = fields.get("definitions")
        return cls(
            None if definitions is None else read_changes(definitions, data["version"]),
            tuple(
                read_order(order, f"plan.orders[{n}]") for n, order in enumerate(lists["orders"])
            ),
            read_names(fields.get("names", {})),
            tuple(
                serialization.from_plain(DisableOrder, order, f"plan.disabling[{n}]", _CHECKS)
                for n, order in enumerate(lists["disabling"])
            ),
            tuple(lists["adopted"]),
            _read_held(fields.get("held", {})),
            fields.get("ledger", 0),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the plan of a JSON text; raises as :meth:`from_dict`.

        :raises InvalidInput: if the text is not JSON
        """
        return cls.from_dict(serialization.from_json(text, "plan"))


def _once(what: str, keys: Iterable[str]) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise exceptions.InvalidInput(
                "repetition", what, key, "each consumer and provider once"
            )
        seen.add(key)


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
    provider = names_by_uuid.get(use.provider_uuid, use.provider_uuid)
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


@dataclasses.dataclass(frozen=True, slots=True)
class _PlainOrder:
    """An order of a file."""

    consumer: str
    uses: tuple[Use, ...] = ()
    uuid: str | None = None
    request: str | None = None
    project: str | None = None
    user: str | None = None
    consumer_type: str | None = None
    group: str | None = None
    expires_at: datetime.datetime | None = None
    aggregate: bool = False
    overrides_disabled: bool = False
    adopts: bool = False
    generation: int | None = None


def _request(text: str) -> str:
    try:
        Request.obj_from_primitive(json.loads(text))
    except ValueError as error:
        raise exceptions.InvalidInput(
            "field", "request", text, "the wire form of a request"
        ) from error
    return text


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
    "request": _request,
    "generation": arguments.generation,
}


#: The keys of an update in version 1: renamed keys, and keys replaced by the definitions.
_RENAMED_KEYS = {"only_children": "children_changed", "used": "expected_use"}
_DROPPED_KEYS = {
    *("changed", "removed", "traits_added", "traits_removed", "aggregates_added"),
    *("aggregates_removed", "shares_changed", "kinds_changed"),
}


def read_changes(data: Any, version: int = VERSION) -> DefinitionChanges:
    """Return the changes of definitions in plain data, or raise ``InvalidInput``."""
    if version == 1 and isinstance(data, Mapping) and isinstance(data.get("updates"), list | tuple):
        data = {**data, "updates": [_from_version_1(update) for update in data["updates"]]}
    changes = serialization.from_plain(DefinitionChanges, data, "plan.definitions", _CHECKS)
    for definition in changes.definitions:
        _check_definition(definition)
    return changes


def _from_version_1(update: Any) -> Any:
    if not isinstance(update, Mapping):
        return update
    return {
        _RENAMED_KEYS.get(key, key): value
        for key, value in update.items()
        if key not in _DROPPED_KEYS
    }


def order_to_dict(order: ConsumerOrder) -> dict[str, Any]:
    """Return an order of a plan as plain data. Plans have no renewals."""
    kind = "claim" if order.is_claim else "release" if order.is_release else "replace"
    data: dict[str, Any] = {"order": "adjust" if order.mode is Mode.ADD else kind}
    for name in ("consumer", *_ORDERS[data["order"]]):
        if value := getattr(order, name):
            is_request = isinstance(value, StoredRequest)
            data[name] = value.text if is_request else serialization.to_plain(value)
    if order.generation is not None:
        data["generation"] = order.generation
    return data


def read_order(data: Any, path: str) -> ConsumerOrder:
    """Return the order of plain data, or raise ``InvalidInput``.

    :param path: the position of the order in the plan, for errors
    """
    kind = data.get("order") if isinstance(data, Mapping) else None
    if not isinstance(kind, str) or kind not in _ORDERS:
        raise exceptions.InvalidInput(
            "field", f"{path}.order", kind, f"an object whose order is one of {', '.join(_ORDERS)}"
        )
    values = {key: value for key, value in data.items() if key != "order"}
    allowed = ("consumer", *_ORDERS[kind])
    for key in values:
        if key not in allowed:
            raise exceptions.InvalidInput("field name", path, key, f"one of {', '.join(allowed)}")
    plain = serialization.from_plain(_PlainOrder, values, path, _CHECKS)
    fields: dict[str, Any] = {name: getattr(plain, name) for name in _ORDERS[kind]}
    if fields.get("request") is not None:
        fields["request"] = StoredRequest(fields["request"])
    make: Callable[..., ConsumerOrder] = getattr(ConsumerOrder, kind)
    return make(plain.consumer, **fields)


def read_names(data: Any) -> Mapping[str, str]:
    """Return ``{uuid: name}`` of plain data, or raise ``InvalidInput``."""
    if not isinstance(data, Mapping):
        raise exceptions.InvalidInput("field", "plan.names", data, "an object {uuid: name}")
    return {names.uuid_text(uuid): names.provider_name(name) for uuid, name in data.items()}


def _read_held(data: Any) -> Mapping[str, tuple[Use, ...]]:
    if not isinstance(data, Mapping):
        raise exceptions.InvalidInput("field", "plan.held", data, "an object {consumer: [uses]}")
    expected: dict[str, tuple[Use, ...]] = {}
    for consumer, uses in data.items():
        path = f"plan.held[{consumer}]"
        if not isinstance(uses, list | tuple):
            raise exceptions.InvalidInput("field", path, uses, "a list")
        expected[names.consumer_name(consumer)] = tuple(
            serialization.from_plain(Use, use, f"{path}[{n}]", _CHECKS)
            for n, use in enumerate(uses)
        )
    return expected


def _check_definition(definition: ProviderDefinition) -> None:
    """Raise unless the figures and kinds are the stored form of inventories."""
    check_readable(definition)
    _check_factors(definition)
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
    :raises InvalidPlan: with the name of the provider and the reason
    :raises InvalidInput: as :func:`check_readable`
    """
    for definition in changes.definitions:
        check_readable(definition)
        _check_factors(definition)
    root_of = _roots(after)
    created = {definition.uuid for definition in changes.creates}
    for definition in changes.creates:
        if definition.parent_uuid in created and definition.parent_uuid != definition.uuid:
            raise exceptions.InvalidPlan(definition.name, "its parent is created after it")
        created.discard(definition.uuid)
    removed: set[str | None] = set()
    for removal in changes.removals:
        if before[removal.uuid].parent_uuid in removed:
            raise exceptions.InvalidPlan(removal.name, "its parent is removed before it")
        removed.add(removal.uuid)
    broken = share_problem(after.values(), root_of)
    if broken is not None:
        name = after[broken.sharer[0]].name
        raise exceptions.InvalidPlan(name, f"its shares must {broken.rule}")


def _check_factors(definition: ProviderDefinition) -> None:
    for share in definition.shares:
        if type(share.factor) is not int or not 1 <= share.factor <= MAX_FIGURE:
            raise exceptions.InvalidInput(
                "field",
                f"share factor of {definition.name}",
                share.factor,
                f"an integer from 1 to {MAX_FIGURE}",
            )


def _roots(after: Definitions) -> dict[str, str]:
    """Return the root of each provider, or raise for a ring and for a tree that is too deep."""
    levels: dict[str, tuple[str, int]] = {}  # root and depth of each provider
    for uuid, definition in after.items():
        path: dict[str, None] = {}
        ancestor: str | None = uuid
        while ancestor is not None and ancestor not in levels:
            if ancestor in path:
                raise exceptions.InvalidPlan(definition.name, "it would be below itself")
            path[ancestor] = None
            ancestor = after[ancestor].parent_uuid
        root, depth = levels[ancestor] if ancestor is not None else (next(reversed(path)), -1)
        for descendant in reversed(path):
            depth += 1
            levels[descendant] = root, depth
        if depth > MAX_DEPTH:
            raise exceptions.InvalidPlan(
                definition.name, f"it would be {depth} levels deep, of at most {MAX_DEPTH}"
            )
    return {uuid: root for uuid, (root, _) in levels.items()}
