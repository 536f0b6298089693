// The official TypeScript SDK calls our servers. What a guard answers must reach an agent through
// clients that we didn't write.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { before, describe, test } from 'node:test'
import { setTimeout as wait } from 'node:timers/promises'
import { build, connect, patience, sdks, startHTTP, temporary } from './lib.mjs'

const metaError = 'io.github.seed8d1e2389.resilience/error'

/** The _meta of a call that will hang. The other calls keep their tool's timeout. */
const impatient = { 'io.github.seed8d1e2389.resilience/timeout': 0.3 }

/** Returns the error metadata of a failed call. */
function failure(result) {
  assert.equal(result.isError, true, JSON.stringify(result))
  const error = result._meta?.[metaError]
  assert.ok(error, `no error in _meta: ${JSON.stringify(result)}`)
  return error
}

/** Does the same for a call without a result of the tool's own, so that the guard made all of it. */
function ownFailure(result) {
  const error = failure(result)
  assert.equal(result.content.length, 1)
  assert.equal(result.content[0].type, 'text')
  const { text } = result.content[0]
  assert.ok(text.startsWith(`${error.code}: `) && text.endsWith(error.suggestion), text)
  return error
}

/**
 * Calls until the error has another code than the given one, and returns that result. The breaker has
 * just opened, but on a slow machine its cooldown may be over before the next call, which is a probe
 * then.
 */
async function rejected(code, call) {
  let result
  do result = await call(); while (failure(result).code === code)
  return result
}

/** Starts a backend that can hang, be stopped, and be started again at the same address. */
async function startBackend(t) {
  const backend = { hangs: false }
  const server = createServer((_, res) => { if (!backend.hangs) res.end('hello') })
  const listen = async port => { await once(server.listen(port, '127.0.0.1'), 'listening') }
  backend.stop = async () => {
    server.close()
    server.closeAllConnections()
    if (server.listening) await once(server, 'close')
  }

  let port
  while (!server.listening) {
    // The port is below those that systems give to outgoing connections, so it stays free.
    port = 12000 + Math.floor(18000 * Math.random())
    await listen(port).catch(error => assert.equal(error.code, 'EADDRINUSE'))
  }

  backend.origin = `http://127.0.0.1:${port}`
  backend.start = () => listen(port)
  t.after(backend.stop)
  return backend
}

for (const name of ['server', 'server-mcpgo']) {
  describe(`examples/${name}`, { concurrency: true }, () => {
    let program
    before(async () => { program = await build('../examples', `./${name}`) })

    for (const sdk of sdks) {
      test(`${sdk.name}: a backend hangs, dies and comes back`, { timeout: patience }, async t => {
        const dir = await temporary(t)
        await writeFile(join(dir, 'a.txt'), 'one\ntwo\n')
        const backend = await startBackend(t)
        const { tools, call } = await connect(t, sdk, {
          command: program,
          args: ['-dir', dir, '-allow', backend.origin, '-probe', backend.origin],
        })
        const fetch = meta => call('fetch', { url: backend.origin + '/' }, undefined, meta)

        // All tools have output schemas, so the SDK has validated these results.
        assert.deepEqual(tools.filter(t => t.outputSchema).map(t => t.name).sort(), ['fetch', 'read', 'search'])
        assert.equal((await call('read', { path: 'a.txt' })).structuredContent.text, 'one\ntwo\n')
        assert.deepEqual((await call('search', { text: 'TWO' })).structuredContent.matches, [{ path: 'a.txt', line: 2, text: 'two' }])
        assert.equal((await fetch()).structuredContent.text, 'hello')

        // The agent's own mistakes don't open the breaker.
        for (let i = 0; i < 6; i++) {
          const { code, retryable } = failure(await call('fetch', { url: 'http://elsewhere.invalid/' }))
          assert.deepEqual({ code, retryable }, { code: 'VALIDATION_ERROR', retryable: false })
        }

        backend.hangs = true
        const timeout = ownFailure(await fetch(impatient))
        assert.equal(timeout.code, 'TIMEOUT')
        assert.equal(timeout.tool, 'fetch')
        assert.equal(timeout.retryable, true)

        await backend.stop()
        for (let i = 0; i < 5; i++) { // so many that the breaker opens
          const { code, retryable } = failure(await fetch())
          // The first call of an outage makes all its attempts, the others one.
          assert.deepEqual({ code, retryable }, { code: i === 0 ? 'RETRY_EXHAUSTED' : 'CONNECTION_LOST', retryable: true })
        }
        const open = await rejected('CONNECTION_LOST', fetch)
        const { code, retryAfter } = ownFailure(open)
        assert.equal(code, 'CIRCUIT_OPEN')
        assert.ok(Number.isInteger(retryAfter) && retryAfter > 0, `retryAfter is ${retryAfter}`)
        assert.equal(open.structuredContent, undefined)

        // Meanwhile, the other tools still work.
        assert.equal((await call('read', { path: 'a.txt' })).structuredContent.text, 'one\ntwo\n')

        backend.hangs = false
        await backend.start()
        let back // the server's Probe has to notice it
        do {
          await wait(retryAfter * 1000)
          back = await fetch()
        } while (back.isError && failure(back).code === 'CIRCUIT_OPEN')
        assert.notEqual(back.isError, true, JSON.stringify(back))
        assert.equal(back.structuredContent.text, 'hello')
      })
    }
  })
}

describe('testserver', { concurrency: true }, () => {
  let program
  before(async () => { program = await build('testserver', '.') })

  for (const sdk of sdks) {
    for (const transport of ['stdio', 'streamable HTTP']) {
      const start = async t => connect(t, sdk, transport === 'stdio'
        ? { command: program }
        // The newer protocol has no sessions.
        : { url: await startHTTP(t, program, [`-stateless=${sdk.protocol === '2026-07-28'}`]) })

      test(`${sdk.name} over ${transport}: progress lets a tool run for longer than its timeout`, { timeout: patience }, async t => {
        const { call } = await start(t)
        const seen = []
        let enough
        const slow = await call('slow', {}, {
          // Seven reports, a second apart, take longer than the timeout of 5s.
          onprogress: p => { if (seen.push(p.progress) === 7) enough = call('enough', {}) },
        })
        await enough
        assert.notEqual(slow.isError, true, JSON.stringify(slow))
        assert.deepEqual(seen.slice(0, 7), [0, 1, 2, 3, 4, 5, 6])
      })

      test(`${sdk.name} over ${transport}: heartbeats keep a client that waits for two seconds`, { timeout: patience }, async t => {
        const { call } = await start(t)
        await assert.rejects(call('silent', {}, { timeout: 2000 }), /timed out/i)
        let beats = 0
        let enough
        const silent = await call('silent', {}, {
          timeout: 2000,
          resetTimeoutOnProgress: true,
          onprogress: () => { if (++beats === 5) enough = call('enough', {}) },
        })
        await enough
        assert.notEqual(silent.isError, true, JSON.stringify(silent))
      })

      // Without sessions and users, the server doesn't know whether two requests are of one client.
      const isKnown = transport === 'stdio' || sdk.protocol !== '2026-07-28'
      test(`${sdk.name} over ${transport}: a write that is sent again acts once`, { skip: !isKnown, timeout: patience }, async t => {
        const { call } = await start(t)
        const order = (options = {}) => call('order', { item: 'book' }, options)
        await assert.rejects(order({ timeout: 1000 }), /timed out/i)
        await call('order_left', {}) // the model takes longer
        const again = await order()
        assert.equal(again.content[0].text, 'order 1')
        assert.match(again.content[1].text, /^This is the result of the same call made \d+ seconds? ago/)
        assert.equal((await order()).content[0].text, 'order 2')
      })

      test(`${sdk.name} over ${transport}: failures reach the client with and without an output schema`, { timeout: patience }, async t => {
        const { tools, call } = await start(t)
        for (const name of ['fail', 'fail_structured']) {
          const hasSchema = name === 'fail_structured'
          assert.equal(Boolean(tools.find(t => t.name === name).outputSchema), hasSchema)
          const ok = await call(name, { kind: 'none' })
          assert.notEqual(ok.isError, true)
          assert.deepEqual(ok.structuredContent, { kind: 'none' })

          // These errors are the guard's own. They may be the structuredContent only of a tool without
          // an output schema: SDK 1.x validates it even if isError is set, and throws.
          const assertOwn = (result, code) => {
            const error = ownFailure(result)
            assert.equal(error.code, code)
            assert.equal(error.tool, name)
            assert.deepEqual(result.structuredContent, hasSchema ? undefined : error)
            return error
          }
          assertOwn(await call(name, { kind: 'panic' }), 'TOOL_FAILED')
          assertOwn(await call(name, { kind: 'hang' }, undefined, impatient), 'TIMEOUT')

          // A result of the tool or the SDK stays as it is. Mistakes don't count, however many there are.
          for (const kind of [1, 'mistake', 1, 'mistake', 1, 'mistake']) {
            const wrong = await call(name, { kind })
            assert.equal(wrong.isError, true)
            assert.equal(wrong.content.length, 1)
            assert.match(wrong.content[0].text, /validating "arguments"|there is no such disk/)
            assert.equal(wrong.structuredContent, undefined)
            assert.doesNotMatch(JSON.stringify(wrong), /"code"/)
          }

          // Where the backend has failed, guidance follows.
          for (let i = 0; i < 4; i++) {
            const result = await call(name, { kind: 'error' })
            const error = failure(result)
            assert.equal(error.code, 'TOOL_FAILED')
            assert.deepEqual(result.content[0], { type: 'text', text: 'the disk is full' })
            assert.deepEqual(result.content.slice(1), [{ type: 'text', text: error.suggestion }])
            assert.equal(result.structuredContent, undefined)
          }

          // With the panic, those were five failures, so the breaker is open.
          const { retryAfter } = assertOwn(await rejected('TOOL_FAILED', () => call(name, { kind: 'error' })), 'CIRCUIT_OPEN')
          assert.ok(Number.isInteger(retryAfter) && retryAfter > 0, `retryAfter is ${retryAfter}`)
          await wait(retryAfter * 1000)
          assert.deepEqual((await call(name, { kind: 'none' })).structuredContent, { kind: 'none' })
        }

        // A call of an unknown tool isn't a failure of a tool. It stays a protocol error.
        await assert.rejects(call('no such tool', {}), { code: -32602 })
      })
    }
  }
})
