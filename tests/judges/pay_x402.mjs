// Buys once over x402 with @x402/fetch, the official TypeScript client, and prints what came back as one line of JSON.
// Environment: KEY (the wallet's private key), NETWORK, ASSET, URL, BODY, IDEMPOTENCY_KEY.

import { ExactEvmScheme } from '@x402/evm/exact/client'
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from '@x402/fetch'
import { privateKeyToAccount } from 'viem/accounts'

const { KEY, NETWORK, ASSET, URL, BODY, IDEMPOTENCY_KEY } = process.env

const client = new x402Client().register('eip155:*', new ExactEvmScheme(privateKeyToAccount(KEY)))
client.setSpendControls({ allowedAssets: [{ network: NETWORK, asset: ASSET, maxAmountPerPayment: '10000' }] })

const requests = []
const recorded = async (input, init) => {
  const request = new Request(input, init)
  const credential = request.headers.get('payment-signature')
  const response = await fetch(request)
  requests.push({ status: response.status, credential })
  return response
}

const response = await wrapFetchWithPayment(recorded, client)(URL, {
  method: 'POST',
  body: BODY,
  headers: { 'Content-Type': 'application/json', 'Idempotency-Key': IDEMPOTENCY_KEY },
})
const receipt = response.headers.get('payment-response')
console.log(
  JSON.stringify({
    status: response.status,
    body: await response.text(),
    receiptHeader: receipt,
    receipt: receipt && decodePaymentResponseHeader(receipt),
    replayed: response.headers.get('idempotent-replayed'),
    requests,
  }),
)
