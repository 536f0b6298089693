package peers

import "context"

// The floor: what a limit costs without any library. None of these has a breaker.

// newFloorBare calls the tool.
func newFloorBare(s Settings) System {
	return sideBySide(func(ctx context.Context, _ string, fn Tool) (string, error) {
		return try(ctx, s.Retries, fn)
	})
}

// newFloorTimeout gives it a context with a timeout.
func newFloorTimeout(s Settings) System {
	return sideBySide(func(ctx context.Context, _ string, fn Tool) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, s.Limit)
		defer cancel()
		return try(ctx, s.Retries, fn)
	})
}

// newFloorGoroutine calls it on a goroutine with such a context and waits for either.
func newFloorGoroutine(s Settings) System {
	return sideBySide(func(ctx context.Context, _ string, fn Tool) (string, error) {
		return within(ctx, s.Limit, func(ctx context.Context) (string, error) {
			return try(ctx, s.Retries, fn)
		})
	})
}

// try is the least that can be called a retry.
func try(ctx context.Context, retries int, fn Tool) (value string, err error) {
	for n := 0; ; n++ {
		if value, err = fn(ctx); err == nil || n == retries {
			return value, err
		}
	}
}
