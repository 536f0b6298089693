package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed8d1e2389/resilience"
)

var guard = resilience.Must(resilience.New(resilience.Config{
	Timeouts: resilience.Timeouts{resilience.Quick: 30 * time.Second}, // many MCP clients give up after 60s
	Tools: map[string]resilience.Tool{
		"weather": {Effect: resilience.ReadOnly}, // it may be called again after a failure
		"report":  {Timeout: 100 * time.Millisecond},
	},
}))

func main() {
	text, err := resilience.Do(context.Background(), guard, "weather", func(ctx context.Context) (string, error) {
		if resilience.Attempt(ctx) < 3 {
			return "", errors.New("503 Service Unavailable")
		}
		return "sunny", nil
	})
	fmt.Println(text, err)

	r := resilience.Run(context.Background(), guard, "report", func(context.Context) (string, error) {
		select {} // a tool that hangs, and ignores its context
	})
	fmt.Println(r.Err.Line(false))
}
