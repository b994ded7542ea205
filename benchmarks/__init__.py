"""Measurements, run by hand: `python -m benchmarks.baseline`, `python -m benchmarks.failover`."""
