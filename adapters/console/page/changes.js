// The list of changes, and what is said of them aloud.

import { again, clock, element, plural, setText } from "./format.js"

const shown = 30
const pause = 8000 // ms between two announcements

export class Changes {
  constructor(list, empty, live) {
    Object.assign(this, { list, empty, live, pending: new Map() })
  }

  // show lists changes, the newest first. Rows that are there already stay, but today may be another day than theirs.
  show(changes, model) {
    const newest = fold(changes).slice(-shown).reverse()
    const known = new Map([...this.list.children].map(e => [e.dataset.id, e]))
    const rows = newest.map(c => known.get(id(c)) ?? row(c))
    rows.forEach((e, i) => setText(e.firstChild, clock(newest[i].time, model.now)))
    this.list.replaceChildren(...rows)
    this.empty.hidden = newest.length > 0
  }

  // announce says what has changed, at most every few seconds, and only the latest of each breaker.
  announce(changes) {
    for (const c of changes) if (c.to !== "half-open") this.pending.set(c.breaker, c.to)
    if (!this.pending.size || this.timer) return
    this.say()
    this.timer = setTimeout(() => {
      this.timer = undefined
      this.announce([])
    }, pause)
  }

  say() {
    const all = [...this.pending]
    this.pending.clear()
    const texts = all.slice(0, 3).map(([name, state]) => `${name} is ${state}`)
    if (all.length > 3) texts.push(`and ${all.length - 3} more`)
    this.live.textContent = texts.join(", ")
  }
}

// fold counts the probes that failed with the change that opened the breaker, so that a long outage doesn't hide
// all else.
function fold(changes) {
  const out = [], last = new Map()
  for (const c of changes) {
    const open = last.get(c.breaker)
    if (c.to === "half-open" && open?.to === "open") continue
    if (c.from === "half-open" && c.to === "open" && open?.to === "open") {
      open.probes++
      continue
    }
    const entry = { ...c, probes: 0 }
    last.set(c.breaker, entry)
    out.push(entry)
  }
  return out
}

const id = c => `${c.number}/${c.time}/${c.probes}` // another process has changes of the same numbers

function row(c) {
  let text = again(c.cause, c.from, c.to)
  if (c.reason) text += `: ${c.reason}`
  if (c.probes) text += `, and ${plural(c.probes, "probe")} since`
  return element("li", { "data-id": id(c), "data-state": c.to },
    element("time", { datetime: c.time }),
    element("span", { class: "breaker" }, c.breaker), " ",
    element("span", { class: "state" }, c.to),
    element("span", { class: "because" }, text))
}
