// What is known of the guard.

export class Model {
  constructor() {
    this.tools = new Map()
    this.breakers = new Map()
    this.changes = []
    this.started = undefined
    this.received = 0 // by this page's clock, like skew
    this.skew = 0
  }

  // snapshot replaces everything, and reports whether another server answers than before.
  snapshot(d) {
    const restarted = this.started !== undefined && this.started !== d.started
    Object.assign(this, { title: d.title, started: d.started, control: d.control, step: d.step, steps: d.steps })
    this.tools = new Map(d.tools.map(t => [t.tool, t]))
    this.breakers = new Map(d.breakers.map(b => [b.breaker, b]))
    this.changes = d.changes
    this.heading(d)
    return restarted
  }

  // update applies what has changed, and returns the new changes of breakers.
  update(u) {
    for (const t of u.tools ?? []) {
      const old = this.tools.get(t.tool)
      if (old) t.history = this.merge(old.history, t.history)
      this.tools.set(t.tool, t)
    }
    for (const b of u.breakers ?? []) this.breakers.set(b.breaker, b)
    for (const name of u.gone ?? []) this.breakers.delete(name)

    const changes = u.changes ?? []
    this.changes = this.changes.concat(changes).slice(-200)
    this.heading(u)
    return changes
  }

  heading(d) {
    this.closed = d.closed
    this.received = Date.now()
    this.skew = this.received - Date.parse(d.time)
  }

  // now is the time by the server's clock, in ms.
  get now() { return Date.now() - this.skew }

  // merge replaces the rows of the same time, and drops those that are too old.
  merge(old, rows) {
    const first = rows.length ? rows[0][0] : Infinity
    const oldest = this.now / 1000 - this.step * this.steps
    return old.filter(r => r[0] < first && r[0] > oldest).concat(rows)
  }

  // rows returns one row for each breaker, with its tools, the worst first.
  rows() {
    const tools = new Map()
    for (const t of this.tools.values()) {
      if (!tools.has(t.breaker)) tools.set(t.breaker, [])
      tools.get(t.breaker).push(t)
    }

    const rows = []
    for (const b of this.breakers.values()) {
      const row = { id: b.breaker, breaker: b, tools: b.key ? [] : tools.get(b.breaker) ?? [] }
      row.rank = rank(row, this.closed)
      rows.push(row)
    }
    return rows.sort((a, b) => a.rank - b.rank || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0))
  }
}

const ranks = { open: 0, "half-open": 1, isolated: 2 }

// Rows of this rank and above work.
export const working = 5

// A single failure is no reason to look. A guard that is closed rejects all calls, which the page says once.
function rank({ breaker, tools }, closed) {
  if (breaker.state in ranks) return ranks[breaker.state]
  if (!closed && tools.some(t => !t.available)) return 3
  if (breaker.consecutiveFailures > 1 || tools.some(t => t.abandoned > 0)) return 4
  return working
}

// matches reports whether a row has all words of a filter in its names and state.
export function matches(row, filter) {
  const text = [row.id, row.breaker.state, row.breaker.reason ?? "", ...row.tools.map(t => t.tool)]
    .join("\n").toLowerCase()
  return filter.toLowerCase().split(/\s+/).every(word => text.includes(word))
}
