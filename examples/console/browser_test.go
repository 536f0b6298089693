// Package console tests the page of adapters/console in a real browser, and makes its screenshots.
package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/seed8d1e2389/resilience/examples/chromiumtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A tab is the page of a browser, and a test.
type tab struct {
	*testing.T
	ctx context.Context // chromedp's
}

// watch collects what goes wrong in a page, from its beginning on.
const watch = `
	window.problems = []
	addEventListener("securitypolicyviolation", e => problems.push("policy: " + e.violatedDirective, e.blockedURI))
	addEventListener("error", e => problems.push("error: " + (e.message ?? e.target?.src ?? e.target?.href)), true)
	addEventListener("unhandledrejection", e => problems.push("rejection: " + e.reason))
	for (const level of ["error", "warn"]) console[level] = (...args) => problems.push(level + ": " + args.join(" "))
`

// open opens a URL in a browser of that size.
func open(t *testing.T, url string, width, height int64) tab {
	t.Helper()
	b := tab{t, chromiumtest.Open(t)}
	size := chromedp.EmulateViewport(width, height)
	if width < 600 {
		size = chromedp.EmulateViewport(width, height, chromedp.EmulateMobile)
	}
	send(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watch})
	b.do(size, chromedp.Navigate(url))
	t.Cleanup(func() { assert.Equal(t, "[]", b.text("JSON.stringify(problems)"), "in the page") })
	return b
}

// run runs an action in the page, and returns its value.
func run[T any](b tab, action chromedp.Action[T]) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, chromiumtest.Wait)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	require.NoError(b, err)
	return value
}

// send sends a command to the page.
func send[P, R any](b tab, command cdp.Command[P, R], params P) {
	b.Helper()
	run(b, func(ctx context.Context, target *chromedp.Target) (R, error) {
		return cdp.Call(ctx, target, command, params)
	})
}

func (b tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	run(b, chromedp.Steps(steps...))
}

// eval evaluates an expression, and ignores its value.
func (b tab) eval(expression string) {
	b.Helper()
	run(b, chromedp.Evaluate[chromedp.Void](expression))
}

// is reports whether an expression is true.
func (b tab) is(expression string) bool {
	b.Helper()
	return run(b, chromedp.Evaluate[bool]("!!("+expression+")"))
}

func (b tab) text(expression string) string {
	b.Helper()
	return run(b, chromedp.Evaluate[string](expression))
}

// eventually waits until an expression is true.
func (b tab) eventually(expression string) {
	b.Helper()
	ok := assert.Eventually(b, func() bool { return b.is(expression) }, chromiumtest.Wait, chromiumtest.Poll)
	if !ok {
		b.Fatalf("never true: %s\nthe page shows:\n%s\nproblems: %s",
			expression, b.text("document.body.innerText"), b.text("JSON.stringify(problems)"))
	}
}

// media sets a media feature, such as prefers-color-scheme.
func (b tab) media(name, value string) {
	b.Helper()
	send(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: name, Value: value}},
	})
}

func (b tab) screenshot() []byte {
	b.Helper()
	return squeeze(b.T, run(b, chromedp.CaptureScreenshot()))
}

// squeeze reduces a PNG to the 256 colours that it has most of: the page has few, and the edges of letters.
func squeeze(t *testing.T, data []byte) []byte {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	counts := make(map[color.Color]int)
	area := picture.Bounds()
	for y := range area.Dy() {
		for x := range area.Dx() {
			counts[picture.At(x, y)]++
		}
	}

	palette := color.Palette(slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	}))
	reduced := image.NewPaletted(area, palette[:min(256, len(palette))])
	draw.Draw(reduced, area, picture, area.Min, draw.Src)
	var out bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, reduced))
	return out.Bytes()
}

// press presses a key, such as kb.Tab.
func (b tab) press(key string) {
	b.Helper()
	b.do(chromedp.KeyEvent(key))
}

// slash presses the key "/" so that the page may prevent its effect. The keys of chromedp are already typed then.
func (b tab) slash() {
	b.Helper()
	send(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyDown", Key: "/", Text: "/"})
}

// enter enters a text where the focus is.
func (b tab) enter(text string) {
	b.Helper()
	send(b, input.InsertText, input.InsertTextParams{Text: text})
}

// click clicks an element once nothing covers its middle. It looks and clicks in one step: a live page moves its rows.
func (b tab) click(element string) {
	b.Helper()
	b.eventually(fmt.Sprintf(`(() => {
		const e = %s
		e.scrollIntoView({block: "center"})
		const r = e.getBoundingClientRect()
		if (!e.contains(document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2))) return false
		e.focus()
		e.click()
		return true
	})()`, element))
}

// shows waits until the row of a breaker contains all texts, in a section.
func (b tab) shows(name, section string, texts ...string) {
	b.Helper()
	for _, text := range texts {
		b.eventually(fmt.Sprintf(`(%s)?.closest("section")?.id === %s && (%s).innerText.includes(%s)`,
			row(name), quote(section), row(name), quote(text)))
	}
}

// isolate presses the button that isolates a breaker, which opens a dialog.
func (b tab) isolate(name string) {
	b.Helper()
	b.click(`(` + row(name) + `).querySelector(".isolate")`)
	b.eventually(`document.querySelector("#dialog-heading").textContent === ` + quote("Isolate "+name+"?"))
}

// submit presses the button of the dialog.
func (b tab) submit() {
	b.Helper()
	b.click(`document.querySelector("#dialog-submit")`)
}

// quote returns a literal of JavaScript.
func quote(text string) string {
	b, _ := json.Marshal(text) // it never fails
	return string(b)
}

// row is the element of a breaker's row.
func row(name string) string {
	return `[...document.querySelectorAll(".row")].find(r => r.querySelector("h3").textContent === ` + quote(name) + `)`
}
