package backends

import (
	"context"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// postgres starts a server that speaks as much of PostgreSQL's protocol as a query needs. It answers with
// an SQLSTATE, 00000 for success. An empty one closes the connection.
func postgres(t *testing.T, state string) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn, state)
		}
	}()
	return listener.Addr().String()
}

func serve(conn net.Conn, state string) {
	defer conn.Close()
	server := pgproto3.NewBackend(conn, conn)
	if _, err := server.ReceiveStartupMessage(); err != nil {
		return
	}
	server.Send(&pgproto3.AuthenticationOk{})
	server.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	server.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	server.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})

	for server.Flush() == nil {
		message, err := server.Receive()
		if _, ok := message.(*pgproto3.Query); err != nil || !ok || state == "" {
			return
		}
		if state == "00000" {
			server.Send(&pgproto3.CommandComplete{CommandTag: []byte("UPDATE 1")})
		} else {
			server.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: state, Message: "no"})
		}
		server.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	}
}

func TestPgx(t *testing.T) {
	exec := func(address string, args ...any) func(context.Context) {
		cfg, err := pgx.ParseConfig("postgres://user@" + address + "/db?sslmode=disable")
		require.NoError(t, err)
		cfg.Tracer = PgxTracer{}
		cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		return func(ctx context.Context) {
			conn, err := pgx.ConnectConfig(ctx, cfg)
			if err != nil {
				return
			}
			_, _ = conn.Exec(ctx, "UPDATE t SET x = $1", args...)
			_ = conn.Close(ctx)
		}
	}
	for state, want := range map[string]string{
		"00000": own,
		"42P01": mistake, // undefined table
		"23505": mistake, // unique violation
		"53300": counted, // too many connections
		"57P01": counted, // shut down by an administrator
		"":      counted,
	} {
		assert.Equal(t, want, judge(t, exec(postgres(t, state), 1)), state)
	}
	assert.Equal(t, own, judge(t, exec(postgres(t, "00000"), func() {})), "an argument that can't be encoded")
	assert.Equal(t, counted, judge(t, exec(refusing(t), 1)))
}
