"""Benchmarks: ``python -m benchmarks`` prints one table and writes a result file."""
