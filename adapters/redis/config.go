package redisfleet

import (
	"fmt"
	"regexp"
)

const defaultQuorum = 2

// Config configures a [Fleet]. Only Namespace is required.
type Config struct {
	// Namespace keeps fleets apart that use the same Redis: the servers with the same namespace are a fleet. It
	// consists of 1 to 64 letters, digits, ".", "_" and "-". All keys and the channel begin with
	// "resilience:{NAMESPACE}". Databases of one Redis share its channels, so fleets in several of them have namespaces
	// of their own: otherwise each hears the messages of the others, which it ignores.
	Namespace string

	// Quorum is how many members must have seen failures in a row before the fleet opens a breaker, so that one whose
	// own network is broken poisons no other. A fleet with fewer members needs all of them, also those that have been
	// out of reach for up to ten minutes without leaving, unless Redis has lost its memory since; but for three seconds
	// after Redis has heard of the first, at the start or after an outage of all, it isn't known how many there are. A
	// server that starts again counts as one, unless it was killed less than three seconds before. Zero means 2. It
	// must not be negative. All members should have the same.
	Quorum int
}

var namespacePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// check returns an error that names a bad field.
func (c Config) check() error {
	if !namespacePattern.MatchString(c.Namespace) {
		return fmt.Errorf("redisfleet: Config.Namespace is %q: "+
			"it must be 1 to 64 letters, digits, '.', '_' and '-'", c.Namespace)
	}
	if c.Quorum < 0 {
		return fmt.Errorf("redisfleet: Config.Quorum is %d: it must not be negative (0 is the default)", c.Quorum)
	}
	return nil
}
