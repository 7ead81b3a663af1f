"""What a flavor and its image ask of devices: an amount.

A flavor says ``pci_passthrough:alias=a:2,b:1``; the NUMA policy that it or its image says
(``hw:pci_numa_affinity_policy``) wins over that of the alias.

What differs from Nova:

==================================  ================================================================
words                               Nova, and here
==================================  ================================================================
``pci_passthrough:alias=a``,        a bare ValueError; refused (InvalidAliasCount)
``=a:x``
``=a:0``, ``=a:-1``                 asks for nothing; refused (InvalidAliasCount)
==================================  ================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from resource_objects.fields import FrozenDict
from resource_objects.interop.nova import errors, pci_errors
from resource_objects.interop.nova.flavor_words import text_of
from resource_objects.interop.nova.pci_alias import Alias
from resource_objects.resources.pci import words
from resource_objects.resources.pci.amount import PCIAmount
from resource_objects.resources.pci.wish import DeviceRequest

__all__ = ["alias_requests", "flavor_devices", "pci_affinity"]

_NOTHING: Final[Mapping[str, Any]] = FrozenDict()
#: Where a flavor names its aliases.
_KEY: Final = "pci_passthrough:alias"
_POLICY: Final = "pci_numa_affinity_policy"


def alias_requests(
    text: str,
    aliases: Mapping[str, Alias],
    *,
    affinity: str | None = None,
    request_id: Callable[[], str] | None = None,
) -> PCIAmount:
    """Return the devices that a flavor asks for by alias.

    :param text: ``pci_passthrough:alias`` of the flavor: ``a:2,b:1``
    :param aliases: as :func:`.parse_alias` returns them
    :param affinity: the NUMA policy of flavor and image, in place of those of the aliases
    :param request_id: what makes an id for each request, such as a new uuid; None for none
    :raises InvalidAliasCount: if it is no list of names and counts from 1
    :raises UnknownAlias: if there is no such alias
    :raises InvalidAlias: if the aliases were not parsed
    :raises InvalidAffinityPolicy: for a policy that there is not

    >>> from resource_objects.interop.nova import parse_alias
    >>> aliases = parse_alias({"name": "gpu", "vendor_id": "10de", "product_id": "2330"})
    >>> asked = alias_requests("gpu:2", aliases, affinity="required")
    >>> asked.requests[0].count, asked.requests[0].alias, asked.requests[0].affinity
    (2, 'gpu', 'required')
    """
    if affinity is not None:
        _check_policy("affinity", affinity)
    if not isinstance(aliases, Mapping):
        raise pci_errors.InvalidAlias("aliases", aliases, "aliases as parse_alias() returns")
    found = []
    for name, count in _counts(text):
        alias = aliases.get(name)
        if alias is None:
            raise pci_errors.UnknownAlias(_KEY, name, f"one of {', '.join(aliases) or 'none'}")
        found.append(
            DeviceRequest(
                alias.specs,
                count,
                affinity or alias.affinity,
                alias=alias.name,
                request_id=None if request_id is None else request_id(),
            )
        )
    return PCIAmount(found)


def _counts(text: object) -> list[tuple[str, int]]:
    expected = f"name:count with commas between, counts from 1 to {words.MAX_DEVICES}"
    if not isinstance(text, str):
        raise pci_errors.InvalidAliasCount(_KEY, text, expected)
    found = []
    for one in text.split(","):
        name, _, digits = (part.strip() for part in one.partition(":"))
        is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
        count = int(digits) if is_number else 0
        if not name or not 1 <= count <= words.MAX_DEVICES:
            raise pci_errors.InvalidAliasCount(_KEY, text, expected)
        found.append((name, count))
    return found


def pci_affinity(
    extra_specs: Mapping[str, Any] = _NOTHING, image: Mapping[str, Any] = _NOTHING
) -> str | None:
    """Return the NUMA policy of devices that a flavor or its image says, None if neither does.

    :raises InvalidAffinityPolicy: for a policy that there is not
    :raises AffinityPolicyConflict: if they say different ones

    >>> pci_affinity({"hw:pci_numa_affinity_policy": "socket"})
    'socket'
    """
    for what, given in (("extra specs", extra_specs), ("image", image)):
        if not isinstance(given, Mapping):
            raise errors.NotWords(what, given, "a mapping of keys to text")
    ours, its = f"hw:{_POLICY}", f"hw_{_POLICY}"
    flavor, image_says = text_of(ours, extra_specs.get(ours)), text_of(its, image.get(its))
    if flavor and image_says and flavor != image_says:
        raise pci_errors.AffinityPolicyConflict(its, image_says, f"none, or {flavor} as the flavor")
    found = flavor or image_says
    if not found:
        return None
    _check_policy(ours if flavor else its, found)
    return found


def _check_policy(what: str, policy: object) -> None:
    if policy not in words.AFFINITIES:
        expected = f"one of {', '.join(words.AFFINITIES)}"
        raise pci_errors.InvalidAffinityPolicy(what, policy, expected)


def flavor_devices(
    aliases: Mapping[str, Alias],
    extra_specs: Mapping[str, Any] = _NOTHING,
    image: Mapping[str, Any] = _NOTHING,
    *,
    request_id: Callable[[], str] | None = None,
) -> PCIAmount | None:
    """Return the devices that a flavor and its image ask for, None if they ask for none.

    :param aliases: as :func:`.parse_alias` returns them
    :param extra_specs: of the flavor, text by key; other keys are left alone
    :param image: the image's properties, text by key
    :param request_id: as in :func:`alias_requests`
    :raises InvalidWords: of the type of the first rule that is broken

    >>> from resource_objects.interop.nova import parse_alias
    >>> aliases = parse_alias({"name": "gpu", "vendor_id": "10de", "product_id": "2330"})
    >>> asked = flavor_devices(aliases, {"pci_passthrough:alias": "gpu:1"},
    ...     {"hw_pci_numa_affinity_policy": "preferred"})
    >>> asked.requests[0].affinity
    'preferred'
    """
    affinity = pci_affinity(extra_specs, image)
    text = text_of(_KEY, extra_specs.get(_KEY))
    if not text:
        return None
    return alias_requests(text, aliases, affinity=affinity, request_id=request_id)
