"""Placement's words and the ledger's: one table, both ways.

============================  =====================================================================
Placement                     here
============================  =====================================================================
consumer, a uuid              the consumer of that name; one whose name is no uuid has the uuid
                              (version 5) that is made of the name, and other processes that read
                              it see that uuid
aggregate, a uuid             the same as with consumers
project, user                 the same; :data:`NOBODY`, which Placement itself gives consumers
                              of old, where none is said
consumer type                 the same; none where it is ``unknown``
``max_unit`` 2147483647       no bound, and so is one above the total
``allocation_ratio``          exact in six places; of a 32-bit column its shortest form
``COMPUTE_STATUS_DISABLED``   a provider out of service, since an unknown time
generation                    the same number, which claims raise too
============================  =====================================================================
"""

from __future__ import annotations

import datetime
import email.utils
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from resource_objects import exceptions, names, ratio
from resource_objects.providers.disabled import TRAIT, Disabled
from resource_objects.providers.orders import Use
from resource_objects.resources.records import InventoryRecord

#: The largest figure and amount that Placement counts, and its ``max_unit`` without a bound.
MOST = 2**31 - 1
#: The project and user of a consumer of whom nothing is said.
NOBODY = "00000000-0000-0000-0000-000000000000"
UNKNOWN_TYPE = "unknown"

#: Of which the uuids of consumers and of aggregates are made whose names are none.
CONSUMERS = uuid.UUID("7c2c5a0e-2f0b-5d0e-9f57-6a4f6f0c8a11")
AGGREGATES = uuid.UUID("0d6a3c1b-5f1e-5b7e-8a44-1f7d2c9e6b22")
#: So many names are remembered.
_REMEMBERED = 100_000

#: Since when a provider is out of service of which a trait says so: nobody knows.
LONG_AGO = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Names:
    """Names of consumers, or of aggregates, and their uuids. Safe for use by several threads.

    >>> known = Names(CONSUMERS)
    >>> made = known.uuid("job-1")
    >>> made, known.name(made)
    ('b4a07af6-e800-555f-82f7-587bee2e0796', 'job-1')
    """

    def __init__(self, space: uuid.UUID) -> None:
        self._space = space
        self._names: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def uuid(self, name: str) -> str:
        """Return the uuid of a name, by which it is known from now on."""
        if names.is_uuid(name) and names.uuid_text(name) == name:
            return name
        made = str(uuid.uuid5(self._space, name))
        with self._lock:
            self._names[made] = name
            self._names.move_to_end(made)
            while len(self._names) > _REMEMBERED:
                self._names.popitem(last=False)
        return made

    def name(self, uuid: str) -> str:
        """Return the name of a uuid as far as it is known, else the uuid."""
        return self._names.get(uuid, uuid)


def moment_of(told: str | None, otherwise: datetime.datetime) -> datetime.datetime:
    """Return the time that a header says, in UTC.

    >>> print(moment_of("Mon, 23 Nov 2026 22:58:04 GMT", LONG_AGO))
    2026-11-23 22:58:04+00:00
    """
    try:
        return email.utils.parsedate_to_datetime(told or "").astimezone(datetime.UTC)
    except ValueError:
        return otherwise


def disabled_of(traits: Iterable[str]) -> Disabled | None:
    """Return that a provider is out of service, if a trait says it."""
    if TRAIT not in traits:
        return None
    return Disabled(reason=f"it has {TRAIT}", since=LONG_AGO)


# --- inventories ---

#: What an inventory is told by.
FIGURES = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


def record_of(name: str, told: Mapping[str, Any], used: int, where: str) -> InventoryRecord:
    """Return figures as the ledger keeps them.

    :param where: the name of the provider
    :raises InvalidInventory: for what Placement takes and no ledger does: more reserved than there
        is, a ratio that is not above 0 or too precise, a min_unit above the max_unit
    """
    total, reserved = told["total"], told["reserved"]
    least, most = told["min_unit"], told["max_unit"]
    bound = None if most == MOST or most > total else most
    what = f"inventory of {name} at {where}"
    if reserved > total:
        raise exceptions.InvalidInventory(what, reserved, f"at most {total} reserved")
    if bound is not None and least > bound:
        raise exceptions.InvalidInventory(what, least, f"a min_unit of at most {bound}")
    try:
        millionths = ratio.to_millionths(ratio.ratio_from_float_column(told["allocation_ratio"]))
    except exceptions.InvalidInput as error:
        raise exceptions.InvalidInventory(what, told["allocation_ratio"], str(error)) from error
    return InventoryRecord(
        *(name, total, reserved, least, bound, told["step_size"], millionths),
        (total - reserved) * millionths // ratio.MILLION,
        used,
    )


def told_record(record: InventoryRecord, where: str) -> dict[str, Any]:
    """Return figures as Placement takes them.

    :raises InvalidInventory: for nothing at all, which it has no inventory of
    """
    if record.total < 1:
        what = f"inventory of {record.resource_class} at {where}"
        raise exceptions.InvalidInventory(what, record.total, "a total from 1, for Placement")
    return {
        "total": record.total,
        "reserved": record.reserved,
        "min_unit": record.min_unit,
        "max_unit": MOST if record.max_unit is None else record.max_unit,
        "step_size": record.step_size,
        "allocation_ratio": record.ratio_millionths / ratio.MILLION,
    }


def in_order(uses: Iterable[Use]) -> tuple[Use, ...]:
    """Return what a consumer holds by providers and classes: what tells it has no order."""
    order = names.resource_class_order
    return tuple(sorted(uses, key=lambda use: (use.provider, order(use.resource_class))))


def said(value: str | None) -> str:
    """Return a project or user as Placement takes it."""
    return NOBODY if value is None else value


def heard(value: str | None) -> str | None:
    """Return a project or user as the ledger keeps it."""
    return None if value == NOBODY else value
