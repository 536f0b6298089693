//go:build !plan9 && !js

package resilience

import "syscall"

// A program can't be started while its file is written. Systems without programs have no such errno.
func init() { inUse[syscall.ETXTBSY] = true }
