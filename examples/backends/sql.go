package backends

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"

	"github.com/seed8d1e2389/resilience"
)

// A DB reports how its statements end. It has the methods that generated code, such as sqlc's, needs.
type DB struct{ *sql.DB }

func (db DB) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := db.DB.QueryContext(ctx, query, args...)
	ReportSQL(ctx, err)
	return rows, err
}

func (db DB) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	row := db.DB.QueryRowContext(ctx, query, args...)
	ReportSQL(ctx, row.Err())
	return row
}

func (db DB) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := db.DB.ExecContext(ctx, query, args...)
	ReportSQL(ctx, err)
	return result, err
}

// ReportSQL reports what a database answers, and lost connections. Any other error is that of database/sql
// or of the driver, as for an argument that can't be converted. That a dial was refused doesn't mean that nothing was
// done: database/sql tries again by itself, and returns the error of its last try.
//
// The errors of drivers for PostgreSQL have a method SQLState. Those of go-sql-driver/mysql don't, see isMySQL.
func ReportSQL(ctx context.Context, err error) {
	var answer interface{ SQLState() string }
	var network net.Error
	switch {
	case err == nil, errors.Is(err, sql.ErrNoRows):
		resilience.ReportBackend(ctx, nil)
	case errors.As(err, &answer), isMySQL(err):
		resilience.ReportBackend(ctx, err)
	case errors.As(err, &network), errors.Is(err, driver.ErrBadConn):
		resilience.ReportBackend(ctx, resilience.MarkBackend(err))
	}
}
