// A T4 chain takes no expiring nonce but 0, and viem makes a random one: loaded before a client that knows no T4.
import { tempoModerato } from 'viem/tempo/chains'

const [prepare, options] = tempoModerato.prepareTransactionRequest
const withZeroNonce = (request, context) =>
  prepare(request.nonceKey === 'expiring' && request.nonce === undefined ? { ...request, nonce: 0 } : request, context)
tempoModerato.prepareTransactionRequest = [withZeroNonce, options]
