package agents

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// A metric is a figure of each run.
type metric struct {
	name  string
	value func(result) float64
	brief bool // whether it is in the table of docs/agents.md and in the picture
}

var metrics = []metric{
	{"tasks completed, of 40", func(r result) float64 { return float64(r.Completed) }, true},
	{"seconds until then, median", func(r result) float64 { return median(r.Took).Seconds() }, true},
	{"seconds until then, 90th percentile", func(r result) float64 { return quantile(r.Took, 0.9).Seconds() }, false},
	{"writes done twice", func(r result) float64 { return float64(r.Twice) }, true},
	{"writes lost", func(r result) float64 { return float64(r.Lost) }, true},
	{"writes done, but reported as failed", func(r result) float64 { return float64(r.Unknown) }, false},
	{"calls", func(r result) float64 { return float64(r.Calls) }, false},
	{"calls wasted", func(r result) float64 { return float64(r.Wasted) }, true},
	{"longest silence, seconds", func(r result) float64 { return r.Silence.Seconds() }, true},
	{"requests to a dead or hung backend", func(r result) float64 { return float64(r.Unheard) }, true},
	{"probes of a dead or hung backend", func(r result) float64 { return float64(r.Probes) }, false},
	{"error text read, kB", func(r result) float64 { return float64(r.Read) / 1000 }, true},
}

// results holds the result of each seed, by agent and server.
type results [][][]result

// A sample says what a metric was in the runs of all seeds.
type sample struct {
	mean, low, high float64 // the 10th and the 90th percentile
}

func sampleOf(m metric, runs []result) sample {
	values, sum := make([]float64, len(runs)), 0.0
	for i, r := range runs {
		values[i] = m.value(r)
		sum += values[i]
	}
	slices.Sort(values)
	return sample{sum / float64(len(values)), quantile(values, 0.1), quantile(values, 0.9)}
}

// String returns the mean and, in brackets, the percentiles.
func (s sample) String() string {
	return fmt.Sprintf("%s (%s–%s)", number(s.mean), number(s.low), number(s.high))
}

// number returns f with two or three digits. Below 100 it has one more if f would look whole and isn't: 39.96 of 40
// tasks are not all of them, and 0.004 writes are some.
func number(f float64) string {
	digits := 2
	switch {
	case math.Abs(f) >= 100:
		return fmt.Sprintf("%.0f", f)
	case math.Abs(f) >= 10:
		digits = 1
	}

	text := decimal(f, digits)
	if !strings.Contains(text, ".") && f != math.Round(f) {
		return decimal(f, digits+1)
	}
	return text
}

// decimal returns f with so many digits after the point, of which zeros at the end are left out.
func decimal(f float64, digits int) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.*f", digits, f), "0"), ".")
}

// rows returns a table: a row for each metric that is chosen, below one with the servers.
func (all results) rows(agent int, chosen func(metric) bool) [][]string {
	head := []string{agents[agent].name}
	for _, k := range kinds {
		head = append(head, k.name)
	}

	rows := [][]string{head}
	for _, m := range metrics {
		if !chosen(m) {
			continue
		}
		row := []string{m.name}
		for k := range kinds {
			row = append(row, sampleOf(m, all[agent][k]).String())
		}
		rows = append(rows, row)
	}
	return rows
}

func isBrief(m metric) bool { return m.brief }
func isAny(metric) bool     { return true }

// text returns the tables of all agents, for a terminal.
func (all results) text() string {
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for a := range agents {
		for _, row := range all.rows(a, isAny) {
			fmt.Fprintln(t, strings.Join(row, "\t"))
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // to a Builder
	return out.String()
}

// markdown returns the tables of all agents.
func (all results) markdown() string {
	var tables []string
	for a := range agents {
		tables = append(tables, markdown(all.rows(a, isAny)))
	}
	return strings.Join(tables, "\n")
}

// brief returns the table of docs/agents.md, that of the agent that obeys.
func (all results) brief() string {
	a := slices.IndexFunc(agents, func(a agent) bool { return a.name == obeys })
	return markdown(all.rows(a, isBrief))
}

func markdown(rows [][]string) string {
	var out strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&out, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintln(&out, strings.Repeat("|---", len(row))+"|")
		}
	}
	return out.String()
}
