// Audits an origin with @agentcash/discovery and prints every finding as one line of JSON: ORIGIN, then POST paths.

import {
  checkEndpointSchema,
  checkL2ForOpenAPI,
  discoverOriginSchema,
  getL3,
  getOpenAPI,
  getProbe,
  getWarningsFor402Body,
  getWarningsForFavicon,
  getWarningsForL2,
  getWarningsForL3,
  getWarningsForMppHeader,
  getWarningsForOpenAPI,
} from '@agentcash/discovery'

const [origin, ...paths] = process.argv.slice(2)
const say = (about, found) => console.log(JSON.stringify({ about, ...found }))
const note = (about, warnings) => {
  for (const { code, severity, path } of warnings) say(about, { code, severity, path })
}

const description = (await getOpenAPI(origin)).unwrapOr(null)
note('openapi', getWarningsForOpenAPI(description))
note('routes', getWarningsForL2(checkL2ForOpenAPI(description)))
note('favicon', (await getWarningsForFavicon(origin)).unwrapOr([]))
const discovered = await discoverOriginSchema({ target: origin })
note('origin', discovered.found ? (discovered.warnings ?? []) : [{ code: 'NOT_FOUND', severity: 'error' }])
for (const { resourceKey, authMode } of discovered.endpoints ?? []) say('listed', { resourceKey, authMode })
for (const path of paths) {
  // Its own probe: every method, without a header or a body of ours.
  const endpoint = await checkEndpointSchema({ url: origin + path, probe: true })
  if (!endpoint.found) note(path, [{ code: 'NOT_FOUND', severity: 'error' }])
  for (const { method, authMode, inputSchema } of endpoint.advisories ?? []) {
    say('probed', { path, method, authMode, hasInput: Boolean(inputSchema) })
  }
  note(path, getWarningsForL3(getL3(description, undefined, path, 'POST')))
  const probes = (await getProbe(origin + path)).unwrapOr([])
  const { paymentRequiredBody, wwwAuthenticate } = probes.find(({ method }) => method === 'POST') ?? {}
  if (paymentRequiredBody) note(path, getWarningsFor402Body(paymentRequiredBody))
  if (wwwAuthenticate) note(path, getWarningsForMppHeader(wwwAuthenticate))
  if (!paymentRequiredBody && !wwwAuthenticate) note(path, [{ code: 'NO_CHALLENGE', severity: 'error' }])
}
say('done', { paths: paths.length })
