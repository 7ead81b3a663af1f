"""The text form of NUMA amounts: the part after ``NUMA_TOPOLOGY=``.

It is ``CELLS[:option=value]...``. CELLS is their number (then ``shared=``, ``dedicated=`` and
``memory=`` are split evenly), or each guest cell as ``SHARED!DEDICATED@MEMORY`` with lists of
vCPUs, joined by ``/``. Assigned, ``on=`` says each host cell.

    2:dedicated=16:memory=4096:page_size=1GB:thread_policy=require
    0-1!2-3@1024/4-7!@2048
    2:dedicated=4:on=0;0>4+1>5/1;2>8+3>9
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from resource_objects import exceptions
from resource_objects.resources import text
from resource_objects.resources.numa import build, pieces, words
from resource_objects.resources.numa.amount import NUMATopologyAmount
from resource_objects.resources.numa.guest import GuestCell, PlacedCell
from resource_objects.resources.numa.pieces import WHAT

_COUNTS = ("shared", "dedicated", "memory")
_WORDS = ("page_size", "thread_policy", "emulator_policy")
_OPTIONS = (*_COUNTS, *_WORDS, "physnets", "tunneled", "one_socket", "on", "emulator_cpu")
_GIVES_BACK = "-"


def parse_amount(text_form: str) -> NUMATopologyAmount:
    """Return the amount of its text form.

    :raises InvalidText: if it does not parse
    :raises InvalidAmount: if what it says contradicts itself

    >>> parse_amount("2:dedicated=4:memory=1024").cells[1].dedicated
    (2, 3)
    """
    if not isinstance(text_form, str):
        raise exceptions.InvalidText(WHAT, text_form, "text such as 2:dedicated=16:memory=4096")
    gives_back = text_form.startswith(_GIVES_BACK)
    head, options = text.total_and_options(text_form.removeprefix(_GIVES_BACK), WHAT, _OPTIONS)
    asked = build.numa(
        _cells(head),
        shared=pieces.integer(options, "shared"),
        dedicated=pieces.integer(options, "dedicated"),
        memory_mb=pieces.integer(options, "memory"),
        physnets=pieces.names(options.get("physnets", "")),
        tunneled=pieces.flag(options, "tunneled"),
        one_socket=pieces.flag(options, "one_socket"),
        **{word: _word(options[word], word) for word in _WORDS if word in options},
    )
    if "on" not in options and "emulator_cpu" not in options and not gives_back:
        return asked
    emulator = pieces.integer(options, "emulator_cpu") if "emulator_cpu" in options else None
    placed = [_placed(part) for part in options["on"].split("/")] if "on" in options else []
    return asked.replace(placed=placed, emulator_cpu=emulator, gives_back=gives_back)


def format_amount(amount: NUMATopologyAmount) -> str:
    """Return the text that :func:`parse_amount` reads back.

    >>> from resource_objects.resources.numa import numa
    >>> format_amount(numa(cells=2, dedicated=16, page_size="1GB"))
    '2:dedicated=16:page_size=1GB'
    """
    parts = [*_said_cells(amount)]
    if amount.page_size:
        parts.append(f"page_size={_said_size(amount.page_size)}")
    parts += [
        f"{word}={said}"
        for word in ("thread_policy", "emulator_policy")
        if (said := getattr(amount, word)) is not None
    ]
    if amount.physnets:
        parts.append(f"physnets={'+'.join(map(pieces.quoted, sorted(amount.physnets)))}")
    parts += [f"{flag}=yes" for flag in ("tunneled", "one_socket") if getattr(amount, flag)]
    if amount.placed:
        parts.append(f"on={'/'.join(map(_said_placed, amount.placed))}")
    if amount.emulator_cpu is not None:
        parts.append(f"emulator_cpu={amount.emulator_cpu}")
    return (_GIVES_BACK if amount.gives_back else "") + ":".join(parts)


def _said_cells(amount: NUMATopologyAmount) -> Iterator[str]:
    counts = {
        "shared": sum(len(cell.shared) for cell in amount.cells),
        "dedicated": sum(len(cell.dedicated) for cell in amount.cells),
        "memory": amount.memory_mb,
    }
    if _is_even(amount, counts):
        yield str(len(amount.cells))
        yield from (f"{name}={count}" for name, count in counts.items() if count)
    else:
        yield "/".join(map(_said_guest, amount.cells))


def _is_even(amount: NUMATopologyAmount, counts: Mapping[str, int]) -> bool:
    number = len(amount.cells)
    if any(count % number for count in counts.values()):
        return False
    shared, dedicated, memory = counts.values()
    return tuple(build.even(number, shared, dedicated, memory)) == amount.cells


def _said_guest(cell: GuestCell) -> str:
    dedicated = f"!{pieces.said_cpus(cell.dedicated)}" if cell.dedicated else ""
    return f"{pieces.said_cpus(cell.shared)}{dedicated}@{cell.memory_mb}"


def _cells(head: str) -> int | list[GuestCell]:
    if "@" not in head:
        return text.integer(head, f"{WHAT}, guest cells")
    found: list[GuestCell] = []
    for part in head.split("/"):
        cpus, _, memory = part.partition("@")
        shared, _, dedicated = cpus.partition("!")
        found.append(
            GuestCell(
                shared=pieces.cpus(shared),
                dedicated=pieces.cpus(dedicated),
                memory_mb=text.integer(memory, f"{WHAT}, MiB of a guest cell"),
            )
        )
    return found


def _said_placed(placed: PlacedCell) -> str:
    parts = [str(placed.cell), "+".join(f"{vcpu}>{cpu}" for vcpu, cpu in placed.pins)]
    parts += [f"idle>{pieces.said_cpus(placed.idle)}"] if placed.idle else []
    parts += [f"shared>{pieces.said_cpus(placed.shared)}"] if placed.shared else []
    parts += [f"pages>{placed.page_size_kib}"] if placed.page_size_kib is not None else []
    return ";".join(part for part in parts if part)


def _placed(part: str) -> PlacedCell:
    cell, *rest = part.split(";")
    found: dict[str, Any] = {}
    for item in rest:
        name, _, value = item.partition(">")
        name = {"pages": "page_size_kib"}.get(name, name)
        name = name if name in ("idle", "shared", "page_size_kib") else "pins"
        if name in found:
            raise exceptions.DuplicateKey(f"{WHAT}, on", item, "each only once for a host cell")
        if name == "page_size_kib":
            found[name] = text.integer(value, f"{WHAT}, page size")
        elif name == "pins":
            found[name] = [pieces.pair(pair) for pair in item.split("+")]
        else:
            found[name] = pieces.cpus(value)
    return PlacedCell(text.integer(cell, f"{WHAT}, host cell"), **found)


def _word(said: str, name: str) -> str:
    choices: Mapping[str, Callable[[str], bool]] = {
        "thread_policy": words.THREAD_POLICIES.__contains__,
        "emulator_policy": words.EMULATOR_POLICIES.__contains__,
        "page_size": bool,
    }
    if not choices[name](said):
        known = {"thread_policy": words.THREAD_POLICIES, "page_size": words.PAGE_SIZES}.get(
            name, words.EMULATOR_POLICIES
        )
        raise exceptions.InvalidText(f"{WHAT}, {name}", said, f"one of {', '.join(known)}")
    return said


def _said_size(size: str) -> str:
    return words.show_kib(int(size)).replace(" ", "").replace("i", "") if size.isdecimal() else size
