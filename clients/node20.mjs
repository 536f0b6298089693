// The conformance suite imports fs.globSync, which Node 20 lacks, for a subcommand that isn't used
// here. A failed import would end the program, so this file adds an export of that name.
import * as fs from 'node:fs'
import { register } from 'node:module'

const fsWithGlob = 'data:text/javascript,' + encodeURIComponent(
  `export * from 'node:fs'; export { default } from 'node:fs'; export const globSync = undefined`)
const hooks = 'data:text/javascript,' + encodeURIComponent(`
  export const resolve = (name, context, next) => name === 'fs'
    ? { url: ${JSON.stringify(fsWithGlob)}, shortCircuit: true } : next(name, context)`)
if (!fs.globSync) register(hooks)
