"""The values of Placement and of a ledger, translated in both directions.

============================  =====================================================================
Placement                     ledger
============================  =====================================================================
consumer, a uuid              the consumer of that name; the uuid of a consumer with another name is
                              computed from the name (version 5), and other processes read the uuid
aggregate, a uuid             as with consumers
project, user                 the same; Placement requires both, and none is :data:`NO_OWNER`
consumer type                 the same; ``unknown`` is none
``max_unit`` 2147483647       no bound; the same applies to a bound above the total
``allocation_ratio``          exact to six decimal places; a 32-bit column is read as its shortest
                              decimal number
``COMPUTE_STATUS_DISABLED``   a disabled provider; the time is not known
generation                    the same number; claims raise it too
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
from resource_objects.providers.definition import ProviderDefinition
from resource_objects.providers.orders import Use
from resource_objects.resources.records import InventoryRecord

#: The largest integer in Placement's tables, which is also ``max_unit`` without a bound.
MAX_INTEGER = 2**31 - 1
#: The project and user that Placement itself stores for old consumers without one.
NO_OWNER = "00000000-0000-0000-0000-000000000000"
UNKNOWN_TYPE = "unknown"

#: Namespaces of the uuids that are computed from the names of consumers and of aggregates.
CONSUMERS = uuid.UUID("7c2c5a0e-2f0b-5d0e-9f57-6a4f6f0c8a11")
AGGREGATES = uuid.UUID("0d6a3c1b-5f1e-5b7e-8a44-1f7d2c9e6b22")
#: The maximum number of names that a process remembers.
_MAX_NAMES = 100_000

#: The start of a disabling, and of a consumer, of which the time is not known.
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class UuidNames:
    """The uuids of consumers, or of aggregates, and their names. Safe for use by several threads.

    >>> consumers = UuidNames(CONSUMERS)
    >>> key = consumers.uuid("job-1")
    >>> key, consumers.name(key)
    ('b4a07af6-e800-555f-82f7-587bee2e0796', 'job-1')
    """

    def __init__(self, namespace: uuid.UUID) -> None:
        self._namespace = namespace
        self._names: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def uuid(self, name: str) -> str:
        """Return the uuid of a name, and remember the name."""
        if names.is_uuid(name) and names.uuid_text(name) == name:
            return name
        key = str(uuid.uuid5(self._namespace, name))
        with self._lock:
            self._names[key] = name
            self._names.move_to_end(key)
            while len(self._names) > _MAX_NAMES:
                self._names.popitem(last=False)
        return key

    def name(self, uuid: str) -> str:
        """Return the name of a uuid; the uuid itself if this process does not remember one."""
        return self._names.get(uuid, uuid)


def time_from_header(value: str | None, default: datetime.datetime) -> datetime.datetime:
    """Return the time in a header, in UTC; ``default`` if the header has none.

    >>> print(time_from_header("Mon, 23 Nov 2026 22:58:04 GMT", EPOCH))
    2026-11-23 22:58:04+00:00
    """
    try:
        return email.utils.parsedate_to_datetime(value or "").astimezone(datetime.UTC)
    except ValueError:
        return default


# --- inventories ---

#: The keys of an inventory.
FIGURES = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


def inventory_from_placement(
    resource_class: str, figures: Mapping[str, Any], used: int, provider: str
) -> InventoryRecord:
    """Return an inventory as a ledger stores it.

    :param provider: the name of the provider
    :raises InvalidInventory: for an inventory that Placement accepts and a ledger does not: more
        reserved than the total, a ratio that is too precise or not above 0, a min_unit above the
        max_unit
    """
    total, reserved, min_unit = figures["total"], figures["reserved"], figures["min_unit"]
    largest = figures["max_unit"]
    max_unit = None if largest == MAX_INTEGER or largest > total else largest
    subject = f"inventory of {resource_class} at {provider}"
    if reserved > total:
        raise exceptions.InvalidInventory(subject, reserved, f"at most {total} reserved")
    if max_unit is not None and min_unit > max_unit:
        raise exceptions.InvalidInventory(subject, min_unit, f"a min_unit of at most {max_unit}")
    factor = figures["allocation_ratio"]
    try:
        millionths = ratio.to_millionths(ratio.ratio_from_float_column(factor))
    except exceptions.InvalidInput as error:
        raise exceptions.InvalidInventory(subject, factor, str(error)) from error
    return InventoryRecord(
        *(resource_class, total, reserved, min_unit, max_unit, figures["step_size"], millionths),
        (total - reserved) * millionths // ratio.MILLION,
        used,
    )


def inventories_to_placement(definition: ProviderDefinition) -> dict[str, dict[str, Any]]:
    """Return the inventories of a provider as Placement stores them, by resource class.

    :raises InvalidInventory: for a total below 1, which Placement does not accept
    """
    inventories: dict[str, dict[str, Any]] = {}
    for record in definition.inventories:
        if record.total < 1:
            subject = f"inventory of {record.resource_class} at {definition.name}"
            raise exceptions.InvalidInventory(subject, record.total, "a total from 1, in Placement")
        inventories[record.resource_class] = {
            "total": record.total,
            "reserved": record.reserved,
            "min_unit": record.min_unit,
            "max_unit": MAX_INTEGER if record.max_unit is None else record.max_unit,
            "step_size": record.step_size,
            "allocation_ratio": record.ratio_millionths / ratio.MILLION,
        }
    return inventories


# --- consumers ---


def sorted_uses(uses: Iterable[Use]) -> tuple[Use, ...]:
    """Return the allocations of a consumer by provider and class: Placement's have no order."""
    order = names.resource_class_order
    return tuple(sorted(uses, key=lambda use: (use.provider, order(use.resource_class))))


def to_placement(owner: str | None) -> str:
    """Return a project or user as Placement stores it."""
    return NO_OWNER if owner is None else owner


def from_placement(owner: str) -> str | None:
    """Return a project or user as a ledger stores it."""
    return None if owner == NO_OWNER else owner
