"""Answers one version of the library to questions: lines of JSON in, lines of JSON out.

The Python of each version runs it as a file, so that it finds its neighbours in this folder by
their names. It imports nothing else of the tests, and names of the library by way of ``library.py``
alone. The functions that answer are in :data:`ANSWERS` by the kind of the question;
``subjects.py``, which draws the questions, has what each kind is about.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import forms
import hosts
import ledgers
import searches
import values

Case = Mapping[str, Any]
ANSWERS: dict[str, Callable[[Case], Any]] = {
    **values.ANSWERS,
    **searches.ANSWERS,
    **ledgers.ANSWERS,
    **hosts.ANSWERS,
}


def answer(case: Case) -> Any:
    """Return the answer to a question; a refusal is one."""
    return forms.outcome(lambda: ANSWERS[case["kind"]](case))


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line)), sort_keys=True), flush=True)
