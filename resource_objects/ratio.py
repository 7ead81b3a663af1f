"""Allocation ratios: exact decimals of at most six places, never floats.

``floor(100 * 1.15)`` is 114 in floating point, and a column of 32-bit floats gives 1.15 back as
1.149999976158142. So a ratio is a :class:`decimal.Decimal`, computed with as integer millionths
(law 7). A float is taken by its shortest decimal form, which is what its writer typed.
"""

from __future__ import annotations

import decimal
import math
import struct
from decimal import Decimal

from resource_objects.exceptions import InvalidRatio

#: One in millionths, the unit ratios are computed and stored in.
MILLION = 1_000_000
#: The largest ratio: with it, ``(total - reserved) * millionths`` still fits 64 bits.
MAX_RATIO = Decimal(4000)

_EXPECTED = f"a decimal above 0, at most {MAX_RATIO}, of at most six places"


def to_ratio(value: object) -> Decimal:
    """Return a ratio as an exact decimal without trailing zeros.

    Accepts an integer, a ``Decimal``, decimal text, or a float by its shortest decimal form
    (NumPy's 32-bit floats by theirs). Cost: under 2 microseconds.

    :raises InvalidRatio: if it is not above 0, above 4000, not finite, or needs a seventh place

    >>> to_ratio("1.50"), to_ratio(1.15), to_ratio(16)
    (Decimal('1.5'), Decimal('1.15'), Decimal('16'))
    >>> to_ratio(0.1234567)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidRatio: ...
    """
    exact = _exact(value)
    if exact is None or not exact.is_finite() or not 0 < exact <= MAX_RATIO:
        raise InvalidRatio("allocation_ratio", value, _EXPECTED)
    if (exact * MILLION) % 1:
        raise InvalidRatio("allocation_ratio", value, _EXPECTED)
    return _canonical(exact)


def to_millionths(ratio: Decimal) -> int:
    """Return a checked ratio as integer millionths.

    >>> to_millionths(Decimal("1.15"))
    1150000
    """
    return int(ratio * MILLION)


def from_millionths(millionths: int) -> Decimal:
    """Return the ratio of integer millionths.

    >>> from_millionths(1150000)
    Decimal('1.15')
    """
    return to_ratio(Decimal(millionths) / MILLION)


def ratio_from_float_column(value: object) -> Decimal:
    """Return a ratio read from a database column of floats, of 32 or 64 bits.

    A 32-bit float widened to 64 has a shortest form of up to 17 digits; where the number is one
    that 32 bits hold exactly and its own form is too precise, its 32-bit form is meant.

    :raises InvalidRatio: as :func:`to_ratio`

    >>> ratio_from_float_column(1.149999976158142), ratio_from_float_column(1.15)
    (Decimal('1.15'), Decimal('1.15'))
    """
    try:
        return to_ratio(value)
    except InvalidRatio:
        short = _shortest_single(value) if isinstance(value, float) else None
        if short is None:
            raise
        return to_ratio(short)


def _exact(value: object) -> Decimal | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int):
        # a huge integer must not cost a huge conversion
        return Decimal(value) if abs(value) <= MAX_RATIO else None
    if isinstance(value, float):
        return Decimal(float.__repr__(value))
    if isinstance(value, str) and len(value) <= 40:
        return _decimal(value)
    if type(value).__module__ == "numpy":
        # str() of a NumPy float is the shortest form in its own precision
        return _decimal(str(value))
    return None


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except decimal.InvalidOperation:
        return None


def _canonical(exact: Decimal) -> Decimal:
    """Strip trailing zeros without falling into the exponent form of whole numbers."""
    whole = exact.to_integral_value()
    return whole.quantize(Decimal(1)) if exact == whole else exact.normalize()


def _shortest_single(value: float) -> str | None:
    """Return the shortest decimal text that reads back as the same 32-bit float, if it is one."""
    if not math.isfinite(value) or abs(value) > MAX_RATIO:
        return None
    if struct.unpack("f", struct.pack("f", value))[0] != value:
        return None
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == value:
            return text
    return None
