package resilience

import "syscall"

// errno is an error of the operating system. On Plan 9 that is a text rather than a number.
type errno = syscall.ErrorString

// lostErrno is empty: on Plan 9 only the types of the net package's errors tell.
var lostErrno map[errno]string

var hiccups, inUse map[errno]bool

func isRejection(err error) bool { return err == syscall.EISDIR || err == syscall.ENOTDIR }
