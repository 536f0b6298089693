package resilience_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed8d1e2389/resilience"
)

// A page is a connection to a browser.
type page struct{ broken bool }

func (p *page) Title(context.Context) (string, error) {
	if p.broken {
		return "", errors.New("the tab was closed")
	}
	return "Example Domain", nil
}

func (p *page) Close() error { return nil }

// Tools that share a connection take it from the connector, and report when it is broken.
func ExampleConnector() {
	dial := func(context.Context) (*page, error) { return &page{}, nil } // websocket.Dial, for example
	browser := resilience.NewConnector(dial, resilience.ConnectorConfig[*page]{Name: "browser"})
	defer browser.Close()

	title := func(ctx context.Context) (string, error) {
		p, err := browser.Get(ctx)
		if err != nil {
			return "", err // CONNECTION_LOST, with the time of the next dial
		}

		title, err := p.Title(ctx)
		if err != nil && ctx.Err() == nil { // a caller who leaves breaks nothing
			browser.ReportLost(p, err)
			err = resilience.ConnectionLostError("the tab is gone") // which agents may read
		}
		return title, err
	}

	ctx := context.Background()
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"title": {Effect: resilience.ReadOnly}},
		Retry: resilience.Retry{MaxRetries: -1},
	}))
	p, _ := browser.Wait(ctx)
	fmt.Println(resilience.Do(ctx, guard, "title", title))

	p.broken = true
	_, err := resilience.Do(ctx, guard, "title", title)
	fmt.Println(err)

	_, _ = browser.Wait(ctx) // the connector dials again by itself
	fmt.Println(resilience.Do(ctx, guard, "title", title))
	// Output:
	// Example Domain <nil>
	// CONNECTION_LOST: Connection lost: the tab is gone
	// Example Domain <nil>
}
