// Realworld shows whose fault a failure is, with client libraries that well-known MCP servers use:
// go-github, as github-mcp-server does, client-go, as kubernetes-mcp-server does, both on the official SDK,
// and the client of Prometheus, as mcp-grafana does, on mcp-go. Each of the servers is guarded by two lines:
// resilience.Transport where its HTTP client is made, and the adapter's middleware.
//
//	go run -C examples/realworld .
//
// The program takes each server, without and with these lines, through the same situations, and prints as a
// table what the agent reads. It ends with status 1 if a row isn't as expected. It works in real time over
// TCP and takes 30 seconds, with shorter timeouts than the table in README.md, which is made in fake time by
//
//	go test -C examples/realworld -run TestTable -update
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"
)

// limits are how long a call may take.
type limits struct {
	tool  time.Duration // the timeout of a guarded tool
	agent time.Duration // after which the agent's client stops waiting
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	newNetwork := func() network { return &loopback{} }
	rows, err := run(ctx, newNetwork, limits{tool: 25 * time.Second, agent: 30 * time.Second})
	if err == nil {
		err = table(os.Stdout, rows)
	}
	if err == nil {
		err = check(rows)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "realworld:", err)
		os.Exit(1)
	}
}

// run takes each server through all of its situations at the same time. Each situation has a backend and a
// network of its own.
func run(ctx context.Context, newNetwork func() network, limits limits) ([]row, error) {
	var rows []row
	for _, s := range []subject{gitHub, kubernetes, prometheus} {
		for _, situation := range s.situations() {
			rows = append(rows, row{subject: s, situation: situation, limits: limits})
		}
	}

	errs := make([]error, 2*len(rows))
	var wg sync.WaitGroup
	for i := range rows {
		r := &rows[i]
		wg.Go(func() { errs[2*i] = r.try(ctx, newNetwork(), false, &r.bare) })
		wg.Go(func() { errs[2*i+1] = r.try(ctx, newNetwork(), true, &r.guarded) })
	}
	wg.Wait()
	return rows, errors.Join(errs...)
}
