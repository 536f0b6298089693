package main

import (
	"image/color"
	"math"
	"strconv"
	"time"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Lengths are in points, 3/4 of a pixel.
const (
	width, height = vg.Length(750), vg.Length(735)
	left, right   = vg.Length(62), vg.Length(588) // of the time axis; right of it are the notes
	floor         = vg.Length(190)                // of the time axis, above its labels and the recovery
	titleHeight   = vg.Length(17)                 // of a panel
	bins          = 48                            // of 10s each in docs/chaos.svg
)

// A unit is the unit of the time axis, and of rates.
type unit struct {
	name, short string
	length      time.Duration
}

// A sheet holds the whole picture. Its panels are drawn from the top to the bottom.
type sheet struct {
	canvas draw.Canvas
	cfg    config
	phases []phase
	unit   unit
	end    float64   // of the time axis, in units
	top    vg.Length // where the next panel begins
}

func newSheet(canvas draw.Canvas, cfg config) *sheet {
	s := &sheet{canvas: canvas, cfg: cfg, phases: outage(cfg), top: canvas.Max.Y}
	s.unit = unit{"seconds", "s", time.Second}
	if length(cfg) > 3*time.Minute {
		s.unit = unit{"minutes", "min", time.Minute}
	}
	s.end = s.units(length(cfg))
	return s
}

// units returns a time in units of the time axis.
func (s *sheet) units(t time.Duration) float64 {
	return t.Seconds() / s.unit.length.Seconds()
}

// x returns where on the sheet a time is.
func (s *sheet) x(units float64) vg.Length {
	return left + (right-left)*vg.Length(units/s.end)
}

// plot returns an empty plot over the time axis.
func (s *sheet) plot(title, unit string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil // leaves the phases visible
	p.Title.Text = title    // panel draws this and the unit, aligned with those of other panels
	p.X.Min, p.X.Max = 0, s.end
	p.Y.Min, p.Y.Max = 0, 1
	p.Y.Label.Text = unit
	p.X.Tick.Length = 0
	p.X.Tick.Marker = plot.ConstantTicks{}

	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Padding = 0
		axis.Color = ink
		axis.Width = 0.6
		axis.Tick.Color = ink
		axis.Tick.Width = 0.6
		axis.Tick.Label.Font = textStyle(9, xfont.WeightNormal).Font
		axis.Label.TextStyle.Font = textStyle(9.5, xfont.WeightNormal).Font
	}
	p.Y.Tick.Length = 4
	return p
}

// A note stands right of a panel.
type note struct {
	swatch color.Color // nil means none
	text   string
}

// panel draws a plot whose data area has the given height, with its title above and the notes beside
// it.
func (s *sheet) panel(p *plot.Plot, high vg.Length, notes []note) {
	s.text(10, xfont.WeightBold, left, s.top-12, p.Title.Text)
	area := s.canvas
	area.Max.Y = s.top - titleHeight
	area.Min.Y = area.Max.Y - high

	unit := textStyle(9.5, xfont.WeightNormal)
	unit.Rotation, unit.XAlign = math.Pi/2, draw.XCenter
	s.canvas.FillText(unit, vg.Point{X: 16, Y: (area.Min.Y + area.Max.Y) / 2}, p.Y.Label.Text)
	p.Title.Text, p.Y.Label.Text = "", ""

	// The axes are aligned with those of other panels, however wide the labels are.
	data := p.DataCanvas(area)
	p.Draw(draw.Crop(area, left-data.Min.X, right-data.Max.X, area.Min.Y-data.Min.Y, 0))

	y := area.Max.Y - 8
	for _, n := range notes {
		if n.swatch != nil {
			s.rectangle(n.swatch, right+12, right+21, y-1, y+7)
		}
		s.text(9.5, xfont.WeightNormal, right+26, y, n.text)
		y -= 13.5
	}
	s.top = area.Min.Y - 8
}

func (s *sheet) text(size vg.Length, weight xfont.Weight, x, y vg.Length, txt string) {
	s.canvas.FillText(textStyle(size, weight), vg.Point{X: x, Y: y}, txt)
}

func (s *sheet) rectangle(c color.Color, x0, x1, y0, y1 vg.Length) {
	s.canvas.SetColor(c)
	s.canvas.Fill(vg.Rectangle{Min: vg.Point{X: x0, Y: y0}, Max: vg.Point{X: x1, Y: y1}}.Path())
}

func textStyle(size vg.Length, weight xfont.Weight) text.Style {
	return text.Style{
		Color:   ink,
		Font:    font.Font{Typeface: "Liberation", Variant: "Sans", Weight: weight, Size: size},
		Handler: plot.DefaultTextHandler,
	}
}

// binned returns how many of the times are in each bin of the time axis, per unit.
func (s *sheet) binned(times []time.Duration) []float64 {
	rate := make([]float64, bins)
	for _, at := range times {
		if i := int(s.units(at) / s.end * bins); i < bins { // in real time, calls may be late
			rate[i] += bins / s.end
		}
	}
	return rate
}

// steps returns the outline of columns over the bins.
func (s *sheet) steps(heights []float64) (line plotter.XYs) {
	for i, y := range heights {
		line = append(line,
			plotter.XY{X: float64(i) * s.end / bins, Y: y}, plotter.XY{X: float64(i+1) * s.end / bins, Y: y})
	}
	return line
}

// wholeTicks returns ticks at whole numbers from 0 to most, at most n+1 of them.
func wholeTicks(most float64, n int) (ticks plot.ConstantTicks) {
	step := 1.0
	for i := 0; most/step > float64(n); i++ {
		step *= []float64{2, 2.5, 2}[i%3] // 2, 5, 10, 20, 50 and so on
	}
	for v := 0.0; v <= most; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	return ticks
}

// decades returns the ticks of a latency axis, and the least latency that it shows, in
// seconds: shorter ones are drawn there.
func (s *sheet) decades() (least float64, ticks plot.ConstantTicks) {
	shortest := time.Microsecond
	for shortest*10000 <= s.cfg.timeout {
		shortest *= 10
	}

	for d := shortest; d <= s.cfg.clientTimeout; d *= 10 {
		ticks = append(ticks, plot.Tick{Value: d.Seconds(), Label: d.String()})
	}
	ticks[0].Label = "≤ " + ticks[0].Label
	return shortest.Seconds(), ticks
}

// A painter draws on a plot's data area. Its functions x and y convert to lengths.
type painter func(c draw.Canvas, x, y func(float64) vg.Length)

func (f painter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	f(c, x, y)
}
