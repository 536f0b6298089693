package resilience

import "strings"

// isSecret judges the value of the pair.
func (p *pair) isSecret(value string) bool {
	switch number := span(value, isDigit) == len(value); {
	case saysNothing(value):
		return false
	case number && (counts(p.name) || keyOnly(p.name)):
		return false // max_tokens=4096, tokens_per_minute=30000
	case p.separator == ':' && p.quote != 0 && !p.inQuotes && plain(value) && followedByWord(p.text, p.to):
		return false // invalid value for "auth": must be one of …
	case p.separator == ':' && !p.inQuotes && p.quote == 0 && span(value, isDigit) <= 5 &&
		!isAlnum(at(value, span(value, isDigit))) && isDigit(value[0]):
		return false // auth.go:12, token-service:8080, token: 401 Unauthorized
	case isKey(lastWord(p.name)) && strings.IndexByte("/~", value[0]) >= 0 && innocent(value):
		return false // private_key=/etc/ssl/x.pem
	case p.spacedColon():
		return p.isSecretInProse(value)
	case keyOnly(p.name) && p.before != '?' && p.before != '&':
		return !plain(value) && !innocent(value) && !strings.Contains(value, redacted)
	case isSignature(p.name):
		return len(value) >= 16
	case p.separator == ' ' || p.separator == '-':
		return !plain(value) || !followedByWord(p.text, p.to)
	case p.separator == ':' && p.quote == 0:
		return p.before != ':' && (!plain(value) || p.isFirm()) && !strings.Contains(value, redacted)
	case p.separator == '=' && p.spaced && !p.inQuotes:
		return !isExpression(value)
	}
	return true
}

// isSecretInProse judges a value after a name, a colon and a space, which may as well be the
// continuation of a sentence.
func (p *pair) isSecretInProse(value string) bool {
	ends := !followedByWord(p.text, p.to)
	alone := ends && strings.IndexByte("\x00\n\r\t{,([;\"'`-<", p.before) >= 0 || ends && p.indented()

	switch {
	case strings.Contains(value, redacted) || at(p.text, p.to) == ':':
		return false
	case plain(value) || innocent(value) || strings.Count(value, " ") >= 2:
		place := value[0] == '/' || strings.Contains(value, "://")
		return !place && (alone && !p.isProsaic() || ends && p.isFirm() && isHash(value))
	case keyOnly(p.name):
		return opaque(value)
	}
	return ends || p.isFirm() || opaque(value)
}

// indented reports whether only spaces are before the name on its line, or another separator.
func (p *pair) indented() bool {
	i := p.start - 1
	for i >= p.floor && i > p.start-maxName && isBlank(p.text[i]) {
		i--
	}
	if i < p.floor {
		return p.floor == 0
	}
	return i > p.start-maxName && strings.IndexByte("\n,;{-", p.text[i]) >= 0
}

// isFirm reports whether only a secret can be the value of the name: of password, say, or of a
// name of several words, such as api_key.
func (p *pair) isFirm() bool {
	word, rest := nextWord(p.name)
	next, _ := nextWord(rest)
	return next != "" || !prosaic.has(word) && !strings.EqualFold(word, "token") && !strings.EqualFold(word, "secret")
}

// isProsaic reports whether prose often stands after the name and a colon, as after the name of
// a package.
func (p *pair) isProsaic() bool {
	word, rest := nextWord(p.name)
	next, _ := nextWord(rest)
	return next == "" && prosaic.has(word)
}

var prosaic = wordSet(`key keys tokens secrets cookies jwt bearer auth oauth authentication authorization cred creds
	credential credentials`)

// keyOnly reports whether a name may be that of a key which identifies something, as in a map, a
// database, or S3.
func keyOnly(name string) bool {
	word, rest := nextWord(name)
	next, _ := nextWord(rest)
	return next == "" && isKey(word)
}

func isKey(word string) bool {
	return strings.EqualFold(word, "key") || strings.EqualFold(word, "keys")
}

// counts reports whether the name is that of a number of tokens.
func counts(name string) bool {
	if len(name) > 6 && strings.EqualFold(name[len(name)-6:], "tokens") {
		return true // maxtokens
	}
	for word := ""; name != ""; {
		if word, name = nextWord(name); strings.EqualFold(word, "tokens") {
			return true
		}
	}
	return false
}

// isSignature reports whether a parameter of a URL is what makes it valid.
func isSignature(name string) bool {
	last := lastWord(name)
	return strings.EqualFold(last, "sig") || strings.EqualFold(last, "signature")
}

func lastWord(name string) (last string) {
	for name != "" {
		var word string
		if word, name = nextWord(name); word != "" {
			last = word
		}
	}
	return last
}

// describes reports whether a name with a sensitive word isn't that of a secret.
func describes(name string) bool {
	first, _ := nextWord(name)
	return describing.has(lastWord(name)) || identifying.has(first) && !strings.EqualFold(first, name)
}

// describing words end a name that says something about a secret.
var describing = wordSet(`id ids name names file files filename path paths dir type types url uri endpoint host hosts
	hostname port address addr service server svc manager provider store source mechanism db database version expiry
	expires expired expiration ttl age count limit length len size usage used max min method mode scheme status state
	error errors err code reason message required enabled disabled exists missing invalid valid failed failure
	algorithm alg format policy role arn issuer realm scope scopes index column field table schema stdin header
	headers plugin module backend handler middleware client user username email domain kind class lifetime timeout
	needed present set fingerprint hint exception`)

// identifying words begin the name of a key that isn't secret.
var identifying = wordSet(`primary foreign partition sort cache object row public routing duplicate dup unique
	idempotency shard message record map sequence
	hash range`)

// qualifying words stand before a sensitive word that is the last part of a name in prose.
var qualifies = wordSet(`api access secret private account master encryption refresh auth client session`)

// A words is a set of words in lower case.
type words map[string]bool

func wordSet(list string) words {
	set := words{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// has reports whether a word is in the set, in whatever case, without an allocation.
func (w words) has(word string) bool {
	lower := make([]byte, 0, 32)
	if len(word) > cap(lower) {
		return false
	}
	for i := range len(word) {
		c := word[i]
		if isUpper(c) {
			c += 'a' - 'A'
		}
		lower = append(lower, c)
	}
	return w[string(lower)]
}

// saysNothing reports whether a value stands for another, is masked, or says what is wrong.
func saysNothing(value string) bool {
	if value == redacted || states.has(strings.TrimRight(value, ".:!")) {
		return true
	}
	if strings.Trim(value, "*xX.•#") == "" && len(value) >= 3 || value == "" {
		return true
	}
	if len(value) <= 2 && span(value, func(c byte) bool { return c < 0x80 && !isAlnum(c) }) == len(value) {
		return true // unexpected token: '}'
	}

	first, last := value[0], value[len(value)-1]
	switch first {
	case '<':
		return last == '>'
	case '$', '%', '@':
		rest := value[1:]
		return span(rest, isDigit) == len(rest) || last == '}' || len(rest) == 1 ||
			first == '$' && span(rest, func(c byte) bool { return isUpper(c) || c == '_' }) == len(rest)
	case '{':
		return strings.HasPrefix(value, "{{")
	}
	return false
}

var states = wordSet(`nil null none true false yes no undefined empty unset eof <nil> (null) n/a
	absent bad blank denied disabled error expired failed failure forbidden incorrect invalid malformed mismatch missing
	needed present rejected required revoked timeout unauthenticated unauthorized unavailable unknown unset unsupported
	wrong`)

// plain reports whether a value consists of words: letters in the usual case, and punctuation.
func plain(value string) bool {
	lower, upper := 0, 0 // letters since the last boundary

	for i := range len(value) {
		switch c := value[i]; {
		case c >= 0x80:
			lower = max(lower, 2)
		case isLower(c):
			if lower++; lower > 24 {
				return false
			}
		case isUpper(c):
			if lower == 1 {
				return false
			}
			if lower > 0 {
				lower, upper = 0, 0
			}
			upper++
		case strings.IndexByte(" _-.'/:,*()!?", c) >= 0:
			lower, upper = 0, 0
		default:
			return false
		}
	}
	return upper < 32
}

// innocent reports whether a value is a number, a time, a UUID, a hash, a path, a file, a URL, or
// a host with its port.
func innocent(value string) bool {
	switch {
	case span(value, func(c byte) bool { return isDigit(c) || strings.IndexByte(".,:+-TZ%/", c) >= 0 }) == len(value):
		return true
	case isHash(value):
		return true
	case strings.Contains(value, "://") || strings.HasPrefix(value, "sha256:"):
		return true
	}

	if strings.ContainsAny(value, "+=@$!^&") {
		return false
	}
	name := value[strings.LastIndexAny(value, `/\`)+1:]
	dot := strings.LastIndexByte(name, '.')
	isFile := dot >= 0 && len(name)-dot <= 6 && span(name[dot+1:], isLetter) > 0
	isPath := len(name) < len(value) && span(value, func(c byte) bool { return !isUpper(c) }) == len(value)
	project, number, ok := strings.Cut(value, "-") // PROJ-12
	if ok && span(project, isUpper) == len(project) && number != "" && isPort(number) {
		return true
	}
	host, port, ok := strings.Cut(value, ":")
	return isFile || isPath || ok && isPort(port) && span(host, isDotted) == len(host)
}

// isHash reports whether a value is a hash or a UUID.
func isHash(value string) bool {
	isUUID := len(value) == 36 && strings.Count(value, "-") == 4
	return (isUUID || len(value) >= 7) &&
		span(value, func(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' || isUUID && c == '-' }) == len(value)
}

// opaque reports whether a value looks generated: long, and letters mixed with digits.
func opaque(value string) bool {
	return len(value) >= 12 && !innocent(value) && strings.ContainsAny(value, "0123456789") &&
		span(value, func(c byte) bool { return isToken68(c) || strings.IndexByte("!@#$%^&*", c) >= 0 }) == len(value)
}

// generated is opaque for where even less speaks for a secret.
func generated(value string) bool {
	lower, upper := false, false
	for i := range len(value) {
		lower = lower || isLower(value[i])
		upper = upper || isUpper(value[i])
	}
	return lower && upper && opaque(value)
}

// isExpression reports whether a value is a column or a call, as in SQL and source code.
func isExpression(value string) bool {
	name := span(value, func(c byte) bool { return isLetter(c) || c == '_' || c == '.' })
	return at(value, name) == '(' || name == len(value) && strings.Contains(value, ".") && sensitive(value)
}

// followedByWord reports whether a sentence goes on at i: with a word that isn't a name.
func followedByWord(text string, i int) bool {
	i += span(text[i:min(len(text), i+8)], func(c byte) bool { return strings.IndexByte(" \t\\\"'`", c) >= 0 })
	if strings.HasPrefix(text[i:], redacted) {
		return true
	}
	near := text[i:min(len(text), i+maxName)]
	word := span(near, func(c byte) bool { return isWordByte(c) || c >= 0x80 })
	return word > 0 && near[0] != '-' && at(near, word) != '=' && at(near, word) != ':'
}
