package memcachedbackend

// fraction returns 0, because memcached does not run on Windows.
func fraction() float64 { return 0 }
