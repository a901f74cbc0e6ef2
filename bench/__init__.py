"""Side by side with peers in one run; `scripts/bench` writes bench/results, docs/performance.md says what it is."""
