package memcachedbackend

// fraction is not known: memcached does not run on Windows.
func fraction() float64 { return 0 }
