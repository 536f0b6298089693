// The page: it keeps the rows in order, and says how old they are.

import { Changes } from "./changes.js"
import { ask } from "./control.js"
import { clock, plural, setHidden, setText, span } from "./format.js"
import { Model, matches, working } from "./model.js"
import { drawRow, makeRow, patchRow, tickRow } from "./rows.js"
import { listen } from "./stream.js"

const get = id => document.getElementById(id)
const model = new Model()
const changes = new Changes(get("changes"), get("no-changes"), get("announce"))
const rows = new Map() // by the breakers' names
let link = "waiting", restartedAt, drawn, scheduled

// render shows the model, once for all events of a frame.
function render() {
  scheduled = undefined
  const filter = get("filter").value.trim()
  const all = model.rows()
  const shown = all.filter(r => matches(r, filter))
  const names = new Set(all.map(r => r.id))
  for (const [name, row] of rows) {
    if (names.has(name)) continue
    row.element.remove()
    rows.delete(name)
  }

  keepFocus(() => {
    place(get("trouble"), shown.filter(r => r.rank < working))
    place(get("working"), shown.filter(r => r.rank >= working))
  })
  summarize(all)
  document.documentElement.dataset.control = model.control
  setText(get("nothing"), all.length ? `Nothing matches “${filter}”.` : "No tool is listed, and none was called yet.")
  setHidden(get("nothing"), shown.length > 0)
  setText(get("title"), model.title)
  setText(get("window"), `Plots: ${model.steps * model.step / 60} min in steps of ${model.step} s. Numbers: the last minute. Running since ${clock(model.started, model.now)}.`)
  changes.show(model.changes, model)
}

function schedule() {
  scheduled ??= document.hidden ? setTimeout(render) : requestAnimationFrame(render)
}

// place puts rows into a section, in order, and moves only those that are at another place.
function place(section, data) {
  const list = section.querySelector("ul")
  data.forEach((d, i) => {
    let row = rows.get(d.id)
    if (!row) rows.set(d.id, row = makeRow(act))
    patchRow(row, d, model)
    drawRow(row, model)
    if (list.children[i] !== row.element) list.insertBefore(row.element, list.children[i] ?? null)
  })
  while (list.children.length > data.length) list.lastChild.remove()
  setHidden(section, data.length === 0)
}

// keepFocus gives the focus back to a button whose row was moved.
function keepFocus(move) {
  const focused = document.activeElement
  move()
  if (focused && focused !== document.activeElement && focused.isConnected && !focused.hidden) {
    focused.focus({ preventScroll: true })
  }
}

function summarize(all) {
  const tools = [...model.tools.values()]
  const down = tools.filter(t => !t.available).length
  const keys = all.filter(r => r.breaker.key && ["open", "isolated"].includes(r.breaker.state)).length
  const parts = []
  if (model.closed) parts.push("Shutting down")
  else if (down) parts.push(down === tools.length ? `No tool can be called` : `${down} of ${plural(tools.length, "tool")} can't be called`)
  if (keys && !model.closed) parts.push(`${plural(keys, "key")} rejected`)
  const text = parts.join(", ") || (tools.length ? "All tools can be called" : "No tools yet")

  setText(get("summary"), text)
  get("summary").dataset.bad = down || keys || model.closed ? "true" : "false"
  document.title = `${down || keys ? `(${down + keys}) ` : ""}${model.title}`
}

function act(action, data) {
  ask(action, data, breaker => {
    model.breakers.set(breaker.breaker, breaker)
    schedule()
  })
}

function setLink(to) {
  if (link !== "live" && to === "live" || link === "live" && to === "lost" || link === "waiting") {
    link = to
    document.documentElement.dataset.link = to
    get("link").dataset.link = to
  }
  tick()
}

// tick shows what changes with time alone.
function tick() {
  const age = (Date.now() - model.received) / 1000
  const lost = model.received
    ? `No connection. What you see is ${span(age)} old. Reconnecting…`
    : "No connection. Reconnecting…"
  setText(get("link"), link === "live" ? `Live, ${clock(model.received, Date.now())}` : link === "lost" ? lost : "Connecting…")
  notice()
  if (!model.started) return

  const step = Math.floor(model.now / 1000 / model.step)
  for (const row of rows.values()) {
    tickRow(row, model)
    if (step !== drawn) drawRow(row, model)
  }
  drawn = step
}

// notice is read aloud, so it changes only with the situation.
function notice() {
  let text = ""
  if (link === "lost") text = model.started ? `The connection was lost at ${clock(model.received, Date.now())}. The data is stale.` : "The server doesn't answer, or has as many readers as it allows."
  else if (model.closed) text = "The server is shutting down: new calls are rejected."
  else if (restartedAt && Date.now() - restartedAt < 60000) text = "The server was restarted. Counts and changes begin anew."
  setText(get("notice"), text)
  setHidden(get("notice"), !text)
}

get("filter").oninput = schedule
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || get("dialog").open) return
  if (event.key === "/" && !event.target.closest("input, textarea")) {
    event.preventDefault()
    get("filter").select()
  } else if (event.key === "Escape" && event.target === get("filter")) {
    get("filter").value = ""
    schedule()
  }
})

setInterval(tick, 1000)
listen("api/events",
  snapshot => { if (model.snapshot(snapshot)) restartedAt = Date.now(); schedule() },
  update => { changes.announce(model.update(update)); schedule() },
  setLink)
