// Buys once with @x402/fetch, as its README says, and prints the answer's bytes. Environment: URL, BODY,
// IDEMPOTENCY_KEY, EVM_PRIVATE_KEY.

import { ExactEvmScheme } from '@x402/evm'
import { wrapFetchWithPaymentFromConfig } from '@x402/fetch'
import { privateKeyToAccount } from 'viem/accounts'

const { URL, BODY, IDEMPOTENCY_KEY, EVM_PRIVATE_KEY } = process.env

const account = privateKeyToAccount(EVM_PRIVATE_KEY)
const fetchWithPayment = wrapFetchWithPaymentFromConfig(fetch, {
  schemes: [{ network: 'eip155:*', client: new ExactEvmScheme(account) }],
})
const response = await fetchWithPayment(URL, {
  method: 'POST',
  body: BODY,
  headers: { 'Content-Type': 'application/json', 'Idempotency-Key': IDEMPOTENCY_KEY },
})
process.stdout.write(Buffer.from(await response.arrayBuffer()))
