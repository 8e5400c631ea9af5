package command

import "syscall"

// endBySignal does nothing: Windows has no signals.
func endBySignal(syscall.Signal, bool) {}
