package resilience

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	redacted    = "[REDACTED]"
	truncated   = "...[truncated]"
	tooDeep     = "[too deep]"
	unprintable = "[unprintable]"
	maxRunes    = 200
	maxDepth    = 32
)

// Redact returns a deep copy of args that is fit for a log or for debug output.
// It never changes args, and is safe for concurrent use as long as args isn't
// changed meanwhile.
//
// The value of a sensitive key becomes "[REDACTED]", whatever its type, at any
// depth. A key is sensitive if one of its words is password, token, secret, key,
// auth, credential or one of their kin; words are what camelCase, snake_case,
// kebab-case, dots and digits separate, so that api_key and apiKey are and keyword
// isn't. Strings over 200 characters are cut to 200 and "...[truncated]". Values
// that aren't maps, slices, strings, numbers or booleans are taken by their JSON.
// Maps and slices more than 32 deep are left out. A nil map stays nil.
func Redact(args map[string]any) map[string]any {
	if args == nil {
		return nil
	}
	return redactMap(args, 0)
}

func redactMap(m map[string]any, depth int) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		if sensitive(k) {
			out[k] = redacted
		} else {
			out[k] = redactValue(v, depth+1)
		}
	}
	return out
}

func redactValue(v any, depth int) any {
	if depth > maxDepth {
		return tooDeep
	}
	switch v := v.(type) {
	case nil, bool, json.Number,
		int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return v
	case string:
		return truncate(v)
	case map[string]any:
		if v == nil {
			return nil
		}
		return redactMap(v, depth)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = redactValue(e, depth+1)
		}
		return out
	}
	plain, ok := viaJSON(v)
	if !ok {
		return unprintable
	}
	return redactValue(plain, depth)
}

// viaJSON turns any value into maps, slices and scalars. It recovers because
// v's own MarshalJSON may panic.
func viaJSON(v any) (plain any, ok bool) {
	defer func() {
		if recover() != nil {
			plain, ok = nil, false
		}
	}()
	b, err := json.Marshal(v)
	if err != nil {
		return nil, false
	}
	return plain, json.Unmarshal(b, &plain) == nil
}

func truncate(s string) string {
	if len(s) <= maxRunes || utf8.RuneCountInString(s) <= maxRunes {
		return s
	}
	n := 0
	for i := range s {
		if n == maxRunes {
			return s[:i] + truncated
		}
		n++
	}
	return s
}

// sensitiveWords holds also the compounds that are written as one word.
var sensitiveWords = map[string]bool{
	"password": true, "passwords": true, "passwd": true, "pwd": true, "passphrase": true, "passcode": true,
	"token": true, "tokens": true, "jwt": true, "bearer": true, "cookie": true, "cookies": true,
	"secret": true, "secrets": true, "clientsecret": true,
	"key": true, "keys": true, "apikey": true, "apikeys": true, "accesskey": true, "secretkey": true, "privatekey": true,
	"auth": true, "authorization": true, "authentication": true, "oauth": true,
	"authtoken": true, "accesstoken": true, "refreshtoken": true,
	"credential": true, "credentials": true, "cred": true, "creds": true,
}

func sensitive(key string) bool {
	for _, w := range splitWords(key) {
		if sensitiveWords[w] {
			return true
		}
	}
	return false
}

// splitWords cuts a key at everything that isn't a letter, before the capital
// that begins a word, and before the last of several capitals (APIKey: api, key),
// and lowers what it finds.
func splitWords(key string) []string {
	var words []string
	runes := []rune(key)
	start := 0
	cut := func(end int) {
		if end > start {
			words = append(words, strings.ToLower(string(runes[start:end])))
		}
		start = end
	}
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			cut(i)
			start = i + 1
		case i > start && unicode.IsUpper(r) &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			cut(i)
		}
	}
	cut(len(runes))
	return words
}
