"""A repro bundle as a scenario file: the drawn tree, what is asked, and the answer as it is now."""

from __future__ import annotations

import re
from typing import Any

from resource_objects.search.bundle import Bundle
from resource_objects.testing.drawing import Drawing


def drawn(bundle: Bundle[Any], why: str) -> str:
    """Return a bundle of counts as the text of a scenario file, which says the answer it gives.

    :raises InvalidInventory: if something in it is no count
    """
    found = bundle.ask()
    options = ", ".join(f"{name}={value!r}" for name, value in sorted(bundle.options.items()))
    lines = [str(Drawing.of(bundle.columns)), "", f"Why: {why}", ""]
    request = repr(bundle.request)
    lines += [f"request: {re.sub('FrozenDict', 'dict', request)}"]
    lines += [f"options: {options}"] if options else []
    listed = list(found)
    lines += ["ours:"] if listed else ["ours: none"]
    lines += [f"  {one.host}: {one}" for one in listed]
    if not listed:
        lines += ["missing:", *(f"  {line}" for line in str(found.explain()).splitlines())]
    return "\n".join(lines) + "\n"
