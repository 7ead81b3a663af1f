"""Moments, ages, generations and limits as callers give them, checked. Pure.

What no ``datetime`` can say (the year 10000, or one before the first) is refused like every other
value that cannot be: nothing overflows further in.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias, TypedDict

from resource_objects import exceptions, names
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.providers.orders import UNLIMITED, Totals
from resource_objects.resources import IntegerAmount, Limits

_THOUSANDS = "a moment from the year 1 to the year 9999 in UTC"


def moment(what: str, given: object) -> datetime.datetime:
    """Return a moment in UTC. One without a time zone is refused: nobody knows which it meant.

    >>> at = datetime.datetime.fromisoformat("2030-01-01T01:00:00+01:00")
    >>> print(moment("expires_at", at))
    2030-01-01 00:00:00+00:00
    """
    if not isinstance(given, datetime.datetime) or given.utcoffset() is None:
        raise exceptions.InvalidInput("field", what, given, "a datetime with its time zone")
    try:
        return given.astimezone(datetime.UTC)
    except OverflowError:
        raise exceptions.InvalidInput("field", what, given, _THOUSANDS) from None


class Expiry(TypedDict, total=False):
    """When the claim of an order expires, said in one of two ways or in neither."""

    expires_at: datetime.datetime
    expires_in: datetime.timedelta


def expiry(expires_in: object, expires_at: object) -> Expiry:
    """Return what an order says of when its claim expires, checked; nothing if nothing is given.

    A time from now on stays one: the ledger's clock says what it comes to.

    :raises InvalidInput: if both are given, or a time that is not above 0

    >>> expiry(datetime.timedelta(hours=1), None)
    {'expires_in': datetime.timedelta(seconds=3600)}
    """
    if expires_at is not None:
        if expires_in is not None:
            raise exceptions.InvalidInput(
                "field", "expires_in", expires_in, "either this or expires_at"
            )
        return {"expires_at": moment("expires_at", expires_at)}
    if expires_in is None:
        return {}
    if not isinstance(expires_in, datetime.timedelta) or expires_in <= datetime.timedelta(0):
        raise exceptions.InvalidInput("field", "expires_in", expires_in, "a timedelta above 0")
    return {"expires_in": expires_in}


def later(what: str, given: datetime.timedelta, now: datetime.datetime) -> datetime.datetime:
    """Return the moment that is a time after another one.

    :raises InvalidInput: if that is later than a ``datetime`` can say
    """
    try:
        return now + given
    except OverflowError:
        raise exceptions.InvalidInput(
            "field", what, given, f"a time that leads to {_THOUSANDS}"
        ) from None


def age(what: str, given: object) -> datetime.timedelta:
    """Return an age, or raise ``InvalidInput`` for what is none."""
    if not isinstance(given, datetime.timedelta) or given < datetime.timedelta(0):
        raise exceptions.InvalidInput("field", what, given, "a timedelta of 0 or more")
    return given


def ago(what: str, given: object, now: datetime.datetime) -> datetime.datetime:
    """Return the moment that is an age before another one.

    :raises InvalidInput: if it is no age, or longer ago than a ``datetime`` can say

    >>> now = datetime.datetime(2030, 1, 2, tzinfo=datetime.UTC)
    >>> print(ago("older_than", datetime.timedelta(days=1), now))
    2030-01-01 00:00:00+00:00
    """
    found = age(what, given)
    try:
        return now - found
    except OverflowError:
        raise exceptions.InvalidInput(
            "field", what, given, f"an age that leads to {_THOUSANDS}"
        ) from None


def generation(given: object, what: str = "generation") -> int:
    """Return a generation, or raise ``InvalidInput`` for what is none.

    >>> generation(3)
    3
    """
    if type(given) is not int or not 0 <= given <= MAX_AMOUNT:
        raise exceptions.InvalidInput("field", what, given, f"an integer from 0 to {MAX_AMOUNT}")
    return given


def any_generation(given: object) -> int | None:
    """Return a generation that is demanded, None where none is."""
    return None if given is None else generation(given)


#: What may be used in all, ``{provider: limits}``, providers by name or uuid; None is no bound.
Limited: TypeAlias = Mapping[str, Any] | None


def limits(given: object) -> Totals:
    """Return limits that somebody gives, ``{provider: limits}``, by provider as it is named there.

    :raises InvalidInput: if that is no mapping of providers to limits
    :raises InvalidInput: for a limit that is no count
    :raises InvalidInput: for one below 0
    :raises InvalidInput: for a class that nobody knows

    >>> dict(limits({"host0": "VCPU=20,MEMORY_MB=65536"}))
    {('host0', 'VCPU'): 20, ('host0', 'MEMORY_MB'): 65536}
    """
    if given is None:
        return UNLIMITED
    if isinstance(given, Limits) or not isinstance(given, Mapping):
        expected = "{provider: limits}, such as {'host0': 'VCPU=20'}, or None"
        raise exceptions.InvalidInput("field", "limits", given, expected)
    found: dict[tuple[str, str], int] = {}
    for provider, there in given.items():
        key = names.provider_key(provider)
        if not isinstance(there, Mapping | str):
            raise exceptions.InvalidInput(
                "field", f"limits of {key}", there, "limits, such as 'VCPU=20'"
            )
        for name, limit in Limits.of(there).by_name():
            if not isinstance(limit, IntegerAmount):
                expected = "a count: what says where it goes is counted in other classes too"
                raise exceptions.InvalidInput("amount", f"limit of {name}", limit, expected)
            found[key, name] = limit.value
    return FrozenDict(found)


def of_uuids(named: Totals, resolve: Callable[[Collection[str]], Mapping[str, str]]) -> Totals:
    """Return limits by the uuids of their providers, as a write carries them.

    :param resolve: from names and uuids to uuids, in one look
    :raises NotFound: for a name that is nobody's
    :raises InvalidInput: for a provider that is named twice
    """
    if not named:
        return UNLIMITED
    uuids = resolve(list(dict.fromkeys(key for key, _ in named)))
    found: dict[tuple[str, str], int] = {}
    for (key, name), total in named.items():
        if (uuids[key], name) in found:
            raise exceptions.InvalidInput("repetition", "limits", key, "each provider once")
        found[uuids[key], name] = total
    return FrozenDict(found)


def tighter(one: Totals, other: Totals) -> Totals:
    """Return limits that both say.

    >>> dict(tighter({("a", "VCPU"): 3, ("b", "VCPU"): 5}, {("a", "VCPU"): 4}))
    {('a', 'VCPU'): 3, ('b', 'VCPU'): 5}
    """
    if not one or not other:
        return one or other
    both = {key: min(one[key], other[key]) for key in one.keys() & other.keys()}
    return FrozenDict({**one, **other, **both})
