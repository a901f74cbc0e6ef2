// Audits an origin with @agentcash/discovery and prints every warning as one line of JSON: ORIGIN, then POST paths.

import {
  checkEndpointSchema,
  checkL2ForOpenAPI,
  discoverOriginSchema,
  getL3,
  getOpenAPI,
  getWarningsFor402Body,
  getWarningsForL2,
  getWarningsForL3,
  getWarningsForMppHeader,
  getWarningsForOpenAPI,
} from '@agentcash/discovery'

const [origin, ...paths] = process.argv.slice(2)
const note = (about, warnings) => {
  for (const { code, severity, path } of warnings) console.log(JSON.stringify({ about, code, severity, path }))
}

const description = (await getOpenAPI(origin)).unwrapOr(null)
note('openapi', getWarningsForOpenAPI(description))
note('routes', getWarningsForL2(checkL2ForOpenAPI(description)))
const discovered = await discoverOriginSchema({ target: origin })
note('origin', discovered.found ? (discovered.warnings ?? []) : [{ code: 'NOT_FOUND', severity: 'error' }])
for (const path of paths) {
  const endpoint = await checkEndpointSchema({ url: origin + path, probe: true })
  if (!endpoint.found) note(path, [{ code: 'NOT_FOUND', severity: 'error' }])
  note(path, getWarningsForL3(getL3(description, undefined, path, 'POST')))
  const answer = await fetch(origin + path)
  const challenge = answer.headers.get('www-authenticate')
  note(path, challenge ? getWarningsForMppHeader(challenge) : getWarningsFor402Body(await answer.json()))
}
console.log(JSON.stringify({ done: paths.length }))
