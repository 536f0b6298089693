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

// hiccups are those that pass. The operation itself did nothing, but several may make up what a tool does, such as to
// write a file and then to rename it.
var hiccups = map[errno]bool{
	syscall.EAGAIN: true,
	syscall.EINTR:  true,
	syscall.EMFILE: true,
	syscall.ENFILE: true,
	syscall.ESTALE: true,
}

// inUse are of an operation that did nothing, because another one uses the same. That may pass, but an agent can also
// have chosen a path that is always in use, such as that of a mount point or of a program that runs.
var inUse = map[errno]bool{syscall.EBUSY: true}

// isRejection reports whether the operating system says that a path isn't of the kind that was asked for.
func isRejection(err error) bool { return err == syscall.EISDIR || err == syscall.ENOTDIR }
