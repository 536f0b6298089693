package console

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed8d1e2389/resilience"
)

const (
	maxBody   = 8 << 10 // bytes
	maxReason = 500     // characters
	maxListed = 10      // names of breakers
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

		name := cmp.Or(r.PathValue("name"), r.URL.Query().Get("name"))
		if name == "" {
			fail(w, http.StatusBadRequest, "there is no name in the query: it must be the breaker's, as in ?name=db")
			return
		}
		for _, b := range c.guard.Breakers() { // several may have the same name
			if b.Name() == name {
				act(b, reason)
			}
		}
		breakers := c.breakers(c.guard.Health())
		for _, b := range breakers {
			if b.Breaker == name {
				answer(w, http.StatusOK, b)
				return
			}
		}
		fail(w, http.StatusNotFound, fmt.Sprintf("the guard has no breaker %q: %s", name, namesOf(breakers)))
	}
}

func isolate(b *resilience.Breaker, reason string) { b.Isolate(reason) }
func reset(b *resilience.Breaker, _ string)        { b.Reset() }

// namesOf says which breakers there are.
func namesOf(breakers []breaker) string {
	if len(breakers) == 0 {
		return "there are none yet"
	}

	var names []string
	for _, b := range breakers[:min(len(breakers), maxListed)] {
		names = append(names, strconv.Quote(b.Breaker))
	}
	list := "there are " + strings.Join(names, ", ")
	if more := len(breakers) - len(names); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// readReason reads the reason in the body of a request, which is a form or JSON. An empty body is no reason. code is
// the HTTP status of an error.
func readReason(w http.ResponseWriter, r *http.Request) (reason string, code int, err error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "application/x-www-form-urlencoded" {
		err = r.ParseForm()
		reason = r.PostForm.Get("reason")
	} else {
		var in struct{ Reason string }
		if err = json.NewDecoder(r.Body).Decode(&in); err == io.EOF {
			err = nil
		}
		reason = in.Reason
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
