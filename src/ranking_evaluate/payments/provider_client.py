"""The one HTTP client for providers, facilitators and nodes alike: it bounds what a provider may make us read or wait.

It follows no redirect, asks no proxy of the environment, keeps no cookies, takes plain bytes alone and repeats no call.
It is aiohttp's: docs/decisions/own-facilitator-client.md gives the figures.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Final, NamedTuple

import aiohttp

from ranking_evaluate.deadline import within
from ranking_evaluate.release import VERSION

CONNECT_TIMEOUT: Final = 5.0

KEEP_ALIVE: Final = 4.0
"""Seconds for which an idle connection is used again: less than the five after which common servers close it."""

MAX_HEADER_BYTES: Final = 65_536
"""How long one header line of an answer may be."""

NOT_CONNECTED: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, UnicodeError)
"""What aiohttp raises while it has no connection, the last one for a host that no name service can look up."""


LONGEST_RETRY_AFTER: Final = 3_600
"""Seconds beyond which a provider's Retry-After is cut off: it is passed on, and nobody waits for a day."""


class ProviderError(Exception):
    """The provider gave no answer.

    Args:
        words: A sentence without its full stop, which may be published.
        cause: The name of what was raised below.
    """

    def __init__(self, words: str, cause: str = "") -> None:
        super().__init__(f"{words} ({cause})" if cause else words)
        self.words = words
        self.cause = cause


class NotConnected(ProviderError):
    """No connection came about: not a byte of the call has left this machine."""


class Broken(ProviderError):
    """The connection broke. The call may have arrived."""


class Late(ProviderError):
    """The whole answer was not there in time. The call may have arrived."""


class TooLarge(ProviderError):
    """The answer is over the bound; the rest of it was not read."""


class Answer(NamedTuple):
    """A provider's answer, whole and within the bound.

    The names of its headers are read in any case; `retry_after` is in seconds. The call was sent, and its head
    received, at these instants of our clock.
    """

    status: int
    body: bytes
    retry_after: int | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    sent_at: float = 0.0
    received_at: float = 0.0


class ProviderClient:
    """Makes calls to one provider.

    Args:
        provider: What it is called in errors, such as "the facilitator".
        max_bytes: How long an answer may be.
        seconds: How long a call may take in all.
        headers: What every call carries.
        fresh: Whether every call opens a connection of its own. On a kept connection that went stale, a call that was
            not sent looks like one whose answer was lost.
    """

    def __init__(
        self,
        provider: str,
        *,
        max_bytes: int,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> None:
        self._provider = provider
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._headers = headers or {}
        self._fresh = fresh
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def call(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Return the answer to one call; a body is JSON.

        Raises:
            NotConnected: The call was certainly not sent.
            Broken: The connection broke after that.
            Late: The answer did not come in time.
            TooLarge: The answer is over the bound.
        """
        try:
            async with within(self._seconds):
                return await self._exchange(method, url, body, headers or {})
        except NOT_CONNECTED as error:
            raise self._unreached(NotConnected, error) from error
        except TimeoutError as error:
            raise Late(f"{self._provider} did not answer in time", type(error).__name__) from error
        except aiohttp.ClientError as error:
            raise self._unreached(Broken, error) from error

    async def _exchange(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        if self._session is None:
            self._session = self._open()
        if body is not None:
            headers = {**headers, "content-type": "application/json"}
        sent_at = time.time()
        async with self._session.request(method, url, data=body, headers=headers, allow_redirects=False) as response:
            received_at, received = time.time(), bytearray()
            async for chunk in response.content.iter_any():
                received += chunk
                if len(received) > self._max_bytes:
                    raise TooLarge(f"{self._provider}'s answer is over {self._max_bytes // 1024} KiB")
        waits = retry_after(response.headers.get("retry-after", ""))
        return Answer(response.status, bytes(received), waits, response.headers, sent_at, received_at)

    def _open(self) -> aiohttp.ClientSession:
        # Made at the first call: it needs a running loop.
        connector = (
            aiohttp.TCPConnector(limit=0, force_close=True)
            if self._fresh
            else aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE)
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers={**self._headers, "accept-encoding": "identity", "user-agent": f"ranking-evaluate/{VERSION}"},
            timeout=aiohttp.ClientTimeout(total=None, connect=min(CONNECT_TIMEOUT, 0.9 * self._seconds)),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )

    def _unreached(self, kind: type[ProviderError], error: Exception) -> ProviderError:
        return kind(f"{self._provider} could not be reached", type(error).__name__)


def retry_after(header: str) -> int | None:
    """Return the seconds that a Retry-After header names, as a number or a date; None where it can be neither."""
    if header.isascii() and header.isdigit():
        # Python reads no number of thousands of digits.
        return min(int(header[:9]), LONGEST_RETRY_AFTER)
    try:
        seconds = (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError):
        return None
    return max(0, min(math.ceil(seconds), LONGEST_RETRY_AFTER))
