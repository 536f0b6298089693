package resilience

import "syscall"

// errno is an error of the operating system. On Plan 9 that is a text rather than a number.
type errno = syscall.ErrorString

// troubles is empty: on Plan 9 only the types of package net mean a lost connection.
var troubles map[errno]string
