"""Trees with bars, as text. Pure: nothing here reads or prints."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from resource_objects.names import natural_order
from resource_objects.providers import Provider
from resource_objects.providers.listing import ListedProvider
from resource_objects.providers.usage import InventoryUsage, Usage
from resource_objects.resources import Inventories, resource
from resource_objects.resources.pci import DEVICES

#: Cells of a bar.
BAR = 20
#: The number of named consumers, the largest; the others are counted.
MOST_HOLDERS = 3

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters trees and bars are drawn with."""

    full: str
    empty: str
    branch: str
    last: str
    pass_by: str
    gap: str = "   "


UNICODE = Glyphs(full="█", empty="░", branch="├─ ", last="└─ ", pass_by="│  ")
ASCII = Glyphs(full="#", empty=".", branch="|- ", last="`- ", pass_by="|  ")

#: The sign before a mark.
MARK = "<- "
#: The marks of inventories, by provider and class; of a provider itself by ``""``.
Marks: TypeAlias = Mapping[tuple[str, str], Sequence[str]]


def glyphs_for(encoding: str | None) -> Glyphs:
    """Return the glyphs an encoding can say (None: text that is not encoded).

    >>> glyphs_for("utf-8") is UNICODE, glyphs_for("ascii") is ASCII
    (True, True)
    """
    try:
        "".join(dataclasses.astuple(UNICODE)).encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def bar(used: int, capacity: int, glyphs: Glyphs = UNICODE, width: int = BAR) -> str:
    """Return a bar of the usage. Only zero is drawn as empty, and only full usage as full.

    >>> bar(1, 2, ASCII), bar(1, 1000, ASCII), bar(999, 1000, ASCII)
    ('##########..........', '#...................', '###################.')
    >>> bar(0, 0, ASCII, 4), bar(5, 4, ASCII, 4)
    ('....', '####')
    """
    if used <= 0:
        cells = 0
    elif used >= capacity:
        cells = width
    else:
        cells = min(max(used * width // capacity, 1), width - 1)
    return glyphs.full * cells + glyphs.empty * (width - cells)


_NO_MARKS: Marks = {}


def usage_tree(usage: Usage, glyphs: Glyphs = UNICODE, marks: Marks = _NO_MARKS) -> str:
    """Return the usage and consumers of trees, one line per inventory.

    :param marks: remarks, at the end of the lines that they are about

    >>> from resource_objects.providers import Provider
    >>> use = InventoryUsage("box", 0, "VCPU", 4, 0, 4, 1, (("job-1", 1),))
    >>> print(usage_tree(Usage((Provider("box", "VCPU=4"),), (use,)), ASCII))
    box
    `- VCPU  #####...............  1 of 4  job-1 1
    """
    uses: dict[str, list[InventoryUsage]] = {}
    for use in usage:
        uses.setdefault(use.provider, []).append(use)
    rows = list(_usage_rows(usage.providers, uses, glyphs, marks))
    label = max((len(text) for text, use in rows if use), default=0)
    figures = max((len(_figures(use)) for _, use in rows if use), default=0)
    return "\n".join(
        text
        if use is None
        else _marked(
            _usage_line(text.ljust(label), use, figures, glyphs),
            marks.get((use.provider, use.resource_class), ()),
        )
        for text, use in rows
    )


def _usage_rows(
    providers: Iterable[Provider],
    uses: Mapping[str, list[InventoryUsage]],
    glyphs: Glyphs,
    marks: Marks,
) -> Iterator[tuple[str, InventoryUsage | None]]:
    for root in providers:
        yield _marked(_called(root), marks.get((root.name, ""), ())), None
        yield from _usage_below(root, uses, glyphs, "", marks)


def _usage_below(
    provider: Provider,
    uses: Mapping[str, list[InventoryUsage]],
    glyphs: Glyphs,
    indent: str,
    marks: Marks,
) -> Iterator[tuple[str, InventoryUsage | None]]:
    items: Sequence[InventoryUsage | Provider] = [*uses.get(provider.name, ()), *provider.children]
    for item, edge, inner in _edges(items, glyphs, indent):
        if isinstance(item, InventoryUsage):
            yield f"{edge}{item.resource_class}", item
        else:
            yield _marked(f"{edge}{_called(item)}", marks.get((item.name, ""), ())), None
            yield from _usage_below(item, uses, glyphs, inner, marks)


def _marked(line: str, remarks: Sequence[str]) -> str:
    return f"{line}  {MARK}{'; '.join(remarks)}" if remarks else line


def _edges(items: Sequence[_T], glyphs: Glyphs, indent: str) -> Iterator[tuple[_T, str, str]]:
    """Yield each item with the edge drawn before it and the indent of its children."""
    for number, item in enumerate(items, 1):
        is_last = number == len(items)
        edge = glyphs.last if is_last else glyphs.branch
        yield item, indent + edge, indent + (glyphs.gap if is_last else glyphs.pass_by)


def _usage_line(label: str, use: InventoryUsage, figures: int, glyphs: Glyphs) -> str:
    drawn = bar(use.used, use.capacity, glyphs)
    remarks = "; ".join(filter(None, (_short(use), _holders(use.holders))))
    return f"{label}  {drawn}  {_figures(use).rjust(figures)}  {remarks}".rstrip()


def _short(use: InventoryUsage) -> str:
    """Return the overuse, or that less is free than capacity minus usage."""
    free = use.capacity - use.used
    if free < 0:
        return f"{-free} over"
    return f"{max(0, use.free)} free" if use.free < free else ""


def _figures(use: InventoryUsage) -> str:
    return f"{use.used} of {use.capacity}"


def _holders(holders: Iterable[tuple[str, int]]) -> str:
    """Return the largest holders by name, and how many more there are.

    >>> _holders([("a", 1), ("b", 5), ("c", 1), ("d", 1)])
    'b 5, a 1, c 1, 1 more'
    """
    ordered = sorted(holders, key=lambda item: (-item[1], natural_order(item[0])))
    parts = [f"{name} {amount}" for name, amount in ordered[:MOST_HOLDERS]]
    remaining = len(ordered) - len(parts)
    return ", ".join([*parts, *([f"{remaining} more"] if remaining else [])])


def provider_tree(roots: Iterable[Provider], glyphs: Glyphs = UNICODE) -> str:
    """Return the definitions of providers, one line each; the roots in natural order.

    >>> host = Provider("box", "VCPU=4")
    >>> gpu = host.add("box/gpu0", "PGPU=1", traits=["CUSTOM_H100"])
    >>> print(provider_tree([host], ASCII))
    box  VCPU=4
    `- box/gpu0  PGPU=1  CUSTOM_H100
    """
    return "\n".join(
        line
        for root in sorted(roots, key=lambda root: natural_order(root.name))
        for line in (_provider_line(root), *_below(root, glyphs, ""))
    )


def _below(provider: Provider, glyphs: Glyphs, indent: str) -> Iterator[str]:
    for child, edge, inner in _edges(provider.children, glyphs, indent):
        yield f"{edge}{_provider_line(child)}"
        yield from _below(child, glyphs, inner)


def _provider_line(provider: Provider) -> str:
    parts = (_called(provider), _counted(provider), " ".join(sorted(provider.traits)))
    return "  ".join(filter(None, parts))


def _called(provider: Provider) -> str:
    """Return the name of a provider, and that it is out of service."""
    return provider.name if provider.disabled is None else f"{provider.name} ({provider.disabled})"


def _counted(provider: Provider) -> str:
    """Return the inventories of a provider as text; devices only as counts, since a card may have
    many.

    >>> from resource_objects.resources.pci import Device, PCIInventory
    >>> gpu = Device("0000:3b:00.0", "10de", "2330", resource_class="PGPU")
    >>> _counted(Provider("box/0000:3b:00.0", {"DEVICES": PCIInventory([gpu])}))
    'PGPU=1'
    """
    devices = provider.inventories.get(DEVICES)
    if devices is None:
        return definition(provider)
    inventories = {
        n: inventory for n, inventory in provider.inventories.by_name() if n != DEVICES.name
    }
    counts = {
        record.resource_class: resource(record.resource_class).inventory_from_records(
            [record.definition()]
        )
        for record in devices.to_records()
    }
    return ",".join(filter(None, (str(Inventories(inventories)), str(Inventories(counts)))))


def definition(provider: Provider | ListedProvider) -> str:
    """Return the inventories of a provider as text, without their usage.

    >>> definition(Provider("box", "VCPU=4:reserved=1:used=2"))
    'VCPU=4:reserved=1'
    """
    return str(
        Inventories(
            {
                name: resource(name).inventory_from_storage(
                    [record.definition() for record in inventory.to_records()], inventory.describe()
                )
                for name, inventory in provider.inventories.by_name()
            }
        )
    )
