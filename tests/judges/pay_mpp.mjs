// Buys once over MPP with mppx, the official TypeScript client, and prints what came back as one line of JSON.
// Environment: RPC, KEY (the wallet's private key), URL, BODY, IDEMPOTENCY_KEY.

import { Receipt } from 'mppx'
import { Mppx } from 'mppx/client'
import { charge } from './mppx.config.mjs'

const { URL, BODY, IDEMPOTENCY_KEY } = process.env

const requests = []
const client = Mppx.create({
  polyfill: false,
  fetch: async (input, init) => {
    const response = await fetch(input, init)
    requests.push({ status: response.status, paid: new Headers(init?.headers).has('authorization') })
    return response
  },
  methods: [charge],
})

const response = await client.fetch(URL, {
  method: 'POST',
  body: BODY,
  headers: { 'Content-Type': 'application/json', 'Idempotency-Key': IDEMPOTENCY_KEY },
})
console.log(
  JSON.stringify({
    status: response.status,
    body: await response.text(),
    receipt: response.headers.has('payment-receipt') ? Receipt.fromResponse(response) : null,
    replayed: response.headers.get('idempotent-replayed'),
    requests,
  }),
)
