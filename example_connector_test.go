package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/seed8d1e2389/resilience"
)

// A page is a connection to a browser, which may be broken without a sign.
type page struct{ broken bool }

func (p *page) Title(context.Context) (string, error) {
	if p.broken {
		return "", os.ErrDeadlineExceeded // no answer ever comes
	}
	return "Example Domain", nil
}

func (p *page) Ping(context.Context) error {
	if p.broken {
		return errors.New("no pong")
	}
	return nil
}

func (p *page) Close() error { return nil }

// Tools that share a connection take it from the connector, and report when it may be broken.
func ExampleConnector() {
	dial := func(context.Context) (*page, error) { return &page{}, nil } // websocket.Dial, for example
	browser := resilience.NewConnector(dial, resilience.ConnectorConfig[*page]{
		Name:  "browser",
		Check: func(ctx context.Context, p *page) error { return p.Ping(ctx) },
	})
	defer browser.Close()

	title := func(ctx context.Context) (string, error) {
		conn, err := browser.Get(ctx)
		if err != nil {
			return "", err // CONNECTION_LOST, with the time of the next dial
		}

		title, err := conn.Value().Title(ctx)
		if err != nil {
			conn.Suspect(err) // Check finds out whether the connection is broken
		}
		return title, err
	}

	ctx := context.Background()
	guard := resilience.Must(resilience.New(resilience.Config{Retry: resilience.Retry{MaxRetries: -1}}))
	conn, _ := browser.Wait(ctx)
	fmt.Println(resilience.Do(ctx, guard, "title", title))

	conn.Value().broken = true // after the laptop's sleep, the other side has forgotten the connection
	_, err := resilience.Do(ctx, guard, "title", title)
	fmt.Println(err)

	for err != nil { // the connector dials again by itself
		_, err = title(ctx)
	}
	fmt.Println(resilience.Do(ctx, guard, "title", title))
	// Output:
	// Example Domain <nil>
	// CONNECTION_LOST: Connection lost: network timeout
	// Example Domain <nil>
}
