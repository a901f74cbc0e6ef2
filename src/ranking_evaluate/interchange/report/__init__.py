"""Saved responses as something to look at: a page, a text for a pull request, or a table."""
