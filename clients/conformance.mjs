// The conformance suite of the MCP project judges the same server with and without the middleware.
// The verdicts must be equal.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { build, patience, startHTTP, temporary } from './lib.mjs'

const suite = join(import.meta.dirname, 'node_modules/@modelcontextprotocol/conformance/dist/index.js')

/** Runs all server scenarios of a protocol revision, and returns the verdicts by scenario. */
async function judge(t, program, revision, guard) {
  const dir = await temporary(t)
  const url = await startHTTP(t, program, [`-guard=${guard}`, `-stateless=${revision === '2026-07-28'}`])

  try {
    await promisify(execFile)(process.execPath, ['--import', join(import.meta.dirname, 'node20.mjs'),
      suite, 'server', '--url', url.href, '--requirements', revision, '--output-dir', dir], { maxBuffer: 1 << 26 })
  } catch (error) {
    // The server lacks something that the revision requires of every server.
    assert.fail(`with -guard=${guard}: ${error.stdout?.split('=== SUMMARY ===')[1] ?? error}`)
  }

  const verdicts = {}
  for (const entry of await readdir(dir)) {
    const scenario = entry.replace(/^server-/, '').replace(/-\d{4}-\d\d-\d\dT.*$/, '')
    const checks = JSON.parse(await readFile(join(dir, entry, 'checks.json'), 'utf8'))
    verdicts[scenario] = checks.map(c => `${c.id}: ${c.status}`).sort()
  }
  return verdicts
}

describe('conformance', { concurrency: true }, () => {
  let program
  before(async () => { program = await build('testserver', '.') })

  for (const revision of ['2025-11-25', '2026-07-28']) {
    test(`${revision}: equal verdicts with and without the middleware`, { timeout: patience }, async t => {
      const [withGuard, without] = await Promise.all([judge(t, program, revision, true), judge(t, program, revision, false)])
      assert.ok(Object.keys(without).length > 30, 'the suite has run hardly any scenarios')
      assert.deepEqual(withGuard, without)

      const checks = Object.entries(without).flatMap(([scenario, verdicts]) => verdicts.map(v => `${scenario}: ${v}`))
      const failed = checks.filter(c => c.endsWith(': FAILURE'))
      assert.deepEqual(failed.filter(c => !c.startsWith('tasks-')), [], 'only the tasks extension, which the Go SDK lacks, may fail')

      t.diagnostic(`${checks.length} checks of protocol ${revision} have the same verdict with and without the middleware. `
        + (failed.length
          ? `${failed.length} of them fail, all in the optional tasks extension, which the Go SDK lacks.`
          : 'All of them pass.'))
    })
  }
})
