"""Speed, as ratios measured in one run. Run with ``python -m validation.benchmarks.speed``."""
