package journal

import (
	"fmt"
	"slices"
)

// CheckRequest reads the header of the request's entry and checks what does
// not depend on the log: size, checksum, that header and request agree. Stores
// call it first. ErrTooLarge, ErrInvalid, ErrFormat.
func CheckRequest(pool string, req AppendRequest) (Header, error) {
	h, err := DecodeHeader(req.Entry)
	if err != nil {
		return Header{}, err
	}
	bad := ""
	switch {
	case h.Pool != pool:
		bad = fmt.Sprintf("it belongs to pool %q, this is %q", h.Pool, pool)
	case h.ID.IsZero() || h.PrevID.IsZero():
		bad = "id and prev_id must be set"
	case h.ID == h.PrevID:
		bad = "its id is that of its predecessor"
	case h.Seq != req.After.Seq+1 || h.PrevID != req.After.ID:
		bad = fmt.Sprintf("it follows %d/%s, the request says after %s", h.Seq-1, h.PrevID, req.After)
	case h.Flags&FlagEssential != 0 != req.Essential:
		bad = "its essential flag differs from the request's"
	}
	if bad != "" {
		return Header{}, fmt.Errorf("append entry: %w: %s", ErrInvalid, bad)
	}
	return h, nil
}

// CheckTime refuses the now of an entry that lies more than MaxClockLead above
// store time, or below the now of the entry before it.
func CheckTime(now, last, store int64) error {
	if now > store+int64(MaxClockLead) {
		return fmt.Errorf("append entry: %w: now is %d ns ahead of the store, at most %d", ErrClock, now-store, int64(MaxClockLead))
	}
	if now < last {
		return fmt.Errorf("append entry: %w: now is %d ns before the last entry", ErrClock, last-now)
	}
	return nil
}

// CheckRow refuses an archive row with a bad key (ErrInvalid) or above
// MaxEntryBytes (ErrTooLarge).
func CheckRow(key string, row []byte) error {
	if !ValidName(key) {
		return fmt.Errorf("%w: a key has 1 to %d characters of A-Z a-z 0-9 . _ : -", ErrInvalid, MaxNameBytes)
	}
	if len(row) > MaxEntryBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(row), MaxEntryBytes)
	}
	return nil
}

// PageKeys sorts keys in place and returns the page that Archive.List answers.
func PageKeys(keys []string, after string, limit int) []string {
	if limit <= 0 {
		limit = 1000
	}
	slices.Sort(keys)
	i, found := slices.BinarySearch(keys, after)
	if found {
		i++
	}
	return keys[i:min(len(keys), i+limit)]
}
