// Module lint pins the linter and the vulnerability checker, apart
// from the product so that its go.mod stays small.
module github.com/token-budget-arbiter/tba/tools/lint

go 1.26
