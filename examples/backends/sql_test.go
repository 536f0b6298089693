package backends

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// A fakeDB is a driver whose connections fail every statement with err.
type fakeDB struct {
	dial, err error
}

func (f fakeDB) Connect(context.Context) (driver.Conn, error) { return f, f.dial }
func (fakeDB) Driver() driver.Driver                          { return nil }
func (fakeDB) Prepare(string) (driver.Stmt, error)            { return nil, driver.ErrSkip }
func (fakeDB) Begin() (driver.Tx, error)                      { return nil, driver.ErrSkip }
func (fakeDB) Close() error                                   { return nil }

func (f fakeDB) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), f.err
}

func (f fakeDB) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return nil, f.err
}

func TestSQL(t *testing.T) {
	state := func(code string) fakeDB { return fakeDB{err: &pgconn.PgError{Code: code}} }
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, tc := range map[string]struct {
		db   fakeDB
		args []any
		want string
	}{
		"no error":                         {fakeDB{}, nil, own},
		"a table that isn't there":         {state("42P01"), nil, mistake},
		"a value that is there already":    {state("23505"), nil, mistake},
		"too many connections":             {state("53300"), nil, counted},
		"shut down":                        {state("57P01"), nil, counted},
		"a broken connection":              {fakeDB{err: driver.ErrBadConn}, nil, counted},
		"refused":                          {fakeDB{dial: refused}, nil, counted},
		"an argument that no column takes": {fakeDB{}, []any{struct{}{}}, own},
	} {
		t.Run(name, func(t *testing.T) {
			db := DB{sql.OpenDB(tc.db)}
			defer db.Close()
			assert.Equal(t, tc.want, judge(t, func(ctx context.Context) {
				_, _ = db.ExecContext(ctx, "UPDATE", tc.args...)
			}))
			if tc.db == (fakeDB{}) {
				return
			}
			assert.Equal(t, tc.want, judge(t, func(ctx context.Context) {
				if rows, err := db.QueryContext(ctx, "SELECT"); err == nil {
					rows.Close()
				}
			}))
			assert.Equal(t, tc.want, judge(t, func(ctx context.Context) {
				_ = db.QueryRowContext(ctx, "SELECT").Err()
			}))
		})
	}
}

// An oldDB is a driver whose only connection says that it is broken when it has executed a statement.
type oldDB struct {
	fakeDB
	executed *int
}

func (o oldDB) Connect(context.Context) (driver.Conn, error) {
	if *o.executed > 0 {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	return o, nil
}

func (o oldDB) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	*o.executed++
	return nil, driver.ErrBadConn
}

// database/sql then tries again by itself, and its last error speaks only of the last try.
func TestStatementThatMayHaveBeenExecutedIsNotRepeated(t *testing.T) {
	executed, attempts := 0, 0
	db := DB{sql.OpenDB(oldDB{executed: &executed})}
	defer db.Close()
	g := resilience.Must(resilience.New(resilience.Config{Effect: resilience.NonIdempotent}))
	_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		attempts++
		_, err := db.ExecContext(ctx, "INSERT")
		return 0, err
	})
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.Equal(t, 1, executed)
	assert.Equal(t, 1, attempts)
}
