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
// The error of the method is marked by [resilience.MarkNeutral], since a person who doesn't answer isn't a failure of
// the tool's backend. If ctx has ended, Ask returns its error and asks nothing. A tool that gives people longer than
// its own timeout calls resilience.Pause before it makes a context with that time. Without a guard, Ask only calls the
// method.
func Ask[Question, Answer any](
	ctx context.Context, ask func(context.Context, Question) (Answer, error), question Question,
) (answer Answer, err error) {
	if err := ctx.Err(); err != nil {
		return answer, err
	}

	defer resilience.Pause(ctx)()
	answer, err = ask(ctx, question)
	return answer, resilience.MarkNeutral(err)
}
