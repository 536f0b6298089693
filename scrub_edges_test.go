package resilience_test

import (
	"strings"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// scrubEdges has what is just a secret beside what just isn't, a text in each line. What is in ⟦ ⟧ is secret. The dash
// in PRIVATE-KEY stands for a space, so that no scanner takes a line for a key.
var scrubEdges = map[string]string{
	"short flags of commands": `
mysql -u root -p⟦hunter2⟧ db
mysqladmin -p⟦hunter2⟧ ping
mysqlimport -p⟦hunter2⟧ shop a.txt
mariadb -u root -p⟦hunter2⟧ shop
mariadb-dump -p⟦hunter2⟧ shop
mariadb-dump -p shop
sshpass -p⟦hunter2⟧ ssh db
sshpass -p ⟦hunter2⟧ ssh db
podman login -p ⟦hunter2⟧ r.example.com
mongo -p ⟦hunter2⟧ shop
mongosh -p ⟦hunter2⟧ shop
mongorestore -p ⟦hunter2⟧ dump
redis-cli -a ⟦hunter2⟧ ping
redis-cli -a -n
redis-cli -p 6380 ping
curl -u "⟦bob:hunter2⟧" https://x
curl -u '' https://x
curl -u⟦bob:hunter2⟧ https://x
curl -sS '-u⟦bob:hunter2⟧' https://x
curl -u"⟦:hunter2⟧" https://x
curl -ubob https://x
curl -upload https://x:80/
mysql "-p⟦hunter2⟧" db
mysql '-p' db
mymysql -phunter2 db
mysql.exe -phunter2 db
`,
	"URLs and bots": `
https://⟦aBcDeFgHaBcDeFgHaBcD⟧@host.example.com/x
https://aBcDeFgHaBcDeFgHaBc@host.example.com/x
http://db:65535/@scope/pkg: 404
https://⟦app:p@ss/word⟧@db/shop: bad
https://⟦app:p@ss/word⟧@db?x=1
https://⟦app:p@ss/word⟧@db:5432 refused
https://⟦app:pass⟧@localhost/a@b
https://app:/@x
ftp://@host:21/x
bot⟦123456:aBcDeFgHaBcDeFgHaBcDeFgHaBcDeFg⟧/x
bot123456:aBcDeFgHaBcDeFgHaBcDeFgHaBcDeF/x
bot12345:aBcDeFgHaBcDeFgHaBcDeFgHaBcDeFg/x
`,
	"phrases": `
Basic ⟦dXNlcjpwYXNz⟧ rejected
NTLM ⟦TlRMTVNTUAAB⟧ rejected
Negotiate ⟦YIIabc123=⟧ rejected
Negotiate the terms
NTLM is off
ALTER USER app WITH PASSWORD "⟦a b⟧"
ALTER USER app WITH PASSWORD '' x
GRANT x IDENTIFIED BY ''
api key "⟦abc123⟧" is wrong
api key "default" is wrong
api key 'xxxx' is wrong
API key ⟦aB3dE6gH9aB3dE6⟧ is wrong
password ⟦aB3dE6gH9aB3⟧ is wrong
password aB3dE6gH9aB is wrong
password ab3de6gh9ab3 is wrong
password AB3DE6GH9AB3 is wrong
token aBcDeFgHiJkL is wrong
Bearer abc12
Bearer ⟦abc123⟧
Bearer realm=abc123
`,
	"separators and names": `
std::token:hunter2
token::hunter2
password := "⟦hunter2⟧"
password := ⟦hunter2⟧
password == '⟦hunter2⟧'
token:=⟦abc123⟧
password =⟦hunter2⟧
sig=⟦0123456789abcdef⟧
sig=0123456789abcde
sig = ⟦0123456789abcdef⟧
x-signature=⟦0123456789abcdef⟧&a=b
API key provided: 12345
API key provided: ⟦a1b2⟧
provided: a1b2
data[token]=⟦a1b2⟧
data["token"]=a1b2
\"token\":\"⟦a1b2⟧\"
{\"a\":{\"token\":\"⟦a1b2⟧\",\"n\":1}}
token: 401
token: 12345
token: ⟦123456⟧
password: 12345
password: ⟦123456⟧
auth.go:12
"token":⟦12345⟧
token="⟦401⟧"
secret=⟦401⟧
`,
	"values of keys": `
key: /etc/ssl/x.pem
key=⟦a1b2c3⟧
?key=⟦abc⟧
&key=⟦abc⟧
x key=abc
key=sha256:9fceb02d
key=PROJ-12
key=PROJ-
key=⟦a1b2-12⟧
key=db.internal:5432
key=a.abcdef
key=⟦a.abcde1⟧
key=photos/img_1
key=⟦photos/IMG_1⟧
key=550e8400-e29b-41d4-a716-446655440000
key=⟦550e8400-e29b-41d4-a716⟧
key=0a1b2c3
key=⟦0a1b2g3⟧
key=⟦0a1b2c⟧
`,
	"sentences": `
password: hunter is wrong
password: ⟦hunter⟧
- password: ⟦hunter⟧
  password: ⟦hunter⟧
x password: hunter
x password: ⟦hunter2⟧
secret: hunter2 is wrong
secret: a1b2c3d4e5f6 is wrong
secret: a1b2c3d4e5f is wrong
db_password: ⟦hunter2⟧ is wrong
db_password: hunter is wrong
db_password: ⟦deadbeef⟧
x db_password: ⟦deadbeef⟧
x auth: deadbeef
x token: a b
x token: a b c
x password: a b c
token: *** x
`,
	"values that say nothing": `
password=**
password=***
password=⟦x1⟧
password=--
password=}}
password=$1
password=$12
password=$HOME
password=⟦$Home1⟧
password=${X}
password=%s
password=⟦%d1⟧
password=@x
password=@
password=<x>
password=⟦<x⟧
password={{x}}
password=[]
maxtokens=5
max_tokens=5
mytokens=5
tokens=5
tokensx=5
session_tokens_left=5
`,
	"words": `
password=⟦abcdefghijklmnopqrstuvwxy⟧
Bearer abcdefghijklmnopqrstuvwx
Bearer ⟦abcdefghijklmnopqrstuvwxy⟧
Bearer ⟦aBcdef⟧
Bearer AbcDef
Bearer ⟦ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF⟧
Bearer ABCDEFGHIJKLMNOPQRSTUVWXYZABCDE
Bearer naïve words
Bearer aéB12345
`,
	"source code, XML and headers": `
password = a.b(c)
password = crypt(x)
password = u.token
password = ⟦u.name⟧
password = ⟦hunter2⟧
<password>⟦hunter2⟧</password>
<password>⟦hunter2⟧
<password> hunter2</password>
<x:password>⟦a b⟧</x:password>
<password><![CDATA[⟦a<b⟧]]></password>
x > password><![CDATA[a]]>
password=<![CDATA[a]]>
Authorization: Bearer
Authorization: ⟦a=b⟧
Cookie: ⟦a=b; c=d⟧
'Cookie: ⟦a=b; c=d⟧' x
{\"Cookie\": ⟦a=b; c=d" x⟧
X: a=b; token: ⟦c1=d⟧; e=f
`,
	"ends of values": `
password="⟦a\"b⟧" c
password="⟦a\\⟧" b
password="⟦a\\\" b⟧
password="⟦abc⟧
password=⟦abc⟧\
password=⟦a⟧\nb
password=⟦a\\b⟧ c
password=⟦a<b>c⟧ d
password=⟦a(b⟧ c
password=⟦a⟧) b
password=⟦<ab>c⟧ d
password=⟦a,b⟧ c
password=⟦a⟧,b=c d
password=⟦a⟧,b:c d
password=⟦a;é⟧
password=⟦a;!b⟧
password=⟦a⟧; b
password=⟦a:b⟧ c
password=⟦a⟧,
password=⟦(a,b),c⟧
`,
	"structures and labels": `
{"secrets":⟦["a","b\"]"]⟧,"x":1}
{"secrets":[],"x":1}
{"keys":["a"],"x":1}
secrets=⟦[a b]⟧ c
secret: [a b] c
secrets: {{x}} c
name: DB_PASSWORD, value: ⟦hunter2⟧
key: DB_PASSWORD, value: ⟦hunter2⟧
label: DB_PASSWORD, value: hunter2
name=DB_PASSWORD value=⟦hunter2⟧
"name":"HOME","value":"hunter2"
value: hunter2
name: secret value: ⟦hunter2⟧
name: secret value: hunter2 is wrong
`,
	"flags": `
tool --token ⟦abc123⟧ x
tool --token "⟦abc123⟧" x
tool --token=⟦abc123⟧ x
tool -token ⟦abc123⟧ x
tool --token -x y
tool "--token","⟦abc123⟧","x"
tool (--token ⟦abc123⟧)
tool x--token abc123
tool --token ⟦12345⟧
--token abc is wrong
["--token", "⟦abc1⟧"]
`,
	"data sources and PEM": `
⟦root:hunter2⟧@tcp(db)/x
root:hunter2@tcp/x
⟦root:hunter2⟧@/shop
root:hunter2@/ shop
root@tcp(db)/x
dsn=a=⟦root:hunter2⟧@tcp(db)/x
⟦-----BEGIN PRIVATE-KEY-----\nTUlJRXZnSUJBREFO\n-----END PRIVATE-KEY-----⟧
⟦-----BEGIN PRIVATE-KEY-----\nTUlJRXZnSUJBREF\nabc⟧
⟦-----BEGIN PRIVATE-KEY-----\nTUlJRXZnSUJBREFO\nabc⟧
-----BEGIN PUBLIC KEY-----\nTUlJRXZnSUJBREFO
-----BEGIN PRIVATE-KEY
⟦-----END PRIVATE-KEY-----⟧ x
⟦-----END PRIVATE-KEY-----⟧password: hunter
⟦-----BEGIN PRIVATE-KEY-----\nProc-Type: 4,ENCRYPTED⟧\nabc def
`,
}

// What is longer than a rule looks back, in a script without blanks, is cut between two characters.
func TestScrubKeepsCharactersWhole(t *testing.T) {
	for n := range 4 {
		text := strings.Repeat("x", n) + strings.Repeat("\u6c49", 100) + "\uff1aroot:hunter2@tcp(10.0.0.7:3306)"
		assert.NotContains(t, requireScrubbed(t, text), "hunter2")
	}
}

func TestScrubAtTheEdges(t *testing.T) {
	for kind, texts := range scrubEdges {
		t.Run(kind, func(t *testing.T) {
			for line := range strings.SplitSeq(strings.Trim(texts, "\n"), "\n") {
				in, want := marked(strings.ReplaceAll(line, "PRIVATE-KEY", "PRIVATE KEY"))
				assert.Equal(t, want, resilience.Scrub(in), "in: %s", in)
			}
		})
	}
}
