// How the `mppx` command and `mppx validate` pay on the sandbox's chain. Environment: RPC, KEY (the wallet's private key).

import { tempo } from 'mppx/client'
import { createClient, http } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { tempoModerato } from 'viem/tempo/chains'

const { RPC, KEY } = process.env

// viem gives an expiring nonce a random sequence, which a T4 chain refuses: there it is always 0.
const [prepare, options] = tempoModerato.prepareTransactionRequest
const withZeroNonce = (request, context) =>
  prepare(request.nonceKey === 'expiring' && request.nonce === undefined ? { ...request, nonce: 0 } : request, context)
const chain = { ...tempoModerato, prepareTransactionRequest: [withZeroNonce, options] }

export const charge = tempo.charge({
  account: privateKeyToAccount(KEY),
  getClient: () => createClient({ chain, transport: http(RPC) }),
})

export default { methods: [charge] }
