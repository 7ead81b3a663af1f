"""The text form of requests of devices: the part after ``DEVICES=``.

Requests are joined by ``/``, each ``COUNT*KIND@option...``. A KIND is a resource class,
``VENDOR.PRODUCT``, a type, or ``address=``, ``class=``, ``tag=NAME>VALUE``, ``trait=``, joined by
``&``; alternatives by ``|``. The options are the affinity by its name, and ``requester=``,
``alias=``, ``id=``, ``providers=``.

    2*PGPU@required
    PGPU/8086.154c&type-VF@requester=port-1
    10de.2330|10de.any&trait=CUSTOM_H100@alias=gpu

Reading returns fields by name, writing takes them: so amounts use this module, and not the other
way round.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resource_objects.exceptions import InvalidInput
from resource_objects.resources import text
from resource_objects.resources.pci.device import AFFINITIES, LEGACY, TYPES

_invalid_text = functools.partial(InvalidInput, "text")
_invalid_repetition = functools.partial(InvalidInput, "repetition")

_WHAT = "PCI devices"
_NAMES = {"requester": "requester", "alias": "alias", "id": "request_id"}
_FLAGS = ("remote_managed", "live_migratable")
#: Characters that mean something here, beside those of all text forms.
_MARKS = "@&* "


def read_requests(text_form: object) -> list[dict[str, Any]]:
    """Return what each :class:`DeviceRequest` takes; ``specs`` what each :class:`DeviceSpec` does.

    :raises InvalidInput: if it does not parse

    >>> (one,) = read_requests("2*PGPU@required")
    >>> one["count"], one["affinity"], one["specs"][0]["resource_class"]
    (2, 'required', 'PGPU')
    """
    if not isinstance(text_form, str) or len(text_form) > text.MAX_LENGTH:
        raise _invalid_text(_WHAT, text_form, "text such as 2*PGPU@required")
    return [_read_request(part) for part in text_form.split("/")]


def _read_request(part: str) -> dict[str, Any]:
    head, *options = part.split("@")
    found: dict[str, Any] = {"count": 1}
    if head[:1].isdigit() and "*" in head:
        count, _, head = head.rpartition("*")
        found["count"] = text.integer(count, f"{_WHAT}, count")
    found["specs"] = [read_spec(kind) for kind in head.split("|")]
    for name, value in _read_options(options).items():
        if name == "affinity":
            found[name] = value
        elif name == "providers":
            found[name] = [_unquoted(one) for one in value.split("+") if one]
        else:
            found[_NAMES[name]] = _unquoted(value)
    return found


def _read_options(options: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals and option in AFFINITIES:
            name, value = "affinity", option
        elif not equals or name not in (*_NAMES, "providers"):
            known = ", ".join((*AFFINITIES, *(f"{n}=" for n in (*_NAMES, "providers"))))
            raise _invalid_text(f"{_WHAT}, option", option, f"one of {known}")
        if name in found:
            raise _invalid_repetition(f"{_WHAT}, option", option, "each option once")
        found[name] = value
    return found


def read_spec(said: str) -> dict[str, Any]:
    """Return what a kind of device says, as :class:`DeviceSpec` takes it.

    :raises InvalidInput: if it cannot be read

    >>> read_spec("PGPU&type-PF&trait=CUSTOM_H100")["types"]
    ['type-PF']
    """
    found: dict[str, Any] = {"types": [], "traits": [], "tags": {}, "facts": {}}
    for item in () if said == "any" else said.split("&"):
        name, equals, value = item.partition("=")
        if equals and name == "trait":
            found["traits"].append(value)
        elif equals and name in ("tag", "fact"):
            label, _, its = value.partition(">")
            found[f"{name}s"][_unquoted(label)] = _unquoted(its)
        elif item in TYPES:
            found["types"].append(item)
        else:
            _add_once(found, _read_item(item, name, equals, value))
    return found


def _read_item(item: str, name: str, equals: str, value: str) -> Mapping[str, object]:
    if equals and name in ("class", "address"):
        return {"class_code" if name == "class" else name: value}
    if equals and name in _FLAGS:
        return {name: text.flag(value, f"{_WHAT}, {name}")}
    vendor, dot, product = item.partition(".")
    if dot:
        pairs = (("vendor_id", vendor), ("product_id", product))
        return {key: id_ for key, id_ in pairs if id_ not in ("any", "*")}
    if equals or not item:
        raise _invalid_text(
            f"{_WHAT}, kind", item, "a class, VENDOR.PRODUCT, a type, or address=, tag=, trait= ..."
        )
    return {"resource_class": item}


def _add_once(found: dict[str, Any], more: Mapping[str, object]) -> None:
    for key, value in more.items():
        if key in found:
            raise _invalid_repetition(f"{_WHAT}, kind", value, f"{key} once")
        found[key] = value


def format_request(said: Mapping[str, Any], kinds: str) -> str:
    """Return the text of a request's fields; :func:`read_requests` reads it back.

    :param kinds: the text of its kinds of devices, joined by ``|``

    >>> format_request({"count": 2, "affinity": "required", "requester": "port 1"}, "PGPU")
    '2*PGPU@required@requester=port%201'
    """
    times = f"{said['count']}*" if said["count"] != 1 else ""
    return "@".join((f"{times}{kinds}", *_options(said)))


def _options(said: Mapping[str, Any]) -> Iterator[str]:
    if said["affinity"] != LEGACY:
        yield said["affinity"]
    for name, field in _NAMES.items():
        if said.get(field) is not None:
            yield f"{name}={_quoted(said[field])}"
    if said.get("providers"):
        yield f"providers={'+'.join(map(_quoted, said['providers']))}"


def format_spec(said: Mapping[str, Any]) -> str:
    """Return the text of the fields of a kind of device; :func:`read_spec` reads it back."""
    return "&".join(_items(said)) or "any"


def _items(said: Mapping[str, Any]) -> Iterator[str]:
    if said["resource_class"] is not None:
        yield said["resource_class"]
    if said["vendor_id"] is not None or said["product_id"] is not None:
        yield f"{said['vendor_id'] or 'any'}.{said['product_id'] or 'any'}"
    yield from said["types"]
    if said["class_code"]:
        yield f"class={said['class_code']}"
    if said["address"] is not None:
        yield f"address={said['address']}"
    yield from (f"trait={trait}" for trait in sorted(said["traits"]))
    yield from (f"tag={_quoted(name)}>{_quoted(value)}" for name, value in said["tags"].items())
    if said["remote_managed"]:
        yield "remote_managed=yes"
    if said["live_migratable"] is not None:
        yield f"live_migratable={'yes' if said['live_migratable'] else 'no'}"
    yield from (f"fact={_quoted(name)}>{_quoted(value)}" for name, value in said["facts"].items())


def _quoted(name: str) -> str:
    return text.quoted(name, _MARKS)


def _unquoted(said: str) -> str:
    return text.unquoted(said, f"{_WHAT}, name")
