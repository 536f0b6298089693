package resilience_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tokenShapes has what each service's tokens begin with, how many characters follow at least, and which: of letters and
// digits, and those of tokenAlphabets. A mixed token has a digit, and a webhook keeps its beginning.
const tokenShapes = `
	eyJ 16 dotted
	AKIA 16 alnum
	ASIA 16 alnum
	ABSK 40 base64
	AIza 30 word
	ya29. 16 dotted
	GOCSPX- 16 word
	GOOG1E 24 alnum
	dop_v1_ 20 alnum
	doo_v1_ 20 alnum
	dor_v1_ 20 alnum
	LTAI 12 alnum mixed
	dapi 32 alnum mixed
	hvs. 20 word
	hvb. 20 word
	hvr. 20 word
	s. 24 alnum mixed
	ops_eyJ 16 dotted
	AGE-SECRET-KEY- 16 alnum
	fo1_ 20 word
	fm2_ 20 base64
	pul- 32 alnum
	glsa_ 20 word
	glc_ 20 base64
	NRAK- 16 alnum
	sntrys_ 20 base64
	sntryu_ 20 alnum
	ghp_ 16 alnum
	gho_ 16 alnum
	ghu_ 16 alnum
	ghs_ 16 dotted
	ghr_ 16 alnum
	github_pat_ 16 word
	glpat- 16 dotted
	gldt- 16 dotted
	glrt- 16 dotted
	glcbt- 16 dotted
	glptt- 16 dotted
	ATATT3 20 base64
	ATBB 24 alnum mixed
	npm_ 30 alnum
	pypi- 40 word
	rubygems_ 32 alnum
	oy2 43 alnum
	dckr_pat_ 16 word
	dckr_oat_ 16 word
	hf_ 20 alnum
	sk- 8 word mixed
	sk- 32 word
	gsk_ 20 alnum
	xai- 20 alnum
	pplx- 20 alnum
	r8_ 20 alnum
	nvapi- 20 word
	tvly- 16 word
	lsv2_ 20 word
	pcsk_ 20 word
	lin_api_ 16 alnum
	ntn_ 20 alnum
	secret_ 32 alnum
	figd_ 16 word
	PMAK- 16 word
	CFPAT- 16 word
	phx_ 20 alnum
	dp. 24 dotted mixed
	sk_live_ 8 alnum
	sk_test_ 8 alnum
	rk_live_ 8 alnum
	rk_test_ 8 alnum
	whsec_ 16 base64
	sq0 20 word
	EAAA 50 word
	shpat_ 20 alnum
	shpss_ 20 alnum
	SG. 20 dotted
	xkeysib- 20 word
	key- 32 alnum mixed
	xoxb- 10 word
	xoxp- 10 word
	xoxa- 10 word
	xoxr- 10 word
	xoxs- 10 word
	xoxc- 10 word
	xoxd- 10 query
	xoxe. 10 dotted
	xoxe- 10 word
	xapp- 10 word
	hooks.slack.com/services/ 8 path keeps
	discord.com/api/webhooks/ 8 path keeps
	webhook.office.com/webhookb2/ 8 path keeps
`

// tokenAlphabets are the characters of a token beside letters and digits.
var tokenAlphabets = map[string]string{
	"alnum": "", "word": "_-", "dotted": "_-.", "path": "_-./", "base64": "+/=", "query": "_-.+/=~%&",
}

type tokenShape struct {
	begin, alphabet string
	least           int
	mixed, keeps    bool
}

func readTokenShapes(t *testing.T) (shapes []tokenShape) {
	t.Helper()
	for line := range strings.Lines(strings.TrimSpace(tokenShapes)) {
		var s tokenShape
		var kind string
		n, err := fmt.Sscan(line, &s.begin, &s.least, &kind)
		require.Equal(t, 3, n, "%q: %v", line, err)
		alphabet, ok := tokenAlphabets[kind]
		require.True(t, ok, line)
		s.alphabet, s.mixed, s.keeps = alphabet, strings.Contains(line, " mixed"), strings.Contains(line, " keeps")
		shapes = append(shapes, s)
	}
	return shapes
}

// token returns what follows the beginning: letters, and a digit if the shape asks for one.
func (s tokenShape) token(length int) string {
	token := strings.Repeat("aBcDeFgH", 8)[:length]
	if s.mixed {
		token = token[:length-1] + "7"
	}
	return token
}

// scrubbed is what is left of a token that is recognized.
func (s tokenShape) scrubbed() string {
	if s.keeps {
		return s.begin + "[REDACTED]"
	}
	return "[REDACTED]"
}

func TestScrubKnowsTokensByTheirShape(t *testing.T) {
	for _, s := range readTokenShapes(t) {
		t.Run(fmt.Sprint(s.begin, s.least), func(t *testing.T) {
			scrub := func(token string) string {
				text := resilience.Scrub("failed: " + s.begin + token + " ?")
				return strings.TrimSuffix(strings.TrimPrefix(text, "failed: "), " ?")
			}
			token := s.token(s.least)
			assert.Equal(t, s.scrubbed(), scrub(token))
			assert.Equal(t, s.scrubbed()+".", scrub(token+"."), "at the end of a sentence")

			short := s.token(s.least - 1)
			assert.Equal(t, s.begin+short, scrub(short), "too short for a token")
			if s.mixed {
				letters := strings.ReplaceAll(token, "7", "x")
				assert.Equal(t, s.begin+letters, scrub(letters), "without a digit")
			}
			for _, c := range "_-+/=~%&" {
				want := s.scrubbed() + string(c) + "zz"
				if strings.ContainsRune(s.alphabet, c) {
					want = s.scrubbed()
				}
				assert.Equal(t, want, scrub(token+string(c)+"zz"), "%c", c)
			}
		})
	}
}

func TestScrubKnowsTokensOnlyAtTheBeginningOfAWord(t *testing.T) {
	const token = "gho" + "_aBcDeFgHaBcDeFgH"
	for before, isToken := range map[string]bool{
		"": true, " ": true, "(": true, "_": true, "\\n": true, "%20": true, "%2f": true,
		"a": false, "7": false, "n": false, "%202": false,
	} {
		want := before + token
		if isToken {
			want = before + "[REDACTED]"
		}
		assert.Equal(t, want, resilience.Scrub(before+token), "%q", before)
	}
}
