package backends

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed8d1e2389/resilience"
)

// PgxTracer is for the field Tracer of a pgx.ConnConfig, also of that in a pool's Config. It reports queries,
// and connections that can't be made. Batches and CopyFrom have interfaces of their own.
type PgxTracer struct{}

func (PgxTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd reports what PostgreSQL answers, and lost connections, which pgx closes. Any other error is
// pgx's own, as of an argument that it can't encode.
func (PgxTracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	var answer *pgconn.PgError
	if data.Err == nil || errors.As(data.Err, &answer) || conn.IsClosed() {
		resilience.ReportBackend(ctx, data.Err)
	}
}

func (PgxTracer) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return ctx
}

func (PgxTracer) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	if data.Err != nil {
		resilience.ReportBackend(ctx, data.Err)
	}
}
