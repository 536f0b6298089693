package resilience

import "strings"

// A pair is a sensitive name with its value, as they stand in a text.
type pair struct {
	text  string
	floor int

	start  int    // where the name begins, without quotes
	name   string // without quotes
	quote  byte   // around the name, if any
	depth  int    // how many backslashes are before that quote, in JSON in a string
	before byte   // in front of the name and its quote
	given  bool   // The word provided is after the name.

	separator byte // one of : = > and - for --name value
	spaced    bool // There is a space around the separator, for a colon after it.

	from, to int  // the value, without quotes
	inQuotes bool // the value
}

// named finds the value of a sensitive name.
func named(text string, floor, i int) (from, to int) {
	p := pair{text: text, floor: floor, separator: text[i]}
	next := i + 1
	switch {
	case text[i] == ':' && (at(text, next) == ':' || at(text, i-1) == ':'): // std::string
		return 0, 0
	case text[i] == ':' && at(text, next) == '=', text[i] == '=' && at(text, next) == '>':
		p.separator = '='
		next++
	case text[i] == '=' && at(text, next) == '=':
		next++
	}
	if !p.findName(tagNameEnd(text, floor, i)) {
		return 0, 0
	}

	if text[i] == '>' && (p.before != '<' && p.before != ':' || at(text, next) == ' ') {
		return 0, 0 // not the tag of XML
	}
	if p.separator == '=' {
		p.spaced = at(text, i-1) == ' '
	} else if !p.given {
		p.spaced = at(text, next) == ' ' || at(text, next) == '\t'
	}
	return p.findSecret(next + span(text[next:], isBlank))
}

// maxTag bounds how long a tag can be.
const maxTag = 256

// tagNameEnd returns where the name ends before the separator at i: of a tag of XML with attributes, in front of them.
func tagNameEnd(text string, floor, i int) int {
	if text[i] != '>' || at(text, i-1) == '/' { // an empty element has no value
		return i
	}
	floor = max(floor, i-maxTag)
	begin := floor + strings.LastIndexByte(text[floor:i], '<')
	if begin < floor {
		return i
	}
	if n := strings.IndexAny(text[begin:i], " \t\r\n"); n > 0 && strings.ContainsAny(text[begin+n:i], `"'`) {
		return begin + n
	}
	return i
}

// maxName bounds how long a name can be.
const maxName = 64

// findName finds a sensitive name that ends at a separator, and reports whether there is one.
func (p *pair) findName(separator int) bool {
	floor := max(p.floor, separator-2*maxName)
	end := separator
	for end > floor && isBlank(p.text[end-1]) {
		end--
	}
	if end > floor && strings.IndexByte("\"'`", p.text[end-1]) >= 0 {
		end--
		p.quote = p.text[end]
		for end > floor && p.text[end-1] == '\\' {
			end--
			p.depth++
		}
	}
	if end > floor && p.text[end-1] == ']' { // data[token]
		end--
	}

	p.setName(floor, end)
	if strings.EqualFold(p.name, "provided") && p.start > floor { // Incorrect API key provided: abc
		p.setName(floor, p.start-1)
		p.given = true
	}
	name := p.name
	if strings.EqualFold(name, "value") {
		name = p.label(floor)
	}
	if !sensitive(name) && !(p.separator == '=' && !p.spaced && isSignature(name)) || describes(name) {
		return false
	}

	if p.start > floor && p.text[p.start-1] == ' ' { // API key
		word := pair{text: p.text}
		word.setName(floor, p.start-1)
		if qualifies.has(word.name) && name == p.name {
			p.start, name = word.start, p.text[word.start:p.start+len(name)]
		}
	}
	p.name = name

	before := p.start - 1
	quoted := before >= floor && p.text[before] == p.quote
	if p.quote != 0 && !quoted {
		p.quote = 0 // around more than the name
	}
	if quoted {
		before -= 1 + p.depth
	}
	if before >= p.floor {
		p.before = p.text[before]
	} else if p.floor > 0 {
		p.before = ']' // of what was replaced
	}
	return true
}

// label returns the name of which this pair is the value, in "name":"DB_PASSWORD","value":"hunter2", or "".
func (p *pair) label(floor int) string {
	skip := func(i int, of string) int {
		for i > floor && strings.IndexByte(of, p.text[i-1]) >= 0 {
			i--
		}
		return i
	}
	const quotes = "\"'`\\ \t"

	before := pair{text: p.text}
	before.setName(floor, skip(p.start, quotes+",;\r\n"))
	label, i := before.name, skip(before.start, quotes)
	if i <= floor || p.text[i-1] != ':' && p.text[i-1] != '=' {
		return ""
	}
	before.setName(floor, skip(i-1, quotes))
	if strings.EqualFold(before.name, "name") || strings.EqualFold(before.name, "key") {
		return label
	}
	return ""
}

func (p *pair) setName(floor, end int) {
	p.start = end
	for p.start > floor && isWordByte(p.text[p.start-1]) {
		p.start--
	}
	p.name = p.text[p.start:end]
}

// cdata begins the text of an element of XML that may hold anything.
const cdata = "<![CDATA["

// maxValue bounds how much of a value is judged.
const maxValue = 256

// findSecret returns the pair's value, which begins at i, if it is a secret.
func (p *pair) findSecret(i int) (from, to int) {
	if i >= len(p.text) {
		return 0, 0
	}
	isOne := strings.HasPrefix(p.text[i:], redacted) || strings.HasPrefix(p.text[i:], "{{")
	if c := p.text[i]; (c == '[' || c == '{') && !isOne && p.separator != '>' && !p.spacedColon() {
		if keyOnly(p.name) || at(p.text, i+1) == c+2 { // empty
			return 0, 0
		}
		return i, structureEnd(p.text, i, p.depth)
	}

	p.findValue(p.text[:min(len(p.text), i+maxValue)], i)
	if !p.isSecret(p.text[p.from:p.to]) {
		return 0, 0
	}
	p.findValue(p.text, i)
	return p.from, p.to
}

// findValue finds the value that begins at i, without its quotes.
func (p *pair) findValue(text string, i int) {
	depth := span(text[i:min(len(text), i+8)], func(c byte) bool { return c == '\\' })

	switch c := at(text, i+depth); {
	case p.separator == '>' && strings.HasPrefix(text[i:], cdata):
		p.from = i + len(cdata)
		for p.to = p.from; p.to < len(text) && text[p.to] != '\n' && !strings.HasPrefix(text[p.to:], "]]>"); {
			p.to++
		}
	case p.separator == '>':
		p.from, p.to = i, i+span(text[i:], func(c byte) bool { return c != '<' && c != '\n' })
	case c == '"' || c == '\'' || c == '`':
		p.inQuotes = true
		p.from = i + depth + 1
		p.to = quotedEnd(text, p.from, depth)
	default:
		p.from, p.to = i, unquotedEnd(text, i)
		p.skipScheme(text)
		for p.separator != '=' && p.to > p.from && text[p.to-1] == '.' { // the end of a sentence
			p.to--
		}
	}
}

// skipScheme leaves the word before the credentials: in Authorization: Bearer abc123. What has
// several parts (those of Digest, and cookies) is the value to the end of the line, or to the
// quote in front of the name.
func (p *pair) skipScheme(text string) {
	value := text[p.from:p.to]
	if schemes.has(value) && at(text, p.to) == ' ' && p.to+1 < len(text) {
		p.from = p.to + 1
		p.to = unquotedEnd(text, p.from)
		p.separator, p.spaced = ' ', false
		value = text[p.from:p.to]
	}

	header := lastWord(p.name)
	isHeader := strings.EqualFold(header, "cookie") || strings.EqualFold(header, "authorization")
	name, _, ok := strings.Cut(value, "=")
	isPair := ok && span(name, isDotted) == len(name) && strings.TrimRight(value, "=") != name
	if isHeader && isPair && p.separator != '=' {
		p.to = p.from + span(text[p.from:], func(c byte) bool {
			return c != '\n' && c != '\r' && (c != p.before || c != '"' && c != '\'')
		})
	}
}

// schemes stand before credentials.
var schemes = wordSet(`bearer basic digest negotiate ntlm token apikey key sharedkey sharedkeylite oauth plain hawk
	aws4-hmac-sha256 googlelogin geniekey splunk ssws`)

func (p *pair) spacedColon() bool { return p.separator == ':' && p.spaced && p.quote == 0 }

// quotedEnd returns the end of what is in quotes and begins at i: at the quote, if it is closed
// on its line, or else at the end of the line. Depth is how many backslashes are in front of the
// opening quote.
func quotedEnd(text string, i, depth int) int {
	quote := text[i-1]
	backslashes := 0

	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			backslashes++
			continue
		case c == '\n':
			return i
		case c == quote && depth == 0 && backslashes%2 == 0:
			return i
		case c == quote && depth > 0 && backslashes <= depth:
			return i - backslashes
		}
		backslashes = 0
	}
	return i - backslashes
}

// unquotedEnd returns the end of what is in no quotes and begins at i. A separator or a closing
// bracket only ends it if no further character of it seems to follow.
func unquotedEnd(text string, i int) int {
	open := 0 // brackets in the value, as in ${TOKEN}

	for begin := i; i < len(text); i++ {
		switch c := text[i]; {
		case isAlnum(c): // most of a text
		case isBlank(c) || c == '\n' || c == '\r':
			return i
		case c == '\\':
			next := i + span(text[i:], func(c byte) bool { return c == '\\' })
			if strings.IndexByte("nrtu\"'\x00", at(text, next)) >= 0 {
				return i
			}
			i = next - 1
		case strings.IndexByte("([{", c) >= 0 || c == '<' && i == begin:
			open++
		case open > 0 && strings.IndexByte(")]}>", c) >= 0:
			open--
		case strings.IndexByte(",;:&)]}>|<\"'`", c) >= 0 && !continues(text, i+1, c != ':'):
			return i
		}
	}
	return i
}

// continues reports whether the value goes on at i, and no other pair begins there if one can.
func continues(text string, i int, canBePair bool) bool {
	if c := at(text, i); !isAlnum(c) && c < 0x80 && (c == 0 || strings.IndexByte("!$%^*+~#@_?", c) < 0) {
		return false
	}
	if !canBePair {
		return true
	}
	name := i + span(text[i:min(len(text), i+maxName)], isDotted)
	return name == i || at(text, name) != '=' && at(text, name) != ':'
}

// structureEnd returns the end of the array or object that begins at i. If it isn't closed, the
// text was cut off, and all of the rest belongs to it.
func structureEnd(text string, i, depth int) int {
	open, backslashes, inString := 0, 0, false

	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			backslashes++
			continue
		case c == '"' && backslashes == depth:
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			open++
		case c == ']' || c == '}':
			if open--; open == 0 {
				return i + 1
			}
		}
		backslashes = 0
	}
	return i
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
