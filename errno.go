//go:build !plan9

package resilience

import "syscall"

// errno is an error of the operating system.
type errno = syscall.Errno

// lostErrno holds, for each errno that means a lost connection, the reason.
var lostErrno = map[errno]string{
	syscall.ECONNREFUSED: refused,
	syscall.ECONNRESET:   "connection reset by the other side",
	syscall.ECONNABORTED: "connection aborted",
	syscall.EPIPE:        "connection closed by the other side",
	syscall.ETIMEDOUT:    "network timeout",
	syscall.EHOSTUNREACH: "host unreachable",
	syscall.ENETUNREACH:  "network unreachable",
}
