"""Plans: pure functions from what is asked to the rounds that answer it."""
