"""From trials to answers: curves, limits, findings, frames."""
