"""Fuzzers: seeded, a few hundred examples in `make test`, as many as one likes in `make fuzz`."""
