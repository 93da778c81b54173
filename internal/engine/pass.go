package engine

import (
	"container/heap"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// decideRequests asks the queue in order until the entry is full, the batch is
// large enough, or everybody who may be asked was.
func (p *pool) decideRequests(b *batch) {
	q := &p.queue
	q.more = false
	q.rest = 0
	for level := range q.levels {
		q.rest += int64(len(q.levels[level]))
	}
	q.rest = max(q.rest-fewShapes, 0) * shapeRest
	clear(q.blocked)
	q.blocked = q.blocked[:0]
	q.apart.begin(q.dirty, b.t.Now)
	for level := int(arbiter.Critical); level >= 0; level-- {
		pass := q.pass[:0]
		kept := q.levels[level][:0]
		for _, s := range q.levels[level] {
			if s.unlist() {
				continue
			}
			kept = append(kept, s)
			if !q.resting(s, b.t.Now) {
				s.rank = p.state.ClassRank(s.key.class, s.key.level)
				pass = append(pass, s)
			}
		}
		clear(q.levels[level][len(kept):])
		q.levels[level] = kept
		if q.apart.due {
			kept := q.apart.levels[level][:0]
			for _, s := range q.apart.levels[level] {
				if s.unlist() {
					q.apart.count--
					continue
				}
				kept = append(kept, s)
				if s.asking != q.apart.asking {
					s.rank = p.state.ClassRank(s.key.class, s.key.level)
					pass = append(pass, s)
				}
			}
			clear(q.apart.levels[level][len(kept):])
			q.apart.levels[level] = kept
		}
		h := passHeap(pass)
		if len(h) > 1 {
			heap.Init(&h)
		}
		for len(h) > 0 {
			s := h[0]
			if len(h) > 1 {
				if rank := p.state.ClassRank(s.key.class, s.key.level); rank != s.rank {
					s.rank = rank
					heap.Fix(&h, 0)
					continue
				}
			}
			switch p.serve(b, s) {
			case served:
				if len(s.waiters) > 0 {
					if len(h) > 1 {
						heap.Fix(&h, 0)
					}
					continue
				}
			case stop:
				q.more = true
				q.pass = pass[:0]
				return
			}
			if len(h) == 1 {
				break
			}
			heap.Pop(&h)
		}
		q.pass = pass[:0]
	}
	q.apart.end(b.t.Now)
	q.dirty = false
}

// resting reports whether a shape can be left out of a pass: its head is not to
// be asked yet, keeps nothing from others, and nobody is new.
func (q *queue) resting(s *shape, now int64) bool {
	if s.waiters[0] != s.asked || len(s.wanted) > 0 || len(s.fresh) > 0 || s.readyAt <= now {
		return false
	}
	if q.dirty && s.restTo > now {
		s.readyAt = min(s.readyAt, s.restTo)
	}
	return !q.dirty || s.restTo > now
}

// unlist drops a shape without waiters from its list.
func (s *shape) unlist() bool {
	if len(s.waiters) > 0 {
		return false
	}
	s.listed, s.asked = false, nil
	s.clearFresh()
	return true
}
