package resilience

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Scrub returns the text of an error with "[REDACTED]" in place of the secrets that it recognizes: the headers
// Authorization, Proxy-Authorization, Cookie and Set-Cookie; user and password in URLs and DSNs; the values of names
// that are sensitive as for [Redact]; webhook URLs, JSON Web Tokens, private keys in PEM, and tokens of well-known
// services. A secret with an innocent name and no typical shape stays.
func Scrub(text string) string {
	for range 6 { // a text may read differently once a secret in it is gone
		scrubbed := scrubOnce(text)
		if scrubbed == text {
			return text
		}
		text = scrubbed
	}
	return redacted // the text was made to need more passes
}

// Scrub returns text scrubbed by the function [Scrub], then by Config.Scrub.
func (g *Guard) Scrub(text string) (scrubbed string) {
	text = Scrub(text)
	if g.cfg.Scrub == nil {
		return text
	}
	defer func() { _ = recover() }()
	scrubbed = redacted // if it panics
	return g.cfg.Scrub(text)
}

// scrubbed returns e, or a copy of it, without secrets in what its author has written for agents.
func (g *Guard) scrubbed(e *Error) *Error {
	message, suggestion := g.Scrub(e.Message), g.Scrub(e.Suggestion)
	if message == e.Message && suggestion == e.Suggestion {
		return e
	}
	e = e.clone()
	e.Message, e.Suggestion = message, suggestion
	return e
}

// A shape is a form in which secrets are written. Its expressions are only tried on texts that have one of needs, in
// any case, since they are slow unless they begin with a literal. The function returns where the secret in a match
// begins and ends. The two are equal if it is none.
type shape struct {
	needs  string
	exprs  []*regexp.Regexp
	secret func(text string, match []int) []int
}

const (
	user     = "[^\\s/?#:@\"'`=<>\\[\\]\\\\(),]*:" // of user:password
	noPort   = `\d{0,5}[^\d\s/?#:@"'<>,;)}\]]`     // the beginning of a password
	pemBegin = `-----BEGIN[^-\n]*PRIVATE\x20KEY[^-\n]*-----`
	pemEnd   = `-----END[^-\n]*PRIVATE\x20KEY[^-\n]*-----`
)

var shapes = []shape{
	// The rest of a header ends with the line, or at the quote or bracket around it.
	{"authorization cookie", each("", `(?i)'[\w-]*(?:authorization|cookie)\s*:\s*([^'\r\n]+)|(?:authorization|cookie)`+
		"\\\\*[\"'`]?[\\x20\\t]*[:=][\\x20\\t]*"+`(?:\\+"([^"\\\r\n]+)|"((?:\\.|[^"\\\r\n])+)|'([^'\r\n]+)|`+
		`(\[[^\]\r\n]*\]?)|([^"'\[\s\\](?:=\\*"[^"\r\n]*"|\\[^nr"\r\n]|[^"\\\r\n])*))`), group},
	{"bearer", each("", `(?i:bearer)\s+([A-Za-z]{25,}|[A-Za-z_]*(?:[\d+/~$%-]|[.:]\w)[^\s"'<>,;)\]}]*)`), group},
	{"", each(`\s+([A-Za-z]*(?:[a-z][A-Z]|[0-9+/])[A-Za-z0-9+/]*=*)`, "Basic Negotiate NTLM PLAIN"), group},
	{"identified with", each("", `(?i)(?:identified\sby|with\s(?:encrypted\s)?password)\s+['"]([^'"\n]+)`), group},

	// URLs and DSNs. A host, or url.Parse's error, must follow a password with characters that otherwise end it.
	{"@", each("", `:\\?/\\?/([\w-]{20,}|`+user+`[^\s/?#"'<>\\]*)@ :thin:([^\s/@]+/[^\s@]+)@
		://(`+user+`(?:[/?#]|`+noPort+`[^\s/?#@"'<>]*[/?#]|\d+[?#]|\d{6,}/)[^\s"'<>]*[^\s"'<>/])@
		://(`+user+`(?:`+noPort+`|\d{6})(?:[^\n@:]|:[^\n@/]|:/[^\n@/])*(?:@[^\s"'@]*)*[^\n@/])@[\w.-]+(?::\d|[^\w.:-]|$)
		[a-z]*(?:sql|postgres|redis|amqp|mongodb)\w*://(`+user+`\d+/[^\s"'<>]*[^\s"'<>/])@[\w.-]+:\d`), group},
	{"invalid", each("", `://`+user+`((?:\\.|[^"\\\n@])*)":\x20invalid\x20port
		invalid\x20(?:port|URL\x20escape)\x20"((?:\\.|[^"\\\n])*)"`), group},
	{"@tcp @unix @cloudsql @/", each("", `(`+user+`[^\s/"'][^\s"']*)@/\w
		["'=](`+user+`[^\s/"](?:\\.|[^\n"\\])*)@\w+\( (`+user+`[^\s/"'][^\s"']*(?:\x20[^\s"':]+){0,3})@\w+\(`), group},
	{"-u --user --proxy-user", each(`([A-Za-z][^\s"':/=]*:[^\s"'/][^\s"']*)`,
		`(?:^|[\s"'(\[,])(?:-[uU]|--(?:proxy-)?user)(?:=["']?|["']?,?\s+["']?|["'],["'])`), group},
	{"", each(`/([\w./%?&=~:-]*[\w/=-])`, `hooks\.slack(?:-gov)?\.com/\w+ hooks\.zapier\.com/hooks
		discord(?:app)?\.com/api/(?:v\d+/)?webhooks webhook\.office\.com/webhookb2 outlook\.office\.com/webhook
		logic\.azure\.com(?::443)?/workflows powerplatform\.com(?::443)?/[\w/]*flows maker\.ifttt\.com/trigger
		hook\.\w+\.make\.com feishu\.cn/open-apis/bot/v2/hook larksuite\.com/open-apis/bot/v2/hook`), group},
	{"private key", each("", pemBegin+`(?s:.*?)`+pemEnd+` (?:[A-Za-z0-9+/=]+(?:\s|\\[nr])+)*`+pemEnd+`
		`+pemBegin+`(?:(?:\s|\\[nr]|[|>"',:\d-])*[A-Za-z0-9+/=]{16,})*(?:(?:\s|\\[nr])+[A-Za-z0-9+/=]+\z)?`), group},

	// Tokens by their documented beginnings: of letters and digits, hexadecimal, with other characters, and others.
	{"", each(`[A-Za-z0-9]{16,}`, `npm_ hf_ gsk_ xai- pplx- r8_ secret_ ntn_ shp(?:at|ca|pa|ss|rt|tka)_ phx_ rnd_ BSA
		nfp_ napi_ LTAI AKCp rubygems_ CCIPAT_ lin_(?:api|oauth)_ tvly-(?:dev-|prod-)? sntryu_`), group},
	{"", each(`[0-9a-f]{32,}`, `key- dapi fc- SK AC pul- e2b_ sk_`), group},
	{"", each(`(?:\.?[\w+/=%~-]){16,}`, `gh[opsur]_ github_pat_ sk_live_ sk_test_ rk_live_ rk_test_ whsec_ eyJ
		gl(?:pat|oas|dt|rt|rtr|cbt|ptt|ft|imt|agent|soat)- xox[a-z]- xoxe\. xapp- AIza ya29\. GOCSPX- 1//0 sntrys_ sbp_
		sb_secret_ vc[piark]_ cf(?:k|ut|at)_ pypi-AgE do[opr]_v1_ ATATT3 ATCTT3 ATBB fig[dour]+_ glsa_ glc_ hv[sbr]\.
		pscale_\w+_ PMAK- NRAK- dckr_[po]at_ pcsk_ nvapi- lsv2_ CFPAT- sq0\w{3}- EAAA xkeysib- fo1_ fm[12]_ ops_ HRKU-
		apify_api_ bb_live_ dp\.(?:pt|st|ct|sa|scim|audit)\. AGE-SECRET-KEY-`), group},
	{"", each("", `sk-[\w-]*\d[\w-]* sk-[\w-]{32,} AKIA[A-Z0-9]{16,} ASIA[A-Z0-9]{16,} ABSK[\w+/=]{40,}
		GOOG1[A-Z0-9]{24,} SG\.[\w-]{16,}\.[\w-]{16,} pat[A-Za-z0-9]{14}\.[0-9a-f]{32,} pat-(?:na|eu)\d-[\w-]{32,}
		re_\w{8}_\w{16,} dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{32,} M[\w-]{22,}\.[\w-]{6}\.[\w-]{27,}`), group},
	{".atlasv1. q~ :a", each("", `\w{14}\.atlasv1\.[\w=-]{32,} \S{3}\dQ~[\w~.-]{30,}\w \d{6,12}:A[\w-]{32,}`), group},

	// Names in front of their values, in an assignment or a flag.
	{"pass pwd token secret key auth cookie jwt bearer cred appid sig", each("",
		"((?:(?i:api|access|secret)\\x20)?[A-Za-z_][\\w.$-]*)(?:\\\\*[\"'`]\\]?|\\])?[\\x20\\t]*(?::=|=>|==?|:)"+
			"[\\x20\\t]*\n(?:^|[\\s\"'`(\\[,])--?([A-Za-z][\\w-]*)(?:[\\x20\\t]+|[\"'`],[\\x20\\t]*)"), valueOf},
}

// each returns an expression for each of several beginnings.
func each(rest, beginnings string) (all []*regexp.Regexp) {
	for beginning := range strings.FieldsSeq(beginnings) {
		all = append(all, re(beginning+rest))
	}
	return all
}

var (
	re     = regexp.MustCompile
	inWord = re(`[A-Za-z0-9][A-Za-z]$|\d\d$`)
	escape = re(`(?:\\[nrt]|%[0-9A-Fa-f]{2}).$`)
	// value is in quotes or in brackets, or ends at a blank. Without quotes, it also ends where another pair begins.
	value = re("^(?:\\\\+[\"']([^\"'\\\\\n]*)|\"((?:\\\\.|[^\"\\\\\n])*)|'((?:\\\\.|[^'\\\\\n])*)|`([^`\n]*)|" +
		"(\\[[^\\]\n]*\\]?)|([^\\s\"'`\\[{<\\\\](?:[^\\s\"`\\\\<]|\\\\[^nrtu\"'\\s])*)|)")
	valueEnd = re(`[,;&|()\[\]{}]+['"]?[\w.$-]+['"]?[=:]|[)\]}'",;:.]+$`)
	isWord   = re(`^(?:[A-Z]?[a-z]{1,24}|[A-Z]{1,24})(?:[-_'][a-z]+)*(?:[.:!?]*|=.*)$`)
	prose    = re(`^[:,]?[ \t]+[a-z]+(?:[\s.,;!?]|$)`)
	harmless = re(`^(?:(?i:nil|null|none|true|false|yes|no|undefined|empty|string|int|missing|required|invalid|` +
		`expired|revoked|failed|denied|incorrect|wrong|mismatch|unknown|rejected|bearer|basic|[*x.•#]{3,}|%\w|` +
		`(?:\w+\.)+\w*(?:token|password|secret|key))|\$[A-Z_][A-Z0-9_]*|\$\d+|\$?\{.*|\[\]?|)$|` + // and paths:
		`^(?:~|\.{1,2}|[A-Za-z]:)[/\\]|^/(?:etc|home|usr|var|run|root|tmp|opt|mnt|srv|app|data|proc|dev|Users)/`)
	opaque  = re(`^[\w+/=~-]{12,}$`)
	numbers = re(`^[\d.,:\s\[\]-]+$`)
	// weak names are often those of something else: the key of a map, a token of a parser, a test that passes.
	weak = re(`^(?i:keys?|.*tokens.*|token|auth\w*|pass|pwd|secrets?|jwt|bearer|cred(?:ential)?s?|oauth|sig\w*)\d*$`)
)

func scrubOnce(text string) string {
	lower := strings.ToLower(text)
	var found [][]int
	for _, s := range shapes {
		for i, at := range s.find(text, lower) {
			found = append(found, at)
			if i < 16 && strings.HasSuffix(text[:at[0]], "/") {
				found = append(found, echoes(text, text[at[0]:at[1]])...)
			}
		}
	}
	slices.SortFunc(found, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })

	var out strings.Builder
	done := 0
	for _, at := range found {
		if at[0] == at[1] || strings.HasPrefix(text[at[0]:], redacted) {
			continue
		}
		if at[0] > done || out.Len() == 0 {
			out.WriteString(text[done:at[0]] + redacted)
		}
		done = max(done, at[1])
	}
	return out.String() + text[done:]
}

// find returns where text has secrets of a shape.
func (s shape) find(text, lower string) (found [][]int) {
	isIn := func(need string) bool { return strings.Contains(lower, need) }
	if s.needs != "" && !slices.ContainsFunc(strings.Fields(s.needs), isIn) {
		return nil
	}

	for _, e := range s.exprs {
		done := 0
		for _, m := range e.FindAllStringSubmatchIndex(text, -1) {
			near := text[max(0, m[0]-3) : m[0]+1]
			if m[0] >= done && (!inWord.MatchString(near) || escape.MatchString(near)) {
				found = append(found, s.secret(text, m))
				done = found[len(found)-1][1]
			}
		}
	}
	return found
}

// group returns the group of a match that there is, or else the whole match.
func group(_ string, match []int) []int {
	for i := 2; i < len(match); i += 2 {
		if match[i] >= 0 {
			return match[i : i+2]
		}
	}
	return match[:2]
}

// echoes finds the password of a URL again: all of it or, in quotes, the beginning, which url.Parse takes for a port.
func echoes(text, userinfo string) (found [][]int) {
	_, password, _ := strings.Cut(userinfo, ":")
	if isWord.MatchString(password) || len(password) > 256 {
		return nil
	}

	isQuote := func(i int) bool { return i < len(text) && strings.IndexByte("\"'`", text[i]) >= 0 }
	for i := range len(text) {
		from := len(text) - len(strings.TrimPrefix(text[i+1:], ":"))
		to := from
		for to < len(text) && to-from < len(password) && text[to] == password[to-from] {
			to++
		}
		if isQuote(i) && isQuote(to) || to-from >= 6 && to-from == len(password) {
			found = append(found, []int{from, to})
		}
	}
	return found
}

// valueOf returns the value behind a match, whose group is a name.
func valueOf(text string, match []int) []int {
	name, before, between := text[match[2]:match[3]], text[max(0, match[2]-1):match[2]], text[match[3]:match[1]]
	isQuery := before == "?" || before == "&"
	isPart := between == ":" && (before == "/" || before == ":") // of a URL, of an ARN
	from := match[1]
	if isPart || !isSecretName(name) {
		return []int{from, from}
	}

	at := group("", value.FindStringSubmatchIndex(text[from:]))
	v := text[from+at[0] : from+at[1]]
	if end := valueEnd.FindStringIndex(v); end != nil && at[0] == 0 && v[0] != '[' {
		v = v[:end[0]]
	}
	from += at[0]
	to := from + len(v)
	if isQuery && !harmless.MatchString(v) || isSecretValue(name, v, between, text[to:]) {
		return []int{from, to}
	}
	return []int{to, to}
}

// isSecretValue judges a value by its name, by what is between them, and by what follows.
func isSecretValue(name, value, between, rest string) bool {
	isWeak, isNumber := weak.MatchString(name), numbers.MatchString(value)
	isMixed := !isNumber && strings.ContainsAny(value, "0123456789")

	switch {
	case harmless.MatchString(value), isWeak && value[0] == '/', isNumber && (isWeak || between == ":"):
		return false // a line and a port are numbers, too
	case strings.EqualFold(strings.TrimSuffix(name, "s"), "key"):
		return isMixed && opaque.MatchString(value) && strings.ToLower(value) != value // no hash
	case isWeak && strings.Trim(between, " \t") == ":":
		return name != "PASS" && isMixed && len(value) >= 6 && (opaque.MatchString(value) || !prose.MatchString(rest))
	case strings.ContainsAny(between, "=>"):
		return true
	}
	isProse := isWord.MatchString(value) && prose.MatchString(rest) || len(value) < 6 && strings.HasPrefix(rest, ": ")
	return !isProse && (strings.Contains(between, ":") || value[0] != '-')
}
