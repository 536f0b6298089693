// Starts Go servers, and connects clients to them, for both test files.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Client as ClientV1 } from 'sdk-v1/client/index.js'
import { StdioClientTransport as StdioV1 } from 'sdk-v1/client/stdio.js'
import { StreamableHTTPClientTransport as HTTPV1 } from 'sdk-v1/client/streamableHttp.js'
import { Client as ClientV2, StreamableHTTPClientTransport as HTTPV2 } from 'sdk-v2'
import { StdioClientTransport as StdioV2 } from 'sdk-v2/stdio'

const info = { name: 'resilience-clients', version: '1.0.0' }

// By default, SDK 2.x uses the older protocol too.
export const sdks = [
  { name: 'SDK 1.x', Client: ClientV1, Stdio: StdioV1, HTTP: HTTPV1, protocol: '2025-11-25' },
  { name: 'SDK 2.x', Client: ClientV2, Stdio: StdioV2, HTTP: HTTPV2, protocol: '2025-11-25' },
  {
    name: 'SDK 2.x, protocol 2026-07-28', Client: ClientV2, Stdio: StdioV2, HTTP: HTTPV2, protocol: '2026-07-28',
    options: { versionNegotiation: { mode: { pin: '2026-07-28' } } },
  },
]

/** How long a test may take before it fails. Even on a slow machine, no test should take that long. */
export const patience = 10 * 60_000

/** Makes a directory that is removed when the test ends. */
export async function temporary(t) {
  const dir = await mkdtemp(join(tmpdir(), 'resilience-clients-'))
  t.after(() => rm(dir, { recursive: true, force: true }))
  return dir
}

/**
 * Builds a Go program and returns its path. `module` is the directory of its module, relative to this
 * one. The first build takes a while; the go command prints what it downloads.
 */
export async function build(module, pkg) {
  const dir = await mkdtemp(join(tmpdir(), 'resilience-clients-'))
  process.once('exit', () => rmSync(dir, { recursive: true, force: true }))
  const program = join(dir, 'server')
  console.error(`building ${join(module, pkg)} …`)
  const go = spawn('go', ['build', '-C', join(import.meta.dirname, module), '-o', program, pkg],
    { stdio: ['ignore', 'inherit', 'inherit'] })
  const [code] = await once(go, 'exit')
  assert.equal(code, 0, `go build ${pkg} failed`)
  return program
}

/** Starts a server over HTTP and returns its address, which is the first line that it prints. */
export async function startHTTP(t, program, args) {
  const server = spawn(program, ['-http', '127.0.0.1:0', ...args], { stdio: ['ignore', 'pipe', 'ignore'] })
  t.after(() => server.kill())
  const [address] = await Promise.race([
    once(createInterface(server.stdout), 'line'),
    once(server, 'exit').then(([code]) => assert.fail(`the server ended with code ${code}`)),
  ])
  return new URL(address)
}

/** Connects a client, to `{ url }` or to a program that it starts: `{ command, args, env }`. */
export async function connect(t, sdk, { url, ...program }) {
  const client = new sdk.Client(info, sdk.options)
  // The tests cause errors, so a server's log of them is noise.
  await client.connect(url ? new sdk.HTTP(url) : new sdk.Stdio({ ...program, stderr: 'ignore' }))
  t.after(() => client.close())
  // SDK 1.x doesn't report the protocol. With SDK 2.x, the two entries must not test the same one.
  if (client.getNegotiatedProtocolVersion) assert.equal(client.getNegotiatedProtocolVersion(), sdk.protocol)
  // A client validates the results of a tool only once it knows the tool's output schema.
  const { tools } = await client.listTools()
  return {
    tools,
    call(name, args, options, meta) {
      const params = { name, arguments: args, _meta: meta }
      return sdk.name === 'SDK 1.x' ? client.callTool(params, undefined, options) : client.callTool(params, options)
    },
  }
}
