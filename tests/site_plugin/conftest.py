"""A distribution of its own, installed and used by ``tests/resources/test_plugins.py``."""

collect_ignore_glob = ["*"]
