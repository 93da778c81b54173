//go:build !race

package arbiter

const underRace = false
