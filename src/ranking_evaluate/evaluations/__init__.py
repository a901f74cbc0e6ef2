"""Evaluating without holding anybody up: at once what is quick for certain, everything else in worker processes."""
