// Prints what viem signs one digest with, as JSON: each kind of Tempo account, and each kind of access key for it.
// `signatures.json` was made by it: node tests/payments/signatures.mjs >tests/payments/signatures.json

import { keccak256, stringToHex } from 'viem'
import { Account, WebCryptoP256 } from 'viem/tempo'

const digest = keccak256(stringToHex('what every account here has signed'))
const secret = (name) => keccak256(stringToHex(name))
const page = { rpId: 'wallet.example', origin: 'https://wallet.example' }

const kinds = {
  secp256k1: (name, options) => Account.fromSecp256k1(secret(name), options),
  p256: (name, options) => Account.fromP256(secret(name), options),
  passkey: (name, options) => Account.fromHeadlessWebAuthn(secret(name), { ...page, ...options }),
  webcrypto: async (_, options) => Account.fromWebCryptoP256(await WebCryptoP256.createKeyPair(), options),
}

const made = []
for (const [root, open] of Object.entries(kinds)) {
  const account = await open('the account')
  made.push({ root, account: account.address, key: account.address, signature: await account.sign({ hash: digest }) })
  for (const [key, openKey] of Object.entries(kinds)) {
    const access = await openKey('the access key', { access: account.address })
    const signature = await access.sign({ hash: digest })
    made.push({ root, access: key, account: account.address, key: access.accessKeyAddress, signature })
  }
}
console.log(JSON.stringify({ digest, made }, null, 1))
