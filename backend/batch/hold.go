package batch

// Hold makes every request queue up until release is called; then the queue goes in one
// batch. It waits for the end of the batches under way, which would send the queue. It is
// for the tests of packages that use a Batcher.
func (b *Batcher[Request, Reply]) Hold() (release func()) {
	b.running.Wait()
	limit := max(b.opts.MaxUnderWay, MaxSingles)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay += limit
	return func() {
		b.mu.Lock()
		b.underWay -= limit - 1
		b.mu.Unlock()
		b.Leave()
	}
}

// Len returns how many requests are in the queue.
func (b *Batcher[Request, Reply]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}
