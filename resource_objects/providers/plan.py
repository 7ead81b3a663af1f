"""The plan: a typed list of changes, to be looked at, kept as a file, and carried out at once.

A plan says what shall become of definitions (providers and what they have) and of consumers (what
they hold). It comes from a comparison, a reshape or a repair, is printable, goes to JSON and back
without loss, and is carried out in one transaction, only if what it was made from is still so: each
definition at the generation it was compared with, and each consumer, where the plan says one.

The JSON form is an object with ``"version": 2`` and the keys ``definitions``, ``orders``,
``names``, ``disabling`` (what is put out of service, or into it again), ``adopted``, and of a plan
of pictures ``held`` and ``ledger``; each order says in ``"order"`` what it is: ``claim``,
``adjust``, ``replace`` or ``release``. The keys below are the fields of the classes named here,
defaults left out. Version 1 is read too: it described the difference of each update a second time
instead of the definition before it.
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
from resource_objects.providers.provider import MAX_DEPTH, broken_share
from resource_objects.requests import Request

#: Version of the JSON form.
VERSION = 2
_KEYS = ("definitions", "orders", "names", "disabling", "adopted", "held", "ledger")


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Changes of definitions and of what consumers hold. False when there are none.

    ``names`` are the names of the providers that are meant by uuid, as ``{uuid: name}``: they only
    make the plan readable. ``str()`` gives a line per change: ``+`` is made, ``~`` changes, ``-``
    goes. ``adopted`` are the uuids of hosts of which all that was in use before is held afterwards.
    ``held`` says of consumers whose holdings change what they held when the plan was made, for a
    plan of pictures, which know no generations: it is carried out only if they hold that still.
    ``ledger`` is the number of the ledger that these are of, 0 where nobody knows.

    :raises InvalidInput: if it is made of anything else
    :raises InvalidInput: if a consumer or a provider is changed twice

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
                raise exceptions.InvalidInput(
                    "field", "plan.orders", order, "a claim, or a change of one"
                )
        _once("plan.orders", (order.consumer for order in self.orders))
        for said in self.disabling:
            if not isinstance(said, DisableOrder):
                raise exceptions.InvalidInput(
                    "field", "plan.disabling", said, "what is out of service"
                )
        unknown = sorted(self.held.keys() - set(self.consumers))
        if unknown:
            raise exceptions.InvalidInput("field", "plan.held", unknown, "consumers of its orders")
        if type(self.ledger) is not int or not 0 <= self.ledger <= MAX_AMOUNT:
            raise exceptions.InvalidInput(
                "field", "plan.ledger", self.ledger, "the number of a ledger"
            )
        _once("plan.definitions", self._changed())
        _once("plan.adopted", self.adopted)
        _once("plan.disabling", (said.provider_uuid for said in self.disabling))

    def __bool__(self) -> bool:
        return bool(self.definitions or self.orders or self.disabling or self.adopted)

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

    def as_held(self, now: Mapping[str, ConsumerRecord]) -> Self:
        """Return the plan of what consumers hold now, if that is what it was made of.

        Its orders then demand the generations that the consumers have, and keep the requests they
        were made for, where the plan says no other.

        :param now: what its consumers hold, by name
        :raises Stale: naming one who holds something else, and what that is
        """
        orders: list[ConsumerOrder] = []
        for order in self.orders:
            if order.consumer in self.held:
                record = now.get(order.consumer)
                uses = () if record is None else record.held
                if _holding(uses) != _holding(self.held[order.consumer]):
                    was, has = (
                        ", ".join(_taken(use, self._known(use)) for use in some) or "nothing"
                        for some in (self.held[order.consumer], uses)
                    )
                    raise exceptions.Stale("consumer", order.consumer, f"it held {was}, now {has}")
                if record is not None:
                    kept = None if order.is_release else order.request or record.request
                    order = dataclasses.replace(order, expect=record.generation, request=kept)
            orders.append(order)
        return dataclasses.replace(self, orders=tuple(orders), held={})

    def compared_with(self, stored: StoredDefinitions) -> Self:
        """Return the plan with each update compared with the stored definition.

        A file may state another definition before it, or none. An update of a provider that is not
        in ``stored`` stays as it is; the write refuses it.
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

    def _known(self, use: Use) -> Mapping[str, str]:
        return {use.provider_uuid: use.provider, **self.names} if use.provider else self.names

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
            yield from (use.provider_uuid for use in order.uses)
        yield from (said.provider_uuid for said in self.disabling)
        yield from self.adopted

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
            adopted=self.adopted,
            disabling=self.disabling,
        )

    # --- plain data ---

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        found: dict[str, Any] = {"version": VERSION}
        if self.definitions is not None:
            found["definitions"] = serialization.to_plain(self.definitions)
        found["orders"] = [said_order(order) for order in self.orders]
        found["names"] = dict(self.names)
        if self.disabling:
            found["disabling"] = [serialization.to_plain(said) for said in self.disabling]
        if self.adopted:
            found["adopted"] = list(self.adopted)
        if self.held:
            found["held"] = serialization.to_plain(self.held)
        if self.ledger:
            found["ledger"] = self.ledger
        return found

    def to_json(self, indent: int | None = 2) -> str:
        """Return the plan as JSON text, which :meth:`from_json` reads back."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the plan that plain data says.

        :raises InvalidInput: if something is of the wrong type or missing
        :raises InvalidInput: if there is a key that is not known
        :raises UnsupportedVersion: if it is of another version
        :raises InvalidInventory: if figures of an inventory contradict each other
        """
        given = serialization.versioned(data, "plan", VERSION, oldest=1)
        for key in given:
            if key not in _KEYS:
                raise exceptions.InvalidInput(
                    "field name", "plan", key, f"one of {', '.join(_KEYS)}"
                )
        definitions = given.get("definitions")
        orders = given.get("orders", [])
        disabling = given.get("disabling", [])
        adopted = given.get("adopted", [])
        lists = {"plan.orders": orders, "plan.disabling": disabling, "plan.adopted": adopted}
        for what, listed in lists.items():
            if not isinstance(listed, list | tuple):
                raise exceptions.InvalidInput("field", what, listed, "a list")
        return cls(
            None if definitions is None else read_changes(definitions, data["version"]),
            tuple(read_order(order, f"plan.orders[{n}]") for n, order in enumerate(orders)),
            read_names(given.get("names", {})),
            tuple(
                serialization.from_plain(DisableOrder, said, f"plan.disabling[{n}]", _CHECKS)
                for n, said in enumerate(disabling)
            ),
            tuple(adopted),
            _read_held(given.get("held", {})),
            given.get("ledger", 0),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the plan that JSON text says. Errors are those of :meth:`from_dict`.

        :raises InvalidInput: if it is no JSON
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
        if not update.children_changed:
            yield str(DefinitionChanges("", updates=(update,)))
    for order in plan.orders:
        yield _ordered(order, known)
    for said in plan.disabling:
        yield f"~ {known.get(said.provider_uuid, said.provider_uuid)}: {said}"
    for uuid in plan.adopted:
        yield f"~ {known.get(uuid, uuid)}: adopted"
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


def _holding(uses: Iterable[Use]) -> dict[Key, tuple[int, frozenset[str]]]:
    return {use.key: (use.amount, frozenset(use.units)) for use in uses}


def _ordered(order: ConsumerOrder, known: Mapping[str, str]) -> str:
    if order.is_release:
        return f"- {order.consumer} gives back everything"
    said = ", ".join(_taken(use, known) for use in order.uses)
    if order.is_claim:
        return f"+ {order.consumer} takes {said}"
    verb = "changes by" if order.mode is Mode.ADD else "holds"
    return f"~ {order.consumer} {verb} {said}"


def _taken(delta: Use, known: Mapping[str, str]) -> str:
    units = f" ({' '.join(delta.units)})" if delta.units else ""
    where = known.get(delta.provider_uuid, delta.provider_uuid)
    return f"{delta.resource_class}={delta.amount}{units} of {where}"


# --- from plain data ------------------------------------------------------------------------------
#
# The plain data of a plan, read: every key known, every value checked.
#
# Plans come from files that people edit, so that what is read must hold as much as what is
# computed: figures of inventories agree with each other, and changes with the definitions they
# lead to.


#: Each kind of order by the word for it in a file, with what it may say.
_SAID = ("uses", "uuid", "request", "project", "user", "consumer_type", "group")
_ORDERS: dict[str, tuple[str, ...]] = {
    "claim": (*_SAID, "expires_at", "aggregate", "adopts", "overrides_disabled"),
    "adjust": ("uses", "uuid", "request", "aggregate", "adopts", "generation"),
    "replace": (*_SAID, "aggregate", "overrides_disabled", "generation"),
    "release": ("generation",),
}


@dataclasses.dataclass(frozen=True, slots=True)
class _PlainOrder:
    """An order as a file says it."""

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


#: What an update had in version 1: keys with another name, and those that the definitions replace.
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
    for definition in _wanted(changes):
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


def said_order(order: ConsumerOrder) -> dict[str, Any]:
    """Return an order as plain data; a renewal is none of a plan's."""
    word = "claim" if order.is_claim else "release" if order.is_release else "replace"
    found: dict[str, Any] = {"order": "adjust" if order.mode is Mode.ADD else word}
    for name in ("consumer", *_ORDERS[found["order"]]):
        value = getattr(order, name)
        if value:
            found[name] = (
                value.text if isinstance(value, StoredRequest) else serialization.to_plain(value)
            )
    if order.generation is not None:
        found["generation"] = order.generation
    return found


def read_order(data: Any, where: str) -> ConsumerOrder:
    """Return the order that plain data says, or raise ``InvalidInput``."""
    word = data.get("order") if isinstance(data, Mapping) else None
    if not isinstance(word, str) or word not in _ORDERS:
        raise exceptions.InvalidInput(
            "field", f"{where}.order", word, f"an object whose order is one of {', '.join(_ORDERS)}"
        )
    rest = {key: value for key, value in data.items() if key != "order"}
    known = ("consumer", *_ORDERS[word])
    for key in rest:
        if key not in known:
            raise exceptions.InvalidInput("field name", where, key, f"one of {', '.join(known)}")
    read = serialization.from_plain(_PlainOrder, rest, where, _CHECKS)
    said: dict[str, Any] = {name: getattr(read, name) for name in _ORDERS[word]}
    if said.get("request") is not None:
        said["request"] = StoredRequest(said["request"])
    make: Callable[..., ConsumerOrder] = getattr(ConsumerOrder, word)
    return make(read.consumer, **said)


def read_names(data: Any) -> Mapping[str, str]:
    """Return ``{uuid: name}`` as plain data says it, or raise ``InvalidInput``."""
    if not isinstance(data, Mapping):
        raise exceptions.InvalidInput("field", "plan.names", data, "an object {uuid: name}")
    return {names.uuid_text(uuid): names.provider_name(name) for uuid, name in data.items()}


def _read_held(data: Any) -> Mapping[str, tuple[Use, ...]]:
    if not isinstance(data, Mapping):
        raise exceptions.InvalidInput("field", "plan.held", data, "an object {consumer: [uses]}")
    found: dict[str, tuple[Use, ...]] = {}
    for consumer, uses in data.items():
        where = f"plan.held[{consumer}]"
        if not isinstance(uses, list | tuple):
            raise exceptions.InvalidInput("field", where, uses, "a list")
        found[names.consumer_name(consumer)] = tuple(
            serialization.from_plain(Use, use, f"{where}[{n}]", _CHECKS)
            for n, use in enumerate(uses)
        )
    return found


def _check_definition(definition: ProviderDefinition) -> None:
    """Raise unless figures, kinds and capacities are what inventories would be kept as."""
    check_readable(definition)
    _check_factors(definition)
    given = {record.resource_class: record for record in definition.inventories}
    if len(given) != len(definition.inventories):
        raise exceptions.InvalidInput(
            "repetition", definition.name, sorted(given), "each resource class once"
        )
    kept = inventories_of(definition.inventories, definition.kinds)
    again, kinds = to_records(kept)
    for record in again:
        if given.get(record.resource_class) != record:
            raise exceptions.InvalidInventory(
                f"{definition.name}: {record.resource_class}",
                given.get(record.resource_class),
                str(record),
            )
    if len(again) != len(given) or set(kinds) != set(definition.kinds):
        raise exceptions.InvalidInventory(
            definition.name, definition.kinds, "inventories that are kept as these figures"
        )


# --- checks against what is kept ------------------------------------------------------------------
#
# Whether what a plan says of definitions can be, given what is kept. Pure.
#
# A plan that was compared with what is kept says only what can be; one from a file that somebody
# edited may say anything. Here it is held to what
# :func:`~resource_objects.providers.definition.diff` holds a tree to: providers form trees, and
# shares keep the rules of
# :meth:`Provider.check_shares <resource_objects.providers.provider.Provider.check_shares>`.


#: Definitions by uuid, whole trees of them.
Definitions: TypeAlias = Mapping[str, ProviderDefinition]


def check_plan(changes: DefinitionChanges, had: Definitions, wanted: Definitions) -> None:
    """Raise unless a plan leads to trees that can be. Cost: linear in them.

    :param had: what is kept of the trees concerned
    :param wanted: what is there when all is done, every parent among them
    :raises InvalidPlan: naming the provider, and what is wrong with it
    :raises InvalidInput: as :func:`check_readable`
    """
    for definition in _wanted(changes):
        check_readable(definition)
        _check_factors(definition)
    roots = _roots(wanted)
    _check_order(changes, had)
    _check_shares(wanted, roots)


def _check_order(changes: DefinitionChanges, had: Definitions) -> None:
    """Raise unless parents are made before what is below them, and go after it."""
    made = {created.uuid for created in changes.creates}
    for created in changes.creates:
        if created.parent_uuid in made and created.parent_uuid != created.uuid:
            raise exceptions.InvalidPlan(created.name, "its parent is made after it")
        made.discard(created.uuid)
    gone: set[str | None] = set()
    for removal in changes.removals:
        if had[removal.uuid].parent_uuid in gone:
            raise exceptions.InvalidPlan(removal.name, "its parent would go before it")
        gone.add(removal.uuid)


def _check_factors(definition: ProviderDefinition) -> None:
    for share in definition.shares:
        if type(share.factor) is not int or not 1 <= share.factor <= MAX_FIGURE:
            raise exceptions.InvalidInput(
                "field",
                f"share factor of {definition.name}",
                share.factor,
                f"an integer from 1 to {MAX_FIGURE}",
            )


def _roots(wanted: Definitions) -> dict[str, str]:
    """Return the root of each provider, or raise if there is none, or it is too far up."""
    found: dict[str, tuple[str, int]] = {}  # with the levels above
    for uuid, definition in wanted.items():
        way: list[str] = []
        at: str | None = uuid
        seen: set[str] = set()
        while at is not None and at not in found:
            if at in seen:
                raise exceptions.InvalidPlan(definition.name, "it would be below itself")
            seen.add(at)
            way.append(at)
            at = wanted[at].parent_uuid
        root, depth = found[at] if at is not None else (way[-1], -1)
        for one in reversed(way):
            depth += 1
            found[one] = root, depth
        if depth > MAX_DEPTH:
            raise exceptions.InvalidPlan(
                definition.name, f"it would be {depth} levels deep, of at most {MAX_DEPTH}"
            )
    return {uuid: root for uuid, (root, _) in found.items()}


def _check_shares(wanted: Definitions, root_of: Mapping[str, str]) -> None:
    counted = {(uuid, one.resource_class) for uuid, d in wanted.items() for one in d.inventories}
    shares = [
        ((uuid, share.resource_class), (share.of_uuid, share.of_class))
        for uuid, definition in wanted.items()
        for share in definition.shares
    ]
    broken = broken_share(shares, root_of, counted)
    if broken is not None:
        name = wanted[broken.sharer[0]].name
        raise exceptions.InvalidPlan(name, f"its shares must {broken.rule}")
