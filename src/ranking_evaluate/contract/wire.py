"""How a payment protocol appears to callers: whatever lists protocols is made from these records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Final, NamedTuple

X402_VERSION: Final = 2
"""The version of x402 that is spoken here, and in which /.well-known/x402 lists what is sold."""

MAX_SHARED_HEADER: Final = 32_768
"""How many characters of a shared header are searched for credentials; a longer one cannot be read anyway."""

# A quoted string that is not closed runs to the end, so that no input makes the search start over.
_PART: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"?|[^,"]+)+', re.DOTALL)

Facts = tuple[tuple[str, str | int | bool], ...]


class Client(NamedTuple):
    """An example client: its file name, which ends in .py or .mjs, and its source."""

    name: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One payment protocol as callers see it.

    Attributes:
        name: Its part of the route, `/v1/<name>/<operation>`.
        title: Its name in texts.
        credential_header: The request header that pays, in the letters of the protocol's own documents.
        challenge_header: The header of a 402 that names the terms.
        receipt_header: The header of an answer that says what the payment came to.
        client_headers: Request headers that its clients add by themselves, so that pages must be allowed to send them.
        scheme: The authorization scheme of its credentials, where the credential header is shared with other uses.
        outdated_header: The request header in which older clients pay, if there is one; it pays nothing here.
        outdated_words: What is said to such a client, a sentence.
        leading_facts: What the published payment workflow says of it, before the names of the headers.
        facts: The same, after them: version or method, scheme, and the official SDK.
        guide: How to pay, as llms.txt says it, without headings: a template with the sources of the clients,
            `pay_x402.py` as `$pay_x402_py`, and `$first`, the id of the first operation.
        clients: The example clients that pay; the tests run these very files.
    """

    name: str
    title: str
    credential_header: str
    challenge_header: str
    receipt_header: str
    client_headers: tuple[str, ...] = ()
    scheme: str | None = None
    outdated_header: str | None = None
    outdated_words: str = ""
    leading_facts: Facts = ()
    facts: Facts = ()
    guide: str = field(default="", repr=False)
    clients: tuple[Client, ...] = field(default=(), repr=False)

    @property
    def workflow(self) -> dict[str, str | int | bool]:
        """The protocol's member of `paymentWorkflow`."""
        headers = {
            "credentialHeader": self.credential_header,
            "challengeHeader": self.challenge_header,
            "receiptHeader": self.receipt_header,
        }
        return {**dict(self.leading_facts), **headers, **dict(self.facts)}

    def offers(self, headers: Mapping[str, str]) -> bool:
        """Return whether a 402 has terms of this protocol, readable or not, by the header that names them."""
        header = headers.get(self.challenge_header.lower(), "")
        return bool(re.search(rf"\b{re.escape(self.scheme)}\s", header, re.IGNORECASE) if self.scheme else header)

    def carries_credential(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request carries a credential of this protocol, readable or not; names are lower case."""
        return bool(self.credentials(headers))

    def credentials(self, headers: Mapping[str, str]) -> list[str]:
        """Return the credentials of this protocol in a request, not decoded: what follows the scheme, if there is one.

        Of a shared header that is too long only the start is searched: what was cut off cannot make it readable.
        """
        header = headers.get(self.credential_header.lower())
        if header is None:
            return []
        if self.scheme is None:
            return [header]
        if len(header) > MAX_SHARED_HEADER:
            header = header[: len(self.scheme) + 2]
        of_scheme = re.compile(rf"{re.escape(self.scheme)}(?:[ \t]+(?P<token>.*))?", re.IGNORECASE | re.DOTALL)
        found = (of_scheme.fullmatch(part.strip()) for part in _PART.findall(header))
        return [(match["token"] or "").strip() for match in found if match]


def shipped(package: str, name: str) -> str:
    """Return a text file of a package."""
    return (resources.files(package) / name).read_text(encoding="utf-8")


def shipped_clients(package: str, *names: str) -> tuple[Client, ...]:
    """Return the example clients in a package's folder `clients`."""
    return tuple(Client(name, shipped(package, f"clients/{name}")) for name in names)
