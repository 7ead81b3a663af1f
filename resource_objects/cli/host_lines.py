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
    abbreviation = WORDS.get(resource_class)
    return (
        resource_class.removeprefix(names.CUSTOM_PREFIX) if abbreviation is None else abbreviation
    )


def words_of(classes: Iterable[str]) -> dict[str, str]:
    """Return the word of each of some classes; two of the same word keep their names.

    >>> words_of(["PGPU", "VCPU", "PCPU"])
    {'PGPU': 'GPU', 'VCPU': 'VCPU', 'PCPU': 'PCPU'}
    """
    words = {name: word(name) for name in classes}
    count = Counter(words.values())
    return {name: text if count[text] == 1 else name for name, text in words.items()}


def amount_text(amount: int | Fraction) -> str:
    """Return an amount for people: fractions of few parts as such, others to three decimals.

    >>> [amount_text(one) for one in (4, Fraction(1, 2), Fraction(9, 2), Fraction(1, 3000))]
    ['4', '1/2', '4 1/2', '<0.001']
    >>> amount_text(Fraction(333, 1000)), amount_text(Fraction(4, 2))
    ('0.333', '2')
    """
    if isinstance(amount, int):  # nearly all; fractions would take half of the time of a list
        return str(amount)
    integer, fraction = divmod(amount, 1)
    if not fraction:
        return str(integer)
    if fraction.denominator <= _MOST_PARTS:
        return f"{integer} {fraction}" if integer else str(fraction)
    thousandths = fraction.numerator * 1000 // fraction.denominator
    if not thousandths and not integer:
        return "<0.001"
    return f"{integer}.{thousandths:03}"


def figures_text(resource_class: str, *figures: int | Fraction) -> str:
    """Return figures of a class with slashes between, in the unit that people use.

    >>> figures_text("MEMORY_MB", 65536, 515000), figures_text("PGPU", 5, 8)
    ('64/502.9G', '5/8')
    """
    scale, sign = _SCALES.get(resource_class, (1, ""))
    if scale == 1:
        return "/".join(map(amount_text, figures)) + sign
    return "/".join(f"{float(figure / scale):.1f}".removesuffix(".0") for figure in figures) + sign


def class_text(use: ClassUsage, label: str) -> str:
    """Return the usage of a class, and its free amount if that is not the difference.

    >>> class_text(ClassUsage("PGPU", 8, 5, 3, (Fraction(1, 2),), True), "GPU")
    'GPU 5/8 (3 whole, 1 half free)'
    >>> class_text(ClassUsage("VCPU", 64, 40, 24), "CPU")
    'CPU 40/64'
    """
    text = f"{label} {figures_text(use.resource_class, use.used, use.capacity)}"
    if not use.parts and use.free == use.capacity - use.used:
        return text
    parts = [_parts(part, count) for part, count in Counter(use.parts).items()]
    free = figures_text(use.resource_class, use.free)
    if use.is_device:
        parts = [f"{free} whole", *parts]
    return f"{text} ({', '.join(parts or [free])} free)"


def _parts(part: Fraction, count: int) -> str:
    if part == Fraction(1, 2):
        return "1 half" if count == 1 else f"{count} halves"
    return f"{count} of {amount_text(part)}"


def words_of_host(host: HostUsage) -> dict[str, str]:
    """Return the word of each class of a host."""
    return _words_of(tuple(use.resource_class for use in host.classes))


#: Hosts are mostly of few sorts.
_words_of = functools.lru_cache(maxsize=256)(words_of)


def amounts_text(
    amounts: Iterable[tuple[str, int | Fraction]],
    labels: Mapping[str, str],
    first: str | None = None,
) -> str:
    """Return amounts of classes with their words; of a first class without it.

    >>> amounts_text([("PGPU", 4), ("SRIOV_NET_VF", 1)], {"PGPU": "GPU", "SRIOV_NET_VF": "VF"})
    '4 GPU + 1 VF'
    """
    return " + ".join(
        figures_text(name, amount) + ("" if name == first else f" {labels.get(name, name)}")
        for name, amount in amounts
    )


def holder_text(
    holder: HostHolder, classes: Sequence[ClassUsage], labels: Mapping[str, str]
) -> str:
    """Return the amounts of a consumer: the first class without its name; its devices, otherwise
    one class.
    """
    devices = {use.resource_class for use in classes if use.is_device}
    first = classes[0].resource_class if classes else None
    shown = [use for use in holder.shown if use[0] in devices] or holder.shown[:1]
    return f"{_plain(holder.consumer)} {amounts_text(shown, labels, first)}"


def host_lines(
    hosts: Sequence[HostUsage], width: int | None = None, notes: Mapping[str, str] = {}
) -> list[str]:
    """Return a line for each host: the usage of each class, and the amounts of each consumer.

    The usage of a class is aligned, if there is space for it. A line that is too wide omits classes
    after the first one that is not of devices, then the smallest consumers.

    :param width: the number of columns; None for any number
    :param notes: further text of some hosts
    """
    labelled_hosts = [(host, words_of_host(host)) for host in hosts]
    labels = [_label(host, notes.get(host.host)) for host in hosts]
    label = max(map(len, labels), default=0)
    if width is not None and label > width // 2:
        label = 0  # else no figure would be seen
    cells = [
        {
            labels_of_host[item.resource_class]: class_text(
                item, labels_of_host[item.resource_class]
            )
            for item in host.classes
        }
        for host, labels_of_host in labelled_hosts
    ]
    widths: dict[str, int] = {}
    is_device = {item.resource_class: item.is_device for host in hosts for item in host.classes}
    ordered = sorted(
        is_device, key=lambda name: (not is_device[name], names.resource_class_order(name))
    )
    for name in ordered:
        for (_, labels_of_host), row in zip(labelled_hosts, cells, strict=True):
            if name in labels_of_host:
                widths[labels_of_host[name]] = max(
                    widths.get(labels_of_host[name], 0), len(row[labels_of_host[name]])
                )
    is_aligned = (
        width is None or label + sum(2 + item for item in widths.values()) <= width * 3 // 4
    )
    lines = []
    for (item, labels_of_host), start, row in zip(labelled_hosts, labels, cells, strict=True):
        holders = [holder_text(consumer, item.classes, labels_of_host) for consumer in item.holders]
        columns = [
            row.get(name, "").ljust(most) if is_aligned else row[name]
            for name, most in (widths.items() if is_aligned else dict.fromkeys(row, 0).items())
        ]
        fixed = sum(use.is_device for use in item.classes) + 1
        lines.append(_line(start.ljust(label), columns, fixed, holders, width))
    return lines


def _label(host: HostUsage, note: str | None) -> str:
    notes = ", ".join(filter(None, ("disabled" if host.is_disabled else None, note)))
    return f"{_plain(host.host)} ({notes})" if notes else _plain(host.host)


def _plain(name: str) -> str:
    return name.replace("\n", "\\n")


def _line(label: str, columns: list[str], fixed: int, holders: list[str], width: int | None) -> str:
    """Return one line, as wide as may be."""
    line = "  ".join([label, *columns, ", ".join(holders)]).rstrip()
    if width is None or len(line) <= width:
        return line
    for count in range(len(columns) - 1, fixed - 1, -1):
        line = "  ".join([label, *columns[:count], CUT, ", ".join(holders)]).rstrip()
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
