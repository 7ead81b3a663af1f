"""Objects, errors and outcomes of either version as canonical plain data, and back."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import library

_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)?)?")
#: Of a reason, what is a sentence.
_SENTENCES = ("text",)
_CHANGES = "versioned_object.changes"


def plain(value: Any) -> Any:
    """Return a value as plain data: the same data for equal values of either version.

    Uuids and moments are left out, since each process draws its own.
    """
    if isinstance(value, library.ResourceObject):
        return plain(value.obj_to_primitive())
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, datetime.datetime):
        return "<moment>"
    if isinstance(value, Mapping):
        # the version before tracked changes of objects, and its wire forms named them
        return {_text(str(key)): plain(value[key]) for key in value if key != _CHANGES}
    if isinstance(value, (set, frozenset)):
        return sorted(map(plain, value), key=json.dumps)
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
        if not values.get("released", True):  # a field of `Use` that the version before lacks
            del values["released"]
        return values
    return _text(str(value))


def _text(text: str) -> str:
    return _MOMENT.sub("<moment>", _UUID.sub("<uuid>", text))


def read(said: Any) -> Any:
    """Return wire forms as objects of this version."""
    if isinstance(said, list):
        return [read(one) for one in said]
    if isinstance(said, dict):
        if "versioned_object.name" in said:
            return library.ResourceObject.obj_from_primitive(said)
        return {key: read(one) for key, one in said.items()}
    return said


# --- outcomes ---


def outcome(work: Callable[[], Any]) -> dict[str, Any]:
    """Return what came of some work: ``done`` with the result, or ``refused`` with the code.

    ``failed`` is an error that is no refusal, which is a fault of the library or of the question.
    """
    try:
        return {"done": plain(work())}
    except library.REFUSALS as error:
        return refused(error)
    except Exception as error:  # the next question is answered all the same
        return {"failed": f"{type(error).__name__}: {error}"}


def refused(error: Exception) -> dict[str, Any]:
    """Return a refusal as data: its code, and each rule that was broken with its figures."""
    found: dict[str, Any] = {"refused": library.code_of(error)}
    if library.rule_of(error) is not None:
        found["rule"] = library.rule_of(error)
    reasons = library.reasons_of(error)
    if reasons:
        found |= {"rules": rules(reasons), "figures": figures(reasons)}
    return found


def rules(reasons: Iterable[Any]) -> list[str]:
    """Return the rules of some reasons, each once."""
    return sorted({one.rule.name for one in reasons})


def figures(reasons: Iterable[Any]) -> list[Any]:
    """Return some reasons as their figures, without sentences."""
    return sorted((plain(_figures(one)) for one in reasons), key=_in_order)


def _in_order(figures: Mapping[str, Any]) -> str:
    """Return what figures are sorted by: last of all, who requests them."""
    last = {key: figures[key] for key in ("group", "demands") if key in figures}
    return json.dumps([{k: v for k, v in figures.items() if k not in last}, last])


def _figures(reason: Any) -> dict[str, Any]:
    found = {k: v for k, v in reason.to_dict().items() if k not in _SENTENCES}
    if " " in str(found.get("unit")):  # conditions in words
        del found["unit"]
    return {key: value for key, value in found.items() if value not in (None, [], ())}
