// A program that calls a tool which never answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed8d1e2389/resilience"
)

func main() {
	guard, err := resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"search": {Timeout: 50 * time.Millisecond}},
	})
	if err != nil {
		log.Fatal(err)
	}

	_, err = resilience.Do(context.Background(), guard, "search", func(context.Context) (string, error) {
		select {}
	})
	var failure *resilience.Error
	if !errors.As(err, &failure) || failure.Code != resilience.CodeTimeout {
		log.Fatalf("got %v instead of TIMEOUT", err)
	}
	fmt.Printf("%s: %s\n", failure.Code, failure.Message)
}
