package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// table writes the rows as Markdown.
func table(w io.Writer, rows []row) error {
	var b strings.Builder
	b.WriteString("| client | situation | the agent reads, without the guard | with the guard, first | and then | " +
		"`_meta` | counted | requests, without and with | time, without and with |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")

	for _, r := range rows {
		meta := ""
		if e := r.guarded.guidance; e != nil {
			meta = fmt.Sprintf("%s, retryable: %t", e.Code, e.Retryable)
			if e.RetryAfter > 0 {
				meta += fmt.Sprintf(", retryAfter: %d", int(e.RetryAfter.Seconds()))
			}
		}
		first := "the same"
		if r.bare.gaveUp {
			first = "" // whether the tool says something at the end of its timeout is chance
		}

		counted := "no"
		if r.guarded.counted {
			counted = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %d, %d | %s, %s |\n", r.subject.name, r.situation.name,
			words(r.bare), first, r.guarded.line, meta, counted, r.bare.requests, r.guarded.requests,
			inWords(r.bare.took), inWords(r.guarded.took))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const maxWords = 80

// words returns the beginning and the end of what an agent reads first.
func words(r reading) string {
	if r.gaveUp {
		return "nothing: its client gave up"
	}
	text := strings.NewReplacer("\n", " ", "|", `\|`).Replace(r.text)
	if n := len(text); n > maxWords {
		text = strings.ToValidUTF8(text[:maxWords/2]+" … "+text[n-maxWords/2:], "")
	}
	return text
}

// inWords rounds, because the delays of retries are random.
func inWords(d time.Duration) string {
	if d < time.Second {
		return "< 1s"
	}
	return d.Round(time.Second).String()
}

// slack is what a computer takes for a call beyond all delays.
const slack = 5 * time.Second

// digits are those of ports and times, which differ.
var digits = regexp.MustCompile(`[0-9]+(m[0-9]+)?`)

// check returns an error for each row that isn't as it should be.
func check(rows []row) error {
	var errs []error
	for _, r := range rows {
		for _, wrong := range r.check() {
			errs = append(errs, fmt.Errorf("%s: %s: %s", r.subject.name, r.situation.name, wrong))
		}
	}
	return errors.Join(errs...)
}

func (r row) check() (wrong []string) {
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}

	got := want{counted: r.guarded.counted, requests: r.guarded.requests}
	if e := r.guarded.guidance; e != nil {
		got.code, got.retryAfter = e.Code, e.RetryAfter
		if got.retryAfter == r.want.retryAfter-time.Second {
			got.retryAfter += time.Second // a rate limit's reset is a time in whole seconds
		}
	}
	expect(got == r.want, "it came to %+v, not %+v", got, r.want)
	expect(!r.guarded.gaveUp, "the client gave up")
	same := digits.ReplaceAllString(r.guarded.text, "0") == digits.ReplaceAllString(r.bare.text, "0")
	expect(r.bare.gaveUp || same, "the agent reads %q, not %q", r.guarded.text, r.bare.text)
	expect(r.bare.isError == r.guarded.isError || r.bare.gaveUp, "isError: %t", r.guarded.isError)
	expect(r.guarded.took <= max(r.limits.tool, r.bare.took)+slack, "it took %v", r.guarded.took)
	return wrong
}
