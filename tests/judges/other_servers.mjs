// Servers that others wrote, as their documents say to start them: `node other_servers.mjs express|hono|mppx`.
// They know no GET /v1/attempts and keep no record of keys. Environment: PORT, PAY_TO, ASSET, and FACILITATOR and NETWORK
// for x402, RPC for MPP. The paths: /tied names the purchase in its terms, /untied does not, /dear costs half a dollar,
// /foreign is sold for a token that nobody knows, over x402 on Base.

import { serve } from '@hono/node-server'
import { Hono } from 'hono'

const { PORT, PAY_TO, ASSET, FACILITATOR, NETWORK, RPC } = process.env
const PATHS = ['/tied', '/untied', '/dear', '/foreign']
const BASE = 'eip155:8453'
const FOREIGN = '0x20c0000000000000000000000000000000000bad'
const answer = { bought: true }

async function routes() {
  const { declarePaymentIdentifierExtension } = await import('@x402/extensions/payment-identifier')
  const tied = { 'payment-identifier': declarePaymentIdentifierExtension(false) }
  const extra = { name: 'Sandbox Dollar', version: '1' }
  const terms = (amount, extensions, network = NETWORK, asset = ASSET) => ({
    accepts: {
      scheme: 'exact',
      payTo: PAY_TO,
      network,
      price: { amount, asset, extra },
      maxTimeoutSeconds: 120,
    },
    extensions,
  })
  return {
    'POST /tied': terms('10000', tied),
    'POST /untied': terms('10000', {}),
    'POST /dear': terms('500000', tied),
    'POST /foreign': terms('10000', tied, BASE, FOREIGN),
  }
}

async function x402(framework) {
  const { paymentMiddleware, x402ResourceServer } = await import(`@x402/${framework}`)
  const { ExactEvmScheme } = await import('@x402/evm/exact/server')
  const { HTTPFacilitatorClient } = await import('@x402/core/server')
  const server = new x402ResourceServer(new HTTPFacilitatorClient({ url: FACILITATOR }))
  for (const network of [NETWORK, BASE]) server.register(network, new ExactEvmScheme())
  return paymentMiddleware(await routes(), server)
}

async function mpp() {
  const { Mppx, tempo } = await import('mppx/server')
  const { createClient, http } = await import('viem')
  const { tempoModerato } = await import('viem/tempo/chains')
  const charges = Mppx.create({
    secretKey: 'k'.repeat(32),
    realm: '127.0.0.1',
    methods: [
      tempo.charge({
        testnet: true,
        currency: ASSET,
        recipient: PAY_TO,
        getClient: () => createClient({ chain: tempoModerato, transport: http(RPC, { retryCount: 0 }) }),
      }),
    ],
  })
  const terms = {
    '/tied': { amount: '0.01' },
    '/untied': { amount: '0.01' },
    '/dear': { amount: '0.5' },
    '/foreign': { amount: '0.01', currency: FOREIGN },
  }
  return async (context) => {
    const path = context.req.path
    const key = context.req.header('Idempotency-Key')
    const meta = path === '/untied' ? {} : { meta: { idempotencyKey: key } }
    const response = await charges.charge({ ...terms[path], ...meta })(context.req.raw)
    return response.status === 402 ? response.challenge : response.withReceipt(Response.json(answer))
  }
}

const [kind] = process.argv.slice(2)
if (kind === 'express') {
  const { default: express } = await import('express')
  const app = express()
  app.use(await x402('express'))
  app.post(PATHS, (request, response) => response.json(answer))
  app.listen(Number(PORT), '127.0.0.1')
} else {
  const app = new Hono()
  if (kind === 'hono') app.use(await x402('hono'))
  const pay = kind === 'mppx' ? await mpp() : (context) => context.json(answer)
  for (const path of PATHS) app.post(path, pay)
  serve({ fetch: app.fetch, port: Number(PORT), hostname: '127.0.0.1' })
}
