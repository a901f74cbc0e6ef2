// Pays over MPP with mppx as each kind of Tempo wallet does: an account of any kind, alone or by an access key, whose
// first payment carries the key's authorization. One command a line on standard input, one line of JSON for each.
// Environment: RPC.

import { createInterface } from 'node:readline'
import { Receipt } from 'mppx'
import { Mppx, tempo } from 'mppx/client'
import { createClient, http, keccak256, stringToHex } from 'viem'
import { Account, KeyAuthorizationManager, WebCryptoP256 } from 'viem/tempo'
import { tempoModerato as chain } from 'viem/tempo/chains'

const client = createClient({ chain, transport: http(process.env.RPC) })
const page = { rpId: 'wallet.example', origin: 'https://wallet.example' }
const kinds = {
  secp256k1: (secret, options) => Account.fromSecp256k1(secret, options),
  p256: (secret, options) => Account.fromP256(secret, options),
  passkey: (secret, options) => Account.fromHeadlessWebAuthn(secret, { ...page, ...options }),
  webcrypto: async (_, options) => Account.fromWebCryptoP256(await WebCryptoP256.createKeyPair(), options),
}
const bigints = (limits) => limits?.map(({ limit, ...rest }) => ({ ...rest, limit: BigInt(limit) }))

const wallets = {}
const commands = {
  // Makes a wallet; with `key` it pays by an access key of that kind, which `authorization` bounds.
  async open({ name, root, key, authorization = {} }) {
    const account = await kinds[root](keccak256(stringToHex(`${name} ${Math.random()}`)))
    wallets[name] = { account, payer: account }
    if (key) {
      const keyAuthorizationManager = KeyAuthorizationManager.memory()
      const access = account.address
      const payer = await kinds[key](keccak256(stringToHex(`${name} key`)), { access, keyAuthorizationManager })
      const { limits, chainId = chain.id, ...rest } = authorization
      const signed = await account.signKeyAuthorization(payer, { chainId: BigInt(chainId), limits: bigints(limits), ...rest })
      await keyAuthorizationManager.set({ address: access, accessKey: payer.accessKeyAddress, chainId: chain.id }, signed)
      wallets[name].payer = payer
    }
    return { address: account.address, key: wallets[name].payer.accessKeyAddress }
  },

  // Buys once, as an application does: the client asks, is told the price, signs and sends.
  async buy({ name, url, body, key }) {
    const credentials = []
    const paying = Mppx.create({
      polyfill: false,
      fetch: async (input, init) => {
        credentials.push(new Headers(init?.headers).get('authorization'))
        return fetch(input, init)
      },
      methods: [tempo.charge({ account: wallets[name].payer, getClient: () => client })],
    })
    const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': key }
    const response = await paying.fetch(url, { method: 'POST', body, headers })
    const receipt = response.headers.has('payment-receipt') ? Receipt.fromResponse(response) : null
    return { status: response.status, body: await response.text(), receipt, credential: credentials.at(-1) }
  },

  // Signs the credential for a challenge, and sends nothing.
  async sign({ name, challenge }) {
    const paying = Mppx.create({
      polyfill: false,
      methods: [tempo.charge({ account: wallets[name].payer, getClient: () => client })],
    })
    const response = new Response(null, { status: 402, headers: { 'WWW-Authenticate': challenge } })
    return { credential: await paying.createCredential(response) }
  },
}

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...given } = JSON.parse(line)
  const said = await commands[command](given).catch((error) => ({ error: String(error.details ?? error.stack) }))
  console.log(JSON.stringify(said))
}
