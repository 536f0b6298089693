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
	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colors can be distinguished in gray and by people with color blindness. Blue stands
// for what an agent can use.
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

// picture writes an SVG with everything that happened, over one time axis.
func picture(w io.Writer, cfg config, unguarded, guarded result) error {
	canvas := vgsvg.New(width, height)
	newSheet(draw.New(canvas), cfg).draw(unguarded, guarded)

	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}

	// Browsers without this font would otherwise choose one with serifs and other widths.
	out := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	_, err := w.Write(out)
	return err
}

func (s *sheet) draw(unguarded, guarded result) {
	s.canvas.SetColor(color.White)
	s.canvas.Fill(s.canvas.Path())
	s.header()

	most := max(slices.Max(s.binned(unguarded.made())), slices.Max(s.binned(guarded.made())))
	s.calls("Without the guard: how calls ended, by when they were made", unguarded, most)
	s.calls("With the guard: how calls ended, by when they were made", guarded, most)
	s.latencies("Without the guard: how long each call took", unguarded, s.cfg.clientTimeout, "clients give up")
	s.latencies("With the guard: how long each call took", guarded, s.cfg.timeout, "the tool's timeout")
	s.requests(unguarded, guarded)
	s.breaker(guarded.changes)
}

// header draws the title, and the phases behind all panels.
func (s *sheet) header() {
	s.text(14, xfont.WeightBold, left, s.top-22, "A backend's outage behind an MCP server, without and with the guard")
	s.text(9.5, xfont.WeightNormal, left, s.top-37, fmt.Sprintf(
		"%d agents call a tool that calls the backend. Timeout %s, cooldown %s; clients give up after %s. Seed %d.",
		s.cfg.agents, display(s.cfg.timeout), display(s.cfg.cooldown), display(s.cfg.clientTimeout), s.cfg.seed))
	s.top -= 46

	for _, p := range s.phases {
		from, to := s.x(s.units(p.from)), s.x(s.units(p.to))
		if shade, ok := shades[p.mode]; ok {
			s.rectangle(shade, from, to, floor, s.top)
		}
		style := textStyle(10, xfont.WeightBold)
		style.XAlign = draw.XCenter
		s.canvas.FillText(style, vg.Point{X: (from + to) / 2, Y: s.top - 12}, p.name)
	}

	s.text(9.5, xfont.WeightNormal, right+12, s.top-12, "← the backend")
	s.top -= 20
}

// calls draws how many calls had which outcome, in each bin of time. A call counts in the
// bin in which it was made, so the columns of both servers are equally high.
func (s *sheet) calls(title string, r result, most float64) {
	p := s.plot(title, "calls/"+s.unit.short)
	p.Y.Max = most * 1.05
	p.Y.Tick.Marker = wholeTicks(p.Y.Max, 3)

	base := s.steps(make([]float64, bins))
	var notes []note
	for o := range outcomes {
		layer := s.steps(s.binned(r.made(o)))
		for i := range layer {
			layer[i].Y += base[i].Y
		}
		p.Add(area(outcomeColors[o], base, layer))
		base = layer
		notes = append(notes, note{outcomeColors[o], fmt.Sprintf("%d %s", r.count(o), outcomeNames[o])})
	}
	s.panel(p, 56, notes)
}

// area fills what is between two lines.
func area(fill color.Color, lower, upper plotter.XYs) plot.Plotter {
	ring := slices.Clone(lower)
	slices.Reverse(ring)
	return &plotter.Polygon{XYs: []plotter.XYs{append(ring, upper...)}, Color: fill}
}

// latencies draws a dot for each call, and the line that none should cross.
func (s *sheet) latencies(title string, r result, line time.Duration, label string) {
	p := s.plot(title, "latency")
	p.Y.Scale = plot.LogScale{}
	least, ticks := s.decades()
	p.Y.Min, p.Y.Max = 0.6*least, 8*s.cfg.clientTimeout.Seconds()
	p.Y.Tick.Marker = ticks

	p.Add(painter(func(c draw.Canvas, x, y func(float64) vg.Length) {
		style := draw.LineStyle{Color: faint, Width: 0.8, Dashes: []vg.Length{4, 3}}
		c.StrokeLine2(style, c.Min.X, y(line.Seconds()), c.Max.X, y(line.Seconds()))
		s.text(8.5, xfont.WeightNormal, c.Min.X+4, y(line.Seconds())+3, label+": "+display(line))

		for o := range outcomes {
			var dots vg.Path // one for all: a path for each would be most of the file
			for _, rec := range r.records {
				if rec.outcome == o {
					at := vg.Point{X: x(s.units(rec.at)), Y: y(max(rec.took.Seconds(), least))}
					dots.Move(at.Add(vg.Point{X: 1.7}))
					dots.Arc(at, 1.7, 0, 2*math.Pi)
					dots.Close()
				}
			}
			c.SetColor(outcomeColors[o])
			c.Fill(dots)
		}
	}))

	s.panel(p, 72, []note{
		{nil, fmt.Sprintf("median %s", display(r.latency(0.5)))},
		{nil, fmt.Sprintf("95%% within %s", display(r.latency(0.95)))},
		{nil, fmt.Sprintf("longest %s", display(r.latency(1)))},
	})
}

// requests draws how often the tool called the backend, whether or not it listened.
func (s *sheet) requests(unguarded, guarded result) {
	p := s.plot("Requests sent to the backend", "requests/"+s.unit.short)

	for _, line := range []struct {
		result
		style draw.LineStyle
	}{
		{unguarded, draw.LineStyle{Color: faint, Width: 3.5}},
		{guarded, draw.LineStyle{Color: ink, Width: 1.3}},
	} {
		rate := s.binned(line.sent)
		p.Add(&plotter.Line{XYs: s.steps(rate), LineStyle: line.style})
		p.Y.Max = max(p.Y.Max, slices.Max(rate)*1.05)
	}
	p.Y.Tick.Marker = wholeTicks(p.Y.Max, 3)

	s.panel(p, 48, []note{
		{faint, fmt.Sprintf("%d without the guard", len(unguarded.sent))},
		{nil, fmt.Sprintf("(at most %d open at once)", unguarded.reached.mostOpen)},
		{ink, fmt.Sprintf("%d with the guard", len(guarded.sent))},
		{nil, fmt.Sprintf("(at most %d open at once)", guarded.reached.mostOpen)},
	})
}

// breaker draws the states as a band, above the labels of the time axis.
func (s *sheet) breaker(changes []change) {
	p := s.plot("The guard's breaker", "")
	p.HideY()
	p.X.Label.Text = s.unit.name
	p.X.Tick.Marker = wholeTicks(s.end, 13)
	p.X.Tick.Length = 4

	p.Add(painter(func(c draw.Canvas, x, _ func(float64) vg.Length) {
		changes := append([]change{{0, resilience.StateClosed}}, changes...)
		// Probes are drawn last, and wide enough to be seen.
		for _, probes := range []bool{false, true} {
			for i, ch := range changes {
				if (ch.to == resilience.StateHalfOpen) != probes {
					continue
				}
				from, to := x(s.units(ch.at)), c.Max.X
				if i+1 < len(changes) {
					to = x(s.units(changes[i+1].at))
				}
				if probes {
					to = max(to, from+2)
				}
				s.rectangle(stateColors[ch.to], from, to, c.Min.Y, c.Max.Y)
			}
		}
	}))

	s.panel(p, s.top-titleHeight-floor, []note{
		{stateColors[resilience.StateClosed], "closed: calls pass"},
		{stateColors[resilience.StateOpen], "open: calls are rejected"},
		{stateColors[resilience.StateHalfOpen], "half-open: one probe"},
	})
}
