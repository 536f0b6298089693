package main

import (
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
)

// A site is the page that is shown. It has no elements: what those of a real page would
// ask their server when they are clicked on or read, it asks for each that an expression
// names.
type site struct {
	url, title string

	mu sync.Mutex // one thing after another, as in a page: who waits for the server holds up all others
}

var titleTag = regexp.MustCompile(`(?s)<title>(.*?)</title>`)

// load gets the page from its server.
func load(url string) (*site, error) {
	body, found, err := ask(http.MethodGet, url)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, errors.New(url + " was not found")
	}
	s := &site{url: strings.TrimSuffix(url, "/") + "/"}
	if m := titleTag.FindStringSubmatch(body); m != nil {
		s.title = html.UnescapeString(m[1])
	}
	return s, nil
}

// ask returns the body of a response, and whether there is such a thing on the server.
func ask(method, url string) (body string, found bool, err error) {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return "", false, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", false, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	switch {
	case err != nil:
		return "", false, err
	case res.StatusCode == http.StatusNotFound:
		return "", false, nil
	case res.StatusCode != http.StatusOK:
		return "", false, errors.New(res.Status)
	}
	return string(b), true, nil
}

var (
	readyExpression = regexp.MustCompile(`^document\.readyState === "complete" && location\.href\.startsWith\((".*")\)$`)
	textExpression  = regexp.MustCompile(`^\(e => e && e\.innerText\.slice\(0, \d+\)\)\(document\.querySelector\((".*")\)\)$`)
	clickExpression = regexp.MustCompile(`^\(e => e && \(e\.click\(\), true\)\)\(document\.querySelector\((".*")\)\)$`)
)

// evaluate returns the value of an expression, nil for null, or what it threw.
func (s *site) evaluate(expression string) (value any, thrown error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if expression == "document.title" {
		return s.title, nil
	}
	if m := readyExpression.FindStringSubmatch(expression); m != nil {
		prefix, err := unquote(m[1])
		return err == nil && strings.HasPrefix(s.url, prefix), err
	}
	if m := textExpression.FindStringSubmatch(expression); m != nil {
		text, found, err := s.element(http.MethodGet, "text", m[1])
		if err != nil || !found {
			return nil, err
		}
		return text, nil
	}
	if m := clickExpression.FindStringSubmatch(expression); m != nil {
		_, found, err := s.element(http.MethodPost, "click", m[1])
		if err != nil || !found {
			return nil, err
		}
		return true, nil
	}
	return nil, fmt.Errorf("SyntaxError: this page doesn't understand %s", expression)
}

// element asks the server about the element that a selector names: by its id, there are
// no other selectors here.
func (s *site) element(method, verb, quoted string) (body string, found bool, err error) {
	selector, err := unquote(quoted)
	if err != nil {
		return "", false, err
	}
	id, ok := strings.CutPrefix(selector, "#")
	if !ok || id == "" {
		return "", false, fmt.Errorf("SyntaxError: %s is not a valid selector", quoted)
	}
	return ask(method, s.url+verb+"/"+url.PathEscape(id))
}
