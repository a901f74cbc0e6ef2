// Buys twice over x402 with the actions of AgentKit's x402 provider, as an agent calls them: told the terms first, then
// paying; and in one step. Prints the two answers as a line of JSON. Environment: URL, BODY, KEYS (two of them, with a
// comma), EVM_PRIVATE_KEY, RPC_URL.

import { AgentKit, ViemWalletProvider, x402ActionProvider } from '@coinbase/agentkit'
import { createWalletClient, http } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { baseSepolia } from 'viem/chains'

const { URL, BODY, KEYS, EVM_PRIVATE_KEY, RPC_URL } = process.env
const [first, second] = KEYS.split(',')
// Standard output is for the answers: the provider logs its arguments.
console.log = console.error

const client = createWalletClient({
  account: privateKeyToAccount(EVM_PRIVATE_KEY),
  chain: baseSepolia,
  transport: http(RPC_URL),
})
const agentKit = await AgentKit.from({
  walletProvider: new ViemWalletProvider(client, { rpcUrl: RPC_URL }),
  actionProviders: [x402ActionProvider()],
})
const actions = agentKit.getActions()
const act = async (name, args) => {
  const action = actions.find((one) => one.name === `X402ActionProvider_${name}`)
  return JSON.parse(await action.invoke(action.schema.parse(args)))
}
const request = (key) => ({
  url: URL,
  method: 'POST',
  headers: { 'Content-Type': 'application/json', 'Idempotency-Key': key },
  body: JSON.parse(BODY),
})

const terms = await act('make_http_request', request(first))
const [selectedPaymentOption] = terms.acceptablePaymentOptions
const confirmed = await act('retry_http_request_with_x402', { ...request(first), selectedPaymentOption })
const direct = await act('make_http_request_with_x402', request(second))
process.stdout.write(JSON.stringify({ terms, confirmed, direct }))
