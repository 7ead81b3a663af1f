"""Write requirements that install the lowest versions that ``setup.cfg`` allows.

    python tools/lowest.py lowest.txt && python -m pip install -r lowest.txt

``tox -e lowest`` does that: a bound that nobody tried is a guess.
"""

from __future__ import annotations

import configparser
import re
import sys
from pathlib import Path

_SETUP = Path(__file__).resolve().parent.parent / "setup.cfg"
_BOUND = re.compile(r"(?P<name>[\w.-]+(\[[\w,]+\])?)>=(?P<version>[\w.]+)")


def lowest(setup: str, extra: str = "test") -> list[str]:
    """Return a requirement of the lowest version for each that ``setup.cfg`` gives a bound.

    >>> text = "[options]\\ninstall_requires =\\n    alembic>=1.13\\n    SQLAlchemy>=2.0.5,<2.2\\n"
    >>> lowest(text + "[options.extras_require]\\ntest =\\n    psycopg[binary]>=3.2.1\\n")
    ['alembic==1.13', 'SQLAlchemy==2.0.5', 'psycopg[binary]==3.2.1']
    """
    parser = configparser.ConfigParser()
    parser.read_string(setup)
    lines = [parser["options"]["install_requires"], parser["options.extras_require"][extra]]
    found = map(_BOUND.match, "\n".join(lines).split())
    return [f"{one['name']}=={one['version']}" for one in found if one]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("\n".join(lowest(_SETUP.read_text())) + "\n")
