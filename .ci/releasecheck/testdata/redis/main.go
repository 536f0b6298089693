// A program that is a member of a fleet, with a Redis that doesn't answer: its calls work all the same.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	redisfleet "github.com/seed8d1e2389/resilience/adapters/redis"
)

func main() {
	ctx := context.Background()
	guard := resilience.Must(resilience.New(resilience.Config{}))
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	fleet, err := redisfleet.Join(ctx, client, guard, redisfleet.Config{Namespace: "release-check"})
	if err != nil {
		log.Fatal(err)
	}

	text, err := resilience.Do(ctx, guard, "search", func(context.Context) (string, error) { return "found", nil })
	if err != nil || fleet.Health().Connected {
		log.Fatalf("got %q, %v; connected: %t", text, err, fleet.Health().Connected)
	}
	if err := fleet.Leave(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(text, "without Redis")
}
