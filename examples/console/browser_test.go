// Package console tests the page of adapters/console in a real browser, and makes its screenshots.
package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"slices"
	"testing"

	"github.com/seed8d1e2389/resilience/examples/bridge/devtools"
	"github.com/seed8d1e2389/resilience/examples/chromiumtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A tab is the page of a browser, and a test.
type tab struct {
	*testing.T
	page *devtools.Page
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
func open(t *testing.T, url string, width, height int) tab {
	t.Helper()
	b := tab{t, chromiumtest.Open(t)}
	b.call("Page.enable", nil, nil)
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": watch}, nil)
	b.size(width, height, 1)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.eventually(`document.readyState === "complete" && location.href !== "about:blank"`)
	t.Cleanup(func() {
		var problems []string
		b.eval("problems", &problems)
		assert.Empty(t, problems, "in the page")
	})
	return b
}

func (b tab) call(method string, params, result any) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), chromiumtest.Wait)
	defer cancel()
	require.NoError(b, b.page.Call(ctx, method, params, result), method)
}

func (b tab) eval(expression string, value any) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), chromiumtest.Wait)
	defer cancel()
	require.NoError(b, b.page.Evaluate(ctx, expression, value), expression)
}

// is reports whether an expression is true.
func (b tab) is(expression string) (ok bool) {
	b.Helper()
	b.eval(expression, &ok)
	return ok
}

func (b tab) text(expression string) (text string) {
	b.Helper()
	b.eval(expression, &text)
	return text
}

// eventually waits until an expression is true.
func (b tab) eventually(expression string) {
	b.Helper()
	ok := assert.Eventually(b, func() bool { return b.is(expression) }, chromiumtest.Wait, chromiumtest.Poll)
	if !ok {
		b.Fatalf("never true: %s\nthe page shows:\n%s\nproblems: %s",
			expression, b.text("document.body.innerText"), b.text("JSON.stringify(window.problems)"))
	}
}

func (b tab) size(width, height int, scale float64) {
	b.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600,
	}, nil)
}

// media sets a media feature, such as prefers-color-scheme.
func (b tab) media(name, value string) {
	b.Helper()
	b.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": name, "value": value}},
	}, nil)
}

func (b tab) screenshot() []byte {
	b.Helper()
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(b, err)
	return squeeze(b.T, data)
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

// keys are what a keyboard sends.
var keys = map[string]struct {
	code int
	text string
}{"Tab": {9, ""}, "Enter": {13, "\r"}, "Escape": {27, ""}, "/": {191, "/"}}

// press presses a key.
func (b tab) press(key string) {
	b.Helper()
	k := keys[key]
	event := map[string]any{"type": "keyDown", "key": key, "windowsVirtualKeyCode": k.code}
	if k.text != "" {
		event["text"] = k.text
	}
	b.call("Input.dispatchKeyEvent", event, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "windowsVirtualKeyCode": k.code}, nil)
}

// enter enters a text where the focus is.
func (b tab) enter(text string) {
	b.Helper()
	b.call("Input.insertText", map[string]any{"text": text}, nil)
}

// click clicks in the middle of an element, as a mouse does.
func (b tab) click(element string) {
	b.Helper()
	var at struct{ X, Y float64 }
	b.eval(fmt.Sprintf(`(() => {
		const e = %s
		e.scrollIntoView({block: "center"})
		const r = e.getBoundingClientRect()
		return {x: r.x + r.width / 2, y: r.y + r.height / 2}
	})()`, element), &at)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.call("Input.dispatchMouseEvent", map[string]any{
			"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1,
		}, nil)
	}
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
