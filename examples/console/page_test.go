package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/console"
	"github.com/seed8d1e2389/resilience/examples/chromiumtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// prefix is where the tests mount the page.
const prefix = "/ops/console"

// A site is a server with the page of a guard.
type site struct {
	*httptest.Server
	guard *resilience.Guard
	page  *console.Console
}

// serve serves a page, at a listener's address if it is given one.
func serve(t *testing.T, listener net.Listener, authorize func(*http.Request) bool, tools ...string) *site {
	t.Helper()
	page, err := console.New(console.Config{Title: "test", Authorize: authorize})
	require.NoError(t, err)
	cfg := resilience.Config{
		Tools: make(map[string]resilience.Tool), Retry: resilience.Retry{MaxRetries: -1},
		Observers: []resilience.Observer{page.Observer()},
	}
	for _, name := range tools {
		cfg.Tools[name] = resilience.Tool{}
	}
	guard := resilience.Must(resilience.New(cfg))
	handler, err := page.Handler(guard)
	require.NoError(t, err)

	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, handler))
	server := httptest.NewUnstartedServer(mux)
	if listener != nil {
		_ = server.Listener.Close()
		server.Listener = listener
	}
	server.Config.RegisterOnShutdown(page.Close)
	server.Start()
	t.Cleanup(func() { page.Close(); server.Close() })
	return &site{server, guard, page}
}

func (s *site) url() string { return s.URL + prefix + "/" }

func allow(*http.Request) bool { return true }

// call makes calls of a tool that fail with err.
func (s *site) call(t *testing.T, tool string, n int, err error, opts ...resilience.Option) {
	for range n {
		_, _ = resilience.Do(t.Context(), s.guard, tool, func(context.Context) (int, error) { return 0, err }, opts...)
	}
}

var errDown = resilience.MarkBackend(errors.New("down"))

// proxy serves a site behind a proxy that changes requests, and returns the URL of the page.
func (s *site) proxy(t *testing.T, change func(*httputil.ProxyRequest)) string {
	target, err := url.Parse(s.URL)
	require.NoError(t, err)
	server := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		change(r)
	}})
	t.Cleanup(server.Close)
	t.Cleanup(s.page.Close)
	return server.URL + prefix + "/"
}

const (
	summary = `document.querySelector("h1").textContent`
	changes = `document.querySelector("#changes").innerText`
)

func TestAnOutage(t *testing.T) {
	s := serve(t, nil, allow, "search", "read", "write")
	b := open(t, s.url(), 1280, 800)
	b.eventually(summary + ` === "All tools can be called"`)
	assert.Equal(t, "test", b.text("document.title"))

	s.call(t, "search", 6, errDown)
	b.shows("search", "trouble",
		"open", "Asked again in", "5 failures in a row", "TOOL_FAILED", "5 failed", "1 rejected")
	b.eventually(summary + ` === "1 of 3 tools can't be called"`)
	b.eventually(`document.title === "(1) test"`)
	b.eventually(`document.querySelector("#changes li").innerText.includes("calls failed")`)
	b.eventually(`document.querySelector("#announce").textContent === "search is open"`)

	s.guard.Breaker("search").Trip(time.Millisecond)
	b.shows("search", "trouble", "half-open", "Waiting for a probe")
	s.call(t, "search", 1, nil)
	b.shows("search", "working", "closed", "1 rejected")
	b.eventually(`document.querySelector("#changes li").innerText.includes("the probe succeeded")`)

	s.call(t, "read", 5, errDown, resilience.BreakerKey("eu-west"))
	b.shows("read/eu-west", "trouble", "key eu-west of read")
	b.eventually(summary + ` === "1 key rejected"`)

	_, err := s.guard.Close(t.Context())
	require.NoError(t, err)
	b.eventually(summary + ` === "Shutting down"`)
	b.eventually(`document.querySelector("#notice").innerText.includes("new calls are rejected")`)
}

func TestIsolateAndResetByClick(t *testing.T) {
	const token = "Bearer swordfish"
	authorize := func(r *http.Request) bool { return r.Header.Get("Authorization") == token }
	s := serve(t, nil, authorize, "search", "read")
	b := open(t, s.url(), 1280, 800)
	b.shows("search", "working", "closed")

	b.isolate("search")
	b.eventually(`document.activeElement.id === "reason"`)
	b.enter("maintenance until 14:00")
	b.submit()
	b.eventually(`document.querySelector("#dialog-error").innerText.includes("access token")`)
	assert.Equal(t, resilience.StateClosed, s.guard.Breaker("search").State())

	b.eventually(`document.activeElement.id === "token"`)
	b.enter("sword…fish")
	b.press(kb.Enter)
	b.eventually(`document.querySelector("#dialog-error").innerText.includes("isn't an access token")`)
	b.eval(`document.querySelector("#token").value = ""`)
	b.enter("swordfish")
	b.press(kb.Enter)
	b.shows("search", "trouble", "isolated", "“maintenance until 14:00”", "Until it is reset")
	assert.True(t, b.is(`!document.querySelector("#dialog").open`))
	reason, _ := s.guard.Breaker("search").Isolated()
	assert.Equal(t, "maintenance until 14:00", reason)
	b.eventually(summary + ` === "1 of 2 tools can't be called"`)

	b.click(`(` + row("search") + `).querySelector(".reset")`)
	b.eventually(`document.querySelector("#dialog").innerText.includes("Reset search?")`)
	b.submit()
	b.shows("search", "working", "closed")
	assert.Equal(t, resilience.StateClosed, s.guard.Breaker("search").State())
}

// A proxy that serves plain HTTP must not change the Host: the console can't tell then whose page a request is from.
// (A browser at such an address says nothing about that.)
func TestTheServersReasonIsShown(t *testing.T) {
	s := serve(t, nil, allow, "search")
	b := open(t, s.proxy(t, func(r *httputil.ProxyRequest) { r.Out.Header.Del("Sec-Fetch-Site") }), 1280, 800)
	b.shows("search", "working", "closed")
	b.isolate("search")
	b.submit()
	b.eventually(`document.querySelector("#dialog-error").innerText.includes("must keep the Host")`)
	assert.False(t, b.is(`document.querySelector("#token").checkVisibility()`), "a token would not help")
}

// The names of keys have a slash, and a proxy may decode paths.
func TestKeyIsIsolatedBehindAProxyThatDecodesPaths(t *testing.T) {
	s := serve(t, nil, allow, "search", "db")
	s.call(t, "search", 5, errDown, resilience.BreakerKey("../db"))
	decodes := func(r *httputil.ProxyRequest) {
		r.Out.URL.Path, r.Out.URL.RawPath = path.Clean(r.In.URL.Path), ""
		if strings.HasSuffix(r.In.URL.Path, "/") {
			r.Out.URL.Path += "/"
		}
	}
	b := open(t, s.proxy(t, decodes), 1280, 800)
	b.shows("search/../db", "trouble", "open")
	b.isolate("search/../db")
	b.submit()
	b.shows("search/../db", "trouble", "isolated")
	assert.Equal(t, resilience.StateClosed, s.guard.Breaker("db").State())
}

func TestAnOpenBreakerIsIsolated(t *testing.T) {
	s := serve(t, nil, allow, "search")
	s.call(t, "search", 5, errDown)
	s.guard.Breaker("search").Isolate("maintenance")
	b := open(t, s.url(), 1280, 800)
	b.shows("search", "trouble", "isolated", "calls failed", "“maintenance”")
	s.guard.Breaker("search").Reset()
	b.shows("search", "working", "closed")
	s.guard.Breaker("search").Isolate("")
	b.shows("search", "trouble", "isolated", "by hand")
}

func TestWithoutAuthorizeThereAreNoButtons(t *testing.T) {
	s := serve(t, nil, nil, "search")
	b := open(t, s.url(), 1280, 800)
	b.shows("search", "working", "closed")
	assert.True(t, b.is(`[...document.querySelectorAll(".row button")].every(b => !b.offsetParent)`))
}

// Agents make up names. They are text, and their breakers can be changed all the same.
func TestNamesAreText(t *testing.T) {
	names := []string{
		`<img src=x onerror="problems.push('injected')">`, "<script>problems.push('injected')</script>",
		"..", ".", "/", "~", "a/b c", "日本", "%2e%2e", strings.Repeat("long", 60), `"><b>`, "__proto__", "constructor",
	}
	s := serve(t, nil, allow, "search")
	for _, name := range names {
		s.call(t, name, 1, nil)
	}
	s.call(t, "search", 5, errDown, resilience.BreakerKey(`<b>key</b>`))
	b := open(t, s.url(), 390, 844)
	b.shows(`search/<b>key</b>`, "trouble", "key <b>key</b> of search")
	assert.True(t, b.is(`document.querySelectorAll("main b, main img, main script").length === 0`))
	assert.True(t, b.is(`document.documentElement.scrollWidth <= innerWidth`), "a phone scrolls horizontally")
	assert.True(t, b.is(`[...document.querySelectorAll("h3, .kind, button")].every(e =>
		e.getBoundingClientRect().right <= innerWidth)`), "something is cut off")

	for _, name := range names {
		b.shows(name, "working", "closed")
		b.isolate(name)
		assert.True(t, b.is(`document.documentElement.scrollWidth <= innerWidth`), "the dialog of %s is too wide", name)
		b.submit()
		b.shows(name, "trouble", "isolated")
		assert.Equal(t, resilience.StateIsolated, s.guard.Breaker(name).State(), name)
	}
}

func TestTwoHundredTools(t *testing.T) {
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("tool-%03d", i))
	}
	s := serve(t, nil, allow, names...)
	for _, name := range names {
		s.call(t, name, 3, nil)
	}
	s.call(t, "tool-150", 5, errDown)
	s.call(t, "tool-170", 2, errDown)
	b := open(t, s.url(), 1280, 800)
	b.shows("tool-150", "trouble", "open")
	const order = `[...document.querySelectorAll("h3")].map(e => e.textContent).slice(0, 3).join()`
	assert.Equal(t, "tool-150,tool-170,tool-000", b.text(order), "the worst first")

	b.slash()
	b.eventually(`document.activeElement.id === "filter"`)
	b.enter("tool-19 closed")
	b.eventually(`document.querySelectorAll(".row").length === 10`)
	b.enter("nonsense")
	b.eventually(`document.querySelector("#nothing").innerText.includes("Nothing matches")`)
	b.press(kb.Escape)
	b.eventually(`document.querySelectorAll(".row").length === 200`)
	b.eventually(summary + ` === "1 of 200 tools can't be called"`)
}

func TestAKeyboardIsEnough(t *testing.T) {
	s := serve(t, nil, allow, "a", "b", "c")
	b := open(t, s.url(), 1280, 800)
	b.shows("c", "working", "closed")
	for range 5 { // the link to the rows, the filter, and one button each
		b.press(kb.Tab)
	}
	const focused = `document.activeElement.getAttribute("aria-label")`
	assert.Equal(t, "Isolate c…", b.text(focused))

	s.call(t, "c", 5, errDown)
	b.shows("c", "trouble", "open")
	assert.Equal(t, "Isolate c…", b.text(focused), "the row was moved to the top")
	assert.NotEqual(t, "none", b.text(`getComputedStyle(document.activeElement).outlineStyle`))

	b.press(kb.Tab)
	assert.Equal(t, "Reset c…", b.text(focused))
	b.press(kb.Enter)
	b.eventually(`document.activeElement.id === "dialog-submit"`)
	b.press(kb.Escape)
	b.eventually(`!document.querySelector("#dialog").open`)
	assert.Equal(t, "Reset c…", b.text(focused))
	b.press(kb.Enter)
	b.eventually(`document.activeElement.id === "dialog-submit"`)
	b.press(kb.Enter)
	b.shows("c", "working", "closed")
	assert.Equal(t, resilience.StateClosed, s.guard.Breaker("c").State())
}

func TestThePageComesBackAfterARestart(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	s := serve(t, listener, allow, "old")
	s.call(t, "old", 5, errDown)
	b := open(t, s.url(), 1280, 800)
	b.shows("old", "trouble", "open")
	assert.Contains(t, b.text(changes), "old")

	s.page.Close()
	s.Server.Close()
	b.eventually(`document.querySelector("#notice").innerText.includes("The data is stale")`)
	b.eventually(`document.querySelector("#link").innerText.includes("old. Reconnecting")`)
	b.shows("old", "trouble", "open")

	chromiumtest.Eventually(t, func() bool {
		listener, err = net.Listen("tcp", addr)
		return err == nil
	}, "the address isn't free")
	s = serve(t, listener, allow, "new")
	s.call(t, "new", 5, errDown) // also the first change, of another process
	b.shows("new", "trouble", "open")
	b.eventually(`!(` + row("old") + `)`)
	b.eventually(`document.querySelector("#notice").innerText.includes("restarted")`)
	b.eventually(`document.querySelector("#link").innerText.startsWith("Live")`)
	assert.Contains(t, b.text(changes), "new")
	assert.NotContains(t, b.text(changes), "old")
}

// An update has only the last rows of a history: older ones stay until they are too old.
func TestUpdatesContinueHistories(t *testing.T) {
	s := serve(t, nil, nil, "a")
	b := open(t, s.url(), 1280, 800)
	b.eval(`void import("./page/model.js").then(m => { window.model = new m.Model() })`)
	b.eventually(`window.model !== undefined`)
	assert.Equal(t, "40,50,60", b.text(`(() => {
		const tool = (...starts) => [{tool: "a", breaker: "a", history: starts.map(t => [t, 1, 0, 0, 0, 0, 0])}]
		const at = seconds => new Date(seconds * 1000).toISOString()
		model.snapshot({time: at(60), step: 10, steps: 3, tools: tool(20, 30, 40, 50), breakers: [], changes: []})
		model.update({time: at(61), tools: tool(50, 60)})
		return model.tools.get("a").history.map(r => r[0]).join()
	})()`))
}

// Colour, motion and width are as the reader wants them.
func TestMediaAreRespected(t *testing.T) {
	s := serve(t, nil, allow, "a")
	b := open(t, s.url(), 390, 844)
	b.shows("a", "working", "closed")
	ground := func(scheme string) string {
		b.media("prefers-color-scheme", scheme)
		return b.text(`getComputedStyle(document.body).backgroundColor`)
	}
	assert.NotEqual(t, ground("light"), ground("dark"))

	const duration = `getComputedStyle(document.querySelector(".row")).transitionDuration`
	b.media("prefers-reduced-motion", "no-preference")
	assert.Equal(t, "0.4s", b.text(duration))
	b.media("prefers-reduced-motion", "reduce")
	assert.Equal(t, "0s", b.text(duration))
	assert.True(t, b.is(`document.documentElement.scrollWidth <= innerWidth`))
}

// A page is left open for days.
func TestTimesOfAnotherDayHaveTheirDay(t *testing.T) {
	s := serve(t, nil, nil, "a")
	b := open(t, s.url(), 1280, 800)
	b.eval(`void Promise.all([import("./page/changes.js"), import("./page/format.js")])
		.then(([changes, format]) => { window.used = {...changes, ...format} })`)
	b.eventually(`window.used !== undefined`)
	assert.Equal(t, "00:05:09", b.text(`used.clock(new Date(2026, 10, 23, 0, 5, 9), new Date(2026, 10, 23, 14))`))

	b.eval(`window.list = () => {
		const e = document.createElement("ol")
		const changes = new used.Changes(e, document.createElement("p"), document.createElement("div"))
		const at = new Date(2026, 10, 22, 14).toISOString()
		const all = [{number: 1, time: at, breaker: "db", from: "closed", to: "isolated", cause: "manual"}]
		return day => { changes.show(all, {now: new Date(2026, 10, day, 15).getTime()}); return e.textContent }
	}`)
	assert.Contains(t, b.text(`list()(22)`), "14:00:00")
	assert.True(t, b.is(`(show => { show(22); return show(23) === list()(23) })(list())`))
}

// An answer may come when the user has cancelled one dialog and opened another.
func TestAnswerBelongsToItsDialog(t *testing.T) {
	s := serve(t, nil, allow, "a")
	b := open(t, s.url(), 1280, 800)
	b.eval(`void import("./page/control.js").then(m => {
		window.ask = (action, name) => m.ask(action, {id: name, breaker: {}}, () => { window.done = name })
		window.press = id => document.getElementById(id).click()
		window.shown = () => document.querySelector("#dialog[open] #dialog-heading")?.textContent ?? ""
		window.fetch = () => new Promise(resolve => { window.answer = body => resolve(Response.json(body)) })
	})`)
	b.eventually(`window.shown !== undefined`)
	b.eval(`ask("reset", "db"), press("dialog-submit"), press("dialog-cancel"), ask("isolate", "search")`)
	assert.False(t, b.is(`document.getElementById("dialog-submit").disabled`))
	b.eval(`answer({breaker: "db"})`)
	b.eventually(`window.done === "db"`)
	assert.Equal(t, "Isolate search?", b.text(`shown()`))

	b.eval(`press("dialog-submit"), answer({breaker: "search"})`)
	b.eventually(`window.done === "search" && shown() === ""`)
}
