package arbiter

import "encoding/binary"

// leaseIndex finds a lease's slot by its id: open addressing, linear probing, at most 3/4 full. Ids are hashes or random, so their own
// first bits place them. An entry is 8 bytes; the id itself is compared in the lease table.
type leaseIndex struct {
	entries []indexEntry // a power of two
	used    int
}

// indexEntry is empty when slot is 0; slots are kept plus 1.
type indexEntry struct{ tag, slot uint32 }

func indexTag(id LeaseID) uint32 { return binary.LittleEndian.Uint32(id[4:]) }

func (x *leaseIndex) get(leases *slab[lease], id LeaseID) (slot uint32, ok bool) {
	if len(x.entries) == 0 {
		return 0, false
	}
	tag, mask := indexTag(id), uint32(len(x.entries)-1)
	for i := tag & mask; x.entries[i].slot != 0; i = (i + 1) & mask {
		if e := x.entries[i]; e.tag == tag && leases.at(e.slot-1).id == id {
			return e.slot - 1, true
		}
	}
	return 0, false
}

func (x *leaseIndex) put(id LeaseID, slot uint32) {
	if 4*(x.used+1) > 3*len(x.entries) {
		old := x.entries
		x.entries = make([]indexEntry, max(2*len(old), 64))
		for _, e := range old {
			if e.slot != 0 {
				x.place(e)
			}
		}
	}
	x.place(indexEntry{indexTag(id), slot + 1})
	x.used++
}

func (x *leaseIndex) place(e indexEntry) {
	mask := uint32(len(x.entries) - 1)
	i := e.tag & mask
	for x.entries[i].slot != 0 {
		i = (i + 1) & mask
	}
	x.entries[i] = e
}

// remove takes the entry of a slot out and closes the gap, so that no search stops early.
func (x *leaseIndex) remove(id LeaseID, slot uint32) {
	mask := uint32(len(x.entries) - 1)
	i := indexTag(id) & mask
	for x.entries[i].slot != slot+1 {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; x.entries[j].slot != 0; j = (j + 1) & mask {
		if home := x.entries[j].tag & mask; (j-home)&mask >= (j-i)&mask {
			x.entries[i] = x.entries[j]
			i = j
		}
	}
	x.entries[i] = indexEntry{}
	x.used--
}
