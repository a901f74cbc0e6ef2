// Buy one answer over MPP with the official TypeScript SDK; one line installs what this client and pay_x402.mjs need:
// npm install @x402/core@2.27.0 @x402/evm@2.27.0 @x402/fetch@2.27.0 mppx@0.11.0 viem@2.56.9
//
// node pay_mpp.mjs INPUT.json KEY >ANSWER.json

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { Mppx, tempo } from 'mppx/client'
import { createClient, http } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import * as chains from 'viem/tempo/chains'

const { ORIGIN, WALLET_KEY, MPP_NETWORK, MPP_ASSET, MPP_RPC_URL, OPERATION = 'ranking-evaluate' } = process.env
const [input, key] = process.argv.slice(2)

// The key belongs to this purchase and the credential to this key: both are kept, and sent again rather than made anew.
// Whoever reads the credential before it is settled can spend it, so nobody else may.
process.umask(0o077)
const saved = `${key}.mpp`
const url = `${ORIGIN}/v1/mpp/${OPERATION}`
const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': key }
const request = { method: 'POST', body: readFileSync(input), headers }

const chain = Object.values(chains).find(({ id }) => `eip155:${id}` === MPP_NETWORK)
const charge = tempo.charge({
  account: privateKeyToAccount(WALLET_KEY),
  getClient: () => createClient({ chain, transport: http(MPP_RPC_URL) }),
})
const mppx = Mppx.create({ polyfill: false, methods: [charge] })

// A credential that is already there is sent again, and never a second one is signed. The paying mppx.fetch would sign
// anew for every 402 that it meets; one is signed here, for this token and this price alone, and saved before it is sent.
let response
if (!existsSync(saved)) {
  response = await mppx.rawFetch(url, request)
  if (response.status === 402) {
    const { challenge, createCredential } = await mppx.preparePayment(response, { request })
    const { amount, currency } = challenge.request
    if (BigInt(amount) > 10000n || currency.toLowerCase() !== MPP_ASSET.toLowerCase()) throw new Error('not what was agreed')
    writeFileSync(saved, await createCredential())
  }
}
if (existsSync(saved)) {
  headers.Authorization = readFileSync(saved, 'utf8')
  response = await fetch(url, request)
}
process.stdout.write(Buffer.from(await response.arrayBuffer()))
process.stderr.write(`${response.status} ${response.headers.get('Payment-Receipt') ?? 'no receipt'}\n`)
process.exitCode = response.status === 200 ? 0 : 1
