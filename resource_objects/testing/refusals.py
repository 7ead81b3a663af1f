"""Assert that a block raises an error of the library with a certain code."""

from __future__ import annotations

from typing import Any

import pytest


def raises_code(
    *kinds: type[BaseException] | str, match: str | None = None
) -> pytest.RaisesExc[Any]:
    """Return ``pytest.raises`` for errors by their types or their codes.

    :param kinds: types, or codes such as ``"ProviderNotFound"``; one of them is expected
    :param match: a regular expression that is searched in the message

    >>> from resource_objects import exceptions
    >>> with raises_code("ProviderNotFound"):
    ...     raise exceptions.NotFound("provider", "host9")
    """
    types = (kind for kind in kinds if isinstance(kind, type))
    expected = Exception if all(issubclass(kind, Exception) for kind in types) else BaseException
    return pytest.raises(expected, match=match, check=lambda error: is_one_of(error, *kinds))


def is_one_of(error: object, *kinds: type[BaseException] | str) -> bool:
    """Return True if an error is of one of these types, or has one of these codes."""
    code = getattr(error, "code", None)
    return any(code == kind if isinstance(kind, str) else isinstance(error, kind) for kind in kinds)
