"""Experiments: each states a claim, simulates, and says whether it held. Run with ``python -m validation.NAME``."""
