"""The text forms of NUMA requests and limits: the parts after ``NUMA_TOPOLOGY=``.

A request is ``CELLS[:option=value]...``. CELLS is the number of guest cells (which have equal
parts of ``shared=``, ``dedicated=`` and ``memory=``), or each guest cell as
``SHARED!DEDICATED@MEMORY`` with lists of vCPUs, joined by ``/``. A list has ``+`` in place of
commas, which separate resources.

    2:dedicated=16:memory=4096:page_size=1GB:thread_policy=require
    0-1!2-3@1024/4-7!@2048

A limit is ``vcpus=CELL>LIMIT+...:memory=CELL>MIB+...``. The functions read and write the arguments
of amounts, not amounts, because amounts import this module.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from resource_objects.exceptions import InvalidInput
from resource_objects.resources import text
from resource_objects.resources.numa.cells import show_kib
from resource_objects.resources.numa.cpuset import CPUSet

_invalid_text = functools.partial(InvalidInput, "text")

_TOPOLOGY = "NUMA topology"
_COUNTS = {"shared": "shared", "dedicated": "dedicated", "memory": "memory_mb"}
_FLAGS = ("tunneled", "one_socket")
_OPTIONS = (*_COUNTS, "page_size", "thread_policy", "emulator_policy", "physnets", *_FLAGS)


def parse_request(
    text_form: object, choices: Mapping[str, Collection[str]] | None = None
) -> dict[str, Any]:
    """Return the arguments of :func:`~resource_objects.resources.numa.numa` for a request.

    ``cells`` is a number, or a list with the arguments of each :class:`GuestCell`.

    :param choices: by option, the values that it allows
    :raises InvalidInput: if the text does not parse

    >>> parse_request("2:dedicated=4:memory=1024")
    {'cells': 2, 'dedicated': 4, 'memory_mb': 1024}
    """
    if not isinstance(text_form, str):
        raise _invalid_text(_TOPOLOGY, text_form, "text such as 2:dedicated=16:memory=4096")
    cells, options = text.total_and_options(text_form, _TOPOLOGY, _OPTIONS)
    arguments: dict[str, Any] = {"cells": _parse_cells(cells)}
    for name, value in options.items():
        subject = f"{_TOPOLOGY}, {name}"
        allowed = (choices or {}).get(name)
        if name in _COUNTS:
            arguments[_COUNTS[name]] = text.integer(value, subject)
        elif name in _FLAGS:
            arguments[name] = text.flag(value, subject)
        elif name == "physnets":
            arguments[name] = [text.unquoted(net, subject) for net in value.split("+") if net]
        elif allowed is not None and value not in allowed:
            raise _invalid_text(subject, value, f"one of {', '.join(allowed)}")
        elif not value:
            raise _invalid_text(subject, value, "a word")
        else:
            arguments[name] = value
    return arguments


def _parse_cells(cells: str) -> int | list[dict[str, Any]]:
    if "@" not in cells:
        return text.integer(cells, f"{_TOPOLOGY}, guest cells")
    arguments: list[dict[str, Any]] = []
    for cell in cells.split("/"):
        cpus, _, memory = cell.partition("@")
        shared, _, dedicated = cpus.partition("!")
        memory_mb = text.integer(memory, f"{_TOPOLOGY}, MiB of a guest cell")
        cpu_lists = {
            name: CPUSet.parse(vcpus.replace("+", ","), f"{_TOPOLOGY}, CPUs") if vcpus else ()
            for name, vcpus in (("shared", shared), ("dedicated", dedicated))
        }
        arguments.append({**cpu_lists, "memory_mb": memory_mb})
    return arguments


def format_request(arguments: Mapping[str, Any]) -> str:
    """Return the text of the arguments that :func:`parse_request` returns.

    >>> format_request({"cells": 2, "dedicated": 16, "page_size": "1048576"})
    '2:dedicated=16:page_size=1GB'
    """
    cells, size = arguments["cells"], arguments.get("page_size")
    if isinstance(cells, int):
        parts = [str(cells)]
        parts += [f"{key}={arguments[n]}" for key, n in _COUNTS.items() if arguments.get(n)]
    else:
        texts: list[str] = []
        for cell in cells:
            dedicated = CPUSet(cell["dedicated"]).text("+")
            vcpus = CPUSet(cell["shared"]).text("+") + (f"!{dedicated}" if dedicated else "")
            texts.append(f"{vcpus}@{cell['memory_mb']}")
        parts = ["/".join(texts)]
    if size:
        if size.isdecimal():
            size = show_kib(int(size)).replace(" ", "").replace("i", "")
        parts.append(f"page_size={size}")
    for name in ("thread_policy", "emulator_policy"):
        if arguments.get(name) is not None:
            parts.append(f"{name}={arguments[name]}")
    if arguments.get("physnets"):
        nets = (text.quoted(net, ":") for net in sorted(arguments["physnets"]))
        parts.append(f"physnets={'+'.join(nets)}")
    parts += [f"{flag}=yes" for flag in _FLAGS if arguments.get(flag)]
    return ":".join(parts)


def parse_limit(text_form: object) -> dict[str, list[tuple[int, int]]]:
    """Return the arguments of :class:`NUMATopologyLimit` for a limit.

    :raises InvalidInput: if the text does not parse

    >>> parse_limit("vcpus=0>16+1>16")
    {'vcpus': [(0, 16), (1, 16)], 'memory_mb': []}
    """
    if not isinstance(text_form, str):
        raise _invalid_text(_TOPOLOGY, text_form, "text such as vcpus=0>16+1>16")
    _, options = text.total_and_options(f":{text_form}", f"{_TOPOLOGY} limit", ("vcpus", "memory"))
    limits: dict[str, list[tuple[int, int]]] = {"vcpus": [], "memory_mb": []}
    subject = f"{_TOPOLOGY}, number"
    for option, name in (("vcpus", "vcpus"), ("memory", "memory_mb")):
        for item in filter(None, options.get(option, "").split("+")):
            cell, _, limit = item.partition(">")
            limits[name].append((text.integer(cell, subject), text.integer(limit, subject)))
    return limits


def format_limit(vcpus: Iterable[tuple[int, int]], memory_mb: Iterable[tuple[int, int]]) -> str:
    """Return the text that :func:`parse_limit` reads."""
    cpus, memory = (
        "+".join(f"{cell}>{limit}" for cell, limit in pairs) for pairs in (vcpus, memory_mb)
    )
    return f"vcpus={cpus}" + (f":memory={memory}" if memory else "")
