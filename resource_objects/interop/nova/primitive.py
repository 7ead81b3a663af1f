"""Nova's versioned objects as data: read, checked and written without Nova.

A document is JSON text, the value of that text, or an object of Nova, which makes a primitive of
itself with ``obj_to_primitive()``. :func:`parse_document` returns the value in each case, so Nova
is never imported. A primitive wraps the data of an object with its name and version:
:func:`unwrap` and :func:`wrap`.

Invalid data raises :class:`~resource_objects.exceptions.InvalidInput` with the path inside the
document, the value and what is allowed. A path is put together where an error passes
(:func:`reraise_at`), so valid documents pay nothing for it.

A field of a document can have text that this library does not distinguish: a number instead of
text, null, another case. To write a document unchanged, :func:`preserve` returns that text by
name, for the ``facts`` of a value, and :func:`restore` applies it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn, Protocol, TypeVar

import os_resource_classes
from oslo_utils import strutils

from resource_objects import fields, names
from resource_objects.exceptions import CannotDowngrade, InvalidInput
from resource_objects.interop.nova.rules import NovaRule
from resource_objects.resources.numa.cells import parse_size_kib
from resource_objects.resources.numa.cpuset import MAX_ID, CPUSet
from resource_objects.resources.pci.device import listed
from resource_objects.resources.traits import standard_traits

_T = TypeVar("_T")

#: Makes the error of invalid data: ``invalid(path, value, expected)``.
invalid = functools.partial(InvalidInput, "primitive")

_NAME, _NAMESPACE, _VERSION, _DATA = (
    f"nova_object.{part}" for part in ("name", "namespace", "version", "data")
)
#: The types that ``json.loads`` returns.
_JSON_TYPES: Final = frozenset({dict, list, str, int, float, bool, type(None)})
_SEQUENCES: Final = (list, tuple, set, frozenset)

# --- versions ---

HOST, HOST_CELL = "NUMATopology", "NUMACell"
PAGES, NETWORKS = "NUMAPagesTopology", "NetworkMetadata"
GUEST, GUEST_CELL = "InstanceNUMATopology", "InstanceNUMACell"
POOLS, POOL = "PciDevicePoolList", "PciDevicePool"
DEVICES, DEVICE = "PciDeviceList", "PciDevice"
REQUESTS, REQUEST = "InstancePCIRequests", "InstancePCIRequest"
FLAVOR, IMAGE, PROPERTIES = "Flavor", "ImageMeta", "ImageMetaProps"
NODE, HYPERVISOR = "ComputeNode", "HVSpec"
METRIC_LIST, METRIC = "MonitorMetricList", "MonitorMetric"

#: The newest version of each object in Nova 34, by its minor number; the major number is 1. Nova
#: 32 and 33 have the same versions of the objects that are written here.
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

#: ``{name: {version: its minor number}}`` of the versions that can be read.
KNOWN: Final = {
    name: {f"1.{minor}": minor for minor in range(newest + 1)} for name, newest in NEWEST.items()
}


class NovaObject(Protocol):
    """A versioned object of Nova."""

    def obj_to_primitive(self) -> Any:
        """Return the wire form of the object."""


#: JSON text, the value of it, or an object of Nova.
Document = str | bytes | Mapping[str, Any] | NovaObject


# --- documents ------------------------------------------------------------------------------------


def parse_document(source: object, path: str) -> Any:
    """Return the value of JSON text, or the primitive of an object of Nova.

    Any other value is returned unchanged.

    :raises InvalidInput: if the text is not JSON; if the object cannot make its primitive

    >>> parse_document('{"count": 1}', "pool"), parse_document({"count": 1}, "pool")
    ({'count': 1}, {'count': 1})
    """
    if isinstance(source, str | bytes | bytearray):
        try:
            return json.loads(source)
        except RecursionError:
            raise invalid(path, source, "JSON with fewer nested levels") from None
        except ValueError as error:
            raise invalid(path, source, f"JSON: {error}") from None
    if type(source) in _JSON_TYPES:
        return source
    if isinstance(source, type) or not callable(getattr(source, "obj_to_primitive", None)):
        return source
    try:
        primitive = source.obj_to_primitive()  # type: ignore[attr-defined]
    except Exception as error:  # any exception: the class is not ours
        raise invalid(path, source, f"an object with a primitive: {error}") from error
    if not isinstance(primitive, Mapping) or _DATA not in primitive:
        raise invalid(path, type(source).__name__, "an object of Nova")
    return primitive


def parse_list(document: object, path: str) -> list[Any]:
    """Return the entries of a list or another iterable, objects of Nova as their primitives.

    :raises InvalidInput: if the document is not iterable, or an object has no primitive
    """
    return [
        entry
        if isinstance(entry, str | bytes | bytearray)
        else parse_document(entry, f"{path}[{index}]")
        for index, entry in enumerate(require_list(listed(document), path))
    ]


def read_list(
    source: object,
    root: str,
    wrapper: tuple[str, str, Collection[str]],
    name: str,
    read: Callable[[dict[Any, Any], bool], _T],
) -> list[_T]:
    """Return the results of reading each entry of a list; none for null.

    The source is a list of plain mappings or of objects, or an object that wraps a list of objects.

    :param root: the name of the list in errors
    :param wrapper: the name of the wrapping object, its field with the list, and all its fields
    :param name: the name of the objects in the list
    :param read: reads the data of an entry; its second argument is True if the entry is an object
    :raises InvalidInput: if it is not such a list; as ``read``, with the path of the entry
    """
    document = parse_document(source, root)
    if document is None:
        return []
    is_object_list = isinstance(document, Mapping)
    if is_object_list:
        wrapper_name, field, names_of_fields = wrapper
        data = unwrap(document, root, wrapper_name)[0]
        reject_unknown(data, names_of_fields, f"{root}.")
        entries = require_list(data.get(field), f"{root}.{field}")
    else:
        entries = parse_list(document, root)
    results = []
    for index, entry in enumerate(entries):
        try:
            data = require_object(entry, "")
            is_object = is_object_list or is_wrapped(data)
            results.append(read(unwrap(data, "", name)[0] if is_object else data, is_object))
        except InvalidInput as error:
            reraise_at(f"{root}[{index}]", error)
    return results


def is_wrapped(data: Mapping[Any, Any]) -> bool:
    """Return True if a mapping has a key of the wire form of a versioned object."""
    return _NAME in data or _NAMESPACE in data or _VERSION in data or _DATA in data


def unwrap(primitive: object, path: str, name: str) -> tuple[dict[Any, Any], int]:
    """Return the data of a versioned object and the minor number of its version.

    :param name: the name that the object must have
    :raises InvalidInput: if it is another object, or of an unknown version
    """
    wrapped: Any = primitive
    try:
        data = wrapped[_DATA]
        if wrapped[_NAME] == name and wrapped[_NAMESPACE] == "nova" and type(data) is dict:
            return data, KNOWN[name][wrapped[_VERSION]]
    except (LookupError, TypeError):
        pass  # a mapping of another type, or an error to be named
    wrapped = require_object(primitive, path)
    prefix = f"{path}." if path else ""
    for key, expected in ((_NAME, name), (_NAMESPACE, "nova")):
        if wrapped.get(key) != expected:
            raise invalid(f"{prefix}{key}", wrapped.get(key), expected)
    version = wrapped.get(_VERSION)
    minor = KNOWN[name].get(version) if isinstance(version, str) else None
    if minor is None:
        versions = ", ".join(KNOWN[name])
        raise invalid(f"{prefix}{_VERSION}", version, f"a known version: {versions}")
    return require_object(wrapped.get(_DATA), f"{prefix}{_DATA}"), minor


def wrap(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the wire form of a versioned object of Nova in its newest version."""
    return {_NAME: name, _NAMESPACE: "nova", _VERSION: f"1.{NEWEST[name]}", _DATA: data}


def inexpressible(name: str, reason: str) -> CannotDowngrade:
    """Return the error for a value that an object of Nova cannot express."""
    return CannotDowngrade(name, f"1.{NEWEST[name]}", reason)


def reraise_at(path: str, error: InvalidInput) -> NoReturn:
    """Raise an error of a part of a document with the path of that part in front.

    An error of another module has no path; its name follows after a colon.
    """
    join = ": " if not error.is_about("primitive") else "." if error.what else ""
    raise invalid(f"{path}{join}{error.what}", error.value, error.expected) from None


# --- values ---------------------------------------------------------------------------------------


def require_object(value: object, path: str) -> dict[Any, Any]:
    """Return a JSON object as a dict."""
    if type(value) is dict:
        return value
    if not isinstance(value, Mapping):
        raise invalid(path, value, "an object (names and values)")
    return dict(value)


def require_list(value: object, path: str) -> list[Any] | tuple[Any, ...]:
    """Return a JSON list."""
    if not isinstance(value, list | tuple):
        raise invalid(path, value, "a list")
    return value


def require_int(value: object, path: str, low: int = 0, high: int = fields.MAX_FIGURE) -> int:
    """Return an integer of a range."""
    if type(value) is not int or not low <= value <= high:
        raise invalid(path, value, f"an integer from {low} to {high}")
    return value


def id_set(value: object, path: str) -> tuple[int, ...]:
    """Return numbers of CPUs or cells, ascending. Cost: 1 microsecond for 16."""
    numbers: Any = value
    if type(numbers) in _SEQUENCES:
        if not numbers:
            return ()
        if {*map(type, numbers)} == {int}:
            ids = sorted({*numbers})
            if ids[0] >= 0 and ids[-1] <= MAX_ID:
                return tuple(ids)
    raise invalid(path, value, f"a list of numbers from 0 to {MAX_ID}")


def reject_unknown(data: Mapping[Any, Any], keys: Collection[str], path: str = "") -> None:
    """Reject unknown keys; ignoring one would hide a misspelled name."""
    if not data.keys() <= keys:  # type: ignore[operator]
        name = next(name for name in data if name not in keys)
        expected = f"no such field; known are {', '.join(sorted(keys))}"
        raise invalid(f"{path}{name}", data[name], expected)


def optional_names(leave_out: Collection[str], optional: Collection[str]) -> frozenset[str]:
    """Return the names that a caller allows to be left out of a document.

    :raises InvalidInput: for a name that is not optional
    """
    if isinstance(leave_out, str) or not all(name in optional for name in leave_out):
        raise InvalidInput("field", "leave_out", leave_out, f"some of {', '.join(optional)}")
    return frozenset(leave_out)


#: Text by name, None for null.
Texts = Mapping[str, str | None]


def require_texts(value: object, path: str) -> dict[str, str | None]:
    """Return a JSON object whose values are text or null; numbers become text, as in Nova."""
    texts: dict[str, str | None] = {}
    for name, item in require_object(value, path).items():
        if not isinstance(name, str):
            raise invalid(path, name, "names that are text")
        texts[name] = require_text(item, f"{path}.{name}")
    return texts


def require_text(value: object, path: str) -> str | None:
    """Return text or null; a number becomes text, as in Nova."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, str | float) or (
        isinstance(value, int) and abs(value) <= fields.MAX_AMOUNT
    ):
        return str(value)
    raise invalid(path, value, "text or null")


def require_label(value: object, path: str) -> str | None:
    """Return a printable name, or null."""
    text = require_text(value, path)
    if text is None:
        return None
    try:
        return names.label(text)
    except InvalidInput as error:
        raise invalid(path, value, error.expected) from None


def lower(text: str | None) -> str | None:
    """Return text in lower case, None for None."""
    return None if text is None else text.lower()


# --- flags ---

#: The text of flags in Nova.
YES, NO = "true", "false"


def parse_flag(text: str | None) -> bool | None:
    """Return the flag of ``true`` or ``false`` in any case, None for other text.

    >>> parse_flag("True"), parse_flag("false"), parse_flag("yes")
    (True, False, None)
    """
    return {YES: True, NO: False}.get(text.lower()) if text else None


def parse_lenient_flag(text: str | None) -> bool:
    """Return a flag as Nova reads ``remote_managed``: unknown text is False.

    >>> parse_lenient_flag("yes"), parse_lenient_flag("maybe"), parse_lenient_flag(None)
    (True, False, False)
    """
    return text is not None and bool(strutils.bool_from_string(text))


def parse_yes_no(value: object) -> bool | None:
    """Return the flag of text or a boolean as Nova reads options, None if it is neither.

    >>> parse_yes_no("Yes"), parse_yes_no("off"), parse_yes_no("maybe")
    (True, False, None)
    """
    try:
        is_flag = isinstance(value, str | bool)
        return bool(strutils.bool_from_string(value, strict=True)) if is_flag else None
    except ValueError:
        return None


def format_flag(value: bool) -> str:
    """Return the text of a flag in Nova."""
    return YES if value else NO


# --- names in Placement ---

#: The fact of a pool or a device that names its provider in Placement.
PROVIDER: Final = "rp_uuid"


def normalized_class(text: str) -> str:
    """Return the resource class that Nova makes of text: upper case, with ``CUSTOM_``.

    :raises InvalidInput: if the result is not a valid name

    >>> normalized_class("pgpu"), normalized_class("gpu-vf"), normalized_class("custom_fpga")
    ('PGPU', 'CUSTOM_GPU_VF', 'CUSTOM_FPGA')
    """
    name = text.upper()
    if name not in os_resource_classes.STANDARDS and not name.startswith(names.CUSTOM_PREFIX):
        name = str(os_resource_classes.normalize_name(name))  # type: ignore[no-untyped-call]
    return names.resource_class_name(name)


def normalized_traits(text: str) -> frozenset[str]:
    """Return the traits that Nova makes of a list in text.

    A space next to a comma belongs to the name, and so becomes ``_``.

    :raises InvalidInput: if one of them is not a valid name

    >>> sorted(normalized_traits("blue,HW_NIC_SRIOV,custom_big, red"))
    ['CUSTOM_BIG', 'CUSTOM_BLUE', 'CUSTOM__RED', 'HW_NIC_SRIOV']
    """
    traits = set()
    for word in text.split(",") if text else ():
        name = word
        if word not in standard_traits():
            name = word.upper()
            if not name.startswith(names.CUSTOM_PREFIX):
                import os_traits  # standard_traits() has loaded it

                name = str(os_traits.normalize_name(name))  # type: ignore[no-untyped-call]
            name = names.trait_name(name)
        traits.add(name)
    return frozenset(traits)


# --- text that no field has -----------------------------------------------------------------------

#: In facts: the name was absent, or it was null.
_ABSENT, _NULL = "", "null"


def preserve(read: Texts, written: Texts, keys: Iterable[str]) -> dict[str, str]:
    """Return the facts with which ``written`` becomes ``read`` again, for some known names."""
    facts: dict[str, str] = {}
    for name in keys:
        if name not in read:
            if name in written:
                facts[name] = _ABSENT
        elif name not in written or written[name] != read[name]:
            text = read[name]
            is_ambiguous = text in (_ABSENT, _NULL) or str(text).startswith('"')
            facts[name] = _NULL if text is None else json.dumps(text) if is_ambiguous else text
    return facts


def restore(written: Texts, facts: Mapping[str, str], keys: Iterable[str]) -> dict[str, Any]:
    """Return texts with those that :func:`preserve` stored in facts."""
    texts = dict(written)
    for name in keys:
        fact = facts.get(name)
        if fact == _ABSENT:
            texts.pop(name, None)
        elif fact == _NULL:
            texts[name] = None
        elif fact is not None:
            texts[name] = fact
            if fact.startswith('"'):
                with contextlib.suppress(ValueError, RecursionError):  # not a fact of ours
                    texts[name] = str(json.loads(fact))
    return texts


def null_names(facts: Mapping[str, str]) -> set[str]:
    """Return the names that were null in the document."""
    return {name for name, fact in facts.items() if fact == _NULL}


def unknown_facts(facts: Mapping[str, str], keys: Iterable[str]) -> list[str]:
    """Return the names of facts that Nova does not have."""
    return sorted(facts.keys() - set(keys) - null_names(facts))


# --- values of flavors, images and options --------------------------------------------------------

#: Sizes of pages as Nova writes them; it has no spaces, and no small letters but ``k``.
_SIZE_FORM = re.compile(r"[0-9]{1,12}(?:[kKMGT](?:i?B)?)?\Z", re.ASCII)


def option_text(key: str, value: object) -> str:
    """Return the text of a value of a flavor, an image or an option, ``""`` for None.

    :raises InvalidNovaInput: ``NOT_WORDS`` if it is neither text nor an integer or a boolean
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return format_flag(value)
    if isinstance(value, int) and abs(value) <= fields.MAX_AMOUNT:
        return str(int(value))
    if not isinstance(value, str):
        raise NovaRule.NOT_WORDS.error(key, value, "text")
    return str(value)


def option_flag(key: str, text: str) -> bool | None:
    """Return the flag of text, None for ``""``.

    :raises InvalidNovaInput: ``INVALID_FLAG`` if it is neither yes nor no

    >>> option_flag("hw:cpu_realtime", "yes"), option_flag("hw:cpu_realtime", "")
    (True, None)
    """
    flag = parse_yes_no(text)
    if text and flag is None:
        raise NovaRule.INVALID_FLAG.error(key, text, "true or false")
    return flag


def parse_cpu_spec(text: str, name: str = "CPU list") -> CPUSet:
    """Return the CPUs of a list such as ``0-3,^2,8``, ascending; the list may contain none.

    Items stand in any order, and an exclusion always wins. Source: ``parse_cpu_spec`` of Nova 34;
    the numbers ``+1`` and ``1_0``, which Python reads, are rejected here.

    :param name: the name of the list in an error
    :raises InvalidNovaInput: ``INVALID_CPU_LIST`` if the text is not such a list

    >>> parse_cpu_spec("1-4,^3,6"), parse_cpu_spec("^1,,0-1,^0")
    ((1, 2, 4, 6), ())
    >>> parse_cpu_spec("4-1")
    Traceback (most recent call last):
    resource_objects.interop.nova.rules.InvalidNovaInput: CPU list: got '4-1', expected a list ...
    """
    rule = NovaRule.INVALID_CPU_LIST
    return rule.convert(name, text, lambda value: CPUSet.parse(value, name, allow_empty=True))


def format_cpu_spec(cpus: Iterable[int]) -> str:
    """Return CPUs as a list, which :func:`parse_cpu_spec` reads.

    >>> format_cpu_spec({8, 0, 1, 2})
    '0-2,8'
    """
    return str(CPUSet(cpus))


def page_size_kib(key: str, text: str) -> int:
    """Return the KiB of a page size: a number of KiB, or a number with a unit.

    :raises InvalidNovaInput: ``INVALID_PAGE_SIZE`` if it is not the size of a page

    >>> page_size_kib("size", "1GB"), page_size_kib("size", "2048")
    (1048576, 2048)
    """
    kib = parse_size_kib(text) if _SIZE_FORM.match(text) else None
    if kib is None:
        expected = "small, large, any, or a power of two such as 2048 (KiB) or 1GB"
        raise NovaRule.INVALID_PAGE_SIZE.error(key, text, expected)
    return kib


# --- flavors and images ---------------------------------------------------------------------------


def flavor_data(source: Any) -> dict[Any, Any] | None:
    """Return the fields of an object ``Flavor`` with its extra specs, None for another source.

    :param source: the object, its primitive, or JSON text of it; or the value or text of
        ``instance_extra.flavor``, whose ``cur`` is read
    :raises InvalidNovaInput: ``NOT_WORDS`` if the object cannot be read, or its extra specs are not
        loaded
    """
    try:
        document = _parse_words(source, "flavor")
        if not isinstance(document, dict | Mapping):
            return None
        if "cur" in document and isinstance(document["cur"], Mapping):
            document = document["cur"]
        if not is_wrapped(document):
            return None
        data = unwrap(document, "flavor", FLAVOR)[0]
        if "extra_specs" not in data:
            expected = "the extra specs: they are not loaded, so its request is not known"
            raise invalid("flavor.extra_specs", None, expected)
        return {**data, "extra_specs": require_object(data["extra_specs"], "flavor.extra_specs")}
    except InvalidInput as error:
        raise NovaRule.NOT_WORDS.error(error.what, error.value, error.expected) from None


def _parse_words(source: Any, path: str) -> Any:
    """Return the value of a document; text that is not a JSON object is returned as is."""
    is_other_text = isinstance(source, str) and not source.lstrip().startswith("{")
    return source if is_other_text or isinstance(source, dict) else parse_document(source, path)


def image_properties(source: Any) -> Any:
    """Return the properties of an image of Nova, text by key; a mapping of them as is.

    Properties of an object come back as the keys of the image service:

    =============================  =================================================================
    ``hw_numa_cpus``               a list: ``hw_numa_cpus.0``, ``hw_numa_cpus.1``, ...
    ``hw_numa_mem``                the same
    ``traits_required``            ``trait:NAME=required``
    flags, numbers                 text
    other lists                    JSON text
    a name of an older version     the name of today: ``vm_mode`` is ``hw_vm_mode``
    =============================  =================================================================

    :param source: an object ``ImageMeta`` or ``ImageMetaProps``, its primitive, or JSON text of
        that; or properties by key
    :raises InvalidNovaInput: ``NOT_WORDS`` if an object cannot be read

    >>> image_properties({"hw_numa_nodes": "2"})
    {'hw_numa_nodes': '2'}
    """
    path = "image"
    try:
        document = _parse_words(source, path)
        if not isinstance(document, dict | Mapping) or not is_wrapped(document):
            return document
        if document.get(_NAME) != PROPERTIES:
            document = unwrap(document, path, IMAGE)[0].get("properties")
            path = f"{path}.properties"
            if document is None:
                raise invalid(path, None, "an object: the image's properties")
        properties = unwrap(document, path, PROPERTIES)[0]
        return {
            key: text
            for name, value in properties.items()
            for key, text in _image_keys(name, value, f"{path}.{name}")
        }
    except InvalidInput as error:
        raise NovaRule.NOT_WORDS.error(error.what, error.value, error.expected) from None


def _image_keys(name: str, value: Any, path: str) -> Iterator[tuple[str, str | None]]:
    if name == "hw_numa_cpus":
        for cell, cpus in enumerate(require_list(value, path)):
            yield f"{name}.{cell}", format_cpu_spec(id_set(cpus, f"{path}[{cell}]"))
    elif name == "hw_numa_mem":
        for cell, size in enumerate(require_list(value, path)):
            yield f"{name}.{cell}", require_text(size, f"{path}[{cell}]")
    elif name == "traits_required":
        for trait in require_list(value, path):
            yield f"trait:{trait}", "required"
    elif isinstance(value, bool):
        yield name, format_flag(value)
    elif isinstance(value, list | tuple | dict):
        yield name, json.dumps(value, default=str)
    else:
        yield name, require_text(value, path)
