package resilience

import "syscall"

// troubles holds, for each errno that means trouble, the reason for a lost connection. Those without a reason pass: the
// operation itself did nothing, but a tool may consist of several, such as writing a file and then renaming it.
var troubles = map[syscall.Errno]string{
	syscall.ECONNREFUSED: refused,
	syscall.ECONNRESET:   "connection reset by the other side",
	syscall.ECONNABORTED: "connection aborted",
	syscall.EPIPE:        closedByPeer,
	syscall.ETIMEDOUT:    networkTimeout,
	syscall.EHOSTUNREACH: "host unreachable",
	syscall.ENETUNREACH:  "network unreachable",
	syscall.EAGAIN:       "",
	syscall.EINTR:        "",
	syscall.EMFILE:       "",
	syscall.ENFILE:       "",
	syscall.ESTALE:       "",

	// Sockets of Windows have numbers of their own, which are in its winsock.h. No other system has such numbers.
	10051: "network unreachable",
	10053: "connection aborted",
	10054: "connection reset by the other side",
	10060: networkTimeout,
	10061: refused,
	10065: "host unreachable",
}
