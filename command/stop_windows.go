package command

// stopper does nothing: Windows does not stop processes.
type stopper struct{}

func (*stopper) pause()  {}
func (*stopper) resume() {}
