"""Benchmarks: ratios against named peers measured in the same run, over at least three sizes."""
