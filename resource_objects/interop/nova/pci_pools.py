"""``compute_nodes.pci_stats``: how many devices of each kind a host has free, read and written.

Both forms are read and written: ``PciDevicePoolList`` (1.0 and 1.1), which Nova has kept since
Juno, and the list of dicts from before. What is the same by another name:

==============================  ===================================================================
Nova                            here
==============================  ===================================================================
``vendor_id``, ``product_id``,  the same; hexadecimal digits in lower case
``numa_node``, ``count``
``dev_type``                    ``type``; a pool without one (before Juno) is of ``type-PCI``
``address``                     ``address``: that of the device, or of the physical function that
                                its devices were split off
``remote_managed``              the same. Written of physical functions and of those split off
                                them, of others only if it is so, as Nova does. Words that are
                                neither yes nor no are no
``live_migratable``,            the same, where they are ``true`` or ``false``; other words match no
``one_time_use``                request that Nova makes, and are tags
``rp_uuid``                     the fact ``rp_uuid``: the provider that they are in Placement
``resource_class``, ``traits``  the same. Nova keeps neither in its pools, and matches by neither:
                                written only where the class is not that of the ids
any other name                  a tag: ``physical_network``, ``parent_ifname``, ``trusted``,
                                ``managed`` ...; one that is null is not there, for no request can
                                tell
==============================  ===================================================================

What is read and written again in the same form is what it was: the ``facts`` keep what has no
field (in text, ``null`` for null and nothing for a name that is not there). In the list of dicts
numbers among the tags come out as text, which Nova makes of them too. A ``rp_uuid`` that is null is
not written.

Nova has no word for ``class_code``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from resource_objects.exceptions import (
    CannotDowngrade,
    InvalidInput,
    InvalidInventory,
    InvalidPrimitive,
)
from resource_objects.interop.nova import _pci_words, _primitive
from resource_objects.interop.nova._versions import POOL, POOLS, pool_versions
from resource_objects.resources.pci import words
from resource_objects.resources.pci.device import MAX_NODE
from resource_objects.resources.pci.pool import DevicePool

__all__ = ["dump_pci_pools", "load_pci_pools"]

_ROOT: Final = "pci_stats"
#: Names that are fields in Nova too.
_IDS: Final = ("vendor_id", "product_id")
_FIELDS: Final = (*_IDS, "numa_node", "count")
#: Names that are fields here, in other words: facts keep the words.
_KNOWN: Final = (
    *_IDS,
    "dev_type",
    "address",
    "remote_managed",
    "live_migratable",
    "one_time_use",
    "resource_class",
    "traits",
)
#: What may be left unsaid, for no version or not the one that is asked for has a word for it.
_OPTIONAL: Final = ("class_code", "facts", "numa_node")
#: First version that says the NUMA node.
_NODE: Final = 1


# --- reading --------------------------------------------------------------------------------------


def load_pci_pools(
    source: str | bytes | Mapping[str, Any] | Iterable[Mapping[str, Any]] | None,
) -> tuple[DevicePool, ...]:
    """Return the pools of a host, in their order.

    :param source: JSON text as in ``compute_nodes.pci_stats``, or what it stands for; None for none
    :raises InvalidPrimitive: if it is neither such a list of objects, in any version, nor a list of
        dicts

    Cost: 50 microseconds for each pool.

    >>> column = '''[{"vendor_id": "8086", "product_id": "154c", "count": 6, "numa_node": 0,
    ...     "dev_type": "type-VF", "address": "0000:04:00.0", "physical_network": "red"}]'''
    >>> (pool,) = load_pci_pools(column)
    >>> pool.type, pool.count, dict(pool.tags)
    ('type-VF', 6, {'physical_network': 'red'})
    """
    document = _primitive.parsed(source, _ROOT)
    if document is None:
        return ()
    is_versioned = isinstance(document, Mapping) and _primitive.is_enveloped(document)
    found = []
    for place, given in enumerate(_pools_of(document, is_versioned)):
        try:
            found.append(_versioned(given) if is_versioned else _plain(given))
        except InvalidInput as error:
            _primitive.at(f"{_ROOT}[{place}]", error)
    return tuple(found)


def _pools_of(document: Any, is_versioned: bool) -> Iterable[Any]:
    if is_versioned:
        data = _primitive.opened(document, _ROOT, POOLS)[0]
        _primitive.only(data, {"objects"}, f"{_ROOT}.")
        return _primitive.sequence(data.get("objects"), f"{_ROOT}.objects")
    if isinstance(document, Mapping):  # a list of one, as Nova reads it
        return [document] if document else []
    return _primitive.sequence(words.listed(document), _ROOT)


def _versioned(given: object) -> DevicePool:
    data, _ = _primitive.opened(given, "", POOL)
    _primitive.only(data, {*_FIELDS, "tags"})
    tags = _pci_words.texts(data.get("tags", {}), "tags")
    for name in _FIELDS:
        if name in tags:
            raise InvalidPrimitive(f"tags.{name}", tags[name], "no tag of that name")
    return _pool(data, tags, {})


def _plain(given: object) -> DevicePool:
    data = _primitive.mapping(given, "")
    tags = {name: value for name, value in data.items() if name not in _FIELDS}
    facts = {} if "numa_node" in data else {"numa_node": ""}
    return _pool(data, _pci_words.texts(tags, "tags"), facts)


def _pool(
    data: Mapping[Any, Any], tags: dict[str, str | None], facts: Mapping[str, str]
) -> DevicePool:
    """Return a pool of Nova's fields and tags, with facts of what no field tells."""
    node = data.get("numa_node")
    said = {**{name: _pci_words.label(data.get(name), name) for name in _IDS}, **tags}
    provider = said.pop(_pci_words.PROVIDER, None)
    pool = DevicePool(
        **_values(said),
        count=_primitive.number(data.get("count"), "count", 0, words.MAX_DEVICES),
        numa_node=None if node is None else _primitive.number(node, "numa_node", 0, MAX_NODE),
        facts=facts if provider is None else {**facts, _pci_words.PROVIDER: provider},
    )
    null = {name for name, value in said.items() if value is None}
    kept = _pci_words.remembered(said, _written(pool), {*_KNOWN} | null)
    return pool.replace(facts={**pool.facts, **kept}) if kept else pool


def _values(said: Mapping[str, str | None]) -> dict[str, Any]:
    """Return what ids and tags of Nova's say, by field."""
    get = said.get
    vendor_id, product_id = (_pci_words.lower(get(name)) for name in _IDS)
    name, traits = get("resource_class"), get("traits")
    flags = {name: _pci_words.flag(get(name)) for name in ("live_migratable", "one_time_use")}
    unread = {name for name, value in flags.items() if value is None}
    known = {*_KNOWN} - unread
    return {
        "vendor_id": vendor_id,
        "product_id": product_id,
        "type": get("dev_type") or words.PCI,
        "address": get("address"),
        "remote_managed": _pci_words.loose_flag(get("remote_managed")),
        "live_migratable": flags["live_migratable"],
        "one_time_use": bool(flags["one_time_use"]),
        "resource_class": _pci_words.resource_class(name) if name else None,
        "traits": _pci_words.traits(traits or ""),
        "tags": {
            name: value for name, value in said.items() if value is not None and name not in known
        },
    }


# --- writing --------------------------------------------------------------------------------------


def dump_pci_pools(
    pools: Iterable[DevicePool],
    version: str | Mapping[str, str] | None = None,
    *,
    plain: bool = False,
    leave_out: Collection[str] = (),
) -> str:
    """Return pools as ``compute_nodes.pci_stats`` has them.

    :param version: of ``PciDevicePool``, such as ``"1.0"``; or what a receiver reads, ``{name:
        version}``; None for the newest
    :param plain: as a list of dicts, which no version is needed for
    :param leave_out: what may be left unsaid where there is no word for it: ``class_code``,
        ``facts`` that are not Nova's, ``numa_node``
    :raises CannotDowngrade: if it cannot be said
    :raises UnsupportedVersion: if there is no such version
    :raises InvalidInventory: if these are no pools
    :raises InvalidField: if something else is to be left out

    >>> pools = [DevicePool("10de", "2330", 4, numa_node=1, tags={"trusted": "true"})]
    >>> load_pci_pools(dump_pci_pools(pools)) == tuple(pools)
    True
    >>> dump_pci_pools(pools, "1.0")
    Traceback (most recent call last):
    resource_objects.exceptions.CannotDowngrade: PciDevicePool cannot be said in version 1.0: ...
    """
    versions = pool_versions(version)
    minor = _NODE if plain else versions[POOL]
    allowed = _primitive.left_out(leave_out, _OPTIONAL)
    found = []
    for place, pool in enumerate(_listed(pools)):
        for name, reason in _unsaid(pool, minor):
            if name not in allowed:
                raise CannotDowngrade(POOL, f"1.{minor}", f"pool {place} {reason}")
        found.append(_as_plain(pool) if plain else _as_versioned(pool, minor))
    if plain:
        return _primitive.written(found)
    return _primitive.written(_primitive.enveloped(POOLS, versions[POOLS], {"objects": found}))


def _listed(pools: object) -> list[DevicePool]:
    found = words.listed(pools)
    if not isinstance(found, list) or not all(isinstance(one, DevicePool) for one in found):
        raise InvalidInventory("pools", pools, "DevicePools")
    return found


def _unsaid(pool: DevicePool, minor: int) -> Iterator[tuple[str, str]]:
    """Yield what there is no word for, and why."""
    if pool.class_code:
        yield "class_code", f"has a class code, {pool.class_code}"
    facts = _pci_words.unknown(pool.facts, (*_KNOWN, "numa_node", _pci_words.PROVIDER))
    if facts:
        yield "facts", f"has facts that are no words of Nova's: {', '.join(facts)}"
    if minor < _NODE and pool.numa_node is not None:
        yield "numa_node", f"has a NUMA node, {pool.numa_node}"


def _as_versioned(pool: DevicePool, minor: int) -> dict[str, Any]:
    tags = _said(pool)
    data: dict[str, Any] = {name: tags.pop(name) for name in _IDS}
    if minor >= _NODE:
        data["numa_node"] = pool.numa_node
    return _primitive.enveloped(POOL, minor, {**data, "count": pool.count, "tags": tags})


def _as_plain(pool: DevicePool) -> dict[str, Any]:
    data = {**_said(pool), "numa_node": pool.numa_node, "count": pool.count}
    if pool.numa_node is None and pool.facts.get("numa_node") == "":
        del data["numa_node"]
    return data


def _said(pool: DevicePool) -> dict[str, Any]:
    """Return the ids and tags of a pool: as they were read, if that is still true."""
    written = _written(pool)
    known = pool.facts.keys() & ({*_KNOWN} | _pci_words.nulls(pool.facts)) - {_pci_words.PROVIDER}
    if not known:
        return written
    recalled = _pci_words.recalled(written, pool.facts, known)
    said = {name: value for name, value in recalled.items() if name != _pci_words.PROVIDER}
    try:
        is_true = pool == DevicePool(
            **_values(said), count=pool.count, numa_node=pool.numa_node, facts=pool.facts
        ).replace(class_code=pool.class_code)
    except InvalidInput:
        is_true = False
    return recalled if is_true else written


def _written(pool: DevicePool) -> dict[str, Any]:
    """Return the ids and tags of a pool as Nova writes them today."""
    said: dict[str, Any] = {
        "vendor_id": pool.vendor_id,
        "product_id": pool.product_id,
        "dev_type": pool.type,
        "address": pool.address,
        "one_time_use": _pci_words.YES if pool.one_time_use else None,
        "traits": ",".join(sorted(pool.traits)) or None,
        _pci_words.PROVIDER: pool.facts.get(_pci_words.PROVIDER),
    }
    if pool.type != words.PCI or pool.remote_managed:
        said["remote_managed"] = _pci_words.flag_text(pool.remote_managed)
    if pool.live_migratable is not None:
        said["live_migratable"] = _pci_words.flag_text(pool.live_migratable)
    if pool.resource_class != words.custom_class(pool.vendor_id, pool.product_id):
        said["resource_class"] = pool.resource_class
    return {name: value for name, value in {**said, **pool.tags}.items() if value is not None}
