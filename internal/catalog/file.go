package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// maxFile bounds a price file: the embedded one is 21 KB.
const maxFile = 4 << 20

// The text of a price file. Prices are USD per million tokens, kept as text until they are read exactly.
type (
	fileRoot struct {
		Version     int                          `yaml:"catalogue_version"`
		AsOf        string                       `yaml:"as_of"`
		Currency    string                       `yaml:"currency"`
		Unit        string                       `yaml:"unit"`
		Multipliers map[string]map[string]number `yaml:"multipliers"`
		Models      []fileModel                  `yaml:"models"`
	}
	fileModel struct {
		ID         string     `yaml:"id"`
		Provider   string     `yaml:"provider"`
		Aliases    []string   `yaml:"aliases"`
		Context    int64      `yaml:"context"`
		MaxInput   int64      `yaml:"max_input"`
		MaxOutput  *int64     `yaml:"max_output"`
		Retires    string     `yaml:"retires"`
		Source     string     `yaml:"source"`
		Confidence string     `yaml:"confidence"`
		Prices     []fileRow  `yaml:"prices"`
		Promo      *fileRates `yaml:"promo"` // recorded, never charged: its end is unknown, the list price is the safe side
		Fast       *fileRates `yaml:"fast"`
	}
	fileRow struct {
		From      string     `yaml:"from"`
		To        string     `yaml:"to"`
		Tiers     []fileTier `yaml:"tiers"`
		fileRates `yaml:",inline"`
	}
	fileTier struct {
		OverInput int64 `yaml:"over_input"`
		fileRates `yaml:",inline"`
	}
	// fileRates also names the prices of media. They are checked and kept out of the sums:
	// a usage has no token class of its own for them.
	fileRates struct {
		In             number `yaml:"in"`
		CacheRead      number `yaml:"cache_read"`
		CacheWrite     number `yaml:"cache_write"`
		CacheWriteLong number `yaml:"cache_write_long"`
		Out            number `yaml:"out"`
		AudioIn        number `yaml:"audio_in"`
		AudioCacheRead number `yaml:"audio_cache_read"`
		ImageIn        number `yaml:"image_in"`
		VideoIn        number `yaml:"video_in"`
	}
	// number is a scalar as written: "2.50" stays "2.50".
	number struct {
		text string
		line int
	}
)

// UnmarshalYAML takes the scalar's text, before any conversion.
func (n *number) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode {
		return errors.New("want a number")
	}
	n.text, n.line = node.Value, node.Line
	return nil
}

// Parse reads a price file in the format of the embedded one. Name is used in errors only.
// The error joins every fault found, each with the file, and the line or the model id it is about.
func Parse(name string, text []byte) (*Catalog, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: price file of %d bytes: at most %d are read", name, len(text), maxFile)
	}
	var root fileRoot
	if err := yaml.Load(text, &root, yaml.WithKnownFields()); err != nil {
		return nil, fmt.Errorf("%s: read price file: %w", name, err)
	}
	r := reader{name: name}
	if root.Currency != "" && root.Currency != "USD" {
		r.fault("currency is %q: only USD is known", root.Currency)
	}
	if root.Unit != "" && root.Unit != "per_1M_tokens" {
		r.fault("unit is %q: prices are per_1M_tokens", root.Unit)
	}
	c := &Catalog{asOf: r.date("as_of", root.AsOf), multipliers: map[string]map[string]Ratio{}}
	for provider, tiers := range root.Multipliers {
		of := map[string]Ratio{}
		for tier, n := range tiers {
			v, err := ParseDecimal(n.text, ratioScale)
			if err != nil || v > int64(maxRatio) {
				r.fault("line %d: multipliers.%s.%s: %q is not a number from 0 to %d", n.line, provider, tier, n.text, maxRatio/RatioOne)
			}
			of[tier] = Ratio(v)
		}
		c.multipliers[Provider(provider)] = of
	}
	seen := map[string]bool{}
	for i, m := range root.Models {
		model := r.model(i, m)
		for _, id := range append([]string{model.ID}, model.Aliases...) {
			if seen[model.Provider+"/"+id] {
				r.fault("model %s: %s names the id twice", id, model.Provider)
			}
			seen[model.Provider+"/"+id] = true
		}
		c.models = append(c.models, model)
	}
	if len(root.Models) == 0 && len(r.faults) == 0 {
		r.fault("no models")
	}
	if err := errors.Join(r.faults...); err != nil {
		return nil, err
	}
	c.index()
	return c, nil
}

// reader collects the faults of one file.
type reader struct {
	name   string
	faults []error
}

func (r *reader) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("%s: %s", r.name, fmt.Sprintf(format, args...)))
}

// date reads a day, in UTC since providers name no zone. Empty is the zero time.
func (r *reader) date(what, text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	// An unquoted date may arrive with the time of day that YAML 1.1 gives it.
	day, _, _ := strings.Cut(text, "T")
	t, err := time.Parse(time.DateOnly, day)
	if err != nil || t.Year() < 2000 || t.Year() > 2200 { // nanoseconds of an int64 end in 2262
		r.fault("%s: %q is not a date (2026-11-29)", what, text)
	}
	return t
}

func (r *reader) model(i int, m fileModel) Model {
	what := "model " + m.ID
	if m.ID == "" || m.Provider == "" {
		r.fault("models[%d]: id and provider are required", i)
		what = fmt.Sprintf("models[%d]", i)
	}
	if m.Context < 0 || m.MaxInput < 0 || (m.MaxOutput != nil && *m.MaxOutput < 0) {
		r.fault("%s: context, max_input and max_output are not negative", what)
	}
	model := Model{
		ID: m.ID, Provider: Provider(m.Provider), Aliases: m.Aliases,
		Context: m.Context, MaxInput: m.MaxInput, MaxOutput: -1,
		Retires: r.date(what+": retires", m.Retires), Source: m.Source, Confidence: m.Confidence,
	}
	if m.MaxOutput != nil {
		model.MaxOutput = *m.MaxOutput
	}
	if m.Fast != nil {
		rates := r.rates(what+": fast", *m.Fast)
		model.Fast = &rates
	}
	if m.Promo != nil {
		r.rates(what+": promo", *m.Promo)
	}
	if len(m.Prices) == 0 {
		r.fault("%s: no prices (a free model has in: 0, out: 0)", what)
	}
	for j, row := range m.Prices {
		w := fmt.Sprintf("%s: prices[%d]", what, j)
		p := arbiter.Price{From: nanos(r.date(w+": from", row.From)), To: nanos(r.date(w+": to", row.To)), Rates: r.rates(w, row.fileRates)}
		for _, t := range row.Tiers {
			if t.OverInput <= 0 {
				r.fault("%s: a tier needs over_input above 0", w)
			}
			p.Tiers = append(p.Tiers, arbiter.Tier{OverInput: arbiter.Tokens(t.OverInput), Rates: r.rates(w+": tier", t.fileRates)})
		}
		slices.SortFunc(p.Tiers, func(a, b arbiter.Tier) int { return cmp.Compare(a.OverInput, b.OverInput) })
		for k := 1; k < len(p.Tiers); k++ {
			if p.Tiers[k].OverInput == p.Tiers[k-1].OverInput {
				r.fault("%s: two tiers over %d", w, p.Tiers[k].OverInput)
			}
		}
		model.Prices = append(model.Prices, p)
	}
	r.order(what, model.Prices)
	return model
}

// order sorts rows by date and refuses gaps and overlaps: at each instant one row holds.
// The outer rows are then opened to both sides: a clock that is wrong must not leave a model without a price.
func (r *reader) order(what string, rows []arbiter.Price) {
	slices.SortStableFunc(rows, func(a, b arbiter.Price) int { return cmp.Compare(a.From, b.From) })
	for i, row := range rows {
		if row.To != 0 && row.From >= row.To {
			r.fault("%s: a price row ends before it begins", what)
		}
		if i > 0 && (row.From == 0 || row.From != rows[i-1].To) {
			r.fault("%s: price rows must follow each other day by day (to of one = from of the next)", what)
		}
	}
	if len(rows) > 0 {
		rows[0].From, rows[len(rows)-1].To = 0, 0
	}
}

// nanos is t as Unix nanoseconds, 0 for the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// rates reads one line of prices. What a provider does not list for the cache costs as much as fresh input:
// never less than the bill.
func (r *reader) rates(what string, f fileRates) arbiter.Rates {
	read := func(name string, n number, missing arbiter.Pico) arbiter.Pico {
		if n.line == 0 {
			return missing
		}
		p, err := PerMillion(n.text)
		if err != nil {
			r.fault("line %d: %s: %s: %v", n.line, what, name, err)
		}
		return p
	}
	if f.In.line == 0 || f.Out.line == 0 {
		r.fault("%s: in and out are required (0 is allowed, and means free)", what)
	}
	var v arbiter.Rates
	v.Input = read("in", f.In, 0)
	v.Output = read("out", f.Out, 0)
	v.CacheRead = read("cache_read", f.CacheRead, v.Input)
	v.CacheWrite = read("cache_write", f.CacheWrite, v.Input)
	v.CacheWriteLong = read("cache_write_long", f.CacheWriteLong, v.CacheWrite)
	read("audio_in", f.AudioIn, 0)
	read("audio_cache_read", f.AudioCacheRead, 0)
	read("image_in", f.ImageIn, 0)
	read("video_in", f.VideoIn, 0)
	return v
}
