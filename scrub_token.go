package resilience

import "strings"

// A shape is what the tokens of a service look like: a beginning, and at least so many characters
// of one kind after it.
type shape struct {
	begin string
	min   int
	of    func(byte) bool

	mixed bool // There must be a digit, because the beginning isn't typical enough.
	keeps bool // The beginning is no secret.
}

var shapes = []shape{
	{begin: "eyJ", min: 16, of: isDotted}, // JSON Web Tokens, whole or in part: base64 of {"

	{begin: "AKIA", min: 16, of: isAlnum},                                     // AWS access key IDs
	{begin: "ASIA", min: 16, of: isAlnum},                                     // AWS access key IDs, temporary
	{begin: "ABSK", min: 40, of: isBase64},                                    // AWS Bedrock
	{begin: "AIza", min: 30, of: isWordByte},                                  // Google API keys
	{begin: "ya29.", min: 16, of: isDotted},                                   // Google OAuth
	{begin: "GOCSPX-", min: 16, of: isWordByte},                               // Google OAuth client secrets
	{begin: "GOOG1E", min: 24, of: isAlnum},                                   // Google Cloud Storage HMAC
	{begin: "dop_v1_", min: 20, of: isAlnum},                                  // DigitalOcean
	{begin: "doo_v1_", min: 20, of: isAlnum},                                  // DigitalOcean OAuth
	{begin: "dor_v1_", min: 20, of: isAlnum},                                  // DigitalOcean refresh tokens
	{begin: "LTAI", min: 12, of: isAlnum, mixed: true},                        // Alibaba Cloud
	{begin: "dapi", min: 32, of: isAlnum, mixed: true},                        // Databricks
	{begin: "hvs.", min: 20, of: isWordByte},                                  // HashiCorp Vault
	{begin: "hvb.", min: 20, of: isWordByte},                                  // HashiCorp Vault, batch
	{begin: "hvr.", min: 20, of: isWordByte},                                  // HashiCorp Vault, recovery
	{begin: "s.", min: 24, of: isAlnum, mixed: true},                          // HashiCorp Vault before 1.10
	{begin: "ops_eyJ", min: 16, of: isDotted},                                 // 1Password service accounts
	{begin: "AGE-SECRET-KEY-", min: 16, of: isAlnum},                          // age
	{begin: "fo1_", min: 20, of: isWordByte},                                  // Fly.io
	{begin: "fm2_", min: 20, of: isBase64},                                    // Fly.io
	{begin: "pul-", min: 32, of: isAlnum},                                     // Pulumi
	{begin: "glsa_", min: 20, of: isWordByte},                                 // Grafana service accounts
	{begin: "glc_", min: 20, of: isBase64},                                    // Grafana Cloud
	{begin: "NRAK-", min: 16, of: isAlnum},                                    // New Relic
	{begin: "sntrys_", min: 20, of: isBase64},                                 // Sentry
	{begin: "sntryu_", min: 20, of: isAlnum},                                  // Sentry
	{begin: "ghp_", min: 16, of: isAlnum},                                     // GitHub, personal
	{begin: "gho_", min: 16, of: isAlnum},                                     // GitHub, OAuth
	{begin: "ghu_", min: 16, of: isAlnum},                                     // GitHub, an app for a user
	{begin: "ghs_", min: 16, of: isDotted},                                    // GitHub, an app's installation
	{begin: "ghr_", min: 16, of: isAlnum},                                     // GitHub, refresh
	{begin: "github_pat_", min: 16, of: isWordByte},                           // GitHub, fine-grained
	{begin: "glpat-", min: 16, of: isDotted},                                  // GitLab, personal
	{begin: "gldt-", min: 16, of: isDotted},                                   // GitLab, deploy
	{begin: "glrt-", min: 16, of: isDotted},                                   // GitLab, runners
	{begin: "glcbt-", min: 16, of: isDotted},                                  // GitLab, jobs
	{begin: "glptt-", min: 16, of: isDotted},                                  // GitLab, triggers
	{begin: "ATATT3", min: 20, of: isBase64},                                  // Atlassian
	{begin: "ATBB", min: 24, of: isAlnum, mixed: true},                        // Bitbucket
	{begin: "npm_", min: 30, of: isAlnum},                                     // npm
	{begin: "pypi-", min: 40, of: isWordByte},                                 // PyPI
	{begin: "rubygems_", min: 32, of: isAlnum},                                // RubyGems
	{begin: "oy2", min: 43, of: isAlnum},                                      // NuGet
	{begin: "dckr_pat_", min: 16, of: isWordByte},                             // Docker Hub
	{begin: "dckr_oat_", min: 16, of: isWordByte},                             // Docker Hub, organizations
	{begin: "hf_", min: 20, of: isAlnum},                                      // Hugging Face
	{begin: "sk-", min: 8, of: isWordByte, mixed: true},                       // OpenAI, Anthropic and others
	{begin: "sk-", min: 32, of: isWordByte},                                   // the same without a digit
	{begin: "gsk_", min: 20, of: isAlnum},                                     // Groq
	{begin: "xai-", min: 20, of: isAlnum},                                     // xAI
	{begin: "pplx-", min: 20, of: isAlnum},                                    // Perplexity
	{begin: "r8_", min: 20, of: isAlnum},                                      // Replicate
	{begin: "nvapi-", min: 20, of: isWordByte},                                // NVIDIA
	{begin: "tvly-", min: 16, of: isWordByte},                                 // Tavily
	{begin: "lsv2_", min: 20, of: isWordByte},                                 // LangSmith
	{begin: "pcsk_", min: 20, of: isWordByte},                                 // Pinecone
	{begin: "lin_api_", min: 16, of: isAlnum},                                 // Linear
	{begin: "ntn_", min: 20, of: isAlnum},                                     // Notion
	{begin: "secret_", min: 32, of: isAlnum},                                  // Notion before 2024
	{begin: "figd_", min: 16, of: isWordByte},                                 // Figma
	{begin: "PMAK-", min: 16, of: isWordByte},                                 // Postman
	{begin: "CFPAT-", min: 16, of: isWordByte},                                // Contentful
	{begin: "phx_", min: 20, of: isAlnum},                                     // PostHog
	{begin: "dp.", min: 24, of: isDotted, mixed: true},                        // Doppler
	{begin: "sk_live_", min: 8, of: isAlnum},                                  // Stripe
	{begin: "sk_test_", min: 8, of: isAlnum},                                  // Stripe, for tests
	{begin: "rk_live_", min: 8, of: isAlnum},                                  // Stripe, restricted
	{begin: "rk_test_", min: 8, of: isAlnum},                                  // Stripe, restricted, for tests
	{begin: "whsec_", min: 16, of: isBase64},                                  // Stripe, for webhooks
	{begin: "sq0", min: 20, of: isWordByte},                                   // Square
	{begin: "EAAA", min: 50, of: isWordByte},                                  // Square
	{begin: "shpat_", min: 20, of: isAlnum},                                   // Shopify
	{begin: "shpss_", min: 20, of: isAlnum},                                   // Shopify, shared secrets
	{begin: "SG.", min: 20, of: isDotted},                                     // SendGrid
	{begin: "xkeysib-", min: 20, of: isWordByte},                              // Brevo
	{begin: "key-", min: 32, of: isAlnum, mixed: true},                        // Mailgun
	{begin: "xoxb-", min: 10, of: isWordByte},                                 // Slack, bots
	{begin: "xoxp-", min: 10, of: isWordByte},                                 // Slack, users
	{begin: "xoxa-", min: 10, of: isWordByte},                                 // Slack, apps
	{begin: "xoxr-", min: 10, of: isWordByte},                                 // Slack, refresh
	{begin: "xoxs-", min: 10, of: isWordByte},                                 // Slack, sessions
	{begin: "xoxc-", min: 10, of: isWordByte},                                 // Slack, browsers
	{begin: "xoxd-", min: 10, of: isQuery},                                    // Slack, browsers' cookies
	{begin: "xoxe.", min: 10, of: isDotted},                                   // Slack, rotating
	{begin: "xoxe-", min: 10, of: isWordByte},                                 // Slack, rotating
	{begin: "xapp-", min: 10, of: isWordByte},                                 // Slack, apps
	{begin: "hooks.slack.com/services/", min: 8, of: isPath, keeps: true},     // Slack, webhooks
	{begin: "discord.com/api/webhooks/", min: 8, of: isPath, keeps: true},     // Discord, webhooks
	{begin: "webhook.office.com/webhookb2/", min: 8, of: isPath, keeps: true}, // Teams, webhooks
}

func shaped(text string, _, i int) (from, to int) {
	if !beginsWord(text, i) {
		return 0, 0
	}
	for _, s := range shapesAt[text[i]] {
		if !strings.HasPrefix(text[i:], s.begin) {
			continue
		}

		from = i + len(s.begin)
		near := text[from:min(len(text), from+maxBehind)]
		near = near[:span(near, s.of)]
		if len(near) < s.min || s.mixed && !strings.ContainsAny(near, "0123456789") {
			continue
		}

		to = from + span(text[from:], s.of)
		for text[to-1] == '.' { // the end of a sentence
			to--
		}
		if !s.keeps {
			from = i
		}
		return from, to
	}
	return 0, 0
}

// beginsWord reports whether a token may begin at i: after what isn't a letter or a digit, or
// after an escape, as in "\nghp_" and "%20ghp_".
func beginsWord(text string, i int) bool {
	return i == 0 || !isAlnum(text[i-1]) || i >= 2 && text[i-2] == '\\' || i >= 3 && text[i-3] == '%'
}

// telegramToken finds the token of a Telegram bot: its number, a colon and 35 characters.
func telegramToken(text string, floor, i int) (from, to int) {
	from = i
	for from > max(floor, i-12) && isDigit(text[from-1]) {
		from--
	}
	to = i + 1 + span(text[i+1:min(len(text), i+1+64)], isWordByte)
	if i-from < 6 || to-i < 32 {
		return 0, 0
	}
	return from, to
}

// A phrase is what a secret without a separator follows.
type phrase struct {
	words string

	// isSecret judges what follows, either in quotes or not.
	isSecret func(value string) bool
	quoted   bool
}

var phrases = []phrase{
	{words: "Bearer ", isSecret: isCredential},    // Bearer abc123
	{words: "Basic ", isSecret: isCredential},     // Basic dXNlcjpwYXNz
	{words: "Negotiate ", isSecret: isCredential}, // Kerberos
	{words: "NTLM ", isSecret: isCredential},
	{words: "PLAIN ", isSecret: isCredential},                   // SASL, as in AUTH PLAIN AGJvYgBwdw==
	{words: "IDENTIFIED BY ", isSecret: notEmpty, quoted: true}, // SQL of MySQL and Oracle
	{words: "WITH PASSWORD ", isSecret: notEmpty, quoted: true}, // SQL of PostgreSQL
	{words: "password ", isSecret: notPlain, quoted: true},      // password "hunter2" is wrong
	{words: "api key ", isSecret: notPlain, quoted: true},       // API key "abc123" is wrong
	{words: "password ", isSecret: generated},
	{words: "api key ", isSecret: generated},
	{words: "token ", isSecret: generated},
}

func phrased(text string, _, i int) (from, to int) {
	if !beginsWord(text, i) {
		return 0, 0
	}
	for _, p := range phrasesAt[text[i]] {
		from = i + len(p.words)
		if from >= len(text) || !strings.EqualFold(text[i:from], p.words) {
			continue
		}

		isQuote := text[from] == '\'' || text[from] == '"'
		switch {
		case p.quoted && isQuote:
			from++
			to = quotedEnd(text, from, 0)
		case !p.quoted:
			to = from + span(text[from:], isToken68)
		}
		if from < to && p.isSecret(text[from:to]) {
			return from, to
		}
	}
	return 0, 0
}

func notEmpty(value string) bool { return value != "" }
func notPlain(value string) bool { return !plain(value) && !saysNothing(value) }

// isCredential reports whether a value isn't the beginning of a sentence or of parameters.
func isCredential(value string) bool {
	name, _, _ := strings.Cut(value, "=")
	return len(value) >= 6 && !plain(name)
}

var shapesAt = byFirstLetter(shapes, func(s shape) string { return s.begin[:1] })

var phrasesAt = byFirstLetter(phrases, func(p phrase) string {
	return strings.ToLower(p.words[:1]) + strings.ToUpper(p.words[:1])
})

// byFirstLetter returns the elements that can begin with a letter, by that letter.
func byFirstLetter[T any](of []T, letters func(T) string) (at [256][]T) {
	for _, e := range of {
		for _, c := range []byte(letters(e)) {
			at[c] = append(at[c], e)
		}
	}
	return at
}

func lettersOf[T any](at [256][]T) string {
	var letters []byte
	for c := range at {
		if at[c] != nil {
			letters = append(letters, byte(c))
		}
	}
	return string(letters)
}

// span returns how many bytes at the beginning of s are of one kind.
func span(s string, of func(byte) bool) int {
	for i := range len(s) {
		if !of(s[i]) {
			return i
		}
	}
	return len(s)
}

// at is text[i], or 0 outside.
func at(text string, i int) byte {
	if i < 0 || i >= len(text) {
		return 0
	}
	return text[i]
}

func isDigit(c byte) bool    { return '0' <= c && c <= '9' }
func isLower(c byte) bool    { return 'a' <= c && c <= 'z' }
func isUpper(c byte) bool    { return 'A' <= c && c <= 'Z' }
func isLetter(c byte) bool   { return isLower(c) || isUpper(c) }
func isAlnum(c byte) bool    { return isLetter(c) || isDigit(c) }
func isWordByte(c byte) bool { return isAlnum(c) || c == '_' || c == '-' }
func isDotted(c byte) bool   { return isWordByte(c) || c == '.' }
func isPath(c byte) bool     { return isDotted(c) || c == '/' }
func isBase64(c byte) bool   { return isAlnum(c) || c == '+' || c == '/' || c == '=' }
func isToken68(c byte) bool  { return isBase64(c) || isDotted(c) || c == '~' }
func isQuery(c byte) bool    { return isToken68(c) || c == '%' || c == '&' }
