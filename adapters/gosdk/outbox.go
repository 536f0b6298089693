package gosdk

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

const (
	// maxOutbox bounds the messages that wait for one client.
	maxOutbox = 1000

	// minWait is how long a sender waits at least for room in a full outbox, so that a client that reads is told
	// everything, however fast it is told.
	minWait = time.Millisecond

	// maxRead is how long a client may need for each message that is to be read before something else.
	maxRead = time.Second
)

// outboxes send notifications, those to one client in order. A message is written before its sender goes on, unless
// the client doesn't read it in time: then it stays in the outbox of its session until the client does. The zero value
// is ready to use. It is safe for concurrent use.
type outboxes struct {
	mu sync.Mutex
	of map[mcp.Session][]*letter // those with messages; the first of each is being sent
}

// A letter is a message in an outbox.
type letter struct {
	*sending
	ctx context.Context
	message
	inVain atomic.Bool // a sender has waited for room behind it
}

// send sends a message. It waits for room in its outbox, and for the message to be written, for at most these times. If
// there is no error, the message has been sent or will be; nobody hears whether that fails.
func (o *outboxes) send(ctx context.Context, m message, wait, room time.Duration) (mcp.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, resilience.MarkNeutral(err)
	}

	m.req = cloneNotification(m.req) // the sender may change its parameters when it has gone on
	l := &letter{sending: newSending(), ctx: context.WithoutCancel(ctx), message: m}
	if err := o.post(l, room); err != nil {
		return nil, err
	}
	if l.isOverWithin(wait) {
		return l.result()
	}
	return nil, nil
}

// post puts a letter into its outbox. It waits for room.
func (o *outboxes) post(l *letter, wait time.Duration) error {
	for until := time.Now().Add(max(wait, minWait)); ; {
		first, full := o.add(l)
		if !full {
			return nil
		}
		if first.inVain.Load() || !first.isOverWithin(time.Until(until)) {
			first.inVain.Store(true)
			return resilience.MarkNeutral(errNotReading)
		}
	}
}

// add adds a letter to its outbox unless that is full, and returns the first one there.
func (o *outboxes) add(l *letter) (first *letter, full bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	session := l.req.GetSession()
	box := o.of[session]
	if len(box) >= maxOutbox {
		return box[0], true
	}
	if l.isDue != nil && !l.isDue() {
		l.returned = true
		close(l.done)
		return l, false
	}

	if o.of == nil {
		o.of = make(map[mcp.Session][]*letter)
	}
	box = append(box, l)
	o.of[session] = box
	if len(box) == 1 {
		go o.sendFirst(session, l)
	}
	return box[0], false
}

// sendFirst sends the first letter of an outbox. Each has a goroutine of its own, which other middleware may end.
func (o *outboxes) sendFirst(session mcp.Session, l *letter) {
	defer close(l.done)
	defer o.removeFirst(session)
	l.run(func() (mcp.Result, error) { return l.message.send(l.ctx) })
}

// removeFirst removes the first letter of an outbox, which has been sent, and an outbox that is empty.
func (o *outboxes) removeFirst(session mcp.Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	box := o.of[session]
	box[0] = nil
	box = box[1:]
	if len(box) == 0 {
		delete(o.of, session)
		return
	}
	o.of[session] = box
	go o.sendFirst(session, box[0])
}

// flush waits until what is in an outbox now has been read, as long as the client reads. If there is an error, it hasn't.
func (o *outboxes) flush(ctx context.Context, session mcp.Session) error {
	_, last := o.ends(session)
	for last != nil && !last.isOver() {
		first, _ := o.ends(session)
		if first == nil {
			return nil // what comes after the last has been sent, too
		}
		if err := ctx.Err(); err != nil {
			return resilience.MarkNeutral(err)
		}
		if err := first.wait(ctx, maxRead); err != nil {
			return err
		}
	}
	return nil
}

// ends returns the first and the last letter of an outbox, or nil.
func (o *outboxes) ends(session mcp.Session) (first, last *letter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if box := o.of[session]; box != nil {
		return box[0], box[len(box)-1]
	}
	return nil, nil
}

// drop drops what is in an outbox, except what is being sent, and tells the senders that still wait.
func (o *outboxes) drop(session mcp.Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if box := o.of[session]; box != nil {
		for _, l := range box[1:] {
			l.err, l.returned = resilience.MarkNeutral(errNotReading), true
			close(l.done)
		}
		o.of[session] = []*letter{box[0]}
	}
}
