"""The assertion that an input is refused by a rule of Nova."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule


@contextlib.contextmanager
def breaks(
    *rules: NovaRule, match: str | None = None
) -> Iterator[pytest.ExceptionInfo[InvalidNovaInput]]:
    """Assert that an input is refused by one of these rules."""
    with pytest.raises(InvalidNovaInput, match=match) as caught:
        yield caught
    assert caught.value.rule in rules, caught.value
