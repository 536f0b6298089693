package resilience

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// ResultError returns the error of a failed result (isError) that has only a text, for adapters. It wraps the Go error
// with which the text ends, if that means the end of a context or trouble of a backend; docs/errors.md has the table.
// Any other text is an unknown error. A tool whose text ends with an agent's words must quote them. The error repeats
// 1,024 bytes of the text.
func ResultError(text string) error {
	means := errorAtEnd(text)
	if len(text) > 1024 {
		text = strings.ToValidUTF8(text[:1024], "") + "…"
	}
	return &resultError{cmp.Or(text, "the tool returned a result with isError"), means}
}

type resultError struct {
	text  string
	means error // nil if unknown
}

func (e *resultError) Error() string { return e.text }
func (e *resultError) Unwrap() error { return e.means }

// textEnds holds the errors that texts end with, by these ends. The operating system's are in its own words.
var textEnds = func() map[string]error {
	ends := map[string]error{
		": " + context.DeadlineExceeded.Error(): context.DeadlineExceeded,
		": " + context.Canceled.Error():         context.Canceled,
		": " + canceledMessage:                  context.Canceled, // of the cause of a guarded call's context
	}
	for _, end := range []string{
		": i/o timeout", ": TLS handshake timeout", ": timeout awaiting response headers",
		" exceeded while awaiting headers)", " cancellation while reading body)", // of Client.Timeout
	} {
		ends[end] = textTimeout("net/http" + end)
	}
	for n, lost := range troubles {
		if lost != "" {
			ends[": "+n.Error()] = n
		}
	}
	for _, status := range []httpStatus{429, 500, 502, 503, 504} {
		ends[" "+status.Error()] = status
	}
	return ends
}()

// brokenOff matches the end of an answer after the URL or the address from which it came.
var brokenOff = regexp.MustCompile(`(://[^\s"]*"|\d(\.\d+){3}:\d+|\]:\d+): (unexpected )?EOF$`)

func errorAtEnd(text string) error {
	text = ": " + strings.TrimSpace(text[max(0, len(text)-2048):])
	for end, err := range textEnds {
		if strings.HasSuffix(text, end) {
			return err
		}
	}
	if brokenOff.MatchString(text) {
		return &url.Error{Op: "read", Err: io.EOF}
	}
	return nil
}

type httpStatus int // the text is that of the status line

func (s httpStatus) Error() string   { return fmt.Sprintf("%d %s", int(s), http.StatusText(int(s))) }
func (s httpStatus) StatusCode() int { return int(s) }

type textTimeout string // a net.Error

func (t textTimeout) Error() string { return string(t) }
func (textTimeout) Timeout() bool   { return true }
func (textTimeout) Temporary() bool { return true }
