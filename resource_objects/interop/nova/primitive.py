"""Reading and writing Nova's JSON: its envelopes, and numbers that are what they have to be.

What is read is JSON text, what that text stands for, or an object of Nova's, of which the primitive
is read that it makes of itself: :func:`parsed` and :func:`entries` make one of the three, so that
each reader knows the primitive alone and Nova is never imported.

Reading knows one error, :class:`~resource_objects.exceptions.InvalidInput`: it names the path
inside the document, the value there and what was expected. Paths are put together where an error
passes, not before, so that they cost nothing in a document that is in order.

Nova has words that no value here has, and several words for the same. What is written again as it
was read needs them, so the ``facts`` of a value keep them by name: text as it was, and in JSON what
would not be told apart from that (:func:`remembered`, :func:`recalled`).
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NoReturn, Protocol, TypeVar

import os_resource_classes
from oslo_utils import strutils

from resource_objects import base, fields, names
from resource_objects.exceptions import CannotDowngrade, InvalidInput
from resource_objects.interop.nova.cpus import parse_cpu_spec
from resource_objects.resources.numa.cpuset import MAX_ID
from resource_objects.resources.pci.device import listed
from resource_objects.resources.traits import standard_traits

_invalid_primitive = functools.partial(InvalidInput, "primitive")

_NAME, _NAMESPACE, _VERSION, _DATA = (
    f"nova_object.{part}" for part in ("name", "namespace", "version", "data")
)
#: What every path in a topology begins with: the column.
ROOT: Final = "numa_topology"

_V = TypeVar("_V", bound=base.ResourceObject)

_INT: Final = {int}
_SEQUENCES: Final = (list, tuple, set, frozenset)
_LIST: Final = {list}
#: What JSON itself gives.
_OF_JSON: Final = frozenset({dict, list, str, int, float, bool, type(None)})


# --- versions ---

HOST, HOST_CELL, PAGES, NETWORKS = (
    "NUMATopology",
    "NUMACell",
    "NUMAPagesTopology",
    "NetworkMetadata",
)
GUEST, GUEST_CELL = "InstanceNUMATopology", "InstanceNUMACell"

POOLS, POOL = "PciDevicePoolList", "PciDevicePool"
DEVICES, DEVICE = "PciDeviceList", "PciDevice"
REQUESTS, REQUEST = "InstancePCIRequests", "InstancePCIRequest"
FLAVOR, IMAGE, PROPERTIES = "Flavor", "ImageMeta", "ImageMetaProps"
NODE, HYPERVISOR = "ComputeNode", "HVSpec"
METRIC_LIST, METRIC = "MonitorMetricList", "MonitorMetric"

#: Newest version of each in Nova 34, by its second number: the first is 1. Of those that are
#: written Nova 32 and 33 have the same, and read it; so nothing else is written.
NEWEST: Final = {
    HOST: 2,
    HOST_CELL: 5,
    PAGES: 1,
    NETWORKS: 0,
    GUEST: 3,
    GUEST_CELL: 6,
    POOLS: 1,
    POOL: 1,
    DEVICES: 3,
    DEVICE: 7,
    REQUESTS: 1,
    REQUEST: 4,
    FLAVOR: 2,
    IMAGE: 8,
    PROPERTIES: 44,
    NODE: 19,
    HYPERVISOR: 2,
    METRIC_LIST: 1,
    METRIC: 1,
}

#: ``{name: {version: its second number}}`` of what can be read.
KNOWN: Final = {
    name: {f"1.{minor}": minor for minor in range(newest + 1)} for name, newest in NEWEST.items()
}


class NovaObject(Protocol):
    """An object of Nova's: a versioned object, which can say what goes over a wire."""

    def obj_to_primitive(self) -> Any:
        """Return its wire form."""


#: What a document comes as: JSON text, what it stands for, or an object of Nova's.
Document = str | bytes | Mapping[str, Any] | NovaObject


# --- documents ------------------------------------------------------------------------------------


def parsed(source: object, what: str) -> Any:
    """Return what JSON text says, or an object of Nova's; anything else is returned as it is.

    :param source: an object is known by its ``obj_to_primitive()``
    :raises InvalidInput: if text is no JSON, or an object is none that a wire can carry

    >>> parsed('{"count": 1}', "pool"), parsed({"count": 1}, "pool")
    ({'count': 1}, {'count': 1})
    """
    if not isinstance(source, str | bytes | bytearray):
        return source if type(source) in _OF_JSON else _primitive_of(source, what)
    try:
        return json.loads(source)
    except RecursionError:
        raise _invalid_primitive(what, source, "JSON that is not nested so deep") from None
    except ValueError as error:
        raise _invalid_primitive(what, source, f"JSON: {error}") from None


def _primitive_of(source: Any, what: str) -> Any:
    """Return the primitive that an object makes of itself; what makes none is returned as it is."""
    if isinstance(source, type) or not callable(getattr(source, "obj_to_primitive", None)):
        return source
    try:
        primitive = source.obj_to_primitive()
    except Exception as error:  # a foreign object fails in its own ways
        raise _invalid_primitive(
            what, source, f"an object that a wire can carry: {error}"
        ) from error
    if not isinstance(primitive, Mapping) or _DATA not in primitive:
        raise _invalid_primitive(what, type(source).__name__, "an object of Nova's")
    return primitive


def entries(document: object, what: str) -> list[Any]:
    """Return the entries of a list, or of anything that can be gone through; objects parsed.

    :raises InvalidInput: if it is none
    """
    return [
        one if type(one) in _OF_JSON else _primitive_of(one, f"{what}[{place}]")
        for place, one in enumerate(sequence(listed(document), what))
    ]


def read(source: object) -> dict[Any, Any]:
    """Return the document of JSON text, of a mapping that was JSON, or of an object of Nova's."""
    return mapping(parsed(source, ROOT), ROOT)


def cells_of(
    source: object,
    topology: str,
    cell: str,
    known: Collection[str],
    of_plain: Callable[[object], dict[Any, Any]],
) -> tuple[dict[Any, Any], list[tuple[dict[Any, Any], int]]]:
    """Return the data of a topology, and of each of its cells with its version.

    A plain dict, from before Liberty, is of version 0; ``of_plain`` says a cell of it in the names
    of later ones.

    :param known: the fields a topology may have
    """
    data, plain = read(source), True
    if is_enveloped(data):
        data, plain = opened(data, ROOT, topology)[0], False
    only(data, known, f"{ROOT}.")
    found = []
    for place, given in enumerate(sequence(data.get("cells"), f"{ROOT}.cells")):
        try:
            found.append((of_plain(given), 0) if plain else opened(given, "", cell))
        except InvalidInput as error:
            if not error.is_about("primitive"):
                raise
            at(f"{ROOT}.cells[{place}]", error)
    return data, found


def is_enveloped(data: Mapping[Any, Any]) -> bool:
    """Return whether this is meant as the wire form of a versioned object."""
    return any(key in data for key in (_NAME, _NAMESPACE, _VERSION, _DATA))


def name_of(envelope: Mapping[Any, Any]) -> Any:
    """Return which object an envelope says it has."""
    return envelope.get(_NAME)


def opened(primitive: object, what: str, name: str) -> tuple[dict[Any, Any], int]:
    """Return the data of a versioned object, and the second number of its version.

    What has changed, which the object may also tell, is not looked at.
    """
    try:
        envelope: Any = primitive
        if envelope[_NAME] == name and envelope[_NAMESPACE] == "nova":
            data = envelope[_DATA]
            if type(data) is dict:
                return data, KNOWN[name][envelope[_VERSION]]
    except (LookupError, TypeError):
        pass  # it is another thing, or a mapping of another type: look again, slowly
    return _opened(mapping(primitive, what), f"{what}." if what else "", name)


def _opened(envelope: Mapping[Any, Any], place: str, name: str) -> tuple[dict[Any, Any], int]:
    for key, expected in ((_NAME, name), (_NAMESPACE, "nova")):
        if envelope.get(key) != expected:
            raise _invalid_primitive(f"{place}{key}", envelope.get(key), expected)
    version = envelope.get(_VERSION)
    minor = KNOWN[name].get(version) if isinstance(version, str) else None
    if minor is None:
        known = ", ".join(KNOWN[name])
        raise _invalid_primitive(f"{place}{_VERSION}", version, f"a version that is known: {known}")
    return mapping(envelope.get(_DATA), f"{place}{_DATA}"), minor


def enveloped(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the wire form of a versioned object of Nova's, in its newest version."""
    return {_NAME: name, _NAMESPACE: "nova", _VERSION: f"1.{NEWEST[name]}", _DATA: data}


def cannot_say(name: str, reason: str) -> CannotDowngrade:
    """Return the error of what Nova has no word for."""
    return CannotDowngrade(name, f"1.{NEWEST[name]}", reason)


def written(document: dict[str, Any] | list[Any]) -> str:
    """Return a document as the text that a column holds."""
    return json.dumps(document)


# --- what is inside -------------------------------------------------------------------------------


def mapping(value: object, what: str) -> dict[Any, Any]:
    """Return an object of JSON."""
    if type(value) is dict:
        return value
    if not isinstance(value, Mapping):
        raise _invalid_primitive(what, value, "an object (names and values)")
    return dict(value)


def sequence(value: object, what: str) -> list[Any] | tuple[Any, ...]:
    """Return a list of JSON."""
    if not isinstance(value, list | tuple):
        raise _invalid_primitive(what, value, "a list")
    return value


def ids(value: object, what: str) -> tuple[int, ...]:
    """Return numbers of CPUs or cells, ascending. Cost: 1 microsecond for 16."""
    given: Any = value
    if type(given) in _SEQUENCES:
        if not given:
            return ()
        if {*map(type, given)} == _INT:
            found = sorted({*given})
            if found[0] >= 0 and found[-1] <= MAX_ID:
                return tuple(found)
    raise _invalid_primitive(what, value, f"a list of numbers from 0 to {MAX_ID}")


def groups_of_ids(value: object, what: str) -> tuple[tuple[int, ...], ...]:
    """Return several sets of CPUs in one order, without empty ones."""
    groups = sequence(value, what)
    if {*map(type, groups)} <= _LIST:
        ids([*itertools.chain.from_iterable(groups)], what)  # all at once
        return tuple(sorted([tuple(sorted(group)) for group in groups if group]))
    return tuple(sorted([found for given in groups if (found := ids(given, what))]))


def number(value: object, what: str, low: int, high: int) -> int:
    """Return a whole number in a range."""
    if type(value) is not int or not low <= value <= high:
        raise _invalid_primitive(what, value, f"an integer from {low} to {high}")
    return value


def only(data: Mapping[Any, Any], known: Collection[str], place: str = "") -> None:
    """Refuse what is not known: passed by, it might be a known name misspelled."""
    if not data.keys() <= known:  # type: ignore[operator]
        name = next(name for name in data if name not in known)
        expected = f"no such field; there are {', '.join(sorted(known))}"
        raise _invalid_primitive(f"{place}{name}", data[name], expected)


def plain_cell(
    value: object, known: Collection[str], known_memory: Collection[str]
) -> tuple[dict[str, Any], Mapping[Any, Any], Mapping[Any, Any]]:
    """Return a cell from before Liberty: what each has in the names of later ones, all, its memory.

    :param known: the fields that it may have, ``known_memory`` those of its memory
    """
    plain = mapping(value, "")
    only(plain, known)
    memory = mapping(plain.get("mem", {}), "mem")
    only(memory, known_memory, "mem.")
    cell = {
        "id": plain.get("id"),
        "cpuset": cpu_list(plain.get("cpus", ""), "cpus"),
        "memory": memory.get("total", 0),
    }
    return cell, plain, memory


def cpu_list(value: object, what: str) -> tuple[int, ...]:
    """Return the CPUs of a list in text, as Nova wrote them before Liberty."""
    try:
        return parse_cpu_spec(value, what)  # type: ignore[arg-type]  # it refuses what is no text
    except InvalidInput as error:
        raise _invalid_primitive(what, value, error.expected) from None


def left_out(names: Collection[str], optional: Collection[str]) -> frozenset[str]:
    """Return what may be left unsaid.

    :raises InvalidInput: if something is named that has to be said
    """
    if isinstance(names, str) or not all(name in optional for name in names):
        raise InvalidInput("field", "leave_out", names, f"some of {', '.join(optional)}")
    return frozenset(names)


# --- errors ---------------------------------------------------------------------------------------


def at(place: str, error: InvalidInput) -> NoReturn:
    """Raise an error again as one of reading, with the place it was met at.

    What another module found wrong is told in its words, after the place.
    """
    join = ": " if not error.is_about("primitive") else "." if error.what else ""
    raise _invalid_primitive(f"{place}{join}{error.what}", error.value, error.expected) from None


# --- objects --------------------------------------------------------------------------------------


def bounds(cls: type[base.ResourceObject], name: str) -> tuple[int, int]:
    """Return the least and the most that a field of whole numbers takes."""
    kind: Any = cls.fields[name]._type
    return kind.minimum, kind.maximum


def maker(cls: type[_V]) -> Callable[..., _V]:
    """Return a function that makes an object of a class from all its fields, checked already.

    :func:`ids` and :func:`number` return checked values; only conditions on several fields remain.
    """

    def make(**values: Any) -> _V:
        made = cls._construct(**values)
        made._validate()
        return made

    return make


#: Text by name, None for null.
Texts = Mapping[str, str | None]

#: As what ``facts`` keep that a name was not said, or was said to be null.
_ABSENT, _NULL = "", "null"
#: The words that Nova writes for yes and no.
YES, NO = "true", "false"
#: What the ``facts`` of a pool and of a device call their provider in Placement.
PROVIDER: Final = "rp_uuid"


# --- text -----------------------------------------------------------------------------------------


def texts(given: object, what: str) -> dict[str, str | None]:
    """Return an object of JSON whose values are text or null; numbers become text, as in Nova."""
    found: dict[str, str | None] = {}
    for name, value in mapping(given, what).items():
        if not isinstance(name, str):
            raise _invalid_primitive(what, name, "names that are text")
        found[name] = text(value, f"{what}.{name}")
    return found


def text(value: object, what: str) -> str | None:
    """Return text or null; a number is text, as Nova's fields make it."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, str | float) or (
        isinstance(value, int) and abs(value) <= fields.MAX_AMOUNT
    ):
        return str(value)
    raise _invalid_primitive(what, value, "text or null")


def label(value: object, what: str) -> str | None:
    """Return a name that people give, or null.

    :raises InvalidInput: if it is none
    """
    found = text(value, what)
    if found is None:
        return None
    try:
        return names.label(found)
    except InvalidInput as error:
        if not error.is_about("name"):
            raise
        raise _invalid_primitive(what, value, error.expected) from None


def lower(said: str | None) -> str | None:
    """Return text in lower case."""
    return None if said is None else said.lower()


# --- yes and no -----------------------------------------------------------------------------------


def flag(said: str | None) -> bool | None:
    """Return what ``true`` and ``false`` say, whatever their case; None for anything else.

    >>> flag("True"), flag("false"), flag("yes")
    (True, False, None)
    """
    return {YES: True, NO: False}.get(lower(said) or "")


def loose_flag(said: str | None) -> bool:
    """Return whether a word says yes, as Nova reads ``remote_managed``: unknown words say no.

    >>> loose_flag("yes"), loose_flag("maybe"), loose_flag(None)
    (True, False, False)
    """
    return said is not None and bool(strutils.bool_from_string(said))


def flag_text(value: bool) -> str:
    """Return the word that Nova writes for yes and no."""
    return YES if value else NO


# --- names in Placement ---------------------------------------------------------------------------


def resource_class(said: str) -> str:
    """Return the resource class that Nova makes of a word: upper case, ``CUSTOM_``.

    :raises InvalidInput: if it makes none

    >>> resource_class("pgpu"), resource_class("gpu-vf"), resource_class("custom_fpga")
    ('PGPU', 'CUSTOM_GPU_VF', 'CUSTOM_FPGA')
    """
    name = said.upper()
    if name not in os_resource_classes.STANDARDS and not name.startswith(names.CUSTOM_PREFIX):
        name = str(os_resource_classes.normalize_name(name))  # type: ignore[no-untyped-call]
    return names.resource_class_name(name)


def traits(said: str) -> frozenset[str]:
    """Return the traits that Nova makes of a list in text: as it has them in Placement.

    A space beside a comma is part of the name, and so becomes ``_``.

    :raises InvalidInput: if one of them makes none

    >>> sorted(traits("blue,HW_NIC_SRIOV,custom_big, red"))
    ['CUSTOM_BIG', 'CUSTOM_BLUE', 'CUSTOM__RED', 'HW_NIC_SRIOV']
    """
    return frozenset(_trait(word) for word in said.split(",")) if said else frozenset()


def _trait(word: str) -> str:
    if word in standard_traits():
        return word
    name = word.upper()
    if not name.startswith(names.CUSTOM_PREFIX):
        import os_traits  # standard_traits() has loaded it

        name = str(os_traits.normalize_name(name))  # type: ignore[no-untyped-call]
    return names.trait_name(name)


# --- words that facts keep ------------------------------------------------------------------------


def remembered(said: Texts, written: Texts, known: Iterable[str]) -> dict[str, str]:
    """Return what facts keep of known names, so that what would be written is what was said."""
    found: dict[str, str] = {}
    for name in known:
        if name not in said:
            if name in written:
                found[name] = _ABSENT
        elif name not in written or written[name] != said[name]:
            found[name] = _kept(said[name])
    return found


def _kept(said: str | None) -> str:
    if said is None:
        return _NULL
    return json.dumps(said) if said in (_ABSENT, _NULL) or said.startswith('"') else said


def recalled(
    written: Texts, facts: Mapping[str, str], known: Iterable[str]
) -> dict[str, str | None]:
    """Return what would be written as facts say that it was: :func:`remembered` undone."""
    found = dict(written)
    for name in known:
        kept = facts.get(name)
        if kept == _ABSENT:
            found.pop(name, None)
        elif kept is not None:
            found[name] = _said(kept)
    return found


def _said(kept: str) -> str | None:
    if kept == _NULL:
        return None
    if not kept.startswith('"'):
        return kept
    try:
        return str(json.loads(kept))
    except (ValueError, RecursionError):
        return kept  # not by us


def nulls(facts: Mapping[str, str]) -> set[str]:
    """Return the names that were said to be null."""
    return {name for name, kept in facts.items() if kept == _NULL}


def unknown(facts: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """Return the facts that are no words of Nova's."""
    return sorted(facts.keys() - set(known) - nulls(facts))
