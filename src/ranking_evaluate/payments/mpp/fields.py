"""The fields of RLP, each in its one canonical form; what is of another form raises ValueError."""

from __future__ import annotations

from typing import Any, Final

ADDRESS_BYTES: Final = 20


def octets(field: Any) -> bytes:  # noqa: ANN401 - RLP.
    """Return a field of bytes."""
    if not isinstance(field, bytes):
        raise ValueError("a field of the transaction is not a string of bytes")  # noqa: TRY004 - a stranger's bytes.
    return field


def sequence(field: Any) -> list[Any]:  # noqa: ANN401 - RLP.
    """Return a field that is a list."""
    if not isinstance(field, list):
        raise ValueError("a field of the transaction is not a list")  # noqa: TRY004 - a stranger's bytes.
    return field


def integer(field: Any) -> int | None:  # noqa: ANN401 - RLP.
    """Return an integer field, or None for an empty one, which stands for 0 or for absent."""
    if not isinstance(field, bytes) or len(field) > 32 or field.startswith(b"\0"):
        raise ValueError("a field of the transaction is not an integer")
    return int.from_bytes(field, "big") if field else None


def address(field: Any) -> str:  # noqa: ANN401 - RLP.
    """Return an address field, in lower case."""
    if len(octets(field)) != ADDRESS_BYTES:
        raise ValueError("a field of the transaction is not an address")
    return hexadecimal(field)


def hexadecimal(field: Any) -> str:  # noqa: ANN401 - RLP.
    """Return a field of bytes in lower-case hexadecimal."""
    return "0x" + octets(field).hex()
