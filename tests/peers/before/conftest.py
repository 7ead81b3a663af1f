"""What runs in a process of each version is no module of these tests."""

collect_ignore = ["process"]
