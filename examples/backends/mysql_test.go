package backends

import (
	"context"
	"database/sql"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startMariaDB starts a server without users, on a Unix socket, with a table of 30 rows. The server is the child of a
// shell, which ends it at the end of its input, and so when the test ends, also if that crashes.
func startMariaDB(t *testing.T) DB {
	if _, err := exec.LookPath("mariadbd"); err != nil {
		t.Skip("there is no mariadbd")
	}
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", `mariadbd "$@" & cat >/dev/null; kill -9 $!; wait`, "sh", "--no-defaults",
		"--user=root", "--datadir="+dir, "--socket=socket", "--pid-file=pid", "--skip-networking",
		"--skip-grant-tables", "--max-connections=10", "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=8M")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	life, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _, _ = life.Close(), cmd.Wait() })

	db := openMySQL(t, "unix", filepath.Join(dir, "socket"))
	require.Eventually(t, func() bool { return db.Ping() == nil }, time.Minute, 10*time.Millisecond)
	for _, query := range []string{
		"CREATE DATABASE shop",
		"CREATE TABLE shop.stock (id INT PRIMARY KEY, n INT NOT NULL) SELECT seq AS id, 0 AS n FROM shop.seq_1_to_30",
	} {
		require.NoError(t, execute(db, query)(t.Context()), query)
	}
	return db
}

func openMySQL(t *testing.T, network, address string) DB {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.Logger = network, address, &mysql.NopLogger{}
	db, err := OpenMySQL(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestMySQL(t *testing.T) {
	db := startMariaDB(t)
	number := func(n uint16) error { return &mysql.MySQLError{Number: n} }
	for _, tc := range []struct {
		name, want string
		err        error
		does       func(context.Context) error
	}{
		{"syntax error", mistake, number(1064), execute(db, "UPDATE shop.stock SIT n = 1")},
		{"missing table", mistake, number(1146), execute(db, "UPDATE shop.stuck SET n = 1")},
		{"duplicate key", mistake, number(1062), execute(db, "INSERT INTO shop.stock VALUES (1, 1)")},
		{"deadlock", counted, number(1213), transact(db)},
		{"refused", counted, syscall.ECONNREFUSED, execute(openMySQL(t, "tcp", refusing(t)), "SELECT 1")},
		{"too many connections", counted, number(1040), func(ctx context.Context) error {
			for {
				conn, err := db.Conn(ctx)
				if err != nil {
					return err
				}
				defer conn.Close()
			}
		}},
		{"shutdown", counted, number(1053), execute(db, "BEGIN NOT ATOMIC SHUTDOWN; DO SLEEP(60); END")},
	} {
		err := tc.does(t.Context())
		require.ErrorIs(t, err, tc.err, tc.name)
		assert.Equal(t, tc.want, judge(t, func(ctx context.Context) { ReportSQL(ctx, err) }), tc.name)
		assert.Equal(t, tc.want, judgeError(t, func(context.Context) error { return err }), tc.name)
	}
}

// A statement that may have had an effect is repeated neither by database/sql nor by the guard.
func TestMySQLWithToolThatIsNonIdempotent(t *testing.T) {
	db := startMariaDB(t)
	guard := resilience.Must(resilience.New(resilience.Config{
		Effect: resilience.NonIdempotent,
		Retry:  resilience.Retry{Backoff: resilience.Backoff{Base: time.Nanosecond, Max: time.Nanosecond}},
	}))
	run := func(f func(context.Context) error) resilience.Result[int] {
		return resilience.Run(t.Context(), guard, "tool", func(ctx context.Context) (int, error) { return 0, f(ctx) })
	}

	r := run(transact(db))
	assert.Nil(t, r.Err)
	assert.Equal(t, 2, r.Attempts)

	go func() { // when the statement is under way
		var id int
		const query = "SELECT id FROM information_schema.processlist WHERE state = 'User sleep'"
		for db.QueryRow(query).Scan(&id) == sql.ErrNoRows {
			time.Sleep(time.Millisecond)
		}
		_, _ = db.Exec("KILL ?", id)
	}()
	r = run(execute(db, "UPDATE shop.stock SET n = n + 1 + SLEEP(60)"))
	require.ErrorIs(t, r.Err, mysql.ErrInvalidConn)
	assert.Equal(t, 1, r.Attempts)
	assert.False(t, r.Err.Retryable)
	assert.Equal(t, counted, judge(t, func(ctx context.Context) { ReportSQL(ctx, mysql.ErrInvalidConn) }))
}

func execute(db DB, query string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, query)
		return err
	}
}

// transact updates two rows in a transaction. The first time, that is a deadlock with another transaction, which has
// updated all other rows and wants the first. MariaDB rolls back the one that has less to lose.
func transact(db DB) func(context.Context) error {
	deadlock := sync.OnceFunc(func() {
		if tx, err := db.Begin(); err == nil {
			_, _ = tx.Exec("UPDATE shop.stock SET n = n + 1 WHERE id > 1")
			go func() {
				_, _ = tx.Exec("UPDATE shop.stock SET n = n + 1 WHERE id = 1")
				_ = tx.Rollback()
			}()
		}
	})
	return func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		for row := 1; row <= 2 && err == nil; row++ {
			_, err = tx.ExecContext(ctx, "UPDATE shop.stock SET n = n + 1 WHERE id = ?", row)
			deadlock()
		}
		if err != nil {
			return err
		}
		return tx.Commit()
	}
}
