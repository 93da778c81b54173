package rpc

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// Bounds of one answer of a read.
const (
	defaultPage = 100
	maxPage     = 1000
)

// pageSize reads a limit of rows; 0 is normal.
func pageSize(asked int32, normal int) (int, *arbiter.Error) {
	switch {
	case asked == 0:
		return normal, nil
	case asked < 0 || asked > maxPage:
		return 0, invalid("limit", "bad_limit", "%d is outside 1..%d: ask for less and go on with the next page", asked, maxPage)
	}
	return int(asked), nil
}

func badPage(token string) *arbiter.Error {
	return invalid("page_token", "bad_page_token", "%q is no page token: send next_page_token of the page before, or none", cut(token))
}

// pageOf gathers the first rows, in an order, of any number that are offered: it keeps at most twice as many as the page has, and one.
type pageOf[T any] struct {
	size    int
	compare func(a, b *T) int
	rows    []T
	last    bool // the rows are sorted and full: the last one is what a row must come before
}

// offer takes a row when it may be of the page.
func (p *pageOf[T]) offer(r *T) {
	if p.last && p.compare(r, &p.rows[p.size]) >= 0 {
		return
	}
	if p.rows = append(p.rows, *r); len(p.rows) > 2*p.size {
		p.trim()
	}
}

// trim sorts and keeps the page and one row more, which tells that there is a next page.
func (p *pageOf[T]) trim() {
	slices.SortFunc(p.rows, func(a, b T) int { return p.compare(&a, &b) })
	if len(p.rows) > p.size {
		clear(p.rows[p.size+1:])
		p.rows, p.last = p.rows[:p.size+1], true
	}
}

// done returns the page and whether there are rows after it.
func (p *pageOf[T]) done() (rows []T, more bool) {
	p.trim()
	return p.rows[:min(len(p.rows), p.size)], len(p.rows) > p.size
}

// place is where a lease stands in the list: by age, then by id.
type place struct {
	granted int64
	id      arbiter.LeaseID
}

func placeOf(r *arbiter.LeaseRow) place { return place{r.Granted, r.Lease} }

func comparePlace(a, b place) int {
	return cmp.Or(cmp.Compare(a.granted, b.granted), bytes.Compare(a.id[:], b.id[:]))
}

func (p place) String() string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, uint64(p.granted)), p.id[:]...))
}

// parsePage reads a page token; the empty one is before every lease.
func parsePage(token string) (place, *arbiter.Error) {
	p := place{granted: math.MinInt64}
	if token == "" {
		return p, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) != 8+len(p.id) {
		return p, badPage(token)
	}
	p.granted = int64(binary.BigEndian.Uint64(b))
	copy(p.id[:], b[8:])
	return p, nil
}

// compareBudgets is the order of budgets: by kind, which is from the root down, then by name, tokens before money.
func compareBudgets(a, b *arbiter.BudgetRow) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Parent, b.Parent), strings.Compare(a.Name, b.Name), cmp.Compare(a.Unit, b.Unit))
}

// budgetPage is the place of a budget row as a page token. Names have no NUL.
func budgetPage(r *arbiter.BudgetRow) string {
	b := append([]byte{byte(r.Kind), byte(r.Unit)}, r.Parent...)
	return base64.RawURLEncoding.EncodeToString(append(append(b, 0), r.Name...))
}

// parseBudgetPage reads a page token; nil for the empty one.
func parseBudgetPage(token string) (*arbiter.BudgetRow, *arbiter.Error) {
	if token == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < 3 {
		return nil, badPage(token)
	}
	parent, name, found := strings.Cut(string(b[2:]), "\x00")
	if !found {
		return nil, badPage(token)
	}
	return &arbiter.BudgetRow{Kind: arbiter.NodeKind(b[0]), Unit: arbiter.Unit(b[1]), Parent: parent, Name: name}, nil
}
