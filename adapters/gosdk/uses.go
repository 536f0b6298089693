package gosdk

import (
	"sync"
	"time"
)

// uses counts the functions that calls of [Use] of one Session are running.
type uses struct {
	mu      sync.Mutex
	running int
	none    chan struct{} // closed when none is running; nil unless somebody waits for that
	waited  chan struct{} // closed when somebody has waited; nil until then
}

// begin counts one more, until end is called.
func (u *uses) begin() (end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.running++

	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.running--; u.running == 0 && u.none != nil {
			close(u.none)
			u.none = nil
		}
	}
}

// wait waits until none is running, or the endTimeout has passed since the first wait: a call that hasn't returned when the
// SDK closes its session may have to wait for that, for as long as the server doesn't answer.
func (u *uses) wait() {
	u.mu.Lock()
	if waited := u.waited; waited != nil {
		u.mu.Unlock()
		<-waited
		return
	}

	u.waited = make(chan struct{})
	defer close(u.waited)
	if u.running == 0 {
		u.mu.Unlock()
		return
	}
	none := make(chan struct{})
	u.none = none
	u.mu.Unlock()

	select {
	case <-none:
		time.Sleep(giveUpTime) // the SDK tells the server that they have ended on goroutines of its own
	case <-time.After(endTimeout):
	}
}
