package membackend

// Options are the settings of New; nil stands for the zero value.
type Options struct {
	// Space names the set of locks; "" is that of the URL mem: itself.
	Space string
}
