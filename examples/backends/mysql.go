package backends

import (
	"database/sql"
	"errors"

	"github.com/go-sql-driver/mysql"
)

// OpenMySQL returns a DB for MySQL or MariaDB. Report an error within a transaction by ReportSQL.
//
// The driver lets database/sql repeat only a statement of which nothing was sent. A statement that was under way when
// the connection was lost ends with mysql.ErrInvalidConn. It may have had an effect: for a tool that is NonIdempotent,
// the guard doesn't repeat it either. A deadlock has rolled back the transaction, so the guard repeats the call.
func OpenMySQL(cfg *mysql.Config) (DB, error) {
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return DB{}, err
	}
	return DB{sql.OpenDB(connector)}, nil
}

// isMySQL reports whether err is an answer of MySQL, or a connection that was lost during a statement.
func isMySQL(err error) bool {
	var answer *mysql.MySQLError
	return errors.As(err, &answer) || errors.Is(err, mysql.ErrInvalidConn)
}
