package config_test

import (
	"fmt"

	"github.com/token-budget-arbiter/tba/internal/config"
)

func ExampleLoadBytes() {
	c, err := config.LoadBytes("tba.yaml", []byte(`
budget:
  global_tokens: 1_000_000
  providers:
    openai: {rpm_ceiling: 500}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	pool, _ := c.Pool("")
	fmt.Println(pool.Name, pool.Policy.Global.Tokens, pool.Policy.Providers[0].RPM)

	_, err = config.LoadBytes("tba.yaml", []byte("budget:\n  providers:\n    openai: {rpm_cieling: 500}\n"))
	fmt.Println(err)
	// Output:
	// default 1000000 500
	// tba.yaml:3:14: error: unknown key "rpm_cieling" in budget.providers.openai; did you mean "rpm_ceiling"? [unknown-key]
	//     3 |     openai: {rpm_cieling: 500}
	//       |              ^^^^^^^^^^^
}
