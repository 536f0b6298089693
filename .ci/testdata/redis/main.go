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
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	fleet, err := redisfleet.New(client, redisfleet.Config{Namespace: "release-check"})
	if err != nil {
		log.Fatal(err)
	}
	guard := resilience.Must(resilience.New(fleet.Configure(resilience.Config{})))
	if err := fleet.Join(ctx, guard); err != nil {
		log.Fatal(err)
	}

	text, err := resilience.Do(ctx, guard, "search", func(context.Context) (string, error) { return "found", nil })
	if err != nil || fleet.Health().Err == nil {
		log.Fatalf("got %q, %v; the fleet's error: %v", text, err, fleet.Health().Err)
	}
	_ = fleet.Leave(ctx) // Redis isn't told
	fmt.Println(text, "without Redis")
}
