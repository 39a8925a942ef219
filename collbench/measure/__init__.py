"""Measuring inside a worker: the loop, its clocks, the data check, the back ends."""
