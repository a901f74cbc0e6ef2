// A facilitator out of the official TypeScript SDK, as coinbase/x402's examples/typescript/facilitator/basic builds one
// (with node:http in place of express), with viem's nonce manager: without it, settlements at the same time collide.
//
// Environment: RPC, KEY, NETWORK, PORT, CONFIRMATION_SECONDS.

import { createServer } from 'node:http'
import { x402Facilitator } from '@x402/core/facilitator'
import { toFacilitatorEvmSigner } from '@x402/evm'
import { registerExactEvmScheme } from '@x402/evm/exact/facilitator'
import { createWalletClient, defineChain, http, publicActions } from 'viem'
import { nonceManager, privateKeyToAccount } from 'viem/accounts'

const { RPC, KEY, NETWORK, PORT, CONFIRMATION_SECONDS } = process.env

const account = privateKeyToAccount(KEY, { nonceManager })
const chain = defineChain({
  id: Number(NETWORK.replace('eip155:', '')),
  name: 'local',
  nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
  rpcUrls: { default: { http: [RPC] } },
})
const client = createWalletClient({ account, chain, transport: http(RPC, { retryCount: 0 }), pollingInterval: 50 }).extend(publicActions)
const signer = toFacilitatorEvmSigner(
  {
    address: account.address,
    getCode: (args) => client.getCode(args),
    readContract: (args) => client.readContract({ ...args, args: args.args || [] }),
    verifyTypedData: (args) => client.verifyTypedData(args),
    writeContract: (args) => client.writeContract({ ...args, args: args.args || [] }),
    sendTransaction: (args) => client.sendTransaction(args),
    waitForTransactionReceipt: (args) => client.waitForTransactionReceipt(args),
  },
  { confirmationTimeoutMs: 1000 * Number(CONFIRMATION_SECONDS) },
)

const facilitator = new x402Facilitator()
registerExactEvmScheme(facilitator, { signer, networks: NETWORK })

const routes = {
  'GET /supported': async () => facilitator.getSupported(),
  'POST /verify': ({ paymentPayload, paymentRequirements }) => facilitator.verify(paymentPayload, paymentRequirements),
  'POST /settle': ({ paymentPayload, paymentRequirements }) => facilitator.settle(paymentPayload, paymentRequirements),
}

createServer(async (request, response) => {
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  const route = routes[`${request.method} ${request.url}`]
  let [status, said] = [404, { error: 'not found' }]
  try {
    if (route) [status, said] = [200, await route(chunks.length ? JSON.parse(Buffer.concat(chunks)) : {})]
  } catch (error) {
    ;[status, said] = [500, { error: error instanceof Error ? error.message : 'Unknown error' }]
  }
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(said))
}).listen(Number(PORT), '127.0.0.1')
