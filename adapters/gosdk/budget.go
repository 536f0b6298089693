package gosdk

import (
	"sync"
	"time"
)

// A budget bounds how long senders wait for clients that don't read or answer. A tenth of the time that passes is given
// back. The zero value is ready to use. It is safe for concurrent use.
type budget struct {
	mu    sync.Mutex
	spent time.Duration // at the time `at`
	at    time.Time
}

// left returns how much is left of a budget of that size.
func (b *budget) left(of time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(of-b.spentBy(time.Now()), 0)
}

// spend notes that a sender has waited since begun. Others may have waited meanwhile: the SDK writes one message at a
// time, so what several wait for at once is one wait.
func (b *budget) spend(begun time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if begun.Before(b.at) {
		begun = b.at
	}
	b.spent, b.at = b.spentBy(begun)+now.Sub(begun), now
}

func (b *budget) spentBy(now time.Time) time.Duration {
	return max(b.spent-now.Sub(b.at)/10, 0)
}
