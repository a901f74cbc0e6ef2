"""What compose.yaml, deploy/ and the commands of docs/operate.md make of a machine: who may do what, and how much."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from limits import parse

from ranking_evaluate.attempts.postgres import PostgresStore
from ranking_evaluate.contract.errors import RateLimited
from ranking_evaluate.settings import read_settings
from tests.attempts.samples import KEY, draft, settled
from tests.postgres import PostgresServer, programs
from tests.test_image import COMPOSE, DOCKERFILE, NGINX, ROOT

# It has no types of its own.
SERVICES: Final[dict[str, Any]] = importlib.import_module("yaml").safe_load(COMPOSE)["services"]
SECRETS: Final[dict[str, Any]] = importlib.import_module("yaml").safe_load(COMPOSE)["secrets"]
PINNED: Final = re.compile(r"[a-z]+:[a-z0-9.-]*[0-9]{2,}[a-z0-9.-]*@sha256:[0-9a-f]{64}")


# The containers.


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_confined(name: str) -> None:
    container = SERVICES[name]
    assert container["read_only"] is True
    assert container["cap_drop"] == ["ALL"]
    assert "cap_add" not in container
    assert "privileged" not in container
    assert container["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"[0-9]+[mg]", container["mem_limit"])
    assert 0 < container["pids_limit"] <= 256
    assert all("size=" in place for place in container["tmpfs"])
    user = container.get("user") or re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE)[-1]
    assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", user)


@pytest.mark.parametrize("name", SERVICES)
def test_no_log_fills_the_disk(name: str) -> None:
    logging = SERVICES[name]["logging"]
    assert logging["driver"] == "json-file"
    assert re.fullmatch(r"[0-9]{1,2}m", logging["options"]["max-size"])
    assert 1 <= int(logging["options"]["max-file"]) <= 10


def test_the_proxy_alone_is_reached_from_outside() -> None:
    assert [name for name, container in SERVICES.items() if "ports" in container] == ["proxy"]
    for name in ("postgres", "redis"):
        assert SERVICES[name]["networks"] == ["inside"]


# What is built from.


def test_every_image_is_pinned_by_its_digest() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    others = [container["image"] for container in SERVICES.values() if "build" not in container]
    assert len(others) == 3
    for image in (*bases, *others):
        assert PINNED.fullmatch(image), image
    assert len(set(bases)) == 1


def test_every_debian_package_is_pinned_by_its_version() -> None:
    packages: dict[str, list[str]] = {}
    for name in ("packages.run", "packages.build"):
        lines = (ROOT / "deploy" / name).read_text(encoding="utf-8").splitlines()
        packages[name] = [line for line in lines if not line.startswith("#")]
        assert all(re.fullmatch(r"[a-z0-9][a-z0-9.+-]+=[0-9][A-Za-z0-9.+:~-]*", line) for line in packages[name])
    names = {line.partition("=")[0] for line in packages["packages.run"]}
    assert {"python3", "python3.11", "ca-certificates", "libssl3"} <= names
    assert not names & {line.partition("=")[0] for line in packages["packages.build"]}
    installed = re.findall(r"apt-get install -y --no-install-recommends (.*?) \\$", DOCKERFILE, re.MULTILINE)
    assert installed == [
        "$(grep -hv '^#' /packages/packages.run /packages/packages.build)",
        "$(grep -hv '^#' /packages/packages.run)",
    ]
    assert "apt-get upgrade" not in DOCKERFILE


# The proxy.


def directive(pattern: str) -> str:
    found = re.search(pattern, NGINX)
    assert found, pattern
    return found[1]


def test_the_proxy_is_wider_than_the_services_own_windows() -> None:
    """A caller within its window never meets the proxy's refusal, whose words know less."""
    settings = read_settings({})
    assert settings.request_rate is not None
    window = parse(settings.request_rate)
    burst, rate = int(directive(r"limit_req zone=requests burst=(\d+) nodelay;")), int(directive(r"rate=(\d+)r/s;"))
    assert burst >= window.amount
    assert rate * window.get_expiry() >= window.amount
    assert burst + rate * 60 < 1_500, "a flood is still shed"
    at_once = int(directive(r"limit_conn connections (\d+);"))
    assert settings.payment_rate is not None
    # All payments of a minute and a half, which the slowest settlement takes.
    assert at_once >= parse(settings.payment_rate).amount * settings.settle_timeout / 60
    assert at_once < settings.max_in_flight
    assert NGINX.count("$caller zone=") == 2
    assert {directive("limit_req_status (.*);"), directive("limit_conn_status (.*);")} == {"429"}


@pytest.mark.parametrize(
    ("address", "caller"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::7", "2001:db8:1:2::"),
        ("2001:db8:1:2:3::", "2001:db8:1:2::"),
        ("2001:db8:1::7", "2001:db8:1::"),
        ("2001:db8::7", "2001:db8::"),
        ("::1", "::"),
    ],
)
def test_a_caller_is_an_ipv4_address_or_the_64_of_an_ipv6_one(address: str, caller: str) -> None:
    """As nginx reads its map: the expressions in their order, then the default."""
    rules = re.findall(r'^ +"~(.*)" "?(\$net(?:::)?)"?;$', NGINX, re.MULTILINE)
    assert len(rules) == 3
    for expression, value in rules:
        found = re.search(expression.replace("(?<", "(?P<"), address)
        if found:
            assert value.replace("$net", found["net"]) == caller
            return
    assert address == caller


def test_the_proxys_429_is_the_services_own() -> None:
    problem = json.loads(directive(r"return 429 '(.*)';"))
    own = RateLimited("RATE_LIMITED", problem["detail"], retry_after=5).problem(request_id="$request_id")
    assert problem == own
    assert directive(r"add_header Retry-After (\d+) always;") == "5"


# The secrets.


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A checkout in which the commands of docs/operate.md were run by somebody with an ordinary umask."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    for name in ("fullchain.pem", "privkey.pem"):
        (tmp_path / name).write_text("a certificate")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sudo", "docker"):
        # They need rights and an engine that a test has not; what they were asked stands in a file.
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$@" >> "{tmp_path}/asked"\n')
        (tools / name).chmod(0o755)
    (block,) = [
        block
        for block in re.findall(r"```sh\n(.*?)```", (ROOT / "docs/operate.md").read_text(encoding="utf-8"), re.DOTALL)
        if "deploy/secrets" in block
    ]
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["sh", "-euc", f"umask 022\n{block}"], cwd=tmp_path, env=environment, check=True, timeout=60)
    return tmp_path


def test_the_documented_commands_keep_secrets_to_their_owner(made: Path) -> None:
    modes = {path.relative_to(made).as_posix(): path.stat().st_mode & 0o777 for path in made.rglob("*")}
    modes[".env"] = (made / ".env").stat().st_mode & 0o777
    secret = ("deploy/secrets", "deploy/tls", ".env")
    assert {name: oct(mode) for name, mode in modes.items() if name.startswith(secret)} == {
        "deploy/secrets": "0o700",
        "deploy/secrets/postgres_password": "0o400",
        "deploy/secrets/service_password": "0o400",
        "deploy/secrets/pgpass": "0o400",
        "deploy/tls": "0o700",
        "deploy/tls/fullchain.pem": "0o400",
        "deploy/tls/privkey.pem": "0o400",
        ".env": "0o600",
    }
    # What others must read is readable, and the umask of the rest of the session is as it was.
    assert modes["deploy/nginx.conf"] == modes["deploy/service-role.sql"] == 0o644


def test_each_secret_is_made_and_given_to_the_one_that_reads_it(made: Path) -> None:
    assert {entry["file"] for entry in SECRETS.values()} == {
        f"./{path.relative_to(made).as_posix()}" for path in (made / "deploy/secrets").iterdir()
    }
    passwords = {(made / "deploy/secrets" / name).read_text() for name in ("postgres_password", "service_password")}
    assert len(passwords) == 2
    service = (made / "deploy/secrets/service_password").read_text().strip()
    line = (made / "deploy/secrets/pgpass").read_text()
    assert line == f"postgres:5432:ranking_evaluate:ranking_evaluate:{service}\n"
    owners = re.findall(r"^sudo chown (?:-R )?(\d+) (.*)$", (made / "asked").read_text(), re.MULTILINE)
    owner_of = {Path(path).name: user for user, paths in owners for path in paths.split()}
    assert {name: owner_of[name] for name in SECRETS} == {
        "postgres_password": SERVICES["postgres"]["user"].partition(":")[0],
        "service_password": SERVICES["postgres"]["user"].partition(":")[0],
        "pgpass": re.findall(r"^USER (\d+):", DOCKERFILE, re.MULTILINE)[-1],
    }
    assert owner_of["tls"] == SERVICES["proxy"]["user"].partition(":")[0]


def test_git_takes_no_secret(made: Path) -> None:
    shutil.copy(ROOT / ".gitignore", made)
    secrets = ("sandbox.json", ".ranking-evaluate/key.1.json", "attempts.db", "attempts.db-wal", "attempts.db.schema-1")
    for name in secrets:
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text("secret")
    quiet = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "init", "--quiet"], cwd=made, env=quiet, check=True)
    listing = ["git", "ls-files", "--others", "--exclude-standard"]
    left = set(subprocess.run(listing, cwd=made, env=quiet, check=True, capture_output=True, text=True).stdout.split())
    assert left == {
        ".gitignore",
        "asked",
        "tools/docker",
        "tools/sudo",
        *(path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy").rglob("*") if path.is_file()),
    }


# The database.


def as_service(server: PostgresServer, password: str | None, database: str = "ranking_evaluate") -> str:
    secret = "" if password is None else f":{password}"
    return server.url(database).replace("postgres@", f"ranking_evaluate{secret}@")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[PostgresServer]:
    """A real server whose role was made by the script that compose.yaml gives to PostgreSQL's image."""
    (tmp_path / "password").write_text("right-one\n")
    with PostgresServer() as server:
        subprocess.run(
            [programs() / "psql", "--no-psqlrc", "--quiet", "-f", ROOT / "deploy/service-role.sql", server.url()],
            env={**os.environ, "SERVICE_PASSWORD_FILE": str(tmp_path / "password")},
            check=True,
            capture_output=True,
        )
        rules = server.folder / "data" / "pg_hba.conf"
        rules.write_text(f"local all ranking_evaluate scram-sha-256\n{rules.read_text()}")
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute("SELECT pg_reload_conf()")
        yield server


@pytest.mark.beyond_unit
def test_the_service_sells_with_a_role_that_is_no_superuser(database: PostgresServer) -> None:
    async def sell() -> str:
        store = PostgresStore(as_service(database, "right-one"))
        await store.open()
        await settled(store, draft())
        (row,) = (await store.read(KEY)).rows
        await store.close()
        return row.state.value

    assert asyncio.run(sell()) == "settled"
    with psycopg.connect(as_service(database, "right-one")) as db:
        row = db.execute(
            "SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls, rolconnlimit FROM pg_roles"
            " WHERE rolname = current_user"
        ).fetchone()
        assert row == (False, False, False, False, False, 64)
        owned = db.execute("SELECT datname FROM pg_database WHERE pg_get_userbyid(datdba) = current_user").fetchall()
        assert owned == [("ranking_evaluate",)]


@pytest.mark.beyond_unit
def test_the_role_may_do_nothing_else(database: PostgresServer) -> None:
    for statement in (
        "CREATE DATABASE another",
        "CREATE ROLE another",
        "ALTER ROLE ranking_evaluate SUPERUSER",
        "SET ROLE postgres",
        "SELECT pg_read_file('postgresql.conf')",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "SELECT rolpassword FROM pg_authid",
        "ALTER SYSTEM SET fsync = off",
    ):
        with (
            psycopg.connect(as_service(database, "right-one"), autocommit=True) as db,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            db.execute(statement)
    for elsewhere in ("postgres", "template1"):
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            psycopg.connect(as_service(database, "right-one", elsewhere))
    for password in ("wrong-one", ""):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(as_service(database, password or None))


@pytest.mark.beyond_unit
def test_without_a_password_no_role_is_made(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with PostgresServer() as server:
        for name in ("empty", "missing"):
            done = subprocess.run(
                [programs() / "psql", "--no-psqlrc", "-f", ROOT / "deploy/service-role.sql", server.url()],
                env={**os.environ, "SERVICE_PASSWORD_FILE": str(tmp_path / name)},
                capture_output=True,
            )
            assert done.returncode == 3
        with psycopg.connect(server.url()) as db:
            assert db.execute("SELECT 1 FROM pg_roles WHERE rolname = 'ranking_evaluate'").fetchone() is None
