// usage: node run.mjs BASE_URL [TEST_ID]
// Runs the suite, or one test of it with a trace, against the cache at BASE_URL; without the tests of
// Surrogate-Control, which are for caches that announce that they heed it. Prints a JSON array with
// the outcome of every test in the suite's own terms; what the suite itself prints goes to stderr.
import fetch from 'node-fetch'
import { runTests, getResults } from 'http-cache-tests/client/runner.mjs'
import { determineTestResult } from 'http-cache-tests/lib/display.mjs'
import suites from 'http-cache-tests/tests/index.mjs'

// The suite does not export its names for outcomes, only the signs that its command line shows.
const outcomes = {
  '-': 'untested',
  '✅': 'pass',
  '⛔️': 'fail',
  '⚠️': 'optional_fail',
  Y: 'yes',
  N: 'no',
  '🔹': 'setup_fail',
  '⁉️': 'harness_fail',
  '⚪️': 'dependency_fail',
  '↻': 'retry'
}

const [base, only] = process.argv.slice(2)
console.log = console.error

let chosen = suites
if (only !== undefined) {
  chosen = suites.map(suite => ({ ...suite, tests: suite.tests.filter(test => test.id === only) }))
  chosen.forEach(suite => suite.tests.forEach(test => { test.dump = true }))
}

await runTests(chosen, fetch, false, base, 25)

const results = getResults()
const report = []
for (const suite of chosen) {
  for (const test of suite.tests) {
    const result = results[test.id]
    if (result === undefined) continue // for browsers only
    const sign = determineTestResult(suites, test.id, results, only === undefined)[2]
    report.push({
      id: test.id,
      name: test.name,
      group: suite.id,
      kind: test.kind ?? 'required',
      outcome: outcomes[sign] ?? sign,
      why: result === true ? '' : result.join(': ')
    })
  }
}
process.stdout.write(JSON.stringify(report))
