//go:build !plan9

package resilience

import "syscall"

// errno is what the operating system calls an error.
type errno = syscall.Errno

// lostErrno holds the reason of a lost connection for each errno that means one.
var lostErrno = map[errno]string{
	syscall.ECONNREFUSED: refused,
	syscall.ECONNRESET:   "connection reset by the other side",
	syscall.ECONNABORTED: "connection aborted",
	syscall.EPIPE:        "connection closed by the other side",
	syscall.ETIMEDOUT:    "network timeout",
	syscall.EHOSTUNREACH: "host unreachable",
	syscall.ENETUNREACH:  "network unreachable",
}
