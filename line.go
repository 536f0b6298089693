package resilience

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A line is where calls of a tool wait for a slot of its MaxInFlight, first come first served.
type line struct {
	mu      sync.Mutex
	waiting []chan struct{} // closed when the call has its slot
}

// leave ends a call, or takes it out of those in flight for a while. Then the next one in line may have a slot.
func (s *toolState) leave() {
	s.inFlight.Add(-1)
	if s.MaxWait > 0 {
		s.advance()
	}
}

// advance gives the free slots to the first calls in line. All that wait are in flight, too.
func (s *toolState) advance() {
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	free := s.MaxInFlight - (int(s.inFlight.Load()) - len(s.line.waiting))
	for ; free > 0 && len(s.line.waiting) > 0; free-- {
		close(s.line.waiting[0])
		s.line.waiting = s.line.waiting[1:]
	}
}

// waitInLine waits for a slot, for the tool's MaxWait at most.
func (e *entry) waitInLine(ctx context.Context) *Error {
	s, slot := e.state, make(chan struct{})
	s.line.mu.Lock()
	s.line.waiting = append(s.line.waiting, slot)
	s.line.mu.Unlock()
	s.advance() // a slot may have become free meanwhile

	timer := time.NewTimer(min(s.MaxWait, e.limits.timeout/2))
	defer timer.Stop()
	select {
	case <-slot:
		return endOf(ctx, e.tool)
	case <-timer.C:
	case <-ctx.Done():
	}

	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	i := slices.Index(s.line.waiting, slot)
	if i < 0 { // it has got its slot all the same
		return endOf(ctx, e.tool)
	}
	s.line.waiting = slices.Delete(s.line.waiting, i, i+1)
	if ended := endOf(ctx, e.tool); ended != nil {
		return ended
	}
	return overloadedError(e.tool, "calls")
}
