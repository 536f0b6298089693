// Package sqlite is an application's own, whose errors have codes of their own.
package sqlite

// An Error has a code that isn't SQLite's.
type Error struct{ Code int }

func (Error) Error() string { return "no such note" }
