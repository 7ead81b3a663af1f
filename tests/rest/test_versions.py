"""Microversions are found as microversion-parse's own middleware finds them."""

from __future__ import annotations

from typing import Any

import pytest
import webob
from hypothesis import given
from hypothesis import strategies as st
from microversion_parse.middleware import MicroversionMiddleware

from resource_objects.rest import errors
from resource_objects.rest.versions import Versioned
from resource_objects.rest.wsgi import VERSIONS

HEADERS = (
    *(None, "", "placement", "placement 1.0", "placement 1.39", "placement latest", "latest"),
    *("placement 1.40", "placement 0.9", "placement 2.0", "placement one", "placement 1", "1.39"),
    *("placement 1.5, placement 1.7", "compute 2.1", "compute 2.1, placement 1.10", ","),
    *("PLACEMENT 1.2", "placement  1.3 ", "placement 1.3.4", "placement 1.-1", "placement 1,3"),
    *("placement 1.3 4", "placement latest, placement", "\t", "placement 1.1\u00e9"),
)
WORDS = st.sampled_from(["placement", "compute", "1.39", "1.4", "latest", ",", " ", "1.", "é", "-"])


def application(environ: dict[str, Any], start_response: Any) -> Any:
    """Tell which version was found, and with which bounds."""
    found = environ["placement.microversion"]
    status = 404 if "missing" in environ["PATH_INFO"] else 200
    if environ["PATH_INFO"] == "/refused":
        raised: Any = webob.exc.HTTPConflict("no", json_formatter=errors.as_json)
        return raised(environ, start_response)
    said = f"{found} of {found.min_version} to {found.max_version} {found.matches((1, 10))}"
    made = webob.Response(said, status=status, headers={"x-own": "1", "vary": "accept"})
    return made(environ, start_response)


def answer(app: Any, header: str | None, path: str = "/", method: str = "GET") -> Any:
    asked = webob.Request.blank(path, method=method, accept="application/json")
    if header is not None:
        asked.environ["HTTP_OPENSTACK_API_VERSION"] = header
    found = asked.get_response(app)
    return found.status, sorted(found.headerlist), found.body


OURS = Versioned(application, "placement", VERSIONS)
THEIRS = MicroversionMiddleware(
    application, "placement", VERSIONS, json_error_formatter=errors.as_json
)


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("path", ["/", "/missing", "/refused"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_a_version_is_found_as_the_librarys_middleware_does(
    header: str | None, path: str, method: str
) -> None:
    for _ in range(2):  # one that was said before is remembered
        assert answer(OURS, header, path, method) == answer(THEIRS, header, path, method)


@given(st.lists(WORDS, max_size=6).map("".join) | st.text(max_size=12))
def test_so_is_any_text(header: str) -> None:
    assert answer(OURS, header) == answer(THEIRS, header)
