package resilience

import (
	"strings"
	"unicode/utf8"
)

// Scrub returns text without the secrets that it recognizes, each of which becomes
// "[REDACTED]". It is for the texts of errors, before an agent reads them. It recognizes:
//
//   - user and password in URLs (https://user:pass@host) and in DSNs (user:pass@tcp(host));
//   - the values of sensitive names: name=value, name: value, "name":"value" (also escaped JSON in
//     a string), --name value, <name>value</name> (also with attributes), "name":"NAME","value":"…", headers, and
//     parameters of queries, with the same names as Redact, and with signatures; and the short
//     flags of well-known commands, as in mysql -phunter2;
//   - what follows Bearer, Basic, IDENTIFIED BY and the like;
//   - private keys in PEM, also if they are cut off;
//   - JSON Web Tokens, and the tokens of well-known services that have a typical beginning
//     (AWS, Azure, GitHub, GitLab, Google, OpenAI, Slack, Stripe, Vault and others).
//
// What helps an agent stays: hosts, ports, paths, users without a password, identifiers,
// numbers and prose. "invalid token: expired" isn't changed, nor is a name that only describes a
// secret, such as token_type or key_id. After a name with a colon and a space, Scrub judges by
// the look of a value whether it is a secret.
//
// A secret isn't recognized if it has an innocent name or none, and no typical shape; if it
// reads like prose in the middle of a sentence ("the password hunter is wrong"); if it is
// encoded (percent-encoded names, base64 of JSON); or in part, if it contains an unquoted space or
// separator. Scrub lowers a risk; it is no permission to put secrets into errors.
//
// The whole text is scanned, however long it is, in linear time: twice if it has a secret, and at
// most eight times, until nothing is found. Valid UTF-8 stays valid, and scrubbing a text again
// doesn't change it, unless the text was made for that. A text without secrets is returned as it is, without
// an allocation. Scrub is safe for concurrent use.
func Scrub(text string) string {
	for range maxPasses {
		scrubbed := scrubOnce(text)
		if scrubbed == text {
			break
		}
		text = scrubbed
	}
	return text
}

// maxPasses bounds how often Scrub looks again, because what is left may read differently once a
// secret beside it is gone. The second pass usually finds nothing.
const maxPasses = 8

func scrubOnce(text string) string {
	var out strings.Builder
	done := 0  // where the part of text begins that isn't in out yet
	floor := 0 // where the last secret ends

	for i := 0; i < len(text); {
		from, to := secretAt(text, floor, i)
		if from == to {
			i++
			continue
		}
		floor, i = to, to
		if text[from:to] != redacted {
			out.WriteString(text[done:from])
			out.WriteString(redacted)
			done = to
		}
	}

	if done == 0 {
		return text
	}
	out.WriteString(text[done:])
	return out.String()
}

// A rule recognizes secrets of one form.
type rule struct {
	// at has the bytes at which the rule looks.
	at string

	// find returns where a secret begins and ends that is recognized by text[i], or an empty
	// range. The secret may begin before i, but not before floor. To stay linear, find must not
	// look further than a constant length beyond what it returns.
	find func(text string, floor, i int) (from, to int)
}

// rules are tried in this order. The first one that finds a secret wins.
var rules = []rule{
	{"-", privateKey},               // -----BEGIN PRIVATE KEY-----
	{"-", flag},                     // --password hunter2
	{"-", shortFlag},                // mysql -phunter2
	{":", userinfo},                 // https://user:hunter2@host
	{"@", dataSource},               // user:hunter2@tcp(host)
	{":=>", named},                  // password=hunter2, "password":"hunter2", password: hunter2
	{":", telegramToken},            // 123456:AAF…, a bot's
	{lettersOf(phrasesAt), phrased}, // Bearer abc123
	{lettersOf(shapesAt), shaped},   // ghp_…
}

// rulesAt has the rules by the byte at which they look.
var rulesAt = func() (at [256][]rule) {
	for _, r := range rules {
		for i := range len(r.at) {
			at[r.at[i]] = append(at[r.at[i]], r)
		}
	}
	return at
}()

func secretAt(text string, floor, i int) (from, to int) {
	for _, r := range rulesAt[text[i]] {
		if from, to = r.find(text, floor, i); from < to {
			return from, to
		}
	}
	return i, i
}

// maxBehind bounds how far a rule looks from where it stands, for what is short in practice.
const maxBehind = 256

// userinfo finds user:password@ after ://, also if the password has an @, and if it has a slash, a
// question mark or a number sign and isn't a port. A user without a password stays, unless it is
// long enough for a token.
func userinfo(text string, _, i int) (from, to int) {
	from = i + len("://")
	switch {
	case strings.HasPrefix(text[i:], "://"):
	case strings.HasPrefix(text[i:], `:\/\/`): // in JSON as PHP writes it
		from = i + len(`:\/\/`)
	default:
		return 0, 0
	}

	if at(text, from) == '[' { // an address of IPv6
		return 0, 0
	}
	end := from + span(text[from:], func(c byte) bool { return strings.IndexByte(" \t\r\n\"'`<>/?#\\", c) < 0 })
	if n := strings.LastIndexByte(text[from:end], '@'); n >= 0 {
		isToken := n >= 20 && span(text[from:], isWordByte) == n
		if isToken || strings.Contains(text[from:from+n], ":") {
			return from, endOfPassword(text, from+n, end)
		}
		return 0, 0
	}

	user, rest, hasPassword := strings.Cut(text[from:end], ":")
	if !hasPassword || user == redacted || isPort(rest) {
		return 0, 0
	}
	if n := strings.IndexByte(restOfURL(text, end), '@'); n >= 0 {
		return from, end + n
	}
	return 0, 0
}

// endOfPassword returns the end of a password that ends at an @, unless that and a slash belong to it. Then no
// host is between them, but one is after the next @.
func endOfPassword(text string, found, slash int) int {
	if isHost(text[found+1 : slash]) {
		return found
	}

	rest := restOfURL(text, slash)
	next := strings.IndexByte(rest, '@')
	if next < 0 {
		return found
	}
	host := rest[next+1:]
	name := span(host, isDotted)
	end := at(host, name)
	if name > 0 && (end == '/' || end == '?' || end == ':' && isDigit(at(host, name+1))) || isHost(host[:name]) {
		return slash + next
	}
	return found
}

// isHost reports whether a name looks like that of a host, with or without a port, and isn't a word.
func isHost(s string) bool { return s == "localhost" || strings.ContainsAny(s, ".:[") }

// restOfURL returns what may belong to a URL from i on.
func restOfURL(text string, i int) string {
	near := text[i:min(len(text), i+maxBehind)]
	return near[:span(near, func(c byte) bool { return strings.IndexByte(" \t\r\n\"'`<>", c) < 0 })]
}

// isPort reports whether what follows a host and a colon is a port.
func isPort(s string) bool { return len(s) <= len("65535") && span(s, isDigit) == len(s) }

// dataSource finds user:password in the form of MySQL's driver in Go, whose network may be left out.
func dataSource(text string, floor, i int) (from, to int) {
	network := i + 1 + span(text[i+1:min(len(text), i+1+maxBehind)], isLower)
	named := network > i+1 && at(text, network) == '('
	if !named && !(at(text, i+1) == '/' && isWordByte(at(text, i+2))) {
		return 0, 0
	}

	floor = max(floor, i-maxBehind)
	from = floor + strings.LastIndexAny(text[floor:i], " \t\r\n\"'`") + 1
	for from < i && !utf8.RuneStart(text[from]) { // where there is no blank so near
		from++
	}
	user, _, ok := strings.Cut(text[from:i], ":")
	if !ok {
		return 0, 0
	}
	return from + strings.LastIndexByte(user, '=') + 1, i
}

// privateKey finds a key in PEM, with real or escaped ends of lines. It may lack its end or its
// beginning.
func privateKey(text string, floor, i int) (from, to int) {
	begins := strings.HasPrefix(text[i:], "-----BEGIN ")
	if !begins && !strings.HasPrefix(text[i:], "-----END ") {
		return 0, 0
	}
	body := afterDashes(text, i+len("-----"))
	if body < 0 || !strings.Contains(text[i:body], "PRIVATE KEY") {
		return 0, 0
	}
	if !begins {
		from = i
		for from > floor && isBase64Line(text[from-1]) {
			from--
		}
		return from, body
	}

	if to = endOfKey(text, body); to > 0 {
		return i, to
	}

	to = body
	for { // Proc-Type: 4,ENCRYPTED
		line := to + span(text[to:], func(c byte) bool { return strings.IndexByte("\r\n\\nr", c) >= 0 })
		colon := line + span(text[line:], func(c byte) bool { return isLetter(c) || c == '-' })
		if colon == line || !strings.HasPrefix(text[colon:], ": ") {
			break
		}
		to = colon + span(text[colon:], func(c byte) bool { return c != '\n' && c != '\\' })
	}
	for {
		line := to + span(text[to:], func(c byte) bool { return strings.IndexByte(" \t\r\n\\", c) >= 0 })
		end := line + span(text[line:], isBase64)
		switch {
		case strings.HasPrefix(text[line:], "-----END "):
			return i, max(line, afterDashes(text, line+len("-----")))
		case end == line, end-line < 16 && end < len(text) && !strings.HasPrefix(strings.TrimLeft(text[end:],
			" \t\r\nn\\"), "-----END "):
			return i, to // it was cut off
		}
		to = end
	}
}

// maxKey is how long a private key may be, with numbers, quotes or other marks before its lines.
const maxKey = 16 << 10

// endOfKey returns where a private key is over whose first line ends at i, whatever stands before its lines, or -1
// if it was cut off.
func endOfKey(text string, i int) int {
	near := text[i:min(len(text), i+maxKey)]
	end := strings.Index(near, "-----END ")
	if end < 0 || strings.Contains(near[:end], "-----BEGIN ") {
		return -1
	}
	to := afterDashes(text, i+end+len("-----"))
	if to < 0 || !strings.Contains(text[i+end:to], "PRIVATE KEY") {
		return -1
	}
	return to
}

func isBase64Line(c byte) bool {
	return isBase64(c) || c == '\r' || c == '\n' || c == '\\'
}

// afterDashes returns the end of a line -----BEGIN or -----END that continues at i, or -1.
func afterDashes(text string, i int) int {
	near := text[i:min(len(text), i+64)]
	if end := strings.Index(near, "-----"); end >= 0 {
		return i + end + len("-----")
	}
	return -1
}
