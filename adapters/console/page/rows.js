// The rows of breakers and their tools. A row stays the same element for as long as its breaker exists, so
// that focus, selection and screen readers keep their place.

import { cause, clock, countdown, element, latency, number, plural, setHidden, setText, span } from "./format.js"
import { drawLatency, drawRates, plot } from "./plot.js"

// makeRow makes an empty row. onAction is called with "isolate" or "reset" and the row.
export function makeRow(onAction) {
  const row = {
    state: element("span", { class: "state" }),
    name: element("h3"),
    kind: element("p", { class: "kind" }),
    next: element("p", { class: "next" }),
    why: element("p", { class: "why" }),
    lines: element("ul", { class: "lines" }),
    isolate: element("button", { type: "button", class: "isolate" }, "Isolate…"),
    reset: element("button", { type: "button", class: "reset" }, "Reset…"),
    parts: new Map(), // of the lines, by tool
  }
  row.isolate.onclick = () => onAction("isolate", row.data)
  row.reset.onclick = () => onAction("reset", row.data)

  const head = element("div", { class: "head" },
    row.state, element("div", { class: "title" }, row.name, row.kind),
    row.next, element("div", { class: "actions" }, row.isolate, row.reset))
  row.element = element("li", { class: "row" }, head, row.why, row.lines)
  return row
}

// patchRow shows data in a row.
export function patchRow(row, data, model) {
  const b = data.breaker
  row.data = data
  if (row.element.dataset.state !== look(data)) row.element.dataset.state = look(data)
  setText(row.state, word(data))
  setText(row.name, data.id)
  setText(row.kind, kind(data))
  setHidden(row.kind, !row.kind.textContent)

  setText(row.isolate, b.state === "isolated" ? "Reason…" : "Isolate…")
  setHidden(row.isolate, !model.control)
  setHidden(row.reset, !model.control || b.state === "closed")
  row.isolate.setAttribute("aria-label", `${b.state === "isolated" ? "Reason" : "Isolate"} ${data.id}…`)
  row.reset.setAttribute("aria-label", `Reset ${data.id}…`)
  patchLines(row, data.tools, data.tools.length > 1, model)
  tickRow(row, model)
}

// tickRow shows what changes with time alone.
export function tickRow(row, model) {
  const b = row.data.breaker
  setText(row.next, next(b, model))
  const why = explain(row.data, model)
  if (row.why.dataset.text !== JSON.stringify(why)) {
    row.why.dataset.text = JSON.stringify(why)
    row.why.replaceChildren(...why.map(([name, text]) => element("span", { class: name }, text)))
  }
  setHidden(row.why, why.length === 0)
}

// drawRow draws the plots, whose first step has that number.
export function drawRow(row, model) {
  const first = Math.floor(model.now / 1000 / model.step) - model.steps + 1
  for (const t of row.data.tools) {
    const p = row.parts.get(t.tool)
    drawRates(p.rates, t.history, first, model.step, model.steps)
    drawLatency(p.latencies, t.history, first, model.step, model.steps)
  }
}

// look is the state that colours a row.
function look({ breaker, rank }) {
  if (breaker.state !== "closed") return breaker.state
  return rank < 5 ? "failing" : "closed"
}

// word names a state. A tool that works may still have abandoned calls.
function word({ breaker, rank }) {
  if (breaker.state !== "closed") return breaker.state
  return { 3: "overloaded", 4: breaker.consecutiveFailures ? "failing" : "hanging" }[rank] ?? "closed"
}

function kind({ id, breaker, tools }) {
  if (breaker.key) return `key ${breaker.key}${breaker.tools.length ? ` of ${breaker.tools.join(", ")}` : ""}`
  if (tools.length > 1) return `breaker of ${plural(tools.length, "tool")}`
  if (tools.length === 1 && tools[0].tool !== id) return `breaker of ${tools[0].tool}`
  return tools.length === 1 && !tools[0].listed ? "not listed in the Config" : ""
}

// next says when the backend is asked again.
function next(b, model) {
  const passed = (Date.now() - model.received) / 1000
  switch (b.state) {
    case "open": {
      const left = b.retryAfter - passed
      return left > 0 ? `Asked again in ${countdown(left)}` : "Asked again any moment"
    }
    case "half-open": return "Waiting for a probe"
    case "isolated": return "Until it is reset"
  }
  return ""
}

// explain returns pairs of a class and a text: since when, why, and the last failure.
function explain({ breaker: b, tools, rank }, model) {
  const out = []
  if (b.since && b.state !== "closed") {
    const since = `${clock(b.since, model.now)} (${span((model.now - Date.parse(b.since)) / 1000)})`
    out.push(["since", `Since ${since}${b.cause ? `: ${cause(b.cause, b.cause === "manual" && b.state === "isolated" ? "isolated" : "open")}` : ""}`])
  }
  if (b.state === "isolated") out.push(["reason", b.reason ? `“${b.reason}”` : "No reason was given"])
  else if (b.reason && !tools.some(t => t.lastError)) out.push(["reason", `The last call failed with ${b.reason}`])
  if (rank === 3) out.push(["reason", "Too many calls run, or too many abandoned ones: new calls are rejected"])
  if (rank < 5 && b.consecutiveFailures) out.push(["failures", `${plural(b.consecutiveFailures, "failure")} in a row`])
  if (rank < 5 && b.state !== "isolated") out.push(...failures(tools, model))
  return out
}

// failures returns the latest failure of the tools.
function failures(tools, model) {
  const failed = tools.filter(t => t.lastError)
  if (!failed.length) return []
  const at = t => Date.parse(t.lastError.time ?? 0)
  const t = failed.reduce((a, b) => at(b) > at(a) ? b : a)
  const e = t.lastError
  const when = e.time ? `, ${span((model.now - at(t)) / 1000)} ago` : ""
  const out = [["code", e.code], ["message", e.message + when]]
  if (e.cause) out.push(["cause", e.cause])
  return out
}

function patchLines(row, tools, named, model) {
  for (const name of row.parts.keys()) {
    if (!tools.some(t => t.tool === name)) {
      row.parts.get(name).element.remove()
      row.parts.delete(name)
    }
  }

  setHidden(row.lines, tools.length === 0)
  row.element.classList.toggle("single", !named)
  tools.forEach((t, i) => {
    let p = row.parts.get(t.tool)
    if (!p) row.parts.set(t.tool, p = makeLine())
    if (row.lines.children[i] !== p.element) row.lines.insertBefore(p.element, row.lines.children[i] ?? null)
    patchLine(p, t, named)
  })
}

function makeLine() {
  const p = {
    name: element("span", { class: "tool" }),
    rates: plot("rates"), latencies: plot("latencies"),
    rate: element("span"), failed: element("span", { class: "bad" }), rejected: element("span", { class: "rejected" }),
    latency: element("span"), flight: element("span"), abandoned: element("span", { class: "abandoned" }),
  }
  p.element = element("li", { class: "line" }, p.name,
    element("div", { class: "cell" }, p.rates, element("div", { class: "words" }, p.rate, p.failed, p.rejected)),
    element("div", { class: "cell" }, p.latencies, element("div", { class: "words" }, p.latency, p.flight, p.abandoned)))
  return p
}

function patchLine(p, t, named) {
  setText(p.name, t.tool)
  setHidden(p.name, !named)

  const m = t.lastMinute
  const all = m.succeeded + m.failed + m.rejected + m.other
  setText(p.rate, all ? `${number(all)}/min` : "no calls")
  setText(p.failed, m.failed ? `${number(m.failed)} failed` : "")
  setText(p.rejected, m.rejected ? `${number(m.rejected)} rejected` : "")
  setText(p.latency, m.p95 ? latencies(m) : "")
  setText(p.flight, t.inFlight ? `${number(t.inFlight)} in flight` : "")
  setText(p.abandoned, t.abandoned ? `${number(t.abandoned)} abandoned` : "")
}

function latencies({ p50, p95 }) {
  const half = latency(p50), most = latency(p95)
  return half === most ? half : `${half} – ${most}`
}
