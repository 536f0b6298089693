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

// A site is the page. It has no elements: for each one that an expression names, it sends the
// request that the element of a real page would send when it is read or clicked.
type site struct {
	url, title string

	// mu is held while an expression is evaluated. As in a real page, one that waits for the
	// server blocks all others.
	mu sync.Mutex
}

var titleTag = regexp.MustCompile(`(?s)<title>(.*?)</title>`)

// load loads the page from its server.
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

// ask sends a request and returns the body of the response. It isn't found if the server answers
// 404.
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

// These match the expressions that the bridge sends, and capture the prefix or the selector.
var (
	readyExpression = regexp.MustCompile(
		`^document\.readyState === "complete" && location\.href\.startsWith\((".*")\)$`)
	textExpression = regexp.MustCompile(
		`^\(e => e && e\.innerText\.slice\(0, \d+\)\)\(document\.querySelector\((".*")\)\)$`)
	clickExpression = regexp.MustCompile(
		`^\(e => e && \(e\.click\(\), true\)\)\(document\.querySelector\((".*")\)\)$`)
)

// evaluate returns the value of an expression, or what it threw. The value of null is nil.
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

// element sends the request of the element that a selector names. The only selectors are ids.
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
