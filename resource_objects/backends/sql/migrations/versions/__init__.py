"""The revisions, oldest first. They are never changed."""
