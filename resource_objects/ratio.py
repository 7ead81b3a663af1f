"""Allocation ratios: exact decimals of at most six places, never floats.

``floor(100 * 1.15)`` is 114 in floating point, and a column of 32-bit floats returns 1.15 as
1.149999976158142. So a ratio is a :class:`decimal.Decimal`, and calculations use integer millionths
(invariant 7). A float is read by its shortest decimal form, which its writer typed.

Arithmetic of ``Decimal`` rounds to the precision of the thread's decimal context, which the program
may set. So this module does not calculate with decimals; it converts them from and to integers.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from decimal import Decimal

from resource_objects.exceptions import InvalidInput

#: One in millionths, the unit in which ratios are calculated and stored.
MILLION = 1_000_000
#: The largest ratio: with it, ``(total - reserved) * millionths`` still fits 64 bits.
MAX_RATIO = 4000

_EXPECTED = f"a decimal above 0, at most {MAX_RATIO}, of at most six places"
#: A number with more digits before its point has no 64-bit millionths.
_MOST_DIGITS = 14
_NUMBER = re.compile(r"[+-]?(?=\.?[0-9])[0-9]{0,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?\Z")


def to_ratio(value: object) -> Decimal:
    """Return a ratio as an exact decimal without trailing zeros.

    Accepts an integer, a ``Decimal``, decimal text, or a float by its shortest decimal form
    (NumPy's 32-bit floats by theirs). Cost: under 3 microseconds, and a tenth for a recent one.

    :raises InvalidInput: if it is not above 0, above 4000, not finite, or needs a seventh place

    >>> to_ratio("1.50"), to_ratio(1.15), to_ratio(16)
    (Decimal('1.5'), Decimal('1.15'), Decimal('16'))
    >>> to_ratio(0.1234567)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: ...
    """
    if type(value) in _CACHED:
        try:
            return _checked(value)
        except TypeError:  # a signalling NaN does not even hash
            raise InvalidInput("ratio", "allocation_ratio", value, _EXPECTED) from None
    return _check(value)


def to_millionths(ratio: Decimal) -> int:
    """Return a checked ratio as integer millionths.

    >>> to_millionths(Decimal("1.15"))
    1150000
    """
    numerator, denominator = ratio.as_integer_ratio()
    return numerator * MILLION // denominator


def from_millionths(millionths: int) -> Decimal:
    """Return the ratio of integer millionths.

    :raises InvalidInput: if it is not above 0, or above 4000

    >>> from_millionths(1150000)
    Decimal('1.15')
    """
    if type(millionths) is not int or not 0 < millionths <= MAX_RATIO * MILLION:
        raise InvalidInput(
            "ratio", "millionths", millionths, f"an integer from 1 to {MAX_RATIO * MILLION}"
        )
    return decimal_of(millionths)


def ratio_from_float_column(value: object) -> Decimal:
    """Return a ratio read from a database column of floats, of 32 or 64 bits.

    A 32-bit float that was widened to 64 bits has a shortest form of up to 17 digits. If that form
    is too precise and the number fits 32 bits exactly, the shortest form of the 32-bit float is
    used.

    :raises InvalidInput: as :func:`to_ratio`

    >>> ratio_from_float_column(1.149999976158142), ratio_from_float_column(1.15)
    (Decimal('1.15'), Decimal('1.15'))
    """
    try:
        return to_ratio(value)
    except InvalidInput as error:
        if not error.is_about("ratio"):
            raise
        short = _shortest_single(value) if isinstance(value, float) else None
        millionths = None if short is None else _millionths(Decimal(short))
        if not millionths or not 0 < millionths <= MAX_RATIO * MILLION:
            raise
        return decimal_of(millionths)


def millionths_of(value: object, most: int) -> int | None:
    """Return the exact millionths of a number from ``-most`` to ``most``.

    None for a value that is no number, is larger, or needs a seventh place. Accepts the types of
    :func:`to_ratio`.

    >>> millionths_of("-0.25", 100), millionths_of(0.29, 100), millionths_of("1e-7", 100)
    (-250000, 290000, None)
    """
    exact = _exact(value, most)
    millionths = None if exact is None else _millionths(exact)
    return None if millionths is None or abs(millionths) > most * MILLION else millionths


def decimal_of(millionths: int) -> Decimal:
    """Return the decimal of millionths, without trailing zeros and without an exponent.

    >>> decimal_of(-250000), decimal_of(0), decimal_of(16_000_000)
    (Decimal('-0.25'), Decimal('0'), Decimal('16'))
    """
    places = 6
    while places and millionths % 10 == 0:
        millionths //= 10
        places -= 1
    return Decimal(f"{millionths}e-{places}")


def _check(value: object) -> Decimal:
    millionths = millionths_of(value, MAX_RATIO)
    if not millionths or millionths < 0:
        raise InvalidInput("ratio", "allocation_ratio", value, _EXPECTED)
    return decimal_of(millionths)


_CACHED = frozenset({int, str, float, Decimal})
_checked = functools.lru_cache(maxsize=256, typed=True)(_check)


def _exact(value: object, most: int = MAX_RATIO) -> Decimal | None:
    """Return the value as a decimal; None if it is no number, or an integer above ``most``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int):
        # the conversion of a huge integer takes long
        return Decimal(value) if abs(value) <= most else None
    if isinstance(value, float):
        return Decimal(float.__repr__(value))
    if isinstance(value, str):
        return _read(value)
    if type(value).__module__ == "numpy":
        # str() of a NumPy float is the shortest form in its own precision
        return _read(str(value))
    return None


def _read(text: str) -> Decimal | None:
    return Decimal(text) if _NUMBER.match(text) else None


def _millionths(exact: Decimal) -> int | None:
    """Return the millionths of a number; None if they are no integer, or far too large."""
    if not exact.is_finite() or (exact and not -6 <= exact.adjusted() < _MOST_DIGITS):
        return None
    numerator, denominator = exact.as_integer_ratio()
    millionths, remainder = divmod(numerator * MILLION, denominator)
    return None if remainder else millionths


def _shortest_single(value: float) -> str | None:
    """Return the shortest decimal text of a 32-bit float; None for other floats."""
    if not math.isfinite(value) or abs(value) > MAX_RATIO:
        return None
    if struct.unpack("f", struct.pack("f", value))[0] != value:
        return None
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == value:
            return text
    return None
