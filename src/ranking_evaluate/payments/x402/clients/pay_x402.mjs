// Buy one answer over x402 with the official TypeScript SDK; one line installs what this client and pay_mpp.mjs need:
// npm install @x402/core@2.27.0 @x402/evm@2.27.0 @x402/fetch@2.27.0 mppx@0.11.0 viem@2.56.9
//
// node pay_x402.mjs INPUT.json KEY >ANSWER.json

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { encodePaymentSignatureHeader } from '@x402/core/http'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { wrapFetchWithPayment, x402Client } from '@x402/fetch'
import { privateKeyToAccount } from 'viem/accounts'

const { ORIGIN, WALLET_KEY, X402_NETWORK, X402_ASSET, OPERATION = 'ranking-evaluate' } = process.env
const [input, key] = process.argv.slice(2)

// The key belongs to this purchase and the credential to this key: both are kept, and sent again rather than made anew.
// Whoever reads the credential before it is settled can spend it, so nobody else may.
process.umask(0o077)
const saved = `${key}.x402`
const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': key }

const client = new x402Client().register('eip155:*', new ExactEvmScheme(privateKeyToAccount(WALLET_KEY)))
// Without this the SDK refuses tokens that it does not know, and with it everything but this token and this price.
client.setSpendControls({
  allowedAssets: [{ network: X402_NETWORK, asset: X402_ASSET, maxAmountPerPayment: '10000' }],
})
// Saved before it is sent.
client.onAfterPaymentCreation(async ({ paymentPayload }) => {
  writeFileSync(saved, encodePaymentSignatureHeader(paymentPayload))
})

// A credential that is already there is sent again, and never a second one is signed.
const again = existsSync(saved)
if (again) headers['PAYMENT-SIGNATURE'] = readFileSync(saved, 'utf8')
const send = again ? fetch : wrapFetchWithPayment(fetch, client)
const response = await send(`${ORIGIN}/v1/x402/${OPERATION}`, { method: 'POST', body: readFileSync(input), headers })
process.stdout.write(Buffer.from(await response.arrayBuffer()))
process.stderr.write(`${response.status} ${response.headers.get('PAYMENT-RESPONSE') ?? 'no receipt'}\n`)
process.exitCode = response.status === 200 ? 0 : 1
