package engine

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// ticketLife is how long after its slot a ticket still gives seniority. Without
// an end one old ticket would put every later request of its holder first.
const ticketLife = 30 * time.Second

// ticket is seniority in one pool for one agent: it charges nothing and
// promises nothing but the place in the queue. The zero value is none.
//
// Its record is u8 version and kind, u8 key id, pool hash[8], principal[8],
// agent hash[8], level, uvarints first seen, slot - first seen, and the signature.
type ticket struct {
	pool      uint64 // hash of the name
	principal uint64
	agent     uint64 // hash of the name; 0 is any
	level     arbiter.Priority
	firstSeen int64 // logical time
	slot      int64 // logical time to come back at
}

func nameHash(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

func (s *signer) appendTicket(dst []byte, t *ticket) []byte {
	b := append(dst, ticketV1, s.keys[0].id)
	for _, n := range [...]uint64{t.pool, t.principal, t.agent} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = append(b, byte(t.level))
	b = binary.AppendUvarint(b, uint64(t.firstSeen))
	b = binary.AppendUvarint(b, uint64(max(t.slot-t.firstSeen, 0)))
	return s.sign(b, len(dst))
}

func (s *signer) parseTicket(raw []byte) (t ticket, ok bool) {
	if len(raw) < 2+macBytes || len(raw) > MaxTokenBytes || raw[0] != ticketV1 {
		return ticket{}, false
	}
	body, ok := s.verify(raw[1], raw)
	if !ok {
		return ticket{}, false
	}
	r := record{b: body[2:], ok: true}
	for _, n := range [...]*uint64{&t.pool, &t.principal, &t.agent} {
		if p := r.take(8); r.ok {
			*n = binary.LittleEndian.Uint64(p)
		}
	}
	if p := r.take(1); r.ok {
		t.level = arbiter.Priority(p[0])
	}
	t.firstSeen = int64(r.number() & math.MaxInt64)
	t.slot = t.firstSeen + int64(r.number()&math.MaxInt64)
	if !r.ok || len(r.b) != 0 || t.level > arbiter.Critical || t.slot < t.firstSeen {
		return ticket{}, false
	}
	return t, true
}

// seniority returns the first-seen time that the ticket gives to a request of
// this level at logical time now, or now itself: a ticket of another pool,
// principal or agent, of a lower level, or long past its slot gives none.
func (t *ticket) seniority(pool uint64, r *arbiter.Request, level arbiter.Priority, now int64) int64 {
	if t.firstSeen == 0 || t.firstSeen > now || t.slot+int64(ticketLife) < now {
		return now
	}
	if t.pool != pool || t.principal != r.Principal || t.agent != 0 && t.agent != nameHash(r.Agent) || level > t.level {
		return now
	}
	return t.firstSeen
}
