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
func picture(w io.Writer, cfg config, all results) error {
	canvas := vgsvg.New(width, height)
	newSheet(draw.New(canvas), cfg).draw(all)

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

func (s *sheet) draw(all results) {
	s.canvas.SetColor(color.White)
	s.canvas.Fill(s.canvas.Path())
	s.header()

	most := 0.0
	for _, r := range all {
		most = max(most, slices.Max(s.binned(r.made())))
	}
	for k, r := range all {
		s.calls(kind(k), r, most)
	}

	s.latencies(unguarded, all[unguarded], s.cfg.clientTimeout, "clients give up")
	s.latencies(guarded, all[guarded], s.cfg.timeout, "the tool's timeout")
	s.requests(all)
	s.recovery(all)
}

// titles name the servers in the picture.
var titles = [kinds]string{"Without the guard", "With the guard", "With the guard and a Probe"}

// header draws the title, and the phases behind all panels.
func (s *sheet) header() {
	s.text(14, xfont.WeightBold, left, s.top-22,
		"A backend's outage behind an MCP server: no guard, a guard, and a guard with a Probe")
	s.text(9.5, xfont.WeightNormal, left, s.top-37, fmt.Sprintf(
		"%d agents call a tool that calls the backend. Timeout %s, cooldown %s, Probes %s apart; "+
			"clients give up after %s. Seed %d.",
		s.cfg.agents, display(s.cfg.timeout), display(s.cfg.cooldown), display(s.cfg.probeInterval),
		display(s.cfg.clientTimeout), s.cfg.seed))
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
// bin in which it was made, so the columns of all servers are equally high. Below are the states of the breaker.
func (s *sheet) calls(k kind, r result, most float64) {
	p := s.plot(titles[k]+": how calls ended, by when they were made", "calls/"+s.unit.short)
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
	s.panel(p, 54, notes)

	if k != unguarded {
		s.top += 5
		s.text(8.5, xfont.WeightNormal, left-36, s.top-7, "breaker")
		x := func(at time.Duration) vg.Length { return s.x(s.units(at)) }
		s.states(r.changes, 0, length(s.cfg), x, s.top-bandHeight, s.top)
		s.legend(s.top - 7)
		s.top -= 16
	}
}

// area fills what is between two lines.
func area(fill color.Color, lower, upper plotter.XYs) plot.Plotter {
	ring := slices.Clone(lower)
	slices.Reverse(ring)
	return &plotter.Polygon{XYs: []plotter.XYs{append(ring, upper...)}, Color: fill}
}

// latencies draws a dot for each call, and the line that none should cross.
func (s *sheet) latencies(k kind, r result, line time.Duration, label string) {
	p := s.plot(titles[k]+": how long each call took", "latency")
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

	s.panel(p, 58, []note{
		{nil, fmt.Sprintf("median %s", display(r.latency(0.5)))},
		{nil, fmt.Sprintf("95%% within %s", display(r.latency(0.95)))},
		{nil, fmt.Sprintf("longest %s", display(r.latency(1)))},
	})
}

// requests draws how often the tool called the backend, whether or not it listened. The time axis is below.
func (s *sheet) requests(all results) {
	p := s.plot("Requests that calls sent to the backend", "requests/"+s.unit.short)
	p.X.Label.Text = s.unit.name
	p.X.Tick.Marker = wholeTicks(s.end, 13)
	p.X.Tick.Length = 4

	var notes []note
	for k, style := range [kinds]draw.LineStyle{
		{Color: faint, Width: 3.5}, {Color: ink, Width: 1.6}, {Color: rgb(0x0072b2), Width: 1.2},
	} {
		rate := s.binned(all[k].sent)
		p.Add(&plotter.Line{XYs: s.steps(rate), LineStyle: style})
		p.Y.Max = max(p.Y.Max, slices.Max(rate)*1.05)
		notes = append(notes, note{style.Color, fmt.Sprintf("%d %s", len(all[k].sent), kindNames[k])})
	}
	p.Y.Tick.Marker = wholeTicks(p.Y.Max, 3)

	s.panel(p, s.top-titleHeight-floor, append(notes, note{nil, fmt.Sprintf("and %d Probes", len(all[probing].probes))}))
}
