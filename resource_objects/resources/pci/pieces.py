"""The pieces that text forms of devices are made of: kinds, names, pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib import parse

from resource_objects import exceptions
from resource_objects.resources.pci import words
from resource_objects.resources.pci.wish import DeviceSpec

WHAT = "PCI devices"

#: What text forms give a meaning to: in a name it is said as in URLs, and so is what is invisible.
_MARKS = frozenset("%,;=+/>|@&* ")
_FLAGS = ("remote_managed", "live_migratable")
_YES = {"yes": True, "no": False}


def quoted(name: str) -> str:
    """Return a name in which nothing means anything to a text form."""
    return "".join(
        parse.quote(letter, safe="", errors="surrogatepass")
        if letter in _MARKS or not letter.isprintable()
        else letter
        for letter in name
    )


def unquoted(said: str) -> str:
    """Return the name that :func:`quoted` made.

    :raises InvalidText: for codes of no letter

    >>> unquoted(quoted("port 1\\n")) == "port 1\\n"
    True
    """
    try:
        return parse.unquote(said, errors="surrogatepass")
    except UnicodeDecodeError as error:
        raise exceptions.InvalidText(f"{WHAT}, name", said, "codes of letters in UTF-8") from error


def flag(said: str, name: str) -> bool:
    """Return whether a word says yes.

    :raises InvalidText: if it is neither yes nor no
    """
    if said not in _YES:
        raise exceptions.InvalidText(f"{WHAT}, {name}", said, "yes or no")
    return _YES[said]


def say_spec(spec: DeviceSpec) -> str:
    """Return the text of a kind of device; :func:`read_spec` reads it back."""
    return "&".join(_said_items(spec)) or "any"


def _said_items(spec: DeviceSpec) -> Iterator[str]:
    if spec.resource_class is not None:
        yield spec.resource_class
    if spec.vendor_id is not None or spec.product_id is not None:
        yield f"{spec.vendor_id or '*'}.{spec.product_id or '*'}".replace("*", "any")
    yield from spec.types
    if spec.class_code:
        yield f"class={spec.class_code}"
    if spec.address is not None:
        yield f"address={spec.address}"
    yield from (f"trait={trait}" for trait in sorted(spec.traits))
    yield from (f"tag={quoted(name)}>{quoted(value)}" for name, value in spec.tags.items())
    if spec.remote_managed:
        yield "remote_managed=yes"
    if spec.live_migratable is not None:
        yield f"live_migratable={'yes' if spec.live_migratable else 'no'}"
    yield from (f"fact={quoted(name)}>{quoted(value)}" for name, value in spec.facts.items())


def read_spec(said: str) -> DeviceSpec:
    """Return the kind of device that a text says.

    :raises InvalidText: if it cannot be read

    >>> read_spec("PGPU&type-PF&trait=CUSTOM_H100").types
    ('type-PF',)
    """
    found: dict[str, object] = {}
    types: list[str] = []
    traits: list[str] = []
    texts: dict[str, dict[str, str]] = {"tag": {}, "fact": {}}
    for item in () if said == "any" else said.split("&"):
        name, equals, value = item.partition("=")
        if equals and name == "trait":
            traits.append(value)
        elif equals and name in texts:
            tag, _, its = value.partition(">")
            texts[name][unquoted(tag)] = unquoted(its)
        elif item in words.TYPES:
            types.append(item)
        else:
            _once(found, _read_item(item, name, equals, value))
    return DeviceSpec(**found, types=types, traits=traits, tags=texts["tag"], facts=texts["fact"])


def _read_item(item: str, name: str, equals: str, value: str) -> Mapping[str, object]:
    if equals and name in ("class", "address"):
        return {"class_code" if name == "class" else name: value}
    if equals and name in _FLAGS:
        return {name: flag(value, name)}
    vendor, dot, product = item.partition(".")
    if dot:
        pairs = (("vendor_id", vendor), ("product_id", product))
        return {key: id_ for key, id_ in pairs if id_ not in ("any", "*")}
    if equals or not item:
        raise exceptions.InvalidText(
            f"{WHAT}, kind", item, "a class, VENDOR.PRODUCT, a type, or address=, tag=, trait= ..."
        )
    return {"resource_class": item}


def _once(found: dict[str, object], more: Mapping[str, object]) -> None:
    for key, value in more.items():
        if key in found:
            raise exceptions.DuplicateKey(f"{WHAT}, kind", value, f"{key} once")
        found[key] = value
