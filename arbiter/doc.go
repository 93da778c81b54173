// Package arbiter is the decision: state, commands, facts, Decide, Apply and policy values, all pure.
package arbiter
