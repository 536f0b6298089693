package resilience

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
)

const (
	redacted    = "[REDACTED]"
	truncated   = "...[truncated]"
	tooDeep     = "[too deep]"
	unprintable = "[unprintable]"
	maxRunes    = 200
	maxDepth    = 32
)

// Redact returns a deep copy of args that is fit for a log. The value of a sensitive key becomes "[REDACTED]". A key is
// sensitive if one of its words is password, token, secret, key, auth, credential or a similar one: api_key and apiKey
// are, and keyword isn't. Strings and keys of more than 200 characters are cut, and such a key is sensitive. Values
// deeper than 32 levels are replaced by a note, and those of unknown types by their JSON.
func Redact(args map[string]any) map[string]any {
	if args == nil {
		return nil
	}
	return redactMap(args, 0)
}

func redactMap(m map[string]any, depth int) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		key := truncate(k)
		if key != k || sensitive(k) {
			v = redacted
		}
		out[key] = redactValue(v, depth+1)
	}
	return out
}

func redactValue(v any, depth int) any {
	if depth > maxDepth {
		return tooDeep
	}

	switch v := v.(type) {
	case nil, bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return v
	case json.Number, float32, float64:
		if _, err := marshal(v); err != nil { // NaN
			return unprintable
		}
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
		for i, inner := range v {
			out[i] = redactValue(inner, depth+1)
		}
		return out
	}

	plain, err := plainJSON(v)
	if err != nil {
		return unprintable
	}
	return redactValue(plain, depth)
}

// plainJSON returns what the JSON of v holds, as maps, slices and values without a type of their own.
func plainJSON(v any) (plain any, err error) {
	text, err := marshal(v)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a float64 would change large integers
	err = decoder.Decode(&plain)
	return plain, err
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

// wordForms has two readings of a name, since a word may begin behind several capitals or with the last of them, as in
// APIkey and APIKey.
var wordForms = []*regexp.Regexp{
	regexp.MustCompile(`\p{Lu}?\p{Ll}+|\p{Lu}+`),
	regexp.MustCompile(`\p{Lu}?\p{Ll}+`),
}

// sensitiveWord matches words, and compounds that are written as one word.
var sensitiveWord = regexp.MustCompile(`^(?i:passwords?|passwd|pwd|pass|passphrase|passcode|(?:db|user|smtp)pass|` +
	`tokens?|jwt|bearer|cookies?|secrets?|keys?|apikeys?|appkey|appid|(?:auth|master|access|secret|private|account|` +
	`client|encryption|license|service|session|shared|signing|ssh|subscription)key|auth|authorization|oauth|` +
	`authentication|credentials?|creds?|sig|signature|.*(?:password|token|secret))$`)

// sensitive reports whether one of the words of a name is sensitive.
func sensitive(name string) bool {
	return slices.ContainsFunc(wordForms, func(word *regexp.Regexp) bool {
		return slices.ContainsFunc(word.FindAllString(name, -1), sensitiveWord.MatchString)
	})
}

// A name that begins or ends with such a word describes a secret, or is the one of another key.
var (
	describesFirst = regexp.MustCompile(`^(?i:primary|foreign|partition|sort|cache|object|row|public|routing|` +
		`duplicate|dup|idempotency|max|min)$`)
	describesLast = regexp.MustCompile(`^(?i:ids?|names?|files?|path|dir|type|ur[il]|endpoint|host|port|service|` +
		`server|provider|store|source|db|version|expiry|expires|ttl|age|count|limit|length|size|used|max|min|` +
		`method|mode|status|state|error|exception|code|reason|message|required|enabled|missing|invalid|valid|failed|` +
		`algorithm|format|policy|role|arn|issuer|scopes?|index|column|field|table|schema|stdin|header|user|email)$`)
)

// isSecretName reports whether the value of a name in a text is a secret.
func isSecretName(name string) bool {
	all := wordForms[0].FindAllString(name, -1)
	return sensitive(name) && !describesFirst.MatchString(all[0]) && !describesLast.MatchString(all[len(all)-1])
}
