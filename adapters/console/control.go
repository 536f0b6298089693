package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/seed8d1e2389/resilience"
)

const (
	maxBody   = 8 << 10 // bytes
	maxReason = 500     // characters
)

// control returns the handler of a route that changes breakers. The request is checked before it learns whether
// there is such a breaker.
func (c *Console) control(act func(b *resilience.Breaker, reason string)) http.HandlerFunc {
	crossOrigin := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, r *http.Request) {
		if err := crossOrigin.Check(r); err != nil {
			fail(w, http.StatusForbidden, err.Error()+
				": the page of another site has made this request (a proxy that serves plain HTTP must keep the Host)")
			return
		}
		if !c.cfg.Authorize(r) {
			fail(w, http.StatusForbidden, "not authorized")
			return
		}
		reason, code, err := readReason(w, r)
		if err != nil {
			fail(w, code, err.Error())
			return
		}

		name := breakerName(r)
		if name == "" {
			fail(w, http.StatusBadRequest, "there is no name in the query: it must be the breaker's, as in ?name=db")
			return
		}
		found := c.act(name, func(b *resilience.Breaker) { act(b, reason) })
		c.forget()
		b, ok := c.snapshot().breakers[name] // one that was reset may have been forgotten since
		if !found || !ok {
			fail(w, http.StatusNotFound, fmt.Sprintf("the guard has no breaker %q now", name))
			return
		}
		answer(w, http.StatusOK, b)
	}
}

func isolate(b *resilience.Breaker, reason string) { b.Isolate(reason) }
func reset(b *resilience.Breaker, _ string)        { b.Reset() }

// act calls f with each breaker of that name, and reports whether there is one: a breaker of a key and that of a
// tool may have the same name, and so may those of a listed tool and of another one.
func (c *Console) act(name string, f func(*resilience.Breaker)) (found bool) {
	for _, b := range c.guard.Breakers() {
		if shown(b.Name()) == name {
			f(b)
			found = true
		}
	}
	return found
}

// breakerName returns the name in the path of a request, or else in its query, empty if there is none. In a path, a
// leading "~" isn't part of it: it makes segments of the names "." and "..", which no URL can contain, of "/", which
// ServeMux takes for the end of a path, and of those that begin with "~".
func breakerName(r *http.Request) string {
	if name := r.PathValue("name"); name != "" {
		return shown(strings.TrimPrefix(name, "~"))
	}
	return shown(r.URL.Query().Get("name"))
}

// readReason reads the reason in the body of a request, or what is wrong with it and its HTTP status.
func readReason(w http.ResponseWriter, r *http.Request) (reason string, code int, err error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	kind := ""
	if h := r.Header.Get("Content-Type"); h != "" {
		if kind, _, err = mime.ParseMediaType(h); err != nil {
			kind = h
		}
	}

	switch kind {
	case "", "application/json":
		reason, err = decodeReason(r.Body)
	case "application/x-www-form-urlencoded":
		err = r.ParseForm()
		reason = r.PostForm.Get("reason")
	default:
		return "", http.StatusUnsupportedMediaType, fmt.Errorf(
			"the Content-Type is %q: it must be application/json or application/x-www-form-urlencoded", kind)
	}

	var tooLarge *http.MaxBytesError
	switch n := utf8.RuneCountInString(reason); {
	case errors.As(err, &tooLarge):
		return "", http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes", maxBody)
	case err != nil:
		return "", http.StatusBadRequest, fmt.Errorf("the body can't be read: %w", err)
	case n > maxReason:
		return "", http.StatusBadRequest, fmt.Errorf("reason has %d characters: at most %d are allowed", n, maxReason)
	}
	return strings.ToValidUTF8(reason, "\uFFFD"), 0, nil
}

// decodeReason reads {"reason": "…"}. An empty body is no reason.
func decodeReason(body io.Reader) (string, error) {
	var in struct {
		Reason string `json:"reason"`
	}
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil && err != io.EOF {
		return "", err
	}
	if _, err := d.Token(); err != io.EOF {
		return "", errors.New("something follows the JSON object")
	}
	return in.Reason, nil
}
