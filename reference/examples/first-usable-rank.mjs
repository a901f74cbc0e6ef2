// First usable rank, with its answer key: needs nothing but Node 18. Run it, and it checks itself.

import { deepStrictEqual } from "node:assert";
import { realpathSync } from "node:fs";
import { argv } from "node:process";
import { pathToFileURL } from "node:url";

export const cases = [
  {"id":"two-ranks","input":{"queries":[{"hits":["X","D"],"usable":["D"]},{"hits":["A","B","C","E"],"usable":["E"]}]},"expected":{"ranks":[2,4],"numerator":3,"denominator":8}},
  {"id":"one-miss","input":{"queries":[{"hits":["D"],"usable":["D"]},{"hits":["X"],"usable":["E"]}]},"expected":{"ranks":[1,null],"numerator":1,"denominator":2}},
  {"id":"missing-usable-channel","input":{"queries":[{"hits":[]}]},"expected":{"error":"usable-labels"}},
  {"id":"no-queries","input":{"queries":[]},"expected":{"ranks":[],"numerator":0,"denominator":0}}
];

/** Returns the ranks and the exact mean of 1/rank, or {error: code}. */
export function score(value) {
  if (!isObject(value)) return { error: "INVALID_INPUT" };
  const queries = Object.hasOwn(value, "queries") ? value.queries : undefined;
  if (!Array.isArray(queries) || !queries.every(isLabelled)) return { error: "usable-labels" };
  if (queries.length > 10 || queries.some(({ hits }) => hits.length > 10)) return { error: "score-bounds" };
  if (Object.keys(value).length !== 1 || !queries.every(isValid)) return { error: "INVALID_INPUT" };
  const ranks = queries.map(({ hits, usable }) => {
    const wanted = new Set(usable);
    return hits.findIndex((hit) => wanted.has(hit)) + 1 || null;
  });
  if (ranks.length === 0) return { ranks, numerator: 0, denominator: 0 };
  let numerator = 0;
  let denominator = 1;
  // At most ten ranks of at most ten: every integer on the way is exact.
  for (const rank of ranks.filter((rank) => rank !== null)) {
    [numerator, denominator] = reduced(numerator * rank + denominator, denominator * rank);
  }
  [numerator, denominator] = reduced(numerator, denominator * ranks.length);
  return { ranks, numerator, denominator };
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isLabelled(query) {
  return isObject(query) && Array.isArray(query.hits) && Array.isArray(query.usable);
}

function isValid(query) {
  // Code points are counted, not UTF-16 units.
  const isId = (one) => typeof one === "string" && one.length > 0 && [...one].length <= 80;
  return Object.keys(query).length === 2 && query.hits.every(isId) && query.usable.every(isId);
}

function reduced(numerator, denominator) {
  let [divisor, rest] = [numerator, denominator];
  while (rest !== 0) [divisor, rest] = [rest, divisor % rest];
  return [numerator / divisor, denominator / divisor];
}

if (argv[1] !== undefined && import.meta.url === pathToFileURL(realpathSync(argv[1])).href) {
  for (const { id, input, expected } of cases) deepStrictEqual(score(input), expected, id);
  console.log(JSON.stringify({ checked: cases.length, caseIds: cases.map(({ id }) => id) }));
}
