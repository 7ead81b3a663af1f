"""``python -m resource_objects`` is ``resource-objects``."""

from __future__ import annotations

import sys

from resource_objects.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
