package resilience

import "syscall"

// Sockets of Windows have numbers of their own (winsock.h), few of which package syscall names.
func init() {
	for number, reason := range map[errno]string{
		10051:                   "network unreachable",
		syscall.WSAECONNABORTED: "connection aborted",
		syscall.WSAECONNRESET:   "connection reset by the other side",
		10060:                   "network timeout",
		10061:                   refused,
		10065:                   "host unreachable",
	} {
		lostErrno[number] = reason
	}
}
