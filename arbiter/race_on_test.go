//go:build race

package arbiter

// underRace shortens the long searches: nothing here runs at once but the readers of TestReadersShareAState.
const underRace = true
