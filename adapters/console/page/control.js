// The dialog that isolates and resets a breaker.

import { setHidden } from "./format.js"

const get = id => document.getElementById(id)

let token = "" // that the user has entered; kept until the page is left
let dialogs = 0 // that were opened: an answer may come when the user has cancelled one and opened another

export function ask(action, data, onDone) {
  const isolate = action === "isolate"
  const name = data.id
  get("dialog-heading").textContent = `${isolate ? "Isolate" : "Reset"} ${name}?`
  get("dialog-text").textContent = isolate
    ? "All calls are rejected until it is reset. Calls in flight end as they would."
    : "Calls pass at once, and its failures are forgotten."
  get("dialog-submit").textContent = isolate ? "Isolate" : "Reset"
  get("reason").value = data.breaker.state === "isolated" ? data.breaker.reason ?? "" : ""
  for (const id of ["reason", "reason-label"]) setHidden(get(id), !isolate)
  for (const id of ["token", "token-label"]) setHidden(get(id), !token)
  get("token").value = token
  setHidden(get("dialog-error"), true)

  const dialog = get("dialog"), mine = ++dialogs
  get("dialog-submit").disabled = false
  get("dialog-cancel").onclick = () => dialog.close()
  get("dialog-form").onsubmit = async event => {
    event.preventDefault()
    get("dialog-submit").disabled = true
    let error
    try {
      onDone(await send(action, name, isolate ? get("reason").value : ""))
    } catch (e) {
      error = e
    }
    if (mine !== dialogs) return
    get("dialog-submit").disabled = false
    if (!error) return dialog.close()
    get("dialog-error").textContent = error.message
    setHidden(get("dialog-error"), false)
  }
  dialog.showModal()
  const first = isolate ? get("reason") : get("dialog-submit")
  first.focus()
}

const unauthorized = "not authorized" // as the server says if Authorize returns false

async function send(action, name, reason) {
  token = get("token").value
  if (/[^\x20-\x7e]/.test(token)) throw new Error("This isn't an access token: it has characters that none can have.")
  const headers = { "Content-Type": "application/json" }
  if (token) headers.Authorization = `Bearer ${token}`

  let response
  try {
    response = await fetch(`api/breakers/${action}?name=${encodeURIComponent(name)}`, {
      method: "POST", headers, body: JSON.stringify({ reason }),
    })
  } catch {
    throw new Error("The server doesn't answer.")
  }
  if (response.ok) return response.json()

  const answer = await response.json().catch(() => ({}))
  const refused = response.status === 401 || response.status === 403
  if (refused && (answer.error ?? unauthorized) === unauthorized) {
    for (const id of ["token", "token-label"]) setHidden(get(id), false)
    get("token").focus()
    throw new Error(token ? "This token isn't accepted." : "You aren't allowed to do this. If you have an access token, enter it.")
  }
  throw new Error(`It didn't work: ${answer.error ?? response.status}`)
}
