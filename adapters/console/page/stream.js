// The stream of events, which is opened again whenever it breaks.

const silence = 15000 // ms; the server sends something every 5 s

// listen calls back with each snapshot and update, and with "live" or "lost". It never gives up.
export function listen(url, onSnapshot, onUpdate, onLink) {
  let source, watchdog, failures = 0

  const alive = () => {
    clearTimeout(watchdog)
    watchdog = setTimeout(broken, silence)
  }

  const received = handle => event => {
    failures = 0
    alive()
    handle(JSON.parse(event.data))
    onLink("live")
  }

  const open = () => {
    source = new EventSource(url)
    source.addEventListener("snapshot", received(onSnapshot))
    source.addEventListener("update", received(onUpdate))
    source.onerror = broken
    alive()
  }

  // An EventSource gives up for good when a proxy answers for a server that restarts, so it isn't relied on.
  const broken = () => {
    clearTimeout(watchdog)
    source.close()
    onLink("lost")
    const delay = Math.min(10000, 1000 * 1.5 ** failures++)
    setTimeout(open, delay * (0.5 + Math.random() / 2))
  }

  open()
}
