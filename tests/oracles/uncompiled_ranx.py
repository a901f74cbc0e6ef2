"""A process of its own in which ranx runs uncompiled, because numba takes half a minute to compile it.

Reads judgments, a run and a metric as JSON from standard input, and writes the score of each query.
"""

from __future__ import annotations

import json
import os
import sys
import warnings


def main() -> None:
    # numba reads this when it is imported.
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    # The source of ranx has an invalid escape in a string.
    warnings.simplefilter("ignore")
    import ranx  # type: ignore[import-untyped]  # ranx ships no types.

    judgments, run, metric = json.load(sys.stdin)
    scores = ranx.evaluate(ranx.Qrels(judgments), ranx.Run(run), metric, return_mean=False)
    json.dump(scores.tolist(), sys.stdout)


if __name__ == "__main__":
    main()
