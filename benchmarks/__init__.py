"""Ratios of speed and memory, each against a named peer in the same run: `python -m benchmarks`, or `make bench`."""
