package filejournal

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

// Pin says what one pool keeps in the shared log.
type Pin struct {
	Pool string
	// Oldest is the position before its oldest entry; a Trim moves it.
	Oldest journal.Position
	// Segments is how many segment files exist from the one with its oldest
	// entry on, 0 when it has no entries. Bytes is their size. The first pin
	// is the one that holds the log up: snapshot that pool and trim it.
	Segments int
	Bytes    int64
}

// Pins returns one pin per pool, the most pinning first. An idle pool pins
// every later segment, so whoever takes snapshots looks here and not only at
// the pools that grow.
func (s *Store) Pins(ctx context.Context) ([]Pin, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("list pins of %s: %w", s.dir, err)
	}
	pins := make([]Pin, 0, len(s.pools))
	for _, p := range s.pools {
		pin := Pin{Pool: p.name, Oldest: p.anchor.Pos()}
		if len(p.entries) > 0 {
			i := slices.Index(s.segments, p.entries[0].segment)
			for _, g := range s.segments[i:] {
				pin.Segments++
				pin.Bytes += g.size
			}
		}
		pins = append(pins, pin)
	}
	slices.SortFunc(pins, func(a, b Pin) int {
		return cmp.Or(cmp.Compare(b.Segments, a.Segments), cmp.Compare(a.Pool, b.Pool))
	})
	return pins, nil
}

// Usage is what the log takes on the disk, without snapshots and archive.
type Usage struct {
	Segments int
	Bytes    int64 // of the segment files; the spare and the next come on top
}

// Usage returns the size of the log.
func (s *Store) Usage(ctx context.Context) (Usage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return Usage{}, fmt.Errorf("measure %s: %w", s.dir, err)
	}
	u := Usage{Segments: len(s.segments)}
	for _, g := range s.segments {
		u.Bytes += g.size
	}
	return u, nil
}
