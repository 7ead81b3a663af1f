"""The one place that imports oslo.versionedobjects, and does so silently.

Importing ``oslo_versionedobjects.base`` pulls in oslo.messaging, which warns about eventlet on
import although nothing is monkey-patched. A library must not print warnings into its user's
program, so they are caught here; no other module of the package imports it directly.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from oslo_versionedobjects import base, exception, fields

__all__ = ["base", "exception", "fields"]
