// Package sqlite has errors like those of the drivers of SQLite for Go, which have no type in common.
package sqlite

// An Error is like that of modernc.org/sqlite.
type Error int

// Code returns the result code, which may be an extended one.
func (e *Error) Code() int { return int(*e) }

func (e *Error) Error() string { return "sqlite" }

// A CgoError is like the Error of github.com/mattn/go-sqlite3.
type CgoError struct{ Code ErrNo }

// An ErrNo is a result code.
type ErrNo int

func (e CgoError) Error() string { return "sqlite3" }

// A WasmError is like the ErrorCode of github.com/ncruces/go-sqlite3.
type WasmError uint8

// Code returns the result code.
func (e WasmError) Code() WasmError { return e }

func (e WasmError) Error() string { return "sqlite3" }
