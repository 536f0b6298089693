package resilience_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Tokens are put together here, so that no scanner takes them for real ones.
var (
	letters = strings.Repeat("aB3dE6gH9", 5)
	upper   = strings.Repeat("Q7W", 16)[:16]
	jwt     = "ey" + "JhbGciOiJub25lIn0." + "ey" + "JzdWIiOiJib2IifQ." + letters[:20]
	ghp     = "gh" + "p_" + letters[:36]
	akia    = "AK" + "IA" + upper
	pemBody = strings.Repeat("MIIEvQIBADANBgkq", 4)
	pem     = dashes("BEGIN", "RSA PRIVATE") + "\n" + pemBody + "\n" + pemBody + "\nab==\n" + dashes("END",
		"RSA PRIVATE")
)

func dashes(word, kind string) string { return "-----" + word + " " + kind + " KEY-----" }

// In the texts of scrubTexts, what is in ⟦ ⟧ is secret, and everything else has to stay.
func marked(text string) (in, want string) {
	var in2, want2 strings.Builder
	for rest := text; ; {
		before, after, ok := strings.Cut(rest, "⟦")
		in2.WriteString(before)
		want2.WriteString(before)
		if !ok {
			return in2.String(), want2.String()
		}
		secret, after, _ := strings.Cut(after, "⟧")
		in2.WriteString(secret)
		want2.WriteString("[REDACTED]")
		rest = after
	}
}

func TestScrub(t *testing.T) {
	for kind, texts := range scrubTexts() {
		t.Run(kind, func(t *testing.T) {
			for _, text := range texts {
				in, want := marked(text)
				got := resilience.Scrub(in)
				assert.Equal(t, want, got, "in: %s", in)
				assert.Equal(t, got, resilience.Scrub(got), "a second time")
			}
		})
	}
}

func TestScrubReplacesEverySecretOfALongText(t *testing.T) {
	line := "password=" + letters + " at 10.0.0.7\n"
	got := resilience.Scrub(strings.Repeat(line, 10_000))
	assert.Equal(t, strings.Repeat("password=[REDACTED] at 10.0.0.7\n", 10_000), got)
	assert.Equal(t, "token=[REDACTED]", resilience.Scrub("token="+strings.Repeat("a1", 50_000)), "one long secret")
}

func TestScrubAllocatesNothingForACleanText(t *testing.T) {
	for kind, texts := range scrubTexts() {
		for _, text := range texts {
			if strings.Contains(text, "⟦") {
				continue
			}
			allocs := testing.AllocsPerRun(10, func() { _ = resilience.Scrub(text) })
			assert.Zero(t, allocs, "%s: %s", kind, text)
		}
	}
}

func BenchmarkScrub(b *testing.B) {
	for name, text := range map[string]string{
		"clean": strings.Repeat(`Get "https://db.internal:443/x?page=2": key: not found (status 404), token `+
			`expired. `, 100),
		"secret": strings.Repeat(`Get "https://bob:hunter2@db.internal/x?token=abc": password=hunter2 is wrong, `+
			`status 401. `, 100),
		"worst": strings.Repeat("key:a/", 1400),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				resilience.Scrub(text)
			}
		})
	}
}

func FuzzScrub(f *testing.F) {
	pieces := []string{
		" ", "\n", "\\n", "\\", "\"", "\\\"", "'", "`", ":", ": ", "=", " = ", "=>", ":=", ",", ", ", ";", "&",
		"?", "@", "@tcp(", "(", ")",
		"[", "]", "{", "}", "<", ">", "</", "://", "/", ".", "-", "--", "$", "*", "%", "xxx", "é", "\xff",
		"key", "password", "token", "api_key", "auth", "Authorization", "cookie", "sig", "max_tokens", "data",
		"provided", "API", "user",
		"Bearer ", "Basic ", "PASSWORD ", "expired", "not found", "hunter2", "Hunter", "42", "host:80",
		"a/b.txt", "[REDACTED]",
		"123456789", letters, jwt, ghp, akia, pem, pem[:80], pem[60:], "sk-SECRET-123", "hooks.slack.com/services/",
	}
	places := []string{
		"password=%s", "password = %s", "api_key: %s", `"token":"%s"`, `{\"token\":\"%s\"}`, `token="%s"`,
		"--secret %s", "--secret=%s",
		"https://bob:%s@example.com/x", "https://example.com/?a=b&token=%s&c=d", "bob:%s@tcp(db:3306)/x",
		"AccountKey=%s;x=y",
		"Authorization: Bearer %s", "Authorization: Basic %s", "Cookie: a=%s; b=c", "<Password>%s</Password>",
		"IDENTIFIED BY '%s'", "gh" + "p_%s" + letters[:16], "s" + "k-%s" + letters, "Bearer %s" + letters,
	}
	for kind, texts := range scrubTexts() {
		for i, text := range texts {
			in, _ := marked(text)
			f.Add(in, []byte(kind), "hunter2", uint8(i))
		}
	}

	f.Fuzz(func(t *testing.T, text string, order []byte, secret string, place uint8) {
		var b strings.Builder
		b.WriteString(text)
		for _, p := range order {
			b.WriteString(pieces[int(p)%len(pieces)])
		}
		before := b.String()
		requireScrubbed(t, before)

		// What the pieces swallow or leave open ends with the line.
		secret = "x9" + strings.Map(func(r rune) rune {
			if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", r) {
				return r
			}
			return -1
		}, secret) + "Z7"
		if strings.Contains(before, secret) {
			t.Skip("not secret")
		}
		line := fmt.Sprintf(places[int(place)%len(places)], secret)
		got := requireScrubbed(t, before+"\n"+line+"\n"+text)
		require.NotContains(t, got, secret)
	})
}

func requireScrubbed(t *testing.T, text string) string {
	t.Helper()
	got := resilience.Scrub(text)
	require.Equal(t, got, resilience.Scrub(got), "a second time; at first: %q", text)
	require.True(t, utf8.ValidString(got) || !utf8.ValidString(text), "UTF-8")
	return got
}
