// A page that pays from a browser with the official TypeScript clients, as their documents say. The test bundles it with
// esbuild, as the author of a page would, and calls these two functions.

import { ExactEvmScheme } from '@x402/evm/exact/client'
import { wrapFetchWithPayment, x402Client } from '@x402/fetch'
import { Mppx, tempo } from 'mppx/client'
import { createClient, http } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import * as chains from 'viem/tempo/chains'

// What a page's script can read of an answer.
const seen = async (response) => ({
  status: response.status,
  body: await response.text(),
  headers: Object.fromEntries(response.headers),
})

const request = ({ body, headers }) => ({ method: 'POST', body, headers })

window.payOverX402 = async (purchase) => {
  const { url, payerKey, network, asset } = purchase
  const client = new x402Client().register('eip155:*', new ExactEvmScheme(privateKeyToAccount(payerKey)))
  client.setSpendControls({ allowedAssets: [{ network, asset, maxAmountPerPayment: '10000' }] })
  return seen(await wrapFetchWithPayment(fetch, client)(url, request(purchase)))
}

window.payOverMpp = async (purchase) => {
  const { url, payerKey, network, rpc } = purchase
  const chain = Object.values(chains).find(({ id }) => `eip155:${id}` === network)
  const charge = tempo.charge({
    account: privateKeyToAccount(payerKey),
    getClient: () => createClient({ chain, transport: http(rpc) }),
  })
  const mppx = Mppx.create({ polyfill: false, methods: [charge] })
  return seen(await mppx.fetch(url, request(purchase)))
}

window.send = async (purchase) => seen(await fetch(purchase.url, request(purchase)))
