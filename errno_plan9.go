package resilience

import "syscall"

// errno is what the operating system calls an error: Plan 9 has texts for them, no numbers.
type errno = syscall.ErrorString

// lostErrno is empty: on Plan 9 the types of the net package's errors have to do.
var lostErrno map[errno]string
