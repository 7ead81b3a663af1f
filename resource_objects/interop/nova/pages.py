"""Page sizes, and memory that is locked.

``2MB`` is 2 MiB and a bare number is KiB. Nova's reading refuses ``2M`` and ``2048kB``, which its
interface takes; here they are read. It takes sizes in bits (``16Mb``), sizes that no page has
(``3000``), and 0 for no size at all; here they are refused.
"""

from __future__ import annotations

import re

from resource_objects import exceptions
from resource_objects.interop.nova import errors
from resource_objects.interop.nova.flavor_words import FlavorWords, flag_of
from resource_objects.resources.numa import words as numa_words
from resource_objects.resources.numa.words import ANY, LARGE, PAGE_SIZES

_SIZE = re.compile(r"[0-9]{1,12}(?:[kKMGT](?:i?B)?)?\Z", re.ASCII)


def page_size(words: FlavorWords) -> str:
    """Return the page size as a topology amount keeps it, ``""`` for none.

    An image may choose only if the flavor says large or any.

    :raises InvalidPageSize: for what is no page size
    :raises PageSizeConflict: if the image asks for one and may not

    >>> page_size(FlavorWords(4, 512, {"hw:mem_page_size": "large"}, {"hw_mem_page_size": "1GB"}))
    '1048576'
    """
    flavor, image = words.flavor("mem_page_size"), words.image("mem_page_size")
    size = _read("hw:mem_page_size", flavor) if flavor else ""
    if not image:
        return size
    if size not in (LARGE, ANY):
        against = f"hw:mem_page_size={flavor}" if flavor else "no hw:mem_page_size"
        raise errors.PageSizeConflict(
            "hw_mem_page_size", image, f"none, for the flavor says {against}, not large or any"
        )
    return _read("hw_mem_page_size", image)


def size_in_kib(key: str, text: str) -> int:
    """Return the size that a number with or without a unit says, in KiB.

    :raises InvalidPageSize: if it says none

    >>> size_in_kib("size", "1GB"), size_in_kib("size", "2048")
    (1048576, 2048)
    """
    try:
        if _SIZE.match(text):
            return int(numa_words.page_size(text))
    except exceptions.InvalidText as error:
        raise _invalid(key, text) from error
    raise _invalid(key, text)


def locked_memory(words: FlavorWords) -> bool:
    """Return whether memory shall stay where it is. What memory encryption implies is not read.

    :raises InvalidFlag: for neither yes nor no
    :raises LockedMemoryConflict: if flavor and image disagree
    :raises LockedMemoryWithoutPageSize: if neither says a page size

    >>> locked_memory(FlavorWords(4, 512, {"hw:locked_memory": "true",
    ...                                    "hw:mem_page_size": "small"}, {}))
    True
    """
    flavor = flag_of("hw:locked_memory", words.flavor("locked_memory"))
    image = flag_of("hw_locked_memory", words.image("locked_memory"))
    if flavor is not None and image is not None and flavor != image:
        raise errors.LockedMemoryConflict(
            "hw_locked_memory", image, f"{flavor}, as the flavor says, or none"
        )
    locked = bool(image if flavor is None else flavor)
    if locked and not (words.flavor("mem_page_size") or words.image("mem_page_size")):
        raise errors.LockedMemoryWithoutPageSize("hw:mem_page_size", "", "one, to lock memory")
    return locked


def _read(key: str, text: str) -> str:
    return text if text in PAGE_SIZES else str(size_in_kib(key, text))


def _invalid(key: str, text: str) -> errors.InvalidPageSize:
    return errors.InvalidPageSize(
        key, text, "small, large, any, or a power of two such as 2048 (KiB) or 1GB"
    )
