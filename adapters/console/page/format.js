// Words, times and elements.

// element makes an element with attributes and children. Text is only ever text: names come from agents.
export function element(name, attributes = {}, ...children) {
  const e = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) e.setAttribute(key, value === true ? "" : value)
  }
  e.append(...children)
  return e
}

// setText changes a text only if it differs, so that screen readers and selections keep their place.
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text
}

export function setHidden(e, hidden) {
  if (e.hidden !== hidden) e.hidden = hidden
}

export const plural = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`

export const number = n => n.toLocaleString("en")

// latency writes seconds with two digits.
export function latency(seconds) {
  if (seconds < 0.001) return "<1 ms"
  if (seconds < 0.0995) return `${+(seconds * 1000).toPrecision(2)} ms`
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`
  if (seconds < 99.5) return `${+seconds.toPrecision(2)} s`
  return `${Math.round(seconds)} s`
}

// span writes how long something lasts, or has lasted.
export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds))
  if (s < 60) return `${s} s`
  if (s < 3600) return `${Math.floor(s / 60)} min`
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`
  return plural(Math.floor(s / 86400), "day")
}

// countdown writes minutes and seconds.
export function countdown(seconds) {
  const s = Math.max(0, Math.ceil(seconds))
  if (s < 60) return `${s} s`
  return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")} min`
}

const sameDay = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" })
const otherDay = new Intl.DateTimeFormat(undefined, {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23",
})

// clock writes a time of today, or with its day.
export function clock(time, now) {
  const date = new Date(time)
  return (date.toDateString() === new Date(now).toDateString() ? sameDay : otherDay).format(date)
}

const causes = {
  "calls/open": "calls failed",
  "calls/closed": "the probe succeeded",
  "cooldown/half-open": "the cooldown has passed, a call is the probe",
  "probe/open": "the backend failed a Probe",
  "probe/closed": "the backend answered a Probe",
  "manual/open": "tripped",
  "manual/isolated": "by hand",
  "manual/closed": "reset",
}

// cause says why a breaker has changed to a state.
export const cause = (name, state) => causes[`${name}/${state}`] ?? name ?? ""

export const again = (name, from, to) =>
  name === "calls" && from === "half-open" && to === "open" ? "the probe failed" : cause(name, to)
