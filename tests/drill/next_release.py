"""The command `ranking-evaluate` as the release after this one: nothing differs but the version."""

from ranking_evaluate import release

release.VERSION = "99.0.0"  # type: ignore[misc]  # Before anything else has read it.

from ranking_evaluate.cli import app  # noqa: E402

app()
