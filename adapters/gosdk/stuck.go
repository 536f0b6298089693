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
	// giveUpTime is how long the SDK may take at least to give up a ping whose context has ended.
	giveUpTime = 10 * time.Millisecond

	// giveUpTurns is in how many turns it is waited for. Where goroutines wait for a processor, each turn takes longer: the
	// SDK needs a few turns of its own.
	giveUpTurns = 20
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
			dialed.endsBy(said)
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
	pinging, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var begun beginning
	replied := make(chan error, 1)
	go func() {
		var err error
		defer func() {
			_ = recover() // of the client's middleware: it says nothing
			replied <- err
		}()
		err = pingWith(pinging, cs, mcp.Meta{metaPing: &begun})
	}()

	select {
	case reply = <-replied:
		return reply, false
	case <-pinging.Done():
	}
	for range giveUpTurns {
		select {
		case reply = <-replied:
			return reply, false
		case <-ctx.Done():
			return nil, false
		case <-time.After(max(timeout, giveUpTime) / giveUpTurns):
		}
	}
	return nil, begun.Load()
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
