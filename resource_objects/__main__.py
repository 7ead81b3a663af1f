"""The program ``resource-objects``, also as ``python -m resource_objects``.

It imports little, so that Ctrl-C during the imports of the command ends it without a traceback.
"""

from __future__ import annotations

import os
import signal
import sys

#: The exit status and the message after Ctrl-C.
INTERRUPTED, MESSAGE = 130, b"resource-objects: interrupted\n"


def main() -> int:
    """Import the command, run it and return its exit status."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        # an exception during an import might be replaced or ignored
        signal.signal(signal.SIGINT, _end)
    from resource_objects.cli.main import main as run_command

    signal.signal(signal.SIGINT, handler)
    return run_command()


def _end(number: int, frame: object) -> None:
    os.write(2, MESSAGE)
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
