"""The text form of amounts of devices: the part after ``PCI_DEVICES=``.

Requests are joined by ``/``, each ``COUNT*KIND@option...``. A KIND is a resource class,
``VENDOR.PRODUCT``, a type, or ``address=``, ``class=``, ``tag=NAME>VALUE``, ``trait=``, joined by
``&``; alternatives by ``|``. The options are the affinity by its name, and ``requester=``,
``alias=``, ``id=``, ``providers=``. Assigned, ``on=`` says the devices.

    2*PGPU@required
    PGPU/8086.154c&type-VF@requester=port-1
    10de.2330|10de.any&trait=CUSTOM_H100@on=PGPU>0000:3b:00.0@alias=gpu
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from resource_objects import exceptions
from resource_objects.resources import text
from resource_objects.resources.pci import pieces, words
from resource_objects.resources.pci.amount import PCIAmount, PlacedDevice
from resource_objects.resources.pci.pieces import WHAT
from resource_objects.resources.pci.wish import DeviceRequest

_GIVES_BACK = "-"
_NAMES = {"requester": "requester", "alias": "alias", "id": "request_id"}


def parse_amount(text_form: str) -> PCIAmount:
    """Return the amount of its text form.

    :raises InvalidText: if it does not parse
    :raises InvalidAmount: if what it says contradicts itself

    >>> parse_amount("2*PGPU@required").requests[0].affinity
    'required'
    """
    if not isinstance(text_form, str) or len(text_form) > text.MAX_LENGTH:
        raise exceptions.InvalidText(WHAT, text_form, "text such as 2*PGPU@required")
    gives_back = text_form.startswith(_GIVES_BACK)
    requests: list[DeviceRequest] = []
    placed: list[PlacedDevice] = []
    for part in text_form.removeprefix(_GIVES_BACK).split("/"):
        head, *options = part.split("@")
        said = _options(options)
        on = said.pop("on", "")
        placed += [_placed(len(requests), item) for item in on.split("+") if item]
        requests.append(_request(head, said))
    return PCIAmount(requests, placed=placed, gives_back=gives_back)


def _options(options: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals and option in words.AFFINITIES:
            name, value = "affinity", option
        elif not equals or name not in (*_NAMES, "providers", "on"):
            known = ", ".join((*words.AFFINITIES, *(f"{n}=" for n in (*_NAMES, "providers", "on"))))
            raise exceptions.InvalidText(f"{WHAT}, option", option, f"one of {known}")
        if name in found:
            raise exceptions.DuplicateKey(f"{WHAT}, option", option, "each option once")
        found[name] = value
    return found


def _request(head: str, options: dict[str, str]) -> DeviceRequest:
    count, times, kinds = (
        head.rpartition("*") if head[:1].isdigit() and "*" in head else ("", "", head)
    )
    return DeviceRequest(
        [pieces.read_spec(kind) for kind in kinds.split("|")],
        text.integer(count, f"{WHAT}, count") if times else 1,
        options.get("affinity", words.LEGACY),
        providers=[pieces.unquoted(one) for one in options.get("providers", "").split("+") if one],
        **{
            field: pieces.unquoted(options[name])
            for name, field in _NAMES.items()
            if name in options
        },
    )


def _placed(request: int, item: str) -> PlacedDevice:
    where, *parts = item.split(";")
    kind, arrow, rest = where.partition(">")
    address, _, node = rest.partition("!")
    if not arrow:
        raise exceptions.InvalidText(f"{WHAT}, device", item, "CLASS>ADDRESS")
    numa_node = text.integer(node, f"{WHAT}, node") if node else None
    return PlacedDevice(request, address, kind, numa_node=numa_node, parts=parts)


def format_amount(amount: PCIAmount) -> str:
    """Return the text that :func:`parse_amount` reads back.

    >>> from resource_objects.resources.pci import devices
    >>> format_amount(devices("10de:2330", requester="port 1"))
    '10de.2330@requester=port%201'
    """
    requests = (
        _said_request(request, [one for one in amount.placed if one.request == place])
        for place, request in enumerate(amount.requests)
    )
    return f"{_GIVES_BACK if amount.gives_back else ''}{'/'.join(requests)}"


def _said_request(request: DeviceRequest, placed: Sequence[PlacedDevice]) -> str:
    times = f"{request.count}*" if request.count != 1 else ""
    kinds = "|".join(map(pieces.say_spec, request.specs))
    return "@".join((f"{times}{kinds}", *_said_options(request, placed)))


def _said_options(request: DeviceRequest, placed: Sequence[PlacedDevice]) -> Iterator[str]:
    if request.affinity != words.LEGACY:
        yield request.affinity
    for name, field in _NAMES.items():
        value = getattr(request, field)
        if value is not None:
            yield f"{name}={pieces.quoted(value)}"
    if request.providers:
        yield f"providers={'+'.join(map(pieces.quoted, request.providers))}"
    if placed:
        yield f"on={'+'.join(map(_said_placed, placed))}"


def _said_placed(device: PlacedDevice) -> str:
    node = "" if device.numa_node is None else f"!{device.numa_node}"
    return ";".join((f"{device.resource_class}>{device.address}{node}", *device.parts))
