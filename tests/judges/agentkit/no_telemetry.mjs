// AgentKit reports every wallet and action to Coinbase, and ends when that fails: loaded before it, this takes the reports.
const beyond = globalThis.fetch
globalThis.fetch = async (input, init) =>
  String(input).startsWith('https://cca-lite.coinbase.com/') ? new Response() : beyond(input, init)
