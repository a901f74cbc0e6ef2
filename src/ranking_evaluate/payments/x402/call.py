"""What a facilitator is sent: the payer's authorization, and of everything that nobody signed our own words alone.

Facilitators catalogue services from the resource and the extensions of a payload. No signature covers those, so that a
payer could list a stranger's address, or an insult, under our recipient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from x402.schemas import PaymentRequirements

from ranking_evaluate.contract.wire import X402_VERSION
from ranking_evaluate.payments.x402.credential import Content


def body(content: Content, required: PaymentRequirements, challenge: Mapping[str, Any]) -> bytes:
    """Return the body of a /verify or /settle call.

    Args:
        content: A credential that meets our terms: what it accepts is `required`, and its payload holds an
            authorization and a signature and nothing else.
        required: What we ask for.
        challenge: The members of the PAYMENT_REQUIRED that this purchase gets now, whatever the credential answered:
            its resource, and its extensions, the payment-identifier with the key among them.
    """
    terms = required.model_dump(by_alias=True, exclude_none=True)
    payload = {
        "x402Version": X402_VERSION,
        "payload": content.payload.payload,
        "accepted": terms,
        "resource": challenge["resource"],
        "extensions": challenge["extensions"],
    }
    return orjson.dumps({"x402Version": X402_VERSION, "paymentPayload": payload, "paymentRequirements": terms})
