// How the `mppx` command and `mppx validate` pay on the sandbox's chain. Environment: RPC, KEY (the wallet's private key).

import { tempo } from 'mppx/client'
import { createClient, http } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { tempoModerato } from 'viem/tempo/chains'

const { RPC, KEY } = process.env

export const charge = tempo.charge({
  account: privateKeyToAccount(KEY),
  getClient: () => createClient({ chain: tempoModerato, transport: http(RPC) }),
})

export default { methods: [charge] }
