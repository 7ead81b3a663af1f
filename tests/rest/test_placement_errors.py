"""The service reports each error of Placement with its status, code and text."""

from __future__ import annotations

import contextlib

import pytest

from resource_objects.rest import application
from tests.rest.placement_errors import ERRORS, Row, check, start


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: row["name"])
def test_an_error_is_reported_as_by_placement(row: Row) -> None:
    with contextlib.closing(application("memory://", auth="noauth2", policy="legacy")) as app:
        start(app)
        check(app, row, is_placement=False)
