"""The real nginx with deploy/nginx.conf passes on every refusal as it is, and one without our buffers every 402."""

from __future__ import annotations

import contextlib
import copy
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ranking_evaluate import evaluate
from ranking_evaluate.contract.discovery import DISCOVERY_KEY
from ranking_evaluate.contract.document import path_of
from ranking_evaluate.contract.errors import error_classes
from ranking_evaluate.contract.problems import PROBLEMS
from ranking_evaluate.operations import registry
from ranking_evaluate.sandbox.processes import free_port
from tests.deploy.heads import LONGEST_KEY_BYTES, Caller
from tests.deploy.nginx import CONFIGURATION, configuration, nginx, ours, stock
from tests.faults.facilitator import Fault
from tests.hostile.service import BODY, MPP_PATH, PATH, Neighbourhood, Service
from tests.hostile.wallet import WALLET
from tests.judges.x402_buyer import Buyer, Payload, decoded, new_key
from tests.oracles.answer_keys import BODIES, METRICS

NOT_TRIED: Final = {
    "REQUEST_TIMEOUT": "the proxy takes the body whole, and ends the connection by itself when it does not come",
    "INTERNAL": "nothing makes the service fail",
    "OVERLOADED": "256 requests at once would try the proxy's patience, not its buffers",
}
"""The refusals that nobody here provokes through the proxy, each with its reason."""

STATUS: Final = {code: found.status for found in error_classes() for code in found.codes}


@pytest.mark.parametrize("origin", ["usual", "longest"])
@pytest.mark.parametrize("proxy", [ours, stock], ids=["our configuration", "default buffers"])
def test_every_402_passes(
    place: Neighbourhood, request: pytest.FixtureRequest, origin: str, proxy: Callable[..., Any]
) -> None:
    service: Service = request.getfixturevalue(origin)
    with (
        proxy(place.processes, service.port) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=30) as client,
    ):
        for way in Caller(client, place.facilitator, LONGEST_KEY_BYTES).ways():
            assert way.answer.status_code == 402, (way, way.answer.text)
            protocol = way.name.partition(" ")[0].lower()
            if protocol == "x402":
                required = decoded(way.answer.headers["payment-required"])
                assert way.answer.request.method == "HEAD" or required.items() <= way.answer.json().items(), way
            else:
                assert way.answer.headers["www-authenticate"].startswith("Payment "), way
            assert way.answer.headers["access-control-allow-origin"] == "*", way


# Every refusal.


@pytest.fixture(scope="module")
def client(place: Neighbourhood, usual: Service) -> Iterator[httpx.Client]:
    with (
        ours(place.processes, usual.port) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=30) as client,
    ):
        yield client


@pytest.fixture
def buyer(place: Neighbourhood, client: httpx.Client) -> Buyer:
    place.facilitator.reset(Fault.NONE)
    return Buyer(client, WALLET.key, BODY)


def with_lexical(change: Callable[[Any], object]) -> bytes:
    """Return the example of lexical-retrieval with a change made to it."""
    example = copy.deepcopy(registry.find("lexical-retrieval").example_input)
    change(example)
    return json.dumps(example).encode()


def of_bodies() -> dict[str, tuple[str, bytes]]:
    """Return for every code of a body an operation and a body that is refused with it."""
    operations = Path(__file__).parents[1] / "oracles" / "operations.jsonl"
    cases = [json.loads(line) for line in operations.read_text("utf-8").splitlines()]
    return {
        "ACCESS_REVOKED": (
            "lexical-retrieval",
            with_lexical(lambda given: given["corpus"]["documents"][0].update(access="revoked")),
        ),
        "CORPUS_CHANGED": ("lexical-retrieval", with_lexical(lambda given: given["corpus"].update(sha256="0" * 64))),
        **{
            row["expect"]["code"]: (row["operation"], row["body"].encode())
            for row in cases
            if row["expect"].get("code") and isinstance(row["body"], str)
        },
        **{row["expect"]["code"]: ("ranking-evaluate", row["body"]) for row in METRICS if row["expect"].get("code")},
        **{row["codes"][0]: ("ranking-evaluate", row["body"]) for row in BODIES if len(row["codes"]) == 1},
    }


BY_BODY: Final = of_bodies()


@pytest.mark.parametrize("code", sorted(BY_BODY))
def test_a_refused_body_is_told_so(client: httpx.Client, code: str) -> None:
    operation, body = BY_BODY[code]
    headers = {"Idempotency-Key": new_key(), "Content-Type": "application/json"}
    answer = client.post(path_of(registry.find(operation), "x402"), content=body, headers=headers)
    check(answer, code)


def check(answer: httpx.Response, code: str) -> None:
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (STATUS[code], code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert {"type", "title", "detail", "retryable", "retryAfter", "nextStep", "requestId"} <= problem.keys()


JSON: Final = {"Content-Type": "application/json"}


def post(buyer: Buyer, path: str = PATH, body: bytes = BODY, **headers: str) -> httpx.Response:
    sent = {"Idempotency-Key": new_key(), **JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return buyer.client.post(path, content=body, headers=sent)


def paid(buyer: Buyer) -> tuple[str, Payload]:
    key = new_key()
    payload = buyer.sign(key)
    assert buyer.post(key, payload).content == evaluate("ranking-evaluate", BODY)
    return key, payload


def under_another_key(buyer: Buyer) -> httpx.Response:
    _, payload = paid(buyer)
    other = new_key()
    payload["extensions"]["payment-identifier"]["info"]["id"] = other
    return buyer.post(other, payload)


def with_fault(buyer: Buyer, place: Neighbourhood, fault: Fault) -> httpx.Response:
    key = new_key()
    payload = buyer.sign(key)
    place.facilitator.reset(fault)
    return buyer.post(key, payload)


def twice_at_once(buyer: Buyer, place: Neighbourhood) -> httpx.Response:
    """Return the answer that comes while the first copy is being settled."""
    key = new_key()
    payload = buyer.sign(key)
    place.facilitator.reset(Fault.LATE)
    with ThreadPoolExecutor() as threads:
        copies = [threads.submit(buyer.post, key, payload) for _ in range(2)]
        answers = sorted((copy.result() for copy in copies), key=lambda answer: answer.status_code)
    assert answers[0].status_code == 200
    return answers[1]


Provoke = Callable[[Buyer, Neighbourhood], httpx.Response]

BY_REQUEST: Final[dict[str, Provoke]] = {
    "HEADER_INVALID": lambda buyer, place: buyer.client.post(
        PATH, content=BODY, headers=[*JSON.items(), *[("Idempotency-Key", new_key()) for _ in range(2)]]
    ),
    "IDEMPOTENCY_KEY_REQUIRED": lambda buyer, place: buyer.client.post(PATH, content=BODY, headers=JSON),
    "IDEMPOTENCY_KEY_INVALID": lambda buyer, place: post(buyer, Idempotency_Key="short"),
    "PAYMENT_IDENTIFIER_MISMATCH": lambda buyer, place: buyer.post(new_key(), buyer.sign(new_key())),
    "PAYMENT_PROTOCOL_MISMATCH": lambda buyer, place: post(buyer, MPP_PATH, PAYMENT_SIGNATURE="e30="),
    "PAYMENT_MALFORMED": lambda buyer, place: post(buyer, PAYMENT_SIGNATURE="e30="),
    "DISCOVERY_KEY": lambda buyer, place: buyer.post(DISCOVERY_KEY, buyer.sign(DISCOVERY_KEY)),
    "PAYMENT_REQUIRED": lambda buyer, place: post(buyer),
    "PAYMENT_REJECTED": lambda buyer, place: with_fault(buyer, place, Fault.REFUSED),
    "NOT_FOUND": lambda buyer, place: post(buyer, "/nothing"),
    "ATTEMPT_UNKNOWN": lambda buyer, place: buyer.client.get("/v1/attempts", headers={"Idempotency-Key": new_key()}),
    "METHOD_NOT_ALLOWED": lambda buyer, place: buyer.client.delete(PATH),
    "IDEMPOTENCY_CONFLICT": lambda buyer, place: buyer.post(paid(buyer)[0]),
    "DUPLICATE_PROOF": lambda buyer, place: under_another_key(buyer),
    "PAYMENT_IN_PROGRESS": twice_at_once,
    "PAYMENT_UNCERTAIN": lambda buyer, place: with_fault(buyer, place, Fault.RESET_AFTER),
    "UNSUPPORTED_MEDIA_TYPE": lambda buyer, place: post(buyer, Content_Type="text/plain"),
    "UNSUPPORTED_ENCODING": lambda buyer, place: post(buyer, Content_Encoding="gzip"),
    "PAYMENT_UNAVAILABLE": lambda buyer, place: with_fault(buyer, place, Fault.VERIFY_ERROR),
}
OF_THEIR_OWN: Final = {"RATE_LIMITED", "STATE_UNAVAILABLE"}
"""The refusals that are provoked in a test of their own."""


def test_what_the_proxy_answers_by_itself_advises_what_the_service_does() -> None:
    written = [json.loads(text) for text in re.findall(r"return \d+ '(\{.*\})';", CONFIGURATION)]
    assert {problem["code"] for problem in written} == {
        "INPUT_LIMIT",
        "PAYMENT_UNAVAILABLE",
        "RATE_LIMITED",
        "STATE_UNAVAILABLE",
    }
    for problem in written:
        row = PROBLEMS[problem["code"]]
        said = (problem["title"], problem["retryable"], problem["nextStep"])
        assert said == (row.title, row.retryable, row.next_step)


def test_every_refusal_is_tried() -> None:
    tried = BY_BODY.keys() | BY_REQUEST.keys() | OF_THEIR_OWN
    assert tried | NOT_TRIED.keys() == PROBLEMS.keys()
    assert not tried & NOT_TRIED.keys()


@pytest.mark.parametrize("code", sorted(BY_REQUEST))
def test_a_refused_request_is_told_so(buyer: Buyer, place: Neighbourhood, code: str) -> None:
    check(BY_REQUEST[code](buyer, place), code)


def test_a_caller_who_comes_too_often_is_told_so(place: Neighbourhood) -> None:
    with (
        place.running("rated", REQUEST_RATE="1/day") as service,
        ours(place.processes, service.port) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=30) as client,
    ):
        answers = [client.get("/llms.txt") for _ in range(2)]
        check(answers[1], "RATE_LIMITED")
        assert answers[1].headers["retry-after"] == str(answers[1].json()["retryAfter"])


def test_what_the_proxy_answers_by_itself_has_the_form_of_the_service(place: Neighbourhood) -> None:
    with (
        place.running("leaving") as service,
        ours(place.processes, service.port) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=30) as client,
    ):
        headers = {"Idempotency-Key": new_key(), **JSON}
        check(client.post(PATH, content=b" " * 300_000, headers=headers), "INPUT_LIMIT")
        service.end(kill=True)
        gone = client.post(PATH, content=BODY, headers=headers)
        check(gone, "STATE_UNAVAILABLE")
        assert gone.headers["retry-after"] == str(gone.json()["retryAfter"])


def test_between_two_releases_who_has_signed_is_served_and_who_asks_for_terms_waits(
    place: Neighbourhood, usual: Service, buyer: Buyer
) -> None:
    waiting = "#if ($asks_for_terms) { return 503; }"
    assert CONFIGURATION.count(waiting) == 1
    key = new_key()
    payload = buyer.sign(key)
    port, name = free_port(), "between-releases"
    text = configuration(port, usual.port, place.processes.directory / name).replace(waiting, waiting[1:])
    with (
        nginx(place.processes, name, text, port) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=30) as client,
    ):
        signed = Buyer(client, WALLET.key, BODY)
        for path in (PATH, MPP_PATH):
            for answer in (post(signed, path), client.get(path)):
                check(answer, "PAYMENT_UNAVAILABLE")
                assert answer.headers["retry-after"] == str(answer.json()["retryAfter"]) == "30"
        for _ in range(2):
            assert signed.post(key, payload).status_code == 200
        assert post(signed, MPP_PATH, Authorization="Payment e30").status_code == 402
        for path in ("/healthz", "/llms.txt", "/reference/errors.md", "/preflight"):
            assert client.get(path).status_code == 200
        assert client.get("/v1/attempts", headers={"Idempotency-Key": key}).json()["state"] == "settled"


def test_an_answer_that_is_longer_than_every_buffer_passes(client: httpx.Client, usual: Service) -> None:
    direct = httpx.get(f"{usual.origin}/openapi.json", trust_env=False)
    assert len(direct.content) > 130_000
    assert client.get("/openapi.json").content == direct.content


# Replicas that come and go.


@contextmanager
def two_replicas(place: Neighbourhood, ports: tuple[int, int]) -> Iterator[httpx.Client]:
    """A proxy before two addresses, and a caller."""
    port = free_port()
    name = f"nginx-two-{port}"
    text = configuration(port, ports[0], place.processes.directory / name, ports[1])
    with (
        nginx(place.processes, name, text, port) as origin,
        httpx.Client(base_url=origin, trust_env=False, timeout=30) as client,
    ):
        yield client


def test_a_refused_connection_is_passed_on_to_the_other_replica(place: Neighbourhood, usual: Service) -> None:
    with two_replicas(place, (free_port(), usual.port)) as client:
        for _ in range(40):
            headers = {"Idempotency-Key": new_key(), "Content-Type": "application/json"}
            assert client.post(PATH, content=BODY, headers=headers).status_code == 402


class Deaf:
    """A server that takes a whole request, and hangs up."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._listener.accept()
                with taken:
                    if b"POST" in taken.recv(65536):
                        self.requests += 1

    def close(self) -> None:
        self._listener.close()


def test_a_post_that_was_sent_is_passed_on_to_nobody(place: Neighbourhood) -> None:
    one, other = Deaf(), Deaf()
    with two_replicas(place, (one.port, other.port)) as client:
        for number in range(1, 7):
            headers = {"Idempotency-Key": new_key(), "Content-Type": "application/json"}
            answer = client.post(PATH, content=BODY, headers=headers)
            check(answer, "STATE_UNAVAILABLE")
            assert answer.headers["x-request-id"] == answer.json()["requestId"]
            assert one.requests + other.requests == number
    one.close()
    other.close()


def test_what_the_proxy_refuses_by_itself_has_a_line_with_the_id_that_the_caller_sees(place: Neighbourhood) -> None:
    folder = place.processes.directory
    port = free_port()
    name = f"nginx-log-{port}"
    text = configuration(port, free_port(), folder / name)
    text = text.replace("access_log /dev/stdout failures", f"access_log {folder / name / 'failures.log'} failures")
    with (
        nginx(place.processes, name, text, port) as origin,
        httpx.Client(base_url=origin, trust_env=False, timeout=30) as client,
    ):
        answer = client.post(PATH, content=BODY, headers={"Idempotency-Key": new_key()})
    assert answer.status_code == 503
    lines = [json.loads(line) for line in (folder / name / "failures.log").read_text().splitlines()]
    [line] = [line for line in lines if line["request_id"] == answer.json()["requestId"]]
    assert (line["status"], line["event"]) == (503, "proxy")
    assert "127.0.0.1" not in json.dumps({key: value for key, value in line.items() if key != "upstream"})
