"""What the chain says of a payment: by the hash that we knew before it was sent, and by the transfer's own topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ranking_evaluate.payments.json_rpc import JsonRpc, NodeError, integer, word
from ranking_evaluate.payments.mpp.transaction import is_memo_of
from ranking_evaluate.payments.protocol import TRANSACTION, Evidence, Landed, NeverLanded, PaymentFacts, Unknown

TRANSFER_WITH_MEMO_LOG: Final = "0x57bc7354aa85aed339e000bccffabbc529466af35f0772c8f8ee1145927de7f0"
"""Topic of TransferWithMemo(address,address,uint256,bytes32), TIP-20."""

SEARCHED_SECONDS: Final = 600
"""How long before and after its last second a transfer with this memo is looked for.

A challenge lives for five minutes at most, and the chain takes no transaction with an expiring nonce that is valid for
longer: twice that holds every transaction that can bear the memo.
"""


async def evidence_of(node: JsonRpc, facts: PaymentFacts, realm: str) -> Evidence:
    """Return where the payment stands; `realm` is the one that its challenge was made for.

    What is said of the payment is said of final blocks alone. A payer may sign one content twice, and the chain keeps
    the first of the two: under a hash that we never saw. So a transfer with this memo, from this payer to us, is looked
    for wherever the transaction itself does not show it.

    Raises:
        NodeError: The node gave no usable answer.
    """
    transaction = facts.transaction
    if transaction is None or not TRANSACTION.fullmatch(transaction):
        return Unknown("the record holds no transaction to look for")
    # Another chain has no receipt of it either, which must never look like a payment that did not land.
    chain_id = await node.chain_id()
    if facts.network != f"eip155:{chain_id}":
        return Unknown(f"the node is on eip155:{chain_id}, the payment on {facts.network}")
    # The final block is read before the receipt: read after it, the payment could land in between unseen.
    final_number, final_time = await node.final_block()
    receipt = await node.ask("eth_getTransactionReceipt", transaction)
    if receipt is not None:
        shown = _shown(receipt, transaction, facts, realm, final_number)
        if not isinstance(shown, NeverLanded):
            return shown
    else:
        shown = None
    for log in await _transfers(node, facts, realm):
        if integer(log.get("blockNumber")) <= final_number:
            return Landed(str(log["transactionHash"]).lower())
        return Unknown("a transfer with this payment's memo is in a block that is not final yet")
    if shown is not None:
        return shown
    if facts.valid_before is not None and final_time > facts.valid_before:
        return NeverLanded("there is no receipt, and a final block is past the transaction's last second")
    return Unknown("there is no receipt so far, and no final block yet past the transaction's last second")


def _shown(receipt: Any, transaction: str, facts: PaymentFacts, realm: str, final: int) -> Evidence:  # noqa: ANN401 - JSON.
    """Return what the receipt of the transaction shows; "never landed" is said of this transaction alone."""
    if not isinstance(receipt, dict) or str(receipt.get("transactionHash")).lower() != transaction.lower():
        raise NodeError("the node's receipt is one of another transaction")
    if receipt.get("status") not in {"0x0", "0x1"}:
        raise NodeError("the node's receipt has no status")
    if integer(receipt.get("blockNumber")) > final:
        return Unknown("the receipt is in a block that is not final yet")
    if receipt["status"] == "0x0":
        return NeverLanded("the transaction was reverted: it is on the chain and moved nothing", for_good=True)
    if not isinstance(receipt.get("logs"), list):
        raise NodeError("the node's receipt has no logs")
    if any(_is_payment(log, facts, realm) for log in receipt["logs"]):
        return Landed(transaction.lower())
    return NeverLanded("the transaction is on the chain, and did not make this payment", for_good=True)


async def _transfers(node: JsonRpc, facts: PaymentFacts, realm: str) -> list[dict[str, Any]]:
    """Return the logs of transfers that make this payment, in whichever transaction they are."""
    if facts.payer is None or facts.valid_before is None:
        return []
    first = await node.first_block_at(facts.valid_before - SEARCHED_SECONDS)
    wanted = {
        "address": facts.asset,
        "topics": [TRANSFER_WITH_MEMO_LOG, f"0x{word(facts.payer)}", f"0x{word(facts.pay_to)}"],
        "fromBlock": hex(first),
        "toBlock": hex(await node.first_block_at(facts.valid_before + SEARCHED_SECONDS, first)),
    }
    logs = await node.ask("eth_getLogs", wanted)
    if not isinstance(logs, list):
        raise NodeError("the node's answer is no list of logs")
    return [log for log in logs if _is_payment(log, facts, realm)]


def _is_payment(log: object, facts: PaymentFacts, realm: str) -> bool:
    """Return whether a log is the transfer of this amount, to this recipient, for this challenge."""
    if not isinstance(log, Mapping):
        return False
    topics, data = log.get("topics"), log.get("data")
    if not isinstance(topics, list) or len(topics) != 4:
        return False
    kind, _, recipient, memo = (str(topic).lower() for topic in topics)
    return (
        str(log.get("address")).lower() == facts.asset.lower()
        and kind == TRANSFER_WITH_MEMO_LOG
        and recipient == f"0x{word(facts.pay_to)}"
        and integer(data) == facts.amount
        and is_memo_of(memo, facts.payment_id, realm)
    )
