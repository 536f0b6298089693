// Package sqlite has errors of the forms that drivers of SQLite have, which are known by the import path.
package sqlite

// A Method has its code as a method, as an int.
type Method int

func (Method) Error() string { return "SQLite" }

// Code returns the result code, which may be an extended one.
func (m Method) Code() int { return int(m) }

// A Small has its code as a method, as a byte.
type Small uint8

func (Small) Error() string { return "SQLite" }

// Code returns the primary result code.
func (s Small) Code() uint8 { return uint8(s) }

// A Field has its code as a field.
type Field struct{ Code int }

func (Field) Error() string { return "SQLite" }

// A Hidden has its code as a field that only its package sees, beside others.
type Hidden struct {
	code   int
	offset int
}

// NewHidden returns an error with the code.
func NewHidden(code int) *Hidden { return &Hidden{code: code, offset: 5} }

func (*Hidden) Error() string { return "SQLite" }

// A Text has a code that is no number.
type Text string

func (Text) Error() string { return "SQLite" }

// Code returns the text.
func (t Text) Code() string { return string(t) }

// A Bare has no code.
type Bare struct{}

func (Bare) Error() string { return "SQLite" }

// A Struct has its code as a method, as an int.
type Struct struct{ code int }

// NewStruct returns an error with the code.
func NewStruct(code int) *Struct { return &Struct{code} }

func (*Struct) Error() string { return "SQLite" }

// Code returns the result code, which may be an extended one.
func (s *Struct) Code() int { return s.code }
