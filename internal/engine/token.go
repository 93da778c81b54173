package engine

import (
	"encoding/binary"
	"math"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// A lease token is a signed binary record, opaque to its holder:
//
//	u8 version and kind, u8 key id, lease[16], principal[8], priority,
//	uvarints: input, output, nanos, period, granted, deadline - granted,
//	commit_by - granted, epoch, seq,
//	strings (u8 length and bytes): pool, agent, class, task, workflow,
//	provider, model, where the request had waited a uvarint of how long, and
//	the signature
//
// Text carriers (JSON, headers) wrap it in base64url.
const (
	leaseTokenV1 = 0x11
	ticketV1     = 0x21
	// MaxTokenBytes bounds a lease token or ticket.
	MaxTokenBytes = 1200
	maxIDBytes    = 128
)

// appendLeaseToken appends the signed record of the claims.
func (s *signer) appendLeaseToken(dst []byte, pool string, c *arbiter.Claims) []byte {
	b := append(dst, leaseTokenV1, s.keys[0].id)
	b = append(b, c.Lease[:]...)
	b = binary.LittleEndian.AppendUint64(b, c.Principal)
	b = append(b, byte(c.Priority))
	for _, n := range [...]uint64{
		uint64(c.Input), uint64(c.Output), uint64(c.Nanos), uint64(c.Period),
		uint64(c.Granted), uint64(c.Deadline - c.Granted), uint64(c.CommitBy - c.Granted), c.Epoch, c.Seq,
	} {
		b = binary.AppendUvarint(b, n)
	}
	for _, v := range [...]string{pool, c.Agent, c.Class, c.Task, c.Workflow, c.Provider, c.Model} {
		v = v[:min(len(v), maxIDBytes)]
		b = append(append(b, byte(len(v))), v...)
	}
	if c.Waited > 0 {
		b = binary.AppendUvarint(b, uint64(c.Waited))
	}
	return s.sign(b, len(dst))
}

// parseLeaseToken checks the signature before it reads anything else.
func (s *signer) parseLeaseToken(token []byte) (pool string, c arbiter.Claims, ok bool) {
	if len(token) < 2+macBytes || len(token) > MaxTokenBytes || token[0] != leaseTokenV1 {
		return "", c, false
	}
	body, ok := s.verify(token[1], token)
	if !ok {
		return "", c, false
	}
	r := record{b: body[2:], ok: true}
	copy(c.Lease[:], r.take(16))
	if p := r.take(8); r.ok {
		c.Principal = binary.LittleEndian.Uint64(p)
	}
	if p := r.take(1); r.ok {
		c.Priority = arbiter.Priority(p[0])
	}
	c.Input, c.Output = arbiter.Tokens(r.amount()), arbiter.Tokens(r.amount())
	c.Nanos = arbiter.Nanos(r.amount())
	period := r.number()
	c.Granted = int64(r.number() & math.MaxInt64)
	c.Deadline = c.Granted + int64(r.number()&math.MaxInt64)
	c.CommitBy = c.Granted + int64(r.number()&math.MaxInt64)
	c.Epoch, c.Seq = r.number(), r.number()
	r.all = string(r.b) // one copy for all
	pool = r.text()
	for _, v := range [...]*string{&c.Agent, &c.Class, &c.Task, &c.Workflow, &c.Provider, &c.Model} {
		*v = r.text()
	}
	if r.ok && len(r.b) > 0 {
		c.Waited = int64(r.number() & math.MaxInt64)
	}
	// Times are sums: a signed record cannot overflow them, a damaged signer could.
	if !r.ok || len(r.b) != 0 || period > math.MaxUint32 || c.Priority > arbiter.Critical ||
		c.Deadline < c.Granted || c.CommitBy < c.Granted || c.Waited > c.Granted {
		return "", arbiter.Claims{}, false
	}
	c.Period = uint32(period)
	return pool, c, true
}

// record reads a binary record; ok turns false at the first fault.
type record struct {
	b   []byte
	ok  bool
	all string // what the texts are parts of; it ends where b ends
}

func (r *record) take(n int) []byte {
	if !r.ok || len(r.b) < n {
		r.ok = false
		return nil
	}
	head := r.b[:n]
	r.b = r.b[n:]
	return head
}

func (r *record) number() uint64 {
	if !r.ok {
		return 0
	}
	n, w := binary.Uvarint(r.b)
	if w <= 0 {
		r.ok = false
		return 0
	}
	r.b = r.b[w:]
	return n
}

func (r *record) amount() uint64 {
	n := r.number()
	if n > arbiter.MaxAmount {
		r.ok = false
		return 0
	}
	return n
}

func (r *record) text() string {
	p := r.take(1)
	if !r.ok || p[0] > maxIDBytes {
		r.ok = false
		return ""
	}
	n := int(p[0])
	if r.take(n); !r.ok {
		return ""
	}
	from := len(r.all) - len(r.b) - n
	return r.all[from : from+n]
}
