"""The sandbox's facilitator, out of the Python SDK, in a process that can be killed; `facilitator.mjs` is its sibling.

Environment: RPC, KEY, NETWORK, PORT, CONFIRMATION_SECONDS.
"""

from __future__ import annotations

import os

import uvicorn

from ranking_evaluate.sandbox.facilitator import facilitator_app

if __name__ == "__main__":
    told = os.environ
    app = facilitator_app(
        key=told["KEY"],
        nodes={told["NETWORK"]: told["RPC"]},
        confirmation_seconds=float(told["CONFIRMATION_SECONDS"]),
    )
    uvicorn.run(app, host="127.0.0.1", port=int(told["PORT"]), log_level="warning")
