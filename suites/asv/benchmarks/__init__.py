"""Where asv looks for benchmarks; each file is imported before anything runs."""
