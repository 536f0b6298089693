package gosdk

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

const (
	// maxOutboxWait is how long a notification waits for a client that doesn't read, while all others do.
	maxOutboxWait = 100 * time.Millisecond

	// maxOutbox bounds the messages that wait for one client without their senders.
	maxOutbox = 100
)

// outboxes send the notifications that don't belong to a call of their client: those to other sessions, and those that
// are sent without the context of a call, as the SDK does for Server.ResourceUpdated. A message is written before its
// sender goes on, unless the client doesn't read: then it stays in the outbox of its session until the client does, and
// nothing overtakes it. The zero value is ready to use. It is safe for concurrent use.
type outboxes struct {
	mu   sync.Mutex
	of   map[mcp.Session]*outbox // those with messages
	late int                     // how many of them are late
}

// An outbox holds the messages to a session that haven't been sent yet. The first of them is being sent.
type outbox struct {
	letters []*letter
	left    int  // how many of them have no sender any more, who has gone on
	late    bool // some do, and the first has been there for longer than is waited
}

// A letter is a message in an outbox.
type letter struct {
	*sending
	ctx  context.Context
	left bool // its sender has gone on
	message
}

// send sends a message, and waits for it, but not for long. The attempt, which may be nil, has no more time for that
// than for its own client. If there is no error, the message has been sent or will be; nobody hears whether that fails.
func (o *outboxes) send(ctx context.Context, m message, a *trackedAttempt) (mcp.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, resilience.MarkNeutral(err)
	}

	m.req = cloneNotification(m.req) // the sender may change its parameters when it has gone on
	l := &letter{sending: &sending{done: make(chan struct{})}, ctx: context.WithoutCancel(ctx), message: m}
	wait, err := o.add(l)
	if err != nil {
		return nil, err
	}
	if a != nil {
		if most, limited := a.wait(m); limited {
			wait = min(wait, most)
		}
		defer a.spend(time.Now())
	}

	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-l.done:
		return l.result()
	case <-timer.C:
		o.leave(l)
		return nil, nil
	}
}

// add adds a letter, and returns how long to wait for it. The more clients don't read, the less each is waited for, but
// for minWait at least, which one that reads may need.
func (o *outboxes) add(l *letter) (wait time.Duration, err error) {
	session := l.req.GetSession()
	o.mu.Lock()
	defer o.mu.Unlock()

	box := o.of[session]
	switch {
	case box == nil:
		if o.of == nil {
			o.of = make(map[mcp.Session]*outbox)
		}
		box = &outbox{}
		o.of[session] = box
		go o.sendFirst(session, l)
	case box.left >= maxOutbox:
		return 0, resilience.MarkNeutral(errNotReading)
	}

	box.letters = append(box.letters, l)
	if box.late {
		return 0, nil
	}
	return max(maxOutboxWait/time.Duration(1+o.late), minWait), nil
}

// leave notes that the sender of a letter has gone on.
func (o *outboxes) leave(l *letter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	box := o.of[l.req.GetSession()]
	if box == nil || l.isOver() {
		return
	}

	l.left = true
	box.left++
	if !box.late {
		box.late = true
		o.late++
	}
}

// sendFirst sends the first letter of an outbox. Each has a goroutine of its own, which other middleware may end.
func (o *outboxes) sendFirst(session mcp.Session, l *letter) {
	defer o.removeFirst(session)
	l.run(func() (mcp.Result, error) { return l.message.send(l.ctx) })
}

// removeFirst removes the first letter of an outbox, which has been sent, and an outbox that is empty.
func (o *outboxes) removeFirst(session mcp.Session) {
	o.mu.Lock()
	defer o.mu.Unlock()

	box := o.of[session]
	if box.late {
		box.late = false // the client reads
		o.late--
	}
	if box.letters[0].left {
		box.left--
	}
	box.letters[0] = nil
	box.letters = box.letters[1:]
	if len(box.letters) == 0 {
		delete(o.of, session)
		return
	}
	go o.sendFirst(session, box.letters[0])
}
