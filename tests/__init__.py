"""The tests, as a package: benchmarks that import a twin get it from here, not from a `tests` that was installed."""
