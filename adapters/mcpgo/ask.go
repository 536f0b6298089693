package mcpgo

import (
	"context"

	"github.com/seed8d1e2389/resilience"
)

// Ask asks the client, and through it a person, by a method of the server, such as RequestElicitation, RequestSampling
// or RequestRoots:
//
//	answer, err := mcpgo.Ask(ctx, srv.RequestElicitation, question)
//
// Meanwhile it pauses the timeout of the call to which ctx belongs, and the call isn't retried, see [resilience.Pause].
// The error is that of the method, marked by [resilience.MarkNeutral]: that a person doesn't answer, or a client can't
// be asked, says nothing about the tool's backend. If ctx has ended, Ask returns its error and asks nothing: the next
// attempt may ask the same. A tool that gives people longer than its own timeout calls resilience.Pause itself, before
// it makes a context with that time: a context.WithTimeout of one that isn't paused has no later deadline. Without a
// guard it is no more than a call of the method.
func Ask[Question, Answer any](
	ctx context.Context, ask func(context.Context, Question) (Answer, error), question Question,
) (Answer, error) {
	if err := ctx.Err(); err != nil {
		var none Answer
		if _, guards := context.Cause(ctx).(*resilience.Error); !guards { // the tool itself has ended it
			err = resilience.MarkNeutral(err)
		}
		return none, err
	}

	defer resilience.Pause(ctx)()
	answer, err := ask(ctx, question)
	return answer, resilience.MarkNeutral(err)
}
