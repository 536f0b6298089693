package agents

import (
	"fmt"
	"html"
	"strings"
)

// Lengths in the picture are in points, 3/4 of a pixel. It has the fonts and the colors of docs/chaos.svg.
const (
	width      = 750.0
	columns    = 2
	panelWidth = width / columns
	panelHigh  = 128.0
	head       = 66.0 // above the panels
	foot       = 24.0 // below them
	plotLeft   = 44.0 // within a panel
	plotRight  = 14.0
	plotTop    = 24.0
	plotBottom = 32.0

	ink, faint = "#222222", "#999999"
)

// kindColors are those of the servers. Blue stands for the guard.
var kindColors = []string{faint, "#F0A31E", "#B07A00", "#A3300B", "#7CC4EE", "#0072B2"}

// A sheet is an SVG that is being written.
type sheet struct{ strings.Builder }

// picture returns an SVG with a panel for each metric that matters: for each agent and server the mean of all seeds,
// and a line from the 10th to the 90th percentile.
func (all results) picture() string {
	var chosen []metric
	for _, m := range metrics {
		if m.brief {
			chosen = append(chosen, m)
		}
	}
	height := head + panelHigh*float64((len(chosen)+columns-1)/columns) + foot

	s := &sheet{}
	fmt.Fprintf(s, "<svg width=\"%gpt\" height=\"%gpt\" viewBox=\"0 0 %g %g\" xmlns=\"http://www.w3.org/2000/svg\" "+
		"font-family=\"Liberation Sans,Arial,Helvetica,sans-serif\">\n", width, height, width, height)
	s.rectangle("#FFFFFF", 0, 0, width, height)
	s.header(len(all[0][0]))
	for i, m := range chosen {
		s.panel(all, m, panelWidth*float64(i%columns), head+panelHigh*float64(i/columns))
	}
	s.text(8.5, "normal", "start", plotLeft, height-9, fmt.Sprintf(
		"%d agents with %d tasks each; three backends that become slow, hang, die, limit rates or lose replies. "+
			"Clients give up after %gs.", agentsOfARun, tasksOfAnAgent, clientTimeout.Seconds()))
	s.WriteString("</svg>\n")
	return s.String()
}

func (s *sheet) header(seeds int) {
	s.text(14, "bold", "start", plotLeft, 22, "What becomes of agents' tasks, by the server that they work with")
	s.text(9.5, "normal", "start", plotLeft, 37, fmt.Sprintf(
		"Dots are means of %d seeds, lines go from the 10th to the 90th percentile.", seeds))
	x := plotLeft
	for k, kind := range kinds {
		s.rectangle(kindColors[k], x, 46, 9, 9)
		s.text(9.5, "normal", "start", x+13, 54, kind.name)
		x += 40 + 5.5*float64(len(kind.name))
	}
}

// panel draws a metric. Its corner is at x, y.
func (s *sheet) panel(all results, m metric, x, y float64) {
	s.text(10, "bold", "start", x+plotLeft, y+14, m.name)
	left, right := x+plotLeft, x+panelWidth-plotRight
	top, bottom := y+plotTop, y+panelHigh-plotBottom

	most := 0.0
	for a := range agents {
		for k := range kinds {
			v := sampleOf(m, all[a][k])
			most = max(most, v.high, v.mean)
		}
	}
	step := tick(most)
	scale := (bottom - top) / (most * 1.04)
	for v := 0.0; v <= most*1.04; v += step {
		s.line("#DDDDDD", 0.6, left, bottom-v*scale, right, bottom-v*scale)
		s.text(9, "normal", "end", left-5, bottom-v*scale+3, number(v))
	}
	s.line(ink, 0.6, left, bottom, right, bottom)

	group := (right - left) / float64(len(agents))
	for a, agent := range agents {
		middle := left + group*(float64(a)+0.5)
		for i, line := range lines(agent.name) {
			s.text(8.5, "normal", "middle", middle, bottom+11+10*float64(i), line)
		}
		for k := range kinds {
			v := sampleOf(m, all[a][k])
			at := middle + group*0.13*(float64(k)-float64(len(kinds)-1)/2)
			s.line(kindColors[k], 2, at, bottom-v.low*scale, at, bottom-v.high*scale)
			s.dot(kindColors[k], at, bottom-v.mean*scale)
		}
	}
}

// lines returns a name, in two lines if it is long.
func lines(name string) []string {
	if i := strings.LastIndexByte(name, ' '); len(name) > 10 && i > 0 {
		return []string{name[:i], name[i+1:]}
	}
	return []string{name}
}

// tick returns the distance of four ticks at most: 1, 2 or 5 times a power of ten.
func tick(most float64) float64 {
	step := 0.01
	for i := 0; most/step > 4; i++ {
		step *= []float64{2, 2.5, 2}[i%3]
	}
	return step
}

func (s *sheet) rectangle(fill string, x, y, wide, high float64) {
	const format = `<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s"/>` + "\n"
	fmt.Fprintf(s, format, x, y, wide, high, fill)
}

func (s *sheet) line(stroke string, wide, x0, y0, x1, y1 float64) {
	const format = `<path d="M%.2f,%.2fL%.2f,%.2f" stroke="%s" stroke-width="%g"/>` + "\n"
	fmt.Fprintf(s, format, x0, y0, x1, y1, stroke, wide)
}

func (s *sheet) dot(fill string, x, y float64) {
	fmt.Fprintf(s, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"3.2\" fill=\"%s\"/>\n", x, y, fill)
}

func (s *sheet) text(size float64, weight, anchor string, x, y float64, text string) {
	const format = `<text x="%.2f" y="%.2f" font-size="%gpx" font-weight="%s" text-anchor="%s" fill="%s">`
	fmt.Fprintf(s, format, x, y, size, weight, anchor, ink)
	fmt.Fprintln(s, html.EscapeString(text)+"</text>")
}
