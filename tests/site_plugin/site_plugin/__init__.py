"""Resources of a site of our imagination."""
