"""Other people's files: TREC and BEIR judgments and runs to inputs within the limits, and many answers to one mean."""
