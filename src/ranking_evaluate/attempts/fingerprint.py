"""What makes two requests the same purchase."""

from __future__ import annotations

from ranking_evaluate.core import canonical


def fingerprint(
    *, operation: str, protocol: str, release: str, input_sha256: str, schema_sha256: str | None = None
) -> str:
    """Return the SHA-256, as 64 hex digits, of what is bought (docs/lifecycle.md, section 1).

    White space, member order, number spelling and explicit defaults do not change it, because `input_sha256` is the
    digest of the input in its canonical form.

    Args:
        operation: Its id.
        protocol: What it is paid over.
        release: Which release sells it.
        input_sha256: The digest of the canonical input.
        schema_sha256: What the result means, as it is published; without it this is the form of release 0.29.0.
    """
    bought: dict[str, canonical.JsonValue] = {
        "op": operation,
        "protocol": protocol,
        "release": release,
        "input": input_sha256,
    }
    if schema_sha256 is not None:
        bought["schema"] = schema_sha256
    return canonical.sha256(canonical.encode(bought))
