"""The text forms of NUMA requests and limits: the parts after ``NUMA_TOPOLOGY=``.

A request is ``CELLS[:option=value]...``. CELLS is their number (then ``shared=``, ``dedicated=``
and ``memory=`` are split evenly), or each guest cell as ``SHARED!DEDICATED@MEMORY`` with lists of
vCPUs, joined by ``/``. In lists ``+`` stands where a comma would, which separates resources.

    2:dedicated=16:memory=4096:page_size=1GB:thread_policy=require
    0-1!2-3@1024/4-7!@2048

A limit is ``vcpus=CELL>MOST+...:memory=CELL>MIB+...``. Reading returns fields by name, writing
takes them: so amounts use this module, and not the other way round.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from resource_objects.exceptions import InvalidInput
from resource_objects.resources import text
from resource_objects.resources.numa.cells import show_kib
from resource_objects.resources.numa.cpuset import CPUSet

_invalid_text = functools.partial(InvalidInput, "text")

_WHAT = "NUMA topology"
_COUNTS = {"shared": "shared", "dedicated": "dedicated", "memory": "memory_mb"}
_FLAGS = ("tunneled", "one_socket")
_OPTIONS = (*_COUNTS, "page_size", "thread_policy", "emulator_policy", "physnets", *_FLAGS)


def read_request(
    text_form: object, words: Mapping[str, Collection[str]] | None = None
) -> dict[str, Any]:
    """Return what a request says, as :func:`~resource_objects.resources.numa.numa` takes it.

    ``cells`` is a number, or a list of what each :class:`GuestCell` takes.

    :param words: what an option may say, of those that say one of some words
    :raises InvalidInput: if it does not parse

    >>> read_request("2:dedicated=4:memory=1024")
    {'cells': 2, 'dedicated': 4, 'memory_mb': 1024}
    """
    if not isinstance(text_form, str):
        raise _invalid_text(_WHAT, text_form, "text such as 2:dedicated=16:memory=4096")
    head, options = text.total_and_options(text_form, _WHAT, _OPTIONS)
    found: dict[str, Any] = {"cells": _read_cells(head)}
    for name, value in options.items():
        what = f"{_WHAT}, {name}"
        if name in _COUNTS:
            found[_COUNTS[name]] = text.integer(value, what)
        elif name in _FLAGS:
            found[name] = text.flag(value, what)
        elif name == "physnets":
            found[name] = [text.unquoted(one, what) for one in value.split("+") if one]
        elif words is not None and value not in words.get(name, [value]):
            raise _invalid_text(what, value, f"one of {', '.join(words[name])}")
        elif not value:
            raise _invalid_text(what, value, "a word")
        else:
            found[name] = value
    return found


def _read_cells(head: str) -> int | list[dict[str, Any]]:
    if "@" not in head:
        return text.integer(head, f"{_WHAT}, guest cells")
    found: list[dict[str, Any]] = []
    for part in head.split("/"):
        cpus, _, memory = part.partition("@")
        shared, _, dedicated = cpus.partition("!")
        memory_mb = text.integer(memory, f"{_WHAT}, MiB of a guest cell")
        cell = {"shared": _read_cpus(shared), "dedicated": _read_cpus(dedicated)}
        found.append({**cell, "memory_mb": memory_mb})
    return found


def format_request(said: Mapping[str, Any]) -> str:
    """Return the text of what :func:`read_request` returns.

    >>> format_request({"cells": 2, "dedicated": 16, "page_size": "1048576"})
    '2:dedicated=16:page_size=1GB'
    """
    return ":".join(_parts(said))


def _parts(said: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(said["cells"], int):
        yield str(said["cells"])
        yield from (f"{name}={said[of]}" for name, of in _COUNTS.items() if said.get(of))
    else:
        yield "/".join(map(_cell, said["cells"]))
    if said.get("page_size"):
        yield f"page_size={_size(said['page_size'])}"
    for name in ("thread_policy", "emulator_policy"):
        if said.get(name) is not None:
            yield f"{name}={said[name]}"
    if said.get("physnets"):
        names = (text.quoted(name, ":") for name in sorted(said["physnets"]))
        yield f"physnets={'+'.join(names)}"
    yield from (f"{flag}=yes" for flag in _FLAGS if said.get(flag))


def _cell(said: Mapping[str, Any]) -> str:
    dedicated = f"!{CPUSet(said['dedicated']).text('+')}" if said["dedicated"] else ""
    return f"{CPUSet(said['shared']).text('+')}{dedicated}@{said['memory_mb']}"


def _read_cpus(said: str) -> tuple[int, ...]:
    return CPUSet.parse(said.replace("+", ","), f"{_WHAT}, CPUs") if said else ()


def _size(size: str) -> str:
    return show_kib(int(size)).replace(" ", "").replace("i", "") if size.isdecimal() else size


# --- limits ---------------------------------------------------------------------------------------


def read_limit(text_form: object) -> dict[str, list[tuple[int, int]]]:
    """Return the bounds that a limit says, as :class:`NUMATopologyLimit` takes them.

    :raises InvalidInput: if it does not parse

    >>> read_limit("vcpus=0>16+1>16")
    {'vcpus': [(0, 16), (1, 16)], 'memory_mb': []}
    """
    if not isinstance(text_form, str):
        raise _invalid_text(_WHAT, text_form, "text such as vcpus=0>16+1>16")
    _, options = text.total_and_options(f":{text_form}", f"{_WHAT} limit", ("vcpus", "memory"))
    return {
        "vcpus": _read_bounds(options.get("vcpus", "")),
        "memory_mb": _read_bounds(options.get("memory", "")),
    }


def format_limit(vcpus: Iterable[tuple[int, int]], memory_mb: Iterable[tuple[int, int]]) -> str:
    """Return the text that :func:`read_limit` reads back."""
    bounds = {"vcpus": vcpus, "memory": memory_mb}
    said = {
        name: "+".join(f"{cell}>{most}" for cell, most in pairs) for name, pairs in bounds.items()
    }
    return ":".join(f"{name}={one}" for name, one in said.items() if one or name == "vcpus")


def _read_bounds(said: str) -> list[tuple[int, int]]:
    pairs: Iterable[tuple[str, str, str]]
    pairs = (item.partition(">") for item in said.split("+") if item)
    what = f"{_WHAT}, number"
    return [(text.integer(cell, what), text.integer(most, what)) for cell, _, most in pairs]
