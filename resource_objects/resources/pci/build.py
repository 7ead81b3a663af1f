"""From plain words to an amount of devices: :func:`devices`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from resource_objects import exceptions
from resource_objects.resources.pci import words
from resource_objects.resources.pci.amount import PCIAmount
from resource_objects.resources.pci.wish import DeviceRequest, DeviceSpec


def devices(
    kind: str | DeviceSpec | Iterable[str | DeviceSpec],
    count: int = 1,
    *,
    affinity: str = words.LEGACY,
    requester: str | None = None,
    alias: str | None = None,
    request_id: str | None = None,
    **also: Any,
) -> PCIAmount:
    """Return the amount of so many devices of a kind.

    Amounts add up: ``devices(...) + devices(...)``.

    :param kind: a resource class, ``"10de:2330"`` (``"10de:*"`` for all of a vendor), a
        :class:`DeviceSpec`, or several of them: each device is of any
    :param count: how many
    :param affinity: ``legacy``, ``preferred``, ``required`` or ``socket``: see
        :class:`DeviceRequest`
    :param requester: who asks, as it calls itself; so ``alias`` and ``request_id``
    :param also: what else each kind says, as :class:`DeviceSpec` has it: ``traits``, ``tags``,
        ``types``, ``address`` ...
    :raises InvalidAmount: for a count that is none, or no kind at all
    :raises InvalidText: for a kind that cannot be read
    :raises DuplicateKey: for what a kind says and ``also`` does too

    >>> print(devices("PGPU", 2, affinity="required") + devices("8086:154c", types=["type-VF"]))
    2*PGPU@required/8086.154c&type-VF
    >>> devices("PGPU", 0)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidAmount: count of devices: got 0, expected an integer from ...
    """
    if type(count) is not int or not 1 <= count <= words.MAX_DEVICES:
        raise exceptions.InvalidAmount(
            "count of devices", count, f"an integer from 1 to {words.MAX_DEVICES}"
        )
    request = DeviceRequest(
        [_spec(one, also) for one in _kinds(kind)],
        count,
        affinity,
        requester=requester,
        alias=alias,
        request_id=request_id,
    )
    return PCIAmount([request])


def _kinds(kind: object) -> list[Any]:
    if isinstance(kind, str | DeviceSpec):
        return [kind]
    found = words.listed(kind)
    if not isinstance(found, list):
        raise exceptions.InvalidAmount("kind of devices", kind, "a resource class such as PGPU")
    return found


def _spec(kind: object, also: Mapping[str, Any]) -> DeviceSpec:
    if isinstance(kind, DeviceSpec):
        return kind.replace(**also) if also else kind
    if not isinstance(kind, str):
        raise exceptions.InvalidAmount("kind of devices", kind, "a resource class such as PGPU")
    said = _said(kind)
    for name in said.keys() & also.keys():
        raise exceptions.DuplicateKey(f"{name} of devices", also[name], f"none beside {kind}")
    try:
        spec = DeviceSpec(**said)
    except exceptions.InvalidField as error:
        raise exceptions.InvalidText(
            "kind of devices", kind, "VENDOR:PRODUCT in hexadecimal digits, such as 10de:2330"
        ) from error
    return spec.replace(**also) if also else spec


def _said(kind: str) -> dict[str, str]:
    vendor, colon, product = kind.partition(":")
    if not colon:
        return {"resource_class": kind}
    ids = {"vendor_id": vendor, "product_id": product}
    return {name: id_ for name, id_ in ids.items() if id_ != "*"}
