"""The usage of each host as a line of text. Pure: nothing here reads or prints.

Classes are abbreviated, unless two classes of a host have the same abbreviation.
``doc/source/reference/command.rst`` has the table of abbreviations.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from resource_objects import names
from resource_objects.cli.fitting import CUT, cut
from resource_objects.search.host_usage import ClassUsage, HostHolder, HostUsage

#: The words of standard classes; a custom class has its name without the prefix.
WORDS = {
    "DISK_GB": "DISK",
    "MEMORY_MB": "MEM",
    "PCI_DEVICE": "PCI",
    "PCPU": "CPU",
    "PGPU": "GPU",
    "SRIOV_NET_VF": "VF",
    "VCPU": "CPU",
    "VGPU": "vGPU",
}
#: The number of units of a class in a printed unit, and its sign.
_SCALES = {"MEMORY_MB": (1024, "G"), "DISK_GB": (1, "G")}
#: A fraction with more parts is printed in decimals.
_MOST_PARTS = 10


def word(resource_class: str) -> str:
    """Return the short word of a class.

    >>> word("PGPU"), word("CUSTOM_FPGA_CARD"), word("NUMA_CORE")
    ('GPU', 'FPGA_CARD', 'NUMA_CORE')
    """
    found = WORDS.get(resource_class)
    return resource_class.removeprefix(names.CUSTOM_PREFIX) if found is None else found


def words_of(classes: Iterable[str]) -> dict[str, str]:
    """Return the word of each of some classes; two of the same word keep their names.

    >>> words_of(["PGPU", "VCPU", "PCPU"])
    {'PGPU': 'GPU', 'VCPU': 'VCPU', 'PCPU': 'PCPU'}
    """
    told = {name: word(name) for name in classes}
    count = Counter(told.values())
    return {name: said if count[said] == 1 else name for name, said in told.items()}


def amount_text(amount: int | Fraction) -> str:
    """Return an amount for people: fractions of few parts as such, others to three decimals.

    >>> [amount_text(one) for one in (4, Fraction(1, 2), Fraction(9, 2), Fraction(1, 3000))]
    ['4', '1/2', '4 1/2', '<0.001']
    >>> amount_text(Fraction(333, 1000)), amount_text(Fraction(4, 2))
    ('0.333', '2')
    """
    if isinstance(amount, int):  # nearly all; fractions would take half of the time of a list
        return str(amount)
    whole, rest = divmod(amount, 1)
    if not rest:
        return str(whole)
    if rest.denominator <= _MOST_PARTS:
        return f"{whole} {rest}" if whole else str(rest)
    thousandths = rest.numerator * 1000 // rest.denominator
    if not thousandths and not whole:
        return "<0.001"
    return f"{whole}.{thousandths:03}"


def figures_text(resource_class: str, *figures: int | Fraction) -> str:
    """Return figures of a class with slashes between, in the unit that people use.

    >>> figures_text("MEMORY_MB", 65536, 515000), figures_text("PGPU", 5, 8)
    ('64/502.9G', '5/8')
    """
    scale, sign = _SCALES.get(resource_class, (1, ""))
    if scale == 1:
        return "/".join(map(amount_text, figures)) + sign
    return "/".join(f"{float(one / scale):.1f}".removesuffix(".0") for one in figures) + sign


def class_text(use: ClassUsage, said: str) -> str:
    """Return what is used of a class and what of it is free, where that is no difference.

    >>> class_text(ClassUsage("PGPU", 8, 5, 3, (Fraction(1, 2),), True), "GPU")
    'GPU 5/8 (3 whole, 1 half free)'
    >>> class_text(ClassUsage("VCPU", 64, 40, 24), "CPU")
    'CPU 40/64'
    """
    told = f"{said} {figures_text(use.resource_class, use.used, use.capacity)}"
    if not use.parts and use.free == use.capacity - use.used:
        return told
    parts = [_parts(part, count) for part, count in Counter(use.parts).items()]
    free = figures_text(use.resource_class, use.free)
    if use.is_device:
        parts = [f"{free} whole", *parts]
    return f"{told} ({', '.join(parts or [free])} free)"


def _parts(part: Fraction, count: int) -> str:
    if part == Fraction(1, 2):
        return "1 half" if count == 1 else f"{count} halves"
    return f"{count} of {amount_text(part)}"


def words_of_host(host: HostUsage) -> dict[str, str]:
    """Return the word of each class of a host."""
    return _words_of(tuple(one.resource_class for one in host.classes))


#: Hosts are mostly of few sorts.
_words_of = functools.lru_cache(maxsize=256)(words_of)


def amounts_text(
    amounts: Iterable[tuple[str, int | Fraction]], said: Mapping[str, str], first: str | None = None
) -> str:
    """Return amounts of classes with their words; of a first class without it.

    >>> amounts_text([("PGPU", 4), ("SRIOV_NET_VF", 1)], {"PGPU": "GPU", "SRIOV_NET_VF": "VF"})
    '4 GPU + 1 VF'
    """
    return " + ".join(
        figures_text(name, amount) + ("" if name == first else f" {said.get(name, name)}")
        for name, amount in amounts
    )


def holder_text(holder: HostHolder, classes: Sequence[ClassUsage], said: Mapping[str, str]) -> str:
    """Return the amounts of a consumer: the first class without its name; its devices, otherwise
    one class.
    """
    devices = {one.resource_class for one in classes if one.is_device}
    first = classes[0].resource_class if classes else None
    shown = [one for one in holder.shown if one[0] in devices] or holder.shown[:1]
    return f"{_plain(holder.consumer)} {amounts_text(shown, said, first)}"


def host_lines(
    hosts: Sequence[HostUsage], width: int | None = None, notes: Mapping[str, str] = {}
) -> list[str]:
    """Return a line for each host: what is used of each class, and who holds how much.

    What is used of a class stands below each other, if there is room for that. A line that is too
    wide loses classes after the first that is not of devices, then the holders of least.

    :param width: columns that there are; None for any number
    :param notes: what else is said of some hosts
    """
    told = [(host, words_of_host(host)) for host in hosts]
    labels = [_label(host, notes.get(host.host)) for host in hosts]
    label = max(map(len, labels), default=0)
    if width is not None and label > width // 2:
        label = 0  # else no figure would be seen
    cells = [
        {
            said[one.resource_class]: class_text(one, said[one.resource_class])
            for one in host.classes
        }
        for host, said in told
    ]
    widths: dict[str, int] = {}
    every = {one.resource_class: one.is_device for host in hosts for one in host.classes}
    ordered = sorted(every, key=lambda name: (not every[name], names.resource_class_order(name)))
    for name in ordered:
        for (_, said), row in zip(told, cells, strict=True):
            if name in said:
                widths[said[name]] = max(widths.get(said[name], 0), len(row[said[name]]))
    is_aligned = width is None or label + sum(2 + one for one in widths.values()) <= width * 3 // 4
    lines = []
    for (one, said), start, row in zip(told, labels, cells, strict=True):
        holders = [holder_text(held, one.classes, said) for held in one.holders]
        columns = [
            row.get(name, "").ljust(most) if is_aligned else row[name]
            for name, most in (widths.items() if is_aligned else dict.fromkeys(row, 0).items())
        ]
        fixed = sum(use.is_device for use in one.classes) + 1
        lines.append(_line(start.ljust(label), columns, fixed, holders, width))
    return lines


def _label(host: HostUsage, note: str | None) -> str:
    said = ", ".join(filter(None, ("disabled" if host.is_disabled else None, note)))
    return f"{_plain(host.host)} ({said})" if said else _plain(host.host)


def _plain(name: str) -> str:
    return name.replace("\n", "\\n")


def _line(label: str, columns: list[str], fixed: int, holders: list[str], width: int | None) -> str:
    """Return one line, as wide as may be."""
    line = "  ".join([label, *columns, ", ".join(holders)]).rstrip()
    if width is None or len(line) <= width:
        return line
    for kept in range(len(columns) - 1, fixed - 1, -1):
        line = "  ".join([label, *columns[:kept], CUT, ", ".join(holders)]).rstrip()
        if len(line) <= width:
            return line
    head = "  ".join([label, *columns[:fixed], *([CUT] if len(columns) > fixed else [])])
    for count in range(len(holders) - 1, -1, -1):
        more = f"{len(holders) - count} more" if count else _holders(len(holders))
        line = f"{head}  {', '.join([*holders[:count], more])}"
        if len(line) <= width:
            return line
    return cut(head if not holders else line, width)


def _holders(count: int) -> str:
    return "1 holder" if count == 1 else f"{count} holders"
