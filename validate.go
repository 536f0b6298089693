package resilience

import "context"

// checkFunc returns why a function can't be called, nil if it can. A nil context is a
// mistake in the program and panics, as it does in the context package.
func checkFunc(ctx context.Context, tool string, isNil bool) *Error {
	if ctx == nil {
		panic("resilience: nil context")
	}

	if isNil {
		return newError(CodeToolNotFound, tool, sentence(tool, "not found: its function is nil"), false)
	}
	return nil
}

func checkName(tool string) *Error {
	if tool == "" {
		return validationError("", "The tool's name is empty")
	}

	return nil
}

// mustHave panics on what only a mistake in the program can bring about.
func mustHave(ctx context.Context, g *Guard) {
	if g == nil {
		panic("resilience: nil *Guard")
	}
	if ctx == nil {
		panic("resilience: nil context")
	}
}
