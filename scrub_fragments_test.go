package resilience_test

import (
	"strings"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// scrubFragments are short texts, as are left of cut or nested ones, in which a single character decides. Each of them
// is scrubbed otherwise if one condition of a rule, or one bound, is another. They were found by a search, and promise
// nothing: they show what a change of the rules changes, and a better rule may change them. What is in ⟦ ⟧ is secret,
// and the dash in PRIVATE-KEY stands for a space.
var scrubFragments = map[string][]string{
	"quotes, flags and commands": {
		`tool "--cookie ⟦a=b; c=d⟧" x`,
		`-token"," ",,"⟦ abc123⟧`, `-token"12345`, `-token"," "," ⟦abc123⟧`, `-token -p`, `curl -u "⟦bob:⟧`,
		`curl -u '''⟦ :/⟧`, `login -p ⟦hunter2.⟧`, "mongodump \n -p hunter2", "cookie:'⟦db⟧\n", `password="\`,
		`secret:\"⟦\\"⟧`, `keypassword "42`, `<password><![CDATA[`, "mysql\"-p`⟦>1⟧", ":password>⟦a⟧\n",
		"<password><![CDATA[\ns",
	},
	"values that are none or few characters": {
		`key:⟦//=⟧`, `password=⟦%API⟧`, `Authorization:Bearer ⟦xx⟧`, `NTLM ⟦tokenTlRMTVNTUAAB⟧`,
		`key=a.Authorizationabcdef`, "token:` x", `key=keyKEY`, `PASSWORD " ABCDEFGHIJKLMNOPQRSTUVWXYZABCDE`,
		`key=éR`, `password =⟦KEY⟧`, `Bearer =⟦+.token⟧`, `key=⟦internal:54325432⟧`, "password \"`",
	},
	"what identifies something": {
		`key=⟦1a.⟧`, `key=.img_1`, `key=⟦:a1b2c3⟧`, `key="⟦ :5⟧`, `key=⟦---a716-⟧`,
		`key=⟦550e8400-key=550e8400-e29b-41d4-a716⟧`, `key=⟦550e8400-e29b-41d4-a716-716-44655440⟧`,
		`secret: ⟦!a1b2c3d4e5f6is⟧ wrong`, `token WHERE12345u.key`, `keyProxyAuthorizationmytokens=5`,
	},
	"URLs, data sources and bots": {
		`://:p @`, `://apppass@localhostkeya@`, `://@:n/@`, `://⟦:@/⟧@.`, `://⟦:⟧@/@/ `,
		`://⟦:⟧@localhost/@bjpg?`, `://⟦:⟧@/@dbx=1`, `://⟦:⟧@?@db::5432`, `:@(`, `⟦:⟧@x(`,
		`OPENSSH⟦446655440000:aBcDeFgHaBcDeFgHaBcDeFgHaBcDeFg⟧`,
		`1⟦234561223456:aBcDeFgHaBcDeFgvidedBcDeFkeFkey⟧`,
	},
	"keys in PEM": {
		"⟦-----BEGIN PRIVATE-KEY-----\r\nProc-Type: 4,ENCRYPTED⟧\nabc def",
		`-⟦-----END PRIVATE-KEY-----⟧`, `⟦-----BEGIN PRIVATE-KEY----- supported⟧`,
		`⟦-----BEGIN PRIVATE-KEY-----⟧: `, `⟦-----BEGIN PRIVATE-KEY-----⟧nTUlJRXZnSUJBRE\`,
		`⟦-----BEGIN PRIVATE-KEY-----⟧-----END `, `⟦\-----END PRIVATE-KEY-----⟧`,
		"⟦\r-----END PRIVATE-KEY-----⟧",
	},
	"names": {
		`key provided: ⟦a1b2⟧`, `token=⟦token⟧:=abc123`, `'>`, `sig:[`, `?"key":⟦value⟧`, `API password>`,
		`secret:secret:shop`, `SECRETKEY1Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7Q7:⟦//-⟧`,
		`&"Key":⟦l⟧`, `,Value=`, `name[PASSWORD value=hunter2`, `keyAPI: ⟦hunter⟧`,
	},
	"sentences": {
		`Cookie: =b://`, `key: root:hunter2`, `'Cookie: =b  'x`, `Cookie: /x`, `'Cookie: ⟦a=⟧'x`,
		`password: abc123b c`, ` ~password: hunter`, "\n password: ⟦:deadbeef⟧",
		`Authorization: password= ⟦_.5⟧`, `secret: ⟦a⟧ -`, `-AccessKey Id é`, `password: ⟦x⟧ key=`,
		"x password:\tabc",
	},
	"headers, phrases and tokens": {
		`Bearer=⟦token⟧ `, `Cookie:⟦@=b⟧ `, ` Cookie:⟦a=b ⟧`, `Cookie=⟦session=abc123⟧;`,
		`"Authorization:⟦abcaddress=x⟧"`, `NTLM `, `Bearer "hunter2`, `password "⟦\"wrong⟧`,
		`Bearer ⟦.abcde1⟧`, `Bearer ⟦~password⟧`, `Bearer ⟦/B12345⟧`, `Bearer ⟦+realmBearer⟧`,
		`⟦eyJhbGciOiJub25lIn0⟧.`, `sk-learnname`, `⟦ghp_branchmaxtokensnot⟧`,
	},
	"separators and brackets": {
		`key=_[REDACTED]`, `&key=8`, `Bearer passwordABCDEFGHIJKLMNOPQRSTUVWXYZABCDE `,
		`password =(x`, `<password>⟦=b⟧`, `token:=⟦b⟧`, `secret:⟦>v1⟧`, `Bearer:"⟦42⟧`, `key-p:⟦/token⟧`,
		`PASSWORD://⟦:⟧@`, `NoSuchKey:⟦é⟧ the`, `'token':'⟦a⟧'0`, `"token":⟦12345⟧ 4`, `Bearer=token is is`,
		`"creds"=⟦notnot⟧ found`, `token ="⟦(c⟧`, `'token': ⟦(k⟧`, `mariadb -p⟦hunter2secret⟧ ⟦shop⟧`,
		`<password>{`, "key=\r10", `key=&-[`, `key=PROJ<-`, `secret=⟦a\⟧:`,
	},
}

func TestScrubOfFragments(t *testing.T) {
	for kind, texts := range scrubFragments {
		t.Run(kind, func(t *testing.T) {
			for _, text := range texts {
				in, want := marked(strings.ReplaceAll(text, "PRIVATE-KEY", "PRIVATE KEY"))
				assert.Equal(t, want, resilience.Scrub(in), "in: %q", in)
			}
		})
	}
}

// scrubLimits are texts at both sides of what a rule looks at, at most, and of the bytes of a character.
func scrubLimits() []string {
	zs := func(n int) string { return strings.Repeat("z", n) }
	blanks := func(n int) string { return strings.Repeat(" ", n) }
	words := strings.Repeat("ab-", 100)

	return []string{
		"--" + zs(58) + "_token ⟦abc123⟧", "--" + zs(59) + "_token abc123",
		"⟦u:" + zs(254) + "⟧@/shop", "u⟦:" + zs(255) + "⟧@/shop",
		"⟦u:p⟧@" + zs(256) + "(db)", "u:p@" + zs(257) + "(db)",
		"key=⟦" + words[:255] + "1-⟧", "key=" + words[:256] + "1-",
		"password=⟦" + zs(300) + "⟧ y", "mysql -p⟦" + zs(3000) + "⟧ y",
		"password=" + strings.Repeat(`\`, 8) + `"⟦a b` + strings.Repeat(`\`, 9) + `" c⟧`,
		"password=" + strings.Repeat(`\`, 9) + `"a b`,
		"password: hunter" + blanks(8) + "is", "password: ⟦hunter⟧" + blanks(9) + "is",
		"\n" + blanks(62) + "password: ⟦hunter⟧", "\n" + blanks(63) + "password: hunter",
		"⟦123456:" + zs(64) + "⟧x",
		"⟦-----BEGIN " + zs(42) + "PRIVATE-KEY-----⟧", "-----BEGIN " + zs(43) + "PRIVATE-KEY-----",
		"primary_" + zs(130) + "_token=⟦a1b2c3⟧", "primary_" + zs(100) + "_token=a1b2c3",
		"key=aéR", "key=é" + zs(22), "key=⟦é" + zs(23) + "⟧",

		"password=⟦a⟧;\x7f", "password=\x7f", "password=⟦\x80⟧", "key=⟦ab\x7f⟧", "key=abÀ", "password=⟦a;\x80⟧", "password=⟦a;\x80b⟧",
		"password: ⟦hunter⟧ À=1", "password: ⟦hunter⟧ \x7f",

		// a token begins after an escape, not after any letter
		`\n⟦ghp_` + zs(16) + `⟧`, `nghp_` + zs(16), `%20⟦ghp_` + zs(16) + `⟧`, `%2ghp_` + zs(16),
	}
}

func TestScrubAtItsLimits(t *testing.T) {
	for _, text := range scrubLimits() {
		in, want := marked(strings.ReplaceAll(text, "PRIVATE-KEY", "PRIVATE KEY"))
		assert.Equal(t, want, resilience.Scrub(in), "in: %q", in)
	}
}
