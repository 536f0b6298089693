package peers

import "context"

// The floor is what a timeout costs without any library. None of its peers has a breaker.

// newFloorBare calls the tool directly.
func newFloorBare(s Settings) Do {
	return func(ctx context.Context, _ string, fn Tool) (string, error) {
		return try(ctx, s.Retries, fn)
	}
}

// newFloorTimeout calls the tool with a context that has a timeout.
func newFloorTimeout(s Settings) Do {
	return func(ctx context.Context, _ string, fn Tool) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		return try(ctx, s.Retries, fn)
	}
}

// newFloorGoroutine calls the tool on a goroutine, with a context that has a timeout, and
// waits until either of them ends.
func newFloorGoroutine(s Settings) Do {
	return func(ctx context.Context, _ string, fn Tool) (string, error) {
		return within(ctx, s.Timeout, func(ctx context.Context) (string, error) {
			return try(ctx, s.Retries, fn)
		})
	}
}

// try calls fn until it succeeds or has been retried often enough. It is the simplest loop
// that can be called a retry.
func try(ctx context.Context, retries int, fn Tool) (value string, err error) {
	for n := 0; ; n++ {
		if value, err = fn(ctx); err == nil || n == retries {
			return value, err
		}
	}
}
