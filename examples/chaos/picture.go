package main

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"time"

	"github.com/seed8d1e2389/resilience"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colors can be distinguished in gray and by people with color blindness. Blue stands for what an agent can use.
var (
	ink           = color.Gray{0x22}
	faint         = color.Gray{0x99}
	outcomeColors = [outcomes]color.Color{rgb(0x0072b2), rgb(0x7cc4ee), rgb(0xf0a31e), rgb(0xa3300b)}
	stateColors   = map[resilience.State]color.Color{
		resilience.StateClosed:   rgb(0x0072b2),
		resilience.StateHalfOpen: rgb(0xf6dc4e),
		resilience.StateOpen:     rgb(0x4a4a4a),
	}
	shades = map[mode]color.Color{slow: color.Gray{0xf2}, hangs: color.Gray{0xe4}, dead: color.Gray{0xd2}}
)

func rgb(c uint32) color.Color {
	return color.RGBA{uint8(c >> 16), uint8(c >> 8), uint8(c), 0xff}
}

const (
	width, height = vg.Length(750), vg.Length(720) // in points, 3/4 of a pixel
	notesWidth    = vg.Length(160)                 // right of the panels
	bins          = 48                             // of 10s each in docs/chaos.svg
)

// picture writes an SVG with everything that happened. Its panels have the same time axis.
func picture(w io.Writer, cfg config, all results) error {
	var panels []*plot.Plot
	for k, r := range all {
		panels = append(panels, callsPanel(cfg, kind(k), r))
	}
	panels = append(panels,
		latencyPanel(cfg, all[unguarded], "Without the guard: how long each call took",
			cfg.clientTimeout, "clients give up"),
		latencyPanel(cfg, all[guarded], "With the guard: how long each call took", cfg.timeout, "the tool's timeout"),
		requestsPanel(cfg, all))

	var rows [][]*plot.Plot
	for _, p := range panels {
		rows = append(rows, []*plot.Plot{p})
	}
	canvas := vgsvg.New(width, height)
	fill(draw.New(canvas), color.White, 0, width, 0, height)
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadTop: 6, PadRight: notesWidth, PadY: 10, PadBottom: 4, PadLeft: 4}
	for i, row := range plot.Align(rows, tiles, draw.New(canvas)) {
		panels[i].Draw(row[0])
	}

	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// Browsers without this font would otherwise choose one with serifs and other widths.
	_, err := w.Write(bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	return err
}

// newPanel returns a plot over the time axis, with the phases of the outage in its background.
func newPanel(cfg config, title, unit string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = 3
	p.X.Min, p.X.Max = 0, cfg.end().Seconds()
	p.X.Padding, p.Y.Padding = 0, 0
	p.X.Tick.Marker = plot.ConstantTicks{}
	p.Y.Label.Text = unit
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs = width - notesWidth - 42 // right of the panel, whose axis takes the rest
	p.Legend.Padding = 1
	p.Legend.ThumbnailWidth = 12

	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 9}
	p.Y.Label.TextStyle.Font, p.X.Label.TextStyle.Font, p.Legend.TextStyle.Font = sans, sans, sans
	p.X.Tick.Label.Font, p.Y.Tick.Label.Font = sans, sans
	p.Title.TextStyle.Font = sans
	p.Title.TextStyle.Font.Size = 11

	p.Add(painter(func(c draw.Canvas, x, _ func(float64) vg.Length) {
		for _, phase := range cfg.phases {
			from, to := x(phase.from.Seconds()), x(phase.to.Seconds())
			if shade, ok := shades[phase.mode]; ok {
				fill(c, shade, from, to, c.Min.Y, c.Max.Y)
			}
			label := p.Legend.TextStyle
			label.Color, label.XAlign, label.YAlign = ink, draw.XCenter, draw.YTop
			c.FillText(label, vg.Point{X: (from + to) / 2, Y: c.Max.Y - 2}, phase.name)
		}
	}))
	return p
}

// callsPanel draws how many calls had which outcome, in each bin of time. A call counts in the bin in which it was
// made, so the columns of all servers are equally high. Below are the states of the breaker.
func callsPanel(cfg config, k kind, r result) *plot.Plot {
	titles := [kinds]string{"Without the guard", "With the guard", "With the guard and a Probe"}
	p := newPanel(cfg, titles[k]+": how calls ended, by when they were made", "calls")

	base := make([]float64, bins)
	for o := range outcomes {
		upper := slices.Clone(base)
		for _, at := range r.made(o) {
			upper[binOf(cfg, at)]++
		}
		ring := append(steps(cfg, upper), reversed(steps(cfg, base))...)
		p.Add(&plotter.Polygon{XYs: []plotter.XYs{ring}, Color: outcomeColors[o]})
		p.Legend.Add(fmt.Sprintf("%d %s", len(r.made(o)), outcomeNames[o]), swatch{outcomeColors[o]})
		base = upper
	}
	p.Y.Max = slices.Max(base) * 1.4 // above the columns are the names of the phases
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 5, Label: "5"}, {Value: 10, Label: "10"}}

	if k != unguarded {
		p.Y.Min = -0.15 * p.Y.Max
		for _, s := range []resilience.State{resilience.StateClosed, resilience.StateOpen, resilience.StateHalfOpen} {
			p.Legend.Add("breaker "+string(s), swatch{stateColors[s]})
		}
		p.Add(painter(func(c draw.Canvas, x, y func(float64) vg.Length) {
			states(c, r.changes, cfg.end(), x, c.Min.Y, y(0.3*p.Y.Min))
		}))
	}
	return p
}

// states draws the states of a breaker as a band. Each state is at least two points wide, so that probes can be seen.
func states(
	c draw.Canvas, changes []change, end time.Duration, x func(float64) vg.Length, bottom, top vg.Length,
) {
	state, from := resilience.StateClosed, x(0)
	for _, ch := range append(slices.Clone(changes), change{at: end}) {
		to := max(x(min(ch.at, end).Seconds()), from+2)
		fill(c, stateColors[state], from, to, bottom, top)
		state, from = ch.to, to
	}
}

// latencyPanel draws a dot for each call, and the line that none should cross.
func latencyPanel(cfg config, r result, title string, line time.Duration, label string) *plot.Plot {
	p := newPanel(cfg, title, "latency")
	least := cfg.timeout / 10_000 // shorter latencies are drawn there
	p.Y.Scale = plot.LogScale{}
	p.Y.Min, p.Y.Max = least.Seconds()/2, 300*cfg.clientTimeout.Seconds()
	var ticks plot.ConstantTicks
	for d := least; d <= cfg.clientTimeout; d *= 100 {
		ticks = append(ticks, plot.Tick{Value: d.Seconds(), Label: d.String()})
	}
	ticks[0].Label = "≤ " + ticks[0].Label
	p.Y.Tick.Marker = ticks

	p.Add(painter(func(c draw.Canvas, x, y func(float64) vg.Length) {
		style := draw.LineStyle{Color: faint, Width: 0.8, Dashes: []vg.Length{4, 3}}
		c.StrokeLine2(style, c.Min.X, y(line.Seconds()), c.Max.X, y(line.Seconds()))
		c.FillText(p.Legend.TextStyle, vg.Point{X: c.Min.X + 4, Y: y(line.Seconds()) + 3}, label+": "+display(line))

		for o := range outcomes {
			var dots vg.Path // one for all: a path for each would be most of the file
			for _, rec := range r.records {
				if rec.outcome == o {
					at := vg.Point{X: x(rec.at.Seconds()), Y: y(max(rec.took, least).Seconds())}
					dots.Move(at.Add(vg.Point{X: 1.7}))
					dots.Arc(at, 1.7, 0, 2*math.Pi)
					dots.Close()
				}
			}
			c.SetColor(outcomeColors[o])
			c.Fill(dots)
		}
	}))
	p.Legend.Add("median " + display(r.latency(0.5)))
	p.Legend.Add("95% within " + display(r.latency(0.95)))
	p.Legend.Add("longest " + display(r.latency(1)))
	return p
}

// requestsPanel draws how often the tool called the backend, whether or not it listened. The time axis is below.
func requestsPanel(cfg config, all results) *plot.Plot {
	p := newPanel(cfg, "Requests that calls sent to the backend", "requests")
	p.X.Label.Text = "seconds"
	p.X.Tick.Marker = plot.DefaultTicks{}

	for k, style := range [kinds]draw.LineStyle{
		{Color: faint, Width: 3.5}, {Color: ink, Width: 1.6}, {Color: rgb(0x0072b2), Width: 1.2},
	} {
		counts := make([]float64, bins)
		for _, at := range all[k].sent {
			counts[binOf(cfg, at)]++
		}
		line := &plotter.Line{XYs: steps(cfg, counts), LineStyle: style}
		p.Add(line)
		p.Legend.Add(fmt.Sprintf("%d %s", len(all[k].sent), kindNames[k]), line)
		p.Y.Max = max(p.Y.Max, slices.Max(counts)*1.4)
	}
	p.Legend.Add(fmt.Sprintf("and %d Probes", len(all[probing].probes)))
	return p
}

// binOf returns the bin of the time axis that a time is in.
func binOf(cfg config, at time.Duration) int {
	return min(int(bins*at/cfg.end()), bins-1) // in real time, calls may be late
}

// steps returns the outline of columns over the bins.
func steps(cfg config, heights []float64) (line plotter.XYs) {
	bin := cfg.end().Seconds() / bins
	for i, y := range heights {
		line = append(line, plotter.XY{X: float64(i) * bin, Y: y}, plotter.XY{X: float64(i+1) * bin, Y: y})
	}
	return line
}

func reversed(line plotter.XYs) plotter.XYs {
	slices.Reverse(line)
	return line
}

// A painter draws on a plot's data area. Its functions x and y convert to lengths.
type painter func(c draw.Canvas, x, y func(float64) vg.Length)

func (f painter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	f(c, x, y)
}

// A swatch is a color in a legend.
type swatch struct{ color.Color }

func (s swatch) Thumbnail(c *draw.Canvas) {
	fill(*c, s.Color, c.Min.X, c.Max.X-3, c.Min.Y+1, c.Max.Y-1)
}

func fill(c draw.Canvas, with color.Color, x0, x1, y0, y1 vg.Length) {
	c.SetColor(with)
	c.Fill(vg.Rectangle{Min: vg.Point{X: x0, Y: y0}, Max: vg.Point{X: x1, Y: y1}}.Path())
}
