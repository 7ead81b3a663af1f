"""The plan: a typed list of changes, to be looked at, kept as a file, and carried out at once.

A plan says what shall become of definitions (providers and what they have) and of consumers (what
they hold). It comes from a comparison, a reshape or a repair, is printable, goes to JSON and back
without loss, and is carried out in one transaction, only if what it was made from is still so: each
definition at the generation it was compared with, and each consumer, where the plan says one.

The JSON form is an object with ``"version": 1`` and the keys ``definitions``, ``orders`` and
``names``; each order says in ``"order"`` what it is: ``claim``, ``adjust``, ``replace`` or
``release``. The keys below are the fields of the classes named here, defaults left out.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers import plain, plan_data
from resource_objects.providers.columns import inventories_of
from resource_objects.providers.definition import DefinitionChanges, ProviderDefinition
from resource_objects.providers.orders import (
    Adjustment,
    ClaimOrder,
    Delta,
    Operation,
    Release,
    Write,
)
from resource_objects.providers.plan_data import PlanOrder

#: Version of the JSON form.
VERSION = 1

_WORDS = {kind: word for word, kind in plan_data.KINDS.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Changes of definitions and of what consumers hold. False when there are none.

    ``names`` are the names of the providers that are meant by uuid, as ``{uuid: name}``: they only
    make the plan readable. ``str()`` gives a line per change: ``+`` is made, ``~`` changes, ``-``
    goes.

    :raises InvalidField: if it is made of anything else
    :raises DuplicateKey: if a consumer or a provider is changed twice

    >>> from resource_objects.providers import Provider, diff
    >>> host = Provider("host0", "VCPU=8", traits=["CUSTOM_SSD"])
    >>> plan = Plan(diff(None, host))
    >>> print(plan)
    + host0: VCPU=8 CUSTOM_SSD
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    definitions: DefinitionChanges | None = None
    orders: tuple[PlanOrder, ...] = ()
    names: Mapping[str, str] = dataclasses.field(default_factory=FrozenDict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", tuple(self.orders))
        object.__setattr__(self, "names", FrozenDict(self.names))
        if not isinstance(self.definitions, DefinitionChanges | None):
            raise exceptions.InvalidField("plan.definitions", self.definitions, "changes")
        for order in self.orders:
            if not isinstance(order, PlanOrder):
                raise exceptions.InvalidField("plan.orders", order, "a claim, or a change of one")
        _once("plan.orders", (order.consumer for order in self.orders))
        _once("plan.definitions", self._changed())

    def __bool__(self) -> bool:
        return bool(self.definitions or self.orders)

    def __str__(self) -> str:
        return "\n".join(_lines(self)) or "nothing changed"

    @property
    def consumers(self) -> tuple[str, ...]:
        """The names of those whose holdings change."""
        return tuple(order.consumer for order in self.orders)

    @property
    def places(self) -> tuple[str, ...]:
        """The uuids of all providers that the plan is about, those to be created included."""
        return tuple(dict.fromkeys(self._mentioned()))

    def _changed(self) -> Iterator[str]:
        if self.definitions is not None:
            yield from (one.uuid for one in self.definitions.creates)
            yield from (one.definition.uuid for one in self.definitions.updates)
            yield from (one.uuid for one in self.definitions.removals)

    def _mentioned(self) -> Iterator[str]:
        yield from self._changed()
        for definition in _wanted(self.definitions):
            if definition.parent_uuid is not None:
                yield definition.parent_uuid
            yield from (share.of_uuid for share in definition.shares)
        for order in self.orders:
            if not isinstance(order, Release):
                yield from (delta.provider_uuid for delta in order.deltas)

    @property
    def subject(self) -> str:
        """What a write of this plan is about: a digest, so that a repetition is recognised."""
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
        """Return the write that carries this plan out; ``unchanged`` as :class:`Write` has it."""
        return Write(
            operation,
            kind,
            subject or self.subject,
            self.definitions,
            self.orders,
            unchanged=tuple(unchanged),
        )

    # --- plain data ---

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        found: dict[str, Any] = {"version": VERSION}
        if self.definitions is not None:
            found["definitions"] = plain.to_plain(self.definitions)
        found["orders"] = [
            {"order": _WORDS[type(order)], **plain.to_plain(order)} for order in self.orders
        ]
        found["names"] = dict(self.names)
        return found

    def to_json(self, indent: int | None = 2) -> str:
        """Return the plan as JSON text, which :meth:`from_json` reads back."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the plan that plain data says.

        :raises InvalidField: if something is of the wrong type or missing
        :raises UnknownField: if there is a key that is not known
        :raises UnsupportedVersion: if it is of another version
        :raises InvalidInventory: if figures of an inventory contradict each other
        """
        given = plain.versioned(data, "plan", VERSION)
        for key in given:
            if key not in ("definitions", "orders", "names"):
                raise exceptions.UnknownField("plan", key, "one of definitions, orders, names")
        definitions = given.get("definitions")
        orders = given.get("orders", [])
        if not isinstance(orders, list | tuple):
            raise exceptions.InvalidField("plan.orders", orders, "a list")
        return cls(
            None if definitions is None else plan_data.read_changes(definitions),
            tuple(
                plan_data.read_order(order, f"plan.orders[{n}]") for n, order in enumerate(orders)
            ),
            plan_data.read_names(given.get("names", {})),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the plan that JSON text says. Errors are those of :meth:`from_dict`.

        :raises InvalidText: if it is no JSON
        """
        return cls.from_dict(plain.from_json(text, "plan"))


def _once(what: str, keys: Iterable[str]) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise exceptions.DuplicateKey(what, key, "each consumer and provider once")
        seen.add(key)


def _wanted(changes: DefinitionChanges | None) -> Iterator[ProviderDefinition]:
    if changes is not None:
        yield from changes.creates
        yield from (update.definition for update in changes.updates)


# --- said ---


def _lines(plan: Plan) -> Iterator[str]:
    changes = plan.definitions or DefinitionChanges("")
    known = {
        **plan.names,
        **{one.uuid: one.name for one in changes.removals},
        **{one.uuid: one.name for one in _wanted(changes)},
    }
    for created in changes.creates:
        yield _created(created, known)
    for update in changes.updates:
        if not update.only_children:
            yield str(DefinitionChanges("", updates=(update,)))
    for order in plan.orders:
        yield _ordered(order, known)
    for removal in changes.removals:
        yield f"- {removal.name}"


def _created(created: ProviderDefinition, known: Mapping[str, str]) -> str:
    above = created.parent_uuid
    parts = [str(inventories_of(created.inventories, created.kinds)), *sorted(created.traits)]
    parts += [f"aggregate {name}" for name in sorted(created.aggregates or ())]
    parts += [
        f"{share.resource_class} uses {share.factor} {share.of_class} of "
        f"{known.get(share.of_uuid, share.of_uuid)}"
        for share in created.shares
    ]
    below = "" if above is None else f" below {known.get(above, above)}"
    said = " ".join(part for part in parts if part)
    return f"+ {created.name}{below}{': ' if said else ''}{said}"


def _ordered(order: PlanOrder, known: Mapping[str, str]) -> str:
    if isinstance(order, Release):
        return f"- {order.consumer} gives back everything"
    said = ", ".join(_taken(delta, known) for delta in order.deltas)
    if isinstance(order, ClaimOrder):
        return f"+ {order.consumer} takes {said}"
    verb = "changes by" if isinstance(order, Adjustment) else "holds"
    return f"~ {order.consumer} {verb} {said}"


def _taken(delta: Delta, known: Mapping[str, str]) -> str:
    units = f" ({' '.join(delta.units)})" if delta.units else ""
    where = known.get(delta.provider_uuid, delta.provider_uuid)
    return f"{delta.resource_class}={delta.amount}{units} of {where}"
