package resilience

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	redacted    = "[REDACTED]"
	truncated   = "...[truncated]"
	tooDeep     = "[too deep]"
	tooMuch     = "[too much]"
	unprintable = "[unprintable]"
	maxRunes    = 200
	maxDepth    = 32
	maxValues   = 10_000
	maxCopied   = 4 * maxValues // values, of which many are thrown away if some structs have too many
)

// Redact returns a deep copy of args that is fit for a log or for debug output. It doesn't
// change args, and is safe for concurrent use as long as nothing else changes args meanwhile.
//
// The value of a sensitive key becomes "[REDACTED]", whatever its type and depth. A key is
// sensitive if one of its words is password, token, secret, key, auth, credential or one
// similar to these. Words are separated by camelCase, snake_case, kebab-case, dots and digits,
// so that api_key and apiKey are sensitive and keyword isn't.
//
// Strings and keys of more than 200 characters are cut to 200 and "...[truncated]", and such a key is
// sensitive. Values that aren't maps, slices, strings, numbers or booleans are replaced by their JSON,
// and those that have none, such as a NaN, by "[unprintable]".
// Values deeper than 32 levels are replaced by a note, and so is all that follows the first 10,000
// values. A nil map stays nil.
func Redact(args map[string]any) map[string]any {
	if args == nil {
		return nil
	}
	return redactMap(args, &budget{}, 0)
}

// A budget bounds the cost and the size of the copy. That of a map that contains itself twice would have
// 2^depth values.
type budget struct {
	spent  int
	copied int

	// aside calls a function that calls methods of a value, and reports whether it has come to an
	// end. Nil calls it directly. After one that has not, no further one is called.
	aside func(func()) bool
	hangs bool
}

func redactMap(m map[string]any, b *budget, depth int) map[string]any {
	out := make(map[string]any, min(len(m), maxValues))
	for k, v := range m {
		key := truncate(k)
		if key != k || sensitive(k) {
			v = redacted
		}
		out[key] = redactValue(v, b, depth+1)
		if b.spent > maxValues {
			break
		}
	}
	return out
}

func redactValue(v any, b *budget, depth int) any {
	if b.spent++; b.spent > maxValues {
		return tooMuch
	}
	if depth > maxDepth {
		return tooDeep
	}

	switch v := v.(type) {
	case nil, bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return v
	case json.Number:
		if len(v) > maxRunes {
			return truncate(string(v))
		}
		return numberOf(v)
	case float32, float64:
		return numberOf(v)
	case string:
		return truncate(v)
	case map[string]any:
		if v == nil {
			return nil
		}
		return redactMap(v, b, depth)
	case []any:
		out := make([]any, 0, min(len(v), maxValues))
		for _, e := range v {
			out = append(out, redactValue(e, b, depth+1))
			if b.spent > maxValues {
				break
			}
		}
		return out
	}

	room := min(maxValues-b.spent+1, maxCopied-b.copied)
	if room <= 0 {
		return tooMuch
	}
	shot, copied := snapshot(v, room)
	b.copied += copied
	plain, ok := b.viaJSON(shot)
	if !ok {
		return unprintable
	}
	return redactValue(plain, b, depth)
}

// numberOf returns v, unless JSON has no such number. That would cost an agent all other details, too.
func numberOf(v any) any {
	if _, err := marshal(v); err != nil {
		return unprintable
	}
	return v
}

// viaJSON is viaJSON for a value whose MarshalJSON may block.
func (b *budget) viaJSON(v any) (plain any, ok bool) {
	if b.aside == nil {
		return viaJSON(v)
	}
	if b.hangs {
		return nil, false
	}

	var result any
	var marshaled bool
	if !b.aside(func() { result, marshaled = viaJSON(v) }) {
		b.hangs = true
		return nil, false
	}
	return result, marshaled
}

// viaJSON turns any value into maps, slices and scalars.
func viaJSON(v any) (plain any, ok bool) {
	b, err := marshal(v)
	if err != nil {
		return nil, false
	}

	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber() // a float64 would change large integers
	err = decoder.Decode(&plain)
	return plain, err == nil
}

func truncate(s string) string {
	n := 0
	for i := range s {
		if n == maxRunes {
			return s[:i] + truncated
		}
		n++
	}
	return s
}

// sensitiveWords includes compounds that are written as one word. Words that end in password, token or secret are
// sensitive without it.
var sensitiveWords = map[string]bool{
	"passwords": true, "passwd": true, "pwd": true, "pass": true, "passphrase": true, "passcode": true,
	"tokens": true, "jwt": true, "bearer": true, "cookie": true, "cookies": true, "secrets": true,
	"key": true, "keys": true, "apikey": true, "apikeys": true, "accesskey": true, "secretkey": true,
	"privatekey": true,
	"auth":       true, "authorization": true, "authentication": true, "oauth": true,
	"credential": true, "credentials": true, "cred": true, "creds": true,
}

// sensitive reports whether one of the words of a key is sensitive. After several capitals, a word may begin with
// the last of them or behind it: APIKey, APIkey.
func sensitive(key string) bool {
	for key != "" {
		capitals, small := splitCapitals(key)
		if sensitiveWord(capitals) || sensitiveWord(small) {
			return true
		}
		var word string
		if word, key = nextWord(key); sensitiveWord(word) {
			return true
		}
	}
	return false
}

// splitCapitals returns several capitals at the beginning of a key, and the small letters behind them, both empty
// if it has none.
func splitCapitals(key string) (capitals, small string) {
	key = strings.TrimLeftFunc(key, func(r rune) bool { return !unicode.IsLetter(r) })
	rest := strings.TrimLeftFunc(key, unicode.IsUpper)
	capitals = key[:len(key)-len(rest)]
	small = rest[:len(rest)-len(strings.TrimLeftFunc(rest, unicode.IsLower))]
	if utf8.RuneCountInString(capitals) < 2 || small == "" {
		return "", ""
	}
	return capitals, small
}

// sensitiveWord doesn't allocate: Scrub asks it about a large part of a text.
func sensitiveWord(word string) bool {
	lower := make([]byte, 0, 64)
	for _, r := range word {
		lower = utf8.AppendRune(lower, unicode.ToLower(r))
	}
	if sensitiveWords[string(lower)] {
		return true
	}
	for _, suffix := range []string{"password", "token", "secret"} {
		if strings.HasSuffix(string(lower), suffix) {
			return true
		}
	}
	return false
}

// nextWord returns the first word of a key, and what follows it. A key is cut at everything
// that isn't a letter, before the capital that begins a word, and before the last of several
// capitals (APIKey has the words API and Key).
func nextWord(key string) (word, rest string) {
	key = strings.TrimLeftFunc(key, func(r rune) bool { return !unicode.IsLetter(r) })

	var before rune
	for i, r := range key {
		if !unicode.IsLetter(r) {
			return key[:i], key[i:]
		}
		if i > 0 && unicode.IsUpper(r) {
			after, _ := utf8.DecodeRuneInString(key[i+utf8.RuneLen(r):])
			if !unicode.IsUpper(before) || unicode.IsLower(after) {
				return key[:i], key[i:]
			}
		}
		before = r
	}
	return key, ""
}
