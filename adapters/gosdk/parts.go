package gosdk

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// The parts of an error are what the SDK has said of this client's requests, as it has returned that, and what else is
// joined with it. Who calls the SDK wraps its errors in words of his own, before and after, and joins them with others:
// each is judged by itself.
type parts struct {
	said     []error // by the SDK
	rest     []error // beside that
	around   []error // what wraps and joins it, from the inside
	authored bool    // an *Error or a mark among these tells whose fault it is
	left     int     // how many more are looked at
	texts    int     // how many more that have no text yet are asked to make it
}

// known is what uses of other sessions have returned, all of which have pointers.
type known struct {
	lost map[error]bool // their sessions are
	made map[error]bool // by this package, of what the SDK has said to them
	all  bool           // whatever there is was made by it
}

const (
	maxParts = 1000 // of an error are looked at

	// maxTexts is for errors of types of others. To ask each link of a long chain for its text may take as long as to
	// make that of all below.
	maxTexts = 5
)

// partsOf returns the parts of err, and whether it can be read: its methods may panic, as those of a nil pointer do.
// known is what uses of other sessions have returned.
func partsOf(err error, known known) (p *parts, ok bool) {
	defer func() {
		if recover() != nil {
			p, ok = nil, false
		}
	}()
	p = &parts{left: maxParts, texts: maxTexts}
	p.add(err, known)
	return p, true
}

// A speaker is who has said an error.
type speaker uint8

const (
	anybody   speaker = iota
	theServer         // in an answer without the SDK's words
	another           // session
	theSDK
)

// add adds the parts of err, and returns who has said them.
func (p *parts) add(err error, known known) speaker {
	_, isAnswer := err.(*jsonrpc.Error)
	p.left--
	switch {
	case p.left < 0, isPointer(err) && known.lost[err]:
		p.rest = append(p.rest, err)
		return another
	case isAnswer:
		p.rest = append(p.rest, err)
		return theServer
	}
	request, ofMCP := isRequest(err)
	if ofMCP || isQuestion(err) || isWhole(err) {
		p.said = append(p.said, err)
		return theSDK
	}

	if _, ours := err.(*judged); ours {
		known.all = true
	}
	rest, authored, by := len(p.rest), p.authored, anybody
	causes := causesOf(err)
	for _, cause := range causes {
		by = max(by, p.add(cause, known))
	}
	own := isOwn(err)
	switch {
	case own:
		p.authored = p.authored || !known.all && !known.made[err]
	case by <= theServer && request: // of a custom method, rather than the words of who calls a tool
		p.rest, p.said, p.authored = p.rest[:rest], append(p.said, err), authored // what it wraps is judged with it
		return theSDK
	case by == anybody && (len(causes) == 0 || p.mayAsk(err)) && isCallError(err): // its words alone are left
		p.rest, p.said = p.rest[:rest], append(p.said, err)
		return theSDK
	}
	if by != theSDK {
		p.rest = append(p.rest[:rest], err) // as a whole
		return by
	}
	p.around = append(p.around, err)
	return theSDK
}

// mayAsk reports whether an error that wraps others may be asked for its text, which counts unless it has one.
func (p *parts) mayAsk(err error) bool {
	if isOfFmt(err) {
		return true
	}
	p.texts--
	return p.texts >= 0
}

// causesOf returns what err wraps. Types for several errors that are older than errors.Join have methods of their own,
// and the chains of some libraries have one error of a list, which only As finds, and unwrap to the rest.
func causesOf(err error) (all []error) {
	switch x := err.(type) {
	case interface{ Unwrap() []error }:
		all = slices.Clone(x.Unwrap())
	case interface{ WrappedErrors() []error }:
		all = slices.Clone(x.WrappedErrors())
	case interface{ Errors() []error }:
		all = slices.Clone(x.Errors())
	}
	if x, ok := err.(interface{ Unwrap() error }); ok && len(all) == 0 {
		all = []error{firstOf(err), x.Unwrap()}
	}
	return slices.DeleteFunc(all, func(err error) bool { return err == nil })
}

// isOwn reports whether err itself says whose fault it is.
func isOwn(err error) bool {
	_, own := err.(*resilience.Error)
	return own || reflect.TypeOf(err) == markType
}

// firstOf returns what such a chain holds beside what it unwraps to, nil if err is none.
func firstOf(err error) (first error) {
	chain, ok := err.(interface{ As(any) bool })
	if !ok {
		return nil
	}

	defer func() {
		if recover() != nil {
			first = nil
		}
	}()
	if !chain.As(&first) || first == nil {
		return nil
	}
	switch reflect.TypeOf(first) { // it may find itself, or speak of what it wraps
	case reflect.TypeOf(err), reflect.TypeOf(errors.Unwrap(err)):
		return nil
	}
	return first
}

func isPointer(err error) bool { return reflect.TypeOf(err).Kind() == reflect.Pointer }

// fmtType is the type of the SDK's own errors, which have their texts.
var fmtType = reflect.TypeOf(fmt.Errorf("%w", mcp.ErrConnectionClosed))

func isOfFmt(err error) bool { return reflect.TypeOf(err) == fmtType }

// isRequest reports whether err is what the SDK itself returns for a request that has failed, and whether that is one of
// MCP.
func isRequest(err error) (request, ofMCP bool) {
	if !isOfFmt(err) {
		return false, false
	}
	cause := errors.Unwrap(err)
	method, said, closed, found := cutCall(err)
	switch {
	case !found || cause == nil:
	case isPointer(cause) && cause == mcp.ErrConnectionClosed:
		request = closed
	default:
		request = !closed && said == cause.Error() && isCallError(err)
	}
	return request, request && isMethod(method)
}

// isQuestion reports whether err is what the SDK itself returns for a question of the server's that a handler of this
// client's has failed to answer. Since protocol 2026-07-28 the SDK calls such handlers within the call that the server
// asks in. A handler may have called another server.
func isQuestion(err error) bool {
	if !isOfFmt(err) {
		return false
	}
	cause := errors.Unwrap(err)
	said, found := strings.CutPrefix(err.Error(), "multi round-trip: ")
	return found && cause != nil && strings.HasPrefix(said, "fulfilling input request ") && said == cause.Error()
}

// errorOf returns the error for the guard that err, which has these parts, stands for.
func (p *parts) errorOf(err error, session string, sent *reach) error {
	switch {
	case p.authored:
		return err
	case len(p.said) == 0:
		return clientError(err, err, session, sent)
	case len(p.said) == 1 && len(p.rest) == 0:
		failed := clientError(err, p.said[0], session, sent)
		if isWhole(failed) && len(p.around) > 0 {
			return &judged{error: err, causes: []error{failed}, around: p.around}
		}
		return failed
	}

	j := &judged{error: err, causes: slices.Clone(p.rest), around: p.around}
	var lost *resilience.Error
	refused := slices.ContainsFunc(p.said, func(said error) bool { _, refused := refusal(said); return refused })
	for _, said := range p.said {
		if refused && isConnectionClosed(said) { // which has ended the session
			j.causes = append(j.causes, resilience.MarkNeutral(said))
			continue
		}
		failed := clientError(said, said, session, sent)
		if e, ok := failed.(*resilience.Error); ok {
			lost, failed = e, e.Err
		}
		j.causes = append(j.causes, failed)
	}
	if lost == nil {
		return j
	}
	lost.Err = j
	return lost
}

// noteEarlier tells the call of ctx, which has come as far as sent, that an earlier request of it may have had an effect:
// the client's author speaks of the last one.
func (p *parts) noteEarlier(ctx context.Context, sent *reach) {
	if sent.isLater() && slices.ContainsFunc(p.said, isAuthored) {
		resilience.BeginRequest(ctx)(context.Canceled)
	}
}

// unmade returns err, which has these parts, as that of a call that wasn't made since the session is down, or was: down is
// nil if another one is up.
func (p *parts) unmade(err, down error) error {
	if down == nil {
		return connectionLost(reasonClosed, resilience.MarkTransient(err))
	}
	j := &judged{error: err, around: p.around}
	for _, said := range p.said {
		j.causes = append(j.causes, wholeOf(said, down, func(error) bool { return true }))
	}
	return j
}

// A judged error says what another one does, and holds what has been found out of its parts.
type judged struct {
	error
	causes []error
	around []error // what wraps and joins them, from the inside
	whole  bool    // the SDK has said it at once, and the causes aren't what it has said
}

// wholeOf returns what the SDK has said as what is caused by something else. Of what said wraps, those errors stay around
// that, from the outside, that are the SDK's.
func wholeOf(said, cause error, isSDKs func(error) bool) *judged {
	j := &judged{error: said, causes: []error{cause}, whole: true}
	for ; said != nil && isSDKs(said); said = errors.Unwrap(said) {
		j.around = slices.Insert(j.around, 0, said)
	}
	return j
}

func isWhole(err error) bool {
	j, ok := err.(*judged)
	return ok && j.whole
}

// Unwrap returns the parts.
func (j *judged) Unwrap() []error { return j.causes }

// Is reports whether target is around the parts. Who has an As method, too, may speak of what it wraps.
func (j *judged) Is(target error) bool {
	return slices.ContainsFunc(j.around, func(err error) bool {
		is, asks := err.(interface{ Is(error) bool })
		_, chain := err.(interface{ As(any) bool })
		return isPointer(err) && err == target || asks && !chain && is.Is(target)
	})
}

// As finds what is around the parts, but for what this package has made of them before: the causes say that anew.
func (j *judged) As(target any) bool {
	found := reflect.ValueOf(target).Elem()
	for _, err := range slices.Backward(j.around) { // from the outside
		if !isOwn(err) && reflect.TypeOf(err).AssignableTo(found.Type()) {
			found.Set(reflect.ValueOf(err))
			return true
		}
	}
	return false
}
