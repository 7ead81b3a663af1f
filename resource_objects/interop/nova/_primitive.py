"""Reading and writing Nova's JSON: its envelopes, and numbers that are what they have to be.

Reading knows one error, :class:`~resource_objects.exceptions.InvalidPrimitive`: it names the path
inside the document, the value there and what was expected. Paths are put together where an error
passes, not before, so that they cost nothing in a document that is in order.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NoReturn, TypeVar

from resource_objects import _fast, base
from resource_objects.exceptions import InvalidField, InvalidInput, InvalidPrimitive
from resource_objects.interop.nova._versions import KNOWN
from resource_objects.interop.nova.cpu_spec import parse_cpu_spec
from resource_objects.resources.numa.cpus import MAX_ID

_NAME, _NAMESPACE, _VERSION, _DATA = (
    f"nova_object.{part}" for part in ("name", "namespace", "version", "data")
)
#: What every path in a topology begins with: the column.
ROOT: Final = "numa_topology"

_V = TypeVar("_V", bound=base.ResourceObject)

_INT: Final = {int}
_SEQUENCES: Final = (list, tuple, set, frozenset)
_LIST: Final = {list}


# --- documents ------------------------------------------------------------------------------------


def parsed(source: object, what: str) -> Any:
    """Return what JSON text says; anything else is returned as it is."""
    if not isinstance(source, str | bytes | bytearray):
        return source
    try:
        return json.loads(source)
    except RecursionError:
        raise InvalidPrimitive(what, source, "JSON that is not nested so deep") from None
    except ValueError as error:
        raise InvalidPrimitive(what, source, f"JSON: {error}") from None


def read(source: object) -> dict[Any, Any]:
    """Return the document of JSON text, or of a mapping that was JSON."""
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
        except InvalidPrimitive as error:
            at(f"{ROOT}.cells[{place}]", error)
    return data, found


def is_enveloped(data: Mapping[Any, Any]) -> bool:
    """Return whether this is meant as the wire form of a versioned object."""
    return any(key in data for key in (_NAME, _NAMESPACE, _VERSION, _DATA))


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
            raise InvalidPrimitive(f"{place}{key}", envelope.get(key), expected)
    version = envelope.get(_VERSION)
    minor = KNOWN[name].get(version) if isinstance(version, str) else None
    if minor is None:
        known = ", ".join(KNOWN[name])
        raise InvalidPrimitive(f"{place}{_VERSION}", version, f"a version that is known: {known}")
    return mapping(envelope.get(_DATA), f"{place}{_DATA}"), minor


def enveloped(name: str, minor: int, data: dict[str, Any]) -> dict[str, Any]:
    """Return the wire form of a versioned object of Nova's."""
    return {_NAME: name, _NAMESPACE: "nova", _VERSION: f"1.{minor}", _DATA: data}


def written(document: dict[str, Any] | list[Any]) -> str:
    """Return a document as the text that a column holds."""
    return json.dumps(document)


# --- what is inside -------------------------------------------------------------------------------


def mapping(value: object, what: str) -> dict[Any, Any]:
    """Return an object of JSON."""
    if type(value) is dict:
        return value
    if not isinstance(value, Mapping):
        raise InvalidPrimitive(what, value, "an object (names and values)")
    return dict(value)


def sequence(value: object, what: str) -> list[Any] | tuple[Any, ...]:
    """Return a list of JSON."""
    if not isinstance(value, list | tuple):
        raise InvalidPrimitive(what, value, "a list")
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
    raise InvalidPrimitive(what, value, f"a list of numbers from 0 to {MAX_ID}")


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
        raise InvalidPrimitive(what, value, f"an integer from {low} to {high}")
    return value


def only(data: Mapping[Any, Any], known: Collection[str], place: str = "") -> None:
    """Refuse what is not known: passed by, it might be a known name misspelled."""
    if not data.keys() <= known:  # type: ignore[operator]
        name = next(name for name in data if name not in known)
        expected = f"no such field; there are {', '.join(sorted(known))}"
        raise InvalidPrimitive(f"{place}{name}", data[name], expected)


def cpu_list(value: object, what: str) -> tuple[int, ...]:
    """Return the CPUs of a list in text, as Nova wrote them before Liberty."""
    try:
        return parse_cpu_spec(value, what)  # type: ignore[arg-type]  # it refuses what is no text
    except InvalidInput as error:
        raise InvalidPrimitive(what, value, error.expected) from None


def left_out(names: Collection[str], optional: Collection[str]) -> frozenset[str]:
    """Return what may be left unsaid.

    :raises InvalidField: if something is named that has to be said
    """
    if isinstance(names, str) or not all(name in optional for name in names):
        raise InvalidField("leave_out", names, f"some of {', '.join(optional)}")
    return frozenset(names)


# --- errors ---------------------------------------------------------------------------------------


def at(place: str, error: InvalidInput) -> NoReturn:
    """Raise an error again as one of reading, with the place it was met at.

    What another module found wrong is told in its words, after the place.
    """
    join = ": " if not isinstance(error, InvalidPrimitive) else "." if error.what else ""
    raise InvalidPrimitive(f"{place}{join}{error.what}", error.value, error.expected) from None


# --- objects --------------------------------------------------------------------------------------


def bounds(cls: type[base.ResourceObject], name: str) -> tuple[int, int]:
    """Return the least and the most that a field of whole numbers takes."""
    kind: Any = cls.fields[name]._type
    return kind.minimum, kind.maximum


def maker(cls: type[_V]) -> Callable[..., _V]:
    """Return what makes an object of a class from all its fields, each as the field keeps it.

    What :func:`ids` and :func:`number` return is that already, so it is not checked again, number
    by number; what concerns several fields is. With ``RESOURCE_OBJECTS_FAST=0`` the constructor
    does it all.
    """
    if not _fast.ENABLED:
        return cls
    stored = {name: f"_obj_{name}" for name in cls.fields}
    new, store = cls.__new__, object.__setattr__
    tracks_changes = not issubclass(cls, base.Value)

    def make(**values: Any) -> _V:
        made = new(cls)
        if tracks_changes:
            made._prepare(None)
            made._mark(values)
        for name, value in values.items():
            store(made, stored[name], value)
        made._validate()
        return made

    return make
