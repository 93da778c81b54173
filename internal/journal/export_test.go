package journal

// SetMaxBytes changes the bound of a store in use.
func (m *Memory) SetMaxBytes(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opts.MaxBytes = n
}

// LoseChunk drops a chunk of the pool's current snapshot.
func (m *Memory) LoseChunk(pool string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	saved := m.pools[pool].saved
	last := &saved[len(saved)-1]
	last.chunks = append(last.chunks[:1:1], last.chunks[2:]...)
}
