"""The command `ranking-evaluate` of another build; its first argument says which.

`next-release` is this one under another version; `other-bytes` has this version, and sells other bytes than this one.
"""

import sys

from ranking_evaluate import release

build = sys.argv.pop(1)
if build == "next-release":
    # Before anything else has read it.
    release.VERSION = "99.0.0"  # type: ignore[misc]
elif build == "other-bytes":
    from ranking_evaluate.contract import answer

    answer.VERSION = "99.0.0"  # type: ignore[attr-defined]
else:
    sys.exit(f"there is no build {build}")

from ranking_evaluate.cli import app  # noqa: E402

app()
