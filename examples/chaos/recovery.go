package main

import (
	"fmt"
	"image/color"
	"math"
	"time"

	"github.com/seed8d1e2389/resilience"
	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Heights of a lane of the recovery, and of the band in it that shows the states of the breaker.
const laneHeight, bandHeight = vg.Length(36), vg.Length(8)

// A closeup is a part of the time, drawn larger.
type closeup struct {
	*sheet
	back     time.Duration // when the backend is back
	from, to time.Duration
}

// x returns where a time is.
func (c closeup) x(at time.Duration) vg.Length {
	return left + (right-left)*vg.Length(float64(at-c.from)/float64(c.to-c.from))
}

// shows reports whether a time is within the closeup.
func (c closeup) shows(at time.Duration) bool { return c.from <= at && at < c.to }

// recovery draws the time around the backend's return: a lane for each server, with each of its calls.
func (s *sheet) recovery(all results) {
	_, back := down(s.cfg)
	c := closeup{s, back, max(back-s.cfg.cooldown/6, 0), min(back+s.cfg.cooldown*2/3, length(s.cfg))}

	s.top = floor - 38
	s.text(10, xfont.WeightBold, left, s.top-12, "The backend is back: every call around its return, larger")
	s.top -= 20
	for k, r := range all {
		c.lane(kind(k), r)
	}

	x := c.x(back)
	s.rectangle(ink, x-0.6, x+0.6, s.top+7, floor-58)
	c.labels()
}

// lane draws the calls of a server, and below them the states of its breaker and its Probes.
func (c closeup) lane(k kind, r result) {
	top, bottom := c.top, c.top-laneHeight+7
	c.rectangle(shades[dead], c.x(c.from), c.x(c.back), bottom, top)
	c.rectangle(shades[slow], c.x(c.back), c.x(c.to), bottom, top)

	for o := range outcomes {
		for _, rec := range r.records {
			if rec.outcome == o && c.shows(rec.at) {
				c.dot(outcomeColors[o], c.x(rec.at), top-10.5, 3.6)
			}
		}
	}
	if k != unguarded {
		c.states(r.changes, c.from, c.to, c.x, bottom, bottom+bandHeight)
	}
	for _, at := range r.probes {
		if c.shows(at) {
			c.dot(color.White, c.x(at), bottom+bandHeight/2, 1.8)
		}
	}

	text := "no call succeeded again"
	if after, ok := r.recovery(c.cfg); ok {
		text = fmt.Sprintf("%d calls failed, success after %s", r.failedSince(c.back), display(after))
	}
	c.text(9.5, xfont.WeightBold, right+12, top-9, titles[k])
	c.text(9, xfont.WeightNormal, right+12, top-21, text)
	if k == probing {
		c.text(9, xfont.WeightNormal, right+12, top-32, "(white dots: Probes)")
	}
	c.top -= laneHeight
}

// labels draws the labels of the time axis.
func (c closeup) labels() {
	style := textStyle(9, xfont.WeightNormal)
	style.XAlign = draw.XCenter
	for i, step := 0, c.cfg.cooldown/6; c.from+time.Duration(i)*step <= c.to; i++ {
		at := c.from + time.Duration(i)*step
		label := "+" + display(at-c.back)
		switch {
		case at == c.back:
			label = "the backend is back"
		case at < c.back:
			label = "−" + display(c.back-at)
		}
		c.canvas.FillText(style, vg.Point{X: c.x(at), Y: c.top - 5}, label)
	}
}

// dot draws a dot.
func (s *sheet) dot(c color.Color, x, y, radius vg.Length) {
	var path vg.Path
	path.Move(vg.Point{X: x + radius, Y: y})
	path.Arc(vg.Point{X: x, Y: y}, radius, 0, 2*math.Pi)
	path.Close()
	s.canvas.SetColor(c)
	s.canvas.Fill(path)
}

// states draws the states of a breaker from one time to another as a band.
func (s *sheet) states(
	changes []change, from, to time.Duration, x func(time.Duration) vg.Length, bottom, top vg.Length,
) {
	changes = within(changes, from, to)
	// The probes are drawn last, and wide enough to be seen.
	for _, probes := range []bool{false, true} {
		for i, ch := range changes {
			if (ch.to == resilience.StateHalfOpen) != probes {
				continue
			}
			x0, x1 := x(ch.at), x(to)
			if i+1 < len(changes) {
				x1 = x(changes[i+1].at)
			}
			if probes {
				x1 = max(x1, x0+2)
			}
			s.rectangle(stateColors[ch.to], x0, x1, bottom, top)
		}
	}
}

// within returns the changes from one time to another. The first is to the state at the beginning.
func within(changes []change, from, to time.Duration) []change {
	in := []change{{from, resilience.StateClosed}}
	for _, c := range changes {
		switch {
		case c.at <= from:
			in[0].to = c.to
		case c.at < to:
			in = append(in, c)
		}
	}
	return in
}

// legend explains the colors of the states of a breaker.
func (s *sheet) legend(y vg.Length) {
	x := right + 12
	for _, state := range []struct {
		resilience.State
		name  string
		width vg.Length
	}{
		{resilience.StateClosed, "closed", 43},
		{resilience.StateOpen, "open", 36},
		{resilience.StateHalfOpen, "half-open", 0},
	} {
		s.rectangle(stateColors[state.State], x, x+8, y-1, y+6)
		s.text(8.5, xfont.WeightNormal, x+11, y, state.name)
		x += state.width
	}
}
