package gosdk

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What the SDK says of an answer without a result it also says of a connection that has ended with the call. Only a ping
// tells which it was.

const (
	// giveUpTime is how long the SDK may take at least to give up a ping whose context has ended, or to refuse one by a
	// connection that has ended.
	giveUpTime = 10 * time.Millisecond

	// turns is in how many turns a ping is waited for.
	turns = 20
)

// hasClosed reports whether a call that has got no result, of which the SDK has said this, has ended with the connection.
// It goes on if ctx ends meanwhile, as nothing else may notice that.
func (s *Session) hasClosed(ctx context.Context, u *use, said error) bool {
	dialed, open := s.contextOf(u.cs)
	if !open || s.pings.areMute() {
		return !open
	}

	patience := waitTime(ctx)
	if ctx.Err() != nil {
		patience = endTimeout
	}
	pinging, cancel := context.WithCancel(context.WithoutCancel(dialed))
	told := make(chan bool, 1)
	go func() {
		closed := false
		defer func() {
			_ = recover() // of a method of an error that the client's middleware returns
			told <- closed
		}()
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		reply, isStuck := pingUntil(pinging, patience, u.cs)
		switch {
		case isPingRefused(reply):
			s.pings.silence(true)
		case refusesPings(reply):
			s.pings.refused.Store(true)
		}
		if closed = isStuck || hasEnded(reply) || s.ctx.Err() != nil; closed {
			s.ReportLost(u.cs, said)
		}
	}()

	select {
	case closed := <-told:
		return closed
	case <-ctx.Done():
		u.unsure = true
	}
	if !s.pings.begin(ctx) { // so many others ask
		cancel()
		return false
	}
	go func() {
		<-told
		<-s.pings.pending
	}()
	return false
}

// pingUntil pings the server of cs, and reports whether the connection is stuck: while the SDK waits for the end of a
// process whose output it has given up, it doesn't even give up a ping whose context has ended, as it otherwise does
// at once. One that the SDK hasn't begun to send waits for something else, such as the client's middleware.
func pingUntil(ctx context.Context, timeout time.Duration, cs *mcp.ClientSession) (reply error, isStuck bool) {
	p := startPing(ctx, cs)
	defer p.cancel()
	if reply, replied := p.reply(ctx, timeout); replied {
		return reply, false
	}
	p.cancel()
	reply, replied := p.reply(ctx, max(timeout, giveUpTime))
	switch {
	case !replied:
		return nil, p.begun.Load() && ctx.Err() == nil
	case !errors.Is(reply, context.Canceled):
		return reply, false
	}

	again := startPing(ctx, cs) // the process may have ended just then, and the SDK have said either
	defer again.cancel()
	reply, _ = again.reply(ctx, giveUpTime)
	return reply, false
}

// A pendingPing is a ping that is under way.
type pendingPing struct {
	cancel  context.CancelFunc
	begun   beginning
	replied chan error
}

func startPing(ctx context.Context, cs *mcp.ClientSession) *pendingPing {
	ctx, cancel := context.WithCancel(ctx)
	p := &pendingPing{cancel: cancel, replied: make(chan error, 1)}
	go func() {
		var err error
		defer func() {
			_ = recover() // of the client's middleware: it says nothing
			p.replied <- err
		}()
		err = pingWith(ctx, cs, mcp.Meta{metaPing: &p.begun})
	}()
	return p
}

// reply waits for the reply, which is nil or an error, but not for long, nor after the end of ctx. Where goroutines wait
// for a processor, that takes longer: the SDK needs turns of its own.
func (p *pendingPing) reply(ctx context.Context, within time.Duration) (reply error, replied bool) {
	for range turns {
		select {
		case reply = <-p.replied:
			return reply, true
		case <-ctx.Done():
			return nil, false
		case <-time.After(within / turns):
		}
	}
	return nil, false
}

// hasEnded reports whether the error of a ping after a call without a result, which may be nil, says that the
// connection was closed by one of both sides: the ping ends in the same way then. Something before the server may
// refuse pings, too.
func hasEnded(reply error) bool {
	if !errors.Is(reply, mcp.ErrConnectionClosed) {
		return false
	}
	said := saidBySDK(reply)
	return said == "client is closing" || said == "client is closing: EOF"
}

// metaPing is the key of a beginning in the _meta of a ping. Servers ignore what they don't know there.
const metaPing = "io.github.seed8d1e2389.resilience/ping"

// A beginning tells when the SDK begins to send a message, which it first encodes.
type beginning struct{ atomic.Bool }

// MarshalJSON says true.
func (b *beginning) MarshalJSON() ([]byte, error) {
	b.Store(true)
	return []byte("true"), nil
}
