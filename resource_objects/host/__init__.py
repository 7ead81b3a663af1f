"""One host: what it is, what it offers, and who holds it."""
