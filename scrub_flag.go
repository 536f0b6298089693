package resilience

import "strings"

// flag finds the value of a sensitive flag of a command line: --token abc123, also as an element
// of an array.
func flag(text string, floor, i int) (from, to int) {
	if i > floor && strings.IndexByte(" \t\n\"'`[(", text[i-1]) < 0 {
		return 0, 0
	}
	p := pair{text: text, floor: floor, separator: '-', before: at(text, i-1)}
	p.start = i + span(text[i:min(len(text), i+2)], func(c byte) bool { return c == '-' })
	near := text[p.start:min(len(text), p.start+maxName)]
	p.name = near[:span(near, isWordByte)]
	if !sensitive(p.name) || describes(p.name) {
		return 0, 0
	}

	end := p.start + len(p.name)
	next := min(len(text), end+8)
	next = end + span(text[end:next], func(c byte) bool { return strings.IndexByte("\"', \t", c) >= 0 })
	if next == end || !strings.ContainsAny(text[end:next], " ,") || at(text, next) == '-' {
		return 0, 0
	}
	if strings.IndexByte("\"'", text[next-1]) >= 0 {
		next--
	}
	return p.findSecret(next)
}

// A command takes a secret as the value of a flag that has one letter.
type command struct {
	name     string
	flag     byte
	attached bool // The value follows the flag without a space; after a space it is something else.
	userinfo bool // The value is user:password; without a colon it is no secret.
}

var commands = []command{
	{name: "mysql", flag: 'p', attached: true},
	{name: "mysqldump", flag: 'p', attached: true},
	{name: "mysqladmin", flag: 'p', attached: true},
	{name: "mysqlimport", flag: 'p', attached: true},
	{name: "mariadb", flag: 'p', attached: true},
	{name: "mariadb-dump", flag: 'p', attached: true},
	{name: "sshpass", flag: 'p', attached: true},
	{name: "sshpass", flag: 'p'},
	{name: "login", flag: 'p'}, // docker login, podman login, helm registry login
	{name: "mongo", flag: 'p'},
	{name: "mongosh", flag: 'p'},
	{name: "mongodump", flag: 'p'},
	{name: "mongorestore", flag: 'p'},
	{name: "redis-cli", flag: 'a'},
	{name: "curl", flag: 'u', attached: true, userinfo: true},
	{name: "curl", flag: 'u', userinfo: true},
}

// shortFlag finds the secret after a flag of a well-known command on the same line.
func shortFlag(text string, floor, i int) (from, to int) {
	if i <= floor || strings.IndexByte(" \t\"'`,", text[i-1]) < 0 || strings.IndexByte("pau", at(text, i+1)) < 0 {
		return 0, 0
	}
	line := text[max(0, i-maxBehind):i]
	line = line[strings.LastIndexByte(line, '\n')+1:]

	from = i + len("-p")
	value := min(len(text), from+4)
	value = from + span(text[from:value], func(c byte) bool { return strings.IndexByte(" \t\"'`,", c) >= 0 })
	spaced := strings.ContainsAny(text[from:value], " \t,")
	if !spaced && value > from && text[from] == text[i-1] {
		return 0, 0 // '-p'
	}
	for _, c := range commands {
		if c.flag != text[i+1] || c.attached == spaced || !runs(line, c.name) {
			continue
		}

		p := pair{text: text, separator: '='}
		if value > from && strings.IndexByte("\"'`", text[value-1]) >= 0 {
			value--
		}
		p.findValue(text[:min(len(text), value+maxValue)], value)
		secret := text[p.from:p.to]
		isPort := span(secret, isDigit) == len(secret)
		if isPort || secret[0] == '-' || saysNothing(secret) || c.userinfo && !strings.Contains(secret, ":") {
			continue
		}
		p.findValue(text, value)
		return p.from, p.to
	}
	return 0, 0
}

// runs reports whether a command line runs a command.
func runs(line, name string) bool {
	for from := 0; ; {
		i := strings.Index(line[from:], name)
		if i < 0 {
			return false
		}
		begin, end := from+i, from+i+len(name)
		if (begin == 0 || !isDotted(line[begin-1])) && strings.IndexByte(" \t\"'`,", at(line, end)) >= 0 {
			return true
		}
		from = end
	}
}
