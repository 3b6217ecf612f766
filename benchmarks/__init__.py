"""Side-by-side benchmarks: Shoal's engines against what people would otherwise use, on the same work, in one run."""
