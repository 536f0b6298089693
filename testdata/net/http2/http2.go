// Package http2 has errors of the forms that golang.org/x/net/http2 has, which are known by the name of their package.
package http2

// An ErrCode is the reason of the other side.
type ErrCode uint32

func (c ErrCode) String() string {
	switch c {
	case 1:
		return "PROTOCOL_ERROR"
	case 2:
		return "INTERNAL_ERROR"
	case 9:
		return "COMPRESSION_ERROR"
	case 11:
		return "ENHANCE_YOUR_CALM"
	}
	return "unknown"
}

// A StreamError says that the other side has reset a stream.
type StreamError struct {
	StreamID uint32
	Code     ErrCode
}

func (StreamError) Error() string { return "stream error" }

// A GoAwayError says that the other side closes the connection.
type GoAwayError struct {
	LastStreamID uint32
	ErrCode      ErrCode
}

func (*GoAwayError) Error() string { return "go away" }

// A ConnectionError says that what the other side has sent is no HTTP/2.
type ConnectionError uint32

func (ConnectionError) Error() string { return "connection error" }
