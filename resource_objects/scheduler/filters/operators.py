"""Conditions on values, in the words of Nova's extra specs.

==============================  =================================================================
``= 5``, ``>= 5``               at least, as numbers
``== 5``, ``!= 5``, ``<= 5``    as numbers
``s== a``, ``s!= a``, ``s< a``  as text, in the order of characters; so ``s<=``, ``s>``, ``s>=``
``<in> a``                      is a part of the text
``<all-in> a b``                each is a part of the text
``<or> a <or> b``               is one of them
anything else                   is the same text
==============================  =================================================================

Source: Nova's ``nova/scheduler/filters/extra_specs_ops.py``. Numbers are exact here. A value
that is no number is an error there, and does not meet a condition on numbers here; an operator that
there is not (``<``) is a text there, and an error here.
"""

from __future__ import annotations

import dataclasses
import decimal
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from resource_objects.exceptions import InvalidInput

_NUMBERS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
_TEXTS: dict[str, Callable[[Any, Any], bool]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<": operator.lt,
    "s<=": operator.le,
    "s>": operator.gt,
    "s>=": operator.ge,
    "<in>": operator.contains,
}


@dataclasses.dataclass(frozen=True, slots=True)
class ValueCondition:
    """A condition on one value.

    >>> ValueCondition.parse(">= 5").is_met("10"), ValueCondition.parse("s>= 5").is_met("10")
    (True, False)
    >>> ValueCondition.parse("<or> kvm <or> xen").is_met("xen")
    True
    >>> ValueCondition.parse(">= five")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: condition: got '>= five', expected a number after >=
    """

    text: str
    operator: str  #: "" for the same text
    values: tuple[Any, ...]

    @classmethod
    def parse(cls, text: str) -> ValueCondition:
        """Return the condition that a text says.

        :raises InvalidInput: for an operator that there is not; if something is missing after one,
            or is no number
        """
        return _parsed(text)

    def is_met(self, value: object) -> bool:
        """Return whether a value meets it; a value is compared as its text says it."""
        given = value if isinstance(value, str) else str(value)
        if not self.operator:
            return given == self.text
        if self.operator == "<or>":
            return given in self.values
        if self.operator == "<all-in>":
            return all(one in given for one in self.values)
        if self.operator in _TEXTS:
            return _TEXTS[self.operator](given, self.values[0])
        number = _number(given)
        return number is not None and _NUMBERS[self.operator](number, self.values[0])

    def __str__(self) -> str:
        return self.text


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> ValueCondition:
    words, known = text.split(), (*_NUMBERS, *_TEXTS, "<or>", "<all-in>")
    if not words or words[0] not in known:
        if words and not words[0].strip("<>=!~"):
            raise InvalidInput("text", "condition", text, f"an operator: {', '.join(known)}")
        return ValueCondition(text, "", ())
    name, values = words[0], words[1:]
    if name == "<or>":
        values = [one for one in values if one != "<or>"]
    elif name != "<all-in>":
        values = values[:1]
    if not values:
        raise InvalidInput("text", "condition", text, f"a value after {name}")
    if name not in _NUMBERS:
        return ValueCondition(text, name, tuple(values))
    number = _number(values[0])
    if number is None:
        raise InvalidInput("text", "condition", text, f"a number after {name}")
    return ValueCondition(text, name, (number,))


def conditions_of(
    extra_specs: Mapping[str, str], scope: str
) -> list[tuple[str, ValueCondition, bool]]:
    """Return the conditions of a scope, and those of none: name, condition, whether of the scope.

    >>> [(name, str(one), scoped) for name, one, scoped in conditions_of(
    ...     {"capabilities:model": "s== big", "load": "<= 3", "hw:cpu_policy": "dedicated"},
    ...     "capabilities:")]
    [('model', 's== big', True), ('load', '<= 3', False)]
    """
    return [
        (key.removeprefix(scope), ValueCondition.parse(text), key.startswith(scope))
        for key, text in extra_specs.items()
        if key.startswith(scope) or ":" not in key
    ]


def _number(text: str) -> decimal.Decimal | None:
    try:
        found = decimal.Decimal(text)
    except decimal.InvalidOperation:
        return None
    return found if found.is_finite() else None
