package resilience_test

import (
	"fmt"
	"net/url"
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
	hex     = strings.Repeat("0a1b2c3d", 8)
	jwt     = "ey" + "JhbGciOiJub25lIn0." + "ey" + "JzdWIiOiJib2IifQ." + letters[:20]
	ghp     = "gh" + "p_" + letters[:36]
	pemBody = strings.Repeat("MIIEvQIBADANBgkq", 4)
	pemKey  = pemBody + "\n" + pemBody + "\nab==\n"
	pem     = dashes("BEGIN", "RSA PRIVATE") + "\n" + pemKey + dashes("END", "RSA PRIVATE")
)

func dashes(word, kind string) string { return "-----" + word + " " + kind + " KEY-----" }

// marked returns a text and what is left of it. Between ⟦ and ⟧ is a secret.
func marked(text string) (in, want string) {
	for rest := text; ; {
		before, secret, ok := strings.Cut(rest, "⟦")
		in, want = in+before, want+before
		if !ok {
			return in, want
		}
		secret, rest, _ = strings.Cut(secret, "⟧")
		in, want = in+secret, want+"[REDACTED]"
	}
}

// scrubTexts are errors as drivers, clients and command lines word them, by their kind.
var scrubTexts = map[string][]string{
	"headers": {
		`> Cookie: ⟦sid=abc123; lang=de⟧`,
		"> GET / HTTP/1.1\r\n> Authorization: ⟦Bot abc.def.ghi⟧\r\n> Accept: */*\r\n",
		"HTTP/1.1 200 OK\nSet-Cookie: ⟦sid=abc123; Path=/; HttpOnly⟧\nContent-Length: 12\n",
		`request failed: authorization: ⟦ApiKey abcdef⟧`,
		`Authorization: ⟦Digest username="bob", realm="x", nonce="1f2e", response="9a8b7c"⟧`,
		`Authorization: ⟦AWS4-HMAC-SHA256 Credential=abc/20240102/s3/aws4_request, Signature=0a0b⟧`,
		`Proxy-Authorization: ⟦Basic Ym9iOmh1bnRlcjI=⟧`,
		`curl -H "Authorization: ⟦Bearer abc.def-123⟧" -H "Accept: */*" https://api.example.com: exit status 22`,
		`curl -H 'Cookie: ⟦a=b; c="d"⟧' -H 'Accept: */*'`,
		`map[Accept:[*/*] Authorization:⟦[Bearer abc123]⟧ User-Agent:[Go-http-client/1.1]]`,
		`{"headers":{"Authorization":"⟦Bearer abc123⟧","Accept":"*/*"},"status":401}`,
		`{'authorization': '⟦token abc⟧', 'accept': '*/*'}`,
		`{"request":"GET / HTTP/1.1\r\nCookie: ⟦a=b; c=d⟧\r\nHost: x"}`,
		`HTTP_AUTHORIZATION=⟦Basic Zm9v⟧`,
		`the server rejected Bearer ⟦sk-a:b⟧ as expired`, `Bearer ⟦abc123⟧, try another`,
		`Basic ⟦dXNlcjpwYXNz⟧ rejected`,
		`Bearer token is missing`, `Bearer realm="https://auth.docker.io/token",service="registry"`,
		`token_type=bearer expires_in=3600`, `HTTP Basic: Access denied`, `Authorization required: log in`,
		`nats: Authorization Violation`, `invalid value in Authorization header`,
	},
	"URLs and DSNs": {
		`cannot parse "postgres://⟦app:hunter2⟧@db.internal:5432/shop?sslmode=off"`,
		`mongodb://⟦app:hunter2⟧@m1:27017,m2:27017/shop?authSource=admin: no such host`,
		`dial redis://⟦:hunter2⟧@cache.internal:6379/0: connect: connection refused`,
		`amqp://⟦app:hunter2⟧@mq.internal:5672/shop`, `https:\/\/⟦bob:hunter2⟧@example.com\/x`,
		`fatal: unable to access 'https://⟦x-access-token:` + ghp + `⟧@github.com/a/b.git/': 403`,
		`https://⟦` + hex[:32] + `⟧@o0.ingest.sentry.io/1`, `https://⟦` + ghp + `⟧@github.com/a/b.git`,
		`GET https://⟦app:p@ss⟧@registry.example.com/@scope/pkg@1.2: 404`,
		`GET http://⟦app:hunter2⟧@gateway/users/@me: 404`,
		`clone https://⟦x:y1⟧@github.com/a failed, try bob@gitlab.com/foo`,
		`open "postgres://⟦admin:123/4x⟧@db:5432/app"`,
		`sql: open "⟦root:p@ss:w/rd⟧@tcp(db:3306)/shop?parseTime=true": invalid DSN`,
		`sql: open "⟦root:p a\"b⟧@tcp(db)/shop": invalid DSN`, `dial ⟦root:p a⟧@tcp(db)/shop`,
		`sql: open "⟦root:hunter2⟧@/shop": unknown database`, `dsn=⟦root:hunter2⟧@unix(/run/mysqld.sock)/shop`,
		`jdbc:oracle:thin:⟦scott/tiger⟧@//db:1521/x`,
		`could not connect to postgres://⟦app:hunter2⟧@db: "⟦hunter2⟧" was rejected`,
		`redis://⟦:s3/cret⟧@cache: Port could not be cast to integer value as '⟦s3⟧'`,
		`Get "https://user@host.example.com/path": EOF`, `Get "https://example.com:8080/@user/repo": EOF`,
		`http://[2001:db8::1]:8080/users/bob@example.com: 404`, `http://db:65535/@scope/pkg: 404`,
		`see http://docs.example.com: mail bob@example.com`, `git@github.com: Permission denied (publickey).`,
		`ssh://git@github.com:22/a/b.git: not found`, `postgres://app@db:5432/shop: timeout`,
	},
	"names and values": {
		`Get "https://api.example.com/v1?page=2&api_key=⟦abc-123⟧&sort=name": context deadline exceeded`,
		`https://api.openweathermap.org/data?appid=⟦` + hex[:32] + `⟧&q=Oslo`, `GET /?key=⟦abc⟧&sig=⟦d%3D⟧: 403`,
		`GET https://b.s3.amazonaws.com/x?X-Amz-Credential=⟦abc%2Fs3⟧&X-Amz-Expires=9&X-Amz-Signature=⟦0a0b⟧`,
		`https://cb.example.com/?state=x\u0026token=⟦abc⟧\u0026next=/home`,
		`{"authkey":"⟦abc⟧","masterKey": "⟦def⟧","id":7}`, `{"password":⟦123456⟧,"token":null}`, `{"password":"⟦hunter`,
		`{"debug":"{\"password\":\"⟦hunter2⟧\",\"user\":\"bob\"}"}`,
		`{"X-Auth-Token":⟦["abc","def"]⟧,"Accept":["*/*"]}`,
		`export DB_PASSWORD=⟦hunter2⟧ && ./run: exit status 2`,
		`AWS_SECRET_ACCESS_KEY=⟦` + letters[:20] + `/x⟧ AWS_REGION=eu`,
		`Server=db,1433;User ID=app;Password=⟦hun!ter2⟧;Encrypt=True;`,
		`AccountKey=⟦` + letters + `==⟧;EndpointSuffix=x`,
		`host=db user=app password='⟦hun ter2⟧' dbname=shop`, `{user=admin, password=⟦hun,ter2⟧, host=db}`,
		`{User:admin Password:⟦hunter2⟧ Host:db Port:5432}`, `(password=⟦abc⟧)`, `client_secret = "⟦abc⟧"`,
		`:token => "⟦abc⟧"`, "config:\n  user: bob\n  password: ⟦hunter2⟧\n  host: db\n", `password: ⟦hunter⟧`,
		`login failed with password: ⟦hunter2⟧ for user admin`, `X-Api-Key: ⟦550e8400-e29b-41d4-a716-446655440000⟧`,
		`curl -H 'X-Api-Key: ⟦abcdef⟧' https://api.example.com/v1`, `API key: ⟦a1b2c3⟧`,
		`token: ⟦` + letters[:12] + `⟧ is revoked`,
		`mysqldump --user=app --password=⟦hunter2⟧ --host=db`, `docker login -u bob --password ⟦hunter2⟧ r.example.com`,
		`curl -u ⟦bob:hunter2⟧ https://x`, `ALTER USER app WITH PASSWORD '⟦hun ter2⟧'`,
		`IDENTIFIED BY '⟦hunter2⟧' at line 1`,
		`key=⟦` + letters[:30] + `⟧`,
	},
	"names without a secret": {
		`missing key: server_port`, `Unexpected token: SEMI`, `kafka: message key=order-42`, `PWD=/home/me`,
		`pwd=/workspace`,
		`token: expired`, `auth: x509: certificate has expired`, `failed to parse private key: asn1: structure error`,
		`password: must be at least 8 characters`, `authentication: failed`,
		`invalid value for "auth": must be one of none`,
		`"keys":["color","size"]`, `{"key":"PROJ-12","id":3}`, `NoSuchKey: key: photos/2024/cat.jpg`,
		`{"max_tokens": 4096, "prompt_tokens": 12}`, `tokens_per_minute=30000`, `token: 401`, `primary key: 42`,
		`key_id=0a1b2c`, `secret_name=db`, `private_key=/etc/ssl/x.pem`, `next_page_token: null`, `password=****`,
		`token=${TOKEN}`, `password=$DB_PASSWORD`, `token={{.Token}}`, `use --token <token> to log in`,
		`flag needs an argument: --token`, `Using --password via the CLI is insecure. Use --password-stdin.`,
		`docker run --user 1000:1000 x: exit status 125`, `secrets "db-creds" not found`, `keyboard: hunter2`,
		`author: bob42`,
		`arn:aws:secretsmanager:eu-central-1:123456789012:secret:db-creds-AbC1d2`, `std::auth::token::verify failed`,
		`lookup auth-service on 10.0.0.2:53: no such host`, `dial tcp: auth-service:8080: connection refused`,
		`open /var/run/secrets/kubernetes.io/serviceaccount/token: no such file`, `json: unknown field "token"`,
		`ERROR: column "token" does not exist`,
		`duplicate key value violates unique constraint "users_key" (SQLSTATE 23505)`,
		`pq: password authentication failed for user "admin" at 10.0.0.7`,
		`Error 1045: Access denied (using password: YES)`,
	},
	"tests, traces and prose": {
		"=== RUN   TestLogin\n--- PASS: TestLogin (0.00s)\n    --- PASS: TestLogin/token (0.00s)\nok  \tx/auth\t0.1s",
		"--- PASS: TestOAuth2Login (0.00s)", "PASS: tests/read.test", "# TOTAL: 3\n# PASS:  3\n# FAIL:  0\n",
		"make: *** [Makefile:12: check] Error 2", "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
		"key=9fceb02d0ae598e95dc970b7",
		"id 550e8400-e29b-41d4-a716-446655440000", "image@sha256:" + hex + " not found",
		"panic: boom\n\ngoroutine 1 [running]:\nmain.(*TokenStore).Get(0xc000012345)\n\t/app/token.go:45 +0x1a",
		"  File \"/app/auth.py\", line 12, in get_token\n    raise KeyError(key)",
		"\tat com.example.TokenService.getToken(TokenService.java:42)",
		"TypeError: x is not a function\n    at Function.auth (node:internal/modules/cjs/loader:933:15)",
		"Invalid username or password.", "the token’s issuer is wrong", "токен: не найден", "invalid token: expired",
		"sk-learn isn't installed", "git ref ghp_branch not found", "task-runner-123 failed",
		"npm_config_user_agent=npm/10",
		"npm_package_json_is_not_here", "missing scope secrets:read", "Load key \"/root/.ssh/id_rsa\": bad permissions",
		"token contains an invalid number of segments", "", "[REDACTED]", "password=[REDACTED]", "\xff token: \xff",
	},
	"webhooks and keys": {
		`Post "https://hooks.slack.com/services/⟦T0/B0/` + letters[:24] + `⟧": EOF`,
		`https://discord.com/api/webhooks/⟦12345/` + letters[:30] + `⟧ failed`,
		`https://x.webhook.office.com/webhookb2/⟦` + hex[:8] + `/IncomingWebhook/` + hex[:8] + `⟧: 400`,
		`https://p.westus.logic.azure.com:443/workflows/⟦` + hex[:8] + `/triggers/manual/paths/invoke?sp=r&sig=abc⟧`,
		`https://hooks.zapier.com/hooks/⟦catch/12/abc/⟧ failed`,
		`https://api.telegram.org/bot⟦123456789:AA` + letters[:33] + `⟧/sendMessage`,
		`jwt: ⟦` + jwt + `⟧ is expired`,
		"bad key: ⟦" + pem + "⟧ (in /etc/x.key)", "bad key: ⟦" + pem[:len(pem)-60] + "⟧",
		"x:⟦" + pem[40:] + "⟧ was rejected",
		`{"private_key":"⟦` + strings.ReplaceAll(pem, "\n", `\n`) + `\n⟧","client_email":"app@shop.example.com"}`,
		"-----BEGIN CERTIFICATE-----\n" + pemBody + "\n-----END CERTIFICATE-----",
	},
}

func TestScrub(t *testing.T) {
	for kind, texts := range scrubTexts {
		t.Run(kind, func(t *testing.T) {
			for _, text := range texts {
				in, want := marked(text)
				assert.Equal(t, want, requireScrubbed(t, in), "in: %s", in)
			}
		})
	}
}

// Nothing of a password is left, whatever url.Parse makes of the URL and repeats in its error.
func TestScrubOfPasswordsThatAreNoPartOfAURL(t *testing.T) {
	for _, password := range []string{
		"S3#cret", "S3/cret", "S3?cret", "S3 cret", `S3"cret`, "S3'cret", `S3\cret`, "S3%zzcret", "S3@x/cret",
		"S3:#cret",
		"#S3cret", "/S3cret", "?S3cret", "9#S3cret", "S3 #c ret", "S3<#cret", "S3`/cret", "p@S3:w/cret", "S3#c#ret",
	} {
		for _, form := range []string{"postgres://admin:%s@db:5432/app", "redis://:%s@cache", "https://b:%s@db.eu/x"} {
			dsn := fmt.Sprintf(form, password)
			texts := []string{"can't open " + dsn + " (timeout)", fmt.Sprintf("can't open %q", dsn)}
			if _, err := url.Parse(dsn); err != nil {
				texts = append(texts, err.Error(), fmt.Sprintf("parse %q: invalid port %q after host", dsn, ":S3"))
			}
			for _, text := range texts {
				got := requireScrubbed(t, text)
				assert.NotContains(t, got, "S3", text)
				assert.NotContains(t, got, "ret", text)
				assert.NotContains(t, got, "zz", text)
			}
		}
	}
}

// tokenBeginnings are those of services' tokens, as they document them, by what follows: letters and digits,
// hexadecimal digits, or other characters, too.
var tokenBeginnings = map[string]string{
	letters[:36]: `ghp_ gho_ ghs_ ghu_ ghr_ sk- sk_live_ rk_live_ sk_test_ whsec_ ntn_ secret_ lin_api_ sntryu_ vcp_
		vck_ cfut_ cfat_ cfk_ hf_ npm_ NRAK- gsk_ xai- r8_ pplx- tvly- tvly-dev- phx_ dp.pt. LTAI nfp_ napi_
		apify_api_ rnd_ BSA AGE-SECRET-KEY-`,
	hex[:40]: `sbp_ dop_v1_ shpat_ shpss_ SK AC key- dapi fc- pul- rubygems_ e2b_ sk_`,
	letters[:20] + "-_" + letters[:20]: `github_pat_ glpat- glrt- gldt- glcbt- xoxb- xoxp- xapp- xoxe. sk-proj-
		sk-ant-api03- sk-or-v1- AIza ya29. GOCSPX- sntrys_ sb_secret_ pypi-AgEI ATATT3 figd_ glsa_ glc_ hvs. hvb.
		pscale_tkn_ pscale_pw_ PMAK- dckr_pat_ pcsk_ nvapi- lsv2_pt_ CFPAT- xkeysib- fm2_ HRKU- ops_ sq0csp- EAAA`,
}

func TestScrubKnowsTokensByTheirBeginning(t *testing.T) {
	tokens := []string{
		"AK" + "IA" + strings.Repeat("Q7", 8), "AS" + "IA" + strings.Repeat("Q7", 8),
		"S" + "G." + letters[:22] + "." + letters[:43], "pa" + "t" + letters[:14] + "." + hex, "pat-na1-" + hex[:36],
		"dt0" + "c01." + strings.Repeat("Q7", 12) + "." + strings.Repeat("Q7", 32),
		letters[:14] + ".atlasv1." + letters + letters,
		"re_" + letters[:8] + "_" + letters[:24], letters[:3] + "8Q~" + letters[:34],
		"M" + letters[:25] + "." + letters[:6] + "." + letters[:38],
	}
	for rest, beginnings := range tokenBeginnings {
		for beginning := range strings.FieldsSeq(beginnings) {
			tokens = append(tokens, beginning+rest)
		}
	}

	for _, token := range tokens {
		for _, format := range []string{"%s", "rejected (%s)", "%s.", `{"x":"%s","y":1}`, `a\n%s`, "GET /x/%s failed"} {
			assert.Equal(t, fmt.Sprintf(format, "[REDACTED]"), resilience.Scrub(fmt.Sprintf(format, token)))
		}
	}
	for before, isToken := range map[string]bool{"_": true, "%20": true, `\t`: true, "a": false, "7": false} {
		got := resilience.Scrub(before + ghp)
		assert.Equal(t, isToken, got == before+"[REDACTED]", got)
	}
}

func TestScrubReplacesEverySecretOfALongText(t *testing.T) {
	got := resilience.Scrub(strings.Repeat("password="+letters+" at 10.0.0.7\n", 1000))
	assert.Equal(t, strings.Repeat("password=[REDACTED] at 10.0.0.7\n", 1000), got)
	assert.Equal(t, "token=[REDACTED]", resilience.Scrub("token="+strings.Repeat("a1", 50_000)), "one long secret")
}

func TestGuardScrubsWithTheConfigsFunction(t *testing.T) {
	for name, tc := range map[string]struct {
		scrub func(string) string
		want  string
	}{
		"none":     {nil, "password=[REDACTED] for my-secret"},
		"another":  {strings.NewReplacer("my-secret", "[X]").Replace, "password=[REDACTED] for [X]"},
		"a panic":  {func(string) string { panic("no") }, "[REDACTED]"},
		"to empty": {func(string) string { return "" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Scrub: tc.scrub, Debug: true})
			text := "password=hunter2 for my-secret"
			assert.Equal(t, tc.want, g.Scrub(text))

			r := resilience.Run(t.Context(), g, "x", failing(9, resilience.MarkPermanent(fmt.Errorf("%s", text))))
			assert.Equal(t, tc.want, r.Err.Details["cause"])

			own := &resilience.Error{Message: text, Suggestion: "use " + text}
			r = resilience.Run(t.Context(), g, "x", failing(9, own))
			assert.ErrorIs(t, r.Err, own)
			assert.NotContains(t, r.Err.Message+r.Err.Suggestion, "hunter2")
			assert.Equal(t, text, own.Message)
		})
	}
}

func FuzzScrub(f *testing.F) {
	pieces := []string{
		" ", "\n", "\\n", "\\", "\"", "\\\"", "'", "`", ":", ": ", "=", " = ", "=>", ",", ", ", ";", "&", "?", "@",
		"@tcp(", ")",
		"[", "]", "{", "}", "<", ">", "://", "/", ".", "-", "--", "$", "*", "%", "xxx", "é", "\xff", "key",
		"password", "token",
		"api_key", "auth", "Authorization", "cookie", "sig", "max_tokens", "API", "user", "Bearer ", "Basic ",
		"expired",
		"hunter2", "42", "host:80", "[REDACTED]", "123456789", letters, jwt, ghp, pem, pem[:80], pem[60:],
		"sk-SECRET-123",
	}
	places := []string{
		"password=%s", "password = %s", "api_key: %s", `"token":"%s"`, `{\"token\":\"%s\"}`, "--secret %s",
		"--secret=%s",
		"https://bob:%s@example.com/x", "https://example.com/?a=b&token=%s&c=d", "bob:%s@tcp(db:3306)/x",
		"Authorization: Bearer %s", "Cookie: a=%s; b=c", "IDENTIFIED BY '%s'", "gh" + "p_%s" + letters[:16],
	}
	for kind, texts := range scrubTexts {
		for i, text := range texts {
			in, _ := marked(text)
			f.Add(in, []byte(kind), "hunter2", uint8(i))
		}
	}

	f.Fuzz(func(t *testing.T, text string, order []byte, secret string, place uint8) {
		var b strings.Builder
		b.WriteString(text)
		for _, p := range order[:min(len(order), 64)] { // more take long
			b.WriteString(pieces[int(p)%len(pieces)])
		}
		before := b.String()
		requireScrubbed(t, before)

		// What the pieces swallow or leave open ends with the line.
		secret = "x9" + strings.Map(func(r rune) rune {
			if strings.ContainsRune(letters, r) {
				return r
			}
			return -1
		}, secret) + "Z7"
		if strings.Contains(before, secret) {
			t.Skip("not secret")
		}
		got := requireScrubbed(t, before+"\n"+fmt.Sprintf(places[int(place)%len(places)], secret)+"\n"+text)
		require.NotContains(t, got, secret)
	})
}

// requireScrubbed returns a scrubbed text, after a look at what holds of each.
func requireScrubbed(t *testing.T, text string) string {
	t.Helper()
	got := resilience.Scrub(text)
	require.Equal(t, got, resilience.Scrub(got), "a second time; at first: %q", text)
	require.True(t, utf8.ValidString(got) || !utf8.ValidString(text), "UTF-8: %q", text)
	return got
}
