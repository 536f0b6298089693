package mcpgo

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/mark3labs/mcp-go/mcp"
)

// checkJSON returns an error if the answer, which may be empty, can't be encoded: mcp-go would leave the call without
// an answer. It panics where a method of a value does, which would end the process later.
func (a answer) checkJSON() error {
	switch {
	case a.result != nil:
		return checkResult(a.result)
	case a.err != nil:
		if required := urlElicitation(a.err); required != nil {
			if _, err := json.Marshal(required); err != nil {
				return fmt.Errorf("the elicitation is no JSON: %w", err)
			}
		}
	}
	return nil
}

// checkResult encodes what a result has besides content that can be encoded for certain, which most have alone.
func checkResult(res *mcp.CallToolResult) error {
	var content []mcp.Content
	for _, c := range res.Content {
		if !isPlain(c) {
			content = append(content, c)
		}
	}
	if len(content) == 0 && !hasParts(res) {
		return nil
	}

	rest := *res
	rest.Content = content
	if _, err := json.Marshal(rest); err != nil {
		return fmt.Errorf("the result is no JSON: %w", err)
	}
	return nil
}

// isPlain reports whether c can be encoded for certain, as nearly all content can.
func isPlain(c mcp.Content) bool {
	switch c := c.(type) {
	case mcp.TextContent:
		return c.Meta == nil && c.Annotations == nil
	case mcp.ImageContent:
		return c.Meta == nil && c.Annotations == nil
	case mcp.AudioContent:
		return c.Meta == nil && c.Annotations == nil
	}
	return false
}

// parts holds the indexes of the fields of a result which may hold something that is no JSON. They aren't named, since
// newer versions of mcp-go have more of them, of which some take the place of others.
var parts = func() (indexes []int) {
	t := reflect.TypeFor[mcp.CallToolResult]()
	for i := range t.NumField() {
		if field := t.Field(i); field.Name != "Content" && field.Type.Kind() != reflect.Bool {
			indexes = append(indexes, i)
		}
	}
	return indexes
}()

// hasParts reports whether res has anything but content.
func hasParts(res *mcp.CallToolResult) bool {
	v := reflect.ValueOf(res).Elem()
	for _, i := range parts {
		if !v.Field(i).IsZero() {
			return true
		}
	}
	return false
}
