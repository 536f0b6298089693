package gosdk

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/seed8d1e2389/resilience"
)

// clientErrors are the beginnings of what the SDK says, without a request or after its answer, when a tool asks a
// client that can't be asked, or whose answer doesn't fit. Only the text tells.
var clientErrors = []string{
	`client does not support elicitation`,
	`client does not support "form" elicitation`,
	`client does not support "url" elicitation`,
	`"elicitation/create" cannot be sent while serving a request on protocol version `,
	`"sampling/createMessage" cannot be sent while serving a request on protocol version `,
	`"roots/list" cannot be sent while serving a request on protocol version `,
	`elicitation result content does not match requested schema: `,
	`failed to apply schema defaults to elicitation result: `,
	`CreateMessage result has `,
}

// markType is the type of all that is marked by the resilience package.
var markType = reflect.TypeOf(resilience.MarkNeutral(errNotReading))

// markClientError marks err as neutral if it is one of these.
func markClientError(err error) error {
	if isAboutClient(err) {
		return resilience.MarkNeutral(err)
	}
	return err
}

// isAboutClient reports whether err is one of these, alone, wrapped by the handler, or joined with none. What the tool's
// author says of it by a mark of the resilience package's, or by a *resilience.Error, stands.
func isAboutClient(err error) bool {
	var own *resilience.Error
	if errors.As(err, &own) {
		return false
	}

	for reflect.TypeOf(err) != markType {
		inner := errors.Unwrap(err)
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			errs := joined.Unwrap()
			if len(errs) != 1 || errs[0] == nil {
				return false // something else has failed, too
			}
			inner = errs[0]
		}
		if inner == nil {
			text := err.Error()
			return slices.ContainsFunc(clientErrors, func(begin string) bool { return strings.HasPrefix(text, begin) })
		}
		err = inner
	}
	return false
}
