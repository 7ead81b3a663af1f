"""Checks of the arguments of callers: moments, ages, generations and limits.

A moment that a ``datetime`` cannot represent (the year 10000, or the year 0) is refused here, so no
later computation overflows.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias, TypedDict

from resource_objects import exceptions, names
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.providers.orders import UNLIMITED, UseLimits
from resource_objects.resources import IntegerAmount, Limits

_MOMENTS = "a moment from the year 1 to the year 9999 in UTC"


def moment(field: str, value: object) -> datetime.datetime:
    """Return a moment in UTC; raise ``InvalidInput`` if it has no time zone.

    >>> at = datetime.datetime.fromisoformat("2030-01-01T01:00:00+01:00")
    >>> print(moment("expires_at", at))
    2030-01-01 00:00:00+00:00
    """
    if not isinstance(value, datetime.datetime) or value.utcoffset() is None:
        raise exceptions.InvalidInput("field", field, value, "a datetime with its time zone")
    try:
        return value.astimezone(datetime.UTC)
    except OverflowError:
        raise exceptions.InvalidInput("field", field, value, _MOMENTS) from None


class Expiry(TypedDict, total=False):
    """The expiry of the claim of an order: a moment, a duration, or neither."""

    expires_at: datetime.datetime
    expires_in: datetime.timedelta


def expiry(expires_in: object, expires_at: object) -> Expiry:
    """Return the checked expiry of a claim; empty if both arguments are None.

    A duration remains one: the clock of the ledger determines the moment when the claim is written.

    :raises InvalidInput: if both are specified, or if the duration is not above 0

    >>> expiry(datetime.timedelta(hours=1), None)
    {'expires_in': datetime.timedelta(seconds=3600)}
    """
    if expires_at is not None:
        if expires_in is not None:
            expected = "either this or expires_at"
            raise exceptions.InvalidInput("field", "expires_in", expires_in, expected)
        return {"expires_at": moment("expires_at", expires_at)}
    if expires_in is None:
        return {}
    if not isinstance(expires_in, datetime.timedelta) or expires_in <= datetime.timedelta(0):
        raise exceptions.InvalidInput("field", "expires_in", expires_in, "a timedelta above 0")
    return {"expires_in": expires_in}


def later(field: str, value: datetime.timedelta, now: datetime.datetime) -> datetime.datetime:
    """Return the moment a duration after another, or raise ``InvalidInput`` if it is too far."""
    try:
        return now + value
    except OverflowError:
        expected = f"a time that leads to {_MOMENTS}"
        raise exceptions.InvalidInput("field", field, value, expected) from None


def age(field: str, value: object) -> datetime.timedelta:
    """Return an age, or raise ``InvalidInput`` for another value."""
    if not isinstance(value, datetime.timedelta) or value < datetime.timedelta(0):
        raise exceptions.InvalidInput("field", field, value, "a timedelta of 0 or more")
    return value


def ago(field: str, value: object, now: datetime.datetime) -> datetime.datetime:
    """Return the moment an age before another one.

    :raises InvalidInput: if it is not an age, or if a ``datetime`` cannot represent the moment

    >>> now = datetime.datetime(2030, 1, 2, tzinfo=datetime.UTC)
    >>> print(ago("older_than", datetime.timedelta(days=1), now))
    2030-01-01 00:00:00+00:00
    """
    duration = age(field, value)
    try:
        return now - duration
    except OverflowError:
        expected = f"an age that leads to {_MOMENTS}"
        raise exceptions.InvalidInput("field", field, value, expected) from None


def generation(value: object, field: str = "generation") -> int:
    """Return a generation, or raise ``InvalidInput`` for another value.

    >>> generation(3)
    3
    """
    if type(value) is not int or not 0 <= value <= MAX_AMOUNT:
        raise exceptions.InvalidInput("field", field, value, f"an integer from 0 to {MAX_AMOUNT}")
    return value


def any_generation(value: object) -> int | None:
    """Return a required generation, or None if none is required."""
    return None if value is None else generation(value)


#: Limits of the total use, ``{provider: limits}``, providers by name or uuid; None: unlimited.
Limited: TypeAlias = Mapping[str, Any] | None


def limits(value: object) -> UseLimits:
    """Return limits, ``{provider: limits}``, as ``{(provider, class): limit}``.

    :raises InvalidInput: if the argument is not a mapping of providers to limits; for a limit that
        is not a count, or is below 0; for an unknown resource class

    >>> dict(limits({"host0": "VCPU=20,MEMORY_MB=65536"}))
    {('host0', 'VCPU'): 20, ('host0', 'MEMORY_MB'): 65536}
    """
    if value is None:
        return UNLIMITED
    if isinstance(value, Limits) or not isinstance(value, Mapping):
        expected = "{provider: limits}, such as {'host0': 'VCPU=20'}, or None"
        raise exceptions.InvalidInput("field", "limits", value, expected)
    totals: dict[tuple[str, str], int] = {}
    for provider, text in value.items():
        key = names.provider_key(provider)
        if not isinstance(text, Mapping | str):
            raise exceptions.InvalidInput(
                "field", f"limits of {key}", text, "limits, such as 'VCPU=20'"
            )
        for name, limit in Limits.from_value(text).by_name():
            if not isinstance(limit, IntegerAmount):
                expected = "a count: a placed resource is counted in other classes too"
                raise exceptions.InvalidInput("amount", f"limit of {name}", limit, expected)
            totals[key, name] = limit.value
    return FrozenDict(totals)


def of_uuids(
    named: UseLimits, resolve: Callable[[Collection[str]], Mapping[str, str]]
) -> UseLimits:
    """Return limits by the uuids of their providers, as in a write.

    :param resolve: returns the uuids of names and uuids, called once
    :raises NotFound: for a name without a provider
    :raises InvalidInput: for a provider that is named twice
    """
    if not named:
        return UNLIMITED
    uuids = resolve(list(dict.fromkeys(key for key, _ in named)))
    totals: dict[tuple[str, str], int] = {}
    for (key, name), total in named.items():
        if (uuids[key], name) in totals:
            raise exceptions.InvalidInput("repetition", "limits", key, "each provider once")
        totals[uuids[key], name] = total
    return FrozenDict(totals)


def tighter(first: UseLimits, second: UseLimits) -> UseLimits:
    """Return the limits that satisfy both arguments.

    >>> dict(tighter({("a", "VCPU"): 3, ("b", "VCPU"): 5}, {("a", "VCPU"): 4}))
    {('a', 'VCPU'): 3, ('b', 'VCPU'): 5}
    """
    if not first or not second:
        return first or second
    both = {key: min(first[key], second[key]) for key in first.keys() & second.keys()}
    return FrozenDict({**first, **second, **both})
