"""The command `ranking-evaluate` of another build; its first argument says which.

`next-release` is this one under the version 99.0.0; `other-bytes` has this version, and sells other bytes than it does.
"""

import sys

from ranking_evaluate import release

NEXT_VERSION = "99.0.0"
"""As in `buyers.py`, which is not imported here: it would read the version before it is another one."""

build = sys.argv.pop(1)
if build == "next-release":
    # Before anything else has read it.
    release.VERSION = NEXT_VERSION  # type: ignore[misc]
elif build == "other-bytes":
    from ranking_evaluate.contract import answer

    answer.VERSION = NEXT_VERSION  # type: ignore[attr-defined]
else:
    sys.exit(f"there is no build {build}")

from ranking_evaluate.cli import app  # noqa: E402

app()
