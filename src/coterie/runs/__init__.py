"""Runs: what to run, put together, played, recorded."""
