// Package http2 has errors of the forms that golang.org/x/net/http2 has, which are known by the name of their package.
package http2

// A StreamError says that the other side has reset a stream.
type StreamError struct{ StreamID uint32 }

func (StreamError) Error() string { return "stream error" }

// A GoAwayError says that the other side closes the connection.
type GoAwayError struct{ LastStreamID uint32 }

func (*GoAwayError) Error() string { return "go away" }

// A ConnectionError is none of those.
type ConnectionError uint32

func (ConnectionError) Error() string { return "connection error" }
