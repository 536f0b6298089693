package resilience_test

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

func TestNumbersOfSocketsOnWindows(t *testing.T) {
	for number, want := range map[syscall.Errno]string{
		10054: "Connection lost: connection reset by the other side",
		10061: "Connection lost: connection refused",
	} {
		err := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("wsarecv", number)}
		assert.Equal(t, want, resilience.AsError("x", err).Message)
	}
}
