// Small plots of the last minutes.

const width = 120, height = 26
const space = "http://www.w3.org/2000/svg"

// plot makes an empty plot. What it shows is also written beside it, so it is hidden from screen readers.
export function plot(kind) {
  const svg = document.createElementNS(space, "svg")
  const attributes = { class: `plot ${kind}`, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }
  for (const [key, value] of Object.entries(attributes)) svg.setAttribute(key, value)
  return svg
}

function path(svg, name, d) {
  let p = svg.querySelector(`.${name}`)
  if (!p) {
    p = document.createElementNS(space, "path")
    p.setAttribute("class", name)
    svg.append(p)
  }
  if (p.getAttribute("d") !== d) p.setAttribute("d", d)
}

const x = (row, first, step) => (row[0] / step - first)
const round = n => Math.round(n * 10) / 10

// drawRates stacks failed, rejected and succeeded calls of each step.
export function drawRates(svg, history, first, step, steps) {
  const most = Math.max(4, ...history.map(r => r[1] + r[2] + r[3]))
  const bar = width / steps
  const d = { bad: "", rejected: "", ok: "" }
  for (const r of history) {
    const i = x(r, first, step)
    if (i < 0 || i >= steps) continue
    let y = height
    for (const [name, n] of [["bad", r[2]], ["rejected", r[3]], ["ok", r[1]]]) {
      if (!n) continue
      const h = Math.max(n / most * (height - 1), 1.2)
      d[name] += `M${round(i * bar)} ${round(y)}v${round(-h)}h${round(bar - 0.5)}v${round(h)}z`
      y -= h
    }
  }
  path(svg, "base", `M0 ${height - 0.5}H${width}`)
  for (const name of ["bad", "rejected", "ok"]) path(svg, name, d[name])
}

// drawLatency draws the median and the 95th percentile.
export function drawLatency(svg, history, first, step, steps) {
  const rows = history.filter(r => r[6] > 0)
  const most = Math.max(0.001, ...rows.map(r => r[6]))
  const at = (r, value) => `${round((x(r, first, step) + 0.5) * width / steps)} ${round(height - 2 - value / most * (height - 5))}`

  // A step without calls interrupts the lines, and one alone becomes a dash.
  const line = column => {
    const segments = []
    let last
    for (const r of rows) {
      const i = x(r, first, step)
      if (i < 0 || i >= steps) continue
      if (last !== i - 1) segments.push([])
      segments.at(-1).push(at(r, r[column]))
      last = i
    }
    return segments.map(s => `M${s.join("L")}${s.length === 1 ? "h1" : ""}`).join("")
  }
  path(svg, "base", `M0 ${height - 0.5}H${width}`)
  path(svg, "p50", line(5))
  path(svg, "p95", line(6))
}
