package resilience_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// A private key whose last line is there is hidden as a whole, whatever a tool has put before its lines.
func TestScrubHidesPrivateKeysWhoseLinesAreMarked(t *testing.T) {
	begin, end := "-----BEGIN RSA PRIVATE"+" KEY-----", "-----END RSA PRIVATE"+" KEY-----"
	secret := strings.Repeat("MIIEvQIBADANBgkq", 4)
	plain := []string{begin, secret, secret, "Q0FGRQ==", end}
	encrypted := []string{begin, "Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-256-CBC,0A1B", "", secret, "Q0FGRQ==", end}
	number := func(format string) string {
		var all []string
		for i, line := range plain {
			all = append(all, fmt.Sprintf(format, i+1, line))
		}
		return strings.Join(all, "\n")
	}
	for name, text := range map[string]string{
		"encrypted, indented":    "    " + strings.Join(encrypted, "\n    "),
		"encrypted, in one line": strings.Join(encrypted, " "),
		"numbered":               number("%d:%s"),
		"in an excerpt":          number("  %2d | %s"),
		"quoted":                 fmt.Sprintf("%q", plain),
		"in JSON":                `["` + strings.Join(plain, `","`) + `"]`,
		"in a diff":              "-" + strings.Join(plain, "\n-"),
	} {
		got := resilience.Scrub("invalid: " + text + " (line 3)")
		assert.NotContains(t, got, secret[:16], name)
		assert.Contains(t, got, "invalid: ", name)
		assert.Contains(t, got, "(line 3)", name)
	}

	two := begin + "\nfirst:\n" + begin + "\n" + secret + "\n" + end + " kept " + end
	assert.Contains(t, resilience.Scrub(two), "first:")
	assert.Contains(t, resilience.Scrub(two), "kept")
	far := begin + "\n- " + strings.Repeat("word ", 4_000) + end
	assert.Contains(t, resilience.Scrub(far), "word")
}
