"""Conditions on values, in the syntax of Nova's extra specs.

==============================  =================================================================
``= 5``, ``>= 5``               at least, as numbers
``== 5``, ``!= 5``, ``<= 5``    as numbers
``s== a``, ``s!= a``, ``s< a``  as text, in the order of characters; so ``s<=``, ``s>``, ``s>=``
``<in> a``                      is a part of the text
``<all-in> a b``                each is a part of the text
``<or> a <or> b``               is one of them
anything else                   is the same text
==============================  =================================================================

Source: Nova's ``nova/scheduler/filters/extra_specs_ops.py``. Numbers are exact here. A value that
is not a number is an error there; here it does not meet a condition on numbers. An unknown operator
(``<``) is a text there, and an error here.
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
_LISTS: dict[str, Callable[[str, tuple[Any, ...]], bool]] = {
    "<or>": lambda text, values: text in values,
    "<all-in>": lambda text, values: all(part in text for part in values),
}
_OPERATORS = (*_NUMBERS, *_TEXTS, *_LISTS)


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
    @functools.lru_cache(maxsize=1024)
    def parse(cls, text: str) -> ValueCondition:
        """Return the condition of a text.

        :raises InvalidInput: for an unknown operator; for an operator without a value, or without
            a number where it compares numbers
        """
        words = text.split()
        if not words or words[0] not in _OPERATORS:
            if words and not words[0].strip("<>=!~"):
                expected = f"an operator: {', '.join(_OPERATORS)}"
                raise InvalidInput("text", "condition", text, expected)
            return cls(text, "", ())
        name, *values = words
        if name == "<or>":
            values = [value for value in values if value != "<or>"]
        if not values:
            raise InvalidInput("text", "condition", text, f"a value after {name}")
        if name in _LISTS:
            return cls(text, name, tuple(values))
        value = _number(values[0]) if name in _NUMBERS else values[0]
        if value is None:
            raise InvalidInput("text", "condition", text, f"a number after {name}")
        return cls(text, name, (value,))

    def is_met(self, value: object) -> bool:
        """Return True if the text of a value meets the condition."""
        text = value if isinstance(value, str) else str(value)
        if not self.operator:
            return text == self.text
        if self.operator in _LISTS:
            return _LISTS[self.operator](text, self.values)
        if self.operator in _TEXTS:
            return _TEXTS[self.operator](text, self.values[0])
        number = _number(text)
        return number is not None and _NUMBERS[self.operator](number, self.values[0])

    def __str__(self) -> str:
        return self.text


def conditions_of(
    extra_specs: Mapping[str, str], scope: str
) -> list[tuple[str, ValueCondition, bool]]:
    """Return the conditions with a scope, or without any, as (name, condition, has the scope).

    >>> [(name, str(condition), is_scoped) for name, condition, is_scoped in conditions_of(
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
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:
        return None
    return number if number.is_finite() else None
