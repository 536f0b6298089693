package gosdk

import (
	"cmp"
	"sync"
	"time"
)

// A budget bounds how long senders wait for clients that don't read or answer. A share of the time that passes is
// given back. What several wait for at once is one wait, since the SDK writes one message at a time. The zero value is
// ready to use. It is safe for concurrent use.
type budget struct {
	mu      sync.Mutex
	spent   time.Duration // at the time `at`
	at      time.Time
	waiting int           // senders
	share   time.Duration // one in so many is given back; zero means 10
}

// begin lets a sender wait, and returns for how long, of a budget of that size. The caller must call end.
func (b *budget) begin(of time.Duration) (left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.catchUp()
	b.waiting++
	return max(of-b.spent, 0)
}

// end notes that a sender waits no longer.
func (b *budget) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.catchUp()
	b.waiting--
}

// catchUp spends, or gives back, the time that has passed. b.mu must be held.
func (b *budget) catchUp() {
	now := time.Now()
	if passed := now.Sub(b.at); b.waiting > 0 {
		b.spent += passed
	} else {
		b.spent = max(b.spent-passed/cmp.Or(b.share, 10), 0)
	}
	b.at = now
}
